"""What faults do to a live testnet: the driver's :class:`~cluster.faults.stage.Stage`.

Links, slow disks, slow executors, skewed clocks and failing disks are done by the hosts themselves, in software
(:mod:`cluster.live.injection`). The rest is done to their processes, so that whoever shares a host shares its fate:
they are killed by Ray or by SIGKILL, and stopped by SIGSTOP; disks are lost or damaged before the next process starts
validators on them.

Nothing happens between two looks of the driver: what is due is done at the next one, by :meth:`LiveStage.perform`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from cluster.disks.bit_rot import draw_rot
from cluster.faults.engine import FaultEngine
from cluster.faults.impairment import Impairment
from cluster.faults.link_faults import LinkCounts
from cluster.faults.stage import Recovery, Then
from cluster.live.driver.hosts import Host, Hosts, Phase, nothing
from cluster.live.injection import Injection, LastWords
from cluster.live.processes.processes import Process
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import (
    AnyFault,
    DiskFullFault,
    DownFault,
    FailedSyncFault,
    KillFault,
    LinkFault,
    PauseFault,
)
from cluster.scenario.sections.release import Release

PAUSE: Final = PauseFault.model_fields["kind"].annotation.__args__[0]  # type: ignore[union-attr]


class _Due(NamedTuple):
    at_ms: float
    number: int
    call: Then


class LiveStage:
    """The hosts of a run, as faults act on them. :attr:`engine` is set before anything happens."""

    engine: FaultEngine

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        hosts: Hosts,
        now_ms: Callable[[], float],
        height: Callable[[], int],
        notice: Callable[[str], None],
        keep_blocks: Callable[[int, str], None],
    ) -> None:
        """``keep_blocks(index, url)`` asks a validator for its blocks, and takes as long as that takes."""
        self.random = Random(f"{seed}/faults")
        self._names = scenario.validators.names
        self._hosts = hosts
        self._now_ms = now_ms
        self._height = height
        self._notice = notice
        self._keep_blocks = keep_blocks
        self._began_ms = now_ms()
        """Times of faults count from here: from when the testnet was up."""
        self._due: list[_Due] = []
        self._numbers = count(1)
        self._injection = Injection()
        self._paused: set[int] = set()
        self._seen_still: dict[tuple[int, Process], list[float]] = {}
        """By host and process, when it was seen to stand still."""

    # --- what the driver calls ----------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Look at what is under way, and do what is due."""
        self._keep_still()
        self.engine.look()
        now_ms = self.now_ms
        while self._due and self._due[0].at_ms <= now_ms:
            heapq.heappop(self._due).call()

    @property
    def next_ms(self) -> float | None:
        """When something is due next."""
        return self._due[0].at_ms if self._due else None

    def on_lost(self, host: Host, words: LastWords | None) -> bool:
        """A host went down by itself. Returns whether a fault explains that."""
        if words is None:
            return False
        was_held_down, host.is_held_down = host.is_held_down, True
        if words.validator in self._injection.traps:
            traps = {index: trap for index, trap in self._injection.traps.items() if index != words.validator}
            self._inject(nothing, traps=traps)
        if self.engine.on_failed(words.validator, words.reason):
            return True
        host.is_held_down = was_held_down
        return False

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        return self._now_ms()

    @property
    def run_ms(self) -> float:
        """The time that faults count in."""
        return self._now_ms() - self._began_ms

    @property
    def height(self) -> int:
        return self._height()

    def at(self, time_ms: int, label: str, call: Then) -> None:
        self._schedule(self._began_ms + time_ms, call)

    def later(self, delay_ms: int, label: str, call: Then) -> None:
        self._schedule(self.now_ms + delay_ms, call)

    def _schedule(self, at_ms: float, call: Then) -> None:
        heapq.heappush(self._due, _Due(at_ms, next(self._numbers), call))

    def notice(self, text: str) -> None:
        self._notice(text)

    # --- links and impairments ----------------------------------------------------------------------------------------

    def set_links(self, faults: Mapping[int, LinkFault], then: Then) -> None:
        self._inject(then, links=dict(faults))

    def link_counts(self, key: int) -> LinkCounts:
        return self._hosts.link_counts(key)

    def impair(self, impairments: Mapping[int, Impairment], then: Then) -> None:
        self._pause({index for index, each in impairments.items() if each.is_paused}, impairments)
        self._inject(then, impairments={**self._injection.impairments, **impairments})

    def delays(self, index: int, kind: str) -> int:
        host = self._hosts.host_of(index)
        if kind == PAUSE:
            return sum(len(moments) for (number, _), moments in self._seen_still.items() if number == host.number)
        return sum(getattr(late, kind) for (_, validator), late in host.late_by.items() if validator == index)

    def describe_pause(self, delays: int, names: Sequence[str]) -> str:
        hosts = {self._hosts.host_of(self._names.index(name)).number for name in names}
        looks = sorted(
            (at_ms, process.pid)
            for (number, process), seen in self._seen_still.items()
            if number in hosts
            for at_ms in seen
        )
        words = []
        for pid in sorted({pid for _, pid in looks[-delays:]} if delays else ()):
            seen = [at_ms for at_ms, of in looks[-delays:] if of == pid]
            words.append(
                f"process {pid} stood still (state T) at {len(seen)} looks within {seen[-1] - seen[0]:,.0f} ms"
            )
        return f"{'; '.join(words) or 'no process stood still'}: {', '.join(names) or 'nobody'}"

    def _inject(self, then: Then, **changes: object) -> None:
        self._injection = replace(self._injection, number=self._injection.number + 1, **changes)  # type: ignore[arg-type]
        self._hosts.inject(self._injection, then)

    def _pause(self, paused: set[int], among: Mapping[int, Impairment]) -> None:
        """From now on those stand still that are to, of some; others of them do not."""
        self._paused = (self._paused - among.keys()) | paused
        self._keep_still()

    def _keep_still(self) -> None:
        """Stop the hosts of those that are to stand still, let those go on of which no validator is, and look."""
        for host in self._hosts.all:
            if not self._paused.intersection(host.validators):
                self._hosts.let_go(host)
                continue
            self._hosts.hold(host)
            if host.process is not None and self._hosts.is_seen_still(host):
                self._seen_still.setdefault((host.number, host.process), []).append(self.now_ms)

    # --- down and up --------------------------------------------------------------------------------------------------

    def is_up(self, index: int) -> bool:
        host = self._hosts.host_of(index)
        return host.is_running and index in host.states and host.states[index].ready

    def is_running(self, index: int) -> bool:
        host = self._hosts.host_of(index)
        return host.is_running and index in host.states

    def is_lost(self, index: int) -> bool:
        return self._hosts.host_of(index).phase is Phase.DEAD

    def leader(self) -> int | None:
        states = [state for host in self._hosts.all for state in host.states.values() if state.ready]
        newest = max(states, key=lambda state: state.view, default=None)
        return None if newest is None else newest.leader

    def shares_fate(self, plan: AnyFault) -> bool:
        return isinstance(plan, DownFault | PauseFault)

    def deaths(self, index: int) -> int:
        return self._hosts.host_of(index).deaths

    def keep_blocks(self, index: int) -> None:
        (url,) = [address.url for address in self._hosts.addresses if address.index == index]
        self._keep_blocks(index, url)

    def crash(self, index: int, plan: DownFault) -> None:
        host = self._hosts.host_of(index)
        self._hosts.kill(host, by_ray=isinstance(plan, KillFault) and plan.how == "actor")

    def prepare(self, indices: Sequence[int], release: Release, then: Then) -> None:
        self._hosts.prepare(
            self._hosts_of(indices), located(release), lambda: self.later(0, "prepared", then), self.notice
        )

    def replace(self, indices: Sequence[int], release: Release) -> None:
        for host in self._hosts_of(indices):
            self._hosts.replace(host, located(release))

    def runs(self, index: int, release: Release) -> bool:
        host = self._hosts.host_of(index)
        is_there = release.code is None or Path(host.code).samefile(release.code)
        return host.version == release.version and is_there

    def height_of(self, index: int) -> int:
        state = self._hosts.host_of(index).states.get(index)
        return 0 if state is None else state.height

    def has_diverged(self, index: int) -> bool:
        state = self._hosts.host_of(index).states.get(index)
        return state is not None and state.diverged

    def start(self, index: int) -> None:
        self._hosts.host_of(index).is_held_down = False

    def recovery(self, index: int) -> Recovery | None:
        state = self._hosts.host_of(index).states.get(index)
        return None if state is None else Recovery(state.recovered_height, state.snapshot_height)

    def describe_restart(self, indices: Sequence[int]) -> list[str]:
        return [
            f"process {host.pid_before} gone, {host.pid} in its place"
            for host in self._hosts_of(indices)
            if host.pid_before is not None
        ]

    def _hosts_of(self, indices: Sequence[int]) -> list[Host]:
        """Each once."""
        return list({host.number: host for host in map(self._hosts.host_of, indices)}.values())

    # --- disks --------------------------------------------------------------------------------------------------------

    def lay_trap(self, index: int, plan: DiskFullFault | FailedSyncFault) -> None:
        self._inject(nothing, traps={**self._injection.traps, index: (next(self._numbers), plan)})

    def has_trap(self, index: int) -> bool:
        return index in self._injection.traps

    def lose_disk(self, index: int) -> None:
        self._hosts.host_of(index).chores.append(("wipe", (index,)))

    def flip_a_bit(self, index: int) -> str | None:
        host = self._hosts.host_of(index)
        rot = draw_rot(self.random, host.old_file_sizes.get(index, {}))
        if rot is None:
            return None
        host.chores.append(("flip", (index, rot)))
        return str(rot)


def located(release: Release) -> Release:
    """With the whole path of its code, which hosts find from wherever they are."""
    return release if release.code is None else replace(release, code=str(Path(release.code).resolve()))
