"""The faults of a run: when each begins and ends, and its record. The same for every driver.

The engine is pure: it is told what was seen, and returns orders (:mod:`cluster.faults.events`). Several faults may be
in force at once: links and impairments follow from all of them, and a validator is started when no fault holds it down
(:mod:`cluster.faults.targets`).

On real machines an order takes a while. If an order counts only once it is carried out, it has a call that the driver
tells then: a fault of links begins when it is in force everywhere, and ends when it is first undone. So every
observation in between is made under the fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from cluster.faults.active import ActiveFault
from cluster.faults.calls import (
    Begin,
    End,
    FaultCall,
    InForce,
    NoteEnd,
    Restart,
    StartValidator,
    UpgradeNext,
    UpgradeStart,
)
from cluster.faults.downtime import Downtime
from cluster.faults.events import (
    BitFlipped,
    Confirm,
    Count,
    Counted,
    Due,
    Failed,
    FaultOrder,
    FaultSeen,
    Impair,
    LoseDisk,
    MachineLost,
    Network,
    Observe,
    Observed,
    SetLinks,
    Start,
    Voted,
    Wake,
)
from cluster.faults.impairment import Impairment
from cluster.faults.link_faults import impaired_by_links
from cluster.faults.stage import Stage
from cluster.faults.targets import Targets
from cluster.faults.upgrade import RollingUpgrade
from cluster.record.run import FaultRecord
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import (
    AnyFault,
    BitRotFault,
    DiskLossFault,
    DownFault,
    ImpairingFault,
    KillFault,
    LinkFault,
    LoseNodeFault,
    PartitionFault,
    PauseFault,
    UpgradeFault,
    in_the_scenarios_words,
)
from cluster.scenario.sections.forks import check_faults_of_the_past
from consensus.messages import VoteKind
from consensus.types import quorum

VOTES: Final = {
    "notarize": (VoteKind.NOTARIZE,),
    "nullify": (VoteKind.NULLIFY, VoteKind.TIMEOUT),
    "finalize": (VoteKind.FINALIZE,),
}
"""The votes that a fault awaits, keyed by its field ``after_votes``."""


@dataclass(slots=True, eq=False)
class _Planned:
    """A fault of the scenario."""

    number: int
    plan: AnyFault
    record: FaultRecord
    is_withdrawn: bool = False
    """Whether the fault must not begin any more."""
    place: int = -1
    """The fault's number among all that were ever planned."""


class FaultEngine:
    """Schedules, begins and ends the faults of a run, and keeps their records."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._seed = str(seed)
        self._stage = Stage(scenario.validators.count)
        self._validators = scenario.validators
        self._began_ms: float | None = None
        """When the testnet was up: the planned times of faults count from it. ``None`` while it is not."""
        self.targets = Targets(scenario.validators, self._stage)
        self._planned = list(_plans(scenario))
        self._ever_planned: list[_Planned] = []
        """All planned faults, including withdrawn ones."""
        for planned in self._planned:
            _note_planned(self._ever_planned, planned)
        self._unplanned: list[FaultRecord] = []
        self.records = [planned.record for planned in self._planned]
        """The records of the scenario's faults, in order, then of the unplanned ones."""
        self._waiting = list(self._planned)
        self._listening: list[tuple[_Planned, dict[int, set[int]]]] = []
        """Faults that wait for votes, each with the validators that have sent such votes, keyed by view."""
        self._active: list[ActiveFault] = []
        """All faults that began, including those that are over; the index is the key."""
        self._downtimes: list[Downtime] = []
        self._upgrades: list[RollingUpgrade] = []

    @property
    def are_over(self) -> bool:
        """Whether the run need not wait for any fault that has begun. Faults that have not begun do not count."""
        return not any(active.is_awaited(self._stage) for active in self._active)

    @property
    def is_listening(self) -> bool:
        """Whether a fault waits for votes (:class:`Voted`)."""
        return bool(self._listening)

    def awaits(self, vote: Voted) -> bool:
        """Whether a fault waits for such a vote, and has none yet of this validator in this view."""
        return any(
            vote.kind in VOTES[planned.plan.after_votes or ""]
            and vote.sender in self._validators.committee(vote.view)
            and vote.sender not in senders.get(vote.view, ())
            for planned, senders in self._listening
        )

    @property
    def have_begun(self) -> bool:
        """Whether any fault has begun so far."""
        return bool(self._active)

    @property
    def is_upgrading(self) -> bool:
        """Whether an upgrade is under way, for which the heights of validators count."""
        return any(not upgrade.is_over for upgrade in self._upgrades)

    def planned_ms(self, at_ms: float) -> float:
        """A time of the run, on the clock of planned faults: milliseconds since the testnet was up."""
        return at_ms - (self._began_ms or 0.0)

    # --- what is told -------------------------------------------------------------------------------------------------

    def begin(self, at_ms: float) -> list[FaultOrder]:
        """The testnet is up: schedule the faults that begin at a given time, as opposed to a height."""
        self._began_ms = self._stage.now_ms = at_ms
        for planned in self._planned:
            self._schedule_at_its_time(planned)
        return self._stage.take_orders()

    def reach(self, height: int) -> list[FaultOrder]:
        """The highest final height: begin the faults that wait for it, and end those that last until it."""
        if self._began_ms is None or height <= self._stage.height:
            return []
        self._stage.height = height
        for planned in list(self._waiting):
            at_height = planned.plan.at_height
            if at_height is not None and height >= at_height:
                self._waiting.remove(planned)
                if planned.plan.after_votes is not None:
                    self._listening.append((planned, {}))
                    what = f"{planned.plan.kind} of {planned.record.whom}"
                    self._stage.notice(f"{what} waits for votes: {planned.plan.after_votes}")
                else:
                    self._begin_soon(planned)
        for active in self._active:
            until = getattr(active.plan, "until_height", None)
            if until is not None and height >= until and not active.is_over:
                self._stage.later(0, f"fault {active.number} ends", End(active.key))
        return self._stage.take_orders()

    def check(self, scenario: Scenario, at_ms: float) -> None:
        """Raises :class:`ValueError` if this scenario's faults change, at a time of the run, a fault that began."""
        before = [planned.plan for planned in self._planned]
        check_faults_of_the_past(before, scenario.planned_faults, self._stage.height, at_ms)

    def adopt(self, scenario: Scenario, seed: int | None = None) -> list[FaultOrder]:
        """Replace the faults by this scenario's, which change none that began (:meth:`check`).

        With a ``seed`` what faults leave open is decided by that from now on.
        """
        if seed is not None:
            self._seed = f"{seed}/fork"
        left, self._planned, new = self._planned, [], []
        for fresh in _plans(scenario):
            planned = next((each for each in left if each.plan == fresh.plan), None)
            if planned is None:
                planned = fresh
                new.append(planned)
                _note_planned(self._ever_planned, planned)
            else:
                left.remove(planned)
            self._planned.append(planned)
        for planned in left:
            planned.is_withdrawn = True
        self.records[:] = [*(planned.record for planned in self._planned), *self._unplanned]
        self._waiting = [planned for planned in self._planned if planned in self._waiting or planned in new]
        if self._began_ms is not None:
            for planned in new:
                self._schedule_at_its_time(planned)
        return self._stage.take_orders()

    def handle(self, seen: FaultSeen) -> list[FaultOrder]:
        """Take note of what was seen, and return what follows from it."""
        stage = self._stage
        match seen:
            case Network(at_ms):
                stage.now_ms, stage.network = at_ms, seen
                self._look()
            case Due(at_ms, call):
                stage.now_ms = at_ms
                self._perform(call)
            case Voted():
                self._count_vote(seen)
            case Failed(at_ms, validator, reason):
                stage.now_ms = at_ms
                self._fail(validator, reason)
            case MachineLost(at_ms):
                stage.now_ms = at_ms
                self._lose(seen)
            case Counted(key, count):
                self._active[key].delays_before = count
            case BitFlipped(key, validator, place):
                self._downtime_of(key).note_rot(validator, place)
            case Observed():
                self._note_effect(seen)
            case _:
                assert_never(seen)
        return stage.take_orders()

    def explains(self, validator: int, reason: str) -> bool:
        """Whether a fault is the cause of a validator's stop (:class:`Failed`)."""
        return any(downtime.explains(validator, reason) for downtime in self._downtimes)

    def _perform(self, call: FaultCall) -> None:
        match call:
            case Begin(planned):
                self._begin(self._ever_planned[planned])
            case End(key):
                self._end(self._active[key])
            case InForce(key):
                self._is_in_force(self._active[key])
            case NoteEnd(key):
                self._observe(self._active[key])
            case Restart(key, indices):
                self._downtime_of(key).is_back = True
                self._let_up(indices)
            case StartValidator(index):
                self._stage.order(Start(index))
            case UpgradeNext(key):
                self._upgrade_of(key).upgrade_next()
            case UpgradeStart(key, group):
                self._upgrade_of(key).start(group)
            case _:
                assert_never(call)

    def _downtime_of(self, key: int) -> Downtime:
        return next(each for each in self._downtimes if each.fault.key == key)

    def _upgrade_of(self, key: int) -> RollingUpgrade:
        return next(each for each in self._upgrades if each.key == key)

    # --- what happens to validators -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """See which validators went down, which are up again, and whether upgrades can continue."""
        for downtime in self._downtimes:
            downtime.look()
            if downtime.has_come_back():
                self._end(downtime.fault)
        for upgrade in self._upgrades:
            upgrade.on_progress()

    def _count_vote(self, vote: Voted) -> None:
        """Begin the faults that waited for such votes, once they are a quorum."""
        for planned, senders in list(self._listening):
            if vote.kind not in VOTES[planned.plan.after_votes or ""]:
                continue
            committee = self._validators.committee(vote.view)
            if vote.sender in committee:
                senders.setdefault(vote.view, set()).add(vote.sender)
            if len(senders.get(vote.view, ())) >= quorum(len(committee)):
                self._listening.remove((planned, senders))
                self._begin_soon(planned)

    def _fail(self, index: int, reason: str) -> None:
        """A validator stopped because of a fault, and is down: schedule its restart."""
        stage = self._stage
        downtime = next((each for each in self._downtimes if each.explains(index, reason)), None)
        if downtime is None:
            return  # it is over meanwhile
        gone = downtime.note_failure(index, reason)
        stage.notice(f"{self.targets.names[index]} stopped: {reason}")
        if isinstance(downtime.plan, BitRotFault):
            stage.order(LoseDisk(index))
            stage.later(0, f"another disk for {index}", StartValidator(index))
        else:
            stage.later(downtime.plan.down_ms, f"restart {index}", Restart(downtime.fault.key, gone))

    def _lose(self, lost: MachineLost) -> None:
        """If no fault is the cause, the loss becomes an unplanned fault itself."""
        explained = [downtime.note_loss(lost.validators) for downtime in self._downtimes]
        if any(explained):
            return
        names = tuple(self.targets.names[index] for index in lost.validators)
        now_ms = round(self._stage.now_ms)
        plan = LoseNodeFault(kind="lose_node", target=list(names), at_ms=now_ms, disks="kept", down_ms=0)
        record = FaultRecord(plan.kind, lost.what, None, at_ms=now_ms, is_planned=False, targets=names, impaired=names)
        self._unplanned.append(record)
        self.records.append(record)
        active = ActiveFault(len(self._active), len(self.records), plan, record, list(lost.validators))
        self._active.append(active)
        downtime = self._downtime(active, plan)
        downtime.begin_unplanned(lost.reason)
        self._is_in_force(active)

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def _schedule_at_its_time(self, planned: _Planned) -> None:
        if planned.plan.at_ms is not None:
            self._waiting.remove(planned)
            at_ms = (self._began_ms or 0.0) + planned.plan.at_ms
            self._stage.order(Wake(at_ms, f"fault {planned.number}", Begin(planned.place)))

    def _begin_soon(self, planned: _Planned) -> None:
        self._stage.later(0, f"fault {planned.number}", Begin(planned.place))

    def _begin(self, planned: _Planned) -> None:
        if planned.is_withdrawn:
            return
        active = ActiveFault(len(self._active), planned.number, planned.plan, planned.record)
        self._active.append(active)
        self._note_beginning(active)
        plan, record, names = active.plan, active.record, self.targets.names
        if isinstance(plan, LinkFault):
            record.impaired = impaired_by_links(plan, names)
            if isinstance(plan, PartitionFault):
                record.is_hard = not plan.overlap()
                if not plan.overlap():
                    record.sides = tuple(tuple(sorted(side)) for side in plan.sides(names))
            self._apply_links(InForce(active.key))
        elif isinstance(plan, UpgradeFault):
            upgrade = self._upgrade(active, plan)
            upgrade.choose(self._lot(active))
            self._is_in_force(active)
            upgrade.begin()
        else:
            active.targets, active.along = self.targets.pick(plan, self._lot(active))
            record.targets = tuple(names[index] for index in active.targets)
            record.impaired = tuple(names[index] for index in active.hit)
            record.is_hard = isinstance(plan, PauseFault | KillFault | LoseNodeFault | DiskLossFault)
            if isinstance(plan, ImpairingFault):
                self._stage.order(Count(active.key, plan.kind, active.targets))
                self._apply_impairments(active, InForce(active.key))
            else:
                self._begin_downtime(active, plan)

    def _upgrade(self, active: ActiveFault, plan: UpgradeFault) -> RollingUpgrade:
        end = partial(self._end, active)
        upgrade = RollingUpgrade(active, plan, self._stage, self.targets, self._let_up, end)
        self._upgrades.append(upgrade)
        return upgrade

    def _downtime(self, active: ActiveFault, plan: DownFault) -> Downtime:
        downtime = Downtime(active, plan, self._stage, self.targets)
        self._downtimes.append(downtime)
        return downtime

    def _lot(self, active: ActiveFault) -> str:
        """What decides a fault's targets if the scenario leaves them open: the run's seed, and which fault it is."""
        return f"{self._seed}/faults/{active.key}"

    def _begin_downtime(self, active: ActiveFault, plan: DownFault) -> None:
        self._downtime(active, plan).begin()
        self._stage.order(Confirm(InForce(active.key)))

    def _note_beginning(self, active: ActiveFault) -> None:
        active.record.begun_ms, active.record.height_when_begun = self._stage.now_ms, self._stage.height

    def _is_in_force(self, active: ActiveFault) -> None:
        """Note that a fault is in force from now on, and schedule its end, or the return of those that it took down."""
        stage, for_ms = self._stage, getattr(active.plan, "for_ms", None)
        active.is_in_force = True
        self._note_beginning(active)
        stage.notice(f"{active.plan.kind} of {active.record.whom} begins")
        if active.is_to_end:
            self._end(active)
        elif for_ms is not None:
            stage.later(for_ms, f"fault {active.number} ends", End(active.key))
        elif isinstance(active.plan, DownFault) and not self._downtime_of(active.key).is_trap:
            stage.later(active.plan.down_ms, f"restart {active.number}", Restart(active.key, active.hit))

    def _end(self, active: ActiveFault) -> None:
        if active.is_over:
            return
        if not active.is_in_force:
            active.is_to_end = True
            return
        active.is_over = True
        active.record.ended_ms = self._stage.now_ms
        if isinstance(active.plan, LinkFault):
            self._apply_links(NoteEnd(active.key))
        elif isinstance(active.plan, ImpairingFault):
            self._apply_impairments(active, NoteEnd(active.key))
        else:
            self._observe(active)

    def _observe(self, active: ActiveFault) -> None:
        self._stage.order(Observe(active.key, active.plan, active.targets, active.delays_before))

    def _note_effect(self, seen: Observed) -> None:
        """Complete the record of a fault that is over."""
        active = self._active[seen.key]
        record, plan, evidence = active.record, active.plan, seen.evidence
        if isinstance(plan, LinkFault | ImpairingFault):
            record.took_effect = seen.took_effect
        elif isinstance(plan, UpgradeFault):
            count = len(active.targets)
            record.took_effect = self._upgrade_of(active.key).have_restarted() and seen.running == count
            runs = f"{seen.running} of {count} validators run version {plan.version} now"
            evidence = ", ".join(filter(None, (runs, seen.evidence)))
        else:
            evidence = self._downtime_of(active.key).describe(seen.evidence)
        record.evidence = evidence
        active.is_noted = True
        record.height_when_ended = self._stage.height
        self._stage.notice(f"{plan.kind} of {record.whom} is over: {evidence}")

    # --- all that are in force ----------------------------------------------------------------------------------------

    def _apply_links(self, then: FaultCall) -> None:
        lasting = [active for active in self._active if not active.is_over]
        faults = {active.key: active.plan for active in lasting if isinstance(active.plan, LinkFault)}
        self._stage.order(SetLinks(faults, then))

    def _apply_impairments(self, of: ActiveFault, then: FaultCall) -> None:
        lasting = [active for active in self._active if not active.is_over]
        plans = {index: [active.plan for active in lasting if index in active.targets] for index in of.targets}
        self._stage.order(Impair({index: Impairment.of(each) for index, each in plans.items()}, then))

    # --- up again -----------------------------------------------------------------------------------------------------

    def _let_up(self, indices: Sequence[int]) -> None:
        """A fault no longer holds these validators down: start those that no other fault holds down."""
        for index in indices:
            self.targets.let_up(index)
            if not self.targets.is_held_down(index) and not self._stage.seat(index).is_running:
                self._stage.order(Start(index))
                for active in self._active:  # from now on no fault that took it down has all of its targets down
                    if index in active.hit and not active.is_over and active.record.first_back_ms is None:
                        active.record.first_back_ms = self._stage.now_ms


def _plans(scenario: Scenario) -> Iterator[_Planned]:
    names = scenario.validators.names
    for number, (given, plan) in enumerate(zip(scenario.faults, scenario.planned_faults, strict=True)):
        whom = in_the_scenarios_words(given, plan, names)
        yield _Planned(number, plan, FaultRecord(plan.kind, whom, plan.at_height, at_ms=plan.at_ms))


def _note_planned(ever: list[_Planned], planned: _Planned) -> None:
    planned.place = len(ever)
    ever.append(planned)
