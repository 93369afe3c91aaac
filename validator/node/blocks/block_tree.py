"""The blocks that are not final yet: which of them a node holds, which are executed, and which wait for another one.

A block is *held* once the node has its body, *ready* once its parent is executed (or final), then *running*, then
*valid* or *invalid*. A block whose parent is invalid is invalid.

The tree is bounded. A block beyond the bound is refused, with two exceptions:

- A requested block: it is an ancestor of a block that a quorum voted for, or that block itself.
- A block without transactions whose line to the final block is complete, or that is below all held blocks with an
  incomplete line. Views may fail until the tree is full, and their blocks are dropped only when another one becomes
  final. Leaders then propose blocks without transactions (:mod:`validator.node.blocks.proposals`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from validator.chain.block import Block, header_hash
from validator.node.limits import DEFAULT_BLOCK_LIMITS, BlockLimits
from validator.primitives.types import Hash


class BlockState(Enum):
    HELD = "held"
    RUNNING = "running"
    VALID = "valid"
    INVALID = "invalid"


@dataclass(slots=True)
class HeldBlock:
    """A block and its state of processing."""

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
    """The tree of the held blocks above the last final one."""

    def __init__(self, final: Hash, height: int, view: int, limits: BlockLimits = DEFAULT_BLOCK_LIMITS) -> None:
        self.final = final
        self.final_height = height
        self.final_view = view
        self._limits = limits
        self._held: dict[Hash, HeldBlock] = {}
        self._children: dict[Hash, list[Hash]] = {}
        self._bytes = 0

    def __contains__(self, digest: Hash) -> bool:
        return digest in self._held

    def get(self, digest: Hash) -> HeldBlock | None:
        return self._held.get(digest)

    def add(self, block: Block, body: bytes, *, is_asked_for: bool = False) -> HeldBlock | None:
        """Hold a block and return it; ``None`` if it can never become final on this chain, or if there is no room.

        ``is_asked_for``: the block was requested, so it is held even if the tree is full. For another block, a full
        tree drops blocks whose line to the final one is incomplete, the highest first: a flood of unconnected blocks
        gains nothing.
        """
        digest = header_hash(block.header)
        held = self._held.get(digest)
        if held is not None:
            return held
        if block.header.height <= self.final_height or not self.follows_its_parent(block):
            return None
        if not is_asked_for and not self._make_room(block, len(body)):
            return None
        held = self._held[digest] = HeldBlock(digest, block, body)
        self._children.setdefault(held.parent, []).append(digest)
        self._bytes += len(body)
        return held

    def follows_its_parent(self, block: Block) -> bool:
        """Whether the height is one above the parent's; true if the parent is unknown."""
        parent = Hash(block.header.parent_hash)
        if (parent == self.final) != (block.header.height == self.final_height + 1):
            return False
        if parent == self.final:
            return True
        held = self._held.get(parent)
        return held is None or block.header.height == held.height + 1

    def is_executed(self, digest: Hash) -> bool:
        """Whether a block is the final one or was executed as valid, so that its children can be executed."""
        if digest == self.final:
            return True
        held = self._held.get(digest)
        return held is not None and held.state is BlockState.VALID

    def first_missing(self, digest: Hash) -> Hash | None:
        """The first block, from ``digest`` back to the final one, that is not held; ``None`` if the line is complete.

        A line that passes the final height without meeting the final block cannot be completed: its last digest is
        returned, and such a block is never held.
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

    def bodies(self, digest: Hash) -> tuple[bytes, ...]:
        """The bodies of the blocks from the final one (exclusive) to ``digest``, ascending. All must be held."""
        return tuple(held.body for held in self.line(digest))

    def children(self, digest: Hash) -> Iterator[HeldBlock]:
        """The held children of a block, in the order in which they came."""
        for child in self._children.get(digest, ()):
            yield self._held[child]

    def finalize(self, digest: Hash) -> None:
        """Make a held child of the final block the final one. Forget all other blocks up to its height, and their
        descendants.

        Higher blocks whose line is incomplete are kept: they may still descend from it.
        """
        held = self._held[digest]
        assert held.parent == self.final, "blocks become final in order"
        dead = {child.digest: child for child in self.children(self.final)}
        for block in self._held.values():
            is_beside = block.height == held.height + 1 and block.parent != digest
            if block.height <= held.height or is_beside:
                dead[block.digest] = block
        self.final, self.final_height, self.final_view = digest, held.height, held.block.header.view
        queue = [block for block in dead.values() if block is not held]
        while queue:
            for child in self.children(queue.pop().digest):
                if child.digest not in dead:
                    dead[child.digest] = child
                    queue.append(child)
        for block in dead.values():
            self._forget(block)

    def reorg_depth(self, digest: Hash) -> int:
        """Length of the longest branch of executed blocks that is discarded when ``digest`` becomes final.

        ``digest`` is a child of the final block.
        """
        deepest = 0
        waiting = [(child, 1) for child in self.children(self.final) if child.digest != digest]
        while waiting:
            held, depth = waiting.pop()
            if held.state is BlockState.VALID:
                deepest = max(deepest, depth)
                waiting.extend((child, depth + 1) for child in self.children(held.digest))
        return deepest

    def reject(self, held: HeldBlock) -> None:
        """Mark a block as invalid and drop its body."""
        held.state = BlockState.INVALID
        self._bytes -= len(held.body)
        held.body = b""

    def held(self) -> list[HeldBlock]:
        """All held blocks, by height, then in the order of arrival."""
        return sorted(self._held.values(), key=lambda block: block.height)

    def _make_room(self, block: Block, size: int) -> bool:
        """Drop unconnected blocks while a block of ``size`` bytes does not fit. Returns whether it may be held."""
        if self._fits(size):
            return True
        whole = self._whole_lines()
        parent = Hash(block.header.parent_hash)
        is_whole = parent == self.final or parent in whole
        loose = [held for held in self._held.values() if held.digest not in whole]
        loose.sort(key=lambda held: held.height)
        while loose and not self._fits(size) and (is_whole or loose[-1].height > block.header.height):
            self._forget(loose.pop())
        return self._fits(size) or (not block.transactions and (is_whole or not loose))

    def _fits(self, size: int) -> bool:
        most = self._limits
        return len(self._held) < most.max_held_blocks and self._bytes + size <= most.max_held_bytes

    def _whole_lines(self) -> set[Hash]:
        """The held blocks that descend from the final one."""
        whole: set[Hash] = set()
        queue = [child.digest for child in self.children(self.final)]
        while queue:
            digest = queue.pop()
            whole.add(digest)
            queue.extend(child.digest for child in self.children(digest))
        return whole

    def _forget(self, held: HeldBlock) -> None:
        del self._held[held.digest]
        self._bytes -= len(held.body)
        siblings = self._children[held.parent]
        siblings.remove(held.digest)
        if not siblings:
            del self._children[held.parent]
