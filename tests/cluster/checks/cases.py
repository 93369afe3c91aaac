"""Records and short ways for the tests of checks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cluster.checks.run import check_run
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome
from cluster.record.finalizations import Finalizations
from cluster.record.run import RunRecord
from cluster.scenario.sections.validators import EpochSection
from tests.cluster.records import ChainMaker, make_chain

FAIL, INCONCLUSIVE, PASS = Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS


def run_check(record: RunRecord, name: str) -> Check:
    return check_run(record).check(name)


def status_of(record: RunRecord, index: int) -> dict[str, Any]:
    status = record.validators[index].status
    assert status is not None
    return status


def other_branch(at: int) -> ChainMaker:
    """A right chain that differs from :func:`make_chain` from one height on."""
    maker = make_chain(at - 1)
    while len(maker.blocks) < 12:
        maker.seal(view=100)
    return maker


def left_behind(record: RunRecord) -> None:
    record.validators[2].blocks = record.validators[2].blocks[:6]


def network_stood_still(record: RunRecord) -> None:
    fault = record.faults[0]
    assert fault.begun_ms is not None
    fault.ended_ms = fault.begun_ms + 11_000
    end = fault.ended_ms
    record.finalizations = Finalizations(
        replace(f, at_ms=end + f.at_ms) if f.height >= 6 else f for f in record.finalizations
    )


def later_from(record: RunRecord, height: int, by_ms: float) -> None:
    """Everything above a height is proposed and final so much later."""
    record.finalizations = Finalizations(
        replace(f, at_ms=f.at_ms + by_ms) if f.height > height else f for f in record.finalizations
    )
    record.proposals = {at: ms + by_ms if at > height else ms for at, ms in record.proposals.items()}


def with_epochs(record: RunRecord, *epochs: EpochSection) -> RunRecord:
    section = record.scenario.validators.model_copy(update={"epochs": list(epochs)})
    return replace(record, scenario=record.scenario.model_copy(update={"validators": section}))
