"""The tables of a run against its metrics, receipts and ledger: totals are equal, and each timer is there once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.audit.books import keep_books
from cluster.audit.figures import BlockColumns, TimerState
from cluster.checks.kind import Judged
from cluster.checks.metrics.metrics import samples
from cluster.checks.run import judge_run
from cluster.record.archive import BlockRecord
from cluster.record.chain_store import MemoryBlocks
from cluster.record.run import RunRecord, ValidatorRecord
from cluster.scenario import Scenario
from cluster.tables.columns import Row
from cluster.tables.runs import BLOCKS, FAULTS, PENDING, TABLES, TIMERS, TRANSACTIONS, VALIDATORS, WAITS, rows_of
from cluster.watches.watched_simulation import simulate
from spec.encoding import read_receipts
from tests.cluster.audit.chains import POOR, Made, everything, everything_genesis, make, signed
from tests.cluster.records import make_record, make_scenario, with_kill
from tests.validator.chains import ACTOR, schedule, script
from tests.validator.executors import Author
from validator.chain.genesis import Policy
from validator.chain.transactions import Call, System, UpdateTimerConfig

ROOT: Final = Path(__file__).resolve().parents[3]
Rows = dict[str, list[dict[str, Any]]]


def record_of(made: Made, blocks: Sequence[tuple[bytes, bytes]] | None = None) -> RunRecord:
    """The record of a run whose validators served a chain."""
    record = RunRecord(make_scenario(), "sim", 1, "c", made.genesis)
    served = [BlockRecord(*block, bytes(32)) for block in (made.blocks if blocks is None else blocks)]
    record.validators = [ValidatorRecord(f"validator-{index}", index, list(served)) for index in range(4)]
    return record


def tables_of(rows: Iterable[Row]) -> Rows:
    found: Rows = {table.name: [] for table in TABLES}
    for table, row in rows:
        found[table.name].append({column.name: column.plain(row.get(column.name)) for column in table.columns})
        assert row.keys() <= found[table.name][-1].keys()
    return found


def total(rows: Sequence[dict[str, Any]], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


def expect_totals(record: RunRecord, found: Rows) -> Judged:
    """Whatever happened in the run, the tables say as much of it as the metrics."""
    judged = judge_run(record)
    metrics, ledger = judged.metrics, judged.books.ledger
    timers, transactions, blocks = found["timers"], found["transactions"], found["blocks"]
    outcomes = Counter(row["outcome"] for row in timers)
    assert len({row["timer_id"] for row in timers}) == len({row["sequence"] for row in timers}) == len(timers)
    assert len(timers) == metrics["timers_scheduled"] == total(blocks, "scheduled")
    assert outcomes["fired"] == metrics["fires"] == total(blocks, "fires")
    assert outcomes[PENDING] == (blocks[-1]["pending"] if blocks else 0)
    if not ledger.broken:  # its state is then that of no block
        assert outcomes[PENDING] == metrics["timers_pending_at_end"]
        assert total(blocks, "burned") == metrics["burned"]
    for state in (TimerState.CANCELLED, TimerState.EXPIRED, TimerState.INSUFFICIENT_FUNDS):
        assert outcomes[state.value] == metrics[f"timers_{state.value}"]
    assert sum(row["ok"] is False for row in timers) == metrics["fires_failed"]
    assert all((row["ok"] is None) == (row["outcome"] != "fired") for row in timers)
    assert all(bool(row["error"]) == (row["ok"] is False) for row in (*timers, *transactions))

    burned = total(transactions, "burned") + total(timers, "burned") + total(timers, "queries_burned")
    assert burned == total(blocks, "burned")
    tips = total(transactions, "tip") + total(timers, "tip")
    assert tips == metrics["tips"] == total(blocks, "tips")
    assert total(timers, "queries") == metrics["agent_queries"]

    assert total(timers, "waits") == sum(total(timers, f"waits_{reason}") for reason in WAITS)
    assert total(timers, "waits") >= total(blocks, "backlog")
    assert sum(row["outcome"] == PENDING and row["due"] for row in timers) == metrics["backlog_at_end"]
    late = Counter(float(row["late_blocks"]) for row in timers if row["late_blocks"] is not None)
    if not ledger.broken:
        assert late == samples(judged.books, judged.actors)["lateness_blocks"]
    assert all(row["late_blocks"] == row["waits"] for row in timers if row["outcome"] == "fired" and row["due"])

    assert len(transactions) == metrics["transactions"]
    assert sum(row["ok"] is False for row in transactions) == metrics["transactions_reverted"]
    assert [row["height"] for row in blocks] == list(range(1, ledger.height + 1))
    assert len(found["validators"]) == len(record.validators) and len(found["faults"]) == len(record.faults)
    return judged


@pytest.mark.parametrize("policy", list(Policy))
def test_totals_are_those_of_the_metrics(policy: Policy) -> None:
    made = everything(policy)
    found = tables_of(rows_of(record_of(made)))
    expect_totals(record_of(made), found)
    assert {row["outcome"] for row in found["timers"]} == {PENDING, *(state.value for state in TimerState)}


@pytest.mark.parametrize("policy", list(Policy))
def test_fires_are_those_of_the_receipts(policy: Policy) -> None:
    made = everything(policy)
    fires = [
        (read_receipts(encoded).height, fire) for _, encoded in made.blocks for fire in read_receipts(encoded).fires
    ]
    rows = {row["timer_id"]: row for row in tables_of(rows_of(record_of(made)))["timers"] if row["outcome"] == "fired"}
    assert len(fires) == len(rows)
    for height, fire in fires:
        row = rows[fire.timer_id.hex()]
        assert (row["ended_at"], row["actor"], row["fee_payer"]) == (
            *(height, f"0x{fire.actor.hex()}", f"0x{fire.fee_payer.hex()}"),
        )
        assert (row["cycles"], row["cells"], row["ok"], row["error"]) == (
            fire.cycles,
            fire.cells,
            fire.ok,
            fire.error or None,
        )
        assert (row["burned"], row["tip"]) == tuple(int.from_bytes(each) for each in (fire.burned, fire.tip))
        assert row["scheduled_at"] < row["ended_at"] and row["trigger_height"] == fire.trigger_height


# --- every way for a timer not to fire --------------------------------------------------------------------------------


def crowded(author: Author, height: int) -> list[bytes]:
    """Poor timers, more than a block may remove."""
    calls = [(1, Call(POOR, "run", script(*[schedule(2)] * 25)), {"gas_limit": 500_000, "cells_limit": 20_000})]
    return signed(author, *calls) if height == 1 else []


def one_actor(author: Author, height: int) -> list[bytes]:
    return signed(author, (1, Call(ACTOR, "run", script(*[schedule(2)] * 3)), {})) if height == 1 else []


def over_the_cap(author: Author, height: int) -> list[bytes]:
    """A timer, then a cap below its gas limit."""
    if height == 1:
        return signed(author, (1, Call(ACTOR, "run", script(schedule(3, gas_limit=8_000))), {}))
    lower = System(UpdateTimerConfig('{"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 7000}'))
    return signed(author, (1, lower, {})) if height == 2 else []


def chain_of(wires: Callable[[Author, int], list[bytes]], policy: Policy, **params: int) -> Made:
    genesis = everything_genesis(policy)
    names = genesis.parameters.to_names() | {"ACTIVATION_HEIGHT": 0, **params}
    return make(replace(genesis, parameters=type(genesis.parameters).from_names(names)), 5, wires)


REASONS: Final[dict[str, Callable[[], Made]]] = {
    "lane_full": lambda: everything(Policy.CIP1),
    "below_basefee": lambda: everything(Policy.CIP1),
    "over_cap": lambda: chain_of(over_the_cap, Policy.CIP1),
    "gc_budget": lambda: chain_of(crowded, Policy.CIP1),
    "actor_limit": lambda: chain_of(one_actor, Policy.BIAS_AUCTION, MAX_FIRES_PER_ACTOR=1),
    "insufficient_funds": lambda: everything(Policy.GBA_AUCTION),
}
"""Chains by a reason why timers wait in them."""


@pytest.mark.parametrize("reason", WAITS)
def test_every_reason_to_wait_is_in_the_table(reason: str) -> None:
    record = record_of(REASONS[reason]())
    found = tables_of(rows_of(record))
    expect_totals(record, found)
    assert total(found["timers"], f"waits_{reason}") > 0


def test_the_reasons_are_all_of_the_specification() -> None:
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "spec").rglob("*.py"))
    assert set(re.findall(r'waits\[.*\] = "(\w+)"', text)) | {"lane_full"} == set(WAITS)


# --- planted faults ---------------------------------------------------------------------------------------------------


def left_out(rows: list[Row]) -> list[Row]:
    """Without the last timer that fired."""
    last = max(place for place, (table, row) in enumerate(rows) if table is TIMERS and row["outcome"] == "fired")
    return [*rows[:last], *rows[last + 1 :]]


def twice(rows: list[Row]) -> list[Row]:
    return [*rows, next(each for each in rows if each[0] is TIMERS)]


def another_outcome(rows: list[Row]) -> list[Row]:
    return _changed(rows, lambda row: row["outcome"] == "expired", {"outcome": "cancelled"})


def a_unit_too_much(rows: list[Row]) -> list[Row]:
    place = next(row for table, row in rows if table is TIMERS and row.get("burned"))
    return _changed(rows, lambda row: row is place, {"burned": int.from_bytes(place["burned"]) + 1})


def a_wait_too_few(rows: list[Row]) -> list[Row]:
    return _changed(rows, lambda row: row["outcome"] == "fired" and row["waits_lane_full"] > 0, {"waits": 0})


def _changed(rows: list[Row], where: Callable[[Any], bool], fields: dict[str, Any]) -> list[Row]:
    return [(table, {**row, **fields} if table is TIMERS and where(row) else row) for table, row in rows]


@pytest.mark.parametrize("plant", [left_out, twice, another_outcome, a_unit_too_much, a_wait_too_few])
def test_a_wrong_table_does_not_add_up(plant: Callable[[list[Row]], list[Row]]) -> None:
    record = record_of(everything(Policy.CIP1))
    with pytest.raises(AssertionError):
        expect_totals(record, tables_of(plant(list(rows_of(record)))))


def test_a_block_that_deviates_ends_the_tables_and_the_metrics() -> None:
    made = everything(Policy.CIP1)
    wrong = [*made.blocks[:12], (made.blocks[12][0], made.blocks[11][1]), *made.blocks[13:]]
    record = record_of(made, wrong)
    found = tables_of(rows_of(record))
    assert expect_totals(record, found).books.ledger.broken
    assert len(found["blocks"]) == 12 and {row["ended_at"] for row in found["timers"]} <= {None, *range(13)}
    assert [row["height"] for row in found["validators"]] == [24] * 4


def test_no_block_gives_no_rows_but_those_of_validators() -> None:
    record = record_of(everything(Policy.CIP1), [])
    found = tables_of(rows_of(record))
    assert {name: len(rows) for name, rows in found.items()} == {
        "timers": 0, "transactions": 0, "blocks": 0, "validators": 4, "faults": 0
    }  # fmt: skip


def test_where_no_validator_was_asked_the_blocks_that_were_collected_count() -> None:
    record = record_of(everything(Policy.CIP1))
    record.store = MemoryBlocks(record.validators[0].blocks)
    for validator in record.validators:
        validator.blocks = []
    assert tables_of(rows_of(record))["blocks"] == tables_of(rows_of(record_of(everything(Policy.CIP1))))["blocks"]


# --- the other tables -------------------------------------------------------------------------------------------------


def test_blocks_have_all_figures_of_the_ledger() -> None:
    record = make_record()
    found = tables_of(rows_of(record))["blocks"]
    books = keep_books(record)
    for each in fields(BlockColumns):
        assert [row[each.name] for row in found] == list(getattr(books.ledger.blocks, each.name))
    assert [row["proposed_ms"] for row in found] == [record.proposals[row["height"]] for row in found]
    assert [row["final_ms"] for row in found] == [record.first_finalizations[row["height"]] for row in found]
    assert {row["proposer_name"] for row in found} == {f"validator-{index}" for index in range(4)}
    assert [row["view"] for row in found] == [books.views[row["height"]] for row in found]


def test_faults_and_validators_are_those_of_the_record() -> None:
    record = with_kill(make_record())
    found = tables_of(rows_of(record))
    (fault,) = found["faults"]
    assert (fault["kind"], fault["targets"], fault["took_effect"]) == ("kill", "validator-2", True)
    assert fault["begun_ms"] < fault["ended_ms"] and fault["is_planned"]
    assert [row["name"] for row in found["validators"]] == [each.name for each in record.validators]
    assert sum(row["proposed"] for row in found["validators"]) == len(found["blocks"])


def test_transactions_say_what_they_asked_for() -> None:
    found = tables_of(rows_of(record_of(everything(Policy.CIP1))))["transactions"]
    assert {row["kind"] for row in found} == {
        *("Transfer", "Deploy", "Call", "CancelTimer", "ExtendTimer", "UpdateTimerConfig"),
    }
    assert all((row["handler"] is None) == (row["kind"] != "Call") for row in found)
    assert {row["value"] for row in found if row["kind"] == "Deploy"} == {50}
    assert all(row["to"] is not None for row in found if row["kind"] == "Deploy" and row["ok"])
    assert {row["timer_allowance"] for row in found} == {0, 10**12}


SIMULATED: Final = {
    "name": "tables",
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
    "stop": {"height": 8, "drain_blocks": 2},
    "success": {"heights_compared": 5, "transactions": 1, "fires": 1},
}


@pytest.mark.parametrize("mutant", [None, pytest.param("wrong-balance", marks=pytest.mark.kits)])
def test_a_simulated_run_adds_up_with_and_without_a_planted_bug(mutant: str | None) -> None:
    nodes = [{}, {"mutant": mutant}] if mutant else [{}]
    scenario = Scenario.model_validate({**SIMULATED, "validators": {"count": 4, "nodes": nodes}})
    record = simulate(scenario, 1)
    found = tables_of(rows_of(record))
    expect_totals(record, found)
    assert {row["actor_class"] for row in found["timers"]} == {"heartbeat"}
    assert [row["planted_bug"] for row in found["validators"]] == [None, mutant, None, None]


def test_every_column_has_words() -> None:
    for table in (TIMERS, TRANSACTIONS, BLOCKS, VALIDATORS, FAULTS):
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names) and table.words.endswith(".")
        assert all(column.words and not column.words.endswith(".") for column in table.columns)
