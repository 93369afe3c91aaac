"""The harness: scenarios, faults, checks, verdicts, reports, and the two drivers that run validators.

The folders are layers, and each imports from those to the left alone::

    common, misbehaviour → scenario → record, disks → faults, audit → run → checks
        → simulation, live → watches → report → tools

``simulation/`` drives validators in one process and virtual time, ``live/`` as Ray actors with real disks, sockets and
clocks. Neither knows the other, ``checks/``, ``watches/`` or ``report/``: both leave the same run record behind.

To import this package sets how often the process collects cyclic garbage. A process of the harness makes containers by
the hundred thousand, while it loads its modules and while it executes blocks. Hardly any of them is in a cycle:
reference counts free them. With its own thresholds Python's cyclic collector still walks the whole heap again and again
meanwhile (measured: a third of the time of loading a host's modules, a quarter of a simulation with full blocks, and a
block with 100,000 allocations took twice as long). Cycles are still collected, less often.
"""

import gc
from typing import Final

COLLECTOR_THRESHOLDS: Final = (50_000, 10, 5)
"""New containers before Python's cyclic collector looks at the youngest, and rounds before it looks at the next older
ones; its own first threshold is 700 or 2,000, by version."""

gc.set_threshold(*COLLECTOR_THRESHOLDS)


def set_heap_apart() -> int:
    """Take everything that lives now out of the collector's sight. Returns how many objects that are."""
    gc.collect()  # what is garbage already would stay for good
    gc.freeze()
    return gc.get_freeze_count()
