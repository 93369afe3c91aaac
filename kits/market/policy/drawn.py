"""A run that is drawn from a seed: users whose timers compete for a narrow lane, under a user's policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, scenario_from
from cluster.scenario.overrides import Change, SettingError, parse_setting
from loadgen.workloads.actor_program import is_program_path

WORKLOADS: Final = ("heartbeat", "churn", "limits", "transfer")
"""Workloads that the run's users may have, in addition to that of ``flood``."""
HEIGHT: Final = 40


def drawn_scenario(path: Path, seed: int, parameters: Sequence[str]) -> Scenario:
    """The scenario of a seed. ``parameters`` are those of the policy, as ``NAME=VALUE``. Raises :class:`BadInput`."""
    random = Random(seed)
    users: list[dict[str, Any]] = [{"workload": "flood", "count": random.randint(3, 6)}]
    users += [{"workload": each, "count": random.randint(1, 3)} for each in random.sample(WORKLOADS, 2)]
    lane = random.choice([50_000, 100_000, 400_000])
    caps = dict.fromkeys(("MAX_CYCLES_PER_FIRE", "MAX_CYCLES_PER_FIRE_AUCTION_PHASE"), 25_000)
    given = str(path) if is_program_path(str(path)) else f"./{path}"
    fields = {
        "name": "policy",
        "seed": seed,
        "chain": {"policy": given, "params": {"LANE_TIMER_CYCLES": lane, **caps}},
        "load": {"users": users},
        "stop": {"height": HEIGHT},
    }
    return change_scenario(scenario_from(fields, str(path)), [_parameter(each) for each in parameters], str(path))


def _parameter(text: str) -> Change:
    try:
        return parse_setting(f"chain.policy_parameters.{text}")
    except SettingError:
        raise BadInput(f"--param {text}: expected NAME=VALUE, such as most_fires=2") from None
