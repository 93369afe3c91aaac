"""Machines for tests: network namespaces with a switch between them, and a Ray node in each."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.live.nodes import loopback_node
from tests.cluster.ray_cluster import EARLY_LOSS
from tests.hangs import HANGS_AFTER_S

ROOT: Final = Path(__file__).parents[3]
PORT: Final = 6399
SWITCH: Final = "switch"


def run_ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass
class Machines:
    """Namespaces named by numbers; :meth:`start_ray` starts a node on each, the head on the first."""

    prefix: str
    network: str
    temporary: Path
    names: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return self._environment

    def __post_init__(self) -> None:
        self._environment = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            **EARLY_LOSS,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ADDRESS": f"{self.address(0)}:{PORT}",
        }
        run_ip("netns", "add", f"{self.prefix}{SWITCH}")
        run_ip("-n", f"{self.prefix}{SWITCH}", "link", "add", "hub", "type", "bridge")
        run_ip("-n", f"{self.prefix}{SWITCH}", "link", "set", "hub", "up")

    def address(self, machine: int) -> str:
        return f"{self.network}.{machine + 1}"

    def add(self) -> int:
        """Another machine, with a cable to the switch. Returns its number."""
        machine, switch = len(self.names), f"{self.prefix}{SWITCH}"
        name = f"{self.prefix}{machine}"
        run_ip("netns", "add", name)
        self.names.append(name)
        plug = f"port{machine}"
        run_ip("link", "add", "cable", "netns", name, "type", "veth", "peer", "name", plug, "netns", switch)
        run_ip("-n", switch, "link", "set", plug, "master", "hub")
        run_ip("-n", switch, "link", "set", plug, "up")
        run_ip("-n", name, "addr", "add", f"{self.address(machine)}/24", "dev", "cable")
        for device in ("cable", "lo"):
            run_ip("-n", name, "link", "set", device, "up")
        return machine

    def start(self, machine: int, *command: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[machine], *command], env=self.environment, text=True, **options
        )

    def start_ray(self, machine: int, *options: str) -> None:
        """Start a node there."""
        role = [f"--address={self.address(0)}:{PORT}"]
        if machine == 0:
            role = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={self.temporary}"]
        command = [sys.executable, "-m", loopback_node.MODULE, "start", *role]
        command += [f"--node-ip-address={self.address(machine)}"]
        command += ["--num-cpus=2", "--object-store-memory=80000000", "--disable-usage-stats", *options]
        with self.start(machine, *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as starting:
            said, _ = starting.communicate(timeout=HANGS_AFTER_S)
        assert starting.returncode == 0, said

    def plug(self, machine: int, state: str) -> None:
        """Pull a machine's cable (``down``) or put it back (``up``)."""
        run_ip("-n", self.names[machine], "link", "set", "cable", state)

    def pids(self, machine: int) -> list[int]:
        listed = subprocess.run(
            ["ip", "netns", "pids", self.names[machine]], check=True, capture_output=True, text=True
        )
        return [int(pid) for pid in listed.stdout.split()]

    def kill(self, machine: int) -> None:
        """Kill every process of a machine."""
        for pid in self.pids(machine):
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for machine in range(len(self.names)):
            self.kill(machine)
            run_ip("netns", "del", self.names[machine])
        run_ip("netns", "del", f"{self.prefix}{SWITCH}")


@contextmanager
def machines(count: int, network: str) -> Iterator[Machines]:
    """So many machines, without Ray. The test is skipped where namespaces cannot be made."""
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    try:
        try:
            found = Machines(f"st-{os.getpid()}-", network, temporary)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs network namespaces, which this machine does not let us make: {error}")
        try:
            for _ in range(count):
                found.add()
            yield found
        finally:
            found.close()
    finally:
        shutil.rmtree(temporary)
