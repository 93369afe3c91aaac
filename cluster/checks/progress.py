"""Checks of a run's progress: heights and stalls, who took part, the load, and problems of the run's machinery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cluster.audit.books import Books
from cluster.audit.figures import RunKind
from cluster.checks.excuses import excuse_for, highest, unless_too_slow
from cluster.checks.metrics.metrics import longest_stall, stalls_beyond_limit
from cluster.checks.metrics.participation import Participation, participation
from cluster.checks.verdict import Check, Result, examples
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.lag import explains_shortfall
from cluster.record.run import ValidatorRecord

FEWEST_VIEWS_LED: Final = 3
"""A validator that led fewer views cannot be said to take no part."""


def check_progress(books: Books) -> Check:
    """All validators reached the target height, enough heights were finalised, and no stall was too long."""
    record = books.record
    success, target = record.scenario.success, record.target_height
    least, limit = success.heights_compared, success.stall_ms
    height, stall = highest(books), longest_stall(record)
    reached = f"{counted(height, 'height')} finalised"
    if stall is not None and stall.length_ms > limit:
        return _check_stalls(books, limit)
    unfinished = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
    told = max(record.first_finalizations, default=0)
    if record.interrupted and not books.seen and told:
        what = f"height {told} was final when it was interrupted, target {target}; no validator served a block"
        return Check("progress", unfinished, what)
    if height < target:
        what = f"{reached}, target {target} not reached"
        return unless_too_slow("progress", unfinished, what, explains_shortfall(record, height, target))
    stuck = _stuck_below(books, target)
    if stuck:
        texts = [f"{validator.name} stopped at height {books.chains[validator.name].tip}" for validator in stuck]
        what = f"{examples(texts)}, target {target}; the highest validator reached {height}"
        return unless_too_slow("progress", unfinished, what, _explains_stuck(books, stuck, target))
    if height < least:
        return Check("progress", Outcome.INCONCLUSIVE, f"{reached}, {least} needed")
    if stall is None:
        return Check("progress", Outcome.INCONCLUSIVE, f"{reached}, but no times were recorded")
    detail = f"{reached}, target {target}; longest stall {stall.length_ms:,.0f} ms of {limit:,} ms"
    return Check("progress", Outcome.PASS, detail)


def _check_stalls(books: Books, limit_ms: int) -> Check:
    """The verdict on stalls beyond the limit: failed if the machine's lag does not explain one, else inconclusive.

    It names the longest unexplained stall, or the longest of all.
    """
    found = sorted(stalls_beyond_limit(books.record), key=lambda stall: -stall.length_ms)
    excuses = [(stall, excuse_for(books, stall.began_ms, stall.ended_ms, limit_ms)) for stall in found]
    stall, excuse = next(((stall, excuse) for stall, excuse in excuses if not excuse), excuses[0])
    what = f"{stall.length_ms:,.0f} ms without a final block after height {stall.after_height}, allowed {limit_ms:,} ms"
    return unless_too_slow("progress", Outcome.FAIL, what, excuse)


def _stuck_below(books: Books, target: int) -> list[ValidatorRecord]:
    """The validators below a height, except those that never answered, diverged or are mutated."""
    diverged = {told.validator for told in books.divergences}
    return [
        validator
        for validator in books.judged
        if books.chains[validator.name].tip < target
        and (validator.status is not None or validator.blocks)
        and validator.name not in diverged
        and validator.mutant is None
    ]


def _explains_stuck(books: Books, stuck: Sequence[ValidatorRecord], target: int) -> str:
    """How lag explains that all of these validators are below the target; empty if it does not for one of them."""
    excuses = [
        explains_shortfall(books.record, books.chains[validator.name].tip, target, validator.index)
        for validator in stuck
    ]
    return excuses[0] if all(excuses) else ""


def check_participation(books: Books) -> Check:
    """Each external validator that must take part proposed a final block, or voted in a certificate."""
    external = books.record.scenario.validators.external
    expected = {index for index, section in external.items() if section.takes_part}
    if not expected:
        return Check.without_cause("participation", "no external validator must take part")
    found = participation(books)
    return Check.of_parts("participation", [_judge(found[index]) for index in sorted(expected) if index < len(found)])


def _judge(part: Participation) -> Result:
    text = (
        f"{part.name} led {counted(part.led, 'view')}, proposed {counted(part.proposed, 'final block')},"
        f" and voted in {part.votes:,} of {counted(part.certificates, 'certificate')}"
    )
    if part.proposed or part.votes:
        return Outcome.PASS, text
    is_known = part.led >= FEWEST_VIEWS_LED and part.certificates
    return (Outcome.FAIL if is_known else Outcome.INCONCLUSIVE), text


def check_load(books: Books) -> Check:
    """Enough load transactions were committed and enough timers fired."""
    success, ledger = books.record.scenario.success, books.ledger
    enough = ledger.transactions >= success.transactions and ledger.timers.fires >= success.fires
    detail = (
        f"{counted(ledger.transactions, 'transaction')} committed ({sum(ledger.blocks.reverted):,} reverted),"
        f" {success.transactions:,} needed;"
        f" {counted(ledger.timers.fires, 'fire')} ({ledger.outcomes.failed[RunKind.FIRE]:,} failed),"
        f" {success.fires:,} needed" + "".join(f"; {line}" for line in books.record.load.lost)
    )
    return Check("load", Outcome.PASS if enough else Outcome.INCONCLUSIVE, detail)


def check_no_problems(books: Books) -> Check:
    """Nothing went wrong around the run, and it was not ended early.

    Problems that processes of the harness had alone are no failure of the chain.
    """
    record = books.record
    problems = examples([*record.problems, *([record.time_up] if record.time_up else [])])
    if record.interrupted:
        return Check("no_problems", Outcome.INCONCLUSIVE, "interrupted" + (f"; {problems}" if problems else ""))
    if record.time_up and not record.problems and check_progress(books).verdict is Outcome.INCONCLUSIVE:
        return Check("no_problems", Outcome.INCONCLUSIVE, problems)
    if problems:
        are_ours = not record.time_up and set(record.problems) <= set(record.own_problems)
        return Check("no_problems", Outcome.INCONCLUSIVE if are_ours else Outcome.FAIL, problems)
    late = [line for absence in record.absences for line in absence.late]
    return Check("no_problems", Outcome.PASS, "; ".join(["none reported", *map(str, record.absences), *late]))
