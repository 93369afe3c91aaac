"""Signals to the processes of one machine: kill, pause and resume.

A small separate program (:mod:`cluster.live.processes.pause_holder`) stops a process, and resumes it when this process
ends, in whatever way: no process stays stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from cluster.live.processes import processes, resumption
from cluster.live.processes.processes import Process

PAUSE_HOLDER: Final = Path(__file__).with_name("pause_holder.py")
PATIENCE_S: Final = 5.0
STOP_TIMEOUT_S: Final = 2.0
"""A process that was sent SIGSTOP stops within this time, unless it hangs in the kernel."""
POLL_S: Final = 0.005
RAYLET: Final = "raylet"
"""Program of the process that starts all others of a Ray node."""
END_AFTER_S: Final = 0.2
"""Delay of the end of a node, so that its answer is sent first."""


class ProcessSignals:
    """Signals on one machine. :meth:`close` resumes every paused process."""

    def __init__(self) -> None:
        self._pause_holders: dict[Process, subprocess.Popen[bytes]] = {}
        self._notes: dict[Process, Path] = {}
        """Files that note the resumption, keyed by paused process."""

    def kill(self, process: Process) -> bool:
        """Send SIGKILL. Returns whether the process still ran."""
        return process.send(signal.SIGKILL)

    def pause(self, process: Process, resumed: Path | None = None) -> bool:
        """Send SIGSTOP; the process stays stopped until :meth:`resume`. Returns whether it was seen to be stopped.

        ``resumed`` is the file in which the resumption is noted, for a process that has a lease.
        """
        if process in self._pause_holders:
            return process.is_stopped
        with process.handle() as descriptor:
            if descriptor is None:
                return False
            command = [sys.executable, "-I", "-S", str(PAUSE_HOLDER), str(descriptor)]
            holder = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(descriptor,),
            )
        self._pause_holders[process] = holder
        if resumed is not None:
            self._notes[process] = resumed
        assert holder.stdout is not None
        deadline = time.monotonic() + STOP_TIMEOUT_S if holder.stdout.readline() else 0.0
        while not process.is_stopped and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return process.is_stopped

    def resume(self, process: Process) -> None:
        """Send SIGCONT. Ignored if the process is not paused."""
        holder, resumed = self._pause_holders.pop(process, None), self._notes.pop(process, None)
        if holder is None:
            return
        if resumed is not None:
            with suppress(OSError):  # without the note its lease goes on as if it was never paused
                resumption.note(resumed)
        assert holder.stdin is not None and holder.stdout is not None
        holder.stdin.close()
        try:
            holder.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()
        holder.stdout.close()
        if process.is_stopped:  # the holder was killed
            process.send(signal.SIGCONT)

    def is_running(self, process: Process) -> bool:
        return process.is_running

    def close(self) -> None:
        """Resume every paused process."""
        for process in list(self._pause_holders):
            self.resume(process)


class NodeSignals(ProcessSignals):
    """Signals on a Ray node, sent by an actor of that node. It may end the whole node, and itself with it."""

    def __init__(self) -> None:
        super().__init__()
        parent = processes.find(os.getppid())
        self._raylet = parent if parent is not None and processes.command(parent) == RAYLET else None
        """Raylet of this node. If it ends, this process gets another parent, which may be the raylet of another Ray."""

    def end_node(self, kills: bool) -> bool | None:
        """End the node: with ``kills`` by SIGKILL to each of its processes, otherwise cleanly by Ray.

        The raylet is killed last, so that nothing is cleaned up. Returns whether all processes except this one and the
        raylet are known to be gone; these two follow at once. If the raylet is gone already, sends no signal and
        returns ``None``.
        """
        raylet = self._raylet
        if raylet is None or not raylet.is_running:
            return None
        if not kills:
            raylet.send(signal.SIGTERM)
            return False
        raylet.send(signal.SIGSTOP)  # else it ends, and this process with it, once one of its agents is missing
        others = processes.with_descendants([raylet]) - {raylet, processes.own()}
        processes.end(others, 0.0)
        left = processes.end(others, PATIENCE_S)
        threading.Timer(END_AFTER_S, processes.end, [[raylet, processes.own()], 0.0]).start()
        return not left
