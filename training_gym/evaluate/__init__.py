"""How good a checkpoint is."""
