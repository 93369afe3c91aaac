"""The pages of one validator: its state, its status and its metrics, read between the executor's jobs.

Each page is read on the executor's thread, so it shows one state.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, TypeVar

from cluster.live.host.join_inbox import JoinInbox
from cluster.live.host.metrics import Timings, render_metrics
from cluster.live.host.threads import ExecutorThread
from cluster.live.network.transport import Transport
from cluster.live.web.event_stream import EventHub, Subscription
from cluster.live.web.server import NotReady, Page
from cluster.record.genesis_file import genesis_page
from cluster.record.status import Tally, status_page
from validator.chain.genesis import Genesis
from validator.node.assembly import Validator
from validator.node.events import Event, Submit, SubmitResult
from validator.node.executor.queries import Cursor, EventFilter, StatePages

MAX_PROOFS_WAITING: Final = 4
"""Maximum number of state proofs that clients wait for at a time."""
SUBMIT_TIMEOUT_S: Final = 5.0

T = TypeVar("T")


class Pages:
    """A validator's pages. All but the genesis raise :class:`NotReady` until :meth:`open`."""

    def __init__(
        self,
        name: str,
        index: int,
        genesis: Genesis,
        tally: Tally,
        timings: Timings,
        transport: Transport,
        executor: ExecutorThread,
        join: JoinInbox,
        deliver: Callable[[Event], None],
    ) -> None:
        """``deliver`` passes an event to the node."""
        self._name = name
        self._index = index
        self._genesis = genesis
        self._tally = tally
        self._timings = timings
        self._transport = transport
        self._executor = executor
        self._join = join
        self._deliver = deliver
        self._validator: Validator | None = None
        self._is_frozen = False
        self._requests = count(1)
        self._replies: dict[int, asyncio.Future[Sequence[SubmitResult]]] = {}
        """Pending answers, keyed by the number of the request."""
        self._proofs_waiting = 0
        self.streams = EventHub(
            lambda height: self.read(lambda pages: pages.events_at(height)),
            lambda start, wanted: self.read(lambda pages: pages.events(start, wanted)),
        )

    # --- for the driver -----------------------------------------------------------------------------------------------

    def open(self, validator: Validator) -> None:
        """Serve the pages of a validator that has recovered."""
        self._validator = validator
        self.streams.note_final(validator.node.height)

    def freeze(self) -> None:
        """Stop taking transactions."""
        self._is_frozen = True

    def reply(self, request: int, results: Sequence[SubmitResult]) -> None:
        """Answer a request that submitted transactions, unless it gave up."""
        reply = self._replies.pop(request, None)
        if reply is not None and not reply.done():
            reply.set_result(results)

    # --- for clients --------------------------------------------------------------------------------------------------

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        """Offer signed transactions to the mempool. Results are in order, one for each."""
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

    async def read(self, read: Callable[[StatePages], T]) -> T:
        """Read from the final state and blocks, between two jobs of the executor."""
        pages = self._ready().executor.pages
        return await self._executor.read(lambda: read(pages))

    def subscribe(self, client: str, start: Cursor | None, wanted: EventFilter) -> Subscription:
        """Subscribe a client, identified by its address, to events from ``start`` on, by default from the next block.

        Raises :class:`~cluster.live.web.shares.NoShare` if there are too many.
        """
        self._ready()
        return self.streams.subscribe(client, start, wanted)

    async def proof(self, key: bytes, height: int | None) -> Page:
        """The page with the proof of a key in the state of a height.

        The cost of a proof grows with the changes in the blocks above its height, so few are made at a time. Raises
        :class:`~validator.state.HistoryError` if the height is not retained.
        """
        if self._proofs_waiting >= MAX_PROOFS_WAITING:
            raise NotReady("too many proofs are being made: ask again")
        self._proofs_waiting += 1
        try:
            return await self.read(lambda pages: pages.proof(key, height))
        finally:
            self._proofs_waiting -= 1

    def genesis(self) -> Page:
        return genesis_page(self._genesis)

    async def supply(self) -> Page:
        """The supply, only of a validator at rest: the computation would delay the blocks of a running one."""
        self._ready()
        if not self._is_frozen:
            raise NotReady("the supply is served at the end of a run only, when the validators are at rest")
        return await self.read(StatePages.supply)

    def divergence(self) -> bytes | None:
        """The encoded trace of the block at which the validator diverged; ``None`` if it has not."""
        diverged = self._tally.diverged
        return None if diverged is None else diverged.trace

    def metrics(self) -> str:
        """The validator's metrics as Prometheus text (``docs/http.md``); the endpoint adds its own request counter."""
        told = render_metrics(self._ready(), self._tally, self._transport, self.streams.streams)
        return told + self._timings.render()

    def _ready(self) -> Validator:
        if self._validator is None:
            raise NotReady("still joining by a snapshot" if self._join.is_open else "still recovering from the disk")
        return self._validator
