"""The HTTP endpoint over real loopback sockets: every page, and everything a client may get wrong."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey
from starlette.exceptions import HTTPException

from cluster.live.host import http, pages
from cluster.live.host.http import build_app
from cluster.live.web import connections, event_stream
from cluster.live.web import server as web
from cluster.live.web.connections import Connection
from cluster.live.web.prometheus_text import render_metric
from cluster.live.web.server import serve
from cluster.watches.live.collect import _is_pending
from loadgen.client import Gone, NotFound, Refused, ValidatorClient
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import CHAIN_ID, FakeChain, FakePages, ServerThread
from validator.chain.transactions import Transaction, Transfer, address_of, sign, transaction_hash
from validator.node.events import SubmitResult
from validator.node.executor.queries import AMOUNT_FIELDS, MAX_EVENT_BLOCKS, MAX_EVENTS, MAX_EVENTS_BYTES
from validator.primitives.types import Address, TimerId
from validator.storage.archive import MAX_ENDED_TIMERS

MESSAGEPACK = {"Content-Type": "application/msgpack"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def running() -> Iterator[ServerThread]:
    with ServerThread(FakePages(FakeChain(), 0)) as server:
        yield server


@pytest.fixture
def validator(running: ServerThread) -> ServerThread:
    """An endpoint whose chain has seen nothing yet."""
    running.pages.start_anew()
    return running


@pytest.fixture
def client(validator: ServerThread) -> Iterator[ValidatorClient]:
    with ValidatorClient(validator.url) as connected:
        yield connected


def transfer(nonce: int) -> bytes:
    key = SigningKey(b"k" * 32)
    body = Transaction(address_of(bytes(key.verify_key)), nonce, 1_000, 0, 10**7, 1, 10**7, Transfer(b"\x11" * 20), 5)
    return sign(key, CHAIN_ID, body)


def request(
    server: ServerThread, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Any, urllib3.BaseHTTPResponse]:
    """Status, decoded JSON and the whole answer of one request."""
    answer = urllib3.request(
        method, server.url + path, body=body, headers=headers, retries=False, timeout=HANGS_AFTER_S
    )
    page = json.loads(answer.data) if answer.headers["content-type"] == "application/json" else None
    return answer.status, page, answer


# --- pages ----------------------------------------------------------------------------------------------------------


def test_pages_through_the_client(client: ValidatorClient) -> None:
    assert client.status() == {"name": "validator-0", "height": 1}
    assert client.block(1)["basefee_cycle"] == 1_000_000
    assert client.account(b"\xab" * 20)["balance"] == 2**100
    assert client.receipt(b"\x01" * 32) == {"transaction_hash": "01" * 32}
    assert client.timer(b"\x02" * 32) == {"timer_id": "02" * 32}
    assert client.supply()["balances"] == 2**100
    assert client.metrics().startswith("stampede_height 1\n")


def test_blocks_in_messagepack(validator: ServerThread, client: ValidatorClient) -> None:
    for _ in range(3):
        client.status()
    accepted = {"Accept": "application/msgpack"}
    one = request(validator, "GET", "/blocks/2", headers=accepted)[2].data
    assert msgspec.msgpack.decode(one) == [b"block 2", b"receipts", bytes(32)]
    assert_error(*request(validator, "GET", "/blocks/77", headers=accepted)[:2], 404, "no final block at height 77")
    assert [block for block, _, _ in client.blocks(2, 256)] == [b"block 2", b"block 3"]
    assert client.blocks(2, 1) == [(b"block 2", b"receipts", bytes(32))]
    assert client.blocks(9, 256) == []


def test_what_is_not_there_any_more() -> None:
    """One clear line with status 410, in both forms of a page, and by the client an error of its own."""
    pages = FakePages(FakeChain(), 0)
    with ServerThread(pages) as server, ValidatorClient(server.url) as client:
        for _ in range(3):
            client.status()
        pages.pruned = 2
        line = "block 2 is not here: the blocks of this validator begin at height 3"
        for path in ("/blocks/2", "/blocks/2/finality", "/blocks?from=2&count=9"):
            for accepted in ("application/json", "application/msgpack"):
                answer = request(server, "GET", path, headers={"Accept": accepted})
                assert_error(*answer[:2], 410, line)
        assert_error(
            *request(server, "GET", "/events?from=2.5")[:2], 410, "this validator has no blocks as far down as 2.5"
        )
        for ask in (client.block, client.finality, lambda height: client.blocks(height, 1)):
            with pytest.raises(Gone, match=line):
                ask(2)
        assert client.block(3)["height"] == 3
        assert [block for block, _, _ in client.blocks(3, 9)] == [b"block 3"]


@pytest.mark.parametrize("name", ["block", "receipt", "timer"])
def test_what_there_is_not(client: ValidatorClient, name: str) -> None:
    with pytest.raises(NotFound, match=r"no (final|timer)") as caught:
        getattr(client, name)(77 if name == "block" else bytes(32))
    assert caught.value.status == 404
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("kind", ["msgpack", "json"])
def test_posting(validator: ServerThread, kind: str, batch: bool) -> None:
    wires = [transfer(0), transfer(1)] if batch else [transfer(0)]
    encode, headers = (msgspec.msgpack.encode, MESSAGEPACK) if kind == "msgpack" else (msgspec.json.encode, JSON)
    values: list[Any] = list(wires) if kind == "msgpack" else [wire.hex() for wire in wires]
    status, page, _ = request(validator, "POST", "/transactions", encode(values if batch else values[0]), headers)
    assert (status, page) == (
        200,
        {"results": [{"hash": transaction_hash(wire).hex(), "error": None, "reason": None} for wire in wires]},
    )


def test_rejections_are_told_one_by_one(client: ValidatorClient) -> None:
    results = client.post_transactions([transfer(0), transfer(5), b"garbage"])
    assert (results[0].error, results[0].reason) == (None, None)
    assert (results[1].error, results[1].reason) == ("nonce: 5, expected 1", "stale_nonce")
    assert results[2].error is not None and "malformed" in results[2].error and results[2].reason == "malformed"
    assert client.post_transactions([]) == []


def test_metrics_count_requests_by_route() -> None:
    with ServerThread(FakePages(FakeChain(), 0)) as server, ValidatorClient(server.url) as client:
        client.status()
        client.status()
        request(server, "GET", "/blocks/99999")
        request(server, "GET", "/no/such/page")
        lines = client.metrics().splitlines()
    assert 'stampede_http_requests_total{path="/status",status="200"} 2' in lines
    assert 'stampede_http_requests_total{path="/blocks/{height}",status="404"} 1' in lines
    assert 'stampede_http_requests_total{path="other",status="404"} 1' in lines


def test_metric_text() -> None:
    text = render_metric("a_total", "counter", "Things.", [({"reason": 'x"\\\n'}, 3), ({}, 4)])
    assert text == '# HELP a_total Things.\n# TYPE a_total counter\na_total{reason="x\\"\\\\\\n"} 3\na_total 4\n'
    assert render_metric("b", "gauge", "One.", 2**70).endswith(f"\nb {2**70}\n")


def test_events_are_asked_for_by_place_actor_and_name(validator: ServerThread) -> None:
    status, page, _ = request(validator, "GET", "/events?from=12.3&actor=0x" + "Ab" * 20 + "&name=a%20b")
    assert (status, page["next"], page["wanted"]) == (200, "12.3", [str(b"\xab" * 20), "a b"])
    assert request(validator, "GET", "/events")[1]["wanted"] == ["None", "None"]


def test_proofs_are_asked_for_by_key_and_height(validator: ServerThread) -> None:
    assert request(validator, "GET", "/proofs/61FF")[1] == {"height": None, "key": "61ff"}
    assert request(validator, "GET", "/proofs/61FF?height=7")[1] == {"height": 7, "key": "61ff"}


@pytest.mark.parametrize(
    ("path", "as_number", "as_text"),
    [
        ("/accounts/0x" + "1" * 40, f'"balance":{2**100},"nonce":0', f'"balance":"{2**100}","nonce":0'),
        ("/supply", f'"accounts":1,"balances":{2**100},"burned":7', f'"accounts":1,"balances":"{2**100}","burned":"7"'),
        ("/genesis", f'"balance":{2**100}', f'"balance":"{2**100}"'),
        ("/parameters", f'"MAX_BASEFEE":{2**80},"MAX_TTL":9', f'"MAX_BASEFEE":"{2**80}","MAX_TTL":9'),
        ("/blocks/1", '"height":1,"basefee_cycle":1000000', '"height":1,"basefee_cycle":"1000000"'),
    ],
)
def test_amounts_as_text_where_asked(validator: ServerThread, path: str, as_number: str, as_text: str) -> None:
    request(validator, "GET", "/status")
    for query, expected in (("", as_number), ("?amounts=number", as_number), ("?amounts=text", as_text)):
        assert expected in request(validator, "GET", path + query)[2].data.decode()


class TimerPages(FakePages):
    """A validator of one pending timer and one that ended."""

    def timer(self, timer_id: TimerId) -> dict[str, Any] | None:
        return {"01" * 32: {"state": "pending"}, "02" * 32: {"state": "fired"}}.get(timer_id.hex())


def test_a_timer_that_ended_does_not_count_as_pending() -> None:
    with ServerThread(TimerPages(FakeChain(), 0)) as server, ValidatorClient(server.url) as client:
        assert [_is_pending(client, f"0{number}" * 32) for number in (1, 2, 3)] == [True, False, False]


def test_the_page_names_every_amount_and_every_limit() -> None:
    page = (Path(__file__).parents[4] / "docs" / "http.md").read_text(encoding="utf-8")
    assert [name for name in AMOUNT_FIELDS if f"`{name}`" not in page] == []
    limits = [
        f"| connections of one server | {connections.MAX_CONNECTIONS} |",
        f"complete within {connections.MAX_HEADER_SECONDS:g} s of the connection",
        f"| body | {web.MAX_BODY_BYTES >> 20} MiB, complete within {web.MAX_BODY_SECONDS:g} s |",
        f"| requests being answered | {web.MAX_REQUESTS_IN_FLIGHT} |",
        f"at least {connections.MIN_TAKEN_BYTES >> 10} KiB in {connections.MAX_WRITE_SECONDS:g} s",
        f"have not taken of their answers | {connections.MAX_UNTAKEN_BYTES >> 20} MiB |",
        f"dropped, for {connections.MAX_LINGER_SECONDS:g} s and up to {connections.MAX_DROPPED_BYTES >> 20} MiB",
        f"has {connections.MAX_UNREAD_BODY_SECONDS:g} s to arrive",
        f"at most {MAX_EVENTS:,} events and {MAX_EVENTS_BYTES >> 20} MiB",
        f"at most {MAX_EVENT_BLOCKS} blocks",
        f"The ends of the last {MAX_ENDED_TIMERS:,} timers",
        f"after every {event_stream.HEARTBEAT_SECONDS:g} s without news",
        f"more than {event_stream.MAX_WAITING_BYTES >> 20} MiB of events waited",
        f"At most {event_stream.MAX_STREAMS} streams",
        f"At most {pages.MAX_PROOFS_WAITING} proofs",
    ]
    assert [limit for limit in limits if limit not in page] == []


# --- what a client may get wrong --------------------------------------------------------------------------------------


def assert_error(status: int, page: Any, expected_status: int, words: str) -> None:
    assert status == expected_status
    assert list(page) == ["error"]
    assert words in page["error"]
    assert "\n" not in page["error"] and "Traceback" not in page["error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/", 404, "no such page; there are POST /transactions, GET /status"),
        ("GET", "/status/", 404, "no such page; there are POST /transactions, GET /status"),
        ("GET", "/blocks/", 404, "no such page; there are POST /transactions, GET /status"),
        ("DELETE", "/status", 405, "Method Not Allowed"),
        ("GET", "/transactions", 405, "Method Not Allowed"),
        ("GET", "/blocks/x", 400, "height: expected an integer"),
        ("GET", "/blocks/-1", 400, "height: expected an integer"),
        ("GET", "/blocks/1.0", 400, "height: expected an integer"),
        ("GET", "/blocks/%D9%A1", 400, "height: expected an integer"),
        ("GET", f"/blocks/{2**63}", 400, "height: expected an integer"),
        ("GET", "/blocks/" + "9" * 5_000, 400, "height: expected an integer"),
        ("GET", "/blocks", 400, "from: expected an integer"),
        ("GET", "/blocks?from=1", 400, "count: expected an integer"),
        ("GET", "/blocks?from=1&count=257", 400, "count: expected an integer from 0 to 256"),
        ("GET", "/blocks?from=%00&count=1", 400, "from: expected an integer"),
        ("GET", "/receipts/12", 400, "transaction hash: expected 64 hex digits"),
        ("GET", "/receipts/" + "g" * 64, 400, "transaction hash: expected 64 hex digits"),
        ("GET", "/supply/", 404, "no such page; there are"),
        ("GET", "/timers/0x" + "1" * 62, 400, "timer id: expected 64 hex digits"),
        ("GET", "/accounts/" + "1" * 40, 400, "address: expected 0x and 40 hex digits"),
        ("GET", "/accounts/0x" + "1" * 38 + "%20%20", 400, "address: expected 0x and 40 hex digits"),
        ("GET", "/accounts/0x" + "1" * 40 + "%0A", 400, "address: expected 0x and 40 hex digits"),
        ("GET", "/blocks/x/finality", 400, "height: expected an integer"),
        ("GET", "/blocks/1/finality", 404, "no final block at height 1, or no proof of it yet"),
        ("GET", "/proofs/", 404, "no such page"),
        ("GET", "/proofs/0", 400, "key: expected 1 to 512 bytes in hex"),
        ("GET", "/proofs/" + "00" * 513, 400, "key: expected 1 to 512 bytes in hex"),
        ("GET", "/proofs/61?height=-1", 400, "height: expected an integer"),
        ("GET", "/proofs/61?height=0", 404, "height 0 is not retained: 1 to 3 are"),
        ("GET", "/events?from=", 400, "from: expected a height, or a height and a number as in 12.3"),
        ("GET", "/events?from=1.", 400, "from: expected a height"),
        ("GET", "/events?from=1.2.3", 400, "from: expected a height"),
        ("GET", f"/events?from={2**63}", 400, "from: expected a height"),
        ("GET", "/events?actor=", 400, "actor: expected 0x and 40 hex digits"),
        ("GET", "/events?name=" + "x" * 257, 400, "name: expected at most 256 bytes, got 257"),
        ("GET", "/status?amounts=words", 400, "amounts: expected number or text, got 'words'"),
    ],
)
def test_bad_paths(validator: ServerThread, method: str, path: str, status: int, words: str) -> None:
    got, page, _ = request(validator, method, path)
    assert_error(got, page, status, words)


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({}, b"\xc4\x00", "Content-Type: expected"),
        ({"Content-Type": "text/plain"}, b"\xc4\x00", "Content-Type: expected"),
        ({"Content-Type": "application/octet-stream"}, b"\xc4\x00", "got 'application/octet-stream'"),
        (MESSAGEPACK, b"", "no MessagePack"),
        (MESSAGEPACK, b"\xc1", "no MessagePack"),
        (MESSAGEPACK, b"\x91\xa1a", "no MessagePack"),
        (MESSAGEPACK, b"\xc4\x00\xc4\x00", "no MessagePack"),
        (MESSAGEPACK, b"\xdd\xff\xff\xff\xff", "no MessagePack"),
        (MESSAGEPACK, b"\x91" * 100_000, "no MessagePack"),
        (MESSAGEPACK, b"\xc6\xff\xff\xff\xff", "no MessagePack"),
        (JSON, b"", "no JSON"),
        (JSON, b"{}", "no JSON"),
        (JSON, b'["ab", 1]', "no JSON"),
        (JSON, b'"\xff"', "no JSON"),
        (JSON, b"[" * 100_000, "no JSON"),
        (JSON, b'["ab", "abc"]', "transaction 1 is no hex text"),
        (JSON, b'"0xab"', "transaction 0 is no hex text"),
        (JSON, '"éé"'.encode(), "transaction 0 is no hex text"),
    ],
)
def test_bad_bodies(validator: ServerThread, headers: dict[str, str], body: bytes, words: str) -> None:
    status, page, _ = request(validator, "POST", "/transactions", body, headers)
    assert_error(status, page, 400, words)
    assert request(validator, "GET", "/status")[0] == 200


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["application/msgpack", "application/json"]), st.binary(max_size=200))
@example("application/msgpack", b"\xa2\xff\xfe")
@example("application/msgpack", b"\x91" * 5_000)
@example("application/json", b"[" * 5_000)
@example("application/json", b'"\xff\xfe"')
@example("application/json", b'"\\ud800"')
@example("application/json", '"²0"'.encode())
def test_no_body_is_a_bug(content_type: str, body: bytes) -> None:
    try:
        wires, status = http._body_decoder(content_type, "address", "0x")(body), 200
    except HTTPException as refusal:
        wires, status = [], refusal.status_code
    assert status in (200, 400)
    assert all(isinstance(wire, bytes) for wire in wires)


def test_accounts_in_a_batch(validator: ServerThread) -> None:
    transaction = transfer(0)
    post_one = request(validator, "POST", "/transactions", msgspec.msgpack.encode([transaction]), MESSAGEPACK)
    assert post_one[0] == 200
    sender, other = address_of(bytes(SigningKey(b"k" * 32).verify_key)), b"\x77" * 20
    body = json.dumps(["0x" + sender.hex(), other.hex()]).encode()
    status, page, _ = request(validator, "POST", "/accounts", body, JSON)
    assert (status, page["height"]) == (200, validator.pages._chain.height)
    singles = [request(validator, "GET", f"/accounts/0x{address.hex()}")[1] for address in (sender, other)]
    for single in singles:
        del single["code"]
    assert page["accounts"] == singles
    assert request(validator, "POST", "/accounts", msgspec.msgpack.encode([sender, other]), MESSAGEPACK)[1] == page
    assert request(validator, "POST", "/accounts?amounts=text", body, JSON)[1]["accounts"][1]["balance"] == str(2**100)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'["0xab"]', 400, "body: address 0 has 1 bytes, expected 20"),
        (b'["' + b"11" * 20 + b'", "0xxx"]', 400, "body: address 1 is no hex text"),
        (json.dumps(["0x" + "11" * 20] * 1_025).encode(), 413, "batch of 1025 addresses, expected at most 1024"),
    ],
)
def test_bad_batches_of_accounts(validator: ServerThread, body: bytes, status: int, words: str) -> None:
    got, page, _ = request(validator, "POST", "/accounts", body, JSON)
    assert_error(got, page, status, words)


def test_content_type_parameters_are_ignored(validator: ServerThread) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert request(validator, "POST", "/transactions", b"[]", headers)[:2] == (200, {"results": []})


def test_oversized_bodies(validator: ServerThread) -> None:
    body = msgspec.msgpack.encode(b"x" * web.MAX_BODY_BYTES)
    assert_error(*request(validator, "POST", "/transactions", body, MESSAGEPACK)[:2], 413, "body is too large")
    allowed = msgspec.msgpack.encode(b"x" * (web.MAX_BODY_BYTES - 5))
    assert len(allowed) == web.MAX_BODY_BYTES
    assert request(validator, "POST", "/transactions", allowed, MESSAGEPACK)[0] == 200


def test_oversized_batches(validator: ServerThread, client: ValidatorClient) -> None:
    with pytest.raises(Refused, match="batch of 1025 transactions") as caught:
        client.post_transactions([b""] * 1_025)
    assert caught.value.status == 413
    assert len(client.post_transactions([b""] * 1_024)) == 1_024


# --- a validator in trouble -------------------------------------------------------------------------------------------


def test_a_recovering_validator(validator: ServerThread) -> None:
    validator.pages.ready = False
    for path in ("/status", "/blocks/1", "/accounts/0x" + "1" * 40):
        assert_error(*request(validator, "GET", path)[:2], 503, "still recovering: replaying blocks")
    assert_error(*request(validator, "POST", "/transactions", b"[]", JSON)[:2], 503, "still recovering")


class BrokenPages(FakePages):
    """A validator with a bug."""

    def account(self, address: Address) -> dict[str, Any]:
        raise RuntimeError("secret of the implementation")

    def block(self, height: int) -> dict[str, Any] | None:
        return {"height": object()}


def test_a_bug_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with ServerThread(BrokenPages(FakeChain(), 0)) as server:
        for path in ("/accounts/0x" + "1" * 40, "/blocks/1"):
            assert request(server, "GET", path)[:2] == (500, {"error": "internal error"})
        assert request(server, "GET", "/status")[0] == 200
    assert "secret of the implementation" in caplog.text


class HeldPages(FakePages):
    """A validator whose mempool answers only once it is let."""

    def __init__(self) -> None:
        super().__init__(FakeChain(), 0)
        self.waiting = threading.Semaphore(0)
        self.release = threading.Event()

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        self.waiting.release()
        await asyncio.to_thread(self.release.wait, HANGS_AFTER_S)
        return []


def test_too_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MAX_REQUESTS_IN_FLIGHT", 2)
    pages = HeldPages()
    with ServerThread(pages) as server, ThreadPoolExecutor(2) as pool:
        held = [pool.submit(request, server, "POST", "/transactions", b"[]", JSON) for _ in range(2)]
        try:
            for _ in held:
                assert pages.waiting.acquire(timeout=HANGS_AFTER_S)
            assert_error(*request(server, "GET", "/status")[:2], 429, "too many requests waiting")
        finally:
            pages.release.set()
        assert [future.result(HANGS_AFTER_S)[0] for future in held] == [200, 200]
        assert request(server, "GET", "/status")[0] == 200


# --- the server -------------------------------------------------------------------------------------------------------


def test_serving_leaves_signals_alone_and_frees_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "many")  # as another server's settings may have it

    async def run() -> int:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        server = await serve(build_app(FakePages(FakeChain(), 0)))
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        await server.close()
        assert b'"height":1' in await reader.read()
        writer.close()
        again = await serve(build_app(FakePages(FakeChain(), 0)), port=server.port)
        await again.close()
        return again.port - server.port

    assert asyncio.run(run()) == 0


def test_answers_are_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection has Nagle's algorithm turned off; without, an answer waits 40 ms for an acknowledgement."""
    accepted: list[int] = []

    class Protocol(Connection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            accepted.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(web, "Connection", Protocol)
    with ServerThread(FakePages(FakeChain(), 0)) as server:
        assert request(server, "GET", "/status")[0] == 200
    assert accepted == [1]


def test_a_port_that_is_taken() -> None:
    async def run() -> None:
        server = await serve(build_app(FakePages(FakeChain(), 0)))
        try:
            with pytest.raises(OSError, match="in use"):
                await serve(build_app(FakePages(FakeChain(), 0)), port=server.port)
        finally:
            await server.close()

    asyncio.run(run())
