"""The timer scheduler: pricing, fairness, who bids for a timer, and the derived index.

What is scheduled lives in state (:mod:`validator.chain.records`). :mod:`validator.scheduler.index` is derived from it
and can be rebuilt at any time; it only makes finding due timers fast. Timers fire in
:mod:`validator.execution.timer_phase`, agents are asked in :mod:`validator.execution.bidding`.
"""
