"""The steps of a validator towards final blocks, from what its host reports."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.live.host.host import ValidatorView
from cluster.live.host.observations import FinalSeen, FirstSeen, Observation, ViewSeen, VoteSent
from cluster.record.run import VOTE_STEPS, Step, StepKind


def steps_of(view: ValidatorView, began_epoch_ms: float) -> Iterator[Step]:
    """The steps in one report of a validator. The run began at ``began_epoch_ms``."""
    for at_ms, transaction in getattr(view, "taken", ()):  # a host of other code may not report them
        yield Step(StepKind.TAKEN, at_ms - began_epoch_ms, view.index, transaction=transaction)
    for seen in view.observations:
        found = _step(seen)
        if found is not None:
            kind, at_ms, number = found
            yield Step(kind, at_ms - began_epoch_ms, view.index, number)


def _step(seen: Observation) -> tuple[StepKind, float, int] | None:
    """The kind of an observation, its time since the epoch, and its height or view; ``None`` if it is no step."""
    match seen:
        case FirstSeen(height=height, at_ms=at_ms):
            return StepKind.BEGAN, at_ms, height
        case ViewSeen(at_ms=at_ms, view=view):
            return StepKind.ENTERED, at_ms, view
        case FinalSeen(at_ms=at_ms, block=block):
            return StepKind.FINAL, at_ms, block.height
        case VoteSent(view=view, kind=kind, at_ms=at_ms) if kind in VOTE_STEPS and at_ms:
            return VOTE_STEPS[kind], at_ms, view
    return None
