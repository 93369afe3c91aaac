"""Drives one validator on an asyncio loop: performs its effects, and gives the answers back as events.

====================================  ================================================================================
``Send``                              to the peers' streams (:mod:`cluster.live.network.transport`)
``SetTimer``, ``CancelTimer``         a timer of the loop; setting one again restarts it
``Run``                               the executor's thread, first in first out; the result comes back as ``Completed``
``Append``, ``ReplaceJournal``        the journal's thread (:mod:`cluster.live.host.journal`); back as ``Synced``
``Reply``                             resolves the HTTP request that submitted the transactions
everything else                       counted, and noted for whoever watches (:meth:`ValidatorLoop.drain_observations`)
====================================  ================================================================================

Pages are read on the executor's thread, between its jobs, so they show one state; a few of them at a time. A bug
anywhere (an exception that nobody expects) goes to ``on_crash``, which ends the process: a validator that limps on
would only hide it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.disks.bit_rot import FINALS_SINCE_ROT, may_rot
from cluster.live.host.http import BlockTriple
from cluster.live.host.journal import JournalWriter
from cluster.live.network.handshake import Identity
from cluster.live.network.links import LinkTotals, OutgoingLinks
from cluster.live.network.transport import PeerAddress, Transport
from cluster.live.web.event_stream import EventHub, Subscription
from cluster.live.web.prometheus import render_metric
from cluster.live.web.server import NotReady, Page
from cluster.misbehaviour.byzantine.base import consensus_content, vote_of
from cluster.misbehaviour.byzantine.registry import ByzantineValidator
from cluster.record.genesis_file import genesis_page
from cluster.record.message_trace import HEAD_BYTES, RING_MESSAGES, Stamp
from cluster.record.status import Counted, Tally, status_page
from cluster.scenario.node_setup import FULL_SPEED, Pace
from consensus.keys import Signer, ValidatorSet
from consensus.messages import VoteKind
from validator.chain.genesis import Genesis
from validator.chain.messages import may_answer_join
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
    SubmitResult,
    Synced,
    Timeout,
    TimerName,
)
from validator.node.executor import (
    BlocksRead,
    Build,
    Built,
    Execute,
    Executor,
    Finalize,
    Job,
    JobResult,
    ReadBlocks,
    ReadSnapshot,
    SnapshotRead,
)
from validator.node.joining import JOIN_NONCE_BYTES, JOIN_TIMER, has_joined
from validator.node.node import NodeConfig
from validator.node.queries import Cursor, EventFilter, FinalityPage, PlacedEvent, StatePages
from validator.primitives.types import Address, Hash, Height, TimerId
from validator.storage.disk import Disk

MAX_OBSERVATIONS: Final = 100_000
"""Observations kept for whoever watches; the oldest go first."""
MAX_READS_WAITING: Final = 64
"""Jobs that read for peers; further ones find nothing, and the peers ask somebody else."""
MAX_PROOFS_WAITING: Final = 4
"""Proofs of state that clients wait for."""
MAX_PAGES_AT_ONCE: Final = 2
"""Pages that wait for the executor's thread: so many at most go before the validator's own work. Others wait here."""
MAX_JOIN_MESSAGES: Final = 4
"""Messages of one peer that wait for a join under way; it asks each for its view and one other thing at a time."""
MARKED_BYTES: Final = 256
"""So many bytes of a message, and its length, tell it from others well enough to draw it."""
SUBMIT_TIMEOUT_S: Final = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ValidatorSetup:
    """Which validator to run. The same for every start of it."""

    name: str
    index: int
    genesis: Genesis
    signer: Signer
    validators: ValidatorSet
    config: NodeConfig
    parts: Parts = PRODUCTION
    joins: bool = False
    """It begins without state: by a snapshot of its peers', unless its disk holds one already."""
    byzantine: ByzantineValidator | None = None
    """What is put around it where it breaks the protocol on purpose."""
    links: OutgoingLinks | None = None
    """What happens to its messages on their way."""
    pace: Pace = FULL_SPEED
    tells_votes: bool = False
    """Whether its votes are noted for whoever watches."""
    watches_files: bool = False
    """Whether it tells how large its files were some final blocks ago."""


class FirstSeen(NamedTuple):
    """A validator began to build or to execute its first block of a height. Milliseconds since the epoch."""

    height: int
    at_ms: float


class FinalSeen(NamedTuple):
    """A validator made a block final. Milliseconds since the epoch."""

    at_ms: float
    block: BlockFinal


class ViewSeen(NamedTuple):
    """A validator entered a view of consensus. Milliseconds since the epoch."""

    at_ms: float
    view: int


class VoteSent(NamedTuple):
    """A validator sent a vote. Noted only where a fault waits for votes."""

    view: int
    kind: VoteKind


Observation = FirstSeen | FinalSeen | ViewSeen | VoteSent


@dataclass(frozen=True, slots=True)
class LoopState:
    """What a driver asks for all the time."""

    height: int
    ready: bool
    """Recovered from its disk."""
    view: int
    """0 until it is ready."""
    leader: int
    """Of that view."""
    diverged: bool
    recovered_height: int
    messages_sent: int
    bytes_sent: int
    snapshot_height: int
    """Of the snapshot with which it joined; 0 without one."""
    snapshot_chunks: dict[int, int]
    """Chunks of a snapshot that it took since it was started, by the peer that sent them."""
    messages_lost: int
    """On its links, or for want of room, since it was started."""
    core_seconds: float
    """Processor time of the validator itself (node and executor, what is pure of it), since it was started."""


class ValidatorLoop:
    """One validator on the running loop; implements :class:`cluster.live.host.http.ValidatorPages`.

    :meth:`listen`, :meth:`recover`, :meth:`set_peers`, then it runs until :meth:`close`, or until it is dropped.
    """

    def __init__(
        self,
        setup: ValidatorSetup,
        disk: Disk,
        on_crash: Callable[[BaseException], None],
        tally: Tally | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``sleep`` is what holds up the executor's thread where its jobs are slow."""
        self.setup = setup
        self.tally = Tally() if tally is None else tally
        self.slow_jobs = 0
        """How many a fault has slowed down."""
        self.skewed_timers = 0
        """How many were set while a fault had the clock run at another speed."""
        self._disk = disk
        self._sleep = sleep
        self._job_ms = setup.pace.job_ms
        self._clock_speed = setup.pace.clock_speed
        self._on_crash = on_crash
        self._validator: Validator | None = None
        self._executor_thread = ThreadPoolExecutor(1, thread_name_prefix=f"executor {setup.name}")
        self._journal = JournalWriter(disk, setup.name, self._on_written, on_crash)
        identity = Identity(setup.index, setup.signer, setup.validators, setup.genesis.chain_id)
        self.links = setup.links
        self.transport = Transport(identity, self._on_message, self._on_refused, on_crash, links=setup.links)
        self._timers: dict[TimerName, asyncio.TimerHandle] = {}
        self._replies: dict[int, asyncio.Future[Sequence[SubmitResult]]] = {}
        self._node_seconds = self._executor_seconds = 0.0
        """Processor time of either thread."""
        self._requests = 0
        self._jobs_running = 0
        self._reads_waiting = 0
        self._proofs_waiting = 0
        self._pages_at_once = asyncio.Semaphore(MAX_PAGES_AT_ONCE)
        self._frozen = False
        self._join_events: asyncio.Queue[Event] | None = None
        """What a join has not taken yet; ``None`` when there is none under way."""
        self._join_messages: Counter[int] = Counter()
        """How many of them are messages, by their sender."""
        self._join_given_up = False
        self._at_rest = asyncio.Event()
        self._observations: deque[Observation] = deque(maxlen=MAX_OBSERVATIONS)
        self._stamps: deque[Stamp] = deque(maxlen=RING_MESSAGES)
        """The last messages that were sent or came."""
        self._view = 0
        """The view that watchers were told of last."""
        self._build_began_ms: dict[int, float] = {}
        self._highest_seen = 0
        self._events = EventHub(self._read_events, self.events)
        self._file_sizes: deque[dict[str, int]] = deque(maxlen=FINALS_SINCE_ROT + 1)
        """After each of the last final blocks, where that is watched."""

    # --- life ---------------------------------------------------------------------------------------------------------

    async def listen(self, host: str) -> PeerAddress:
        """Take a free port for the peers. Raises :class:`OSError`."""
        return await self.transport.listen(host)

    async def recover(self) -> None:
        """Join by a snapshot where that is due, recover from the disk, and begin.

        Raises what :func:`validator.node.assembly.open_validator` raises.
        """
        setup = self.setup
        is_joining = setup.joins and not has_joined(self._disk)
        if is_joining:
            await self.transport.start()
            if not await self._join():
                return
        self._validator = validator = await self._on_executor_thread(
            lambda: open_validator(
                self._disk,
                setup.genesis,
                setup.index,
                setup.signer,
                setup.validators,
                setup.config,
                setup.parts,
            )
        )
        self._highest_seen = validator.node.height
        self._events.note_final(validator.node.height)
        self.tally.pending_timers = validator.executor.pending_timers
        self.tally.backlog = validator.executor.index.pool.live
        if not is_joining:
            await self.transport.start()
        self._deliver(Started())

    async def _join(self) -> bool:
        """Take a snapshot in; ``False`` where it was given up meanwhile."""
        setup = self.setup
        nonce = os.urandom(JOIN_NONCE_BYTES)
        joining = setup.parts.join(self._disk, setup.index, setup.validators, setup.genesis.chain_id, nonce=nonce)
        self.tally.chunks = joining.chunks
        events = self._join_events = asyncio.Queue()
        event: Event = Started()
        while not self._join_given_up:
            for effect in await self._on_executor_thread(partial(joining.handle, event)):
                self._perform(effect)
            if joining.is_done:
                break
            event = await events.get()
            if isinstance(event, Message):
                self._join_messages[event.sender] -= 1
        self._join_events = None
        self._cancel_timer(JOIN_TIMER)
        return joining.is_done

    @property
    def is_joining(self) -> bool:
        """Whether a snapshot is being taken in."""
        return self._join_events is not None

    def give_up_join(self) -> None:
        """End a join that is under way or about to begin; what has arrived stays on the disk."""
        self._join_given_up = True
        if self._join_events is not None:
            self._join_events.put_nowait(Started())  # wakes it

    def set_peers(self, addresses: Mapping[int, PeerAddress]) -> None:
        """Where the other validators listen, by index."""
        self.transport.set_addresses(addresses)

    def impair(self, job_ms: int | None, clock_speed: float) -> None:
        """From now on each job takes so long at least, and the clock runs so much faster than it usually does.

        What is left of the timers that run does so too.
        """
        pace = self.setup.pace
        self._job_ms = pace.job_ms if job_ms is None else max(job_ms, pace.job_ms)
        before, self._clock_speed = self._clock_speed, pace.clock_speed * clock_speed
        if self._clock_speed == before:
            return
        loop = asyncio.get_running_loop()
        for timer, running in list(self._timers.items()):
            running.cancel()
            left_s = max(0.0, running.when() - loop.time())
            self._timers[timer] = loop.call_later(left_s * before / self._clock_speed, self._on_timeout, timer)

    async def freeze(self) -> None:
        """Come to rest, once :meth:`recover` has ended: nothing comes in any more, what is under way is finished. Pages
        are still served.

        Afterwards the final state does not change, so that pages read one by one belong together.
        """
        self._frozen = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self.transport.close()
        self._note_rest()
        await self._at_rest.wait()
        await self._events.close()

    async def close(self) -> None:
        """Freeze, and give up the threads and the executor's files. The disk is its owner's to close."""
        if self._validator is not None:
            await self.freeze()
            await self._on_executor_thread(self._validator.executor.close)
        await self.transport.close()
        await self._journal.close()
        self._executor_thread.shutdown()

    # --- events in ----------------------------------------------------------------------------------------------------

    def _on_message(self, sender: int, payload: bytes) -> None:
        if not self._frozen:
            self._stamp(False, sender, payload)
            self._deliver(Message(sender, payload))

    def _on_refused(self, reason: str) -> None:
        self.tally.note_refusal(reason)

    def _on_timeout(self, timer: TimerName) -> None:
        del self._timers[timer]
        self._deliver(Timeout(timer))

    def _on_written(self, token: int | None) -> None:
        if token is not None:
            self._deliver(Synced(token))
        self._note_rest()

    def _deliver(self, event: Event) -> None:
        """Give the node an event and perform what follows from it, in order."""
        if self._validator is None:
            self._deliver_to_join(event)
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
            if self._validator.node.view != self._view:
                self._view = self._validator.node.view
                self._observations.append(ViewSeen(_epoch_ms(), self._view))
        except Exception as error:
            self._on_crash(error)
            raise

    def _deliver_to_join(self, event: Event) -> None:
        """While joining: what does not fit is lost, as on the way here, and asked for again."""
        if self._join_events is None:
            return
        if isinstance(event, Message):
            if self._join_messages[event.sender] >= MAX_JOIN_MESSAGES or not may_answer_join(event.payload):
                return
            self._join_messages[event.sender] += 1
        self._join_events.put_nowait(event)

    # --- effects out --------------------------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(recipient, payload):
                if not self._frozen:
                    self._stamp(True, recipient, payload)
                    self._send(recipient, payload)
            case SetTimer(timer, delay_ms):
                self._set_timer(timer, delay_ms)
            case CancelTimer(timer):
                self._cancel_timer(timer)
            case Run(job):
                self._run(job)
            case Append() | ReplaceJournal():
                self._journal.write(effect)
            case Reply(request, results):
                reply = self._replies.pop(request, None)
                if reply is not None and not reply.done():
                    reply.set_result(results)
            case Certified() | Joined():
                pass  # the status page tells of snapshots; nobody asks about notarizations
            case _:
                self._observe(effect)

    def _send(self, recipient: int | None, payload: bytes) -> None:
        if self.setup.tells_votes and (message := consensus_content(payload)) is not None:
            vote = vote_of(message)
            if vote is not None:
                self._observations.append(VoteSent(vote.view, vote.kind))
        later_us = 0
        if self.links is not None and self.links.faults.delay_leaders and self._leads:
            later_us = self.links.faults.leader_delay_us()
        self.transport.send(recipient, payload, later_us)

    @property
    def _leads(self) -> bool:
        return self._validator is not None and self._validator.node.leader == self.setup.index

    def _observe(self, effect: Counted) -> None:
        self.tally.note(effect)
        if isinstance(effect, BlockFinal):
            self._events.note_final(effect.height)
            self._observations.append(FinalSeen(_epoch_ms(), effect))

    def _set_timer(self, timer: TimerName, delay_ms: int) -> None:
        self._cancel_timer(timer)
        if not self._frozen:
            self.skewed_timers += self._clock_speed != self.setup.pace.clock_speed
            delay_s = delay_ms / MILLISECONDS_PER_SECOND / self._clock_speed
            self._timers[timer] = asyncio.get_running_loop().call_later(delay_s, self._on_timeout, timer)

    def _cancel_timer(self, timer: TimerName) -> None:
        running = self._timers.pop(timer, None)
        if running is not None:
            running.cancel()

    # --- the executor's thread ----------------------------------------------------------------------------------------

    def _run(self, job: Job) -> None:
        match job:
            case Build(view=view):
                if self._frozen:
                    return  # no answer is allowed: the engine's timeouts cover it
                self._build_began_ms[view] = _epoch_ms()
            case Execute(block=block):
                self._note_seen(block.header.height, _epoch_ms())
            case ReadBlocks() | ReadSnapshot():
                if self._frozen or self._reads_waiting >= MAX_READS_WAITING:
                    # answered all the same, or the node would never read for that peer again; later, since the
                    # effects that came with the job are to be performed first
                    asyncio.get_running_loop().call_soon(self._deliver, Completed(_nothing_read(job)))
                    return
                self._reads_waiting += 1
            case _:
                pass
        assert self._validator is not None
        self._jobs_running += 1
        executor = self._validator.executor
        running = asyncio.get_running_loop().run_in_executor(self._executor_thread, self._work, executor, job)
        running.add_done_callback(lambda done: self._ran(job, done))

    def _work(self, executor: Executor, job: Job) -> JobResult:
        """On the executor's thread: do a job."""
        if job_ms := self._job_ms:
            self.slow_jobs += job_ms != self.setup.pace.job_ms
            self._sleep(job_ms / MILLISECONDS_PER_SECOND)
        began = time.thread_time()
        result = executor.run(job)
        self._executor_seconds += time.thread_time() - began
        if self.setup.watches_files and isinstance(job, Finalize):
            disk = self._disk
            self._file_sizes.append({name: disk.size(name) for name in disk.names() if may_rot(name)})
        return result

    def _ran(self, job: Job, done: asyncio.Future[JobResult]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._on_crash(error)
            return
        self._jobs_running -= 1
        if isinstance(job, ReadBlocks | ReadSnapshot):
            self._reads_waiting -= 1
        result = done.result()
        if isinstance(result, Built):
            began_ms = self._build_began_ms.pop(result.view, None)  # none left for a second block of the view
            if began_ms is not None:
                self._note_seen(result.block.header.height, began_ms)
        self._deliver(Completed(result))
        self._note_rest()

    async def _on_executor_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor_thread, work)

    # --- what watchers see --------------------------------------------------------------------------------------------

    def _note_seen(self, height: int, at_ms: float) -> None:
        if height > self._highest_seen:
            self._highest_seen = height
            self._observations.append(FirstSeen(height, at_ms))

    def _stamp(self, is_sent: bool, peer: int | None, payload: bytes) -> None:
        mark = crc32(payload[:MARKED_BYTES])
        self._stamps.append(Stamp(_epoch_ms(), is_sent, peer, payload[:HEAD_BYTES], len(payload), mark))

    def drain_stamps(self) -> list[Stamp]:
        """The last messages since the last call, as far as they are remembered."""
        stamps = list(self._stamps)
        self._stamps.clear()
        return stamps

    def _note_rest(self) -> None:
        if self._frozen and self._jobs_running == 0 and self._journal.idle:
            self._at_rest.set()

    def drain_observations(self) -> list[Observation]:
        """What was seen since the last call."""
        seen = list(self._observations)
        self._observations.clear()
        return seen

    def old_file_sizes(self) -> dict[str, int]:
        """How large the files were some final blocks ago, as far as that is still there of them."""
        if len(self._file_sizes) <= FINALS_SINCE_ROT:
            return {}
        newest = self._file_sizes[-1]
        return {name: min(size, newest.get(name, 0)) for name, size in self._file_sizes[0].items()}

    def state(self) -> LoopState:
        validator, counters = self._validator, self.transport.counters
        totals = LinkTotals() if self.links is None else self.links.totals()
        return LoopState(
            height=0 if validator is None else validator.node.height,
            ready=validator is not None,
            view=0 if validator is None else validator.node.view,
            leader=0 if validator is None else validator.node.leader,
            diverged=validator is not None and validator.node.diverged is not None,
            recovered_height=0 if validator is None else validator.executor.recovered_height,
            messages_sent=counters.messages_sent,
            bytes_sent=counters.bytes_sent,
            snapshot_height=0 if validator is None else validator.executor.archive.first_height,
            snapshot_chunks=dict(self.tally.chunks),
            messages_lost=totals.dropped + totals.overflowed + counters.messages_dropped,
            core_seconds=self._node_seconds + self._executor_seconds,
        )

    # --- pages --------------------------------------------------------------------------------------------------------

    def _ready(self) -> Validator:
        if self._validator is None:
            raise NotReady("still joining by a snapshot" if self.is_joining else "still recovering from the disk")
        return self._validator

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        """Offer signed transactions to the mempool."""
        self._ready()
        if self._frozen:
            raise NotReady("the validator takes nothing any more")
        self._requests += 1
        request = self._requests
        reply = self._replies[request] = asyncio.get_running_loop().create_future()
        self._deliver(Submit(request, tuple(transactions)))
        try:
            return await asyncio.wait_for(reply, SUBMIT_TIMEOUT_S)
        except TimeoutError:
            raise NotReady("the mempool did not answer in time") from None
        finally:
            self._replies.pop(request, None)

    async def status(self) -> Page:
        validator, setup = self._ready(), self.setup
        process, peers = _process_page(), self.transport.connected
        return await self._between_jobs(
            lambda: status_page(setup.name, setup.index, validator, self.tally, peers, process)
        )

    async def _between_jobs(self, read: Callable[[], T]) -> T:
        """Read on the executor's thread; however many ask, its next job waits for few of them."""
        async with self._pages_at_once:
            return await self._on_executor_thread(read)

    async def _page(self, read: Callable[[StatePages], T]) -> T:
        """Read something of the state, between the executor's jobs."""
        pages = self._ready().executor.pages
        return await self._between_jobs(lambda: read(pages))

    async def block(self, height: Height) -> Page | None:
        return await self._page(lambda pages: pages.block(height))

    async def blocks_raw(self, first: Height, count: int) -> Sequence[BlockTriple]:
        return await self._page(lambda pages: pages.blocks(first, count))

    async def receipt(self, transaction_hash: Hash) -> Page | None:
        return await self._page(lambda pages: pages.receipt(transaction_hash))

    async def account(self, address: Address) -> Page:
        return await self._page(lambda pages: pages.account(address))

    async def timer(self, timer_id: TimerId) -> Page | None:
        return await self._page(lambda pages: pages.timer(timer_id))

    async def events(self, start: Cursor | None, wanted: EventFilter) -> Page | None:
        return await self._page(lambda pages: pages.events(start, wanted))

    def subscribe(self, start: Cursor | None, wanted: EventFilter) -> Subscription | None:
        self._ready()
        return self._events.subscribe(start, wanted)

    async def _read_events(self, height: int) -> Sequence[PlacedEvent]:
        return await self._page(lambda pages: pages.events_at(height))

    async def finality(self, height: Height) -> FinalityPage | None:
        return await self._page(lambda pages: pages.finality(height))

    async def proof(self, key: bytes, height: Height | None) -> Page:
        """One of an older height costs as much as the blocks above it changed, so that few are made at a time."""
        if self._proofs_waiting >= MAX_PROOFS_WAITING:
            raise NotReady("too many proofs are being made: ask again")
        self._proofs_waiting += 1
        try:
            return await self._page(lambda pages: pages.proof(key, height))
        finally:
            self._proofs_waiting -= 1

    async def genesis(self) -> Page:
        return genesis_page(self.setup.genesis)

    async def parameters(self) -> Page:
        return await self._page(StatePages.parameters)

    async def validators(self) -> Page:
        return await self._page(StatePages.validators)

    async def supply(self) -> Page:
        """Of a validator at rest: a running one would be kept from its blocks."""
        self._ready()
        if not self._frozen:
            raise NotReady("the supply is told at the end of a run only, when the validators are at rest")
        return await self._page(StatePages.supply)

    async def divergence(self) -> bytes | None:
        diverged = self.tally.diverged
        return None if diverged is None else diverged.trace

    async def metrics(self) -> str:
        """Prometheus text (``docs/http.md``)."""
        return render_metrics(self._ready(), self.tally, self.transport, self._events.streams)


def render_metrics(validator: Validator, tally: Tally, transport: Transport, streams: int) -> str:
    """A validator's metrics in Prometheus' text format."""
    node, newest, counters = validator.node, tally.newest, transport.counters
    gauges: list[tuple[str, str, int]] = [
        ("stampede_height", "Newest final height.", node.height),
        ("stampede_view", "Current consensus view.", node.view),
        ("stampede_pending_timers", "Live timers.", tally.pending_timers),
        ("stampede_backlog", "Live timers whose trigger height has passed.", tally.backlog),
        ("stampede_mempool_transactions", "Transactions that wait for a block.", len(node.mempool)),
        ("stampede_peers", "Peers connected in both directions.", len(transport.connected)),
        ("stampede_event_streams", "Clients that events are streamed to.", streams),
    ]
    if newest is not None:
        gauges.append(("stampede_basefee_cycle", "Price of a cycle.", newest.basefee_cycle))
        gauges.append(("stampede_basefee_lane_timer", "Price of a timer lane cycle.", newest.basefee_lane_timer))
    totals: list[tuple[str, str, int]] = [
        ("stampede_fires_total", "Timers fired since the start.", tally.fires),
        ("stampede_transactions_total", "Transactions executed since the start.", tally.executed_transactions),
        ("stampede_messages_received_total", "Messages from peers.", counters.messages_received),
        ("stampede_messages_sent_total", "Messages to peers.", counters.messages_sent),
        ("stampede_messages_oversized_total", "Messages that were too long to be sent.", counters.messages_oversized),
    ]
    on_links = LinkTotals() if transport.links is None else transport.links.totals()
    links: list[tuple[Mapping[str, str], int]] = [({"was": name}, count) for name, count in asdict(on_links).items()]
    lines = [render_metric(name, "gauge", text, value) for name, text, value in gauges]
    lines += [render_metric(name, "counter", text, value) for name, text, value in totals]
    burned = [({"lane": lane}, amount) for lane, amount in tally.burned._asdict().items()]
    lines.append(render_metric("stampede_burned_total", "counter", "Burned since the start, in CBY units.", burned))
    lines.append(
        render_metric("stampede_link_messages_total", "counter", "Messages that something was done to on links.", links)
    )
    for name, text, counts in (
        ("stampede_peer_faults_total", "What no honest peer sends, by reason.", tally.faults),
        ("stampede_peer_drops_total", "What was dropped of what honest peers send too.", tally.dropped),
        ("stampede_transactions_refused_total", "Transactions that the mempool refused.", tally.transactions_refused),
        ("stampede_transactions_dropped_total", "Transactions that left the mempool.", tally.transactions_dropped),
    ):
        by_reason: list[tuple[Mapping[str, str], int]] = [
            ({"reason": reason}, count) for reason, count in sorted(counts.items())
        ]
        lines.append(render_metric(name, "counter", text, by_reason))
    return "".join(lines)


def _nothing_read(job: ReadBlocks | ReadSnapshot) -> BlocksRead | SnapshotRead:
    if isinstance(job, ReadBlocks):
        return BlocksRead(job.peer, (), (), b"")
    return SnapshotRead(job.peer, None)


def _epoch_ms() -> float:
    """Wall clock, so that what several hosts saw can be put on one axis."""
    return time.time() * MILLISECONDS_PER_SECOND


def _process_page() -> dict[str, Any]:
    """What a status page says of the process."""
    return {"pid": os.getpid(), "hash_seed": os.environ.get("PYTHONHASHSEED", "random")}
