"""The scheduling policies of SPEC §13, one module each.

A policy is a timer phase (:class:`validator.execution.timer_phase.TimerPhase`), which prices, orders and selects the
timers of a block, with rules for everything around it (:class:`validator.execution.lane_rules.LaneRules`). All policies
share the calendar, the lifecycle, the fairness window, charging and settling. :mod:`validator.policies.registry` has
them by name, and :mod:`validator.policies.own` those of users' files.
"""
