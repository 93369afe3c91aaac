"""What a driver saw, goes on with another one: record, watches, hosts and books, and all of it together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cluster.common.errors import BadInput
from cluster.disks.bit_rot import Rot
from cluster.faults.link_effects import LinkCounts
from cluster.live.driver import live_run
from cluster.live.driver.chain_watch import ChainWatch
from cluster.live.driver.supervised_host import Host
from cluster.live.handover import checkpoint
from cluster.live.handover.handover import ENDING
from cluster.live.host.host import HostView, ValidatorAddress, ValidatorView
from cluster.live.host.lag import LagSpan
from cluster.live.host.observations import FinalSeen, FirstSeen, ViewSeen
from cluster.live.host.validator_loop import LoopState
from cluster.live.injection import DelayCounts
from cluster.live.means import Means
from cluster.live.network.transport import PeerAddress
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase
from cluster.live.processes.processes import Process, Use
from cluster.record.chain_store import ServedBlocks
from cluster.record.message_trace import LiveTrace, MessageKind, Stamp, Windows
from cluster.record.resources import MAX_LOOKS, ResourceLog
from cluster.record.run import (
    FaultRecord,
    LoadRecord,
    RunRecord,
    TracedMessage,
)
from cluster.record.saved import enter, save
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import Release
from loadgen.runplan import Statistics
from tests.cluster.live.driver.test_take_over import FollowedRun, contradict, taken_over
from tests.cluster.live.handover.parts import again, inside, left_by, sends, timeline, written_and_read
from tests.cluster.records import make_chain, make_record
from validator.node.events import BlockFinal
from validator.primitives.types import Hash, Height

LATE = {"name": "late", "validators": {"count": 4, "nodes": [{}, {}, {}, {"joins_at_height": 5}]}}


def test_a_state_of_means_that_does_not_fit_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class TheirMeans(Means):
        def take_over(self, left: dict[str, Any]) -> None:
            msgspec.convert(left, Process)

    run = FollowedRun(tmp_path)
    run.write_checkpoint()
    run.is_killed()
    monkeypatch.setattr(live_run, "means_class", lambda: TheirMeans)
    with pytest.raises(
        BadInput, match=rf"^{tmp_path}: stage\.means: Expected `array`, got `object`: attach with the code"
    ):
        taken_over(tmp_path)


# --- watches ----------------------------------------------------------------------------------------------------------


def final(height: int) -> FinalSeen:
    block = BlockFinal(Height(height), height, Hash(b"\xff" * 32), Hash(b""), 1, 2, 0, 0, 0, 2**90, 0, 0, reorg_depth=1)
    return FinalSeen(100.0 * height, block)


def watched() -> tuple[RunRecord, ChainWatch]:
    """A watch that saw everything that there is to see."""
    record = make_record(scenario=Scenario.model_validate(LATE), backend="live")
    record.validators.clear()
    record.faults = [FaultRecord("kill", "validator-1", 3)]
    watch = ChainWatch(record, 50.0)
    for number in range(2 * MAX_LOOKS + 3):
        view = ValidatorView(0, LoopState(messages_sent=number), [], disk_bytes=number, use=Use(1, 2.5, 3))
        watch.take_use(1_000.0 * number, view)
    watch.take(1, [FirstSeen(1, 70.0), ViewSeen(80.0, 4), *map(final, range(1, 40))])
    record.faults[0].begun_ms = 600.0
    watch.trace.windows.look(700.0, 39)
    watch.trace.windows.keep(TracedMessage(0, 1, 650.0, 655.0, MessageKind.NOTARIZE, 4, 99))
    head = b"\x91\x91\x01\xc4\x05\x93\x01\x01\x07"
    stamps = [Stamp(700.0 + at_ms, at_ms % 2 == 0, None, head, 40, 7) for at_ms in range(9)]
    watch.trace.take(0, stamps)
    watch.trace.take(1, [stamp._replace(peer=0) for stamp in stamps])
    for host in (0, None):
        watch.take_lag(host, LagSpan(60.0, 90.0, 15.0))
    watch.sample(900.0, [3, None], [4, None], ["up", "down"])
    return record, watch


def goes_on(record: RunRecord, watch: ChainWatch) -> tuple[RunRecord, ChainWatch]:
    """The same of another driver."""
    other = make_record(scenario=Scenario.model_validate(LATE), backend="live")
    enter(written_and_read(save(record)), other)
    return other, ChainWatch(other, 50.0, left=left_by(watch))


OF_THE_PROCESS = (
    "lag",
    "newest",
    "busyness",
    "_sightings",
    "genesis",
    "scheme",
    "store",
    "finalizations",
    "kept_ledger",
    "votes",
)


def test_a_watch_goes_on() -> None:
    one = watched()
    other = goes_on(*one)
    assert inside(other, OF_THE_PROCESS) == inside(one, OF_THE_PROCESS)
    for record, watch in (one, other):
        watch.take(2, [ViewSeen(5_000.0, 9), *map(final, range(30, 60))])
        record.faults[0].ended_ms = 5_100.0
        watch.trace.windows.look(5_200.0, 59)
        watch.take_use(10_000_000.0, ValidatorView(0, LoopState(), [], use=Use(4, 5.0, 6)))
        watch.take_lag(0, LagSpan(6_000.0, 6_100.0, 50.0))
        watch.sample(5_300.0, [9], [9], ["up"])
        watch.trace.close(6_000.0)
    assert inside(other, OF_THE_PROCESS) == inside(one, OF_THE_PROCESS)
    (last,) = {watch.sample(0.0, []) for _, watch in (one, other)}
    assert last.fires == 2 * 59 and last.basefee_cycle == 2**90


@pytest.mark.parametrize(
    ("part", "attribute"),
    [
        (ChainWatch, "chain"),
        (LiveTrace, "_received"),
        (LiveTrace, "_count"),
        (Windows, "state"),
        (ResourceLog, "state"),
        (ResourceLog, "_looks"),
    ],
)
def test_a_watch_that_forgets_something_is_found_out(
    monkeypatch: pytest.MonkeyPatch, part: type[Any], attribute: str
) -> None:
    one, begin = watched(), part.__init__

    def begins(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        new, clock = object.__new__(part), [each for each in arguments if isinstance(each, float)]
        begin(new, make_record(scenario=Scenario.model_validate(LATE), backend="live"), *clock)
        setattr(self, attribute, getattr(new, attribute))

    monkeypatch.setattr(part, "__init__", begins)
    assert inside(goes_on(*one), OF_THE_PROCESS) != inside(one, OF_THE_PROCESS)


# --- hosts ------------------------------------------------------------------------------------------------------------


def busy_host() -> Host:
    """One that went through everything."""
    host = Host(number=2, place=Place("node-a", "127.0.0.1", True), validators=[2, 6], late={6: 40})
    host.actor, host.moves, host.release, host.phase = object(), 3, Release("2", "/code", "mutant"), Phase.STOPPING
    host.why_lost, host.is_held_down = "it burned", True
    host.pending_disk_operations = [("arrive", (2, 3, 1)), ("wipe", (2,)), ("flip", (6, Rot("state.log", 4, 5)))]
    first, second = Process(7, 11, "here"), Process(8, 22, "there")
    host.processes.current, host.processes.actors = first, 4
    host.processes.end()
    host.processes.current, host.processes.successor = second, Process(9, 33)
    host.processes.version, host.processes.code, host.processes.deaths = "2", "/code", 1
    state = LoopState(9, True, 12, 3, False, 4, 10, 1_000, 6, {1: 5}, 2, 1.5)
    for process in (first, second):
        counts = LinkCounts(1, 2, 3, 4, 5, 6, 7, 8)
        sizes = {"blocks.log": 99}
        views = [
            ValidatorView(index, state, [], [], 5, None, DelayCounts(1, 2, 3), {4: counts}, sizes) for index in (2, 6)
        ]
        view = HostView(process.pid, views, process.started, process.namespace, lags=[LagSpan(1.0, 2.0, 0.5)])
        host.reports.started([ValidatorAddress(2, "validator-2", PeerAddress("127.0.0.1", 5), "http://x:6")])
        host.reports.take(process, view)
        host.reports.take_states(view)
        if process is first:
            host.reports.end()
    return host


ASKED_ANEW = ("actor", "has_actor", "question", "is_held_down", "is_paused", "answered_s")


def test_a_host_is_the_same_with_another_driver() -> None:
    host = busy_host()
    found = again(host)
    assert inside(found, ASKED_ANEW) == inside(host, ASKED_ANEW)
    assert (found.is_placed, found.question, found.is_paused) == (True, None, False)
    assert found.reports.totals == host.reports.totals and found.reports.delays(2, "slow_disk") == 2
    host.lose_place(is_certain=True)
    found = again(host)
    assert (found.is_placed, found.processes.have_surely_ended) == (False, True)


# --- all of it --------------------------------------------------------------------------------------------------------

MADE_AGAIN = (*ASKED_ANEW, *OF_THE_PROCESS, "_hosts", "_record", "_run")


def busy_run(folder: Path) -> FollowedRun:
    run = FollowedRun(folder)
    for block in make_chain(3).blocks:
        run.record.store.append(block)
    for found in run.audit.known.values():
        found.blocks = ServedBlocks.all_of(run.record.store)
        found.status = {"height": 3, "supply": 2**100}
    contradict(run)
    run.audit.go_round()
    run.watch.take(1, [ViewSeen(run.clock.began_epoch_ms + 9.0, 2)])
    run.watch.sample(5.0, [3, None, 3, 3])
    run.watch.take_lag(None, LagSpan(run.clock.began_epoch_ms, run.clock.began_epoch_ms + 9, 5.0))
    run.record.problems.append("something")
    run.record.metrics["startup_seconds"] = 1.5
    run.record.load = LoadRecord(requests=5, sends=sends(), timeline=timeline())
    hosts = run.hosts
    hosts.all[1] = busy_host()
    hosts.all[1].number = 1
    hosts.nodes.lost.add("node-z")
    return run


def test_a_run_is_the_same_with_another_driver(tmp_path: Path) -> None:
    run = busy_run(tmp_path)
    run.write_checkpoint()
    run.is_killed()
    other = taken_over(tmp_path)
    assert other.loop.scenario == run.loop.scenario
    assert inside(other.watch, MADE_AGAIN) == inside(run.watch, MADE_AGAIN)
    assert run.stage is not None and other.stage is not None
    assert replace(other.stage.state, injections=0) == replace(run.stage.state, injections=0)
    assert inside(other.record, MADE_AGAIN) == inside(run.record, MADE_AGAIN)
    assert list(other.record.finalizations) == list(run.record.finalizations)
    assert inside(other.audit.known, MADE_AGAIN) == inside(run.audit.known, MADE_AGAIN)
    assert other.audit.safety.log.violations == run.audit.safety.log.violations != []
    assert other.clock.began_epoch_ms == run.clock.began_epoch_ms
    assert other.record.faults == run.record.faults
    assert other.record.faults is other.loop.faults.records
    assert other.watch._sightings is other.files.sightings is not None
    assert other.audit.safety.backlog._told is other.files.told is not None
    other.audit.close()


def test_the_hosts_of_a_run_are_the_same_with_another_driver(tmp_path: Path) -> None:
    run = busy_run(tmp_path)
    hosts = run.hosts
    stopped = list[str]()
    actor = SimpleNamespace(stop=SimpleNamespace(remote=lambda: stopped.append("again") or len(stopped)))
    hosts.all[1].phase, hosts.all[0].actor = Phase.UP, actor
    hosts.replace(hosts.all[0], Release("3"))
    run.write_checkpoint()
    run.is_killed()
    left = checkpoint.read(tmp_path)
    found = {host.actor_name: actor for host in hosts.all}
    session: Any = SimpleNamespace(ray=None, kept=None, nodes=list, find_host=found.get, forget=None)
    other = run.supervise(session, None)
    other.adopt(run.loop.scenario, 1, tmp_path, "127.0.0.1", left.hosts, left.lost_nodes)
    assert other.nodes.lost == {"node-z"}
    assert [host.left.reports for host in other.all] == [host.left.reports for host in hosts.all]
    assert stopped == ["again"] * 2, "it is told again to shut down, and gets its other code"


def test_a_load_that_runs_is_known_by_its_process_and_its_start(tmp_path: Path) -> None:
    run, process = FollowedRun(tmp_path), Process(4_711, 99, "here")
    load: Any = SimpleNamespace(process=process, before=Statistics(requests=3), began_epoch_ms=5, was_told_to_stop=True)
    run.testnet.load = load
    run.write_checkpoint(ENDING)
    run.is_killed()
    left = checkpoint.read(tmp_path)
    assert left.phase == ENDING
    assert (left.load.process, left.load.before) == (process, Statistics(requests=3))
    assert (left.load.began_epoch_ms, left.load.is_over) == (5, True)
    assert left.ray == run.testnet._session.kept  # type: ignore[union-attr]
