"""The thread of one validator's executor: runs its jobs in FIFO order, and pages between them."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.disks.bit_rot import FINALS_SINCE_ROT, may_rot
from cluster.live.threads.worker_thread import WorkerThread
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import Finalize, Job, JobResult, ReadBlocks, ReadSnapshot
from validator.storage.disk import Disk

MAX_READS_WAITING: Final = 64
"""Limit of jobs that read for peers; further ones find nothing, and the peers ask another validator."""
MAX_PAGES_AT_ONCE: Final = 2
"""Limit of pages in the thread's queue, for which a job waits. Others wait outside the queue."""

T = TypeVar("T")


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
