"""What the simulator's users count of their requests means what it means live."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cluster.audit.books import keep_books
from cluster.checks.metrics.load_latency import WorkloadLatency, load_latencies, load_moments
from cluster.common.errors import BadInput
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.load import LOAD_STARTS_MS
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme
from tests.loadgen.own_workloads import acting, group


def test_a_request_to_who_is_down_failed_and_sent_nothing() -> None:
    scenario = Scenario.model_validate(
        {
            "name": "load",
            "faults": [{"kind": "kill", "target": ["validator-0", "validator-1"], "at_height": 5, "down_ms": 4_000}],
            "load": {"users": [{"workload": "transfer", "count": 4, "interval_ms": 200}]},
            "stop": {"height": 15, "drain_blocks": 2},
        }
    )
    simulation = WatchedSimulation(scenario, 3, "test", scheme=KeyedHashScheme())
    load = simulation.run().load
    answered = load.requests - load.failures
    assert load.failures > 5
    assert load.transactions_sent == answered, "each request of this workload has one transaction"


def test_a_workload_of_ones_own_acts_and_its_exception_ends_the_run_in_one_line() -> None:
    turns = ["self.turns = getattr(self, 'turns', 0) + 1", "return [self.pay(9 // (7 - self.turns))]"]
    fields = {
        "name": "own",
        "load": {"users": [group(acting(*turns), count=2, interval_ms=200), {"workload": "heartbeat"}]},
        "stop": {"height": 4, "drain_blocks": 2},
    }
    record = WatchedSimulation(Scenario.model_validate(fields), 3, "test", scheme=KeyedHashScheme()).run()
    assert record.load.sends.workloads["own"].sent > 4
    longer = Scenario.model_validate(fields | {"stop": {"height": 40}})
    with pytest.raises(BadInput, match=r"^file own\.py, line 15: ZeroDivisionError: "):
        WatchedSimulation(longer, 3, "test", scheme=KeyedHashScheme()).run()


# --- closed and open loop -------------------------------------------------------------------------------------------

STALL_MS = 5_000


@cache
def stalled(arrival: str) -> RunRecord:
    """A run in which everybody stands still for a while."""
    return simulated(arrival)


def simulated(arrival: str, **user: Any) -> RunRecord:
    names = [f"validator-{index}" for index in range(4)]
    scenario = Scenario.model_validate(
        {
            "name": "stalled",
            "faults": [{"kind": "pause", "target": names, "at_height": 8, "for_ms": STALL_MS}],
            "load": {"users": [{"workload": "transfer", "count": 4, "interval_ms": 500, "arrival": arrival, **user}]},
            "stop": {"height": 60, "drain_blocks": 4},
            "success": {"stall_ms": 20_000},
        }
    )
    return WatchedSimulation(scenario, 5, "test", scheme=KeyedHashScheme()).run()


def latency_of(record: RunRecord) -> WorkloadLatency:
    (found,) = load_latencies(keep_books(record))
    return found


def test_a_stall_that_a_closed_loop_hides_shows_in_an_open_one() -> None:
    """Closed users stop asking while nobody answers, so that hardly a latency is long; an open one's turns go on."""
    closed, opened = latency_of(stalled("closed")), latency_of(stalled("open"))
    assert closed.never_final == opened.never_final == 0
    slow = [sum(latency > STALL_MS / 4 for latency in found.latencies_ms) for found in (closed, opened)]
    due_meanwhile = 4 * STALL_MS // 500
    assert slow[0] <= 4, "at most what was under way"
    assert slow[1] >= due_meanwhile * 3 // 4 - 4
    assert opened.quantiles_ms["p95"] > STALL_MS / 4 > 3 * closed.quantiles_ms["p95"]  # type: ignore[operator]
    assert (closed.late, opened.late > due_meanwhile // 2) == (0, True)
    assert opened.sent - closed.sent >= due_meanwhile - 8, "what a closed loop never asks for"


def test_an_open_load_is_as_large_as_its_schedule_whatever_the_chain_does() -> None:
    record = stalled("open")
    found, load = latency_of(record), record.scenario.load
    users = load.build_users(5, record.genesis.chain_id)
    drained_ms = max(found.latencies_ms) + record.duration_ms
    assert found.sent + found.skipped <= sum((drained_ms - user.first_delay_ms) // 500 + 1 for user in users)
    last_due_ms = max(record.load.sends.workloads["transfer"].due.values()) - 500
    due = sum((last_due_ms - user.first_delay_ms) // 500 + 1 for user in users)
    assert abs(found.sent + found.skipped - due) <= len(users)


@pytest.mark.slow
def test_turns_beyond_what_a_user_keeps_are_skipped_and_counted() -> None:
    found = latency_of(simulated("open", interval_ms=10, count=1))
    assert found.skipped > 100
    assert found.late > 0


def test_latency_is_measured_on_the_run_s_own_clock() -> None:
    """Each transaction's, worked out anew from the users and the chain."""
    record = stalled("open")
    books = keep_books(record)
    (found,) = load_latencies(books)
    assert found.final == found.measured == found.sent == books.ledger.transactions
    first, due = record.first_finalizations, sorted(record.load.sends.workloads["transfer"].due.values())
    heights = [height for height, count in enumerate(books.ledger.blocks.transactions, 1) for _ in range(count)]
    assert sum(first[height] for height in heights) - sum(due) == pytest.approx(sum(found.latencies_ms))
    assert min(found.latencies_ms) > 0


def test_a_transaction_that_is_not_in_the_chain_is_never_final() -> None:
    record = stalled("closed")
    sends = record.load.sends.model_copy(deep=True)
    sends.workloads["transfer"].due["0" * 16] = 700
    found = latency_of(replace(record, load=replace(record.load, sends=sends)))
    assert (found.never_final, found.measured) == (1, found.final + 1)


def test_the_timeline_has_every_request() -> None:
    record = stalled("closed")
    load, moments = record.load, load_moments(record.load.timeline, record.began_epoch_ms)
    assert sum(moment.requests for moment in moments) == load.requests
    assert sum(moment.failures for moment in moments) == load.failures > 10
    worst = max(moments, key=lambda moment: moment.failures)
    fault = record.faults[0]
    assert fault.begun_ms is not None and fault.ended_ms is not None
    assert fault.begun_ms - 1_000 <= worst.at_ms <= fault.ended_ms
    assert moments[2].times_ms["p50"] == pytest.approx(4.0, rel=0.1), "there and back"


@pytest.mark.slow
def test_arrival_is_the_same_again() -> None:
    first, second = stalled("open"), simulated("open")
    assert (first.digest, first.load) == (second.digest, second.load)
    assert stalled("closed").digest != first.digest


# --- phases of a group ----------------------------------------------------------------------------------------------

SPIKE = {"kind": "spike", "from_ms": 4_000, "until_ms": 8_000, "rate": 9.0, "base_rate": 1.0}


def due_in_seconds(record: RunRecord, workload: str) -> list[int]:
    """How many transactions of a workload were due in each second of the load but the last."""
    due = record.load.sends.workloads[workload].due.values()
    counts = Counter((due_ms - LOAD_STARTS_MS) // 1_000 for due_ms in due)
    return [counts[second] for second in range(max(counts))]


def with_phases(of_group: list[dict[str, Any]] | None, of_load: list[dict[str, Any]]) -> RunRecord:
    users = [
        {"workload": "transfer", "count": 3, "interval_ms": 500, "arrival": "open"},
        {"workload": "transfer-spam", "count": 2, "interval_ms": 500, "arrival": "open", "options": {"per_turn": 1}},
    ]
    if of_group is not None:
        users[1]["phases"] = of_group
    fields = {"name": "spiked", "load": {"users": users, "phases": of_load}, "stop": {"height": 60, "drain_blocks": 2}}
    return WatchedSimulation(Scenario.model_validate(fields), 5, "test", scheme=KeyedHashScheme()).run()


def test_one_group_spikes_while_another_stays_constant() -> None:
    record = with_phases([SPIKE], [])
    constant, spiking = due_in_seconds(record, "transfer"), due_in_seconds(record, "transfer-spam")
    assert len(constant) >= 10
    assert set(constant) == {3 * 2}, "six transactions in each second"
    assert set(spiking[:4]) == {2 * 2}
    assert set(spiking[8:]) <= {4, 5}, "as before, but for what the end of the spike had begun"
    assert all(6 * 4 <= count <= 9 * 4 for count in spiking[5:7])
    of_all = with_phases(None, [SPIKE])
    assert max(due_in_seconds(of_all, "transfer")) > 5 * 6, "the load's phases are those of each group without any"


@pytest.mark.slow
def test_a_group_with_the_loads_phases_is_as_if_it_had_none() -> None:
    assert with_phases([SPIKE], [SPIKE]).digest == with_phases(None, [SPIKE]).digest
    assert with_phases([], []).digest == with_phases(None, []).digest
