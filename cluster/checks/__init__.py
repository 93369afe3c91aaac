"""The checks of a run, and the resulting verdict."""
