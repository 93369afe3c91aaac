"""Summaries of a block's receipts: its events, the timers that ended in it, and the amount burned at each price.

The order is that of the receipts: transactions, destroyed timers, fires, callbacks, messages. ``GbaFallback`` is in no
receipt, so it is not among the events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from validator.chain.block import BlockReceipts, Cancelled, Effects, Event, FireReceipt, Header, TransactionReceipt
from validator.primitives.types import TimerId

NO_EFFECTS: Final = Effects()


class Source(NamedTuple):
    """The receipt that an event or timer's end comes from."""

    kind: str
    """``transaction``, ``destroyed``, ``fire``, ``callback`` or ``message``."""
    subject: bytes
    """The transaction's hash, the timer's id, the job's id, or the address of the message's receiver."""


class TimerEnd(NamedTuple):
    """How a timer ended."""

    state: str
    """``fired``, ``reverted`` (it fired, and its handler failed), ``cancelled``, or the reason why it was destroyed."""
    source: Source
    fire: FireReceipt | None
    """Receipt of the fire; ``None`` if the timer did not fire."""
    event: Event | None
    """Event of the destruction; ``None`` if the timer was not destroyed."""


def events_of(receipts: BlockReceipts) -> Iterator[tuple[Source, Event]]:
    """Every event in the receipts, in order, with its source."""
    for source, effects, others in _parts(receipts):
        for event in (*effects.events, *others):
            yield source, event


def ended_timers(receipts: BlockReceipts) -> Iterator[tuple[TimerId, TimerEnd]]:
    """Every timer that ended in the block, and how it ended: first cancelled, then destroyed, then fired timers."""
    for source, effects, _ in _parts(receipts):
        for change in effects.timer_changes:
            if isinstance(change, Cancelled):
                yield TimerId(change.timer_id), TimerEnd("cancelled", source, None, None)
    for destroyed in receipts.destroyed:
        source = Source("destroyed", destroyed.timer_id)
        yield TimerId(destroyed.timer_id), TimerEnd(destroyed.reason, source, None, destroyed.event)
    for fire in receipts.fires:
        state = "fired" if fire.ok else "reverted"
        yield TimerId(fire.timer_id), TimerEnd(state, Source("fire", fire.timer_id), fire, None)


def ended_timer_ids(receipts: BlockReceipts) -> list[TimerId]:
    """The ids of the timers that ended in the block, in the order of :func:`ended_timers`."""
    changing = (receipts.transactions, receipts.fires, receipts.callbacks, receipts.messages)
    changes = [change for part in changing for receipt in part for change in receipt.effects.timer_changes]
    return [
        *(TimerId(change.timer_id) for change in changes if isinstance(change, Cancelled)),
        *(TimerId(destroyed.timer_id) for destroyed in receipts.destroyed),
        *(TimerId(fire.timer_id) for fire in receipts.fires),
    ]


def _parts(receipts: BlockReceipts) -> Iterator[tuple[Source, Effects, tuple[Event, ...]]]:
    """Each receipt that may hold events: its source, its effects, and its other events."""
    for transaction in receipts.transactions:
        yield Source("transaction", transaction.transaction_hash), transaction.effects, ()
    for destroyed in receipts.destroyed:
        yield Source("destroyed", destroyed.timer_id), NO_EFFECTS, (destroyed.event,)
    for fire in receipts.fires:
        yield Source("fire", fire.timer_id), fire.effects, ()
    for callback in receipts.callbacks:
        unsettled = () if callback.unsettled is None else (callback.unsettled,)
        yield Source("callback", callback.job_id), callback.effects, unsettled
    for message in receipts.messages:
        yield Source("message", message.to), message.effects, ()


class Burned(NamedTuple):
    """Amounts that a block burned, in the smallest CBY unit, by the price at which they were burned."""

    cycle: int = 0
    """Burned at the basefee per cycle, by transactions, fires and queries of agents."""
    cell: int = 0
    """Burned at the cell's basefee."""
    lane_timer: int = 0
    """Burned at the timer lane's price, by fires."""

    def plus(self, other: Burned) -> Burned:
        """The sum of both, separately for each price."""
        return Burned(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING_BURNED: Final = Burned()


def burned(header: Header, receipts: BlockReceipts) -> Burned:
    """The amounts that a block burned, by price.

    A receipt has only their sum. The amounts for cycles and cells are computed, and the rest is for the timer lane.
    """
    paying: list[TransactionReceipt | FireReceipt] = [*receipts.transactions, *receipts.fires]
    cycle = sum(receipt.cycles for receipt in paying) * unpack(header.basefee_cycle)
    cell = sum(receipt.cells for receipt in paying) * unpack(header.basefee_cell)
    paid = sum(unpack(receipt.burned) for receipt in paying)
    queries = sum(unpack(query.burned) for query in receipts.queries)
    return Burned(cycle + queries, cell, paid - cycle - cell)


def unpack(data: bytes) -> int:
    """A number in big-endian bytes."""
    return int.from_bytes(data, "big")
