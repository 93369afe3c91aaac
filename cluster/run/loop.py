"""The loop of a run, pure: it is told what was seen, and returns orders.

It decides when the load stops, when faults begin and end, when another part of the scenario applies and when the run is
over, and notes that in the run's record. It has no clock and no thread: the drivers tell it the time. A driver performs
the orders in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.faults.engine import FaultEngine
from cluster.faults.events import FaultSeen, Impair, SetLinks, Tell
from cluster.record.run import Absence, FaultRecord, JoinRecord, RunRecord
from cluster.run.events import (
    Absent,
    Answer,
    Answered,
    Begun,
    End,
    ForkTaken,
    JoinBegun,
    JoinEnded,
    Left,
    NewHeight,
    Order,
    ScenarioChanged,
    Seen,
    Standings,
    StopLoad,
    StopRequested,
    TakeFork,
    Time,
    Up,
    Violation,
    is_answer,
)
from cluster.scenario import Scenario
from cluster.scenario.files import fault_to_add

ON_FAIL: Final = "by --stop-on-fail"
"""What the record of a run says that its first violation ended."""


class RunLoop:
    """The course of one run."""

    def __init__(self, record: RunRecord, is_open: bool = False, stops_on_fail: bool = False) -> None:
        """With ``is_open`` the run goes on until it is stopped. With ``stops_on_fail`` the first violation ends it."""
        scenario = record.scenario
        self.record = record
        self.scenario = scenario
        """The scenario that applies now, without the end that a stop request sets."""
        self.height = 0
        """The highest final height seen anywhere."""
        self.stops_on_fail = stops_on_fail
        self.faults = FaultEngine(scenario, record.seed)
        record.faults = self.faults.records
        self.given = scenario
        """The scenario with which the run began."""
        self._forks_ordered = self._forks_taken = 0
        self._is_open = is_open
        self.duration_s = None if is_open else scenario.stop.duration_s
        has_height = not is_open and self.duration_s is None
        self.end_height: int | None = scenario.stop.height if has_height else None
        """The height at which the load stops; without a stop height ``None`` until the run is stopped or its duration
        is over."""
        self.deadline_ms = self._timeout_ms if has_height else math.inf
        """The time at which the run is given up."""
        self.over_ms = math.inf
        """The time at which the run's duration is over."""
        self.has_ended = False
        """Whether the run is over, or is not watched any more."""
        self._has_stopped_load = False
        self._due: list[Answered] = []
        names, late = scenario.validators.names, scenario.validators.late
        self._late = tuple(late)
        record.joins = [JoinRecord(names[index], height) for index, height in late.items()]

    @property
    def is_open(self) -> bool:
        """Whether the run goes on until it is stopped."""
        return self._is_open and self.end_height is None

    @property
    def is_draining(self) -> bool:
        """Whether the height at which the load stops is reached."""
        return self.end_height is not None and self.height >= self.end_height

    @property
    def goal(self) -> int:
        """The height that every validator is to reach, blocks to drain included, once the end is known."""
        return (self.end_height or 0) + self.scenario.stop.drain_blocks

    @property
    def is_drained(self) -> bool:
        """Whether some validator has made all blocks final that follow the end of the load."""
        return self.end_height is not None and self.height >= self.goal

    @property
    def joining(self) -> list[int]:
        """The validators that join later and do not take part yet, by index."""
        return [index for index in self._late if self._join_of(index).ended_ms is None]

    @property
    def due(self) -> list[Order]:
        """The orders that have no answer yet, in their order, with what is to be in force by now. A driver that takes
        the run over carries them out.
        """
        return [self.faults.renewed(order) if isinstance(order, SetLinks | Impair) else order for order in self._due]

    def handle(self, seen: Seen) -> list[Order]:
        """Take note of what was seen, and return what follows from it."""
        if isinstance(seen, Answer):
            answered = next((order for order in self._due if is_answer(seen, order)), None)
            if answered is not None:
                self._due.remove(answered)
        if isinstance(seen, NewHeight):
            self.height = max(seen.height, self.height)
        if self.has_ended and not isinstance(seen, Left | Absent | FaultSeen):
            return []
        orders = list(self._handle(seen))
        if self.has_ended:  # a machine may still be lost while all comes to rest
            return [order for order in orders if isinstance(order, Tell | End)]
        self._due += [order for order in orders if isinstance(order, Answered)]
        return orders

    def _handle(self, seen: Seen) -> Iterator[Order]:
        match seen:
            case NewHeight():
                yield from self._look_for_a_fork()
                yield from self._stop_load()
                yield from self.faults.reach(self.height)
            case JoinBegun() | JoinEnded():
                yield from self._note_join(seen)
            case ScenarioChanged(scenario):
                self.scenario = self.record.scenario = scenario
                yield from self.faults.adopt(scenario)
            case ForkTaken():
                yield from self._become(seen)
            case Violation(text):
                if self.stops_on_fail:
                    self.record.interrupted = True
                    self.record.problems.append(f"stopped at height {self.height} {ON_FAIL}: {text}")
                    yield Tell(self.record.problems[-1])
                    yield self._end()
            case Absent():
                yield from self._note_absence(seen)
            case Up() | Time() | StopRequested() | Standings() | Left():
                yield from self._look_for_the_end(seen)
            case Begun():
                pass  # it is made of that
            case _:
                yield from self.faults.handle(seen)

    # --- what clients request -----------------------------------------------------------------------------------------

    def check_goes_on(self) -> None:
        """Raise :class:`BadInput` if the run's last height is reached: then nothing is begun any more."""
        if self.is_draining:
            raise BadInput(f"the run is about to end: height {self.end_height} is reached")

    def with_fault(self, fields: Mapping[str, Any], at_ms: float) -> Scenario:
        """The scenario with one more fault, the last one: from now on, or later if ``fields`` say so.

        Raises :class:`BadInput`.
        """
        self.check_goes_on()
        planned_ms = math.ceil(self.faults.planned_ms(at_ms))
        begins = {} if fields.keys() & {"at_height", "at_ms"} else {"at_ms": planned_ms}
        fault = fault_to_add(self.scenario, {**fields, **begins}, has_end=self.end_height is not None)
        if (fault.at_height or self.height + 1) <= self.height:
            raise BadInput(f"at_height: {fault.at_height} is not above {self.height}, the final height")
        if (planned_ms if fault.at_ms is None else fault.at_ms) < planned_ms:
            raise BadInput(f"at_ms: {fault.at_ms} is over: it is {planned_ms} ms since the testnet was up")
        return self.scenario.model_copy(update={"faults": [*self.scenario.faults, fault]})

    # --- the end ------------------------------------------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        return self.scenario.stop.timeout_s * MILLISECONDS_PER_SECOND

    def _look_for_the_end(self, seen: Up | Time | StopRequested | Standings | Left) -> Iterator[Order]:
        match seen:
            case Up(at_ms):
                if self.duration_s is not None:
                    self.over_ms = at_ms + self.duration_s * MILLISECONDS_PER_SECOND
                yield from self.faults.begin(at_ms)
            case Time(at_ms):
                if self.end_height is None and at_ms >= self.over_ms:
                    yield from self._end_here(at_ms, f"{self.duration_s:,} s are over")
                if at_ms >= self.deadline_ms:
                    yield self._end(is_time_up=True)
            case StopRequested(at_ms):
                if self.end_height is None or self.end_height > self.height:
                    yield from self._end_here(at_ms, "stop requested")
                    self.record.scenario = self.scenario.ended_at(self.height)
            case Standings():
                if self._is_over(seen):
                    yield self._end()
            case Left():
                self._leave()

    def _end_here(self, at_ms: float, why: str) -> Iterator[Order]:
        """Make the height reached the run's last one. The time limit starts again, for the validators to drain."""
        self.end_height = self.record.stop_requested_at_height = self.height
        self.deadline_ms = at_ms + self._timeout_ms
        yield Tell(f"height {self.height}: {why}")
        yield from self._stop_load()

    def _stop_load(self) -> Iterator[Order]:
        if self.is_draining and not self._has_stopped_load:
            self._has_stopped_load = True
            yield StopLoad(self.height)

    def _is_over(self, standings: Standings) -> bool:
        """Whether all faults have ended, and every validator that still takes part has drained.

        After a fault a height is awaited that was not final when it ended: it shows that the network has recovered.
        """
        if not standings.validators:
            return True
        if not (self.is_drained and self.faults.are_over):
            return False
        if not all(each.is_up and each.is_settled for each in standings.validators):
            return False
        healed = self.record.height_when_healed
        return all(each.is_excused or each.height >= max(self.goal, healed + 1) for each in standings.validators)

    def _end(self, is_time_up: bool = False) -> End:
        self.has_ended = True
        return End(is_time_up)

    def _leave(self) -> None:
        """Note what the run did not get to."""
        self.has_ended = True
        if self.end_height is None:
            self.end_height = self.record.stop_requested_at_height = self.height
            if self.record.backend == "live":  # a simulated run is repeated from its scenario
                self.record.scenario = self.scenario.ended_at(self.height)
        for fork in self.given.forks[self._forks_taken :]:
            self.record.problems.append(f"the fork at height {fork.at_height} was never reached")
        self._forks_taken = len(self.given.forks)

    def _note_absence(self, seen: Absent) -> Iterator[Order]:
        """The time without a driver does not count towards the time limit."""
        self.deadline_ms += seen.until_ms - seen.from_ms
        late = late_faults(self.record.faults, self.height, self.faults.planned_ms(seen.until_ms))
        until_height = max(seen.from_height, self.height)
        absence = Absence(seen.from_ms, seen.until_ms, seen.from_height, until_height, late)
        self.record.absences.append(absence)
        for line in (str(absence), *absence.late):
            yield Tell(line)

    # --- joins and forks ----------------------------------------------------------------------------------------------

    def _note_join(self, seen: JoinBegun | JoinEnded) -> Iterator[Order]:
        if seen.validator not in self.joining:
            return  # it has joined, or joins since its disk was lost
        join = self._join_of(seen.validator)
        if isinstance(seen, JoinEnded):
            yield Tell(join.end(seen.at_ms, self.height, seen.snapshot_height, dict(seen.chunks)))
        elif join.begun_ms is None:
            yield Tell(join.begin(seen.at_ms, self.height))

    def _join_of(self, validator: int) -> JoinRecord:
        return self.record.joins[self._late.index(validator)]

    def _look_for_a_fork(self) -> Iterator[Order]:
        coming = self.given.forks[self._forks_ordered :]
        if coming and self.height >= coming[0].at_height and self._forks_ordered == self._forks_taken:
            self._forks_ordered += 1
            yield TakeFork(self._forks_taken)

    def _become(self, fork: ForkTaken) -> Iterator[Order]:
        scenario = fork.scenario
        yield from self.faults.adopt(scenario, fork.seed)
        self._forks_taken += 1
        self.record.former.append(self.scenario)
        self.scenario = self.record.scenario = scenario
        self.deadline_ms = scenario.stop.longest_s * MILLISECONDS_PER_SECOND
        if self.duration_s is None:
            self.end_height = scenario.stop.height
        yield Tell(f"height {self.height}: other settings apply from here on")
        yield from self._look_for_a_fork()
        yield from self._stop_load()


def late_faults(faults: Sequence[FaultRecord], height: int, fault_ms: float) -> tuple[str, ...]:
    """A line for each fault that was due, or under way, while there was no driver.

    ``height`` is the final height now, ``fault_ms`` the time on the clock of faults.
    """
    lines = []
    for fault in faults:
        if fault.begun_ms is not None and fault.ended_ms is None:
            lines.append(f"{fault.name} was under way without a driver: it may end late")
        elif fault.begun_ms is None and _was_due(fault, height, fault_ms):
            lines.append(f"{fault.name} was due while there was no driver: it begins late")
    return tuple(lines)


def _was_due(fault: FaultRecord, height: int, fault_ms: float) -> bool:
    if fault.at_height is not None:
        return fault.at_height <= height
    return fault.at_ms is not None and fault.at_ms <= fault_ms


Told = tuple[Seen, Sequence[Order]]
"""What a loop was told, and the orders that follow."""


class Feed:
    """Connects a driver and the loop of its run: tells the loop what was seen, and has its orders performed.

    ``look()`` returns how the network is now. ``perform(order)`` performs an order, and returns its answers.
    ``note(told)`` is called with what the loop was told at once, and the orders that follow of each, before these are
    performed.
    """

    def __init__(
        self,
        loop: RunLoop,
        look: Callable[[], Iterable[Seen]],
        perform: Callable[[Order], Iterable[Seen]],
        note: Callable[[Sequence[Told]], object] = lambda told: None,
    ) -> None:
        self._loop = loop
        self._look = look
        self._perform = perform
        self._note = note

    def see(self, *seen: Seen) -> None:
        """Tell the loop what was seen, have its orders performed in their order, and tell it the answers."""
        told = [(each, self._loop.handle(each)) for each in seen]
        self._note(told)
        answers = [answer for _, orders in told for order in orders for answer in self._perform(order)]
        for answer in answers:
            self.see(answer)

    def go_on(self, due: Iterable[Order]) -> None:
        """Have the orders of another driver carried out that had no answer yet (:attr:`RunLoop.due`)."""
        for order in due:
            for answer in list(self._perform(order)):
                self.see(answer)

    def look(self) -> None:
        """Tell the loop how the network is now."""
        for seen in self._look():
            self.see(seen)

    def see_fault(self, seen: FaultSeen) -> None:
        """Tell the loop something that concerns faults, in the network as it is, and what follows for the network."""
        self.look()
        self.see(seen)
        self.look()
