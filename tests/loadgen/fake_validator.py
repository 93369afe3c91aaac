"""A small chain behind real HTTP endpoints: it takes signed transactions, checks them, and makes each final at once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from cluster.live.host.http import build_app
from cluster.live.host.pages import Pages
from cluster.live.web.event_stream import EventHub, Subscription
from cluster.live.web.server import HttpServer, NotReady, serve
from validator.chain.transactions import Transaction, TransactionError, parse, transaction_hash
from validator.node.events import SubmitResult
from validator.node.executor.queries import BlockGone, Cursor, EventFilter, FinalityPage, PlacedEvent
from validator.primitives.types import Address, Hash, TimerId, address_text
from validator.state import HistoryError

CHAIN_ID = "fake"
START_SECONDS = 20.0
BASEFEE = 1_000_000

T = TypeVar("T")


class FakeChain:
    """State that several endpoints share. Every look at the status makes a block."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.height = 0
        self.nonces: dict[bytes, int] = {}
        self.taken: list[tuple[int, Transaction]] = []
        """Transactions in order, each with the index of the endpoint that took it."""
        self.refused: list[str] = []
        self.timers_read: Counter[bytes] = Counter()
        """How often each timer was asked for, by id."""

    def submit(self, endpoint: int, wire: bytes) -> SubmitResult:
        """Take a transaction whose nonce is the account's next, or say why not."""
        with self.changed:
            try:
                transaction = parse(wire, CHAIN_ID)
                expected = self.nonces.get(transaction.sender, 0)
                if transaction.nonce != expected:
                    raise TransactionError(f"nonce: {transaction.nonce}, expected {expected}", "stale_nonce")
            except TransactionError as error:
                self.refused.append(str(error))
                return SubmitResult(transaction_hash(wire), str(error), error.reason)
            self.nonces[transaction.sender] = transaction.nonce + 1
            self.taken.append((endpoint, transaction))
            self.changed.notify_all()
            return SubmitResult(transaction_hash(wire), None)

    def wait_for_taken(self, count: int, seconds: float, endpoint: int | None = None) -> bool:
        """Whether so many transactions were taken (by one endpoint) before the time was up."""
        with self.changed:
            return self.changed.wait_for(lambda: self._taken_by(endpoint) >= count, seconds)

    def wait_for_sender(self, sender: bytes, seconds: float) -> bool:
        """Whether a transaction of a sender was taken before the time was up."""
        with self.changed:
            return self.changed.wait_for(lambda: any(each.sender == sender for _, each in self.taken), seconds)

    def read_timer(self, timer_id: bytes) -> None:
        with self.changed:
            self.timers_read[timer_id] += 1
            self.changed.notify_all()

    def wait_for_timers_read(self, timers: Sequence[bytes], times: int, seconds: float) -> bool:
        """Whether each of these timers was asked for so many times before the time was up."""
        with self.changed:
            return self.changed.wait_for(lambda: all(self.timers_read[each] >= times for each in timers), seconds)

    def _taken_by(self, endpoint: int | None) -> int:
        return sum(1 for index, _ in self.taken if endpoint in (None, index))


class FakePages(Pages):
    """One endpoint's view of the chain. It stands for the state's pages, too."""

    def __init__(self, chain: FakeChain, endpoint: int) -> None:
        self._chain = chain
        self._endpoint = endpoint
        self.ready = True
        self.pruned = 0
        """Blocks up to this height are not here any more."""
        self.placed: dict[int, list[PlacedEvent]] = {}
        """Events by height, of what streams are fed with."""
        self.hub = EventHub(self._block_events, self._read_page)

    async def _block_events(self, height: int) -> list[PlacedEvent]:
        return self.placed.get(height, [])

    def start_anew(self) -> None:
        """Forget everything, as a new chain would."""
        self._chain = FakeChain()
        self.ready = True

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        self._check_ready()
        return [self._chain.submit(self._endpoint, wire) for wire in transactions]

    async def status(self) -> dict[str, Any]:
        self._check_ready()
        with self._chain.changed:
            self._chain.height += 1
            return {"name": f"validator-{self._endpoint}", "height": self._chain.height}

    async def read(self, read: Callable[[Any], T]) -> T:
        return read(self)

    async def _read_page(self, start: Cursor | None, wanted: EventFilter) -> dict[str, Any] | None:
        return self.events(start, wanted)

    def block(self, height: int) -> dict[str, Any] | None:
        self._check_ready()
        self._check_here(height)
        if not 1 <= height <= self._chain.height:
            return None
        fees = dict.fromkeys(("basefee_cycle", "basefee_cell", "basefee_lane_timer"), BASEFEE)
        return {"height": height, **fees}

    def blocks(self, first: int, count: int) -> list[tuple[bytes, bytes, bytes]]:
        self._check_here(first)
        last = min(self._chain.height, first + count - 1)
        return [(b"block %d" % height, b"receipts", bytes(32)) for height in range(max(1, first), last + 1)]

    def receipt(self, transaction_hash: Hash) -> dict[str, Any] | None:
        return None if transaction_hash == bytes(32) else {"transaction_hash": transaction_hash.hex()}

    def account(self, address: Address) -> dict[str, Any]:
        self._check_ready()
        nonce = self._chain.nonces.get(address, 0)
        return {
            "address": address_text(address),
            "balance": 2**100,
            "nonce": nonce,
            "code": None,
            "live_timers": 0,
            "open_jobs": [],
        }

    def accounts(self, addresses: Sequence[bytes]) -> dict[str, Any]:
        pages = [self.account(Address(address)) for address in addresses]
        for page in pages:
            del page["code"]
        return {"height": self._chain.height, "accounts": pages}

    async def supply(self) -> dict[str, Any]:
        return {"height": 1, "accounts": 1, "balances": 2**100, "burned": 7}

    def timer(self, timer_id: TimerId) -> dict[str, Any] | None:
        self._chain.read_timer(timer_id)
        return None if timer_id == bytes(32) else {"timer_id": timer_id.hex()}

    def events(self, start: Cursor | None, wanted: EventFilter) -> dict[str, Any] | None:
        if start is not None and start.height <= self.pruned:
            return None
        return {"events": [], "next": str(start or Cursor(1)), "wanted": [str(each) for each in wanted]}

    def subscribe(self, client: str, start: Cursor | None, wanted: EventFilter) -> Subscription:
        return self.hub.subscribe(client, start, wanted)

    def finality(self, height: int) -> FinalityPage | None:
        self._check_here(height)
        return None

    async def proof(self, key: bytes, height: int | None) -> dict[str, Any]:
        if height == 0:
            raise HistoryError("height 0 is not retained: 1 to 3 are")
        return {"height": height, "key": key.hex()}

    def genesis(self) -> dict[str, Any]:
        return {"chain_id": CHAIN_ID, "accounts": {"0x" + "11" * 20: {"balance": 2**100}}}

    def parameters(self) -> dict[str, Any]:
        return {"policy": "cip1", "preset": None, "parameters": {"MAX_BASEFEE": 2**80, "MAX_TTL": 9}}

    def validators(self) -> dict[str, Any]:
        return {"chain_id": CHAIN_ID, "validators": []}

    def divergence(self) -> bytes | None:
        return None

    def metrics(self) -> str:
        return "stampede_height 1\n"

    def _check_here(self, height: int) -> None:
        if height <= self.pruned:
            raise BlockGone(
                f"block {height} is not here: the blocks of this validator begin at height {self.pruned + 1}"
            )

    def _check_ready(self) -> None:
        if not self.ready:
            raise NotReady("still recovering:\nreplaying blocks")


class ServerThread:
    """An HTTP endpoint on a free loopback port, with an event loop and a thread of its own."""

    def __init__(self, pages: Any) -> None:
        self.pages = pages
        self.server: HttpServer
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> ServerThread:
        self._thread.start()
        assert self._started.wait(START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def port(self) -> int:
        return self.server.port

    def call(self, work: Callable[[], T]) -> T:
        """Do something on the loop."""
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(work()))
        return done.result(START_SECONDS)

    def close(self) -> None:
        """Close the endpoint and every connection to it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(START_SECONDS)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.server = await serve(build_app(self.pages))
        self._started.set()
        await self._stop.wait()
        await self.pages.hub.close()
        await self.server.close()
