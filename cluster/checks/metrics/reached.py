"""The mechanisms that a run reached (:class:`~cluster.record.rules.Mechanism`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cluster.audit.books import Books
from cluster.audit.chains import read_served
from cluster.record.rules import Mechanism, SafetyRule
from cluster.record.run import RunRecord, ValidatorRecord
from consensus.types import FIRST_VIEW
from validator.node.mempool import Departure, Refusal

REFUSALS: Final[Mapping[str, Mechanism]] = {
    Refusal.MEMPOOL_FULL: Mechanism.POOL_FULL,
    Refusal.SENDER_LIMIT: Mechanism.POOL_SENDER_LIMIT,
    Refusal.NONCE_TOO_HIGH: Mechanism.POOL_NONCE_TOO_HIGH,
    Refusal.UNAFFORDABLE: Mechanism.POOL_UNAFFORDABLE,
    Refusal.REPLACEMENT_UNDERPRICED: Mechanism.POOL_UNDERPRICED,
}
DEPARTURES: Final[Mapping[str, Mechanism]] = {
    Departure.REPLACED: Mechanism.POOL_REPLACED,
    Departure.EVICTED: Mechanism.POOL_EVICTED,
    Departure.EXPIRED: Mechanism.POOL_EXPIRED,
}
DEEP: Final = 2
"""The minimum number of abandoned blocks that make a branch deep. Nearly every run abandons branches of one block."""


def mechanisms_reached(books: Books) -> list[Mechanism]:
    """The mechanisms that a run reached, each once, in the order of :class:`~cluster.record.rules.Mechanism`.

    Those of validators count only if an honest one reached them.
    """
    record = books.record
    found: set[Mechanism] = {*books.ledger.reached, *_by_reorgs(books), *_by_views(books)}
    for validator in books.judged:
        if validator.status is not None:
            found.update((*_by_status(validator.status), *_by_snapshot(validator, record)))
    if record.monitor is not None:
        found.update(record.monitor.reached)
        if record.monitor.counts.get(SafetyRule.ANSWERS):
            found.add(Mechanism.STUCK_PEER_ANSWERED)
    return [mechanism for mechanism in Mechanism if mechanism in found]


def _by_reorgs(books: Books) -> Iterator[Mechanism]:
    byzantine = {validator.index for validator in books.record.validators if validator.byzantine}
    reached = books.ledger.reached
    for reorg in books.record.reorgs:
        if reorg.validator in byzantine:
            continue
        yield Mechanism.BRANCH_GIVEN_UP
        if reorg.depth >= DEEP:
            yield Mechanism.DEEP_BRANCH_GIVEN_UP
        for of_chain, rolled_back in (
            (Mechanism.EPOCH_ENTERED, Mechanism.EPOCH_ROLLED_BACK),
            (Mechanism.WINDOW_PRUNED, Mechanism.WINDOW_ROLLED_BACK),
        ):
            # the abandoned blocks have the same epochs as the final ones of their heights, and nearly always lost the
            # same fires from the window, which are those of earlier blocks
            if any(height in reached.get(of_chain, ()) for height in reorg.heights):
                yield rolled_back


def _by_views(books: Books) -> Iterator[Mechanism]:
    """Mechanisms that the views of final blocks show: a view at the border of two committees failed."""
    borders = [first for first in books.record.scenario.validators.committees if first > FIRST_VIEW]
    if not borders:
        return
    views = {served.view for each in books.chain if (served := read_served(each)) is not None}
    newest = max(views, default=0)
    if any(first <= newest and not {first - 1, first} <= views for first in borders):
        yield Mechanism.BORDER_VIEW_FAILED


def _by_status(page: Mapping[str, Any]) -> Iterator[Mechanism]:
    """Mechanisms that a validator's status page shows, of its mempool and archive."""
    for counts, named in (("transactions_refused", REFUSALS), ("transactions_dropped", DEPARTURES)):
        for reason, count in page.get(counts, {}).items():
            if count and reason in named:
                yield named[reason]
    if page.get("replayed_blocks"):
        yield Mechanism.BLOCKS_REPLAYED
    if page.get("first_block", 0) > page.get("snapshot_height", 0) + 1:
        yield Mechanism.ARCHIVE_PRUNED


def _by_snapshot(validator: ValidatorRecord, record: RunRecord) -> Iterator[Mechanism]:
    """Mechanisms reached by a validator that joined by a snapshot."""
    height = (validator.status or {}).get("snapshot_height", 0)
    if not height:
        return
    yield Mechanism.SNAPSHOT_JOINED
    length = record.genesis.parameters.epoch_length
    joins = [join.height_when_ended for join in record.joins if join.target == validator.name]
    joins += [fault.height_when_ended for fault in record.faults if validator.name in fault.without_disks]
    if any(ended is not None and height // length < ended // length for ended in joins):
        yield Mechanism.SNAPSHOT_JOINED_ACROSS_EPOCH
