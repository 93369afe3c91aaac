"""The client's errors: each kind of bad answer is told apart, and nothing is retried."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loadgen.client import ClientError, Gone, NotFound, Refused, ValidatorClient
from tests.hangs import HANGS_AFTER_S


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


def page(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)


def test_nobody_listens() -> None:
    with answering() as client:
        pass  # what listened is closed now
    with pytest.raises(ClientError, match="/status") as caught:
        client.status()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"nonsense\r\n\r\n"])
def test_a_connection_that_breaks(answer: bytes) -> None:
    with answering(answer) as client, pytest.raises(ClientError):
        client.status()


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
