"""Text for readers: plurals, lists, and escaped control characters."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, word: str) -> str:
    """``1 height``, ``1,200 heights``."""
    return f"{count:,} {plural(count, word)}"


def plural(count: int, word: str) -> str:
    """The word, with an *s* unless ``count`` is 1."""
    return word if count == 1 else f"{word}s"


def first_few(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: at most ``most`` of the names."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def listed(word: str, numbers: Sequence[int]) -> str:
    """``height 15``, ``heights 15, 16``."""
    return f"{plural(len(numbers), word)} {', '.join(f'{number:,}' for number in numbers)}"


def printable(text: str) -> str:
    """A text with control characters and other unprintable ones escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
