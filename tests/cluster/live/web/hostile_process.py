"""A hostile client of validators' endpoints, as a process of its own, until SIGTERM; then it prints what it did.

python -m tests.cluster.live.web.hostile_process prints a line once it is ready, reads the endpoints' ports from a line,
and then sends malformed and costly requests without end, holds half-open connections, and takes all streams of events
that it gets, without reading them. It has the lowest priority: what is measured beside it is what serving it costs, and
not what sending costs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections import Counter
from random import Random
from typing import Final

from tests.cluster.live.web.hostile_requests import Client, HostileToValidator
from tests.cluster.live.web.soak import group, routes
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages

NICENESS: Final = 19
CLIENTS: Final = 2
"""Of each endpoint, which send one request after the other."""
HELD: Final = {
    b"GET /status HTTP/1.1\r\nHost: x\r\nX-Slow: ": 60,
    b"GET /events?from=1 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n": 40,
}
"""What is sent to an endpoint over connections that are held, and how many there are."""
READY: Final = "ready"
HOLD_SECONDS: Final = 0.5
"""Between two looks at them."""


def send_requests(port: int, seed: int, stop: threading.Event, statuses: Counter[str]) -> None:
    """Send hostile requests until ``stop``, and count the answers by status."""
    fuzzer = HostileToValidator(Random(seed), routes(FakePages(FakeChain(), 0)))
    client = Client(port)
    while not stop.is_set():
        sent = group(fuzzer)
        try:
            statuses.update(str(answer.status) for answer in client.ask(*sent))
        except (AssertionError, OSError):
            statuses["no answer"] += 1
            client.close()


def hold_connections(port: int, stop: threading.Event) -> None:
    """Keep connections open that never send a whole request, or never read their streams."""
    held: dict[bytes, list[socket.socket]] = {data: [] for data in HELD}
    while not stop.wait(HOLD_SECONDS):
        for data, count in HELD.items():
            held[data] = [each for each in held[data] if not _has_ended(each)]
            while len(held[data]) < count:
                try:
                    held[data].append(socket.create_connection(("127.0.0.1", port), timeout=HANGS_AFTER_S))
                    held[data][-1].sendall(data)
                except OSError:
                    break
    for sockets in held.values():
        for each in sockets:
            each.close()


def _has_ended(connection: socket.socket) -> bool:
    """Whether the server closed it, or refused what was sent over it."""
    with contextlib.suppress(BlockingIOError):
        seen = connection.recv(16, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return not seen or (seen.startswith(b"HTTP/1.1 ") and not seen.startswith(b"HTTP/1.1 200"))
    return False


def main() -> None:
    os.nice(NICENESS)
    stop, statuses = threading.Event(), Counter[str]()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    print(READY, flush=True)
    ports = [int(text) for text in sys.stdin.readline().split()]
    threads = [threading.Thread(target=hold_connections, args=(port, stop)) for port in ports]
    threads += [
        threading.Thread(target=send_requests, args=(port, seed, stop, statuses))
        for port in ports
        for seed in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
