"""What a driver finds that takes a run over, without Ray: what the one before saw, and the testnet that may be gone."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from cluster.checks.run import check_run
from cluster.commands.run import attaching
from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.faults.events import Failed, Voted
from cluster.live.driver import node_watch, ray_session
from cluster.live.driver.control_server import SetLoad
from cluster.live.driver.driver import Driver
from cluster.live.driver.live_run import LiveRun, Notices, standings_of, violations_of
from cluster.live.driver.load_process import plan_load
from cluster.live.driver.ray_session import RaySession, core_of, why_gone
from cluster.live.driver.supervised_host import Host
from cluster.live.handover import checkpoint
from cluster.live.handover.left import LeftLoad, LeftRun
from cluster.live.handover.rows import Told
from cluster.live.host.host import ValidatorView
from cluster.live.host.observations import FinalSeen, VoteSent
from cluster.live.host.validator_loop import LoopState
from cluster.live.nodes.ray_nodes import KeptRay, Place
from cluster.live.processes import processes
from cluster.live.processes.cleanup_watchdog import CleanupWatchdog
from cluster.live.processes.history import Phase
from cluster.live.web.addresses import ON_THE_LOOPBACK
from cluster.record.folder import CHECKPOINT_FILE, RESULT_FILE, read_result
from cluster.record.run import UNOBSERVED, RunRequest
from cluster.run.events import NewHeight, Standing, StopRequested, Time, Up
from cluster.scenario import Scenario
from cluster.watches.live.audited_testnet import Audit, attached_testnet
from consensus.messages import VoteKind
from consensus.types import View
from tests.cluster.records import make_chain, make_scenario
from tests.consensus.bench import NOTARIZE
from tests.hangs import HANGS_AFTER_S
from validator.node.events import BlockFinal
from validator.primitives.types import Hash, Height

NOBODY = 9
"""A port at which nobody answers."""
CORE: list[tuple[str, list[str]]] = [
    ("gcs_server", []),
    ("raylet", ["--head"]),
    ("raylet", []),
    ("dashboard", ["--head"]),
]
FINAL = BlockFinal(Height(3), 3, Hash(b""), Hash(b""), 0, 0, 0, 0, 0, 0, 0, 0)


class AuditedRun(LiveRun):
    """A run whose audit is known."""

    audit: Audit


class FollowedRun(AuditedRun):
    """A run as its driver has it while it follows a testnet, whose Ray does not exist."""

    def __init__(self, folder: Path, scenario: Scenario | None = None, stop_on_fail: bool = False) -> None:
        request = RunRequest(scenario or make_scenario(), 1, "0123456789ab", folder, stop_on_fail, lease_s=5.0)
        super().__init__(request, lambda line: None, Interrupts(), ON_THE_LOOPBACK, Audit)
        self.begin()
        self.interrupts = Interrupts()
        self.driver = Driver(self, UNOBSERVED, self.interrupts)
        kept = KeptRay(f"127.0.0.1:{NOBODY}", "stampede-1", 5.0, str(folder / "ray"))
        session: Any = SimpleNamespace(ray=None, kept=kept)
        self.testnet._session = session
        self.testnet.hosts = self.hosts = self.supervise(session, None)
        self.hosts.all.extend(
            Host(number=number, place=Place("node", "127.0.0.1"), validators=[number]) for number in range(4)
        )
        for host in self.hosts.all:
            host.actor, host.phase = object(), Phase.UP
        self.watch.take(0, [FinalSeen(self.clock.began_epoch_ms, FINAL)])
        self.make_stage(self.hosts)
        self.see(Up(0.0))

    def is_killed(self) -> None:
        """After it has written what it writes at each look."""
        self.files.keep()
        self.audit.close()


def taken_over(folder: Path) -> AuditedRun:
    """What another driver has of a run, before it asks anybody."""
    left = checkpoint.read(folder)
    request = RunRequest(left.scenario, left.record.seed, left.commit, folder, left.stop_on_fail, lease_s=5.0)
    run = AuditedRun(request, lambda line: None, Interrupts(), ON_THE_LOOPBACK, Audit)
    session: Any = SimpleNamespace(ray=None, kept=None)
    run.restore(left, run.supervise(session, None))
    return run


def contradict(run: FollowedRun) -> None:
    """A validator casts two votes of a view."""
    votes: list[Any] = [VoteSent(View(3), NOTARIZE, View(2), digest) for digest in (b"a", b"b")]
    run.take_view(ValidatorView(2, LoopState(), votes))


@pytest.mark.parametrize("is_in_the_checkpoint", [True, False])
def test_a_violation_that_was_seen_fails_the_run_though_the_testnet_is_gone(
    tmp_path: Path, is_in_the_checkpoint: bool
) -> None:
    run = FollowedRun(tmp_path)
    for block in make_chain(3).blocks:
        run.record.store.append(block)
    if is_in_the_checkpoint:
        contradict(run)
        run.audit.go_round()
    run.write_checkpoint()
    if not is_in_the_checkpoint:
        contradict(run)
    run.is_killed()

    with Interrupts() as interrupts, attached_testnet(checkpoint.read(tmp_path), tmp_path, interrupts) as record:
        (problem,) = record.problems
        assert "and its testnet is gone" in problem and record.interrupted and len(record.store) == 3
        found = check_run(record).check("safety")
    assert found.verdict is Outcome.FAIL and "validator-2 notarizes view 3, and did so before" in found.detail


class Diverged(FollowedRun):
    """Its host says that a validator diverged. The driver is killed as soon as it has told that."""

    def __init__(self, folder: Path, stop_on_fail: bool = False) -> None:
        super().__init__(folder, stop_on_fail=stop_on_fail)
        self.write_checkpoint()
        self.hosts.all[0].reports.states = {0: LoopState(diverged=True)}
        self.watchdog = self.testnet._watchdog = CleanupWatchdog(folder, {"verdict": "inconclusive", "checks": []})
        self.notice = Notices(self._is_told)
        with pytest.raises(KeyboardInterrupt):
            self.see(*violations_of(self.hosts, self.audit, self.loop.scenario))
        self.watchdog._pipe.close()
        self.watchdog._process.wait(HANGS_AFTER_S)
        self.is_killed()

    def _is_told(self, line: str) -> None:
        assert "violation: state_roots: validator-0 executed" in line
        raise KeyboardInterrupt


def test_a_violation_that_was_told_is_kept_though_nobody_comes(tmp_path: Path) -> None:
    run = Diverged(tmp_path)
    result = read_result(tmp_path)
    assert result["verdict"] == Outcome.FAIL
    verdicts = {check["name"]: check["verdict"] for check in result["checks"]}
    assert verdicts == {"no_problems": Outcome.INCONCLUSIVE, "state_roots": Outcome.FAIL}

    with Interrupts() as interrupts, attached_testnet(checkpoint.read(tmp_path), tmp_path, interrupts) as record:
        found = check_run(record).check("state_roots")
    assert found.verdict is Outcome.FAIL and found.detail.startswith("told while it ran: validator-0 executed a final")
    assert len(run.record.seen_violations) == 1


def test_a_violation_that_was_told_ends_the_run_of_the_next_driver_too(tmp_path: Path) -> None:
    run = Diverged(tmp_path, stop_on_fail=True)
    other = taken_over(tmp_path)
    assert run.loop.has_ended and other.loop.has_ended and other.record.interrupted
    assert other.record.problems == run.record.problems != []
    other.audit.close()


def test_the_next_watchdog_knows_what_faults_have_changed_before_the_other_one_goes() -> None:
    done: list[str] = []
    testnet = SimpleNamespace(
        take_over=lambda left: done.append("watched"), replace_others=lambda: done.append("the others go")
    )
    driver: Any = object.__new__(Driver)
    driver._run = SimpleNamespace(
        testnet=testnet, restore=lambda left, hosts: None, means=SimpleNamespace(note=lambda: done.append("noted"))
    )
    driver._reach, driver._go = lambda left: (None, ""), lambda *_, **__: None
    driver.take_over(None)
    assert done == ["watched", "noted", "the others go"]


def test_whatever_the_loop_was_told_is_in_the_next_checkpoint(tmp_path: Path) -> None:
    run = FollowedRun(tmp_path)
    for seen in (Failed(9.0, 1, "no space"), Voted(0, 9, VoteKind.NOTARIZE)):
        run.see(seen)
        run.keep(run.hosts)
        assert checkpoint.read(tmp_path).journal == run.files.journal.mark
    run.is_killed()


def test_what_means_did_is_in_the_next_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, did = FollowedRun(tmp_path), list[str]()
    monkeypatch.setattr(type(run.means), "state", property(lambda self: {"did": [*did]}))
    for what in ("cordoned", "evicted"):
        did.append(what)
        run.keep(run.hosts)
        assert checkpoint.read(tmp_path).stage.means == {"did": did}
    run.is_killed()


def test_what_only_the_watchdog_knows_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, file = checkpoint.write, tmp_path / CHECKPOINT_FILE
    with monkeypatch.context() as full:
        full.setattr(checkpoint, "write", lambda *left: os.write(-1, b"") if file.exists() else write(*left))
        Diverged(tmp_path)
    assert not checkpoint.read(tmp_path).record.seen_violations
    result = read_result(tmp_path) | {attaching.NOBODY_CAME: True}
    (tmp_path / RESULT_FILE).write_text(json.dumps(result))
    monkeypatch.setattr(attaching, "checkout_commit", lambda: "0123456789ab")
    assert attaching.attach_run(tmp_path) is ExitCode.FAIL
    details = {check["name"]: check["detail"] for check in read_result(tmp_path)["checks"]}
    assert details["state_roots"].startswith("told while it ran: validator-0 executed a final block")


@pytest.fixture
def core(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is called like one of Ray, with the folder of the run's."""
    (tmp_path / "ray").mkdir()
    program = Path(shutil.copy("/bin/sleep", tmp_path / "ray" / "gcs_server"))
    with subprocess.Popen([program, "60"]) as process:
        yield process
        process.kill()


def test_another_actor_of_a_host_is_written_down_before_validators_start_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They start at the next look at the hosts at the earliest."""
    run, written = FollowedRun(tmp_path), list[int]()
    hosts, stage = run.hosts, run.stage
    assert stage is not None

    def look(height: int) -> None:
        if written:
            written.append(checkpoint.read(tmp_path).hosts[1].processes.actors)
        else:
            written.append(hosts.all[1].processes.actors)
            hosts.all[1].processes.actors += 1

    run.write_checkpoint()
    run.keep(hosts)
    monkeypatch.setattr(hosts, "look", look)
    for name in ("_wait", "_sample"):
        monkeypatch.setattr(run.driver, name, lambda *_: None)
    monkeypatch.setattr(run.driver, "_see_whether_it_ends", lambda _: len(written) == 2)
    monkeypatch.setattr(run.driver._clients, "obey", lambda _: None)
    monkeypatch.setattr(run.testnet, "check", lambda: None)
    monkeypatch.setattr(run.audit, "start", lambda: None)
    run.driver._follow(hosts, stage)
    run.is_killed()
    assert written == [0, 1]


def test_a_load_is_not_started_again_once_the_last_height_is_reached(tmp_path: Path) -> None:
    run, order, other = FollowedRun(tmp_path), SetLoad(is_on=True), SetLoad(is_on=True)
    hosts, stage = run.hosts, run.stage
    assert stage is not None
    control: Any = SimpleNamespace(orders=Queue(), dashboard=SimpleNamespace(is_wanted=False))
    run.testnet.control = control
    for each, height in ((other, 1), (order, run.loop.scenario.stop.height)):
        run.see(NewHeight(height))
        control.orders.put(each)
        run.driver._clients.obey(hosts)
    run.is_killed()
    assert str(other.answer.exception()) == "the testnet has no load"
    assert str(order.answer.exception()) == f"the run is about to end: height {run.loop.end_height} is reached"


def test_what_happened_without_a_driver_is_judged_at_the_newest_height(tmp_path: Path) -> None:
    run = FollowedRun(tmp_path, Scenario.model_validate({"name": "brief", "stop": {"duration_s": 5}}))
    run.see(Up(0.0))
    run.watch.take(0, [FinalSeen(run.clock.began_epoch_ms, replace(FINAL, height=Height(400)))])
    run.see(Time(9_000.0))
    run.is_killed()
    assert run.loop.end_height == run.record.stop_requested_at_height == 400


def stand(run: FollowedRun, *heights: int | None) -> set[Standing]:
    """How far the validators are, of which each has a host; ``None`` for one without a state."""
    for host, height in zip(run.hosts.all, heights, strict=True):
        host.reports.states = {} if height is None else {host.number: LoopState(height=height, ready=True)}
    return set(standings_of(run.hosts, run.loop).validators)


def test_the_end_waits_for_validators_that_take_part_on_hosts_that_are_not_given_up(tmp_path: Path) -> None:
    nodes = [{}, {"byzantine": ["garbage"]}, {}, {"joins_at_height": 40}]
    stop = {"height": 60, "drain_blocks": 2}
    run = FollowedRun(
        tmp_path, Scenario.model_validate({"name": "stand", "validators": {"nodes": nodes}, "stop": stop})
    )
    hosts = run.hosts
    hosts.all[3].late = {3: 40}
    run.see(NewHeight(22))
    run.see(StopRequested(1.0))
    one, other = Standing(30, is_up=True), Standing(29, is_up=True, is_excused=True)
    assert stand(run, 30, 29, 30, None) == {one, other}, "24 is the goal, before the last one joins"
    assert stand(run, 30, 29, None, None) == {one, other, Standing(0, is_up=False)}
    assert stand(run, 30, 29, 30, 0) == {one, other, Standing(0, is_up=True)}, "it was started meanwhile"
    hosts.all[0].phase, hosts.all[2].phase = Phase.DEAD, Phase.STARTING
    assert stand(run, 30, 29, 30, None) == {other, Standing(30, is_up=False)}
    run.loop.end_height = None
    for host in hosts.all[:3]:
        host.phase = Phase.DEAD
    assert stand(run, 9, 9, 9, None) == {Standing(0, is_up=False)}, "of an open run, who joins later is left"
    run.is_killed()


def test_the_loss_of_any_node_but_the_head_is_survived(tmp_path: Path) -> None:
    """As another driver finds a Ray of several nodes."""
    folder = tmp_path / "ray"
    started: list[subprocess.Popen[bytes]] = []
    for number, (name, arguments) in enumerate(CORE):
        program = tmp_path / str(number) / name
        program.parent.mkdir()
        program.symlink_to(Path(sys.executable).resolve())
        command = [
            str(program),
            "-I",
            "-S",
            "-c",
            "import sys; sys.stdin.read()",
            f"--session_dir={folder}",
            *arguments,
        ]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE))
    try:
        found = {process.pid: name for process, name in core_of(folder).items()}
        assert found == {started[0].pid: "gcs_server", started[1].pid: "raylet"}
    finally:
        for each in started:
            each.communicate(timeout=HANGS_AFTER_S)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def left_by(folder: Path) -> LeftRun:
    """What a driver left that was killed."""
    run = FollowedRun(folder)
    for block in make_chain(3).blocks:
        run.record.store.append(block)
    run.write_checkpoint()
    run.is_killed()
    return checkpoint.read(folder)


def refusal(folder: Path) -> str:
    """Why a run cannot be taken over now. Nothing is different afterwards."""
    before = files_of(folder)
    with Interrupts() as interrupts, pytest.raises(BadInput) as refused:
        attached_testnet(checkpoint.read(folder), folder, interrupts).__enter__()
    assert files_of(folder) == before
    return str(refused.value)


def test_a_ray_that_does_not_answer_and_runs_is_not_gone(tmp_path: Path, core: subprocess.Popen[bytes]) -> None:
    left_by(tmp_path)
    assert "no Ray answers there: " in refusal(tmp_path)
    assert core.poll() is None


def test_an_attach_that_cannot_be_done_now_leaves_everything(
    tmp_path: Path, core: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    left_by(tmp_path)
    joined = SimpleNamespace(ray=SimpleNamespace(), left=0, find_host=lambda name: None)
    joined.leave = lambda: setattr(joined, "left", joined.left + 1)
    monkeypatch.setattr(ray_session, "_unanswered", lambda address: "")

    def cannot_be_joined(kept: KeptRay) -> RaySession:
        raise BadInput("that Ray cannot be joined")

    monkeypatch.setattr(RaySession, "take_over", cannot_be_joined)
    assert refusal(tmp_path) == "that Ray cannot be joined"
    monkeypatch.setattr(RaySession, "take_over", lambda kept: joined)
    with monkeypatch.context() as full:
        full.setattr(Told, "reopen", lambda path: os.write(-1, b""))
        with Interrupts() as interrupts, pytest.raises(OSError, match="Bad file descriptor"):
            attached_testnet(checkpoint.read(tmp_path), tmp_path, interrupts).__enter__()
    assert joined.left == 1
    run = checkpoint.read(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        run = replace(run, served=("127.0.0.1", busy.getsockname()[1]))
        with Interrupts() as interrupts, pytest.raises(BadInput, match="endpoint cannot be served on"):
            attached_testnet(run, tmp_path, interrupts).__enter__()
    assert core.poll() is None


def test_hosts_hold_their_leases_before_files_are_read(
    tmp_path: Path, core: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a run of days are gigabytes; and a run that is refused then gives the leases back."""
    left_by(tmp_path)
    asked: dict[str, list[float]] = {}

    def find(name: str) -> Any:
        renewals = asked.setdefault(name, [])
        return SimpleNamespace(keep=SimpleNamespace(remote=lambda lease_s, heard_s: renewals.append(lease_s)))

    waiting = SimpleNamespace(wait=lambda answers, timeout: ([], answers))
    joined = SimpleNamespace(ray=waiting, find_host=find, leave=lambda: None)
    monkeypatch.setattr(ray_session, "_unanswered", lambda address: "")
    monkeypatch.setattr(RaySession, "take_over", lambda kept: joined)
    monkeypatch.setattr(node_watch, "RENEW_EVERY_S", 0.001)

    def reads(path: Path) -> Any:
        deadline = time.monotonic() + HANGS_AFTER_S
        while not all(asked.values()) and time.monotonic() < deadline:
            os.sched_yield()
        os.write(-1, b"")

    monkeypatch.setattr(Told, "reopen", reads)
    with Interrupts() as interrupts, pytest.raises(OSError, match="Bad file descriptor"):
        attached_testnet(checkpoint.read(tmp_path), tmp_path, interrupts).__enter__()
    assert asked == {f"host-{number}.0": [5.0] for number in range(4)}
    assert not [thread for thread in threading.enumerate() if thread.name == "leases"]


@pytest.mark.parametrize(
    ("is_here", "silent_s", "is_gone"), [(True, 99.0, True), (False, 6.9, False), (False, 7.1, True)]
)
def test_a_ray_is_gone_if_no_process_is_left_or_its_lease_is_over(
    tmp_path: Path, is_here: bool, silent_s: float, is_gone: bool
) -> None:
    kept = KeptRay(f"127.0.0.1:{NOBODY}", "stampede-1", 5.0, str(tmp_path / "ray"))
    if is_gone:
        assert why_gone(kept, silent_s, is_here)
        return
    with pytest.raises(BadInput, match="it may be there, or where its driver was: try again"):
        why_gone(kept, silent_s, is_here)


def test_what_is_left_of_a_testnet_that_is_gone_ends(tmp_path: Path) -> None:
    """Its core has ended, another process of its Ray and the load have not."""
    left = left_by(tmp_path)
    (tmp_path / "ray").mkdir()
    (tmp_path / "load-plan.json").write_text(plan_load(make_scenario(), 1, "chain", tmp_path, 60).model_dump_json())
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with (
        subprocess.Popen([*waits, str(tmp_path / "ray")], stdin=subprocess.PIPE) as agent,
        subprocess.Popen(waits, stdin=subprocess.PIPE) as load,
    ):
        process = processes.find(load.pid)
        left = replace(left, load=LeftLoad(process, is_over=False))
        with Interrupts() as interrupts, attached_testnet(left, tmp_path, interrupts) as record:
            assert "no process of its Ray is left" in record.problems[0]
            assert agent.wait(HANGS_AFTER_S) and load.wait(HANGS_AFTER_S)
    assert not (tmp_path / "ray").exists()
