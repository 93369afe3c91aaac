"""An HTTP endpoint without a chain: the validators' server, which takes every transaction and checks none of them.

Run by ``benchmarks/load.py`` in a process of its own. It counts the transactions of each account, so that load users go
on, and is at a new height every tenth of a second. With ``is_empty`` a batch is not even decoded.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import apart
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cluster.live.web.server import Rate, build_application, json_response, page_response, read_body, serve
from validator.chain.transactions import SignedTransaction, address_of
from validator.primitives.types import address_text

UNBOUNDED = Rate(1e9, 10**9)
PRICE = 1_000_000
BALANCE = 10**24
BLOCK_S = 0.1

_batch = msgspec.msgpack.Decoder(bytes | list[bytes])
_signed = msgspec.msgpack.Decoder(SignedTransaction)
_addresses = msgspec.msgpack.Decoder(list[bytes])


@contextmanager
def endpoint(is_empty: bool = False) -> Iterator[str]:
    """Serve; yields the URL."""
    ours, theirs = Pipe()
    process = apart.started(_run, theirs, is_empty)
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _run(pipe: Connection, is_empty: bool) -> None:
    asyncio.run(_serve(pipe, is_empty))


async def _serve(pipe: Connection, is_empty: bool) -> None:
    server = await serve(build_application(Pages(is_empty).table(), Counter(), UNBOUNDED))
    pipe.send(server.url)
    await asyncio.to_thread(pipe.recv)
    await server.close()


class Pages:
    """What load users ask for."""

    def __init__(self, is_empty: bool) -> None:
        self._is_empty = is_empty
        self._began = time.monotonic()
        self._counts: Counter[bytes] = Counter()
        self._owners: dict[bytes, bytes] = {}
        """Addresses by public key."""

    def table(self) -> list[tuple[str, str, Any]]:
        return [
            ("POST", "/transactions", self.transactions),
            ("GET", "/status", self.status),
            ("GET", "/blocks/{height}", self.block),
            ("GET", "/accounts/{address}", self.account),
            ("POST", "/accounts", self.accounts),
        ]

    async def transactions(self, request: Request) -> Response:
        batch = await read_body(request)
        if self._is_empty:
            return json_response({"results": [{"hash": "00" * 32, "error": None, "reason": None}]})
        decoded = _batch.decode(batch)
        wires = decoded if isinstance(decoded, list) else [decoded]
        for wire in wires:
            key = _signed.decode(wire).public_key
            owner = self._owners.get(key)
            if owner is None:
                owner = self._owners[key] = address_of(key)
            self._counts[owner] += 1
        return json_response({"results": [{"hash": "00" * 32, "error": None, "reason": None}] * len(wires)})

    async def status(self, request: Request) -> Response:
        height = 1 + int((time.monotonic() - self._began) / BLOCK_S)
        return json_response({"height": height, "backlog": 0, "executed_transactions": self._counts.total()})

    async def block(self, request: Request) -> Response:
        prices = dict.fromkeys(("basefee_cycle", "basefee_cell", "basefee_lane_timer"), PRICE)
        return json_response({"height": int(request.path_params["height"]), **prices})

    async def account(self, request: Request) -> Response:
        return json_response(self._page(bytes.fromhex(request.path_params["address"][2:])))

    async def accounts(self, request: Request) -> Response:
        pages = [self._page(address) for address in _addresses.decode(await read_body(request))]
        return page_response(request, {"height": 1, "accounts": pages})

    def _page(self, address: bytes) -> dict[str, Any]:
        page = {"address": address_text(address), "balance": BALANCE, "nonce": self._counts[address]}
        return page | {"live_timers": 0, "open_jobs": []}
