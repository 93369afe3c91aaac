"""Python's cyclic garbage collector while a program runs or is compiled: it visits only the youngest objects.

By default the collector repeatedly walks all live objects as the heap grows, which no program pays for: tuples that a
handler kept made its cycles take up to ten times as long. Each young object is visited once, so the cost of collection
is proportional to what the program created and paid for; most lists that contain themselves are freed there. Reference
cycles that survive are freed before the next program runs, once the programs have been charged for enough cycles to
make much garbage: the host's own thresholds count containers, and a few containers may hold gigabytes. They are not
freed when a program ends, since the error of a failed program still holds its objects. Programs cannot observe any of
this.

The collector belongs to the process: if another thread has set it, it is left alone, and only a setting made here is
reset. So two threads may enter and leave in any order, and the setting never remains.
"""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Final

YOUNG_ALONE: Final = (10_000, 2**31 - 1, 2**31 - 1)
"""Thresholds: new containers before the youngest are visited; rounds before the older ones are (never)."""
CYCLES_PER_COLLECTION: Final = 200_000
"""Cycles of programs after which garbage is collected. A charged cycle leaves about a hundred bytes at most: these
programs leave about 20 MB, plus the garbage of the last one."""
OLDER: Final = 1
"""The generation of objects that survived the youngest."""

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
    """Within this context, the collector visits only the youngest objects."""

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
