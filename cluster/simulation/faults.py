"""Performs a scenario's faults on the simulator, and notes what was seen of each.

A fault of links changes the link model, an impairment slows a machine down or holds it, and a fault that takes a
machine down crashes it and starts it again. Several may be under way at once: links and machines follow from all of
them, and a machine is started when none holds it down any more. A fault that was seen to bite says by what: messages
dropped, events that were late, a process that was gone.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from cluster.byzantine.base import consensus_content, vote_of
from cluster.faults import (
    AS_MANY_AS_WITHSTOOD,
    KEYWORDS,
    LEADER,
    AnyFault,
    BitRotFault,
    ClockSkewFault,
    DegradeFault,
    DiskFullFault,
    DownFault,
    FailedSyncFault,
    KillFault,
    LeaderDelayFault,
    LinkFault,
    NodeFault,
    OneWayPartitionFault,
    PartitionFault,
    PauseFault,
    SlowDiskFault,
    SlowExecutionFault,
    WipeFault,
)
from cluster.forks import check_faults_of_the_past
from cluster.links import Link, Links
from cluster.record import FaultRecord
from cluster.scenario import Scenario
from cluster.simulation.clock import MICROSECONDS_A_MILLISECOND, VirtualClock
from cluster.simulation.disk import FaultPlan, MemoryDisk
from cluster.simulation.machine import Machine
from consensus.messages import Vote, VoteKind
from consensus.types import fault_bound, quorum
from validator.archive import ARCHIVE_FILE
from validator.joining import SnapshotJoin
from validator.state.log import FRAMES_OFFSET
from validator.types import ValidatorError

FILLING: Final = frozenset({"append", "write", "replace"})
SYNCING: Final = frozenset({"sync"})
STATE_LOG_PREFIX: Final = "state/log-"
FINALS_SINCE_ROT: Final = 2
"""So many final blocks at least were committed behind what rots: damage to the last commit looks like a torn write,
and recovery derives it again from the archive, as it should."""


@dataclass(slots=True)
class Stage:
    """The parts of a simulation that faults act on."""

    scenario: Scenario
    clock: VirtualClock
    random: Random
    links: Links
    machines: Sequence[Machine]
    join: Callable[[int, MemoryDisk], SnapshotJoin]
    """How a machine without state joins."""
    height: Callable[[], int]
    """The highest final height."""
    notice: Callable[[str], None]
    problem: Callable[[str], None]
    """Told of what went wrong that no fault explains."""


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

    number: int
    plan: AnyFault
    record: FaultRecord
    machines: list[Machine] = field(default_factory=list)
    impaired_before: int = 0
    delayed: int = 0
    """Sends that were delayed, of a fault of leaders."""
    links: dict[Link, Link] = field(default_factory=dict)
    """What stands in a link's place while it lasts."""
    failures: dict[int, str] = field(default_factory=dict)
    """Why machines stopped by themselves, by index."""
    rotten: dict[int, str] = field(default_factory=dict)
    """Where a bit flipped, by machine."""
    is_back: bool = False
    """Its machines are allowed to run again."""
    is_over: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether the run must not end yet: it is under way, and did not just lie in wait for a write."""
        return not self.is_over and not (isinstance(self.plan, DiskFullFault | FailedSyncFault) and not self.failures)


class Faults:
    """All faults of a run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._names = stage.scenario.validators.names
        self._planned = [_plan(number, plan) for number, plan in enumerate(stage.scenario.planned_faults)]
        self.records = [planned.record for planned in self._planned]
        self._waiting = list(self._planned)
        self._active: list[_Active] = []
        self._listening: list[tuple[_Planned, dict[int, set[int]]]] = []
        """Faults that wait for votes: by view, who has sent one."""
        self._leader_delays: list[_Active] = []
        self._held_down: Counter[int] = Counter()
        """By machine, how many faults hold it down."""
        self._sizes: dict[int, deque[dict[str, int]]] = {}
        """By machine, how much of each file was durable after its last final blocks; where bits are to rot."""
        self._watches_disks = any(isinstance(plan, BitRotFault) for plan in stage.scenario.planned_faults)

    @property
    def are_over(self) -> bool:
        """Whether no fault is under way; such as did not begin yet do not count."""
        return not any(active.is_awaited for active in self._active)

    def schedule(self) -> None:
        """Let those begin that begin at a time."""
        for planned in self._planned:
            self._schedule_at_its_time(planned)

    def _schedule_at_its_time(self, planned: _Planned) -> None:
        if planned.plan.at_ms is not None:
            self._waiting.remove(planned)
            delay_us = planned.plan.at_ms * MICROSECONDS_A_MILLISECOND - self._stage.clock.now_us
            self._stage.clock.after(delay_us, f"fault {planned.number}", b"", lambda: self._begin(planned))

    def become(self, scenario: Scenario) -> None:
        """From now on the faults are this scenario's. Raises :class:`ValueError` where that changes what has begun."""
        stage = self._stage
        before = [planned.plan for planned in self._planned]
        check_faults_of_the_past(before, scenario.planned_faults, stage.height(), stage.clock.now_ms)
        left, self._planned, new = self._planned, [], []
        for number, plan in enumerate(scenario.planned_faults):
            planned = next((each for each in left if each.plan == plan), None)
            if planned is None:
                planned = _plan(number, plan)
                new.append(planned)
            else:
                left.remove(planned)
            self._planned.append(planned)
        for planned in left:
            planned.is_withdrawn = True
        stage.scenario = scenario
        self.records[:] = [planned.record for planned in self._planned]
        self._waiting = [planned for planned in self._planned if planned in self._waiting or planned in new]
        for planned in new:
            self._schedule_at_its_time(planned)
        self._watches_disks = any(isinstance(plan, BitRotFault) for plan in scenario.planned_faults)

    def on_new_height(self, height: int) -> None:
        """A height is final for the first time."""
        for planned in list(self._waiting):
            at_height = planned.plan.at_height
            if at_height is not None and height >= at_height:
                self._waiting.remove(planned)
                if planned.plan.after_votes is not None:
                    self._listening.append((planned, {}))
                else:
                    self._later(0, f"fault {planned.number}", lambda p=planned: self._begin(p))  # type: ignore[misc]
        for active in self._active:
            until = getattr(active.plan, "until_height", None)
            if until is not None and height >= until and not active.is_over:
                self._later(0, f"fault {active.number} ends", lambda a=active: self._end(a))  # type: ignore[misc]

    def on_sent(self, sender: int, payload: bytes) -> None:
        """A machine sends something; some faults wait for votes."""
        if not self._listening or (vote := _vote_in(payload)) is None:
            return
        for planned, senders in list(self._listening):
            if vote.kind not in VOTES[planned.plan.after_votes or ""]:
                continue
            senders.setdefault(vote.view, set()).add(sender)
            if len(senders[vote.view]) >= quorum(len(self._names)):
                self._listening.remove((planned, senders))
                self._later(0, f"fault {planned.number}", lambda p=planned: self._begin(p))  # type: ignore[misc]

    def on_final(self, index: int) -> None:
        """A machine has committed a final block."""
        if self._watches_disks:
            disk = self._stage.machines[index].disk
            sizes = {name: disk.durable_size(name) for name in disk.names() if _may_rot(name)}
            self._sizes.setdefault(index, deque(maxlen=FINALS_SINCE_ROT + 1)).append(sizes)

    def on_joined(self) -> None:
        """A machine has its snapshot; it is up once this event is done."""
        if self._active:
            self._later(0, "joined", self._end_those_that_are_back)

    def on_machine_failed(self, index: int, error: ValidatorError) -> None:
        """A machine stopped by itself."""
        machine = self._stage.machines[index]
        machine.crash(self._stage.random)
        active = next((a for a in self._active if self._explains(a, machine)), None)
        if active is None:
            self._stage.problem(f"{machine.name} stopped: {error}")
            return
        active.failures[index] = str(error)
        self._stage.notice(f"height {self._stage.height()}: {machine.name} stopped: {error}")
        if isinstance(active.plan, BitRotFault):
            self._replace_disk(machine)
            self._later(0, f"another disk for {index}", machine.start)
        elif isinstance(active.plan, DiskFullFault | FailedSyncFault):
            active.record.bit = True
            self._held_down[index] += 1
            self._later(active.plan.down_ms, f"restart {index}", lambda: self._restart(active, [machine]))

    def leader_delay_us(self, sender: int) -> int:
        """How much later everything arrives that a validator sends now, because it leads."""
        delay_us = 0
        for active in self._leader_delays:
            validator = self._stage.machines[sender].validator
            if isinstance(active.plan, LeaderDelayFault) and validator and validator.node.leader == sender:
                active.delayed += 1
                delay_us += active.plan.delay_ms * MICROSECONDS_A_MILLISECOND
        return delay_us

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def _begin(self, planned: _Planned) -> None:
        if planned.is_withdrawn:
            return
        number, plan, record = planned.number, planned.plan, planned.record
        active = _Active(number, plan, record)
        self._active.append(active)
        record.begun_ms, record.height_when_begun = self._stage.clock.now_ms, self._stage.height()
        match plan:
            case PartitionFault() | OneWayPartitionFault() | DegradeFault() | LeaderDelayFault():
                record.impaired = _impaired_by_links(plan, self._names)
                if isinstance(plan, PartitionFault):
                    record.is_hard = True
                    record.sides = tuple(tuple(sorted(side)) for side in plan.sides(self._names))
                self._apply_links()
            case _:
                active.machines = self._pick(plan)
                active.impaired_before = sum(machine.impaired for machine in active.machines)
                record.targets = record.impaired = tuple(machine.name for machine in active.machines)
                record.is_hard = isinstance(plan, PauseFault | KillFault | WipeFault | BitRotFault)
                if isinstance(plan, PauseFault | SlowDiskFault | SlowExecutionFault | ClockSkewFault):
                    self._apply_impairments(active.machines)
                else:
                    self._take_down(active, plan)
        whom = f" ({', '.join(record.targets)})" if plan.whom in KEYWORDS else ""
        self._stage.notice(f"height {self._stage.height()}: {plan.kind} of {plan.whom}{whom} begins")
        for_ms = getattr(plan, "for_ms", None)
        if for_ms is not None:
            self._later(for_ms, f"fault {number} ends", lambda: self._end(active))

    def _end(self, active: _Active) -> None:
        if active.is_over:
            return
        active.is_over = True
        record, plan = active.record, active.plan
        match plan:
            case PartitionFault() | OneWayPartitionFault() | DegradeFault() | LeaderDelayFault():
                self._apply_links()
                record.bit, record.evidence = _seen_on_links(active, plan)
            case PauseFault() | SlowDiskFault() | SlowExecutionFault() | ClockSkewFault():
                late = sum(machine.impaired for machine in active.machines) - active.impaired_before
                record.bit = late > 0
                record.evidence = f"{late:,} {_LATE[plan.kind]} of {', '.join(record.targets) or 'nobody'}"
                self._apply_impairments(active.machines)
            case _:
                self._note_return(active)
        record.ended_ms, record.height_when_ended = self._stage.clock.now_ms, self._stage.height()
        self._stage.notice(f"height {self._stage.height()}: {plan.kind} of {plan.whom} is over: {record.evidence}")

    def _later(self, delay_ms: int, label: str, call: Callable[[], None]) -> None:
        self._stage.clock.after(delay_ms * MICROSECONDS_A_MILLISECOND, label, b"", call)

    # --- links --------------------------------------------------------------------------------------------------------

    def _apply_links(self) -> None:
        lasting = [active for active in self._active if not active.is_over]
        self._leader_delays = [active for active in lasting if isinstance(active.plan, LeaderDelayFault)]
        changes = [
            _link_change(active, active.plan, self._names)
            for active in lasting
            if isinstance(active.plan, PartitionFault | OneWayPartitionFault | DegradeFault)
        ]
        self._stage.links.change(changes)

    # --- machines -----------------------------------------------------------------------------------------------------

    def _pick(self, plan: NodeFault) -> list[Machine]:
        """The machines that a fault hits: everything on their hosts, where the hosts are killed."""
        stage, section = self._stage, self._stage.scenario.validators
        running = [machine for machine in stage.machines if machine.is_running]
        word, most = plan.target[0], len(stage.machines)
        if word == LEADER:
            voters = [machine.validator.node for machine in running if machine.validator is not None]
            newest = max(voters, key=lambda node: node.view, default=None)
            chosen = [] if newest is None else [stage.machines[newest.leader]]
        elif word in KEYWORDS:
            most = fault_bound(len(stage.machines)) if word == AS_MANY_AS_WITHSTOOD else most
            wanted = most if word == AS_MANY_AS_WITHSTOOD else 1
            chosen = stage.random.sample(running, min(wanted, len(running)))
        else:
            chosen = [stage.machines[self._names.index(name)] for name in plan.target]
        if not isinstance(plan, KillFault):
            return chosen
        victims: list[Machine] = []
        for machine in chosen:
            on_host = [m for m in stage.machines if section.host_of(m.index) == section.host_of(machine.index)]
            more = [m for m in on_host if m not in victims and (m.is_running or self._held_down[m.index])]
            if len(victims) + len(more) <= most:
                victims += more
        return victims

    def _apply_impairments(self, machines: Sequence[Machine]) -> None:
        for machine in machines:
            plans = [a.plan for a in self._active if not a.is_over and machine in a.machines]
            syncs = [plan.sync_ms for plan in plans if isinstance(plan, SlowDiskFault)]
            jobs = [plan.job_ms for plan in plans if isinstance(plan, SlowExecutionFault)]
            machine.sync_us = max(syncs) * MICROSECONDS_A_MILLISECOND if syncs else machine.pace.sync_us
            machine.job_us = max(jobs) * MICROSECONDS_A_MILLISECOND if jobs else machine.pace.job_us
            factors = [plan.factor for plan in plans if isinstance(plan, ClockSkewFault)]
            machine.set_clock_speed(machine.pace.clock_speed * math.prod(factors))
            is_paused = any(isinstance(plan, PauseFault) for plan in plans)
            if is_paused:
                machine.pause()
            elif machine.is_paused:
                machine.go_on()

    def _take_down(self, active: _Active, plan: DownFault) -> None:
        if isinstance(plan, DiskFullFault | FailedSyncFault):
            verbs = FILLING if isinstance(plan, DiskFullFault) else SYNCING
            files = plan.of or "" if isinstance(plan, FailedSyncFault) else ""
            for machine in active.machines:
                machine.disk.plan = FaultPlan(machine.disk.operations + 1, verbs=verbs, files=files)
            return
        were_running = [machine for machine in active.machines if machine.is_running]
        for machine in active.machines:
            self._held_down[machine.index] += 1
        for machine in were_running:
            machine.crash(self._stage.random, isinstance(plan, KillFault) and plan.reorders)
            if isinstance(plan, WipeFault):
                self._replace_disk(machine)
            elif isinstance(plan, BitRotFault):
                self._flip_a_bit(active, machine)
        gone = bool(were_running) and not any(machine.is_running for machine in were_running)
        active.record.bit = gone and (bool(active.rotten) or not isinstance(plan, BitRotFault))
        self._later(plan.down_ms, f"restart {active.number}", lambda: self._restart(active, active.machines))

    def _restart(self, active: _Active, machines: Sequence[Machine]) -> None:
        active.is_back = True
        for machine in machines:
            self._held_down[machine.index] -= 1
            if not self._held_down[machine.index] and not machine.is_running:
                machine.start()
                self._note_first_back(machine)
        self._end_those_that_are_back()

    def _note_first_back(self, machine: Machine) -> None:
        """A machine runs again: from now on no fault that took it down has all of its targets down."""
        for active in self._active:
            if machine in active.machines and not active.is_over and active.record.first_back_ms is None:
                active.record.first_back_ms = self._stage.clock.now_ms

    def _end_those_that_are_back(self) -> None:
        for active in self._active:
            lies_in_wait = any(m.disk.plan is not None and m.index not in active.failures for m in active.machines)
            if active.is_back and not active.is_over and not lies_in_wait and all(m.is_up for m in active.machines):
                self._end(active)

    def _note_return(self, active: _Active) -> None:
        """What is to be said of machines that were down, now that they are up."""
        stage, record = self._stage, active.record
        executors = [m.validator.executor for m in active.machines if m.validator is not None]
        words = [f"down from height {record.height_when_begun} to {stage.height()}"]
        for machine in active.machines:
            rotten, reason = active.rotten.get(machine.index), active.failures.get(machine.index)
            if rotten is not None:
                words.append(f"a bit of {rotten} of {machine.name} flipped")
                if reason is None:
                    record.problem = f"{machine.name} started from a disk on which a bit of {rotten} had flipped"
            if reason is not None:
                words.append(f"{machine.name} stopped: {reason}")
        if isinstance(active.plan, WipeFault | BitRotFault):
            words.append(f"joined by the snapshot of height {[e.archive.first_height for e in executors]}")
        else:
            words.append(f"recovered height {[e.recovered_height for e in executors]}")
        record.evidence = ", ".join(words)

    # --- disks --------------------------------------------------------------------------------------------------------

    def _explains(self, active: _Active, machine: Machine) -> bool:
        """Whether a fault is why a machine stopped."""
        if active.is_over or machine not in active.machines or machine.index in active.failures:
            return False
        is_rotten = isinstance(active.plan, BitRotFault) and machine.index in active.rotten and active.is_back
        return is_rotten or isinstance(active.plan, DiskFullFault | FailedSyncFault)

    def _replace_disk(self, machine: Machine) -> None:
        """Give a machine that is down a new disk; it has to join then."""
        machine.disk = MemoryDisk()
        self._sizes.pop(machine.index, None)
        machine.join = lambda disk: self._stage.join(machine.index, disk)

    def _flip_a_bit(self, active: _Active, machine: Machine) -> None:
        """Of the archive or the state's log, where it was durable long before."""
        random, disk, sizes = self._stage.random, machine.disk, self._sizes.get(machine.index, deque())
        old = sizes[0] if len(sizes) > FINALS_SINCE_ROT else {}
        ranges = [(name, _first_frame(name), min(size, disk.durable_size(name))) for name, size in old.items()]
        ranges = [(name, first, last) for name, first, last in ranges if first < last]
        if ranges:
            name, first, last = random.choice(ranges)
            offset = random.randrange(first, last)
            disk.flip_bit(name, offset, random.randrange(8))
            active.rotten[machine.index] = f"{name} at offset {offset}"


_LATE: Final = {
    "pause": "events held back",
    "slow_disk": "slow syncs",
    "slow_execution": "slow jobs",
    "clock_skew": "timers at another speed",
}


def _plan(number: int, plan: AnyFault) -> _Planned:
    return _Planned(number, plan, FaultRecord(plan.kind, plan.whom, plan.at_height, at_ms=plan.at_ms))


def _may_rot(name: str) -> bool:
    return name == ARCHIVE_FILE or name.startswith(STATE_LOG_PREFIX)


def _first_frame(name: str) -> int:
    return FRAMES_OFFSET if name.startswith(STATE_LOG_PREFIX) else 0


def _link_change(
    active: _Active, plan: PartitionFault | OneWayPartitionFault | DegradeFault, names: Sequence[str]
) -> Callable[[int, int, Link], Link]:
    """What stands in a link's place while the fault lasts."""
    if isinstance(plan, PartitionFault):
        sides = plan.sides(names)
        side = [next(number for number, members in enumerate(sides) if name in members) for name in names]

        def is_hit(sender: int, receiver: int) -> bool:
            return side[sender] != side[receiver]
    else:
        senders, receivers = _ends(plan, names)

        def is_hit(sender: int, receiver: int) -> bool:
            return names[sender] in senders and names[receiver] in receivers

    def change(sender: int, receiver: int, link: Link) -> Link:
        if link.is_cut or not is_hit(sender, receiver):
            return link
        other = active.links.get(link)
        if other is None:
            changes = plan.changes if isinstance(plan, DegradeFault) else {}
            other = active.links[link] = link.with_changes(changes)
            other.is_cut = not isinstance(plan, DegradeFault)
        return other

    return change


def _ends(plan: OneWayPartitionFault | DegradeFault, names: Sequence[str]) -> tuple[set[str], set[str]]:
    """From whom to whom. The side that is not given is everybody else, and everybody where neither is."""
    everybody = set(names)
    senders, receivers = set(plan.senders or ()), set(plan.receivers or ())
    if not senders and not receivers:
        return everybody, everybody
    return senders or everybody - receivers, receivers or everybody - senders


VOTES: Final = {
    "notarize": (VoteKind.NOTARIZE,),
    "nullify": (VoteKind.NULLIFY, VoteKind.TIMEOUT),
    "finalize": (VoteKind.FINALIZE,),
}


def _vote_in(payload: bytes) -> Vote | None:
    """The vote that a payload carries, if it is one."""
    message = consensus_content(payload)
    return None if message is None else vote_of(message)


def _impaired_by_links(plan: LinkFault, names: Sequence[str]) -> tuple[str, ...]:
    """The validators on which no certificate can count."""
    match plan:
        case PartitionFault():
            largest = max(plan.sides(names), key=len)
            whole = largest if len(largest) >= quorum(len(names)) else set()
            return tuple(name for name in names if name not in whole)
        case OneWayPartitionFault() | DegradeFault():
            senders, receivers = _ends(plan, names)
            fewer = senders if len(senders) <= len(receivers) else receivers
            return tuple(name for name in names if name in fewer)
        case LeaderDelayFault():
            return tuple(names)


def _seen_on_links(active: _Active, plan: LinkFault) -> tuple[bool, str]:
    """Whether the fault was seen to bite, and by what."""
    if isinstance(plan, LeaderDelayFault):
        return active.delayed > 0, f"{active.delayed:,} sends of leaders {plan.delay_ms:,} ms later"
    pairs = active.links.items()
    dropped = sum(link.dropped for _, link in pairs)
    if not isinstance(plan, DegradeFault):
        return dropped > 0, f"{dropped:,} messages dropped"
    slower = sum(
        link.sent for old, link in pairs if (old.latency_us, old.jitter_us) != (link.latency_us, link.jitter_us)
    )
    seen = {
        "with another latency": slower,
        "dropped": dropped if plan.loss or plan.bandwidth_kbps else 0,
        "doubled": sum(link.duplicated for _, link in pairs) if plan.duplication else 0,
        "held back": sum(link.reordered for _, link in pairs) if plan.reordering else 0,
        "waiting for others": sum(link.waited for _, link in pairs) if plan.bandwidth_kbps else 0,
    }
    carried = sum(link.sent for _, link in pairs)
    words = [f"{count:,} {what}" for what, count in seen.items() if count]
    return bool(words), f"{carried:,} messages, of them {', '.join(words) or 'none touched'}"
