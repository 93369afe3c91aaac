"""Expectations that several drills share, and helper functions of judges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cluster.audit.books import Books
from cluster.audit.chains import is_part
from cluster.commands.drills.base import Expectation, Judgement
from cluster.common.outcome import Outcome, worst
from cluster.record.archive import BlockRecord
from cluster.record.chain_store import differing_places
from cluster.record.run import FaultRecord, ValidatorRecord
from spec.encoding import Effects, Header, Receipts, Unreadable, read_block, read_receipts

KILL: Final = "kill"
"""The kind of fault with which drills take validators down."""
SHOWN_DIGITS: Final = 16
READINGS_KEPT: Final = 20_000


# --- timers ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _ChainTimers:
    """The timers of a chain, determined from its receipts alone."""

    scheduled: set[bytes] = field(default_factory=set)
    gone: set[bytes] = field(default_factory=set)
    """Timers that ended or were cancelled."""
    ends: Counter[bytes] = field(default_factory=Counter)
    """Number of ends after the first one, keyed by timer."""
    doubled_at: dict[bytes, int] = field(default_factory=dict)
    """Height at which a timer ended for the second time, keyed by timer."""

    @classmethod
    def of(cls, blocks: Iterable[BlockRecord], first_height: int = 1) -> _ChainTimers:
        """Collect the timers of a chain from its blocks, which are read once."""
        found, once = cls(), set[bytes]()
        for height, record in enumerate(blocks, start=first_height):
            found.scheduled.update(scheduled_by(record))
            for timer in ended(record):
                if timer in once:
                    found.doubled_at.setdefault(timer, height)
                    found.ends[timer] += 1
                once.add(timer)
            found.gone.update(cancelled(record))
        found.gone |= once
        return found

    def doubled_until(self, height: int) -> str:
        """A sentence about the first timer that ended twice or more up to ``height``; empty if there is none."""
        timer = next((timer for timer, at in self.doubled_at.items() if at <= height), None)
        return "" if timer is None else f"timer {_short(timer)} ended {1 + self.ends[timer]} times"


def judge_timers_once(books: Books) -> Judgement:
    """Checks that each timer ended at most once, and that validators count the others as pending."""
    chain = books.chain
    timers = _ChainTimers.of(chain)
    for validator in books.judged:
        is_shared = is_part(validator, chain)
        own = timers if is_shared else _ChainTimers.of(validator.blocks, validator.first_height)
        if doubled := own.doubled_until(validator.tip):
            return Outcome.FAIL, f"{validator.name}: {doubled}"
    for name, receipts in diverged_receipts(books):
        ends = Counter(fire.timer_id for fire in receipts.fires)
        if doubled_here := [timer for timer, times in ends.items() if times > 1]:
            timer = doubled_here[0]
            return Outcome.FAIL, f"{name}, where it diverged: timer {_short(timer)} fired {ends[timer]} times"
    waiting = len(timers.scheduled - timers.gone)
    for validator in books.judged:
        status = validator.status or {}
        counted = status.get("pending_timers")
        is_of_the_tip = validator.tip == len(chain) == status.get("height", validator.tip)
        if is_of_the_tip and counted is not None and counted != waiting:
            return Outcome.FAIL, f"{waiting:,} timers have not ended, {validator.name} has {counted:,} pending"
    if not timers.gone:
        return Outcome.INCONCLUSIVE, f"{len(timers.scheduled):,} timers were scheduled, none ended"
    return (
        Outcome.PASS,
        f"{len(timers.scheduled):,} scheduled: {len(timers.gone):,} ended once each, {waiting:,} are pending",
    )


TIMERS_ONCE: Final = Expectation(
    "timers_once", "every scheduled timer ends once or is pending: none fires twice, none is lost", judge_timers_once
)
"""The expectation that no timer ends twice or is lost. It is judged from receipts alone, independently of the check
``timers``."""


def scheduled_by(record: BlockRecord) -> list[bytes]:
    """Timers that a block scheduled."""
    return [timer.timer_id for effects in _effects(record) for timer in effects.scheduled]


def ended(record: BlockRecord) -> list[bytes]:
    """Timers that a block fired or destroyed, with repetitions."""
    receipts = receipts_of(record.receipts)
    if receipts is None:
        return []
    return [fire.timer_id for fire in receipts.fires] + [end.timer_id for end in receipts.destroyed]


def cancelled(record: BlockRecord) -> list[bytes]:
    """Timers that a block cancelled."""
    changes = (change for effects in _effects(record) for change in effects.timer_changes)
    return [change[1] for change in changes if change[0] == "cancelled"]


def _effects(record: BlockRecord) -> Iterator[Effects]:
    receipts = receipts_of(record.receipts)
    if receipts is not None:
        for runs in (receipts.transactions, receipts.fires, receipts.callbacks, receipts.messages):
            yield from (run.effects for run in runs)


# --- replay ---------------------------------------------------------------------------------------------------------


def judge_replay(books: Books) -> Judgement:
    """Checks that every validator's blocks equal one execution of the final chain."""
    if (mismatch := books.reexecution.first_mismatch()) is not None:
        return Outcome.FAIL, f"height {mismatch.heights + 1}: {mismatch.reason}"
    for diverged in books.divergences:
        return Outcome.FAIL, f"{diverged.validator} diverged at height {diverged.height}: {diverged.reason}"
    compared = 0
    for validator in books.judged:
        if validator.first_height > len(books.chain) + 1:
            return unmet(books), f"no validator served the blocks below height {validator.first_height}"
        mine, same = validator.blocks, books.chain[validator.first_height - 1 : validator.tip]
        apart = (place for place in differing_places(mine, same) if mine[place] != same[place])
        if (place := next(apart, len(same) if len(mine) > len(same) else None)) is not None:
            height = validator.first_height + place
            return Outcome.FAIL, f"{validator.name} serves another block or other receipts at height {height}"
        compared += len(mine)
    if not compared:
        return Outcome.INCONCLUSIVE, "no validator served a block"
    fires = sum(len(receipts.fires) for record in books.chain if (receipts := receipts_of(record.receipts)) is not None)
    return Outcome.PASS, (
        f"{compared:,} blocks of {len(books.judged)} validators equal those of one execution, {fires:,} fires in order"
    )


STRAIGHT_REPLAY: Final = Expectation(
    "replay",
    "roots, receipts, events and the order of fires of every validator equal those of one execution from the genesis"
    " without other branches or restarts",
    judge_replay,
)
"""The expectation that branches, restarts and snapshots leave no trace in the chain."""


# --- times ----------------------------------------------------------------------------------------------------------


def rate(books: Books, after_ms: float, until_ms: float) -> float:
    """Final heights per second in a part of the run; 0 if it is empty."""
    seen = [at for at in books.record.first_finalizations.values() if after_ms < at <= until_ms]
    return len(seen) / (until_ms - after_ms) * 1_000 if until_ms > after_ms else 0.0


# --- outcomes ------------------------------------------------------------------------------------------------


def unmet(books: Books) -> Outcome:
    """The outcome of an expectation that is not met: a fail, or inconclusive if the run was interrupted."""
    return Outcome.INCONCLUSIVE if books.record.interrupted else Outcome.FAIL


def together(judged: Sequence[Judgement]) -> Judgement:
    """Combine judgements: the worst outcome, with the texts of the judgements that have it."""
    outcome = worst(each for each, _ in judged)
    return outcome, "; ".join(text for each, text in judged if each is outcome)


def heights_apart(books: Books, validators: Sequence[ValidatorRecord], until: int) -> list[int]:
    """The heights up to ``until`` at which these validators served different blocks; missing blocks do not count."""
    held = [{books.chains[each.name].at(height) for each in validators} - {None} for height in range(1, until + 1)]
    return [height for height, blocks in enumerate(held, start=1) if len(blocks) > 1]


# --- faults ---------------------------------------------------------------------------------------------------------


def faults_of(books: Books, kind: str) -> list[FaultRecord]:
    """The run's faults of a kind, begun or not."""
    return [fault for fault in books.record.faults if fault.kind == kind]


def overlapping(faults: Iterable[FaultRecord]) -> list[list[FaultRecord]]:
    """The faults that began, in groups that overlap in time."""
    groups: list[list[FaultRecord]] = []
    over_ms = -math.inf
    for begun_ms, fault in sorted(((_begun_ms(fault), fault) for fault in faults), key=lambda pair: pair[0]):
        if begun_ms == math.inf:
            continue
        if begun_ms > over_ms:
            groups.append([])
        groups[-1].append(fault)
        over_ms = max(over_ms, _ended_ms(fault))
    return groups


def down_at_once(faults: Iterable[FaultRecord]) -> list[set[str]]:
    """The sets of validators that are down together: one set for each kill, as of its begin."""
    kills = [fault for fault in faults if fault.kind == KILL and fault.begun_ms is not None]
    moments = [_begun_ms(kill) for kill in kills]
    return [
        {name for kill in kills if _begun_ms(kill) <= at <= _ended_ms(kill) for name in kill.targets} for at in moments
    ]


def _begun_ms(fault: FaultRecord) -> float:
    return math.inf if fault.begun_ms is None else fault.begun_ms


def _ended_ms(fault: FaultRecord) -> float:
    return math.inf if fault.ended_ms is None else fault.ended_ms


# --- reading --------------------------------------------------------------------------------------------------------


def diverged_receipts(books: Books) -> Iterator[tuple[str, Receipts]]:
    """The name of each diverged validator, with its receipts of the block at which it diverged. Validators that do not
    serve these receipts are left out."""
    for validator in books.judged:
        diverged = (validator.status or {}).get("diverged")
        try:
            data = bytes.fromhex(diverged["receipts"]) if isinstance(diverged, dict) else b""
        except (KeyError, TypeError, ValueError):
            continue
        receipts = receipts_of(data) if data else None
        if receipts is not None:
            yield validator.name, receipts


def headers(chain: Iterable[BlockRecord]) -> Iterator[Header]:
    """The headers of a chain's blocks; unreadable blocks are left out."""
    for record in chain:
        try:
            yield read_block(record.block).header
        except Unreadable:
            continue


@lru_cache(READINGS_KEPT)
def receipts_of(data: bytes) -> Receipts | None:
    """Decode a block's receipts as served; ``None`` if they are unreadable, which the check ``chain`` reports."""
    try:
        return read_receipts(data)
    except Unreadable:
        return None


def _short(timer: bytes) -> str:
    return timer.hex()[:SHOWN_DIGITS]
