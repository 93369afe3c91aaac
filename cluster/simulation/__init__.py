"""The deterministic simulator: whole networks of real validators in one thread and virtual time.

:mod:`cluster.simulation.clock` orders events, :mod:`~cluster.faults.link_model` delays and loses messages,
:mod:`~cluster.simulation.machine` drives one validator, and :mod:`~cluster.simulation.driver` runs a scenario. What
happens is seen by observers (:mod:`~cluster.simulation.observer`).
"""
