"""Performs the orders of a run's faults on a live testnet.

Hosts perform faults of links, slow disks, slow executors, skewed clocks and failing disks themselves, in software
(:mod:`cluster.live.injection`). Other faults act on processes, so they hit all validators of a host together: processes
are killed by Ray or by SIGKILL, and stopped by SIGSTOP. Disks are wiped or damaged before the next process starts
validators on them.

Nothing happens between two looks of the driver: calls that are due are made at the next one, by
:meth:`LiveStage.look_after`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, assert_never

from cluster.disks.bit_rot import draw_rot
from cluster.faults.engine import FaultEngine
from cluster.faults.events import (
    BitFlipped,
    Confirm,
    Count,
    Counted,
    Crash,
    Due,
    Failed,
    FaultCall,
    FaultOrder,
    FaultSeen,
    FlipBit,
    Impair,
    KeepBlocks,
    LayTrap,
    LoseDisk,
    MachineLost,
    MachineOrder,
    Network,
    Observed,
    ObserveDelays,
    ObserveLinks,
    ObserveProcesses,
    Prepare,
    Recovery,
    Replace,
    Seat,
    SetLinks,
    Start,
    Tell,
    Wake,
    Way,
)
from cluster.faults.impairment import PAUSE, SLOW_EXECUTION, Impairment, describe_delays
from cluster.faults.link_effects import Seen
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.supervised_host import Host
from cluster.live.handover.left import LeftStage
from cluster.live.host.host import NO_WORD
from cluster.live.injection import Injection
from cluster.live.means import Agenda, Means
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase
from cluster.live.processes.last_words import LastWords
from cluster.live.processes.processes import Process
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import Release

UNKNOWN_ORDERS: Final = 1_000
"""Number of orders that another driver may have given since its checkpoint: more than it gives between two of them."""


class Pauses:
    """The validators that are to be paused, and their hosts, whose processes are stopped."""

    def __init__(self, hosts: Hosts, paused: set[int], seen: set[tuple[int, Process, float]]) -> None:
        """``paused`` are the validators that are to be paused now. ``seen`` are the looks at which a process was seen
        stopped, here or by another driver: host, process, and time.
        """
        self._hosts = hosts
        self._paused = paused
        self.seen = seen

    def become(self, paused: set[int], among: Collection[int], now_ms: float) -> None:
        """From now on exactly ``paused`` of the validators ``among`` are paused."""
        self._paused = self._paused.difference(among) | paused
        self.keep(now_ms)

    def keep(self, now_ms: float) -> None:
        """Stop every host with a paused validator, resume the others, and note which are stopped."""
        for host in self._hosts.all:
            if not self._paused.intersection(host.validators):
                self._hosts.resume(host)
                continue
            if self._hosts.pause(host) and host.processes.current is not None:
                self.seen.add((host.number, host.processes.current, now_ms))

    def count(self, index: int) -> int:
        """The number of looks at which a validator's host was stopped."""
        number = self._hosts.host_of(index).number
        return sum(host == number for host, _, _ in self.seen)

    def describe(self, late: int, indices: Sequence[int]) -> str:
        """The last ``late`` times at which the hosts of some validators were seen to be stopped."""
        hosts = {self._hosts.host_of(index).number for index in indices}
        looks = sorted((at_ms, process.pid) for number, process, at_ms in self.seen if number in hosts)
        words = []
        for pid in sorted({pid for _, pid in looks[-late:]} if late else ()):
            seen = [at_ms for at_ms, of in looks[-late:] if of == pid]
            words.append(
                f"process {pid} stood still (state T) at {len(seen)} looks within {seen[-1] - seen[0]:,.0f} ms"
            )
        return "; ".join(words) or "no process stood still"


class LiveStage:
    """Performs the faults of a live run on its hosts."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        hosts: Hosts,
        faults: FaultEngine,
        now_ms: Callable[[], float],
        tell: Callable[[FaultSeen], None],
        notice: Callable[[str], None],
        keep_blocks: Callable[[int, str], None],
        means: Means,
        left: LeftStage | None = None,
    ) -> None:
        """``tell`` tells the run's loop, whose ``faults`` these are, what was seen. ``keep_blocks(index, url)`` asks a
        validator for its blocks, and returns once it has them. ``left`` is the :attr:`state` of another driver's
        stage; then ``means`` have theirs again.
        """
        self.agenda = Agenda(now_ms)
        self.link_counts = hosts.link_counts
        self.means = means
        means.port = self
        self._seed = seed
        self._names = scenario.validators.names
        self._external = scenario.validators.external.keys()
        self._hosts = hosts
        self._faults = faults
        self._tell = tell
        self._notice = notice
        self._keep_blocks = keep_blocks
        links, impairments = faults.in_force
        number, traps = (0, {}) if left is None else (left.injections + UNKNOWN_ORDERS, left.traps)
        self._injection = Injection(number, means.links_of_hosts(links), means.impairments_of_hosts(impairments), traps)
        paused = {index for index, each in impairments.items() if each.is_paused}
        self._pauses = Pauses(hosts, paused, set() if left is None else left.stopped)

    # --- called by the driver -----------------------------------------------------------------------------------------

    def look_after(self) -> None:
        """Keep paused what is paused, and make the calls that are due."""
        self._pauses.keep(self.agenda.now_ms)
        self.agenda.perform()

    def perform(self, order: FaultOrder) -> Iterator[FaultSeen]:
        """Perform an order, and return its answer, if it has one at once."""
        match order:
            case Tell(text):
                self._notice(text)
            case Wake(at_ms, _, call):
                self.agenda.at(at_ms, partial(self.make, call))
            case SetLinks(faults, call):
                others, then = self.means.set_links(faults, call)
                self._inject(then, links=others)
            case Impair(impairments, call):
                self._impair(impairments, call)
            case Prepare(indices, release, call):
                self._hosts.prepare(
                    self._hosts.carrying(indices), located(release), partial(self.make, call), self._notice
                )
            case Confirm(call):
                yield Due(self.agenda.now_ms, call)
            case Count(key, kind, indices):
                yield Counted(key, self._delays(kind, indices))
            case ObserveLinks(key, effect):
                yield Observed(key, *self.means.seen_on_links(key, effect))
            case ObserveDelays(key, kind, indices, count_before):
                yield Observed(key, *self._seen_delays(kind, self._delays(kind, indices) - count_before, indices))
            case ObserveProcesses():
                yield self._seen_processes(order)
            case _:
                yield from self._act_on_machine(order)

    def _act_on_machine(self, order: MachineOrder) -> Iterator[FaultSeen]:
        match order:
            case Replace(indices, release):
                for host in self._hosts.carrying(indices):
                    self._hosts.replace(host, located(release))
            case KeepBlocks(index):
                for address in self._hosts.addresses:
                    if address.index == index:
                        self._keep_blocks(index, address.url)
            case Crash(index, way):
                self._crash(self._hosts.host_of(index), way)
            case Start(index):
                self._hosts.host_of(index).is_held_down = False
            case LayTrap(index, trap):
                self._inject(traps={**self._injection.traps, index: (self._injection.number + 1, trap)})
            case LoseDisk(index):
                self._hosts.host_of(index).pending_disk_operations.append(("wipe", (index,)))
            case FlipBit(key, index):
                host, random = self._hosts.host_of(index), Random(f"{self._seed}/bit rot/{key}/{index}")
                rot = draw_rot(random, host.reports.old_file_sizes.get(index, {}))
                if rot is not None:
                    host.pending_disk_operations.append(("flip", (index, rot)))
                    yield BitFlipped(key, index, str(rot))
            case _:
                assert_never(order)

    def on_lost(self, host: Host, words: LastWords | None) -> bool:
        """Handle a host that went down by itself. Returns whether a fault explains that."""
        if words is None:
            return False
        if words.reason.startswith(NO_WORD):
            reason = f"it was cut off: {words.reason}"
            self._tell(MachineLost(self.agenda.now_ms, host.validators, f"host {host.number}", reason))
            return True
        is_explained = self._faults.explains(words.validator, words.reason)
        host.is_held_down |= is_explained  # before the order below: its answers may bring the host's next process
        if words.validator in self._injection.traps:
            traps = {index: trap for index, trap in self._injection.traps.items() if index != words.validator}
            self._inject(traps=traps)
        if is_explained:
            self._tell(Failed(self.agenda.now_ms, words.validator, words.reason))
        return is_explained

    def note_lost_node(self, hosts: Sequence[Host], node: str, reason: str, height: int) -> None:
        """Note that a Ray node is lost with its hosts, at a final height. Hosts that a fault holds down start elsewhere
        only after it."""
        indices = [index for host in hosts for index in host.carried_at(height)]
        if indices:
            self._tell(MachineLost(self.agenda.now_ms, indices, f"node {node}", reason))
        for host in hosts:
            host.is_held_down |= any(map(self._faults.targets.is_held_down, host.validators))

    # --- what is seen -------------------------------------------------------------------------------------------------

    def look(self, height: int) -> Network:
        """The validators as they are now, at a final height."""
        on_node: dict[Place, list[int]] = {}
        for host in self._hosts.all:
            if host.is_on_a_node:
                on_node.setdefault(host.place, []).extend(host.validators)
        mates = {place: tuple(sorted(indices)) for place, indices in on_node.items()}
        seats = {
            index: self._seat(host, index, mates.get(host.place, ()), height)
            for host in self._hosts.all
            for index in host.validators
        }
        return Network(
            self.agenda.now_ms,
            tuple(seats[index] for index in sorted(seats)),
            self._leader(),
            acts_on_processes=True,
            has_pods=self.means.has_pods,
        )

    def _seat(self, host: Host, index: int, on_node: tuple[int, ...], height: int) -> Seat:
        state = host.state(index)
        is_on_its_way = host.phase is Phase.STARTING or (host.phase is Phase.DOWN and not host.is_held_down)
        seat = Seat(
            on_host=tuple(host.validators),
            on_node=on_node,
            is_about_to_start=is_on_its_way and index in host.carried_at(height),
            is_lost=host.phase is Phase.DEAD,
            has_trap=index in self._injection.traps,
            deaths=host.processes.deaths,
        )
        if state is None:
            return seat
        return seat._replace(
            is_up=host.is_running and state.ready,
            is_running=host.is_running,
            has_diverged=state.diverged,
            height=state.height,
            recovery=Recovery(state.recovered_height, state.snapshot_height),
        )

    def _leader(self) -> int | None:
        """The leader of the newest view, as our validators say."""
        ours = [host for host in self._hosts.all if not self._external & set(host.validators)]
        states = [state for host in ours for state in host.reports.states.values() if state.ready]
        newest = max(states, key=lambda state: state.view, default=None)
        return None if newest is None else newest.leader

    def _delays(self, kind: str, indices: Sequence[int]) -> int:
        if kind == PAUSE:
            return sum(map(self._pauses.count, indices))
        return sum(self._hosts.host_of(index).reports.delays(index, kind) for index in indices)

    def _seen_processes(self, order: ObserveProcesses) -> Observed:
        """How the processes of validators were replaced, and how many run the release."""
        key, indices, release = order
        running = 0 if release is None else sum(self._runs(index, release) for index in indices)
        hosts = self._hosts.carrying(indices)
        restarts = [
            f"process {last.pid} gone, {host.pid} in its place"
            for host in hosts
            if (last := host.processes.last) is not None
        ]
        words = self.means.describe(host.number for host in hosts)
        return Observed(key, evidence=", ".join([*words, *restarts]), running=running)

    def _seen_delays(self, kind: str, delays: int, indices: Sequence[int]) -> Seen:
        names = [self._names[index] for index in indices]
        if kind == PAUSE:
            return Seen(delays > 0, f"{self._pauses.describe(delays, indices)}: {', '.join(names) or 'no validator'}")
        seen = Seen(delays > 0, describe_delays(kind, delays, names))
        return self.means.seen_stress(indices, seen) if kind == SLOW_EXECUTION else seen

    def _runs(self, index: int, release: Release) -> bool:
        """Whether a validator reports this release as the one that it runs, or ran last."""
        processes = self._hosts.host_of(index).processes
        is_there = release.code is None or Path(processes.code).samefile(release.code)
        return processes.version == release.version and is_there

    # --- what is done -------------------------------------------------------------------------------------------------

    def _impair(self, impairments: Mapping[int, Impairment], call: FaultCall) -> None:
        paused = {index for index, each in impairments.items() if each.is_paused}
        self._pauses.become(paused, impairments, self.agenda.now_ms)
        left, then = self.means.set_stress(impairments, call)
        self._inject(then, impairments={**self._injection.impairments, **left})

    def _inject(self, then: Callable[[], None] | None = None, **changes: object) -> None:
        """Send all hosts the faults in force, with changes; ``then`` is called once they have them."""
        self._injection = replace(self._injection, number=self._injection.number + 1, **changes)  # type: ignore[arg-type]
        self._hosts.inject(self._injection, then)

    def make(self, call: FaultCall) -> None:
        """Make a call of the fault engine."""
        self._tell(Due(self.agenda.now_ms, call))

    def _crash(self, host: Host, way: Way) -> None:
        if way.ends_node:
            if host.is_on_a_node:  # else it went with another one
                self._hosts.nodes.end(host.place, kills=way.how == "process")
            return
        if way.is_of_pods and self.means.has_pods:
            if host.is_placed:
                self.means.take(host.number, way)
            return
        self.means.note_signal(host.number, way)
        self._hosts.kill(host, by_ray=way.how == "actor")

    def lose_node(self, number: int, reason: str) -> None:
        """Take all hosts off the Ray node of a host, since the node is about to end."""
        host = self._hosts.all[number]
        if host.is_placed:
            self._hosts.nodes.lose(host.place, reason)

    # --- from driver to driver ----------------------------------------------------------------------------------------

    @property
    def state(self) -> LeftStage:
        """The state for another driver that takes the run over. It shares the stage's collections: do not change it."""
        return LeftStage(self._injection.number, self._injection.traps, self._pauses.seen, self.means.state)

    def go_on(self) -> None:
        """Bring the hosts of another driver to what is in force: its last orders may not have reached them."""
        self.means.go_on()
        for host in self._hosts.all:
            host.is_held_down = any(map(self._faults.targets.is_held_down, host.validators))
        self._pauses.keep(self.agenda.now_ms)  # a stopped process gives no answer, so none is awaited
        self._inject()


def located(release: Release) -> Release:
    """The release with the absolute path of its code, which hosts find from any working directory."""
    return release if release.code is None else replace(release, code=str(Path(release.code).resolve()))
