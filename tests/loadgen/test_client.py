"""The client's errors: each kind of bad answer is told apart. Only a question to a closed connection is repeated."""

from __future__ import annotations

import errno
import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import pytest

from loadgen import client as client_module
from loadgen.client import ClientError, Gone, NotFound, Refused, ValidatorClient, reason_of
from tests.hangs import HANGS_AFTER_S

REFUSED = f"[Errno {errno.ECONNREFUSED}] Connection refused"


@contextmanager
def answering(*answers: bytes) -> Iterator[ValidatorClient]:
    """A client of a server that gives these answers, one a connection, and then listens no more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(HANGS_AFTER_S)

        def run() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(HANGS_AFTER_S)
                    connection.recv(65_536)
                    connection.sendall(answer)
            listener.close()

        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread = threading.Thread(target=run)
        thread.start()
        with ValidatorClient(endpoint, timeout_s=HANGS_AFTER_S) as client:
            yield client
        thread.join(HANGS_AFTER_S)
        assert not thread.is_alive()


@contextmanager
def closing_the_first_connection(*answers: bytes) -> Iterator[tuple[ValidatorClient, list[bytes]]]:
    """A client of a server that gives these answers, one a connection, and closes the first connection when the next
    request comes in. With it the beginnings of all requests."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(HANGS_AFTER_S)

        def run() -> None:
            for number, answer in enumerate(answers):
                connection, _ = listener.accept()
                connection.settimeout(HANGS_AFTER_S)
                with connection, connection.makefile("rb") as stream:
                    asked.append(request_line(stream))
                    connection.sendall(answer)
                    if number == 0:
                        asked.append(request_line(stream))

        thread = threading.Thread(target=run)
        thread.start()
        with ValidatorClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=HANGS_AFTER_S) as client:
            yield client, asked
        thread.join(HANGS_AFTER_S)
        assert not thread.is_alive()


def request_line(stream: BinaryIO) -> bytes:
    """The method and path of the next request, all of which is read."""
    first, length = stream.readline(), 0
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    stream.read(length)
    return first.partition(b" HTTP")[0]


def page_kept(body: bytes) -> bytes:
    return b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def page(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)


def test_nobody_listens() -> None:
    with answering() as client:
        pass  # what listened is closed now
    with pytest.raises(ClientError) as caught:
        client.status()
    assert str(caught.value) == f"{client.endpoint}/status: Failed to establish a new connection: {REFUSED}"


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("HTTPConnectionPool(host='127.0.0.1', port=1): Read timed out. (read timeout=2.0)", "Read timed out. (read"),
        ("HTTPSConnection(host='::1', port=1): Failed\nto connect", "Failed to connect"),
        ("('Connection aborted.', OSError(9, 'x'))", "('Connection aborted.', OSError(9, 'x'))"),
        ("", ""),
    ],
)
def test_a_reason_names_no_object_of_the_library(library: str, reason: str) -> None:
    assert reason_of(Exception(library)).startswith(reason)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"nonsense\r\n\r\n"])
def test_a_connection_that_breaks(answer: bytes) -> None:
    with answering(answer) as client, pytest.raises(ClientError):
        client.status()


def test_a_question_that_meets_the_closing_of_a_kept_connection_is_asked_again() -> None:
    with closing_the_first_connection(page_kept(b'{"n": 1}'), page_kept(b'{"n": 2}')) as (client, asked):
        assert client.status() == {"n": 1}
        assert client.status() == {"n": 2}
    assert asked == [b"GET /status", b"GET /status", b"GET /status"]


def test_a_posted_transaction_is_not_repeated() -> None:
    with closing_the_first_connection(page_kept(b'{"results": []}')) as (client, asked):
        assert client.post_transactions([]) == []
        with pytest.raises(ClientError, match="without response"):
            client.post_transactions([])
    assert asked == [b"POST /transactions", b"POST /transactions"]


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = ValidatorClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.05)
        with pytest.raises(ClientError):
            client.status()


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b"\xff"])
def test_pages_that_are_none(body: bytes) -> None:
    with answering(page(200, body)) as client, pytest.raises(ClientError):
        client.status()


@pytest.mark.parametrize("body", [b"", b"\x90\x90", b"\x91\x92\xc4\x00\xc4\x00", b"{}"])
def test_blocks_that_are_none(body: bytes) -> None:
    with answering(page(200, body)) as client, pytest.raises(ClientError):
        client.blocks(1, 10)


@pytest.mark.parametrize("body", [b"{}", b'{"results": []}', b'{"results": [{"hash": "x", "error": null}]}'])
def test_results_that_are_none(body: bytes) -> None:
    with answering(page(200, body)) as client, pytest.raises(ClientError):
        client.post_transactions([b"one"])


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (410, Gone), (429, Refused), (503, Refused), (302, Refused)]
)
def test_error_pages(status: int, kind: type[Refused]) -> None:
    with answering(page(status, b'{"error": "what\\nhappened"}')) as client, pytest.raises(kind) as caught:
        client.status()
    assert (type(caught.value), caught.value.status, caught.value.reason) == (kind, status, "what happened")


def test_an_error_page_of_another_kind() -> None:
    with answering(page(500, b"<html>" + b"x" * 10_000)) as client, pytest.raises(Refused) as caught:
        client.status()
    assert caught.value.reason.startswith("<html>") and len(caught.value.reason) == 500


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX: ", page(200, b"{}")[:-2].replace(b"2\r", b"99\r")])
def test_an_answer_that_never_ends(begin: bytes) -> None:
    """A byte now and then does not keep a request alive: the whole answer has the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(HANGS_AFTER_S)
        sent = 0

        def run() -> None:
            nonlocal sent
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.sendall(begin)
                while not gone.wait(0.02):
                    connection.sendall(b"x")
                    sent += 1

        gone = threading.Event()
        thread = threading.Thread(target=run)
        thread.start()
        client = ValidatorClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.3)
        with pytest.raises(ClientError, match="timed out"):
            client.status()
        gone.set()
        thread.join(HANGS_AFTER_S)
        assert not thread.is_alive() and sent > 1


def test_an_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{client_module.__name__}.MAX_PAGE_BYTES", 10)
    with answering(page(200, b'{"a": 34}\n')) as client:
        assert client.status() == {"a": 34}
    with answering(page(200, b'{"a": 345}\n')) as client, pytest.raises(ClientError, match="more than 10 bytes"):
        client.status()
    with answering(page(503, b"x" * 100_000)) as client, pytest.raises(Refused) as caught:
        client.status()
    assert (caught.value.status, caught.value.reason) == (503, "its body is too large")


def test_a_compressed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b"{}")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    with answering(head % len(packed) + packed) as client, pytest.raises(ClientError, match="no JSON object"):
        client.status()


def test_a_connection_is_used_again() -> None:
    """Each answer has a timeout of its own."""
    begun = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(HANGS_AFTER_S)

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                while connection.recv(65_536):
                    begun.append(1)
                    connection.sendall(page(200, b"{}").replace(b"Connection: close\r\n", b""))

        thread = threading.Thread(target=run)
        thread.start()
        with ValidatorClient(f"http://127.0.0.1:{listener.getsockname()[1]}", HANGS_AFTER_S) as client:
            assert [client.status() for _ in range(3)] == [{}] * 3
        thread.join(HANGS_AFTER_S)
    assert len(begun) == 3


@pytest.mark.parametrize("ask", [ValidatorClient.blocks, ValidatorClient.block_digests])
def test_more_than_was_asked_for(ask: Callable[[ValidatorClient, int, int], object]) -> None:
    item = b"\x93\xc4\x00\xc4\x00\xc4\x00" if ask is ValidatorClient.blocks else b"\xc4\x00"
    with answering(page(200, b"\x92" + 2 * item)) as client:
        ask(client, 1, 2)
    with answering(page(200, b"\x92" + 2 * item)) as client, pytest.raises(ClientError, match="2 items"):
        ask(client, 1, 1)
