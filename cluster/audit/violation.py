"""The violation of a rule by a block, and the checks that fail by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHAIN: Final = "chain"
TIMERS: Final = "timers"
CONSERVATION: Final = "conservation"
BOUNDS: Final = "bounds"
STATE_ROOTS: Final = "state_roots"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a block breaks."""

    check: str
    """The check that this violation fails: ``chain``, ``timers``, ``conservation``, ``bounds``
    or ``state_roots``."""
    height: int
    what: str


def hex_bytes(text: str) -> bytes:
    """The bytes of hex digits; empty for any other text."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def short(key: bytes) -> str:
    """The first 16 hex digits of a hash or an id, for use in messages."""
    return key.hex()[:16]
