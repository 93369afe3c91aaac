"""The code that a validator runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_VERSION: Final = "1"
"""Name of the code at the start of a run."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version of the code, as an upgrade brings it."""

    version: str = FIRST_VERSION
    code: str | None = None
    """On the live testnet, the folder that it is taken from; ``None`` is that of the driver's own."""
    mutant: str | None = None
    """A bug that is planted in it."""
