"""The client that asks one endpoint as fast as it answers, with ready-made requests. Run by ``benchmarks/load.py``."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from reporting import Unavailable

CONNECTIONS = 16
MAX_ANSWER_BYTES = 65_536


def per_second(url: str, requests: Sequence[bytes]) -> float:
    """Requests a second over some connections, each with one request under way. Ends if one is not taken."""
    host, port = url.removeprefix("http://").split(":")
    connections = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began = time.perf_counter()
    for first in range(0, len(requests), CONNECTIONS):
        part = list(zip(connections, requests[first : first + CONNECTIONS], strict=False))
        for connection, request in part:
            connection.sendall(request)
        for connection, _ in part:
            head, _, body = connection.recv(MAX_ANSWER_BYTES).partition(b"\r\n\r\n")
            if not body:
                body = connection.recv(MAX_ANSWER_BYTES)
            if not head.startswith(b"HTTP/1.1 200") or b'"error":null' not in body:
                raise Unavailable(f"the endpoint did not take a transaction: {head!r} {body!r}")
    seconds = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return len(requests) / seconds
