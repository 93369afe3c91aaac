"""Words and numbers in text for people: plurals, lists, and what a terminal must not obey."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, word: str) -> str:
    """``1 height``, ``1,200 heights``."""
    return f"{count:,} {plural(count, word)}"


def plural(count: int, word: str) -> str:
    """The word for so many of something, of a word that takes an s."""
    return word if count == 1 else f"{word}s"


def first_few(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: so many of the names, and how many there are besides."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def listed(word: str, numbers: Sequence[int]) -> str:
    """``height 15``, ``heights 15, 16``: numbers under the word for what they are."""
    return f"{plural(len(numbers), word)} {', '.join(f'{number:,}' for number in numbers)}"


def printable(text: str) -> str:
    """A text without anything that a terminal would obey: what cannot be seen is written out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
