"""Simulated machines with the measured times of a profile: shared processors, batches of the journal, slow starts."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.checks.run import check_run, judge_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.measured_work import MeasuredWork, Processors
from cluster.watches.watched_simulation import WatchedSimulation, simulate
from consensus.protocols import PROTOCOLS
from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).resolve().parents[3]
SEED = 5


def cost(base_us: int) -> dict[str, Any]:
    return {"base_us": base_us, "transaction_us": 100, "fire_us": 50, "scatter_milli": [800, 1_000, 1_500]}


def profile(**changes: Any) -> dict[str, Any]:
    constants = {"link_us": 500, "sync_us": 1_000, "message_us": 100, "hand_over_us": 300}
    return {
        "processors": 2,
        **{name: [0, value, 4 * value] for name, value in constants.items()},
        "build": cost(3_000),
        "execute": cost(3_000),
        "finalize": cost(1_000),
        "warm_up_us": [100_000, 120_000],
        "start_us": [900_000, 1_100_000],
    } | changes


def scenario(protocol: str = "simplex", **changes: Any) -> Scenario:
    fields = {
        "name": "measured",
        "consensus": {"protocol": protocol},
        "load": {"users": [{"workload": "heartbeat", "count": 4}, {"workload": "flood", "count": 2}]},
        "faults": [{"kind": "kill", "target": "validator-2", "at_height": 8, "down_ms": 1_500}],
        "stop": {"height": 20, "drain_blocks": 3},
        "success": {"heights_compared": 16, "transactions": 10, "fires": 20},
        "profile": profile(),
    }
    return Scenario.model_validate(fields | changes)


@cache
def run(protocol: str = "simplex", seed: int = SEED) -> RunRecord:
    return simulate(scenario(protocol), seed)


# --- processors -----------------------------------------------------------------------------------------------------


def ends(count: int, works: list[tuple[int, int]]) -> dict[int, int]:
    """When each work of ``(begin, length)`` ends on the processors, in microseconds."""
    clock = VirtualClock()
    found: dict[int, int] = {}
    processors = Processors(clock, count)

    def begin(number: int, length: int) -> None:
        processors.run(number, length, lambda: found.update({number: clock.now_us}))

    for number, (at, length) in enumerate(works):
        clock.after(at, "begin", b"", lambda number=number, length=length: begin(number, length))  # type: ignore[misc]
    while clock.step():
        pass
    return found


def naive_ends(count: int, works: list[tuple[int, int]]) -> dict[int, Fraction]:
    """The same with exact numbers: from change to change, each of n has ``min(1, count / n)`` of the time."""
    left = {number: Fraction(length) for number, (_, length) in enumerate(works)}
    now = Fraction(0)
    found: dict[int, Fraction] = {}
    while len(found) < len(works):
        active = [number for number, (at, _) in enumerate(works) if at <= now and number not in found]
        coming = [Fraction(at) for at, _ in works if at > now]
        rate = min(Fraction(1), Fraction(count, len(active))) if active else Fraction(1)
        until = min([now + left[number] / rate for number in active] + coming)
        for number in active:
            left[number] -= (until - now) * rate
            if left[number] == 0:
                found[number] = until
        now = until
    return found


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300)), min_size=1, max_size=8))
def test_processors_are_shared_evenly(count: int, works: list[tuple[int, int]]) -> None:
    found, exact = ends(count, works), naive_ends(count, works)
    assert found.keys() == exact.keys()
    assert all(0 <= found[number] - exact[number] <= len(works) + 1 for number in found)  # each change rounds up once


def test_three_jobs_on_two_processors_take_half_longer() -> None:
    assert ends(2, [(0, 1_000)] * 3) == dict.fromkeys(range(3), 1_500)
    assert ends(4, [(0, 1_000)] * 3) == dict.fromkeys(range(3), 1_000)


def test_cancelled_work_takes_no_time_of_the_others() -> None:
    clock = VirtualClock()
    found: list[tuple[int, int]] = []
    processors = Processors(clock, 1)
    for owner in (1, 2):
        processors.run(owner, 1_000, lambda owner=owner: found.append((owner, clock.now_us)))  # type: ignore[misc]
    clock.after(500, "cancel", b"", lambda: processors.cancel(2))
    while clock.step():
        pass
    assert found == [(1, 1_250)]


# --- the journal ----------------------------------------------------------------------------------------------------


def test_appends_during_a_write_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = WatchedSimulation(scenario(profile=profile(sync_us=[1_000, 1_000])), SEED, "test")
    machine, clock = simulation.machines[0], simulation.clock
    assert isinstance(machine.work, MeasuredWork)
    synced: list[tuple[int, int]] = []
    monkeypatch.setattr(Machine, "deliver", lambda _, event: synced.append((event.token, clock.now_us)))
    for token, at_us in enumerate((0, 100, 900, 1_100, 5_000)):
        clock.after(at_us, "append", b"", lambda token=token: machine.work.append(token, b"x"))  # type: ignore[misc]
    while clock.step():
        pass
    assert synced == [(0, 1_000), (1, 2_000), (2, 2_000), (3, 3_000), (4, 6_000)]


# --- whole runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_with_a_profile_passes_its_checks(protocol: str) -> None:
    assert check_run(run(protocol)).outcome is Outcome.PASS, check_run(run(protocol))


def test_the_times_are_those_of_the_profile() -> None:
    plain = judge_run(simulate(scenario(profile=None), SEED)).metrics
    measured, slow = judge_run(run()).metrics, profile(link_us=[40_000, 40_000])
    slower = judge_run(simulate(scenario(profile=slow), SEED)).metrics
    p50 = "finality_latency_p50_ms"
    assert plain[p50] + 5 < measured[p50] < plain[p50] + 40
    assert measured[p50] + 80 < slower[p50] < measured[p50] + 160  # three messages of 40 ms


def test_a_restart_takes_its_time() -> None:
    fault = run().faults[0]
    assert fault.begun_ms is not None
    assert fault.ended_ms is not None
    assert 900 <= fault.ended_ms - fault.begun_ms - 1_500 <= 1_150
    plain = simulate(scenario(profile=None), SEED).faults[0]
    assert plain.ended_ms is not None
    assert plain.begun_ms is not None
    assert plain.ended_ms - plain.begun_ms - 1_500 < 10


def test_a_kill_during_a_restart_ends_it() -> None:
    """The second kill comes 400 ms after the first restart began: only its own restart counts."""
    faults = [{"kind": "kill", "target": "validator-2", "at_ms": at, "down_ms": 600} for at in (3_000, 4_000)]
    record = simulate(scenario(faults=faults), SEED)
    ended = [fault.ended_ms for fault in record.faults]
    assert all(at is not None and 5_500 <= at <= 5_750 for at in ended), ended
    assert record.validators[2].status is not None
    assert record.validators[2].status["starts"] == 2
    assert check_run(record).outcome is not Outcome.FAIL


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    again = run.__wrapped__()
    assert again.digest == run().digest
    assert again.finalizations == run().finalizations
    assert len({run().digest, run(seed=SEED + 1).digest, simulate(scenario(profile=None), SEED).digest}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_a_run_with_a_profile_is_the_same_with_any_hash_seed(hash_seed: str) -> None:
    program = "from tests.cluster.simulation.test_measured_work import run; print(run().digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert found.stdout.strip() == run().digest


@pytest.mark.slow
def test_shared_executions_change_nothing_with_a_profile() -> None:
    assert simulate(scenario(), SEED, shortcuts=True).digest == run().digest
