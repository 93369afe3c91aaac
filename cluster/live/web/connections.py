"""HTTP connections whose cost is bounded, whatever their clients do: uvicorn's protocol with additional limits.

* Headers must be complete :data:`MAX_HEADER_SECONDS` after the connection was opened or the last answer was sent, else
  the answer is 408. A client that sent nothing is not answered.
* At most :data:`MAX_CONNECTIONS` are open at a time. One more closes one that already has its answer, else the one that
  has waited longest for headers, else the one that has been sending its body for longest; if there is none, the new one
  is answered 503.
* A client may end its side of the connection (a half-closed connection): it gets its answer. A request that ends in the
  middle is answered 400.
* An answer before the body was read closes the connection, slowly: further input is dropped for
  :data:`MAX_LINGER_SECONDS` and up to :data:`MAX_DROPPED_BYTES`, because closing at once would lose the answer for a
  client that still sends.
* A client that takes less than :data:`MIN_TAKEN_BYTES` of its answer in :data:`MAX_WRITE_SECONDS` loses the connection.
* Unsent answers of all clients are at most :data:`MAX_UNTAKEN_BYTES`, except for a single answer. Beyond that, the
  client that has been slow for longest loses the connection.
* Input that is not HTTP is answered like every other error: one JSON line. So is a request whose framing RFC 9112 calls
  faulty (both ``Content-Length`` and ``Transfer-Encoding``), or whose target or host is none (:class:`_Requests`).
  :data:`MAX_EMPTY_LINES` before a request are skipped, and the extensions of a body's chunks have at most
  :data:`MAX_EXTENSION_BYTES`.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.protocols.http import h11_impl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle

from cluster.common.wording import json_text

h11: Final[Any] = vars(h11_impl)["h11"]
"""The library that uvicorn's protocol uses for the states of a connection."""

MAX_CONNECTIONS: Final = 256
"""Limit per server."""
MAX_HEADER_SECONDS: Final = 10.0
MAX_UNREAD_BODY_SECONDS: Final = 20.0
"""Time for the rest of a body that no page reads, after the answer."""
MAX_LINGER_SECONDS: Final = 2.0
MAX_WRITE_SECONDS: Final = 30.0
MIN_TAKEN_BYTES: Final = 64 * 1024
"""The minimum that a client must take in :data:`MAX_WRITE_SECONDS`."""
MAX_UNTAKEN_BYTES: Final = 256 * 1024 * 1024
"""Limit of unsent bytes of all answers per server."""
MAX_DROPPED_BYTES: Final = 32 * 1024 * 1024
MAX_EMPTY_LINES: Final = 1
"""Empty lines that are skipped before a request (RFC 9112, section 2.2): some clients send one after a body."""
MAX_EXTENSION_BYTES: Final = 4 * 1024
"""Limit of a body's extensions of chunks and trailers, in all."""
CHUNK_BYTES: Final = 26
"""The most that a chunk adds to its data without an extension: 20 digits, white space, and the ends of two lines."""
JSON: Final = "application/json"


_HOST: Final = rb"(?:\[[0-9A-Za-z:.]+\]|(?:[0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
HOST: Final = re.compile(_HOST)
"""A value of the header ``Host``, by RFC 9110, section 7.2."""
ABSOLUTE_FORM: Final = re.compile(rb"https?://(?=[^/?:])" + _HOST + rb"(?P<path>[/?].*)?", re.IGNORECASE)
"""A request's target with its host, by RFC 9112, section 3.2.2."""


class _Requests(h11.Connection):
    """The library's connection, which also refuses what RFC 9112 forbids a server to accept, makes a path of the
    absolute form of a target, skips an empty line before a request, and bounds the extensions of chunks."""

    _empty_lines = 0
    """Number of empty lines skipped since the last request."""
    _extension_bytes = 0
    """Bytes of the current body beyond its data and what its chunks need."""

    def next_event(self) -> Any:
        buffer, state = self._receive_buffer, self.their_state
        if state is h11.IDLE and self._empty_lines < MAX_EMPTY_LINES:
            if buffer._data == b"\r" and not self.trailing_data[1]:
                return h11.NEED_DATA
            if buffer._data.startswith(b"\r\n"):
                buffer.maybe_extract_next_line()
                self._empty_lines += 1
        before = len(buffer)
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._empty_lines = self._extension_bytes = 0
            return _checked(event)
        if state is h11.SEND_BODY:
            needed = CHUNK_BYTES + (len(event.data) if isinstance(event, h11.Data) else 0)
            self._extension_bytes += max(0, before - len(buffer) - needed)
            if self._extension_bytes > MAX_EXTENSION_BYTES:
                raise h11.RemoteProtocolError(f"more than {MAX_EXTENSION_BYTES:,} bytes of chunk extensions")
        return event


def _checked(request: Any) -> Any:
    """A request with a target that is a path. Raises ``RemoteProtocolError``."""
    if not request.http_version.startswith(b"1."):
        raise h11.RemoteProtocolError("another version than HTTP/1.0 and HTTP/1.1")
    headers = {name.lower(): value for name, value in request.headers.raw_items()}
    if b"transfer-encoding" in headers:  # another party may have read another body: it could hide a request
        if b"content-length" in headers:
            raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        if request.http_version < b"1.1":
            raise h11.RemoteProtocolError("Transfer-Encoding in a request of HTTP/1.0")
    if not HOST.fullmatch(headers.get(b"host", b"")):
        raise h11.RemoteProtocolError("no value of Host")
    if request.target.startswith(b"/") or request.method == b"CONNECT":
        return request
    if request.target == b"*" and request.method == b"OPTIONS":
        return request
    found = ABSOLUTE_FORM.fullmatch(request.target)
    if found is None:
        raise h11.RemoteProtocolError("no target: expected a path, or http:// with a host and a path")
    path = found["path"] or b""
    return h11.Request(
        method=request.method,
        headers=request.headers,
        target=path if path.startswith(b"/") else b"/" + path,
        http_version=request.http_version,
    )


def error_body(reason: object) -> bytes:
    """The body of an error's answer: one line of JSON."""
    return json_text({"error": " ".join(str(reason).split())}, separators=(",", ":")).encode()


class _Transport:
    """A connection's transport with another method ``close``: the given function."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(H11Protocol):
    """One client's connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = _Requests(h11.SERVER, self.config.h11_max_incomplete_event_size)
        self._socket: asyncio.Transport
        self._awaited: tuple[object, object] | None = None
        """The input that the client must send: the state of the connection, and the previous or current request."""
        self._deadline: asyncio.TimerHandle | None = None
        """Timer for when the awaited input is due."""
        self._due_s = 0.0
        """Time at which the awaited input is due, by a finer clock than the loop's, which counts milliseconds."""
        self._abort_timer: asyncio.TimerHandle | None = None
        """Timer for the next check that the client takes its answer, while there is one to take."""
        self._slow_since: float | None = None
        """Time since which an answer waits for the client to take it, by the loop's clock; ``None`` if none does."""
        self._sends_since: float | None = None
        """Time since which the client sends a body, by the loop's clock; ``None`` if it does not."""
        self._has_ended = False
        """Whether the client has closed its sending side."""
        self._is_closing = False
        self._dropped_bytes = 0

    # --- called by the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        super().connection_made(cast(asyncio.Transport, _Transport(transport, self._close)))
        self._watch()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        for timer in (self._deadline, self._abort_timer):
            if timer is not None:
                timer.cancel()
        self._deadline = self._abort_timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_closing:
            super().data_received(data)
            return
        self._dropped_bytes += len(data)
        if self._dropped_bytes > MAX_DROPPED_BYTES:
            self._socket.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Handle the end of the client's input. Returns ``True`` to keep the connection open for a pending answer."""
        if self._is_closing:
            return False
        self._has_ended = True
        self._refuse_part()
        return self._has_work and not self._is_closing

    def _refuse_part(self) -> None:
        """After the end of input, refuse an incomplete request, unless it must wait for earlier answers."""
        if self.conn.their_state is h11.SEND_BODY and not self.cycle.response_started:
            self._refuse(400, "the connection ended in the middle of the body")
        elif self.conn.their_state is h11.IDLE and self._has_begun:
            self._refuse(400, "the connection ended in the middle of the headers")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._slow_since = self.loop.time()
        self._await_taking()
        self._bound_untaken()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._slow_since = None
        if self._abort_timer is not None and not self._is_closing:
            self._abort_timer.cancel()
            self._abort_timer = None

    # --- requests and answers -----------------------------------------------------------------------------------------

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        if self._is_closing:
            return
        super().on_response_complete()
        if self._has_ended:
            self._refuse_part()
            if not self._has_work:
                self._close()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer input that is not HTTP. Called while the error is handled that has the reason."""
        error = sys.exception()
        reason = error if isinstance(error, h11.RemoteProtocolError) else msg
        self._refuse(431 if getattr(error, "error_status_hint", 400) == 431 else 400, f"no HTTP request: {reason}")

    def shutdown(self) -> None:
        if self._is_closing:
            self._socket.abort()
        else:
            super().shutdown()

    @property
    def _has_begun(self) -> bool:
        """Whether part of a request's headers has arrived."""
        return bool(self.conn.trailing_data[0])

    @property
    def _has_work(self) -> bool:
        """Whether a request waits for its answer, or for the rest of it."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    # --- limits -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Set the deadline of the input that the client must send; input that was already due keeps its deadline."""
        state = self.conn.their_state
        if state is not h11.SEND_BODY:
            self._sends_since = None
        elif self._sends_since is None:
            self._sends_since = self.loop.time()
        owes = state is h11.IDLE or (state is h11.SEND_BODY and not self._has_work)
        awaited = (state, self.cycle) if owes and not self._is_closing else None
        if awaited == self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._awaited = awaited
        if awaited is not None:
            seconds = MAX_HEADER_SECONDS if state is h11.IDLE else MAX_UNREAD_BODY_SECONDS
            self._deadline = self.loop.call_later(seconds, self._give_up)
            self._due_s = time.monotonic() + seconds

    def _give_up(self) -> None:
        """Refuse or close a connection whose client did not send the awaited input in time."""
        if self.conn.their_state is h11.IDLE and self._has_begun:
            self._refuse(408, f"the headers took longer than {MAX_HEADER_SECONDS:g} seconds")
        else:
            self._close()

    def _make_room(self) -> None:
        """Enforce the limit of connections: drop another one for this new one, or refuse this one."""
        if len(self.connections) <= MAX_CONNECTIONS:
            return
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        dispensable = [(rank, other) for other in others if (rank := other.dispensable) is not None]
        if dispensable:
            min(dispensable, key=lambda each: each[0])[1].drop()
        else:
            self._refuse(503, f"too many connections, expected at most {MAX_CONNECTIONS}")

    @property
    def dispensable(self) -> tuple[int, float] | None:
        """The rank among the connections to close for a new one, lowest first; ``None`` if this one must stay.

        First come connections that have their answer, then those that await headers, then bodies, the oldest first.
        """
        sends_on = self._sends_since is not None and not self._has_work
        if self._is_closing or sends_on:
            return 0, 0.0
        if self._deadline is not None:
            return 1, self._due_s
        return None if self._sends_since is None else (2, self._sends_since)

    def drop(self) -> None:
        """Close at once, without an answer."""
        self.connections.discard(self)
        self._socket.abort()

    def _refuse(self, status: int, reason: str) -> None:
        """Answer with an error, unless another answer was begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = error_body(reason)
            headers = f"content-type: {JSON}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            self._socket.write(b"HTTP/1.1 %d %s\r\n" % (status, STATUS_PHRASES[status]) + headers + body)
        self._close()

    def _close(self) -> None:
        """Close the connection once the client has taken its answer, in bounded time."""
        if self._is_closing:
            return
        self._is_closing = True
        self._watch()
        if self._has_work:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        if self._has_ended or self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            self._await_taking()
            self._socket.close()
        else:
            self._abort_timer = self.loop.call_later(MAX_LINGER_SECONDS, self._socket.abort)
            self.flow.resume_reading()
            self._socket.write_eof()

    def _await_taking(self) -> None:
        """Start the timer that aborts the connection if the client receives too little of its answer."""
        left = self._socket.get_write_buffer_size()
        self._abort_timer = self.loop.call_later(MAX_WRITE_SECONDS, self._look_at_taken, left)

    def _look_at_taken(self, left_before: int) -> None:
        """Abort the connection if the client took too little of its answer; else give it the same time again."""
        if left_before - self._socket.get_write_buffer_size() < MIN_TAKEN_BYTES:
            self._socket.abort()
        else:
            self._await_taking()

    def _bound_untaken(self) -> None:
        """Drop slow clients until the unsent bytes are within the limit. The one slow for longest is dropped first."""
        slow = [other for other in self.connections if isinstance(other, Connection) and other._slow_since is not None]
        untaken = sum(other._socket.get_write_buffer_size() for other in slow)
        for other in sorted(slow, key=lambda each: each._slow_since or 0.0):
            if untaken <= MAX_UNTAKEN_BYTES or other is self:
                return
            untaken -= other._socket.get_write_buffer_size()
            other.drop()
