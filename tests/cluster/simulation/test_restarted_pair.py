"""Two validators restart while a third one is behind and the fourth is gone: the two have to bring it level."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.simulation.driver import Simulation
from consensus.keys import KeyedHashScheme

SMOKE = Path(__file__).resolve().parents[3] / "scenarios" / "smoke.yaml"
CUT_OFF, GONE = 2, 3
HEALED_AFTER_MS = 60_000
ENOUGH_MS = 60_000


class CutOff(Simulation):
    """One validator may hear nobody, and be heard by nobody."""

    is_cut = False

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        arrive = self.network.arrive
        self.network.arrive = (  # type: ignore[method-assign]
            lambda *message: None if self.is_cut and CUT_OFF in message[:2] else arrive(*message)
        )


def plan(protocol: str) -> Scenario:
    whole = load_scenario(SMOKE)
    stop = whole.stop.model_copy(update={"height": 400, "timeout_s": 3_000})
    consensus = whole.consensus.model_copy(update={"protocol": protocol})
    load = whole.load.model_copy(update={"users": []})
    return whole.model_copy(update={"faults": [], "stop": stop, "consensus": consensus, "load": load})


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.soak)])
def test_the_network_goes_on(protocol: str, seed: int) -> None:
    simulation = CutOff(plan(protocol), seed, "test", scheme=KeyedHashScheme())
    machines = simulation.machines
    simulation.begin()
    advance_to_height(simulation, 10)
    simulation.is_cut = True
    advance_to_height(simulation, 14)
    machines[GONE].crash(Random(1))
    advance_by(simulation, HEALED_AFTER_MS)
    for machine in machines[:CUT_OFF]:
        machine.crash(Random(machine.index))
        machine.start()
    simulation.is_cut = False
    before = simulation.loop.height
    advance_by(simulation, ENOUGH_MS)
    heights = [machine.validator.node.height for machine in machines[:GONE] if machine.validator is not None]
    assert len(heights) == 3
    assert min(heights) > before + 10


def advance_to_height(simulation: Simulation, height: int) -> None:
    while simulation.loop.height < height:
        assert simulation.advance()


def advance_by(simulation: Simulation, milliseconds: float) -> None:
    end_ms = simulation.clock.now_ms + milliseconds
    while simulation.clock.now_ms < end_ms and simulation.advance():
        pass
