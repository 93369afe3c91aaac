"""Profiles: the lines add up to what was charged, each charge on its line, and being watched changes nothing."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cluster.commands.cli.main import main
from kits.actors.pages import profile_page
from kits.actors.profiler import LineProfile, ProfilingVm
from kits.actors.session import Session
from kits.actors.session_output import print_profile
from tests.kits.actors.programs import BUSY, COUNTER, LIMITS, played
from validator.primitives import costs
from validator.pvm.compiler.programs import load_cycles
from validator.pvm.compiler.weights import HOST_CALL, KECCAK, OPERATION, OWN_CALL, VALUE_NODE
from validator.pvm.runtime.machine import PythonVm

KINDS = {"deploy", "call", "bid", "fire", "message"}
CALLS = ("start=1", "start", 'tell={"address_of": "Busy"}', "forever", "Busy.start", "Busy.sort=3", "earn")


def charged_to(session: Session, source: str) -> int:
    """What the runs of a program used, by the meters."""
    runs = [execution.program for execution in session.executions if execution.program is not None]
    return sum(run.cycles for run in runs if run.source == source)


def line_of(source: str, part: str) -> int:
    return next(number for number, text in enumerate(source.split("\n"), start=1) if part in text)


def profiled(source: str, *calls: str, blocks: int = 0) -> LineProfile:
    vm = ProfilingVm()
    session = played(source, calls=calls, blocks=blocks, vm=vm)
    assert vm.profiles[source].total == charged_to(session, source)
    return vm.profiles[source]


def test_the_lines_add_up_to_what_was_charged() -> None:
    vm = ProfilingVm()
    session = played(COUNTER, BUSY, calls=CALLS, blocks=8, vm=vm)
    assert {execution.kind for execution in session.executions} == KINDS
    assert session.failures > 3, "ways to fail are among them"
    for source in (COUNTER, BUSY):
        profile = vm.profiles[source]
        lines = range(1, source.count("\n") + 2)
        assert sum(profile.cycles(line) for line in lines) == profile.total == charged_to(session, source) > 0


def test_what_a_message_used_is_charged_once_to_who_sent_it() -> None:
    """With its reservation; of a run that is paid for, what it uses is no further charge."""
    vm = ProfilingVm()
    session = played(COUNTER, BUSY, calls=CALLS, blocks=8, vm=vm)
    by_kind = {kind: sum(each.cycles for each in session.executions if each.kind == kind) for kind in KINDS}
    assert by_kind["message"] > 0
    charged = sum(cycles for kind, cycles in by_kind.items() if kind != "message")
    assert profile_page(session, vm.profiles)["profile"]["cycles"] == charged
    console = Console(file=io.StringIO(), width=200)
    print_profile(console, session, vm.profiles)
    account = console.file.getvalue().split("where the cycles went\n")[1].split("\n\n")[0].splitlines()  # type: ignore[attr-defined]
    figures = [int(re.findall(r"  (-?[\d,]+)  ", line)[-1].replace(",", "")) for line in account]
    assert figures[-2:] == [-by_kind["message"], charged]
    assert sum(figures[:-1]) == charged


def test_being_profiled_changes_nothing() -> None:
    plain = played(COUNTER, BUSY, calls=CALLS, blocks=8, vm=PythonVm())
    watched = played(COUNTER, BUSY, calls=CALLS, blocks=8, vm=ProfilingVm())
    assert watched.executions == plain.executions
    assert watched.chain.view.root == plain.chain.view.root


@pytest.mark.parametrize("gas_limit", [*range(1_000, 1_300, 7), *range(1_300, 9_000, 531)])
def test_the_lines_add_up_wherever_cycles_run_out(gas_limit: int) -> None:
    vm = ProfilingVm()
    session = played(BUSY, calls=("start",), blocks=0, limits=replace(LIMITS, gas_limit=gas_limit), vm=vm)
    used = charged_to(session, BUSY)
    assert vm.profiles[BUSY].total == used
    call = session.executions[-1]
    assert call.error in ("", "OutOfCycles") and (not call.error or used == gas_limit - 1_000)


@pytest.mark.parametrize("gas_limit", range(1_000, 1_400, 3))
def test_a_charge_by_size_that_does_not_fit_counts_as_far_as_it_does(gas_limit: int) -> None:
    source = """
class Sizes(Actor):
    def start(self, payload):
        long = "x" * 3200
        squares = [i * i for i in range(12)]
        self.set("a", long[1:])
"""
    vm = ProfilingVm()
    session = played(source, calls=("start",), blocks=0, limits=replace(LIMITS, gas_limit=gas_limit), vm=vm)
    assert vm.profiles[source].total == charged_to(session, source)


def test_host_calls_and_sizes_stand_on_their_lines() -> None:
    source = """
class Lines(Actor):
    def start(self, payload):
        self.helper(
            7,
            keccak256(b"abc"))
        long = "ab" * 320
        self.set("a",
                 1)

    def helper(self, first, second):
        return first
"""
    profile = profiled(source, 'start="' + "x" * 320 + '"')
    assert profile.sizes[line_of(source, "keccak256")] == KECCAK
    assert profile.sizes[line_of(source, '"ab" * 320')] == OPERATION + 640 // 32
    assert profile.sizes[line_of(source, "def start")] >= VALUE_NODE, "unpacking the payload"
    assert profile.host[line_of(source, "self.set(")] == costs.KV_SET_CYCLES + VALUE_NODE
    assert profile.pieces[line_of(source, "def helper")] == OWN_CALL
    assert profile.pieces[line_of(source, "self.set(")] > HOST_CALL
    assert profile.host[line_of(source, "def start")] == load_cycles(source)
    assert set(profile.host) == {line_of(source, "def start"), line_of(source, "self.set(")}


def test_a_loop_pays_for_its_turns_and_its_body_for_itself() -> None:
    source = """
class Loop(Actor):
    def start(self, payload):
        total = 0
        for i in range(100):
            total = total + i
        while total > 4900:
            total = total - 1
        values = [i for i in range(50)]
"""
    profile = profiled(source)
    for head, body, turns in (("for i in range(100)", "total + i", 100), ("while", "total - 1", 50)):
        assert profile.runs[line_of(source, body)] == turns
        assert profile.runs[line_of(source, head)] == turns + 1, "and once to begin"
        assert profile.pieces[line_of(source, body)] % turns == 0
        assert profile.pieces[line_of(source, head)] >= 4 * turns
    assert profile.pieces[line_of(source, "values")] >= 4 * 50


def test_unpacking_a_payload_is_charged_to_the_handler() -> None:
    source = "class A(Actor):\n    def start(self, payload):\n        pass\n"
    profile = profiled(source, "start=" + "[" * 20 + "]" * 20)
    assert profile.sizes[2] == profile.sizes.total() == 20 * VALUE_NODE


def test_profile_prints_the_listing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("counter.py").write_text(COUNTER, encoding="utf-8")
    assert main(["actor", "profile", "counter.py", "--blocks", "8"]) == 1
    lines = capsys.readouterr().out.splitlines()
    listing = lines[lines.index("counter.py, by line") + 2 :]
    count = len(COUNTER.rstrip().split("\n"))
    assert [line[54:].strip() for line in listing[:count]] == [text.strip() for text in COUNTER.rstrip().split("\n")]
    account = lines[lines.index("where the cycles went") + 1 : lines.index("what failed") - 1]
    figures = [int(re.findall(r"  (-?[\d,]+)  ", line)[-1].replace(",", "")) for line in account]
    assert sum(figures[:-1]) == figures[-1]
    assert account[-1].startswith("charged in all") and account[-1].endswith("100.0 %")
    assert any("counter.py:17 in give_up" in line for line in lines)
