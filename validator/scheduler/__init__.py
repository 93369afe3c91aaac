"""The timer scheduler: pricing, fairness, scheduling checks, the derived index and the timer phase of a block.

What is scheduled lives in state (:mod:`validator.records`). :mod:`validator.scheduler.index` is derived from it and
can be rebuilt at any time; it only makes finding due timers fast.
"""
