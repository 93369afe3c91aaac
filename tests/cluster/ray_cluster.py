"""A Ray cluster of several nodes on this machine, for tests: each node has its own processes, which can be killed."""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from cluster.live.nodes import loopback_node
from cluster.live.processes import processes
from cluster.live.processes.processes import Process
from tests.cluster.live.pods import UNSHARE
from tests.hangs import HANGS_AFTER_S

PATIENCE_S: Final = 5.0
EARLY_LOSS: Final = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "3000"}
"""Has Ray give up a node that was killed after 5 s, and one that was cut off after 20 s, instead of 15 s and 65 s."""


class RayCluster:
    """Nodes by number; the head is number 0 and gets no seeds if it has no processors."""

    def __init__(self, folder: Path, environment: dict[str, str], cwd: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.address = f"127.0.0.1:{server.getsockname()[1]}"
        self._folder = folder
        self._cwd = cwd
        self.environment = {
            **environment,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            **EARLY_LOSS,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
        self.nodes: list[set[Process]] = []
        """The raylet of each node, and on the head its other processes."""
        self.pods: list[subprocess.Popen[str]] = []
        """The first process of each node that is a pod."""

    def start(self, cpus: int = 1, *options: str) -> int:
        """Another node; the first one is the head. Returns its number."""
        role = [f"--address={self.address}"]
        if not self.nodes:
            port = self.address.rpartition(":")[2]
            role = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._folder}"]
        before = processes.with_argument(str(self._folder))
        command = [sys.executable, "-m", loopback_node.MODULE, "start", *role, "--node-ip-address=127.0.0.1"]
        command += [f"--num-cpus={cpus}", "--object-store-memory=80000000", "--disable-usage-stats", *options]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self._cwd,
            timeout=HANGS_AFTER_S,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode()
        self.nodes.append(processes.with_argument(str(self._folder)) - before)
        return len(self.nodes) - 1

    def start_pod(self, volume: Path, mounted_at: Path, *options: str) -> int:
        """Another node as in a pod: with process ids of its own, and with a folder that only it has. Returns its
        number among the pods.
        """
        mount = ["sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh", str(volume), str(mounted_at)]
        command = [sys.executable, "-m", loopback_node.MODULE, "start", "--block", f"--address={self.address}"]
        command += ["--node-ip-address=127.0.0.1", "--num-cpus=1", "--object-store-memory=80000000"]
        pod = subprocess.Popen(
            [*UNSHARE, *mount, *command, "--disable-usage-stats", *options],
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
            cwd=self._cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.pods.append(pod)
        assert pod.stdout is not None
        said: list[str] = []
        while "Ray runtime started" not in (line := pod.stdout.readline()):
            assert line, "".join(said)
            said.append(line)
        return len(self.pods) - 1

    def kill_pod(self, number: int) -> None:
        """Kill every process of a pod: they end with its first one."""
        pod = self.pods[number]
        if pod.poll() is None:
            pod.kill()
            pod.communicate()

    def end_pod(self, number: int) -> None:
        """End a pod as Kubernetes does: its raylet is asked to end, and ends its workers; then the rest is killed.

        Ray knows of the workers' end at once, and of the node's only when that has not answered for long.
        """
        inside = psutil.Process(self.pods[number].pid).children(recursive=True)
        (raylet,) = (each for each in inside if each.name() == "raylet")
        workers = [each for each in inside if each.name().startswith("ray::")]
        assert workers
        handles = [os.pidfd_open(each.pid) for each in workers]
        raylet.terminate()
        for handle in handles:
            # It can be read when the process has ended, though no parent may reap it: a worker can outlive its raylet,
            # and the first process of the pod reaps nothing.
            assert select.select([handle], [], [], HANGS_AFTER_S)[0]
            os.close(handle)
        self.kill_pod(number)

    def raylet(self, number: int) -> Process:
        return next(process for process in self.nodes[number] if processes.command(process) == "raylet")

    def workers(self, number: int) -> set[Process]:
        """The processes that a node's raylet has started and that run tasks, or may."""
        children = processes.with_descendants([self.raylet(number)])
        return {process for process in children if "ray::" in _title(process)}

    def kill(self, number: int) -> None:
        """Kill every process of a node."""
        for process in processes.with_descendants(self.nodes[number]):
            process.send(signal.SIGKILL)


def _title(process: Process) -> str:
    try:
        return " ".join(psutil.Process(process.pid).cmdline())
    except psutil.Error:
        return ""


@contextmanager
def ray_cluster(
    *nodes: int, environment: dict[str, str] | None = None, cwd: Path | None = None
) -> Iterator[RayCluster]:
    """A cluster whose nodes have so many processors each. Nothing of it is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    found = RayCluster(folder, dict(os.environ) if environment is None else environment, cwd or folder)
    try:
        for cpus in nodes:
            found.start(cpus)
        yield found
    finally:
        for number in range(len(found.pods)):
            found.kill_pod(number)
        for number in range(len(found.nodes)):
            found.kill(number)
        processes.end_and_remove(folder, PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)
