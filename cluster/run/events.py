"""What the loop of a run is told, and what it orders. Times are milliseconds since the run began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cluster.faults.events import (
    Confirm,
    Count,
    Counted,
    Due,
    FaultOrder,
    FaultSeen,
    Impair,
    Observe,
    Observed,
    ObserveDelays,
    ObserveLinks,
    ObserveProcesses,
    Prepare,
    SetLinks,
    Wake,
)
from cluster.scenario import Scenario

# --- what was seen ----------------------------------------------------------------------------------------------------


class Begun(NamedTuple):
    """All that the loop of a live run is made of. Its journal begins with it."""

    scenario: Scenario
    seed: int
    is_open: bool
    stops_on_fail: bool


class Up(NamedTuple):
    """The testnet is up: a run that lasts for a duration begins now."""

    at_ms: float


class Time(NamedTuple):
    """The time is this, or later."""

    at_ms: float


class NewHeight(NamedTuple):
    """The highest final height seen anywhere. It may be told again."""

    height: int


class StopRequested(NamedTuple):
    """A client, a signal or the caller wants the run to end at the height that it has reached."""

    at_ms: float


class Violation(NamedTuple):
    """A rule is violated, in words."""

    text: str


class JoinBegun(NamedTuple):
    """A validator that joins later was started."""

    at_ms: float
    validator: int


class JoinEnded(NamedTuple):
    """A validator that began without a state takes part."""

    at_ms: float
    validator: int
    snapshot_height: int
    chunks: Mapping[int, int]
    """Chunks of the snapshot, keyed by the index of the peer that sent them."""


class ScenarioChanged(NamedTuple):
    """Another scenario applies: a client added a fault to it."""

    scenario: Scenario


class ForkTaken(NamedTuple):
    """The settings of the next fork apply."""

    scenario: Scenario
    seed: int | None = None
    """The fork's seed, if it has one."""


class Standing(NamedTuple):
    """How far a validator is for which the end of the run waits."""

    height: int
    """Its final height."""
    is_up: bool
    is_settled: bool = True
    """Whether it may be stopped now; ``False`` in the middle of catching up."""
    is_excused: bool = False
    """Whether no height of it is awaited: it has diverged, or is byzantine."""


class Standings(NamedTuple):
    """How far the validators are that are not given up. Without any the run is over."""

    validators: tuple[Standing, ...]


class Left(NamedTuple):
    """The run is not watched any more, whatever ended it."""


class Absent(NamedTuple):
    """Another driver goes on with the run. There was none meanwhile."""

    from_ms: float
    until_ms: float
    from_height: int


Seen = (
    Begun
    | Up
    | Time
    | NewHeight
    | StopRequested
    | Violation
    | JoinBegun
    | JoinEnded
    | ScenarioChanged
    | ForkTaken
    | Standings
    | Left
    | Absent
    | FaultSeen
)

# --- what is to be done -----------------------------------------------------------------------------------------------


class StopLoad(NamedTuple):
    """Stop the load, unless it was stopped before. The run's last height is reached."""

    height: int


class TakeFork(NamedTuple):
    """Apply the settings of the scenario's fork of this number, and answer with :class:`ForkTaken`."""

    number: int


class End(NamedTuple):
    """End the run."""

    is_time_up: bool = False
    """Whether it takes too long."""


Order = StopLoad | TakeFork | End | FaultOrder
Answered = Wake | SetLinks | Impair | Prepare | Confirm | Count | Observe | TakeFork
"""The orders that have an answer, always. To carry one out twice does no harm."""
Answer = Due | Counted | Observed | ForkTaken


def is_answer(seen: Answer, order: Answered) -> bool:
    """Whether what was seen is the answer to an order."""
    match seen, order:
        case Due(_, due), Wake(_, _, call) | SetLinks(_, call) | Impair(_, call) | Prepare(_, _, call) | Confirm(call):
            return due == call
        case Counted(key), Count(asked):
            return key == asked
        case Observed(key), ObserveLinks(asked) | ObserveDelays(asked) | ObserveProcesses(asked):
            return key == asked
        case ForkTaken(), TakeFork():
            return True
    return False
