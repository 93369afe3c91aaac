"""Scenarios: the chain and testnet to run, the load and faults, and the criteria of a pass.

A scenario is YAML, checked completely before anything starts; an unknown or wrong field is reported in one line with
file, path and reason. The same scenario runs on the live testnet and on the simulator. ``docs/scenarios.md`` is the
reference of its fields. What reads and writes files is in :mod:`cluster.scenario.files`: a host gets its scenario from
its driver.
"""

from __future__ import annotations

from cluster.scenario.model import Scenario

__all__ = ["Scenario"]
