"""Random scenarios for ``stampede fuzz``."""
