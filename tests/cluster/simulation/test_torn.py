"""Simulated kills tear what they may tear: a job in its middle, and appends that were not synced, in any order."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.simulation.machine import JOB_OPERATIONS, Machine
from cluster.watches.watched_simulation import simulate
from tests.cluster.simulation.flooded import flooded
from tests.validator.network import Network
from validator.node.executor.jobs import Finalize
from validator.storage.segments import ARCHIVE_FILE

VICTIM = 2
SLOW = 1
KILLS = 3
FAULTS: list[dict[str, Any]] = [
    {"kind": "slow_disk", "target": f"validator-{SLOW}", "sync_ms": 150, "at_height": 8, "for_ms": 60_000},
    *(
        {"kind": "kill", "target": f"validator-{SLOW}", "reorders": True, "at_height": height, "down_ms": 500}
        for height in range(12, 12 + 8 * KILLS, 8)
    ),
]


def finalizes(machine: Machine) -> bool:
    """Whether it is about to archive a block and commit its state."""
    return bool(machine.work.jobs) and isinstance(machine.work.jobs[0], Finalize)


def test_a_kill_tears_the_commit_that_is_under_way() -> None:
    network = Network(4).start()
    machine, torn = network.machines[VICTIM], set()
    for _ in range(24):
        network.run_until(lambda: finalizes(machine))
        before, archived = machine.disk.operations, machine.disk.size(ARCHIVE_FILE)
        network.crash(VICTIM)
        assert not machine.is_up
        torn.add((machine.disk.operations - before, machine.disk.size(ARCHIVE_FILE) > archived))
        machine.start()
        network.run_to(network.height(0) + 1, VICTIM)
    assert len(torn) >= JOB_OPERATIONS // 2, "it stops at one change of the disk or another"
    assert {is_archived for _, is_archived in torn} == {False, True}
    height = network.height(VICTIM)
    kept = [other.validator.executor.archive.get(height) for other in network.machines if other.validator is not None]
    assert len({each.computed_root for each in kept if each is not None}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        *range(3),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 40)),
    ],
)
def test_a_disk_that_reorders_leaves_a_journal_that_can_be_read(seed: int) -> None:
    """An earlier append was lost and a later one was not: that was taken for rot, and nothing could start from it."""
    record = simulate(flooded("torn", FAULTS, height=40, timeout_s=120), seed, shortcuts=True)
    status = record.validators[SLOW].status
    assert status is not None and status["starts"] == 1 + KILLS
    verdict = check_run(record)
    assert not [check for check in verdict.checks if check.verdict is Outcome.FAIL]
