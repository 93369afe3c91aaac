"""The load generator as a separate process: ``python -m loadgen.run``, with a plan file, ended by a signal.

It also ends when this process does, however that happens: its standard input is a pipe that only this process holds.
If another driver may take the run over, it goes on instead, and a cleanup watchdog ends it if no driver does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from cluster.common.checkout import own_environment
from cluster.common.files import write_atomically
from cluster.live.handover.left import LeftLoad
from cluster.live.processes.processes import Process, end_of, find
from cluster.record.folder import LOAD_PLAN_FILE
from cluster.record.run import LoadRecord
from cluster.scenario import Scenario
from loadgen.runplan import MAX_RUN_TIME_S, RunPlan, Statistics, dump_json

MODULE: Final = "loadgen.run"
ENDPOINTS_FILE: Final = "load-endpoints.json"
STATS_FILE: Final = "load-stats.json"
LOG_FILE: Final = "logs/locust.log"
EXTRA_RUN_TIME_S: Final = 60
"""Added to the longest time of a scenario; after that the load would end by itself."""
POLL_S: Final = 0.2
STOP_TIMEOUT_S: Final = 15.0
"""The load generator ends within this time after :meth:`LoadProcess.stop`, or is killed."""


LoadStage = Literal["none", "starting", "running", "stopped", "ended"]
"""``stopped`` by a request, at the run's end or by the load's own plan; ``ended`` if it ended by itself too early."""


def read_statistics(path: Path) -> Statistics:
    """The statistics that a load wrote at its end; zeros if it ended before it could."""
    return Statistics.model_validate_json(path.read_bytes()) if path.exists() else Statistics()


def plan_load(
    scenario: Scenario, seed: int, chain_id: str, folder: Path, run_time_s: int, began_epoch_ms: int | None = None
) -> RunPlan:
    """The plan of a scenario's load, for ``run_time_s`` at most, with its files in a folder.

    ``began_epoch_ms`` is when the load began, if the plan continues one.
    """
    return RunPlan(
        chain_id=chain_id,
        seed=seed,
        endpoints_file=str((folder / ENDPOINTS_FILE).absolute()),
        load=scenario.load,
        params=scenario.chain.parameters().to_names(),
        run_time_s=min(MAX_RUN_TIME_S, run_time_s),
        began_epoch_ms=began_epoch_ms,
        stats_file=str((folder / STATS_FILE).absolute()),
    )


def now_epoch_ms() -> int:
    """The time by this machine's clock."""
    return int(time.time() * 1_000)


class LoadProcess:
    """A load that prepares itself, and runs once :meth:`go` gives it the addresses of the validators.

    :meth:`stop` asks it to end, :meth:`finish` waits until it has.
    """

    _reason: str | None = None

    def __init__(
        self,
        plan: RunPlan,
        folder: Path,
        processes: Sequence[int] | None = None,
        outlives_us: bool = False,
        before: Statistics | None = None,
        layout: Sequence[str] = (),
    ) -> None:
        """Start all of the plan's processes, or some of them. Raises :class:`OSError`.

        ``before`` are the counts of a load that ended earlier, which this one continues. ``layout`` are options of
        :mod:`loadgen.run` for a master with workers; then the first process is the master.
        """
        self.before = Statistics() if before is None else before
        self.began_epoch_ms = plan.began_epoch_ms
        """When the load began, in milliseconds since the epoch; ``None`` before that."""
        self._numbers = list(plan.reporting) if processes is None or plan.needs_master else list(processes)
        self._stats_file, self._endpoints_file = folder / STATS_FILE, folder / ENDPOINTS_FILE
        self._plan = plan
        plan_file = (folder / LOAD_PLAN_FILE).absolute()
        plan_file.write_text(dump_json(self._plan, indent=2, exclude_none=True) + "\n", encoding="utf-8")
        self._endpoints_file.unlink(missing_ok=True)
        self._stats_file.unlink(missing_ok=True)
        log_file = folder / LOG_FILE
        log_file.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", MODULE, "--plan", str(plan_file)]
        command += [] if outlives_us else ["--until-eof"]
        command += [*layout, "--processes", ",".join(map(str, self._numbers))]
        with log_file.open("ab") as log:
            self._child: subprocess.Popen[bytes] | None = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if outlives_us else subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=own_environment(),
                start_new_session=True,
            )
        self._identity = find(self._child.pid)  # before its end can be noticed: the id cannot have been reused yet
        self._urls: dict[int, str] = {}
        self.was_told_to_stop = False
        self._was_ready = False

    @classmethod
    def adopt(cls, folder: Path, left: LeftLoad) -> LoadProcess | None:
        """Adopt the running load of a dead driver; ``None`` if it does not run."""
        if left.process is None or not left.process.is_running:
            return None
        found = cls.__new__(cls)
        found.before, found._urls, found.began_epoch_ms = left.before, {}, left.began_epoch_ms
        found._stats_file = (folder / STATS_FILE).absolute()
        found._endpoints_file = (folder / ENDPOINTS_FILE).absolute()
        found._plan = RunPlan.read(folder / LOAD_PLAN_FILE)
        found._numbers = list(found._plan.reporting)
        found._child, found._identity = None, left.process
        found.was_told_to_stop, found._was_ready = left.is_over, found._endpoints_file.exists()
        return found

    @property
    def process(self) -> Process | None:
        """The main process; ``None`` if it has ended."""
        return self._identity if self._identity is not None and self._identity.is_running else None

    @property
    def is_ready(self) -> bool:
        """Whether all processes are, or were, waiting only for the endpoints."""
        self._was_ready = self._was_ready or all(self._plan.ready_file(process).exists() for process in self._numbers)
        return self._was_ready

    def go(self, urls: Mapping[int, str]) -> None:
        """Give the load the addresses of the validators, by index, so that it begins. Raises :class:`OSError`.

        Later calls only update these addresses: validators that are added later get no load.
        """
        known = {index: urls.get(index, url) for index, url in self._urls.items()} if self._urls else dict(urls)
        if known != self._urls:
            self._urls = known
            self.began_epoch_ms = self.began_epoch_ms or now_epoch_ms()
            write_atomically(self._endpoints_file, json.dumps(list(known.values())) + "\n")

    @property
    def ended_early(self) -> bool:
        """Whether the load ended before :meth:`stop`, and not because the user's own load shape was over."""
        is_over = self._plan.load.locust is not None and self.exit_code == 0
        return not self.was_told_to_stop and self.exit_code is not None and not is_over

    @property
    def exit_code(self) -> int | None:
        """``None`` while it runs. That of an adopted load is known by its statistics alone."""
        if self._child is not None:
            return self._child.poll()
        if self.process is not None:
            return None
        return 0 if self._stats_file.exists() and read_statistics(self._stats_file).is_whole else 1

    @property
    def reason(self) -> str:
        """The load's own reason for an early end, after a colon, once it has ended; empty if it gives none."""
        if self._reason is None:
            self._reason = "".join(f": {line}" for line in read_statistics(self._stats_file).lost)
        return self._reason

    def stop(self) -> None:
        """Ask the load to end; returns at once."""
        if not self.was_told_to_stop:
            self.was_told_to_stop = True
            self._send(signal.SIGTERM)

    def finish(self, checkpoint: Callable[[], None]) -> LoadRecord:
        """Stop the load, and wait for its end. Returns its statistics in the form of a run's record.

        ``checkpoint`` may raise to end the wait.
        """
        return record_of(self.finished(checkpoint), self.exit_code)

    def finished(self, checkpoint: Callable[[], None]) -> Statistics:
        """Stop the load, and wait for its end. Returns its statistics, with those of loads that ended earlier.

        ``checkpoint`` may raise to end the wait.
        """
        self.stop()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.exit_code is None:
            checkpoint()
            if time.monotonic() > deadline:
                self._send(signal.SIGKILL)
            if self._identity is not None:
                end_of(self._identity, POLL_S)
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
        return self.before.plus(read_statistics(self._stats_file))

    def _send(self, number: signal.Signals) -> None:
        if self._identity is not None:
            self._identity.send(number)


def record_of(stats: Statistics, process_exit: int | None, lost: Sequence[str] = ()) -> LoadRecord:
    """The statistics in the form of a run's record."""
    return LoadRecord(
        requests=stats.requests,
        failures=stats.failures,
        transactions_sent=stats.transactions_sent,
        transactions_rejected=stats.transactions_rejected,
        process_exit=process_exit,
        lost=(*stats.lost, *lost),
        sends=stats.sends,
        timeline=stats.timeline,
    )
