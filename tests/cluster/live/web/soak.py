"""Hostile requests without end to a validator's endpoint: each gets a right answer, and nothing grows.

python -m tests.cluster.live.web.soak --requests 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import psutil

from cluster.live.host.http import build_app
from cluster.live.web.connections import MAX_CONNECTIONS
from cluster.live.web.event_stream import MAX_STREAMS
from cluster.live.web.server import HttpServer
from tests.cluster.live.web.chain_server import ChainPages
from tests.cluster.live.web.hostile_requests import Client, HostileRequests, HostileToValidator, Sent, check, get
from tests.loadgen.fake_validator import ServerThread

MAX_PIPELINED: Final = 8
CLIENTS: Final = 4
GOOD_EVERY: Final = 500
"""Requests between two of a good client."""
MAX_GOOD_SECONDS: Final = 10.0
"""The machine may be busy; an unhindered answer takes milliseconds."""
ALLOWED_BYTES: Final = 64 * 1024 * 1024
"""Growth of the process's memory after the first fifth of the requests."""
GOOD: Final = Sent("good", get("/status"), frozenset({200}))


@dataclass
class Figures:
    """What a soak saw."""

    requests: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    slowest_good_s: float = 0.0
    connections: int = 0
    streams: int = 0
    """Of events, at most at a time; every client of one goes away at once."""
    grown_bytes: int = 0
    seconds: float = 0.0


def routes(pages: Any) -> list[tuple[str, str]]:
    """Method and path of every page of a validator."""
    application: Any = build_app(pages)
    return [
        (next(each for each in route.methods if each != "HEAD"), route.path)
        for route in application._application.routes
    ]


def held(server: HttpServer) -> int:
    """Connections of a server."""
    return len(server._server.server_state.connections)


def group(fuzzer: HostileRequests) -> list[Sent]:
    """Requests to send one behind the other: the last may end its connection."""
    drawn: list[Sent] = []
    for _ in range(fuzzer.random.randrange(1, MAX_PIPELINED + 1)):
        drawn.append(fuzzer.draw())
        if drawn[-1].ends:
            break
    return drawn


def soak(requests: int, seed: int) -> Figures:
    """Send so many requests; fails with the first answer that is wrong."""
    figures, pages, process = Figures(), ChainPages(), psutil.Process()
    began, warm_bytes = time.monotonic(), 0
    with ServerThread(pages) as server:
        fuzzer = HostileToValidator(Random(seed), routes(pages))
        clients = [Client(server.port) for _ in range(CLIENTS)]
        good_at = 0
        while figures.requests < requests:
            sent = group(fuzzer)
            for each, answer in zip(sent, fuzzer.random.choice(clients).ask(*sent), strict=True):
                check(each, answer)
                figures.kinds[each.kind] += 1
                figures.statuses[answer.status] += 1
            figures.requests += len(sent)
            if figures.requests >= good_at:
                good_at = figures.requests + GOOD_EVERY
                figures.slowest_good_s = max(figures.slowest_good_s, good_answer(server.port))
                figures.connections = max(figures.connections, held(server.server))
                figures.streams = max(figures.streams, pages.hub.streams)
            if not warm_bytes and figures.requests >= requests // 5:
                warm_bytes = process.memory_info().rss
        figures.grown_bytes = process.memory_info().rss - warm_bytes
        height = pages.network.height(0) + 3
    for client in clients:
        client.close()
    figures.seconds = time.monotonic() - began
    assert pages.admitted == []
    assert figures.connections <= MAX_CONNECTIONS
    assert figures.streams <= MAX_STREAMS
    assert figures.slowest_good_s < MAX_GOOD_SECONDS
    assert figures.grown_bytes < ALLOWED_BYTES
    assert pages.roots(height) == ChainPages().roots(height), "the same blocks as without any request"
    return figures


def good_answer(port: int) -> float:
    """Seconds until a new client has its answer."""
    client, began = Client(port), time.monotonic()
    check(GOOD, client.ask(GOOD)[0])
    client.close()
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(soak(options.requests, options.seed))


if __name__ == "__main__":
    main()
