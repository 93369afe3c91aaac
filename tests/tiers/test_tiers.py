"""``make test`` and ``make test-slow`` share all tests but soak tests, and continuous integration runs both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.mark.expression import Expression

from tests.git import git
from tests.hangs import HANGS_AFTER_S
from tests.tiers.spreading import module_of
from tests.tiers.turns import chosen

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DEFAULT = "not soak"
OF_MAKE = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PYTEST_OPTIONS")
"""What a ``make`` that runs these tests would tell another one."""
TARGETS = ("test-tools", "install-dev", "lint", "fuzz", "test", "test-slow", "test-core")


def chosen_by(target: str) -> str:
    """The marks that a target chooses tests by."""
    found = re.search(
        rf"^{target}: install-dev\n\t\S+ -m pytest \$\(PYTEST_OPTIONS\)(?: -m '(.*)')?$", MAKEFILE, re.MULTILINE
    )
    assert found is not None, target
    return found[1] or DEFAULT


def is_run(target: str, marks: Collection[str]) -> bool:
    return Expression.compile(chosen_by(target)).evaluate(lambda name, /, **_: name in marks)


@pytest.mark.parametrize("marks", [(), ("slow",), ("live",), ("live", "slow")], ids=" ".join)
def test_a_test_is_in_one_tier(marks: tuple[str, ...]) -> None:
    assert is_run("test", marks) == ("slow" not in marks) != is_run("test-slow", marks)
    assert is_run("test-all", marks)
    assert not any(is_run(target, (*marks, "soak")) for target in ("test", "test-slow", "test-all"))


def test_what_is_run_without_a_choice_is_what_make_test_all_runs(pytestconfig: pytest.Config) -> None:
    addopts = pytestconfig.getini("addopts")
    assert addopts[addopts.index("-m") + 1] == DEFAULT


def ci_of(folder: Path, failing: str) -> tuple[int, str]:
    """The exit code and output of ``.ci/run`` in a project whose targets do nothing but fail, if they are named so."""
    (folder / ".ci").mkdir()
    (folder / ".ci" / "run").write_bytes((ROOT / ".ci" / "run").read_bytes())
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    ends = {target: "false" if target == failing else "true" for target in TARGETS}
    rules = [f"{target}:\n\t@echo ran {target}; echo $(PYTEST_OPTIONS); {end}\n" for target, end in ends.items()]
    (folder / "Makefile").write_text("\n".join([f".PHONY: {' '.join(TARGETS)}", *rules]), encoding="utf-8")
    git(folder, "init")
    git(folder, "commit", "--allow-empty", "--message", "empty")
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["", "test-tools", "lint", "fuzz", "test", "test-slow", "test-core"])
def test_continuous_integration_runs_all_targets_and_fails_if_one_does(tmp_path: Path, failing: str) -> None:
    code, output = ci_of(tmp_path, failing)
    assert all(f"ran {target}\n" in output for target in TARGETS)
    assert len(re.findall(r"--turn=[0-9a-f]{40}", output)) == len(("fuzz", "test", "test-slow", "test-core"))
    assert code == (1 if failing else 0)
    assert (f"make {failing}: failed, and not by tests" in output) == bool(failing)


# --- whose turn it is -------------------------------------------------------------------------------------------------


def item_of(file: str, number: int, *marks: pytest.MarkDecorator) -> pytest.Item:
    """A test that has some marks."""
    given = {mark.name: mark.mark for mark in marks}
    return cast("Any", SimpleNamespace(nodeid=f"{file}::test_it[{number}]", get_closest_marker=given.get))


FILES = ("a.py", "b.py", "live_a.py", "live_b.py", "c.py")
SLOW = [
    item_of(file, number, pytest.mark.slow, *([pytest.mark.live] if file.startswith("live_") and number else []))
    for file in FILES
    for number in range(3)
]
QUICK = [item_of(file, number) for file in ("a.py", "d.py") for number in (3, 4)]
TABLE = [item_of("a.py", number, pytest.mark.slow, pytest.mark.turns(5)) for number in range(10, 33)]


def ids_at(commit: int) -> set[str]:
    return {item.nodeid for item in chosen([*SLOW, *QUICK, *TABLE], f"{commit:x}")}


def test_an_even_and_an_odd_commit_run_every_slow_file_once() -> None:
    slow = {item.nodeid for item in SLOW}
    halves = [ids_at(commit) & slow for commit in (6, 7)]
    assert halves[0] | halves[1] == slow and not halves[0] & halves[1]
    for half in halves:
        files = Counter(map(module_of, half))
        assert set(files.values()) == {3}, "the tests of a file share what they build"
        assert sum(file.startswith("live_") for file in files) == 1
    assert ids_at(0xABC_DEF0) & slow == halves[0]


def test_one_of_n_has_its_turn_at_each_commit_and_all_have_it_in_the_end() -> None:
    table = {item.nodeid for item in TABLE}
    runs = Counter(each for commit in range(0, 10, 2) for each in ids_at(commit) & table)
    assert set(runs) == table and set(runs.values()) == {1}
    assert all(4 <= len(ids_at(commit) & table) <= 5 for commit in range(10))


def test_tests_that_are_not_slow_run_at_every_commit() -> None:
    assert all({item.nodeid for item in QUICK} <= ids_at(commit) for commit in range(4))


def test_a_run_leaves_out_whose_turn_it_is_not(tmp_path: Path) -> None:
    for name in "ab":
        text = "import pytest\n@pytest.mark.slow\ndef test_slow(): ...\ndef test_quick(): ...\n"
        (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.tiers.turns", "--co")
    ran = []
    for turn in ((), ("--turn=a0",), ("--turn=a1",)):
        done = subprocess.run(
            [*command, "--rootdir", str(tmp_path), *turn, str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        ran.append(set(re.findall(r"test_(.)\.py::test_slow", done.stdout)))
        assert done.stdout.count("::test_quick") == 2
    assert ran[0] == {"a", "b"}
    assert sorted(map(len, ran[1:])) == [1, 1] and ran[1] | ran[2] == ran[0]
