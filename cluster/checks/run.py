"""The checks of a run: what must hold for it to pass, apart from every driver and without input or output.

Each check gives a verdict of its own with the numbers behind it. Three values: *pass* and *fail* are about what was
observed; *inconclusive* says that too little was observed to tell, so that a run in which nothing was compared, no load
was committed or a fault never bit is never taken for a pass. The run fails where any check fails, is inconclusive where
any is inconclusive, and passes otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cluster.audit.books import Books, Finding, TipView, keep_books
from cluster.audit.evidence import proofs
from cluster.audit.ledger.ledger import CHAIN, CONSERVATION, TIMERS, TimerState
from cluster.checks.coverage import (
    COMPUTED_ROOTS,
    SAME_BLOCK,
    SERVED_BALANCES,
    SUPPLIES,
    TIMER_ANSWERS,
    check_coverage,
    count_evaluations,
    needed_of_monitor,
)
from cluster.checks.criteria import check_criteria
from cluster.checks.metrics.committees import active_committees_during
from cluster.checks.metrics.metrics import first_finalizations, longest_stall, stalls_beyond_limit
from cluster.checks.metrics.recovery import recovery_of
from cluster.checks.verdict import Check, Verdict
from cluster.common.outcome import Outcome, worst
from cluster.common.wording import counted
from cluster.misbehaviour.byzantine.registry import Twins
from cluster.record.lag import explains_delay, explains_shortfall
from cluster.record.run import FaultRecord, JoinRecord, RunRecord, Supply, ValidatorRecord
from cluster.scenario.sections.faults import LASTING_KINDS
from consensus.types import fault_bound, quorum

__all__ = ["CHECKS", "Check", "Judge", "Verdict", "check_run"]

CATCH_UP_SLACK_HEIGHTS: Final = 5
"""How far behind the others a validator that came back may end and still count as caught up."""

HEIGHTS_AFTER_A_JOIN: Final = 10
"""Heights that a validator must execute after it joined, for its join to say anything."""

VIEWS_THAT_OWE_EVIDENCE: Final = 3
"""From so many views on in which a proof is owed, one must have been found; fewer may have been the last ones."""

RECOVERED_FROM_DISK: Final = frozenset({"kill", "disk_full", "failed_sync", "upgrade"})
"""Kinds of faults whose targets come back with what is on their disk."""

RECOVERED_BY_SNAPSHOT: Final = frozenset({"wipe", "bit_rot"})
"""Kinds of faults whose targets lose their disk."""

CUTTING: Final = frozenset({"partition", "one_way_partition", "cut", "degrade"})
"""Kinds of faults that drop messages."""

SLOWING: Final = frozenset({"degrade", "leader_delay"})
"""Kinds of faults during which progress cannot be expected, however many validators are up."""

LOST_ONCE_MORE: Final = 2
"""On links that lose messages, with nobody to spare for a quorum, views may fail for so many times as long."""

HEIGHTS_UNTIL_IT_VOTES: Final = 4
"""Who comes by a snapshot abstains in the views that it may have voted in before; after so many heights it does not."""

NOTHING: Final[Mapping[str, int]] = {}

EXAMPLES_SHOWN: Final = 3
"""Findings named in a detail; the rest is counted."""

ROOT_DIGITS: Final = 16


Judge = Callable[[Books, tuple[Check, ...]], tuple[Check, ...]]
"""Makes the checks of a verdict of those of every run: adds what else is expected, as drills do."""


def check_run(record: RunRecord, books: Books | None = None, judge: Judge | None = None) -> Verdict:
    """Perform every check. ``books`` are the record's :func:`~cluster.audit.books.keep_books`, where they exist
    already."""
    books = books if books is not None else keep_books(record)
    checks = tuple(check(books) for check in CHECKS)
    evaluations = count_evaluations(books, checks)
    checks = (*checks, check_coverage(evaluations))
    if judge is not None:
        checks = judge(books, checks)
    return Verdict(worst(check.verdict for check in checks), checks, evaluations, tuple(books.bisections))


# --- agreement and state roots --------------------------------------------------------------------------------------


def check_agreement(books: Books) -> Check:
    """All validators hold the same block at every height; heights that only some hold are compared among those."""
    differences, compared, served = [], 0, books.served
    for height in range(1, _highest(books) + 1):
        seals = {name: chain.at(height) for name, chain in served}
        held = {name: seal.block_hash for name, seal in seals.items() if seal is not None}
        compared += len(held) > 1
        if len(set(held.values())) > 1:
            differences.append(f"height {height}: {_groups(held)}")
    if differences:
        return Check("agreement", Outcome.FAIL, f"different blocks at {_examples(differences)}")
    return _unless_vacuous(books, "agreement", f"the same block at all {_compared(books)}", {SAME_BLOCK: compared})


def check_state_roots(books: Books) -> Check:
    """Every validator's own execution gave the header's state root, and so everyone else's, at every height."""
    problems = [
        f"{told.validator} diverged at height {told.height} ({told.reason or 'no reason given'}): expected root"
        f" {_root(told.expected_root)}, computed {_root(told.computed_root)}"
        for told in sorted(books.divergences, key=lambda told: (told.height, told.validator))
    ]
    compared = 0
    for name, chain in books.served:
        for height, seal in chain.items():
            compared += 1
            if seal.computed_root != seal.header_root:
                problems.append(
                    f"{name} at height {height}: header root {_root(seal.header_root.hex())},"
                    f" computed {_root(seal.computed_root.hex())}"
                )
    if problems:
        return Check("state_roots", Outcome.FAIL, _examples(problems))
    detail = f"{compared:,} computed roots equal their headers', {_compared(books)}"
    return _unless_vacuous(books, "state_roots", detail, {COMPUTED_ROOTS: compared})


def check_chain(books: Books) -> Check:
    """Hash chain, roots over transactions and receipts, nonces: the served bytes hang together."""
    problems = _finding_texts(books, CHAIN)
    unread = [
        f"{validator.name}: the block at height {validator.first_height + len(seals)} cannot be read"
        for validator in books.judged
        if len(seals := books.seals[validator.name].seals) < len(validator.blocks)
    ]
    missing = [
        f"{validator.name}: nobody served what lies below height {validator.first_height}, where it begins"
        for validator in books.seen
        if len(books.chain) < validator.first_height - 1
    ]
    if problems or unread or missing:
        is_for_want_of_time = books.record.interrupted and not problems and not unread
        verdict = Outcome.INCONCLUSIVE if is_for_want_of_time else Outcome.FAIL
        return Check("chain", verdict, _examples([*unread, *missing, *problems]))
    blocks, transactions = counted(books.ledger.height, "block"), counted(books.ledger.transactions, "transaction")
    detail = f"{blocks} with {transactions} hang together"
    return _unless_vacuous(books, "chain", detail)


# --- timers and amounts ---------------------------------------------------------------------------------------------


def check_timers(books: Books) -> Check:
    """Every scheduled timer fired, ended or is pending, exactly once, never early, and none is forgotten."""
    problems = _finding_texts(books, TIMERS)
    answers = 0
    comparable, mismatches = _comparable(books)
    for validator, view in comparable:
        answers += len(view.pending)
        for text, pending in view.pending.items():
            if validator.pending_timers[text] != pending:
                served = "serves it as pending" if validator.pending_timers[text] else "does not serve it"
                expected = "is pending" if pending else "is not pending"
                problems.append(f"timer {text[:ROOT_DIGITS]} {expected}, but {validator.name} {served}")
        count = (validator.status or {}).get("pending_timers")
        if isinstance(count, int) and count != view.pending_timers:
            problems.append(
                f"{validator.name} counts {count:,} pending timers where the books have {view.pending_timers:,}"
            )
    if problems:
        return Check("timers", Outcome.FAIL, _examples(problems))
    detail = f"{_timer_words(books)}; {answers:,} answers about single timers agree"
    if mismatches:
        return Check("timers", Outcome.INCONCLUSIVE, f"{_examples(mismatches)}; {detail}")
    if not answers and books.ledger.timers:
        return Check("timers", Outcome.INCONCLUSIVE, f"no validator was asked about a timer at its tip; {detail}")
    return _unless_vacuous(books, "timers", detail, {TIMER_ANSWERS: answers})


def check_conservation(books: Books) -> Check:
    """Minted = balances + burned in the books, fees are what prices say, and served balances are the books'."""
    ledger = books.ledger
    problems = _finding_texts(books, CONSERVATION)
    if ledger.minted != ledger.held() + ledger.burned:
        problems.append(f"minted {ledger.minted:,} is not balances {ledger.held():,} + burned {ledger.burned:,}")
    answers = 0
    comparable, mismatches = _comparable(books)
    supplies = 0
    for validator, view in comparable:
        answers += len(view.balances)
        if (supply := validator.supply) is not None:
            supplies += 1
            problems.extend(_supply_problems(validator.name, supply, view))
        for text, expected in view.balances.items():
            served = validator.balances[text]
            if served != expected:
                problems.append(
                    f"{validator.name} serves {served:,} for {text} at height {view.height}, the books have"
                    f" {expected:,} ({served - expected:+,})"
                )
    if problems:
        return Check("conservation", Outcome.FAIL, _examples(problems))
    detail = (
        f"minted {ledger.minted:,} = balances {ledger.held():,} + burned {ledger.burned:,};"
        f" {counted(ledger.messages, 'message')}, {_job_words(books)}"
        f"{ledger.queries:,} {'query' if ledger.queries == 1 else 'queries'} of agents;"
        f" {answers:,} served balances and the supplies of {counted(supplies, 'validator')} equal the books'"
    )
    if mismatches:
        return Check("conservation", Outcome.INCONCLUSIVE, f"{_examples(mismatches)}; {detail}")
    if not answers:
        return Check(
            "conservation", Outcome.INCONCLUSIVE, f"no validator was asked about a balance at its tip; {detail}"
        )
    return _unless_vacuous(books, "conservation", detail, {SERVED_BALANCES: answers, SUPPLIES: supplies})


def _supply_problems(name: str, supply: Supply, view: TipView) -> Iterator[str]:
    """Where a validator's state and the books differ in all money there is, unknown accounts' included."""
    for what, told, kept in (("balances", supply.balances, view.held), ("burned", supply.burned, view.burned)):
        if told != kept:
            difference = f"{told:,} at height {view.height}, in the books to {kept:,} ({told - kept:+,})"
            yield f"{name}'s {what} come to {difference}"


# --- progress, load, faults, problems -------------------------------------------------------------------------------


def check_progress(books: Books) -> Check:
    """Everybody reached the target height, enough heights were finalised, and no stall was too long."""
    record = books.record
    success, target = record.scenario.success, record.target_height
    least, limit = success.heights_compared, success.stall_ms
    height, stall = _highest(books), longest_stall(record)
    reached = f"{counted(height, 'height')} finalised"
    if stall is not None and stall.length_ms > limit:
        return _check_stalls(books, limit)
    unfinished = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
    told = max((seen.height for seen in record.judged_finalizations), default=0)
    if record.interrupted and not books.seen and told:
        what = f"height {told} was final when it was interrupted, target {target}; nobody served a block"
        return Check("progress", unfinished, what)
    if height < target:
        what = f"{reached}, target {target} not reached"
        return _unless_too_slow("progress", unfinished, what, explains_shortfall(record, height, target))
    stuck = _stuck_below(books, target)
    if stuck:
        what = f"{_examples([text for _, text in stuck])}, target {target}; the highest validator reached {height}"
        return _unless_too_slow("progress", unfinished, what, _explains_stuck(books, stuck, target))
    if height < least:
        return Check("progress", Outcome.INCONCLUSIVE, f"{reached}, {least} needed")
    if stall is None:
        return Check("progress", Outcome.INCONCLUSIVE, f"{reached}, but no times were recorded")
    detail = f"{reached}, target {target}; longest stall {stall.length_ms:,.0f} ms of {limit:,} ms"
    return Check("progress", Outcome.PASS, detail)


def _check_stalls(books: Books, limit_ms: int) -> Check:
    """Of stalls beyond the limit: the longest of those that the machine's lag does not explain, if there is one."""
    found = sorted(stalls_beyond_limit(books.record), key=lambda stall: -stall.length_ms)
    excuses = [(stall, _excuse(books, stall.began_ms, stall.ended_ms, limit_ms)) for stall in found]
    stall, excuse = next(((stall, excuse) for stall, excuse in excuses if not excuse), excuses[0])
    what = f"{stall.length_ms:,.0f} ms without a final block after height {stall.after_height}, allowed {limit_ms:,} ms"
    return _unless_too_slow("progress", Outcome.FAIL, what, excuse)


def _excuse(books: Books, begin_ms: float, end_ms: float, limit_ms: float) -> str:
    """In words, how the machine's lag explains a delay; empty where it does not."""
    return explains_delay(books.record, active_committees_during(books, begin_ms, end_ms), begin_ms, end_ms, limit_ms)


def _unless_too_slow(name: str, outcome: Outcome, what: str, excuse: str) -> Check:
    """A check's verdict, inconclusive where the machine's lag explains what was found."""
    return Check(name, Outcome.INCONCLUSIVE, f"{what}; {excuse}") if excuse else Check(name, outcome, what)


def _explains_stuck(books: Books, stuck: Sequence[tuple[ValidatorRecord, str]], target: int) -> str:
    """In words, why lag explains that all of these validators are below the target; empty where one has no excuse."""
    excuses = [
        explains_shortfall(books.record, books.seals[validator.name].tip, target, validator.index)
        for validator, _ in stuck
    ]
    return excuses[0] if all(excuses) else ""


def check_load(books: Books) -> Check:
    """Enough load transactions were committed and enough timers fired."""
    success, ledger = books.record.scenario.success, books.ledger
    enough = ledger.transactions >= success.transactions and ledger.fires >= success.fires
    detail = (
        f"{counted(ledger.transactions, 'transaction')} committed ({ledger.reverted:,} reverted),"
        f" {success.transactions:,} needed; {counted(ledger.fires, 'fire')}, {success.fires:,} needed"
    )
    return Check("load", Outcome.PASS if enough else Outcome.INCONCLUSIVE, detail)


def check_faults(books: Books) -> Check:
    """Each fault of the scenario bit, the network went on as its kind implies, and whom it hit caught up."""
    record = books.record
    if not record.scenario.faults:
        return Check.without_cause("faults", "the scenario has none")
    results = [_check_fault(books, fault) for fault in record.faults]
    missing = len(record.scenario.faults) - len(record.faults)
    if missing > 0:
        results.append((Outcome.INCONCLUSIVE, f"{missing} of {len(record.scenario.faults)} faults never began"))
    outcome = worst(result for result, _ in results)
    texts = [text for result, text in results if result is outcome]
    return Check("faults", outcome, _examples(texts))


def check_recovery(books: Books) -> Check:
    """Once all faults are over, a quorum finalises a new height within the scenario's bound."""
    record, limit_ms = books.record, books.record.recovery_ms
    if not any(fault.begun_ms is not None for fault in record.faults):
        return Check.without_cause("recovery", "no fault began")
    found = recovery_of(books)
    if found is None:
        return Check("recovery", Outcome.INCONCLUSIVE, "not all faults were over at the end")
    since = f"{found.last.title} was over at height {found.healed_height}"
    if found.took_ms is None:
        waited_ms = record.duration_ms - found.healed_ms
        what = f"no quorum finalised a height in the {waited_ms:,.0f} ms since {since}"
        if waited_ms <= limit_ms:
            return Check("recovery", Outcome.INCONCLUSIVE, what)
        excuse = _excuse(books, found.healed_ms, record.duration_ms, limit_ms)
        return _unless_too_slow("recovery", Outcome.FAIL, what, excuse)
    detail = f"a quorum finalised a new height {found.took_ms:,.0f} ms after {since}, allowed {limit_ms:,} ms"
    if found.took_ms <= limit_ms:
        return Check("recovery", Outcome.PASS, detail)
    excuse = _excuse(books, found.healed_ms, found.healed_ms + found.took_ms, limit_ms)
    return _unless_too_slow("recovery", Outcome.FAIL, detail, excuse)


def check_joins(books: Books) -> Check:
    """Each validator that is late joined by a snapshot, caught up, and executed blocks of its own then."""
    record = books.record
    if not record.scenario.validators.late:
        return Check.without_cause("joins", "the scenario has none")
    results = [_check_join(books, join) for join in record.joins]
    missing = len(record.scenario.validators.late) - len(record.joins)
    if missing > 0:
        results.append((Outcome.INCONCLUSIVE, f"{missing} of {len(record.scenario.validators.late)} joins never began"))
    outcome = worst(result for result, _ in results)
    return Check("joins", outcome, _examples([text for result, text in results if result is outcome]))


def check_byzantine(books: Books) -> Check:
    """Every byzantine behaviour of the scenario was seen to bite; else nothing was withstood."""
    record = books.record
    expected = _byzantine_count(record)
    results = [_check_behaviours(validator) for validator in record.validators if validator.byzantine]
    if not expected:
        return Check.without_cause("byzantine", "the scenario has none")
    if len(results) < expected:
        results.append((Outcome.INCONCLUSIVE, f"{expected - len(results)} of {expected} were never asked"))
    outcome = worst(result for result, _ in results)
    return Check("byzantine", outcome, _examples([text for result, text in results if result is outcome]))


def check_evidence(books: Books) -> Check:
    """What honest validators can prove to third parties blames byzantine ones alone, and all who owe a proof."""
    record = books.record
    shown = proofs(record)
    byzantine = {validator.index for validator in record.validators if validator.byzantine}
    false = [f"{proof.finder} shows {proof.kind}, which does not hold" for proof in shown if proof.holds is False]
    false += [
        f"{proof.finder} proves {proof.kind} of {_name(record, proof.culprit)} in view {proof.view},"
        f" which {_is_what(record, proof.culprit)}"
        for proof in shown
        if proof.holds and proof.culprit not in byzantine
    ]
    if false:
        return Check("evidence", Outcome.FAIL, _examples(false))
    unjudged = [
        f"{proof.finder} shows {proof.kind} on a block that nobody served" for proof in shown if proof.holds is None
    ]
    if unjudged:
        return Check("evidence", Outcome.INCONCLUSIVE, _examples(unjudged))
    proven = Counter(proof.culprit for proof in shown)
    missing = [
        (
            owed if _is_heard(record, validator) else 0,
            f"{validator.name} owes a proof for {counted(owed, 'view')}, and none was found",
        )
        for validator in record.validators
        if validator.byzantine and (owed := _expected_evidence(validator)) and not proven[validator.index]
    ]
    if missing:
        failed = not record.interrupted and any(owed >= VIEWS_THAT_OWE_EVIDENCE for owed, _ in missing)
        texts = [text for _, text in missing]
        return Check("evidence", Outcome.FAIL if failed else Outcome.INCONCLUSIVE, _examples(texts))
    if _byzantine_count(record) and not any(validator.status for validator in books.judged):
        return Check("evidence", Outcome.INCONCLUSIVE, "no honest validator was asked for what it found")
    if not shown:
        return Check("evidence", Outcome.PASS, "none was found, and none was owed")
    blamed = [f"{_name(record, culprit)} ({count})" for culprit, count in sorted(proven.items(), key=str)]
    verbs = "holds and blames" if len(shown) == 1 else "hold and blame"
    detail = f"{counted(len(shown), 'proof')} of honest validators {verbs} byzantine ones alone: {', '.join(blamed)}"
    return Check("evidence", Outcome.PASS, detail)


def check_safety(books: Books) -> Check:
    """What must hold of certificates, final blocks and proofs: at every moment of a simulated run
    (:mod:`cluster.simulation.watches.safety_monitor`), and of what validators serve at the end of any
    (:mod:`cluster.audit.served_proofs`).
    """
    monitor = books.record.monitor
    if monitor is None:
        return Check.without_cause("safety", "nobody was asked for proofs")
    if monitor.violations:
        return Check("safety", Outcome.FAIL, _examples(monitor.violations))
    never = [rule for rule, count in monitor.counts.items() if not count and needed_of_monitor(books, rule)]
    if never:
        return Check("safety", Outcome.INCONCLUSIVE, f"never looked at: {', '.join(never)}")
    counts = ", ".join(f"{rule} {count:,}" for rule, count in monitor.counts.items())
    unwatched = "; certificates are watched in the simulator alone" if books.record.backend == "live" else ""
    return Check("safety", Outcome.PASS, f"{counts}{unwatched}")


def check_promises(books: Books) -> Check:
    """What validators took from clients they passed on, and kept until it was final or could not run any more
    (:mod:`cluster.simulation.watches.promise_watch`)."""
    promises, load = books.record.promises, books.record.load
    if promises is None:
        return Check.without_cause("promises", "answers to clients are watched in the simulator, and not live")
    if promises.violations:
        return Check("promises", Outcome.FAIL, _examples(promises.violations))
    if not load.transactions_sent:
        return Check.without_cause("promises", "no client sent anything")
    looks = ", ".join(f"{rule} {count:,}" for rule, count in promises.counts.items())
    detail = f"{counted(promises.taken, 'transaction')} taken, of which {promises.final:,} became final; {looks}"
    return Check("promises", Outcome.PASS if promises.final else Outcome.INCONCLUSIVE, detail)


def check_no_problems(books: Books) -> Check:
    """Nothing went wrong around the run, and it was not ended early."""
    record = books.record
    problems = _examples([*record.problems, *([record.time_up] if record.time_up else [])])
    if record.interrupted:
        return Check("no_problems", Outcome.INCONCLUSIVE, "interrupted" + (f"; {problems}" if problems else ""))
    if record.time_up and not record.problems and check_progress(books).verdict is Outcome.INCONCLUSIVE:
        return Check("no_problems", Outcome.INCONCLUSIVE, problems)
    if problems:
        return Check("no_problems", Outcome.FAIL, problems)
    return Check("no_problems", Outcome.PASS, "none reported")


CHECKS: Final[tuple[Callable[[Books], Check], ...]] = (
    check_agreement,
    check_state_roots,
    check_chain,
    check_timers,
    check_conservation,
    check_progress,
    check_load,
    check_faults,
    check_recovery,
    check_criteria,
    check_joins,
    check_byzantine,
    check_evidence,
    check_safety,
    check_promises,
    check_no_problems,
)
CHECK_NAMES: Final = tuple(check.__name__.removeprefix("check_") for check in CHECKS)


# --- faults ---------------------------------------------------------------------------------------------------------


def _check_fault(books: Books, fault: FaultRecord) -> tuple[Outcome, str]:
    record, name = books.record, fault.name
    if fault.begun_ms is None:
        return Outcome.INCONCLUSIVE, f"{name}: never began"
    if fault.problem:
        return Outcome.FAIL, f"{name}: {fault.problem}"
    if fault.ended_ms is None and fault.kind in LASTING_KINDS:
        return Outcome.INCONCLUSIVE, f"{name}: was still under way at the end"
    if not fault.took_effect:
        return Outcome.INCONCLUSIVE, f"{name}: was not seen to bite ({fault.evidence or 'no evidence'})"
    if fault.ended_ms is None:
        verdict = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
        return verdict, f"{name}: the target never came back"
    outcome, went_on = _went_on(books, fault)
    if outcome is not Outcome.PASS:
        return outcome, f"{name}: {went_on}"
    words = [went_on]
    hit = fault.targets or fault.impaired
    for validator in books.judged:
        if validator.name in hit:
            outcome, text = _caught_up(books, fault, validator)
            if outcome is not Outcome.PASS:
                return outcome, f"{name}: {text}"
            words += [text] if fault.kind in RECOVERED_FROM_DISK | RECOVERED_BY_SNAPSHOT else []
    if len(words) == 1 and hit:
        words.append(f"{', '.join(hit)} caught up" if len(hit) < len(record.validators) else "all caught up")
    bit = f"bit ({fault.evidence})" if fault.evidence else "bit"
    return Outcome.PASS, f"{name}: {bit}; {'; '.join(words)}"


def _check_join(books: Books, join: JoinRecord) -> tuple[Outcome, str]:
    name = f"{join.target} at height {join.at_height}"
    if join.begun_ms is None:
        return Outcome.INCONCLUSIVE, f"{name}: never began"
    if join.ended_ms is None:
        verdict = Outcome.INCONCLUSIVE if books.record.interrupted else Outcome.FAIL
        return verdict, f"{name}: never had its snapshot"
    validator = next((v for v in books.record.validators if v.name == join.target), None)
    if validator is None or validator.status is None:
        return Outcome.INCONCLUSIVE, f"{name}: does not say how it began"
    height = validator.status.get("snapshot_height")
    if not isinstance(height, int) or height <= 0:
        return Outcome.FAIL, f"{name}: executed the chain from the genesis on, without a snapshot"
    outcome, text = _level_with_others(books, validator)
    if outcome is not Outcome.PASS:
        return outcome, f"{name}: {text}"
    executed = len(books.seals[validator.name].seals)
    if executed < HEIGHTS_AFTER_A_JOIN:
        return (
            Outcome.INCONCLUSIVE,
            f"{name}: executed {counted(executed, 'height')} after it joined, {HEIGHTS_AFTER_A_JOIN} needed",
        )
    chunks = f"{counted(sum(join.chunks.values()), 'chunk')} from {counted(len(join.chunks), 'peer')}"
    return Outcome.PASS, (
        f"{name}: took in the snapshot of height {height} ({chunks}) in {join.ended_ms - join.begun_ms:,.0f} ms,"
        f" executed {counted(executed, 'height')} from there, {text}"
    )


def _went_on(books: Books, fault: FaultRecord) -> tuple[Outcome, str]:
    """Whether heights became final while the fault lasted, as they must with a quorum and must not without one.

    The committees that ruled meanwhile count, and no others. Faults that overlap are taken together, and so is who is
    byzantine or has not joined yet, or so shortly before that it may not vote yet. Where a quorum is merely slow, or
    whatever is sent comes late or not, either may be. A fault too short for as many views as may fail in a row says
    nothing, and what was proposed before, or within a view change of its beginning, may become final in any case: the
    votes for it may be cast already.
    """
    assert fault.begun_ms is not None
    assert fault.ended_ms is not None
    record = books.record
    length = fault.ended_ms - fault.begun_ms
    first = first_finalizations(record.judged_finalizations)
    during = sum(fault.begun_ms < at <= fault.ended_ms for at in first.values())
    text = f"{counted(during, 'height')} finalised in the {length:,.0f} ms that it lasted"
    view_change_ms = record.view_change_ms
    committees = active_committees_during(books, fault.begun_ms, fault.ended_ms)
    if fault.is_hard and all(_quorums_lost(committees, [_without_twins(record, fault)], set())):
        least = fault.begun_ms + view_change_ms
        proposed = record.proposals
        until = fault.ended_ms if fault.first_back_ms is None else fault.first_back_ms
        late = [height for height, at in first.items() if least < proposed.get(height, at) and at <= until]
        if late:
            were = "was" if len(late) == 1 else "were"
            return Outcome.FAIL, f"{counted(len(late), 'height')} from {late[0]} on {were} finalised without a quorum"
        return Outcome.PASS, f"{text}, without a quorum"
    at_once = [other for other in record.faults if _overlap(fault, other)]
    if (
        during
        or any(_quorums_lost(committees, at_once, _never_there(record, fault)))
        or any(other.kind in SLOWING for other in at_once)
    ):
        return Outcome.PASS, text
    needed_ms = record.recovery_ms * (LOST_ONCE_MORE if record.scenario.links.loss else 1)
    if length < needed_ms:
        return (
            Outcome.INCONCLUSIVE,
            f"no height finalised, but it lasted {length:,.0f} ms only, less than views that fail in a row may take"
            f" ({needed_ms:,} ms)",
        )
    excuse = _excuse(books, fault.begun_ms, fault.ended_ms, needed_ms)
    stood_still = f"no height was finalised in the {length:,.0f} ms that it lasted"
    check = _unless_too_slow("faults", Outcome.FAIL, stood_still, excuse)
    return check.verdict, check.detail


def _quorums_lost(committees: Iterable[set[str]], faults: Sequence[FaultRecord], others: set[str]) -> list[bool]:
    """Of each committee, whether it has no quorum without whom these faults impair, and without some others."""
    return [len(_missing(members, faults, others)) > fault_bound(len(members)) for members in committees]


def _missing(members: set[str], faults: Sequence[FaultRecord], others: set[str]) -> set[str]:
    """The members of a committee on which no certificate can count at the worst moment."""
    missing = (others & members).union(*(_impaired_in(members, fault) for fault in faults))
    for fault in faults:
        missing |= max(((members & set(group)) - missing for group in fault.one_at_a_time), key=len, default=set())
    return missing


def _without_twins(record: RunRecord, fault: FaultRecord) -> FaultRecord:
    """The fault as far as it takes keys away: a twin goes on where its validator does not, but a cut cuts both off."""
    section = record.scenario.validators
    doubled = {name for index, name in enumerate(section.names) if Twins.name in section.node(index).byzantine}
    return replace(fault, impaired=tuple(name for name in fault.impaired if name not in doubled))


def _impaired_in(members: set[str], fault: FaultRecord) -> set[str]:
    """The members of a committee on which no certificate can count."""
    if not fault.sides:
        return members.intersection(fault.impaired)
    whole = next((set(side) for side in fault.sides if len(members.intersection(side)) >= quorum(len(members))), set())
    return members - whole


def _never_there(record: RunRecord, fault: FaultRecord) -> set[str]:
    """Validators that count as missing while a fault lasts: those that join later, byzantine and mutated ones; and
    those that joined, or lost their disks, so shortly before that they may still abstain."""
    assert fault.begun_ms is not None
    begun_ms = fault.begun_ms
    first = sorted(at for at in first_finalizations(record.judged_finalizations).values() if at <= begun_ms)
    settled_ms = first[-HEIGHTS_UNTIL_IT_VOTES] if len(first) >= HEIGHTS_UNTIL_IT_VOTES else 0.0
    late = {join.target for join in record.joins if join.ended_ms is None or join.ended_ms > settled_ms}
    for other in record.faults:
        if (
            other.kind in RECOVERED_BY_SNAPSHOT
            and other.ended_ms is not None
            and settled_ms < other.ended_ms <= begun_ms
        ):
            late.update(other.impaired)
    section = record.scenario.validators
    broken = {
        name
        for name, index in zip(section.names, range(section.count), strict=True)
        if section.node(index).byzantine or section.node(index).mutant
    }
    broken.update(validator.name for validator in record.validators if validator.mutant)
    return late | broken


def _overlap(one: FaultRecord, other: FaultRecord) -> bool:
    """Whether there was a moment at which both lasted."""
    if one.begun_ms is None or other.begun_ms is None:
        return False
    one_ends, other_ends = (math.inf if fault.ended_ms is None else fault.ended_ms for fault in (one, other))
    return one.begun_ms <= other_ends and other.begun_ms <= one_ends


def _level_with_others(books: Books, validator: ValidatorRecord) -> tuple[Outcome, str]:
    """Whether a validator ended about as high as the others."""
    record = books.record
    others = max((books.seals[v.name].tip for v in books.judged if v is not validator), default=0)
    height = books.seals[validator.name].tip
    unfinished = Outcome.INCONCLUSIVE if record.interrupted else Outcome.FAIL
    # what was lost just before the end is said anew after it
    told_ms = record.duration_ms - record.scenario.consensus.rebroadcast_ms
    told = max((seen.height for seen in record.judged_finalizations if seen.at_ms <= told_ms), default=0)
    if height < min(told, others - CATCH_UP_SLACK_HEIGHTS):
        return unfinished, f"{validator.name} did not catch up: height {height} where the others have {others}"
    return Outcome.PASS, f"caught up to {height}"


def _caught_up(books: Books, fault: FaultRecord, validator: ValidatorRecord) -> tuple[Outcome, str]:
    """Whether a validator that a fault hit is level with the others, and came back as the fault's kind has it."""
    outcome, level = _level_with_others(books, validator)
    if outcome is not Outcome.PASS:
        return outcome, level
    if fault.kind not in RECOVERED_FROM_DISK | RECOVERED_BY_SNAPSHOT:
        return Outcome.PASS, level
    status: dict[str, Any] = validator.status or {}
    starts, recovered = status.get("starts"), status.get("recovered_height")
    if not isinstance(starts, int) or not isinstance(recovered, int):
        return Outcome.INCONCLUSIVE, f"{validator.name} does not say how it started"
    if starts <= 1:
        return Outcome.INCONCLUSIVE, f"{validator.name} was started {counted(starts, 'time')}, so it was never down"
    if fault.kind in RECOVERED_BY_SNAPSHOT:
        height = status.get("snapshot_height")
        if not isinstance(height, int) or height <= 0:
            return Outcome.FAIL, f"{validator.name} lost its disk, but did not come back by a snapshot"
        return Outcome.PASS, f"{validator.name} joined by the snapshot of height {height} and {level}"
    if recovered <= 0:
        begun_ms = math.inf if fault.begun_ms is None else fault.begun_ms
        if not any(seen.validator == validator.index and seen.at_ms < begun_ms for seen in books.record.finalizations):
            return Outcome.INCONCLUSIVE, f"{validator.name} had nothing final yet that it could have recovered"
        return Outcome.FAIL, f"{validator.name} found nothing on its own disk when it came back"
    return Outcome.PASS, f"{validator.name} recovered height {recovered} from its own disk and {level}"


# --- byzantine validators -------------------------------------------------------------------------------------------


def _check_behaviours(validator: ValidatorRecord) -> tuple[Outcome, str]:
    bites = _byzantine_page(validator).get("took_effect")
    if not isinstance(bites, dict):
        return Outcome.INCONCLUSIVE, f"{validator.name}: does not say what it did"
    idle = [name for name in validator.byzantine if not bites.get(name)]
    if idle:
        return Outcome.INCONCLUSIVE, f"{validator.name}: {', '.join(idle)} was not seen to bite"
    words = [f"{name} bit {counted(bites[name], 'time')}" for name in validator.byzantine]
    return Outcome.PASS, f"{validator.name}: {', '.join(words)}"


def _byzantine_count(record: RunRecord) -> int:
    return sum(bool(node.byzantine) for node in record.scenario.validators.nodes)


def _is_heard(record: RunRecord, validator: ValidatorRecord) -> bool:
    """Whether no fault of the links cut a validator off: what it said then was perhaps told to nobody."""
    cuts = (fault for fault in record.faults if fault.begun_ms is not None and fault.kind in CUTTING)
    return not any(validator.name in fault.impaired for fault in cuts)


def _expected_evidence(validator: ValidatorRecord) -> int:
    """Views in which a validator gave others all that proves its guilt."""
    owed = _byzantine_page(validator).get("expected_evidence")
    return owed if isinstance(owed, int) else 0


def _byzantine_page(validator: ValidatorRecord) -> dict[str, Any]:
    page = (validator.status or {}).get("byzantine")
    return page if isinstance(page, dict) else {}


def _is_what(record: RunRecord, index: int | None) -> str:
    """Of a validator that is not byzantine."""
    section = record.scenario.validators
    mutant = section.node(index).mutant if index is not None and 0 <= index < section.count else None
    return "is honest" if mutant is None else f"runs the planted bug {mutant}"


def _name(record: RunRecord, index: int | None) -> str:
    names = record.scenario.validators.names
    return names[index] if index is not None and index < len(names) else f"validator {index}"


# --- helpers --------------------------------------------------------------------------------------------------------


def _unless_vacuous(books: Books, name: str, detail: str, evaluated: Mapping[str, int] = NOTHING) -> Check:
    """A pass, unless too little was compared for one."""
    record = books.record
    section, least = record.scenario.validators, record.scenario.success.heights_compared
    expected = section.count - _byzantine_count(record)
    if len(books.seen) < expected:
        what = f"only {len(books.seen)} of {expected} validators served a block"
        return Check(name, Outcome.INCONCLUSIVE, f"{what}; {detail}" if books.seen else what, evaluated)
    if books.common_height < least:
        what = f"only {counted(books.common_height, 'height')} common to all validators, {least} needed; {detail}"
        return Check(name, Outcome.INCONCLUSIVE, what, evaluated)
    return Check(name, Outcome.PASS, detail, evaluated)


def _comparable(books: Books) -> tuple[list[tuple[ValidatorRecord, TipView]], list[str]]:
    """Validators whose answers are about the last block that was collected from them; in words, the other ones.

    Nothing can be said of the others' answers: they may have withheld blocks, or were still going on.
    """
    found, mismatches = [], []
    for validator in books.judged:
        view = books.tips.get(validator.name)
        if view is None:
            continue  # its chain cannot be followed, which the chain check tells
        height = view.height if validator.status is None else validator.status.get("height")
        if height == view.height:
            found.append((validator, view))
        else:
            mismatches.append(f"{validator.name} says height {height} of itself, but served {view.height} blocks")
    return found, mismatches


def _stuck_below(books: Books, target: int) -> list[tuple[ValidatorRecord, str]]:
    """The validators that answered and are below a height, without a divergence or a mutant to explain it, each with
    that in words."""
    diverged = {told.validator for told in books.divergences}
    return [
        (validator, f"{validator.name} stopped at height {books.seals[validator.name].tip}")
        for validator in books.judged
        if books.seals[validator.name].tip < target
        and (validator.status is not None or validator.blocks)
        and validator.name not in diverged
        and validator.mutant is None
    ]


def _finding_texts(books: Books, check: str) -> list[str]:
    count = len(books.judged)
    return [
        f"{_whose(finding, count)} at height {finding.violation.height}: {finding.violation.what}"
        for finding in books.findings
        if finding.violation.check == check
    ]


def _whose(finding: Finding, count: int) -> str:
    names = "all validators" if 1 < count == len(finding.validators) else ", ".join(finding.validators)
    return f"{names} (its own execution)" if finding.evidence else names


def _job_words(books: Books) -> str:
    jobs = books.ledger.jobs
    return f"{len(jobs.jobs):,} jobs, {jobs.consumed:,} consumed, " if jobs.jobs else ""


def _timer_words(books: Books) -> str:
    states = books.ledger.states
    lost = states[TimerState.INSUFFICIENT_FUNDS]
    unjudged = books.ledger.turns.unjudged
    left_out = f"; {counted(unjudged, 'wait')} of timers not judged, for many waited or removals had no budget"
    return (
        f"{len(books.ledger.timers):,} scheduled: {states[TimerState.FIRED]:,} fired,"
        f" {states[TimerState.CANCELLED]:,} cancelled, {states[TimerState.EXPIRED]:,} expired,"
        f" {lost:,} without funds, {len(books.ledger.pending):,} pending;"
        f" {books.ledger.ids_recomputed:,} ids recomputed{left_out if unjudged else ''}"
    )


def _highest(books: Books) -> int:
    return max((books.seals[validator.name].tip for validator in books.judged), default=0)


def _compared(books: Books) -> str:
    late = [f"{v.name} from height {v.first_height:,} on" for v in books.seen if v.first_height > 1]
    byzantine = [v.name for v in books.record.validators if v.byzantine]
    notes = [*late, f"not of {', '.join(byzantine)}, byzantine"] if byzantine else late
    who = counted(len(books.seen), "honest validator" if byzantine else "validator")
    heights = min((books.seals[validator.name].tip for validator in books.seen), default=0)
    return f"{counted(heights, 'height')} of {who}" + (f" ({', '.join(notes)})" if notes else "")


def _groups(held: dict[str, bytes]) -> str:
    by_hash: dict[bytes, list[str]] = {}
    for name, block_hash in held.items():
        by_hash.setdefault(block_hash, []).append(name)
    ordered = sorted(by_hash.items(), key=lambda item: -len(item[1]))
    return ", ".join(f"{' and '.join(names)} {_root(digest.hex())}" for digest, names in ordered)


def _examples(texts: list[str]) -> str:
    shown = "; ".join(texts[:EXAMPLES_SHOWN])
    return shown if len(texts) <= EXAMPLES_SHOWN else f"{shown}; and {len(texts) - EXAMPLES_SHOWN:,} more"


def _root(text: str) -> str:
    return f"{text[:ROOT_DIGITS]}…" if text else "none"
