"""A live run that is followed while its journal grows."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cluster.commands.cli.main import main
from cluster.commands.rerun import follow as follow_module
from cluster.commands.rerun.follow import PATIENCE, POLL_S, follow
from cluster.commands.rerun.replay import Filter
from cluster.common.errors import ExitCode
from cluster.common.interrupts import Interrupts
from cluster.live.processes import cleanup_watchdog
from cluster.record.folder import CHECKPOINT_FILE, JOURNAL_FILE, RESULT_FILE, claimed
from cluster.run.events import Begun, StopRequested
from cluster.run.journal import encoded
from cluster.run.loop import RunLoop
from tests.cluster.commands.rerun.test_live_events import begun, make_run
from tests.cluster.live.driver.test_take_over import FollowedRun, taken_over
from validator.storage.frames import split

JOURNAL = make_run()[1]
STARTS = [each.offset for each in split(JOURNAL)[0]]
FRAMES = [JOURNAL[begin:until] for begin, until in pairwise([*STARTS, len(JOURNAL)])]
DECIDED = [
    "     200.000  machine       the testnet is up",
    "     210.000  machine       validator-3 is up",
    "     700.000  fault         height 2: validator-3 joins by a snapshot",
    "     900.000  fault         height 2: lose_node of host 1 (validator-1) begins",
    "    1900.000  violation     two blocks are final at height 6",
    "    2000.000  fault         height 5: stop requested",
    "    2000.000  machine       the run is not watched any more",
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run that has begun, and has its driver."""
    with claimed(tmp_path / "run"):
        (tmp_path / "run" / JOURNAL_FILE).touch()
        yield tmp_path / "run"


def append(folder: Path, content: bytes) -> None:
    with (folder / JOURNAL_FILE).open("ab") as file:
        file.write(content)


def end(folder: Path, verdict: object = "pass") -> None:
    (folder / RESULT_FILE).write_text(json.dumps({"verdict": verdict}))


class Steps:
    """What happens in a folder while the follower waits: a step each time, in another thread."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    def __call__(self, seconds: float) -> None:
        assert seconds == POLL_S
        other = Thread(target=self._steps.pop(0))
        other.start()
        other.join()


def test_what_is_appended_is_printed_until_the_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[list[str]] = []

    def step(content: bytes) -> Callable[[], None]:
        def perform() -> None:
            shown.append(capsys.readouterr().out.splitlines())
            append(folder, content)

        return perform

    steps = [step(each) for each in FRAMES]
    code = follow(folder, Filter(), wait=Steps(*steps, step(b""), lambda: end(folder, "fail")))
    assert code == ExitCode.FAIL and capsys.readouterr().out == "verdict fail\n"
    assert shown[0] == shown[1] == [], "the first frame says how the run began"
    assert max(map(len, shown)) < 6, "nothing waits for the end"
    lines = [line for each in shown for line in each]
    assert all(line in lines for line in DECIDED)
    (folder / JOURNAL_FILE).write_bytes(JOURNAL)
    assert follow(folder, Filter()) == ExitCode.FAIL
    assert capsys.readouterr().out.splitlines() == [*lines, "verdict fail"], "a run that has ended is shown, too"


def test_a_torn_frame_waits_until_it_is_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(folder, FRAMES[0])
    pieces = [FRAMES[1][place : place + 1] for place in range(len(FRAMES[1]))]
    before: list[str] = []
    steps = [lambda piece=piece: (before.append(capsys.readouterr().out), append(folder, piece)) for piece in pieces]
    assert follow(folder, Filter(), wait=Steps(*steps, lambda: end(folder))) == ExitCode.PASS
    assert before == [""] * len(pieces) and capsys.readouterr().out == f"{DECIDED[0]}\nverdict pass\n"


def test_another_driver_goes_on_from_a_shorter_journal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, _ = make_run()
    other = [encoded(begun(RunLoop(record))), FRAMES[1], encoded(StopRequested(300.0))]
    append(folder, JOURNAL)
    steps = Steps(
        lambda: (folder / JOURNAL_FILE).write_bytes(b"".join(other[:2])),
        lambda: append(folder, other[2]),
        lambda: end(folder),
    )
    assert follow(folder, Filter(), wait=steps) == ExitCode.PASS
    lines = capsys.readouterr().out.splitlines()
    assert lines.count(DECIDED[0]) == 1, "what both drivers told is told once"
    assert lines[-3:] == [
        "     300.000  fault         height 0: stop requested",
        "     300.000  fault         height 0: the load stops, draining",
        "verdict pass",
    ]


def test_a_live_run_is_followed_from_driver_to_driver(tmp_path: Path) -> None:
    run, tail = FollowedRun(tmp_path, stop_on_fail=True), follow_module.Tail(tmp_path)
    run.write_checkpoint()
    run.is_killed()
    assert [entry.text for entry in tail.news()] == ["the testnet is up"]
    assert tail.begun == Begun(run.loop.given, 1, is_open=False, stops_on_fail=True)
    other = taken_over(tmp_path)
    other.see(StopRequested(5_000.0))
    other.files.keep()
    assert any(entry.text.endswith("stop requested") for entry in tail.news())
    other.audit.close()


def test_filters_select_and_their_end_ends_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(folder, JOURNAL)
    command = ["replay", str(folder), "--follow", "--until", "1s", "--kind", "machine", "--validator", "validator-1"]
    assert main(command) == ExitCode.PASS
    assert [line.split()[-3:] for line in capsys.readouterr().out.splitlines()] == [
        ["testnet", "is", "up"],
        ["validator-1", "is", "up"],
        ["validator-1", "is", "down"],
    ]


def test_a_signal_ends_it(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    append(folder, JOURNAL)
    news = follow_module.Tail.news

    def interrupted(tail: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return news(tail)

    monkeypatch.setattr(follow_module.Tail, "news", interrupted)
    assert main(["runs", "--follow", str(folder)]) == ExitCode.PASS
    out, said = capsys.readouterr()
    assert all(line in out.splitlines() for line in DECIDED) and not said


def test_a_run_is_over_once_no_driver_may_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / CHECKPOINT_FILE
    checkpoint.touch()
    (tmp_path / JOURNAL_FILE).touch()
    assert cleanup_watchdog.can_be_taken_over(tmp_path)
    steps = Steps(*[lambda: None] * PATIENCE, checkpoint.unlink, *[lambda: None] * PATIENCE)
    monkeypatch.setattr(Interrupts, "wait", lambda self, seconds: steps(seconds))
    assert main(["runs", "--follow", str(tmp_path)]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == f"stampede: {tmp_path}: has no driver any more, and no verdict\n"
    assert len(steps._steps) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runs", "--follow", "{}/none"], "no such folder: expected that of a live run"),
        (["runs", "--follow", "{}"], f"has no {JOURNAL_FILE} to follow: a live run writes one, a simulated run has"),
        (["runs", "--follow", "{}", "--all"], "--follow: not with another folder, --all or --json"),
        (["replay", "{}", "--follow", "--force"], "--follow: not with --step or --force"),
        (["replay", "{}/run", "--follow", "--kind", "job"], "run: is a live run, which has no events of kind job"),
        (["replay", "{}/run", "--follow", "--validator", "bob"], "no validator is named 'bob'"),
        (["replay", "{}", "--follow", "--from", "3s", "--until", "1s"], "--until is before --from"),
    ],
)
def test_what_cannot_be_followed_is_one_line(
    folder: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    append(folder, JOURNAL)
    assert main([each.format(folder.parent) for each in arguments]) == ExitCode.BAD_INPUT
    out, said = capsys.readouterr()
    assert not out and said.count("\n") == 1 and words in said


def test_damaged_files_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, words in (
        (JOURNAL[:20] + bytes([JOURNAL[20] ^ 1]) + JOURNAL[21:], "the frame at offset 0 is not what was written"),
        (FRAMES[1], "does not tell how its run began"),
    ):
        (folder / JOURNAL_FILE).write_bytes(content)
        assert main(["runs", "--follow", str(folder)]) == ExitCode.BAD_INPUT
        assert words in capsys.readouterr().err
    (folder / JOURNAL_FILE).write_bytes(b"")
    end(folder, ["pass"])
    assert main(["runs", "--follow", str(folder)]) == ExitCode.BAD_INPUT
    assert "no result of a run: its verdict is not one" in capsys.readouterr().err
