"""The state as ``docs/state.md`` defines it and nothing else: a list of entries, a map of positions, a full rebuild."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "state.md"
SLACK = 4096


def documented_programs() -> dict[str, Any]:
    """What the programs on the page define."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks, "docs/state.md lost its program"
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)
    return names


PROGRAMS = documented_programs()
documented_root: Callable[..., bytes] = PROGRAMS["state_root"]
documented_apply: Callable[..., Any] = PROGRAMS["apply"]

Row = tuple[int, int, bytes, bytes, bytes]
"""Height, previous position, next key's hash, key, value."""


class NaiveState:
    """A state that costs a full rebuild a root. Never changed: :meth:`apply` gives another one."""

    def __init__(self, slack: int = SLACK) -> None:
        self.slack = slack
        self.height = 0
        self.entries: list[Row] = []
        self.positions: dict[bytes, int] = {}
        self._root: bytes | None = None

    def apply(self, batch: Mapping[bytes, bytes | None], height: int) -> NaiveState:
        """The state after a batch."""
        after = NaiveState(self.slack)
        after.height = height
        after.entries, after.positions = documented_apply(self.entries, self.positions, height, batch, self.slack)
        return after

    @property
    def items(self) -> dict[bytes, bytes]:
        """Keys and values, keys ascending."""
        return {key: self.entries[self.positions[key]][4] for key in sorted(self.positions)}

    @property
    def root(self) -> bytes:
        """The state root, from the documented encoding alone."""
        if self._root is None:
            self._root = documented_root(self.entries, set(self.positions.values()))
        return self._root
