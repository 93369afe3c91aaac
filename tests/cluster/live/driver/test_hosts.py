"""Hosts at the end of a run: all that run come to rest, those that recover or join too, and what is ready is asked."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayError, RayTaskError

from cluster.disks.bit_rot import Rot
from cluster.live.driver.chain_watch import ChainWatch
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.node_watch import NodeWatch
from cluster.live.driver.ray_session import ActorCrash, relocated_host
from cluster.live.driver.supervised_host import Host
from cluster.live.host import host as host_module
from cluster.live.host.host import HostView, ValidatorAddress, ValidatorHost, ValidatorView
from cluster.live.host.lag import LagSpan
from cluster.live.host.observations import ViewSeen
from cluster.live.host.validator_loop import LoopState
from cluster.live.injection import Injection
from cluster.live.network.transport import PeerAddress
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase
from cluster.live.processes.last_words import LastWords
from cluster.live.processes.processes import Process
from cluster.record.run import Lag
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import Release
from tests.cluster.records import make_record
from tests.hangs import HANGS_AFTER_S

JOINS_AT = 9
SCENARIO = Scenario.model_validate(
    {
        "name": "hosts",
        "validators": [None, None, None, {"joins_at_height": JOINS_AT}],
        "stop": {"height": 25},
    }
)
PID = 7
READY = LoopState(ready=True, height=5)


class FakeActor:
    """Notes what is called; a call is its own answer."""

    def __init__(self, view: HostView) -> None:
        self.calls: list[str] = []
        self.arguments: list[tuple[object, ...]] = []
        self.is_silent = False
        self.answers: dict[str, Any] = {"observe": view}

    def __getattr__(self, method: str) -> SimpleNamespace:
        def remote(*arguments: object) -> tuple[int, str]:
            self.calls.append(method)
            self.arguments.append(arguments)
            return id(self), method

        return SimpleNamespace(remote=remote)

    def answer(self, method: str) -> Any:
        return self.answers.get(method)


class FakeRay:
    def __init__(self, actors: list[FakeActor]) -> None:
        self.exceptions = SimpleNamespace(RayError=RuntimeError, ActorUnavailableError=ConnectionError)
        self.actors = {id(actor): actor for actor in actors}
        self.killed: list[tuple[int, bool]] = []

    def wait(self, questions: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        silent = [each for each in questions if self.actors[each[0]].is_silent]
        return [each for each in questions if each not in silent], silent

    def get(self, question: tuple[int, str]) -> Any:
        answer = self.actors[question[0]].answer(question[1])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: FakeActor, no_restart: bool) -> None:
        self.killed.append((id(actor), no_restart))


def hosts_of(phases: list[Phase]) -> tuple[Hosts, list[FakeActor]]:
    """One host for each phase, which carries two validators: a ready one, and one that joins."""
    views = [ValidatorView(0, READY, []), ValidatorView(1, LoopState(), [])]
    actors = [FakeActor(HostView(PID, views)) for _ in phases]
    session: Any = SimpleNamespace(ray=FakeRay(actors))
    nodes = NodeWatch(session, lambda hosts, node, reason: None, lambda notice: None, lambda seconds: None)
    ignore: Any = lambda *_: None  # noqa: E731
    hosts = Hosts(session, ignore, ignore, ignore, ignore, nodes)
    for number, (phase, actor) in enumerate(zip(phases, actors, strict=True)):
        host = Host(number=number, place=Place("node", "127.0.0.1"), validators=[0, 1], late={1: JOINS_AT})
        host.actor, host.phase, host.processes.current = actor, phase, Process(PID, 0)
        host.processes.planned_kills = 1
        host.reports.addresses = [ValidatorAddress(index, str(index), PeerAddress("", 0), "") for index in (0, 1)]
        hosts.all.append(host)
    return hosts, actors


def failed_call(cause: Exception) -> Exception:
    """What Ray raises here if an actor's code raised ``cause``."""
    return RayTaskError("observe", "its traceback", cause, "ray::observe", PID, "127.0.0.1").as_instanceof_cause()


def test_a_bug_in_a_hosts_code_is_no_loss_of_the_host() -> None:
    hosts, actors = hosts_of([Phase.UP, Phase.UP])
    hosts._session.ray.exceptions.RayError = RayError
    actors[0].answers |= {"observe": failed_call(KeyError("planted")), "freeze": failed_call(OSError(28, "full"))}
    assert hosts.ask_each("freeze", 1.0, lambda: None) == [(hosts.all[0], "[Errno 28] full")]
    with pytest.raises(ActorCrash, match="planted"):
        hosts.look(JOINS_AT, starts=False)


@pytest.mark.parametrize("method", ["freeze", "stop"])
def test_every_host_that_runs_is_asked(method: str) -> None:
    hosts, actors = hosts_of([Phase.DOWN, Phase.STARTING, Phase.UP, Phase.DEAD])
    assert hosts.ask_each(method, 1.0, lambda: None) == []
    assert [actor.calls for actor in actors] == [[], [method], [method], []]


def test_a_last_look_starts_nothing_and_tells_who_is_ready() -> None:
    hosts, actors = hosts_of([Phase.DOWN, Phase.STARTING])
    hosts.look(JOINS_AT, starts=False)
    assert [actor.calls for actor in actors] == [["observe"], ["observe"]]
    assert [host.not_ready for host in hosts.all] == [[0, 1], [1]]


class FakeSignals:
    """Of processes that do what they are told."""

    def __init__(self) -> None:
        self.gone: set[Process] = set()
        self.still: set[Process] = set()

    def kill(self, process: Process) -> bool:
        self.gone.add(process)
        return True

    def pause(self, process: Process, resumed: Path | None = None) -> bool:
        self.still.add(process)
        return process not in self.gone

    def resume(self, process: Process) -> None:
        self.still.discard(process)

    def is_running(self, process: Process) -> bool:
        return process not in self.gone

    def close(self) -> None:
        self.still.clear()


class Watched:
    """One host that is up, and what its driver is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.hosts, actors = hosts_of([Phase.UP])
        self.actor, self.host = actors[0], self.hosts.all[0]
        self.host.validators, self.host.late = [0], {}
        self.host.reports.addresses = self.host.reports.addresses[:1]
        self.ray: Any = self.hosts._session.ray
        self.signals: Any = FakeSignals()
        self.hosts._session.signals = lambda place: self.signals  # type: ignore[method-assign]
        self.hosts._on_up = lambda host: self.told.append("up")
        self.hosts._on_lost = lambda host, why, words: self.told.append(f"lost: {why}, {words and words.reason}")
        self.hosts._on_problem = self.told.append
        self.answer_as(PID)
        self.look(3)
        self.told.clear()

    def answer_as(self, pid: int, words: LastWords | None = None, actor: FakeActor | None = None) -> None:
        view = HostView(pid, [ValidatorView(0, READY, [])], last_words=words)
        actor = actor or self.actor
        actor.answers |= {"observe": view, "inject": view, "start": self.host.reports.addresses}

    def succeeded_by(self, view: HostView) -> FakeActor:
        """The actor that is created next."""
        actor = FakeActor(view)
        self.ray.actors[id(actor)] = actor
        self.hosts._start_actor = lambda host: actor
        return actor

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.hosts.look(5)

    def named(self, name: str) -> Callable[[], None]:
        """A call that is known by its name."""
        return partial(self.told.append, name)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_host_that_was_killed_is_up_again_once_it_is_let(watched: Watched) -> None:
    host = watched.host
    watched.hosts.kill(host, by_ray=True)
    assert watched.ray.killed == [(id(watched.actor), False)]
    watched.look(2)
    assert (host.processes.deaths, host.phase) == (0, Phase.DOWN), "the old process answers once more"
    watched.answer_as(8)
    watched.look(2)
    assert (host.processes.deaths, host.phase) == (1, Phase.DOWN), "it is held down"
    host.is_held_down = False
    watched.look(3)
    assert (host.phase, host.pid, host.processes.last) == (Phase.UP, 8, Process(PID, 0))
    assert watched.told == ["up"]


@pytest.mark.parametrize("by_ray", [True, False])
@pytest.mark.parametrize("is_paused", [True, False])
def test_a_kill_that_nobody_planned_takes_no_restart_of_rays(watched: Watched, by_ray: bool, is_paused: bool) -> None:
    host, kills = watched.host, 8

    def start_actor(host: Host) -> FakeActor:
        host.processes.planned_kills = 1
        return actor

    watched.hosts._start_actor = start_actor
    for kill in range(kills):
        actor = FakeActor(HostView(PID + kill + 1, []))
        watched.ray.actors[id(actor)] = actor
        watched.ray.killed.clear()
        killed, pid = host.actor, host.pid
        host.is_paused = is_paused
        watched.hosts.kill(host, by_ray)
        is_planned = kill % 2 == 0  # one kill of each actor is
        assert (host.actor is killed) == is_planned
        if by_ray and not is_paused:
            assert watched.ray.killed == [(id(killed), not is_planned)]
        else:
            assert watched.ray.killed == ([] if is_planned else [(id(killed), True)])
        assert (Process(pid or 0, 0) in watched.signals.gone) == (is_paused or not by_ray)
        assert (host.phase, host.is_held_down, host.is_paused) == (Phase.DOWN, True, False)
        watched.answer_as(PID + kill + 1, actor=host.actor)
        host.is_held_down = False
        watched.look(3)
        assert (host.phase, host.pid, host.processes.deaths) == (Phase.UP, PID + kill + 1, kill + 1)
    assert host.processes.actors == kills // 2


def test_a_killed_process_is_gone_before_another_one_answers(watched: Watched) -> None:
    watched.hosts.kill(watched.host, by_ray=False)
    watched.actor.is_silent = True
    watched.look()
    assert watched.host.processes.deaths == 1
    watched.actor.is_silent = False
    watched.answer_as(8)
    watched.look()
    assert watched.host.processes.deaths == 1


def test_what_is_to_be_done_to_disks_is_done_before_validators_start(watched: Watched) -> None:
    watched.hosts.kill(watched.host, by_ray=True)
    watched.host.is_held_down = False
    watched.host.pending_disk_operations += [("wipe", (0,)), ("flip", (0, Rot("blocks.log", 4, 5)))]
    watched.answer_as(8)
    watched.actor.answers["flip"] = "no bit could be flipped"
    watched.actor.calls.clear()
    watched.look(6)
    assert watched.actor.calls[:4] == ["observe", "wipe", "flip", "observe"]
    assert "start" in watched.actor.calls[4:]
    assert watched.told == ["no bit could be flipped", "up"]


def test_a_host_that_ended_itself_is_told_with_its_last_words(watched: Watched) -> None:
    watched.actor.answers["observe"] = ConnectionError("unavailable")
    watched.look()
    assert (watched.host.phase, watched.told) == (Phase.DOWN, [])
    watched.answer_as(8, LastWords(PID, 0, "no space"))
    watched.look()
    assert watched.told == ["lost: unavailable, no space"]


def test_a_host_of_a_lost_node_starts_elsewhere_and_is_no_failure(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its actor cannot be started again where it was, which would be the end of any other host."""
    host, hosts = watched.host, watched.hosts
    watched.actor.answers["observe"] = RuntimeError("The actor is not schedulable")
    monkeypatch.setattr(hosts.nodes, "is_lost", lambda each: each is host)
    watched.look()
    assert (host.phase, watched.told) == (Phase.UP, []), "it is taken off its node at the next look"
    host.lose_place(is_certain=False)
    watched.look()
    assert (host.phase, host.processes.deaths, host.is_placed) == (Phase.DOWN, 1, False)
    assert watched.signals.gone == set(), "nobody asks a lost node for its processes"
    hosts.inject(Injection(1), watched.named("injected"))
    hosts.replace(host, Release("2"))
    assert watched.told == ["injected"] and host.actor is None
    host.is_held_down = False
    other = FakeActor(HostView(0, []))
    host.move(Place("another", "127.0.0.1"))
    host.actor = other
    watched.ray.actors[id(other)] = other
    watched.answer_as(8, actor=other)
    watched.look(5)
    assert other.calls[:2] == ["observe", "arrive"] and "start" in other.calls
    assert other.arguments[other.calls.index("arrive")] == (0, 1, 1)
    assert (host.phase, host.pid, watched.told[1:]) == (Phase.UP, 8, ["up"])


class Doubted:
    """A host whose actor Ray has given up, in a cluster of several nodes, and its node."""

    def __init__(self, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_node_lost = False
        self.node = FakeActor(HostView(0, []))
        self.node.is_silent = True
        watched.ray.actors[id(self.node)] = self.node
        watched.hosts._session.outlast = self._outlast  # type: ignore[method-assign]
        watched.hosts.nodes.are_watched = True
        monkeypatch.setattr(watched.hosts.nodes, "look", lambda: None)
        monkeypatch.setattr(watched.hosts.nodes, "is_lost", lambda host: self.is_node_lost)
        watched.actor.answers["observe"] = RuntimeError("The actor died")
        watched.look(3)

    def _outlast(self, node_id: str, seconds: float) -> Any:
        return id(self.node), f"{node_id} for {seconds:g} s"


def test_a_host_that_ended_on_a_node_that_stays_is_lost(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    doubted = Doubted(watched, monkeypatch)
    assert (watched.host.phase, watched.host.is_running, watched.told) == (Phase.DOUBTED, False, [])
    doubted.node.answers["node for 2 s"] = None
    doubted.node.is_silent = False
    watched.look(2)
    assert (watched.host.phase, watched.told) == (Phase.DEAD, ["lost: The actor died, None"])


def test_a_host_that_ended_with_its_node_is_no_failure(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray tells of the actor's end at once, and of the node's only when the node has not answered for long."""
    doubted = Doubted(watched, monkeypatch)
    doubted.node.answers["node for 2 s"] = RuntimeError("the node takes no tasks")
    doubted.node.is_silent = False
    watched.look(5)
    assert (watched.host.phase, watched.told) == (Phase.DOUBTED, []), "asked again and again"
    doubted.is_node_lost = True
    watched.look()
    watched.host.lose_place(is_certain=False)
    watched.look(2)
    assert (watched.host.phase, watched.host.processes.deaths, watched.told) == (Phase.DOWN, 1, [])


def test_what_hosts_tell_of_their_lag_is_entered_in_the_runs_time(watched: Watched) -> None:
    spans = [LagSpan(61_000.0, 62_000.0, 400.0), LagSpan(62_000.0, 63_000.0, 30.0)]
    watched.actor.answers["observe"] = HostView(PID, [ValidatorView(0, READY, [])], lags=spans)
    watched.look()
    record = make_record(backend="live")
    watch = ChainWatch(record, began_epoch_ms=60_000.0)
    taken = watched.hosts.take_lags()
    assert taken[: len(spans)] == [(watched.host.number, span) for span in spans]
    for number, span in taken[: len(spans)]:
        watch.take_lag(number, span)
    watch.take_lag(None, LagSpan(59_500.0, 60_500.0, 99.0))
    number = watched.host.number
    assert record.lags == [
        Lag(1_000.0, 2_000.0, 400.0, number),
        Lag(2_000.0, 3_000.0, 30.0, number),
        Lag(0.0, 500.0, 99.0, None),
    ]
    assert watched.hosts.take_lags() == [], "once"


@pytest.mark.parametrize(
    "words", [LastWords(3, 0, "long ago"), LastWords(PID, 0, "in another container, which gave this id, too", 9)]
)
def test_words_of_an_older_process_are_not_those_of_the_last_one(watched: Watched, words: LastWords) -> None:
    watched.actor.answers["observe"] = ConnectionError("unavailable")
    watched.look()
    watched.answer_as(8, words)
    watched.look(3)
    assert watched.told == ["lost: unavailable, None", "up"]


def test_a_host_that_only_did_not_answer_was_not_lost(watched: Watched) -> None:
    watched.actor.answers["observe"] = ConnectionError("unavailable")
    watched.look()
    watched.answer_as(PID)
    watched.look(3)
    assert (watched.host.phase, watched.host.processes.deaths) == (Phase.UP, 0)
    assert watched.told == ["up"]


class TooBusy(RuntimeError, TimeoutError):
    """As Ray raises what a method of an actor raised."""


def test_a_host_that_is_too_busy_to_answer_is_not_lost(watched: Watched) -> None:
    watched.actor.answers["observe"] = TooBusy()
    watched.look(2)
    assert (watched.host.phase, watched.told) == (Phase.UP, [])
    watched.answer_as(PID)
    watched.actor.calls.clear()
    watched.look()
    assert (watched.host.phase, watched.actor.calls) == (Phase.UP, ["observe"])


def test_a_host_that_stands_still_is_not_asked_and_not_lost(watched: Watched) -> None:
    host, hosts = watched.host, watched.hosts
    assert hosts.pause(host) and host.is_paused
    watched.actor.answers["observe"] = ConnectionError("unavailable")
    watched.actor.calls.clear()
    watched.look(3)
    assert (watched.actor.calls, host.phase) == ([], Phase.UP)
    watched.answer_as(PID)
    hosts.inject(Injection(3), watched.named("in force"))
    assert watched.told == ["in force"], "it is told when it goes on"
    assert watched.actor.calls == []
    hosts.resume(host)
    assert watched.actor.calls == ["inject"]
    assert watched.actor.arguments[-1] == (Injection(3),)
    assert not host.is_paused


def test_a_host_that_stands_still_is_not_awaited_by_another_driver(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.host.answered_s = -math.inf
    looks = iter([watched.hosts.pause])
    monkeypatch.setattr(watched.hosts, "look", lambda height: next(looks)(watched.host))
    watched.hosts.hear_from_all(3, HANGS_AFTER_S, lambda: None)
    assert watched.host.is_silent and watched.host.is_paused and not list(looks), "it was asked until it stood still"


def test_a_process_that_is_gone_is_not_held(watched: Watched) -> None:
    watched.signals.gone.add(Process(PID, 0))
    watched.hosts.pause(watched.host)
    assert not watched.host.is_paused


def test_one_that_stands_still_is_killed_by_a_signal(watched: Watched) -> None:
    watched.hosts.pause(watched.host)
    watched.hosts.kill(watched.host, by_ray=True)
    assert watched.ray.killed == []
    assert (watched.signals.gone, watched.signals.still) == ({Process(PID, 0)}, set())


def test_an_order_counts_once_everybody_answered(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.actor.is_silent = True
    watched.hosts.inject(Injection(1), watched.named("in force"))
    watched.look()
    assert watched.told == []
    watched.actor.is_silent = False
    watched.look()
    assert watched.told == ["in force"]
    watched.actor.is_silent = True
    monkeypatch.setattr("cluster.live.driver.hosts.ORDER_TIMEOUT_S", -1.0)
    watched.hosts.inject(Injection(2), watched.named("given up"))
    assert watched.told[-1] == "given up"


def test_an_order_does_not_wait_for_a_host_that_went_down(watched: Watched) -> None:
    watched.actor.is_silent = True
    watched.hosts.inject(Injection(1), watched.named("in force"))
    watched.hosts.kill(watched.host, by_ray=True)
    watched.look()
    assert watched.told == ["in force"]


class Compiling:
    """A node on which code of another folder is compiled."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.task = FakeActor(HostView(0, []))
        self.task.is_silent = True
        watched.ray.actors[id(self.task)] = self.task
        watched.hosts._session.warm_up = self.warm_up  # type: ignore[method-assign]

    def warm_up(self, place: Place, code: str) -> Any:
        self.watched.told.append(f"compiles {code}")
        return self.task.compiled.remote()

    def prepare(self, release: Release) -> None:
        told = self.watched.told
        self.watched.hosts.prepare([self.watched.host], release, self.watched.named("compiled"), told.append)


@pytest.fixture
def compiling(watched: Watched) -> Compiling:
    return Compiling(watched)


@pytest.mark.parametrize("does", ["nothing", "goes down", "stands still"])
def test_code_is_compiled_whatever_a_host_does_meanwhile(compiling: Compiling, does: str) -> None:
    watched = compiling.watched
    compiling.prepare(Release("2", "/new"))
    if does == "goes down":
        watched.hosts.kill(watched.host, by_ray=True)
    elif does == "stands still":
        watched.hosts.pause(watched.host)
    watched.look(2)
    assert watched.told == ["compiles /new"] and watched.hosts.is_compiling
    compiling.task.is_silent = False
    watched.look()
    assert watched.told == ["compiles /new", "compiled"] and not watched.hosts.is_compiling


def test_code_is_compiled_once(compiling: Compiling) -> None:
    compiling.task.is_silent = False
    for release in (Release("2", "/new"), Release("3", "/new"), Release("4")):
        compiling.prepare(release)
        compiling.watched.look()
    assert compiling.watched.told == ["compiles /new", "compiled", "compiled", "compiled"]


def test_why_code_could_not_be_compiled_is_said(compiling: Compiling, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = compiling.watched
    compiling.task.is_silent = False
    compiling.task.answers["compiled"] = RuntimeError("No module named 'cluster.commands.cli.warm_up'")
    compiling.prepare(Release("2", "/new"))
    watched.look()
    told = ["/new could not be compiled beforehand: No module named 'cluster.commands.cli.warm_up'", "compiled"]
    assert watched.told == ["compiles /new", *told]
    watched.told.clear()
    compiling.task.is_silent = True
    monkeypatch.setattr("cluster.live.driver.hosts.PREPARE_TIMEOUT_S", -1.0)
    compiling.prepare(Release("2", "/newer"))
    watched.look()
    assert watched.told[1:] == ["/newer could not be compiled beforehand: it takes too long", "compiled"]


def test_a_host_with_other_code_is_another_actor(watched: Watched) -> None:
    host, hosts = watched.host, watched.hosts
    successor = watched.succeeded_by(HostView(9, [], version="2", code="/new"))
    hosts.replace(host, Release("2"))
    assert host.phase is Phase.STOPPING and not host.is_running
    assert watched.actor.calls[-1] == "stop"
    watched.look()
    assert watched.ray.killed == [(id(watched.actor), True)]
    watched.look(2)
    assert (host.phase, host.processes.deaths) == (Phase.DOWN, 1)
    host.is_held_down = False
    watched.answer_as(9, actor=successor)
    successor.answers["observe"] = replace(successor.answers["observe"], version="2", code="/new")
    watched.look(3)
    assert (host.phase, host.pid, host.processes.version, host.processes.code) == (Phase.UP, 9, "2", "/new")


def test_a_loss_that_nobody_was_told_yet_is_told_by_the_actor_with_other_code(watched: Watched) -> None:
    host, hosts = watched.host, watched.hosts
    watched.actor.answers["observe"] = ConnectionError("unavailable")
    watched.look()
    watched.succeeded_by(HostView(9, [], version="2", last_words=LastWords(PID, 0, "no space")))
    hosts.replace(host, Release("2"))
    assert watched.told == []
    watched.look(2)
    assert watched.told == ["lost: unavailable, no space"]


def test_a_host_that_shuts_down_is_not_started_by_an_answer_from_before(watched: Watched) -> None:
    host, hosts = watched.host, watched.hosts
    hosts.replace(host, Release("2"))
    hosts._take(host, host.reports.addresses)
    assert host.phase is Phase.STOPPING


def test_code_of_another_folder_comes_first_and_does_all_that_a_host_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relocated = relocated_host(str(tmp_path))
    public = {name for name in vars(ValidatorHost) if not name.startswith("_")}
    assert {name for name in vars(relocated) if not name.startswith("_")} == public >= {"start", "observe", "stop"}
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr(
        host_module, "ValidatorHost", lambda *given: SimpleNamespace(observe=lambda *more: given + more)
    )
    host = relocated("folder", "scenario", 1)
    assert sys.path[0] == str(tmp_path)
    assert host.observe(True) == ("folder", "scenario", 1, True)


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """What would end the process of a host."""
    found: list[BaseException] = []
    monkeypatch.setattr(host_module, "crash", found.append)
    for name in ("_log_to", "logging.shutdown"):
        monkeypatch.setattr(f"{host_module.__name__}.{name}", lambda *_: None)
    yield found
    assert found == []


@pytest.mark.parametrize("method", ["freeze", "stop"])
def test_validators_that_recover_or_join_come_to_rest(
    tmp_path: Path, crashes: list[BaseException], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(host_module, "set_heap_apart", lambda: 0)
    for number, is_ready in ((0, True), (3, False)):
        host = ValidatorHost(str(tmp_path), SCENARIO.model_dump_json(), 3, number, "127.0.0.1")
        (address,) = host.start(JOINS_AT)
        assert address.index == number
        getattr(host, method)()
        (view,) = host.observe().validators
        assert view.state.ready is is_ready
        if method != "stop":
            host.stop()


@contextmanager
def busy(host: ValidatorHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Meanwhile the loop of a host does something else, and calls end without its answer."""
    is_over = threading.Event()
    host._loop.call_soon_threadsafe(is_over.wait, HANGS_AFTER_S)
    with monkeypatch.context() as patch:
        patch.setattr(host_module, "CALL_TIMEOUT_S", 0.0)
        yield
    is_over.set()


def test_a_host_that_was_too_busy_starts_each_validator_once_and_reports_all_that_it_saw(
    tmp_path: Path, crashes: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_free_port = host_module._at_free_port

    async def at_free_port_after_a_while(*given: Any) -> Any:
        await asyncio.to_thread(int)
        return await at_free_port(*given)

    monkeypatch.setattr(host_module, "_at_free_port", at_free_port_after_a_while)
    host = ValidatorHost(str(tmp_path), SCENARIO.model_dump_json(), 3, 0, "127.0.0.1")
    with busy(host, monkeypatch):
        for _ in range(2):
            with pytest.raises(TimeoutError):
                host.start(JOINS_AT)
    assert [address.index for address in host.start(JOINS_AT)] == [0]
    with busy(host, monkeypatch):
        running = host._validators[0]
        assert isinstance(running, host_module._RunningValidator)
        running.validator.observations.entered(777)
        with pytest.raises(TimeoutError):
            host.observe()
    (view,) = host.observe().validators
    assert 777 in [seen.view for seen in view.observations if isinstance(seen, ViewSeen)]
    host.stop()
