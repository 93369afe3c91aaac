"""Signals to the processes of one machine: it kills them, holds them still and lets them go on.

What is held is held by a small program of its own (:mod:`cluster.live.processes.pause_holder`), which lets it go on
when this process ends, in whatever way: nothing that was stopped stays so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from cluster.live.processes import processes
from cluster.live.processes.processes import Process

PAUSE_HOLDER: Final = Path(__file__).with_name("pause_holder.py")
PATIENCE_S: Final = 5.0
STOPPED: Final = "T"


class ProcessSignals:
    """Of one machine. :meth:`close` lets everything go on."""

    def __init__(self) -> None:
        self._pause_holders: dict[Process, subprocess.Popen[bytes]] = {}

    def kill(self, process: Process) -> bool:
        """SIGKILL. Returns whether there was such a process."""
        if not process.is_running:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        return True

    def pause(self, process: Process) -> bool:
        """SIGSTOP, until :meth:`resume`. Returns whether it was seen to stand still."""
        if process in self._pause_holders:
            return self.is_paused(process)
        command = [sys.executable, "-I", "-S", str(PAUSE_HOLDER), str(process.pid), str(process.started)]
        holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert holder.stdout is not None
        is_done = bool(holder.stdout.readline())
        self._pause_holders[process] = holder
        return is_done and self.is_paused(process)

    def resume(self, process: Process) -> None:
        """SIGCONT. Ignored where it is not held."""
        holder = self._pause_holders.pop(process, None)
        if holder is None:
            return
        assert holder.stdin is not None and holder.stdout is not None
        holder.stdin.close()
        try:
            holder.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()
        holder.stdout.close()
        if self.is_paused(process):  # the holder was killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    def is_paused(self, process: Process) -> bool:
        """Whether a process is stopped (state T)."""
        return process.is_running and processes.state(process.pid) == STOPPED

    def is_running(self, process: Process) -> bool:
        return process.is_running

    def close(self) -> None:
        """Let everything go on."""
        for process in list(self._pause_holders):
            self.resume(process)
