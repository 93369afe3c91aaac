"""Checks of actors' messages, which an observer follows from the run that sent each to its own run (SPEC §14).

The message that runs is the oldest one waiting. Its receipt states its sender and receiver, and it was sent in an
earlier phase. It uses no more than was reserved and paid for. No message runs beyond the deferred lane, or waits while
it would fit. Payloads are not in the receipts; only those sent by scripts are known (:mod:`~cluster.audit.scripts`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from cluster.audit.chain_codec import CallbackReceipt, Effects, MessageReceipt, Sent
from cluster.audit.ledger.jobs import Run, jobs_requested
from cluster.audit.scripts import limits
from cluster.common.wording import counted
from validator.primitives.params import Parameters
from validator.primitives.types import address_text


class Queued(NamedTuple):
    """A waiting message; sender and payload are ``None`` if they are unknown."""

    sent: Sent
    sender: bytes | None
    payload: bytes | None


class MessageBooks:
    """Tracks the waiting messages of a chain, and checks their rules. The texts that methods yield are violations."""

    def __init__(self) -> None:
        self._waiting: deque[Queued] = deque()
        self._older = 0
        """The number of waiting messages that were sent before the phase of messages began."""
        self._used = 0
        """Use of the deferred lane, minus the cycles that its runs reserved for later runs."""
        self._bytes: Counter[bytes] = Counter()
        """Bytes of the known payloads that wait, by receiver."""
        self._unknown: Counter[bytes] = Counter()
        """Number of unknown payloads that wait, by receiver."""
        self.running: Queued | None = None
        """The running message; ``None`` if no message was waiting."""

    def waiting_bytes(self, receiver: bytes) -> int | None:
        """Bytes of the payloads that wait for an actor; ``None`` if one of them is unknown."""
        return None if self._unknown[receiver] else self._bytes[receiver]

    def begin_deferred(self) -> None:
        """Begin the block's deferred lane, after transactions and timers, before callbacks."""
        self._used = 0

    def begin_messages(self) -> None:
        """Begin the block's message phase, after the callbacks."""
        self._older = len(self._waiting)

    @property
    def holds_back(self) -> bool:
        """Whether a message waits that was sent before the phase of messages began."""
        return self._older > 0

    def sent_problems(
        self, run: Run, effects: Effects, parameters: Parameters, payloads: Sequence[bytes] | None = None
    ) -> Iterator[str]:
        """Check and enter the messages that a run sent, and that it paid for them; yields problems."""
        if not effects.messages:
            return
        p = parameters
        for sent, payload in zip(effects.messages, payloads or repeat(None), strict=False):
            if not (
                limits.MIN_MESSAGE_CYCLES <= sent.cycles <= p.message_cycles and 0 <= sent.cells <= p.message_cells
            ):
                yield f"sent a message that reserves {sent.cycles} cycles and {sent.cells} cells"
            self._waiting.append(Queued(sent, run.actor, payload))
            self._count(sent.to, payload, 1)
        count, requested = len(effects.messages), jobs_requested(effects)
        name, jobs = counted(count, "message"), counted(requested, "job")
        cycles = run.base_cycles + sum(limits.SEND + sent.cycles for sent in effects.messages)
        cycles += requested * (limits.REQUEST_JOB + p.message_cycles)
        cells = sum(sent.cells for sent in effects.messages) + requested * p.message_cells
        if run.cycles < cycles or run.cells < cells:
            yield f"sent {name} and paid {run.cycles} cycles and {run.cells} cells, too few for that"
        if count + requested > run.most_jobs:
            yield f"sent {name} and requested {jobs}, of at most {run.most_jobs} of both"

    def enter_callback(self, callback: CallbackReceipt, parameters: Parameters) -> None:
        """Count a callback's use of the deferred lane. The callback's effects must have been entered."""
        self._used += callback.cycles - reserved_cycles(callback.effects, parameters)

    def message_problems(self, message: MessageReceipt, parameters: Parameters) -> Iterator[str]:
        """Enter a message that ran, without its effects; yields problems."""
        if not self._waiting:
            self.running = None
            yield "ran, which was never sent"
            return
        self.running = sent, sender, payload = self._waiting.popleft()
        self._count(sent.to, payload, -1)
        if not self._older:
            yield "ran in the phase in which it was sent"
        self._older -= 1
        if (message.to, message.handler) != (sent.to, sent.handler) or sender not in (None, message.sender):
            yield f"ran, where one to {address_text(sent.to)} waits that was sent before"
        if message.cycles > sent.cycles or message.cells > sent.cells:
            yield (
                f"used {message.cycles} cycles and {message.cells} cells of {sent.cycles} and {sent.cells} that were"
                " reserved for it"
            )
        if self._used + sent.cycles > parameters.lane_deferred_cycles:
            yield f"ran, though the {sent.cycles} cycles reserved for it did not fit in the deferred lane"
        self._used += message.cycles - reserved_cycles(message.effects, parameters)

    def _count(self, receiver: bytes, payload: bytes | None, more: int) -> None:
        """Count a message that enters a mailbox or leaves it."""
        if payload is None:
            self._unknown[receiver] += more
        else:
            self._bytes[receiver] += more * len(payload)

    def phase_problems(self, is_held_up: bool, parameters: Parameters) -> Iterator[str]:
        """Yields a problem if the block passed over a message that fitted.

        ``is_held_up``: a waiting callback keeps every message from running.
        """
        if is_held_up or self._older <= 0:
            return
        first = self._waiting[0].sent
        if self._used + first.cycles <= parameters.lane_deferred_cycles:
            yield f"a message to {address_text(first.to)} was passed over, though it fitted in the deferred lane"


def reserved_cycles(effects: Effects, parameters: Parameters) -> int:
    """Cycles of later runs that a run paid for in advance."""
    return sum(sent.cycles for sent in effects.messages) + jobs_requested(effects) * parameters.message_cycles
