"""Blocks, state roots and chains that validators served: each planted fault fails with height and names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cluster.checks.kinds.agreement import two_roots
from cluster.checks.run import check_run
from cluster.record.run import RunRecord
from tests.cluster.checks.cases import FAIL, INCONCLUSIVE, PASS, other_branch, run_check, status_of
from tests.cluster.records import answer, edit_receipts, make_chain, make_record, make_scenario, own_blocks, with_kill
from validator.primitives.codec import pack_uint

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


UNASKED = ("faults", "joins", "recovery", "criteria", "participation", "byzantine", "evidence", "safety", "promises")


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
    blocks = own_blocks(record.validators[2])
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


@pytest.mark.parametrize(
    ("computed", "text"),
    [
        ("ab" * 32, "expected root abababababababab…, computed the same; the difference is elsewhere in the header"),
        ("ab" * 20 + "cd" * 12, f"expected root {'ab' * 22}…, computed {'ab' * 20}cdcd…"),
        ("ab" * 31 + "ac", f"expected root {'ab' * 32}, computed {'ab' * 31}ac"),
        ("", "expected root abababababababab…, computed none"),
    ],
)
def test_roots_are_shown_with_enough_digits(computed: str, text: str) -> None:
    assert two_roots("expected root", "ab" * 32, computed) == text


@pytest.mark.parametrize("told", [{}, {"height": "x"}, {"height": 3, "receipts": "zz"}, {"height": 10**9}])
def test_a_divergence_told_badly_fails_all_the_same(told: dict[str, Any]) -> None:
    record = make_record()
    status_of(record, 0)["diverged"] = told
    assert run_check(record, "state_roots").verdict is FAIL


# --- the chain --------------------------------------------------------------------------------------------------------


def test_a_missing_height_fails() -> None:
    record = make_record()
    del own_blocks(record.validators[1])[4]
    check = run_check(record, "chain")
    assert check.verdict is FAIL
    assert (
        "validator-1 at height 5: the block is final, by the specification not valid: it has height 6 where 5 is due"
        in check.detail
    )


def test_a_block_that_cannot_be_read_fails() -> None:
    record = make_record()
    blocks = own_blocks(record.validators[1])
    blocks[4] = replace(blocks[4], block=b"garbage")
    check = run_check(record, "chain")
    assert check.verdict is FAIL
    assert "validator-1: the block at height 5 cannot be read" in check.detail


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [("p50_tip", pack_uint(99), "conservation"), ("gc_cycles", 99, "timers"), ("proposer", bytes(20), "chain")],
)
def test_receipts_that_one_validator_changed_fail_for_it_alone(name: str, value: Any, check: str) -> None:
    record = make_record()
    blocks = own_blocks(record.validators[2])
    changed = edit_receipts(blocks[3], lambda receipts: msgspec.structs.replace(receipts, **{name: value}))
    blocks[3] = replace(blocks[3], receipts=changed)
    found = run_check(record, check)
    assert found.verdict is FAIL
    assert f"validator-2 at height 4: receipts.{name} is " in found.detail
    assert "validator-0" not in found.detail
