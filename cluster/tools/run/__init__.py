"""``stampede run`` and ``stampede up``."""
