"""A real HTTP endpoint before a real mempool, state and chain: one validator in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from cluster.record.genesis_file import genesis_page
from cluster.record.status import Tally, status_page
from tests.loadgen.fake_validator import FakeChain, FakePages
from tests.validator.chains import ALICE
from tests.validator.executors import wire
from tests.validator.network import Network, ed25519
from validator.node.events import SubmitResult
from validator.node.executor.queries import Cursor, EventFilter, PlacedEvent

T = TypeVar("T")

FIRST_HEIGHT: Final = 4
"""Of the chain when its endpoint opens."""
SPENT_NONCES: Final = 3
"""Of the rich user whose transactions are final by then."""
WAITING_NONCE: Final = 7
"""Of the transaction that waits for an earlier one of its sender."""
WAITING: Final = wire(WAITING_NONCE, user=1)
MAX_EVENTS_KEPT: Final = 1_000


class ChainPages(FakePages):
    """The pages of a chain of one validator. The test's requests are the only ones."""

    def __init__(self) -> None:
        super().__init__(FakeChain(), 0)
        self.network = Network(count=1, scheme=ed25519()).start()
        assert self.network.submit(0, *[wire(nonce) for nonce in range(SPENT_NONCES)]) == [None] * SPENT_NONCES
        self.network.run_to(FIRST_HEIGHT)
        assert self._account(ALICE)["nonce"] == SPENT_NONCES
        self.admitted: list[bytes] = []
        """Transactions that the mempool took from requests."""
        self._keep_waiting()

    def _account(self, address: Any) -> dict[str, Any]:
        page: dict[str, Any] = self.network.validator(0).executor.pages.account(address)
        return page

    def _keep_waiting(self) -> None:
        """The transaction that duplicates are of waits, however many blocks were made meanwhile."""
        self.network.submit(0, WAITING)
        del self.network.effects[:-MAX_EVENTS_KEPT]

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        self._keep_waiting()
        results = self.network.offer(0, *transactions)
        self.admitted += [data for data, result in zip(transactions, results, strict=True) if result.error is None]
        return results

    async def status(self) -> dict[str, Any]:
        process = {"pid": 0, "hash_seed": "0"}
        return status_page("validator-0", 0, self.network.validator(0), Tally(), [], process)

    async def read(self, read: Callable[[Any], T]) -> T:
        return read(self.network.validator(0).executor.pages)

    async def _block_events(self, height: int) -> list[PlacedEvent]:
        return self.network.validator(0).executor.pages.events_at(height)

    async def _read_page(self, start: Cursor | None, wanted: EventFilter) -> dict[str, Any] | None:
        return self.network.validator(0).executor.pages.events(start, wanted)

    async def proof(self, key: bytes, height: int | None) -> dict[str, Any]:
        page: dict[str, Any] = self.network.validator(0).executor.pages.proof(key, height)
        return page

    def genesis(self) -> dict[str, Any]:
        return genesis_page(self.network.genesis)

    def roots(self, height: int) -> list[bytes]:
        """The state roots up to a height, blocks being made up to it."""
        self.network.run_to(height)
        blocks = [self.network.validator(0).executor.archive.get(each) for each in range(1, height + 1)]
        return [block.computed_root for block in blocks if block is not None]
