"""The HTTP endpoint of one validator, as ``docs/http.md`` describes it.

Requests are checked here, and answered by :class:`~cluster.live.host.pages.Pages`. Every request is answered
with a page or one line ``{"error": …}``; a bug in a page is answered with status 500 without its traceback, which goes
to the log. Bodies, batches and requests in flight are bounded.
"""

from __future__ import annotations

import binascii
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cluster.live.host.pages import Pages
from cluster.live.web.connections import JSON
from cluster.live.web.prometheus_text import PROMETHEUS, render_metric
from cluster.live.web.server import (
    MAX_REQUESTS_IN_FLIGHT,
    MESSAGEPACK,
    Endpoint,
    EventStream,
    Rate,
    build_application,
    client_of,
    json_response,
    messagepack_response,
    one_line,
    page_response,
    read_body,
)
from cluster.live.web.shares import Amounts, NoShare, Shares
from cluster.record.archive import BlockRecord
from cluster.record.chain_store import block_digest
from validator.node.executor.queries import BlockGone, Cursor, EventFilter, StatePages
from validator.node.offers import MAX_OFFERED_BYTES, MAX_OFFERED_TRANSACTIONS
from validator.primitives.types import ADDRESS_BYTES, HEIGHT_LIMIT, MAX_NAME_BYTES, Address, Hash, parse_decimal
from validator.state import HistoryError
from validator.state.hashing import KEY_BYTES_LIMIT

T = TypeVar("T")

MAX_BATCH_TRANSACTIONS: Final = 1_024
MAX_BATCH_ACCOUNTS: Final = 1_024
MAX_BLOCKS_PER_REQUEST: Final = 256
CLIENT_RATE: Final = Rate(5_000, 10_000)
"""Limit of requests per client; a client with more to submit batches them."""

EVENT_STREAM: Final = "text/event-stream"


def build_app(pages: Pages) -> ASGIApp:
    """The ASGI application of one validator."""
    endpoints = _Endpoints(pages)
    table: list[tuple[str, str, Endpoint]] = [
        ("POST", "/transactions", endpoints.transactions),
        ("GET", "/status", endpoints.status),
        ("GET", "/blocks", endpoints.blocks),
        ("GET", "/blocks/{height}", endpoints.block),
        ("GET", "/blocks/{height}/finality", endpoints.finality),
        ("GET", "/receipts/{hash}", endpoints.receipt),
        ("GET", "/accounts/{address}", endpoints.account),
        ("POST", "/accounts", endpoints.accounts),
        ("GET", "/timers/{id}", endpoints.timer),
        ("GET", "/events", endpoints.events),
        ("GET", "/proofs/{key}", endpoints.proof),
        ("GET", "/genesis", endpoints.genesis),
        ("GET", "/parameters", endpoints.parameters),
        ("GET", "/validators", endpoints.validators),
        ("GET", "/supply", endpoints.supply),
        ("GET", "/divergence", endpoints.divergence),
        ("GET", "/metrics", endpoints.metrics),
    ]
    return build_application(table, endpoints.requests, CLIENT_RATE)


# --- pages ----------------------------------------------------------------------------------------------------------


class _Endpoints:
    """The request handlers, one for each page: each checks the request, asks the validator, and encodes the answer."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.requests: Counter[tuple[str, int]] = Counter()
        """Requests answered, keyed by route and status."""
        self._shares = Shares(Amounts(MAX_REQUESTS_IN_FLIGHT, MAX_OFFERED_TRANSACTIONS, MAX_OFFERED_BYTES))

    async def transactions(self, request: Request) -> Response:
        decode = _body_decoder(request.headers.get("content-type", ""), "transaction")
        transactions = decode(await read_body(request))
        if len(transactions) > MAX_BATCH_TRANSACTIONS:
            raise HTTPException(
                413, f"batch of {len(transactions)} transactions, expected at most {MAX_BATCH_TRANSACTIONS}"
            )
        size = sum(map(len, transactions))
        try:
            with self._shares.holding(client_of(request), Amounts(1, len(transactions), size)):
                results = await self._pages.submit(transactions)
        except NoShare as error:
            raise HTTPException(429, str(error)) from None
        return json_response(
            {
                "results": [
                    {"hash": result.transaction_hash.hex(), "error": result.error, "reason": result.reason}
                    for result in results
                ]
            }
        )

    async def status(self, request: Request) -> Response:
        return page_response(request, await self._pages.status())

    async def blocks(self, request: Request) -> Response:
        first = _parse_integer("from", request.query_params.get("from", ""), HEIGHT_LIMIT - 1)
        count = _parse_integer("count", request.query_params.get("count", ""), MAX_BLOCKS_PER_REQUEST)
        triples = await self._read(lambda pages: pages.blocks(first, count))
        if _parse_integer("digests", request.query_params.get("digests", "0"), 1):
            return messagepack_response([block_digest(BlockRecord(*triple)) for triple in triples])
        return messagepack_response([list(triple) for triple in triples])

    async def block(self, request: Request) -> Response:
        height = _parse_integer("height", request.path_params["height"], HEIGHT_LIMIT - 1)
        if MESSAGEPACK in request.headers.get("accept", ""):
            triples = await self._read(lambda pages: pages.blocks(height, 1))
            if not triples:
                raise HTTPException(404, f"no final block at height {height}")
            return messagepack_response(list(triples[0]))
        page = await self._read(lambda pages: pages.block(height))
        return page_response(request, page, f"no final block at height {height}")

    async def finality(self, request: Request) -> Response:
        height = _parse_integer("height", request.path_params["height"], HEIGHT_LIMIT - 1)
        proof = await self._read(lambda pages: pages.finality(height))
        if proof is not None and MESSAGEPACK in request.headers.get("accept", ""):
            return messagepack_response(list(proof))
        return page_response(request, proof and proof.page, f"no final block at height {height}, or no proof of it yet")

    async def receipt(self, request: Request) -> Response:
        name = Hash(_parse_hash("transaction hash", request.path_params["hash"]))
        page = await self._pages.read(lambda pages: pages.receipt(name))
        return page_response(request, page, f"no final transaction {name.hex()}, or its block is not here any more")

    async def account(self, request: Request) -> Response:
        address = _parse_address("address", request.path_params["address"])
        return page_response(request, await self._pages.read(lambda pages: pages.account(address)))

    async def accounts(self, request: Request) -> Response:
        decode = _body_decoder(request.headers.get("content-type", ""), "address", "0x")
        addresses = decode(await read_body(request))
        if len(addresses) > MAX_BATCH_ACCOUNTS:
            raise HTTPException(413, f"batch of {len(addresses)} addresses, expected at most {MAX_BATCH_ACCOUNTS}")
        for position, address in enumerate(addresses):
            if len(address) != ADDRESS_BYTES:
                raise HTTPException(400, f"body: address {position} has {len(address)} bytes, expected {ADDRESS_BYTES}")
        return page_response(request, await self._pages.read(lambda pages: pages.accounts(addresses)))

    async def timer(self, request: Request) -> Response:
        name = _parse_hash("timer id", request.path_params["id"])
        page = await self._pages.read(lambda pages: pages.timer(name))
        return page_response(request, page, f"no timer {name.hex()} is pending or among the last that ended")

    async def events(self, request: Request) -> Response:
        """A page of events, or a stream of them."""
        query = request.query_params
        actor, name = query.get("actor"), query.get("name")
        if name is not None and len(name.encode()) > MAX_NAME_BYTES:
            raise HTTPException(400, f"name: expected at most {MAX_NAME_BYTES} bytes, got {len(name.encode())}")
        wanted = EventFilter(None if actor is None else _parse_address("actor", actor), name)
        # a stream without a body would never end, and never notice that its client is gone
        is_stream = request.method == "GET" and EVENT_STREAM in request.headers.get("accept", "")
        start = request.headers.get("last-event-id") if is_stream else None
        start = query.get("from") if start is None else start
        place = None if start is None else _parse_cursor("from", start)
        if not is_stream:
            page = await self._read(lambda pages: pages.events(place, wanted))
            if page is None:
                raise HTTPException(410, f"from: this validator has no blocks as far down as {start}")
            return page_response(request, page)
        try:
            subscription = self._pages.subscribe(client_of(request), place, wanted)
        except NoShare as error:
            raise HTTPException(429, str(error)) from None
        return EventStream(subscription.messages(), lambda: subscription.hub.leave(subscription))

    async def proof(self, request: Request) -> Response:
        key, height = _parse_key(request.path_params["key"]), request.query_params.get("height")
        at = None if height is None else _parse_integer("height", height, HEIGHT_LIMIT - 1)
        try:
            return page_response(request, await self._pages.proof(key, at))
        except HistoryError as error:
            raise HTTPException(404, str(error)) from None

    async def _read(self, read: Callable[[StatePages], T]) -> T:
        """Read from blocks. Raises :class:`HTTPException` with status 410 if they were pruned."""
        try:
            return await self._pages.read(read)
        except BlockGone as error:
            raise HTTPException(410, str(error)) from None

    async def genesis(self, request: Request) -> Response:
        return page_response(request, self._pages.genesis())

    async def parameters(self, request: Request) -> Response:
        return page_response(request, await self._pages.read(lambda pages: pages.parameters()))

    async def validators(self, request: Request) -> Response:
        return page_response(request, await self._pages.read(lambda pages: pages.validators()))

    async def supply(self, request: Request) -> Response:
        return page_response(request, await self._pages.supply())

    async def divergence(self, request: Request) -> Response:
        trace = self._pages.divergence()
        if trace is None:
            raise HTTPException(404, "the validator has not diverged")
        return Response(trace, media_type=MESSAGEPACK)

    async def metrics(self, request: Request) -> Response:
        text = self._pages.metrics()
        samples = [({"path": path, "status": str(status)}, n) for (path, status), n in sorted(self.requests.items())]
        text += render_metric("stampede_http_requests_total", "counter", "HTTP requests answered.", samples)
        return Response(text, headers={"content-type": PROMETHEUS})


# --- requests -------------------------------------------------------------------------------------------------------


_messagepack_batch: Final = msgspec.msgpack.Decoder(bytes | list[bytes])
_json_batch: Final = msgspec.json.Decoder(str | list[str])


def _body_decoder(content_type: str, what: str, prefix: str = "") -> Callable[[bytes], list[bytes]]:
    """The decoder of a body with one item or a list: MessagePack ``bin``, or hex in JSON after an optional prefix.

    ``what`` names an item in errors. Raises :class:`HTTPException` for any other content type.
    """
    match content_type.split(";")[0].strip().lower():
        case "application/msgpack":
            return lambda body: _decoded(_messagepack_batch, body, "MessagePack bin or array of bin")
        case "application/json":
            return lambda body: [
                _from_hex(text, f"body: {what} {position}", prefix)
                for position, text in enumerate(_decoded(_json_batch, body, "JSON text or list of texts"))
            ]
        case other:
            raise HTTPException(400, f"Content-Type: expected {MESSAGEPACK} or {JSON}, got {other[:64]!r}")


def _decoded(decoder: Any, body: bytes, expected: str) -> list[Any]:
    try:
        batch = decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"body: no {expected}: {one_line(error)}") from None
    return batch if isinstance(batch, list) else [batch]


def _from_hex(text: str, place: str, prefix: str) -> bytes:
    try:
        return binascii.unhexlify(text.removeprefix(prefix))
    except ValueError:
        raise HTTPException(400, f"{place} is no hex text") from None


_HASH: Final = re.compile(r"[0-9a-fA-F]{64}")
_KEY: Final = re.compile(r"(?:[0-9a-fA-F]{2})+")
_CURSOR: Final = re.compile(r"(?:0|[1-9][0-9]{0,18})(?:\.(?:0|[1-9][0-9]{0,8}))?")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")


def _parse_integer(name: str, text: str, maximum: int) -> int:
    number = parse_decimal(text, maximum)
    if number is None:
        raise HTTPException(400, f"{name}: expected an integer from 0 to {maximum}, got {text[:64]!r}")
    return number


def _parse_hash(name: str, text: str) -> bytes:
    if not _HASH.fullmatch(text):
        raise HTTPException(400, f"{name}: expected 64 hex digits, got {text[:80]!r}")
    return bytes.fromhex(text)


def _parse_key(text: str) -> bytes:
    if not _KEY.fullmatch(text) or not 2 <= len(text) <= 2 * KEY_BYTES_LIMIT:
        raise HTTPException(400, f"key: expected 1 to {KEY_BYTES_LIMIT} bytes in hex, got {text[:80]!r}")
    return bytes.fromhex(text)


def _parse_cursor(name: str, text: str) -> Cursor:
    if not _CURSOR.fullmatch(text) or (cursor := Cursor.parse(text)).height >= HEIGHT_LIMIT:
        raise HTTPException(400, f"{name}: expected a height, or a height and a number as in 12.3, got {text[:64]!r}")
    return cursor


def _parse_address(name: str, text: str) -> Address:
    if not _ADDRESS.fullmatch(text):
        raise HTTPException(400, f"{name}: expected 0x and 40 hex digits, got {text[:80]!r}")
    return Address(bytes.fromhex(text[2:]))
