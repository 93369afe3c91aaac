"""Worker threads: order, answers on the loop, errors, and what ends them."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from cluster.live.threads.worker_thread import WorkerThread
from tests.hangs import bounded


def divide(by: int) -> float:
    return 1 / by


@bounded
async def test_work_and_answers_keep_their_order() -> None:
    threads = [WorkerThread(f"worker {number}") for number in range(3)]
    worked: list[list[int]] = [[], [], []]
    answered: list[list[int]] = [[], [], []]
    for piece in range(200):
        for number, thread in enumerate(threads):

            def work(number: int = number, piece: int = piece) -> int:
                worked[number].append(piece)
                return piece

            def answer(piece: int | None, _error: Any, number: int = number) -> None:
                assert piece is not None and threading.current_thread() is threading.main_thread()
                answered[number].append(piece)

            thread.run(work, answer)
    for thread in threads:
        assert await thread.call(threading.current_thread) is not threading.main_thread()
    assert worked == answered == [list(range(200))] * 3
    for thread in threads:
        thread.close()


@bounded
async def test_an_error_goes_to_the_caller() -> None:
    thread = WorkerThread("worker")
    answers: list[tuple[float | None, BaseException | None]] = []
    thread.run(partial(divide, 0), lambda result, error: answers.append((result, error)))
    with pytest.raises(ZeroDivisionError):
        await thread.call(partial(divide, 0))
    assert await thread.call(partial(divide, 2)) == 0.5
    [(result, error)] = answers
    assert result is None and isinstance(error, ZeroDivisionError)
    thread.close()


@bounded
async def test_an_answer_that_raises_costs_no_other() -> None:
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    thread = WorkerThread("worker")
    gate = threading.Event()
    answered: list[int] = []

    def answer(piece: int | None, _error: Any) -> None:
        assert piece is not None
        answered.append(piece)
        if piece == 1:
            raise ValueError("the answer")

    thread.run(gate.wait, lambda *_: None)
    for piece in range(4):
        thread.run(lambda piece=piece: piece, answer)  # type: ignore[misc]
    gate.set()
    await thread.call(lambda: None)
    assert answered == [0, 1, 2, 3]
    assert [str(error) for error in reported] == ["the answer"]
    thread.close()


@bounded
async def test_a_closed_thread_has_done_all() -> None:
    thread = WorkerThread("worker")
    done: list[int] = []
    for piece in range(100):
        thread.run(partial(done.append, piece), lambda *_: None)
    thread.close()
    assert done == list(range(100))
    assert not [each for each in threading.enumerate() if each.name == "worker"]


@bounded
async def test_a_caller_that_is_gone_gets_no_answer() -> None:
    thread = WorkerThread("worker")
    gate = threading.Event()
    call = asyncio.create_task(thread.call(gate.wait))
    assert await asyncio.wait({call}, timeout=0) == (set(), {call})
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
    assert await thread.call(lambda: 7) == 7
    thread.close()


def test_answers_for_a_closed_loop_are_dropped() -> None:
    gate = threading.Event()
    made: list[WorkerThread] = []

    @bounded
    async def make() -> None:
        made.append(WorkerThread("worker"))
        made[0].run(gate.wait, lambda *_: None)

    make()
    gate.set()
    made[0].close()
