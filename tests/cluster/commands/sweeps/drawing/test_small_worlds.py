"""Parameters and limits of random scenarios: every group is drawn, alone and with others, and fits."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from cluster.commands.sweeps.drawing import corners, small_worlds
from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.commands.sweeps.drawing.small_worlds import GROUPS, SMALL, shrink
from cluster.scenario import Scenario
from cluster.scenario.model import LimitsSection, StorageSection
from validator.node.limits import DEFAULT_POOL_LIMITS
from validator.primitives.params import DEFAULTS

SEEDS = 200
HEIGHTS = 42
"""Of a random scenario."""
WINDOWS = ("view_window", "retained_views", "evidence_views", "final_views", "distrusted_views", "journal_blocks")


def drawn(seed: int, **params: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": "small", "chain": {"params": params}}
    shrink(Random(seed), fields)
    return fields


@pytest.mark.parametrize("seed", range(0, SEEDS, 4))
def test_whatever_is_drawn_is_a_scenario(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_worlds, "SMALL", 1.0)
    monkeypatch.setattr(small_worlds, "DRAWN", 1.0)
    scenario = Scenario.model_validate(drawn(seed))
    assert len(scenario.chain.params) == sum(len(group(Random(seed))) for group in GROUPS)


def test_each_group_is_drawn_in_many_seeds_and_none_in_a_quarter() -> None:
    found = [drawn(seed) for seed in range(SEEDS)]
    counts = Counter(name for fields in found for name in fields["chain"]["params"])
    assert set(counts) == {name for group in GROUPS for name in group(Random(0))}
    assert all(SEEDS / 4 < count < SEEDS / 2 for count in counts.values()), counts
    limits = Counter(name for fields in found for name in fields.get("limits", ()))
    assert set(limits) == set(LimitsSection.model_fields)
    assert all(SEEDS / 4 < count < SEEDS / 2 for count in limits.values()), limits
    sizes = Counter(name for fields in found for name in fields.get("storage", ()))
    assert set(sizes) == set(StorageSection.model_fields)
    assert all(SEEDS / 4 < count < 2 * SEEDS / 3 for count in sizes.values()), sizes
    for part in ([fields["chain"]["params"] for fields in found], [fields.get("storage") for fields in found]):
        assert abs(sum(not each for each in part) / SEEDS - (1 - SMALL)) < 0.1


def test_windows_wrap_three_times() -> None:
    for seed in range(SEEDS):
        fields = drawn(seed)
        params, limits = fields["chain"]["params"], fields.get("limits", {})
        for name in ("FAIRNESS_WINDOW_BLOCKS", "EPOCH_LENGTH"):
            assert 3 * params.get(name, 1) <= HEIGHTS
        for name in ("max_blocks_refused", "max_blocks_waiting", *WINDOWS):
            assert 2 * limits.get(name, 1) <= HEIGHTS
        assert params.get("RING_BUFFER_SIZE", 1) < DEFAULTS.ring_buffer_size
        assert limits.get("max_transactions", 1) < DEFAULT_POOL_LIMITS.max_transactions


def test_what_was_given_stays() -> None:
    for seed in range(SEEDS):
        params = drawn(seed, SCAN_LIMIT=3, EPOCH_LENGTH=40)["chain"]["params"]
        assert (params["SCAN_LIMIT"], params["EPOCH_LENGTH"]) == (3, 40)
        assert not params.keys() & {"TIMER_GC_CYCLES", "RING_BUFFER_SIZE", "EPOCH_HORIZON"}


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
def test_all_else_is_drawn_as_without(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corners, "CORNERED", 0.0)
    small = [random_scenario(seed, protocol) for seed in range(40)]
    monkeypatch.setattr(small_worlds, "SMALL", 0.0)
    for seed, plan in enumerate(small):
        plain = random_scenario(seed, protocol)
        assert plan.chain.params.items() >= plain.chain.params.items()
        assert plain.limits == LimitsSection()
        assert {
            **plan.storage.model_dump(),
            **plain.storage.model_dump(exclude_unset=True),
        } == plan.storage.model_dump()
        others = {"chain": plain.chain, "limits": plain.limits, "storage": plain.storage}
        assert plan.model_copy(update=others) == plain
