"""How much work compiling is: bounded whatever the program, in steps that are counted and not timed."""

from __future__ import annotations

from types import CodeType
from typing import Any

import pytest

from tests.validator.pvm.measure import dense
from tests.validator.pvm.running import program
from validator.pvm.compiler import integers
from validator.pvm.compiler.compiler import MAX_GUARDS, compile_program, module_of
from validator.pvm.compiler.expressions import Unit
from validator.pvm.compiler.integers import integers_of
from validator.pvm.language.subset import parse

VARIABLES = 400


def size_of(code: CodeType) -> int:
    """Of its own instructions and of all functions inside."""
    return len(code.co_code) + sum(size_of(part) for part in code.co_consts if isinstance(part, CodeType))


@pytest.mark.parametrize("name", ["sums", "elements changed", "chains", "counters"])
@pytest.mark.slow
def test_no_more_operators_stand_behind_a_test_than_are_allowed(name: str) -> None:
    """So a program is at most so much larger than one that calls operations alone."""
    checked = parse(dense(name, 16_000))
    bare, bounded = (size_of(compile_program(checked, guards=guards)) for guards in (0, MAX_GUARDS))
    a_guard = size_of(compile_program(checked, guards=100)) - bare
    assert bounded == size_of(compile_program(checked))
    assert bounded < bare + 2 * MAX_GUARDS * a_guard // 100
    assert size_of(compile_program(checked, guards=10**9)) >= bounded


@pytest.mark.slow
def test_a_program_that_is_all_operators_runs_out_of_guards() -> None:
    checked = parse(dense("sums", 16_000))
    unit = Unit(checked, False, MAX_GUARDS)
    module_of(unit)
    assert not unit.may_guard()
    assert size_of(compile_program(checked)) < size_of(compile_program(checked, guards=10**9))


@pytest.mark.parametrize("is_forwards", [True, False])
def test_what_holds_integers_is_found_in_steps_that_grow_as_the_program(
    is_forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variable gets the next one's value, the last one the payload: none is an integer, one because of another.

    Looking at everything again for each that is found would be tens of thousands of steps.
    """
    lines = [f"v{i} = v{i + 1}" for i in range(VARIABLES)]
    source = program("\n".join([*(lines if is_forwards else reversed(lines)), f"v{VARIABLES} = payload"]))
    steps, finds = [], integers.is_integer

    def counted(*given: Any) -> bool:
        steps.append(given)
        return finds(*given)

    monkeypatch.setattr(integers, "is_integer", counted)
    assert integers_of(parse(source).methods["handle"], {}) == frozenset()
    assert len(steps) <= 3 * VARIABLES
