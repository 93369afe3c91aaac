"""Many seeds of the simulator: sweeps over one scenario, and fuzzing with a random scenario a seed.

Seeds are independent of each other, so they are what Ray fans out. Each is judged like a run of its own; what became
of it is written down at once, so that a sweep that was interrupted goes on where it was.
"""
