"""The faults of a run: when each begins and ends, and its record. The same for every driver.

The engine decides, and the driver's :class:`~cluster.faults.stage.Stage` acts. Drivers call the ``on_…`` methods.
Several faults may be in force at once: links and impairments follow from all of them, and a validator is started when
no fault holds it down (:mod:`cluster.faults.targets`).

On real machines an order takes a while. If an order counts only once it is carried out, the stage calls back: a fault
of links begins when it is in force everywhere, and ends when it is first undone. So every observation in between is
made under the fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never, cast

from cluster.faults.active import ActiveFault
from cluster.faults.calls import (
    Begin,
    Call,
    End,
    EndThoseBack,
    FaultCall,
    InForce,
    NoteEnd,
    Restart,
    StartValidator,
    UpgradeNext,
    UpgradeStart,
)
from cluster.faults.downtime import Downtime
from cluster.faults.impairment import Impairment
from cluster.faults.link_faults import Seen, impaired_by_links
from cluster.faults.stage import Stage, Then
from cluster.faults.state import ActiveState, EngineState, ListeningState, PlannedState
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

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        self._stage = stage
        self._validators = scenario.validators
        self.targets = Targets(scenario.validators, stage)
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
        """Whether a fault waits for votes (:meth:`on_vote`)."""
        return bool(self._listening)

    def schedule(self) -> None:
        """Schedule the faults that begin at a given time, as opposed to a height."""
        for planned in self._planned:
            self._schedule_at_its_time(planned)

    def become(self, scenario: Scenario) -> None:
        """Replace the faults by this scenario's. Raises :class:`ValueError` if that changes a fault that began."""
        before = [planned.plan for planned in self._planned]
        check_faults_of_the_past(before, scenario.planned_faults, self._stage.height, self._stage.now_ms)
        self.adopt(scenario)

    def adopt(self, scenario: Scenario) -> None:
        """Replace the faults by this scenario's, for a caller that has checked the change as :meth:`become` does."""
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
        for planned in new:
            self._schedule_at_its_time(planned)

    # --- calls to come ------------------------------------------------------------------------------------------------

    def perform(self, what: FaultCall) -> None:
        """Make a scheduled call."""
        match what:
            case Begin(planned):
                self._begin(self._ever_planned[planned])
            case End(key):
                self._end(self._active[key])
            case InForce(key):
                self._is_in_force(self._active[key])
            case NoteEnd(key):
                self._note_end(self._active[key])
            case Restart(key, indices):
                next(each for each in self._downtimes if each.fault.key == key).is_back = True
                self._let_up(indices)
            case StartValidator(index):
                self._stage.start(index)
            case EndThoseBack():
                self._end_those_that_are_back()
            case UpgradeNext(key):
                next(each for each in self._upgrades if each.key == key).upgrade_next()
            case UpgradeStart(key, group):
                next(each for each in self._upgrades if each.key == key).start(group)
            case _:
                assert_never(what)

    # --- events of the run --------------------------------------------------------------------------------------------

    def on_new_height(self, height: int) -> None:
        """Called when a height is first final: begin the faults that wait for it, and end those that last until it."""
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
                self._stage.later(0, f"fault {active.number} ends", Call(self.perform, End(active.key)))

    def on_vote(self, sender: int, view: int, kind: VoteKind) -> None:
        """Called when a validator sent a vote: begin the faults that waited for such votes, once they are a quorum."""
        for planned, senders in list(self._listening):
            if kind not in VOTES[planned.plan.after_votes or ""]:
                continue
            committee = self._validators.committee(view)
            if sender in committee:
                senders.setdefault(view, set()).add(sender)
            if len(senders.get(view, ())) >= quorum(len(committee)):
                self._listening.remove((planned, senders))
                self._begin_soon(planned)

    def on_up(self) -> None:
        """Called when a validator is up, or may be: soon end the faults whose validators are all up again."""
        if self._active:
            self._stage.later(0, "joined", Call(self.perform, EndThoseBack()))

    def on_progress(self) -> None:
        """Called when a validator made a block final, or diverged: continue upgrades whose next host is due."""
        for upgrade in self._upgrades:
            upgrade.on_progress()

    def on_failed(self, index: int, reason: str) -> bool:
        """Called when a validator stopped by itself, and is down. Returns whether a fault is the cause.

        If so, the validator's restart is scheduled.
        """
        stage = self._stage
        downtime = next((each for each in self._downtimes if each.explains(index, reason)), None)
        if downtime is None:
            return False
        gone = downtime.note_failure(index, reason)
        stage.notice(f"height {stage.height}: {self.targets.names[index]} stopped: {reason}")
        if isinstance(downtime.plan, BitRotFault):
            stage.lose_disk(index)
            stage.later(0, f"another disk for {index}", Call(self.perform, StartValidator(index)))
        else:
            stage.later(
                downtime.plan.down_ms, f"restart {index}", Call(self.perform, Restart(downtime.fault.key, gone))
            )
        return True

    def on_loss(self, indices: Sequence[int], what: str, reason: str) -> None:
        """Called when the machine of some validators is lost, and they with it, before the driver takes them down.

        If no fault is the cause, the loss becomes an unplanned fault itself: ``what`` is lost for a ``reason``. The
        validators may start elsewhere right afterwards.
        """
        explained = [downtime.note_loss(indices) for downtime in self._downtimes]
        if any(explained):
            return
        names = tuple(self.targets.names[index] for index in indices)
        now_ms = round(self._stage.now_ms)
        plan = LoseNodeFault(kind="lose_node", target=list(names), at_ms=now_ms, disks="kept", down_ms=0)
        record = FaultRecord(plan.kind, what, None, at_ms=now_ms, is_planned=False, targets=names, impaired=names)
        self._unplanned.append(record)
        self.records.append(record)
        active = ActiveFault(len(self._active), len(self.records), plan, record, list(indices))
        self._active.append(active)
        downtime = self._downtime(active, plan)
        downtime.begin_unplanned(reason)
        self._is_in_force(active)
        self._stage.later(0, f"restart {active.number}", Call(self.perform, Restart(active.key, active.hit)))

    def look(self) -> None:
        """Check which validators have gone down by faults meanwhile, and whether upgrades can continue.

        It is for a stage on which validators take a while to go down.
        """
        for downtime in self._downtimes:
            downtime.look()
        self.on_progress()

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def _schedule_at_its_time(self, planned: _Planned) -> None:
        if planned.plan.at_ms is not None:
            self._waiting.remove(planned)
            self._stage.at(planned.plan.at_ms, f"fault {planned.number}", Call(self.perform, Begin(planned.place)))

    def _begin_soon(self, planned: _Planned) -> None:
        self._stage.later(0, f"fault {planned.number}", Call(self.perform, Begin(planned.place)))

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
            active.observe = partial(self._observe, active, plan)
            self._apply_links(Call(self.perform, InForce(active.key)))
        elif isinstance(plan, UpgradeFault):
            upgrade = self._upgrade(active, plan)
            upgrade.choose()
            self._is_in_force(active)
            upgrade.begin()
        else:
            active.targets, active.along = self.targets.pick(plan)
            record.targets = tuple(names[index] for index in active.targets)
            record.impaired = tuple(names[index] for index in active.hit)
            record.is_hard = isinstance(plan, PauseFault | KillFault | LoseNodeFault | DiskLossFault)
            if isinstance(plan, ImpairingFault):
                active.delays_before = self._delays(active, plan)
                active.observe = partial(self._observe, active, plan)
                self._apply_impairments(active, Call(self.perform, InForce(active.key)))
            else:
                self._begin_downtime(active, plan)

    def _upgrade(self, active: ActiveFault, plan: UpgradeFault) -> RollingUpgrade:
        end = partial(self._end, active)
        upgrade = RollingUpgrade(
            active, plan, self._stage, self.targets, self._let_up, end, lambda what: Call(self.perform, what)
        )
        self._upgrades.append(upgrade)
        return upgrade

    def _downtime(self, active: ActiveFault, plan: DownFault) -> Downtime:
        downtime = Downtime(active, plan, self._stage, self.targets)
        self._downtimes.append(downtime)
        return downtime

    def _delays(self, active: ActiveFault, plan: ImpairingFault) -> int:
        return sum(self._stage.delays(index, plan.kind) for index in active.targets)

    def _observe(self, active: ActiveFault, plan: LinkFault | ImpairingFault) -> Seen:
        """Whether a fault of links or an impairment took effect, with the evidence."""
        if isinstance(plan, LinkFault):
            return self._stage.seen_on_links(active.key, plan)
        delays = self._delays(active, plan) - active.delays_before
        return self._stage.seen_delays(plan.kind, delays, active.record.targets)

    def _begin_downtime(self, active: ActiveFault, plan: DownFault) -> None:
        downtime = self._downtime(active, plan)
        downtime.begin()
        if not downtime.is_trap:
            self._stage.later(
                plan.down_ms, f"restart {active.number}", Call(self.perform, Restart(active.key, active.hit))
            )
        self._is_in_force(active)

    def _note_beginning(self, active: ActiveFault) -> None:
        active.record.begun_ms, active.record.height_when_begun = self._stage.now_ms, self._stage.height

    def _is_in_force(self, active: ActiveFault) -> None:
        """Note that a fault is in force from now on, and schedule its end if it has a duration."""
        stage, for_ms = self._stage, getattr(active.plan, "for_ms", None)
        active.is_in_force = True
        self._note_beginning(active)
        stage.notice(f"height {stage.height}: {active.plan.kind} of {active.record.whom} begins")
        if active.is_to_end:
            self._end(active)
        elif for_ms is not None:
            stage.later(for_ms, f"fault {active.number} ends", Call(self.perform, End(active.key)))

    def _end(self, active: ActiveFault) -> None:
        if active.is_over:
            return
        if not active.is_in_force:
            active.is_to_end = True
            return
        active.is_over = True
        active.record.ended_ms = self._stage.now_ms
        if isinstance(active.plan, LinkFault):
            self._apply_links(Call(self.perform, NoteEnd(active.key)))
        elif isinstance(active.plan, ImpairingFault):
            self._apply_impairments(active, Call(self.perform, NoteEnd(active.key)))
        else:
            self._note_end(active)

    def _note_end(self, active: ActiveFault) -> None:
        record, stage = active.record, self._stage
        record.took_effect, record.evidence = active.observe()
        active.is_noted = True
        record.height_when_ended = stage.height
        stage.notice(f"height {stage.height}: {active.plan.kind} of {record.whom} is over: {record.evidence}")

    # --- all that are in force ----------------------------------------------------------------------------------------

    def _apply_links(self, then: Then) -> None:
        lasting = [active for active in self._active if not active.is_over]
        faults = {active.key: active.plan for active in lasting if isinstance(active.plan, LinkFault)}
        self._stage.set_links(faults, then)

    def _apply_impairments(self, of: ActiveFault, then: Then) -> None:
        lasting = [active for active in self._active if not active.is_over]
        plans = {index: [active.plan for active in lasting if index in active.targets] for index in of.targets}
        self._stage.impair({index: Impairment.of(each) for index, each in plans.items()}, then)

    # --- up again -----------------------------------------------------------------------------------------------------

    def _let_up(self, indices: Sequence[int]) -> None:
        """A fault no longer holds these validators down: start those that no other fault holds down."""
        for index in indices:
            self.targets.let_up(index)
            if not self.targets.is_held_down(index) and not self._stage.is_running(index):
                self._stage.start(index)
                for active in self._active:  # from now on no fault that took it down has all of its targets down
                    if index in active.hit and not active.is_over and active.record.first_back_ms is None:
                        active.record.first_back_ms = self._stage.now_ms
        self._end_those_that_are_back()

    def _end_those_that_are_back(self) -> None:
        for downtime in self._downtimes:
            if downtime.has_come_back():
                self._end(downtime.fault)

    # --- from process to process --------------------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        """The state that another process needs to continue. It shares the engine's collections: do not change it."""
        every = self._ever_planned
        records = [*(planned.record for planned in every), *self._unplanned]
        of_record = {id(record): number for number, record in enumerate(records)}
        return EngineState(
            planned=[PlannedState(each.number, each.plan, each.record, each.is_withdrawn) for each in every],
            current=[planned.place for planned in self._planned],
            waiting=[planned.place for planned in self._waiting],
            listening=[ListeningState(planned.place, senders) for planned, senders in self._listening],
            unplanned=self._unplanned,
            active=[
                ActiveState(
                    number=each.number,
                    plan=each.plan,
                    record=of_record[id(each.record)],
                    targets=each.targets,
                    along=each.along,
                    delays_before=each.delays_before,
                    is_in_force=each.is_in_force,
                    is_to_end=each.is_to_end,
                    is_over=each.is_over,
                    is_noted=each.is_noted,
                )
                for each in self._active
            ],
            downtimes=[downtime.state for downtime in self._downtimes],
            upgrades=[upgrade.state for upgrade in self._upgrades],
            held_down=self.targets.held_down,
        )

    def take_over(self, state: EngineState) -> None:
        """Replace the engine's faults by those of another process, and continue with them.

        Scheduled calls are not part of the state: the stage takes them over.
        """
        self._ever_planned = every = [
            _Planned(each.number, cast(AnyFault, each.plan), each.record, each.is_withdrawn, place)
            for place, each in enumerate(state.planned)
        ]
        self._planned = [every[place] for place in state.current]
        self._waiting = [every[place] for place in state.waiting]
        self._listening = [(every[each.planned], each.senders) for each in state.listening]
        self._unplanned = state.unplanned
        self.records[:] = state.records
        records = [*(planned.record for planned in every), *state.unplanned]
        self._active = active = [
            self._taken_over(key, each, records[each.record]) for key, each in enumerate(state.active)
        ]
        self._downtimes, self._upgrades = [], []
        for down in state.downtimes:
            self._downtime(active[down.key], cast(DownFault, active[down.key].plan)).take_over(down)
        for upgrade in state.upgrades:
            self._upgrade(active[upgrade.key], cast(UpgradeFault, active[upgrade.key].plan)).take_over(upgrade)
        self.targets.take_over(state.held_down)

    def _taken_over(self, key: int, state: ActiveState, record: FaultRecord) -> ActiveFault:
        plan = cast(AnyFault, state.plan)
        active = ActiveFault(key, state.number, plan, record, state.targets, state.along)
        active.delays_before = state.delays_before
        active.is_in_force, active.is_to_end = state.is_in_force, state.is_to_end
        active.is_over, active.is_noted = state.is_over, state.is_noted
        if isinstance(plan, LinkFault | ImpairingFault):
            active.observe = partial(self._observe, active, plan)
        return active


def _plans(scenario: Scenario) -> Iterator[_Planned]:
    names = scenario.validators.names
    for number, (given, plan) in enumerate(zip(scenario.faults, scenario.planned_faults, strict=True)):
        whom = in_the_scenarios_words(given, plan, names)
        yield _Planned(number, plan, FaultRecord(plan.kind, whom, plan.at_height, at_ms=plan.at_ms))


def _note_planned(ever: list[_Planned], planned: _Planned) -> None:
    planned.place = len(ever)
    ever.append(planned)
