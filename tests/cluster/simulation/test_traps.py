"""A disk that is to fail does so, also where another one takes its place meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.watches.watched_simulation import simulate
from tests.cluster.simulation.flooded import flooded

SEED = 1
"""With which a bit of the state log rots, so that the damage is found before anything is written."""
VICTIM = {"target": "validator-2"}
LOSSES = [
    {"kind": "wipe", "at_height": 14, "down_ms": 500},
    {"kind": "bit_rot", "at_height": 12, "down_ms": 3_000},
]


@pytest.mark.slow
@pytest.mark.parametrize("trap", ["disk_full", "failed_sync"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss["kind"])
def test_a_disk_that_replaces_one_fails_in_its_place(loss: dict[str, Any], trap: str) -> None:
    faults = [{"kind": trap, "at_height": 14, "down_ms": 500} | VICTIM, loss | VICTIM]
    record = simulate(flooded("traps", faults), SEED, shortcuts=True)
    laid, lost = record.faults
    assert lost.begun_ms is not None and laid.begun_ms is not None
    assert lost.ended_ms is not None and lost.ended_ms > laid.begun_ms, "the trap is laid before the disk is lost"
    assert (laid.took_effect, lost.took_effect) == (True, True)
    assert loss["kind"] != "bit_rot" or "a bit of state/log-" in lost.evidence
    assert laid.evidence.count("validator-2 stopped: ") == 1
    assert check_run(record).outcome is Outcome.PASS
