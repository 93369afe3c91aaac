"""``stampede explore``: every schedule of a few steps of a consensus engine."""
