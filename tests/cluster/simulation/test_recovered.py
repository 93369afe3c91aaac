"""What was durable, and told to nobody before all were killed, is watched from the next start on."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.scenario import Scenario
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme
from consensus.protocols import PROTOCOLS

FIELDS: dict[str, Any] = {
    "name": "recovered",
    "validators": [{"sync_ms": 5}, *[{"sync_ms": 150}] * 3],  # so that one is some blocks ahead of the others
    "consensus": {"block_interval_ms": 50, "leader_timeout_ms": 400, "advance_timeout_ms": 600},
    "load": {"users": [{"workload": "flood", "interval_ms": 300, "options": {"timers": 5}}]},
    "stop": {"height": 40, "timeout_s": 60},
}
HEIGHT = 6
SEEDS = 40


def newest(simulation: WatchedSimulation) -> int:
    """The newest final block that somebody has, durably."""
    running = [machine.validator for machine in simulation.machines if machine.validator is not None]
    return max(validator.executor.final_header.height for validator in running)


def killed_before_anybody_was_told(protocol: str, seed: int = 3) -> tuple[WatchedSimulation, int]:
    """All four are down, and on one disk is a final block that nobody spoke of."""
    plan = Scenario.model_validate(FIELDS | {"consensus": FIELDS["consensus"] | {"protocol": protocol}})
    simulation = WatchedSimulation(plan, seed, "test", scheme=KeyedHashScheme())
    simulation.begin()
    while newest(simulation) <= max(HEIGHT, simulation.watches.monitor.height):
        assert simulation.advance()
    height = newest(simulation)
    for machine in simulation.machines:
        machine.crash(simulation.random)
    assert simulation.watches.monitor.height == height - 1
    return simulation, height


def go_on(simulation: WatchedSimulation, height: int) -> None:
    while simulation.watches.monitor.height < height:
        assert simulation.advance()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_is_watched(protocol: str) -> None:
    simulation, height = killed_before_anybody_was_told(protocol)
    for machine in simulation.machines:
        machine.start()
    assert simulation.watches.monitor.height == height
    go_on(simulation, height + 8)
    assert simulation.watches.monitor.log.violations == []


def is_taken_for_wrong(seed: int) -> bool:
    """Whether a monitor that is not told of the block finds fault with the next one."""
    simulation, height = killed_before_anybody_was_told("hotstuff", seed)
    for machine in simulation.machines:
        machine.listeners.opens = ()
        machine.start()
    go_on(simulation, height + 8)
    return any("ancestry" in violation for violation in simulation.watches.monitor.log.violations)


def test_a_monitor_that_is_not_told_takes_the_next_block_for_wrong() -> None:
    """The planted fault. With Simplex, and in three of four seeds, the others have made the block final, too, before
    the next one is."""
    assert any(map(is_taken_for_wrong, range(SEEDS)))
