"""Timers and balances that validators served, held against the auditor's ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from cluster.audit.books import keep_books
from cluster.checks.run import check_run
from tests.cluster.checks.cases import FAIL, INCONCLUSIVE, PASS, run_check, status_of
from tests.cluster.records import (
    ChainMaker,
    answer,
    edit_receipts,
    fires_too,
    fires_twice,
    make_chain,
    make_record,
    make_scenario,
)
from validator.chain.block import BlockReceipts
from validator.primitives.codec import pack_uint

# --- timers -----------------------------------------------------------------------------------------------------------


def double_fire(maker: ChainMaker) -> None:
    maker.seal(fires_twice)


def early_fire(maker: ChainMaker) -> None:
    maker.seal(fires_too(maker.schedule(5)))


@pytest.mark.parametrize(
    ("plant", "what"),
    [(double_fire, "receipts.fires[1].timer_id is 0x"), (early_fire, "receipts.fires[2] is 0x")],
)
def test_a_network_that_agrees_on_a_wrong_fire_fails(plant: Callable[[ChainMaker], None], what: str) -> None:
    maker = make_chain(11)
    plant(maker)
    check = run_check(make_record(maker), "timers")
    assert check.verdict is FAIL
    assert check.detail.startswith("all validators at height 12: ")
    assert what in check.detail


def test_evidence_of_a_rejected_double_fire_fails_naming_the_validator() -> None:
    record = make_record()
    own = record.validators[3].blocks
    evidence = edit_receipts(own[6], fires_twice)
    record.validators[3].blocks = own[:6]
    answer(record)
    status_of(record, 3)["diverged"] = {"height": 7, "reason": "receipts_root", "receipts": evidence.hex()}
    check = run_check(record, "timers")
    assert check.verdict is FAIL
    assert "validator-3 (its own execution) at height 7" in check.detail
    assert "receipts.fires[1].timer_id is 0x" in check.detail


def test_a_forgotten_timer_fails() -> None:
    record = make_record()
    pending = next(text for text, served in record.validators[2].pending_timers.items() if served)
    record.validators[2].pending_timers[pending] = False
    check = run_check(record, "timers")
    assert check.verdict is FAIL
    assert f"timer {pending[:16]} is pending, but validator-2 does not serve it" in check.detail


def test_a_fired_timer_that_is_still_served_fails() -> None:
    record = make_record()
    ended = next(text for text, served in record.validators[0].pending_timers.items() if not served)
    record.validators[0].pending_timers[ended] = True
    check = run_check(record, "timers")
    assert check.verdict is FAIL
    assert "is not pending, but validator-0 serves it as pending" in check.detail


def test_a_validator_that_counts_other_timers_fails() -> None:
    record = make_record()
    status_of(record, 1)["pending_timers"] += 1
    assert "validator-1 counts" in run_check(record, "timers").detail


def test_timers_nobody_was_asked_about_are_inconclusive() -> None:
    record = make_record()
    for validator in record.validators:
        validator.pending_timers = {}
    assert run_check(record, "timers").verdict is INCONCLUSIVE


@pytest.mark.parametrize("indices", [[0, 1, 2, 3], [2]])
@pytest.mark.parametrize("name", ["timers", "conservation"])
def test_answers_of_another_height_are_not_compared_and_never_pass(name: str, indices: list[int]) -> None:
    record = make_record()
    for index in indices:
        validator = record.validators[index]
        validator.balances = dict.fromkeys(validator.balances, 1)
        validator.pending_timers = dict.fromkeys(validator.pending_timers, False)
        status_of(record, index)["height"] += 1
    check = run_check(record, name)
    assert check.verdict is INCONCLUSIVE
    assert f"validator-{indices[0]} says height 13 of itself, but served 12 blocks" in check.detail


# --- conservation -----------------------------------------------------------------------------------------------------


def test_minted_money_fails_naming_validator_account_and_difference() -> None:
    record = make_record()
    account = next(iter(record.validators[1].balances))
    record.validators[1].balances[account] += 500
    check = run_check(record, "conservation")
    assert check.verdict is FAIL
    assert f"for {account} at height 12" in check.detail
    assert "validator-1 serves" in check.detail
    assert "(+500)" in check.detail


def wrong_tip(receipts: BlockReceipts) -> BlockReceipts:
    receipt = msgspec.structs.replace(receipts.transactions[0], tip=pack_uint(16_000))
    return msgspec.structs.replace(receipts, transactions=(receipt, *receipts.transactions[1:]))


def test_a_wrong_tip_fails() -> None:
    maker = make_chain(11)
    maker.transfer(5)
    maker.seal(wrong_tip)
    check = run_check(make_record(maker), "conservation")
    assert check.verdict is FAIL
    assert "receipts.transactions[0].tip is 16000, by the specification 3000" in check.detail


def test_books_that_do_not_balance_fail() -> None:
    record = make_record()
    books = keep_books(record)
    books.ledger.minted += 1
    check = check_run(record, books).check("conservation")
    assert check.verdict is FAIL
    assert check.detail.startswith("minted 2,000,000,000,000,000,001 is not balances")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"balances": 5}, "balances come to"), ({"burned": -3}, "burned come to")],
)
def test_money_on_accounts_that_nobody_knows_and_burns_that_nobody_counted_fail(
    change: dict[str, int], words: str
) -> None:
    """In all validators at once: they agree with each other, and every balance that is asked about is right."""
    record = make_record()
    for validator in record.validators:
        assert validator.supply is not None
        changed = {field: getattr(validator.supply, field) + more for field, more in change.items()}
        validator.supply = replace(validator.supply, **changed)
    check = run_check(record, "conservation")
    assert check.verdict is FAIL
    (more,) = change.values()
    assert check.detail.startswith(f"validator-0's {words} ")
    assert f"({more:+,})" in check.detail


def test_supplies_that_nobody_told_are_inconclusive() -> None:
    record = make_record()
    record.validators[2].supply = None
    assert "supplies 3 times of 4" in run_check(record, "coverage").detail


def test_balances_nobody_was_asked_about_are_inconclusive() -> None:
    record = make_record()
    for validator in record.validators:
        validator.balances = {}
    assert run_check(record, "conservation").verdict is INCONCLUSIVE


def test_a_validator_that_lags_is_compared_at_its_own_tip() -> None:
    record = make_record(scenario=make_scenario(stop={"height": 10}))
    record.validators[3].blocks = record.validators[3].blocks[:10]
    answer(record)
    assert check_run(record).outcome is PASS
    record.validators[3].balances[next(iter(record.validators[3].balances))] += 1
    assert "validator-3 serves" in run_check(record, "conservation").detail
