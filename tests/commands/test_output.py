"""Standard output that takes no more text: a reader that has gone is no error, a full disk is one, for each command."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final

import pytest

from cluster.commands.cli import main as command_line
from cluster.commands.cli.completion import parsers_of
from cluster.commands.cli.main import _parser, _perform_process
from cluster.commands.console.command import Command
from cluster.commands.console.output import LastingOutput
from cluster.common.errors import BadInput
from kits.conform.executor import run_executor
from tests.hangs import HANGS_AFTER_S
from tests.repository.sources import ROOT
from validator.node.executor.stream import framed

FULL_DEVICE: Final = Path("/dev/full")
SMOKE: Final = str(ROOT / "scenarios" / "smoke.yaml")
PRINTING: Final = {
    "actor check": [str(ROOT / "actors" / "heartbeat.py")],
    "actor profile": [str(ROOT / "actors" / "heartbeat.py"), "--blocks", "1"],
    "actor run": [str(ROOT / "actors" / "heartbeat.py"), "--blocks", "1"],
    "actor stub": [],
    "completion": ["bash"],
    "conform families": [],
    "drill": ["--list"],
    "explain": [SMOKE],
    "grafana": [],
    "k8s render": [SMOKE],
    "lab list": [],
    "scenarios": [],
    "schema": [],
    "validate": [SMOKE],
}
"""The commands that print and need nothing but a file that ships, with their words."""
DEAR: Final = ("lab list", "scenarios")
"""Those that load much."""
COMMANDS: Final = [" ".join(words) for words, _ in parsers_of(_parser())]


@contextmanager
def full_output() -> Iterator[TextIOWrapper]:
    """A file on a full disk. The device is opened as any program opens it, and never named to the command."""
    file = FULL_DEVICE.open("w", encoding="utf-8")
    try:
        yield file
    finally:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), file.fileno())  # where the rest of its buffer goes
        file.close()


def performed(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of a command line whose standard output is on a full disk."""
    with full_output() as output, monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["stampede", *words])
        patch.setattr(sys, "stdout", output)
        patch.setattr(sys, "stderr", sys.stderr)
        return _perform_process()


NO_ROOM: Final = "stampede: standard output: cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.slow) if name in DEAR else name for name in PRINTING]
)
def test_a_full_disk_is_an_error_of_each_command_that_prints(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert performed(monkeypatch, *command.split(), *PRINTING[command]) == 2
    assert capsys.readouterr().err == NO_ROOM


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_an_error_of_each_help(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert performed(monkeypatch, *command.split(), "--help") == 2
    assert capsys.readouterr().err == NO_ROOM


def test_a_full_disk_is_an_error_of_the_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert performed(monkeypatch, "--version") == 2
    assert capsys.readouterr().err == NO_ROOM


@dataclass(frozen=True, kw_only=True)
class Verdict(Command):
    """A command whose output has a verdict, and which then does more work."""

    RUNS_CODE = False
    done: list[str]
    file: str = "stdout"

    def run(self) -> int:
        print("fail", file=getattr(sys, self.file), flush=True)
        self.done.append("the rest")
        print("more", file=getattr(sys, self.file), flush=True)
        return 1


class Parsed:
    """A parser that reads a command whatever the arguments are."""

    def __init__(self, command: Command) -> None:
        self._command = command

    def parse_args(self, _arguments: object) -> Parsed:
        return self

    def make(self, _options: object) -> Command:
        return self._command


def test_the_work_goes_on_and_the_lost_output_outweighs_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict of an output that is not whole is none: a program reads the output because of the code."""
    done: list[str] = []
    monkeypatch.setattr(command_line, "_parser", lambda: Parsed(Verdict(done=done)))
    assert performed(monkeypatch) == 2
    assert done == ["the rest"] and capsys.readouterr().err == NO_ROOM


def test_a_full_disk_is_an_error_of_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes bytes, past the wrapper of texts."""
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(framed(b"no request"))))
    with full_output() as output:
        monkeypatch.setattr(sys, "__stdout__", output)
        with pytest.raises(BadInput, match="standard output: cannot be written: No space left on device"):
            run_executor(None, False)


def test_an_output_that_is_closed_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "argv", ["stampede", "schema"])
    assert _perform_process() == 2
    assert capsys.readouterr().err == "stampede: standard output: is closed\n"


def test_errors_do_not_go_to_the_output_if_their_own_file_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "argv", ["stampede", "explain", "nowhere.yaml"])
    assert _perform_process() == 2
    assert capsys.readouterr() == ("", "")


def test_errors_on_a_full_disk_change_no_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no place left to report it. Progress on standard error, as of ``stampede size``, is lost."""
    with full_output() as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        monkeypatch.setattr(sys, "stdout", sys.stdout)
        monkeypatch.setattr(command_line, "_parser", lambda: Parsed(Verdict(done=[], file="stderr")))
        assert _perform_process() == 1
    assert capsys.readouterr() == ("", "")


# --- readers that have gone -----------------------------------------------------------------------------------------


def written(file: TextIOWrapper) -> LastingOutput:
    output = LastingOutput(file)
    output.write("text\n")
    output.flush()
    output.write("more\n")
    output.flush()
    return output


def test_a_pipe_without_a_reader_is_no_problem() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as file:
        output = written(file)
        assert output.is_gone and output.problem is None


def test_a_connection_that_its_peer_has_reset_is_no_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the end is a reset
    theirs.close()
    poll = select.poll()
    poll.register(ours, select.POLLHUP)
    assert poll.poll(HANGS_AFTER_S * 1_000)
    with open(ours.detach(), "w", encoding="utf-8") as file:
        output = LastingOutput(file)
        output.write("text\n")
        output.flush()
        assert output.is_gone and output.problem is None


def test_a_terminal_that_was_closed_is_no_problem() -> None:
    master, slave = os.openpty()
    with open(slave, "w", encoding="utf-8") as file:
        output = LastingOutput(file)
        os.close(master)
        with pytest.raises(OSError, match="Input/output error"):
            os.write(slave, b"text")
        output.write("text\n")
        output.flush()
        assert output.is_gone and output.problem is None


def test_an_input_output_error_of_a_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "file").open("w", encoding="utf-8") as file:
        output = LastingOutput(file)
        output._give_up(OSError(errno.EIO, os.strerror(errno.EIO)))
        assert output.problem is not None and output.problem.errno == errno.EIO


def test_a_full_disk_is_a_problem_and_the_first_one_is_kept() -> None:
    with full_output() as file:
        output = written(file)
        assert output.is_gone and output.problem is not None and output.problem.errno == errno.ENOSPC


def test_a_pipe_that_does_not_wait_for_its_reader_is_a_problem() -> None:
    """Text would be missing although its reader is there."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with open(writing, "w", encoding="utf-8") as file:
        output = LastingOutput(file)
        output.write("x" * 1_000_000)
        output.flush()
        assert output.is_gone and output.problem is not None and output.problem.errno == errno.EAGAIN
    os.close(reading)
