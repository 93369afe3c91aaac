"""Properties of the running Python that programs could notice, and how they are hidden.

How Python was started must change nothing that a program does. Its optimisation, its warnings and the digits that
integers may have as text do not reach programs: they are compiled with every option given, assertions are the VM's
own, and no integer has more than 78 digits, while Python's own limit cannot be set below 640. Two things cannot be
taken back here. With ``-b`` and ``-bb`` Python warns or fails when bytes meet texts, as keys of one dict do inside
Python itself; and with a low recursion limit it fails when programs may go deep. Such a Python runs no programs.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Final

FRAMES_NEEDED: Final = 400
"""Frames that must be left: a program takes 64 calls of its own and 130 of a comparison, compiling some more."""


class UnfitPython(Exception):
    """This Python was started so that it cannot run programs as every other one does; says how to start it."""


def require_fit_python() -> None:
    """Raises :class:`UnfitPython` if this Python would not run programs as every other one does."""
    if _tells_bytes_from_texts():
        raise UnfitPython(
            "Python was started with -b, which makes a comparison of bytes with a text warn or fail: "
            "start it without -b"
        )
    try:
        _go_down(FRAMES_NEEDED)
    except RecursionError:
        raise UnfitPython(
            f"Python's recursion limit leaves less than {FRAMES_NEEDED} frames to programs: leave it at 1,000"
        ) from None


@cache
def _tells_bytes_from_texts() -> bool:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _compare(b"", "")
    return bool(warned)


def _compare(one: object, other: object) -> bool:
    return one == other


def _go_down(frames: int) -> None:
    if frames:
        _go_down(frames - 1)
