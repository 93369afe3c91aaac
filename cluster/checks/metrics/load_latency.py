"""Latency of the load, per workload: from the moment when a transaction was due until its block is final.

In an open loop a transaction is due at its turn, however late the turn is taken, so that waiting counts. Times are
those of the first finalization at any validator that is not byzantine. On a live run due times are by the clocks of the
load's machines, finalizations by the validators' clocks: the differences between these clocks go into every latency.

A transaction that never became final, and a turn that was never taken, count as infinitely late in quantiles. Otherwise
a load whose slowest part is lost would look faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Final

from cluster.audit.books import Books
from cluster.checks.metrics.actor_classes import SHARES
from cluster.common.quantiles import counted_quantile, quantile
from loadgen.workloads.measures import LoadTimeline, Sends, TimeBucket, send_key, slot_ms
from spec.encoding import Unreadable, decode, read_block, read_transaction

QUANTILES: Final = (*SHARES, (1.0, "max"))


@dataclass(slots=True)
class WorkloadLatency:
    """The numbers and latencies of one workload's transactions. For a long load, latencies are of a sample only."""

    workload: str
    sent: int
    late: int
    rejected: int
    skipped: int
    """Turns that were due and never taken."""
    measured: int
    """Sampled transactions, without rejected ones, whose finality was looked up."""
    final: int = 0
    """The number of looked-up transactions that became final."""
    latencies_ms: list[float] = field(default_factory=list)
    """The latency of each final transaction from when it was due, in milliseconds, if its time is known."""
    from_send_ms: list[float] = field(default_factory=list)
    """The latency of each final transaction from its real send, in milliseconds: without the wait since it was due."""
    measured_skipped: int = 0
    """The number of transactions never sent (``skipped`` and ``unsent``) that count in quantiles.

    For a long load it is the same share as is sampled of the sent ones.
    """
    unsent: int = 0
    """Transactions whose turns were taken, but which found no room."""

    @property
    def never_final(self) -> int:
        return self.measured - self.final

    @property
    def all_latencies_ms(self) -> list[float]:
        """The latencies from when each transaction was due; infinite if it never became final or was never sent."""
        return self.latencies_ms + [inf] * (self.never_final + self.measured_skipped)

    @property
    def quantiles_ms(self) -> dict[str, float | None]:
        """Quantiles by name; infinite if too few became final, ``None`` if nothing was measured."""
        found = self.all_latencies_ms
        return {name: round(quantile(found, share), 3) if found else None for share, name in QUANTILES}

    @property
    def page(self) -> dict[str, Any]:
        """The workload's part of ``result.json``; null is an infinite latency, which JSON lacks, or a missing one."""
        counts = {
            name: getattr(self, name)
            for name in ("sent", "late", "skipped", "unsent", "rejected", "measured", "final", "never_final")
        }
        return counts | {f"latency_{name}_ms": json_number(value) for name, value in self.quantiles_ms.items()}


def load_latencies(books: Books) -> list[WorkloadLatency]:
    """The latencies of each workload of the run, in the order of names."""
    record = books.record
    if not any(each.due for each in record.load.sends.workloads.values()):
        return latencies_of(record.load.sends, ())
    began_ms, first = record.began_epoch_ms, record.first_finalizations
    final = ((key, began_ms + first[height] if height in first else None) for height, key in _final_keys(books))
    return latencies_of(record.load.sends, final)


def latencies_of(sends: Sends, final: Iterable[tuple[str, float | None]]) -> list[WorkloadLatency]:
    """The latencies of each workload of a load, in the order of names.

    ``final`` are the final transactions by :func:`~loadgen.workloads.measures.send_key`, each with its time on the
    clock of the sends, in milliseconds, if known.
    """
    found = {
        name: WorkloadLatency(
            name, each.sent, each.late, each.rejected, each.skipped, len(each.due), unsent=each.unsent
        )
        for name, each in sorted(sends.workloads.items())
    }
    for each in found.values():
        each.measured_skipped = -(-(each.skipped + each.unsent) >> sends.chosen_bits)
    due = {key: (name, due_ms) for name, each in sends.workloads.items() for key, due_ms in each.due.items()}
    for key, at_ms in final:
        if key in due:
            name, due_ms = due.pop(key)
            found[name].final += 1
            if at_ms is not None:
                waited_ms = sends.workloads[name].waited_ms.get(key, 0)
                found[name].latencies_ms.append(max(0.0, at_ms - due_ms))
                found[name].from_send_ms.append(max(0.0, at_ms - due_ms - waited_ms))
    return list(found.values())


def _final_keys(books: Books) -> Iterable[tuple[int, str]]:
    """Height and key of every final transaction, ascending."""
    for height, block in enumerate(books.chain[: books.ledger.height], 1):
        try:
            for key in keys_in(block.block):
                yield height, key
        except Unreadable:
            return


def keys_in(encoded: bytes) -> Iterator[str]:
    """The :func:`~loadgen.workloads.measures.send_key` of each transaction in a block. Raises
    :class:`~spec.encoding.Unreadable`."""
    block = read_block(encoded)
    for wire in block.transactions:
        transaction = read_transaction(wire, block.header.chain_id)
        public_key, _, _ = decode(wire)
        yield send_key(public_key, transaction.nonce)


def latency_metrics(load: Sequence[WorkloadLatency]) -> dict[str, float]:
    """The metrics of all workloads together, by name; a latency is infinite if too few transactions became final."""
    found: dict[str, float] = {}
    if load:
        found["load_turns_skipped"] = sum(each.skipped for each in load)
        found["load_transactions_unsent"] = sum(each.unsent for each in load)
        found["load_transactions_late"] = sum(each.late for each in load)
    latencies = [latency for each in load for latency in each.all_latencies_ms]
    if latencies:
        found |= {f"load_latency_{name}_ms": quantile(latencies, share) for share, name in QUANTILES}
    return found


def from_send_p99_ms(load: Sequence[WorkloadLatency]) -> float:
    """The 99th percentile of latency from the real send, over all workloads, in milliseconds.

    At least one transaction must have been looked up.
    """
    sent = [latency for each in load for latency in each.from_send_ms]
    return quantile(sent + [inf] * sum(each.never_final for each in load), 0.99)


def json_number(value: float | None) -> float | None:
    """The value, or ``None`` for an infinite one: JSON has no infinite numbers."""
    return None if value is None or not isfinite(value) else value


def latency_text(value: float | None) -> str:
    """A latency in milliseconds as text: "never" if it is infinite, a dash if it is missing."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if isfinite(value) else "never"


@dataclass(frozen=True, slots=True)
class LoadMoment:
    """The requests within a span of time."""

    at_ms: float
    """The start of the span, in milliseconds since the run began."""
    requests: int
    failures: int
    times_ms: Mapping[str, float]
    """The quantiles of response times (:data:`~cluster.checks.metrics.actor_classes.SHARES`), keyed by name.

    Empty if no request succeeded.
    """


def load_moments(timeline: LoadTimeline, began_epoch_ms: float) -> list[LoadMoment]:
    """A load's timeline, ascending, including spans without requests between others."""
    moments: list[LoadMoment] = []
    numbers = timeline.buckets
    for number in range(min(numbers), max(numbers) + 1) if numbers else ():
        bucket, at_ms = numbers.get(number), number * timeline.width_ms - began_epoch_ms
        if bucket is None:
            moments.append(LoadMoment(at_ms, 0, 0, {}))
            continue
        moments.append(LoadMoment(at_ms, bucket.requests, bucket.failures, _response_times(bucket)))
    return moments


def _response_times(bucket: TimeBucket) -> dict[str, float]:
    return {name: slot_ms(counted_quantile(bucket.counts, share)) for share, name in SHARES if bucket.times}


def response_times(timeline: LoadTimeline) -> dict[str, float]:
    """The quantiles of all successful requests' response times, in milliseconds, keyed by name.

    The quantiles are :data:`~cluster.checks.metrics.actor_classes.SHARES`. Empty if no request succeeded.
    """
    total = TimeBucket()
    for bucket in timeline.buckets.values():
        total.add(bucket)
    return _response_times(total)


def timeline_page(timeline: LoadTimeline, began_epoch_ms: float) -> dict[str, Any]:
    """A load's timeline in ``result.json``, in columns."""
    moments = load_moments(timeline, began_epoch_ms)
    columns: dict[str, Any] = {
        "width_ms": timeline.width_ms,
        "at_ms": [round(moment.at_ms, 3) for moment in moments],
        "requests": [moment.requests for moment in moments],
        "failures": [moment.failures for moment in moments],
    }
    return columns | {f"response_{name}_ms": [m.times_ms.get(name) for m in moments] for _, name in SHARES}
