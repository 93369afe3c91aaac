"""A recorded run shown again: the same run, filtered, stepped through, refused where it is another."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import pytest

from cluster.commands.cli.main import main
from cluster.commands.console.output import LastingOutput
from cluster.commands.rerun.entries import KINDS, Entry, describe
from cluster.commands.rerun.recorded_run import RecordedRun, read_recorded
from cluster.commands.rerun.replay import Filter, Player, Stepper, check_repeats, parse_time_us, print_entries
from cluster.common.errors import ExitCode
from cluster.record.folder import RESULT_FILE
from cluster.report.results import finish_run
from cluster.scenario import Scenario
from cluster.simulation import machine
from cluster.watches.watched_simulation import simulate
from consensus import messages as consensus
from consensus.messages import VoteKind
from consensus.types import Digest, Signature, ValidatorIndex, View
from tests.cluster.commands.rerun.runs import NOISE, run, scenario
from validator.chain import messages
from validator.chain.messages import encode_message

LOSSY = scenario(
    links={"latency_ms": 10, "loss": 0.03},
    validators=[{}, {}, {}, {"byzantine": "twins"}],
    faults=[*NOISE, {"kind": "wipe", "target": "validator-1", "at_height": 9, "down_ms": 200}],
    chain={"params": {"MAX_TTL": 40}},
)


ALL = Filter()


def nothing() -> None:
    """Nobody interrupts."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("replayed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        main(["run", str(_write(path)), "--backend", "sim", "--out", str(path / "run")])
        yield path / "run"


def _write(path: Path) -> Path:
    (path / "given.yaml").write_text(json.dumps(LOSSY), encoding="utf-8")
    return path / "given.yaml"


@pytest.fixture(scope="module")
def recorded(folder: Path) -> RecordedRun:
    return read_recorded(folder)


@pytest.fixture(scope="module")
def player(recorded: RecordedRun) -> Player:
    return Player(recorded, nothing)


@pytest.fixture(scope="module")
def entries(player: Player) -> list[Entry]:
    return list(player.entries(Filter()))


def replay(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["replay", *arguments]) == ExitCode.PASS
    return capsys.readouterr().out.splitlines()


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_to_watch_a_run_changes_nothing(recorded: RecordedRun, player: Player, entries: list[Entry]) -> None:
    assert entries and player.simulation.clock.digest() == recorded.digest
    assert player.simulation.clock.events == recorded.events
    assert check_repeats(recorded, nothing) is None


def test_everything_is_told(player: Player, entries: list[Entry]) -> None:
    told = {entry.kind for entry in entries}
    assert told <= set(KINDS)
    assert told >= {"vote", "proposal", "certificate", "request", "snapshot", "load", "job", "timer", "sync", "final"}
    assert told >= {"machine", "fault", "transactions"}
    lost = sum(" ✗ " in entry.text for entry in entries)
    assert lost > 0
    links = player.simulation.network.links
    arrived = sum(" → " in entry.text for entry in entries)
    on_their_way = links.sent - links.dropped - arrived
    assert 0 <= on_their_way < 100, "a message that was not lost arrives"
    finals = [entry for entry in entries if entry.kind == "final"]
    seen = player.simulation.record.finalizations
    watched = [(entry.whom[0], entry.at_us / 1_000) for entry in finals if "(twin)" not in entry.text]
    assert watched == [(each.validator, each.at_ms) for each in seen]
    assert any("(twin)" in entry.text for entry in entries)


@pytest.mark.slow
def test_times_validators_and_kinds_select(
    folder: Path, capsys: pytest.CaptureFixture[str], entries: list[Entry]
) -> None:
    window = replay(capsys, str(folder), "--from", "300", "--until", "0.4s")
    assert window == [entry.line() for entry in entries if 300_000 <= entry.at_us <= 400_000]
    votes = replay(capsys, str(folder), "--kind", "vote,final", "--kind", "fault", "--validator", "validator-2")
    assert votes == [
        entry.line()
        for entry in entries
        if entry.kind in ("vote", "final", "fault") and (2 in entry.whom or not entry.whom)
    ]
    assert replay(capsys, str(folder), "--kind", "final", "--step") == [
        entry.line() for entry in entries if entry.kind == "final"
    ], "without a terminal nothing is stepped"


def test_a_reader_that_has_seen_enough_ends_it(entries: list[Entry]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1, encoding="utf-8") as output:
        lasting = LastingOutput(output)
        left = iter(entries)
        print_entries(left, cast(TextIO, lasting))
        assert lasting.is_gone and next(left, None) is not None


VOTE = consensus.Vote(
    VoteKind.NOTARIZE, View(3), View(2), Digest(b"\xab" * 32), ValidatorIndex(1), Signature(b"s" * 64)
)
CERTIFICATE = consensus.Certificate.of(
    VoteKind.NULLIFY, View(3), View(0), Digest(b""), {ValidatorIndex(0): Signature(b"s" * 64)}
)


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (VOTE, "vote", "notarize view 3, block abababab, signed by b"),
        (CERTIFICATE, "certificate", "nullification of view 3, signed by 0"),
        (consensus.CertificateRequest((View(4), View(5))), "request", "for the certificates of views 4, 5"),
        (messages.TransactionsMessage((b"1",)), "transactions", "1 transaction"),
        (messages.BlockRequest(b"\xcd" * 32), "request", "for block cdcdcdcd"),
        (messages.BlockResponse(b"12"), "block", "of 2 bytes"),
        (messages.FinalBlocksRequest(4, 9), "request", "for final blocks from height 4 on, at most 9"),
        (
            messages.FinalBlocksResponse((b"1", b"2"), (), b""),
            "block",
            "2 final blocks, 0 headers up to a finalization",
        ),
        (messages.SnapshotRequest(), "request", "for a snapshot"),
        (messages.SnapshotOffer(b"", b"", (), b"", b"123"), "snapshot", "offer with a manifest of 3 bytes"),
        (messages.ChunkRequest(8, 2), "request", "for chunk 2 of the snapshot of height 8"),
        (messages.ChunkRequest(8, 2, 5_000), "request", "for chunk 2 of the snapshot of height 8 from byte 5,000 on"),
        (messages.ChunkResponse(8, 2, b"12", 0, 2), "snapshot", "chunk 2 of height 8, 2 bytes"),
        (messages.ChunkResponse(8, 2, b"12", 0, 3_000), "snapshot", "chunk 2 of height 8, 2 of 3,000 bytes"),
        (messages.ViewRequest(b""), "request", "for the current view"),
        (messages.ViewReport(b"", b""), "snapshot", "the current view"),
        (messages.ConsensusMessage(b"\xff"), "garbage", "bytes that are no message"),
        (None, "garbage", "3 bytes that are no message"),
    ],
)
def test_every_message_has_words(message: object, kind: str, words: str) -> None:
    if message is None:
        payload = b"\xff\xff\xff"
    elif isinstance(message, consensus.Vote | consensus.Certificate | consensus.CertificateRequest):
        payload = encode_message(messages.ConsensusMessage(consensus.encode(message)))
    else:
        payload = encode_message(message)  # type: ignore[arg-type]
    told = describe(payload, ["a", "b"])
    assert told[0] == kind and words in told[1]


# --- runs that are others ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_of_other_code_is_refused_in_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    result = json.loads((copied / RESULT_FILE).read_text())
    result["commit"] = "0ld"
    (copied / RESULT_FILE).write_text(json.dumps(result))
    assert main(["replay", str(copied), "--until", "5"]) == ExitCode.PASS, "another commit may well do the same"
    capsys.readouterr()
    original = machine.Machine.later

    def slower(self: machine.Machine, delay_us: int, label: str, content: bytes, call: object) -> None:
        original(self, delay_us + (label == "sync 5"), label, content, call)  # type: ignore[arg-type]

    monkeypatch.setattr(machine.Machine, "later", slower)
    assert main(["replay", str(copied)]) == ExitCode.FAIL
    shown, said = capsys.readouterr()
    assert not shown and said.count("\n") == 1
    assert "does not repeat: the runs differ before height" in said and "is not that of the run (0ld)" in said
    assert main(["replay", str(copied), "--force", "--kind", "final"]) == ExitCode.PASS
    shown, again = capsys.readouterr()
    assert len(shown.splitlines()) > 10 and "does not repeat" in again


def test_a_digest_alone_is_enough_to_tell(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    result = json.loads((copied / RESULT_FILE).read_text())
    result["digest"], result["checkpoints"] = "00" * 32, {}
    (copied / RESULT_FILE).write_text(json.dumps(result))
    assert main(["replay", str(copied)]) == ExitCode.FAIL
    assert "the recorded one 0000000000000000…; the code is the same" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_run_repeats_as_far_as_it_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = [700]

    def interrupt() -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    finish_run(simulate(Scenario.model_validate(scenario()), 3, "c", checkpoint=interrupt), tmp_path / "cut")
    recorded = read_recorded(tmp_path / "cut")
    assert recorded.events == 700
    assert check_repeats(recorded, nothing) is None
    assert replay(capsys, str(tmp_path / "cut"), "--kind", "final")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--until", "soon"], "'soon' is not a time"),
        (["--from", "-1"], "'-1' is not a time"),
        (["--from", "3s", "--until", "1s"], "--until is before --from"),
        (["--kind", "vote,votes"], "unknown kind 'votes'; did you mean vote?"),
        (["--kind", "view"], "was a simulated run, which has no events of kind view; it has block, "),
        (["--validator", "bob"], "no validator is named 'bob'; there are validator-0"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(folder), *arguments]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_times() -> None:
    given = ["0", "12", "12.5", "12.5ms", "1.25s"]
    assert [parse_time_us(text) for text in given] == [0, 12_000, 12_500, 12_500, 1_250_000]
    for wrong in ("", "s", "ms", "-1", "1e3", "nan", "1.2.3", "٣", "9" * 20):
        with pytest.raises(ValueError, match="is not a time"):
            parse_time_us(wrong)


# --- step by step -----------------------------------------------------------------------------------------------------


def stepped(recorded: RecordedRun, commands: str, shown: Filter = ALL) -> list[str]:
    output = io.StringIO()
    Stepper(Player(recorded, nothing), shown, output).run(io.StringIO(commands))
    return output.getvalue().splitlines()


def test_events_heights_and_times_are_stepped_through(recorded: RecordedRun, entries: list[Entry]) -> None:
    finals = [entry.line() for entry in entries if entry.kind == "final"]
    shown = Filter(kinds=frozenset({"final"}))
    said = stepped(recorded, "n\n\nn 2\nq\n", shown)
    assert [line.removeprefix("> ") for line in said[1:5]] == finals[:4]
    said = stepped(recorded, "h 3\ns validator-2\nh 2\nt 400\ns\nq\n", shown)
    reached = next(position for position, line in enumerate(finals) if "height 3," in line)
    assert [line.removeprefix("> ") for line in said[1 : reached + 2]] == finals[: reached + 1]
    assert said[reached + 2].startswith("> validator-2: view ")
    assert "height 3 is final already" not in said and any("height 2 is final already" in line for line in said)
    assert sum(re.match("(> )?validator-[0-9]: ", line) is not None for line in said) == 5


def test_steps_say_what_they_do_not_know_and_when_it_is_over(recorded: RecordedRun) -> None:
    said = "\n".join(stepped(recorded, "?\nx\nn 0\nt soon\ns bob\nh 9999\n", Filter(kinds=frozenset({"fault"}))))
    for words in (
        "the next printed event",
        "unknown command 'x'",
        "'0' is not a positive number",
        "'soon' is not a time",
        "named 'bob'",
    ):
        assert words in said
    assert "the run is over at" in said


def test_runs_pass_through_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorded = read_recorded(run(tmp_path, scenario()))
    assert sorted(recorded.checkpoints) == list(range(1, max(recorded.checkpoints) + 1))
    assert recorded.failed == ()
