"""Streams between validators: framed TCP, one connection per ordered pair.

A validator dials every peer and sends on the connection that it dialed; it receives on the connections that peers
dialed. So peers need not agree on which connection to keep, and a restarted validator is connected again once it has
dialed every peer and every peer has dialed it. A newer connection of a peer that proved its key replaces the older one.

- Peers prove their key first (:mod:`cluster.live.network.handshake`); refusals are counted by reason.
- A frame is four bytes of length, big-endian, and that many bytes of message, at most :data:`MAX_FRAME_BYTES`.
  A longer message is never sent, but counted.
- Each peer has an outgoing queue, bounded in messages and bytes. It fills while the peer is away or slow; then the
  oldest messages are dropped and counted: consensus tolerates loss, and newer messages are worth more. A queue always
  keeps its order.
- Between a validator and its queues are its links (:mod:`cluster.live.network.links`), which drop and delay messages as
  the scenario says. Messages that are not affected keep their order. An external validator has no such links: its
  messages pass them when they arrive.
- A connection that fails is dialed again, with a backoff up to :data:`MAX_BACKOFF_S`. Addresses may change at any
  time: a host that was started again has new ports.

Everything runs on one event loop and never blocks it. Messages are handed over synchronously, so a slow receiver
leaves bytes in the sockets and slows the sender down (backpressure).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from cluster.live.network.handshake import (
    MAX_HANDSHAKE_FRAME_BYTES,
    Accepted,
    DialerHandshake,
    HandshakeMessage,
    Identity,
    ListenerHandshake,
    Refusal,
    Refused,
    decode_handshake,
    encode_handshake,
)
from cluster.live.network.links import OutgoingLinks
from validator.chain.messages import MAX_MESSAGE_BYTES

LENGTH_BYTES: Final = 4
MAX_FRAME_BYTES: Final = MAX_MESSAGE_BYTES
MAX_QUEUED_MESSAGES: Final = 4_096
"""Limit of messages that wait for one peer."""
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
WRITE_BATCH_BYTES: Final = 256 * 1024
"""Messages are joined up to this many bytes per write."""
MAX_HANDSHAKES: Final = 64
"""Limit of incoming connections during their handshake. One more ends the oldest: strangers cannot lock out peers."""
MAX_HANDSHAKE_FRAMES: Final = 4
"""Frames that a peer may send ahead during the handshake."""
HANDSHAKE_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 3.0
FIRST_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 2.0
ACCEPTED_LASTS_S: Final = 1.0
"""A connection that lasted this long resets the backoff."""
USER_TIMEOUT_MS: Final = 10_000
"""The kernel gives up a connection whose bytes are not acknowledged for this long."""
LISTEN_BACKLOG: Final = 256


class PeerAddress(NamedTuple):
    """The address at which a validator listens for its peers."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """The address as ``host:port``; an IPv6 address is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class TransportCounters:
    """Counts of a transport so far: messages and their bytes, without frames' lengths and handshakes."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    messages_dropped: int = 0
    """Messages dropped from full queues."""
    messages_oversized: int = 0
    """Messages not sent, since no peer accepts a frame of their size."""


class Transport:
    """One validator's streams: :meth:`listen` first, :meth:`start` when messages may arrive, finally :meth:`close`."""

    def __init__(
        self,
        identity: Identity,
        on_message: Callable[[int, bytes], None],
        on_refused: Callable[[str], None],
        on_crash: Callable[[BaseException], None],
        links: OutgoingLinks | None = None,
    ) -> None:
        """``on_message(sender, payload)`` and ``on_refused(reason)`` are called on the loop and must not block.

        Without ``links`` messages are neither dropped nor delayed.

        ``on_crash`` gets an unexpected exception of one of the transport's tasks: a bug.
        """
        self.counters = TransportCounters()
        self.before_write: Callable[[], None] = lambda: None
        """Called before messages go to a peer; does not return if they must not be sent."""
        self.links = links
        self.links_from: Mapping[int, OutgoingLinks] = {}
        """The links from peers that do not model their own, by index: what they send passes these on its arrival."""
        self._identity = identity
        self._on_message = on_message
        self.refused = on_refused
        """Receives the reason why a stream was refused, or ended because of its content."""
        self._on_crash = on_crash
        self._server: asyncio.Server | None = None
        self._incoming: dict[int, FrameStream] = {}
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """Tasks of the incoming connections without a completed handshake, the oldest first."""
        others = [index for index in range(len(identity.validators)) if index != identity.index]
        self._peers = {index: _Peer(self, index) for index in others}

    # --- life ---------------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int = 0) -> PeerAddress:
        """Bind an address; port 0 means a free one. Connections are accepted from :meth:`start` on.

        The socket listens at once: otherwise Linux lets others bind its port, and then refuses to listen.
        Raises :class:`OSError` if the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        held = socket.create_server((host, port), backlog=LISTEN_BACKLOG)
        address: tuple[str, int] = held.getsockname()
        self._server = await loop.create_server(
            self._incoming_stream, sock=held, backlog=LISTEN_BACKLOG, start_serving=False
        )
        return PeerAddress(*address)

    async def start(self) -> None:
        """Accept connections, and dial peers once their addresses are known."""
        assert self._server is not None, "listen() comes first"
        await self._server.start_serving()
        for peer in self._peers.values():
            peer.start()

    async def close(self) -> None:
        """End all streams; nothing is sent or handed over afterwards. Queued messages are dropped."""
        for links in (*(() if self.links is None else (self.links,)), *self.links_from.values()):
            links.close()
        if self._server is not None:
            self._server.close()
        tasks = [*self._handshakes, *(peer.task for peer in self._peers.values() if peer.task is not None)]
        for task in tasks:
            task.cancel()
        for stream in [*self._incoming.values()]:
            stream.close()
        for peer in self._peers.values():
            peer.disconnect()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- use ----------------------------------------------------------------------------------------------------------

    def set_addresses(self, addresses: Mapping[int, PeerAddress]) -> None:
        """Set addresses of peers, by index; the others keep theirs. A changed address is dialed at once."""
        for index, address in addresses.items():
            if index in self._peers:
                self._peers[index].set_address(address)

    def send(self, recipient: int | None, payload: bytes, later_us: int = 0) -> None:
        """Send a message to one peer, or to all if ``recipient`` is ``None``. Never blocks.

        On links it arrives ``later_us`` later than it would otherwise.

        A message above :data:`MAX_FRAME_BYTES` is dropped and counted: a peer or client may have caused its size.
        """
        if len(payload) > MAX_FRAME_BYTES:
            self.counters.messages_oversized += 1
            return
        frame = len(payload).to_bytes(LENGTH_BYTES, "big") + payload
        recipients = self._peers if recipient is None else (recipient,)
        if self.links is None:
            for index in recipients:
                self._queue(index, frame)
            return
        loop = asyncio.get_running_loop()
        for index in recipients:
            self.links.send(index, frame, later_us, loop, self._queue)

    def _queue(self, recipient: int, frame: bytes) -> None:
        self._peers[recipient].send(frame)

    @property
    def index(self) -> int:
        return self._identity.index

    @property
    def connected(self) -> list[int]:
        """Indices of the peers connected in both directions."""
        return [index for index, peer in self._peers.items() if peer.connected and index in self._incoming]

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task on the loop. An exception that ends it goes to ``on_crash``."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_crash(error)

    # --- incoming -----------------------------------------------------------------------------------------------------

    def _incoming_stream(self) -> FrameStream:
        stream = FrameStream(self.refused)
        stream.on_open = lambda: self._take(stream)
        return stream

    def _take(self, stream: FrameStream) -> None:
        if len(self._handshakes) >= MAX_HANDSHAKES:
            self.refused("too_many_handshakes")
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        task = self.spawn(self._welcome(stream))
        self._handshakes[task] = None
        task.add_done_callback(lambda ended: self._handshakes.pop(ended, None))

    async def _welcome(self, stream: FrameStream) -> None:
        """Perform the handshake with a peer that dialed us; then receive its messages."""
        handshake = ListenerHandshake(self._identity)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                stream.write_message(handshake.welcome(await stream.next_message()))
                sender = handshake.accept(await stream.next_message())
        except (Refused, TimeoutError) as error:
            self._refuse(stream, error)
            return
        except asyncio.CancelledError:
            stream.close()
            raise
        stream.write_message(Accepted())
        replaced = self._incoming.get(sender)
        self._incoming[sender] = stream
        if replaced is not None:
            replaced.close()
        stream.on_closed = lambda: self._lost(sender, stream)
        stream.deliver(lambda payload: self._arrived(sender, payload), MAX_FRAME_BYTES)

    def _refuse(self, stream: FrameStream, error: Exception) -> None:
        reason = error.reason if isinstance(error, Refused) else "handshake_timeout"
        self.refused(reason)
        stream.write_message(Refusal(reason))
        stream.close()

    def _lost(self, sender: int, stream: FrameStream) -> None:
        if self._incoming.get(sender) is stream:
            del self._incoming[sender]

    def _arrived(self, sender: int, payload: bytes) -> None:
        links = self.links_from.get(sender)
        if links is None:
            self._received(sender, payload)
        else:
            loop = asyncio.get_running_loop()
            links.send(self.index, payload, 0, loop, lambda _, arriving: self._received(sender, arriving))

    def _received(self, sender: int, payload: bytes) -> None:
        self.counters.messages_received += 1
        self.counters.bytes_received += len(payload)
        self._on_message(sender, payload)

    # --- outgoing -----------------------------------------------------------------------------------------------------

    async def dial(self, index: int, address: PeerAddress) -> FrameStream:
        """Open a stream to a peer and prove our key. Raises :class:`Refused` and :class:`OSError`."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, stream = await loop.create_connection(lambda: FrameStream(self.refused), address.host, address.port)
        handshake = DialerHandshake(self._identity, index)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                stream.write_message(handshake.hello)
                stream.write_message(handshake.prove(await stream.next_message()))
                if not isinstance(await stream.next_message(), Accepted):
                    raise Refused("bad_handshake")
        except BaseException:
            stream.close()
            raise
        return stream


class _Peer:
    """The sending side for one peer: its queue, its address, and the task that keeps a stream open."""

    def __init__(self, transport: Transport, index: int) -> None:
        self.task: asyncio.Task[None] | None = None
        self._transport = transport
        self._index = index
        self._address: PeerAddress | None = None
        self._address_changed = asyncio.Event()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._stream: FrameStream | None = None
        self._flush_due = False

    @property
    def connected(self) -> bool:
        return self._stream is not None

    def start(self) -> None:
        self.task = self._transport.spawn(self._keep_connected())

    def disconnect(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def set_address(self, address: PeerAddress) -> None:
        if address != self._address:
            self._address = address
            self._address_changed.set()
            self.disconnect()

    def send(self, frame: bytes) -> None:
        self._queue.append(frame)
        self._queued_bytes += len(frame)
        while len(self._queue) > MAX_QUEUED_MESSAGES or self._queued_bytes > MAX_QUEUED_BYTES:
            self._queued_bytes -= len(self._queue.popleft())
            self._transport.counters.messages_dropped += 1
        if self._stream is not None and not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write queued messages, in batches, as long as the socket accepts them."""
        self._flush_due = False
        counters = self._transport.counters
        while self._stream is not None and self._queue and self._stream.writable:
            batch: list[bytes] = []
            size = 0
            while self._queue and size < WRITE_BATCH_BYTES:
                batch.append(self._queue.popleft())
                size += len(batch[-1])
            self._queued_bytes -= size
            counters.messages_sent += len(batch)
            counters.bytes_sent += size - LENGTH_BYTES * len(batch)
            self._transport.before_write()
            self._stream.write(b"".join(batch))

    async def _keep_connected(self) -> None:
        """Dial the peer, hold the stream until it is lost, and dial again, forever."""
        loop = asyncio.get_running_loop()
        backoff = FIRST_BACKOFF_S
        while True:
            while self._address is None:
                await self._address_changed.wait()
            self._address_changed.clear()
            began = loop.time()
            try:
                await self._hold(self._address)
            except Refused as refusal:
                self._transport.refused(refusal.reason)
            except OSError:
                pass  # no listener, or no answer in time: dialed again below
            if loop.time() - began > ACCEPTED_LASTS_S or self._address_changed.is_set():
                backoff = FIRST_BACKOFF_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._address_changed.wait(), backoff * random.uniform(0.5, 1.0))
            backoff = min(2 * backoff, MAX_BACKOFF_S)

    async def _hold(self, address: PeerAddress) -> None:
        """Open a stream to the peer, and return when it is lost."""
        stream = await self._transport.dial(self._index, address)
        try:
            lost = asyncio.Event()
            stream.on_closed = lost.set
            stream.on_writable = self._flush
            stream.deliver(lambda payload: stream.fail("not_expected"), MAX_HANDSHAKE_FRAME_BYTES)
            if address == self._address and not stream.closed:
                self._stream = stream
                self._flush()
                await lost.wait()
        finally:
            self._stream = None
            stream.close()


class FrameStream(asyncio.Protocol):
    """One connection, as frames. During the handshake frames are pulled one by one; afterwards they are pushed."""

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self.on_open: Callable[[], object] = lambda: None
        self.on_closed: Callable[[], object] = lambda: None
        self.on_writable: Callable[[], object] = lambda: None
        self.writable = True
        self.closed = False
        self._on_failure = on_failure
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._max_bytes = MAX_HANDSHAKE_FRAME_BYTES
        self._deliver: Callable[[bytes], None] | None = None
        self._early: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None

    # --- what users call ----------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(data)

    def write_message(self, message: HandshakeMessage) -> None:
        frame = encode_handshake(message)
        self.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)

    async def next_message(self) -> HandshakeMessage:
        """The next message of the handshake. Raises :class:`Refused`."""
        while not self._early:
            if self.closed:
                raise Refused("handshake_broken")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return decode_handshake(self._early.popleft())

    def deliver(self, receiver: Callable[[bytes], None], max_bytes: int) -> None:
        """End the handshake: hand every further frame, of at most ``max_bytes``, to ``receiver``."""
        self._max_bytes = max_bytes
        self._deliver = receiver
        while self._early:
            receiver(self._early.popleft())
        self._parse()
        if self.closed:
            self.on_closed()

    def close(self) -> None:
        """End the connection once all writes are sent; nothing is delivered any more."""
        self._deliver = _ignore
        if self._transport is not None:
            self._transport.close()

    def fail(self, reason: str) -> None:
        """End the connection at once, and report ``reason``: what the peer did wrong."""
        if not self.closed:
            self._on_failure(reason)
            self.closed = True
            self._deliver = _ignore
            self._wake()
            if self._transport is not None:
                self._transport.abort()

    # --- what asyncio calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        _tune(transport.get_extra_info("socket"))
        transport.set_write_buffer_limits(high=2 * WRITE_BATCH_BYTES)
        self.on_open()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._parse()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._wake()
        self.on_closed()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.on_writable()

    # --- parts --------------------------------------------------------------------------------------------------------

    def _parse(self) -> None:
        position, buffer = 0, self._buffer
        while len(buffer) - position >= LENGTH_BYTES and not self.closed:
            begin = position + LENGTH_BYTES
            end = begin + int.from_bytes(buffer[position:begin], "big")
            if end - begin > self._max_bytes:
                self.fail("oversized_frame")
                return
            if end > len(buffer):
                break
            if not self._take(bytes(buffer[begin:end])):
                return
            position = end
        if position:
            del buffer[:position]

    def _take(self, frame: bytes) -> bool:
        if self._deliver is not None:
            self._deliver(frame)
        elif len(self._early) < MAX_HANDSHAKE_FRAMES:
            self._early.append(frame)
            self._wake()
        else:
            self.fail("bad_handshake")
        return not self.closed

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _ignore(payload: bytes) -> None:
    """Drop a frame that arrives after the end of its stream."""


def _tune(connection: socket.socket) -> None:
    """Send small messages at once, and detect a peer that vanished silently."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
