"""Checks of served timers and balances against the ledger, and of lanes, processor and memory against their bounds."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.audit.books import Books, Tip
from cluster.audit.figures import TimerState
from cluster.audit.violation import BOUNDS, CONSERVATION, TIMERS
from cluster.checks.excuses import ROOT_DIGITS, finding_texts, unless_vacuous
from cluster.checks.metrics.bounds import memory_results, processor_result
from cluster.checks.verdict import Check, examples
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.rules import AnswerRule
from cluster.record.run import Supply, ValidatorRecord


def check_timers(books: Books) -> Check:
    """Every scheduled timer fired, ended or is pending, exactly once, never early, and none is forgotten."""
    problems = finding_texts(books, TIMERS)
    compared, mismatches = _comparable(books)
    answers = sum(len(validator.pending_timers) for validator, _ in compared)
    for validator, tip in compared:
        for text, is_served in validator.pending_timers.items():
            if tip.is_pending(text) != is_served:
                served = "serves it as pending" if is_served else "does not serve it"
                expected = "is not pending" if is_served else "is pending"
                problems.append(f"timer {text[:ROOT_DIGITS]} {expected}, but {validator.name} {served}")
        count = (validator.status or {}).get("pending_timers")
        if isinstance(count, int) and count != len(tip.pending):
            problems.append(f"{validator.name} counts {count:,} pending timers, the books have {len(tip.pending):,}")
    if problems:
        return Check("timers", Outcome.FAIL, examples(problems))
    detail = f"{_timer_words(books)}; {answers:,} answers about single timers agree"
    if mismatches:
        return Check("timers", Outcome.INCONCLUSIVE, f"{examples(mismatches)}; {detail}")
    if not answers and books.ledger.timers.scheduled:
        return Check("timers", Outcome.INCONCLUSIVE, f"no validator was asked about a timer at its tip; {detail}")
    return unless_vacuous(books, "timers", detail, {AnswerRule.TIMER_ANSWERS: answers})


def check_conservation(books: Books) -> Check:
    """Minted = balances + burned in the books, fees are what prices say, and served balances are the books'."""
    ledger = books.ledger
    minted, held, burned = ledger.minted, ledger.held, ledger.burned
    problems = finding_texts(books, CONSERVATION)
    if not ledger.broken and minted != held + burned:
        problems.append(f"minted {minted:,} is not balances {held:,} + burned {burned:,}")
    compared, mismatches = _comparable(books)
    answers = sum(len(validator.balances) for validator, _ in compared)
    supplies = sum(validator.supply is not None for validator, _ in compared)
    for validator, tip in compared:
        if validator.supply is not None:
            problems.extend(_supply_problems(validator.name, validator.supply, tip))
        for text, served in validator.balances.items():
            expected = tip.balance(text)
            if served != expected:
                problems.append(
                    f"{validator.name} serves {served:,} for {text} at height {tip.height}, the books have"
                    f" {expected:,} ({served - expected:+,})"
                )
    if problems:
        return Check("conservation", Outcome.FAIL, examples(problems))
    queries = sum(ledger.blocks.queries)
    detail = (
        f"minted {minted:,} = balances {held:,} + burned {burned:,};"
        f" {counted(sum(ledger.blocks.messages), 'message')}, {_job_words(books)}"
        f"{queries:,} {'query' if queries == 1 else 'queries'} of agents;"
        f" {answers:,} served balances and the supplies of {counted(supplies, 'validator')} equal the books'"
    )
    if mismatches:
        return Check("conservation", Outcome.INCONCLUSIVE, f"{examples(mismatches)}; {detail}")
    if not answers:
        return Check(
            "conservation", Outcome.INCONCLUSIVE, f"no validator was asked about a balance at its tip; {detail}"
        )
    return unless_vacuous(
        books, "conservation", detail, {AnswerRule.SERVED_BALANCES: answers, AnswerRule.SUPPLIES: supplies}
    )


def check_bounds(books: Books) -> Check:
    """No attack takes more than its lane gives. Each lane of a block keeps its limit. No timer waits longer at a price
    that it pays than the rises of that price allow. Live, no block takes much more processor time than a full one, and
    no validator's memory grows beyond its bounds."""
    problems = finding_texts(books, BOUNDS)
    if problems:
        return Check("bounds", Outcome.FAIL, examples(problems))
    processor = processor_result(books.record)
    used = [*memory_results(books.record), *([] if processor is None else [processor])]
    measured = Check.of_parts("bounds", used)
    if used and measured.verdict is not Outcome.PASS:
        return measured
    waited = counted(books.ledger.paid_waits.longest, "block")
    lanes = counted(books.ledger.height, "block")
    detail = f"the lanes of {lanes} kept to their limits; {waited} is the longest wait of a timer that paid"
    if used:
        detail = f"{detail}; {examples([text for _, text in reversed(used)])}"
    return unless_vacuous(books, "bounds", detail, {})


def _supply_problems(name: str, supply: Supply, tip: Tip) -> Iterator[str]:
    """Differences between a validator's and the ledger's totals of all balances and of the burned amount."""
    for what, told, kept in (("balances", supply.balances, tip.held), ("burned", supply.burned, tip.burned)):
        if told != kept:
            difference = f"{told:,} at height {tip.height}, in the books to {kept:,} ({told - kept:+,})"
            yield f"{name}'s {what} come to {difference}"


def _comparable(books: Books) -> tuple[list[tuple[ValidatorRecord, Tip]], list[str]]:
    """The validators whose answers can be compared with the ledger, and a sentence about each other one.

    Answers can be compared if they are about the last block collected from the validator. Otherwise it may have
    withheld blocks, or was still running.
    """
    found, mismatches = [], []
    for validator in books.judged:
        tip = books.tips.get(validator.name)
        if tip is None:
            continue  # its chain cannot be followed, which the chain check tells
        height = tip.height if validator.status is None else validator.status.get("height")
        if height == tip.height:
            found.append((validator, tip))
        else:
            mismatches.append(f"{validator.name} says height {height} of itself, but served {tip.height} blocks")
    return found, mismatches


def _timer_words(books: Books) -> str:
    timers, states = books.ledger.timers, books.ledger.timers.states
    lost = states[TimerState.INSUFFICIENT_FUNDS]
    return (
        f"{timers.scheduled:,} scheduled: {states[TimerState.FIRED]:,} fired,"
        f" {states[TimerState.CANCELLED]:,} cancelled, {states[TimerState.EXPIRED]:,} expired,"
        f" {lost:,} without funds, {len(books.ledger.world.timers):,} pending"
    )


def _job_words(books: Books) -> str:
    jobs = sum(each.requested for each in books.ledger.world.actor_jobs.values())
    return f"{counted(jobs, 'job')}, " if jobs else ""
