"""Text that somebody else wrote, for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text without anything that a terminal would obey: what cannot be seen is written out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
