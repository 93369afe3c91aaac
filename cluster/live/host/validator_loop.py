"""Drives one validator on an asyncio loop: performs its effects, and returns the answers as events.

====================================  ================================================================================
``Send``                              to the peers' streams (:mod:`cluster.live.network.transport`)
``SetTimer``, ``CancelTimer``         a timer of the loop (:class:`Timers`)
``Run``                               the executor's thread (:mod:`cluster.live.host.threads`); the
                                      result comes back as ``Completed``
``Append``, ``ReplaceJournal``        the journal's thread (:mod:`cluster.live.host.threads`); back as ``Synced``
``Reply``                             answers the HTTP request that submitted transactions
                                      (:mod:`cluster.live.host.pages`)
everything else                       counted, and noted for the driver (:mod:`cluster.live.host.observations`)
====================================  ================================================================================

A bug anywhere (an unexpected exception) goes to ``on_crash``, which ends the process: a validator that continued would
only hide it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.live.host.join_inbox import JoinInbox
from cluster.live.host.observations import CertificateTap, Observations
from cluster.live.host.pages import Pages
from cluster.live.host.threads import Done, ExecutorThread, JournalWriter
from cluster.live.network.handshake import Identity
from cluster.live.network.links import OutgoingLinks
from cluster.live.network.transport import Transport
from cluster.record.run import HAND_OVER, MESSAGE, SYNC
from cluster.record.status import Counted, Tally
from cluster.scenario.node_setup import FULL_SPEED, Pace
from consensus.keys import Signer, ValidatorSet
from consensus.messages import AnyCertificate, vote_of
from validator.chain.genesis import Genesis
from validator.chain.messages import is_of_consensus
from validator.node.assembly import PRODUCTION, Parts, Validator, open_validator
from validator.node.events import (
    Append,
    BlockFinal,
    CancelTimer,
    Certified,
    Completed,
    Effect,
    Event,
    Joined,
    Message,
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
)
from validator.node.executor.jobs import (
    BlocksRead,
    Build,
    Built,
    Execute,
    Job,
    ReadBlocks,
    ReadSnapshot,
    SnapshotRead,
)
from validator.node.node import NodeConfig
from validator.node.shared_work import SharedReader
from validator.node.snapshot_join import JOIN_NONCE_BYTES, JOIN_TIMER, has_joined
from validator.storage.disk import Disk

if TYPE_CHECKING:
    from cluster.misbehaviour.byzantine.registry import ByzantineValidator


@dataclass(frozen=True, slots=True)
class ValidatorSetup:
    """The configuration of a validator to run: the same for every start."""

    name: str
    index: int
    genesis: Genesis
    signer: Signer
    validators: ValidatorSet
    config: NodeConfig
    parts: Parts = PRODUCTION
    joins: bool = False
    """Whether it starts without state: from a snapshot of its peers, unless its disk has one already."""
    byzantine: ByzantineValidator | None = None
    """The wrapper of a validator that breaks the protocol on purpose."""
    reader: SharedReader = field(default_factory=SharedReader)
    """Decodes its messages, and those of other validators of the process."""
    links: OutgoingLinks | None = None
    """The links that carry its messages."""
    links_from: Mapping[int, OutgoingLinks] = field(default_factory=dict)
    """The links that carry messages of external validators to it, by their index."""
    pace: Pace = FULL_SPEED
    tap: CertificateTap | None = None
    """Selects its certificates for the driver; ``None`` if its reports of certificates do not count."""
    watches_files: bool = False
    """Whether it notes the sizes of its files at each final block."""
    check_lease: Callable[[], None] = lambda: None
    """Called before the validator takes an event and before it sends a message. After the end of the host's lease it
    blocks for as long as the process lives."""

    @property
    def all_links(self) -> list[OutgoingLinks]:
        """The links that the harness models here: its own, and those from external validators to it."""
        return [*([] if self.links is None else [self.links]), *self.links_from.values()]


@dataclass(frozen=True, slots=True)
class LoopState:
    """The state of a validator that the driver polls; by default one that is not ready."""

    height: int = 0
    ready: bool = False
    """Whether it has recovered from its disk; of an external validator, whether it serves this chain."""
    view: int = 0
    """Current view; 0 until the validator is ready."""
    leader: int = 0
    """Index of the current view's leader."""
    diverged: bool = False
    recovered_height: int = 0
    messages_sent: int = 0
    bytes_sent: int = 0
    snapshot_height: int = 0
    """Height of the snapshot with which it joined; 0 without one."""
    snapshot_chunks: dict[int, int] = field(default_factory=dict)
    """Number of snapshot chunks accepted since its start, keyed by the peer that sent them."""
    messages_lost: int = 0
    """Messages lost on its links, or because a queue was full, since its start."""
    core_seconds: float = 0.0
    """Processor time of the validator itself (pure code of node and executor), since its start."""
    why_not_ready: str = ""
    """Why an external validator is not ready, in one line; empty for all others."""


class Timers:
    """Timers by name; a timer that is set again restarts. ``on_timeout`` is called on the loop."""

    def __init__(self, usual_speed: float, on_timeout: Callable[[TimerName], None]) -> None:
        self.skewed = 0
        """Number of timers that were set while a fault skewed the clock."""
        self._usual_speed = self._speed = usual_speed
        self._on_timeout = on_timeout
        self._running: dict[TimerName, asyncio.TimerHandle] = {}
        self._is_closed = False

    def set(self, timer: TimerName, delay_ms: int) -> None:
        """Start a timer. Ignored once closed."""
        self.cancel(timer)
        if not self._is_closed:
            self.skewed += self._speed != self._usual_speed
            self._start(timer, delay_ms / MILLISECONDS_PER_SECOND / self._speed)

    def cancel(self, timer: TimerName) -> None:
        running = self._running.pop(timer, None)
        if running is not None:
            running.cancel()

    def set_speed(self, factor: float) -> None:
        """Run the clock ``factor`` times as fast as usual; running timers continue at the new speed."""
        before, self._speed = self._speed, self._usual_speed * factor
        if self._speed == before:
            return
        now = asyncio.get_running_loop().time()
        for timer, running in list(self._running.items()):
            running.cancel()
            self._start(timer, max(0.0, running.when() - now) * before / self._speed)

    def close(self) -> None:
        """Cancel every timer, and ignore new ones."""
        self._is_closed = True
        for running in self._running.values():
            running.cancel()
        self._running.clear()

    def _start(self, timer: TimerName, delay_s: float) -> None:
        self._running[timer] = asyncio.get_running_loop().call_later(delay_s, self._fire, timer)

    def _fire(self, timer: TimerName) -> None:
        del self._running[timer]
        self._on_timeout(timer)


class ValidatorLoop:
    """One validator on the running loop: its :attr:`transport` listens, then :meth:`recover`, finally :meth:`close`."""

    def __init__(
        self,
        setup: ValidatorSetup,
        disk: Disk,
        on_crash: Callable[[BaseException], None],
        tally: Tally | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``sleep`` delays the executor's thread if a fault slows its jobs."""
        self.setup = setup
        self.tally = Tally() if tally is None else tally
        self._disk = disk
        self._on_crash = on_crash
        self._validator: Validator | None = None
        self._frozen = False
        self._at_rest = asyncio.Event()
        self._node_seconds = 0.0
        """Processor time of the node."""
        rotting = disk if setup.watches_files else None
        self.executor = ExecutorThread(setup.name, setup.pace.job_ms, rotting, self._on_result, on_crash, sleep)
        self._journal = JournalWriter(disk, setup.name, self._on_written, on_crash)
        identity = Identity(setup.index, setup.signer, setup.validators, setup.genesis.chain_id)
        self.transport = Transport(identity, self._on_message, self.tally.note_refusal, on_crash, setup.links)
        self.transport.links_from = setup.links_from
        self.transport.before_write = setup.check_lease
        self.timers = Timers(setup.pace.clock_speed, lambda timer: self._deliver(Timeout(timer)))
        self.join = JoinInbox()
        self.observations = Observations()
        self._journal.on_timed = partial(self.observations.spent, SYNC)
        about = (setup.name, setup.index, setup.genesis)
        self.pages = Pages(
            *about, self.tally, self.observations.timings, self.transport, self.executor, self.join, self._take
        )

    # --- life ---------------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Join by a snapshot if necessary, recover from the disk, and start.

        Raises the errors of :func:`validator.node.assembly.open_validator`.
        """
        setup = self.setup
        is_joining = setup.joins and not has_joined(self._disk)
        if is_joining:
            await self.transport.start()
            if not await self._join():
                return
        self._validator = validator = await self.executor.call(
            lambda: open_validator(
                self._disk, setup.genesis, setup.index, setup.signer, setup.validators, setup.config, setup.parts
            )
        )
        self.observations.recovered(validator.node.height)
        self.pages.open(validator)
        self.tally.pending_timers = validator.executor.pending_timers
        self.tally.backlog = validator.executor.index.pool.live
        if not is_joining:
            await self.transport.start()
        self._deliver(Started())

    async def _join(self) -> bool:
        """Join by a snapshot; ``False`` if that was given up."""
        setup = self.setup
        nonce = os.urandom(JOIN_NONCE_BYTES)
        join = setup.parts.join(self._disk, setup.index, setup.validators, setup.genesis.chain_id, nonce=nonce)
        self.tally.chunks = join.chunks
        has_joined = await self.join.run(join, self.executor.call, self._perform)
        self.timers.cancel(JOIN_TIMER)
        return has_joined

    def impair(self, job_ms: int | None, clock_speed: float) -> None:
        """From now on a job takes at least ``job_ms``, and the clock runs ``clock_speed`` times as fast as usual."""
        self.executor.slow_down(job_ms)
        self.timers.set_speed(clock_speed)

    def allow_pruning(self, height: int) -> None:
        """Let the validator prune blocks up to a height, which no peer needs any more
        (:class:`~validator.node.executor.executor.Executor`).

        Ignored before the validator is ready: the driver repeats the call.
        """
        if self._validator is not None:
            self._validator.executor.allow_pruning(height)

    async def freeze(self) -> None:
        """Come to rest, once :meth:`recover` has ended: take no more input, and finish the work under way.

        Pages are still served. The final state no longer changes, so that pages read one by one are consistent.
        """
        self._frozen = True
        self.pages.freeze()
        self.timers.close()
        await self.transport.close()
        self._note_rest()
        await self._at_rest.wait()
        await self.pages.streams.close()

    async def close(self) -> None:
        """Freeze, and close the threads and the executor's files. The caller closes the disk."""
        if self._validator is not None:
            await self.freeze()
            await self.executor.call(self._validator.executor.close)
        await self.transport.close()
        await self._journal.close()
        self.executor.close()

    def state(self) -> LoopState:
        counters = self.transport.counters
        lost = counters.messages_dropped
        for links in self.setup.all_links:
            totals = links.totals()
            lost += totals["dropped"] + totals["overflowed"]
        state = LoopState(
            messages_sent=counters.messages_sent,
            bytes_sent=counters.bytes_sent,
            messages_lost=lost,
            snapshot_chunks=dict(self.tally.chunks),
            core_seconds=self._node_seconds + self.executor.seconds,
        )
        if self._validator is None:
            return state
        node, executor = self._validator.node, self._validator.executor
        return replace(
            state,
            ready=True,
            height=node.height,
            view=node.view,
            leader=node.leader,
            diverged=node.diverged is not None,
            recovered_height=executor.recovered_height,
            snapshot_height=executor.archive.joined_height,
        )

    # --- events in ----------------------------------------------------------------------------------------------------

    def _on_message(self, sender: int, payload: bytes) -> None:
        if not self._frozen:
            self.observations.stamp(False, sender, payload)
            began_s = time.monotonic()
            self._deliver(Message(sender, payload, self.setup.reader.read(payload)))
            self.observations.spent(MESSAGE, time.monotonic() - began_s)

    def _on_written(self, token: int | None) -> None:
        if token is not None:
            self._deliver(Synced(token))
        self._note_rest()

    def _on_result(self, job: Job, done: Done) -> None:
        result = done.result
        self.observations.worked(job, done)
        if isinstance(result, Built):
            self.observations.built(result.view, result.block.header.height)
        self._deliver(Completed(result))
        self.observations.spent(HAND_OVER, done.waited_seconds + time.monotonic() - done.ended_s)
        self._note_rest()

    def _take(self, event: Event) -> None:
        """Pass a client's event to the node."""
        if isinstance(event, Submit):
            self.observations.took(event.transactions)
        self._deliver(event)

    def _deliver(self, event: Event) -> None:
        """Pass an event to the node, and perform its effects in order."""
        self.setup.check_lease()
        if self._validator is None:
            self.join.deliver(event)
            return
        try:
            byzantine, began = self.setup.byzantine, time.thread_time()
            if byzantine is None:
                effects = self._validator.node.handle(event)
            else:
                effects = byzantine.handle(self._validator, event)
            self._node_seconds += time.thread_time() - began
            for effect in effects:
                self._perform(effect)
            self.observations.entered(self._validator.node.view)
        except Exception as error:
            self._on_crash(error)
            raise

    def _note_rest(self) -> None:
        if self._frozen and self.executor.is_idle and self._journal.idle:
            self._at_rest.set()

    # --- effects out --------------------------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(recipient, payload):
                if not self._frozen:
                    self.observations.stamp(True, recipient, payload)
                    self._send(recipient, payload)
            case SetTimer(timer, delay_ms):
                self.timers.set(timer, delay_ms)
            case CancelTimer(timer):
                self.timers.cancel(timer)
            case Run(job):
                self._run(job)
            case Append() | ReplaceJournal():
                self._journal.write(effect)
            case Reply(request, results):
                self.pages.reply(request, results)
            case Certified(certificate):
                self._tell(certificate)
            case Joined():
                pass  # the status page shows snapshots
            case _:
                self._count(effect)

    def _send(self, recipient: int | None, payload: bytes) -> None:
        setup = self.setup
        if is_of_consensus(payload) and (vote := vote_of(setup.reader.read(payload))) is not None:
            self.observations.voted(vote)
        later_us = 0
        if setup.links is not None and setup.links.faults.delay_leaders and self._leads:
            later_us = setup.links.faults.leader_delay_us()
        self.transport.send(recipient, payload, later_us)

    def _tell(self, certificate: AnyCertificate) -> None:
        """Note a certificate that the validator accepts, if it is to be reported to the driver."""
        setup = self.setup
        if setup.tap is not None:
            seen = setup.tap.take(certificate, setup.validators, setup.genesis.chain_id.encode())
            if seen is not None:
                self.observations.certified(seen)

    @property
    def _leads(self) -> bool:
        return self._validator is not None and self._validator.node.leader == self.setup.index

    def _count(self, effect: Counted) -> None:
        self.tally.note(effect)
        if isinstance(effect, BlockFinal):
            self.pages.streams.note_final(effect.height)
            self.observations.finalized(effect)

    def _run(self, job: Job) -> None:
        match job:
            case Build(view=view):
                if self._frozen:
                    return  # no answer is allowed: the engine's timeouts cover it
                self.observations.began_build(view)
            case Execute(block=block):
                self.observations.began_execution(block.header.height)
            case ReadBlocks() | ReadSnapshot():
                if self._frozen or self.executor.is_full_of_reads:
                    # without an answer the node would never read for that peer again; the answer is deferred, since
                    # the effects that came with the job must be performed first
                    asyncio.get_running_loop().call_soon(self._deliver, Completed(_nothing_read(job)))
                    return
            case _:
                pass
        assert self._validator is not None
        self.executor.run(self._validator.executor, job)


def _nothing_read(job: ReadBlocks | ReadSnapshot) -> BlocksRead | SnapshotRead:
    if isinstance(job, ReadBlocks):
        return BlocksRead(job.peer, (), (), b"")
    return SnapshotRead(job.peer, None)
