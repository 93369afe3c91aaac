"""The features of a run: what it reached, as short texts by which runs are compared.

A feature is ``kind:what``, such as ``mechanism:backlog``. Of a count only its range is a feature, as in AFL: a
mechanism that is reached 40 times says hardly more than one that is reached 39 times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final

from cluster.checks.kind import Judged, shipped
from cluster.checks.metrics.reached import mechanisms_reached
from cluster.common.outcome import Outcome
from cluster.record.rules import Mechanism
from cluster.record.run import FaultRecord, RunRecord
from cluster.scenario.sections.faults import SHIPPED

RANGES: Final = (1, 2, 3, 4, 8, 16, 32, 128)
"""The least counts of the ranges of counts."""
MECHANISM: Final = "mechanism"
RULE: Final = "rule"
OVERLAP: Final = "overlap"
NEAR: Final = 1
"""Two things happen together if they happen at most this number of heights apart."""
LOST: Final = "disk lost"
COUNTED: Final = (
    "agent_queries",
    "deepest_reorg",
    "lateness_max_blocks",
    "messages",
    "timers_cancelled",
    "timers_expired",
    "timers_insufficient_funds",
    "transactions_reverted",
)
"""Metrics whose ranges are features: how timers ended, how deep branches were that were given up, and the like."""


def features_of(judged: Judged) -> list[str]:
    """The features of a run, each once, in the order of their texts."""
    books = judged.books
    return sorted(
        {
            *(f"{MECHANISM}:{mechanism}" for mechanism in mechanisms_reached(books)),
            *_ranges("times", {name: len(heights) for name, heights in books.ledger.reached.items()}),
            *_ranges(RULE, {evaluation.rule: evaluation.times for evaluation in judged.verdict.evaluations}),
            *_ranges("metric", {name: judged.metrics.get(name, 0) for name in COUNTED}),
            *(f"{check.name}:{check.verdict}" for check in judged.verdict.checks if check.verdict is not Outcome.PASS),
            *_together(judged),
            *_of_faults(books.record),
            *_of_validators(books.record),
        }
    )


def range_of(count: float) -> int:
    """The least count of the range that a count of at least 1 is in."""
    return max(least for least in RANGES if least <= count)


def _ranges(kind: str, counts: Mapping[str, float]) -> Iterator[str]:
    for what, count in counts.items():
        if count >= 1:
            yield f"{kind}:{what}" if kind == RULE and count >= RANGES[-1] else f"{kind}:{what}:{range_of(count)}"


def _together(judged: Judged) -> Iterator[str]:
    """Pairs of mechanisms of the chain in the same block, and mechanisms in blocks that a validator gave up."""
    record, reached = judged.books.record, judged.books.ledger.reached
    by_height: dict[int, list[str]] = {}
    for name, heights in reached.items():
        for height in heights:
            by_height.setdefault(height, []).append(name)
    for names in by_height.values():
        yield from (f"together:{one}+{other}" for one, other in combinations(sorted(names), 2))
    byzantine = {validator.index for validator in record.validators if validator.byzantine}
    for reorg in record.reorgs:
        if reorg.validator in byzantine:
            continue
        depth = range_of(reorg.depth)
        yield f"reorg:{depth}"
        for height in range(reorg.height - NEAR, reorg.height + reorg.depth + NEAR):
            yield from (f"reorg:{depth}:{name}" for name in by_height.get(height, ()))
    for fault in record.faults:
        if fault.took_effect:
            ended = fault.height_when_ended or fault.height_when_begun
            for height in range(fault.height_when_begun - NEAR, ended + NEAR + 1):
                yield from (f"during:{fault.kind}:{name}" for name in by_height.get(height, ()))


def _of_faults(record: RunRecord) -> Iterator[str]:
    """Faults that took effect, pairs of them that overlapped in time, and how validators came back."""
    happened = [fault for fault in record.faults if fault.took_effect and fault.begun_ms is not None]
    yield from _ranges("fault", Counter(fault.kind for fault in happened))
    for one, other in combinations(happened, 2):
        if _overlap(one, other):
            yield f"{OVERLAP}:{pair_of(one.kind, other.kind)}"
    for validator in record.validators:
        for behaviour, count in (validator.effects or {}).items():
            if count:
                yield f"behaviour:{behaviour}"
                yield from (f"behaviour:{behaviour}+{fault.kind}" for fault in happened)
    for fault in happened:
        if fault.without_disks:
            yield f"recovery:{fault.kind}:{LOST}"
        for join in record.joins:
            if join.begun_ms is not None and _overlap_ms(fault, join.begun_ms, join.ended_ms):
                yield f"recovery:join+{fault.kind}"


def _overlap(one: FaultRecord, other: FaultRecord) -> bool:
    return other.begun_ms is not None and _overlap_ms(one, other.begun_ms, other.ended_ms)


def _overlap_ms(fault: FaultRecord, begun_ms: float, ended_ms: float | None) -> bool:
    assert fault.begun_ms is not None, "asked of faults that happened"
    return (fault.ended_ms is None or fault.ended_ms >= begun_ms) and (ended_ms is None or ended_ms >= fault.begun_ms)


def pair_of(one: str, other: str) -> str:
    """The name of a pair of kinds, in whichever order."""
    return "+".join(sorted((one, other)))


def _of_validators(record: RunRecord) -> Iterator[str]:
    """How many views failed, the kinds of messages near faults, and what validators served about themselves."""
    for window in record.trace.windows:
        yield from (f"message:{message.kind}" for message in window.messages)
    starts: Counter[str] = Counter()
    for validator in record.validators:
        page = validator.status or {}
        failed_views = page.get("final_view", 0) - page.get("height", 0)
        yield from _ranges("view", {"failed": failed_views})
        for name in ("faults", "dropped", "transactions_refused", "transactions_dropped"):
            yield from (f"{name}:{what}" for what, count in (page.get(name) or {}).items() if count)
        for name in ("replayed_blocks", "snapshot_height", "starts"):
            starts[name] = max(starts[name], page.get(name, 0))
    yield from _ranges("start", starts)


def never_reached(seen: Mapping[str, int]) -> dict[str, list[str]]:
    """What no run reached, by kind: mechanisms, rules that were never evaluated, and pairs of kinds of faults that
    never overlapped.

    ``seen`` is the number of runs with each feature.
    """
    evaluated = {feature.split(":", 1)[1] for feature in seen if feature.startswith(f"{RULE}:")}
    evaluated |= {what.rpartition(":")[0] for what in evaluated}
    pairs = sorted({pair_of(one, other) for one in SHIPPED for other in SHIPPED})
    return {
        "mechanisms": [name for name in Mechanism if f"{MECHANISM}:{name}" not in seen],
        "rules": [rule for kind in shipped() for rule in kind.RULES if rule not in evaluated],
        "overlapping faults": [pair for pair in pairs if f"{OVERLAP}:{pair}" not in seen],
    }
