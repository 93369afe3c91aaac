"""Shares of the room for admission: a client that sends without end leaves room for others."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.live.host import http as endpoint
from cluster.live.web import shares
from cluster.live.web.shares import MAX_OF_FREE, Amounts, NoShare, Shares
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread
from tests.validator.chains import make_genesis
from tests.validator.executors import wire
from validator.node import offers
from validator.node.events import Reply, SubmitResult
from validator.node.mempool import Mempool
from validator.node.offers import Offers

ROOM: Final = 64
BATCH: Final = 8
HOG, HONEST = "127.0.0.1", "127.0.0.2"


def held_by(clients: int, room: int = 10_000) -> list[int]:
    """What so many clients hold that take one after the other as long as they may."""
    whole, held, taken = Shares(Amounts(room, room, room)), [0] * clients, True
    with contextlib.ExitStack() as stack:
        while taken:
            taken = False
            for client in range(clients):
                with contextlib.suppress(NoShare):
                    stack.enter_context(whole.holding(str(client), Amounts(1, 1, 1)))
                    held[client] += 1
                    taken = True
        assert whole.clients == clients
    assert whole.clients == 0
    return held


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_greedy_clients_get_equal_shares_and_leave_one_more_part(clients: int) -> None:
    part = 10_000 / (MAX_OF_FREE * clients + 1)
    assert held_by(clients) == [pytest.approx(MAX_OF_FREE * part, abs=2)] * clients


@given(
    asked=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40), st.integers(0, 40)), max_size=60),
    newcomer=st.integers(1, 5),
)
def test_what_is_left_is_enough_for_a_newcomer(asked: list[tuple[str, int, int]], newcomer: int) -> None:
    whole = Shares(Amounts(1_000, 1_000, 1_000))
    with contextlib.ExitStack() as stack:
        for client, transactions, size in asked:
            with contextlib.suppress(NoShare):
                stack.enter_context(whole.holding(client, Amounts(1, transactions, size)))
        with whole.holding("new", Amounts(1, newcomer, newcomer)):
            pass
    assert whole.clients == 0


@pytest.mark.parametrize(
    ("amounts", "what"), [((5, 0, 0), "requests"), ((1, 9, 0), "transactions"), ((1, 1, 99), "bytes")]
)
def test_a_refusal_names_what_there_is_too_much_of_and_takes_nothing(amounts: tuple[int, int, int], what: str) -> None:
    whole = Shares(Amounts(4, 10, 100))
    with pytest.raises(NoShare, match=f"too many {what} of this client"), whole.holding("a", Amounts(*amounts)):
        pass
    assert whole.clients == 0


# --- before a real queue ----------------------------------------------------------------------------------------------


class SlowAccounts(FakePages):
    """A real way into a mempool, whose senders' accounts are not read before :meth:`release`."""

    def __init__(self) -> None:
        super().__init__(FakeChain(), 0)
        self._offers = Offers(Mempool(make_genesis()))
        self._replies: dict[int, asyncio.Future[Sequence[SubmitResult]]] = {}
        self.waiting = 0
        self.changed = threading.Condition()

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        request = len(self._replies)
        reply = self._replies[request] = asyncio.get_running_loop().create_future()
        for effect in self._offers.submit(request, transactions):
            if isinstance(effect, Reply):
                self._replies[effect.request].set_result(effect.results)
        with self.changed:
            self.waiting += not reply.done()
            self.changed.notify_all()
        return await reply

    def release(self) -> None:
        """Whatever waits is refused, as at the end of a run."""
        for reply in self._replies.values():
            if not reply.done():
                reply.set_result([])

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.waiting >= count, HANGS_AFTER_S)


@pytest.fixture
def small_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MAX_OFFERED_TRANSACTIONS", ROOM)
    monkeypatch.setattr(endpoint, "MAX_OFFERED_TRANSACTIONS", ROOM)


@contextlib.contextmanager
def post(port: int, client: str, first: int, count: int) -> Iterator[http.client.HTTPConnection]:
    """Submit some transactions from an address of this machine, and do not wait for the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, HANGS_AFTER_S, source_address=(client, 0))
    body = msgspec.msgpack.encode([wire(first + number) for number in range(count)])
    with contextlib.closing(connection):
        connection.request("POST", "/transactions", body, {"Content-Type": "application/msgpack"})
        yield connection


def answer(connection: http.client.HTTPConnection) -> tuple[int, Any]:
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_one_client_cannot_fill_the_queue_for_others(small_room: None) -> None:
    pages = SlowAccounts()
    share = ROOM * MAX_OF_FREE // (MAX_OF_FREE + 1)
    with ServerThread(pages) as running, contextlib.ExitStack() as stack:
        for at in range(0, share, BATCH):
            stack.enter_context(post(running.port, HOG, at, BATCH))
            pages.wait_for(at // BATCH + 1)
        refused = stack.enter_context(post(running.port, HOG, share, BATCH))
        line = "too many transactions of this client wait for admission; try again"
        assert answer(refused) == (429, {"error": line})
        stack.enter_context(post(running.port, HONEST, share, BATCH))
        pages.wait_for(share // BATCH + 1)
        running.call(pages.release)


def test_without_shares_the_honest_client_finds_the_queue_full(
    small_room: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MAX_OF_FREE", 10**9)
    pages = SlowAccounts()
    with ServerThread(pages) as running, contextlib.ExitStack() as stack:
        for at in range(0, ROOM - BATCH, BATCH):
            stack.enter_context(post(running.port, HOG, at, BATCH))
            pages.wait_for(at // BATCH + 1)
        stack.enter_context(post(running.port, HOG, ROOM, BATCH - 1))
        pages.wait_for(ROOM // BATCH)
        status, page = answer(stack.enter_context(post(running.port, HONEST, 2 * ROOM, BATCH)))
        assert status == 429 or {each["reason"] for each in page["results"]} == {"busy"}
        running.call(pages.release)
