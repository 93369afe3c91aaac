"""Faults on a live testnet: the driver's :class:`~cluster.faults.stage.Stage`.

Hosts perform faults of links, slow disks, slow executors, skewed clocks and failing disks themselves, in software
(:mod:`cluster.live.injection`). Other faults act on processes, so they hit all validators of a host together: processes
are killed by Ray or by SIGKILL, and stopped by SIGSTOP. Disks are wiped or damaged before the next process starts
validators on them.

Nothing happens between two looks of the driver: calls that are due are made at the next one, by
:meth:`LiveStage.perform`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, cast

from cluster.disks.bit_rot import draw_rot
from cluster.faults.calls import Call, nothing, what_of
from cluster.faults.engine import FaultEngine
from cluster.faults.impairment import PAUSE, SLOW_EXECUTION, Impairment, describe_delays
from cluster.faults.link_faults import Seen
from cluster.faults.stage import Recovery, Then
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.supervised_host import Host, Phase
from cluster.live.handover.calls import LiveCall, Prepared, TakePlace, Together
from cluster.live.handover.left_stage import LeftAgenda, LeftCall, LeftInjection, LeftLooks, LeftPauses, LeftStage
from cluster.live.host.host import NO_WORD
from cluster.live.injection import Injection, LastWords
from cluster.live.kubernetes.calls import AwaitKill, AwaitLinks, AwaitStress, Evict, Uncordon
from cluster.live.kubernetes.leftovers import Leftovers
from cluster.live.kubernetes.means import Means
from cluster.live.processes.processes import Process
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import (
    AnyFault,
    DiskFullFault,
    DownFault,
    FailedSyncFault,
    KillFault,
    LinkFault,
    LoseNodeFault,
    PauseFault,
    Release,
)

UNKNOWN_ORDERS: Final = 1_000
"""Number of orders that another driver may have given since its checkpoint: more than it gives between two of them."""


class _Due(NamedTuple):
    at_ms: float
    number: int
    call: Then


class Agenda:
    """Scheduled calls of the fault stage, by time since the run began. Fault times count from the agenda's creation."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._due: list[_Due] = []
        self._count = 0

    @property
    def now_ms(self) -> float:
        return self._now_ms()

    @property
    def fault_ms(self) -> float:
        """The time now on the clock of faults: milliseconds since this agenda was created, when the testnet was up."""
        return self._now_ms() - self._began_ms

    @property
    def mark(self) -> tuple[int, int]:
        """A value that changes whenever a call is added or made."""
        return self._count, len(self._due)

    @property
    def next_ms(self) -> float | None:
        """The time of the next call, in milliseconds since the run began; ``None`` if there is none."""
        return self._due[0].at_ms if self._due else None

    @property
    def state(self) -> LeftAgenda:
        """The state for another driver that takes the run over.

        Raises :class:`TypeError` if a call cannot be serialized.
        """
        due = [LeftCall(each.at_ms, each.number, what_of(each.call)) for each in self._due]
        return LeftAgenda(self._began_ms, self._count, due)

    def take_over(self, left: LeftAgenda, call: Callable[[LiveCall | None], Then]) -> None:
        """Restore the state that another driver left; ``call`` turns plain data into a scheduled call."""
        self._began_ms, self._count = left.began_ms, left.count
        self._due = [_Due(each.at_ms, each.number, call(each.what)) for each in left.due]
        heapq.heapify(self._due)

    def at(self, time_ms: int, label: str, call: Then) -> None:
        self._add(self._began_ms + time_ms, call)

    def later(self, delay_ms: int, label: str, call: Then) -> None:
        self._add(self._now_ms() + delay_ms, call)

    def perform(self) -> None:
        """Make the calls that are due by now."""
        now_ms = self._now_ms()
        while self._due and self._due[0].at_ms <= now_ms:
            heapq.heappop(self._due).call()

    def _add(self, at_ms: float, call: Then) -> None:
        self._count += 1
        heapq.heappush(self._due, _Due(at_ms, self._count, call))


class Pauses:
    """The validators that are to be paused, and their hosts, whose processes are stopped."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._paused: set[int] = set()
        self._seen: dict[tuple[int, Process], list[float]] = {}
        """Times at which a process was seen stopped, keyed by host number and process."""

    @property
    def state(self) -> LeftPauses:
        """The state for another driver that takes the run over."""
        seen = [LeftLooks(host, process, seen_ms) for (host, process), seen_ms in self._seen.items()]
        return LeftPauses(self._paused, seen)

    def take_over(self, left: LeftPauses) -> None:
        """Restore the state that another driver left."""
        self._paused = left.paused
        self._seen = {(each.host, each.process): each.seen_ms for each in left.seen}

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
                self._seen.setdefault((host.number, host.processes.current), []).append(now_ms)

    def count(self, index: int) -> int:
        """The number of looks at which a validator's host was stopped."""
        number = self._hosts.host_of(index).number
        return sum(len(moments) for (each, _), moments in self._seen.items() if each == number)

    def describe(self, late: int, indices: Sequence[int]) -> str:
        """The last ``late`` times at which the hosts of some validators were seen to be stopped."""
        hosts = {self._hosts.host_of(index).number for index in indices}
        looks = sorted(
            (at_ms, process.pid) for (number, process), seen in self._seen.items() if number in hosts for at_ms in seen
        )
        words = []
        for pid in sorted({pid for _, pid in looks[-late:]} if late else ()):
            seen = [at_ms for at_ms, of in looks[-late:] if of == pid]
            words.append(
                f"process {pid} stood still (state T) at {len(seen)} looks within {seen[-1] - seen[0]:,.0f} ms"
            )
        return "; ".join(words) or "no process stood still"


class LiveStage:
    """The stage of a live run: performs the faults of the fault engine on the hosts."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        hosts: Hosts,
        now_ms: Callable[[], float],
        height: Callable[[], int],
        notice: Callable[[str], None],
        keep_blocks: Callable[[int, str], None],
        leftovers: Leftovers | None = None,
        left: LeftStage | None = None,
    ) -> None:
        """``keep_blocks(index, url)`` asks a validator for its blocks, and returns once it has them. ``leftovers``
        tracks what faults change in a Kubernetes cluster. With ``left`` the stage continues another driver's faults.
        """
        self.random = Random(f"{seed}/faults")
        self.agenda = Agenda(now_ms)
        self.at, self.later = self.agenda.at, self.agenda.later
        self.notice = notice
        self.means = Means(
            scenario,
            leftovers or Leftovers(None, notice),
            self._lose_node,
            hosts.link_counts,
            self.later,
            notice,
            self._make_call,
        )
        self.seen_on_links = self.means.seen_on_links
        self._names = scenario.validators.names
        self._external = scenario.validators.external.keys()
        self._hosts = hosts
        self._height = height
        self._keep_blocks = keep_blocks
        self._injection = Injection()
        self._pauses = Pauses(hosts)
        self._height_performed = 0
        self.engine = FaultEngine(scenario, self)
        if left is None:
            self.engine.schedule()
        else:
            self.take_over(left)

    # --- called by the driver -----------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Look at the faults under way, and perform what is due."""
        if self.height > self._height_performed:
            self._height_performed = self.height
            self.engine.on_new_height(self.height)
        self._pauses.keep(self.now_ms)
        self.engine.look()
        self.agenda.perform()

    def on_lost(self, host: Host, words: LastWords | None) -> bool:
        """Handle a host that went down by itself. Returns whether a fault explains that."""
        if words is None:
            return False
        if words.reason.startswith(NO_WORD):
            self.engine.on_loss(host.validators, f"host {host.number}", f"it was cut off: {words.reason}")
            return True
        was_held_down = host.is_held_down
        host.is_held_down = True  # before the order below: its answers may bring the host's next process
        if words.validator in self._injection.traps:
            traps = {index: trap for index, trap in self._injection.traps.items() if index != words.validator}
            self.inject(nothing, traps=traps)
        is_explained = self.engine.on_failed(words.validator, words.reason)
        if not is_explained and not was_held_down:
            host.is_held_down = False
        return is_explained

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        return self.agenda.now_ms

    @property
    def height(self) -> int:
        return self._height()

    # --- links and impairments ----------------------------------------------------------------------------------------

    def set_links(self, faults: Mapping[int, LinkFault], then: Then) -> None:
        others, then = self.means.set_links(faults, then)
        self.inject(then, links=others)

    def impair(self, impairments: Mapping[int, Impairment], then: Then) -> None:
        paused = {index for index, each in impairments.items() if each.is_paused}
        self._pauses.become(paused, impairments, self.now_ms)
        left, then = self.means.stress.set(impairments, then)
        self.inject(then, impairments={**self._injection.impairments, **left})

    def delays(self, index: int, kind: str) -> int:
        if kind == PAUSE:
            return self._pauses.count(index)
        return self._hosts.host_of(index).reports.delays(index, kind)

    def seen_delays(self, kind: str, delays: int, names: Sequence[str]) -> Seen:
        indices = [self._names.index(name) for name in names]
        if kind == PAUSE:
            return Seen(delays > 0, f"{self._pauses.describe(delays, indices)}: {', '.join(names) or 'no validator'}")
        seen = Seen(delays > 0, describe_delays(kind, delays, names))
        return self.means.stress.seen(indices, seen) if kind == SLOW_EXECUTION else seen

    def inject(self, then: Then, skipped: int = 0, **changes: object) -> None:
        """Send all hosts the faults in force, with changes; ``then`` is called once they have them.

        ``skipped`` is how many such orders another driver may have given since its checkpoint.
        """
        number = self._injection.number + skipped + 1
        self._injection = replace(self._injection, number=number, **changes)  # type: ignore[arg-type]
        self._hosts.inject(self._injection, then)

    # --- down and up --------------------------------------------------------------------------------------------------

    def is_up(self, index: int) -> bool:
        host = self._hosts.host_of(index)
        state = host.state(index)
        return host.is_running and state is not None and state.ready

    def is_running(self, index: int) -> bool:
        host = self._hosts.host_of(index)
        return host.is_running and host.state(index) is not None

    def is_about_to_start(self, index: int) -> bool:
        host = self._hosts.host_of(index)
        is_on_its_way = host.phase is Phase.STARTING or (host.phase is Phase.DOWN and not host.is_held_down)
        return is_on_its_way and index in host.carried_at(self.height)

    def is_lost(self, index: int) -> bool:
        return self._hosts.host_of(index).phase is Phase.DEAD

    def leader(self) -> int | None:
        ours = [host for host in self._hosts.all if not self._external & set(host.validators)]
        states = [state for host in ours for state in host.reports.states.values() if state.ready]
        newest = max(states, key=lambda state: state.view, default=None)
        return None if newest is None else newest.leader

    def sharing_fate(self, index: int, plan: AnyFault) -> Sequence[int] | None:
        host = self._hosts.host_of(index)
        if isinstance(plan, LoseNodeFault) or self.means.takes_pod(plan):
            return sorted(index for mate in self._hosts.nodes.hosts_on(host.place) for index in mate.validators)
        return host.validators if isinstance(plan, DownFault | PauseFault) else None

    def deaths(self, index: int) -> int:
        return self._hosts.host_of(index).processes.deaths

    def keep_blocks(self, index: int) -> None:
        for address in self._hosts.addresses:
            if address.index == index:
                self._keep_blocks(index, address.url)

    def crash(self, index: int, plan: DownFault) -> None:
        host, nodes = self._hosts.host_of(index), self._hosts.nodes
        if isinstance(plan, LoseNodeFault):
            if host.is_on_a_node:  # else it went with another one
                nodes.end(host.place, kills=plan.how == "process")
            return
        if isinstance(plan, KillFault) and self.means.takes_pod(plan):
            if host.is_placed:
                self.means.take(host.number, plan)
            return
        self.means.note_signal(host.number, plan)
        self._hosts.kill(host, by_ray=isinstance(plan, KillFault) and plan.how == "actor")

    def prepare(self, indices: Sequence[int], release: Release, then: Then) -> None:
        what = what_of(then)
        prepared = nothing if what is None else self.call_to_come(Prepared(what))
        self._hosts.prepare(self._hosts.carrying(indices), located(release), prepared, self.notice)

    def replace(self, indices: Sequence[int], release: Release) -> None:
        for host in self._hosts.carrying(indices):
            self._hosts.replace(host, located(release))

    def runs(self, index: int, release: Release) -> bool:
        processes = self._hosts.host_of(index).processes
        is_there = release.code is None or Path(processes.code).samefile(release.code)
        return processes.version == release.version and is_there

    def height_of(self, index: int) -> int:
        state = self._hosts.host_of(index).state(index)
        return 0 if state is None else state.height

    def has_diverged(self, index: int) -> bool:
        state = self._hosts.host_of(index).state(index)
        return state is not None and state.diverged

    def start(self, index: int) -> None:
        self._hosts.host_of(index).is_held_down = False

    def recovery(self, index: int) -> Recovery | None:
        state = self._hosts.host_of(index).state(index)
        return None if state is None else Recovery(state.recovered_height, state.snapshot_height)

    def describe_restart(self, indices: Sequence[int]) -> list[str]:
        hosts = self._hosts.carrying(indices)
        return self.means.describe(host.number for host in hosts) + [
            f"process {last.pid} gone, {host.pid} in its place"
            for host in hosts
            if (last := host.processes.last) is not None
        ]

    def _lose_node(self, number: int, reason: str) -> None:
        """Take all hosts off the Ray node of a host, since the node is about to end."""
        host = self._hosts.all[number]
        if host.is_placed:
            self._hosts.nodes.lose(host.place, reason)

    # --- disks --------------------------------------------------------------------------------------------------------

    def lay_trap(self, index: int, plan: DiskFullFault | FailedSyncFault) -> None:
        self.inject(nothing, traps={**self._injection.traps, index: (self._injection.number + 1, plan)})

    def has_trap(self, index: int) -> bool:
        return index in self._injection.traps

    def lose_disk(self, index: int) -> None:
        self._hosts.host_of(index).pending_disk_operations.append(("wipe", (index,)))

    def flip_a_bit(self, index: int) -> str | None:
        host = self._hosts.host_of(index)
        rot = draw_rot(self.random, host.reports.old_file_sizes.get(index, {}))
        if rot is None:
            return None
        host.pending_disk_operations.append(("flip", (index, rot)))
        return str(rot)

    # --- from driver to driver ----------------------------------------------------------------------------------------

    @property
    def state(self) -> LeftStage:
        """The state for another driver that takes the run over. It shares the stage's collections: do not change it.

        Raises :class:`TypeError` if a scheduled call cannot be serialized.
        """
        version, internal, gauss = self.random.getstate()
        injection = self._injection
        return LeftStage(
            random=(version, internal, gauss),
            agenda=self.agenda.state,
            means=self.means.state,
            injection=LeftInjection(injection.number, {**injection.links}, injection.impairments, {**injection.traps}),
            pauses=self._pauses.state,
            height_performed=self._height_performed,
            engine=self.engine.state,
        )

    def take_over(self, left: LeftStage) -> None:
        """Restore the faults of another driver, in place of the stage's own."""
        self.random.setstate(left.random)
        self.engine.take_over(left.engine)
        self.agenda.take_over(left.agenda, self.call_to_come)
        self.means.take_over(left.means)
        self._pauses.take_over(left.pauses)
        self._height_performed = left.height_performed
        links = {key: cast(LinkFault, plan) for key, plan in left.injection.links.items()}
        traps = {
            index: (number, cast(DiskFullFault | FailedSyncFault, plan))
            for index, (number, plan) in left.injection.traps.items()
        }
        self._injection = Injection(left.injection.number, links, left.injection.impairments, traps)

    def call_to_come(self, what: LiveCall | None) -> Then:
        """The callback that makes a call described by plain data. ``None`` gives a callback that does nothing."""
        return nothing if what is None else Call(self._make_call, what)

    def _make_call(self, what: LiveCall) -> None:
        """Make a scheduled call."""
        match what:
            case Prepared(then):
                self.later(0, "prepared", self.call_to_come(then))
            case TakePlace():
                self._hosts.take_place(what)
            case Together(calls):
                for each in calls:
                    self._make_call(each)
            case Uncordon() | Evict() | AwaitKill() | AwaitLinks() | AwaitStress():
                self.means.perform(what)
            case _:
                self.engine.perform(what)

    def note_lost_node(self, hosts: Sequence[Host], node: str, reason: str) -> None:
        """Note that a Ray node is lost with its hosts. Hosts that a fault holds down start elsewhere only after it."""
        engine = self.engine
        indices = [index for host in hosts for index in host.carried_at(self.height)]
        if indices:
            engine.on_loss(indices, f"node {node}", reason)
        for host in hosts:
            host.is_held_down |= any(map(engine.targets.is_held_down, host.validators))


def located(release: Release) -> Release:
    """The release with the absolute path of its code, which hosts find from any working directory."""
    return release if release.code is None else replace(release, code=str(Path(release.code).resolve()))
