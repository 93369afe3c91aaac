"""The table of all options and arguments with which commands write: each is checked before the work, in one place."""

from __future__ import annotations

import argparse
import ast
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from cluster.commands.cli.completion import parsers_of
from cluster.commands.cli.main import _parser, main
from cluster.commands.console.command import FILE, FOLDER, WRITES, Command, argument, flag, option
from cluster.common.errors import BadInput
from tests.cluster.common.test_files import NULL, device
from tests.repository.sources import ROOT

READ: Final = {
    *("blocks", "budget", "check", "corpus", "file", "files", "folder", "follow", "genesis", "given", "group", "key"),
    *("other", "replay", "runs", "scenario", "scenarios"),
}
"""Names of fields with paths that commands read. They may write in a folder of a run that exists, too."""
VALUES: Final = {"--seeds": "0:1", "--target": "http://127.0.0.1:9", "--at": "1", "--budget": "5e13"}
"""Values of options that commands need."""


class Output(NamedTuple):
    """An option or an argument with a path that a command writes."""

    words: tuple[str, ...]
    name: str
    kind: str
    others: tuple[str, ...]
    """What else the command needs."""

    def given(self, path: Path | str) -> list[str]:
        """The words of a command line with this path."""
        return [*self.words, *self.others, *([self.name] if self.name.startswith("-") else []), str(path)]

    def __str__(self) -> str:
        return " ".join((*self.words, self.name))


def outputs_of(parser: argparse.ArgumentParser) -> Iterator[Output]:
    for words, each in parsers_of(parser):
        for action in each._actions:
            kind = getattr(action, WRITES, None)
            if kind is not None:
                yield Output(words, (*action.option_strings, action.dest)[0], kind, tuple(needed(each, action)))


def needed(parser: argparse.ArgumentParser, but: argparse.Action) -> Iterator[str]:
    for action in parser._actions:
        if action is but or not action.required or isinstance(action, argparse._SubParsersAction):
            continue
        if action.option_strings:
            yield action.option_strings[0]
        yield VALUES.get((*action.option_strings, "")[0], "0a")


def undeclared(parser: argparse.ArgumentParser) -> set[str]:
    """The options and arguments with paths that are neither declared as written nor known to be read."""
    return {
        " ".join((*words, action.dest))
        for words, each in parsers_of(parser)
        for action in each._actions
        if action.type is Path and getattr(action, WRITES, None) is None and action.dest not in READ
    }


PARSER: Final = _parser()
OUTPUTS: Final = list(outputs_of(PARSER))
FILES: Final = [each for each in OUTPUTS if each.kind == FILE]
FOLDERS: Final = [each for each in OUTPUTS if each.kind == FOLDER]


def check(output: Output, path: Path) -> str:
    """What the check before the work says of a path; empty if it can be written."""
    options = PARSER.parse_args(output.given(path))
    try:
        options.make(options).check_outputs()
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.kits
def test_the_table_has_the_outputs_of_all_commands() -> None:
    assert undeclared(_parser()) == set()
    shown = {str(each) for each in OUTPUTS}
    assert shown >= {"t8n --out", "load --json", "load --write-plan", "compare --html", "run --junit", "run --summary"}
    assert shown >= {
        "calibrate --save",
        "k8s render --out",
        "conform export folder",
        "dos search --out",
    }
    assert shown >= {"drill outage --json", "prove --out", "explore --schedule", "shrink --out", "peer --data"}


def test_an_output_that_is_not_declared_is_found() -> None:
    class Forgetful(Command):
        RUNS_CODE = False
        html: Path | None = option("page", "FILE", Path)
        out: Path | None = option("folder", writes=FOLDER)
        scenario: Path = argument("FILE", "scenario", Path)
        all: bool = flag("all")

    parser = argparse.ArgumentParser()
    for name in ("html", "out", "scenario", "all"):
        vars(Forgetful)[name].metadata["add"](parser, name)
    assert undeclared(parser) == {"html"}
    assert [str(each) for each in outputs_of(parser)] == ["--out"]


@pytest.mark.parametrize("output", FILES, ids=str)
def test_a_file_is_refused_before_the_work(
    output: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever else is wrong: no scenario has the name that is given, so any work would fail in another way."""
    monkeypatch.chdir(tmp_path)
    assert main(output.given("nowhere/file.html")) == 2
    assert capsys.readouterr().err == (
        "stampede: nowhere/file.html: cannot be written: nowhere: No such file or directory\n"
    )
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "loop.html").symlink_to("loop.html")
    (tmp_path / "lost.html").symlink_to("nowhere/file.html")
    for name in ("folder.html", "folder.html/nowhere/file.html", "loop.html", "lost.html"):
        assert check(output, Path(name)).startswith(f"{name}: cannot be written: ")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder.html", "loop.html", "lost.html"]


@pytest.mark.parametrize("output", FILES, ids=str)
def test_a_file_may_be_whatever_can_be_written(output: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "link.html").symlink_to("old.html")
    (tmp_path / "dangling.html").symlink_to("none.html")
    os.mkfifo(tmp_path / "fifo.html")
    if os.getuid() == 0:
        device(tmp_path / "null.html", NULL)
    before = {each.name: each.lstat() for each in tmp_path.iterdir()}
    for name in [
        *before,
        "new.html",
        os.fsdecode(b"\xff.html"),
        "/dev/stdout" if "explain" not in output.words else "new.html",
    ]:
        assert check(output, Path(name)) == ""
    after = {each.name: each.lstat() for each in tmp_path.iterdir()}
    assert {name: (each.st_ino, stat.S_IFMT(each.st_mode), each.st_size) for name, each in after.items()} == {
        name: (each.st_ino, stat.S_IFMT(each.st_mode), each.st_size) for name, each in before.items()
    }


@pytest.mark.parametrize("output", FOLDERS, ids=str)
def test_a_folder_is_refused_before_the_work(
    output: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(output.given("file")) == 2
    assert capsys.readouterr().err == "stampede: file: is no folder, expected one\n"
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("fifo", "dangling", "file/below"):
        assert check(output, Path(name)) == f"{name}: is no folder, expected one"
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for name in ("new", "new/newer", "folder", "link", os.fsdecode(b"\xff")):
        assert check(output, Path(name)) == ""
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dangling", "fifo", "file", "folder", "link"]


def test_a_file_may_be_in_the_folder_that_the_command_creates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = PARSER.parse_args(["run", "smoke", "--out", "new", "--json", "new/a.json"])
    options.make(options).check_outputs()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.json").mkdir()
    with pytest.raises(BadInput, match=r"new/a.json: cannot be written: is a folder"):
        options.make(options).check_outputs()


@pytest.mark.kits
def test_the_folder_of_runs_is_created_for_a_file_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (stub,) = [each for each in FILES if str(each) == "actor stub --out"]
    assert check(stub, Path("runs/a.pyi")) == "" and (tmp_path / "runs").is_dir()
    (tmp_path / "runs").rmdir()
    (tmp_path / "runs").touch()
    assert check(stub, Path("runs/a.pyi")) == "runs/a.pyi: cannot be written: Not a directory"


OWN_WRITERS: Final = {
    "cluster/commands/cli/main.py": "the null device, in place of a standard error that was closed",
    "cluster/commands/console/outputs.py": "appends to the summary of a workflow's step",
    "cluster/commands/drills/peer_process.py": "the key and the scenario of a node that it starts",
    "kits/conform/checkouts.py": "the lock of a checkout",
    "kits/conform/corpus.py": "cases in a new folder; reports what cannot be written",
    "kits/conform/tool.py": "the input of a tool, in a temporary folder",
    "cluster/commands/sweeps/log.py": "appends lines; reports what cannot be written",
}
"""Modules of the commands that write files otherwise than by :mod:`cluster.common.files`, and why."""


def writers(sources: Iterable[tuple[str, str]]) -> set[str]:
    """The modules that open a file for writing, or write it at once."""
    return {name for name, text in sources if any(map(is_writing, ast.walk(ast.parse(text))))}


def is_writing(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    modes = [each.value for each in node.args if isinstance(each, ast.Constant)]
    opens = name == "open" and any(isinstance(mode, str) and re.fullmatch("[wax][bt+]*", mode) for mode in modes)
    return opens or name in ("write_text", "write_bytes")


@pytest.mark.kits
def test_commands_write_by_the_functions_that_follow_what_the_user_names() -> None:
    paths = [path for folder in ("cluster/commands", "kits") for path in (ROOT / folder).rglob("*.py")]
    sources = ((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths)
    assert writers(sources) == set(OWN_WRITERS)


@pytest.mark.parametrize("planted", ["self.out.write_bytes(proof)", "path.open('w')", "open(path, 'ab')"])
def test_a_command_that_writes_by_itself_is_found(planted: str) -> None:
    assert writers([("planted", planted), ("fine", "path.open('rb'); write_for_user(path, 'w')")]) == {"planted"}
