"""Text for readers: plurals, lists, and escaped control characters."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, word: str) -> str:
    """A count with its word in the singular or plural: ``1 height``, ``1,200 heights``."""
    return f"{count:,} {plural(count, word)}"


def plural(count: int, word: str) -> str:
    """The word, with an *s* unless ``count`` is 1."""
    return word if count == 1 else f"{word}s"


def first_few(names: Sequence[str], most: int) -> str:
    """A list of at most ``most`` names, with the number of those left out: ``a, b and 3 more``."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def listed(word: str, numbers: Sequence[int]) -> str:
    """A word, in the singular or plural, with its numbers: ``height 15``, ``heights 15, 16``."""
    return f"{plural(len(numbers), word)} {', '.join(f'{number:,}' for number in numbers)}"


def printable(text: str) -> str:
    """A text with control characters and other unprintable ones escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
