"""Worker threads: order, answers on the loop, errors, and what ends them. The journal's: many appends to one sync."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from cluster.disks.memory import MemoryDisk
from cluster.live.host.threads import JournalWriter, WorkerThread
from tests.hangs import HANGS_AFTER_S, bounded
from validator.node.events import Append, ReplaceJournal
from validator.storage.disk import DiskError
from validator.storage.journal import JOURNAL_FILE


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


class GatedDisk(MemoryDisk):
    """A disk whose syncs wait until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.fails = False

    def sync(self, name: str, written: int | None = None) -> None:
        assert self.gate.wait(HANGS_AFTER_S)
        if self.fails:
            raise DiskError(f"{name}: sync failed")
        super().sync(name, written)


class Written:
    """A writer and what it said."""

    def __init__(self, disk: GatedDisk) -> None:
        self.tokens: asyncio.Queue[int | None] = asyncio.Queue()
        self.crashes: asyncio.Queue[BaseException] = asyncio.Queue()
        self.writer = JournalWriter(disk, "test", self.tokens.put_nowait, self.crashes.put_nowait)


@bounded
async def test_appends_share_a_sync() -> None:
    disk = GatedDisk()
    written = Written(disk)
    for token in range(1, 101):
        written.writer.write(Append(token, b"%d," % token))
    assert not written.writer.idle
    disk.gate.set()
    assert [await written.tokens.get(), await written.tokens.get()] == [1, 100]
    assert disk.syncs == 2
    assert disk.read(JOURNAL_FILE) == b"".join(b"%d," % token for token in range(1, 101))
    assert written.writer.idle
    await written.writer.close()


@bounded
async def test_replacements_keep_their_place() -> None:
    disk = GatedDisk()
    written = Written(disk)
    operations: list[Append | ReplaceJournal]
    operations = [Append(1, b"a"), Append(2, b"b"), ReplaceJournal(b"C"), Append(3, b"d"), Append(4, b"e")]
    for operation in operations:
        written.writer.write(operation)
    disk.gate.set()
    await written.writer.close()
    assert [written.tokens.get_nowait(), written.tokens.get_nowait()] == [1, 4]
    assert disk.read(JOURNAL_FILE) == b"Cde"


@bounded
async def test_a_replacement_alone_has_no_token() -> None:
    disk = GatedDisk()
    disk.gate.set()
    written = Written(disk)
    written.writer.write(ReplaceJournal(b"x"))
    assert await written.tokens.get() is None
    await written.writer.close()


@bounded
async def test_nothing_is_written_after_a_failure() -> None:
    disk = GatedDisk()
    disk.fails = True
    disk.gate.set()
    written = Written(disk)
    written.writer.write(Append(1, b"a"))
    assert "sync failed" in str(await written.crashes.get())
    disk.fails = False
    written.writer.write(Append(2, b"b"))
    await written.writer.close()
    assert written.tokens.empty()
    assert disk.read(JOURNAL_FILE) == b"a"
