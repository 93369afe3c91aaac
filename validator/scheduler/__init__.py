"""The timer scheduler: pricing, fairness, the bidders of timers, and the derived index.

Timers are records of the state (:mod:`validator.chain.records`). :mod:`validator.scheduler.index` is derived from them
and can be rebuilt at any time; it only finds due timers fast. :mod:`validator.execution.timer_phase` fires timers,
:mod:`validator.execution.bidding` asks agents.
"""
