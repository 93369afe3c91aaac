"""The state as the specification's tree has it, and the programs of ``docs/state.md``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

from spec.tree import SLACK, Tree

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "state.md"


def documented_programs() -> dict[str, Any]:
    """What the programs on the page define."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks, "docs/state.md lost its program"
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)
    return names


PROGRAMS = documented_programs()


class NaiveState:
    """A state of one height. Never changed: :meth:`apply` gives another one."""

    def __init__(self, slack: int = SLACK) -> None:
        self.height = 0
        self.tree = Tree(slack)

    def apply(self, batch: Mapping[bytes, bytes | None], height: int) -> NaiveState:
        """The state after a batch."""
        after = NaiveState()
        after.height = height
        vars(after.tree).update({name: copy(value) for name, value in vars(self.tree).items()})
        after.tree.apply(height, batch)
        return after

    @property
    def items(self) -> dict[bytes, bytes]:
        """Keys and values, keys ascending."""
        return dict(sorted(self.tree.values.items()))

    @property
    def root(self) -> bytes:
        """The state root, as specified."""
        return self.tree.root
