"""Keeps the lag of a run's processes, and judges which delays of the chain the lag explains.

Lag is time in which a process was ready to run, but the machine did not let it: a slow machine is not a broken chain.
Hosts and the driver measure their own lag (:mod:`cluster.live.host.lag`); the simulator has none.

Lag is judged conservatively: it counts for the validators of the host that had it, never while a fault paused them. A
stall is explained only if lag is necessary to explain it: a quorum could have run, and of those that could, fewer than
a quorum had as much time as the chain is allowed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cluster.record.run import Lag, RunRecord
from consensus.types import quorum

MAX_LAGS: Final = 4_000
"""The most lags kept per host, and of the driver. If there are more, neighbouring lags are merged in pairs."""
PAUSE: Final = "pause"


class LagLog:
    """Adds lags to a run's record, whose number it bounds by merging neighbouring lags."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._counts: Counter[int | None] = Counter(lag.host for lag in record.lags)

    def note(self, lag: Lag) -> None:
        """Add a lag to the record."""
        self._record.lags.append(lag)
        self._counts[lag.host] += 1
        if self._counts[lag.host] > MAX_LAGS:
            self._merge(lag.host)

    def _merge(self, host: int | None) -> None:
        mine = [lag for lag in self._record.lags if lag.host == host]
        merged = [
            replace(
                one,
                until_ms=other.until_ms,
                lag_ms=one.lag_ms + other.lag_ms,
                peak_share=max(one.worst_share, other.worst_share),
            )
            for one, other in zip(mine[::2], mine[1::2], strict=False)
        ]
        merged += mine[len(mine) // 2 * 2 :]
        self._record.lags[:] = [lag for lag in self._record.lags if lag.host != host] + merged
        self._counts[host] = len(merged)


def lag_by_host(record: RunRecord) -> dict[int | None, float]:
    """Milliseconds of lag of each host by its number, and of the driver (``None``), over the whole run."""
    found: dict[int | None, float] = {}
    for lag in record.lags:
        found[lag.host] = found.get(lag.host, 0.0) + lag.lag_ms
    hosts = sorted(host for host in found if host is not None)
    return {host: found.get(host, 0.0) for host in (*hosts, None)}


def running_ms(record: RunRecord, validator: int, begin_ms: float, end_ms: float) -> float:
    """How long a validator's host could run within a span of time, in milliseconds: the span without the host's lag.

    Lag during a pause of the validator by a fault does not count.
    """
    section = record.scenario.validators
    host, name = section.host_of(validator), section.names[validator]
    pauses = [
        (fault.begun_ms, record.duration_ms if fault.ended_ms is None else fault.ended_ms)
        for fault in record.faults
        if fault.kind == PAUSE and name in fault.targets and fault.begun_ms is not None
    ]
    lost_ms = sum(
        lag.within(begin_ms, end_ms)
        for lag in record.lags
        if lag.host == host and not any(lag.at_ms < end and begin < lag.until_ms for begin, end in pauses)
    )
    return max(0.0, end_ms - begin_ms - lost_ms)


def explains_delay(
    record: RunRecord, committees: Sequence[set[str]], begin_ms: float, end_ms: float, limit_ms: float
) -> str:
    """Explains in words how the machine's lag made something take longer than allowed; empty if it did not.

    It did if in no committee a quorum's hosts could run for more than ``limit_ms`` of the time from ``begin_ms`` to
    ``end_ms``. ``committees`` are those active in this time, as sets of names.
    """
    able, names = _able(record, begin_ms, end_ms), record.scenario.validators.names
    found: list[float] = []
    for members in committees:
        had = [running_ms(record, index, begin_ms, end_ms) for index in able if names[index] in members]
        needed = quorum(len(members))
        if len(had) < needed:
            return ""
        found.append(sorted(had, reverse=True)[needed - 1])
    if not found or max(found) > limit_ms:
        return ""
    return (
        f"the machine was too slow to tell: of the {end_ms - begin_ms:,.0f} ms a quorum's hosts could run for"
        f" {max(found):,.0f} ms only"
    )


def explains_shortfall(record: RunRecord, height: int, target: int, validator: int | None = None) -> str:
    """Explains in words how lag kept a quorum, or one validator, at a height below the target; empty if it did not.

    It did not if the target would not have been reached at this pace without lag either. It is not judged if a lasting
    fault leaves too few validators.
    """
    begin_ms = record.finalizations.first_ms or 0.0
    end_ms = record.duration_ms
    if end_ms <= begin_ms:
        return ""
    candidates = _able(record, end_ms, end_ms) if validator is None else [validator]
    names, hit = record.scenario.validators.names, _hit(record, end_ms, end_ms)
    length_ms, candidates = end_ms - begin_ms, [each for each in candidates if names[each] not in hit]
    shares = sorted((running_ms(record, each, begin_ms, end_ms) / length_ms for each in candidates), reverse=True)
    needed = quorum(record.scenario.validators.count) if validator is None else 1
    if len(shares) < needed:
        return ""
    share = shares[needed - 1]
    if share >= 1 or height < target * share:
        return ""
    whose = "a quorum's hosts" if validator is None else "its host"
    return f"the machine was too slow to tell: {whose} could run for {share:.0%} of the time only"


def _able(record: RunRecord, begin_ms: float, end_ms: float) -> list[int]:
    """The indices of the validators that could take part if there were no lag.

    They are neither byzantine nor mutated, and no fault hit them between the two times.
    """
    hit, section = _hit(record, begin_ms, end_ms), record.scenario.validators
    return [
        index
        for index, name in enumerate(section.names)
        if name not in hit and not section.node(index).byzantine and section.node(index).mutant is None
    ]


def _hit(record: RunRecord, begin_ms: float, end_ms: float) -> set[str]:
    """The names of the validators that a fault hit between two times. A fault without a known end still lasts."""
    hit: set[str] = set()
    for fault in record.faults:
        ended_ms = math.inf if fault.ended_ms is None else fault.ended_ms
        if fault.begun_ms is not None and fault.begun_ms < end_ms and begin_ms < ended_ms:
            hit |= {*fault.targets, *fault.impaired}
    return hit
