"""Check coverage: verifies that every invariant was evaluated often enough for a pass to be meaningful.

The ledger, the simulator's monitor, and the checks that compare served data count their own evaluations.
The scenario (``success``) determines how many are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cluster.audit.books import Books
from cluster.checks.verdict import Check, Evaluation, examples
from cluster.common.outcome import Outcome
from cluster.record.rules import AnswerRule, LedgerRule, PromiseRule, SafetyRule

COVERAGE: Final = "coverage"
"""The name of the check that :func:`check_coverage` performs. It is the last check of every run."""

EVERY_HEIGHT: Final = frozenset(
    {
        SafetyRule.AGREEMENT,
        SafetyRule.ROOTS,
        SafetyRule.PROVED_FINAL,
        SafetyRule.ANCESTRY,
        SafetyRule.LEADERS,
        SafetyRule.LEDGER,
        SafetyRule.DURABLE_VOTES,
        SafetyRule.OWN_VOTES,
        SafetyRule.TIMEOUTS,
        SafetyRule.EXECUTION,
        SafetyRule.PRUNING,
        SafetyRule.FIGURES,
    }
)
"""The rules of the simulator's monitor that must be evaluated at every height. Most others must be once a run."""

NOT_DUE: Final = frozenset(
    {
        SafetyRule.ANSWERS,
        SafetyRule.PATIENCE,
        SafetyRule.RESTRAINT,
        SafetyRule.REPETITIONS,
        SafetyRule.CATCH_UP,
        SafetyRule.BLAMES,
    }
)
"""The rules that a run need not evaluate, because they are about situations that may not occur.

Such situations are a validator that is stuck, behind or byzantine, and a view that is given up or long.
"""

EVERY_PROMISE: Final = frozenset({PromiseRule.PASSED_ON, PromiseRule.KEPT})
"""Promise rules that every transaction taken from a client evaluates."""

COUNTED_BY_CHECKS: Final = {
    "agreement": (AnswerRule.SAME_BLOCK,),
    "state_roots": (AnswerRule.COMPUTED_ROOTS,),
    "timers": (AnswerRule.TIMER_ANSWERS,),
    "conservation": (AnswerRule.SERVED_BALANCES, AnswerRule.SUPPLIES),
}


def count_evaluations(books: Books, checks: Iterable[Check]) -> tuple[Evaluation, ...]:
    """How often each invariant was evaluated, and how often it must be.

    The rules that a failed check counts are left out: it may have ended early.
    """
    record, ledger = books.record, books.ledger
    success, judged = record.scenario.success, len(books.judged)
    heights, with_state = success.heights_compared, sum(each.serves_state for each in books.judged)
    needed = {
        AnswerRule.SAME_BLOCK: heights if judged > 1 else 0,
        AnswerRule.COMPUTED_ROOTS: heights * max(1, judged - len(record.scenario.validators.late)),
        AnswerRule.TIMER_ANSWERS: 1 if ledger.timers.scheduled else 0,
        AnswerRule.SERVED_BALANCES: with_state,
        AnswerRule.SUPPLIES: with_state,
        LedgerRule.BLOCKS: heights,
        LedgerRule.TRANSACTIONS: success.transactions,
        LedgerRule.FIRES: success.fires,
        LedgerRule.PAID_WAITS: 0,
    }
    times: dict[str, int] = {}
    for check in checks:
        if check.verdict is not Outcome.FAIL:
            times.update({rule: check.evaluated.get(rule, 0) for rule in COUNTED_BY_CHECKS.get(check.name, ())})
    times |= {LedgerRule.BLOCKS: ledger.height, LedgerRule.TRANSACTIONS: ledger.transactions}
    times |= {LedgerRule.FIRES: ledger.timers.fires, LedgerRule.PAID_WAITS: ledger.paid_waits.judged}
    found = [Evaluation(rule, times[rule], needed[rule]) for rule in needed if rule in times]
    monitored = record.monitor.counts if record.monitor is not None else {}
    found += [Evaluation(f"safety: {rule}", count, needed_of_monitor(books, rule)) for rule, count in monitored.items()]
    promised = record.promises.counts if record.promises is not None else {}
    asked: dict[str, int] = dict.fromkeys(
        EVERY_PROMISE, min(1, success.transactions) if record.load.transactions_sent else 0
    )
    found += [Evaluation(f"promises: {rule}", count, asked.get(rule, 0)) for rule, count in promised.items()]
    return tuple(found)


def needed_of_monitor(books: Books, rule: str) -> int:
    """How often the simulator's monitor must have evaluated a rule."""
    # a lone validator has no peer to agree with
    if rule == SafetyRule.AGREEMENT and len(books.judged) == 1:
        return 0
    if rule in NOT_DUE:
        return 0
    if rule == SafetyRule.ABSTENTION:
        return sum(join.ended_ms is not None for join in books.record.joins)
    return books.record.scenario.success.heights_compared if rule in EVERY_HEIGHT else 1


def check_coverage(evaluations: Sequence[Evaluation]) -> Check:
    """Check that every invariant was evaluated often enough for a pass to be meaningful."""
    short = [f"{e.rule} {e.times:,} times of {e.needed:,}" for e in evaluations if not e.is_enough]
    if short:
        return Check(COVERAGE, Outcome.INCONCLUSIVE, f"too seldom evaluated: {examples(short)}")
    total = sum(evaluation.times for evaluation in evaluations)
    return Check(COVERAGE, Outcome.PASS, f"{len(evaluations)} invariants were evaluated {total:,} times in all")
