"""Runs in which every validator loses its disk: what it served before is kept, audited and compared."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache

import pytest

from cluster.audit.books import keep_books
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.archive import BlockRecord
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate

COUNT = 4
EVERY = 24
LAST = COUNT * EVERY + 12


@cache
def wiped() -> RunRecord:
    """All four, one after the other; at the end nobody has the first blocks."""
    scenario = Scenario.model_validate(
        {
            "name": "all-wiped",
            "consensus": {"block_interval_ms": 100, "signatures": "keyed-hash"},
            "load": {"users": [{"workload": "heartbeat", "count": 4, "interval_ms": 500}]},
            "faults": [
                {"kind": "wipe", "target": f"validator-{index}", "at_height": EVERY * (index + 1), "down_ms": 2_000}
                for index in range(COUNT)
            ],
            "stop": {"height": LAST},
            "success": {"transactions": 1, "fires": 1},
        }
    )
    return simulate(scenario, 1, "test")


def changed(number: int, block: BlockRecord) -> RunRecord:
    """The run, where a validator served another block at first, before it lost its disk."""
    record = copy(wiped())
    lost = record.lost[number]
    record.lost = [*record.lost]
    record.lost[number] = replace(lost, blocks=[block, *lost.blocks[1:]])
    return record


@pytest.mark.slow
def test_what_they_served_before_is_kept_and_the_chain_is_whole() -> None:
    record = wiped()
    assert [lost.name for lost in record.lost] == [f"validator-{index}" for index in range(COUNT)]
    assert all(validator.first_height > 1 for validator in record.validators)
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, [each for each in verdict.checks if each.verdict is not Outcome.PASS]
    books = keep_books(record)
    assert len(books.chain) >= LAST
    held = sum(chain.tip - chain.first_height + 1 for _, chain in books.served)
    assert f"{held:,} computed roots equal" in verdict.check("state_roots").detail
    assert held > COUNT * LAST - COUNT * 16, "each executed all but what came with its snapshot"


@pytest.mark.slow
def test_without_that_nobody_has_the_beginning() -> None:
    record = copy(wiped())
    record.lost = []
    check = check_run(record).check("chain")
    assert check.verdict is Outcome.FAIL
    assert "no validator served the blocks below height" in check.detail


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, COUNT))
def test_what_was_served_before_is_compared(number: int) -> None:
    mine, other = wiped().lost[number].blocks[:2]
    check = check_run(changed(number, replace(mine, block=other.block))).check("agreement")
    assert check.verdict is Outcome.FAIL
    tip = wiped().lost[number].tip
    assert f"validator-{number} with the disk that it lost at height {tip}" in check.detail


@pytest.mark.parametrize("number", range(COUNT))
def test_what_was_computed_before_is_compared(number: int) -> None:
    mine = wiped().lost[number].blocks[0]
    check = check_run(changed(number, replace(mine, computed_root=bytes(32)))).check("state_roots")
    assert check.verdict is Outcome.FAIL
    assert f"validator-{number} with the disk that it lost" in check.detail
