"""Corners of random scenarios: each fits whatever else a seed has, and reaches what it goes for."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from cluster.commands.sweeps.drawing import random_scenario as drawing
from cluster.commands.sweeps.drawing.corners import CORNERED, CORNERS, FORGER, _forgers
from cluster.commands.sweeps.drawing.extremes import Fields
from cluster.commands.sweeps.outcome import judge
from cluster.record.rules import Mechanism
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from consensus.protocols import PROTOCOLS
from tests.tiers.turns import by_turns

SEEDS = 200
RUNS = 12
Corner = Callable[[Random, Fields], None]


def cornered(seed: int, protocol: str, corner: Corner, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setattr(drawing, "corner", corner)
    return drawing.random_scenario(seed, protocol)


def test_some_seeds_have_a_corner_each_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(drawing, "corner", lambda *_: None)
        plain = [drawing.random_scenario(seed, "simplex") for seed in range(SEEDS)]
    drawn = [drawing.random_scenario(seed, "simplex") for seed in range(SEEDS)]
    share = sum(one != other for one, other in zip(plain, drawn, strict=True)) / SEEDS
    assert abs(share - CORNERED) < 0.1


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
@pytest.mark.parametrize("corner", CORNERS)
def test_a_corner_fits_every_seed(corner: Corner, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEEDS):
        assert not cornered(seed, protocol, corner, monkeypatch).simulator_problem


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
def test_forgers_meet_real_signatures(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [cornered(seed, protocol, _forgers, monkeypatch) for seed in range(SEEDS)]
    assert {plan.consensus.signatures for plan in plans} == {"ed25519"}
    forgers = [sum(FORGER in node.byzantine for node in plan.validators.nodes) for plan in plans]
    assert set(forgers) == {0, 1}
    assert sum(forgers) > SEEDS / 2


@pytest.mark.parametrize(
    ("corner", "mechanisms", "protocol"),
    [
        pytest.param(corner, mechanisms, protocol, marks=by_turns(place, protocol))
        for place, (corner, mechanisms) in enumerate(CORNERS.items())
        for protocol in PROTOCOLS
    ],
)
def test_a_corner_reaches_what_it_goes_for(
    corner: Corner, mechanisms: tuple[Mechanism, ...], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = set(mechanisms)
    for seed in range(RUNS):
        record = simulate(cornered(seed, protocol, corner, monkeypatch), seed, shortcuts=True)
        outcome, _ = judge(record, 0.0)
        assert not outcome.failed, f"seed {seed}: {outcome.reason}"
        missing.difference_update(map(Mechanism, outcome.reached))
        if not missing:
            return
    pytest.fail(f"no seed reached {', '.join(missing)}")
