"""The threads of a validator, which do work for its event loop and return the results to it: its executor and its
journal.

``asyncio`` has ``run_in_executor`` for this. It makes two futures and several locks per task, which takes longer than
most tasks of a validator among many. Here a task costs one queue entry on the way there; on the way back the loop wakes
up once for all tasks of all threads that ended since the last time.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.disks.bit_rot import FINALS_SINCE_ROT, may_rot
from validator.node.events import Append, ReplaceJournal
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import Finalize, Job, JobResult, ReadBlocks, ReadSnapshot
from validator.storage.disk import Disk
from validator.storage.journal import JOURNAL_FILE

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


MAX_READS_WAITING: Final = 64
"""Limit of jobs that read for peers; further ones find nothing, and the peers ask another validator."""
MAX_PAGES_AT_ONCE: Final = 2
"""Limit of pages in the thread's queue, for which a job waits. Others wait outside the queue."""


class Done(NamedTuple):
    """A job that ended, with its measurements."""

    result: JobResult
    seconds: float
    """Wall-clock time of the job, with the time by which a fault prolongs it."""
    fire_delays: Sequence[int]
    """For each fire of a block that became final, the blocks since its trigger height."""
    core_seconds: float = 0.0
    """Processor time of the job."""
    block_sizes: tuple[int, int] = (0, 0)
    """Transactions and fires of the block that was built, executed or made final; zeros for other jobs."""
    waited_seconds: float = 0.0
    """Time from when the job was given to an idle thread until it began."""
    ended_s: float = 0.0
    """When the job ended, by :func:`time.monotonic`."""


class ExecutorThread:
    """The thread of one validator's executor.

    ``on_result`` gets each job's result on the loop, ``on_crash`` the error that ended a job.
    """

    def __init__(
        self,
        name: str,
        usual_job_ms: int,
        rotting: Disk | None,
        on_result: Callable[[Job, Done], None],
        on_crash: Callable[[BaseException], None],
        sleep: Callable[[float], None],
    ) -> None:
        """A job takes at least ``usual_job_ms``. The disk ``rotting`` has its file sizes noted at each final block."""
        self.slow_jobs = 0
        """Number of jobs that a fault has slowed down."""
        self.seconds = 0.0
        """Processor time of the jobs."""
        self._usual_job_ms = self._job_ms = usual_job_ms
        self._rotting = rotting
        self._on_result = on_result
        self._on_crash = on_crash
        self._sleep = sleep
        self._thread = WorkerThread(f"executor {name}")
        self._jobs_running = 0
        self._reads_waiting = 0
        self._pages_at_once = asyncio.Semaphore(MAX_PAGES_AT_ONCE)
        self._file_sizes: deque[dict[str, int]] = deque(maxlen=FINALS_SINCE_ROT + 1)
        """File sizes after each of the last final blocks."""

    @property
    def is_idle(self) -> bool:
        """Whether no job runs or waits."""
        return self._jobs_running == 0

    @property
    def is_full_of_reads(self) -> bool:
        return self._reads_waiting >= MAX_READS_WAITING

    def slow_down(self, job_ms: int | None) -> None:
        """From now on a job takes at least ``job_ms``, but not less than the usual minimum; ``None`` means that one."""
        self._job_ms = max(job_ms or 0, self._usual_job_ms)

    def run(self, executor: Executor, job: Job) -> None:
        given_s = math.inf if self._jobs_running else time.monotonic()
        self._jobs_running += 1
        self._reads_waiting += isinstance(job, ReadBlocks | ReadSnapshot)
        self._thread.run(partial(self._work, executor, job, given_s), partial(self._ran, job))

    async def call(self, work: Callable[[], T]) -> T:
        return await self._thread.call(work)

    async def read(self, read: Callable[[], T]) -> T:
        """Read a page on the thread. The next job waits for at most :data:`MAX_PAGES_AT_ONCE` pages."""
        async with self._pages_at_once:
            return await self.call(read)

    def old_file_sizes(self) -> dict[str, int]:
        """Sizes in bytes that files had :data:`FINALS_SINCE_ROT` final blocks ago, but at most their current sizes.

        Empty if fewer blocks were noted so far.
        """
        if len(self._file_sizes) <= FINALS_SINCE_ROT:
            return {}
        newest = self._file_sizes[-1]
        return {name: min(size, newest.get(name, 0)) for name, size in self._file_sizes[0].items()}

    def close(self) -> None:
        self._thread.close()

    def _work(self, executor: Executor, job: Job, given_s: float) -> Done:
        """Run a job, on the thread. ``given_s`` is when it was given to the idle thread; infinite if that was busy."""
        at_s = time.monotonic()
        if job_ms := self._job_ms:
            self.slow_jobs += job_ms != self._usual_job_ms
            self._sleep(job_ms / MILLISECONDS_PER_SECOND)
        began = time.thread_time()
        delays = executor.fire_delays(job.digest) if isinstance(job, Finalize) else ()
        result = executor.run(job)
        core_seconds = time.thread_time() - began
        self.seconds += core_seconds
        ended_s, sizes = time.monotonic(), executor.sizes_of(result)
        if self._rotting is not None and isinstance(job, Finalize):
            self._file_sizes.append({name: self._rotting.size(name) for name in self._rotting.names() if may_rot(name)})
        return Done(result, ended_s - at_s, delays, core_seconds, sizes, max(0.0, at_s - given_s), ended_s)

    def _ran(self, job: Job, result: Done | None, error: BaseException | None) -> None:
        if result is None:
            assert error is not None
            self._on_crash(error)
            return
        self._jobs_running -= 1
        self._reads_waiting -= isinstance(job, ReadBlocks | ReadSnapshot)
        self._on_result(job, result)


Operation = Append | ReplaceJournal


class JournalWriter:
    """Writes one validator's journal, many appends per sync.

    Operations are done strictly in order. While a batch is being written, new operations collect into the next one, so
    under load the number of syncs depends on the disk's speed, not on the number of appends (group commit).

    ``on_written`` is called on the loop after each batch, with the highest token that became durable. The token is
    ``None`` if the batch only replaced the journal. After a failure, which goes to ``on_crash``, it is unknown what was
    written, and nothing is written any more.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        on_written: Callable[[int | None], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.on_timed: Callable[[float], None] = lambda _: None
        """Called on the loop with the seconds from the beginning of each batch until its answer is handled."""
        self._began_s = 0.0
        self._disk = disk
        self._on_written = on_written
        self._on_crash = on_crash
        self._thread = WorkerThread(f"journal {name}")
        self._waiting: list[Operation] = []
        self._is_writing = False
        self._broken = False

    @property
    def idle(self) -> bool:
        """Whether every operation is durable and answered."""
        return not self._is_writing

    def write(self, operation: Operation) -> None:
        """Queue an operation; returns at once."""
        self._waiting.append(operation)
        if not self._is_writing and not self._broken:
            self._write_next()

    async def close(self) -> None:
        """End once every operation is written. No operation may be queued afterwards."""
        while self._is_writing:
            await self._thread.call(lambda: None)  # ends after the batch under way
        self._thread.close()

    def _write_next(self) -> None:
        batch, self._waiting = self._waiting, []
        self._is_writing, self._began_s = True, time.monotonic()
        self._thread.run(partial(self._write, batch), self._written)

    def _written(self, token: int | None, error: BaseException | None) -> None:
        self._is_writing = False
        if error is not None:
            self._broken = True
            self._on_crash(error)
            return
        began_s = self._began_s
        if self._waiting:
            self._write_next()
        self._on_written(token)
        self.on_timed(time.monotonic() - began_s)

    def _write(self, batch: list[Operation]) -> int | None:
        """Perform a batch, on the thread; returns the highest token that became durable."""
        token = None
        for is_append, group in groupby(batch, key=lambda operation: isinstance(operation, Append)):
            operations = list(group)
            data = b"".join(operation.data for operation in operations)
            if is_append:
                self._disk.append(JOURNAL_FILE, data)
                self._disk.sync(JOURNAL_FILE)
                token = max(operation.token for operation in operations if isinstance(operation, Append))
            else:
                self._disk.replace(JOURNAL_FILE, operations[-1].data)
        return token
