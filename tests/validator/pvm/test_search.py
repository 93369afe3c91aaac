"""The search for the dearest programs draws from all of the language, climbs, and goes on where it was."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.validator.pvm import search
from tests.validator.pvm.search import Climber, main
from tests.validator.pvm.shapes import COMPOUND, EXPRESSIONS, METHODS, STATEMENTS, Draw, Template
from tests.validator.pvm.test_measure import called
from validator.pvm.compiler.weights import NODES, OPERATORS
from validator.pvm.language import api
from validator.pvm.language.api import BUILTINS, HOST_READS, STATIC_METHODS, TASK_CALLS
from validator.pvm.language.subset import ProgramError, parse

DRAWN = 40
SHORT = 4_000
"""Characters of a program that is not too long to be looked at here."""


def nodes_of(template: Template) -> list[ast.AST]:
    """What a template's text holds, a name in each place."""
    text = template.text
    for place in range(len(template.kinds)):
        text = text.replace(f"<{place}>", "x")
    return list(ast.walk(ast.parse(text + (" pass" if text.endswith(":") else ""))))


def test_everything_that_programs_can_do_is_drawn() -> None:
    templates = [*STATEMENTS, *COMPOUND, *(each for known in EXPRESSIONS.values() for each in known)]
    nodes = [node for template in templates for node in nodes_of(template)]
    nodes += [node for method in METHODS for node in ast.walk(ast.parse(method))]
    assert set(NODES) - {type(node) for node in nodes} == {ast.Raise}  # ends the handler
    assert set(OPERATORS) <= {type(node) for node in nodes}
    offered = {f"self.{name}" for name in (*HOST_READS, *TASK_CALLS)}
    offered |= {*BUILTINS, *(f".{name}" for name in api.METHODS)}
    offered |= {f"{kind}.{name}" for kind, name in STATIC_METHODS}
    assert offered - {called(node) for node in nodes} == set()


def test_a_place_that_stands_twice_is_one() -> None:
    template = Template.of("(<s> == <u> == <0>)")
    assert template == Template("(<0> == <1> == <0>)", "su")


def test_a_seed_draws_the_same_and_mostly_programs() -> None:
    found = 0
    for seed in range(DRAWN):
        draws = [Draw(seed), Draw(seed)]
        one, other = (draw.changed(draw.shape()) for draw in draws)
        assert one == other
        source = one.source()
        if source is not None and len(source) < SHORT:
            assert refusals(source) == []
            found += 1
    assert found > DRAWN // 4


def refusals(source: str) -> list[str]:
    """Why a shape is no program: a statement of it may be too long, and nothing else."""
    try:
        parse(source)
    except ProgramError as refused:
        return [found.what for found in refused.problems if not found.what.startswith("a statement of more than")]
    return []


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is measured; what assigns more is dearer."""
    sources: list[str] = []

    def nanoseconds(source: str, cycles: int, runs: int) -> tuple[float, int]:
        sources.append(source)
        return 10 + source.count("=") / 100, cycles

    monkeypatch.setattr(search, "nanoseconds", nanoseconds)
    monkeypatch.setattr(search, "STEPS", 3)
    monkeypatch.setattr(search, "DRAWN", 5)
    return sources


def test_a_climb_ends_higher_than_what_it_drew(measured: list[str]) -> None:
    climb = Climber(3).climb(steps=30)
    assert climb.dearest is not None and climb.dearest.nanoseconds > max(climb.drawn)
    assert climb.tried == search.DRAWN + 30
    assert Climber(3).climb(steps=30) == climb


def test_a_search_goes_on_where_it_was(measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["0:2", "--out", str(tmp_path)]) == 0
    first, whole = capsys.readouterr().out, len(measured)
    (notes,) = tmp_path.iterdir()
    notes.write_text(notes.read_text()[:-3])
    measured.clear()
    assert main(["0:2", "--out", str(tmp_path)]) == 0
    assert len(measured) < whole, "a line that was cut off counts for nothing, the others for what they say"
    assert capsys.readouterr().out.split(" shapes tried")[1] == first.split(" shapes tried")[1]


def test_no_climb_begins_after_the_minutes(measured: list[str], tmp_path: Path) -> None:
    tried = search.search(0, 1, tmp_path, minutes=1).tried
    assert search.search(0, 5, tmp_path, minutes=-1).tried == tried == search.DRAWN + search.STEPS


def test_what_takes_too_long_is_said(measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["0:2", "--out", str(tmp_path), "--most", "1.01"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "0 programs broke the VM" in lines[-1]
    ratios = [float(line.split()[2]) for line in lines if line.startswith("    ")]
    assert ratios == sorted(ratios, reverse=True) and ratios[0] > 1.0


def test_a_program_that_breaks_the_vm_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def nanoseconds(source: str, cycles: int, runs: int) -> tuple[float, int]:
        if "'a'" in source:
            raise RuntimeError("the VM is broken")
        return 10.0, cycles

    monkeypatch.setattr(search, "nanoseconds", nanoseconds)
    monkeypatch.setattr(search, "DRAWN", 10)
    monkeypatch.setattr(search, "STEPS", 1)
    assert main(["0:1", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "climb 0 broke the VM: Traceback" in told and "RuntimeError: the VM is broken" in told


def test_what_ends_early_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(search, "nanoseconds", lambda source, cycles, runs: (10.0, search.MIN_CYCLES - 1))
    climb = Climber(0).climb()
    assert (climb.drawn, climb.dearest) == ([], None)


@pytest.mark.soak
def test_no_cycle_takes_more_than_four_times_the_median(tmp_path: Path) -> None:
    found = search.search(0, 10_000, tmp_path, minutes=10)
    assert found.is_within(search.MOST), found.dearest[0]
