"""The steps of validators that are not part of a span yet, by height, view and transaction; bounded."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from cluster.record.run import Step, StepKind

MAX_STEPS: Final = 1 << 16
"""Bound for the steps that are kept of each kind, and for the transactions. The oldest go first."""
BY_HEIGHT: Final = (StepKind.BEGAN, StepKind.FINAL)

Times = dict[int, float]
"""Milliseconds since the run began, by index of the validator."""


class BlockSteps(NamedTuple):
    """When each validator took part in a block."""

    entered: Times
    """It entered the block's view."""
    began: Times
    """It began to build or to execute a block of this height."""
    notarized: Times
    """It sent its vote to notarize, in the block's view."""
    finalized: Times
    """It sent its vote to finalize."""
    final: Times
    """It made the block final."""


class StepLog:
    """Takes the steps of all validators. The first step of its kind counts."""

    def __init__(self, validators: int) -> None:
        self._max_kept = max(256, MAX_STEPS // max(1, validators))
        """Bound for the heights, or views, of each kind."""
        self._times: dict[StepKind, defaultdict[int, Times]] = {kind: defaultdict(dict) for kind in StepKind}
        self._taken: dict[bytes, tuple[float, int]] = {}
        self.height = 0
        """The highest final height."""

    def note(self, step: Step) -> None:
        """Enter a step."""
        if step.kind is StepKind.TAKEN:
            self._taken.setdefault(step.transaction, (step.at_ms, step.validator))
            if len(self._taken) > MAX_STEPS:
                del self._taken[next(iter(self._taken))]
            return
        kept = self._times[step.kind]
        kept[step.number].setdefault(step.validator, step.at_ms)
        if len(kept) > self._max_kept:
            del kept[next(iter(kept))]
        if step.kind is StepKind.FINAL:
            self.height = max(self.height, step.number)

    def of_block(self, height: int, view: int) -> BlockSteps:
        """The steps about a block."""
        found = {kind: self._times[kind].get(height if kind in BY_HEIGHT else view, {}) for kind in StepKind}
        return BlockSteps(
            found[StepKind.ENTERED],
            found[StepKind.BEGAN],
            found[StepKind.NOTARIZED],
            found[StepKind.FINALIZED],
            found[StepKind.FINAL],
        )

    def taken(self, transaction: bytes) -> tuple[float, int] | None:
        """When a validator first took a transaction from a client, and the validator; ``None`` if that is unknown."""
        return self._taken.get(transaction)

    def forget(self, height: int, view: int, transactions: tuple[bytes, ...]) -> None:
        """Drop the steps about a block that has its spans, and those of lower heights and views."""
        for kind, kept in self._times.items():
            newest = height if kind in BY_HEIGHT else view
            for number in [number for number in kept if number <= newest]:
                del kept[number]
        for each in transactions:
            self._taken.pop(each, None)
