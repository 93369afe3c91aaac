"""The faults of a run: when each begins and ends, and its record. The same for every driver.

The engine is pure: it is told what was seen, and returns orders (:mod:`cluster.faults.events`). Several faults may be
in force at once: links and impairments follow from all of them, and a validator is started when no fault holds it down
(:mod:`cluster.faults.targets`).

On real machines an order takes a while. If an order counts only once it is carried out, it has a call that the driver
tells then: a fault of links begins when it is in force everywhere, and ends when it is first undone. So every
observation in between is made under the fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from cluster.faults.events import (
    Begin,
    BitFlipped,
    Counted,
    Due,
    End,
    Failed,
    FaultCall,
    FaultOrder,
    FaultSeen,
    Impair,
    InForce,
    MachineLost,
    Network,
    NoteEnd,
    Observed,
    SetLinks,
    Start,
    StartValidator,
    Voted,
    Wake,
)
from cluster.faults.impairment import Impairment
from cluster.faults.kind import Course, FaultKind, plans_of
from cluster.faults.kinds.lose_node import LoseNodeFault, NodeLoss
from cluster.faults.link_effects import LinkEffect
from cluster.faults.stage import Stage
from cluster.faults.targets import Targets
from cluster.record.run import FaultRecord
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import CustomFault, ready
from cluster.scenario.sections.forks import check_faults_of_the_past
from consensus.messages import VoteKind
from consensus.types import quorum
from validator.primitives.user_file import caused_by

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
    plan: FaultKind
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
        self._begun: list[Course] = []
        """All faults that began, including those that are over; the index is the key."""
        self.targets = Targets(scenario.validators, self._stage, self._begun)
        self._planned = list(_plans(scenario))
        self._ever_planned: list[_Planned] = []
        """All planned faults, including withdrawn ones."""
        for planned in self._planned:
            _note_planned(self._ever_planned, planned)
        self._unplanned: list[FaultRecord] = []
        self.records = [planned.record for planned in self._planned]
        """The records of the scenario's faults, in order, then of the unplanned ones."""
        self._waiting = list(self._planned)
        self._to_begin: dict[int, float] = {}
        """When faults begin that were told to begin at a time, keyed by their places."""
        self._listening: list[tuple[_Planned, dict[int, set[int]]]] = []
        """Faults that wait for votes, each with the validators that have sent such votes, keyed by view."""

    @property
    def are_over(self) -> bool:
        """Whether the run need not wait for any fault that has begun, or should have by now."""
        is_late = any(at_ms <= self._stage.now_ms for at_ms in self._to_begin.values())
        return not is_late and not any(course.is_awaited for course in self._begun)

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
    def in_force(self) -> tuple[Mapping[int, LinkEffect], Mapping[int, Impairment]]:
        """What is to be in force by now: effects on links, by the faults' keys, and impairments, by validator."""
        return self._stage.links, self._stage.impairments

    def renewed(self, order: SetLinks | Impair) -> SetLinks | Impair:
        """The order with what is to be in force by now."""
        return self._stage.renewed(order)

    @property
    def have_begun(self) -> bool:
        """Whether any fault has begun so far."""
        return bool(self._begun)

    @property
    def is_upgrading(self) -> bool:
        """Whether an upgrade is under way, for which the heights of validators count."""
        return any(course.watches_heights and not course.is_over for course in self._begun)

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
                    what = f"{planned.record.kind} of {planned.record.whom}"
                    self._stage.notice(f"{what} waits for votes: {planned.plan.after_votes}")
                else:
                    self._begin_soon(planned)
        for course in self._begun:
            until = getattr(course.plan, "until_height", None)
            if until is not None and height >= until and not course.is_over:
                self._stage.later(0, f"fault {course.number} ends", End(course.key))
        return self._stage.take_orders()

    def check(self, scenario: Scenario, at_ms: float) -> None:
        """Raises :class:`ValueError` if this scenario's faults change, at a time of the run, a fault that began."""
        before = [planned.plan for planned in self._planned]
        check_faults_of_the_past(before, plans_of(scenario), self._stage.height, at_ms)

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
        """Take note of what was seen, and return what follows from it.

        Raises :class:`UserFileError` for an exception of a custom kind's code.
        """
        try:
            self._note(seen)
        except Exception as error:
            files = (plan.kind.file for each in self._ever_planned if isinstance(plan := each.plan, CustomFault))
            if (caused := caused_by(error, files)) is not None:
                raise caused from error
            raise
        return self._stage.take_orders()

    def _note(self, seen: FaultSeen) -> None:
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
            case Counted() | BitFlipped():
                self._begun[seen.key].go_on(seen)
            case Observed():
                self._begun[seen.key].complete(seen)
            case _:
                assert_never(seen)

    def explains(self, validator: int, reason: str) -> bool:
        """Whether a fault is the cause of a validator's stop (:class:`Failed`)."""
        return any(course.explains(validator, reason) for course in self._begun)

    def _perform(self, call: FaultCall) -> None:
        match call:
            case Begin(planned):
                self._begin(self._ever_planned[planned])
            case End(key):
                self._begun[key].end()
            case InForce(key):
                self._begun[key].come_into_force()
            case NoteEnd(key):
                self._begun[key].observe()
            case StartValidator(index):
                self._stage.order(Start(index))
            case _:
                self._begun[call.key].go_on(call)

    # --- what happens to validators -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """See which validators went down, which are up again, and whether faults can go on."""
        for course in self._begun:
            course.look()

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
        """A validator stopped, and is down. If the fault that is the cause is over meanwhile, nothing follows."""
        course = next((each for each in self._begun if each.explains(index, reason)), None)
        if course is not None:
            course.note_failure(index, reason)

    def _lose(self, lost: MachineLost) -> None:
        """If no fault is the cause, the loss becomes an unplanned fault itself."""
        explained = [course.note_loss(lost.validators) for course in self._begun]
        if any(explained):
            return
        names = [self.targets.names[index] for index in lost.validators]
        now_ms = round(self._stage.now_ms)
        plan = LoseNodeFault(kind="lose_node", target=names, at_ms=now_ms, disks="kept", down_ms=0)
        record = FaultRecord(plan.kind_name, lost.what, None, at_ms=now_ms, is_planned=False)
        self._unplanned.append(record)
        self.records.append(record)
        key, number = len(self._begun), len(self.records)
        course = NodeLoss(plan, key, number, record, self._stage, self.targets, self._lot(key))
        self._begun.append(course)
        course.befall(lost.validators, lost.reason)

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def _schedule_at_its_time(self, planned: _Planned) -> None:
        if planned.plan.at_ms is not None:
            self._waiting.remove(planned)
            self._begin_at((self._began_ms or 0.0) + planned.plan.at_ms, planned)

    def _begin_soon(self, planned: _Planned) -> None:
        self._begin_at(self._stage.now_ms, planned)

    def _begin_at(self, at_ms: float, planned: _Planned) -> None:
        self._to_begin[planned.place] = at_ms
        self._stage.order(Wake(at_ms, f"fault {planned.number}", Begin(planned.place)))

    def _begin(self, planned: _Planned) -> None:
        self._to_begin.pop(planned.place, None)
        if planned.is_withdrawn:
            return
        key = len(self._begun)
        plan, record = planned.plan, planned.record
        course = plan.COURSE(plan, key, planned.number, record, self._stage, self.targets, self._lot(key))
        self._begun.append(course)
        course.begin()

    def _lot(self, key: int) -> str:
        """What decides a fault's targets if the scenario leaves them open: the run's seed, and which fault it is."""
        return f"{self._seed}/faults/{key}"


def _plans(scenario: Scenario) -> Iterator[_Planned]:
    names = scenario.validators.names
    for number, (given, plan) in enumerate(zip(scenario.faults, plans_of(scenario), strict=True)):
        facts = plan.FACTS if isinstance(given, CustomFault) else None
        record = FaultRecord(
            plan.kind_name, plan.words(names, ready(given)), plan.at_height, at_ms=plan.at_ms, own_facts=facts
        )
        yield _Planned(number, plan, record)


def _note_planned(ever: list[_Planned], planned: _Planned) -> None:
    planned.place = len(ever)
    ever.append(planned)
