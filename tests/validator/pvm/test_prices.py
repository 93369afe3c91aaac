"""What a program does for a cycle is bounded, counted in steps and not in time.

Of Python's own code, instructions are counted while a program runs: the program's, the operations' and the host's. Of
what Python does at once in C, the comparisons of its slowest search are counted by a model of it.
"""

from __future__ import annotations

import ast
import sys
from types import FrameType
from typing import Any

import pytest

from tests.validator.pvm.measure import KERNELS, kernel
from tests.validator.pvm.running import load, new_context, observe, packed, program
from tests.validator.pvm.shapes import Draw
from validator.pvm.compiler.weights import BYTES_PER_CYCLE, NODES
from validator.pvm.language.subset import ProgramError, parse
from validator.pvm.runtime.operations import Work

CYCLES = 2_500
STEPS_PER_CYCLE = 9
"""Instructions of Python for a cycle: Python 3.11 takes 6 at most here, others a little more or less."""
STEPS_ONCE_TOO_CHEAP = 6
"""The same of what was too cheap: 4.4 at most now, 6.2 and more with the prices that it had."""
DRAWN = 40
LONGEST = 6_000
"""Characters of drawn programs that are looked at here."""

HOSTILE = {
    "pass": ("", "pass\n" * 600),
    "remarks": ("", "'a'\n" * 600),
    "empty lists in a chain": ("x = []", "y = " + " <= ".join(["x"] * 70)),
    "equal lists in a chain": ("x = []", "y = " + " == ".join(["x"] * 70)),
    "tuples": ("x = ()", "y = x >= x"),
    "dicts": ("x = {}", "y = x == x"),
    "nothings": ("x = None", "y = " + " == ".join(["x"] * 70)),
    "truth values in order": ("x = True", "y = " + " <= ".join(["x"] * 70)),
    "truth values as indices": ("x = [1, 2]\nz = True", "y = x[z]\nx[z] = 1"),
    "a truth value times a text": ("x = True\nz = 'ab'", "y = x * z"),
}  # fmt: skip
"""What is done once, and again and again; each had a price that was too low."""


def steps(source: str) -> tuple[int, int]:
    """Instructions that Python performs, and the cycles that are paid for them."""
    loaded, payload, context = load(source), packed(5), new_context(CYCLES)
    count = 0

    def each(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return each

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return each

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        cycles = observe(context, lambda given: loaded.run_handler("handle", payload, given)).cycles
    finally:
        sys.settrace(before)
    return count, cycles


@pytest.mark.parametrize("name", HOSTILE)
def test_what_was_too_cheap_is_paid_for(name: str) -> None:
    first, again = HOSTILE[name]
    body = "".join(f"    {line}\n" for line in again.splitlines())
    count, cycles = steps(program(f"{first or 'pass'}\nwhile True:\n{body}"))
    assert cycles == CYCLES
    assert count <= STEPS_ONCE_TOO_CHEAP * cycles


def test_everything_that_programs_can_do_is_paid_for() -> None:
    found = {name: steps(kernel(name)) for name in KERNELS}
    assert {name: count / cycles for name, (count, cycles) in found.items() if count > STEPS_PER_CYCLE * cycles} == {}


def test_drawn_programs_are_paid_for() -> None:
    dear, looked_at = [], 0
    for seed in range(DRAWN):
        source = Draw(seed).shape().source()
        if source is None or len(source) > LONGEST or not is_program(source):
            continue
        count, cycles = steps(source)
        looked_at += 1
        if count > STEPS_PER_CYCLE * max(cycles, CYCLES // 2):
            dear.append(source)
    assert dear == [] and looked_at > DRAWN // 4


def is_program(source: str) -> bool:
    try:
        return bool(parse(source).methods)
    except ProgramError:
        return False


def test_no_statement_is_free() -> None:
    assert [kind.__name__ for kind, cycles in NODES.items() if issubclass(kind, ast.stmt) and cycles < 1] == []


# --- searching --------------------------------------------------------------------------------------------------------

FEW_PLACES = 2_000
"""Python's adaptive search goes on place by place where no more places are left (``fastsearch.h``)."""


def compared(text: str, part: str) -> int:
    """Characters that Python's search by places compares: at each place where the last one fits, from the first on."""
    count, last = 0, len(part) - 1
    same = [place for place in range(last) if part[place] == part[last]]
    gap = last - same[-1] - 1 if same else last
    place = 0
    while place <= len(text) - len(part):
        count += 1
        if text[place + last] == part[last]:
            fits = next((at for at in range(last) if text[place + at] != part[at]), last)
            count += fits + 1
            place += gap
        place += 1
    return count


@pytest.mark.parametrize(
    ("length", "size"),
    [(300, 150), (1_000, 500), (2_499, 60), (2_499, 99), (1_200, 700), (2_400, 2_000), (3_000, 2_700), (9_000, 8_900)],
)
@pytest.mark.parametrize("ending", ["ba", "b", "aba"])
def test_a_search_is_paid_for_by_what_it_compares(length: int, size: int, ending: str) -> None:
    """Texts that are shorter than 2,500, parts that are shorter than 100 and few places are searched place by place."""
    text, part = "a" * length, "a" * (size - len(ending)) + ending
    assert length - size <= FEW_PLACES or size < 100
    charged: list[int] = []
    Work(charged.append).search_work(text, part)
    assert compared(text, part) <= BYTES_PER_CYCLE * sum(charged)


def test_looking_twice_is_paid_twice() -> None:
    def price(body: str) -> int:
        context = new_context()
        loaded = load(program(f"x = 'a' * 2000\ny = 'a' * 998 + 'ba'\n{body}"))
        return observe(context, lambda given: loaded.run_handler("handle", b"", given)).cycles

    nothing, once = price("z = 1"), price("z = x.find(y)")
    assert price("z = x.split(y)") - nothing >= 2 * (once - nothing) * 99 // 100
    assert price("z = x.replace(y, 'c')") - nothing >= 3 * (once - nothing) * 99 // 100
