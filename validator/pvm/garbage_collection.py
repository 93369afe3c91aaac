"""Python's cyclic garbage collector while a program runs or is compiled: it visits only the youngest objects.

By default the collector repeatedly walks all live objects as the heap grows, which no program pays for. A handler that
kept many tuples ran up to ten times as long for the same charge. With this module each young object is visited once, so
the cost of collection is proportional to what the program created and paid for. Most lists that contain themselves are
freed by that. Reference cycles that survive are freed before the next program runs, once programs have been charged for
enough cycles to make much garbage. Python's own thresholds do not suffice for that: they count containers, and a few
containers may hold gigabytes. Garbage is not freed when a program ends, since the error of a failed program still holds
its objects. Programs cannot observe any of this.

The collector belongs to the process: if another thread has set it, it is left alone, and only a setting made here is
reset. So two threads may enter and leave in any order, and the setting never remains.
"""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Final

YOUNG_ALONE: Final = (10_000, 2**31 - 1, 2**31 - 1)
"""Thresholds of the collector: it visits the youngest objects after this many new containers, and older ones never."""
CYCLES_PER_COLLECTION: Final = 200_000
"""Number of cycles charged to programs after which garbage is collected before the next program runs. A cycle leaves
about a hundred bytes of garbage at most, so this many leave about 20 MB, plus the garbage of the last program."""
OLDER: Final = 1
"""Number of the collector's generation of objects that survived one visit. A collection visits it and the youngest."""

_cycles = 0
"""Cycles that programs used since the last collection."""


def note_cycles(cycles: int) -> None:
    """Count the cycles of a program that ran."""
    global _cycles  # noqa: PLW0603 - the collector is the process's, and so is what is left for it
    _cycles += cycles


def _free_what_was_left() -> None:
    global _cycles  # noqa: PLW0603
    if _cycles >= CYCLES_PER_COLLECTION:
        _cycles = 0
        gc.collect(OLDER)


class YoungAlone:
    """Context manager: while it is active, Python's garbage collector visits only the youngest objects."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = gc.get_threshold()
        if self._before != YOUNG_ALONE:
            _free_what_was_left()
            gc.set_threshold(*YOUNG_ALONE)

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if self._before != YOUNG_ALONE == gc.get_threshold():
            gc.set_threshold(*self._before)
