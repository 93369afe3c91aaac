"""Checks of faults and joins: an effect was observed, the network behaved as required, the targets caught up."""

from __future__ import annotations

import math
from typing import Any, Final

from cluster.audit.books import Books
from cluster.checks.kind import CheckKind, Subject, excuse_for, unless_too_slow
from cluster.checks.metrics.recovery import final_moments, recovery_limit_ms, recovery_of
from cluster.checks.quorums import ProgressDuringFaults
from cluster.checks.verdict import Result, of_parts
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.run import CATCH_UP_SLACK_HEIGHTS, FaultRecord, JoinRecord, ValidatorRecord

HEIGHTS_AFTER_A_JOIN: Final = 10
"""Heights that a validator must execute after its join; with fewer the check is inconclusive."""


class Faults(CheckKind):
    """Each fault took effect, the network made progress as the fault's kind implies, and its targets caught up."""

    name = "faults"
    SUBJECT = Subject.FAULTS

    def idle(self) -> str:
        return "" if self.record.scenario.faults or self.record.faults else "the scenario has none"

    def judge(self) -> Result:
        progress = ProgressDuringFaults(self.books)
        faults = self.record.faults
        results = [_check_fault(self.books, number, fault, progress) for number, fault in enumerate(faults)]
        return of_parts(results, len(self.record.scenario.faults), "faults never began")


def _check_fault(books: Books, number: int, fault: FaultRecord, progress: ProgressDuringFaults) -> Result:
    record, name = books.record, fault.name
    if fault.begun_ms is None:
        return Outcome.INCONCLUSIVE, f"{name} never began"
    if fault.problem:
        return Outcome.FAIL, f"{name}: {fault.problem}"
    if fault.ended_ms is None and fault.facts.lasts:
        return Outcome.INCONCLUSIVE, f"{name} was still under way at the end"
    if not fault.took_effect:
        return Outcome.INCONCLUSIVE, f"{name} had no observable effect ({fault.evidence or 'no evidence'})"
    if fault.ended_ms is None:
        verdict = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
        return verdict, f"{name}: the target never came back"
    outcome, words_of_progress = progress.during(number)
    if outcome is not Outcome.PASS:
        return outcome, f"{name}: {words_of_progress}"
    words = [words_of_progress]
    hit = fault.targets or fault.impaired
    for validator in books.judged:
        if validator.name in hit:
            outcome, text = _caught_up(books, fault, validator)
            if outcome is not Outcome.PASS:
                return outcome, f"{name}: {text}"
            words += [text] if fault.facts.restarts_from else []
    if len(words) == 1 and hit:
        words.append(f"{', '.join(hit)} caught up" if len(hit) < len(record.validators) else "all caught up")
    effect = f"{name} took effect" + (f": {fault.evidence}" if fault.evidence else "")
    return Outcome.PASS, "; ".join([effect, *words])


class Recovery(CheckKind):
    """Once all faults are over, a quorum finalises a new height within the scenario's bound."""

    name = "recovery"
    SUBJECT = Subject.FAULTS

    def idle(self) -> str:
        return "" if any(fault.begun_ms is not None for fault in self.record.faults) else "no fault began"

    def judge(self) -> Result:
        found = recovery_of(self.books)
        if found is None:
            return Outcome.INCONCLUSIVE, "not all faults were over at the end"
        limit_ms = recovery_limit_ms(self.books, found.healed_ms)
        since = f"{found.last.title} was over at height {found.healed_height}"
        if found.took_ms is None:
            within, waited_ms = Outcome.INCONCLUSIVE, self.record.duration_ms - found.healed_ms
            what = f"no quorum finalised a height in the {waited_ms:,.0f} ms since {since}"
        else:
            within, waited_ms = Outcome.PASS, found.took_ms
            what = f"a quorum finalised a new height {waited_ms:,.0f} ms after {since}, allowed {limit_ms:,} ms"
        if waited_ms <= limit_ms:
            return within, what
        excuse = excuse_for(self.books, found.healed_ms, found.healed_ms + waited_ms, limit_ms)
        return unless_too_slow(Outcome.FAIL, what, excuse)


class Joins(CheckKind):
    """Each late validator joined by a snapshot, caught up, and then executed blocks itself."""

    name = "joins"
    SUBJECT = Subject.VALIDATORS

    def idle(self) -> str:
        return "" if self.record.scenario.validators.late else "the scenario has none"

    def judge(self) -> Result:
        results = [_check_join(self.books, join) for join in self.record.joins]
        return of_parts(results, len(self.record.scenario.validators.late), "joins never began")


def _check_join(books: Books, join: JoinRecord) -> Result:
    name = f"join of {join.target} at height {join.at_height}"
    if join.begun_ms is None:
        return Outcome.INCONCLUSIVE, f"{name} never began"
    if join.ended_ms is None:
        verdict = Outcome.INCONCLUSIVE if books.record.interrupted else Outcome.FAIL
        return verdict, f"{name}: the validator never received a snapshot"
    validator = next((v for v in books.record.validators if v.name == join.target), None)
    if validator is None or validator.status is None:
        return Outcome.INCONCLUSIVE, f"{name}: the validator does not say how it began"
    height = validator.status.get("snapshot_height")
    if not isinstance(height, int) or height <= 0:
        return Outcome.FAIL, f"{name}: the validator executed the chain from the genesis on, without a snapshot"
    outcome, text = _level_with_others(books, validator)
    if outcome is not Outcome.PASS:
        return outcome, f"{name}: {text}"
    executed = len(books.chains[validator.name])
    if executed < HEIGHTS_AFTER_A_JOIN:
        return (
            Outcome.INCONCLUSIVE,
            f"{name}: the validator executed {counted(executed, 'height')} afterwards, {HEIGHTS_AFTER_A_JOIN} needed",
        )
    chunks = f"{counted(sum(join.chunks.values()), 'chunk')} from {counted(len(join.chunks), 'peer')}"
    return Outcome.PASS, (
        f"{name} used the snapshot of height {height} ({chunks}) and took {join.ended_ms - join.begun_ms:,.0f} ms;"
        f" the validator executed {counted(executed, 'height')} from there and {text}"
    )


def _level_with_others(books: Books, validator: ValidatorRecord) -> Result:
    """Whether a validator ended at about the same height as the others."""
    record = books.record
    others = max((books.chains[v.name].tip for v in books.judged if v is not validator), default=0)
    height = books.chains[validator.name].tip
    unfinished = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
    # a message that was lost just before the end would be repeated after it
    told_ms = record.duration_ms - record.scenario.consensus.rebroadcast_ms
    told = final_moments(record).highest(told_ms)
    if height < min(told, others - CATCH_UP_SLACK_HEIGHTS):
        return unfinished, f"{validator.name} did not catch up: it has height {height}, the others have {others}"
    return Outcome.PASS, f"caught up to {height}"


def _caught_up(books: Books, fault: FaultRecord, validator: ValidatorRecord) -> Result:
    """Whether a fault's target caught up with the others, and recovered from its disk or a snapshot as required."""
    outcome, level = _level_with_others(books, validator)
    if outcome is not Outcome.PASS:
        return outcome, level
    if not fault.facts.restarts_from:
        return Outcome.PASS, level
    status: dict[str, Any] = validator.status or {}
    starts, recovered = status.get("starts"), status.get("recovered_height")
    if not isinstance(starts, int) or not isinstance(recovered, int):
        return Outcome.INCONCLUSIVE, f"{validator.name} does not say how it started"
    if starts <= 1:
        return Outcome.INCONCLUSIVE, f"{validator.name} was started {counted(starts, 'time')}, so it was never down"
    if fault.facts.restarts_from == "snapshot" or validator.name in fault.lost_disks:
        height = status.get("snapshot_height")
        if not isinstance(height, int) or height <= 0:
            return Outcome.FAIL, f"{validator.name} lost its disk, but did not come back by a snapshot"
        return Outcome.PASS, f"{validator.name} joined by the snapshot of height {height} and {level}"
    if recovered <= 0:
        begun_ms = math.inf if fault.begun_ms is None else fault.begun_ms
        first_ms = books.record.finalizations.first_above(0).get(validator.index, math.inf)
        if first_ms >= begun_ms:
            return Outcome.INCONCLUSIVE, f"{validator.name} had nothing final yet that it could have recovered"
        return Outcome.FAIL, f"{validator.name} found nothing on its own disk when it came back"
    return Outcome.PASS, f"{validator.name} recovered height {recovered} from its own disk and {level}"
