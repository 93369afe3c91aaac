"""Bisection: for planted bugs of many kinds, the step and the keys in which they show."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.audit.books import Books, keep_books
from cluster.audit.reexecution import bisect as bisecting
from cluster.audit.reexecution.bisect import bisect
from cluster.audit.reexecution.describe import key_words, lines
from cluster.audit.reexecution.reexecutor import Reexecution, Reexecutor
from cluster.checks.run import check_run
from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from cluster.misbehaviour.planted import planted
from cluster.record.archive import DivergedExecution, decode_traces, encode_traces
from cluster.report.results import finish_run
from cluster.watches.watched_simulation import simulate
from kits.mutation.detection_scenarios import scenario_of
from validator.chain.records import (
    GLOBALS,
    account_key,
    fires_key,
    kept_answer_key,
    published_key,
    storage_key,
    timer_key,
)
from validator.primitives.codec import decode, encode
from validator.transition.trace import BlockTrace, Write

Pages = list[dict[str, Any]]


def books_of(mutant: str, mutated: tuple[int, ...] | None = None, seed: int = 1) -> Books:
    detection = planted(mutant).must_fail
    return keep_books(simulate(scenario_of(replace(detection, mutated=mutated or detection.mutated), mutant), seed))


@pytest.fixture(scope="module")
def doubled() -> Books:
    return books_of("double-fire")


@pytest.fixture(scope="module")
def folder(doubled: Books, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doubled")
    finish_run(doubled.record, folder)
    return folder


def test_a_fire_too_many_is_found_in_its_fire(doubled: Books) -> None:
    (page,) = doubled.bisections
    assert (page["validator"], page["step"]["kind"], page["step"]["spec_step"]) == ("validator-1", "fire", 4)
    assert page["step"] == page["right_step"], "both fired that timer; one of them twice"
    assert page["receipts"] == [{"name": "receipts", "theirs": "2", "right": "1"}]
    fired = {receipt.timer_id for receipt in doubled.ledger.timers.newest if receipt.ended_at == page["height"]}
    assert bytes.fromhex(page["step"]["subject"]) in fired
    payer = next(key for key in page["keys"] if key["words"].startswith("account"))
    (balance,) = (field for field in payer["fields"] if field["name"] == "balance")
    before, theirs, right = (int(balance[name].replace(",", "")) for name in ("before", "theirs", "right"))
    assert before - theirs == 2 * (before - right)


def test_a_wrong_refund_is_found_in_its_transaction() -> None:
    (page,) = books_of("wrong-balance").bisections
    assert page["step"]["kind"] == "transaction"
    (key,) = page["keys"]
    sender = page["step"]["words"].rpartition(" ")[2]
    assert key["words"] == f"account {sender}"
    (field,) = key["fields"]
    assert int(field["theirs"].replace(",", "")) == int(field["right"].replace(",", "")) + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "kind", "key"),
    [
        ("p50-not-wired", "prices and counters", GLOBALS),
        ("ties-by-insertion", "fire", b"a"),
    ],
)
def test_other_bugs_are_found_where_they_are(mutant: str, kind: str, key: bytes) -> None:
    (page,) = books_of(mutant, mutated=(1,)).bisections
    assert page["step"]["kind"] == kind
    assert page["keys"][0]["key"].startswith(key.hex())


def test_another_root_over_the_same_values_is_the_state_tree(doubled: Books) -> None:
    (told,) = doubled.divergences
    reexecutor = Reexecutor(doubled.record.genesis)
    for record in doubled.chain[: told.height - 1]:
        assert reexecutor.take(record) is None
    right = reexecutor.trace(doubled.chain[told.height - 1])
    figures = tuple((name, "00" if name == "state_root" else value) for name, value in right.figures)
    tree = replace(told, computed_root="00", trace=encode(msgspec.structs.replace(right, figures=figures)))
    (page,) = bisect(Reexecution(doubled.record.genesis, doubled.chain), [tree])
    assert (page["step"], page["keys"], page["note"]) == (None, [], bisecting.STATE_TREE)


@pytest.mark.slow
def test_a_bug_that_does_not_repeat_is_found_by_what_was_kept() -> None:
    (page,) = books_of("fires-again-after-restart").bisections
    assert page["note"] == bisecting.NOT_REPEATED
    assert page["step"]["kind"] == "fire"
    assert page["keys"], "what the first execution changed was kept"


def test_one_that_is_right_against_all_is_told_so() -> None:
    pages = books_of("double-fire", (0, 2, 3)).bisections
    (page,) = (page for page in pages if page["validator"] == "validator-1")
    assert (page["note"], page["theirs"]) == (bisecting.OTHERS_ARE_WRONG, bisecting.FINAL_BLOCK)
    assert page["step"]["kind"] == "fire"


def test_without_a_trace_the_receipts_tell(doubled: Books) -> None:
    silent = [replace(each, trace=b"") for each in doubled.divergences]
    (page,) = bisect(Reexecution(doubled.record.genesis, doubled.chain), silent)
    assert (page["step"]["kind"], page["note"], page["keys"]) == ("fire", bisecting.NO_TRACE, [])
    (page,) = bisect(Reexecution(doubled.record.genesis, doubled.chain), [replace(silent[0], receipts=b"")])
    assert page["note"] == bisecting.NOTHING


def without_steps(told: DivergedExecution, writes: tuple[Write, ...] | None = None) -> DivergedExecution:
    """The execution as a foreign executor leaves it: all its changes, and no steps."""
    trace = decode(told.trace, BlockTrace)
    kept = tuple(bisecting.net_writes(trace)) if writes is None else writes
    return replace(told, trace=encode(msgspec.structs.replace(trace, steps=(), first_writes=kept)))


def test_without_steps_the_receipts_and_all_changes_tell(doubled: Books) -> None:
    (told,), chain = doubled.divergences, Reexecution(doubled.record.genesis, doubled.chain)
    (page,) = bisect(chain, [without_steps(told)])
    (full,) = doubled.bisections
    assert (page["step"]["kind"], page["note"]) == ("fire", bisecting.NO_STEPS)
    assert page["step"]["subject"] == full["step"]["subject"]
    assert {key["key"] for key in full["keys"]} <= {key["key"] for key in page["keys"]}
    trace = msgspec.structs.replace(decode(without_steps(told).trace, BlockTrace), remark="its steps are wrong")
    (page,) = bisect(chain, [replace(told, trace=encode(trace))])
    assert page["note"] == f"its steps are wrong: {bisecting.FIRST_CHANGE}"


def test_without_steps_the_first_step_that_writes_a_differing_key_is_named() -> None:
    books = books_of("wrong-balance")
    (told,), chain = books.divergences, Reexecution(books.record.genesis, books.chain)
    (page,) = bisect(chain, [without_steps(told)])
    (full,) = books.bisections
    assert page["step"] == full["step"]
    assert {key["key"] for key in full["keys"]} < {key["key"] for key in page["keys"]}, "those of later steps, too"
    right = chain.at(told.height).trace
    assert right is not None
    writes = tuple(bisecting.net_writes(right))
    (page,) = bisect(chain, [without_steps(told, writes)])
    assert (page["step"], page["keys"], page["note"]) == (None, [], bisecting.STATE_TREE)
    (page,) = bisect(chain, [without_steps(told, (*writes, Write(b"s" + bytes(22), None, b"x")))])
    assert page["step"] is None and [key["key"] for key in page["keys"]] == ["73" + bytes(22).hex()]


def test_chains_that_cannot_be_followed_are_told(doubled: Books) -> None:
    (told,) = doubled.divergences
    (page,) = bisect(Reexecution(doubled.record.genesis, doubled.chain[: told.height - 1]), [told])
    assert page["note"] == "no validator served the final block of that height"
    spoilt = list(doubled.chain)
    spoilt[2] = replace(spoilt[2], computed_root=bytes(32))
    (page,) = bisect(Reexecution(doubled.record.genesis, spoilt), [told])
    assert page["note"].startswith("the final blocks are not what this code gives, from height 3 on: execution gives")


def test_bytes_of_a_broken_validator_break_nothing(doubled: Books) -> None:
    (told,) = doubled.divergences
    for trace in (b"\xff", told.trace[:-1], told.trace[:100]):
        (page,) = bisect(Reexecution(doubled.record.genesis, doubled.chain), [replace(told, trace=trace)])
        assert page["note"] == bisecting.NO_TRACE


def test_the_lines_can_be_pasted(doubled: Books) -> None:
    (page,) = doubled.bisections
    first, step, *rest = lines(page)
    assert first.startswith(f"validator-1 diverged at height {page['height']} (block ")
    assert step.startswith("  step     the fire of timer ")
    assert "step 4 of a block" in step
    assert any(line.startswith("  key      account 0x") and "on validator-1" in line for line in rest)
    assert all(len(line) < 600 for line in (first, step, *rest))


def test_verdict_result_and_report_have_it(doubled: Books, folder: Path) -> None:
    assert check_run(doubled.record).divergences == tuple(doubled.bisections)
    result = json.loads((folder / "result.json").read_text())
    assert result["divergences"] == doubled.bisections
    assert "diverged at height" in (folder / "report.html").read_text()


def test_the_command_finds_it_again(folder: Path, capsys: pytest.CaptureFixture[str], doubled: Books) -> None:
    assert main(["bisect", str(folder)]) == ExitCode.FAIL
    assert capsys.readouterr().out.splitlines() == lines(doubled.bisections[0])
    assert main(["bisect", str(folder), "--json", "--validator", "validator-1"]) == ExitCode.FAIL
    assert json.loads(capsys.readouterr().out) == doubled.bisections
    assert main(["bisect", str(folder), "--validator", "validator-2"]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == f"stampede: {folder}: 'validator-2' did not diverge; validator-1 did\n"


def test_a_run_without_a_divergence(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(folder, tmp_path / "run"))
    (run / "traces.bin").unlink()
    assert main(["bisect", str(run)]) == ExitCode.PASS
    assert capsys.readouterr().out == "no validator diverged\n"


def test_traces_are_kept_and_damage_is_seen() -> None:
    kept = [DivergedExecution("a", 3, "why", "00", "11", b"r", b"t")]
    data = encode_traces(kept)
    assert decode_traces(data) == kept
    spoil: list[Callable[[bytes], bytes]]
    spoil = [lambda d: d[:-1], lambda d: d[:20] + b"\0" + d[21:], lambda _: b"", bytes.upper]
    for damage in spoil:
        with pytest.raises(BadInput, match=r"^traces\.bin: "):
            decode_traces(damage(data))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (GLOBALS, "the chain's counters and prices"),
        (account_key(bytes(20)), "account 0x" + "00" * 20),
        (timer_key(bytes(32)), "timer " + "00" * 32),
        (fires_key(12), "fires of height 12"),
        (storage_key(bytes(20), "left"), "storage of actor 0x" + "00" * 20 + ", entry 'left'"),
        (storage_key(bytes(20), "x" * 300), "storage of actor 0x" + "00" * 20 + ", entry with hash "),
        (published_key(bytes(20), "k"), "value 'k' published by actor 0x" + "00" * 20),
        (kept_answer_key(b"\1" * 20, bytes(20)), "last bid of agent 0x" + "00" * 20 + " for actor 0x01"),
        (b"\xee\x01", "key ee01"),
    ],
)
def test_keys_in_words(key: bytes, words: str) -> None:
    assert key_words(key).startswith(words)
