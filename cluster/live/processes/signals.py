"""Signals to the processes of one machine: kill, pause and resume.

A small program of its own (:mod:`cluster.live.processes.pause_holder`) stops a process, and resumes it when this
process ends, in whatever way: no process stays stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from cluster.live.processes.processes import Process

PAUSE_HOLDER: Final = Path(__file__).with_name("pause_holder.py")
PATIENCE_S: Final = 5.0
STOP_TIMEOUT_S: Final = 2.0
"""A process that was sent SIGSTOP stops within this time, unless it hangs in the kernel."""
POLL_S: Final = 0.005


class ProcessSignals:
    """Signals on one machine. :meth:`close` resumes every paused process."""

    def __init__(self) -> None:
        self._pause_holders: dict[Process, subprocess.Popen[bytes]] = {}

    def kill(self, process: Process) -> bool:
        """Send SIGKILL. Returns whether the process still ran."""
        return process.send(signal.SIGKILL)

    def pause(self, process: Process) -> bool:
        """Send SIGSTOP; the process stays stopped until :meth:`resume`. Returns whether it was seen to be stopped."""
        if process in self._pause_holders:
            return process.is_stopped
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            return False
        try:
            if not process.is_running:  # else the descriptor is of this process, whoever gets its id later
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
        finally:
            os.close(descriptor)
        self._pause_holders[process] = holder
        assert holder.stdout is not None
        deadline = time.monotonic() + STOP_TIMEOUT_S if holder.stdout.readline() else 0.0
        while not process.is_stopped and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return process.is_stopped

    def resume(self, process: Process) -> None:
        """Send SIGCONT. Ignored if the process is not paused."""
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
        if process.is_stopped:  # the holder was killed
            process.send(signal.SIGCONT)

    def is_running(self, process: Process) -> bool:
        return process.is_running

    def close(self) -> None:
        """Resume every paused process."""
        for process in list(self._pause_holders):
            self.resume(process)
