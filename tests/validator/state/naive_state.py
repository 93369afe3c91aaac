"""The state as ``docs/state.md`` defines it and nothing else: a list of entries, a set of positions, a full rebuild."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "state.md"


def documented_program() -> dict[str, Any]:
    """What the program on the page defines."""
    block = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None, "docs/state.md lost its program"
    names: dict[str, Any] = {}
    exec(block.group(1), names)
    return names


documented_root: Callable[..., bytes] = documented_program()["state_root"]


class NaiveState:
    """A state that costs a full rebuild a root. Never changed: :meth:`apply` gives another one."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, bytes, int | None]] = []
        self.positions: dict[bytes, int] = {}
        self._root: bytes | None = None

    def apply(self, batch: Mapping[bytes, bytes | None]) -> NaiveState:
        """The state after a batch."""
        after = NaiveState()
        after.entries = list(self.entries)
        after.positions = dict(self.positions)
        for key in sorted(batch):
            value, position = batch[key], after.positions.get(key)
            if value == (None if position is None else after.entries[position][1]):
                continue
            after.positions.pop(key, None)
            if value is not None:
                after.positions[key] = len(after.entries)
                after.entries.append((key, value, position))
        return after

    @property
    def items(self) -> dict[bytes, bytes]:
        """Keys and values, keys ascending."""
        return {key: self.entries[self.positions[key]][1] for key in sorted(self.positions)}

    @property
    def root(self) -> bytes:
        """The state root, from the documented encoding alone."""
        if self._root is None:
            self._root = documented_root(self.entries, set(self.positions.values()))
        return self._root
