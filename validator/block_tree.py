"""The node's view of blocks that are not final yet: which it holds, which of them are executed, and what waits for
what.

A block is *held* once its body is here, *ready* once its parent is executed (or final), then *running*, then *valid*
or *invalid*. A block whose parent is invalid is invalid. The tree is bounded: a block that would pass the bound is not
taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from validator.block import Block, header_hash
from validator.types import Hash

MAX_HELD_BLOCKS: Final = 1_024
MAX_HELD_BYTES: Final = 256 * 1024 * 1024


class BlockState(Enum):
    HELD = "held"
    RUNNING = "running"
    VALID = "valid"
    INVALID = "invalid"


@dataclass(slots=True)
class HeldBlock:
    """A block and how far it got."""

    digest: Hash
    block: Block
    body: bytes
    state: BlockState = BlockState.HELD

    @property
    def parent(self) -> Hash:
        return Hash(self.block.header.parent_hash)

    @property
    def height(self) -> int:
        return self.block.header.height


class BlockTree:
    """Blocks over the last final one."""

    def __init__(self, final: Hash, height: int) -> None:
        self.final = final
        self.final_height = height
        self._held: dict[Hash, HeldBlock] = {}
        self._children: dict[Hash, list[Hash]] = {}
        self._bytes = 0

    def __contains__(self, digest: Hash) -> bool:
        return digest in self._held

    def get(self, digest: Hash) -> HeldBlock | None:
        return self._held.get(digest)

    def add(self, block: Block, body: bytes) -> HeldBlock | None:
        """Hold a block; ``None`` where it is not above the final height or the tree is full."""
        digest = header_hash(block.header)
        held = self._held.get(digest)
        if held is not None:
            return held
        if block.header.height <= self.final_height:
            return None
        if len(self._held) >= MAX_HELD_BLOCKS or self._bytes + len(body) > MAX_HELD_BYTES:
            return None
        held = self._held[digest] = HeldBlock(digest, block, body)
        self._children.setdefault(held.parent, []).append(digest)
        self._bytes += len(body)
        return held

    def is_executed(self, digest: Hash) -> bool:
        """Whether a child of this block can be executed."""
        if digest == self.final:
            return True
        held = self._held.get(digest)
        return held is not None and held.state is BlockState.VALID

    def first_missing(self, digest: Hash) -> Hash | None:
        """Going back from a block to the final one, the first that is not held; ``None`` where the line is whole.

        A line that passes the final height without meeting the final block leads nowhere: its last digest is returned,
        and can never be held.
        """
        while digest != self.final:
            held = self._held.get(digest)
            if held is None:
                return digest
            digest = held.parent
        return None

    def line(self, digest: Hash) -> list[HeldBlock]:
        """The blocks from the final one (exclusive) to ``digest``, ascending. All must be held."""
        blocks: list[HeldBlock] = []
        while digest != self.final:
            blocks.append(self._held[digest])
            digest = blocks[-1].parent
        blocks.reverse()
        return blocks

    def children(self, digest: Hash) -> Iterator[HeldBlock]:
        """The held children of a block, in the order in which they came."""
        for child in self._children.get(digest, ()):
            yield self._held[child]

    def finalize(self, digest: Hash) -> None:
        """Make a held child of the final block the final one; forget what is not above it, and what descends from that.

        Blocks above whose line is not whole yet are kept: it may still lead here.
        """
        held = self._held[digest]
        assert held.parent == self.final, "blocks become final in order"
        self.final, self.final_height = digest, held.height
        dead = [block for block in self._held.values() if block.height <= self.final_height]
        for block in dead:
            if block is not held:
                dead.extend(child for child in self.children(block.digest) if child.height > self.final_height)
        for block in dead:
            self._forget(block)

    def held(self) -> list[HeldBlock]:
        """Everything held, by height, then in the order in which it came."""
        return sorted(self._held.values(), key=lambda block: block.height)

    def _forget(self, held: HeldBlock) -> None:
        del self._held[held.digest]
        self._bytes -= len(held.body)
        siblings = self._children[held.parent]
        siblings.remove(held.digest)
        if not siblings:
            del self._children[held.parent]
