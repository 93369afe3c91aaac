"""Planted bugs: each is found by its family, and its case is shrunk to a small one that differs in the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from kits.conform.case import AnsweredCase, Reference
from kits.conform.shrink import failure_of, shrink
from kits.conform.source import GeneratedCases
from kits.conform.sweep import judge
from tests.kits.conform.planted import BUGS, PlantedTool

SEEDS = range(40)
MAX_BLOCKS, MAX_TRANSACTIONS = 2, 3
LONG = [name for name, bug in BUGS.items() if bug.must_fail in ("job-ends", "compaction")]
"""Bugs that only long cases find: none of their blocks can be left out."""
CHEAP = ["address-of-the-next-nonce", "nonce-not-checked", "fire-base-free", "messages-without-a-limit"]


def found_by(tool: PlantedTool) -> AnsweredCase:
    """The first case of the bug's family on which the tool fails."""
    source = GeneratedCases((BUGS[tool.name].must_fail,), SEEDS)
    cases = (source.load(reference) for reference in source.references())
    return next(case for case in cases if judge(case, tool, has_roots=True).kind)


def test_there_are_enough_bugs() -> None:
    assert len(BUGS) >= 40


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] * (each not in CHEAP)) for each in BUGS if each not in LONG],
)
def test_a_bug_is_found_and_its_case_is_small(name: str) -> None:
    tool = PlantedTool(name)
    case = found_by(tool)
    shrunk = shrink(case, tool)
    assert shrunk is not None
    assert len(shrunk.case.blocks) <= MAX_BLOCKS
    assert sum(len(block["txs"]) for block in shrunk.case.blocks) <= MAX_TRANSACTIONS
    again = failure_of(shrunk.case, tool, has_roots=True)
    assert again is not None
    assert again.detail == shrunk.failure.detail


@cache
def first_case(family: str) -> AnsweredCase:
    return GeneratedCases((family,), SEEDS).load(Reference(family, 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_bug_that_only_long_cases_show_is_found(name: str) -> None:
    assert judge(first_case(BUGS[name].must_fail), PlantedTool(name), has_roots=True).kind


def test_a_sound_tool_shrinks_nothing() -> None:
    tool = PlantedTool("nonce-not-checked")
    assert shrink(GeneratedCases(("fifo",), SEEDS).load(Reference("fifo", 1)), tool) is None
    assert tool.asked == 1


@pytest.mark.slow
def test_a_sweep_leaves_the_shrunk_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = f"{sys.executable} -m tests.kits.conform.planted fire-base-free"
    options = ["--family", "fires-that-fail", "--seeds", "0:2", "--workers", "1", "--out", str(tmp_path)]
    assert main(["conform", "--tool", tool, "--serve", *options]) == ExitCode.FAIL
    (folder,) = [path for path in tmp_path.iterdir() if "cycles" in (path / "index.html").read_text()][:1]
    assert {path.name for path in folder.iterdir()} == {
        "genesis.json", "blocks.json", "expected.json", "got.json", "index.html",
    }  # fmt: skip
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "First difference" in page
    assert "differs" in page
    assert "Block 2" in page
    expected, got = (json.loads((folder / name).read_text()) for name in ("expected.json", "got.json"))
    assert expected != got
    printed = capsys.readouterr().out
    (again,) = [
        line.partition("again  ")[2] for line in printed.splitlines() if str(folder) in line and "again" in line
    ]
    answer = subprocess.run(["sh", "-c", again], capture_output=True, check=True).stdout
    assert json.loads(answer) == got, "the command that is printed gives the same"
    assert "shrunk to 2 blocks and 1 transaction" in printed
