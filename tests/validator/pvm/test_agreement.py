"""The VM and a second interpreter agree on every drawn program: result, effects, error, cycles and cells."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.pvm.interpreter import Interpreter
from tests.validator.pvm.interpreter import Task as OtherTask
from tests.validator.pvm.programs import draw
from tests.validator.pvm.running import new_context
from validator.errors import HandlerFailure
from validator.host import HandlerContext
from validator.pvm.compiler import compile_program
from validator.pvm.machine import LoadedProgram
from validator.pvm.operations import shown_key
from validator.pvm.subset import ProgramError, parse
from validator.pvm.tasks import Task, TaskQueue

MOST_CYCLES = 20_000
MOST_CELLS = 20_000
SOAK = 100_000
CHUNK = 1_000
SEEN_NODES = 300


def seen(value: Any) -> Any:
    """A returned value by its shape: what is shared is shared, what holds itself does so."""
    numbers: dict[int, int] = {}
    kept: list[Any] = []

    def look(part: Any) -> Any:
        if isinstance(part, Task | OtherTask):
            return "a task"
        if not isinstance(part, list | tuple | dict):
            return (type(part).__name__, part)
        if id(part) in numbers and not isinstance(part, tuple):
            return numbers[id(part)]
        if len(kept) >= SEEN_NODES:
            return "…"
        numbers[id(part)] = len(kept)
        kept.append(part)
        if isinstance(part, dict):
            return [(look(shown_key(key)), look(each)) for key, each in part.items()]
        return [type(part).__name__, *map(look, part)]

    return look(value)


def result_of(context: HandlerContext, body: Any) -> tuple[Any, ...]:
    """What a run returns or fails with, and what it did until then, before anything is taken back."""
    found: list[Any] = []
    error = ""
    try:
        found.append(body())
    except HandlerFailure as failure:
        error = failure.name
    meter = context.meter
    changes = {change.key: change.after for change in context.world.changes()}
    return error, meter.cycles_used, meter.cells_used, context.effects(), changes, seen(found)


def by_vm(loaded: LoadedProgram, payload: Any, cycles: int, cells: int) -> tuple[Any, ...]:
    context = new_context(cycles, cells)
    function, found = loaded._functions["handle"], []

    def body() -> None:
        if loaded.program.methods["handle"].is_async:
            loaded._tasks = TaskQueue()
            loaded._tasks.run(first(function, payload, found))
        else:
            found.append(function(0, payload))

    def run() -> Any:
        loaded._metered(context, body)
        return found[0]

    return result_of(context, run)


async def first(function: Any, payload: Any, found: list[Any]) -> None:
    found.append(await function(0, payload))


def by_interpreter(source: str, payload: Any, cycles: int, cells: int) -> tuple[Any, ...]:
    context = new_context(cycles, cells)
    return result_of(context, lambda: Interpreter(source, context).run("handle", payload))


PAYLOADS = (None, 0, 1, True, -(2**256) + 1, "", "text", b"\xff", [], [1, [2]], {"a": 1})


def difference(seed: int) -> str | None:
    """How the two differ on a seed's program; ``None`` where they agree.

    With many cycles; then with just as many as that took, and operations alone in place of Python's own operators; then
    with fewer.
    """
    source, random = draw(seed), Random(seed)
    try:
        checked = parse(source)
    except ProgramError as refused:
        is_meant = all(problem.what == "a key of more than 60 bits" for problem in refused.problems)
        return None if is_meant else f"refused: {refused}"
    loaded = LoadedProgram(checked, compile_program(checked))
    slow = LoadedProgram(checked, compile_program(checked, guards=0))
    place = random.randrange(len(PAYLOADS))
    cycles = MOST_CYCLES
    for turn in range(5):
        one = by_vm(slow if turn == 1 else loaded, again(PAYLOADS[place]), cycles, MOST_CELLS)
        other = by_interpreter(source, again(PAYLOADS[place]), cycles, MOST_CELLS)
        if one != other:
            return f"with {cycles} cycles the VM says\n{one}\nand the interpreter\n{other}"
        cycles = random.randrange(one[1] + 1) if turn else one[1]
    return None


def again(payload: Any) -> Any:
    """A payload of a run's own."""
    if isinstance(payload, list):
        return [again(part) for part in payload]
    return dict(payload) if isinstance(payload, dict) else payload


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**40))
def test_agrees(seed: int) -> None:
    assert difference(seed) is None


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, SOAK, CHUNK))
def test_agrees_at_length(start: int) -> None:
    found = {seed: how for seed in range(start, start + CHUNK) if (how := difference(seed)) is not None}
    assert not found, f"{len(found)} of {CHUNK}, the first of them {next(iter(found.items()))}"
