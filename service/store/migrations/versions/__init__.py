"""One file per step, applied in the order of their numbers."""
