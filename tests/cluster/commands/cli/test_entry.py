"""The console command's entry."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

import stampede_command
from cluster.commands.cli import main as command_line
from cluster.commands.cli.main import main
from cluster.commands.console.command import Topic
from cluster.common.checkout import checkout_commit
from cluster.common.errors import ExitCode

ROOT = Path(__file__).resolve().parents[4]


class Interrupting:
    """Whoever imports the command line meanwhile presses Ctrl-C."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None = None, _target: object = None) -> None:
        if name == "cluster.commands.cli.main":
            raise KeyboardInterrupt


def test_an_interrupt_while_the_command_is_loaded_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # which it sets
    monkeypatch.delitem(sys.modules, "cluster.commands.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting, *sys.meta_path])
    assert stampede_command.main() == 3
    assert capsys.readouterr().err == "stampede: interrupted\n"


class Broken:
    """A module of ours that cannot be imported."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None = None, _target: object = None) -> None:
        if name == "cluster.commands.cli.main":
            raise KeyError("planted")


def test_a_crash_while_the_command_is_loaded_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.delitem(sys.modules, "cluster.commands.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken, *sys.meta_path])
    assert stampede_command.main() == ExitCode.CRASH
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == "stampede: crashed, without a verdict: KeyError: 'planted'; the traceback is above"


def test_the_options_of_all_commands_are_known_without_loading_what_performs_them() -> None:
    slow = {"numba", "numpy", "pydantic", "ray"}
    parsing = "import sys; from cluster.commands.cli import main; main._parser()"
    code = f"{parsing}; print(sorted({slow} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_a_terminals_encoding_lacks_is_written_out(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nvalidators: 30\nfaults: [{kind: kill, target: bob, at_height: 3}]\n")
    code = "import sys; import stampede_command; sys.exit(stampede_command.main())"
    command = [sys.executable, "-c", code, "validate", str(path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("\\u2026, validator-29\n")


@pytest.mark.parametrize(("level", "code"), [("1", 0), ("2", ExitCode.BAD_INPUT)])
def test_a_python_that_drops_docstrings_is_refused(level: str, code: int) -> None:
    """Cases of conformance and bugs have their descriptions there."""
    program = "import sys; import stampede_command; sys.exit(stampede_command.main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "drill", "--list"],
        env=os.environ | {"PYTHONOPTIMIZE": level}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    why = "Python drops the texts that commands show: expected at most PYTHONOPTIMIZE=1 or python -O"
    assert done.stderr == (f"stampede: {why}\n" if code else "")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["schema"], ["explain", "scenarios/smoke.yaml"], ["--help"]])
def test_a_reader_that_has_seen_enough_ends_nothing(arguments: list[str]) -> None:
    """As ``stampede … | head`` does: the pipe is closed before anything is written."""
    code = "import sys; import stampede_command; sys.exit(stampede_command.main())"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            stdout=closed, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_output_that_cannot_be_written_ends_the_process_with_an_error() -> None:
    code = "import sys; import stampede_command; sys.exit(stampede_command.main())"
    command = [sys.executable, "-c", code, "schema"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    said = "stampede: standard output: cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)
    closed = ["bash", "-c", '"$@" >&-', "bash", *command]
    done = subprocess.run(closed, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (2, "stampede: standard output: is closed\n")


def test_a_command_that_is_misspelt_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runn"]) == 2
    assert capsys.readouterr().err == (
        "stampede: argument COMMAND: unknown choice 'runn'; did you mean run? (see stampede --help)\n"
    )


@pytest.mark.parametrize("flag", ["-b", "-bb"])
def test_a_python_that_cannot_run_programs_is_one_line(flag: str) -> None:
    code = "import sys; import stampede_command; sys.exit(stampede_command.main())"
    command = [sys.executable, flag, "-c", code, "validate", "scenarios/smoke.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "stampede: Python was started with -b, which makes a comparison of bytes with a text warn or fail: "
        "start it without -b\n"
    )


def test_the_version_names_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"stampede {version('stampede')} ({checkout_commit()})\n"


@pytest.mark.kits
def test_the_help_lists_each_command_once_under_its_topic(capsys: pytest.CaptureFixture[str]) -> None:
    parser = command_line._parser()
    text = parser.format_help()
    (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    headings = [f"{topic}:" for topic in Topic]
    assert [line for line in text.splitlines() if line in headings] == headings
    listed = re.findall(r"^  ([a-z0-9-]+)(?:  |$)", text.partition("options:")[0], re.MULTILINE)
    assert sorted(listed) == sorted(commands.choices), "each is listed, none twice"
    before = text.partition(f"{Topic.LOOK}:")[0]
    assert "  run  " in before and "  replay  " not in before
