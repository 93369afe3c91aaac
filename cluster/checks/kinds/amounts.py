"""Checks of served timers and balances against the books, and of lanes, processor and memory against their bounds.

**Memory** of a live host's process. The first sample of a validator is the process's memory at the start. From then on
it may grow by :data:`ROOM_BYTES` for each validator on it, which is the sum of the bounds of a validator's queues and
caches, and by as much as its disk: state that has been paid for has indexes in memory.

**Processor** time of a block. The process that executes a live run's chain again measures each block alone
(:mod:`cluster.audit.reexecution.follower`), and a full block of honest transactions and timers on the same machine. No
block of the run may take longer than :data:`MAX_FULL_BLOCKS` times the full block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from cluster.audit.books import Books, Tip
from cluster.audit.figures import TimerState
from cluster.checks.kind import CheckKind, Subject
from cluster.checks.verdict import Result, examples, of_parts
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.run import Resources, RunRecord, Supply, ValidatorRecord

ID_DIGITS: Final = 16
MIB: Final = 1 << 20
ROOM_BYTES: Final = 1_280 * MIB
"""The allowed growth of memory per validator, besides the growth of its disk.

It covers the mempool and the transactions queued for it, payloads and messages of peers (five times as much, decoded),
request bodies from clients, and answers that clients have not taken yet.
"""
MAX_FULL_BLOCKS: Final = 1.5


class Timers(CheckKind):
    """Every scheduled timer fired, ended or is pending, exactly once, never early, and none is forgotten."""

    name = "timers"
    SUBJECT = Subject.AMOUNTS
    RULES = ("answers about timers", "fires as specified")

    def needed(self) -> Mapping[str, int]:
        asked = 1 if self.books.ledger.timers.scheduled else 0
        return {"answers about timers": asked, "fires as specified": self.record.scenario.success.fires}

    def judge(self) -> Result:
        timers = self.books.ledger.timers
        self.times["fires as specified"] = timers.fires
        problems = self.findings()
        compared, mismatches = _comparable(self.books)
        answers = sum(len(validator.pending_timers) for validator, _ in compared)
        for validator, tip in compared:
            for text, is_served in validator.pending_timers.items():
                if tip.is_pending(text) != is_served:
                    served = "serves it as pending" if is_served else "does not serve it"
                    expected = "is not pending" if is_served else "is pending"
                    problems.append(f"timer {text[:ID_DIGITS]} {expected}, but {validator.name} {served}")
            count = (validator.status or {}).get("pending_timers")
            if isinstance(count, int) and count != len(tip.pending):
                problems.append(
                    f"{validator.name} counts {count:,} pending timers, the books have {len(tip.pending):,}"
                )
        if problems:
            return Outcome.FAIL, examples(problems)
        detail = f"{_timer_words(self.books)}; {answers:,} answers about single timers agree"
        if mismatches:
            return Outcome.INCONCLUSIVE, f"{examples(mismatches)}; {detail}"
        if not answers and timers.scheduled:
            return Outcome.INCONCLUSIVE, f"no validator was asked about a timer at its tip; {detail}"
        self.times["answers about timers"] = answers
        return self.unless_vacuous(detail)


class Conservation(CheckKind):
    """Minted = balances + burned in the books, fees are what prices say, and served balances are the books'."""

    name = "conservation"
    SUBJECT = Subject.AMOUNTS
    RULES = ("served balances", "supplies")

    def needed(self) -> Mapping[str, int]:
        return dict.fromkeys(self.RULES, sum(each.serves_state for each in self.books.judged))

    def judge(self) -> Result:
        ledger = self.books.ledger
        minted, held, burned = ledger.minted, ledger.held, ledger.burned
        problems = self.findings()
        if not ledger.broken and minted != held + burned:
            problems.append(f"minted {minted:,} is not balances {held:,} + burned {burned:,}")
        compared, mismatches = _comparable(self.books)
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
            return Outcome.FAIL, examples(problems)
        queries = sum(ledger.blocks.queries)
        detail = (
            f"minted {minted:,} = balances {held:,} + burned {burned:,};"
            f" {counted(sum(ledger.blocks.messages), 'message')}, {_job_words(self.books)}"
            f"{queries:,} {'query' if queries == 1 else 'queries'} of agents;"
            f" {answers:,} served balances and the supplies of {counted(supplies, 'validator')} equal the books'"
        )
        if mismatches:
            return Outcome.INCONCLUSIVE, f"{examples(mismatches)}; {detail}"
        if not answers:
            return Outcome.INCONCLUSIVE, f"no validator was asked about a balance at its tip; {detail}"
        self.times = {"served balances": answers, "supplies": supplies}
        return self.unless_vacuous(detail)


class Bounds(CheckKind):
    """No attack takes more than its lane gives. Each lane of a block keeps its limit. No timer waits longer at a price
    that it pays than the rises of that price allow. Live, no block takes much more processor time than a full one, and
    no validator's memory grows beyond its bounds."""

    name = "bounds"
    SUBJECT = Subject.AMOUNTS
    RULES = ("paid waits",)

    def needed(self) -> Mapping[str, int]:
        return {"paid waits": 0}

    def judge(self) -> Result:
        paid_waits = self.books.ledger.paid_waits
        self.times["paid waits"] = paid_waits.judged
        if problems := self.findings():
            return Outcome.FAIL, examples(problems)
        processor = processor_result(self.record)
        used = [*memory_results(self.record), *([] if processor is None else [processor])]
        outcome, detail = of_parts(used)
        if outcome is not Outcome.PASS:
            return outcome, detail
        waited = counted(paid_waits.longest, "block")
        lanes = counted(self.books.ledger.height, "block")
        detail = f"the lanes of {lanes} kept to their limits; {waited} is the longest wait of a timer that paid"
        if used:
            detail = f"{detail}; {examples([text for _, text in reversed(used)])}"
        return self.unless_vacuous(detail)


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


def processor_result(record: RunRecord) -> Result | None:
    """Judge the slowest block's processor time against a full block's.

    ``None`` if the chain was not executed again during the run.
    """
    found = record.reexecuted
    if found is None:
        return None
    if not found.slowest_s:
        return Outcome.PASS, "no block took long"
    text = f"block {found.slowest_height:,} took {found.slowest_s:.2f} s of a processor"
    if not found.full_block_s:
        return Outcome.INCONCLUSIVE, f"{text}, and no full block was measured"
    share = found.slowest_s / found.full_block_s
    text += f", {share:.2f} times a full block of {found.full_block_s:.2f} s, {MAX_FULL_BLOCKS} allowed"
    return (Outcome.PASS if share <= MAX_FULL_BLOCKS else Outcome.FAIL), text


def memory_results(record: RunRecord) -> list[Result]:
    """Judge the growth of memory of each validator whose process was measured more than once."""
    looks: defaultdict[int, list[Resources]] = defaultdict(list)
    for look in record.resources:
        if look.memory_bytes is not None:
            looks[look.validator].append(look)
    section = record.scenario.validators
    sharing = -(-section.count // section.host_count)
    names = section.names
    return [_memory_result(names[index], of_one, sharing) for index, of_one in sorted(looks.items()) if len(of_one) > 1]


def _memory_result(name: str, looks: list[Resources], sharing: int) -> Result:
    first = looks[0]
    started = first.memory_bytes or 0
    worst = max(looks, key=lambda look: (look.memory_bytes or 0) - _allowed(first, look, sharing))
    grown, allowed = (worst.memory_bytes or 0) - started, _allowed(first, worst, sharing)
    text = f"{name}'s process grew by {grown / MIB:,.0f} MiB from {started / MIB:,.0f} MiB on"
    return (Outcome.PASS if grown <= allowed else Outcome.FAIL), f"{text}, {allowed / MIB:,.0f} MiB allowed"


def _allowed(first: Resources, look: Resources, sharing: int) -> int:
    return sharing * (ROOM_BYTES + max(0, look.disk_bytes - first.disk_bytes))
