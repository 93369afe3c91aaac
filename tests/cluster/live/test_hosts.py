"""Hosts at the end of a run: all that run come to rest, those that recover or join too, and what is ready is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.live import host as host_module
from cluster.live.host import HostView, ValidatorAddress, ValidatorHost, ValidatorView
from cluster.live.hosts import _NOT_READY, Host, Hosts, Phase
from cluster.live.transport import PeerAddress
from cluster.scenario import Scenario

JOINS_AT = 9
SCENARIO = Scenario.model_validate(
    {
        "name": "hosts",
        "validators": [None, None, None, {"joins_at_height": JOINS_AT}],
        "stop": {"height": 25},
    }
)
PID = 7
READY = replace(_NOT_READY, ready=True, height=5)


class FakeActor:
    """Notes what is called; a call is its own answer."""

    def __init__(self, view: HostView) -> None:
        self.calls: list[str] = []
        self._answers: dict[str, Any] = {"observe": view}

    def __getattr__(self, method: str) -> SimpleNamespace:
        def remote(*arguments: object) -> tuple[int, str]:
            self.calls.append(method)
            return id(self), method

        return SimpleNamespace(remote=remote)

    def answer(self, method: str) -> Any:
        return self._answers.get(method)


class FakeRay:
    def __init__(self, actors: list[FakeActor]) -> None:
        self.exceptions = SimpleNamespace(RayError=RuntimeError, ActorUnavailableError=ConnectionError)
        self._actors = {id(actor): actor for actor in actors}

    def wait(self, questions: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        return questions, []

    def get(self, question: tuple[int, str]) -> Any:
        return self._actors[question[0]].answer(question[1])


def hosts_of(phases: list[Phase]) -> tuple[Hosts, list[FakeActor]]:
    """One host for each phase, which carries two validators: a ready one, and one that joins."""
    views = [ValidatorView(0, READY, 1, []), ValidatorView(1, _NOT_READY, 1, [])]
    actors = [FakeActor(HostView(PID, views)) for _ in phases]
    session: Any = SimpleNamespace(ray=FakeRay(actors))
    hosts = Hosts(session, lambda view: None, lambda host: None, lambda host, why: None)
    for number, (phase, actor) in enumerate(zip(phases, actors, strict=True)):
        host = Host(number, actor, [0, 1], {1: JOINS_AT})
        host.phase, host.pid = phase, PID
        host.addresses = [ValidatorAddress(index, str(index), PeerAddress("", 0), "") for index in (0, 1)]
        hosts.all.append(host)
    return hosts, actors


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


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """What would end the process of a host."""
    found: list[BaseException] = []
    monkeypatch.setattr(host_module, "_crash", found.append)
    yield found
    assert found == []


@pytest.mark.parametrize("method", ["freeze", "stop"])
def test_validators_that_recover_or_join_come_to_rest(
    tmp_path: Path, crashes: list[BaseException], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    for name in ("_log_to", "logging.shutdown"):
        monkeypatch.setattr(f"{host_module.__name__}.{name}", lambda *_: None)
    monkeypatch.setattr(host_module, "tame_collector", lambda: 0)
    for number, is_ready in ((0, True), (3, False)):
        host = ValidatorHost(str(tmp_path), SCENARIO.model_dump_json(), 3, number, "127.0.0.1")
        (address,) = host.start(JOINS_AT)
        assert address.index == number
        getattr(host, method)()
        (view,) = host.observe().validators
        assert view.state.ready is is_ready
        if method != "stop":
            host.stop()
