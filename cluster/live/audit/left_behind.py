"""The record of a live run that no driver brought to its end: from its last checkpoint, and the files next to it."""

from __future__ import annotations

from pathlib import Path

from cluster.live.audit.live_audit import LiveAudit
from cluster.live.handover.handover import COLLECTED, restore
from cluster.live.handover.left import LeftRun
from cluster.record.run import RunRecord
from cluster.scenario.genesis import build_genesis, validator_set
from consensus.keys import Ed25519Scheme


def record_left(left: LeftRun, folder: Path) -> RunRecord:
    """What the driver and the validators had reported when the driver died. No validator is asked.

    Unless only the verdict was missing, the run counts as interrupted. Raises :class:`OSError`.
    """
    scenario, seed = left.scenario, left.record.seed
    genesis = build_genesis(scenario, seed, validator_set(Ed25519Scheme(), scenario, seed))
    record = RunRecord(scenario, "live", seed, left.commit, genesis)
    _, sightings, told, rows = restore(left, record, folder)
    sightings.close()
    told.close()
    audit = LiveAudit(record)
    audit.take_over(left.audit, rows)
    audit.enter_unasked()
    if left.phase != COLLECTED:
        record.interrupted, record.duration_ms = True, left.clock.at_ms
        record.problems.append(f"the driver died at height {left.height}, and no other took the run over")
    return record
