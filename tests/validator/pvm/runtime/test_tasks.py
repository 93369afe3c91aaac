"""Tasks of one handler: first in, first out, on one thread, to the end of the last one."""

# ruff: noqa: E501  # tables, one case a line
from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validator.pvm.running import Run, program, run
from validator.primitives.limits import MAX_TASKS
from validator.pvm.compiler.weights import NODES, TASK_TURN
from validator.pvm.runtime.tasks import TaskQueue

WORK = """
async def work(self, name, turns):
    for i in range(turns):
        self.emit(name, i)
        await self.pause()
    self.emit(name, "end")
    return name
"""


def run_async(body: str, *methods: str) -> Run:
    return run(program(body, WORK, *methods).replace("    def handle(", "    async def handle("))


def events(found: Run) -> list[str]:
    return [f"{event.name}{event.fields[0][1]}" for event in found.effects.events]


def test_tasks_take_turns_in_the_order_of_their_start() -> None:
    found = run_async("self.spawn(self.work('a', 2))\nself.spawn(self.work('b', 1))\nself.emit('h', 0)")
    assert events(found) == ["h0", "a0", "b0", "a1", "bend", "aend"]


def test_a_task_does_not_run_before_its_starter_gives_its_turn_away() -> None:
    found = run_async("t = self.spawn(self.work('a', 0))\nself.emit('h', 1)\nawait t\nself.emit('h', 2)")
    assert events(found) == ["h1", "aend", "h2"]


def test_who_waits_goes_on_in_the_order_of_waiting() -> None:
    waiter = "async def waiter(self, name, task):\n    self.emit(name, await task)"
    body = "t = self.spawn(self.work('a', 3))\nfor n in 'xyz':\n    self.spawn(self.waiter(n, t))"
    assert events(run_async(body, waiter)) == ["a0", "a1", "a2", "aend", "xa", "ya", "za"]


def test_a_task_that_has_ended_is_not_waited_for() -> None:
    body = "t = self.spawn(self.work('a', 0))\nawait self.pause()\nself.spawn(self.work('b', 0))\nx = await t\nself.emit('h', x)"
    assert events(run_async(body)) == ["aend", "ha", "bend"]


def test_a_task_that_nobody_awaits_runs_to_its_end() -> None:
    assert events(run_async("self.spawn(self.work('a', 3))\nreturn 1")) == ["a0", "a1", "a2", "aend"]


def test_own_async_methods_are_awaited_in_the_same_task() -> None:
    assert events(run_async("self.spawn(self.work('b', 0))\nawait self.work('a', 0)\nself.emit('h', 1)")) == [
        "aend", "h1", "bend",
    ]  # fmt: skip


def test_where_one_task_fails_the_handler_does() -> None:
    bad = "async def bad(self):\n    await self.pause()\n    raise ActorError('why')"
    found = run_async(
        "self.set('k', 1)\nself.spawn(self.work('a', 5))\nself.spawn(self.bad())\nawait self.pause()", bad
    )
    assert found.error == "ActorError: why"
    assert not found.storage and not found.effects.events


@pytest.mark.parametrize(
    "body",
    [
        "l = []\nl.append(self.spawn(self.wait(l)))",
        "l = []\nl.append(self.spawn(self.wait(l)))\nawait l[0]",
        "l = []\nm = []\nl.append(self.spawn(self.wait(m)))\nm.append(self.spawn(self.wait(l)))\nself.spawn(self.work('a', 3))",
    ],
)
def test_tasks_that_wait_for_each_other_are_a_deadlock(body: str) -> None:
    assert run_async(body, "async def wait(self, tasks):\n    return await tasks[0]").error == "Deadlock"


def test_tasks_are_bounded_by_how_many_have_not_ended() -> None:
    most = MAX_TASKS - 1
    assert run_async(f"for i in range({most}):\n    self.spawn(self.work('a', 0))").error == ""
    assert run_async(f"for i in range({most + 1}):\n    self.spawn(self.work('a', 0))").error == "TooManyTasks"
    assert run_async(f"for i in range({3 * most}):\n    await self.spawn(self.work('a', 0))").error == ""


def test_waiting_costs_a_turn() -> None:
    one = run_async("t = self.spawn(self.work('a', 0))\nawait t")
    two = run_async("t = self.spawn(self.work('a', 0))\nawait t\nawait t")
    assert two.cycles - one.cycles == NODES[ast.Expr] + NODES[ast.Await] + TASK_TURN


def test_a_queue_that_failed_holds_nothing() -> None:
    queue = TaskQueue()

    async def bad() -> None:
        queue.start(forever())
        await queue.pause()
        raise ValueError

    async def forever() -> None:
        while True:
            await queue.pause()

    with pytest.raises(ValueError):  # noqa: PT011
        queue.run(bad())
    assert not queue._alive and not queue._ready


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=8))
def test_turns_are_those_of_a_plain_queue(drawn: list[tuple[int, int]]) -> None:
    """A model: the handler starts tasks, pausing in between; each task emits at each of its turns."""
    body = "".join(
        f"self.spawn(self.work('t{i}', {turns}))\n" + "await self.pause()\n" * pauses
        for i, (turns, pauses) in enumerate(drawn)
    )
    handler = [step for i, (turns, pauses) in enumerate(drawn) for step in [(i, turns), *[None] * pauses]]
    seen: list[str] = []
    ready: list[tuple[str, Iterator[Any]]] = [("handler", iter(handler))]
    while ready:
        name, steps = ready.pop(0)
        for step in steps:
            if step is None:
                ready.append((name, steps))
                break
            if name == "handler":
                number, turns = step
                ready.append((f"t{number}", iter([x for turn in range(turns) for x in (turn, None)])))
            else:
                seen.append(f"{name}{step}")
        else:
            seen += [f"{name}end"] if name != "handler" else []
    assert events(run_async(body + "pass")) == seen
