"""A testnet's own Ray nodes: ``python -m cluster.live.nodes.loopback_node start --node-ip-address=127.0.0.1 …``.

``ray start`` and ``ray.init`` replace a loopback address by one of the machine's. Ray's servers then listen on all
interfaces. On 127.0.0.1 they listen only there, as do those of a Ray that the library starts by itself. A process that
joins such a Ray must keep that address, too.

A head starts processes that a testnet does not use, and that together take as much processor time to start as a
validator: the autoscaler, the server of the dashboard and of jobs, and on each node the log monitor. They are left out.
Two scripts that Ray needs are replaced by ones that do not import Ray: the agent of the dashboard
(:mod:`cluster.live.nodes.idle_agent`), and the one that sets up workers (:mod:`cluster.live.nodes.setup_worker`).
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

MODULE: Final = "cluster.live.nodes.loopback_node"
LEFT_OUT: Final = ("start_monitor", "start_api_server", "start_log_monitor")
"""Methods of Ray's node class that start the processes that are left out."""
HERE: Final = Path(__file__).resolve().parent
SETUP_WORKER: Final = str(HERE / "setup_worker.py")
AGENT_OPTION: Final = "--dashboard_agent_command="
"""The raylet's option that names the command of the dashboard's agent."""
RAYS_AGENT: Final = "/dashboard/agent.py"
"""The end of the path of Ray's own agent."""
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
    from ray._private import ray_constants, services
    from ray._private.node import Node

    methods = {name: getattr(Node, name) for name in LEFT_OUT}
    setup_worker, start_process = ray_constants.SETUP_WORKER_FILENAME, services.start_ray_process
    for name in LEFT_OUT:
        setattr(Node, name, lambda node, **options: None)
    ray_constants.SETUP_WORKER_FILENAME = SETUP_WORKER  # Ray joins it to a folder, which an absolute path replaces
    services.start_ray_process = lambda command, *arguments, **options: start_process(
        [with_idle_agent(each) for each in command], *arguments, **options
    )
    try:
        with loopback_stays():
            yield
    finally:
        ray_constants.SETUP_WORKER_FILENAME, services.start_ray_process = setup_worker, start_process
        for name, method in methods.items():
            setattr(Node, name, method)


def with_idle_agent(option: str) -> str:
    """An option of a raylet, with the idle agent if it names the command of the dashboard's agent."""
    if not option.startswith(AGENT_OPTION):
        return option
    command = shlex.split(option.removeprefix(AGENT_OPTION))
    (script,) = (place for place, word in enumerate(command) if word.endswith(RAYS_AGENT))
    command[: script + 1] = [sys.executable, "-I", "-S", str(HERE / "idle_agent.py")]
    return AGENT_OPTION + subprocess.list2cmdline(command)


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
