"""Cleans up after a live run whose driver was killed: a small process that outlives the driver.

A driver that is killed (``kill -9``, the system's out-of-memory killer) ends nothing that it started and writes no
result. The watchdog reads a pipe from the driver: one line of JSON for each thing to clean up, and a last line when the
run is over. If the pipe ends without that line, the watchdog ends the processes of the run, undoes what faults left
outside of it, removes the folder of the run's Ray, writes ``result.json`` with the verdict *inconclusive*
(*fail* if the driver had reported violations), and prints one line on the standard error that it shares with the
driver. As long as the driver lives, it does nothing. The driver does not report the load, since it may be killed in
the moment in which the load starts: processes of the load have the path of its plan in their command line.

If another driver may take the run over, the watchdog waits for one as long as hosts do. A driver that holds the run's
lock may still refuse the run, or be killed: the watchdog waits until the lock is released, and then the whole time
again. It leaves the run alone when the watchdog of a driver that took the run over declares in a file that it watches
everything, or when the run has its verdict. A run without a checkpoint cannot be taken over, so there is no wait.
The watchdog holds the run's lock while it cleans up, and removes it. The lock of a killed driver can outlive it: for a
moment, or longer in a child that inherited it. So a lock whose file names the dead driver belongs to no other process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from cluster.common.checkout import ROOT, own_environment
from cluster.common.errors import BadInput
from cluster.common.files import write_atomically
from cluster.live.processes import driver_lock, processes
from cluster.live.processes.processes import Process
from cluster.record.folder import (
    CHECKPOINT_FILES,
    LOAD_PLAN_FILE,
    RESULT_FILE,
    WATCHDOG_FILE,
    complete_folder,
)

PATIENCE_S: Final = 0.5
"""Processes get this long to end by themselves: no process is left that needs them."""
SLACK_S: Final = 2.0
"""Added to the lease, so that hosts end themselves first."""
POLL_S: Final = 1.0
ENDING_TIMEOUT_S: Final = 10.0


class CleanupWatchdog:
    """The driver's handle of the watchdog process. Create it before all that it watches; :meth:`dismiss` ends it."""

    def __init__(self, run_folder: Path, result: dict[str, Any]) -> None:
        """``result`` is the content of ``result.json`` if the driver is killed. Raises :class:`OSError`."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cluster.live.processes.cleanup_watchdog"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            env=own_environment(),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        self._send(run=str(run_folder.absolute()), result=result)

    def replace_result(self, result: dict[str, Any]) -> None:
        """Replace the content of ``result.json``."""
        self._send(result=result)

    def watch_ray(self, folder: Path) -> None:
        """Watch the run's own Ray: the processes that use its folder."""
        self._send(ray=str(folder))

    def watch_leftovers(self, facts: Mapping[str, Any]) -> None:
        """Watch what faults have changed outside of the run, to undo it.

        ``facts`` are the arguments of :meth:`cluster.live.means.Means.take_back`. They replace earlier ones.
        """
        self._send(leftovers=dict(facts))

    def wait_for_another(self, lease_s: float) -> None:
        """Have the watchdog wait this long, after this driver died, for another driver to take the run over.

        This driver must hold the run's lock.
        """
        self._send(lease_s=lease_s, driver=processes.own())

    def replace_others(self) -> None:
        """Release the watchdog of another driver: this one watches everything that it watches."""
        self._send(watches_all=True)

    def dismiss(self) -> None:
        """End the watchdog: everything that it watched has ended."""
        self._send(done=True)
        with suppress(OSError):
            self._pipe.close()
        self._process.wait(ENDING_TIMEOUT_S)

    def _send(self, **facts: Any) -> None:
        with suppress(OSError):  # the watchdog was killed: the run continues without it
            self._pipe.write(json.dumps(facts).encode() + b"\n")
            self._pipe.flush()


def main() -> int:
    """Entry of the watchdog's process; standard input is the pipe from the driver."""
    facts: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        with suppress(ValueError):  # the driver was killed in the middle of a line
            facts |= json.loads(line)
        if facts.pop("watches_all", False):
            with suppress(OSError):  # the other watchdog stays, too
                write_atomically(Path(facts["run"]) / WATCHDOG_FILE, json.dumps(processes.own()) + "\n")
    if "run" not in facts:
        return 0
    with suppress(OSError):
        _end_watch(Path(facts["run"]), facts)
    return 0


def _end_watch(run: Path, facts: dict[str, Any]) -> None:
    """Handle the end of the driver: clean up, now or later, unless it ended cleanly or another driver takes over."""
    lease_s, dead = facts.pop("lease_s", None), facts.pop("driver", None)
    if "done" in facts:
        if _watches_all(run) == processes.own():
            (run / WATCHDOG_FILE).unlink(missing_ok=True)
    elif lease_s is None or not can_be_taken_over(run):
        with ExitStack() as lock:
            with suppress(BadInput, OSError):  # the folder is gone, or another process has the lock
                lock.enter_context(driver_lock.driving(run))
            _clean_up(**facts)
    else:
        _wait_and_clean_up(run, lease_s, Process(*dead), facts)


def can_be_taken_over(run: Path) -> bool:
    """Whether a driver left a checkpoint of a run."""
    return any((run / name).exists() for name in CHECKPOINT_FILES)


def _watches_all(run: Path) -> Process | None:
    """The watchdog of the newest driver that took a run over; ``None`` if there is none."""
    with suppress(OSError, ValueError, TypeError):
        return Process(*json.loads((run / WATCHDOG_FILE).read_bytes()))
    return None


def _wait_and_clean_up(run: Path, lease_s: float, dead: Process, facts: dict[str, Any]) -> None:
    """Clean up once no driver has held the run's lock for the time of the lease, unless another driver has taken over.

    The dead driver does not count as a holder of the lock.
    """
    _say(f"the driver was killed: its testnet goes on for {lease_s:g} s; stampede attach {run}")
    myself, deadline = processes.own(), time.monotonic() + lease_s + SLACK_S
    with ExitStack() as lock:
        while True:
            if _watches_all(run) not in (None, myself) or not can_be_taken_over(run):
                return  # another driver has the run, or has given its verdict
            if driver_lock.is_driven(run, dead):
                deadline = time.monotonic() + lease_s + SLACK_S
            elif time.monotonic() >= deadline:
                try:
                    lock.enter_context(driver_lock.driving(run))
                    break
                except (BadInput, OSError):
                    if not driver_lock.is_driven(run, dead):
                        break  # the remaining holder of the lock is not a driver
            time.sleep(POLL_S)
        facts["result"]["nobody_came"] = True
        _clean_up(**facts)


def end_run(ray: Path | None, run: Path | None = None) -> tuple[int, bool]:
    """End what is left of a run here: the load of its folder, and all processes of its Ray, whose folder is removed.

    Returns how many processes ran, and whether Ray's folder is gone.
    """

    def left() -> set[Process]:
        # Locust's workers have the path of the folder next to the plan.
        of_load = set() if run is None else processes.of_python(str((run / LOAD_PLAN_FILE).with_suffix("")))
        return of_load if ray is None else of_load | processes.using(ray)

    ended = processes.end_all(left, PATIENCE_S)
    return len(ended), ray is None or processes.end_and_remove(ray, PATIENCE_S)


def _clean_up(
    run: str,
    result: dict[str, Any],
    ray: str | None = None,
    leftovers: dict[str, Any] | None = None,
) -> None:
    ended, is_gone = end_run(None if ray is None else Path(ray), Path(run))
    if leftovers is not None:
        from cluster.live.means import means_class

        means_class().take_back(leftovers, _say)
    left = "" if is_gone else f", {ray} could not be removed"
    with suppress(OSError):  # the folder is gone, too
        complete_folder(Path(run), result)
    target = Path(run) / RESULT_FILE
    _say(f"the driver was killed: {ended} processes of the run were ended{left}; see {target}")


def _say(line: str) -> None:
    with suppress(OSError):
        print(f"stampede: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
