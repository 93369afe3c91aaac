"""The hosts of a run, supervised: each host's actor, its current process, and the addresses of its validators.

A host is *down* until its actor answers as another process than before, then *starting* until its validators have
recovered, then *up*. A host that was killed or died repeats these phases: Ray starts its process, and the
driver starts its validators and distributes their new addresses. A host that is held down gets no validators started,
so a fault lasts as long as the scenario says. The new process performs :attr:`Host.pending_disk_operations` before it
starts validators. A host that gets other code is *stopping* first: it shuts down cleanly; another actor replaces it.

No call waits for a host: each has at most one question open, and a host that does not answer has no height in the next
sample. :meth:`Hosts.inject` sends the faults in force to all running hosts. Such an order is complete when every host
has answered, gone down or timed out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from cluster.faults.kind import plans_of
from cluster.faults.link_effects import LinkCounts
from cluster.live.driver.node_watch import NodeWatch
from cluster.live.driver.ray_session import RaySession, RemoteProcessSignals, one_line, raise_bug
from cluster.live.driver.supervised_host import Host
from cluster.live.handover.left import LeftHost
from cluster.live.host.host import DATA_FOLDER, HostView, ValidatorAddress, ValidatorView
from cluster.live.host.lag import LagSpan
from cluster.live.host.reports import Totals
from cluster.live.injection import Injection
from cluster.live.network.transport import PeerAddress
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes import resumption
from cluster.live.processes.history import Phase
from cluster.live.processes.last_words import LastWords
from cluster.live.processes.processes import Process
from cluster.live.processes.signals import ProcessSignals
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import FIRST_VERSION, Release

T = TypeVar("T")

LOOK_S: Final = 0.2
"""How long a round waits for answers."""
NODE_ENDS_WITHIN_S: Final = 2.0
"""A node that shuts down ends its actors first, and itself within this time."""
ORDER_TIMEOUT_S: Final = 5.0
"""A host that did not answer an order for this long is not waited for any more."""
STOP_TIMEOUT_S: Final = 5.0
PREPARE_TIMEOUT_S: Final = 300.0
"""Timeout for compiling other code. Hosts get the code after this time even if it is not compiled yet."""
HASH_SEEDS_PER_RUN: Final = 1_000
"""Distance between the hash seeds of runs with neighbouring seeds, so that all their hosts get different ones."""


@dataclass(slots=True)
class _Order:
    """A request sent to several hosts, and what is called once all have answered."""

    pending: dict[Any, Host | None]
    """Hosts that have not answered yet, keyed by the pending answer; ``None`` for a task without a host."""
    then: Callable[[], None] | None
    until: float
    """Time at which the order times out (monotonic seconds)."""
    on_failure: Callable[[str], None]
    """Receives the reason if the order could not be carried out."""


class Orders:
    """The orders (requests to hosts) under way.

    ``on_view`` gets the reports with which hosts answer.
    """

    def __init__(self, ray: Any, on_view: Callable[[Host, HostView], None]) -> None:
        self._ray = ray
        self._on_view = on_view
        self._orders: list[_Order] = []

    @property
    def have_tasks(self) -> bool:
        """Whether an order waits for a task without a host."""
        return any(host is None for order in self._orders for host in order.pending.values())

    def give(
        self,
        pending: Mapping[Any, Host | None],
        then: Callable[[], None] | None,
        timeout_s: float,
        on_failure: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Add an order whose answers are ``pending``. ``on_failure`` gets the reason if it fails.

        ``then`` is called once every host has answered or gone down, or the order timed out.
        """
        self._orders.append(_Order(dict(pending), then, time.monotonic() + timeout_s, on_failure))

    def look(self, wait_s: float) -> None:
        """Take the answers that arrive, and finish the orders that are complete."""
        pending = [answer for order in self._orders for answer in order.pending]
        done: set[Any] = set()
        if pending:
            done = set(self._ray.wait(pending, num_returns=len(pending), timeout=wait_s)[0])
        for order in list(self._orders):
            for answer, host in list(order.pending.items()):
                if answer in done:
                    self._take(order, host, answer)
                if answer in done or (host is not None and not host.can_answer):
                    del order.pending[answer]
            is_late = time.monotonic() > order.until
            if order.pending and is_late:
                order.on_failure("it takes too long")
            if is_late or not order.pending:
                self._orders.remove(order)
                if order.then is not None:
                    order.then()

    def _take(self, order: _Order, host: Host | None, answer: Any) -> None:
        try:
            view = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            raise_bug(error)
            order.on_failure(one_line(error))
            return
        if host is not None and isinstance(view, HostView):
            self._on_view(host, view)


class Hosts:
    """Supervises all hosts of a run."""

    def __init__(
        self,
        session: RaySession,
        on_view: Callable[[ValidatorView], None],
        on_up: Callable[[Host], object],
        on_lost: Callable[[Host, str, LastWords | None], None],
        on_problem: Callable[[str], None],
        nodes: NodeWatch,
    ) -> None:
        """``on_view`` gets the reports of validators, ``on_up`` a host that came up, ``on_problem`` other problems.

        ``on_lost`` gets a host that went down by itself: the reason that Ray knows, and the last words of its process.
        """
        self.all: list[Host] = []
        self.nodes = nodes
        self._session = session
        self._on_view = on_view
        self._on_up = on_up
        self._on_lost = on_lost
        self._on_problem = on_problem
        self._height = 0
        self.wants_stamps = True
        """Whether looks ask hosts for the last messages of their validators."""
        self.wants_taken = False
        """Whether looks ask hosts for the transactions that their validators take from clients."""
        self._injection = Injection()
        self._orders = Orders(session.ray, self._take_view)
        self._compiled: set[tuple[Place, str]] = set()
        """Places where code of other folders was compiled, or is being compiled."""
        self._signals: dict[Place, ProcessSignals | RemoteProcessSignals] = {}
        self._start_actor: Callable[[Host], Any]
        self._folder = Path()
        """The run's folder; absolute once hosts are created."""

    def create(self, scenario: Scenario, seed: int, folder: Path, bind: str) -> None:
        """Create every host's actor; :meth:`look` then brings the hosts up.

        ``bind`` is the address at which hosts listen in a Ray of our own, or on a single node.
        """
        self._begin(scenario, seed, folder)
        for number, place in enumerate(self.nodes.place_all(scenario, bind, self._start_anew)):
            validators, late = _carried(scenario, number)
            host = Host(number=number, place=place, validators=validators, late=late)
            self._start_anew(host)
            self.all.append(host)
        self.nodes.watch(self.all)

    def adopt(
        self, scenario: Scenario, seed: int, folder: Path, bind: str, left: Sequence[LeftHost], lost_nodes: Set[str]
    ) -> None:
        """Supervise the hosts of another driver; otherwise as :meth:`create`.

        One that was to get other code is told again to shut down, for that.
        """
        self._begin(scenario, seed, folder)
        self.all.extend(Host.of(each, number, *_carried(scenario, number)) for number, each in enumerate(left))
        for host in self.all:
            host.find(self._session.find_host, self._session.forget)
        self.nodes.take_over(self.all, scenario, bind, self._start_anew, lost_nodes)
        for host in self.all:
            if host.phase is Phase.STOPPING:
                self._stop(host)

    def _begin(self, scenario: Scenario, seed: int, folder: Path) -> None:
        judging = {"checks", "metrics"}  # which, as sections, packages may have that are only here
        scenario_json = scenario.model_dump_json(include=set(Scenario.model_fields), exclude={"success": judging})
        self._folder = folder.absolute()

        def start_actor(host: Host) -> Any:
            arguments = (str(self._folder), scenario_json, seed, host.number, host.place.bind)
            hash_seed = seed * HASH_SEEDS_PER_RUN + host.number + 1
            planned = host.processes.planned_kills = planned_deaths(scenario, host.validators)
            named = host.release, host.actor_name, self.nodes.lease_s
            return self._session.start_host(host.place, planned, hash_seed, arguments, *named)

        self._start_actor = start_actor

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[tuple[Place, Process]]:
        """The processes of all hosts that may still run, with their places."""
        return [(host.place, process) for host in self.all for process in host.processes.known]

    @property
    def addresses(self) -> list[ValidatorAddress]:
        """Addresses of every validator that was ever started, by index."""
        found = [address for host in self.all for address in host.reports.addresses]
        return sorted(found, key=lambda address: address.index)

    def urls(self, among: Iterable[Host]) -> dict[int, str]:
        """The URLs of the validators of some hosts that are ready, by index."""
        addresses = [(host, address) for host in among for address in host.reports.addresses]
        return {address.index: address.url for host, address in addresses if address.index not in host.not_ready}

    def host_of(self, validator: int) -> Host:
        return next(host for host in self.all if validator in host.validators)

    def carrying(self, validators: Sequence[int]) -> list[Host]:
        """The hosts of some validators, each once."""
        return list({host.number: host for host in map(self.host_of, validators)}.values())

    def by_validator(self, read: Callable[[Host, int], T]) -> list[T]:
        """A value of each validator, by index, read from its host."""
        count = sum(len(host.validators) for host in self.all)
        return [read(self.host_of(index), index) for index in range(count)]

    def heights_in_words(self, names: Sequence[str]) -> str:
        """The height of every validator."""
        heights = zip(names, self.by_validator(Host.height), strict=True)
        return ", ".join(f"{name} {'does not answer' if at is None else f'is at height {at}'}" for name, at in heights)

    def totals(self) -> Totals:
        """The totals of all validators so far, with those of dead processes as far as they reported."""
        return Totals(*map(sum, zip(*(host.reports.totals for host in self.all), strict=True)))

    def take_lags(self) -> list[tuple[int, LagSpan]]:
        """Lags reported since the last call, by host number."""
        return [(host.number, span) for host in self.all for span in host.reports.take_lags()]

    def link_counts(self, key: int) -> LinkCounts:
        """Effects of a fault of links on messages, as far as hosts reported."""
        return sum((host.reports.link_counts(key) for host in self.all), LinkCounts())

    # --- what is done -------------------------------------------------------------------------------------------------

    def look(self, height: int = 0, starts: bool = True) -> None:
        """Do one round at a final height: ask each host that has no open question, take the answers, act on them.

        Without ``starts`` no validator is started any more.
        """
        self._height = height
        self.nodes.look()
        for host in self.all:
            if (
                host.is_placed
                and host.question is None
                and host.phase not in (Phase.DEAD, Phase.STOPPING)
                and not host.is_paused
            ):
                host.question = self._next_question(host, starts)
        questions = {host.question: host for host in self.all if host.question is not None and not host.is_paused}
        if questions:
            answered, _ = self._session.ray.wait(list(questions), num_returns=len(questions), timeout=LOOK_S)
            for question in answered:
                host = questions[question]
                host.question = None
                self._take_answer(host, question)
        self._orders.look(0.0)
        self._note_deaths()

    def hear_from_all(self, height: int, timeout_s: float, checkpoint: Callable[[], None]) -> None:
        """Query the hosts that another driver left until each has answered, is gone or stopped, or takes too long."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and any(
            host.is_silent and host.is_running and not host.is_paused for host in self.all
        ):
            self.look(height)
            checkpoint()

    def inject(self, injection: Injection, then: Callable[[], None] | None) -> None:
        """Send all hosts the faults in force from now on; ``then`` is called once they have them."""
        self._injection = injection
        running = [host for host in self.all if host.is_running and not host.is_paused]
        self._orders.give({host.actor.inject.remote(injection): host for host in running}, then, ORDER_TIMEOUT_S)
        self._orders.look(LOOK_S)

    def kill(self, host: Host, by_ray: bool) -> None:
        """Kill a host's process, by Ray or by a signal. Ray starts another one, which is held down.

        A paused process is always killed by a signal: Ray asks a process to end, and a stopped one cannot answer. Ray
        restarts an actor for each death that the scenario plans, and a few times more. An unplanned kill uses none of
        these restarts: the host gets another actor.
        """
        process = host.processes.current
        if process is None:
            return
        by_signal = host.is_paused or not by_ray
        if by_signal:
            self._signals_for(host).kill(process)
            self._signals_for(host).resume(process)
        host.is_held_down = True
        if not host.processes.planned_kills:
            self.take_place(host)
            return
        host.processes.planned_kills -= 1
        if not by_signal:
            self._session.ray.kill(host.actor, no_restart=False)
        host.went_down()

    def prepare(
        self,
        hosts: Sequence[Host],
        release: Release,
        then: Callable[[], None] | None,
        on_failure: Callable[[str], None],
    ) -> None:
        """Compile code of another folder beforehand, on each node with hosts that will run it.

        Otherwise each validator would be silent while it compiles at first use. Nothing is compiled twice; ``then``
        is called even if it failed.
        """
        code = release.code
        new = set() if code is None else {(host.place, code) for host in hosts} - self._compiled
        self._compiled |= new
        pending: dict[Any, Host | None] = {self._session.warm_up(*each): None for each in new}
        problem = f"{code} could not be compiled beforehand"
        self._orders.give(pending, then, PREPARE_TIMEOUT_S, lambda why: on_failure(f"{problem}: {why}"))

    @property
    def is_compiling(self) -> bool:
        return self._orders.have_tasks

    def replace(self, host: Host, release: Release) -> None:
        """Shut a host down cleanly, and have an actor with other code take its place, which is held down."""
        self.resume(host)
        host.release = release
        host.is_held_down = True
        if not host.is_running:
            self.take_place(host)
            return
        host.phase = Phase.STOPPING
        self._stop(host)

    def _stop(self, host: Host) -> None:
        self._orders.give({host.actor.stop.remote(): host}, partial(self.take_place, host), STOP_TIMEOUT_S)

    def pause(self, host: Host) -> bool:
        """Stop a host's process (SIGSTOP), if it has one. Returns whether it is stopped at this moment (state T)."""
        process = host.processes.current
        if process is None or host.phase is Phase.STOPPING:
            return False
        resumed = resumption.note_file(self._folder / DATA_FOLDER, host.number)
        is_stopped = self._signals_for(host).pause(process, resumed)
        host.is_paused = host.is_paused or is_stopped
        return is_stopped

    def resume(self, host: Host) -> None:
        """Resume a process that was stopped, and send it the faults in force by now."""
        process = host.processes.current
        if not host.is_paused or process is None:
            return
        self._signals_for(host).resume(process)
        host.is_paused = False
        host.note_answer()
        self._orders.give({host.actor.inject.remote(self._injection): host}, None, ORDER_TIMEOUT_S)

    def resume_all(self) -> None:
        """Resume every stopped process. Afterwards nothing can be stopped any more."""
        for signals in self._signals.values():
            signals.close()
        for host in self.all:
            host.is_paused = False

    def ask_each(self, method: str, timeout_s: float, checkpoint: Callable[[], None]) -> list[tuple[Host, str]]:
        """Call a method of every running host, concurrently. Returns the hosts that failed, and why.

        Hosts whose validators recover or join are asked too: validators that run there must come to rest with the
        others.
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
                    raise_bug(error)
                    failed.append((asked[answer], one_line(error)))
            checkpoint()
        return failed + [(asked[answer], f"no answer within {timeout_s:g} s") for answer in left]

    def allow_pruning(self, heights: Mapping[int, int]) -> None:
        """Let validators prune their blocks up to heights, keyed by validator index, without waiting for an answer."""
        for host in self.all:
            carried = {index: heights[index] for index in host.validators if index in heights}
            if carried and host.phase is Phase.UP and not host.is_paused:
                host.actor.allow_pruning.remote(carried)

    def distribute(self) -> None:
        """Send every started host the addresses of all validators."""
        peers = {address.index: PeerAddress(*address.peers) for address in self.addresses}
        for host in self.all:
            if host.is_running:
                host.actor.set_peers.remote(peers)

    @property
    def actors_so_far(self) -> int:
        """Number of actors created so far for all hosts. When it changes, a checkpoint is due: another driver must know
        a new actor before validators start there.
        """
        return sum(host.processes.actors for host in self.all)

    def _signals_for(self, host: Host) -> ProcessSignals | RemoteProcessSignals:
        if host.place not in self._signals:
            self._signals[host.place] = self._session.signals(host.place)
        return self._signals[host.place]

    def take_place(self, host: Host) -> None:
        """Kill a host's actor, even if its shutdown is incomplete, and create another one with the host's new code."""
        if not host.is_placed:
            return  # the actor that it gets elsewhere has the other code
        self._session.ray.kill(host.actor, no_restart=True)
        host.went_down(host.why_lost)  # an untold loss is told once the other actor answers
        self._start_anew(host)

    def _start_anew(self, host: Host) -> None:
        host.processes.actors += 1
        host.actor = self._start_actor(host)

    def _note_deaths(self) -> None:
        """Note which processes are gone; their successors may not have answered yet."""
        for host in self.all:
            dying = host.processes.dying
            if dying is not None and not self._signals_for(host).is_running(dying):
                host.processes.note_death()

    # --- answers ------------------------------------------------------------------------------------------------------

    def _next_question(self, host: Host, starts: bool) -> Any:
        if host.phase is Phase.DOUBTED:
            return self._session.outlast(host.place.node_id, NODE_ENDS_WITHIN_S)
        if host.phase is Phase.DOWN and host.processes.successor is not None and host.pending_disk_operations:
            method, arguments = host.pending_disk_operations[0]
            return getattr(host.actor, method).remote(*arguments)
        if starts and host.is_running and not host.is_started(self._height):
            return host.actor.start.remote(self._height, self._injection)
        if self.wants_taken and host.processes.version in ("", FIRST_VERSION):  # other code may not know the word
            return host.actor.observe.remote(self.wants_stamps, True)
        return host.actor.observe.remote(self.wants_stamps)

    def _take_answer(self, host: Host, question: Any) -> None:
        errors = self._session.ray.exceptions
        try:
            answer = self._session.ray.get(question)
        except errors.ActorUnavailableError as error:
            if host.is_running:
                host.went_down(one_line(error))
        except errors.RayError as error:
            if isinstance(error, TimeoutError):
                return  # its process is there, and too busy to answer: it is asked again
            raise_bug(error)
            if self.nodes.is_lost(host):
                return  # it goes to another node
            if host.phase is not Phase.DOUBTED:
                host.doubt(one_line(error))
            if self.nodes.are_watched:
                return  # its node is asked
            self._on_lost(host, host.give_up(), None)
        else:
            if host.phase is Phase.DOUBTED:
                self._on_lost(host, host.give_up(), None)
            else:
                self._take(host, answer)

    def _take(self, host: Host, answer: HostView | list[ValidatorAddress] | str | None) -> None:
        if isinstance(answer, HostView):
            self._take_view(host, answer)
        elif isinstance(answer, list):
            host.reports.started(answer)
            if host.phase is not Phase.STOPPING:
                host.phase = Phase.STARTING
            self.distribute()
        else:
            host.pending_disk_operations.pop(0)
            if answer is not None:
                self._on_problem(answer)

    def _take_view(self, host: Host, view: HostView) -> None:
        process = Process(view.pid, view.started, view.namespace)
        for validator in view.validators:
            self._on_view(validator)
        host.reports.take(process, view)
        if host.phase is Phase.STOPPING:
            return
        if host.phase is Phase.DOWN:
            self._meet(host, process, view)
            return
        if process != host.processes.current:
            host.went_down(f"process {host.pid} ended, {view.pid} came in its place")
            self._meet(host, process, view)
            return
        host.note_answer()
        host.reports.take_states(view)
        is_ready = all(state.ready for state in host.reports.states.values())
        if host.phase is Phase.STARTING and is_ready and host.is_started(self._height):
            host.phase = Phase.UP
            self._on_up(host)

    def _meet(self, host: Host, process: Process, view: HostView) -> None:
        """Handle the answer of a host that is down."""
        processes, why_lost = host.processes, host.why_lost
        if process == processes.last:
            if why_lost is not None:
                host.revive()
            return
        processes.note_death()
        processes.successor, processes.version, processes.code = process, view.version, view.code
        if why_lost is not None:
            host.why_lost = None
            words, last = view.last_words, processes.last
            is_its_own = (
                words is not None and last is not None and words.pid == last.pid and words.started in (0, last.started)
            )
            self._on_lost(host, why_lost, words if is_its_own else None)
        if not (host.is_held_down or host.pending_disk_operations):
            processes.current, host.phase = process, Phase.STARTING


def _carried(scenario: Scenario, host: int) -> tuple[list[int], dict[int, int]]:
    """The validators of a host, and the heights at which some of them join, by validator."""
    section = scenario.validators
    carried = [index for index in range(section.count) if section.host_of(index) == host]
    return carried, {index: height for index, height in section.late.items() if index in carried}


def planned_deaths(scenario: Scenario, carried: list[int]) -> int:
    """The number of times that the scenario may end the processes of a host."""
    names = {scenario.validators.names[index] for index in carried}
    return sum(plan.deaths(names) for plan in plans_of(scenario))
