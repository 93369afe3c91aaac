"""What of the Python that runs programs they could notice, and how that is kept from them.

How Python was started must change nothing that a program does. Its optimisation, its warnings and the digits that
integers may have as text do not reach programs: they are compiled with every option given, assertions are the VM's
own, and no integer has more than 78 digits, where Python's own limit cannot be set below 640. A low recursion limit is
raised. Two flags cannot be taken back: with ``-b`` and ``-bb`` Python warns or fails where bytes meet texts, as keys of
one dict do inside Python itself. A Python that was started so runs no programs.
"""

from __future__ import annotations

import sys
from typing import Final

LEAST_RECURSION_LIMIT: Final = 1_000
"""Frames: Python's own default. A program takes 64 calls of its own and 130 of a comparison, compiling some more."""


class UnfitPython(Exception):
    """This Python was started so that it cannot run programs as every other one does; says how to start it."""


def require_fit_python() -> None:
    """Make this Python one that runs programs as every other does. Raises :class:`UnfitPython` where it cannot be."""
    if sys.flags.bytes_warning:
        flag = "-" + "b" * min(sys.flags.bytes_warning, 2)
        raise UnfitPython(
            f"Python was started with {flag}, which makes a comparison of bytes with a text fail or warn: "
            f"start it without {flag}"
        )
    if sys.getrecursionlimit() < LEAST_RECURSION_LIMIT:
        sys.setrecursionlimit(LEAST_RECURSION_LIMIT)
