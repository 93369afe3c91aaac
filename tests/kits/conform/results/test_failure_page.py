"""The page of a failing case: what differs is marked, whatever the order of keys, and rules are named; old pages go."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from kits.conform.case import Page, Reference
from kits.conform.difference import arranged
from kits.conform.results.failure_page import place_of, remove_passed, write_failure
from kits.conform.results.steps import told_steps
from kits.conform.shrink import Shrunk, failure_of, rules_of_case
from kits.conform.tool import ToolCommand
from tests.kits.conform.test_sweep import OWN, OwnTool, answered

COMMAND = ToolCommand(OWN, stays_up=True, timeout_s=30)


def backwards(value: Any) -> Any:
    """The same value with its keys in the other order, and integers as texts."""
    if isinstance(value, dict):
        return {name: backwards(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [backwards(each) for each in value]
    return str(value) if type(value) is int else value


def written(folder: Path, change: Any) -> str:
    """The page of a case on which a tool with a changed answer fails."""

    def changed(page: Page) -> None:
        other = backwards(page)
        page.clear()
        page.update(other)
        change(page)

    tool, case = OwnTool(changed), answered("order-in-a-block").case
    failure = failure_of(case, tool, has_roots=True)
    assert failure is not None
    shrunk = Shrunk(case, failure, 1, rules_of_case(case))
    place = write_failure(folder, shrunk, COMMAND, told_steps(shrunk, None))
    return (place / "index.html").read_text(encoding="utf-8")


def test_only_what_differs_is_marked(tmp_path: Path) -> None:
    def more(page: Page) -> None:
        page["blocks"][0]["tips"] = str(int(page["blocks"][0]["tips"]) + 1)

    page = written(tmp_path, more)
    parts = page.partition(">Block 1<")[2]
    assert re.findall(r"<code>(\w+)</code> <span class=\"chip\">differs", parts) == ["tips"]


def test_one_event_more_is_one_difference(tmp_path: Path) -> None:
    def more(page: Page) -> None:
        page["blocks"][0]["events"].insert(0, {"name": "Another", "actor": "0x00"})

    assert "blocks[0].events[0]: expected nothing, got {" in written(tmp_path, more)


def test_the_page_names_rules_and_those_of_the_family_come_first(tmp_path: Path) -> None:
    page = written(tmp_path, lambda page: page["blocks"].pop())
    rules = re.findall(r"<li><strong>([A-Z]-\d\d)</strong>", page)
    assert rules[0].startswith("B-")
    assert set(rules) >= {"B-02", "A-15"} or len(rules) > 5


def test_keys_are_arranged_as_expected() -> None:
    got = arranged({"z": 1, "b": [{"d": 1, "c": 2}], "a": 0}, {"a": 0, "b": [{"c": 2, "d": 1}]})
    assert json.dumps(got) == '{"a": 0, "b": [{"c": 2, "d": 1}], "z": 1}'


def test_pages_of_cases_that_pass_are_removed(tmp_path: Path) -> None:
    passed, fails = Reference("tips", 1), Reference("tips", 2)
    for reference in (passed, fails):
        place_of(tmp_path, reference).mkdir()
        (place_of(tmp_path, reference) / "index.html").write_text("")
    remove_passed(tmp_path, [passed, Reference("tips", 3)])
    assert [path.name for path in tmp_path.iterdir()] == ["tips-2"]
    (place_of(tmp_path, fails) / "notes.txt").write_text("mine")
    remove_passed(tmp_path, [fails])
    assert [path.name for path in (tmp_path / "tips-2").iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_a_sweep_removes_the_page_of_a_case_that_passes_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--family", "tips", "--seeds", "0:1", "--workers", "1", "--out", str(tmp_path)]
    assert main(["conform", "--tool", "false", *options]) == ExitCode.FAIL
    assert "[A-09" in capsys.readouterr().out
    assert (tmp_path / "tips-0" / "index.html").exists()
    assert main(["conform", "--tool", f"{OWN} --serve", "--serve", *options]) == ExitCode.PASS
    assert not (tmp_path / "tips-0").exists()
