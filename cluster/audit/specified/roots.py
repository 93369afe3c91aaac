"""State roots by the specification, of each height in turn, while the state is small."""

from __future__ import annotations

from typing import Final

from spec.encoding import Hash
from spec.leaves import leaves
from spec.tree import Tree
from spec.world import World

MOST_LEAVES: Final = 2_000
"""The leaves of a state up to which it has a root. A root of as many takes some 30 ms of processor time."""


class StateRoots:
    """The state tree of a chain of the specification. Its root is asked for at the genesis, then after each block.

    A root depends on all blocks before. So there is none any more once a state had too many leaves.
    """

    def __init__(self, last_height: int | None = None) -> None:
        """``last_height``: the last height that has a root."""
        self._last_height = last_height
        self._tree: Tree | None = Tree()

    def root(self, world: World) -> Hash | None:
        """The state root after the last block."""
        if self._tree is None:
            return None
        is_past = self._last_height is not None and world.height > self._last_height
        if is_past or len(state := leaves(world)) > MOST_LEAVES:
            self.end()
            return None
        self._tree.apply(world.height, dict.fromkeys(self._tree.values) | state)
        return self._tree.root

    def leaves(self, world: World) -> dict[bytes, bytes]:
        """The leaves of the tree after the last block, whose root was asked for."""
        return leaves(world) if self._tree is None else self._tree.values

    def end(self) -> None:
        """Have no root any more."""
        self._tree = None
