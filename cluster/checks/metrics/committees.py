"""The committees that were active during a stretch of time: which of them is active follows from views."""

from __future__ import annotations

import math
from typing import Final

from cluster.audit.books import Books
from cluster.checks.metrics.metrics import first_finalizations
from cluster.checks.metrics.recovery import active_committees

VIEWS_UNTIL_FINAL: Final = 8
"""So many views at most may be current at once: the newest one, and that of a block that becomes final by it."""

VIEWS_PER_INTERVAL: Final = 2
"""Views that may pass in one block interval: honest leaders wait for so long, byzantine ones need not."""


def active_committees_during(books: Books, begun_ms: float, ended_ms: float) -> list[set[str]]:
    """The names in each committee that may have been active between two moments."""
    return active_committees(books.record, _views_during(books, begun_ms, ended_ms))


def _views_during(books: Books, begun_ms: float, ended_ms: float) -> tuple[int, int]:
    """The first and the last view that may have been current between two moments; rather too many than too few.

    They begin with that of the newest block that was final before. They end with that of the first block that became
    final afterwards, if there is one, and with as many as there can have been otherwise.
    """
    record, views = books.record, books.views
    first = first_finalizations(record)
    before = max((height for height, at in first.items() if at <= begun_ms), default=0)
    begun = max(views.get(before, 1), 1)
    after = min((height for height, at in first.items() if at > ended_ms and height in views), default=None)
    if after is not None:
        return begun, max(views[after], begun) + VIEWS_UNTIL_FINAL
    newest = max((height for height in first if height in views), default=0)
    sections = [scenario.consensus for scenario in (*record.former, record.scenario)]
    interval_ms = max(min(section.block_interval_ms for section in sections), 1)
    passed = math.ceil((ended_ms - first.get(newest, 0.0)) / interval_ms)
    return begun, views.get(newest, 1) + VIEWS_PER_INTERVAL * max(passed, 0) + VIEWS_UNTIL_FINAL
