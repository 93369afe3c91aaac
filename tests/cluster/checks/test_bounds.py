"""Memory and processor time against their bounds: growth that is not paid for, and blocks that take long."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.checks.kinds.amounts import MIB, ROOM_BYTES, processor_result
from cluster.live.web.connections import MAX_UNTAKEN_BYTES
from cluster.live.web.server import MAX_ARRIVING_BYTES
from cluster.record.archive import Reexecuted
from cluster.record.run import Resources, RunRecord
from tests.cluster.checks.cases import FAIL, INCONCLUSIVE, PASS, run_check
from tests.cluster.records import make_record, make_scenario
from validator.node.limits import DEFAULT_POOL_LIMITS
from validator.node.offers import MAX_OFFERED_BYTES
from validator.node.shared_work import REMEMBERED_BYTES

BEGIN = 300 * MIB
DECODED = 5
"""Bytes in memory for a byte on the wire, with what it says."""


def with_looks(*looks: tuple[int, int], **validators: Any) -> RunRecord:
    """Memory and disk of validator-1 over time, in bytes beyond those of the first look."""
    scenario = make_scenario(**({"validators": validators} if validators else {}))
    record = make_record(scenario=scenario, count=scenario.validators.count)
    for at, (memory, disk) in enumerate(((0, 0), *looks)):
        record.resources.append(Resources(500.0 * at, 1, 10 * MIB + disk, 0, memory_bytes=BEGIN + memory))
    return record


@pytest.mark.parametrize(
    ("looks", "verdict"),
    [
        ([(ROOM_BYTES, 0)], PASS),
        ([(ROOM_BYTES + 1, 0)], FAIL),
        ([(ROOM_BYTES + 1, 0), (0, 0)], FAIL),
        ([(ROOM_BYTES + 5 * MIB, 5 * MIB)], PASS),
        ([(ROOM_BYTES + 5 * MIB, 5 * MIB - 1)], FAIL),
        ([(ROOM_BYTES + 5 * MIB, 5 * MIB), (ROOM_BYTES + 4 * MIB, 3 * MIB)], FAIL),
        ([(-200 * MIB, -8 * MIB)], PASS),
    ],
)
def test_memory_grows_by_what_queues_hold_and_by_what_is_on_disk(looks: list[tuple[int, int]], verdict: object) -> None:
    check = run_check(with_looks(*looks), "bounds")
    assert check.verdict is verdict
    assert "validator-1's process grew by" in check.detail


def test_validators_of_a_host_share_its_process() -> None:
    together: dict[str, Any] = {"count": 8, "hosts": 4}
    assert run_check(with_looks((2 * ROOM_BYTES, 0), **together), "bounds").verdict is PASS
    assert run_check(with_looks((2 * ROOM_BYTES + 1, 0), **together), "bounds").verdict is FAIL


def test_the_room_is_what_the_bounds_of_queues_and_caches_come_to() -> None:
    decoded = DEFAULT_POOL_LIMITS.max_bytes + MAX_OFFERED_BYTES + REMEMBERED_BYTES
    assert DECODED * decoded + MAX_ARRIVING_BYTES + MAX_UNTAKEN_BYTES <= ROOM_BYTES


def test_a_single_look_and_a_simulated_run_say_nothing_of_memory() -> None:
    assert "process" not in run_check(with_looks(), "bounds").detail
    assert "process" not in run_check(make_record(), "bounds").detail


@pytest.mark.parametrize(
    ("slowest", "full", "verdict", "words"),
    [
        (0.0, 0.0, PASS, "no block took long"),
        (1.5, 1.0, PASS, "block 7 took 1.50 s of a processor, 1.50 times a full block of 1.00 s, 1.5 allowed"),
        (1.51, 1.0, FAIL, "block 7 took 1.51 s of a processor, 1.51 times a full block of 1.00 s, 1.5 allowed"),
        (0.4, 0.0, INCONCLUSIVE, "no full block was measured"),
    ],
)
def test_no_block_takes_much_longer_than_a_full_one(slowest: float, full: float, verdict: object, words: str) -> None:
    record = make_record()
    record.reexecuted = Reexecuted(12, "", slowest_height=7 if slowest else 0, slowest_s=slowest, full_block_s=full)
    check = run_check(record, "bounds")
    assert check.verdict is verdict
    assert words in check.detail


def test_without_an_execution_beside_the_run_no_block_was_measured() -> None:
    assert processor_result(make_record()) is None
