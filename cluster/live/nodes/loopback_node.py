"""A testnet's own Ray nodes: ``python -m cluster.live.nodes.loopback_node start --node-ip-address=127.0.0.1 …``.

``ray start`` and ``ray.init`` replace a loopback address by one of the machine's. Ray's servers then listen on all
interfaces. On 127.0.0.1 they listen only there, as do those of a Ray that the library starts by itself. A process that
joins such a Ray must keep that address, too.

A head starts processes that a testnet does not use, and that together take as much processor time to start as a
validator: the autoscaler, the server of the dashboard and of jobs, and on each node the log monitor. They are left out.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

MODULE: Final = "cluster.live.nodes.loopback_node"
LEFT_OUT: Final = ("start_monitor", "start_api_server", "start_log_monitor")
"""Methods of Ray's node class that start the processes that are left out."""
PROBE_TIMEOUT_S: Final = 5.0


@contextmanager
def loopback_stays() -> Iterator[None]:
    """Inside the block, Ray keeps a loopback address."""
    from ray._private import services

    resolve = services.resolve_ip_for_localhost
    services.resolve_ip_for_localhost = lambda host: host
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = resolve


@contextmanager
def small_node() -> Iterator[None]:
    """Inside the block, Ray starts a node with only what a testnet needs, and keeps a loopback address."""
    from ray._private.node import Node

    methods = {name: getattr(Node, name) for name in LEFT_OUT}
    for name in LEFT_OUT:
        setattr(Node, name, lambda node, **options: None)
    try:
        with loopback_stays():
            yield
    finally:
        for name, method in methods.items():
            setattr(Node, name, method)


def joining(address: str) -> AbstractContextManager[None]:
    """Inside the block, the Ray at ``host:port`` can be joined, even if it listens only on loopback."""
    from ray._private import services

    host, _, port = address.rpartition(":")
    outside = services.resolve_ip_for_localhost(host)
    if outside == host or not port.isdecimal():
        return nullcontext()
    try:
        socket.create_connection((outside, int(port)), PROBE_TIMEOUT_S).close()
    except OSError:
        return loopback_stays()
    return nullcontext()


def main() -> None:
    """Entry of the process."""
    from ray.scripts.scripts import main as ray_command

    with small_node():
        ray_command()


if __name__ == "__main__":
    main()
