"""One simulated machine: a real validator on a disk of memory, driven in virtual time.

It performs the same effects as a live host does. Jobs of the executor run one at a time, each at the moment at which
it is done; a crash meanwhile lets it come as far as some change of the disk, drawn, and nobody hears of it. Appends
reach the disk at once and become durable when their sync is done. A crash ends the incarnation: whatever was scheduled
for it before is not delivered any more.

A machine that is paused does nothing: what happens to it waits, in order, until it goes on. A machine whose disk fails
stops at once, as a crash does, and whoever runs the simulation is told why.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from cluster.misbehaviour.byzantine.registry import ByzantineValidator
from cluster.record.status import Tally, status_page
from cluster.simulation.clock import VirtualClock
from validator.chain.messages import Reading
from validator.node.assembly import Validator
from validator.node.events import (
    Append,
    BlockFinal,
    CancelTimer,
    Certified,
    Completed,
    Diverged,
    Dropped,
    Effect,
    Event,
    EvidenceFound,
    Joined,
    Message,
    PeerFault,
    ReplaceJournal,
    Reply,
    Run,
    Send,
    SetTimer,
    Started,
    Submit,
    Synced,
    Timeout,
    TimerName,
    TransactionDropped,
    TransactionRefused,
)
from validator.node.executor import Build, Execute, Job, JobResult
from validator.node.joining import SnapshotJoin, has_joined
from validator.primitives.types import ValidatorError
from validator.storage.journal import JOURNAL_FILE

SYNC_US: Final = 1 * MICROSECONDS_PER_MILLISECOND
"""How long an fsync takes."""
JOB_US: Final = 1 * MICROSECONDS_PER_MILLISECOND
"""How long an executor's job takes."""
JOB_OPERATIONS: Final = 8
"""About as many changes of the disk as finalizing makes: a block is archived, and its state committed."""
MAX_HELD_MESSAGES: Final = 10_000
"""Messages that wait for a paused machine; what comes then is lost."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a machine's own work takes while no fault slows it down."""

    sync_us: int = SYNC_US
    job_us: int = JOB_US
    clock_speed: float = 1.0
    """How fast its clock runs: at 2, timers expire after half the time."""


class _Armed(NamedTuple):
    """A timer that runs."""

    number: int
    expires_us: int


@dataclass(slots=True)
class Machine:
    """One validator's machine."""

    index: int
    name: str
    clock: VirtualClock
    boot: Callable[[MemoryDisk], Validator]
    """Opens the validator on a disk."""
    send: Callable[[int, int | None, bytes], None]
    """``send(sender, recipient, payload)``."""
    observe: Callable[[int, Effect], None]
    """Told of effects that are for observers."""
    join: Callable[[MemoryDisk], SnapshotJoin] | None = None
    """Of a machine that begins without state: what makes its disk one that can be booted from."""
    failed: Callable[[int, ValidatorError], None] | None = None
    """Told why a machine stopped by itself, once it did. Where nobody wants to be told, the failure is raised."""
    starts: Callable[[int], None] | None = None
    """Told the index of a machine that is about to start."""
    entered: Callable[[int, int], None] | None = None
    """``entered(index, view)`` is told when the validator is in another view than before."""
    opened: Callable[[int], None] | None = None
    """Told the index of a machine whose validator has opened what its disk held, at every start but after a join."""
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    tally: Tally = field(default_factory=lambda: Tally(starts=0))
    validator: Validator | None = None
    """``None`` while the machine is down."""
    joining: SnapshotJoin | None = None
    """While the machine joins by a snapshot."""
    byzantine: ByzantineValidator | None = None
    """What is put around the validator where it breaks the protocol on purpose."""
    incarnation: int = 0
    is_paused: bool = False
    pace: Pace = Pace()
    sync_us: int = field(init=False)
    job_us: int = field(init=False)
    clock_speed: float = field(init=False)
    view: int = 0
    """The view that it was told to be in last."""
    delays: Counter[str] = field(default_factory=Counter)
    """What was late because of a fault of the machine, by the fault's kind: held events, slow syncs …"""
    lost_while_paused: int = 0
    _held: deque[Callable[[], None]] = field(default_factory=deque)
    _held_messages: int = 0
    _own_us: float = 0.0
    """What its own clock said when it began to run at its present speed."""
    _own_since_us: int = 0
    """When that was."""
    _timers: dict[TimerName, _Armed] = field(default_factory=dict)
    _timer_number: int = 0
    _jobs: deque[Job] = field(default_factory=deque)
    _has_job_run: bool = False
    """Whether the first of the jobs has run and only waits for a slow disk."""
    _journal_busy_until_us: int = 0

    def __post_init__(self) -> None:
        self.sync_us, self.job_us = self.pace.sync_us, self.pace.job_us
        self.clock_speed = self.pace.clock_speed

    @property
    def state_word(self) -> str:
        """What it is, in a word, for whoever looks on."""
        if self.validator is None:
            return "down" if self.joining is None else "joining"
        if self.is_paused:
            return "paused"
        return "up" if self.validator.node.diverged is None else "diverged"

    @property
    def own_ms(self) -> float:
        """What its own clock says, by which its timers expire."""
        passed_us = self.clock.now_us - self._own_since_us
        return (self._own_us + passed_us * self.clock_speed) / MICROSECONDS_PER_MILLISECOND

    @property
    def is_up(self) -> bool:
        return self.validator is not None

    @property
    def is_running(self) -> bool:
        """Up, or joining."""
        return self.is_up or self.joining is not None

    def start(self) -> None:
        """Boot from the disk, once it has state, and begin."""
        self.tally.starts += 1
        if self.starts is not None:
            self.starts(self.index)
        with self._stopping_where_the_disk_fails():
            if self.join is not None and not has_joined(self.disk):
                self.joining = self.join(self.disk)
                self.tally.chunks = self.joining.chunks
            else:
                self.validator = self.boot(self.disk)
        self.deliver(Started())
        if self.opened is not None and self.validator is not None:
            self.opened(self.index)

    def crash(self, random: Random, scattered: bool = False) -> None:
        """Stop at once, a job that is under way in its middle; what was not synced is lost, in part
        (:meth:`MemoryDisk.crash`)."""
        self._break_off_job(random)
        self._stop()
        self.disk.crash(random, scattered)

    def shut_down(self) -> None:
        """Stop in good order: everything that was written is there at the next start."""
        self._stop()

    def _break_off_job(self, random: Random) -> None:
        if self.validator is None or not self._jobs or self._has_job_run or self.disk.plan is not None:
            return
        self.disk.plan = FaultPlan(self.disk.operations + random.randint(1, JOB_OPERATIONS), crash=True)
        with suppress(SimulatedCrash, ValidatorError):
            self.validator.executor.run(self._jobs[0])
        self.disk.plan = None

    def pause(self) -> None:
        """Stand still."""
        self.is_paused = True

    def go_on(self) -> None:
        """Do all that waited while the machine was paused, in the order in which it came."""
        self.is_paused = False
        held, self._held, self._held_messages = self._held, deque(), 0
        for call in held:
            call()

    def _stop(self) -> None:
        if self.validator is not None:
            self.validator.executor.close()
        self.validator = self.joining = None
        self._end_incarnation()

    @contextmanager
    def _stopping_where_the_disk_fails(self) -> Iterator[None]:
        """An expected failure, of the disk or of what is on it, ends the incarnation and is told."""
        try:
            yield
        except ValidatorError as error:
            self._fail(error)

    def _fail(self, error: ValidatorError) -> None:
        if self.failed is None:
            raise error
        self._stop()
        self.failed(self.index, error)

    def _end_incarnation(self) -> None:
        """Nothing that was scheduled so far is delivered any more."""
        self.incarnation += 1
        self._timers.clear()
        self._jobs.clear()
        self._has_job_run = False
        self._journal_busy_until_us = 0
        self._held.clear()
        self._held_messages = 0

    def deliver(self, event: Event) -> None:
        """Give the node an event and perform what follows: now, or when the machine is not paused any more."""
        if self.is_paused:
            self._hold(lambda: self.deliver(event), isinstance(event, Message))
            return
        try:
            if self.joining is not None:
                self._deliver_to_join(event, self.joining)
            elif self.validator is not None:
                around, bare = self.byzantine, self.validator
                for effect in bare.node.handle(event) if around is None else around.handle(bare, event):
                    self._perform(effect)
                if bare.node.view != self.view:
                    self._enter_view(bare.node.view)
        except ValidatorError as error:
            self._fail(error)

    def _enter_view(self, view: int) -> None:
        self.view = view
        if self.entered is not None:
            self.entered(self.index, view)

    def _hold(self, call: Callable[[], None], is_message: bool) -> None:
        if not self.is_running:
            return
        if is_message and self._held_messages >= MAX_HELD_MESSAGES:
            self.lost_while_paused += 1
            return
        self.delays["pause"] += 1
        self._held_messages += is_message
        self._held.append(call)

    def _deliver_to_join(self, event: Event, joining: SnapshotJoin) -> None:
        for effect in joining.handle(event):
            self._perform(effect)
        if joining.is_done:
            self.joining = None
            self._end_incarnation()
            self.validator = self.boot(self.disk)
            self.deliver(Started())

    def submit(self, request: int, transactions: tuple[bytes, ...]) -> None:
        """A client's transactions arrive."""
        self.deliver(Submit(request, transactions))

    def receive(self, sender: int, payload: bytes, content: Reading | None = None) -> None:
        """A peer's message arrives, with what it says where that was read already."""
        self.deliver(Message(sender, payload, content))

    def status(self) -> dict[str, Any] | None:
        """The status page, or ``None`` while the machine is down."""
        if self.validator is None:
            return None
        process = {"pid": None, "hash_seed": None}
        return status_page(self.name, self.index, self.validator, self.tally, [], process)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(recipient, payload):
                self.send(self.index, recipient, payload)
            case SetTimer(timer, delay_ms):
                self._set_timer(timer, delay_ms)
            case CancelTimer(timer):
                self._timers.pop(timer, None)
            case Run(job):
                self._enqueue(job)
            case Append(token, data):
                self._append(token, data)
            case ReplaceJournal(data):
                self._replace_journal(data)
            case Dropped() | EvidenceFound():
                self.tally.note(effect)
            case BlockFinal() | Diverged() | TransactionRefused() | TransactionDropped() | PeerFault():
                self.tally.note(effect)
                self.observe(self.index, effect)
            case Reply() | Certified() | Joined():
                self.observe(self.index, effect)

    def _later(self, delay_us: int, label: str, content: bytes, call: Callable[[], None]) -> None:
        """Schedule for this incarnation only."""
        incarnation = self.incarnation

        def run() -> None:
            if self.incarnation != incarnation:
                return
            if self.is_paused:
                self._hold(run, False)
                return
            try:
                call()
            except ValidatorError as error:
                self._fail(error)

        self.clock.after(delay_us, f"{self.index} {label}", content, run)

    def _set_timer(self, timer: TimerName, delay_ms: int) -> None:
        delay_us = delay_ms * MICROSECONDS_PER_MILLISECOND
        if self.clock_speed != 1.0:
            delay_us = round(delay_us / self.clock_speed)
            self.delays["clock_skew"] += self.clock_speed != self.pace.clock_speed
        self._arm(timer, delay_us)

    def _arm(self, timer: TimerName, delay_us: int) -> None:
        self._timer_number += 1
        armed = self._timers[timer] = _Armed(self._timer_number, self.clock.now_us + delay_us)

        def expire() -> None:
            if self._timers.get(timer) == armed:
                del self._timers[timer]
                self.deliver(Timeout(timer))

        self._later(delay_us, f"timer {timer.owner} {timer.number}", b"", expire)

    def set_clock_speed(self, speed: float) -> None:
        """Let the clock run at another speed from now on; what is left of the timers that run does so too."""
        own_us = self.own_ms * MICROSECONDS_PER_MILLISECOND
        self._own_us, self._own_since_us = own_us, self.clock.now_us
        before, self.clock_speed = self.clock_speed, speed
        if speed == before:
            return
        for timer, armed in list(self._timers.items()):
            left_us = max(0, armed.expires_us - self.clock.now_us)
            self._arm(timer, round(left_us * before / speed))

    def _append(self, token: int, data: bytes) -> None:
        self.disk.append(JOURNAL_FILE, data)
        written = self.disk.written(JOURNAL_FILE)

        def synced() -> None:
            self.disk.sync(JOURNAL_FILE, written)
            self.deliver(Synced(token))

        self._note_slow_syncs(1)
        waits_us = max(0, self._journal_busy_until_us - self.clock.now_us)
        self._later(waits_us + self.sync_us, f"sync {token}", data, synced)

    def _replace_journal(self, data: bytes) -> None:
        """Whatever is appended then waits behind it, on a disk whose syncs take long."""
        self.disk.replace(JOURNAL_FILE, data)
        if extra_us := self._extra_us(1):
            self._journal_busy_until_us = max(self._journal_busy_until_us, self.clock.now_us) + extra_us

    def _extra_us(self, syncs: int) -> int:
        """How much longer so many syncs take here than on a usual disk."""
        self._note_slow_syncs(syncs)
        return syncs * max(0, self.sync_us - SYNC_US)

    def _note_slow_syncs(self, syncs: int) -> None:
        if self.sync_us != self.pace.sync_us:
            self.delays["slow_disk"] += syncs

    def _enqueue(self, job: Job) -> None:
        if isinstance(job, Build | Execute):
            self.observe(self.index, Run(job))
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._schedule_job()

    def _schedule_job(self) -> None:
        self.delays["slow_execution"] += self.job_us != self.pace.job_us
        self._later(self.job_us, f"job {type(self._jobs[0]).__name__}", b"", self._run_job)

    def _run_job(self) -> None:
        assert self.validator is not None
        before = self.disk.syncs
        result = self.validator.executor.run(self._jobs[0])
        self._has_job_run = True
        if extra_us := self._extra_us(self.disk.syncs - before):
            self._later(extra_us, f"syncs of job {type(self._jobs[0]).__name__}", b"", lambda: self._end_job(result))
        else:
            self._end_job(result)

    def _end_job(self, result: JobResult) -> None:
        self._jobs.popleft()
        self._has_job_run = False
        if self._jobs:
            self._schedule_job()
        self.deliver(Completed(result))
