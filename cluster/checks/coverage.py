"""The check of the checks: was every invariant evaluated as often as it must be, for that it held to say anything?

Evaluations are counted where they are made: in the ledger, in the simulator's monitor, and in the checks that compare
what validators served. How often is enough follows from what the scenario asks for (``success``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cluster.audit.books import Books
from cluster.audit.ledger.ledger import (
    CHAIN_LINKS,
    EXPIRED_GONE,
    FIRE_FEES,
    FIRE_TIMES,
    LANE_LIMITS,
    LEDGER_RULES,
    PASSED_OVER,
    QUERY_ORDER,
    TIMER_IDS,
    TRANSACTION_FEES,
    VALUES,
)
from cluster.checks.verdict import Check, Evaluation
from cluster.common.outcome import Outcome

COVERAGE: Final = "coverage"
"""The name of the check; it comes behind those that it looks at."""

SAME_BLOCK: Final = "same block"
COMPUTED_ROOTS: Final = "computed roots"
TIMER_ANSWERS: Final = "answers about timers"
SERVED_BALANCES: Final = "served balances"
SUPPLIES: Final = "supplies"
"""Rules that the checks count themselves; the others are the ledger's and the monitor's."""

AGREEMENT: Final = "agreement"
"""A rule of the simulator's monitor that takes two validators to be evaluated."""

ABSTENTION: Final = "abstention"
"""A rule of the simulator's monitor that takes a validator that joins by a snapshot."""

ANSWERS: Final = "answers"
"""A rule of the simulator's monitor that takes a validator that is stuck."""

PATIENCE: Final = "patience"
"""A rule of the simulator's monitor that takes a view that is given up."""

EVERY_HEIGHT: Final = frozenset(
    {AGREEMENT, "roots", "proved_final", "ancestry", "leaders", "ledger", "durable_votes", "own_votes"}
)
"""Rules of the simulator's monitor that are due at every height; the others must have been evaluated at all."""

EVERY_PROMISE: Final = frozenset({"passed_on", "kept"})
"""Rules of what clients are promised that each transaction that is taken gives cause to look at."""

COUNTED_BY_CHECKS: Final = {
    "agreement": (SAME_BLOCK,),
    "state_roots": (COMPUTED_ROOTS,),
    "timers": (TIMER_ANSWERS,),
    "conservation": (SERVED_BALANCES, SUPPLIES),
}

EXAMPLES_SHOWN: Final = 3
"""Rules named in the detail; the rest is counted."""


def count_evaluations(books: Books, checks: Iterable[Check]) -> tuple[Evaluation, ...]:
    """How often each invariant was evaluated, counted where that is done, and how often it must be.

    Of a check that failed nothing is asked: it has found something, and may have ended early.
    """
    record, ledger = books.record, books.ledger
    success, judged = record.scenario.success, len(books.judged)
    heights = success.heights_compared
    needed = {
        SAME_BLOCK: heights if judged > 1 else 0,
        COMPUTED_ROOTS: heights * max(1, judged - len(record.scenario.validators.late)),
        TIMER_ANSWERS: 1 if ledger.timers else 0,
        SERVED_BALANCES: judged,
        SUPPLIES: judged,
        CHAIN_LINKS: heights,
        TRANSACTION_FEES: success.transactions,
        VALUES: success.transactions,
        FIRE_TIMES: success.fires,
        FIRE_FEES: success.fires,
        LANE_LIMITS: heights,
        PASSED_OVER: success.fires,
        EXPIRED_GONE: 0,
        TIMER_IDS: 0,
        QUERY_ORDER: 0,
    }
    times: dict[str, int] = {}
    for check in checks:
        if check.verdict is not Outcome.FAIL:
            times.update({rule: check.evaluated.get(rule, 0) for rule in COUNTED_BY_CHECKS.get(check.name, ())})
    times.update({rule: ledger.evaluated[rule] for rule in LEDGER_RULES})
    found = [Evaluation(rule, times[rule], needed[rule]) for rule in needed if rule in times]
    monitored = record.monitor.counts if record.monitor is not None else {}
    found += [Evaluation(f"safety: {rule}", count, needed_of_monitor(books, rule)) for rule, count in monitored.items()]
    promised = record.promises.counts if record.promises is not None else {}
    asked = dict.fromkeys(EVERY_PROMISE, min(1, success.transactions) if record.load.transactions_sent else 0)
    found += [Evaluation(f"promises: {rule}", count, asked.get(rule, 0)) for rule, count in promised.items()]
    return tuple(found)


def needed_of_monitor(books: Books, rule: str) -> int:
    """How often the simulator's monitor must have looked at a rule. Nobody is asked to agree with itself alone, and
    only who joins to have abstained; nobody has to be stuck, and no view to be given up."""
    if rule == AGREEMENT and len(books.judged) == 1:
        return 0
    if rule in (ANSWERS, PATIENCE):
        return 0
    if rule == ABSTENTION:
        return sum(join.ended_ms is not None for join in books.record.joins)
    return books.record.scenario.success.heights_compared if rule in EVERY_HEIGHT else 1


def check_coverage(evaluations: Sequence[Evaluation]) -> Check:
    """Every invariant was evaluated as often as it must be; else that it held says nothing."""
    short = [f"{e.rule} {e.times:,} times of {e.needed:,}" for e in evaluations if not e.is_enough]
    if short:
        shown = "; ".join(short[:EXAMPLES_SHOWN])
        if len(short) > EXAMPLES_SHOWN:
            shown += f"; and {len(short) - EXAMPLES_SHOWN} more"
        return Check(COVERAGE, Outcome.INCONCLUSIVE, f"too seldom evaluated: {shown}")
    total = sum(evaluation.times for evaluation in evaluations)
    return Check(COVERAGE, Outcome.PASS, f"{len(evaluations)} invariants were evaluated {total:,} times in all")
