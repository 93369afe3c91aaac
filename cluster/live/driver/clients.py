"""What clients of a testnet's endpoint ask of its run, and what they are shown on the dashboard (``docs/http.md``).

What is shown is read from what the driver already keeps. Prices are JSON numbers of any size.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from cluster.common.errors import BadInput
from cluster.faults.kind import plans_of
from cluster.live.driver.control_server import AddFault, SetLoad, StopRun, look_over
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.live_run import LiveRun
from cluster.live.driver.supervised_host import Host
from cluster.live.web.server import Page
from cluster.record.run import FaultRecord, Sample
from cluster.run.events import ScenarioChanged, StopRequested
from cluster.scenario import Scenario
from consensus.messages import VoteKind

RunStage = Literal["starting", "running", "ending"]
TARGET: Final = "TARGET"
FAULT_FORMS: Final[tuple[Page, ...]] = (
    {"kind": "kill", "target": TARGET, "down_ms": 3_000},
    {"kind": "pause", "target": TARGET, "for_ms": 3_000},
    {"kind": "cut", "from": [TARGET], "for_ms": 5_000},
    {"kind": "degrade", "from": [TARGET], "loss": 0.2, "latency_ms": 200, "for_ms": 10_000},
    {"kind": "slow_disk", "target": TARGET, "sync_ms": 200, "for_ms": 10_000},
    {"kind": "slow_execution", "target": TARGET, "job_ms": 200, "for_ms": 10_000},
    {"kind": "wipe", "target": TARGET, "down_ms": 3_000},
)
"""Faults that the page offers, to be edited there. :data:`TARGET` is the place of a validator's name."""
MAX_HISTORY: Final = 480
"""Number of samples in a snapshot: the newest four minutes."""
VOTES: Final = (VoteKind.NOTARIZE, VoteKind.NULLIFY, VoteKind.FINALIZE)
MAX_FAULTS: Final = 64
"""Number of faults in an update: the newest. The status page has all."""
MAX_LINES: Final = 32
"""Number of the newest notices, problems and violations in an update, each."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """A look at a run, from which an update or a snapshot is made. It is valid only until the driver goes on."""

    run: LiveRun
    hosts: Hosts
    at_ms: float
    stage: RunStage = "running"

    def update(self) -> Page:
        """The part of the state that changes."""
        by_validator, run, record = self.hosts.by_validator, self.run, self.run.record
        audit, tiers = run.audit.page, run.audit.tiers
        now = run.watch.observe(
            self.at_ms, by_validator(Host.height), by_validator(Host.view), by_validator(Host.describe)
        )
        states = [(state.view, state.leader) for host in self.hosts.all for state in host.reports.states.values()]
        view, leader = max(states, default=(0, 0))
        return {
            "stage": self.stage,
            "load": run.testnet.load_stage,
            "end_height": run.loop.end_height,
            "height": run.watch.height,
            "view": view,
            "leader": leader if view else None,
            **_figures(now),
            "tiers": None if tiers is None else dict(tiers),
            "validators": [self._validator(index, now) for index in range(len(now.heights))],
            "blocks": [
                [each.height, each.view, round(at_ms, 1), each.transactions, each.fires, each.lane_cycles]
                for at_ms, each in run.watch.newest.blocks
            ],
            "faults": [_fault(fault) for fault in record.faults[-MAX_FAULTS:]],
            "audit": {**audit, "told": list(audit.get("told", ()))[-MAX_LINES:]},
            "problems": record.problems[-MAX_LINES:],
            "notices": list(run.notice.newest)[-MAX_LINES:],
        }

    def snapshot(self) -> Page:
        """The update, with what does not change and the newest samples."""
        record, scenario = self.run.record, self.run.record.scenario
        samples = list(record.samples)[-MAX_HISTORY:]
        region_of = {name: region for region, members in scenario.regions.items() for name in members}
        section = scenario.validators
        return {
            "run": {
                "scenario": scenario.name,
                "seed": record.seed,
                "commit": record.commit,
                "chain_id": record.genesis.chain_id,
                "lane_cycles": record.genesis.parameters.lane_timer_cycles,
                "regions": _regions(scenario),
                "fault_forms": FAULT_FORMS,
                "validators": [
                    {
                        "name": name,
                        "region": region_of.get(name),
                        "host": self.hosts.host_of(index).number,
                        "byzantine": list(section.node(index).byzantine),
                        "external": index in section.external,
                    }
                    for index, name in enumerate(section.names)
                ],
            },
            "now": self.update(),
            "history": [_figures(sample) for sample in samples],
        }

    def _validator(self, index: int, now: Sample) -> list[Any]:
        """State, height and view of a validator, and the newest views that it voted to notarize, nullify, finalize."""
        votes = self.run.watch.newest.votes.get(index, {})
        voted = [votes.get(kind, 0) for kind in VOTES]
        return [now.states[index], now.heights[index], now.views[index], *voted]


def _figures(sample: Sample) -> Page:
    return {
        "at_ms": round(sample.at_ms),
        "top": max((height for height in sample.heights if height is not None), default=0),
        "fires": sample.fires,
        "transactions": sample.transactions,
        "pending_timers": sample.pending_timers,
        "backlog": sample.backlog,
        "basefee_cycle": sample.basefee_cycle,
        "basefee_lane_timer": sample.basefee_lane_timer,
        "lane_share": round(sample.lane_share, 4),
    }


def _fault(fault: FaultRecord) -> Page:
    return {
        "kind": fault.kind,
        "target": ", ".join(fault.targets) or fault.target,
        "at_height": fault.at_height,
        "at_ms": fault.at_ms,
        "begun_ms": None if fault.begun_ms is None else round(fault.begun_ms),
        "ended_ms": None if fault.ended_ms is None else round(fault.ended_ms),
        "took_effect": fault.took_effect,
        "evidence": fault.evidence,
    }


def _regions(scenario: Scenario) -> Page:
    """The names of the regions, and the latency in ms from each to each."""
    names = list(scenario.regions)
    latency_ms = scenario.links.region_latency_ms
    return {"names": names, "latency_ms": [[latency_ms(one, other) for other in names] for one in names]}


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
