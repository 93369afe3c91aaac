"""Checks of a run's progress: heights and stalls, who took part, the load, problems of the run's machinery, and how
much the checks looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cluster.audit.books import Books
from cluster.audit.figures import RunKind
from cluster.checks.kind import CheckKind, Judged, Subject, excuse_for, unless_too_slow
from cluster.checks.metrics.metrics import Participation, longest_stall, stalls_beyond_limit
from cluster.checks.verdict import Result, examples, of_parts
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.lag import explains_shortfall
from cluster.record.run import ValidatorRecord

FEWEST_VIEWS_LED: Final = 3
"""A validator that led fewer views cannot be said to take no part."""


class Progress(CheckKind):
    """All validators reached the target height, enough heights were finalised, and no stall was too long."""

    name = "progress"
    SUBJECT = Subject.PROGRESS

    def judge(self) -> Result:
        books, record = self.books, self.record
        success, target = record.scenario.success, record.target_height
        least, limit = success.heights_compared, success.stall_ms
        height, stall = self.highest, longest_stall(record)
        reached = f"{counted(height, 'height')} finalised"
        if stall is not None and stall.length_ms > limit:
            return self._judge_stalls(limit)
        unfinished = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
        told = max(record.first_finalizations, default=0)
        if record.interrupted and not books.seen and told:
            return (
                unfinished,
                f"height {told} was final when it was interrupted, target {target}; no validator served a block",
            )
        if height < target:
            what = f"{reached}, target {target} not reached"
            return unless_too_slow(unfinished, what, explains_shortfall(record, height, target))
        stuck = _stuck_below(books, target)
        if stuck:
            texts = [f"{validator.name} stopped at height {books.chains[validator.name].tip}" for validator in stuck]
            what = f"{examples(texts)}, target {target}; the highest validator reached {height}"
            return unless_too_slow(unfinished, what, _explains_stuck(books, stuck, target))
        if height < least:
            return Outcome.INCONCLUSIVE, f"{reached}, {least} needed"
        if stall is None:
            return Outcome.INCONCLUSIVE, f"{reached}, but no times were recorded"
        return Outcome.PASS, f"{reached}, target {target}; longest stall {stall.length_ms:,.0f} ms of {limit:,} ms"

    def _judge_stalls(self, limit_ms: int) -> Result:
        """The verdict on stalls beyond the limit: failed if the machine's lag does not explain one, else inconclusive.

        It names the longest unexplained stall, or the longest of all.
        """
        found = sorted(stalls_beyond_limit(self.record), key=lambda stall: -stall.length_ms)
        excuses = [(stall, excuse_for(self.books, stall.began_ms, stall.ended_ms, limit_ms)) for stall in found]
        stall, excuse = next(((stall, excuse) for stall, excuse in excuses if not excuse), excuses[0])
        after = f"after height {stall.after_height}, allowed {limit_ms:,} ms"
        return unless_too_slow(Outcome.FAIL, f"{stall.length_ms:,.0f} ms without a final block {after}", excuse)


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


class TakingPart(CheckKind):
    """Each external validator that must take part proposed a final block, or voted in a certificate."""

    name = "participation"
    SUBJECT = Subject.VALIDATORS

    def __init__(self, run: Judged) -> None:
        super().__init__(run)
        external = self.record.scenario.validators.external
        self.expected = sorted(index for index, section in external.items() if section.takes_part)

    def idle(self) -> str:
        return "" if self.expected else "no external validator must take part"

    def judge(self) -> Result:
        found = self.run.participation
        return of_parts([_judge(found[index]) for index in self.expected if index < len(found)])


def _judge(part: Participation) -> Result:
    text = (
        f"{part.name} led {counted(part.led, 'view')}, proposed {counted(part.proposed, 'final block')},"
        f" and voted in {part.votes:,} of {counted(part.certificates, 'certificate')}"
    )
    if part.proposed or part.votes:
        return Outcome.PASS, text
    is_known = part.led >= FEWEST_VIEWS_LED and part.certificates
    return (Outcome.FAIL if is_known else Outcome.INCONCLUSIVE), text


class Load(CheckKind):
    """Enough load transactions were committed and enough timers fired."""

    name = "load"
    SUBJECT = Subject.PROGRESS

    def judge(self) -> Result:
        success, ledger = self.record.scenario.success, self.books.ledger
        enough = ledger.transactions >= success.transactions and ledger.timers.fires >= success.fires
        detail = (
            f"{counted(ledger.transactions, 'transaction')} committed ({sum(ledger.blocks.reverted):,} reverted),"
            f" {success.transactions:,} needed;"
            f" {counted(ledger.timers.fires, 'fire')} ({ledger.outcomes.failed[RunKind.FIRE]:,} failed),"
            f" {success.fires:,} needed" + "".join(f"; {line}" for line in self.record.load.lost)
        )
        return Outcome.PASS if enough else Outcome.INCONCLUSIVE, detail


class NoProblems(CheckKind):
    """Nothing went wrong around the run, and it was not ended early.

    Problems that processes of the harness had alone are no failure of the chain.
    """

    name = "no_problems"
    SUBJECT = Subject.RUN

    def judge(self) -> Result:
        record = self.record
        problems = examples([*record.problems, *([record.time_up] if record.time_up else [])])
        if record.interrupted:
            return Outcome.INCONCLUSIVE, "interrupted" + (f"; {problems}" if problems else "")
        if record.time_up and not record.problems and Progress(self.run).judge()[0] is Outcome.INCONCLUSIVE:
            return Outcome.INCONCLUSIVE, problems
        if problems:
            are_ours = not record.time_up and set(record.problems) <= set(record.own_problems)
            return Outcome.INCONCLUSIVE if are_ours else Outcome.FAIL, problems
        late = [line for absence in record.absences for line in absence.late]
        return Outcome.PASS, "; ".join(["none reported", *map(str, record.absences), *late])


class Coverage(CheckKind):
    """Every invariant was evaluated often enough for a pass to be meaningful."""

    name = "coverage"
    SUBJECT = Subject.COVERAGE

    def judge(self) -> Result:
        evaluations = self.run.evaluations
        short = [f"{e.rule} {e.times:,} times of {e.needed:,}" for e in evaluations if not e.is_enough]
        if short:
            return Outcome.INCONCLUSIVE, f"too seldom evaluated: {examples(short)}"
        total = sum(evaluation.times for evaluation in evaluations)
        return Outcome.PASS, f"{len(evaluations)} invariants were evaluated {total:,} times in all"
