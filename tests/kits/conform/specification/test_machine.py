"""Bugs made from the text of the specification, and the bounds that some of them move by one."""

from __future__ import annotations

import json
import signal
from functools import cache
from pathlib import Path

import pytest

from cluster.common.checkout import ROOT
from kits.conform.families.bounds import family
from tests.kits.conform.specification import machine
from tests.kits.conform.specification.machine import Bug, Prepared, bugs_of, caught_by, functions_of, prepared

MOVED = [
    ("odd-targets", "spec/policies/cip1.py", 'p["LANE_TIMER_CYCLES"] // 2', '-(-p["LANE_TIMER_CYCLES"] // 2)'),
    ("number-lengths", "spec/scripts.py", "MAX_INTEGER_DIGITS = 640", "MAX_INTEGER_DIGITS = 641"),
    ("number-lengths", "spec/scripts.py", "MAX_INTEGER_DIGITS = 640", "MAX_INTEGER_DIGITS = 639"),
    ("number-lengths", "spec/scripts.py", "len(text) <= MAX_INTEGER_DIGITS", "len(text.lstrip('-')) < 640"),
    ("nesting-levels", "spec/scripts.py", "MAX_NESTING = 64", "MAX_NESTING = 65"),
    ("nesting-levels", "spec/scripts.py", "MAX_NESTING = 64", "MAX_NESTING = 63"),
    ("nesting-levels", "spec/scripts.py", '_STRING.sub("", text)', "text"),
    ("name-lengths", "spec/encoding.py", "MAX_NAME_BYTES = 256", "MAX_NAME_BYTES = 257"),
    ("name-lengths", "spec/encoding.py", "MAX_NAME_BYTES = 256", "MAX_NAME_BYTES = 255"),
    ("name-lengths", "spec/encoding.py", "len(text.encode()) <= MAX_NAME_BYTES", "len(text) <= MAX_NAME_BYTES"),
    ("prices-at-their-limits", "spec/encoding.py", "PRICE_LIMIT = 2**96", "PRICE_LIMIT = 2**96 + 1"),
    ("prices-at-their-limits", "spec/encoding.py", "PRICE_LIMIT = 2**96", "PRICE_LIMIT = 2**96 - 1"),
    ("prices-at-their-limits", "spec/encoding.py", "HEIGHT_LIMIT = 2**63", "HEIGHT_LIMIT = 2**63 + 1"),
    ("prices-at-their-limits", "spec/encoding.py", "HEIGHT_LIMIT = 2**63", "HEIGHT_LIMIT = 2**63 - 1"),
    ("spellings", "spec/timers.py", '"0123456789abcdefABCDEF"', '"0123456789abcdef"'),
    ("spellings", "spec/scripts.py", 'in ("0x", "0X")', 'in ("0x",)'),
]


@cache
def cases(name: str) -> list[Prepared]:
    """The first default cases of a family."""
    return prepared(range(4), (name,))


def bug_of(path: str, old: str, new: str) -> Bug:
    source = (ROOT / path).read_text(encoding="utf-8")
    assert source.count(old) == 1, old
    return Bug(path, 1, new, source.replace(old, new))


@pytest.fixture(autouse=True)
def _alarm() -> None:
    signal.signal(signal.SIGALRM, machine._too_long)


@pytest.mark.parametrize(("name", "path", "old", "new"), MOVED)
def test_a_bound_that_is_moved_is_found(name: str, path: str, old: str, new: str) -> None:
    assert caught_by(bug_of(path, old, new), cases(name)) is not None


def test_each_family_of_bounds_has_a_bound_that_is_moved() -> None:
    assert {name for name, *_ in MOVED} == set(family.families)


def test_a_change_without_effect_is_not_caught() -> None:
    assert caught_by(bug_of("spec/scripts.py", "MAX_NESTING = 64", "MAX_NESTING = 63 + 1"), cases("spellings")) is None


def test_bugs_are_made_of_each_operator_and_constant() -> None:
    source = "def f(a, b):\n    if a < b and a:\n        return a // 2 + b\n    return a * 7 % b\n"
    made = {bug.what.splitlines()[-1] for bug in bugs_of("a.py", source)}
    assert {"a // 2 -> (-(-(a) // (2)))", "a * 7 -> ((a) // (7))", "a // 2 + b -> ((a // 2) - (b))"} <= made
    assert {"+    if a <= b and a:", "+    if a < b or a:", "+    return a * 8 % b"} <= made
    assert list(bugs_of("a.py", 'world.reached("B-01", a < b)\n')) == []
    assert functions_of(source) == [(1, 4)]


@pytest.mark.slow
def test_a_measurement_writes_the_survivors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine.measure(range(1), 1_000, 17, tmp_path / "out.json", ("transfers", "nonces"))
    page = json.loads((tmp_path / "out.json").read_text())
    assert page["of"] > 2_000
    tried, left = page["tried"], len(page["survivors"])
    assert f"{tried - left} of {tried} bugs caught by 2 cases" in capsys.readouterr().out
