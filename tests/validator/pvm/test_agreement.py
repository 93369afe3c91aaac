"""The VM and a second interpreter agree on every drawn program: result, effects, error, cycles and cells.

A few programs each time; :mod:`tests.validator.pvm.soak` tries as many as are asked for.
"""

from __future__ import annotations

import ast
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.pvm.attacks import RUNNING, running_program
from tests.validator.pvm.interpreter import Interpreter
from tests.validator.pvm.interpreter import Task as OtherTask
from tests.validator.pvm.programs import draw
from tests.validator.pvm.running import new_context
from validator.execution.handler_context import HandlerContext
from validator.primitives.errors import HandlerFailure
from validator.pvm.compiler.compiler import FILE_NAME, compile_program
from validator.pvm.compiler.programs import methods_of
from validator.pvm.language.subset import ProgramError, parse
from validator.pvm.runtime.machine import LoadedProgram
from validator.pvm.runtime.operations import shown_key
from validator.pvm.runtime.tasks import Task, TaskQueue

MAX_CYCLES = 20_000
MAX_CELLS = 20_000
REPAIRS = 4
SEEN_NODES = 300
INTERPRETERS_RECURSION = 20_000


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


def result_of(context: HandlerContext, body: Any) -> tuple[tuple[Any, ...], int | None]:
    """What a run returns or fails with, and what it did until then, before anything is taken back."""
    found: list[Any] = []
    error, line = "", None
    try:
        found.append(body())
    except HandlerFailure as failure:
        error, line = failure.name, line_of(failure)
    meter = context.meter
    changes = {change.key: change.after for change in context.world.changes()}
    return (error, meter.cycles_used, meter.cells_used, context.effects(), changes, seen(found)), line


def by_vm(loaded: LoadedProgram, payload: Any, cycles: int, cells: int) -> tuple[tuple[Any, ...], int | None]:
    context = new_context(cycles, cells)
    function, found = loaded.functions["handle"], list[Any]()

    def body() -> None:
        if iscoroutinefunction(function):
            loaded.runtime.tasks = TaskQueue()
            loaded.runtime.tasks.run(first(function, payload, found))
        else:
            found.append(function(0, payload))

    def run() -> Any:
        loaded.runtime.metered(context, body)
        return found[0]

    return result_of(context, run)


async def first(function: Any, payload: Any, found: list[Any]) -> None:
    found.append(await function(0, payload))


def by_interpreter(source: str, payload: Any, cycles: int, cells: int) -> tuple[Any, ...]:
    context = new_context(cycles, cells)
    with _deep_stack():
        return result_of(context, lambda: Interpreter(source, context).run("handle", payload))[0]


@contextmanager
def _deep_stack() -> Iterator[None]:
    """The interpreter takes many frames of the host for one of a program, and is not what is to stay within bounds."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(INTERPRETERS_RECURSION)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


PAYLOADS: tuple[Any, ...] = (None, 0, 1, True, -(2**256) + 1, "", "text", b"\xff", [], [1, [2]], {"a": 1})


def difference(seed: int) -> str | None:
    """How the two differ on a seed's program; ``None`` where they agree.

    A statement of the handler that fails is taken out and the rest tried again, a few times, so that what stands behind
    it is reached.
    """
    source, random = draw(seed), Random(seed)
    payload = random.choice(PAYLOADS)
    for _ in range(REPAIRS):
        how, failed_at = compared(source, payload, random, limits=0)
        if how is not None or failed_at is None:
            break
        source = without(source, failed_at)
    return how or compared(source, payload, random, limits=3)[0]


def compared(source: str, payload: Any, random: Random, limits: int) -> tuple[str | None, int | None]:
    """How the two differ on one program, and at which line it fails.

    With many cycles; then with just as many as that took, and operations alone in place of Python's own operators; then
    with fewer.
    """
    try:
        checked = parse(source)
    except ProgramError as refused:
        is_meant = all(problem.what.removeprefix("a key of ").startswith("more than") for problem in refused.problems)
        return (None if is_meant else f"refused: {refused}"), None
    loaded = LoadedProgram(methods_of(checked), compile_program(checked))
    slow = LoadedProgram(methods_of(checked), compile_program(checked, guards=0)) if limits else loaded
    cycles, failed_at = MAX_CYCLES, None
    for turn in range(1 + limits):
        one, line = by_vm(slow if turn == 1 else loaded, again(payload), cycles, MAX_CELLS)
        other = by_interpreter(source, again(payload), cycles, MAX_CELLS)
        if one != other:
            return f"with {cycles} cycles the VM says\n{one}\nand the interpreter\n{other}\nof\n{source}", None
        failed_at = line if turn == 0 else failed_at
        cycles = random.randrange(one[1] + 1) if turn else one[1]
    return None, failed_at


def without(source: str, line: int) -> str:
    """A program whose handler never comes to where it failed."""
    (shell,) = ast.parse(source).body
    assert isinstance(shell, ast.ClassDef)
    handler = next(node for node in shell.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lines = source.split("\n")
    for statement in handler.body:
        assert statement.end_lineno is not None
        if statement.lineno <= line <= statement.end_lineno:
            kept = ["    " + each for each in lines[statement.lineno - 1 : statement.end_lineno]]
            lines[statement.lineno - 1 : statement.end_lineno] = ["        if ():", *kept]
            break
    return "\n".join(lines)


def line_of(failure: BaseException | None) -> int | None:
    """The line of the handler at which a program failed."""
    while failure is not None:
        for frame, line in traceback.walk_tb(failure.__traceback__):
            if frame.f_code.co_filename == FILE_NAME:
                return line
        failure = failure.__context__
    return None


def again(payload: Any) -> Any:
    """A payload of a run's own."""
    if isinstance(payload, list):
        return [again(part) for part in payload]
    return dict(payload) if isinstance(payload, dict) else payload


@pytest.mark.parametrize("examples", [15, pytest.param(60, marks=pytest.mark.soak)])
def test_agrees(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.integers(0, 2**40))
    def agrees(seed: int) -> None:
        assert difference(seed) is None

    agrees()


SLOW_HERE = 150_000
"""Cycles of an attack that the interpreter goes along with."""


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNING)
def test_attacks_do_the_same_for_the_same_cycles(name: str) -> None:
    source = running_program(name)
    checked = parse(source)
    loaded = LoadedProgram(methods_of(checked), compile_program(checked))
    one, _ = by_vm(loaded, None, SLOW_HERE, MAX_CELLS)
    assert one == by_interpreter(source, None, SLOW_HERE, MAX_CELLS)
