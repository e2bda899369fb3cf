"""Pure: which groups make a step, what is learnt from them, what a checkpoint says."""
