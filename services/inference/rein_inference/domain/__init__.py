"""What a node may serve, and whether its weights are what the learner says. Pure."""
