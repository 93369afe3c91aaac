"""What clients of a testnet's endpoint ask of its run, and what they are shown."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from cluster.common.errors import BadInput
from cluster.faults.kind import plans_of
from cluster.live.driver.control.control_server import AddFault, SetLoad, StopRun, look_over
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.live_run import LiveRun
from cluster.live.driver.live_view import LiveView, RunStage
from cluster.run.events import ScenarioChanged, StopRequested


class Clients:
    """The clients of one run."""

    def __init__(self, run: LiveRun, run_until_stopped: threading.Event | None = None) -> None:
        """The caller requests the end of the run by the event, if it is open."""
        self._run = run
        self._run_until_stopped = run_until_stopped

    @property
    def want_end(self) -> bool:
        """Whether the caller has requested the end of the run."""
        return self._run_until_stopped is not None and self._run_until_stopped.is_set()

    def obey(self, hosts: Hosts) -> None:
        """Perform the requests since the last look, and update the state that the testnet's endpoint has."""
        run, control = self._run, self._run.testnet.control
        assert control is not None
        if self.want_end and run.loop.is_open:
            run.see(StopRequested(run.clock.now_ms()))
        while not control.orders.empty():
            match control.orders.get_nowait():
                case StopRun():
                    run.see(StopRequested(run.clock.now_ms()))
                case AddFault() | SetLoad() as order if order.answer.set_running_or_notify_cancel():
                    try:
                        order.answer.set_result(self._answer(order))
                    except BadInput as error:
                        order.answer.set_exception(error)
        self.show(hosts, "running")
        control.view = look_over(run.record, hosts, run.watch.height, run.clock.now_ms(), run.audit.page)

    def _answer(self, order: AddFault | SetLoad) -> dict[str, Any]:
        """Perform a request, and return its answer. Raises :class:`BadInput`."""
        run = self._run
        run.see()
        match order:
            case AddFault(fields):
                return self._add_fault(fields)
            case SetLoad(is_on):
                if is_on:
                    run.loop.check_goes_on()
                return run.testnet.set_load(is_on, run.load_time_s)

    def _add_fault(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Add a fault to the scenario, from now on or later. Returns its fields. Raises :class:`BadInput`."""
        run = self._run
        scenario = run.loop.with_fault(fields, run.clock.now_ms())
        run.means.prepare(plans_of(scenario)[-1:])
        fault = scenario.faults[-1]
        run.see(ScenarioChanged(scenario))
        run.notice(f"height {run.watch.height}: fault added: {fault.kind_name} of {fault.whom}")
        return fault.model_dump(mode="json", exclude_none=True)

    def show(self, hosts: Hosts | None, stage: RunStage) -> None:
        """Publish the run's state for the dashboard, if a reader waits for it, or if the run ends."""
        run, control = self._run, self._run.testnet.control
        run.audit.wants_tiers = control is not None and control.dashboard.is_wanted
        if control is None or hosts is None or not hosts.all or not (control.dashboard.is_wanted or stage == "ending"):
            return
        view = LiveView(run, hosts, run.clock.now_ms(), stage)
        is_whole = control.dashboard.is_snapshot_wanted or stage == "ending"
        control.dashboard.publish(view.update(), view.snapshot() if is_whole else None)
