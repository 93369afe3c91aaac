"""Suggestions for an unknown name: the closest known one, or the list of known ones."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable
from typing import Any, Final

CLOSE: Final = 0.7
"""Minimum similarity of a suggestion, from 0 to 1."""
MAX_LISTED: Final = 24
_DIGITS: Final = re.compile(r"\d+")


def closest(name: str, names: Iterable[str]) -> str | None:
    """The known name closest to an unknown one; ``None`` if no name is close.

    A name that differs in its numbers is not suggested: ``validator-0`` is no suggestion for ``validator-7``.
    """
    numbers = _DIGITS.findall(name)
    known = [each for each in names if not numbers or _DIGITS.findall(each) in ([], numbers)]
    for each in known:
        if sorted(each) == sorted(name):
            return each  # swapped letters are more likely than replaced ones
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=CLOSE)), None)


def instead(name: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: ``did you mean NAME?`` with the closest name, or ``there are`` and all names."""
    return _meant_or("there are ", name, names)


def unknown(what: str, name: Any, names: Iterable[str]) -> str:
    """The error for an unknown name, with a suggestion or the list of names."""
    return f"unknown {what} {reprlib.repr(name)}; {meant_or_known(str(name), names)}"


def meant_or_known(name: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: ``did you mean NAME?`` with the closest name, or ``known:`` and all names."""
    return _meant_or("known: ", name, names)


def _meant_or(prefix: str, name: str, names: Iterable[str]) -> str:
    known = list(names)
    meant = closest(name, known)
    return f"did you mean {meant}?" if meant is not None else f"{prefix}{listing(known)}"


def listing(names: Iterable[str]) -> str:
    """The names as one line; of a long list, the first ones and the last."""
    known = list(names)
    if len(known) > MAX_LISTED:
        known = [*known[: MAX_LISTED - 2], "…", known[-1]]
    return ", ".join(known)
