"""Fits a profile of the simulator to the measurements of live runs
(:mod:`cluster.scenario.sections.measurements.profile`).

- *Jobs*: the processor time of each kind is a base plus a part for each transaction and each fire, none of them
  negative. The sum of relative deviations is least, so that a few slow jobs do not pull the fit. The quotients of
  measured and fitted times are the scatter.
- *Links*: a message's delay is that of the scenario's link, evenly distributed between latency minus and plus jitter,
  plus an unknown one. Its distribution is the histogram that makes the measured delays most likely, found by
  expectation maximization.
- *Syncs, warm-up and starts*: the measured quantiles.

The fit is a pure function of the measurements, without random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cluster.common.errors import BadInput
from cluster.record.run import HAND_OVER, MESSAGE, SYNC, WARM_UP, Work
from cluster.scenario.sections.measurements.profile import MAX_US, MILLI, JobCost, ProfileSection
from kits.measure.calibrate.observed import LinkDelay, Observed

QUANTILES: Final = 51
"""Quantiles of a fitted distribution: every 2 percent."""
MIN_WORK: Final = 20
"""Fewest measurements of each kind of job, and of syncs and messages, from which a profile is fitted."""
EDGES_US: Final = (
    *range(0, 1_000, 100),
    *range(1_000, 4_000, 250),
    *range(4_000, 10_000, 1_000),
    *(10_000, 15_000, 20_000, 30_000, 50_000, 75_000, 100_000, 150_000, 250_000, 500_000, 1_000_000),
)
"""Edges of the histogram of links' additional delays."""
LINK_ROUNDS: Final = 300
JOB_ROUNDS: Final = 25
MIN_DEVIATION: Final = 0.01
"""Relative deviations of jobs below this count the same."""
RESOLUTION_US: Final = 50
"""Delays are rounded to this."""
MIN_JITTER_US: Final = 50
"""Delays are not known more precisely than this."""
FINALIZE: Final = "finalize"
JOBS: Final = ("build", "execute", FINALIZE)

Numbers = NDArray[np.float64]


def fit(observed: Observed, processors: int) -> ProfileSection:
    """Fit a profile. Raises :class:`BadInput` if there are too few measurements of a kind."""
    _require(len(observed.delays), "messages between undisturbed validators")
    spent = {kind: [work.wall_us for work in observed.work if work.kind == kind] for kind in (SYNC, MESSAGE, HAND_OVER)}
    for kind, values in spent.items():
        _require(len(values), f"durations of the kind {kind}")
    costs = fit_jobs(observed.work, processors)
    return ProfileSection(
        processors=processors,
        link_us=fit_links(observed.delays),
        sync_us=quantiles_of(spent[SYNC]),
        message_us=quantiles_of(spent[MESSAGE]),
        hand_over_us=quantiles_of(spent[HAND_OVER]),
        build=costs["build"],
        execute=costs["execute"],
        finalize=costs["finalize"],
        warm_up_us=_fit_warm_up(observed.work, costs["execute"]),
        start_us=quantiles_of(observed.starts_us),
    )


def _require(count: int, what: str) -> None:
    if count < MIN_WORK:
        raise BadInput(
            f"the live runs measured {count:,} {what}, expected at least {MIN_WORK}: raise stop.height or --runs"
        )


def quantiles_of(values: Sequence[int]) -> list[int]:
    """The quantiles of measured values, in whole units; zeros without values."""
    if not values:
        return [0, 0]
    shares = np.linspace(0.0, 1.0, QUANTILES)
    return [min(MAX_US, max(0, round(each))) for each in np.quantile(np.asarray(values, np.float64), shares).tolist()]


# --- jobs -----------------------------------------------------------------------------------------------------------


def fit_jobs(work: Sequence[Work], processors: int) -> dict[str, JobCost]:
    """Fit the processor time of each kind of job. Raises :class:`BadInput` if there are too few."""
    jobs = [each for each in work if each.kind in (*JOBS, WARM_UP)]
    shares_us = _shares_us(jobs, processors)
    found = {}
    for kind in JOBS:
        chosen = [(each, share) for each, share in zip(jobs, shares_us, strict=True) if each.kind == kind]
        _require(len(chosen), f"jobs of the kind {kind}")
        found[kind] = _fit_job([each for each, _ in chosen], [share for _, share in chosen])
    return found


def _fit_job(work: Sequence[Work], shares_us: Sequence[float]) -> JobCost:
    sizes = np.array([[1.0, each.transactions, each.fires] for each in work])
    spent = np.array([float(max(1, each.core_us)) for each in work])
    base, transaction, fire = (round(each) for each in _least_relative(sizes, spent).tolist())
    cost = JobCost(base_us=base, transaction_us=transaction, fire_us=fire, scatter_milli=[MILLI, MILLI])
    typical = [max(1, cost.typical_us(each.transactions, each.fires)) for each in work]
    factors = [round(MILLI * share / us) for share, us in zip(shares_us, typical, strict=True)]
    return cost.model_copy(update={"scatter_milli": quantiles_of(factors)})


def _shares_us(jobs: Sequence[Work], processors: int) -> list[float]:
    """The processor time that each job would have had, if the jobs under way alone had shared the processors evenly.

    Of the time of a job that waits for the disk, only its processor time counts.
    """
    begins = np.array([each.ended_ms * 1_000 - each.wall_us for each in jobs])
    ends = np.array([each.ended_ms * 1_000 for each in jobs])
    waits = np.array([each.kind == FINALIZE for each in jobs])
    busy = np.where(waits, [each.core_us / max(1, each.wall_us) for each in jobs], 1.0)
    found = []
    for place, each in enumerate(jobs):
        if waits[place]:
            found.append(float(each.core_us))
            continue
        near = np.flatnonzero((begins < ends[place]) & (ends > begins[place]))
        moments = np.unique(np.clip(np.concatenate([begins[near], ends[near]]), begins[place], ends[place]))
        middles = (moments[1:] + moments[:-1]) / 2
        under_way = ((begins[near] <= middles[:, None]) & (ends[near] >= middles[:, None])) @ busy[near]
        found.append(float(np.diff(moments) @ np.minimum(1.0, processors / np.maximum(under_way, 1.0))))
    return found


def _least_relative(sizes: Numbers, spent: Numbers) -> Numbers:
    """The coefficients, none negative, with the least sum of relative deviations, by reweighted least squares."""
    weights = np.ones(len(spent))
    found = np.zeros(sizes.shape[1])
    for _ in range(JOB_ROUNDS):
        found = _not_negative(sizes * weights[:, None], spent * weights)
        fitted = np.maximum(sizes @ found, 1.0)
        deviations = np.maximum(np.abs(fitted - spent) / fitted, MIN_DEVIATION)
        weights = 1.0 / (fitted * np.sqrt(deviations))
    return found


def _not_negative(matrix: Numbers, wanted: Numbers) -> Numbers:
    """The least squares solution without negative coefficients: the best one over all subsets of columns."""
    columns = range(matrix.shape[1])
    best, least = np.zeros(len(columns)), float(wanted @ wanted)
    for chosen in (list(each) for size in columns for each in combinations(columns, size + 1)):
        solved = np.linalg.lstsq(matrix[:, chosen], wanted, rcond=None)[0]
        rest = matrix[:, chosen] @ solved - wanted
        if (solved >= 0).all() and float(rest @ rest) < least:
            best, least = np.zeros(len(columns)), float(rest @ rest)
            best[chosen] = solved
    return best


def _fit_warm_up(work: Sequence[Work], cost: JobCost) -> list[int]:
    first = [each for each in work if each.kind == WARM_UP and each.fires]
    return quantiles_of([max(0, each.core_us - cost.typical_us(each.transactions, each.fires)) for each in first])


# --- links ----------------------------------------------------------------------------------------------------------


def fit_links(delays: Sequence[LinkDelay]) -> list[int]:
    """The quantiles of the delay that messages have in addition to their links'."""
    given = np.asarray(delays, np.float64)
    jitters = np.maximum(given[:, 2], MIN_JITTER_US)
    rests = np.clip(given[:, 0] - given[:, 1], -jitters, EDGES_US[-1] - jitters)
    kinds = np.column_stack([np.rint(rests / RESOLUTION_US) * RESOLUTION_US, jitters])
    (rest, jitter), counts = _distinct(kinds)
    low, high = np.asarray(EDGES_US[:-1], np.float64), np.asarray(EDGES_US[1:], np.float64)
    shared = np.minimum(high, (rest + jitter)[:, None]) - np.maximum(low, (rest - jitter)[:, None])
    likely = np.maximum(shared, 0.0) / (high - low)
    likely[likely.sum(axis=1) == 0.0, 0] = 1.0  # earlier than any link delivers: the clocks differ
    weights = np.full(len(low), 1.0 / len(low))
    for _ in range(LINK_ROUNDS):
        joint = likely * weights
        weights = counts @ (joint / joint.sum(axis=1, keepdims=True)) / len(delays)
    weights[weights < 0.5 / len(delays)] = 0.0  # less than half a message
    reached = np.concatenate([[0.0], np.cumsum(weights)])
    last = int(np.searchsorted(reached, reached[-1])) + 1
    shares = np.linspace(0.0, reached[-1], QUANTILES)
    return [round(each) for each in np.interp(shares, reached[:last], EDGES_US[:last]).tolist()]


def _distinct(rows: Numbers) -> tuple[Numbers, NDArray[np.int64]]:
    """The columns of the distinct rows, and how often each row occurs."""
    found, counts = np.unique(rows, axis=0, return_counts=True)
    return found.T, counts
