"""The checks of a run, and the verdict that they come to."""
