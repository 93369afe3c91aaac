"""Warnings about a policy's text: what may give other results in another process, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.scenario.code.policy_source import warnings_in
from tests.validator.policies.own_policies import DEADLINES, HASHED, LOTTERY, NEVER_ODD, NOTHING, example


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import random", "random draws numbers"),
        ("from random import shuffle", "random draws numbers"),
        ("import time, os.path", "os.path reads the machine"),
        ("import datetime as clock", "datetime reads a clock"),
        ("x = hash(timer)", "hash() depends on the hash seed of the process"),
        ("x = id(timer)", "id() depends on the memory of the process"),
        ("x = float(3)", "float() rounds, and not everywhere alike"),
        ("x = 2 * 0.5", "0.5 is a float, which rounds, and not everywhere alike"),
        ("x = 3 / 2", "/ gives a float, which rounds, and not everywhere alike; // does not"),
        ("for x in {1, 2}: pass", "a set is iterated in an order of the process; sorted() has a fixed one"),
        ("x = [y for y in set(z) | a]", "a set is iterated in an order of the process; sorted() has a fixed one"),
        ("SEEN = {}", "SEEN of the module can be changed, and outlives the block; a tuple cannot"),
        ("SEEN: list[int] = list()", "SEEN of the module can be changed, and outlives the block; a tuple cannot"),
        ("class A: seen = []", "seen of the class can be changed, and outlives the block; a tuple cannot"),
        ("def f():\n    global seen", "seen of the module outlives the block"),
    ],
)
def test_a_line_that_depends_on_more_than_the_state_is_named(line: str, what: str) -> None:
    found = warnings_in(f"\n{line}\n")
    assert (1 + len(line.splitlines()), what) in found
    silenced = line.replace("\n    global seen", "\n    global seen  # deterministic: it is constant")
    silenced = silenced if silenced != line else f"{line}  # deterministic: it is constant"
    assert warnings_in(f"\n{silenced}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "x = sorted(y for y in {1, 2})",
        "x = sorted({1, 2})",
        "x = 7 // 2",
        "MOST = 4\nNAMES = ('a', 'b')",
        "def f():\n    seen = {}\n    for x in seen: pass",
        "class A:\n    replaces = {'order'}",
        "import math",
    ],
)
def test_what_gives_the_same_everywhere_is_not(line: str) -> None:
    assert warnings_in(line) == []


def test_the_policies_that_go_wrong_are_warned_of_and_the_others_are_not() -> None:
    assert [each.what for each in warnings_in(LOTTERY)] == ["random draws numbers"]
    assert {each.what for each in warnings_in(HASHED)} == {"hash() depends on the hash seed of the process"}
    for source in (DEADLINES, NEVER_ODD, NOTHING, example("python")):
        assert warnings_in(source) == []


def test_validate_warns_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lottery.py").write_text(LOTTERY, encoding="utf-8")
    path = tmp_path / "drawn.yaml"
    path.write_text("name: drawn\nchain: {policy: ./lottery.py}\n", encoding="utf-8")
    assert main(["validate", str(path)]) == ExitCode.PASS
    shown = capsys.readouterr()
    assert shown.err == f"stampede: warning: {path}: chain.policy: file lottery.py, line 2: random draws numbers\n"
    assert main(["explain", str(path)]) == ExitCode.PASS
    assert "file lottery.py, line 2: random draws numbers" in " ".join(capsys.readouterr().out.split())
