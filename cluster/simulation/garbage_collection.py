"""Python's cyclic collector, called less often while a simulation runs.

Messages, effects and the records of a block are made by the hundred thousand, none of them in a cycle: reference counts
free them. With its usual thresholds the collector walks the states of all validators again and again meanwhile
(measured: a tenth of an idle run's time, a quarter of one with full blocks). Cycles that do arise are still collected.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.common.limits import COLLECTOR_THRESHOLDS


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect less often inside, and as before afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
