"""A scenario on the live testnet, which is audited while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from cluster.common.errors import BadInput
from cluster.common.interrupts import Interrupts
from cluster.faults.kind import plans_of, problem_of
from cluster.live.driver.driver import Driver
from cluster.live.driver.live_run import LiveRun
from cluster.live.handover.left import LeftRun
from cluster.live.handover.rows import Told
from cluster.live.web.addresses import ON_THE_LOOPBACK, Served
from cluster.record.run import UNOBSERVED, RunObserver, RunRecord, RunRequest
from cluster.watches.live.collect import collect
from cluster.watches.live.live_audit import LiveAudit
from cluster.watches.live.reexecution_process import ReexecutionProcess


class Audit(LiveAudit):
    """The audit of one run, with a process that executes the blocks again, to the end of the run."""

    def __init__(self, record: RunRecord, folder: Path, now_ms: Callable[[], float], told: Told | None) -> None:
        super().__init__(record, now_ms, ReexecutionProcess(record, folder), told)

    def collect(self, urls: dict[int, str], checkpoint: Callable[[], None]) -> None:
        """Collect what validators serve at the end of the run (:func:`~cluster.watches.live.collect.collect`)."""
        collect(self._record, urls, checkpoint, self)
        assert self.reexecution is not None
        self.reexecution.finish(checkpoint)


@contextmanager
def live_testnet(
    request: RunRequest,
    observer: RunObserver = UNOBSERVED,
    interrupts: Interrupts | None = None,
    run_until_stopped: threading.Event | None = None,
    served: Served = ON_THE_LOOPBACK,
) -> Iterator[RunRecord]:
    """Run a scenario on the live testnet, with its data, logs and endpoints in the request's folder; yields its record.

    Inside the block the validators are at rest and still serve their pages. Afterwards nothing that was started runs,
    however the block ended. Ctrl-C, SIGTERM or SIGHUP ends the run early; the record notes it and holds what is known.

    With ``run_until_stopped`` the run has no stop height. The event, the first signal or a request to the testnet's
    endpoint stops it: the load ends, the validators drain, and the height reached becomes the scenario's stop height.
    ``interrupts`` are the caller's, if it guards its own work on the record with them. ``served`` is the address of the
    testnet's endpoint. :func:`attached_testnet` takes over a testnet that outlived its driver.

    Raises :class:`BadInput` for a fault that the live testnet cannot perform, :class:`TestnetError` if the testnet
    cannot be started, :class:`OSError` if the folder cannot be written.
    """
    scenario = request.scenario
    if problem := scenario.live_problem or problem_of(scenario, "live"):
        raise BadInput(f"{scenario.name}: {problem}")
    with Interrupts() if interrupts is None else nullcontext(interrupts) as active:
        run = LiveRun(request, observer.on_notice, active, served, Audit, run_until_stopped is not None)
        run.means.prepare(plans_of(scenario))
        observer.on_begin(run.record)
        try:
            Driver(run, observer, active, run_until_stopped).perform()
            yield run.record
        finally:
            run.close()


@contextmanager
def attached_testnet(
    left: LeftRun, folder: Path, interrupts: Interrupts, observer: RunObserver = UNOBSERVED
) -> Iterator[RunRecord]:
    """Take over the testnet of a driver that died, from its checkpoint (``left``), and run it to its planned end.

    Yields the record, as :func:`live_testnet` does. If the testnet is gone, the record has what is known, and counts as
    interrupted. Raises :class:`BadInput` if the testnet cannot be reached and is not known to be gone: then the testnet
    goes on, and the takeover can be tried again. Raises :class:`OSError` if the folder cannot be written.
    """
    lease_s = None if left.ray is None else left.ray.lease_s
    request = RunRequest(left.scenario, left.record.seed, left.commit, folder, left.stop_on_fail, lease_s)
    run = LiveRun(request, observer.on_notice, interrupts, Served(*left.served), Audit, left.is_open)
    observer.on_begin(run.record)
    try:
        Driver(run, observer, interrupts).take_over(left)
        yield run.record
    finally:
        run.close()


def run_live(
    request: RunRequest,
    observer: RunObserver = UNOBSERVED,
    interrupts: Interrupts | None = None,
    served: Served = ON_THE_LOOPBACK,
) -> RunRecord:
    """Run a scenario on the live testnet to its end, then clean up (:func:`live_testnet`). Returns the record."""
    with live_testnet(request, observer, interrupts, served=served) as record:
        return record
