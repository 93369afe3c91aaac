"""Every check fails on what it is for, is inconclusive where nothing can be told, and passes a right run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cluster.audit.books import MAX_PENDING_ASKED, final_queries, keep_books
from cluster.audit.ledger import ledger as ledger_module
from cluster.audit.ledger.chain_rules import ChainRules
from cluster.audit.ledger.phase_rules import PhaseRules
from cluster.audit.ledger.timer_register import TimerRegister
from cluster.audit.served_chains import longest_chain
from cluster.checks import run as checks
from cluster.checks.run import check_run
from cluster.checks.verdict import Check, Verdict
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome, worst
from cluster.record.rules import SafetyRule
from cluster.record.run import MonitorRecord, RunRecord
from cluster.scenario import EpochSection, NodeSection
from tests.cluster.records import (
    ChainMaker,
    answer,
    edit_receipts,
    make_chain,
    make_record,
    make_scenario,
    with_kill,
    with_late,
)
from validator.chain.block import BlockReceipts
from validator.primitives.codec import encode, pack_uint

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
        maker.seal({"view": 100})
    return maker


def test_a_right_run_passes_every_check() -> None:
    verdict = check_run(with_kill(make_record()))
    assert [(check.name, check.verdict) for check in verdict.checks if check.verdict is not PASS] == []
    assert verdict.outcome is PASS
    assert verdict.exit_code is ExitCode.PASS
    assert all(any(character.isdigit() for character in check.detail) for check in verdict.checks[:8])


def test_fail_outweighs_inconclusive_and_inconclusive_outweighs_pass() -> None:
    assert worst([PASS, INCONCLUSIVE, FAIL]) is FAIL
    assert worst([PASS, INCONCLUSIVE]) is INCONCLUSIVE
    assert worst([]) is PASS
    assert Verdict(FAIL, ()).exit_code is ExitCode.FAIL
    assert Verdict(INCONCLUSIVE, ()).exit_code is ExitCode.INCONCLUSIVE
    with pytest.raises(KeyError):
        Verdict(PASS, ()).check("nothing")


# --- coverage ---------------------------------------------------------------------------------------------------------


def test_every_invariant_is_evaluated_and_counted() -> None:
    verdict = check_run(with_kill(make_record()))
    times = {each.rule: each.times for each in verdict.evaluations}
    assert times == {
        "same block": 12,
        "computed roots": 48,
        "answers about timers": 4 * 24,
        "served balances": 4 * 8,
        "supplies": 4,
        "chain links": 12,
        "transaction fees": 36,
        "values moved": 36,
        "fire times": 17,
        "fire fees": 17,
        "lane limits": 12,
        "no timer passed over": 17,
        "expired timers gone": 0,
        "timer ids": 24,
        "order of queries": 0,
    }
    assert verdict.check("coverage").detail == f"15 invariants were evaluated {sum(times.values())} times in all"


@pytest.mark.parametrize(
    ("owner", "name", "rule"),
    [
        (ChainRules, "check", "chain links"),
        (ledger_module, "_check_transaction_fee", "transaction fees"),
        (ledger_module, "_check_value", "values moved"),
        (TimerRegister, "_check_fire_time", "fire times"),
        (PhaseRules, "check_fire_fee", "fire fees"),
        (PhaseRules, "check", "lane limits"),
        (PhaseRules, "check_nothing_was_passed_over", "no timer passed over"),
    ],
)
def test_an_invariant_that_is_never_evaluated_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, rule: str
) -> None:
    monkeypatch.setattr(owner, name, lambda *_: None)
    verdict = check_run(with_kill(make_record()))
    assert verdict.outcome is INCONCLUSIVE
    assert f"{rule} 0 times of" in verdict.check("coverage").detail


@pytest.mark.parametrize(
    ("check", "rule"),
    [("agreement", "same block"), ("state_roots", "computed roots"), ("conservation", "served balances")],
)
def test_a_check_that_passes_without_having_looked_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch, check: str, rule: str
) -> None:
    blind = tuple(
        (lambda _books, name=check: Check(name, PASS, "all is well")) if one.__name__ == f"check_{check}" else one
        for one in checks.CHECKS
    )
    monkeypatch.setattr(checks, "CHECKS", blind)
    verdict = check_run(with_kill(make_record()))
    assert verdict.outcome is INCONCLUSIVE
    assert f"{rule} 0 times of" in verdict.check("coverage").detail


def test_of_a_check_that_failed_nothing_is_asked() -> None:
    record = make_record()
    record.validators[3].blocks = other_branch(9).blocks
    assert "same block" not in {each.rule for each in check_run(record).evaluations}


def test_fewer_evaluations_than_the_scenario_asks_for_are_inconclusive() -> None:
    record = make_record(scenario=make_scenario(success={"heights_compared": 10, "fires": 100, "transactions": 5}))
    assert (
        run_check(record, "coverage").detail
        == "too seldom evaluated: fire times 17 times of 100; fire fees 17 times of 100;"
        " no timer passed over 17 times of 100"
    )


def test_each_rule_of_the_monitor_must_have_been_evaluated_often_enough() -> None:
    record = make_record()
    record.monitor = MonitorRecord([], dict.fromkeys(SafetyRule, 10))
    assert run_check(record, "coverage").verdict is PASS
    record.monitor.counts["roots"] = 9
    assert "safety: roots 9 times of 10" in run_check(record, "coverage").detail


# --- agreement --------------------------------------------------------------------------------------------------------


def test_different_blocks_at_one_height_fail_with_height_and_validators() -> None:
    record = make_record()
    record.validators[3].blocks = other_branch(9).blocks
    check = run_check(record, "agreement")
    assert check.verdict is FAIL
    assert "height 9: validator-0 and validator-1 and validator-2" in check.detail
    assert "validator-3" in check.detail


def test_a_fork_above_the_lowest_tip_fails_too() -> None:
    record = make_record()
    record.validators[0].blocks = record.validators[0].blocks[:10]
    record.validators[3].blocks = other_branch(12).blocks
    assert run_check(record, "agreement").verdict is FAIL


@pytest.mark.parametrize("name", ["agreement", "state_roots", "chain", "timers", "conservation"])
def test_too_few_common_heights_are_inconclusive(name: str) -> None:
    record = make_record()
    record.validators[1].blocks = record.validators[1].blocks[:9]
    answer(record)
    check = run_check(record, name)
    assert check.verdict is INCONCLUSIVE
    assert "only 9 heights common" in check.detail


@pytest.mark.parametrize("name", ["agreement", "state_roots", "chain", "timers", "conservation"])
def test_a_validator_that_was_never_seen_is_inconclusive(name: str) -> None:
    silent, absent = make_record(), make_record()
    silent.validators[1].blocks = []
    absent.validators.pop()
    for record in (silent, absent):
        answer(record)
        assert run_check(record, name).verdict is INCONCLUSIVE


UNASKED = ("faults", "joins", "recovery", "criteria", "byzantine", "evidence", "safety", "promises")
"""Checks that have nothing to say of a scenario without faults, criteria, late and byzantine validators."""


def test_a_run_without_any_block_is_inconclusive_and_never_passes() -> None:
    record = RunRecord(make_scenario(), "live", 1, "unknown", make_chain(1).genesis, interrupted=True)
    verdict = check_run(record)
    assert verdict.outcome is INCONCLUSIVE
    assert {check.verdict for check in verdict.checks if check.name not in UNASKED} == {INCONCLUSIVE}


def test_checks_without_anything_to_judge_say_so_and_pass() -> None:
    verdict = check_run(make_record())
    idle = {check.name for check in verdict.checks if not check.applies}
    assert idle == set(UNASKED) - {"evidence"}, "evidence is looked for in every run"
    assert all(verdict.check(name).verdict is PASS for name in idle)
    assert run_check(with_kill(make_record()), "faults").applies


# --- state roots ------------------------------------------------------------------------------------------------------


def test_a_root_of_its_own_fails_with_height_and_validator() -> None:
    record = make_record()
    blocks = record.validators[2].blocks
    blocks[6] = replace(blocks[6], computed_root=b"\xee" * 32)
    check = run_check(record, "state_roots")
    assert check.verdict is FAIL
    assert "validator-2 at height 7" in check.detail
    assert "eeeeeeeeeeeeeeee" in check.detail


def test_a_divergence_that_a_validator_reports_fails() -> None:
    record = make_record()
    record.validators[1].blocks = record.validators[1].blocks[:4]
    answer(record)
    told = {"height": 5, "reason": "state_root", "expected_root": "ab" * 32, "computed_root": "cd" * 32}
    status_of(record, 1)["diverged"] = told
    check = run_check(record, "state_roots")
    assert check.verdict is FAIL
    assert check.detail.startswith(
        "validator-1 diverged at height 5 (state_root): expected root abababababababab…, computed cdcdcdcdcdcdcdcd…"
    )


@pytest.mark.parametrize("told", [{}, {"height": "x"}, {"height": 3, "receipts": "zz"}, {"height": 10**9}])
def test_a_divergence_told_badly_fails_all_the_same(told: dict[str, Any]) -> None:
    record = make_record()
    status_of(record, 0)["diverged"] = told
    assert run_check(record, "state_roots").verdict is FAIL


# --- the chain --------------------------------------------------------------------------------------------------------


def test_a_missing_height_fails() -> None:
    record = make_record()
    del record.validators[1].blocks[4]
    check = run_check(record, "chain")
    assert check.verdict is FAIL
    assert "validator-1 at height 5: a block of height 6 where 5 is due" in check.detail


def test_a_block_that_cannot_be_read_fails() -> None:
    record = make_record()
    blocks = record.validators[1].blocks
    blocks[4] = replace(blocks[4], block=b"garbage")
    check = run_check(record, "chain")
    assert check.verdict is FAIL
    assert "validator-1: the block at height 5 cannot be read" in check.detail


def test_receipts_that_one_validator_changed_fail_for_it_alone() -> None:
    record = make_record()
    blocks = record.validators[2].blocks
    changed = edit_receipts(blocks[3], lambda receipts: msgspec.structs.replace(receipts, p50_tip=pack_uint(99)))
    blocks[3] = replace(blocks[3], receipts=changed)
    check = run_check(record, "chain")
    assert check.verdict is FAIL
    assert "validator-2 at height 4: receipts_root" in check.detail
    assert "validator-0" not in check.detail


# --- timers -----------------------------------------------------------------------------------------------------------


def double_fire(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    maker.fire(timer)
    maker.fire(timer)


def early_fire(maker: ChainMaker) -> None:
    timer = maker.schedule(5)
    maker.seal()
    maker.fire(timer)


@pytest.mark.parametrize(("plant", "what"), [(double_fire, "had fired"), (early_fire, "before its trigger height")])
def test_a_network_that_agrees_on_a_wrong_fire_fails(plant: Callable[[ChainMaker], None], what: str) -> None:
    maker = make_chain(10)
    plant(maker)
    maker.seal()
    check = run_check(make_record(maker), "timers")
    assert check.verdict is FAIL
    assert check.detail.startswith("all validators at height 12: ")
    assert what in check.detail


def test_evidence_of_a_rejected_double_fire_fails_naming_the_validator() -> None:
    maker = make_chain(5)
    timer = maker.schedule(1)
    maker.seal()
    maker.fire(timer)
    maker.fire(timer)
    evidence = encode(maker.receipts())
    maker.fires.pop()
    for _ in range(6):
        maker.seal()
    record = make_record(maker)
    record.validators[3].blocks = record.validators[3].blocks[:6]
    answer(record)
    status_of(record, 3)["diverged"] = {"height": 7, "reason": "receipts_root", "receipts": evidence.hex()}
    check = run_check(record, "timers")
    assert check.verdict is FAIL
    assert "validator-3 (its own execution) at height 7" in check.detail
    assert "had fired at height 7" in check.detail


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


def test_a_wrong_tip_fails() -> None:
    maker = make_chain(11)
    maker.transfer(5, tip=3)
    wire, receipt = maker.transactions[-1]
    maker.transactions[-1] = (wire, msgspec.structs.replace(receipt, tip=pack_uint(16_000)))
    maker.seal()
    check = run_check(make_record(maker), "conservation")
    assert check.verdict is FAIL
    assert "tipped 16000 where its use and prices give 15000" in check.detail


def test_books_that_do_not_balance_fail() -> None:
    record = make_record()
    books = keep_books(record)
    books.ledger.accounts.burned += 1
    check = check_run(record, books).check("conservation")
    assert check.verdict is FAIL
    assert check.detail.startswith("minted 3,000,000,000,000,000,000 is not balances")


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


# --- progress ---------------------------------------------------------------------------------------------------------


def test_a_stall_fails() -> None:
    record = make_record()
    record.finalizations = [replace(f, at_ms=f.at_ms + 6_000 * (f.height > 7)) for f in record.finalizations]
    check = run_check(record, "progress")
    assert check.verdict is FAIL
    assert "after height 7, allowed 5,000" in check.detail


def test_a_standstill_at_the_end_counts_as_a_stall() -> None:
    record = make_record(make_chain(11))
    record.duration_ms += 60_000
    check = run_check(record, "progress")
    assert check.verdict is FAIL
    assert "after height 11" in check.detail


def test_a_target_that_was_not_reached_fails_unless_the_run_was_interrupted() -> None:
    record = make_record(make_chain(11))
    assert run_check(record, "progress").verdict is FAIL
    record.interrupted = True
    assert run_check(record, "progress").verdict is INCONCLUSIVE


@pytest.mark.parametrize("asked", [False, True])
def test_an_interrupted_run_says_what_was_final_where_nobody_served_a_block(asked: bool) -> None:
    record = make_record()
    record.interrupted = True
    for validator in record.validators:
        validator.blocks, validator.status = [], None
    if not asked:
        record.validators = []
    check = run_check(record, "progress")
    assert check.verdict is INCONCLUSIVE
    assert check.detail == "height 12 was final when it was interrupted, target 12; nobody served a block"


def test_heights_are_counted_among_those_that_served_them() -> None:
    record = make_record()
    never_answered(record)
    check = run_check(record, "agreement")
    assert check.verdict is INCONCLUSIVE
    assert check.detail.startswith("only 3 of 4 validators served a block; the same block at all 12 heights of 3 valid")


def stuck(record: RunRecord, height: int) -> None:
    record.validators[3].blocks = record.validators[3].blocks[:height]
    answer(record)


@pytest.mark.parametrize("height", [0, 11])
def test_a_validator_that_is_stuck_below_the_target_fails_by_name(height: int) -> None:
    record = make_record()
    stuck(record, height)
    check = run_check(record, "progress")
    assert check.verdict is FAIL
    assert check.detail == f"validator-3 stopped at height {height}, target 12; the highest validator reached 12"
    record.interrupted = True
    assert run_check(record, "progress").verdict is INCONCLUSIVE


def diverged(record: RunRecord) -> None:
    status_of(record, 3)["diverged"] = {"height": 11, "reason": "state_root"}


def mutated(record: RunRecord) -> None:
    record.validators[3].mutant = "planted"


def never_answered(record: RunRecord) -> None:
    record.validators[3].blocks, record.validators[3].status = [], None


@pytest.mark.parametrize("plant", [diverged, mutated, never_answered])
def test_a_validator_whose_end_has_another_reason_is_not_blamed_for_it(plant: Callable[[RunRecord], None]) -> None:
    record = make_record()
    stuck(record, 10)
    plant(record)
    assert run_check(record, "progress").verdict is PASS
    assert check_run(record).outcome is not PASS or record.validators[3].mutant


def test_progress_needs_enough_heights_and_times() -> None:
    few = make_record(scenario=make_scenario(success={"heights_compared": 30}))
    assert run_check(few, "progress").verdict is INCONCLUSIVE
    timeless = make_record()
    timeless.finalizations = []
    assert run_check(timeless, "progress").verdict is INCONCLUSIVE


# --- load -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [{"transactions": 37}, {"fires": 18}])
def test_too_little_load_is_inconclusive(wanted: dict[str, int]) -> None:
    success = {"heights_compared": 10, "transactions": 1, "fires": 1, **wanted}
    assert run_check(make_record(scenario=make_scenario(success=success)), "load").verdict is INCONCLUSIVE


def test_a_run_without_load_does_not_pass() -> None:
    maker = ChainMaker()
    for _ in range(12):
        maker.seal()
    assert check_run(make_record(maker)).outcome is INCONCLUSIVE


# --- faults -----------------------------------------------------------------------------------------------------------


def never_began(record: RunRecord) -> None:
    record.faults[0].begun_ms = None


def missing(record: RunRecord) -> None:
    record.faults = []


def never_bit(record: RunRecord) -> None:
    record.faults[0].took_effect = False


def never_down(record: RunRecord) -> None:
    status_of(record, 2)["starts"] = 1


def does_not_say(record: RunRecord) -> None:
    record.validators[2].status = None


def never_back(record: RunRecord) -> None:
    record.faults[0].ended_ms = None


def nothing_on_disk(record: RunRecord) -> None:
    status_of(record, 2)["recovered_height"] = 0


def left_behind(record: RunRecord) -> None:
    record.validators[2].blocks = record.validators[2].blocks[:6]


def network_stood_still(record: RunRecord) -> None:
    fault = record.faults[0]
    assert fault.begun_ms is not None
    fault.ended_ms = fault.begun_ms + 11_000
    end = fault.ended_ms
    record.finalizations = [replace(f, at_ms=end + f.at_ms) if f.height >= 6 else f for f in record.finalizations]


def later_from(record: RunRecord, height: int, by_ms: float) -> None:
    """Everything above a height is proposed and final so much later."""
    record.finalizations = [replace(f, at_ms=f.at_ms + by_ms) if f.height > height else f for f in record.finalizations]
    record.proposals = {at: ms + by_ms if at > height else ms for at, ms in record.proposals.items()}


def too_short(record: RunRecord) -> None:
    fault = record.faults[0]
    assert fault.begun_ms is not None
    fault.ended_ms = fault.begun_ms + 1


@pytest.mark.parametrize(
    ("plant", "verdict", "what"),
    [
        (never_began, INCONCLUSIVE, "never began"),
        (missing, INCONCLUSIVE, "1 of 1 faults never began"),
        (never_bit, INCONCLUSIVE, "had no observable effect"),
        (never_down, INCONCLUSIVE, "never down"),
        (does_not_say, INCONCLUSIVE, "does not say how it started"),
        (too_short, INCONCLUSIVE, "consecutive views may fail for"),
        (never_back, FAIL, "never came back"),
        (nothing_on_disk, FAIL, "found nothing on its own disk"),
        (left_behind, FAIL, "did not catch up: it has height 6, the others have 12"),
        (network_stood_still, FAIL, "no height was finalised in the 11,000 ms"),
    ],
)
def test_a_fault_that_did_not_go_as_it_should(plant: Callable[[RunRecord], None], verdict: Outcome, what: str) -> None:
    record = with_kill(make_record())
    plant(record)
    check = run_check(record, "faults")
    assert check.verdict is verdict
    assert what in check.detail


# --- joins ------------------------------------------------------------------------------------------------------------


def test_a_validator_that_joined_late_is_compared_from_there_on() -> None:
    record = with_late(make_record())
    verdict = check_run(record)
    assert [(check.name, check.detail) for check in verdict.checks if check.verdict is not PASS] == []
    assert (
        "the snapshot of height 1 (3 chunks from 2 peers) and took 50 ms; the validator executed 11 heights"
        in verdict.check("joins").detail
    )
    assert verdict.check("state_roots").detail.startswith("47 computed roots")
    assert "validator-3 from height 2 on" in verdict.check("agreement").detail


def test_what_a_late_validator_executed_wrongly_is_found() -> None:
    record = with_late(make_record(), snapshot=2)
    record.validators[3].blocks[4] = replace(record.validators[3].blocks[4], computed_root=bytes(32))
    check = run_check(record, "state_roots")
    assert (check.verdict, "validator-3 at height 7" in check.detail) == (FAIL, True)
    other = with_late(make_record(), snapshot=2)
    other.validators[3].blocks = other_branch(7).blocks[2:]
    assert run_check(other, "agreement").detail.startswith("different blocks at height 7")
    assert run_check(other, "agreement").verdict is FAIL
    stolen = with_late(make_record(), snapshot=2)
    some = next(iter(stolen.validators[3].balances))
    stolen.validators[3].balances[some] += 1
    assert run_check(stolen, "conservation").verdict is FAIL


def test_a_late_validator_below_which_nobody_has_blocks_cannot_be_judged() -> None:
    record = with_late(make_record(), snapshot=6)
    for validator in record.validators[:3]:
        validator.blocks = validator.blocks[:4]
    check = run_check(record, "chain")
    assert (check.verdict, "nobody served the blocks below height 7" in check.detail) == (FAIL, True)
    record.interrupted = True
    assert run_check(record, "chain").verdict is INCONCLUSIVE


def no_snapshot(record: RunRecord) -> None:
    status_of(record, 3)["snapshot_height"] = 0


def join_missing(record: RunRecord) -> None:
    record.joins = []


def join_never_began(record: RunRecord) -> None:
    record.joins[0].begun_ms = None


def join_never_ended(record: RunRecord) -> None:
    record.joins[0].ended_ms = None


def does_not_say_how(record: RunRecord) -> None:
    record.validators[3].status = None


def stays_behind(record: RunRecord) -> None:
    record.validators[3].blocks = record.validators[3].blocks[:3]


def executed_too_little(record: RunRecord) -> None:
    record.validators[3].blocks = record.validators[3].blocks[:9]


@pytest.mark.parametrize(
    ("plant", "verdict", "what"),
    [
        (join_missing, INCONCLUSIVE, "1 of 1 joins never began"),
        (join_never_began, INCONCLUSIVE, "never began"),
        (join_never_ended, FAIL, "never received a snapshot"),
        (does_not_say_how, INCONCLUSIVE, "does not say how it began"),
        (no_snapshot, FAIL, "executed the chain from the genesis on"),
        (stays_behind, FAIL, "did not catch up: it has height 4, the others have 12"),
        (executed_too_little, INCONCLUSIVE, "executed 9 heights afterwards, 10 needed"),
    ],
)
def test_a_join_that_did_not_go_as_it_should(plant: Callable[[RunRecord], None], verdict: Outcome, what: str) -> None:
    record = with_late(make_record())
    plant(record)
    check = run_check(record, "joins")
    assert check.verdict is verdict
    assert what in check.detail


def test_an_interrupted_run_blames_no_fault() -> None:
    record = with_kill(make_record())
    never_back(record)
    record.interrupted = True
    assert run_check(record, "faults").verdict is INCONCLUSIVE


def test_all_validators_of_the_targets_host_must_come_back() -> None:
    record = with_kill(make_record(count=8, scenario=make_scenario(validators={"count": 8, "hosts": 4})))
    check = run_check(record, "faults")
    assert check.verdict is INCONCLUSIVE
    assert "validator-6 was started 1 time," in check.detail


# --- problems ---------------------------------------------------------------------------------------------------------


def test_problems_fail_and_interruption_is_inconclusive() -> None:
    record = make_record()
    record.problems = ["Locust died"]
    check = run_check(record, "no_problems")
    assert (check.verdict, check.detail) == (FAIL, "Locust died")
    record.interrupted = True
    assert run_check(record, "no_problems").verdict is INCONCLUSIVE


# --- books ------------------------------------------------------------------------------------------------------------


def test_the_longest_chain_is_an_unmutated_one_where_there_is_a_choice() -> None:
    record = make_record()
    record.validators[0].mutant, record.validators[0].blocks = "planted", other_branch(9).blocks
    assert longest_chain(record.validators) == record.validators[1].blocks
    assert longest_chain([]) == []


def test_the_longest_chain_goes_on_with_what_a_late_validator_has_on_top_of_it() -> None:
    record = with_late(make_record(), snapshot=4)
    whole = list(record.validators[0].blocks)
    for validator in record.validators[:3]:
        validator.blocks = validator.blocks[:10]
    assert longest_chain(record.validators) == whole
    record.validators[3].blocks = other_branch(8).blocks[4:]
    assert longest_chain(record.validators) == whole[:10], "it is not the same chain"
    assert longest_chain(record.validators[3:]) == [], "nobody has what lies below"


def test_questions_are_bounded_and_begin_with_the_proposers() -> None:
    maker = ChainMaker()
    for _ in range(10):
        for _ in range(40):
            maker.schedule(1_000)
        maker.seal()
    asked = final_queries(maker.genesis, maker.blocks)
    assert len(asked.timers) == MAX_PENDING_ASKED
    assert len(asked.accounts) == 4 + 3


def test_receipts_round_trip() -> None:
    maker = make_chain(1)
    same = edit_receipts(maker.blocks[0], lambda receipts: receipts)
    assert same == maker.blocks[0].receipts
    assert isinstance(msgspec.msgpack.decode(same, type=BlockReceipts), BlockReceipts)


def test_who_never_was_there_counts_as_missing_too() -> None:
    """With one of four that joins later or is byzantine, another one that is down leaves no quorum."""
    record = with_kill(make_record())
    network_stood_still(record)
    assert run_check(record, "faults").verdict is FAIL
    late = with_late(record, at_height=11, snapshot=11)
    assert run_check(late, "faults").verdict is PASS
    nodes = [NodeSection(byzantine=["silent-leader"] if index == 1 else []) for index in range(4)]
    section = record.scenario.validators.model_copy(update={"nodes": nodes})
    byzantine = replace(record, scenario=record.scenario.model_copy(update={"validators": section}))
    assert run_check(byzantine, "faults").verdict is PASS
    epochs = [EpochSection(from_view=5, members=["validator-0", "validator-1", "validator-2"])]
    section = record.scenario.validators.model_copy(update={"epochs": epochs})
    small = replace(record, scenario=record.scenario.model_copy(update={"validators": section}))
    assert run_check(small, "faults").verdict is PASS, "a committee of three withstands nothing"


def test_drawn_leaders_may_fail_for_longer() -> None:
    record = with_kill(make_record())
    network_stood_still(record)
    consensus = record.scenario.consensus.model_copy(update={"leader_election": "random"})
    drawn = replace(record, scenario=record.scenario.model_copy(update={"consensus": consensus}))
    assert run_check(drawn, "faults").verdict is INCONCLUSIVE


def with_two_of_four_down() -> RunRecord:
    """Two of four validators are down for thirty seconds, and heights become final within them."""
    record = with_kill(make_record())
    fault = record.faults[0]
    fault.is_hard, fault.targets, fault.impaired = True, ("validator-1", "validator-3"), ("validator-1", "validator-3")
    fault.ended_ms = (fault.begun_ms or 0) + 30_000
    later_from(record, 6, 9_000)
    record.duration_ms += 40_000
    return record


def test_the_twin_of_one_that_is_killed_votes_on() -> None:
    record = with_two_of_four_down()
    assert "finalised without a quorum" in run_check(record, "faults").detail
    nodes = [*(NodeSection() for _ in range(3)), NodeSection(byzantine=["twins"])]
    validators = record.scenario.validators.model_copy(update={"nodes": nodes})
    record.scenario = record.scenario.model_copy(update={"validators": validators})
    assert "finalised without a quorum" not in run_check(record, "faults").detail


def test_what_was_proposed_before_the_quorum_was_lost_may_become_final_after_it() -> None:
    record = with_two_of_four_down()
    fault = record.faults[0]
    assert "finalised without a quorum" in run_check(record, "faults").detail
    record.proposals = dict.fromkeys(record.proposals, fault.begun_ms or 0.0)
    assert "finalised without a quorum" not in run_check(record, "faults").detail


def test_a_quorum_is_lost_until_the_first_is_back() -> None:
    record = with_two_of_four_down()
    fault = record.faults[0]
    fault.first_back_ms = (fault.begun_ms or 0) + 2_000
    assert "finalised without a quorum" not in run_check(record, "faults").detail


def test_who_lost_its_disk_may_not_vote_yet() -> None:
    """One of four is down; another one came back by a snapshot right before, and abstains."""
    record = with_kill(make_record())
    network_stood_still(record)
    assert run_check(record, "faults").verdict is FAIL
    begun_ms = record.faults[0].begun_ms or 0.0
    lost = replace(record.faults[0], kind="wipe", begun_ms=begun_ms - 900, ended_ms=begun_ms - 1, is_hard=True)
    lost.targets = lost.impaired = ("validator-3",)
    record.faults.append(lost)
    assert "no height was finalised" not in run_check(record, "faults").detail


def test_what_was_lost_right_before_the_end_leaves_nobody_behind() -> None:
    record = with_kill(make_record())
    left_behind(record)
    assert run_check(record, "faults").verdict is FAIL
    consensus = record.scenario.consensus.model_copy(update={"rebroadcast_ms": 3_600_000})
    record.scenario = record.scenario.model_copy(update={"consensus": consensus})
    assert "did not catch up" not in run_check(record, "faults").detail


def test_a_partition_is_judged_by_the_committees_on_its_sides() -> None:
    """Two against two is no quorum of four; of a committee of two on one side it is one."""
    record = with_kill(make_record())
    names = [f"validator-{index}" for index in range(4)]
    fault = record.faults[0]
    fault.kind, fault.sides, fault.is_hard = "partition", (tuple(names[:2]), tuple(names[2:])), True
    fault.targets, fault.impaired = (), tuple(names)
    fault.ended_ms = (fault.begun_ms or 0) + 30_000
    later_from(record, 6, 9_000)
    record.duration_ms += 40_000
    check = run_check(record, "faults")
    assert (check.verdict, "finalised without a quorum" in check.detail) == (FAIL, True)
    fault.sides, fault.impaired = (tuple(names[:3]), tuple(names[3:])), (names[3],)
    assert run_check(record, "faults").verdict is PASS
    fault.sides, fault.impaired = (tuple(names[:2]), tuple(names[2:])), tuple(names)
    epochs = [EpochSection(from_view=5, members=names[2:])]
    section = record.scenario.validators.model_copy(update={"epochs": epochs})
    small = replace(record, scenario=record.scenario.model_copy(update={"validators": section}))
    assert run_check(small, "faults").verdict is PASS, "one committee is whole on one side"


def with_epochs(record: RunRecord, *epochs: EpochSection) -> RunRecord:
    section = record.scenario.validators.model_copy(update={"epochs": list(epochs)})
    return replace(record, scenario=record.scenario.model_copy(update={"validators": section}))


@pytest.mark.parametrize(
    ("from_view", "verdict"),
    [(2, FAIL), (5, PASS), (7, PASS), (1_000, FAIL)],
    ids=["over before", "when it begins", "until the first block after it", "long after"],
)
def test_a_fault_is_judged_by_the_committees_of_its_time(from_view: int, verdict: Outcome) -> None:
    """A committee of three, which withstands nothing, excuses a standstill only where it rules."""
    record = with_kill(make_record())
    network_stood_still(record)
    small = EpochSection(from_view=from_view, members=["validator-0", "validator-1", "validator-2"])
    everybody = EpochSection(from_view=from_view + 2, members=[f"validator-{index}" for index in range(4)])
    assert run_check(with_epochs(record, small, everybody), "faults").verdict is verdict


def test_a_committee_far_off_excuses_no_standstill_to_the_end() -> None:
    record = with_kill(make_record())
    network_stood_still(record)
    record.finalizations = [seen for seen in record.finalizations if seen.height < 6]
    small = ["validator-0", "validator-1", "validator-2"]
    assert run_check(with_epochs(record, EpochSection(from_view=1_000, members=small)), "faults").verdict is FAIL
    assert run_check(with_epochs(record, EpochSection(from_view=40, members=small)), "faults").verdict is PASS


def test_the_first_epoch_may_begin_with_the_chain() -> None:
    """Nobody else ever votes then: that two others are down excuses nothing."""
    record = with_kill(make_record())
    network_stood_still(record)
    record.faults[0].impaired = ("validator-1", "validator-2")
    assert run_check(with_epochs(record), "faults").verdict is PASS
    one = EpochSection(from_view=1, members=["validator-0"])
    assert run_check(with_epochs(record, one), "faults").verdict is FAIL


def test_recovery_takes_a_quorum_of_the_committee() -> None:
    record = with_kill(make_record())
    ended = record.faults[0].ended_ms
    assert ended is not None
    record.finalizations = [seen for seen in record.finalizations if seen.at_ms <= ended or seen.validator < 1]
    record.duration_ms = 100_000
    assert run_check(record, "recovery").verdict is FAIL
    one = EpochSection(from_view=1, members=["validator-0"])
    assert run_check(with_epochs(record, one), "recovery").verdict is PASS
    other = EpochSection(from_view=1, members=["validator-1"])
    assert run_check(with_epochs(record, other), "recovery").verdict is FAIL
