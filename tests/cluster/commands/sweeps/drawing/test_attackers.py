"""Attacks of random scenarios: each is drawn, small, and the last of the users."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from cluster.commands.sweeps.drawing import attackers
from cluster.commands.sweeps.drawing.attackers import ATTACKED, ATTACKS, BUDGETS, DEFERRED, NUMBERS, attack
from cluster.commands.sweeps.drawing.extremes import storm
from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.scenario import Scenario
from loadgen.workloads.attacks import registry
from loadgen.workloads.attacks.composed import Composed
from loadgen.workloads.storm import Storm

SEEDS = 200
OTHERS = [{"workload": "heartbeat"}, {"workload": "flood", "count": 2}]


def drawn(seed: int) -> list[dict[str, Any]]:
    """The users of a scenario, which must be one."""
    fields: dict[str, Any] = {"name": "attacked", "chain": {"params": {}}, "load": {"users": list(OTHERS)}}
    attack(Random(seed), fields)
    Scenario.model_validate(fields)
    users: list[dict[str, Any]] = fields["load"]["users"]
    return users


def test_a_part_of_the_seeds_has_attackers_behind_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counter(len(users) - len(OTHERS) for users in map(drawn, range(SEEDS)))
    assert set(counts) == {0, *NUMBERS}
    assert abs(1 - counts[0] / SEEDS - ATTACKED) < 0.1
    monkeypatch.setattr(attackers, "ATTACKED", 1.0)
    found = [drawn(seed) for seed in range(2 * SEEDS)]
    assert all(users[: len(OTHERS)] == OTHERS for users in found)
    groups = [group for users in found for group in users[len(OTHERS) :]]
    assert {group["workload"] for group in groups} == set(ATTACKS)
    assert {group.get("budget") for group in groups} == set(BUDGETS)


def test_attacks_on_the_deferred_lane_find_it_narrow_in_half_of_the_seeds() -> None:
    lanes: Counter[tuple[bool, bool]] = Counter()
    for seed in range(4 * SEEDS):
        fields: dict[str, Any] = {"chain": {"params": {}}, "load": {"users": []}}
        attack(Random(seed), fields)
        is_aimed = any(group["workload"] in DEFERRED for group in fields["load"]["users"])
        lanes[is_aimed, "LANE_DEFERRED_CYCLES" in fields["chain"]["params"]] += 1
    assert not lanes[False, True]
    assert 0.3 < lanes[True, True] / (lanes[True, True] + lanes[True, False]) < 0.7


def test_all_attacks_are_drawn_but_those_that_are_searched_for_or_drawn_elsewhere() -> None:
    assert set(ATTACKS) == set(registry.ATTACKS) - {Composed.name, Storm.name}
    fields: dict[str, Any] = {"load": {"users": []}}
    storm(Random(1), fields)
    assert fields["load"]["users"][-1]["workload"] == Storm.name


def test_a_random_scenario_may_have_them() -> None:
    found = Counter(
        bool({group.workload for group in random_scenario(seed, protocol).load.users} & set(ATTACKS))
        for protocol in ("simplex", "hotstuff")
        for seed in range(50)
    )
    assert found[True] > 20 and found[False] > 40
