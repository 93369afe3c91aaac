"""The HTTP endpoint of one validator, as ``docs/http.md`` describes it.

The application stands over :class:`ValidatorPages` and knows nothing of validators, disks or Ray. Whatever a client
sends, the answer is a page or one line ``{"error": …}``; a bug in a page is answered with status 500 without its
traceback, which goes to the log. Bodies, batches and requests in flight are bounded.
"""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import json
import logging
import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from validator.events import SubmitResult
from validator.types import HEIGHT_LIMIT, Address, Hash, Height, TimerId

log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
MAX_DRAINED_BYTES: Final = 4 * MAX_BODY_BYTES
"""So much of a body that is too large is read and dropped, so that its sender gets to read the answer."""
MAX_BATCH_TRANSACTIONS: Final = 1_024
MAX_BLOCKS_A_REQUEST: Final = 256
MAX_REQUESTS_IN_FLIGHT: Final = 128
MAX_BODY_SECONDS: Final = 20.0
"""A client that takes longer to send its body is turned away."""
MAX_SHUTDOWN_SECONDS: Final = 2
"""How long requests may still run once the server is closed."""
LISTEN_BACKLOG: Final = 512

MESSAGEPACK: Final = "application/msgpack"
JSON: Final = "application/json"
CLOSE_CONNECTION: Final = {"connection": "close"}
"""Header of an answer to a body that was not read to its end."""
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"

Page = dict[str, Any]
BlockTriple = tuple[bytes, bytes, bytes]
"""``Block``, ``BlockReceipts`` (canonical encodings) and the state root that this validator computed itself."""


class NotReady(Exception):
    """The validator cannot answer yet: it is still recovering. Answered with status 503."""


class ValidatorPages(Protocol):
    """What a validator shows. Every method may raise :class:`NotReady`; ``None`` means that there is no such thing."""

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        """Offer signed transactions to the mempool. Results are in order, one for each."""

    async def status(self) -> Page: ...

    async def block(self, height: Height) -> Page | None: ...

    async def blocks_raw(self, first: Height, count: int) -> Sequence[BlockTriple]:
        """Final blocks from ``first`` on, at most ``count``, as many as there are."""

    async def receipt(self, transaction_hash: Hash) -> Page | None: ...

    async def account(self, address: Address) -> Page: ...

    async def timer(self, timer_id: TimerId) -> Page | None: ...

    async def divergence(self) -> bytes | None:
        """The encoded trace of the block at which the validator diverged."""

    async def metrics(self) -> str:
        """Prometheus text of the validator; the application adds its own request counter."""


def build_app(pages: ValidatorPages) -> ASGIApp:
    """The ASGI application of one validator."""
    endpoints = _Endpoints(pages)
    table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("POST", "/transactions", endpoints.transactions),
        ("GET", "/status", endpoints.status),
        ("GET", "/blocks", endpoints.blocks),
        ("GET", "/blocks/{height}", endpoints.block),
        ("GET", "/receipts/{hash}", endpoints.receipt),
        ("GET", "/accounts/{address}", endpoints.account),
        ("GET", "/timers/{id}", endpoints.timer),
        ("GET", "/divergence", endpoints.divergence),
        ("GET", "/metrics", endpoints.metrics),
    ]
    application = Starlette(
        routes=[Route(path, _guarded(endpoint), methods=[method]) for method, path, endpoint in table],
        exception_handlers={HTTPException: _http_error, NotReady: _not_ready},
    )
    application.router.redirect_slashes = False
    return _RequestLimit(application, endpoints.requests)


# --- pages ----------------------------------------------------------------------------------------------------------


class _Endpoints:
    """One method a page: check the request, ask the validator, encode the answer."""

    def __init__(self, pages: ValidatorPages) -> None:
        self._pages = pages
        self.requests: Counter[tuple[str, int]] = Counter()
        """Requests answered, by route and status."""

    async def transactions(self, request: Request) -> Response:
        decode = _body_decoder(request.headers.get("content-type", ""))
        transactions = decode(await _read_body(request))
        if len(transactions) > MAX_BATCH_TRANSACTIONS:
            raise HTTPException(
                413, f"batch of {len(transactions)} transactions, expected at most {MAX_BATCH_TRANSACTIONS}"
            )
        results = await self._pages.submit(transactions)
        return _json_response(
            {"results": [{"hash": result.transaction_hash.hex(), "error": result.error} for result in results]}
        )

    async def status(self, request: Request) -> Response:
        return _json_response(await self._pages.status())

    async def blocks(self, request: Request) -> Response:
        first = _parse_integer("from", request.query_params.get("from", ""), HEIGHT_LIMIT - 1)
        count = _parse_integer("count", request.query_params.get("count", ""), MAX_BLOCKS_A_REQUEST)
        triples = await self._pages.blocks_raw(Height(first), count)
        return _messagepack_response([list(triple) for triple in triples])

    async def block(self, request: Request) -> Response:
        height = Height(_parse_integer("height", request.path_params["height"], HEIGHT_LIMIT - 1))
        if MESSAGEPACK in request.headers.get("accept", ""):
            triples = await self._pages.blocks_raw(height, 1)
            if not triples:
                raise HTTPException(404, f"no final block at height {height}")
            return _messagepack_response(list(triples[0]))
        return _found(await self._pages.block(height), f"no final block at height {height}")

    async def receipt(self, request: Request) -> Response:
        name = _parse_hash("transaction hash", request.path_params["hash"])
        return _found(await self._pages.receipt(Hash(name)), f"no final transaction {name.hex()}")

    async def account(self, request: Request) -> Response:
        return _json_response(await self._pages.account(_parse_address(request.path_params["address"])))

    async def timer(self, request: Request) -> Response:
        name = _parse_hash("timer id", request.path_params["id"])
        return _found(await self._pages.timer(TimerId(name)), f"no pending timer {name.hex()}")

    async def divergence(self, request: Request) -> Response:
        trace = await self._pages.divergence()
        if trace is None:
            raise HTTPException(404, "the validator has not diverged")
        return Response(trace, media_type=MESSAGEPACK)

    async def metrics(self, request: Request) -> Response:
        text = await self._pages.metrics()
        samples = [({"path": path, "status": str(status)}, n) for (path, status), n in sorted(self.requests.items())]
        text += render_metric("stampede_http_requests_total", "counter", "HTTP requests answered.", samples)
        return Response(text, headers={"content-type": PROMETHEUS})


def _guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint, with an answer for what it does not expect: a client that went away, and a bug."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (HTTPException, NotReady):
            raise
        except ClientDisconnect:
            raise HTTPException(400, "the connection ended in the middle of the body") from None
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            return _json_response({"error": "internal error"}, 500)

    return answer


# --- requests -------------------------------------------------------------------------------------------------------


def _body_decoder(content_type: str) -> Callable[[bytes], list[bytes]]:
    match content_type.split(";")[0].strip().lower():
        case "application/msgpack":
            return _decode_messagepack
        case "application/json":
            return _decode_json
        case other:
            raise HTTPException(400, f"Content-Type: expected {MESSAGEPACK} or {JSON}, got {other[:64]!r}")


async def _read_body(request: Request) -> bytes:
    """The whole body, or an error with status 413 (too large) or 400 (too slow)."""
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(MAX_BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= MAX_BODY_BYTES:
                    chunks.append(chunk)
                elif size > MAX_DRAINED_BYTES:
                    break
    except TimeoutError:
        reason = f"the body took longer than {MAX_BODY_SECONDS:g} seconds"
        raise HTTPException(400, reason, CLOSE_CONNECTION) from None
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"body is too large, expected at most {MAX_BODY_BYTES} bytes", CLOSE_CONNECTION)
    return b"".join(chunks)


_messagepack_batch: Final = msgspec.msgpack.Decoder(bytes | list[bytes])
_json_batch: Final = msgspec.json.Decoder(str | list[str])


def _decode_messagepack(body: bytes) -> list[bytes]:
    try:
        batch = _messagepack_batch.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"body: no MessagePack bin or array of bin: {_one_line(error)}") from None
    return batch if isinstance(batch, list) else [batch]


def _decode_json(body: bytes) -> list[bytes]:
    try:
        batch = _json_batch.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"body: no JSON text or list of texts: {_one_line(error)}") from None
    transactions: list[bytes] = []
    for position, text in enumerate(batch if isinstance(batch, list) else [batch]):
        try:
            transactions.append(binascii.unhexlify(text))
        except ValueError:
            raise HTTPException(400, f"body: transaction {position} is no hex text") from None
    return transactions


_DECIMAL: Final = re.compile(r"[0-9]{1,19}")
_HASH: Final = re.compile(r"[0-9a-fA-F]{64}")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")


def _parse_integer(name: str, text: str, maximum: int) -> int:
    if not _DECIMAL.fullmatch(text) or int(text) > maximum:
        raise HTTPException(400, f"{name}: expected an integer from 0 to {maximum}, got {text[:64]!r}")
    return int(text)


def _parse_hash(name: str, text: str) -> bytes:
    if not _HASH.fullmatch(text):
        raise HTTPException(400, f"{name}: expected 64 hex digits, got {text[:80]!r}")
    return bytes.fromhex(text)


def _parse_address(text: str) -> Address:
    if not _ADDRESS.fullmatch(text):
        raise HTTPException(400, f"address: expected 0x and 40 hex digits, got {text[:80]!r}")
    return Address(bytes.fromhex(text[2:]))


# --- responses ------------------------------------------------------------------------------------------------------


def _json_response(page: Page, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(page, separators=(",", ":"))
    return Response(body, status_code=status, media_type=JSON, headers=headers)


def _messagepack_response(value: object) -> Response:
    return Response(msgspec.msgpack.encode(value), media_type=MESSAGEPACK)


def _found(page: Page | None, reason: str) -> Response:
    if page is None:
        raise HTTPException(404, reason)
    return _json_response(page)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json_response({"error": _one_line(error.detail)}, error.status_code, error.headers)


async def _not_ready(request: Request, error: Exception) -> Response:
    return _json_response({"error": _one_line(error) or "still recovering"}, 503)


class _RequestLimit:
    """Turns requests away while too many are in flight, and counts all of them."""

    def __init__(self, application: ASGIApp, requests: Counter[tuple[str, int]]) -> None:
        self._application = application
        self._requests = requests
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests[_route_of(scope), message["status"]] += 1
            await send(message)

        if self._in_flight >= MAX_REQUESTS_IN_FLIGHT:
            answer = _json_response({"error": "too many requests waiting"}, 429)
            await answer(scope, receive, counting_send)
            return
        self._in_flight += 1
        try:
            await self._application(scope, receive, counting_send)
        finally:
            self._in_flight -= 1


def _route_of(scope: Scope) -> str:
    """The request's route as a metrics label: never the path itself, whose values have no end."""
    route = scope.get("route")
    return route.path if isinstance(route, Route) else "other"


# --- metrics --------------------------------------------------------------------------------------------------------


def render_metric(
    name: str, kind: str, description: str, samples: int | Sequence[tuple[Mapping[str, str], int]]
) -> str:
    """One metric in Prometheus' text format. ``kind`` is ``gauge`` or ``counter``; a plain number has no labels."""
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
    for labels, value in [({}, samples)] if isinstance(samples, int) else samples:
        inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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

    No signal handlers, no access log. Raises :class:`OSError` where the address cannot be had.
    """
    # The protocol is named because asyncio turns Nagle's algorithm off only where it is; 40 ms an answer otherwise.
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
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
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
    """Uvicorn without signal handlers, which says when it listens."""

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
