"""The ledger on blocks of ``cip1`` with its candidates: real blocks pass in silence, and each broken rule is named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cluster.audit.ledger.ledger import Ledger
from tests.cluster.audit.ledger.test_gba_auction import POOR, Plant, require_silence, told
from tests.cluster.audit.ledger.test_gba_auction import walk as walk_policy
from tests.validator.chains import BOB
from validator.chain.genesis import Policy
from validator.chain.records import MEDIAN_FIRES, Fires, fires_key
from validator.policies.cip1 import Cip1Phase
from validator.primitives.params import Parameters
from validator.primitives.types import Address
from validator.scheduler import fairness
from validator.scheduler.fairness import ONE, FairnessWeights, FireCounts
from validator.scheduler.parties import Parties
from validator.state.working_set import World
from validator.transition import transition

DEPLOYER = {"WEIGHT_PARTY": "deployer"}
SMOOTHED = {"MEDIAN_SMOOTHING_MILLI": 50}
WIDE = {"WEIGHT_CLIP_MIN_MILLI": 0, "WEIGHT_CLIP_MAX_MILLI": 2_000}
NARROW = {"WEIGHT_CLIP_MIN_MILLI": 1_000, "WEIGHT_CLIP_MAX_MILLI": 1_000}
OFTEN_EMPTY = {"FAIRNESS_WINDOW_BLOCKS": 1, "LANE_TIMER_CYCLES": 20_000}
"""A window of one block, and a lane with room, so that some windows have no fires."""
CANDIDATES: list[dict[str, Any]] = [
    DEPLOYER,
    SMOOTHED,
    WIDE,
    NARROW,
    {**DEPLOYER, **SMOOTHED, **WIDE, "ACTIVATION_HEIGHT": 5},
]


def walk(seed: int, **params: Any) -> Ledger:
    """Two actors of one deployer, and one of another, in a lane that is often full."""
    given = {"LANE_TIMER_CYCLES": 12_000, "FAIRNESS_WINDOW_BLOCKS": 4, "PRIORITY_FLOOR": 1, **params}
    return walk_policy(seed, Policy.CIP1, deployers={POOR: BOB}, **given)


@pytest.mark.parametrize("params", CANDIDATES, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_contended_blocks_pass_in_silence(seed: int, params: dict[str, Any]) -> None:
    require_silence(walk(seed, **params))


def counts_for_the_actor(patched: pytest.MonkeyPatch) -> None:
    def count_fires(self: Cip1Phase) -> None:
        counts = Counter(Address(fire.actor) for fire in self.fires)
        if counts:
            self.world.put(fires_key(self.terms.height), Fires(tuple(sorted(counts.items()))))

    patched.setattr(Cip1Phase, "count_fires", count_fires)


def weighs_by_the_actor(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(Parties, "_account_of", lambda _self, actor: actor)


def forgets_the_average(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(fairness, "smoothed", lambda _before, newest, _milli: newest)


def begins_at_zero(patched: pytest.MonkeyPatch) -> None:
    smoothed = fairness.smoothed
    patched.setattr(fairness, "smoothed", lambda before, *rest: max(ONE, smoothed(before or 0, *rest)))


def moves_twice(patched: pytest.MonkeyPatch) -> None:
    smoothed = fairness.smoothed
    patched.setattr(fairness, "smoothed", lambda before, *rest: smoothed(smoothed(before, *rest), *rest))


def decays_without_fires(patched: pytest.MonkeyPatch) -> None:
    weigh = fairness.weigh

    def decaying(world: World, counts: FireCounts, parameters: Parameters) -> FairnessWeights:
        before: int | None = world.get(MEDIAN_FIRES)
        if not counts.by_account and before is not None:
            world.put(MEDIAN_FIRES, max(ONE, fairness.smoothed(before, 0, parameters.median_smoothing_milli)))
        return weigh(world, counts, parameters)

    patched.setattr(transition, "weigh", decaying)


def bounded(name: str, value: int) -> Plant:
    """A plant: one clip bound is another one, in units of 2**-16."""
    prices = Cip1Phase._kernel_prices

    def plant(patched: pytest.MonkeyPatch) -> None:
        def other(self: Cip1Phase) -> Any:
            found = prices(self)
            found[name] = value
            return found

        patched.setattr(Cip1Phase, "_kernel_prices", other)

    plant.__name__ = f"{name} is {value}"
    return plant


@pytest.mark.parametrize(
    ("plant", "params"),
    [
        (counts_for_the_actor, DEPLOYER),
        (weighs_by_the_actor, DEPLOYER),
        (forgets_the_average, SMOOTHED),
        (begins_at_zero, SMOOTHED),
        (moves_twice, SMOOTHED),
        (decays_without_fires, {"MEDIAN_SMOOTHING_MILLI": 300, **OFTEN_EMPTY, **WIDE}),
        (bounded("least_weight", ONE), WIDE),
        (bounded("most_weight", ONE), WIDE),
        (bounded("most_weight", 2 * ONE), NARROW),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_rule_is_named(monkeypatch: pytest.MonkeyPatch, plant: Plant, params: dict[str, Any]) -> None:
    plant(monkeypatch)
    assert any("came out of turn of the auction" in told(walk(seed, **params)) for seed in range(6))
