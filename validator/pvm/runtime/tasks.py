"""The tasks of one handler's run. They take turns on one thread, strictly first in, first out (SPEC §14, seed 004).

The handler itself is the first task. A task runs until it ends, pauses, or waits for one that has not ended; then the
task that has been ready for longest continues. Tasks that wait for one become ready when it ends, in the order of
waiting. Nothing else affects the order. The handler ends when its last task ends; if all remaining tasks wait for each
other, it fails as ``Deadlock``; if one task fails, the handler does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Generator

from validator.primitives.limits import MAX_TASKS
from validator.pvm.runtime.operations import Value, fault, refuse

Work = Coroutine["Task | None", None, Value]


class Task:
    """A task's handle in programs; it can only be awaited."""

    __slots__ = ("has_ended", "result", "waiting", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.result: Value = None
        self.has_ended = False
        self.waiting: list[Task] = []


class _Suspension:
    """An awaitable with which a task gives up its turn. It passes the queue the task to wait for, or ``None``."""

    __slots__ = ("_awaited",)

    def __init__(self, awaited: Task | None) -> None:
        self._awaited = awaited

    def __await__(self) -> Generator[Task | None, None, None]:
        yield self._awaited


class TaskQueue:
    """The tasks of one run of a handler."""

    def __init__(self) -> None:
        self._ready: deque[Task] = deque()
        self._alive: dict[Task, None] = {}

    def start(self, work: Work) -> Task:
        """A new task, which gets its first turn after all that are ready."""
        if len(self._alive) >= MAX_TASKS:
            work.close()
            fault("TooManyTasks", f"at most {MAX_TASKS} at a time")
        task = Task(work)
        self._alive[task] = None
        self._ready.append(task)
        return task

    async def pause(self) -> None:
        """Let all other ready tasks run first."""
        await _Suspension(None)

    async def wait(self, task: Value) -> Value:
        """The value that a task returned, once it has ended."""
        if task.__class__ is not Task:
            refuse(task, "a task to wait for")
        if not task.has_ended:
            await _Suspension(task)
        return task.result

    def run(self, work: Work) -> None:
        """Run a handler, and every task that it starts, to the end of the last one."""
        self.start(work)
        try:
            while self._ready:
                self._turn(self._ready.popleft())
            if self._alive:
                fault("Deadlock", "all tasks wait for each other")
        finally:
            self.close()

    def _turn(self, task: Task) -> None:
        try:
            awaited = task.work.send(None)
        except StopIteration as ended:
            task.result, task.has_ended = ended.value, True
            del self._alive[task]
            self._ready.extend(task.waiting)
            return
        if awaited is None:
            self._ready.append(task)
        else:
            awaited.waiting.append(task)

    def close(self) -> None:
        """Drop the remaining tasks of a handler that failed."""
        for task in list(self._alive):
            task.work.close()
        self._alive.clear()
        self._ready.clear()
