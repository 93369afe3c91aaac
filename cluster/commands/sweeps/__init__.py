"""Many seeds in the simulator: sweeps over one scenario, and fuzzing with a random scenario per seed.

Seeds are independent, so Ray runs them in parallel. Each is judged like a separate run. Its outcome is written at once,
so that an interrupted sweep can be continued.
"""
