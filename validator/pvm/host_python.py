"""Properties of the running Python that programs could observe, and how they are hidden.

Options with which Python was started must not affect programs. Its optimisation, its warnings and its limit of digits
do not: programs are compiled with every option given, assertions are implemented by the VM, and no integer has more
than 78 digits, while Python's limit cannot be set below 640. Two options cannot be overridden here. With ``-b`` and
``-bb`` Python warns or fails when bytes are compared with texts, as happens with keys of one dict inside Python; with a
low recursion limit it fails where programs may nest deeply. Such a Python runs no programs.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Final

FRAMES_NEEDED: Final = 400
"""Number of call frames that must be available below Python's recursion limit. A program takes up to 64 for its calls
and 130 for a comparison, and compiling takes some more."""


class UnfitPython(Exception):
    """This Python was started with options with which programs would run differently than on other validators.

    The message says how to start it.
    """


def require_fit_python() -> None:
    """Raise :class:`UnfitPython` if this Python would run programs differently than on other validators."""
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
