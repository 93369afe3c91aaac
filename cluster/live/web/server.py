"""The common part of every HTTP server of a testnet: bounded requests and one-line errors.

Every request is answered with a page or one line ``{"error": …}``; a bug in a page is answered with status 500
without its traceback, which goes to the log. Bodies and requests in flight are bounded; so are connections
(:mod:`cluster.live.web.connections`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import Server

from cluster.common.wording import json_text
from cluster.live.web.addresses import Served
from cluster.live.web.connections import JSON, Connection
from validator.node.executor.queries import AMOUNT_FIELDS

LOOP_TIMEOUT_S: Final = 10.0
"""How long the start or the end of a server of a :class:`LoopThread` may take."""

log = logging.getLogger(__name__)

MAX_HEADER_BYTES: Final = 64 * 1024
"""Limit of the request line and the headers."""
MAX_INCOMPLETE_BYTES: Final = MAX_HEADER_BYTES + 2 * 1024
"""The parser's limit for a head that arrives in pieces. It counts the separators of headers, too."""
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
MAX_REQUESTS_IN_FLIGHT: Final = 128
"""Limit per server. One more request ends the one whose body has been arriving for longest; if there is none, the new
request is refused.
"""
MAX_ARRIVING_BYTES: Final = 128 * 1024 * 1024
"""Limit of the total size of all incomplete bodies. A single one may be larger."""
MAX_BODY_SECONDS: Final = 20.0
"""A client that takes longer to send its body is refused."""
MAX_SHUTDOWN_SECONDS: Final = 2
"""How long requests may still run once the server is closed."""
LISTEN_BACKLOG: Final = 512
MAX_CLIENTS: Final = 1_024
"""Limit of clients whose rates are remembered."""

MESSAGEPACK: Final = "application/msgpack"
ARRIVING: Final = "stampede.arriving"
"""The key of a server's :class:`ArrivingBodies` in a request's scope."""
TOO_MANY_WAITING: Final = "too many requests waiting"
CLOSE_CONNECTION: Final = {"connection": "close"}
"""Header of an answer to a body that was not read completely."""

Page = dict[str, Any]
AMOUNTS: Final = ("number", "text")
"""The forms of amounts on a page: JSON numbers of any size, or decimal texts."""


class Rate(NamedTuple):
    """A bound on the requests of a client."""

    a_second: float
    burst: int
    """Requests allowed at once after a quiet time."""


Endpoint = Callable[[Request], Awaitable[Response]]


class NotReady(HTTPException):
    """The validator cannot answer now, for example because it is still recovering. The answer has status 503."""

    def __init__(self, reason: str) -> None:
        super().__init__(503, reason)


def build_application(
    table: Sequence[tuple[str, str, Endpoint]],
    requests: Counter[tuple[str, int]],
    rate: Rate,
    clock: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """An application of ``(method, path, endpoint)``; ``requests`` counts answers by route and status.

    Each client, by its address, may send requests at ``rate``. ``clock`` returns seconds.
    """
    application = Starlette(
        routes=[Route(path, guarded(endpoint), methods=[method]) for method, path, endpoint in table],
        exception_handlers={HTTPException: _http_error},
    )
    application.router.redirect_slashes = False
    pages = ", ".join(f"{method} {path}" for method, path, _ in table)

    async def nowhere(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise HTTPException(404, f"no such page; there are {pages}")

    application.router.default = nowhere
    return _RequestLimit(application, requests, rate, clock)


def guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Wrap an endpoint so that it also handles a client that went away, and a bug."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HTTPException:
            raise
        except ClientDisconnect:
            raise HTTPException(400, "the connection ended in the middle of the body") from None
        except Exception:
            log.exception("%s %s failed", request.method, request.scope["path"])
            return json_response({"error": "internal error"}, 500)

    return answer


# --- requests -------------------------------------------------------------------------------------------------------


async def read_body(request: Request) -> bytes:
    """The whole body, or an error with status 413 (too large) or 408 (too slow).

    A body with a stated length is refused before any of it is read, any other as soon as it is too long.
    """
    stated = request.headers.get("content-length", "")
    chunks: list[bytes] = []
    size = int(stated) if stated else 0  # the server refuses a length that is not a number
    if size <= MAX_BODY_BYTES:
        size = 0
        arriving: ArrivingBodies = request.scope[ARRIVING]
        limit = asyncio.timeout(MAX_BODY_SECONDS)
        try:
            async with limit:
                arriving.sizes[limit] = 0
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > MAX_BODY_BYTES:
                        break
                    chunks.append(chunk)
                    arriving.note(limit, size)
        except TimeoutError:
            if limit not in arriving.sizes:
                raise HTTPException(429, TOO_MANY_WAITING, CLOSE_CONNECTION) from None
            reason = f"the body took longer than {MAX_BODY_SECONDS:g} seconds"
            raise HTTPException(408, reason, CLOSE_CONNECTION) from None
        finally:
            arriving.sizes.pop(limit, None)
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"body is too large, expected at most {MAX_BODY_BYTES} bytes", CLOSE_CONNECTION)
    return b"".join(chunks)


class ArrivingBodies:
    """The bodies that a server is receiving. Clients that send slowly or never end must not block others."""

    def __init__(self) -> None:
        self.sizes: dict[asyncio.Timeout, int] = {}
        """Bytes received so far, keyed by the time limit of each body; the oldest body is first."""

    def note(self, limit: asyncio.Timeout, size: int) -> None:
        """Note the size of a growing body. The oldest other bodies are refused while the total is too large."""
        if limit in self.sizes:
            self.sizes[limit] = size
        while sum(self.sizes.values()) > MAX_ARRIVING_BYTES and self.drop_oldest(but=limit):
            pass

    def drop_oldest(self, but: asyncio.Timeout | None = None) -> bool:
        """Refuse the oldest body, except ``but``. Returns whether there was one."""
        oldest = next((limit for limit in self.sizes if limit is not but and not limit.expired()), None)
        if oldest is None:
            return False
        del self.sizes[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
        return True


# --- responses ------------------------------------------------------------------------------------------------------


def json_response(page: Page | list[Page], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json_text(page, separators=(",", ":"))
    return Response(body, status_code=status, media_type=JSON, headers=headers)


def messagepack_response(value: object) -> Response:
    return Response(msgspec.msgpack.encode(value), media_type=MESSAGEPACK)


class EventStream(StreamingResponse):
    """A response with server-sent events."""

    def __init__(
        self, messages: AsyncIterator[bytes], on_end: Callable[[], None], on_begin: Callable[[], None] = lambda: None
    ) -> None:
        """``on_end`` is called once the stream has ended, however that happens."""
        super().__init__(messages, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._on_begin, self._on_end = on_begin, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._on_begin()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def page_response(request: Request, page: Page | None, reason: str = "") -> Response:
    """A page as JSON, with amounts in the form of the query's ``amounts``; 404 for ``reason`` if there is none."""
    amounts = request.query_params.get("amounts", AMOUNTS[0])
    if amounts not in AMOUNTS:
        raise HTTPException(400, f"amounts: expected {' or '.join(AMOUNTS)}, got {amounts[:64]!r}")
    if page is None:
        raise HTTPException(404, reason)
    return json_response(_amounts_as_text(page) if amounts == "text" else page)


def _amounts_as_text(value: Any, is_amount: bool = False) -> Any:
    """A copy of a page, or of a value in it, with decimal texts in place of numbers in amount fields."""
    match value:
        case dict():
            return {name: _amounts_as_text(item, is_amount or name in AMOUNT_FIELDS) for name, item in value.items()}
        case list():
            return [_amounts_as_text(item, is_amount) for item in value]
        case int() if is_amount and not isinstance(value, bool):
            return str(value)
        case _:
            return value


def client_of(scope: Mapping[str, Any]) -> str:
    """The address of the client of a request or its scope; empty if it is unknown."""
    client = scope.get("client")
    return client[0] if client else ""


def one_line(error: object) -> str:
    return " ".join(str(error).split())


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_response({"error": one_line(error.detail)}, error.status_code, error.headers)


class _RequestLimit:
    """Refuses requests while too many are in flight or a client sends too many, and counts all of them."""

    def __init__(
        self, application: ASGIApp, requests: Counter[tuple[str, int]], rate: Rate, clock: Callable[[], float]
    ) -> None:
        self._application = application
        self._requests = requests
        self._in_flight = 0
        self._arriving = ArrivingBodies()
        self._budgets = ClientBudgets(rate, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests[_route_of(scope), message["status"]] += 1
            await send(message)

        if (refusal := self._refusal(scope)) is not None:
            status, reason = refusal
            await json_response({"error": reason}, status)(scope, receive, counting_send)
            return
        self._in_flight += 1
        scope[ARRIVING] = self._arriving
        try:
            await self._application(scope, receive, counting_send)
        finally:
            self._in_flight -= 1

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason with which a request is refused, or ``None``."""
        if not self._budgets.take(client_of(scope)):
            return 429, f"too many requests, expected at most {self._budgets.rate.a_second} a second"
        if self._in_flight >= MAX_REQUESTS_IN_FLIGHT and not self._arriving.drop_oldest():
            return 429, TOO_MANY_WAITING
        if _header_bytes(scope) > MAX_HEADER_BYTES:
            return 431, f"request line and headers are too large, expected at most {MAX_HEADER_BYTES} bytes"
        return None


class ClientBudgets:
    """The requests that each client may still make: a token bucket per client.

    Up to :data:`MAX_CLIENTS` clients are remembered; the one that was quiet for longest is forgotten first, and starts
    with a full bucket when it returns.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The content of a bucket and its time, keyed by client; the most recent client is last."""

    def take(self, client: str) -> bool:
        """Whether the client may make one more request; counts that request."""
        now = self._clock()
        left, at = self._buckets.pop(client, (float(self.rate.burst), now))
        left = min(float(self.rate.burst), left + (now - at) * self.rate.a_second)
        is_allowed = left >= 1
        self._buckets[client] = (left - is_allowed, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return is_allowed


def _header_bytes(scope: Scope) -> int:
    """Bytes of a request's target and of its headers' names and values."""
    return len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(a) + len(b) for a, b in scope["headers"])


def _route_of(scope: Scope) -> str:
    """The request's route as a metrics label: never the path itself, which has unbounded values."""
    route = scope.get("route")
    return route.path if isinstance(route, Route) else "other"


# --- the server -----------------------------------------------------------------------------------------------------


class HttpServer:
    """A running endpoint. :meth:`close` ends it."""

    def __init__(self, server: _Server, task: asyncio.Task[None], host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._server = server
        self._task = task

    @property
    def url(self) -> str:
        """The base URL ``http://host:port``, without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    async def close(self) -> None:
        """Stop listening, let running requests end (two seconds at most), close every connection."""
        self._server.should_exit = True
        await self._task


async def serve(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> HttpServer:
    """Serve the application on the running loop; returns once it listens. Port 0 means a free one.

    The server has no signal handlers and no access log. Raises :class:`OSError` if the address cannot be bound.
    """
    # asyncio turns Nagle's algorithm off only if the protocol is named; otherwise each answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    config = Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # errors of clients are not worth logging
        access_log=False,
        server_header=False,
        proxy_headers=False,
        forwarded_allow_ips="",  # this and the next are given, so that no variable of the environment decides
        workers=1,
        backlog=LISTEN_BACKLOG,
        timeout_graceful_shutdown=MAX_SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=MAX_INCOMPLETE_BYTES,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http server")
    started = asyncio.create_task(server.listening.wait())
    await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if task.done():
        await task
    return HttpServer(server, task, host, listener.getsockname()[1])


class _Server(Server):
    """Uvicorn without signal handlers, which reports when it listens."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: signals are left to the host."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class LoopThread:
    """A daemon thread that runs :attr:`loop` until :meth:`close`."""

    def __init__(self, name: str) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def serve(self, application: ASGIApp, served: Served) -> HttpServer:
        """Serve an application. Raises :class:`OSError` if the address cannot be bound; then the thread has ended."""
        started = serve(application, served.bind, served.port)
        try:
            return asyncio.run_coroutine_threadsafe(started, self.loop).result(LOOP_TIMEOUT_S)
        except BaseException:
            self._end()
            raise

    def close(self, server: HttpServer) -> None:
        """End a server that :meth:`serve` started, and the thread."""
        asyncio.run_coroutine_threadsafe(server.close(), self.loop).result(LOOP_TIMEOUT_S)
        self._end()

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
