"""The common part of every HTTP server of a testnet: bounded requests, one-line errors, a server without surprises.

Whatever a client sends, the answer is a page or one line ``{"error": …}``; a bug in a page is answered with status 500
without its traceback, which goes to the log. Bodies and requests in flight are bounded; so are connections
(:mod:`cluster.live.web.connections`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.live.web.connections import JSON, Connection
from validator.node.executor.queries import AMOUNT_FIELDS

log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
MAX_REQUESTS_IN_FLIGHT: Final = 128
MAX_BODY_SECONDS: Final = 20.0
"""A client that takes longer to send its body is turned away."""
MAX_SHUTDOWN_SECONDS: Final = 2
"""Requests may still run for so long once the server is closed."""
LISTEN_BACKLOG: Final = 512
MAX_CLIENTS: Final = 1_024
"""Clients whose rates are remembered."""

MESSAGEPACK: Final = "application/msgpack"
CLOSE_CONNECTION: Final = {"connection": "close"}
"""Header of an answer to a body that was not read to its end."""

Page = dict[str, Any]
AMOUNTS: Final = ("number", "text")
"""Amounts on a page: JSON numbers of any size, or decimal texts."""


class Rate(NamedTuple):
    """A bound on the requests of a client."""

    a_second: float
    burst: int
    """So many at once after a quiet time."""


Endpoint = Callable[[Request], Awaitable[Response]]


class NotReady(HTTPException):
    """The validator cannot answer yet: it is still recovering."""

    def __init__(self, reason: str) -> None:
        super().__init__(503, reason)


def build_application(
    table: Sequence[tuple[str, str, Endpoint]],
    requests: Counter[tuple[str, int]],
    rate: Rate,
    clock: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """An application of ``(method, path, endpoint)``; ``requests`` counts answers by route and status.

    Each client, by its address, may send requests at ``rate``. ``clock`` gives seconds.
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
    """The endpoint, with an answer for what it does not expect: a client that went away, and a bug."""

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

    One whose length is stated is refused before anything of it is read, any other as soon as it is too long.
    """
    stated = request.headers.get("content-length", "")
    chunks: list[bytes] = []
    size = int(stated) if stated else 0  # the server refuses what is no number
    if size <= MAX_BODY_BYTES:
        size = 0
        try:
            async with asyncio.timeout(MAX_BODY_SECONDS):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > MAX_BODY_BYTES:
                        break
                    chunks.append(chunk)
        except TimeoutError:
            reason = f"the body took longer than {MAX_BODY_SECONDS:g} seconds"
            raise HTTPException(408, reason, CLOSE_CONNECTION) from None
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"body is too large, expected at most {MAX_BODY_BYTES} bytes", CLOSE_CONNECTION)
    return b"".join(chunks)


# --- responses ------------------------------------------------------------------------------------------------------


def json_response(page: Page | list[Page], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(page, separators=(",", ":"))
    return Response(body, status_code=status, media_type=JSON, headers=headers)


def messagepack_response(value: object) -> Response:
    return Response(msgspec.msgpack.encode(value), media_type=MESSAGEPACK)


def page_response(request: Request, page: Page | None, reason: str = "") -> Response:
    """A page as JSON, its amounts as the query's ``amounts`` asks; 404 for ``reason`` if there is none."""
    amounts = request.query_params.get("amounts", AMOUNTS[0])
    if amounts not in AMOUNTS:
        raise HTTPException(400, f"amounts: expected {' or '.join(AMOUNTS)}, got {amounts[:64]!r}")
    if page is None:
        raise HTTPException(404, reason)
    return json_response(_amounts_as_text(page) if amounts == "text" else page)


def _amounts_as_text(value: Any, is_amount: bool = False) -> Any:
    """The same page with decimal texts for the numbers under the names of amounts."""
    match value:
        case dict():
            return {name: _amounts_as_text(item, is_amount or name in AMOUNT_FIELDS) for name, item in value.items()}
        case list():
            return [_amounts_as_text(item, is_amount) for item in value]
        case int() if is_amount and not isinstance(value, bool):
            return str(value)
        case _:
            return value


def one_line(error: object) -> str:
    return " ".join(str(error).split())


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_response({"error": one_line(error.detail)}, error.status_code, error.headers)


class _RequestLimit:
    """Turns requests away while too many are in flight or a client sends too many, and counts all of them."""

    def __init__(
        self, application: ASGIApp, requests: Counter[tuple[str, int]], rate: Rate, clock: Callable[[], float]
    ) -> None:
        self._application = application
        self._requests = requests
        self._in_flight = 0
        self._budgets = ClientBudgets(rate, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests[_route_of(scope), message["status"]] += 1
            await send(message)

        if (reason := self._refusal(scope)) is not None:
            await json_response({"error": reason}, 429)(scope, receive, counting_send)
            return
        self._in_flight += 1
        try:
            await self._application(scope, receive, counting_send)
        finally:
            self._in_flight -= 1

    def _refusal(self, scope: Scope) -> str | None:
        """Why a request is turned away, or ``None``."""
        client = scope.get("client")
        if not self._budgets.take(client[0] if client else ""):
            return f"too many requests, expected at most {self._budgets.rate.a_second} a second"
        return "too many requests waiting" if self._in_flight >= MAX_REQUESTS_IN_FLIGHT else None


class ClientBudgets:
    """The requests that each client may still make: a bucket for each client, which fills at a steady rate.

    As many clients as :data:`MAX_CLIENTS` are remembered; the one that was quiet for longest is forgotten first, and
    begins with a full bucket when it comes again.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The content of a bucket and its time, by client; the most recent client is last."""

    def take(self, client: str) -> bool:
        """Whether the client may make one more request; that one counts."""
        now = self._clock()
        left, at = self._buckets.pop(client, (float(self.rate.burst), now))
        left = min(float(self.rate.burst), left + (now - at) * self.rate.a_second)
        is_allowed = left >= 1
        self._buckets[client] = (left - is_allowed, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return is_allowed


def _route_of(scope: Scope) -> str:
    """The request's route as a metrics label: never the path itself, whose values have no end."""
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
        """``http://host:port``, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    async def close(self) -> None:
        """Stop listening, let requests that run end (two seconds at most), close every connection."""
        self._server.should_exit = True
        await self._task


async def serve(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> HttpServer:
    """Serve the application on the running loop; returns once it listens. Port 0 stands for a free one.

    No signal handlers, no access log. Raises :class:`OSError` if the address cannot be had.
    """
    # The socket's protocol is named because asyncio turns Nagle's algorithm off only if it is; else 40 ms an answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # what clients do wrong is not news
        access_log=False,
        server_header=False,
        backlog=LISTEN_BACKLOG,
        timeout_graceful_shutdown=MAX_SHUTDOWN_SECONDS,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http server")
    started = asyncio.create_task(server.listening.wait())
    await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if task.done():
        await task
    return HttpServer(server, task, host, listener.getsockname()[1])


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers, which reports when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the host's business."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()
