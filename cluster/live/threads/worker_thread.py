"""A thread that does work for an event loop, one task after the other.

``asyncio`` has ``run_in_executor`` for this. It makes two futures and several locks per task, which takes longer than
most tasks of a validator among many. Here a task costs one queue entry on the way there; on the way back the loop wakes
up once for all tasks of all threads that ended since the last time.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

Answer = Callable[[T | None, BaseException | None], None]
"""Receives the result or the exception of a task. Called on the loop."""


class WorkerThread:
    """One thread, started at once. Belongs to the loop on which it was made."""

    def __init__(self, name: str) -> None:
        self._loop_answers = _answers_of(asyncio.get_running_loop())
        self._work: SimpleQueue[tuple[Callable[[], Any], Answer[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T], answer: Answer[T]) -> None:
        """Do the work after all earlier work; then call ``answer(result, error)`` on the loop."""
        self._work.put((work, answer))

    async def call(self, work: Callable[[], T]) -> T:
        """Do the work after all earlier work; returns its result or raises its error."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answer(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.run(work, answer)
        return await future

    def close(self) -> None:
        """Wait for the queued work, and end the thread. No work may be queued afterwards."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        answers, next_piece = self._loop_answers, self._work.get
        while (piece := next_piece()) is not None:
            work, answer = piece
            try:
                answers.add(answer, work(), None)
            except BaseException as error:  # noqa: BLE001 - the caller's, whatever it is
                answers.add(answer, None, error)


class _LoopAnswers:
    """The queue of answers from the threads of a loop to the loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Answer[Any], Any, BaseException | None]] = deque()
        self._is_told = False

    def add(self, answer: Answer[Any], result: Any, error: BaseException | None) -> None:
        """Queue an answer, which the loop then calls. May be called on any thread.

        Once the loop is closed, answers are dropped.
        """
        self._waiting.append((answer, result, error))
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._give)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise

    def _give(self) -> None:
        # an answer that is added from here on wakes the loop again
        self._is_told = False
        waiting = self._waiting
        try:
            for _ in range(len(waiting)):
                answer, result, error = waiting.popleft()
                answer(result, error)
        finally:
            if waiting and not self._is_told:  # an answer raised, which the loop reports; the others are not lost
                self._is_told = True
                self._loop.call_soon(self._give)


_BY_LOOP: WeakValueDictionary[asyncio.AbstractEventLoop, _LoopAnswers] = WeakValueDictionary()
"""Answers keyed by loop, as long as a thread of the loop exists."""


def _answers_of(loop: asyncio.AbstractEventLoop) -> _LoopAnswers:
    return _BY_LOOP.setdefault(loop, _LoopAnswers(loop))
