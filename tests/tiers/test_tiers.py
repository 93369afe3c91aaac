"""``make test`` and ``make test-slow`` share all tests but soak tests, and continuous integration runs both."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.hangs import HANGS_AFTER_S

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DEFAULT = "not soak"
TARGETS = ("install-dev", "lint", "fuzz", "test", "test-slow")


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
    rules = [f"{target}:\n\t@echo ran {target}; {end}\n" for target, end in ends.items()]
    (folder / "Makefile").write_text("\n".join([f".PHONY: {' '.join(TARGETS)}", *rules]), encoding="utf-8")
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=folder, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["", "lint", "fuzz", "test", "test-slow"])
def test_continuous_integration_runs_all_targets_and_fails_if_one_does(tmp_path: Path, failing: str) -> None:
    code, output = ci_of(tmp_path, failing)
    assert all(f"ran {target}\n" in output for target in TARGETS)
    assert code == (1 if failing else 0)
    assert (f"make {failing}: failed, and not by tests" in output) == bool(failing)
