"""Other commits: each runs its code, with this environment or with one that is built; what fails is one line."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput, ExitCode
from kits.conform import checkouts
from kits.conform.checkouts import FOLDER, accepts, checkout_of, commit_of
from tests.git import git
from tests.hangs import HANGS_AFTER_S

PROGRAM = """\
import argparse, sys
def main():
    parser = argparse.ArgumentParser()
    t8n = parser.add_subparsers(required=True).add_parser("t8n")
    t8n.add_argument("--genesis")
    {more}
    parser.parse_args()
    print({says!r}, sys.executable)
    return 0
"""
SCRIPTS = '[project.scripts]\nstampede = "small:main"\n'
SERVES = 't8n.add_argument("--serve")'
LINKS = "install:\n\tmkdir -p .venv/bin && ln -s '$(PYTHON)' .venv/bin/python\n"

Commit = Callable[..., str]


@pytest.fixture
def commit(tmp_path: Path) -> Commit:
    """Makes a commit of a small project; returns its id."""
    root = tmp_path / "project"
    git(tmp_path, "init", str(root))

    def make(says: str, more: str = "pass", lock: str = "one", makefile: str = LINKS, project: str = SCRIPTS) -> str:
        files = {
            "pyproject.toml": project,
            "small.py": PROGRAM.format(more=more, says=says),
            "requirements.lock": lock,
            "Makefile": makefile,
        }
        for name, text in files.items():
            (root / name).write_text(text, encoding="utf-8")
        if not (root / ".venv").is_symlink():
            (root / ".venv").symlink_to("/nowhere")
        git(root, "add", "--all", ":!.against")
        git(root, "commit", "--message", says)
        return git(root, "rev-parse", "HEAD")

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project"


def said(program: Path) -> list[str]:
    return subprocess.run([program, "t8n"], capture_output=True, text=True, check=True).stdout.split()


def test_each_commit_runs_its_code_with_these_packages(commit: Commit, root: Path) -> None:
    first, second = commit("first"), commit("second")
    assert said(checkout_of(commit_of("HEAD~1", root), root)) == ["first", sys.executable]
    assert said(checkout_of(second, root)) == ["second", sys.executable]
    assert commit_of("HEAD~1", root) == first
    kept = checkout_of(first, root)
    kept.with_name("small.py").write_text(PROGRAM.format(more="pass", says="kept"), encoding="utf-8")
    assert said(checkout_of(first, root))[0] == "kept", "it is made once"


def test_a_commit_with_other_packages_gets_an_environment(commit: Commit, root: Path) -> None:
    commit("old", lock="two")
    commit("new")
    program = checkout_of(commit_of("HEAD~1", root), root)
    assert said(program) == ["old", str(program.parent / ".venv" / "bin" / "python")]


def test_a_checkout_that_was_interrupted_is_made_again(commit: Commit, root: Path) -> None:
    only = commit("whole")
    program = checkout_of(only, root)
    program.unlink()
    program.with_name("small.py").unlink()
    assert said(checkout_of(only, root))[0] == "whole"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"lock": "two", "makefile": "install:\n\t@echo no index >&2; false\n"}, "Error 1"),
        ({"project": ""}, "its pyproject.toml names no command stampede"),
    ],
)
def test_what_fails_is_one_line_and_nothing_is_left(
    given: dict[str, str], line: str, commit: Commit, root: Path
) -> None:
    bad = commit("bad", **given)
    commit("good")
    with pytest.raises(BadInput, match=line) as raised:
        checkout_of(bad, root)
    assert "\n" not in str(raised.value)
    assert [path.suffix for path in (root / FOLDER).iterdir()] == [".lock"]


def test_what_takes_too_long_is_ended_with_all_that_it_started(
    commit: Commit, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``make`` waits for another process, as for pip, which has a pipe open until it ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    slow = commit("slow", lock="two", makefile=f"install:\n\tsh -c 'exec 3>{pipe}; echo up >&3; exec sleep 1000'\n")
    commit("good")
    monkeypatch.setattr(checkouts, "INSTALL_TIMEOUT_S", 1.0)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(BadInput, match=r"make: did not end within 1 s"):
            checkout_of(slow, root)
        read = b"none yet"
        while read:
            assert select.select([reader], [], [], HANGS_AFTER_S)[0], "the process goes on"
            read = os.read(reader, 9)
    finally:
        os.close(reader)


def test_names_of_no_commit_are_refused(commit: Commit, root: Path, tmp_path: Path) -> None:
    commit("only")
    with pytest.raises(BadInput, match="'HEAD~1' is no commit of "):
        commit_of("HEAD~1", root)
    with pytest.raises(BadInput, match="is no git checkout, so it has no other commits"):
        commit_of("HEAD", tmp_path)


def test_options_of_a_commit_are_known(commit: Commit, root: Path) -> None:
    program = checkout_of(commit("serves", SERVES), root)
    assert accepts(program, "t8n", "--serve")
    assert not accepts(checkout_of(commit("does not"), root), "t8n", "--serve")
    with pytest.raises(BadInput, match="has no command 'run': "):
        accepts(program, "run", "--serve")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "expected --tool COMMAND or --against COMMIT"),
        (["--against", "HEAD", "--tool", "true"], "--against: not together with --tool; expected one of them"),
        (["--against", "HEAD", "--serve"], "--serve: not with --against, which finds out by itself"),
    ],
)
def test_the_command_wants_one_program(options: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", *options]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == f"stampede: {line}\n"


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a git checkout")
def test_a_commit_that_changed_the_transition_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "--shared", str(ROOT), str(copy))
    pricing = copy / "validator" / "scheduler" / "pricing.py"
    before = "max(parameters.min_basefee, basefee - step)"
    text = pricing.read_text(encoding="utf-8")
    assert text.count(before) == 1
    pricing.write_text(text.replace(before, "max(parameters.min_basefee, basefee - step - 1)"), encoding="utf-8")
    git(copy, "commit", "--all", "--message", "planted")
    monkeypatch.setattr(checkouts, "ROOT", copy)
    out = tmp_path / "failures"
    options = ["--seeds", "0:4", "--workers", "1", "--family", "empty-blocks", "--out", str(out)]
    assert main(["conform", "--against", "HEAD~1", *options]) == ExitCode.PASS
    assert main(["conform", "--against", "HEAD", *options]) == ExitCode.FAIL
    assert "basefee_cycle: expected " in capsys.readouterr().out
