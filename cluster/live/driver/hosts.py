"""The hosts of a run, supervised: each host's actor, its current process, and the addresses of its validators.

A host is *down* until its actor answers as another process than before, then *starting* until its validators have
recovered, then *up*. A host that was killed or died goes that way again: Ray starts its process, and the driver starts
its validators and distributes their new addresses. The validators of a host that is held down are not started, so a
fault lasts as long as the scenario says. The new process performs :attr:`Host.pending_disk_operations` before it
starts validators. A host that gets other code is *stopping* first: it shuts down cleanly; another actor replaces it.

No call waits for a host: each has at most one question open, and a host that does not answer has no height in the next
sample. :meth:`Hosts.inject` sends the faults in force to all running hosts. Such an order is complete when every host
has answered, gone down or timed out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cluster.faults.link_faults import LinkCounts
from cluster.live.driver.ray_session import Place, RaySession, RemoteProcessSignals, one_line
from cluster.live.host.host import HostView, ValidatorAddress, ValidatorView
from cluster.live.host.lag import LagSpan
from cluster.live.host.validator_loop import LoopState
from cluster.live.injection import DelayCounts, Injection, LastWords
from cluster.live.network.transport import PeerAddress
from cluster.live.processes.processes import Process
from cluster.live.processes.signals import ProcessSignals
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import KEYWORDS, BitRotFault, DownFault
from cluster.scenario.sections.release import Release

LOOK_S: Final = 0.2
"""How long a round waits for answers."""
STALE_S: Final = 3.0
"""A host that did not answer for so long has no heights any more."""
ORDER_TIMEOUT_S: Final = 5.0
"""A host that did not answer an order for so long is not waited for any more."""
STOP_TIMEOUT_S: Final = 5.0
PREPARE_TIMEOUT_S: Final = 300.0
"""Hosts get other code after so long though it is not compiled yet."""
HASH_SEEDS_PER_RUN: Final = 1_000
"""Hosts of runs with neighbouring seeds get different hash seeds."""


class Phase(Enum):
    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    """In good order, for other code to take its place."""
    DEAD = "dead"
    """Ray does not start it again."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What validators did since the run began."""

    messages: int = 0
    """Sent to each other."""
    size: int = 0
    """Of these, in bytes."""
    lost: int = 0
    """Messages that never left."""
    core_seconds: float = 0.0
    """Processor time of the validators themselves, without transport, pages and whatever else a host does."""

    @staticmethod
    def of(state: LoopState) -> Totals:
        return Totals(state.messages_sent, state.bytes_sent, state.messages_lost, state.core_seconds)

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.messages + other.messages,
            self.size + other.size,
            self.lost + other.lost,
            self.core_seconds + other.core_seconds,
        )


class Host:
    """One host, as the driver knows it."""

    def __init__(self, number: int, place: Place, validators: list[int], late: dict[int, int]) -> None:
        self.number = number
        self.place = place
        self.actor: Any = None
        self.validators = validators
        """Indices of the validators that it carries."""
        self.late = late
        """Those of them that join later, and the heights at which they do."""
        self.release = Release()
        """The code that it runs."""
        self.version = ""
        """What its process calls that."""
        self.code = ""
        """The folder that its process took its code from."""
        self.phase = Phase.DOWN
        self.process: Process | None = None
        self.process_before: Process | None = None
        self.successor: Process | None = None
        """The process that answers while the host is down: that which it will be."""
        self.addresses: list[ValidatorAddress] = []
        self.states: dict[int, LoopState] = {}
        self.starts: dict[int, int] = {}
        self.why_dead = ""
        self.why_lost: str | None = None
        """Of a host that went down by itself, until its successor speaks."""
        self.deaths = 0
        """How many of its processes are known to be gone."""
        self.is_death_noted = True
        self.is_held_down = False
        """Its validators are not to be started."""
        self.is_paused = False
        """Its process is stopped: it answers nothing, and is not lost for that."""
        self.pending_disk_operations: list[tuple[str, tuple[Any, ...]]] = []
        """What the next process does before it starts validators: methods and their arguments."""
        self.delay_counts: dict[tuple[Process, int], DelayCounts] = {}
        """By process and validator."""
        self.link_counts: dict[tuple[Process, int], dict[int, LinkCounts]] = {}
        """By process and validator, of each fault of links."""
        self.old_file_sizes: dict[int, dict[str, int]] = {}
        self.lags: list[LagSpan] = []
        """What it told of its lag since somebody took that."""
        self.question: Any = None
        self.answered = 0.0
        """When it last answered (monotonic seconds)."""
        self.totals_before = Totals()
        """Of incarnations that are gone, as far as they told."""

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def pid_before(self) -> int | None:
        return None if self.process_before is None else self.process_before.pid

    @property
    def totals(self) -> Totals:
        """What its validators did so far, dead incarnations included."""
        return sum(map(Totals.of, self.states.values()), self.totals_before)

    @property
    def is_running(self) -> bool:
        """Whether it is a process that carries validators, or is about to."""
        return self.phase in (Phase.STARTING, Phase.UP)

    @property
    def can_answer(self) -> bool:
        """Whether it does what it was told, sooner or later."""
        return (self.is_running or self.phase is Phase.STOPPING) and not self.is_paused

    @property
    def not_ready(self) -> list[int]:
        """Those of its validators that have no state to be asked for: down, or not recovered or joined yet."""
        if not self.is_running:
            return self.validators
        return [index for index in self.validators if index not in self.states or not self.states[index].ready]

    def height(self, index: int) -> int | None:
        """A validator's final height, ``None`` where it is not up or did not answer of late."""
        state = self._newest_state(index)
        return None if state is None else state.height

    def view(self, index: int) -> int | None:
        """The view that a validator is in, ``None`` likewise."""
        state = self._newest_state(index)
        return None if state is None else state.view

    def state_word(self, index: int) -> str:
        """What a validator is, in a word, for whoever looks on."""
        state = self.states.get(index)
        if state is None and self.phase is Phase.UP:
            return "absent"  # it joins later
        if state is None or self.phase is not Phase.UP:
            return self.phase.value
        if state.diverged:
            return "diverged"
        if time.monotonic() - self.answered > STALE_S:
            return "silent"
        return "up" if state.ready else "joining"

    def _newest_state(self, index: int) -> LoopState | None:
        """A validator's state, unless it is not up or old."""
        state = self.states.get(index)
        return None if state is None or not state.ready or time.monotonic() - self.answered > STALE_S else state

    def is_started(self, height: int) -> bool:
        """Whether every validator was started that is there at a height."""
        return all(index in self.states for index in self.validators if self.late.get(index, 0) <= height)

    def went_down(self, why_lost: str | None = None) -> None:
        """Its process is gone, or about to be; by itself where it is said why."""
        self.phase = Phase.DOWN
        if self.process is not None:
            self.process_before, self.is_death_noted = self.process, False
        self.process = self.successor = None
        self.why_lost = why_lost
        self.is_paused = False
        self.totals_before = self.totals
        self.states = {}
        self.question = None


@dataclass(slots=True)
class _Order:
    """Something that hosts were told."""

    pending: dict[Any, Host | None]
    """Who has not answered yet, by the answer to come; no host where a task of its own does it."""
    then: Callable[[], None]
    until: float
    """Monotonic seconds."""
    on_failure: Callable[[str], None]
    """Gets why one could not be carried out."""


def _went_down_meanwhile(why: str) -> None:
    """As the next look finds."""


class Hosts:
    """All hosts of a run."""

    def __init__(
        self,
        session: RaySession,
        on_view: Callable[[ValidatorView], None],
        on_up: Callable[[Host], None],
        on_lost: Callable[[Host, str, LastWords | None], None],
        on_problem: Callable[[str], None],
    ) -> None:
        """``on_view`` gets what a validator saw, ``on_up`` a host that came up, ``on_problem`` what went wrong besides.

        ``on_lost`` gets a host that went down by itself: why, as far as Ray knows, and what its process said last.
        """
        self.all: list[Host] = []
        self._session = session
        self._on_view = on_view
        self._on_up = on_up
        self._on_lost = on_lost
        self._on_problem = on_problem
        self._height = 0
        self.wants_stamps = True
        """Whether hosts are to hand over the last messages of their validators when they are looked at."""
        self._injection = Injection()
        self._orders: list[_Order] = []
        self._compiled: set[tuple[Place, str]] = set()
        """Where code of other folders was compiled, or is being."""
        self._signals: dict[Place, ProcessSignals | RemoteProcessSignals] = {}
        self._start_actor: Callable[[Host], Any] = _no_actor

    def create(self, scenario: Scenario, seed: int, folder: Path, bind: str) -> None:
        """Have Ray create every host, to listen at ``bind`` on a single node; :meth:`look` then brings them up."""
        section = scenario.validators
        scenario_json = scenario.model_dump_json()

        def start_actor(host: Host) -> Any:
            arguments = (str(folder.absolute()), scenario_json, seed, host.number, host.place.bind)
            hash_seed = seed * HASH_SEEDS_PER_RUN + host.number + 1
            planned = planned_deaths(scenario, host.validators)
            return self._session.start_host(host.place, planned, hash_seed, arguments, host.release)

        self._start_actor = start_actor
        for number, place in enumerate(self._session.place_hosts(section.host_count, bind)):
            carried = [index for index in range(section.count) if section.host_of(index) == number]
            late = {index: height for index, height in section.late.items() if index in carried}
            host = Host(number, place, carried, late)
            host.actor = start_actor(host)
            self.all.append(host)

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[tuple[Place, Process]]:
        """The current and the last processes of all hosts, with their places."""
        known = [
            (host.place, each) for host in self.all for each in (host.process, host.process_before, host.successor)
        ]
        return [(place, process) for place, process in known if process is not None]

    @property
    def addresses(self) -> list[ValidatorAddress]:
        """Of every validator that was ever started, by index."""
        found = [address for host in self.all for address in host.addresses]
        return sorted(found, key=lambda address: address.index)

    def host_of(self, validator: int) -> Host:
        return next(host for host in self.all if validator in host.validators)

    @property
    def _everybody(self) -> range:
        """Every validator's index."""
        return range(sum(len(host.validators) for host in self.all))

    def heights(self) -> list[int | None]:
        """By validator index."""
        return [self.host_of(index).height(index) for index in self._everybody]

    def views(self) -> list[int | None]:
        """By validator index; ``None`` where it is not up or did not answer of late."""
        return [self.host_of(index).view(index) for index in self._everybody]

    def state_words(self) -> list[str]:
        """What each validator is, in a word, by index."""
        return [self.host_of(index).state_word(index) for index in self._everybody]

    def totals(self) -> Totals:
        """Of all validators so far; dead incarnations included as far as they told."""
        return sum((host.totals for host in self.all), Totals())

    def take_lags(self) -> list[tuple[int, LagSpan]]:
        """By host's number, what was told of lag since the last call."""
        taken = [(host.number, span) for host in self.all for span in host.lags]
        for host in self.all:
            host.lags = []
        return taken

    def link_counts(self, key: int) -> LinkCounts:
        """What became of the messages that a fault of links was there for, as far as hosts told."""
        told = (counts.get(key) for host in self.all for counts in host.link_counts.values())
        return sum((counts for counts in told if counts is not None), LinkCounts())

    # --- what is done -------------------------------------------------------------------------------------------------

    def look(self, height: int = 0, starts: bool = True) -> None:
        """One round at a final height: ask who has no question open, take the answers that come, act on them.

        Without ``starts`` no validator is started any more.
        """
        self._height = height
        for host in self.all:
            if host.question is None and host.phase not in (Phase.DEAD, Phase.STOPPING) and not host.is_paused:
                host.question = self._next_question(host, starts)
        questions = {host.question: host for host in self.all if host.question is not None and not host.is_paused}
        if questions:
            answered, _ = self._session.ray.wait(list(questions), num_returns=len(questions), timeout=LOOK_S)
            for question in answered:
                host = questions[question]
                host.question = None
                self._take_answer(host, question)
        self._take_orders(0.0)
        self._note_deaths()

    def inject(self, injection: Injection, then: Callable[[], None]) -> None:
        """Tell all hosts what faults do from now on; ``then`` is called once that is so."""
        self._injection = injection
        running = [host for host in self.all if host.is_running and not host.is_paused]
        self._order({host.actor.inject.remote(injection): host for host in running}, then, ORDER_TIMEOUT_S)
        self._take_orders(LOOK_S)

    def kill(self, host: Host, by_ray: bool) -> None:
        """Kill a host's process, by Ray or by a signal, for Ray to start another one, which is held down.

        Ray asks the process to end, which one that is stopped cannot do.
        """
        if host.process is None:
            return
        if by_ray and not host.is_paused:
            self._session.ray.kill(host.actor, no_restart=False)
        else:
            self._signals_for(host).kill(host.process)
            self._signals_for(host).resume(host.process)
        host.is_held_down = True
        host.went_down()

    def prepare(
        self, hosts: Sequence[Host], release: Release, then: Callable[[], None], on_failure: Callable[[str], None]
    ) -> None:
        """Have compiled what code of another folder compiles at first use, wherever hosts are that will run it.

        Validators that did that themselves would be silent for as long, each in its turn. What was compiled before is
        not compiled again; ``then`` is called even where it failed.
        """
        code = release.code
        new = set() if code is None else {(host.place, code) for host in hosts} - self._compiled
        self._compiled |= new
        pending: dict[Any, Host | None] = {self._session.warm_up(*each): None for each in new}
        told = f"{code} could not be compiled beforehand"
        self._order(pending, then, PREPARE_TIMEOUT_S, lambda why: on_failure(f"{told}: {why}"))

    @property
    def is_compiling(self) -> bool:
        return any(host is None for order in self._orders for host in order.pending.values())

    def replace(self, host: Host, release: Release) -> None:
        """Stop a host in good order, and have an actor with other code take its place, which is held down."""
        self.resume(host)
        host.release, host.is_held_down = release, True
        if not host.is_running:
            self._take_place(host)
            return
        host.phase = Phase.STOPPING
        self._order({host.actor.stop.remote(): host}, lambda: self._take_place(host), STOP_TIMEOUT_S)

    def pause(self, host: Host) -> None:
        """Stop a host's process (SIGSTOP), where it has one and does not stand still already."""
        if host.process is not None and not host.is_paused and host.phase is not Phase.STOPPING:
            host.is_paused = self._signals_for(host).pause(host.process)

    def resume(self, host: Host) -> None:
        """Let a process that was stopped go on, and tell it what faults do by now."""
        if not host.is_paused or host.process is None:
            return
        self._signals_for(host).resume(host.process)
        host.is_paused = False
        host.answered = time.monotonic()
        self._order({host.actor.inject.remote(self._injection): host}, nothing, ORDER_TIMEOUT_S)

    def is_seen_paused(self, host: Host) -> bool:
        """Whether a host's process stands still at this moment (state T)."""
        return host.process is not None and self._signals_for(host).is_paused(host.process)

    def resume_all(self) -> None:
        """Let everything go on that is stopped. Afterwards nothing can be stopped any more."""
        for signals in self._signals.values():
            signals.close()
        for host in self.all:
            host.is_paused = False

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

    def distribute(self) -> None:
        """Tell every started host where all validators listen."""
        peers = {address.index: PeerAddress(*address.peers) for address in self.addresses}
        for host in self.all:
            if host.is_running:
                host.actor.set_peers.remote(peers)

    def _signals_for(self, host: Host) -> ProcessSignals | RemoteProcessSignals:
        if host.place not in self._signals:
            self._signals[host.place] = self._session.signals(host.place)
        return self._signals[host.place]

    def _take_place(self, host: Host) -> None:
        """The process of before is ended, however far it came, and another actor is created."""
        self._session.ray.kill(host.actor, no_restart=True)
        host.went_down()
        host.actor = self._start_actor(host)

    def _note_deaths(self) -> None:
        """See which processes are gone; their successors may not have answered yet."""
        for host in self.all:
            before = host.process_before
            if not host.is_death_noted and before is not None and not self._signals_for(host).is_running(before):
                self._note_death(host)

    def _note_death(self, host: Host) -> None:
        if not host.is_death_noted:
            host.is_death_noted = True
            host.deaths += 1

    # --- orders -------------------------------------------------------------------------------------------------------

    def _order(
        self,
        pending: Mapping[Any, Host | None],
        then: Callable[[], None],
        timeout_s: float,
        on_failure: Callable[[str], None] = _went_down_meanwhile,
    ) -> None:
        self._orders.append(_Order(dict(pending), then, time.monotonic() + timeout_s, on_failure))

    def _take_orders(self, wait_s: float) -> None:
        """Take the answers to orders, and go on behind those that are carried out."""
        pending = [answer for order in self._orders for answer in order.pending]
        done: set[Any] = set()
        if pending:
            done = set(self._session.ray.wait(pending, num_returns=len(pending), timeout=wait_s)[0])
        for order in list(self._orders):
            for answer, host in list(order.pending.items()):
                if answer in done:
                    self._take_order(order, host, answer)
                if answer in done or (host is not None and not host.can_answer):
                    del order.pending[answer]
            is_late = time.monotonic() > order.until
            if order.pending and is_late:
                order.on_failure("it takes too long")
            if is_late or not order.pending:
                self._orders.remove(order)
                order.then()

    def _take_order(self, order: _Order, host: Host | None, answer: Any) -> None:
        try:
            view = self._session.ray.get(answer)
        except self._session.ray.exceptions.RayError as error:
            order.on_failure(one_line(error))
            return
        if host is not None and isinstance(view, HostView):
            self._take_view(host, view)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _next_question(self, host: Host, starts: bool) -> Any:
        if host.phase is Phase.DOWN and host.successor is not None and host.pending_disk_operations:
            method, arguments = host.pending_disk_operations[0]
            return getattr(host.actor, method).remote(*arguments)
        if starts and host.is_running and not host.is_started(self._height):
            return host.actor.start.remote(self._height, self._injection)
        return host.actor.observe.remote(self.wants_stamps)

    def _take_answer(self, host: Host, question: Any) -> None:
        errors = self._session.ray.exceptions
        try:
            answer = self._session.ray.get(question)
        except errors.ActorUnavailableError as error:
            if host.is_running:
                host.went_down(one_line(error))
        except errors.RayError as error:
            host.phase, host.why_dead = Phase.DEAD, one_line(error)
            self._on_lost(host, host.why_dead, None)
        else:
            self._take(host, answer)

    def _take(self, host: Host, answer: HostView | list[ValidatorAddress] | str | None) -> None:
        if isinstance(answer, HostView):
            self._take_view(host, answer)
        elif isinstance(answer, list):
            host.addresses = answer
            host.states = {address.index: host.states.get(address.index, _NOT_READY) for address in answer}
            host.phase = Phase.STARTING
            self.distribute()
        else:
            host.pending_disk_operations.pop(0)
            if answer is not None:
                self._on_problem(answer)

    def _take_view(self, host: Host, view: HostView) -> None:
        process = Process(view.pid, view.started)
        host.lags += view.lags
        for validator in view.validators:
            self._on_view(validator)
            host.delay_counts[process, validator.index] = validator.delay_counts
            host.link_counts[process, validator.index] = validator.link_counts
            host.old_file_sizes[validator.index] = validator.old_file_sizes
        if host.phase is Phase.STOPPING:
            return
        if host.phase is Phase.DOWN:
            self._meet(host, process, view)
            return
        if process != host.process:
            host.went_down(f"process {host.pid} ended, {view.pid} came in its place")
            self._meet(host, process, view)
            return
        host.answered = time.monotonic()
        host.states = {validator.index: validator.state for validator in view.validators}
        host.starts = {validator.index: validator.starts for validator in view.validators}
        is_ready = all(state.ready for state in host.states.values())
        if host.phase is Phase.STARTING and is_ready and host.is_started(self._height):
            host.phase = Phase.UP
            self._on_up(host)

    def _meet(self, host: Host, process: Process, view: HostView) -> None:
        """A host that is down answers."""
        why_lost = host.why_lost
        if process == host.process_before:
            if why_lost is not None:  # it had not died, it only did not answer
                host.process, host.process_before, host.phase = process, None, Phase.STARTING
                host.why_lost, host.is_death_noted = None, True
            return
        self._note_death(host)
        host.successor, host.version, host.code = process, view.version, view.code
        if why_lost is not None:
            host.why_lost = None
            words = view.last_words
            is_its_own = words is not None and words.pid == host.pid_before
            self._on_lost(host, why_lost, words if is_its_own else None)
        if not (host.is_held_down or host.pending_disk_operations):
            host.process, host.phase = process, Phase.STARTING


def planned_deaths(scenario: Scenario, carried: list[int]) -> int:
    """How often the processes of a host may end because the scenario says so."""
    names = {scenario.validators.names[index] for index in carried}
    planned = 0
    for plan in scenario.planned_faults:
        if isinstance(plan, DownFault) and (plan.target[0] in KEYWORDS or names.intersection(plan.target)):
            planned += 2 if isinstance(plan, BitRotFault) else 1
    return planned


def _no_actor(_host: Host) -> Any:
    raise AssertionError("create() comes first")


def nothing() -> None:
    """Nobody waits for an order."""


_NOT_READY: Final = LoopState(
    height=0,
    ready=False,
    view=0,
    leader=0,
    diverged=False,
    recovered_height=0,
    messages_sent=0,
    bytes_sent=0,
    snapshot_height=0,
    snapshot_chunks={},
    messages_lost=0,
    core_seconds=0.0,
)
