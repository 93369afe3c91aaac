"""The pages of one validator: its state, its status and its metrics, read between the executor's jobs.

Each page is read on the executor's thread, so it shows one state.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from typing import Final, TypeVar

from cluster.live.host.executor_thread import ExecutorThread
from cluster.live.host.http import BlockTriple
from cluster.live.host.join_inbox import JoinInbox
from cluster.live.network.links import LinkTotals
from cluster.live.network.transport import Transport
from cluster.live.web.event_stream import EventHub, Subscription
from cluster.live.web.prometheus import render_metric
from cluster.live.web.server import NotReady, Page
from cluster.record.genesis_file import genesis_page
from cluster.record.status import Tally, status_page
from validator.chain.genesis import Genesis
from validator.node.assembly import Validator
from validator.node.events import Event, Submit, SubmitResult
from validator.node.executor.queries import Cursor, EventFilter, FinalityPage, PlacedEvent, StatePages
from validator.primitives.types import Address, Hash, Height, TimerId

MAX_PROOFS_WAITING: Final = 4
"""Proofs of state that clients wait for."""
SUBMIT_TIMEOUT_S: Final = 5.0

T = TypeVar("T")


class Pages:
    """Implements :class:`cluster.live.host.http.ValidatorPages`; every page but the genesis waits for :meth:`open`."""

    def __init__(
        self,
        name: str,
        index: int,
        genesis: Genesis,
        tally: Tally,
        transport: Transport,
        executor: ExecutorThread,
        join: JoinInbox,
        deliver: Callable[[Event], None],
    ) -> None:
        """``deliver`` gives an event to the node."""
        self._name = name
        self._index = index
        self._genesis = genesis
        self._tally = tally
        self._transport = transport
        self._executor = executor
        self._join = join
        self._deliver = deliver
        self._validator: Validator | None = None
        self._is_frozen = False
        self._requests = count(1)
        self._replies: dict[int, asyncio.Future[Sequence[SubmitResult]]] = {}
        """By request."""
        self._proofs_waiting = 0
        self._streams = EventHub(self._read_events, self.events)

    # --- for the driver -----------------------------------------------------------------------------------------------

    def open(self, validator: Validator) -> None:
        """Serve the pages of a validator that has recovered."""
        self._validator = validator
        self._streams.note_final(validator.node.height)

    def freeze(self) -> None:
        """Take no transactions any more."""
        self._is_frozen = True

    async def close_streams(self) -> None:
        """End the streams of events; pages are still served."""
        await self._streams.close()

    def note_final(self, height: int) -> None:
        """Stream the events of a final block."""
        self._streams.note_final(height)

    def reply(self, request: int, results: Sequence[SubmitResult]) -> None:
        """Answer a request that submitted transactions, unless it gave up."""
        reply = self._replies.pop(request, None)
        if reply is not None and not reply.done():
            reply.set_result(results)

    # --- for clients --------------------------------------------------------------------------------------------------

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        """Offer signed transactions to the mempool."""
        self._ready()
        if self._is_frozen:
            raise NotReady("the validator takes no more transactions")
        request = next(self._requests)
        reply = self._replies[request] = asyncio.get_running_loop().create_future()
        self._deliver(Submit(request, tuple(transactions)))
        try:
            return await asyncio.wait_for(reply, SUBMIT_TIMEOUT_S)
        except TimeoutError:
            raise NotReady("the mempool did not answer in time") from None
        finally:
            self._replies.pop(request, None)

    async def status(self) -> Page:
        validator, peers = self._ready(), self._transport.connected
        process = {"pid": os.getpid(), "hash_seed": os.environ.get("PYTHONHASHSEED", "random")}
        return await self._executor.read(
            lambda: status_page(self._name, self._index, validator, self._tally, peers, process)
        )

    async def block(self, height: Height) -> Page | None:
        return await self._read(lambda pages: pages.block(height))

    async def blocks_raw(self, first: Height, count: int) -> Sequence[BlockTriple]:
        return await self._read(lambda pages: pages.blocks(first, count))

    async def receipt(self, transaction_hash: Hash) -> Page | None:
        return await self._read(lambda pages: pages.receipt(transaction_hash))

    async def account(self, address: Address) -> Page:
        return await self._read(lambda pages: pages.account(address))

    async def timer(self, timer_id: TimerId) -> Page | None:
        return await self._read(lambda pages: pages.timer(timer_id))

    async def events(self, start: Cursor | None, wanted: EventFilter) -> Page | None:
        return await self._read(lambda pages: pages.events(start, wanted))

    def subscribe(self, start: Cursor | None, wanted: EventFilter) -> Subscription | None:
        self._ready()
        return self._streams.subscribe(start, wanted)

    async def finality(self, height: Height) -> FinalityPage | None:
        return await self._read(lambda pages: pages.finality(height))

    async def proof(self, key: bytes, height: Height | None) -> Page:
        """A proof of an older height costs as much as the blocks above it changed, so few are made at a time."""
        if self._proofs_waiting >= MAX_PROOFS_WAITING:
            raise NotReady("too many proofs are being made: ask again")
        self._proofs_waiting += 1
        try:
            return await self._read(lambda pages: pages.proof(key, height))
        finally:
            self._proofs_waiting -= 1

    async def genesis(self) -> Page:
        return genesis_page(self._genesis)

    async def parameters(self) -> Page:
        return await self._read(StatePages.parameters)

    async def validators(self) -> Page:
        return await self._read(StatePages.validators)

    async def supply(self) -> Page:
        """The supply of a validator at rest: it would keep a running one from its blocks."""
        self._ready()
        if not self._is_frozen:
            raise NotReady("the supply is served at the end of a run only, when the validators are at rest")
        return await self._read(StatePages.supply)

    async def divergence(self) -> bytes | None:
        diverged = self._tally.diverged
        return None if diverged is None else diverged.trace

    async def metrics(self) -> str:
        """Prometheus text (``docs/http.md``)."""
        return render_metrics(self._ready(), self._tally, self._transport, self._streams.streams)

    def _ready(self) -> Validator:
        if self._validator is None:
            raise NotReady("still joining by a snapshot" if self._join.is_open else "still recovering from the disk")
        return self._validator

    async def _read(self, read: Callable[[StatePages], T]) -> T:
        pages = self._ready().executor.pages
        return await self._executor.read(lambda: read(pages))

    async def _read_events(self, height: int) -> Sequence[PlacedEvent]:
        return await self._read(lambda pages: pages.events_at(height))


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
