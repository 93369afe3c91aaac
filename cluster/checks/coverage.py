"""Check coverage: verifies that every invariant was evaluated often enough for a pass to be meaningful.

The ledger, the simulator's monitor, and the checks that compare what validators served count their own evaluations.
The scenario (``success``) determines how many are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cluster.audit.books import Books
from cluster.checks.verdict import Check, Evaluation, examples
from cluster.common.outcome import Outcome
from cluster.record import rules

COVERAGE: Final = "coverage"
"""The name of the check, which is the last of every run's."""

EVERY_HEIGHT: Final = frozenset(
    {
        rules.AGREEMENT,
        rules.ROOTS,
        rules.PROVED_FINAL,
        rules.ANCESTRY,
        rules.LEADERS,
        rules.LEDGER,
        rules.DURABLE_VOTES,
        rules.OWN_VOTES,
    }
)
"""Rules of the simulator's monitor that are due at every height; the others are due once a run."""

EVERY_PROMISE: Final = frozenset({rules.PASSED_ON, rules.KEPT})
"""Promise rules that every transaction taken from a client evaluates."""

COUNTED_BY_CHECKS: Final = {
    "agreement": (rules.SAME_BLOCK,),
    "state_roots": (rules.COMPUTED_ROOTS,),
    "timers": (rules.TIMER_ANSWERS,),
    "conservation": (rules.SERVED_BALANCES, rules.SUPPLIES),
}


def count_evaluations(books: Books, checks: Iterable[Check]) -> tuple[Evaluation, ...]:
    """How often each invariant was evaluated, and how often it must be.

    The own rules of a check that failed are left out: it may have ended early.
    """
    record, ledger = books.record, books.ledger
    success, judged = record.scenario.success, len(books.judged)
    heights = success.heights_compared
    needed = {
        rules.SAME_BLOCK: heights if judged > 1 else 0,
        rules.COMPUTED_ROOTS: heights * max(1, judged - len(record.scenario.validators.late)),
        rules.TIMER_ANSWERS: 1 if ledger.timers.lives else 0,
        rules.SERVED_BALANCES: judged,
        rules.SUPPLIES: judged,
        rules.CHAIN_LINKS: heights,
        rules.TRANSACTION_FEES: success.transactions,
        rules.VALUES: success.transactions,
        rules.FIRE_TIMES: success.fires,
        rules.FIRE_FEES: success.fires,
        rules.LANE_LIMITS: heights,
        rules.PASSED_OVER: success.fires,
        rules.EXPIRED_GONE: 0,
        rules.TIMER_IDS: 0,
        rules.QUERY_ORDER: 0,
    }
    times: dict[str, int] = {}
    for check in checks:
        if check.verdict is not Outcome.FAIL:
            times.update({rule: check.evaluated.get(rule, 0) for rule in COUNTED_BY_CHECKS.get(check.name, ())})
    times.update({rule: ledger.log.evaluated[rule] for rule in rules.LEDGER_RULES})
    found = [Evaluation(rule, times[rule], needed[rule]) for rule in needed if rule in times]
    monitored = record.monitor.counts if record.monitor is not None else {}
    found += [Evaluation(f"safety: {rule}", count, needed_of_monitor(books, rule)) for rule, count in monitored.items()]
    promised = record.promises.counts if record.promises is not None else {}
    asked = dict.fromkeys(EVERY_PROMISE, min(1, success.transactions) if record.load.transactions_sent else 0)
    found += [Evaluation(f"promises: {rule}", count, asked.get(rule, 0)) for rule, count in promised.items()]
    return tuple(found)


def needed_of_monitor(books: Books, rule: str) -> int:
    """How often the simulator's monitor must have evaluated a rule."""
    # a lone validator has nobody to agree with
    if rule == rules.AGREEMENT and len(books.judged) == 1:
        return 0
    # a run need not have a validator that is stuck, nor a view that is given up
    if rule in (rules.ANSWERS, rules.PATIENCE):
        return 0
    if rule == rules.ABSTENTION:
        return sum(join.ended_ms is not None for join in books.record.joins)
    return books.record.scenario.success.heights_compared if rule in EVERY_HEIGHT else 1


def check_coverage(evaluations: Sequence[Evaluation]) -> Check:
    """Every invariant was evaluated often enough for a pass to be meaningful."""
    short = [f"{e.rule} {e.times:,} times of {e.needed:,}" for e in evaluations if not e.is_enough]
    if short:
        return Check(COVERAGE, Outcome.INCONCLUSIVE, f"too seldom evaluated: {examples(short)}")
    total = sum(evaluation.times for evaluation in evaluations)
    return Check(COVERAGE, Outcome.PASS, f"{len(evaluations)} invariants were evaluated {total:,} times in all")
