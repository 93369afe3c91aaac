"""Scenarios: the chain and testnet to run, the load and faults, and the criteria of a pass.

A scenario is YAML, checked completely before anything starts; an unknown or wrong field is reported in one line with
file, path and reason. The same scenario runs on the live testnet and on the simulator. ``docs/scenarios.md`` is the
reference of its fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.scenario.model import Scenario

if TYPE_CHECKING:
    from cluster.scenario.files import change_scenario, fault_to_add, load_scenario, minimal_fields, scenario_from

__all__ = [
    "Scenario",
    "change_scenario",
    "fault_to_add",
    "load_scenario",
    "minimal_fields",
    "scenario_from",
]


def __getattr__(name: str) -> Any:
    """What reads and writes files is loaded when it is asked for: a host gets its scenario from its driver."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from cluster.scenario import files

    return getattr(files, name)
