"""Looks after a live run whose driver may be killed: a small process that outlives it, and then does what it cannot.

A driver that is killed (``kill -9``, the system's memory killer) ends nothing that it started and writes no result. The
watchdog holds the other end of a pipe from it, and is told by that, a line of JSON each, what there is to look after. A
last line says that all is done. Where the pipe ends without it, the watchdog ends the processes of the run, removes the
folder of its Ray, writes ``result.json`` with the verdict *inconclusive*, and says so in one line on the standard
error that it shares with the driver. It does nothing else, and nothing at all as long as the driver lives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cluster.common.checkout import ROOT
from cluster.live.processes import processes

PATIENCE_S: Final = 0.5
"""How long processes may take to end by themselves: nobody is left who would ask them for anything."""
ENDING_TIMEOUT_S: Final = 10.0


class CleanupWatchdog:
    """The driver's side. :meth:`start` it before anything that it is to look after; :meth:`dismiss` it at the end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @staticmethod
    def start(run_folder: Path, result: dict[str, Any]) -> CleanupWatchdog:
        """``result`` is what ``result.json`` says of a run whose driver was killed. Raises :class:`OSError`."""
        process = subprocess.Popen(
            [sys.executable, "-m", "cluster.live.processes.cleanup_watchdog"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
        )
        watchdog = CleanupWatchdog(process)
        watchdog._tell(run=str(run_folder.absolute()), result=result)
        return watchdog

    @property
    def pid(self) -> int:
        return self._process.pid

    def look_after(self, *, ray: Path | None = None, pids: list[int] | None = None) -> None:
        """The folder of the run's own Ray, whose processes are the run's; and the ids of other processes, all of them
        each time."""
        if ray is not None:
            self._tell(ray=str(ray))
        if pids is not None:
            self._tell(pids=pids)

    def dismiss(self) -> None:
        """Everything has ended that was to be looked after."""
        self._tell(done=True)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait(ENDING_TIMEOUT_S)

    def _tell(self, **facts: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # somebody killed the watchdog: the run goes on without it
            self._process.stdin.write(json.dumps(facts).encode() + b"\n")
            self._process.stdin.flush()


@dataclass(slots=True)
class _Charge:
    """What the watchdog was told to look after."""

    run: Path | None = None
    result: dict[str, Any] = field(default_factory=dict)
    ray: Path | None = None
    others: set[processes.Process] = field(default_factory=set)
    is_done: bool = False

    def take(self, facts: dict[str, Any]) -> None:
        if "run" in facts:
            self.run, self.result = Path(facts["run"]), facts["result"]
        if "ray" in facts:
            self.ray = Path(facts["ray"])
        if "pids" in facts:
            self.others = {found for pid in facts["pids"] if (found := processes.find(pid)) is not None}
        self.is_done = facts.get("done", False)


def main() -> int:
    """Entry of the watchdog's process; standard input is the pipe from the driver."""
    charge = _Charge()
    for line in sys.stdin.buffer:
        with suppress(ValueError):  # the driver was killed in the middle of a line
            charge.take(json.loads(line))
    if not charge.is_done:
        _take_over(charge)
    return 0


def _take_over(charge: _Charge) -> None:
    ended = processes.with_descendants(charge.others)
    if charge.ray is not None:
        ended |= processes.with_descendants(processes.using(charge.ray))
    myself = processes.find(os.getpid())
    processes.end(ended - ({myself} if myself else set()), PATIENCE_S)
    is_gone = charge.ray is None or processes.end_and_remove(charge.ray, PATIENCE_S)
    left = "" if is_gone else f", {charge.ray} could not be removed"
    if charge.run is None:
        return
    from cluster.common.files import write_atomically
    from cluster.record.folder import RESULT_FILE

    target = charge.run / RESULT_FILE
    if not target.exists():
        with suppress(OSError):  # the folder went away too
            write_atomically(target, json.dumps(charge.result, indent=2) + "\n")
    told = f"stampede: the driver was killed: {len(ended)} processes of the run were ended{left}; see {target}"
    with suppress(OSError):
        print(told, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
