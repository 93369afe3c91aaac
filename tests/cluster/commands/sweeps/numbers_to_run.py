"""What workers run in tests: numbers that end well, that kill their worker, and that want much memory.

All leave some memory in a cycle.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

DEADLY: Final = 3
GREEDY: Final = 4
MIB: Final = 2**20
LEFT_MIB: Final = 50
"""Ten of them are more than a worker may have."""


def run(number: int, leaves: Path) -> str:
    """The result says what came of it; an odd number leaves a file."""
    left: list[object] = [bytearray(LEFT_MIB * MIB)]
    left.append(left)
    if number == DEADLY:
        os._exit(1)
    if number == GREEDY:
        try:
            bytearray(600 * MIB)
        except MemoryError:
            return "no memory"
    if number % 2:
        leaves.mkdir(parents=True, exist_ok=True)
        (leaves / "file").write_text(f"{number}")
    return f"ended {number}"
