"""Pure: which rollouts count, when a group has ended, what its end says, where reading must go on."""
