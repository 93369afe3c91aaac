"""Expectations that drills share: right, and as much work as the chain is long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.audit.books import keep_books
from cluster.commands.drills import expectations
from cluster.commands.drills.expectations import judge_replay, judge_timers_once
from cluster.common.outcome import Outcome
from cluster.record.chain_store import MemoryBlocks, ServedBlocks
from cluster.record.run import RunRecord
from cluster.watches.watched_simulation import simulate
from tests.cluster.records import ChainMaker, fires_too, make_chain, make_record, make_scenario, own_blocks


def test_timers_that_end_once_pass() -> None:
    outcome, text = judge_timers_once(keep_books(make_record()))
    assert outcome is Outcome.PASS
    assert text == "24 scheduled: 17 ended once each, 7 are pending"


def doubled() -> RunRecord:
    """A run in which the timer of height 1 fires at height 3 and again at height 5."""
    maker = ChainMaker()
    timer = maker.schedule(2)
    for height in range(1, 7):
        maker.seal(*[fires_too(timer)] * (height == 5))
    return make_record(maker)


def test_a_timer_that_ends_twice_is_found_at_the_validators_that_have_both_ends() -> None:
    record = doubled()
    record.validators[0].blocks = record.validators[0].blocks[:4]
    outcome, text = judge_timers_once(keep_books(record))
    assert outcome is Outcome.FAIL
    assert text.startswith("validator-1: timer ") and text.endswith(" ended 2 times")


def test_a_timer_that_ends_twice_in_one_validators_own_chain_is_found() -> None:
    record, other = make_record(make_chain(6)), doubled()
    own_blocks(record.validators[2])[:] = other.validators[0].blocks
    outcome, text = judge_timers_once(keep_books(record))
    assert (outcome, text.split(":")[0]) == (Outcome.FAIL, "validator-2")


@pytest.mark.parametrize("validators", [1, 4])
def test_a_chain_is_read_once_however_many_validators_serve_it(
    monkeypatch: pytest.MonkeyPatch, validators: int
) -> None:
    maker = make_chain(30)
    record = make_record(maker)
    store = MemoryBlocks(maker.blocks)
    for validator in record.validators:
        validator.blocks = ServedBlocks.all_of(store)
    del record.validators[validators:]
    books, ended = keep_books(record), []
    monkeypatch.setattr(expectations, "ended", lambda block: ended.append(block) or [])
    judge_timers_once(books)
    assert len(ended) == 30


def test_a_block_that_differs_is_found_by_the_replay() -> None:
    record = simulate(make_scenario(stop={"height": 6}), 1)
    assert judge_replay(keep_books(record))[0] is Outcome.PASS
    blocks = own_blocks(record.validators[3])
    blocks[4] = replace(blocks[4], computed_root=bytes(32))
    outcome, text = judge_replay(keep_books(record))
    assert (outcome, text) == (Outcome.FAIL, "validator-3 serves another block or other receipts at height 5")
