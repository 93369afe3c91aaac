"""The steps on a failing case's page: both sides up to the first that differs, with keys; or why there are none."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cluster.audit.reexecution.describe import TITLES
from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from kits.conform.case import Case, Page
from kits.conform.results.steps import ToldSteps, told_steps
from kits.conform.shrink import Shrunk, shrink
from kits.conform.tool import ToolCommand
from tests.kits.conform.planted import PlantedTool
from tests.kits.conform.test_shrink import found_by
from tests.kits.conform.test_sweep import OwnTool
from validator.transition.trace import StepKind

BUG = "fire-base-free"


@pytest.fixture(scope="module")
def shrunk() -> Shrunk:
    tool = PlantedTool(BUG)
    found = shrink(found_by(tool), tool)
    assert found is not None
    return found


class ChangedTool(PlantedTool):
    """A tool whose steps are changed on their way."""

    def __init__(self, change: Any) -> None:
        super().__init__(BUG)
        self.change = change

    def answer(self, case: Case, wants_steps: bool = False) -> Page:
        page = super().answer(case, wants_steps)
        for block in page["blocks"]:
            self.change(block)
        return page


def told(shrunk: Shrunk, change: Any) -> ToldSteps:
    return told_steps(shrunk, ChangedTool(change))


def test_both_sides_are_shown_up_to_the_step_that_differs(shrunk: Shrunk) -> None:
    steps = told_steps(shrunk, PlantedTool(BUG))
    assert steps.is_told and not steps.note
    assert [step.differs for step in steps.shown] == [False] * (len(steps.shown) - 1) + [True]
    last = steps.shown[-1]
    assert last.words.startswith("the fire of timer ")
    (balance, *_) = [each for key in last.keys for each in key["fields"] if each["name"] == "balance"]
    assert balance["theirs"] != balance["right"] != balance["before"]


def test_the_expected_steps_are_shown_alone(shrunk: Shrunk) -> None:
    steps = told_steps(shrunk, None)
    assert not steps.is_told and not steps.note
    assert steps.shown[0].words == "the start of the block"
    assert steps.shown[-1].words.startswith("the prices and counters")
    assert any(step.keys for step in steps.shown) and not any(step.differs for step in steps.shown)


def test_steps_of_a_tool_that_does_the_same_are_said_to_be_the_same(shrunk: Shrunk) -> None:
    steps = told_steps(shrunk, OwnTool())
    assert steps.note == "all steps of this block are the same" and not any(step.differs for step in steps.shown)


def test_another_order_of_steps_is_told(shrunk: Shrunk) -> None:
    steps = told(shrunk, lambda block: block["steps"].pop(0))
    assert steps.note.startswith("expected the start of the block; the program: ")
    steps = told(shrunk, lambda block: block["steps"].clear())
    assert steps.note.endswith("the program: nothing more")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda block: block.pop("steps"), "expected a list of at most 65,536 steps"),
        (lambda block: block["steps"].insert(0, 5), "steps[0]: "),
        (lambda block: block["steps"].insert(1, ["walk", "", []]), "steps[1]: 'walk' is not a valid StepKind"),
        (lambda block: block["steps"].insert(0, [[], "", []]), "steps[0]: "),
        (lambda block: block["steps"].insert(0, ["fire", "zz", []]), "steps[0]: non-hexadecimal"),
        (lambda block: block["steps"].insert(0, ["fire", None, []]), "steps[0]: "),
        (lambda block: block["steps"].insert(0, ["fire", "", [["00", "1:2:3", None]]]), "steps[0]: "),
        (lambda block: block["steps"].insert(0, ["fire", "", [["00", None]]]), "steps[0]: not enough values"),
    ],
)
def test_steps_that_cannot_be_read_are_one_line(shrunk: Shrunk, change: Any, line: str) -> None:
    steps = told(shrunk, change)
    assert steps.note.startswith(f"its steps cannot be read: {line}") and "\n" not in steps.note
    assert not steps.is_told and steps.shown, "the expected ones are shown"


def test_every_kind_has_words() -> None:
    assert set(TITLES) == set(StepKind)


TOOL = f"{sys.executable} -m tests.kits.conform.planted {BUG}"


@pytest.mark.slow
def test_a_program_that_reads_files_tells_steps(shrunk: Shrunk) -> None:
    with closing(ToolCommand(TOOL, False, 60, True).open()) as tool:
        steps = told_steps(shrunk, tool)
    assert steps.is_told and steps.shown[-1].differs


@pytest.mark.slow
def test_a_page_shows_what_the_program_told(tmp_path: Path) -> None:
    options = ["--family", "fires-that-fail", "--seeds", "0:1", "--workers", "1", "--out", str(tmp_path)]
    assert main(["conform", "--tool", TOOL, "--serve", "--steps", *options]) == ExitCode.FAIL
    page = next(tmp_path.glob("*/index.html")).read_text(encoding="utf-8")
    assert re.search(r'fail-row"><th scope="row">the fire of timer [0-9a-f]+.*differs', page)
    assert "The program did not tell" not in page
