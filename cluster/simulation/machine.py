"""One simulated machine: a real validator on a disk in memory, driven in virtual time.

It performs the same effects as a live host. The executor's jobs run one at a time; each takes effect when it is done.
If a crash comes first, the job stops at a random change of the disk, and its result is lost. Appends reach the disk at
once and become durable when their sync is done. A crash ends the incarnation and drops the events scheduled for it.

A paused machine does nothing: its events wait, in order, until it continues. A machine whose disk fails stops at once,
as in a crash, and reports the reason to the driver.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from cluster.record.status import Counted, Tally, status_page
from cluster.scenario.node_setup import Pace
from cluster.scenario.sections.faults import Release
from cluster.simulation.clock import OwnClock, VirtualClock
from consensus.messages import Vote
from validator.chain.messages import Reading
from validator.node.assembly import Validator
from validator.node.events import (
    Append,
    CancelTimer,
    Completed,
    Effect,
    Event,
    Message,
    ReplaceJournal,
    Run,
    Send,
    SetTimer,
    Started,
    Submit,
    Synced,
    Timeout,
    TimerName,
)
from validator.node.executor.jobs import Finalize, Job, JobResult
from validator.node.snapshot_join import SnapshotJoin, has_joined
from validator.primitives.types import ValidatorError
from validator.storage.journal import JOURNAL_FILE

if TYPE_CHECKING:
    from cluster.misbehaviour.byzantine.registry import ByzantineValidator

USUAL_PACE: Final = Pace(sync_ms=1, job_ms=1)
JOB_OPERATIONS: Final = 8
"""Approximately the number of disk changes of a finalization, which archives a block and commits its state."""
COUNTED: Final = frozenset(get_args(Counted))
MAX_HELD_MESSAGES: Final = 10_000
"""Maximum number of messages that wait for a paused machine; later ones are lost."""


class _Held:
    """The calls that wait for a paused machine, in order of arrival."""

    def __init__(self) -> None:
        self.lost = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._messages = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Callable[[], None], is_message: bool) -> bool:
        """Queue a call. Returns ``False``, and drops it, if it is a message and too many messages wait already."""
        if is_message and self._messages >= MAX_HELD_MESSAGES:
            self.lost += 1
            return False
        self._messages += is_message
        self._calls.append(call)
        return True

    def take_all(self) -> Iterable[Callable[[], None]]:
        """Remove and return all calls."""
        calls, self._calls, self._messages = self._calls, deque(), 0
        return calls


@dataclass(slots=True)
class Listeners:
    """The functions that are called with what happens on one machine, by kind: the methods of its observers
    (:class:`cluster.simulation.observer.Observer`, which says when each is called)."""

    starts: tuple[Callable[[Machine], None], ...] = ()
    opens: tuple[Callable[[Machine], None], ...] = ()
    stops: tuple[Callable[[Machine, bool], None], ...] = ()
    pauses: tuple[Callable[[Machine], None], ...] = ()
    goes_on: tuple[Callable[[Machine], None], ...] = ()
    begins_to_join: tuple[Callable[[Machine, bytes], None], ...] = ()
    gets: tuple[Callable[[Machine, Event], None], ...] = ()
    handles: tuple[Callable[[Machine, Event, Sequence[Effect]], None], ...] = ()
    performs: dict[type[Effect], tuple[Callable[[Machine, Any], None], ...]] = field(default_factory=dict)
    """Keyed by the type of the effect."""
    enters: tuple[Callable[[Machine, int], None], ...] = ()
    takes: tuple[Callable[[Machine, Mapping[bytes, bytes]], None], ...] = ()
    sends: tuple[Callable[[Machine, int | None, bytes, Reading | None], None], ...] = ()
    votes: tuple[Callable[[Machine, Vote], None], ...] = ()
    sent: tuple[Callable[[Machine, Sequence[int], bytes, Sequence[tuple[int, int]]], None], ...] = ()
    receives: tuple[Callable[[Machine, Machine, bytes], None], ...] = ()
    hears: tuple[Callable[[Machine, Machine, Reading | None], None], ...] = ()
    heard: tuple[Callable[[Machine, Machine, Reading | None], None], ...] = ()
    counts: tuple[Callable[[Machine, Machine, Vote], None], ...] = ()


@dataclass(slots=True)
class Machine:
    """The simulated machine of one validator: it performs the validator's effects and delivers events to it."""

    index: int
    name: str
    clock: VirtualClock
    boot: Callable[[MemoryDisk], Validator]
    """Opens the validator on a disk."""
    send: Callable[[int, int | None, bytes], None]
    """``send(sender, recipient, payload)`` sends a message to one peer, or to all if ``recipient`` is ``None``."""
    join: Callable[[MemoryDisk], SnapshotJoin] | None = None
    """For a machine that begins without state: begins the join that puts a snapshot of the state on its disk."""
    failed: Callable[[int, ValidatorError], None] | None = None
    """Called with the error that stopped a machine. Without it, the error is raised."""
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    tally: Tally = field(default_factory=lambda: Tally(starts=0))
    validator: Validator | None = None
    """The running validator; ``None`` while the machine is down or joining."""
    joining: SnapshotJoin | None = None
    """The join by a snapshot in progress, if any."""
    byzantine: ByzantineValidator | None = None
    """The wrapper of a validator that breaks the protocol on purpose."""
    is_twin: bool = False
    """Whether the machine is a second one with the key of a byzantine validator."""
    planted: str | None = None
    """The planted bug, or the foreign executor, that the scenario gives the validator."""
    release: Release = field(default_factory=Release)
    """The version of the validator's code that the next start runs."""
    incarnation: int = 0
    is_paused: bool = False
    pace: Pace = USUAL_PACE
    counts_votes: bool = False
    """Whether the validator's votes without effects may be counted without an event (:meth:`take_vote`)."""
    work_of: Callable[[Machine], Work] | None = None
    """Creates the machine's work; ``None`` for the durations of the pace alone."""
    view: int = 0
    """The last view that the validator entered."""
    delays: Counter[str] = field(default_factory=Counter)
    """How often faults took effect on the machine, keyed by the fault's kind: held events, slow syncs …"""
    held: _Held = field(default_factory=_Held)
    listeners: Listeners = field(default_factory=Listeners)
    own_clock: OwnClock = field(init=False)
    work: Work = field(init=False)

    def __post_init__(self) -> None:
        self.own_clock = OwnClock(
            self.clock, self.pace.clock_speed, self.later, lambda timer: self.deliver(Timeout(timer))
        )
        self.work = Work(self) if self.work_of is None else self.work_of(self)

    @property
    def state_word(self) -> str:
        """The machine's state in a word, for the progress line."""
        if self.validator is None:
            return "down" if self.joining is None else "joining"
        if self.is_paused:
            return "paused"
        return "up" if self.validator.node.diverged is None else "diverged"

    @property
    def deviation(self) -> str | None:
        """The bug planted in the code that the validator runs, or its foreign executor; ``None`` if it has neither."""
        return self.release.mutant or self.planted

    @property
    def is_up(self) -> bool:
        return self.validator is not None

    @property
    def is_running(self) -> bool:
        """Whether the machine is up, or joining."""
        return self.is_up or self.joining is not None

    def start(self) -> None:
        """Boot the validator from the disk; if the disk still needs a state, begin the join by a snapshot instead."""
        self.tally.starts += 1
        for told in self.listeners.starts:
            told(self)
        with self._stopping_where_the_disk_fails():
            if self.join is not None and not has_joined(self.disk):
                self.joining = self.join(self.disk)
                self.tally.chunks = self.joining.chunks
            else:
                self.validator = self.boot(self.disk)
        self.deliver(Started())
        if self.validator is not None:
            for told in self.listeners.opens:
                told(self)

    def crash(self, random: Random, scattered: bool = False) -> None:
        """Stop at once, in the middle of a running job; part of the unsynced data is lost
        (:meth:`MemoryDisk.crash`)."""
        for told in self.listeners.stops:
            told(self, True)
        self.work.break_off_job(random)
        self._stop()
        self.disk.crash(random, scattered)

    def shut_down(self) -> None:
        """Stop gracefully: all written data is there at the next start."""
        for told in self.listeners.stops:
            told(self, False)
        self._stop()

    def pause(self) -> None:
        """Pause the machine."""
        for told in self.listeners.pauses:
            told(self)
        self.is_paused = True
        self.own_clock.pause()

    def go_on(self) -> None:
        """End the pause, and process everything that waited meanwhile, in order of arrival."""
        for told in self.listeners.goes_on:
            told(self)
        self.is_paused = False
        self.own_clock.go_on()
        for call in self.held.take_all():
            call()

    def _stop(self) -> None:
        if self.validator is not None:
            self.validator.executor.close()
        self.validator = self.joining = None
        self._end_incarnation()

    @contextmanager
    def _stopping_where_the_disk_fails(self) -> Iterator[None]:
        """A context that stops the machine and reports the error if its disk fails or has wrong contents."""
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
        """Discard everything scheduled so far."""
        self.incarnation += 1
        self.own_clock.cancel_all()
        self.work.cancel_all()
        self.held.take_all()

    def deliver(self, event: Event) -> None:
        """Give the node an event and perform the effects: now, or after the machine's pause."""
        if self.is_paused:
            self._hold(lambda: self.deliver(event), isinstance(event, Message))
            return
        if self.listeners.gets and self.is_running:
            for gets in self.listeners.gets:
                gets(self, event)
        try:
            if self.joining is not None:
                self._deliver_to_join(event, self.joining)
            elif self.validator is not None:
                around, bare = self.byzantine, self.validator
                effects = bare.node.handle(event) if around is None else around.handle(bare, event)
                for handles in self.listeners.handles:
                    handles(self, event, effects)
                for effect in effects:
                    self._perform(effect)
                if bare.node.view != self.view:
                    self.view = bare.node.view
                    for enters in self.listeners.enters:
                        enters(self, self.view)
        except ValidatorError as error:
            self._fail(error)

    def take_message(self, call: Callable[[], None]) -> None:
        """Run ``call``, which delivers a peer's message with :meth:`receive`, now or after the machine's pause."""
        if self.is_paused:
            self._hold(call, is_message=True)
        else:
            call()

    def take_vote(self, sender: int, vote: Vote) -> bool:
        """Let the validator count a peer's vote of which no effect follows; ``False`` if the vote is to be delivered.

        Nothing else can see the difference between this and :meth:`receive`.
        """
        if not self.counts_votes or self.is_paused or self.validator is None:
            return False
        return self.validator.node.take_vote(sender, vote)

    def _hold(self, call: Callable[[], None], is_message: bool) -> None:
        if self.is_running and self.held.add(call, is_message):
            self.delays["pause"] += 1

    def _deliver_to_join(self, event: Event, joining: SnapshotJoin) -> None:
        for effect in joining.handle(event):
            self._perform(effect)
        if joining.is_done:
            self.joining = None
            self._end_incarnation()
            self.validator = self.boot(self.disk)
            self.deliver(Started())

    def submit(self, request: int, transactions: tuple[bytes, ...]) -> None:
        """Deliver a client's transactions to the validator as the request of this number."""
        self.deliver(Submit(request, transactions))

    def receive(self, sender: int, payload: bytes, content: Reading | None = None) -> None:
        """Deliver a peer's message to the validator; ``content`` is the decoded message, if it is known already."""
        self.deliver(Message(sender, payload, content))

    def status(self) -> dict[str, Any] | None:
        """The status page; ``None`` while the machine is down."""
        if self.validator is None:
            return None
        process = {"pid": None, "hash_seed": None}
        return status_page(self.name, self.index, self.validator, self.tally, [], process)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        if type(effect) in COUNTED:
            self.tally.note(cast(Counted, effect))
        for told in self.listeners.performs.get(type(effect), ()):
            told(self, effect)
        match effect:
            case Send(recipient, payload):
                self.send(self.index, recipient, payload)
            case SetTimer(timer, delay_ms):
                self._set_timer(timer, delay_ms)
            case CancelTimer(timer):
                self.own_clock.cancel_timer(timer)
            case Run(job):
                self.work.enqueue(job)
            case Append(token, data):
                self.work.append(token, data)
            case ReplaceJournal(data):
                self.work.replace_journal(data)

    def later(self, delay_us: int, label: str, content: bytes, call: Callable[[], None]) -> None:
        """Schedule a call that is dropped if the machine stops before, and held while the machine is paused."""
        incarnation = self.incarnation

        def run() -> None:
            if self.incarnation != incarnation:
                return
            if self.is_paused:
                self._hold(run, is_message=False)
                return
            try:
                call()
            except ValidatorError as error:
                self._fail(error)

        self.clock.after(delay_us, f"{self.index} {label}", content, run)

    def _set_timer(self, timer: TimerName, delay_ms: int) -> None:
        if self.own_clock.speed != 1.0:
            self.delays["clock_skew"] += self.own_clock.speed != self.pace.clock_speed
        self.own_clock.set_timer(timer, delay_ms)


class Work:
    """The work that takes a machine's time: its executor's jobs, one after the other, and its disk's syncs."""

    def __init__(self, machine: Machine) -> None:
        self.sync_ms = machine.pace.sync_ms
        self.job_ms = machine.pace.job_ms
        self.jobs: deque[Job] = deque()
        self._machine = machine
        self._has_job_run = False
        """Whether the first of the jobs has run and only waits for a slow disk."""
        self._journal_busy_until_us = 0

    @property
    def is_committing(self) -> bool:
        """Whether a final block waits for its commit."""
        return any(isinstance(job, Finalize) for job in self.jobs)

    def cancel_all(self) -> None:
        """Drop all work in progress."""
        self.jobs.clear()
        self._has_job_run = False
        self._journal_busy_until_us = 0

    def break_off_job(self, random: Random) -> None:
        """Break off a running job as a crash does: perform it up to a random change of the disk, without a result."""
        validator, disk = self._machine.validator, self._machine.disk
        if validator is None or not self.jobs or self._has_job_run or disk.plan is not None:
            return
        disk.plan = FaultPlan(disk.operations + random.randint(1, JOB_OPERATIONS), crash=True)
        with suppress(SimulatedCrash, ValidatorError):
            validator.executor.run(self.jobs[0])
        disk.plan = None

    def append(self, token: int, data: bytes) -> None:
        """Append to the journal, and deliver ``Synced`` when the append is durable."""
        machine, disk = self._machine, self._machine.disk
        disk.append(JOURNAL_FILE, data)
        written = disk.written(JOURNAL_FILE)

        def synced() -> None:
            disk.sync(JOURNAL_FILE, written)
            machine.deliver(Synced(token))

        self._note_slow_syncs(1)
        machine.later(self._append_takes_us(), f"sync {token}", data, synced)

    def _append_takes_us(self) -> int:
        """The time in microseconds until an append that is made now is durable."""
        waits_us = max(0, self._journal_busy_until_us - self._machine.clock.now_us)
        return waits_us + self.sync_ms * MICROSECONDS_PER_MILLISECOND

    def replace_journal(self, data: bytes) -> None:
        """Replace the journal. On a disk with slow syncs, later appends wait for it."""
        self._machine.disk.replace(JOURNAL_FILE, data)
        if extra_us := self._extra_us(1):
            now_us = self._machine.clock.now_us
            self._journal_busy_until_us = max(self._journal_busy_until_us, now_us) + extra_us

    def _extra_us(self, syncs: int) -> int:
        """The additional time in microseconds that this many syncs take on the machine's disk, compared with a usual
        disk."""
        self._note_slow_syncs(syncs)
        return syncs * max(0, self.sync_ms - USUAL_PACE.sync_ms) * MICROSECONDS_PER_MILLISECOND

    def _note_slow_syncs(self, syncs: int) -> None:
        if self.sync_ms != self._machine.pace.sync_ms:
            self._machine.delays["slow_disk"] += syncs

    def enqueue(self, job: Job) -> None:
        """Run a job after the earlier ones, and deliver ``Completed`` with its result."""
        self.jobs.append(job)
        if len(self.jobs) == 1:
            self._schedule_job()

    def _schedule_job(self) -> None:
        self._machine.delays["slow_execution"] += self.job_ms != self._machine.pace.job_ms
        label = f"job {type(self.jobs[0]).__name__}"
        self._machine.later(self.job_ms * MICROSECONDS_PER_MILLISECOND, label, b"", self._run_job)

    def _run_job(self) -> None:
        machine = self._machine
        assert machine.validator is not None
        before = machine.disk.syncs
        result = machine.validator.executor.run(self.jobs[0])
        self._has_job_run = True
        if extra_us := self._extra_us(machine.disk.syncs - before):
            label = f"syncs of job {type(self.jobs[0]).__name__}"
            machine.later(extra_us, label, b"", lambda: self._end_job(result))
        else:
            self._end_job(result)

    def _end_job(self, result: JobResult) -> None:
        self.jobs.popleft()
        self._has_job_run = False
        if self.jobs:
            self._schedule_job()
        self._machine.deliver(Completed(result))
