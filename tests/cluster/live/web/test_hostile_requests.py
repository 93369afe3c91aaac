"""Every page of both HTTP servers under a fuzzer and under floods of connections, over real loopback sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.common.errors import BadInput
from cluster.live.driver import control_server as control
from cluster.live.driver.control_server import AddFault, ControlServer
from cluster.live.web import connections
from cluster.live.web import server as web
from cluster.live.web.server import HttpServer, Rate
from cluster.record.folder import TOKEN_FILE
from cluster.scenario import Scenario
from cluster.scenario.files import fault_to_add
from tests.cluster.live.web.chain_server import ChainPages
from tests.cluster.live.web.hostile_requests import (
    Answer,
    Client,
    HostileRequests,
    HostileToTestnet,
    HostileToValidator,
    HostileWithToken,
    Sent,
    check,
    get,
)
from tests.cluster.live.web.soak import GOOD, good_answer, group, held, routes, soak
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread
from validator.chain import transactions
from validator.node.events import SubmitResult
from validator.primitives.cache import SizedCache
from validator.primitives.types import Hash

UNBOUNDED = Rate(10**6, 10**6)
ROUNDS = 12
SOME_SEEDS = 3


class Served(NamedTuple):
    """A server under attack."""

    server: HttpServer
    fuzzer: Callable[[Random], HostileRequests]

    @property
    def port(self) -> int:
        return self.server.port

    def attack(self, seed: int, rounds: int = ROUNDS) -> HostileRequests:
        """Some groups of requests, and a good client's in the end."""
        fuzzer, client = self.fuzzer(Random(seed)), Client(self.port)
        for _ in range(rounds):
            sent = group(fuzzer)
            for each, answer in zip(sent, client.ask(*sent), strict=True):
                check(each, answer)
        client.close()
        check(GOOD, Client(self.port).ask(GOOD)[0])
        return fuzzer


def to_validator(pages: Any) -> Callable[[Random], HostileRequests]:
    return lambda random: HostileToValidator(random, routes(pages))


@pytest.fixture(scope="module")
def pages() -> ChainPages:
    return ChainPages()


@pytest.fixture(scope="module")
def validator(pages: ChainPages) -> Iterator[Served]:
    with ServerThread(pages) as running:
        yield Served(running.server, to_validator(pages))


TESTNET_PAGES = [
    *[("GET", path) for path in ("/status", "/metrics", "/targets", "/logs/{name}", "/")],
    *[("GET", f"/dashboard/{file}") for file in ("style.css", "dashboard.css", "theme.js", "connection.js", "page.js")],
    *[("POST", path) for path in ("/faults", "/load", "/stop", "/faucet")],
]
WAITING_PAGES = {("GET", "/dashboard"), ("GET", "/dashboard/updates")}
"""They wait for the driver's next look, which no driver takes here."""


@contextlib.contextmanager
def serving_testnet(folder: Path) -> Iterator[tuple[ControlServer, Served]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "CLIENT_RATE", UNBOUNDED)
        running = ControlServer(folder)
    try:
        yield running, Served(running._server, lambda random: HostileToTestnet(random, TESTNET_PAGES))
    finally:
        running.close()


@pytest.fixture(scope="module")
def testnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlServer, Served]]:
    with serving_testnet(tmp_path_factory.mktemp("testnet")) as running:
        yield running


# --- the fuzzer -------------------------------------------------------------------------------------------------------


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_request_to_a_validator_is_answered_wrongly_and_nothing_is_admitted(
    validator: Served, pages: ChainPages, seed: int
) -> None:
    validator.attack(seed)
    assert pages.admitted == []


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_request_to_the_testnet_is_answered_wrongly_and_nothing_is_ordered(
    testnet: tuple[ControlServer, Served], seed: int
) -> None:
    server, served = testnet
    served.attack(seed)
    assert server.orders.empty()


class Driver:
    """Takes a testnet's orders, and holds faults against a scenario, as a run's driver does."""

    def __init__(self, server: ControlServer, folder: Path) -> None:
        self.token = (folder / TOKEN_FILE).read_bytes().strip()
        self.taken: list[str] = []
        """The orders that it performed, by kind of fault, or ``stop``."""
        self._orders = server.orders
        self._thread = threading.Thread(target=self._perform, daemon=True)

    def __enter__(self) -> Driver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.put(AddFault({}, answer=CANCELLED))
        self._thread.join()

    def _perform(self) -> None:
        scenario = Scenario.model_validate({"name": "attacked", "stop": {"height": 30}})
        while True:
            match self._orders.get():
                case AddFault(_, answer) if answer is CANCELLED:
                    return
                case AddFault(fields, answer):
                    try:
                        fault = fault_to_add(scenario, fields, has_end=True)
                    except BadInput as error:
                        answer.set_exception(error)
                    else:
                        self.taken.append(fault.kind_name)
                        answer.set_result(fault.model_dump(mode="json", exclude_none=True))
                case _:
                    self.taken.append("stop")


CANCELLED: Future[Any] = Future()


def attack_with_token(folder: Path, seeds: Iterable[int], rounds: int = ROUNDS) -> list[str]:
    """Attack a testnet with its token. Returns the orders that the driver performed; there was one for each 202."""
    answered: list[str] = []

    def noting(sent: Sent, answer: Answer) -> None:
        check(sent, answer)
        if answer.status == 202:
            answered.append("kill" if b"/faults" in sent.data[:20] else "stop")

    with serving_testnet(folder) as (server, served), Driver(server, folder) as driver:
        for seed in seeds:
            fuzzer, client = HostileWithToken(Random(seed), TESTNET_PAGES), Client(served.port)
            fuzzer.token = driver.token
            for _ in range(rounds):
                sent = group(fuzzer)
                for each, answer in zip(sent, client.ask(*sent), strict=True):
                    noting(each, answer)
            client.close()
        check(GOOD, Client(served.port).ask(GOOD)[0])
    assert driver.taken == answered
    return driver.taken


def test_with_the_token_right_orders_are_taken_alone(tmp_path: Path) -> None:
    assert set(attack_with_token(tmp_path, range(5))) == {"kill", "stop"}


def test_a_driver_that_takes_every_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Scenario.model_validate({"name": "a", "stop": {"height": 30}})
    kill = fault_to_add(right, {"kind": "kill", "target": "validator-1", "at_height": 20}, has_end=True)
    monkeypatch.setattr(f"{__name__}.fault_to_add", lambda *_, **__: kill)
    with pytest.raises(AssertionError, match="wrong fault"):
        attack_with_token(tmp_path, range(5))


def test_the_fuzzer_asks_for_every_page(validator: Served, testnet: tuple[ControlServer, Served]) -> None:
    for served, table in ((validator, routes(FakePages(FakeChain(), 0))), (testnet[1], TESTNET_PAGES)):
        fuzzer = served.fuzzer(Random(1))
        drawn = {fuzzer.draw().kind for _ in range(800)}
        assert fuzzer.seen == {path for _, path in table}
        assert len(drawn) > 9, drawn
    assert {(method, path) for method, path, _ in testnet[0]._table()} == {*TESTNET_PAGES, *WAITING_PAGES}


def test_the_chain_goes_on_as_if_nobody_had_asked() -> None:
    attacked, quiet = ChainPages(), ChainPages()
    with ServerThread(attacked) as running:
        Served(running.server, to_validator(attacked)).attack(1)
    height = attacked.network.height(0) + 3
    assert attacked.roots(height) == quiet.roots(height)


# --- planted faults ---------------------------------------------------------------------------------------------------


class AdmitsAll(ChainPages):
    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        return [SubmitResult(Hash(bytes(32)), None) for _ in transactions]


class Fails(ChainPages):
    async def status(self) -> dict[str, Any]:
        raise RuntimeError("a bug")


class LosesOne(ChainPages):
    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        return (await super().submit(transactions))[1:]


def fuzz_some(pages: ChainPages) -> None:
    with ServerThread(pages) as running:
        for seed in range(SOME_SEEDS):
            Served(running.server, to_validator(pages)).attack(seed)


@pytest.mark.parametrize("faulty", [AdmitsAll, Fails, LosesOne])
def test_a_faulty_server_is_found(faulty: type[ChainPages]) -> None:
    with pytest.raises(AssertionError, match=r"batch|page|good"):
        fuzz_some(faulty())


class TakesEverySignature:
    def __init__(self, key: bytes) -> None:
        """No key is refused."""

    def verify(self, message: bytes, signature: bytes) -> None:
        """No signature is refused."""


def test_a_validator_that_checks_no_signatures_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "VerifyKey", TakesEverySignature)
    monkeypatch.setattr(
        transactions, "_well_signed", SizedCache[bool](1)
    )  # what it takes must not be remembered afterwards
    with pytest.raises(AssertionError, match="batch"):
        fuzz_some(ChainPages())


def ask_with_headers(port: int, size: int, status: int) -> None:
    """Several times: how many pieces they arrive in is chance."""
    sent = Sent("long headers", get("/status", b"A: " + b"x" * size), frozenset({status}))
    for _ in range(20):
        client = Client(port)
        check(sent, client.ask(sent)[0])
        client.close()


def test_headers_that_arrive_at_once_may_not_be_longer_either(
    validator: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_with_headers(validator.port, 65_000, 200)
    ask_with_headers(validator.port, 65_600, 431)
    monkeypatch.setattr(web, "MAX_HEADER_BYTES", 10**9)
    with pytest.raises(AssertionError, match="long headers"):
        ask_with_headers(validator.port, 65_600, 431)


def test_headers_may_arrive_in_pieces(validator: Served) -> None:
    request = get("/status", b"A: " + b"x" * 65_000)
    with socket.create_connection(("127.0.0.1", validator.port), HANGS_AFTER_S) as connection:
        connection.sendall(request[:40_000])
        ask_with_headers(validator.port, 10, 200)  # by its end the first piece was read
        connection.sendall(request[40_000:])
        assert connection.recv(12) == b"HTTP/1.1 200"


# --- floods of connections --------------------------------------------------------------------------------------------

HEAD = b"POST /%b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
FLOODS = {
    "nothing": b"",
    "half a header": HEAD,
    "half a body": HEAD + b"Content-Length: 9\r\n\r\n[",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n[",
}
FLOOD = 300
UNDER_THE_LIMIT = 200
"""Fewer connections than a server takes, and more than the requests that it answers at a time."""


@contextlib.contextmanager
def flooded(port: int, data: bytes, count: int = FLOOD) -> Iterator[list[socket.socket]]:
    """So many connections that sent so much."""
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=HANGS_AFTER_S)))
            with contextlib.suppress(OSError):  # it was closed to make room
                held[-1].sendall(data)
        yield held


MAX_CONNECTIONS = connections.MAX_CONNECTIONS


def flood(server: HttpServer, data: bytes, count: int) -> None:
    """A good client is answered, and the connections are bounded."""
    with flooded(server.port, data, count):
        good_answer(server.port)
        assert held(server) <= MAX_CONNECTIONS
        good_answer(server.port)


@pytest.mark.parametrize("count", [UNDER_THE_LIMIT, FLOOD])
@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("target", ["validator", "testnet"])
def test_connections_by_the_hundred_keep_nobody_out(
    target: str, name: str, count: int, validator: Served, testnet: tuple[ControlServer, Served]
) -> None:
    page = b"transactions" if target == "validator" else b"faults"
    served = validator if target == "validator" else testnet[1]
    flood(served.server, FLOODS[name].replace(b"%b", page), count)


NO_BODY_MAKES_ROOM = (web.ArrivingBodies, "drop_oldest", lambda *_, **__: False)
PLANTS: list[tuple[str, int, tuple[Any, str, Any]]] = [
    ("nothing", FLOOD, (connections, "MAX_CONNECTIONS", 10**6)),
    ("half a header", FLOOD, (connections.Connection, "dispensable", None)),
    ("half a body", UNDER_THE_LIMIT, NO_BODY_MAKES_ROOM),
    ("half a chunk", UNDER_THE_LIMIT, NO_BODY_MAKES_ROOM),
]


@pytest.mark.parametrize(("name", "count", "plant"), PLANTS)
def test_without_its_limit_the_flood_is_seen(
    name: str, count: int, plant: tuple[Any, str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*plant)
    with ServerThread(ChainPages()) as running, pytest.raises(AssertionError):
        flood(running.server, FLOODS[name].replace(b"%b", b"transactions"), count)


def test_bodies_that_arrive_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that began first is turned away, with one line."""
    monkeypatch.setattr(web, "MAX_ARRIVING_BYTES", 100_000)
    whole = HEAD.replace(b"%b", b"transactions") + b"Content-Length: 60002\r\n\r\n"
    with ServerThread(ChainPages()) as running, contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=HANGS_AFTER_S))
            for _ in range(2)
        )
        first.sendall(whole + b'"' + b"0" * 60_000)
        application: Any = running.server._server.config.app
        while sum(application._arriving.sizes.values()) <= 60_000:
            good_answer(running.port)
        second.sendall(whole + b'"' + b"0" * 60_000)
        answer = first.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 429") and b'{"error":"too many requests waiting"}' in answer
        second.sendall(b'"')
        assert second.recv(65_536).startswith(b"HTTP/1.1 200")


def test_pipelined_requests_are_answered_in_order(validator: Served) -> None:
    numbers = [Random(1).randrange(1, 9) for _ in range(60)]
    sent = [Sent("page", get(f"/blocks/{n}", b"Accept: application/msgpack"), frozenset({200, 404})) for n in numbers]
    client = Client(validator.port)
    answers = client.ask(*sent)
    client.close()
    alone = {number: Client(validator.port).ask(one)[0].body for number, one in zip(numbers, sent, strict=True)}
    assert [answer.body for answer in answers] == [alone[number] for number in numbers]


# --- the soak ---------------------------------------------------------------------------------------------------------


def test_a_short_soak() -> None:
    threads = threading.active_count()
    figures = soak(300, seed=2)
    assert figures.requests >= 300 and sum(figures.statuses.values()) == figures.requests
    assert figures.statuses[500] == 0 and threading.active_count() <= threads


@pytest.mark.soak
@pytest.mark.parametrize("requests", [1_000_000])
def test_a_million_requests(requests: int) -> None:
    assert soak(requests, seed=1).requests >= requests
