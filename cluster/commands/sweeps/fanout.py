"""Distribution of seeds over Ray: workers on all nodes take small batches, and return each result at once.

Seeds are not assigned beforehand: an idle worker gets the next batch, and the last batches have one seed. When a worker
or a node is lost, the seeds of its batch without a result run again elsewhere. The seed that was running in a worker
that died may be the cause. So it runs again in a batch alone; if its second worker dies too, that death is its result.
The loss of a node does not count against a seed, unless it happens to that seed repeatedly.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar

from cluster.commands.sweeps.seed_nodes import SeedNode, SeedNodes
from cluster.commands.sweeps.seed_pods import SeedPods
from cluster.commands.sweeps.worker import WORKER_MEMORY_MIB, Arriving, Finished, Run, run_batch
from cluster.common.errors import Crash
from cluster.common.interrupts import Interrupts
from cluster.live.driver.ray_session import STARTING_CPUS, RaySession, is_joining, one_line
from cluster.record.folder import seed_folder

POLL_S: Final = 0.2
MAX_BATCH: Final = 8
BATCHES_PER_WORKER: Final = 4
"""Divisor for batch sizes: the numbers still queued would make about this many batches of that size for each worker."""
MAX_UNREAD: Final = 16
"""Maximum number of pieces and answers of a worker that the driver has not read. At this limit the worker waits."""
MAX_DEATHS: Final = 2
"""A number is given up when this many workers died while they ran it."""
MAX_LOSSES: Final = 5
"""A number is given up when this many nodes were lost while they ran it."""
END_TIMEOUT_S: Final = 3.0
"""Time that workers get, after they were cancelled, to remove their temporary files."""
MIB: Final = 2**20
NO_FOLDER: Final = Path()
"""The folder that is passed when numbers leave no files."""

T = TypeVar("T")
Item = TypeVar("Item")


def default_workers() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


class Ended(NamedTuple):
    """The result of one number (for example a seed) whose run ended."""

    number: int
    result: Any
    seconds: float
    node: str
    """The name of the node; empty in a local Ray."""


@dataclass(slots=True)
class _Batch:
    """A batch of numbers that one worker runs one after the other."""

    node: SeedNode
    left: deque[int]
    """Numbers of the batch without an answer; the first of them is running."""
    arriving: Arriving = field(default_factory=Arriving)


@dataclass(slots=True)
class _Suspect:
    """A number whose worker died: it may have killed the worker, unless the worker's node turns out to be lost."""

    number: int
    node: SeedNode
    reason: str


@dataclass(frozen=True, slots=True)
class _Group(Generic[Item, T]):
    """A worker's task: the work on each of some items, by number. It leaves no files."""

    work: Callable[[Item], T]
    items: Sequence[Item]
    first: int

    def __call__(self, number: int, leaves: Path) -> T:
        return self.work(self.items[number - self.first])

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.items))


def run_each(
    work: Callable[[Item], T],
    items: Sequence[Item],
    workers: int | None,
    what: str,
    notice: Callable[[str], None] = lambda line: None,
    further: Iterable[Sequence[Item]] | None = None,
    on_death: Callable[[Item, str], T] | None = None,
) -> Generator[tuple[int, T], None, None]:
    """Call ``work`` for each item; yields the item's number, from 0 on, with its result as it ends.

    ``work`` must be picklable, and leaves no files. It is called in this process if there is one worker or one item,
    else over Ray, where a signal raises :class:`KeyboardInterrupt`. ``further`` are more items: each group is asked for
    once all results of the one before it were taken. ``on_death`` returns the result of an item whose workers died;
    without it that raises :class:`Crash`.
    """
    groups = _groups(work, chain([items], further or ()))
    limits = [workers or (len(items) if is_joining() else default_workers())]
    limits += [len(items)] if further is None else []
    if min(limits) == 1:
        yield from ((number, group(number, NO_FOLDER)) for group in groups for number in group.numbers)
        return
    begun: list[_Group[Item, T]] = []

    def rounds() -> Iterator[tuple[Run[T], range]]:
        for group in groups:
            begun.append(group)
            yield group, group.numbers

    def died(number: int, reason: str) -> T:
        assert on_death is not None
        return on_death(begun[-1].items[number - begun[-1].first], reason)

    with Interrupts() as interrupts:
        more, answer = rounds(), None if on_death is None else died
        fan_out = FanOut(
            *next(more), interrupts, NO_FOLDER, workers, what=what, notice=notice, on_death=answer, rounds=more
        )
        with closing(fan_out.results()) as ended:
            yield from ((number, result) for number, result, *_ in ended)


def _groups(work: Callable[[Item], T], groups: Iterable[Sequence[Item]]) -> Iterator[_Group[Item, T]]:
    first = 0
    for items in groups:
        yield _Group(work, items, first)
        first += len(items)


class FanOut:
    """Distributes numbers over Ray workers. :meth:`results` runs them; it can be called only once."""

    def __init__(
        self,
        run: Run[Any],
        numbers: Iterable[int],
        interrupts: Interrupts,
        folder: Path,
        workers: int | None = None,
        memory_mib: int = WORKER_MEMORY_MIB,
        what: str = "seed",
        notice: Callable[[str], None] = lambda line: None,
        on_death: Callable[[int, str], Any] | None = None,
        rounds: Iterable[tuple[Run[Any], Iterable[int]]] = (),
    ) -> None:
        """Prepare to call ``run(number, leaves)`` for each of ``numbers``.

        ``run`` must be picklable. It may create a folder ``leaves``, which ends up as ``<folder>/seed-<number>``.
        ``what`` names the numbers in errors. At most ``workers`` run at a time, each with ``memory_mib``. The default
        is a worker for each processor of this machine, or of the nodes of a cluster. ``on_death(number, reason)``
        returns the result of a number whose workers died. ``rounds`` are further groups of numbers, each with a
        separate ``run``; a round is requested once all results of the previous one were taken.
        """
        self._rounds: Iterator[tuple[Run[Any], Iterable[int]]] = chain([(run, ())], rounds)
        self._queue = deque(numbers)
        self._alone: deque[int] = deque()
        """Queued numbers that must each run in a batch alone."""
        self._interrupts = interrupts
        self._folder = folder
        self._workers = workers
        self._memory = memory_mib * MIB
        self._what = what
        self._notice = notice
        self._on_death = on_death or self._crash
        self._running: dict[Any, _Batch] = {}
        self._suspects: list[_Suspect] = []
        self._deaths: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()
        self._nodes: SeedNodes | None = None

    def _crash(self, number: int, reason: str) -> NoReturn:
        raise Crash(f"{self._what} {number} crashed: {reason}")

    def progress(self) -> list[str]:
        """The progress as text: a line for each node of a cluster. Empty before the run starts."""
        return [] if self._nodes is None else list(self._nodes.progress())

    def results(self) -> Generator[Ended, None, None]:
        """Run all numbers; yields each once, as it ends.

        A signal raises :class:`KeyboardInterrupt`. Running numbers are abandoned then, and when the iterator is closed.
        Raises :class:`Crash` if ``run`` raises, :class:`HarnessError` if no node is left, and
        :class:`~cluster.common.errors.BadInput` if no node can take part.
        """
        workers = self._workers if is_joining() else min(self._workers or default_workers(), len(self._queue))
        try:
            session = RaySession.start(workers or STARTING_CPUS)
        except SystemExit:
            raise KeyboardInterrupt from None  # Ray's own answer to a SIGTERM
        self._interrupts.install()
        try:
            pods = SeedPods(session)
            pods.wait_for_first(self._interrupts, self._notice)
            nodes = self._nodes = SeedNodes(session, workers, self._memory, self._interrupts, self._notice)
            nodes.open()
            task, shared = session.ray.remote(run_batch), session.ray.put(next(self._rounds)[0])
            while True:
                if not self._is_busy:
                    run = self._next_round()
                    if run is None:
                        break
                    shared = session.ray.put(run)
                self._interrupts.checkpoint()
                session.check()
                nodes.look()
                self._settle()
                yield from self._deaths_now()
                self._hand_out(session, nodes, task, shared)
                pods.keep(bool(self._queue or self._alone or self._suspects))
                yield from self._take(session)
        finally:
            self._abandon(session)
            session.close([])

    @property
    def _is_busy(self) -> bool:
        return bool(self._running or self._queue or self._alone or self._suspects)

    def _next_round(self) -> Run[Any] | None:
        """Queue the numbers of the next round, and return its function; ``None`` if no round is left."""
        for run, numbers in self._rounds:
            self._queue.extend(numbers)
            if self._queue:
                return run
        return None

    # --- work ---------------------------------------------------------------------------------------------------------

    def _hand_out(self, session: RaySession, nodes: SeedNodes, task: Any, shared: Any) -> None:
        folder = str(self._folder) if session.is_ours else None
        while (self._queue or self._alone) and (node := nodes.pick()) is not None:
            numbers = self._next_batch(nodes.slots)
            options = session.options_on(node.node.node_id) | {
                "num_cpus": 1,
                "memory": node.memory,
                "max_retries": 0,
                "num_returns": "streaming",
                "_generator_backpressure_num_objects": MAX_UNREAD,
            }
            stream = task.options(**options).remote(shared, numbers, folder, self._memory)
            self._running[stream] = _Batch(node, deque(numbers))
            node.busy += 1

    def _next_batch(self, slots: int) -> list[int]:
        if self._alone:
            return [self._alone.popleft()]
        size = max(1, min(MAX_BATCH, len(self._queue) // (BATCHES_PER_WORKER * slots)))
        return [self._queue.popleft() for _ in range(min(size, len(self._queue)))]

    def _take(self, session: RaySession) -> Iterator[Ended]:
        """Take one answer of a worker; nothing if none comes within a poll."""
        if not self._running:
            self._interrupts.wait(POLL_S)
            return
        ray = session.ray
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=POLL_S)
        for stream in ready:
            batch = self._running[stream]
            try:
                answer = ray.get(next(stream))
            except StopIteration:
                self._end(stream)
                self._give_back(batch, list(batch.left))  # none, unless the stream was cut off
            except ray.exceptions.RayTaskError as error:
                raise Crash(f"{self._what} {batch.left[0]} crashed: {one_line(error)}") from error
            except ray.exceptions.RayError as error:
                self._end(stream)
                self._lose_batch(batch, error, ray.exceptions)
            else:
                yield from self._take_answer(batch, answer, session.is_ours)

    def _take_answer(self, batch: _Batch, answer: bytes | Finished, is_ours: bool) -> Iterator[Ended]:
        if isinstance(answer, bytes):
            batch.arriving.add(answer)
            return
        number, result, seconds = Finished(*answer)
        batch.arriving.finish(self._folder / seed_folder(number))
        batch.left.remove(number)
        batch.node.done += 1
        batch.node.seconds += seconds
        yield Ended(number, result, seconds, "" if is_ours else batch.node.node.name)

    def _end(self, stream: Any) -> None:
        batch = self._running.pop(stream)
        batch.node.busy -= 1
        batch.arriving.drop()

    # --- losses -------------------------------------------------------------------------------------------------------

    def _lose_batch(self, batch: _Batch, error: Exception, errors: Any) -> None:
        """Handle the loss of a batch's worker, and perhaps of its node. Answers that it gave before count."""
        assert self._nodes is not None
        if not batch.left:
            return
        first, *others = batch.left
        self._give_back(batch, others)
        if isinstance(error, errors.OutOfMemoryError):
            self._suspects.append(_Suspect(first, batch.node, "Ray ended its worker, for the node had no memory left"))
        elif isinstance(error, errors.WorkerCrashedError):
            self._suspects.append(_Suspect(first, batch.node, "its worker died"))
        else:
            self._nodes.lose(batch.node, one_line(error).partition(". ")[0])
            self._suspects.append(_Suspect(first, batch.node, "its node was lost"))
        self._nodes.doubt(batch.node)

    def _give_back(self, batch: _Batch, numbers: list[int]) -> None:
        self._queue.extendleft(reversed(numbers))
        batch.node.returned += len(numbers)

    def _settle(self) -> None:
        """Decide for each suspect, if known by now, whether its worker died or its node was lost, and count that.

        A suspect below both limits is queued to run again alone.
        """
        for suspect in list(self._suspects):
            if suspect.node.is_lost:
                self._losses[suspect.number] += 1
            elif suspect.node.is_open:
                self._deaths[suspect.number] += 1
            else:
                continue
            if self._is_to_be_run_again(suspect.number):
                self._suspects.remove(suspect)
                self._alone.append(suspect.number)
                suspect.node.returned += 1

    def _is_to_be_run_again(self, number: int) -> bool:
        return self._deaths[number] < MAX_DEATHS and self._losses[number] < MAX_LOSSES

    def _deaths_now(self) -> Iterator[Ended]:
        """Yield the results of suspects that reached a limit of deaths or losses, and so are not run again."""
        for suspect in list(self._suspects):
            if self._is_to_be_run_again(suspect.number):
                continue
            self._suspects.remove(suspect)
            deaths, losses = self._deaths[suspect.number], self._losses[suspect.number]
            reason = f"{suspect.reason}, the last of {deaths} workers and {losses} nodes that were lost with it"
            name = suspect.node.node.name
            yield Ended(suspect.number, self._on_death(suspect.number, f"{reason} (node {name})"), 0.0, name)

    def _abandon(self, session: RaySession) -> None:
        """End all running tasks, so that nothing is left on any node."""
        if session.is_ours:
            return
        ray, deadline = session.ray, time.monotonic() + END_TIMEOUT_S
        for stream in self._running:
            with suppress(ray.exceptions.RayError):
                ray.cancel(stream)
        hanging = [stream for stream in self._running if not _ends(ray, stream, deadline)]
        for stream in hanging:  # do not end a task twice: Ray's own checks may fail then
            with suppress(ray.exceptions.RayError):
                ray.cancel(stream, force=True)


def _ends(ray: Any, stream: Any, deadline: float) -> bool:
    """Whether a cancelled stream ends before the deadline, in monotonic seconds."""
    try:
        while ray.wait([stream], timeout=max(0.0, deadline - time.monotonic()))[0]:
            ray.get(next(stream))
    except (ray.exceptions.RayError, StopIteration):
        return True
    return False
