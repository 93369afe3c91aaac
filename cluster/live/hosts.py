"""The hosts of a run, watched over: each host's actor, which process it is now, where its validators can be reached.

A host is *down* until its actor answers as another process than before, then *starting* until its validators have
recovered, then *up*. A host that was killed, or that died by itself, goes that way again: Ray starts its process, and
the driver has it start its validators and tells everybody their new addresses. So that a fault lasts as long as the
scenario says, the validators of a killed host are started no earlier than that.

No call waits for a host: each has at most one question open, and one that does not answer has no height in the next
sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cluster.live import processes
from cluster.live.host import HostView, ValidatorAddress, ValidatorView
from cluster.live.ray_session import RaySession, one_line
from cluster.live.transport import PeerAddress
from cluster.live.validator_loop import LoopState
from cluster.scenario import Scenario

LOOK_S: Final = 0.2
"""How long a round waits for answers."""
STALE_S: Final = 3.0
"""A host that did not answer for so long has no heights any more."""
HASH_SEEDS_A_RUN: Final = 1_000
"""Hosts of runs with neighbouring seeds get different hash seeds."""


class Phase(Enum):
    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    DEAD = "dead"
    """Ray does not start it again."""


class Host:
    """One host, as the driver knows it."""

    def __init__(self, number: int, actor: Any, validators: list[int], late: dict[int, int]) -> None:
        self.number = number
        self.actor = actor
        self.validators = validators
        """Indices of the validators that it carries."""
        self.late = late
        """Those of them that join later, and the heights at which they do."""
        self.phase = Phase.DOWN
        self.pid: int | None = None
        self.pid_before: int | None = None
        self.addresses: list[ValidatorAddress] = []
        self.states: dict[int, LoopState] = {}
        self.starts: dict[int, int] = {}
        self.why_dead = ""
        self.not_before = 0.0
        """The validators are started no earlier (monotonic seconds)."""
        self.question: Any = None
        self.answered = 0.0
        """When it last answered (monotonic seconds)."""
        self.messages_before = 0
        """Sent by incarnations that are gone, as far as it was told."""
        self.bytes_before = 0

    @property
    def is_running(self) -> bool:
        """Whether it is a process that carries validators, or is about to."""
        return self.phase in (Phase.STARTING, Phase.UP)

    @property
    def not_ready(self) -> list[int]:
        """Those of its validators that have no state to be asked for: down, or not recovered or joined yet."""
        if not self.is_running:
            return self.validators
        return [index for index in self.validators if index not in self.states or not self.states[index].ready]

    def height(self, index: int) -> int | None:
        """A validator's final height, ``None`` where it is not up or did not answer of late."""
        state = self.states.get(index)
        if state is None or not state.ready or time.monotonic() - self.answered > STALE_S:
            return None
        return state.height

    def is_started(self, height: int) -> bool:
        """Whether every validator was started that is there at a height."""
        return all(index in self.states for index in self.validators if self.late.get(index, 0) <= height)

    def went_down(self, down_s: float) -> None:
        """Its process is gone, or about to be; the next one starts validators after so many seconds."""
        self.phase = Phase.DOWN
        self.pid_before, self.pid = self.pid, None
        self.not_before = time.monotonic() + down_s
        self.messages_before += sum(state.messages_sent for state in self.states.values())
        self.bytes_before += sum(state.bytes_sent for state in self.states.values())
        self.states = {}
        self.question = None


class Hosts:
    """All hosts of a run."""

    def __init__(
        self,
        session: RaySession,
        on_view: Callable[[ValidatorView], None],
        on_up: Callable[[Host], None],
        on_lost: Callable[[Host, str], None],
    ) -> None:
        """``on_view`` gets what a validator saw, ``on_up`` a host that came up, ``on_lost`` one that died by itself."""
        self.all: list[Host] = []
        self._session = session
        self._on_view = on_view
        self._on_up = on_up
        self._on_lost = on_lost
        self._height = 0
        self.wants_stamps = True
        """Whether hosts are to hand over the last messages of their validators when they are looked at."""

    def create(self, scenario: Scenario, seed: int, folder: Path) -> None:
        """Have Ray create every host; :meth:`look` then brings them up."""
        section = scenario.validators
        scenario_json = scenario.model_dump_json()
        for number, place in enumerate(self._session.place_hosts(section.host_count)):
            carried = [index for index in range(section.count) if section.host_of(index) == number]
            late = {index: height for index, height in section.late.items() if index in carried}
            planned = sum(section.names.index(fault.whom) in carried for fault in scenario.faults)
            arguments = (str(folder.absolute()), scenario_json, seed, number, place.bind)
            hash_seed = seed * HASH_SEEDS_A_RUN + number + 1
            actor = self._session.start_host(place, planned, hash_seed, arguments)
            self.all.append(Host(number, actor, carried, late))

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def pids(self) -> list[int]:
        """The processes that the hosts are, or were last."""
        known = [pid for host in self.all for pid in (host.pid, host.pid_before)]
        return [pid for pid in known if pid is not None]

    @property
    def addresses(self) -> list[ValidatorAddress]:
        """Of every validator that was ever started, by index."""
        found = [address for host in self.all for address in host.addresses]
        return sorted(found, key=lambda address: address.index)

    def host_of(self, validator: int) -> Host:
        return next(host for host in self.all if validator in host.validators)

    def heights(self) -> list[int | None]:
        """By validator index."""
        count = sum(len(host.validators) for host in self.all)
        return [self.host_of(index).height(index) for index in range(count)]

    def totals(self) -> tuple[int, int]:
        """Messages and bytes sent between validators so far, dead incarnations included as far as they told."""
        states = [state for host in self.all for state in host.states.values()]
        messages = sum(host.messages_before for host in self.all) + sum(state.messages_sent for state in states)
        size = sum(host.bytes_before for host in self.all) + sum(state.bytes_sent for state in states)
        return messages, size

    # --- what is done -------------------------------------------------------------------------------------------------

    def look(self, height: int = 0, starts: bool = True) -> None:
        """One round at a final height: ask who has no question open, take the answers that come, act on them.

        Without ``starts`` no validator is started any more.
        """
        self._height = height
        for host in self.all:
            if host.question is None and host.phase is not Phase.DEAD:
                host.question = self._next_question(host, starts)
        questions = {host.question: host for host in self.all if host.question is not None}
        if not questions:
            return
        answered, _ = self._session.ray.wait(list(questions), num_returns=len(questions), timeout=LOOK_S)
        for question in answered:
            host = questions[question]
            host.question = None
            self._take_answer(host, question)

    def kill(self, host: Host, down_s: float) -> None:
        """Kill a host's process, for Ray to start it again; its validators start after ``down_s`` at the earliest."""
        self._session.ray.kill(host.actor, no_restart=False)
        host.went_down(down_s)

    def is_gone(self, host: Host) -> bool:
        """Whether the process that a host was before is gone; on another machine its successor says so."""
        if not self._session.is_ours or host.pid_before is None:
            return host.pid != host.pid_before
        return processes.find(host.pid_before) is None

    def ask_each(self, method: str, timeout_s: float, checkpoint: Callable[[], None]) -> list[tuple[Host, str]]:
        """Call a method of every host that runs, side by side. Returns who did not do it, and why.

        Hosts whose validators recover or join are asked too: what already runs there must come to rest with the others.
        """
        asked = {getattr(host.actor, method).remote(): host for host in self.all if host.is_running}
        left, deadline = list(asked), time.monotonic() + timeout_s
        failed: list[tuple[Host, str]] = []
        while left and time.monotonic() < deadline:
            done, left = self._session.ray.wait(left, num_returns=len(left), timeout=LOOK_S)
            for answer in done:
                try:
                    self._session.ray.get(answer)
                except self._session.ray.exceptions.RayError as error:
                    failed.append((asked[answer], one_line(error)))
            checkpoint()
        return failed + [(asked[answer], f"no answer within {timeout_s:g} s") for answer in left]

    # --- answers ------------------------------------------------------------------------------------------------------

    def _next_question(self, host: Host, starts: bool) -> Any:
        if starts and host.is_running and not host.is_started(self._height):
            return host.actor.start.remote(self._height)
        return host.actor.observe.remote(self.wants_stamps)

    def _take_answer(self, host: Host, question: Any) -> None:
        errors = self._session.ray.exceptions
        try:
            answer = self._session.ray.get(question)
        except errors.ActorUnavailableError as error:
            if host.is_running:
                self._lose(host, one_line(error))
        except errors.RayError as error:
            host.phase, host.why_dead = Phase.DEAD, one_line(error)
            self._on_lost(host, host.why_dead)
        else:
            self._take(host, answer)

    def _take(self, host: Host, answer: HostView | list[ValidatorAddress]) -> None:
        if isinstance(answer, HostView):
            self._take_view(host, answer)
        else:
            host.addresses = answer
            host.states = {address.index: host.states.get(address.index, _NOT_READY) for address in answer}
            host.phase = Phase.STARTING
            self.distribute()

    def _take_view(self, host: Host, view: HostView) -> None:
        for validator in view.validators:
            self._on_view(validator)
        if host.phase is Phase.DOWN:
            if view.pid != host.pid_before and time.monotonic() >= host.not_before:
                host.pid, host.phase = view.pid, Phase.STARTING
            return
        if view.pid != host.pid:
            self._lose(host, f"process {host.pid} ended, {view.pid} came in its place")
            return
        host.answered = time.monotonic()
        host.states = {validator.index: validator.state for validator in view.validators}
        host.starts = {validator.index: validator.starts for validator in view.validators}
        is_ready = all(state.ready for state in host.states.values())
        if host.phase is Phase.STARTING and is_ready and host.is_started(self._height):
            host.phase = Phase.UP
            self._on_up(host)

    def _lose(self, host: Host, reason: str) -> None:
        host.went_down(0.0)
        self._on_lost(host, reason)

    def distribute(self) -> None:
        """Tell every started host where all validators listen."""
        peers = {address.index: PeerAddress(*address.peers) for address in self.addresses}
        for host in self.all:
            if host.is_running:
                host.actor.set_peers.remote(peers)


_NOT_READY: Final = LoopState(
    height=0,
    ready=False,
    diverged=False,
    recovered_height=0,
    messages_sent=0,
    bytes_sent=0,
    snapshot_height=0,
    snapshot_chunks={},
)
