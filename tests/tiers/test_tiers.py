"""``make test`` and ``make test-slow`` share all tests but soak tests, and continuous integration runs both."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DEFAULT = "not soak"


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


def test_continuous_integration_runs_all_tiers() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "install-dev lint || failed+=(lint)" in script
    assert "for target in test fuzz test-slow; do" in script
    assert 'make "$target"' in script
