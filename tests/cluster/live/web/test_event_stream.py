"""Events as pages and as streams, over real loopback sockets; and subscribers that are slow, many or gone."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from cluster.live.web import event_stream
from cluster.live.web.event_stream import EventHub
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread
from validator.chain.block import Event
from validator.chain.receipts import Source
from validator.node.executor.queries import Cursor, EventFilter, PlacedEvent

ONE, OTHER = b"\x01" * 20, b"\x02" * 20
ONE_CLIENT, OTHER_CLIENT = "127.0.0.1", "127.0.0.2"
STREAM = {"Accept": "text/event-stream"}


def block(height: int, *events: tuple[bytes, str, str]) -> list[PlacedEvent]:
    """A block's events, each of an actor, a name and a text."""
    return [
        PlacedEvent(Cursor(height, i), Source("fire", b"\xff" * 32), Event(name, actor, (("data", text),)))
        for i, (actor, name, text) in enumerate(events)
    ]


class Pages(FakePages):
    """A validator whose past is what its streams are fed with."""

    def __init__(self) -> None:
        super().__init__(FakeChain(), 0)
        self.subscribed = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        feed, leave = self.hub.feed, self.hub.leave

        def noted_feed(subscription: Any) -> None:
            feed(subscription)
            self.subscribed.release()

        def noted_leave(subscription: Any) -> None:
            leave(subscription)
            self.left.release()

        self.hub.feed, self.hub.leave = noted_feed, noted_leave  # type: ignore[method-assign]

    def events(self, start: Cursor | None, wanted: EventFilter) -> dict[str, Any] | None:
        begin = start or Cursor(1)
        if begin.height < min(self.placed, default=0):
            return None
        found = [
            each.page
            for height in (begin.height, begin.height + 1)
            for each in self.placed.get(height, [])
            if each.cursor >= begin and wanted.takes(each.event)
        ]
        last = max(self.placed, default=0)
        return {"events": found, "next": str(Cursor(min(begin.height + 2, last + 1))), "height": last}


class Net:
    """A served validator, and what happens to it."""

    def __init__(self, server: ServerThread, pages: Pages) -> None:
        self.server, self.pages = server, pages

    def final(self, height: int, *events: tuple[bytes, str, str]) -> None:
        def make() -> None:
            self.pages.placed[height] = block(height, *events)
            self.pages.hub.note_final(height)

        self.server.call(make)

    def rest(self) -> None:
        asyncio.run_coroutine_threadsafe(self.pages.hub.close(), self.server._loop).result(HANGS_AFTER_S)

    def open(self, query: str = "", client: str = ONE_CLIENT, **headers: str) -> Stream:
        """A stream, from when on it is fed."""
        stream = self.ask(query, client, **headers)
        assert self.pages.subscribed.acquire(timeout=HANGS_AFTER_S)
        return stream

    def ask(self, query: str = "", client: str = ONE_CLIENT, **headers: str) -> Stream:
        return Stream(self.server.port, "/events" + query, headers, client)

    def refusal(self, client: str) -> str:
        """Why a client gets no stream."""
        answer = request(self.server.port, "/events", STREAM, client)
        assert answer.status == 429, answer.status
        reason: str = json.loads(answer.read())["error"]
        return reason


def request(port: int, path: str, headers: dict[str, str], client: str) -> http.client.HTTPResponse:
    """The answer to a request from an address."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_AFTER_S, source_address=(client, 0))
    connection.request("GET", path, headers={**headers, "Connection": "close"})
    answer = connection.getresponse()
    connection.close()  # the answer keeps the socket
    return answer


class Stream:
    """A client of a stream."""

    def __init__(self, port: int, path: str, headers: dict[str, str], client: str) -> None:
        self.answer = request(port, path, {**STREAM, **headers}, client)
        assert str(self.answer.headers["content-type"]).startswith("text/event-stream"), self.answer.read()

    def messages(self) -> Iterator[dict[str, str]]:
        """Each message's fields; comments are left out."""
        fields: dict[str, str] = {}
        while line := self.answer.readline().decode():
            name, _, text = line.rstrip("\n").partition(": ")
            if line == "\n" and fields:
                yield fields
                fields = {}
            elif name:
                fields[name] = text

    def take(self, count: int) -> list[str]:
        """The names of the next events."""
        found = self.messages()
        return [json.loads(next(found)["data"])["event"]["name"] for _ in range(count)]


@pytest.fixture
def net() -> Iterator[Net]:
    pages = Pages()
    with ServerThread(pages) as server:
        yield Net(server, pages)
        server.call(lambda: pages.hub._end_all("over"))


def test_a_stream_tells_what_comes(net: Net) -> None:
    net.final(1, (ONE, "past", ""))
    stream = net.open()
    net.final(2, (ONE, "a", "x"), (OTHER, "b", "y"))
    net.final(3)
    net.final(4, (ONE, "c", "z"))
    first, second, third = islice(stream.messages(), 3)
    assert (first["id"], second["id"], third["id"]) == ("2.1", "2.2", "4.1")
    assert json.loads(first["data"]) == {
        "height": 2,
        "index": 0,
        "receipt": {"kind": "fire", "id": "ff" * 32},
        "event": {"name": "a", "actor": "0x" + "01" * 20, "data": "x"},
    }


def test_a_stream_begins_in_the_past_and_goes_on_without_a_gap(net: Net) -> None:
    for height in range(1, 6):
        net.final(height, (ONE, f"e{height}", ""))
    stream = net.open("?from=2")
    net.final(6, (ONE, "e6", ""))
    assert stream.take(5) == ["e2", "e3", "e4", "e5", "e6"]


def test_it_goes_on_behind_the_last_event_that_was_read(net: Net) -> None:
    net.final(1, (ONE, "a", ""), (ONE, "b", ""), (ONE, "c", ""))
    stream = net.open("?from=1", **{"Last-Event-ID": "1.2"})
    assert stream.take(1) == ["c"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?name=a", ["a", "a"]),
        ("?actor=0x" + "02" * 20, ["b", "a"]),
        ("?name=a&actor=0x" + "02" * 20, ["a", "last"]),
    ],
)
def test_a_stream_of_some_events(net: Net, query: str, expected: list[str]) -> None:
    stream = net.open(query)
    net.final(1, (ONE, "a", ""), (OTHER, "b", ""), (OTHER, "a", ""))
    net.rest()
    found = [json.loads(message["data"]) for message in stream.messages()]
    names = [item["event"]["name"] if "event" in item else "last" for item in found]
    assert names[: len(expected)] == expected
    assert names[-1] == "last"


def test_a_validator_at_rest_ends_its_streams(net: Net) -> None:
    net.final(1, (ONE, "a", ""))
    early = net.open("?from=1")
    net.rest()
    late = net.open("?from=1")
    for stream in (early, late):
        *events, end = stream.messages()
        assert len(events) == 1
        assert (end["event"], json.loads(end["data"])) == (
            "end",
            {"reason": "the validator is at rest", "next": "2.0"},
        )


def test_a_subscriber_that_is_too_slow_is_told_so_and_where_to_go_on(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing while more comes than is kept for it; the others lose nothing, and no memory is taken."""
    monkeypatch.setattr(event_stream, "MAX_WAITING_BYTES", 100_000)
    text = "x" * 50_000
    slow, quick = net.open(), net.open()
    quick_names: list[str] = []
    found = quick.messages()
    for height in range(1, 301):
        net.final(height, (ONE, f"e{height}", text))
        quick_names.append(json.loads(next(found)["data"])["event"]["name"])
        assert all(each._waiting_bytes <= 150_000 for each in net.pages.hub._subscriptions)
    assert quick_names == [f"e{height}" for height in range(1, 301)]
    *events, end = slow.messages()
    told = json.loads(end["data"])
    assert (end["event"], told["reason"]) == ("end", "too slow")
    assert 0 < len(events) < 300 and told["next"] == events[-1]["id"] == f"{len(events)}.1"


@pytest.mark.slow
def test_streams_are_few(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_STREAMS", 2)
    streams = [net.open(client=client) for client in ("127.0.0.1", "127.0.0.2")]
    assert net.refusal("127.0.0.3") == "too many streams of events"
    streams[0].answer.close()
    net.final(1, (ONE, "a", ""))
    assert net.pages.left.acquire(timeout=HANGS_AFTER_S)
    net.open()


def test_a_greedy_client_leaves_streams_for_others(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets three quarters of them; what it gives back is for anybody."""
    monkeypatch.setattr(event_stream, "MAX_STREAMS", 8)
    greedy = [net.open() for _ in range(6)]
    assert net.refusal(ONE_CLIENT) == "too many streams of events of this client"
    honest = net.open(client=OTHER_CLIENT)
    net.final(1, (ONE, "a", ""))
    assert honest.take(1) == greedy[5].take(1) == ["a"]
    greedy[0].answer.close()
    net.final(2, (ONE, "b", ""))
    assert net.pages.left.acquire(timeout=HANGS_AFTER_S)
    assert net.refusal(ONE_CLIENT) == "too many streams of events of this client", "5 of 8, and 2 are free"
    net.open(client=OTHER_CLIENT)


def test_a_client_that_went_away_is_found_by_the_heartbeat(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.02)
    stream = net.open()
    assert [stream.answer.readline() for _ in range(4)] == [b": events\n", b"\n", b": nothing new\n", b"\n"]
    stream.answer.close()
    assert net.pages.left.acquire(timeout=HANGS_AFTER_S)
    assert net.pages.hub.streams == 0


def test_a_half_closed_subscriber_is_told_on(net: Net) -> None:
    with socket.create_connection(("127.0.0.1", net.server.port), timeout=HANGS_AFTER_S) as connection:
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert net.pages.subscribed.acquire(timeout=HANGS_AFTER_S)
        net.final(1, (ONE, "late", ""))
        answer = b""
        while b"late" not in answer:
            chunk = connection.recv(65_536)
            assert chunk, answer
            answer += chunk


def test_who_asks_for_headers_alone_gets_no_stream(net: Net) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", net.server.port, timeout=HANGS_AFTER_S)
    connection.request("HEAD", "/events", headers={**STREAM, "Connection": "close"})
    assert connection.getresponse().status == 200
    assert net.server.call(lambda: net.pages.hub.streams) == 0


def test_a_stream_from_below_what_is_there_ends(net: Net) -> None:
    net.final(7, (ONE, "a", ""))
    net.final(8)
    (end,) = net.ask("?from=3").messages()
    assert json.loads(end["data"]) == {"reason": "this validator has no blocks as far down", "next": "3.0"}


def test_nothing_is_read_while_nobody_listens() -> None:
    read: list[int] = []

    async def run() -> None:
        async def block_events(height: int) -> list[PlacedEvent]:
            read.append(height)
            return []

        async def page(start: Cursor, wanted: EventFilter) -> None:
            raise AssertionError

        hub = EventHub(block_events, page)
        hub.note_final(1_000)
        subscription = hub.subscribe("", None, EventFilter())
        hub.feed(subscription)
        hub.note_final(1_002)
        await hub.close()
        hub.leave(subscription)
        hub.note_final(1_004)

    asyncio.run(run())
    assert read == [1_001, 1_002]
