"""Metrics of a run, for the result file and the report: pure functions of the record and its books.

Times are milliseconds since the run began. A metric that cannot be computed is left out, never zero. Rates cover the
time from the first to the last finalised height, so that start-up does not dilute them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import truediv
from typing import Final, NamedTuple

from cluster.audit.books import Books
from cluster.audit.figures import RunKind, TimerState
from cluster.audit.safety.certificates import members_of
from cluster.checks.metrics.actor_classes import SHARES, ActorUse, jain_index
from cluster.checks.metrics.load_latency import WorkloadLatency, latency_metrics
from cluster.checks.metrics.recovery import recovery_of
from cluster.common.quantiles import counted_quantile, quantile
from cluster.record.lag import lag_by_host
from cluster.record.run import RunRecord
from cluster.scenario.genesis import validators_of
from consensus.leader import ELECTIONS
from consensus.types import View

MAX_SERIES_HEIGHTS: Final = 20_000
SERIES_EXTREMES: Final = ("_min", "_max")
"""Suffixes of a metric in the series of a long run: its least and its largest value in a range of heights."""
BYTES_PER_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Stall:
    """A span of time without a new final block on any validator."""

    length_ms: float
    after_height: int
    began_ms: float = 0.0
    """When ``after_height``, the last height before the stall, became final, in milliseconds since the run began."""

    @property
    def ended_ms(self) -> float:
        return self.began_ms + self.length_ms


def finality_latencies(record: RunRecord) -> dict[int, float]:
    """Milliseconds from a block's first sight to its first finalization, keyed by height."""
    return {
        height: max(0.0, at - record.proposals[height])
        for height, at in record.first_finalizations.items()
        if height in record.proposals
    }


def stalls(record: RunRecord) -> list[Stall]:
    """The spans between consecutive advances of the highest final height, in order.

    If the run ended short of its target without being interrupted, the span from the last advance to the end counts
    too.
    """
    moments: list[tuple[float, int]] = []
    for at, height in sorted((at, -height) for height, at in record.first_finalizations.items()):
        if not moments or -height > moments[-1][1]:
            moments.append((at, -height))
    found = [Stall(later - earlier, height, earlier) for (earlier, height), (later, _) in pairwise(moments)]
    if moments and moments[-1][1] < record.target_height and not record.interrupted:
        found.append(Stall(record.duration_ms - moments[-1][0], moments[-1][1], moments[-1][0]))
    return found


def longest_stall(record: RunRecord) -> Stall | None:
    """The longest of the :func:`stalls`; ``None`` if there is none."""
    return max(stalls(record), key=lambda stall: stall.length_ms, default=None)


def stalls_beyond_limit(record: RunRecord) -> list[Stall]:
    """The stalls that are longer than the scenario allows."""
    return [stall for stall in stalls(record) if stall.length_ms > record.scenario.success.stall_ms]


def run_metrics(books: Books, actors: Sequence[ActorUse], latencies: Sequence[WorkloadLatency]) -> dict[str, float]:
    """The metrics of a run by name (:mod:`cluster.scenario.metric_names`), including the driver's own.
    ``actors`` are the run's :func:`~cluster.checks.metrics.actor_classes.use_by_actor`, ``latencies`` its
    :func:`~cluster.checks.metrics.load_latency.load_latencies`."""
    record, load, lags = books.record, books.record.load, lag_by_host(books.record)
    found = {"duration_s": record.duration_ms / 1_000} | _chain_metrics(books) | _time_metrics(books)
    found |= _lateness_metrics(actors)
    jain = jain_index([use.served_share for use in actors])
    if jain is not None:
        found["fairness_jain_index"] = jain
    found["load_requests"] = load.requests
    found["load_failures"] = load.failures
    found["load_transactions_sent"] = load.transactions_sent
    found["load_transactions_rejected"] = load.transactions_rejected
    found |= latency_metrics(latencies) | _resource_metrics(record)
    driver_lag_ms = lags.pop(None)
    found |= {"host_lag_ms": max(lags.values(), default=0.0), "driver_lag_ms": driver_lag_ms, **record.metrics}
    return {name: round(value, 3) for name, value in found.items()}


def samples(books: Books, actors: Sequence[ActorUse]) -> dict[str, Counter[float]]:
    """The samples of a run by name (:mod:`cluster.scenario.metric_names`): how often each value occurred.

    There is one sample per block, due timer or height.
    """
    blocks = books.ledger.blocks
    first = books.record.first_finalizations
    intervals = [at - first[height - 1] for height, at in first.items() if height - 1 in first]
    return {
        "finality_latency_ms": Counter(finality_latencies(books.record).values()),
        "block_interval_ms": Counter(intervals),
        "lateness_blocks": Counter({float(late): count for late, count in _lateness(actors).items()}),
        "fires_per_block": Counter(map(float, blocks.fires)),
        "transactions_per_block": Counter(map(float, blocks.transactions)),
        "backlog_timers": Counter(map(float, blocks.backlog)),
    }


def _chain_metrics(books: Books) -> dict[str, float]:
    ledger, blocks = books.ledger, books.ledger.blocks
    found: dict[str, float] = {
        "heights": ledger.height,
        "heights_common": books.common_height,
        "transactions": ledger.transactions,
        "transactions_reverted": sum(blocks.reverted),
        "fires": ledger.timers.fires,
        "fires_failed": ledger.outcomes.failed[RunKind.FIRE],
        "messages": sum(blocks.messages),
        "messages_reverted": ledger.outcomes.failed[RunKind.MESSAGE],
        "callbacks_failed": ledger.outcomes.failed[RunKind.CALLBACK],
        "agent_queries": sum(blocks.queries),
        "timers_scheduled": ledger.timers.scheduled,
        "timers_cancelled": ledger.timers.states[TimerState.CANCELLED],
        "timers_expired": ledger.timers.states[TimerState.EXPIRED],
        "timers_insufficient_funds": ledger.timers.states[TimerState.INSUFFICIENT_FUNDS],
        "timers_pending_at_end": len(ledger.world.timers),
        "backlog_at_end": ledger.backlog,
        "burned": ledger.burned,
        "burned_cycle": ledger.burned_cycle,
        "burned_cell": ledger.burned_cell,
        "burned_lane_timer": ledger.burned_lane_timer,
        "tips": ledger.tips,
    }
    if blocks:
        lane = blocks.basefee_lane_timer
        found["backlog_max"] = max(blocks.backlog)
        found["fires_per_block_max"] = max(blocks.fires)
        found["lane_use_mean_share"] = sum(map(truediv, blocks.lane_cycles, blocks.lane_limit)) / len(blocks)
        found.update(basefee_lane_first=lane[0], basefee_lane_last=lane[-1], basefee_lane_max=max(lane))
    return found


def _lateness(actors: Sequence[ActorUse]) -> Counter[int]:
    """The lateness in blocks of all timers that came due (:attr:`ActorUse.lateness`)."""
    found: Counter[int] = Counter()
    for use in actors:
        found.update(use.lateness)
    return found


def _lateness_metrics(actors: Sequence[ActorUse]) -> dict[str, float]:
    lateness = _lateness(actors)
    if not lateness:
        return {}
    return {f"lateness_{name}_blocks": counted_quantile(lateness, share) for share, name in (*SHARES, (1.0, "max"))}


def _time_metrics(books: Books) -> dict[str, float]:
    record = books.record
    first = record.first_finalizations
    found: dict[str, float] = {}
    if first:
        found["first_block_ms"] = min(first.values())
    if len(first) > 1:
        low, high = min(first), max(first)
        seconds = (max(first.values()) - min(first.values())) / 1_000
        if seconds > 0:
            blocks = books.ledger.blocks
            found["blocks_per_second"] = (high - low) / seconds
            found["fires_per_second"] = sum(blocks.fires[low:high]) / seconds
            found["transactions_per_second"] = sum(blocks.transactions[low:high]) / seconds
    latencies = list(finality_latencies(record).values())
    if latencies:
        for share, name in SHARES:
            found[f"finality_latency_{name}_ms"] = quantile(latencies, share)
    stall = longest_stall(record)
    if stall is not None:
        found["longest_stall_ms"] = stall.length_ms
    recovery = recovery_of(books)
    if recovery is not None and recovery.took_ms is not None:
        found["recovery_ms"] = recovery.took_ms
    return found


def _resource_metrics(record: RunRecord) -> dict[str, float]:
    """The metrics of resources: the highest observed use of disk, memory and open files by any validator."""
    looks = record.resources
    memory = [look.memory_bytes for look in looks if look.memory_bytes is not None]
    files = [look.open_files for look in looks if look.open_files is not None]
    found: dict[str, float] = {}
    if looks:
        found["disk_max_mb"] = max(look.disk_bytes for look in looks) / BYTES_PER_MB
    if memory:
        found["memory_max_mb"] = max(memory) / BYTES_PER_MB
    if files:
        found["open_files_max"] = max(files)
    return found


# --- by height ------------------------------------------------------------------------------------------------------


def series(books: Books) -> dict[str, list[float | None]]:
    """Metrics of each height, in columns by name, ascending by height, for comparing runs. ``None`` if unknown.

    With more than :data:`MAX_SERIES_HEIGHTS` heights each entry is a range of neighbouring heights: ``height`` is its
    first one, each metric is the mean of the known values, and ``NAME_min`` and ``NAME_max`` are its extremes.
    """
    latencies = finality_latencies(books.record)
    first = books.record.first_finalizations
    blocks = books.ledger.blocks
    heights: list[float | None] = list(range(1, len(blocks) + 1))
    columns: dict[str, list[float | None]] = {
        "finality_latency_ms": [_rounded(latencies.get(height)) for height in range(1, len(blocks) + 1)],
        "block_interval_ms": [_rounded(_between(first, height)) for height in range(1, len(blocks) + 1)],
        "fires": list(blocks.fires),
        "transactions": list(blocks.transactions),
        "backlog": list(blocks.backlog),
        "lane_use_share": list(map(_rounded, map(truediv, blocks.lane_cycles, blocks.lane_limit))),
        "basefee_lane": list(blocks.basefee_lane_timer),
    }
    size = -(-len(blocks) // MAX_SERIES_HEIGHTS)
    if size <= 1:
        return {"height": heights, **columns}
    found = {"height": heights[::size]}
    for name, values in columns.items():
        parts = [
            [value for value in values[start : start + size] if value is not None]
            for start in range(0, len(values), size)
        ]
        found[name] = [_rounded(sum(part) / len(part)) if part else None for part in parts]
        for end, extreme in zip(SERIES_EXTREMES, (min, max), strict=True):
            found[name + end] = [extreme(part, default=None) for part in parts]
    return found


def _between(first: Mapping[int, float], height: int) -> float | None:
    """The time between the first finalizations of the previous height and this one; ``None`` if one is unknown."""
    at, before = first.get(height), first.get(height - 1)
    return None if at is None or before is None else max(0.0, at - before)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


MAX_VIEWS: Final = 200_000
"""The most views whose leaders are counted, up to the newest final one."""


class Participation(NamedTuple):
    """One validator's part in consensus."""

    name: str
    led: int
    """Views that it led, up to that of the newest final block."""
    proposed: int
    """Final blocks that it proposed."""
    votes: int
    """Certificates with its vote."""
    certificates: int
    """Certificates that it could have signed, since it was a member of the committee."""
    height: int
    """Its final height."""


def participation(books: Books) -> list[Participation]:
    """The part of each validator in consensus, in the order of their indices."""
    record = books.record
    validators = validators_of(record.genesis, record.scheme)
    election = ELECTIONS[record.scenario.consensus.leader_election](validators, record.genesis.chain_id.encode())
    views = books.views
    newest = max(views.values(), default=0)
    counted_views = range(max(1, newest - MAX_VIEWS + 1), newest + 1)
    led: Counter[int] = Counter(election.leader(View(view)) for view in counted_views)
    proposed = Counter(books.ledger.blocks.proposer)
    votes: Counter[int] = Counter()
    certificates: Counter[int] = Counter()
    for height, signers in ({} if record.monitor is None else record.monitor.voters).items():
        votes.update(signers)
        certificates.update(members_of(validators, views.get(height, newest)))
    return [
        Participation(
            each.name,
            led[each.index],
            proposed[each.index],
            votes[each.index],
            certificates[each.index],
            books.chains[each.name].tip,
        )
        for each in record.validators
    ]
