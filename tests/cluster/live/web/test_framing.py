"""Requests by the letter of RFC 9112: to every server of the project, over real loopback sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cluster.commands.sweeps.seeds_server import SeedsServer
from cluster.live.driver.control_server import ControlServer
from cluster.live.web.addresses import ON_THE_LOOPBACK
from cluster.live.web.connections import _Requests, h11
from cluster.live.web.server import Page
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread

CLOSED, OPEN = True, False
HOST = b"Host: x\r\n"


class NoSweep:
    def update(self) -> Page:
        return {}

    def snapshot(self) -> Page:
        return {}


class Target(NamedTuple):
    port: int
    page: bytes
    """A page that ``GET`` reads."""


@pytest.fixture(params=["validator", "testnet", "seeds"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A validator's endpoint, the testnet's own, and that of a sweep."""
    if request.param == "validator":
        with ServerThread(FakePages(FakeChain(), 0)) as server:
            yield Target(server.port, b"/status")
        return
    own = ControlServer(tmp_path) if request.param == "testnet" else SeedsServer(NoSweep(), tmp_path, ON_THE_LOOPBACK)
    yield Target(int(own.url.rsplit(":", 1)[1]), b"/dashboard/style.css")
    own.close()


def exchange(port: int, data: bytes) -> tuple[list[int], bool, bytes]:
    """The statuses of all answers to ``data``, whether they closed the connection, and the last body."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANGS_AFTER_S) as connection:
        stream = connection.makefile("rb")
        connection.sendall(data)
        statuses = []
        while True:
            status, body, closes = _answer(stream, is_head=data.startswith(b"HEAD"))
            statuses.append(status)
            if status >= 200:
                break
        if closes:
            assert stream.read() == b"", "one answer, and the end of the connection"
            return statuses, CLOSED, body
        connection.sendall(b"GET /nowhere HTTP/1.1\r\n" + HOST + b"\r\n")
        assert _answer(stream)[0] == 404, "the connection is in step"
        return statuses, OPEN, body


def _answer(stream: Any, is_head: bool = False) -> tuple[int, bytes, bool]:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        assert line, "the server ended its side"
        head += line
    fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
    length = 0 if is_head else int(fields.get(b"content-length", b"0"))
    return int(head.split()[1]), stream.read(length), fields.get(b"connection") == b"close"


def get(page: bytes, version: bytes = b"1.1", headers: bytes = HOST) -> bytes:
    return b"GET " + page + b" HTTP/" + version + b"\r\n" + headers + b"\r\n"


def body_of(*headers: bytes, version: bytes = b"1.1", body: bytes = b"") -> bytes:
    """A request with a body that no page reads."""
    return get(b"/nowhere", version, HOST + b"".join(each + b"\r\n" for each in headers)) + body


CHUNKED = b"Transfer-Encoding: chunked"
CHUNKS = b"2\r\n[]\r\n0\r\n\r\n"
TOO_LONG = "more than 4,096 bytes of chunk extensions"
REQUESTS: dict[str, tuple[bytes, int, bool, str]] = {
    # section 6: the length of a body
    "length and chunks": (body_of(b"Content-Length: 4", CHUNKED, body=CHUNKS), 400, CLOSED, "both Content-Length and"),
    "chunks and length": (body_of(CHUNKED, b"Content-Length: 4", body=CHUNKS), 400, CLOSED, "both Content-Length and"),
    "length zero and chunks": (body_of(b"Content-Length: 0", CHUNKED, body=CHUNKS), 400, CLOSED, "both Content-Length"),
    "chunks of HTTP/1.0": (body_of(CHUNKED, version=b"1.0", body=CHUNKS), 400, CLOSED, "in a request of HTTP/1.0"),
    "another coding": (body_of(b"Transfer-Encoding: gzip"), 400, CLOSED, "Only Transfer-Encoding: chunked"),
    "two codings": (body_of(b"Transfer-Encoding: gzip, chunked"), 400, CLOSED, "Only Transfer-Encoding: chunked"),
    "coding twice": (body_of(CHUNKED, CHUNKED), 400, CLOSED, "multiple Transfer-Encoding"),
    "chunks": (body_of(CHUNKED, body=CHUNKS), 404, OPEN, ""),
    "two lengths": (body_of(b"Content-Length: 2", b"Content-Length: 3", body=b"[]"), 400, CLOSED, "conflicting"),
    "two lengths in one": (body_of(b"Content-Length: 2, 3", body=b"[]"), 400, CLOSED, "conflicting"),
    "the same length twice": (body_of(b"Content-Length: 2", b"Content-Length: 2", body=b"[]"), 404, OPEN, ""),
    "length with a sign": (body_of(b"Content-Length: +2", body=b"[]"), 400, CLOSED, "bad Content-Length"),
    "negative length": (body_of(b"Content-Length: -2", body=b"[]"), 400, CLOSED, "bad Content-Length"),
    "length with an underscore": (body_of(b"Content-Length: 1_0", body=b"[]"), 400, CLOSED, "bad Content-Length"),
    "length of 5,000 digits": (body_of(b"Content-Length: " + b"9" * 5_000), 400, CLOSED, "bad Content-Length"),
    # section 7: chunks
    "extension of a chunk": (body_of(CHUNKED, body=b"2;a=b\r\n[]\r\n0;c\r\n\r\n"), 404, OPEN, ""),
    "extensions of chunks within the limit": (
        body_of(CHUNKED, body=(b"1;" + b"x" * 2_000 + b"\r\n[\r\n") * 2 + b"0\r\n\r\n"),
        404,
        OPEN,
        "",
    ),
    "a long extension of a chunk": (
        body_of(CHUNKED, body=b"1;" + b"x" * 5_000 + b"\r\n[\r\n0\r\n\r\n"),
        400,
        CLOSED,
        TOO_LONG,
    ),
    "extensions of many chunks": (
        body_of(CHUNKED, body=(b"1;" + b"x" * 100 + b"\r\n[\r\n") * 60 + b"0\r\n\r\n"),
        400,
        CLOSED,
        TOO_LONG,
    ),
    "a long extension of the last chunk": (
        body_of(CHUNKED, body=b"0;" + b"x" * 5_000 + b"\r\n\r\n"),
        400,
        CLOSED,
        TOO_LONG,
    ),
    "many chunks": (body_of(CHUNKED, body=b"00001 \r\n[\r\n" * 5_000 + b"0\r\n\r\n"), 404, OPEN, ""),
    "trailers": (body_of(CHUNKED, body=b"2\r\n[]\r\n0\r\nA: b\r\n\r\n"), 404, OPEN, ""),
    # section 3: the first line
    "absolute form": (get(b"http://other:80PAGE"), 200, OPEN, ""),
    "absolute form in capitals": (get(b"HTTP://[::1]PAGE"), 200, OPEN, ""),
    "absolute form with a query": (get(b"https://otherPAGE?a=b"), 200, OPEN, ""),
    "absolute form of HTTP/1.0": (get(b"http://otherPAGE", b"1.0", b""), 200, CLOSED, ""),
    "absolute form without a path": (get(b"http://other?a/b"), 0, OPEN, ""),
    "absolute form without a host": (get(b"http://PAGE"), 400, CLOSED, "no target"),
    "absolute form with a user": (get(b"http://a@otherPAGE"), 400, CLOSED, "no target"),
    "absolute form of another scheme": (get(b"ftp://otherPAGE"), 400, CLOSED, "no target"),
    "absolute form without Host": (get(b"http://otherPAGE", headers=b""), 400, CLOSED, "Missing mandatory Host"),
    "no path": (get(b"status"), 400, CLOSED, "no target"),
    "path that begins with an escape": (get(b"%2Fstatus"), 400, CLOSED, "no target"),
    "asterisk for a page": (get(b"*"), 400, CLOSED, "no target"),
    "asterisk for the options": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 404, OPEN, ""),
    "tunnel": (b"CONNECT other:80 HTTP/1.1\r\nHost: other:80\r\n\r\n", 404, OPEN, ""),
    "escapes in a path": (get(b"/%64ashboard/style.css"), 0, OPEN, ""),
    "escape that is none": (get(b"/%zz%ff%00"), 404, OPEN, ""),
    "HTTP/2.0": (get(b"PAGE", b"2.0"), 400, CLOSED, "another version"),
    "HTTP/1.2": (get(b"PAGE", b"1.2"), 200, OPEN, ""),
    "empty line before a request": (b"\r\n" + get(b"PAGE"), 200, OPEN, ""),
    "two empty lines before a request": (b"\r\n\r\n" + get(b"PAGE"), 400, CLOSED, "no request line received"),
    "two spaces": (b"GET  PAGE HTTP/1.1\r\n" + HOST + b"\r\n", 400, CLOSED, "illegal request line"),
    "carriage return in the first line": (b"GET PAGE HTTP/1.1\r" + HOST + b"\r\n", 400, CLOSED, "illegal request line"),
    "head": (b"HEAD PAGE HTTP/1.1\r\n" + HOST + b"\r\n", 200, OPEN, ""),
    # section 3.2 and RFC 9110, section 7.2: the host
    "no host": (get(b"PAGE", headers=b""), 400, CLOSED, "Missing mandatory Host"),
    "no host of HTTP/1.0": (get(b"PAGE", b"1.0", b""), 200, CLOSED, ""),
    "two hosts": (get(b"PAGE", headers=HOST + HOST), 400, CLOSED, "multiple Host"),
    "host with a path": (get(b"PAGE", headers=b"Host: x/y\r\n"), 400, CLOSED, "no value of Host"),
    "host with a user": (get(b"PAGE", headers=b"Host: a@x\r\n"), 400, CLOSED, "no value of Host"),
    "host with a space": (get(b"PAGE", headers=b"Host: x y\r\n"), 400, CLOSED, "no value of Host"),
    "host with a wrong port": (get(b"PAGE", headers=b"Host: x:y\r\n"), 400, CLOSED, "no value of Host"),
    "empty host": (get(b"PAGE", headers=b"Host:\r\n"), 200, OPEN, ""),
    "host of IPv6": (get(b"PAGE", headers=b"Host: [::1]:80\r\n"), 200, OPEN, ""),
    "host with an underscore": (get(b"PAGE", headers=b"Host: a_b.c-d:8000\r\n"), 200, OPEN, ""),
    # section 5: headers
    "folded header": (get(b"PAGE", headers=HOST + b"A: b\r\n c\r\n"), 200, OPEN, ""),
    "fold before the first header": (get(b"PAGE", headers=b" " + HOST), 400, CLOSED, "continuation line"),
    "space before a colon": (get(b"PAGE", headers=b"Host : x\r\n"), 400, CLOSED, "illegal header line"),
    "carriage return in a header": (get(b"PAGE", headers=HOST + b"A: b\rc\r\n"), 400, CLOSED, "illegal header line"),
    "zero byte in a header": (get(b"PAGE", headers=HOST + b"A: b\0c\r\n"), 400, CLOSED, "illegal header line"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_answered_as_the_standard_says(name: str, target: Target) -> None:
    request, status, is_closed, words = REQUESTS[name]
    statuses, closed, body = exchange(target.port, request.replace(b"PAGE", target.page))
    assert closed == is_closed
    assert statuses == [status] if status else statuses[0] in (200, 404)
    if words:
        assert body.startswith(b'{"error":"no HTTP request: ') and words.encode() in body
    if request.startswith(b"HEAD"):
        assert body == b""


def test_an_empty_line_may_come_in_parts() -> None:
    requests = _Requests(h11.SERVER)
    requests.receive_data(b"\r")
    assert requests.next_event() is h11.NEED_DATA
    requests.receive_data(b"\n" + get(b"/"))
    assert requests.next_event().target == b"/"


def test_an_absolute_form_has_the_page_of_its_path(target: Target) -> None:
    bodies = {exchange(target.port, get(each + target.page + b"?a=b"))[2][:60] for each in (b"", b"http://other:1")}
    assert len({each.split(b'"height"')[0] for each in bodies}) == 1


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_a_client_that_asks_whether_to_go_on_is_told_so_before_its_body_is_read(version: bytes) -> None:
    with ServerThread(FakePages(FakeChain(), 0)) as server:
        headers = b"Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
        head = b"POST /transactions HTTP/" + version + b"\r\n" + HOST + headers + b"\r\n"
        statuses, _, body = exchange(server.port, head + b"[]")
        assert statuses[-1] == 200 and body == b'{"results":[]}'
        with socket.create_connection(("127.0.0.1", server.port), timeout=HANGS_AFTER_S) as connection:
            stream = connection.makefile("rb")
            connection.sendall(head)
            if version == b"1.1":
                assert _answer(stream)[0] == 100
            connection.sendall(b"[]")
            assert _answer(stream)[0] == 200
        too_long = head.replace(b"Content-Length: 2", b"Content-Length: 99999999")
        assert exchange(server.port, too_long)[:2] == ([413], CLOSED)


def test_a_refused_request_hides_no_second_one(target: Target) -> None:
    hidden = get(target.page)
    request = body_of(b"Content-Length: %d" % (5 + len(hidden)), CHUNKED, body=b"0\r\n\r\n" + hidden)
    assert exchange(target.port, request)[:2] == ([400], CLOSED)
