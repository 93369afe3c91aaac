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

KEEPER: Final = Path(__file__).with_name("pause_holder.py")
PATIENCE_S: Final = 5.0
STOPPED: Final = "T"


class Warden:
    """Of one machine. :meth:`close` lets everything go on."""

    def __init__(self) -> None:
        self._keepers: dict[Process, subprocess.Popen[bytes]] = {}

    def kill(self, process: Process) -> bool:
        """SIGKILL. Returns whether there was such a process."""
        if not process.is_running:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        return True

    def hold(self, process: Process) -> bool:
        """SIGSTOP, until :meth:`let_go`. Returns whether it was seen to stand still."""
        if process in self._keepers:
            return self.is_still(process)
        command = [sys.executable, "-I", "-S", str(KEEPER), str(process.pid), str(process.started)]
        keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert keeper.stdout is not None
        is_held = bool(keeper.stdout.readline())
        self._keepers[process] = keeper
        return is_held and self.is_still(process)

    def let_go(self, process: Process) -> None:
        """SIGCONT. Ignored where it is not held."""
        keeper = self._keepers.pop(process, None)
        if keeper is None:
            return
        assert keeper.stdin is not None and keeper.stdout is not None
        keeper.stdin.close()
        try:
            keeper.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        keeper.stdout.close()
        if self.is_still(process):  # the keeper was killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    def is_still(self, process: Process) -> bool:
        """Whether a process is stopped (state T)."""
        return process.is_running and processes.state(process.pid) == STOPPED

    def is_running(self, process: Process) -> bool:
        return process.is_running

    def close(self) -> None:
        """Let everything go on."""
        for process in list(self._keepers):
            self.let_go(process)
