"""Connections whose clients are slow, half-closed, too many or wrong: over real loopback sockets, on both servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.live.driver.control_server import ControlServer
from cluster.live.web import connections
from cluster.live.web import server as web
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread

SHORT_SECONDS = 0.05
KEPT_SECONDS = 5.0
"""How long a connection without requests is kept."""
HEAD = b"GET /status HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /transactions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(params=["validator", "testnet"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Of a validator's endpoint, and of the testnet's own."""
    if request.param == "validator":
        with ServerThread(FakePages(FakeChain(), 0)) as server:
            yield server.port
    else:
        control = ControlServer(tmp_path)
        yield int(control.url.rsplit(":", 1)[1])
        control.close()


@pytest.fixture
def validator() -> Iterator[ServerThread]:
    with ServerThread(FakePages(FakeChain(), 0)) as server:
        yield server


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Shortens a limit of the connections, in seconds."""
    return lambda name: monkeypatch.setattr(connections, name, SHORT_SECONDS)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=HANGS_AFTER_S)


def read_all(connection: socket.socket) -> bytes:
    """Until the server ends its side."""
    answer = b""
    while chunk := connection.recv(65_536):
        answer += chunk
    return answer


def read_answer(connection: socket.socket) -> bytes:
    """One answer of a stated length."""
    with connection.makefile("rb", buffering=0) as stream:

        def read(count: int) -> bytes:
            data = stream.read(count)
            assert data, "the server ended its side"
            return data

        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += read(1)
        length = int(head.lower().split(b"content-length: ")[1].split()[0])
        body = b""
        while len(body) < length:
            body += read(length - len(body))
    return head + body


def ask(port: int, data: bytes, half_close: bool = False) -> bytes:
    """All that comes back until the server ends the connection."""
    with connect(port) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def parts(answer: bytes) -> tuple[int, Any]:
    """Status and page of an answer, which must be JSON."""
    head, body = answer.split(b"\r\n\r\n", 1)
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)


def assert_error(answer: bytes, status: int, words: str) -> None:
    got, page = parts(answer)
    assert got == status
    assert list(page) == ["error"] and words in page["error"] and "\n" not in page["error"]
    assert b"connection: close" in answer.lower()


# --- slow clients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [HEAD, b"G", POST + b"Content-Length: 3"])
def test_headers_that_do_not_end(port: int, short: Callable[[str], None], data: bytes) -> None:
    short("MAX_HEADER_SECONDS")
    assert_error(ask(port, data), 408, "the headers took longer than 0.05 seconds")


def test_a_client_that_says_nothing_is_not_answered(port: int, short: Callable[[str], None]) -> None:
    short("MAX_HEADER_SECONDS")
    assert ask(port, b"") == b""


def test_headers_that_drip_between_two_requests(port: int, short: Callable[[str], None]) -> None:
    short("MAX_HEADER_SECONDS")
    answer = ask(port, HEAD + b"\r\n" + HEAD[:9])
    first, _, second = answer.rpartition(b"HTTP/1.1 408")
    assert parts(first)[0] == 200 and second


def test_the_time_begins_anew_with_each_request(port: int) -> None:
    with connect(port) as connection:
        for _ in range(3):
            connection.sendall(HEAD + b"\r\n")
            assert parts(read_answer(connection))[0] == 200


def test_a_body_that_does_not_end(validator: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MAX_BODY_SECONDS", SHORT_SECONDS)
    assert_error(ask(validator.port, POST + b"Content-Length: 9\r\n\r\n["), 408, "the body took longer")


def test_a_body_that_no_page_reads_and_that_does_not_end(port: int, short: Callable[[str], None]) -> None:
    short("MAX_UNREAD_BODY_SECONDS")
    assert parts(ask(port, HEAD + b"Content-Length: 9\r\n\r\nx"))[0] == 200


def test_a_body_that_no_page_reads_leaves_the_connection_open(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(HEAD + b"Content-Length: 4\r\n\r\nx")
        assert parts(read_answer(connection))[0] == 200
        connection.sendall(b"xxx" + HEAD + b"\r\n")
        assert parts(read_answer(connection))[0] == 200


class LongPages(FakePages):
    """One whose answers are longer than what the system holds for a client."""

    async def status(self) -> dict[str, Any]:
        return {"long": "x" * 32_000_000}


class Seen:
    """A server's connections as they come, and which of them were lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []
        self.lost: queue.Queue[Any] = queue.Queue()
        seen = self

        class Watched(connections.Connection):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                seen.made.append(self)
                super().connection_made(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                seen.lost.put(self)

        monkeypatch.setattr(web, "Connection", Watched)

    def next_lost(self) -> int:
        """The number of the next connection that is lost."""
        return self.made.index(self.lost.get(timeout=HANGS_AFTER_S))


def test_a_client_that_does_not_take_its_answer(short: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    short("MAX_WRITE_SECONDS")
    seen = Seen(monkeypatch)
    with ServerThread(LongPages(FakeChain(), 0)) as server, connect(server.port) as connection:
        connection.sendall(HEAD + b"\r\n")
        assert seen.next_lost() == 0
        assert len(read_all(connection)) < 32_000_000


def test_a_client_that_takes_its_answer_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    with ServerThread(LongPages(FakeChain(), 0)) as server, connect(server.port) as connection:
        connection.sendall(HEAD + b"Connection: close\r\n\r\n")
        taken = len(connection.recv(1))
        (served,) = seen.made
        left = server.call(served._socket.get_write_buffer_size)
        while taken < 20_000_000:
            taken += len(connection.recv(65_536))
        server.call(lambda: served._look_at_taken(left))
        assert taken + len(read_all(connection)) > 32_000_000


def test_what_all_clients_leave_untaken_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has been slow for longest loses the connection."""
    monkeypatch.setattr(connections, "MAX_UNTAKEN_BYTES", 1_000_000)
    seen = Seen(monkeypatch)
    with ServerThread(LongPages(FakeChain(), 0)) as server, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(server.port)) for _ in range(3)]
        for connection in held:
            connection.sendall(HEAD + b"\r\n")
            connection.recv(1)
        assert [seen.next_lost(), seen.next_lost()] == [0, 1]
        assert len(read_answer(held[2])) > 32_000_000


# --- many clients -----------------------------------------------------------------------------------------------------


def test_one_connection_too_many_ends_the_one_that_waited_longest(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(connections, "MAX_HEADER_SECONDS", 600.0)  # nothing is due, however busy the machine
    monkeypatch.setattr(connections.Connection, "timeout_keep_alive_handler", lambda connection: None)
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(3):
            held.append(stack.enter_context(connect(port)))
            held[-1].sendall(HEAD + b"\r\n")
            assert parts(read_answer(held[-1]))[0] == 200
        held[0].sendall(HEAD + b"\r\n")
        assert parts(read_answer(held[0]))[0] == 200
        assert parts(ask(port, HEAD + b"Connection: close\r\n\r\n"))[0] == 200
        assert held[1].recv(1) == b"", "it was to be closed"
        held[2].sendall(HEAD + b"\r\n")
        assert parts(read_answer(held[2]))[0] == 200


def test_one_too_many_is_told_where_all_others_are_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    pages = SlowPages()
    with ServerThread(pages) as server, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(server.port)) for _ in range(2)]
        for connection in held:
            connection.sendall(pages.HEAD)
            pages.wait()
        assert_error(ask(server.port, HEAD), 503, "too many connections, expected at most 2")
        pages.release(server)
        assert [parts(read_answer(connection))[0] for connection in held] == [200, 200]


# --- half-closed clients ----------------------------------------------------------------------------------------------


class SlowPages(FakePages):
    """A validator that reads its state only once it is let."""

    HEAD = b"GET /accounts/0x" + b"1" * 40 + b" HTTP/1.1\r\nHost: x\r\n\r\n"

    def __init__(self) -> None:
        super().__init__(FakeChain(), 0)
        self._asked, self._asker = socket.socketpair()
        self._let = asyncio.Event()

    async def read(self, read: Any) -> Any:
        self._asker.send(b".")
        await self._let.wait()
        return await super().read(read)

    def wait(self) -> None:
        """Until it is asked."""
        self._asked.settimeout(HANGS_AFTER_S)
        assert self._asked.recv(1) == b"."

    def release(self, server: ServerThread) -> None:
        server.call(self._let.set)


def test_a_half_closed_client_gets_the_validators_answer() -> None:
    pages = SlowPages()
    with ServerThread(pages) as server, connect(server.port) as connection:
        connection.sendall(pages.HEAD)
        connection.shutdown(socket.SHUT_WR)
        pages.wait()
        server.call(lambda: None)  # the server saw the end by now
        pages.release(server)
        connection.settimeout(KEPT_SECONDS / 2)  # it is closed behind the answer, and not for want of a further request
        status, page = parts(read_all(connection))
    assert (status, page["nonce"]) == (200, 0)


def test_a_half_closed_client_gets_all_its_answers(port: int) -> None:
    answer = ask(port, (HEAD + b"\r\n") * 3, half_close=True)
    assert answer.count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize(
    ("data", "where"), [(HEAD, "headers"), (b"G", "headers"), (POST + b"Content-Length: 9\r\n\r\n[", "body")]
)
def test_a_request_that_ends_in_the_middle(validator: ServerThread, data: bytes, where: str) -> None:
    assert_error(ask(validator.port, data, half_close=True), 400, f"the connection ended in the middle of the {where}")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [web.MAX_BODY_BYTES + 1, 10**15])
def test_an_oversized_body_is_refused_before_it_is_read(validator: ServerThread, length: int) -> None:
    head = POST + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % length
    assert_error(ask(validator.port, head), 413, "body is too large, expected at most 8388608 bytes")


def test_an_oversized_body_of_no_stated_length_is_refused_as_soon_as_it_is(validator: ServerThread) -> None:
    chunk = b"%x\r\n" % (1024 * 1024) + b"x" * 1024 * 1024 + b"\r\n"
    with connect(validator.port) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 9)
        assert_error(read_all(connection), 413, "body is too large")


def test_who_goes_on_sending_reads_the_answer_and_is_cut_off(
    validator: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_DROPPED_BYTES", 4 * 1024 * 1024)
    with connect(validator.port) as connection:
        connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % 10**9 + b"x" * 1024 * 1024)
        assert_error(read_all(connection), 413, "body is too large")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(b"x" * 64 * 1024 * 1024)


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"HELLO\r\n\r\n", 400, "no HTTP request: illegal request line"),
        (b"\x00" * 100 + b"\r\n\r\n", 400, "no HTTP request: illegal request line"),
        (b"GET / HTTP/9\r\n\r\n", 400, "no HTTP request: illegal request line"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "no HTTP request: illegal request line"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "no HTTP request: Missing mandatory Host: header"),
        (HEAD + b"Content-Length: x\r\n\r\n", 400, "no HTTP request: bad Content-Length"),
        (HEAD + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n", 400, "no HTTP request: bad Content-Length"),
        (HEAD + b"A: " + b"x" * 70_000, 431, "no HTTP request: Receive buffer too long"),
    ],
)
def test_what_is_no_http_is_told_in_the_same_words_as_every_error(
    port: int, data: bytes, status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert_error(ask(port, data), status, words)
    assert "Traceback" not in caplog.text


def test_a_chunk_that_is_none(validator: ServerThread, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(validator.port, POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n")
    assert_error(answer, 400, "no HTTP request: illegal chunk header")
    assert "Traceback" not in caplog.text


def test_a_client_that_resets_leaves_nothing_behind(validator: ServerThread, caplog: pytest.LogCaptureFixture) -> None:
    for data in (HEAD, HEAD + b"\r\n", POST + b"Content-Length: 9\r\n\r\n["):
        with connect(validator.port) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(data)
    assert parts(ask(validator.port, HEAD + b"Connection: close\r\n\r\n"))[0] == 200
    assert "Traceback" not in caplog.text
