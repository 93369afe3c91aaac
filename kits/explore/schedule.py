"""A schedule: the steps that lead to a violation, as text and as a file that can be replayed.

The search knows states up to the signers of certificates. A schedule has the messages themselves: it is performed once
more, from the start, with the validators alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.misbehaviour.planted import bugs_of_engines
from consensus.interface import Received, TimerExpired, TimerKind
from consensus.messages import MessageError, VoteKind, decode, encode
from consensus.types import ValidatorIndex, View
from kits.explore.locals import local_of
from kits.explore.moves import Moves
from kits.explore.offers import Offering
from kits.explore.replica import RESTART, SYNC, Occurrence, Replica
from kits.explore.rules import progress_problem, world_problem
from kits.explore.scope import Facts, Scope, What
from kits.explore.search import Found

VERSION: Final = 1
MAX_VALIDATORS: Final = 10
MAX_VIEWS: Final = 10


class Arrival(msgspec.Struct, frozen=True, tag="message", forbid_unknown_fields=True):
    """A message that arrives: its sender, and its bytes in hexadecimal."""

    sender: int
    message: str


class Expiry(msgspec.Struct, frozen=True, tag="timer", forbid_unknown_fields=True):
    kind: Literal["leader", "advance"]
    view: int


class Restart(msgspec.Struct, frozen=True, tag="restart", forbid_unknown_fields=True):
    pass


class Sync(msgspec.Struct, frozen=True, tag="sync", forbid_unknown_fields=True):
    pass


class StepPage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step: what happens to a validator, in words and as events, and what it does."""

    validator: int
    text: str
    events: list[Arrival | Expiry | Restart | Sync]
    does: str = ""


class ScopePage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    protocol: Literal["simplex", "hotstuff"]
    validators: int
    views: int
    give_ups: int | None
    crashes: int
    byzantine: int | None
    forges: bool
    slow_disks: bool
    mutant: str | None


class SchedulePage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a schedule."""

    version: Literal[1]
    scope: ScopePage
    problem: str
    steps: list[StepPage]


@dataclass(frozen=True)
class Replayed:
    """What a replay did, step by step, and the first rule that it broke."""

    steps: tuple[StepPage, ...]
    problem: str | None


class Stage:
    """The honest validators of a schedule."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.facts = Facts()
        self.offering = Offering(scope, self.facts)
        self.replicas = {index: Replica(scope, self.facts, index) for index in scope.honest}

    @property
    def said(self) -> int:
        said = 0
        for replica in self.replicas.values():
            said |= replica.said
        return said

    def perform(self, index: ValidatorIndex, occurrences: Sequence[Occurrence]) -> str:
        """Let something happen to a validator; returns what it does, in words."""
        replica = self.replicas[index]
        said, view = replica.said, replica.engine.view
        for occurrence in occurrences:
            replica.happen(occurrence)
        new = [self.facts.all[number] for number in self.facts.numbers(replica.said & ~said)]
        enters = [f"enters view {replica.engine.view}"] if replica.engine.view != view else []
        return ", ".join([*_told(new), *enters])

    def problem(self) -> str | None:
        """The first rule that is broken."""
        for replica in self.replicas.values():
            if replica.problems:
                return replica.problems[0]
        return world_problem(self.scope, self.facts, self.offering.of(self.said))

    def problem_at_rest(self) -> str | None:
        """The first rule that is broken, given that nothing more can happen."""
        views = [(index, replica.engine.view) for index, replica in self.replicas.items()]
        return self.problem() or progress_problem(self.scope, views)


def realise(scope: Scope, found: Found) -> SchedulePage:
    """Perform the steps to a violation; returns the schedule, with its messages."""
    stage, moves, steps = Stage(scope), Moves(scope), []
    for step in found.steps:
        index = scope.honest[step.place]
        offers = stage.offering.of(stage.said)
        possible = moves.of(index, local_of(stage.replicas[index]), offers)
        move = next(move for move in possible if move.name == step.name)
        does = stage.perform(index, move.occurrences)
        steps.append(StepPage(index, move.text, [_page_of(each) for each in move.occurrences], does))
    assert stage.problem_at_rest() is not None, f"the schedule does not lead to the violation: {found.problem}"
    page: Any = scope.page()
    return SchedulePage(VERSION, ScopePage(**page), found.problem, steps)


def replay(schedule: SchedulePage) -> Replayed:
    """Perform a schedule. Raises :class:`BadInput` for one that cannot be performed."""
    stage = Stage(scope_of(schedule))
    steps = []
    for number, step in enumerate(schedule.steps, 1):
        if step.validator not in stage.replicas:
            raise BadInput(f"step {number}: validator {step.validator} is not an honest one of the scope")
        index = ValidatorIndex(step.validator)
        try:
            occurrences = [_occurrence_of(event) for event in step.events]
        except (MessageError, ValueError) as error:
            raise BadInput(f"step {number}: {error}") from None
        if SYNC in occurrences and not stage.replicas[index].waiting:
            raise BadInput(f"step {number}: no write of validator {index} waits")
        steps.append(msgspec.structs.replace(step, does=stage.perform(index, occurrences)))
    at_rest = schedule.problem.startswith("progress")
    return Replayed(tuple(steps), stage.problem_at_rest() if at_rest else stage.problem())


def scope_of(schedule: SchedulePage) -> Scope:
    """The scope of a schedule. Raises :class:`BadInput` for one out of bounds."""
    page = schedule.scope
    if not (1 <= page.validators <= MAX_VALIDATORS and 1 <= page.views <= MAX_VIEWS and 0 <= page.crashes <= MAX_VIEWS):
        raise BadInput("scope: validators, views or crashes are out of bounds")
    if page.byzantine is not None and not 0 <= page.byzantine < page.validators:
        raise BadInput(f"scope: byzantine: validator {page.byzantine} is not one of {page.validators}")
    if page.mutant is not None and (page.mutant not in bugs_of_engines()):
        raise BadInput(f"scope: mutant: {page.mutant!r} is no planted bug of the consensus engines")
    return Scope(**msgspec.structs.asdict(page))


def read_schedule(path: Path) -> SchedulePage:
    """Read the file of a schedule. Raises :class:`BadInput`."""
    try:
        return msgspec.json.decode(path.read_text(encoding=ENCODING), type=SchedulePage)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None


def lines_of(steps: Sequence[StepPage]) -> Iterator[str]:
    """The steps in words, one a line."""
    width = len(str(len(steps)))
    for number, step in enumerate(steps, 1):
        does = f": {step.does}" if step.does else ""
        yield f"{number:>{width}}. validator {step.validator} {step.text}{does}"


def _told(new: Sequence[What]) -> Iterator[str]:
    for what in new:
        if what.is_proposal:
            yield f"proposes block {what.digest.hex()[:6]} of view {what.view} on view {what.parent_view}"
        elif what.is_certificate:
            yield f"holds the {_CERTIFICATES[what.kind]} of view {what.view}"
        elif what.kind == VoteKind.TIMEOUT:
            yield f"times out of view {what.view} naming view {what.parent_view}"
        else:
            yield f"votes to {what.kind.name.lower()} view {what.view}"


_CERTIFICATES: Final = {
    VoteKind.NOTARIZE: "notarization",
    VoteKind.NULLIFY: "nullification",
    VoteKind.TIMEOUT: "timeout certificate",
    VoteKind.FINALIZE: "finalization",
}


def _page_of(occurrence: Occurrence) -> Arrival | Expiry | Restart | Sync:
    match occurrence:
        case Received(sender, message):
            return Arrival(sender, encode(message).hex())
        case TimerExpired(kind, view):
            return Expiry("leader" if kind is TimerKind.LEADER else "advance", view)
    return Restart() if occurrence == RESTART else Sync()


def _occurrence_of(page: Arrival | Expiry | Restart | Sync) -> Occurrence:
    match page:
        case Arrival(sender, message):
            return Received(ValidatorIndex(sender), decode(bytes.fromhex(message)))
        case Expiry(kind, view):
            return TimerExpired(TimerKind(kind), View(view))
        case Restart():
            return RESTART
    return SYNC
