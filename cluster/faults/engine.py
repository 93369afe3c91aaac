"""The faults of a run: when each begins and ends, whom it hits, and what was seen of it. The same for every backend.

A backend is a :class:`Stage`: it has a clock, a random source, validators and links, and can crash, start, hold and
slow them. The engine decides; the stage does, and tells the engine what happens (the ``on_…`` methods). Several faults
may be under way at once: links and validators follow from all of them, and a validator is started when none holds it
down any more.

What a stage does may take a while on machines that are real. Where an order only counts once it was carried out, the
stage says so by calling back: a fault's time begins when it is in force everywhere, and ends when it is first taken
back, so that whatever was seen in between was seen under it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final, NamedTuple, Protocol

from cluster.common.wording import listed
from cluster.disks.planned_failures import NO_SPACE, PLANNED_FAILURE
from cluster.faults.link_faults import LinkCounts, impaired_by_links, seen_on_links
from cluster.record.run import FaultRecord
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import (
    AS_MANY_AS_WITHSTOOD,
    KEYWORDS,
    LEADER,
    AnyFault,
    BitRotFault,
    ClockSkewFault,
    DiskFullFault,
    DiskLossFault,
    DownFault,
    FailedSyncFault,
    ImpairingFault,
    KillFault,
    LinkFault,
    NodeFault,
    PartitionFault,
    PauseFault,
    SlowDiskFault,
    SlowExecutionFault,
    UpgradeFault,
    WipeFault,
    in_the_scenarios_words,
)
from cluster.scenario.sections.forks import check_faults_of_the_past
from cluster.scenario.sections.release import Release
from consensus.messages import VoteKind
from consensus.types import quorum

VOTES: Final = {
    "notarize": (VoteKind.NOTARIZE,),
    "nullify": (VoteKind.NULLIFY, VoteKind.TIMEOUT),
    "finalize": (VoteKind.FINALIZE,),
}
"""The votes that a fault waits for, by its field ``after_votes``."""

Then = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Impairment:
    """What slows a validator down or holds it, of all faults that are in force; by default nothing does."""

    is_paused: bool = False
    sync_ms: int | None = None
    job_ms: int | None = None
    clock_speed: float = 1.0


class Recovery(NamedTuple):
    """What a validator that runs says of its start."""

    recovered_height: int
    snapshot_height: int


class Stage(Protocol):
    """What faults act on. Validators are given by their index."""

    random: Random
    """Of the choices that faults leave open."""

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Since the run began."""

    @property
    def height(self) -> int:
        """The highest final height."""

    def at(self, time_ms: int, label: str, call: Then) -> None:
        """Call at a time of the run, at once where that is past."""

    def later(self, delay_ms: int, label: str, call: Then) -> None:
        """Call after a delay."""

    def notice(self, text: str) -> None:
        """Tell whoever watches."""

    # --- links --------------------------------------------------------------------------------------------------------

    def set_links(self, faults: Mapping[int, LinkFault], then: Then) -> None:
        """From now on exactly these faults of links are in force, by their keys, in their order."""

    def link_counts(self, key: int) -> LinkCounts:
        """What became of the messages that a fault was there for."""

    # --- validators ---------------------------------------------------------------------------------------------------

    def is_up(self, index: int) -> bool:
        """Whether it has recovered, or joined, and takes part."""

    def is_running(self, index: int) -> bool:
        """Whether it is up, or about to be."""

    def is_lost(self, index: int) -> bool:
        """Whether it never comes back, whatever is done."""

    def leader(self) -> int | None:
        """Who leads the newest view that anybody is in."""

    def shares_fate(self, plan: AnyFault) -> bool:
        """Whether a fault that hits one validator hits all on its host."""

    def deaths(self, index: int) -> int:
        """How often it was seen to go down."""

    def prepare(self, indices: Sequence[int], release: Release, then: Then) -> None:
        """Make ready what validators need to run other code, while they run the old one."""

    def replace(self, indices: Sequence[int], release: Release) -> None:
        """Stop the validators of a host in good order, as far as they run; they run other code next."""

    def runs(self, index: int, release: Release) -> bool:
        """Whether a validator runs this code, or ran it when it last did, by its own word."""

    def height_of(self, index: int) -> int:
        """What it has made final; 0 where it does not run."""

    def has_diverged(self, index: int) -> bool:
        """Whether it computed another state than the others, and stands still."""

    def keep_blocks(self, index: int) -> None:
        """Keep what it serves of the chain: its disk is about to be lost."""

    def crash(self, index: int, plan: DownFault) -> None:
        """Take it down, at once and without a word; whatever is on its host may go down with it."""

    def start(self, index: int) -> None:
        """Start it from its disk. Ignored where it runs."""

    def recovery(self, index: int) -> Recovery | None:
        """How it started; ``None`` where it does not run."""

    def describe_restart(self, indices: Sequence[int]) -> list[str]:
        """What else is to be said of validators that were down."""

    # --- their impairments --------------------------------------------------------------------------------------------

    def impair(self, impairments: Mapping[int, Impairment], then: Then) -> None:
        """From now on these validators are impaired so."""

    def late(self, index: int, kind: str) -> int:
        """How often a kind of impairment was seen to bite so far."""

    def words_of_late(self, kind: str, late: int, names: Sequence[str]) -> str:
        """The same in words, for several validators."""

    # --- their disks --------------------------------------------------------------------------------------------------

    def lay_trap(self, index: int, plan: DiskFullFault | FailedSyncFault) -> None:
        """Its disk fails at the next operation that the fault is about."""

    def has_trap(self, index: int) -> bool:
        """Whether that is still to come."""

    def lose_disk(self, index: int) -> None:
        """While it is down: give it an empty disk, with which it has to join by a snapshot."""

    def flip_a_bit(self, index: int) -> str | None:
        """While it is down: flip a bit of what was durable long before. Returns where, ``None`` where nothing is."""


@dataclass(slots=True, eq=False)
class _Planned:
    """A fault of the scenario."""

    number: int
    plan: AnyFault
    record: FaultRecord
    is_withdrawn: bool = False
    """It is to begin no more."""


@dataclass(slots=True, eq=False)
class _Active:
    """A fault that began."""

    key: int
    number: int
    plan: AnyFault
    record: FaultRecord
    targets: list[int] = field(default_factory=list)
    """Validators that it is aimed at."""
    along: list[int] = field(default_factory=list)
    """Others that share their hosts, and their fate."""
    late_before: int = 0
    deaths_before: dict[int, int] = field(default_factory=dict)
    """Of those that ran when it took them down."""
    failures: dict[int, str] = field(default_factory=dict)
    """Why validators stopped by themselves."""
    rotten: dict[int, str] = field(default_factory=dict)
    """Where a bit flipped, by validator."""
    left: list[list[int]] = field(default_factory=list)
    """Of an upgrade, the validators host by host that still run the old code."""
    settles_from: int | None = None
    """Of an upgrade, the height at which those that were last to go were started."""
    is_in_force: bool = False
    is_to_end: bool = False
    """It was to end before it was in force."""
    is_back: bool = False
    """Those that it took down are allowed to run again."""
    is_over: bool = False
    is_noted: bool = False
    """It is over, and what was seen of it is in its record."""

    @property
    def hit(self) -> list[int]:
        return [*self.targets, *self.along]


class FaultEngine:
    """All faults of a run."""

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        self._scenario = scenario
        self._stage = stage
        self._names = scenario.validators.names
        self._planned = list(_plans(scenario))
        self.records = [planned.record for planned in self._planned]
        self._waiting = list(self._planned)
        self._active: list[_Active] = []
        self._keys = count()
        self._listening: list[tuple[_Planned, dict[int, set[int]]]] = []
        """Faults that wait for votes: by view, who has sent one."""
        self._held_down: Counter[int] = Counter()
        """By validator, how many faults hold it down."""

    @property
    def are_over(self) -> bool:
        """Whether no fault is under way; such as did not begin yet do not count."""
        return not any(self._is_awaited(active) for active in self._active)

    @property
    def is_listening(self) -> bool:
        """Whether a fault waits for votes (:meth:`on_vote`)."""
        return bool(self._listening)

    def is_held_down(self, index: int) -> bool:
        """Whether a fault keeps a validator from starting."""
        return self._held_down[index] > 0

    def schedule(self) -> None:
        """Let those begin that begin at a time."""
        for planned in self._planned:
            self._schedule_at_its_time(planned)

    def become(self, scenario: Scenario) -> None:
        """From now on the faults are this scenario's. Raises :class:`ValueError` where that changes what has begun."""
        before = [planned.plan for planned in self._planned]
        check_faults_of_the_past(before, scenario.planned_faults, self._stage.height, self._stage.now_ms)
        self.adopt(scenario)

    def adopt(self, scenario: Scenario) -> None:
        """The same, whoever calls having seen to the past."""
        left, self._planned, new = self._planned, [], []
        for fresh in _plans(scenario):
            planned = next((each for each in left if each.plan == fresh.plan), None)
            if planned is None:
                planned = fresh
                new.append(planned)
            else:
                left.remove(planned)
            self._planned.append(planned)
        for planned in left:
            planned.is_withdrawn = True
        self._scenario = scenario
        self.records[:] = [planned.record for planned in self._planned]
        self._waiting = [planned for planned in self._planned if planned in self._waiting or planned in new]
        for planned in new:
            self._schedule_at_its_time(planned)

    # --- what happens -------------------------------------------------------------------------------------------------

    def on_new_height(self, height: int) -> None:
        """A height is final for the first time."""
        for planned in list(self._waiting):
            at_height = planned.plan.at_height
            if at_height is not None and height >= at_height:
                self._waiting.remove(planned)
                if planned.plan.after_votes is not None:
                    self._listening.append((planned, {}))
                else:
                    self._begin_soon(planned)
        for active in self._active:
            until = getattr(active.plan, "until_height", None)
            if until is not None and height >= until and not active.is_over:
                self._stage.later(0, f"fault {active.number} ends", lambda a=active: self._end(a))  # type: ignore[misc]

    def on_vote(self, sender: int, view: int, kind: VoteKind) -> None:
        """A validator has sent a vote."""
        for planned, senders in list(self._listening):
            if kind not in VOTES[planned.plan.after_votes or ""]:
                continue
            committee = self._scenario.validators.committee(view)
            if sender in committee:
                senders.setdefault(view, set()).add(sender)
            if len(senders.get(view, ())) >= quorum(len(committee)):
                self._listening.remove((planned, senders))
                self._begin_soon(planned)

    def on_up(self) -> None:
        """A validator came up, or may have."""
        if self._active:
            self._stage.later(0, "joined", self._end_those_that_are_back)

    def on_progress(self) -> None:
        """A validator made a block final, or diverged."""
        for active in self._active:
            if active.settles_from is not None and not active.is_over and self._has_settled(active):
                self._stage.later(0, f"upgrade {active.number} goes on", lambda a=active: self._go_on(a))  # type: ignore[misc]

    def on_failed(self, index: int, reason: str) -> bool:
        """A validator stopped by itself, and is down. Returns whether a fault explains that."""
        stage, name = self._stage, self._names[index]
        active = next((active for active in self._active if self._explains(active, index, reason)), None)
        if active is None:
            return False
        active.failures[index] = reason
        stage.notice(f"height {stage.height}: {name} stopped: {reason}")
        if isinstance(active.plan, BitRotFault):
            stage.lose_disk(index)
            stage.later(0, f"another disk for {index}", lambda: stage.start(index))
        elif isinstance(active.plan, DiskFullFault | FailedSyncFault):
            active.record.took_effect = True
            gone = [index, *self._host_mates(index, active.plan)]
            self._hold_down(gone)
            stage.later(active.plan.down_ms, f"restart {index}", lambda: self._restart(active, gone))
        return True

    def look(self) -> None:
        """See whether those are gone that faults took down, where that is not seen at once."""
        for active in self._active:
            if not active.is_over and isinstance(active.plan, KillFault | DiskLossFault):
                self._note_whether_gone(active)
        self.on_progress()

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def _schedule_at_its_time(self, planned: _Planned) -> None:
        if planned.plan.at_ms is not None:
            self._waiting.remove(planned)
            self._stage.at(planned.plan.at_ms, f"fault {planned.number}", lambda: self._begin(planned))

    def _begin_soon(self, planned: _Planned) -> None:
        self._stage.later(0, f"fault {planned.number}", lambda: self._begin(planned))

    def _begin(self, planned: _Planned) -> None:
        if planned.is_withdrawn:
            return
        plan, record = planned.plan, planned.record
        active = _Active(next(self._keys), planned.number, plan, record)
        self._active.append(active)
        self._note_beginning(record)
        if isinstance(plan, LinkFault):
            record.impaired = impaired_by_links(plan, self._names)
            if isinstance(plan, PartitionFault):
                record.is_hard = not plan.overlap()
                if not plan.overlap():
                    record.sides = tuple(tuple(sorted(side)) for side in plan.sides(self._names))
            self._apply_links(lambda: self._is_in_force(active))
            return
        if isinstance(plan, UpgradeFault):
            self._begin_upgrade(active, plan)
            return
        active.targets, active.along = self._pick(plan)
        record.targets = tuple(self._names[index] for index in active.targets)
        record.impaired = tuple(self._names[index] for index in active.hit)
        record.is_hard = isinstance(plan, PauseFault | KillFault | DiskLossFault)
        if isinstance(plan, ImpairingFault):
            active.late_before = self._late(active, plan.kind)
            self._apply_impairments(active.targets, lambda: self._is_in_force(active))
        else:
            self._take_down(active, plan)
            self._is_in_force(active)

    def _is_in_force(self, active: _Active) -> None:
        """From now on a fault counts as under way."""
        plan, record, stage = active.plan, active.record, self._stage
        active.is_in_force = True
        self._note_beginning(record)
        stage.notice(f"height {stage.height}: {plan.kind} of {record.whom} begins")
        for_ms = getattr(plan, "for_ms", None)
        if active.is_to_end:
            self._end(active)
        elif for_ms is not None:
            stage.later(for_ms, f"fault {active.number} ends", lambda: self._end(active))

    def _note_beginning(self, record: FaultRecord) -> None:
        record.begun_ms, record.height_when_begun = self._stage.now_ms, self._stage.height

    def _end(self, active: _Active) -> None:
        if active.is_over:
            return
        if not active.is_in_force:
            active.is_to_end = True
            return
        active.is_over = True
        active.record.ended_ms = self._stage.now_ms
        if isinstance(active.plan, LinkFault):
            self._apply_links(lambda: self._note_end(active))
        elif isinstance(active.plan, ImpairingFault):
            self._apply_impairments(active.targets, lambda: self._note_end(active))
        else:
            self._note_end(active)

    def _note_end(self, active: _Active) -> None:
        """What was seen of a fault that is over."""
        plan, record, stage = active.plan, active.record, self._stage
        if isinstance(plan, LinkFault):
            record.took_effect, record.evidence = seen_on_links(plan, stage.link_counts(active.key))
        elif isinstance(plan, ImpairingFault):
            late = self._late(active, plan.kind) - active.late_before
            record.took_effect, record.evidence = late > 0, stage.words_of_late(plan.kind, late, record.targets)
        elif isinstance(plan, UpgradeFault):
            self._note_upgrade(active, plan)
        else:
            self._note_return(active)
        active.is_noted = True
        record.height_when_ended = stage.height
        stage.notice(f"height {stage.height}: {plan.kind} of {record.whom} is over: {record.evidence}")

    def _is_awaited(self, active: _Active) -> bool:
        """Whether the run must not end yet: a fault is under way, did not just lie in wait for a write, and can end."""
        lies_in_wait = isinstance(active.plan, DiskFullFault | FailedSyncFault) and not active.failures
        is_hopeless = any(self._stage.is_lost(index) for index in active.targets)
        return not (active.is_noted or lies_in_wait or is_hopeless)

    # --- links --------------------------------------------------------------------------------------------------------

    def _apply_links(self, then: Then) -> None:
        lasting = [active for active in self._active if not active.is_over]
        faults = {active.key: active.plan for active in lasting if isinstance(active.plan, LinkFault)}
        self._stage.set_links(faults, then)

    # --- whom it hits -------------------------------------------------------------------------------------------------

    def _pick(self, plan: NodeFault) -> tuple[list[int], list[int]]:
        """The validators that a fault is aimed at, and those that share their hosts and their fate.

        Who shares a killed host is a target itself.
        """
        stage = self._stage
        most = self._scenario.validators.withstood if plan.target[0] == AS_MANY_AS_WITHSTOOD else len(self._names)
        chosen = self._choose(plan.target, most)
        if not stage.shares_fate(plan):
            return chosen, []
        targets, victims = [], list[int]()
        for index in chosen:
            more = [each for each in self._on_host_of(index) if each not in victims]
            if len(victims) + len(more) <= most:
                victims += more
                targets.append(index)
        if isinstance(plan, KillFault):
            return victims, []
        return targets, [index for index in victims if index not in targets]

    def _choose(self, target: Sequence[str], most: int) -> list[int]:
        """The validators that a target stands for."""
        stage, word = self._stage, target[0]
        running = [index for index in range(len(self._names)) if stage.is_running(index)]
        if word == LEADER:
            leader = stage.leader()
            return [] if leader is None else [leader]
        if word in KEYWORDS:
            wanted = most if word == AS_MANY_AS_WITHSTOOD else 1
            return stage.random.sample(running, min(wanted, len(running)))
        return [self._names.index(name) for name in target]

    def _on_host_of(self, index: int) -> list[int]:
        """The validators of a host that run, or would but for a fault."""
        section, stage = self._scenario.validators, self._stage
        mates = [each for each in range(len(self._names)) if section.host_of(each) == section.host_of(index)]
        return [each for each in mates if stage.is_running(each) or self.is_held_down(each)]

    def _host_mates(self, index: int, plan: AnyFault) -> list[int]:
        """Who goes down with a validator that stopped by itself."""
        if not self._stage.shares_fate(plan):
            return []
        section = self._scenario.validators
        late = section.late
        everybody = range(len(self._names))
        mates = [each for each in everybody if section.host_of(each) == section.host_of(index) and each != index]
        return [each for each in mates if late.get(each, 0) <= self._stage.height]

    # --- impairments --------------------------------------------------------------------------------------------------

    def _apply_impairments(self, targets: Sequence[int], then: Then) -> None:
        self._stage.impair({index: self._impairment(index) for index in targets}, then)

    def _impairment(self, index: int) -> Impairment:
        plans = [active.plan for active in self._active if not active.is_over and index in active.targets]
        return Impairment(
            is_paused=any(isinstance(plan, PauseFault) for plan in plans),
            sync_ms=max((plan.sync_ms for plan in plans if isinstance(plan, SlowDiskFault)), default=None),
            job_ms=max((plan.job_ms for plan in plans if isinstance(plan, SlowExecutionFault)), default=None),
            clock_speed=math.prod(plan.clock_speed for plan in plans if isinstance(plan, ClockSkewFault)),
        )

    def _late(self, active: _Active, kind: str) -> int:
        return sum(self._stage.late(index, kind) for index in active.targets)

    # --- down and up again --------------------------------------------------------------------------------------------

    def _take_down(self, active: _Active, plan: DownFault) -> None:
        stage = self._stage
        if isinstance(plan, DiskFullFault | FailedSyncFault):
            for index in active.targets:
                stage.lay_trap(index, plan)
            return
        were_running = [index for index in active.hit if stage.is_running(index)]
        active.deaths_before = {index: stage.deaths(index) for index in were_running}
        self._hold_down(active.hit)
        for index in were_running:
            if index in active.targets and isinstance(plan, DiskLossFault):
                stage.keep_blocks(index)
            stage.crash(index, plan)
            if index not in active.targets:
                continue
            if isinstance(plan, WipeFault):
                stage.lose_disk(index)
            elif isinstance(plan, BitRotFault) and (place := stage.flip_a_bit(index)) is not None:
                active.rotten[index] = place
        self._note_whether_gone(active)
        stage.later(plan.down_ms, f"restart {active.number}", lambda: self._restart(active, active.hit))

    def _note_whether_gone(self, active: _Active) -> None:
        """A fault that takes validators down has bitten once all that ran are gone."""
        gone = [self._stage.deaths(index) > before for index, before in active.deaths_before.items()]
        has_rotted = bool(active.rotten) or not isinstance(active.plan, BitRotFault)
        active.record.took_effect = bool(gone) and all(gone) and has_rotted

    def _hold_down(self, indices: Sequence[int]) -> None:
        for index in indices:
            self._held_down[index] += 1

    def _restart(self, active: _Active, indices: Sequence[int]) -> None:
        active.is_back = True
        self._let_up(indices)

    def _let_up(self, indices: Sequence[int]) -> None:
        """A fault holds validators down no more: those that none does are started."""
        for index in indices:
            self._held_down[index] -= 1
            if not self._held_down[index] and not self._stage.is_running(index):
                self._stage.start(index)
                self._note_first_back(index)
        self._end_those_that_are_back()

    def _note_first_back(self, index: int) -> None:
        """A validator runs again: from now on no fault that took it down has all of its targets down."""
        for active in self._active:
            if index in active.hit and not active.is_over and active.record.first_back_ms is None:
                active.record.first_back_ms = self._stage.now_ms

    def _end_those_that_are_back(self) -> None:
        for active in self._active:
            if active.is_back and not active.is_over and self._has_come_back(active):
                self._end(active)

    def _has_come_back(self, active: _Active) -> bool:
        stage = self._stage
        lies_in_wait = any(stage.has_trap(index) and index not in active.failures for index in active.targets)
        return not lies_in_wait and all(stage.is_up(index) for index in active.hit)

    def _note_return(self, active: _Active) -> None:
        """What is to be said of validators that were down, now that they are up."""
        stage, record = self._stage, active.record
        recoveries = [found for index in active.targets if (found := stage.recovery(index)) is not None]
        words = [f"down from height {record.height_when_begun} to {stage.height}"]
        for index in active.targets:
            name, rotten, reason = self._names[index], active.rotten.get(index), active.failures.get(index)
            if rotten is not None:
                words.append(f"a bit of {rotten} of {name} flipped")
                if reason is None:
                    record.problem = f"{name} started from a disk on which a bit of {rotten} had flipped"
            if reason is not None:
                words.append(f"{name} stopped: {reason}")
        words += stage.describe_restart(active.targets)
        if isinstance(active.plan, DiskLossFault):
            words.append(f"joined by the snapshot of {_heights([each.snapshot_height for each in recoveries])}")
        else:
            words.append(f"recovered {_heights([each.recovered_height for each in recoveries])}")
        record.evidence = ", ".join(words)

    # --- upgrades -----------------------------------------------------------------------------------------------------

    def _begin_upgrade(self, active: _Active, plan: UpgradeFault) -> None:
        is_bounded = plan.target == [AS_MANY_AS_WITHSTOOD]
        most = self._scenario.validators.withstood if is_bounded else len(self._names)
        chosen = self._choose(plan.target or self._names, most)
        for index in chosen:
            group = self._on_host_of(index)
            if group and group not in active.left:
                active.left.append(group)
        active.record.one_at_a_time = tuple(tuple(self._names[each] for each in group) for group in active.left)
        self._is_in_force(active)
        self._stage.prepare(chosen, plan.release, lambda: self._go_on(active))

    def _go_on(self, active: _Active) -> None:
        """The next host, where all is well with those before."""
        plan, stage = active.plan, self._stage
        assert isinstance(plan, UpgradeFault)
        if active.is_over:
            return
        active.settles_from = None
        diverged = [self._names[index] for index in active.targets if stage.has_diverged(index)]
        if diverged:
            active.record.problem = f"{diverged[0]} diverged with version {plan.version}: nobody else was upgraded then"
        if diverged or not active.left:
            self._end(active)
            return
        group = active.left.pop(0)
        active.targets += group
        active.record.targets = tuple(self._names[index] for index in active.targets)
        active.deaths_before.update({index: stage.deaths(index) for index in group if stage.is_running(index)})
        self._hold_down(group)
        stage.replace(group, plan.release)
        names = ", ".join(self._names[index] for index in group)
        stage.notice(f"height {stage.height}: version {plan.version} goes to {names}")
        stage.later(plan.down_ms, f"upgrade {active.number}", lambda: self._start_upgraded(active, group))

    def _start_upgraded(self, active: _Active, group: Sequence[int]) -> None:
        self._let_up(group)
        active.settles_from = self._stage.height

    def _has_settled(self, active: _Active) -> bool:
        """Whether those that were last to go have shown that they run, or that they do not."""
        assert isinstance(active.plan, UpgradeFault) and active.settles_from is not None
        if any(self._stage.has_diverged(index) for index in active.targets):
            return True
        goal = active.settles_from + active.plan.heights_between
        return all(self._stage.is_up(each) and self._stage.height_of(each) >= goal for each in active.targets)

    def _note_upgrade(self, active: _Active, plan: UpgradeFault) -> None:
        stage, record = self._stage, active.record
        runs = [self._names[index] for index in active.targets if stage.runs(index, plan.release)]
        gone = [stage.deaths(index) > before for index, before in active.deaths_before.items()]
        record.took_effect = bool(gone) and all(gone) and len(runs) == len(active.targets)
        words = [f"{len(runs)} of {len(active.targets)} validators run version {plan.version} now"]
        record.evidence = ", ".join([*words, *stage.describe_restart(active.targets)])

    def _explains(self, active: _Active, index: int, reason: str) -> bool:
        """Whether a fault is why a validator stopped: what it says must be what the fault does."""
        if active.is_over or index not in active.targets or index in active.failures:
            return False
        match active.plan:
            case BitRotFault():
                rotten = active.rotten.get(index)
                return rotten is not None and active.is_back and rotten.partition(" at ")[0] in reason
            case DiskFullFault():
                return PLANNED_FAILURE in reason or NO_SPACE in reason
            case FailedSyncFault():
                return PLANNED_FAILURE in reason
        return False


def _heights(heights: Sequence[int]) -> str:
    return listed("height", heights) if heights else "no height"


def _plans(scenario: Scenario) -> Iterator[_Planned]:
    names = scenario.validators.names
    for number, (given, plan) in enumerate(zip(scenario.faults, scenario.planned_faults, strict=True)):
        whom = in_the_scenarios_words(given, plan, names)
        yield _Planned(number, plan, FaultRecord(plan.kind, whom, plan.at_height, at_ms=plan.at_ms))
