"""What was probably meant by a name that nobody knows, and which names there are."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable
from typing import Any, Final

CLOSE: Final = 0.7
"""How like each other two names are, from 0 to 1, where one was probably meant for the other."""
MAX_LISTED: Final = 24
"""Names in one line."""
_DIGITS: Final = re.compile(r"\d+")


def closest(name: str, names: Iterable[str]) -> str | None:
    """The one of some names that another one was probably meant for.

    None with other numbers in it: who says ``validator-7`` of four does not mean ``validator-0``.
    """
    numbers = _DIGITS.findall(name)
    known = [each for each in names if not numbers or _DIGITS.findall(each) in ([], numbers)]
    for each in known:
        if sorted(each) == sorted(name):
            return each  # letters out of order are the likelier slip than others in their place
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=CLOSE)), None)


def instead(name: str, names: Iterable[str]) -> str:
    """What would be right: the name that was probably meant, or those there are."""
    return _meant_or("there are ", name, names)


def unknown(what: str, name: Any, names: Iterable[str]) -> str:
    """A name that nobody knows, and what would be right: the one that was probably meant, or those there are."""
    return f"unknown {what} {reprlib.repr(name)}; {meant_or_known(str(name), names)}"


def meant_or_known(name: str, names: Iterable[str]) -> str:
    """What would be right for a name that nobody knows; all names where none is like it."""
    return _meant_or("known: ", name, names)


def _meant_or(words: str, name: str, names: Iterable[str]) -> str:
    known = list(names)
    meant = closest(name, known)
    return f"did you mean {meant}?" if meant is not None else f"{words}{listing(known)}"


def listing(names: Iterable[str]) -> str:
    """The names in one line; of very many, the first ones and the last."""
    known = list(names)
    if len(known) > MAX_LISTED:
        known = [*known[: MAX_LISTED - 2], "…", known[-1]]
    return ", ".join(known)
