"""Sweeps: every case is compared field by field; failures decide the exit code; results go to JSON and JUnit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from kits.conform.case import AnsweredCase, Case, Page, Reference
from kits.conform.difference import first_difference
from kits.conform.source import GeneratedCases
from kits.conform.sweep import NO_ANSWER, judge
from kits.conform.t8n import outcome_of
from kits.conform.t8n_input import blocks_of, genesis_of
from kits.conform.tool import ToolFailure, Unsupported

OWN = f"{sys.executable} -m cluster.commands.cli.main t8n"


class OwnTool:
    """This implementation as a tool, with one change of its output."""

    def __init__(self, change: Any = None) -> None:
        self.change = change

    def answer(self, case: Case, wants_steps: bool = False) -> Page:
        genesis = genesis_of(case.genesis)
        page = json.loads(json.dumps(outcome_of(genesis, blocks_of(case.blocks, genesis), wants_steps)))
        if self.change is not None:
            self.change(page)
        return dict(page)

    def close(self) -> None:
        pass


def answered(family: str = "tips", number: int = 1) -> AnsweredCase:
    return GeneratedCases((family,), range(9)).load(Reference(family, number))


def test_the_own_implementation_is_the_same() -> None:
    result = judge(answered(), OwnTool(), has_roots=True)
    assert (result.kind, result.detail) == ("", "")
    assert "B-03" in result.rules or "A-15" in result.rules


def more(name: str, amount: int = 1) -> Any:
    def change(page: Page) -> None:
        page["blocks"][0][name] += amount

    return change


def root(page: Page) -> None:
    page["blocks"][0]["state_root"] = "00" * 32


def test_each_field_is_compared() -> None:
    case = answered()
    for name in ("height", "basefee_cycle", "p50_tip", "tips", "burned", "cells", "gc_cycles"):
        result = judge(case, OwnTool(more(name)), has_roots=True)
        assert result.kind == f"blocks.{name}"
        assert result.detail.startswith(f"blocks[0].{name}: expected ")


def test_a_root_is_compared_unless_it_is_left_out() -> None:
    assert judge(answered(), OwnTool(root), has_roots=True).kind == "blocks.state_root"
    assert judge(answered(), OwnTool(root), has_roots=False).kind == ""

    def both(page: Page) -> None:
        root(page)
        page["final"]["burned"] += 1

    assert judge(answered(), OwnTool(both), has_roots=True).kind == "final.burned"


@pytest.mark.parametrize(
    ("expected", "got", "text"),
    [
        ({"a": 1}, {"a": "1"}, None),
        ({"a": 1}, {"a": "01"}, "a: expected 1, got '01'"),
        ({"a": 1}, {"a": True}, "a: expected 1, got True"),
        ({"a": 1}, {"a": 1.0}, "a: expected 1, got 1.0"),
        ({"a": 1}, {}, "a: expected 1, got nothing"),
        ({"a": 1}, {"a": 1, "b": 2}, "b: expected nothing, got 2"),
        ({"a": [1, 2]}, {"a": [1]}, "a[1]: expected 2, got nothing"),
        ({"a": []}, {"a": [1]}, "a[0]: expected nothing, got 1"),
        ({"a": [1, 2, 3]}, {"a": ["1", 2, 9, "3"]}, "a[2]: expected nothing, got 9"),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"c": 0}, {"b": "1"}, {"b": 2}]}, "a[0]: expected nothing, got {'c': 0}"),
        ({"a": [{"b": 1}, {"b": 2}, {"b": 3}]}, {"a": [{"b": 2}, {"b": 3}]}, "a[0]: expected {'b': 1}, got nothing"),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, "a[1].b: expected 2, got 3"),
        ({"txs": [1, 2]}, {"txs": [2]}, "txs[0]: expected 1, got 2"),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"y": 2, "x": "1"}]}, None),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "a[0].b: expected 1, got 2"),
        ({"blocks": [], "final": {}}, [], "$: expected {'blocks': [], 'final': {}}, got []"),
        ({"a": {"x": None}}, {"a": {"x": None}}, None),
    ],
)
def test_differences(expected: Page, got: Any, text: str | None) -> None:
    found = first_difference(expected, got)
    assert (None if found is None else found.text) == text


def test_a_tool_without_an_answer_is_a_failure() -> None:
    def fail(_: Page) -> None:
        raise ToolFailure("ended with exit code 3")

    result = judge(answered(), OwnTool(fail), has_roots=True)
    assert (result.kind, result.detail) == (NO_ANSWER, "ended with exit code 3")


def test_what_a_tool_does_not_have_is_no_failure_and_reaches_no_rule() -> None:
    def refuse(_: Page) -> None:
        raise Unsupported("no VM")

    result = judge(answered(), OwnTool(refuse), has_roots=True)
    assert (result.kind, result.detail, result.is_supported, result.rules) == ("", "no VM", False, frozenset())


WITHOUT_FIFO = """
import json, sys
from kits.conform.t8n import outcome_of
from kits.conform.t8n_input import blocks_of, genesis_of

for line in sys.stdin:
    page = json.loads(line)
    genesis = genesis_of(page["genesis"])
    answer = outcome_of(genesis, blocks_of(page["blocks"], genesis))
    print(json.dumps({"unsupported": "no\\nfifo"} if genesis.policy_name == "fifo" else answer), flush=True)
"""


def test_unsupported_cases_are_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(WITHOUT_FIFO, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    tool = ["conform", "--tool", f"{sys.executable} mine.py", "--serve", "--workers", "1", "--seeds", "0:2"]
    results = ["--json", "r.json", "--junit", "r.xml"]
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    assert main([*tool, *results, "--family", "fifo", "--family", "tips"]) == ExitCode.PASS
    printed = capsys.readouterr().out
    assert "4 cases of 2 families" in printed
    assert "all the same, 2 unsupported" in printed
    assert "no fifo" in printed
    page = json.loads((tmp_path / "r.json").read_text())
    assert (page["verdict"], page["cases"], page["failed"], page["unsupported"]) == ("pass", 4, 0, 2)
    assert page["families"]["fifo"] == {"cases": 2, "failed": 0, "unsupported": 2}
    assert page["unsupported_because"] == {"fifo": "no fifo"}
    root = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert (root.attrib["failures"], root.attrib["errors"], root.attrib["skipped"]) == ("0", "0", "1")
    assert main([*tool, "--family", "fifo"]) == ExitCode.INCONCLUSIVE
    assert "none answered, 2 unsupported" in capsys.readouterr().out
    assert list(tmp_path.rglob("index.html")) == []


@pytest.mark.slow
def test_the_command_tests_the_own_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_file, junit_file = tmp_path / "r.json", tmp_path / "r.xml"
    options = [
        "--family",
        "tips",
        "--family",
        "fifo",
        "--seeds",
        "0:2",
        "--json",
        str(json_file),
        "--junit",
        str(junit_file),
    ]
    assert main(["conform", "--tool", f"{OWN} --serve", "--serve", "--workers", "2", *options]) == ExitCode.PASS
    assert "4 cases of 2 families" in capsys.readouterr().out
    page = json.loads(json_file.read_text())
    assert (page["verdict"], page["cases"], page["failed"]) == ("pass", 4, 0)
    assert page["rules"]["A-09"] > 0
    assert ElementTree.parse(junit_file).getroot().attrib["failures"] == "0"
    assert main(["conform", "--tool", OWN, "--family", "tips", "--seeds", "0:1", "--workers", "1"]) == ExitCode.PASS


def test_a_tool_that_fails_fails_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_file, junit_file = tmp_path / "r.json", tmp_path / "r.xml"
    options = ["--workers", "1", "--no-shrink", "--json", str(json_file), "--junit", str(junit_file), "--no-roots"]
    assert main(["conform", "--tool", "false", "--family", "tips", "--seeds", "0:3", *options]) == ExitCode.FAIL
    assert "tips 0  ended with exit code 1" in capsys.readouterr().out
    assert json.loads(json_file.read_text())["failed"] == 3
    assert ElementTree.parse(junit_file).getroot().attrib["failures"] == "1"
    again = ["conform", "--tool", "false", "--seeds", "0:3", "--stop-on-fail", "--no-shrink", "--workers", "1"]
    assert main([*again, "--json", str(json_file)]) == ExitCode.FAIL
    assert json.loads(json_file.read_text())["cases"] == 1
    assert main(["conform", "--tool", "no-such-tool"]) == ExitCode.BAD_INPUT
    assert main(["conform", "--tool", "false", "--family", "nothing-like-it"]) == ExitCode.BAD_INPUT


def test_the_families_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "families"]) == ExitCode.PASS
    assert "empty-blocks" in capsys.readouterr().out
