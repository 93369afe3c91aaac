"""The histograms of a validator, with a clock that is advanced."""

from __future__ import annotations

import re

import pytest

from cluster.common.checkout import ROOT
from cluster.live.host.metrics import MAX_HEIGHTS_AWAITED, PEER_FAULTS, Timings, _by_reason
from cluster.live.host.threads import Done
from consensus import interface
from consensus.interface import FAULT_REASONS, HARMLESS_REASONS
from validator.node.executor.jobs import Execute, Finalize, ReadBlocks
from validator.primitives.types import Hash


class Clock:
    now_s = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timings(clock: Clock) -> Timings:
    return Timings(lambda: clock.now_s)


def sums(timings: Timings) -> dict[str, tuple[float, int]]:
    """Sum and number of the values of each histogram."""
    text = timings.render()
    found = {}
    for name, labels, total in re.findall(r"^stampede_(\w+)_sum(?:\{(.*)\})? (\S+)$", text, re.M):
        inside = f"{{{labels}}}" if labels else ""
        (count,) = re.findall(rf"^stampede_{name}_count{re.escape(inside)} (\d+)$", text, re.M)
        found[name + inside] = (float(total), int(count))
    return found


def test_latency_and_interval_are_those_of_final_blocks(clock: Clock, timings: Timings) -> None:
    timings.seen(1)
    clock.now_s += 0.25
    timings.seen(1)  # another block of that height: the first one counts
    timings.seen(2)
    clock.now_s += 0.5
    timings.final(1)
    clock.now_s += 2
    timings.final(2)
    clock.now_s += 1
    timings.final(3)  # never executed here
    assert sums(timings)["finality_latency_seconds"] == (0.75 + 2.5, 2)
    assert sums(timings)["block_interval_seconds"] == (3.0, 2)


def test_jobs_and_delays_are_counted(timings: Timings) -> None:
    execute, finalize = Execute.__new__(Execute), Finalize(Hash(bytes(32)), b"")
    timings.done(execute, Done(None, 0.5, ()))  # type: ignore[arg-type]
    timings.done(finalize, Done(None, 0.25, (0, 3, 2_000)))  # type: ignore[arg-type]
    timings.done(ReadBlocks(1, 1, 1), Done(None, 9.0, ()))  # type: ignore[arg-type]
    assert sums(timings) == {
        "block_interval_seconds": (0, 0),
        "finality_latency_seconds": (0, 0),
        "fire_delay_blocks": (2_003, 3),
        'executor_job_seconds{kind="build"}': (0, 0),
        'executor_job_seconds{kind="execute"}': (0.5, 1),
        'executor_job_seconds{kind="finalize"}': (0.25, 1),
    }
    assert 'stampede_fire_delay_blocks_bucket{le="5"} 2\n' in timings.render()


def test_heights_that_wait_are_bounded(timings: Timings) -> None:
    for height in range(MAX_HEIGHTS_AWAITED + 10):
        timings.seen(height)
    timings.final(MAX_HEIGHTS_AWAITED + 5)
    assert sums(timings)["finality_latency_seconds"] == (0, 0)
    timings.seen(MAX_HEIGHTS_AWAITED + 6)
    timings.final(MAX_HEIGHTS_AWAITED + 6)
    assert sums(timings)["finality_latency_seconds"] == (0, 1)


def test_a_reason_that_did_not_occur_is_counted_with_0() -> None:
    assert _by_reason({"b": 3, "new": 1}, ("c", "b")) == [
        ({"reason": each}, n) for each, n in (("b", 3), ("c", 0), ("new", 1))
    ]


NAMED = re.compile(
    r"""(?:\b(?:fault|_refuse)\([\w.]+, |\b(?:fail|refused|Refused)\(|(?:Refused\)|REASONS) else )"(\w+)\""""
)
"""Where a reason of a peer fault is named."""


def test_all_reasons_of_peer_faults_are_known() -> None:
    files = [*(ROOT / "validator" / "node").rglob("*.py"), *(ROOT / "cluster" / "live" / "network").glob("*.py")]
    named = {reason for file in files for reason in NAMED.findall(file.read_text(encoding="utf-8"))}
    evidence = {each for each in PEER_FAULTS if each.startswith("evidence_")}
    assert len(evidence) == 6 and named | {*FAULT_REASONS} | evidence == PEER_FAULTS


def test_each_reason_of_consensus_is_a_fault_or_harmless() -> None:
    words = {value for name, value in vars(interface).items() if name.isupper() and isinstance(value, str)}
    assert words == {*FAULT_REASONS, *HARMLESS_REASONS} and not {*FAULT_REASONS} & {*HARMLESS_REASONS}
