"""What the dashboard shows of a run: read from what the driver keeps, bounded, and the form that the page reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.live.driver import clients
from cluster.live.driver.chain_watch import NEWEST_BLOCKS, ChainWatch
from cluster.live.driver.clients import FAULT_FORMS, MAX_FAULTS, MAX_HISTORY, MAX_LINES, TARGET, LiveView
from cluster.live.driver.supervised_host import Host
from cluster.live.host.observations import FinalSeen, VoteSent
from cluster.live.host.validator_loop import LoopState
from cluster.live.processes.history import Phase
from cluster.record.run import FaultRecord, RunRecord
from cluster.scenario import Scenario
from cluster.scenario.files import fault_to_add
from consensus.messages import VoteKind
from consensus.types import View
from tests.cluster.live.web.dashboard.states import snapshot, update
from tests.cluster.records import make_record, make_scenario
from validator.node.events import BlockFinal


def block(height: int) -> BlockFinal:
    zero: Any = bytes(32)
    figures: dict[str, Any] = {
        "height": height, "view": height + 1, "digest": zero, "state_root": zero, "transactions": 2, "fires": 3,
        "destroyed": 0, "pending_timers": 7, "backlog": 1, "basefee_cycle": 9, "basefee_lane_timer": 10**20,
        "lane_cycles": 4,
    }  # fmt: skip
    return BlockFinal(**figures)


def make_hosts(states: dict[int, LoopState | None]) -> Any:
    """One host for each validator; one without a state is down."""
    place: Any = None
    hosts = []
    for index, state in states.items():
        host = Host(number=index, place=place, validators=[index])
        if state is not None:
            host.phase = Phase.UP
            host.reports.states = {index: state}
            host.note_answer()
        hosts.append(host)

    def by_validator(read: Callable[[Host, int], Any]) -> list[Any]:
        return [read(host, index) for index, host in enumerate(hosts)]

    return SimpleNamespace(all=hosts, by_validator=by_validator, host_of=lambda index: hosts[index])


@pytest.fixture
def record() -> RunRecord:
    made = make_record()
    made.samples.clear()
    return made


@pytest.fixture
def view(record: RunRecord) -> LiveView:
    watch = ChainWatch(record, 0.0)
    watch.take(0, [FinalSeen(100.0, block(1)), FinalSeen(200.0, block(2))])
    watch.take(1, [VoteSent(View(4), VoteKind.NOTARIZE), VoteSent(View(3), VoteKind.NOTARIZE)])
    watch.take(1, [VoteSent(View(3), VoteKind.FINALIZE), VoteSent(View(9), VoteKind.TIMEOUT)])
    states = [LoopState(height=2, ready=True, view=4, leader=0), LoopState(height=1, ready=True, view=5, leader=3)]
    hosts = make_hosts({0: states[0], 1: states[1], 2: None, 3: LoopState()})
    audit = {"blocks": 2, "compared": 1, "ledger": 1, "reexecuted": 0, "violations": {}, "failed": {}, "told": []}
    run: Any = SimpleNamespace(
        record=record,
        watch=watch,
        audit=SimpleNamespace(page=audit, tiers={"due": 1, "ring": 0, "epoch": 0, "overflow": 0}),
        testnet=SimpleNamespace(load_stage="none"),
        notice=SimpleNamespace(newest=[]),
        loop=SimpleNamespace(end_height=None),
    )
    return LiveView(run, hosts, 250.0)


def test_it_shows_heights_views_votes_and_the_newest_leader(view: LiveView) -> None:
    now = view.update()
    assert now["validators"] == [
        ["up", 2, 4, 0, 0, 0],
        ["up", 1, 5, 4, 0, 3],
        ["down", None, None, 0, 0, 0],
        ["joining", None, None, 0, 0, 0],
    ]
    assert (now["height"], now["view"], now["leader"]) == (2, 5, 3)
    assert now["blocks"] == [[1, 2, 100.0, 2, 3, 4], [2, 3, 200.0, 2, 3, 4]]
    assert (now["fires"], now["transactions"], now["pending_timers"], now["backlog"]) == (6, 4, 7, 1)


def test_without_a_view_nobody_leads(view: LiveView) -> None:
    now = replace(view, hosts=make_hosts({0: None, 1: LoopState(), 2: None, 3: None})).update()
    assert (now["view"], now["leader"]) == (0, None)


def test_the_states_of_the_browser_tests_have_its_form(view: LiveView, record: RunRecord) -> None:
    record.faults.append(FaultRecord("kill", "validator-1", 2))
    view.run.watch.sample(0.0, [2, 2, None, None])

    def form(page: Any) -> Any:
        match page:
            case dict():
                return {name: form(value) for name, value in page.items() if name not in ("violations", "failed")}
            case list() | tuple():
                return [form(page[0])] if page and isinstance(page[0], dict) else "list"
        return "value"

    assert form(snapshot(3)) == form(json.loads(json.dumps(view.snapshot())))
    assert form(update(3)) == form(view.update())


def test_everything_in_an_update_is_bounded(view: LiveView, record: RunRecord) -> None:
    for height in range(3, 3 * NEWEST_BLOCKS):
        view.run.watch.take(2, [FinalSeen(float(height), block(height))])
        view.run.watch.sample(float(height), [height] * 4)
    record.faults.extend(FaultRecord("kill", f"validator-{each}", each) for each in range(2 * MAX_FAULTS))
    record.problems.extend(map(str, range(2 * MAX_LINES)))
    lines = [str(each) for each in range(2 * MAX_LINES)]
    view.run.notice.newest.extend(lines)
    view.run.audit.page["told"] = lines
    now = view.update()
    assert [each[0] for each in now["blocks"]] == list(range(2 * NEWEST_BLOCKS, 3 * NEWEST_BLOCKS))
    assert len(now["faults"]) == MAX_FAULTS and now["faults"][-1]["target"] == f"validator-{2 * MAX_FAULTS - 1}"
    assert now["problems"] == now["notices"] == now["audit"]["told"] == lines[MAX_LINES:]


def test_a_snapshot_has_the_newest_samples(view: LiveView, record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_HISTORY", 3)
    assert MAX_HISTORY > 3
    for height in range(10):
        view.run.watch.sample(float(height), [height, None])
    assert [each["top"] for each in view.snapshot()["history"]] == [7, 8, 9]


def test_a_snapshot_has_the_regions_and_their_latencies(view: LiveView, record: RunRecord) -> None:
    regions = {"east": ["validator-0", "validator-1"], "west": ["validator-2"]}
    links = {"regions": regions, "latency_ms": 5, "latency_matrix_ms": {"east": {"west": 80}}}
    record.scenario = Scenario.model_validate({**make_scenario().model_dump(by_alias=True), "links": links})
    run = view.snapshot()["run"]
    assert run["regions"] == {"names": ["east", "west"], "latency_ms": [[5, 80], [80, 5]]}
    assert [each["region"] for each in run["validators"]] == ["east", "east", "west", None]


@pytest.mark.parametrize("form", FAULT_FORMS, ids=lambda form: str(form["kind"]))
def test_a_fault_that_the_page_offers_fits_a_testnet(form: dict[str, Any]) -> None:
    fields = json.loads(json.dumps(form).replace(f'"{TARGET}"', '"validator-1"'))
    fault = fault_to_add(make_scenario(), {**fields, "at_ms": 1_000}, has_end=True)
    assert "validator-1" in fault.whom
