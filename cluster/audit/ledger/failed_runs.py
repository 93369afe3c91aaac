"""The runs of a chain that failed, by kind, actor and error.

A run is a transaction's call, a fire, a callback of a job, or a mailbox message. A failed one was reverted, and its
error is in its receipt.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Final, NamedTuple

from cluster.audit.chain_codec import Call
from cluster.audit.ledger.context import BlockContext

MAX_ERRORS: Final = 8
"""The most different errors kept of one kind of one actor's runs: an error may have the program's own text."""
OTHER_ERRORS: Final = "other errors"


class RunKind(StrEnum):
    """What made an actor run."""

    TRANSACTION = "transaction"
    FIRE = "fire"
    CALLBACK = "callback"
    MESSAGE = "message"


class FailedRuns(NamedTuple):
    """The runs of one kind of one actor that failed with one error."""

    kind: RunKind
    actor: bytes
    error: str
    times: int
    runs: int
    """The actor's runs of this kind, whether they failed or not."""


class RunOutcomes:
    """Counts the runs of each actor, and those that failed."""

    def __init__(self) -> None:
        self.failed: Counter[RunKind] = Counter()
        """The number of failed runs of each kind."""
        self._runs: Counter[tuple[RunKind, bytes]] = Counter()
        self._errors: dict[tuple[RunKind, bytes], Counter[str]] = {}

    def enter(self, context: BlockContext) -> None:
        """Enter the runs of a block. Transactions that call no actor do not count."""
        receipts = context.receipts
        for (_, body), sent in zip(context.bodies, receipts.transactions, strict=False):
            if isinstance(body.action, Call):
                self._enter(RunKind.TRANSACTION, body.action.to, sent.ok, sent.error)
        for fire in receipts.fires:
            self._enter(RunKind.FIRE, fire.actor, fire.ok, fire.error)
        for callback in receipts.callbacks:
            self._enter(RunKind.CALLBACK, callback.actor, callback.ok, callback.error)
        for message in receipts.messages:
            self._enter(RunKind.MESSAGE, message.to, message.ok, message.error)

    def _enter(self, kind: RunKind, actor: bytes, ok: bool, error: str) -> None:
        key = kind, actor
        self._runs[key] += 1
        if not ok:
            self.failed[kind] += 1
            errors = self._errors.setdefault(key, Counter())
            errors[error if error in errors or len(errors) < MAX_ERRORS else OTHER_ERRORS] += 1

    @property
    def failures(self) -> list[FailedRuns]:
        """All failed runs, the most frequent first."""
        found = [
            FailedRuns(kind, actor, error, times, self._runs[kind, actor])
            for (kind, actor), errors in self._errors.items()
            for error, times in errors.items()
        ]
        return sorted(found, key=lambda each: (-each.times, each.kind, each.actor, each.error))

    @property
    def always_failing(self) -> list[FailedRuns]:
        """Of each actor whose runs of a kind failed every time, the most frequent error; the most runs first."""
        found = []
        for (kind, actor), errors in self._errors.items():
            runs = self._runs[kind, actor]
            if errors.total() == runs:
                error = min(errors, key=lambda each: (-errors[each], each))
                found.append(FailedRuns(kind, actor, error, runs, runs))
        return sorted(found, key=lambda each: (-each.times, each.kind, each.actor))
