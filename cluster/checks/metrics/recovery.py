"""The recovery of a network from its faults: the time until a quorum finalised a new height after the last fault.

To judge it, this module finds the views and committees that may have been active at a time, and bounds timeouts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster.audit.books import Books
from cluster.record.finalizations import FinalMoments
from cluster.record.run import FaultRecord, RunRecord
from cluster.scenario.genesis import validators_of
from consensus.leader import ELECTIONS, LeaderElection
from consensus.pacing import Pacing
from consensus.types import View, fault_bound, quorum

_Integers = npt.NDArray[np.int64]

VIEWS_UNTIL_FINAL: Final = 8
"""The most views by which the newest view may be ahead of the view of a block that just became final."""

VIEWS_PER_INTERVAL: Final = 2
"""Views that may pass in one block interval: honest leaders wait this long, byzantine ones need not."""


@dataclass(frozen=True, slots=True)
class NetworkRecovery:
    """The recovery of the network from the last fault."""

    last: FaultRecord
    healed_ms: float
    """When the last fault was over."""
    healed_height: int
    """The highest final height when the last fault was over."""
    took_ms: float | None
    """The time from ``healed_ms`` until a quorum finalised a higher height, in milliseconds; ``None`` if none did."""


def final_moments(record: RunRecord) -> FinalMoments:
    """When each height was first final at a validator that is not byzantine, in the order of time."""
    return record.finalizations.moments(record.scenario.validators.byzantine)


def recovery_of(books: Books) -> NetworkRecovery | None:
    """The recovery from a run's faults; ``None`` if none began, or not all of them were over at the end."""
    record = books.record
    begun = [fault for fault in record.faults if fault.begun_ms is not None]
    if not begun or any(fault.ended_ms is None for fault in begun):
        return None
    last = max(begun, key=lambda fault: fault.ended_ms or 0.0)
    healed_ms, healed_height = last.ended_ms or 0.0, record.height_when_healed
    recovered_ms = _quorum_above(books, healed_height)
    return NetworkRecovery(last, healed_ms, healed_height, None if recovered_ms is None else recovered_ms - healed_ms)


def recovery_limit_ms(books: Books, healed_ms: float = 0.0) -> int:
    """The time allowed for recovery, in milliseconds: the one that the scenario states, else a computed bound.

    The bound is :attr:`~cluster.record.run.RunRecord.recovery_ms`, with timeouts as long as they can have become. If
    they can have grown, ``2 f + 2`` views are added, for timeouts that shrank too early. ``healed_ms`` is given if
    validators may have learned late, until then, what was final.
    """
    record = books.record
    factor = 1 if record.scenario.success.recovery_ms is not None else longest_timeouts(books, healed_ms)
    if factor == 1:
        return record.recovery_ms
    views = 2 * fault_bound(record.scenario.validators.count) + 2
    return factor * (record.recovery_ms + views * record.view_change_ms)


def longest_view_change_ms(books: Books) -> int:
    """The longest time from the start of a failing view to the next proposal, in milliseconds.

    Timeouts are taken to be as long as they can have become.
    """
    return books.record.view_change_ms * longest_timeouts(books)


def longest_timeouts(books: Books, late_until_ms: float = 0.0) -> int:
    """An upper bound of the factor by which an honest validator's timeouts grew (:class:`consensus.pacing.Pacing`).

    All views between two finalizations but one count as failed, which may be too many. Finalizations are taken from
    the views of consecutive final blocks. Until ``late_until_ms`` they are also taken from when each validator learned
    what was final, which may be later.
    """
    record = books.record
    validators, namespace = validators_of(record.genesis, record.scheme), record.genesis.chain_id.encode()
    election = ELECTIONS[record.scenario.consensus.leader_election](validators, namespace)
    honest = {validator.index for validator in books.judged}
    newest = record.samples[-1].views if record.samples else ()
    entered = max((view for index, view in enumerate(newest) if view is not None and index in honest), default=0)
    final = np.array([0, *sorted(books.views.values()), entered], np.int64)
    rows = [(np.diff(final) - 1, final[1:])]
    seen: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for each in record.trace.views if late_until_ms else ():
        seen[each.validator].append((each.at_ms, each.view))
    for index in honest & seen.keys():
        moments_ms = record.finalizations.times_of(index)
        if len(seen[index]) > 1:
            rows.append(_failed_of(sorted(seen[index]), moments_ms[moments_ms <= late_until_ms]))
    final_views = record.scenario.limits.final_views
    return max(_highest_factor(counts, views, election, final_views) for counts, views in rows)


def _failed_of(
    entered: Sequence[tuple[float, int]], moments_ms: npt.NDArray[np.float64]
) -> tuple[_Integers, _Integers]:
    """For a validator and each of its finalizations: how many views can have failed before it, and the current view.

    ``entered`` has the times at which the validator entered views, with the views, ascending. For a long run it has
    only every n-th view. ``moments_ms`` are the times of the finalizations.
    """
    times_ms, views = (np.array(column) for column in zip(*entered, strict=True))
    steps = np.diff(views)
    step = int(min(steps[steps > 0], default=1))
    places = np.maximum(np.searchsorted(times_ms, moments_ms, side="right") - 1, 0)
    return step * (np.diff(places, prepend=0) - 1), views[places]


def _highest_factor(counts: _Integers, views: _Integers, election: LeaderElection, final_views: int) -> int:
    """The highest factor of timeouts if ``counts`` views failed before successive finalizations, at about ``views``."""
    pacing, highest = Pacing(final_views), 1
    for count, view in zip(counts.tolist(), map(View, views.tolist()), strict=True):
        for _ in range(count):
            pacing.enter_view(view)
            pacing.waited()
            pacing.left(given_up=True, longest_row=election.longest_row(view))
        highest = max(highest, pacing.factor)
        pacing.waited()
        pacing.finalized()
    return highest


def active_committees(record: RunRecord, views: tuple[int, int]) -> list[set[str]]:
    """The names in each committee that is active in any of these views, from the first to the last one."""
    section = record.scenario.validators
    names, committees = section.names, section.committees
    first, last = views
    newest = max(start for start in committees if start <= first)
    return [{names[index] for index in members} for start, members in committees.items() if newest <= start <= last]


def active_committees_during(books: Books, begun_ms: float, ended_ms: float) -> list[set[str]]:
    """The names in each committee that may have been active between two moments."""
    return active_committees(books.record, _views_during(books, begun_ms, ended_ms))


def _views_during(books: Books, begun_ms: float, ended_ms: float) -> tuple[int, int]:
    """The first and the last view that may have been current between two moments; rather too many than too few.

    The first is the view of the newest block that was final before. The last is that of the first block that became
    final afterwards; if there is none, the highest view that can have been reached.
    """
    record, views, moments = books.record, books.views, final_moments(books.record)
    begun = max(views.get(moments.highest(begun_ms), 1), 1)
    after = moments.lowest_after(ended_ms, views)
    if after is not None:
        return begun, max(views[after], begun) + VIEWS_UNTIL_FINAL
    newest = moments.highest_of(views)
    sections = [scenario.consensus for scenario in (*record.former, record.scenario)]
    interval_ms = max(min(section.block_interval_ms for section in sections), 1)
    passed = math.ceil((ended_ms - record.first_finalizations.get(newest, 0.0)) / interval_ms)
    return begun, views.get(newest, 1) + VIEWS_PER_INTERVAL * max(passed, 0) + VIEWS_UNTIL_FINAL


def _quorum_above(books: Books, height: int) -> float | None:
    """When a quorum of a committee active above a height had finalised a block above it; ``None`` if none did."""
    record, views, names = books.record, books.views, books.record.scenario.validators.names
    moments = {names[index]: at for index, at in record.finalizations.first_above(height).items()}
    above = [view for at, view in views.items() if at > height] or [max(views.get(height, 1), 1)]
    reached = []
    for members in active_committees(record, (min(above), max(above))):
        seen_by = sorted(moments[name] for name in members if name in moments)
        reached += seen_by[quorum(len(members)) - 1 :][:1]
    return min(reached, default=None)
