"""Updates the policy from assembled groups, checkpoints it, publishes its weights."""
