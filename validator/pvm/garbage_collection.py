"""Python's cyclic collector while a program runs or is compiled: it looks at the youngest objects alone.

Usually the collector walks everything that lives again and again as the heap grows, for which no program pays: tuples
that a handler keeps made its cycles take up to ten times as long. Young objects are each looked at once, so what
collecting costs grows as what the program made and paid for; lists that hold themselves are freed there for the most
part. What outlives its youth and is then held by itself alone is freed before the next program runs, once those that
ran used so many cycles that it may be much: the thresholds of whoever runs the validator count containers, and a few of
them hold gigabytes. It is not freed as a program ends, since one that failed is still held by its error. Nothing that a
program can notice depends on any of this.

It is the process's collector: who asks while somebody else has it so leaves it alone, and only what was set here is
taken back. So two threads may come and go in any order, and none of them leaves it behind like this.
"""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Final

YOUNG_ALONE: Final = (10_000, 2**31 - 1, 2**31 - 1)
"""New containers before the youngest are looked at; rounds before the older ones are: never."""
CYCLES_PER_COLLECTION: Final = 200_000
"""A cycle leaves some hundred bytes at most: these programs leave some 20 MB, and the last one its own."""
OLDER: Final = 1
"""The generation of what outlived its youth."""

_cycles = 0
"""Cycles that programs used since the last collection."""


def note_cycles(cycles: int) -> None:
    """A program ran, for so many cycles."""
    global _cycles  # noqa: PLW0603 - the collector is the process's, and so is what is left for it
    _cycles += cycles


def _free_what_was_left() -> None:
    global _cycles  # noqa: PLW0603
    if _cycles >= CYCLES_PER_COLLECTION:
        _cycles = 0
        gc.collect(OLDER)


class YoungAlone:
    """Inside, the collector looks at the youngest objects alone."""

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
