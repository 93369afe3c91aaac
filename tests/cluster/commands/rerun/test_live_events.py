"""A live run shown again, from the journal and the record in its folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from cluster.commands.cli.main import main
from cluster.commands.rerun.live_events import FOLLOWS, LIVE_KINDS, Decided, read_live
from cluster.common.errors import ExitCode
from cluster.faults.events import Begin, Due, End, MachineLost, Network, Restart, Seat, UpgradeNext
from cluster.record.finalizations import Finalizations
from cluster.record.folder import JOURNAL_FILE, RECORD_FILE
from cluster.record.message_trace import KINDS as MESSAGE_KINDS
from cluster.record.run import RunRecord, Sample, TracedMessage, TraceRecord, TraceWindow, ViewEntered
from cluster.record.saved import RECORD_FORMAT, sealed
from cluster.report.results import finish_run
from cluster.run.events import Absent, Begun, JoinBegun, Left, NewHeight, Seen, StopRequested, Up, Violation
from cluster.run.journal import Journal, encoded, read_journal
from cluster.run.loop import RunLoop
from tests.cluster.records import make_record, make_scenario
from tests.cluster.run.test_journal import Kept
from tests.cluster.run.test_loop import random_loop
from validator.chain.block import Block, header_hash
from validator.primitives.codec import decode
from validator.storage.frames import frame

UP = Seat((1,), (1,), True, True)
DOWN = Seat((1,), (1,), deaths=1)


def look(at_ms: float, second: Seat = UP) -> Network:
    """All validators are up, but the second one is in a state that is given."""
    others = tuple(Seat((index,), (index,), True, True) for index in range(4))
    return Network(at_ms, (others[0], second, *others[2:]), 0)


TOLD: Sequence[Seen] = (
    Up(200.0),
    look(210.0),
    NewHeight(2),
    JoinBegun(700.0, 3),
    MachineLost(900.0, [1], "host 1", "its process is gone"),
    look(910.0, DOWN),
    NewHeight(5),
    look(1_200.0, DOWN._replace(deaths=2)),
    look(1_500.0, UP._replace(deaths=2)),
    look(1_550.0, UP._replace(deaths=3)),
    Absent(1_600.0, 1_900.0, 5),
    Violation("two blocks are final at height 6"),
    StopRequested(2_000.0),
    Left(),
)


def begun(loop: RunLoop) -> Begun:
    """The first frame of the journal of a loop."""
    return Begun(loop.given, loop.record.seed, loop.is_open, loop.stops_on_fail)


def make_run() -> tuple[RunRecord, bytes]:
    """A record of a live run, and the journal from which its faults, joins and absences follow."""
    late = {"count": 4, "nodes": [{}, {}, {}, {"joins_at_height": 2}]}
    record = make_record(backend="live", scenario=make_scenario(validators=late))
    record = replace(record, digest=None)
    journal, loop = bytearray(), RunLoop(record)
    note = Journal(journal.extend).note
    for seen in (begun(loop), *TOLD):
        note(seen, loop.handle(seen))
    window = TraceWindow("the beginning", 0.0, 2_000.0)
    for place, kind in enumerate(MESSAGE_KINDS):
        window.messages.append(TracedMessage(0, 1, 300.0 + place, 310.5 + place, kind, place, 96))
    window.messages += [TracedMessage(0, 2, 400.0, None, "notarize", 7, 96)]
    window.messages += [TracedMessage(2, 0, None, 401.0, "block", 0, 9_000)]
    record.trace = TraceRecord((0, 1, 2, 3), [ViewEntered(250.0, 2, 1), ViewEntered(260.0, 0, 1)], [window])
    record.samples.append(Sample(500.0, (1, 2, None, 1), 0, 0, 12, 3, 1, 1, states=("up", "up", "down", "up")))
    record.finalizations = Finalizations(reversed(list(record.finalizations)))
    return record, bytes(journal)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live") / "run"
    folder.mkdir()
    record, journal = make_run()
    (folder / JOURNAL_FILE).write_bytes(journal)
    finish_run(record, folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return shutil.copytree(original, tmp_path / "run")


def shown(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> list[str]:
    assert main(["replay", str(folder), *arguments]) == ExitCode.PASS
    out, said = capsys.readouterr()
    assert not said
    return out.splitlines()


def refusal(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str, code: int = ExitCode.BAD_INPUT) -> str:
    assert main(["replay", str(folder), *arguments]) == code
    out, said = capsys.readouterr()
    assert not out and said.count("\n") == 1
    return said


def at_ms(line: str) -> float:
    return float(line.split()[0])


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_everything_that_the_folder_keeps_is_told_in_the_order_of_time(
    original: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, record = shown(capsys, original), make_run()[0]
    assert {line.split()[1] for line in lines} == LIVE_KINDS
    times = [at_ms(line) for line in lines]
    assert times == sorted(times)
    header = decode(record.validators[1].blocks[2].block, Block).header
    (final,) = (line for line in lines if "final         validator-1 height 3," in line)
    assert f"view 3, block {header_hash(header).hex()[:8]}: 3 transactions, 1 fire, state " in final
    assert at_ms(final) == next(each.at_ms for each in record.finalizations if (each.validator, each.height) == (1, 3))
    assert sum("  final  " in line for line in lines) == len(record.finalizations)
    assert sum("is first seen" in line for line in lines) == len(record.proposals)
    for line in (
        "     200.000  machine       the testnet is up",
        "     210.000  machine       validator-3 is up",
        "     250.000  view          validator-2 enters view 1",
        "     311.500  vote          validator-0 → validator-1  notarize of view 1, 96 bytes, took 10.500 ms",
        "     400.000  vote          validator-0 ✗ validator-2  notarize of view 7, 96 bytes",
        "     401.000  block         validator-2 → validator-0  block, 9,000 bytes",
        "     500.000  sample        heights 1 to 2; 3 up, 1 down; backlog 3, 12 timers pending",
        "     700.000  fault         height 2: validator-3 joins by a snapshot",
        "     900.000  fault         height 2: lose_node of host 1 (validator-1) begins",
        "     910.000  machine       validator-1 is down",
        "    1500.000  machine       validator-1 is up",
        "    1550.000  machine       validator-1 was down for a moment",
        "    1900.000  fault         no driver from height 5 to 5 (0 s)",
        "    1900.000  violation     two blocks are final at height 6",
        "    2000.000  fault         height 5: stop requested",
        "    2000.000  fault         height 5: the load stops, draining",
        "    2000.000  machine       the run is not watched any more",
    ):
        assert line in lines
    assert sum("validator-1 is down" in line or "for a moment" in line for line in lines) == 2


def test_times_validators_and_kinds_select(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = shown(capsys, original)
    until = shown(capsys, original, "--from", "300", "--until", "0.9s")
    assert until == [line for line in every if 300.0 <= at_ms(line) <= 900.0]
    assert shown(capsys, original, "--validator", "validator-2", "--kind", "view,vote,machine") == [
        line
        for line in every
        if line.split()[1] in ("view", "vote", "machine") and ("validator-2" in line or "validator" not in line)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_what_a_loop_decided_follows_from_its_journal(seed: int) -> None:
    for number in range(20):
        name = f"{seed}/{number}"
        loop = random_loop(Random(name))
        loop.record.backend = "live"
        start = begun(loop)
        world = Kept(Random(f"{name}/seen"), loop)
        world.go().settle()
        told, _ = read_journal(bytes(world.content))
        decided = Decided(start, loop.record.genesis, loop.record.finalizations.earliest())
        entries, again = list(decided.entries(told)), decided.record
        assert [getattr(again, name) for name in FOLLOWS] == [getattr(loop.record, name) for name in FOLLOWS], name
        assert [entry.at_us for entry in entries] == sorted(entry.at_us for entry in entries)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_torn_journal_is_shown_as_far_as_it_is_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / JOURNAL_FILE
    path.write_bytes(path.read_bytes()[:-3])
    assert main(["replay", str(folder), "--kind", "machine"]) == ExitCode.PASS, "the rest leads to the record's faults"
    out, said = capsys.readouterr()
    assert "is not watched any more" not in out and "validator-1 is down" in out
    assert said.startswith(f"stampede: {path}: its last ") and said.endswith(" bytes are torn\n")


def test_a_journal_of_another_run_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / JOURNAL_FILE
    kept = bytearray()
    note = Journal(kept.extend).note
    loop = RunLoop(make_run()[0])
    for seen in (begun(loop), *TOLD[:4]):
        note(seen, [])
    path.write_bytes(kept)
    said = refusal(capsys, folder, code=ExitCode.FAIL)
    assert f"{path}: leads to other faults and joins and absences than the record has (--force prints it" in said
    assert main(["replay", str(folder), "--force", "--kind", "final"]) == ExitCode.PASS
    out, said = capsys.readouterr()
    assert len(out.splitlines()) == len(read_live(folder).record.finalizations) and "leads to other" in said


def test_damaged_and_other_files_are_refused_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / JOURNAL_FILE
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    assert f"{path}: is damaged: the frame at offset 0 is not what was written; " in refusal(capsys, folder)
    path.write_bytes(frame(b"[99,[]]"))
    assert f"{path}: is damaged: kind 99 is none of" in refusal(capsys, folder)
    start = begun(RunLoop(make_run()[0]))
    path.write_bytes(encoded(Up(1.0)))
    assert f"{path}: does not tell how its run began; expected" in refusal(capsys, folder)
    for call in (Begin(7), End(7), Restart(7, [1]), UpgradeNext(7)):
        path.write_bytes(encoded(start) + encoded(Up(1.0)) + encoded(Due(2.0, call)))
        assert f"{path}: tells of faults or validators that the run's scenario does not have" in refusal(capsys, folder)
    path.unlink()
    assert f"{path}: cannot be read: No such file" in refusal(capsys, folder)
    (folder / RECORD_FILE).write_bytes(sealed("record", RECORD_FORMAT + 1, b""))
    assert f"is of format {RECORD_FORMAT + 1}; expected format {RECORD_FORMAT}" in refusal(capsys, folder)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kind", "job"], "was a live run, which has no events of kind job; it has block, certificate, fault"),
        (["--validator", "bob"], "no validator is named 'bob'; there are validator-0"),
        (["--from", "3s", "--until", "1s"], "--until is before --from"),
    ],
)
def test_bad_options_are_one_line(
    original: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refusal(capsys, original, *arguments)


def test_a_live_run_is_not_stepped_through(
    original: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert "was a live run: --step is for simulated runs" in refusal(capsys, original, "--step")
