"""Streams of a validator's events (server-sent events): what watchtowers subscribe to.

A subscription that begins in the past first reads pages of events, like any client; once it has caught up with the
newest block, events are pushed to it. A block's events are read once for all subscriptions, and only if there are any.

A subscriber never slows the validator down, nor takes more memory than :data:`MAX_WAITING_BYTES`: one with a larger
backlog gets ``end`` with the cursor to resume from, and its stream ends. At most :data:`MAX_STREAMS` are open at a
time; no client has more of them than its share (:mod:`cluster.live.web.shares`). A stream without news gets a comment
every :data:`HEARTBEAT_SECONDS`, which detects dead connections.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from cluster.live.web.server import NotReady, Page
from cluster.live.web.shares import NoShare, fits_share
from validator.node.executor.queries import Cursor, EventFilter, PlacedEvent

log = logging.getLogger(__name__)

MAX_STREAMS: Final = 32
MAX_WAITING_BYTES: Final = 1024 * 1024
"""Limit of waiting events per block and subscription; a single event may be longer if no other waits."""
HEARTBEAT_SECONDS: Final = 10.0
TOO_SLOW: Final = "too slow"
AT_REST: Final = "the validator is at rest"
BROKEN: Final = "internal error"
NOT_THERE: Final = "this validator has no blocks as far down"


class Subscription:
    """One subscriber's events. Made by :meth:`EventHub.subscribe`; :meth:`messages` are the messages to send."""

    def __init__(self, hub: EventHub, client: str, start: Cursor | None, wanted: EventFilter) -> None:
        self.hub = hub
        self.client = client
        self._wanted = wanted
        self._next = start
        """The subscriber's cursor; ``None`` for one that begins with the next block, until events are pushed."""
        self._waiting: deque[tuple[Cursor, bytes]] = deque()
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._end: str | None = None

    async def messages(self) -> AsyncIterator[bytes]:
        """The messages of the stream, until its end."""
        yield b": events\n\n"
        async for message in self._past():
            yield message
        self.hub.feed(self)
        while True:
            while self._waiting:
                place, data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
                yield self._message(place, data)
            if self._end is not None:
                yield _last_message(self._end, self._next)
                return
            if not await self._has_news():
                yield b": nothing new\n\n"

    async def _past(self) -> AsyncIterator[bytes]:
        """The messages with past events, up to the first event that is pushed to subscribers."""
        while self._end is None and not self.hub.is_at(self._next):
            assert self._next is not None
            try:
                page = await self.hub.read_page(self._next, self._wanted)
            except NotReady as error:
                self.end(error.detail)
                return
            if page is None:
                self.end(NOT_THERE)
                return
            for item in page["events"]:
                yield self._message(Cursor(item["height"], item["index"]), _encoded(item))
            self._next = Cursor.parse(page["next"])

    def _message(self, place: Cursor, data: bytes) -> bytes:
        """Encode an event as a message. Its id is the cursor after the event, from which the client can resume."""
        self._next = Cursor(place.height, place.number + 1)
        return f"id: {self._next}\ndata: ".encode() + data + b"\n\n"

    async def _has_news(self) -> bool:
        """Wait for news. Returns ``False`` if there is none before the next heartbeat is due."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def wants(self, placed: PlacedEvent) -> bool:
        """Whether the subscriber wants an event, and has not received it yet."""
        return self._wanted.takes(placed.event) and (self._next is None or placed.cursor >= self._next)

    def take(self, events: Sequence[tuple[PlacedEvent, bytes]]) -> None:
        """Queue those of a block's events that are wanted; too many of them end the stream."""
        for placed, data in events:
            if self._end is not None:
                return
            if not self.wants(placed):
                continue
            if self._waiting and self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
                self.end(TOO_SLOW)
                return
            self._waiting.append((placed.cursor, data))
            self._waiting_bytes += len(data)
            self._news.set()

    def end(self, reason: str) -> None:
        """End the stream after the queued events."""
        self._end = self._end or reason
        self._news.set()


class EventHub:
    """All subscriptions to one validator's events."""

    def __init__(
        self,
        read_block: Callable[[int], Awaitable[Sequence[PlacedEvent]]],
        read_page: Callable[[Cursor, EventFilter], Awaitable[Page | None]],
    ) -> None:
        """``read_block`` returns the events of a final block, ``read_page`` a page of past events."""
        self.read_page = read_page
        self._read_block = read_block
        self._subscriptions: dict[Subscription, bool] = {}
        """All subscriptions, and whether events are pushed to each."""
        self._height = 0
        """Height of the newest final block."""
        self._fed_through = 0
        """Height of the newest block whose events were pushed."""
        self._feeding: asyncio.Task[None] | None = None
        self._end: str | None = None

    def subscribe(self, client: str, start: Cursor | None, wanted: EventFilter) -> Subscription:
        """Make a subscription of a client, which its address identifies. Raises :class:`NoShare` if there are too many.

        The first subscription of a client needs only a free slot, not a share.
        """
        held, own = self.streams, sum(each.client == client for each in self._subscriptions)
        if held >= MAX_STREAMS:
            raise NoShare("too many streams of events")
        if own and not fits_share(MAX_STREAMS, held, own, 1):
            raise NoShare("too many streams of events of this client")
        subscription = Subscription(self, client, start, wanted)
        self._subscriptions[subscription] = False
        return subscription

    def is_at(self, place: Cursor | None) -> bool:
        """Whether a subscriber at this cursor has missed no event that was pushed."""
        return place is None or place.height > self._fed_through

    def feed(self, subscription: Subscription) -> None:
        """From now on push events to a subscription."""
        self._subscriptions[subscription] = True
        if self._end is not None:
            subscription.end(self._end)

    def leave(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)

    def note_final(self, height: int) -> None:
        """Note that a block is final, and can be read."""
        self._height = max(self._height, height)
        if self._feeding is None or self._feeding.done():
            if self._fed:
                self._feeding = asyncio.get_running_loop().create_task(self._feed(), name="events")
            else:
                self._fed_through = self._height

    async def _feed(self) -> None:
        """Push the events of all blocks up to the newest one."""
        while self._fed_through < self._height:
            try:
                placed = await self._read_block(self._fed_through + 1)
            except Exception:
                log.exception("the events of block %d cannot be read", self._fed_through + 1)
                self._end_all(BROKEN)
                return
            self._fed_through += 1
            fed = self._fed
            events = [(each, _encoded(each.page)) for each in placed if any(each_fed.wants(each) for each_fed in fed)]
            for subscription in fed:
                subscription.take(events)

    @property
    def _fed(self) -> list[Subscription]:
        return [subscription for subscription, is_fed in self._subscriptions.items() if is_fed]

    async def close(self) -> None:
        """Push the remaining events, then end every stream; a later stream ends with the newest block."""
        if self._feeding is not None:
            await self._feeding
        self._end_all(AT_REST)

    def _end_all(self, reason: str) -> None:
        self._end = self._end or reason
        for subscription in self._fed:
            subscription.end(reason)

    @property
    def streams(self) -> int:
        return len(self._subscriptions)


def _encoded(page: Page) -> bytes:
    return json.dumps(page, separators=(",", ":")).encode()


def _last_message(reason: str, place: Cursor | None) -> bytes:
    told = {"reason": reason, "next": None if place is None else str(place)}
    return b"event: end\ndata: " + _encoded(told) + b"\n\n"
