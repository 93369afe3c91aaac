"""The chains that validators served: the parts of each block that are compared, and the longest chain of a run.

A block that is in the run's store is decoded once for all validators.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cluster.record.archive import BlockRecord
from cluster.record.chain_store import BlockStore, ServedBlocks, differing_places, joined
from cluster.record.run import ValidatorRecord
from spec.encoding import NO_HASH, Unreadable, read_block


@dataclass(frozen=True, slots=True)
class ServedBlock:
    """The parts of a served block that are compared between validators: its hash, both state roots, its view."""

    block_hash: bytes
    header_root: bytes
    computed_root: bytes
    view: int
    """The consensus view in which it was proposed."""


NOTHING_READ: Final = ServedBlock(NO_HASH, NO_HASH, NO_HASH, 0)


class StoredChain:
    """The :class:`ServedBlock` of every block in a store, kept in columns."""

    def __init__(self) -> None:
        self.tip = 0
        self.views = array("Q")
        self.wrong_roots: list[int] = []
        """Heights at which the computed root is not the header's."""
        self.unreadable: list[int] = []
        """Heights of blocks that cannot be read, ascending."""
        self._hashes = bytearray()

    def read(self, store: BlockStore) -> None:
        """Decode the blocks that were appended to the store since the last call."""
        while self.tip < len(store):
            self.tip += 1
            block = read_served(store.at(self.tip))
            if block is None:
                self.unreadable.append(self.tip)
                block = NOTHING_READ
            elif block.header_root != block.computed_root:
                self.wrong_roots.append(self.tip)
            self.views.append(block.view)
            self._hashes += block.block_hash + block.header_root + block.computed_root

    def at(self, height: int) -> ServedBlock:
        size = len(NO_HASH)
        at = 3 * size * (height - 1)
        digest, root, computed = (bytes(self._hashes[at + n * size : at + (n + 1) * size]) for n in range(3))
        return ServedBlock(digest, root, computed, self.views[height - 1])


@dataclass(frozen=True, slots=True)
class ServedChain:
    """The blocks that a validator served, up to the first one that cannot be decoded. It is falsy if there are none."""

    first_height: int
    tip: int
    """Height of the last block; 0 if there is none."""
    differing: dict[int, ServedBlock] = field(default_factory=dict)
    """The blocks that differ from the store's, ascending by height."""
    stored: StoredChain = field(default_factory=StoredChain)

    def __bool__(self) -> bool:
        return self.tip > 0

    def __len__(self) -> int:
        return self.tip - self.first_height + 1 if self.tip else 0

    def has(self, height: int) -> bool:
        return self.first_height <= height <= self.tip

    def at(self, height: int) -> ServedBlock | None:
        """The block at a height; ``None`` if there is none."""
        if not self.has(height):
            return None
        return self.differing.get(height) or self.stored.at(height)

    def items(self) -> Iterator[tuple[int, ServedBlock]]:
        """Every block with its height, ascending."""
        for height in range(self.first_height, self.tip + 1) if self.tip else ():
            yield height, self.differing.get(height) or self.stored.at(height)

    @property
    def wrong_roots(self) -> list[int]:
        """The heights at which the computed root is not the header's, ascending."""
        own = {height for height, block in self.differing.items() if block.computed_root != block.header_root}
        others = (height for height in self.stored.wrong_roots if self.has(height) and height not in self.differing)
        return sorted(own.union(others))


def read_served(record: BlockRecord) -> ServedBlock | None:
    """The parts of a block that are compared; ``None`` if it cannot be read."""
    try:
        block = read_block(record.block)
    except Unreadable:
        return None
    return ServedBlock(block.hash, block.header.state_root, record.computed_root, block.header.view)


class ChainReader:
    """Decodes the chains that validators served, each distinct block once."""

    def __init__(self) -> None:
        self._stored: dict[int, tuple[BlockStore, StoredChain]] = {}
        self._known: dict[bytes, tuple[bytes, bytes, int]] = {}
        """The hash, header root and view of blocks that are in no store, keyed by the block's bytes."""

    def stored(self, store: BlockStore) -> StoredChain:
        """The decoded blocks of a store. Blocks that were decoded before are not decoded again."""
        _, chain = self._stored.setdefault(id(store), (store, StoredChain()))
        chain.read(store)
        return chain

    def read(self, validator: ValidatorRecord) -> ServedChain:
        """The chain that a validator served."""
        first, blocks = validator.first_height, validator.blocks
        if isinstance(blocks, ServedBlocks):
            stored, own = self.stored(blocks.store), blocks.differing
        else:
            stored, own = StoredChain(), dict(enumerate(blocks, start=first))
        last = first + len(blocks) - 1
        read = {height: self._read(record) for height, record in own.items()}
        unread = [height for height, block in read.items() if block is None]
        unread += [height for height in stored.unreadable if first <= height <= last and height not in read]
        tip = min(unread, default=last + 1) - 1
        differing = {height: block for height, block in read.items() if block is not None and height <= tip}
        return ServedChain(first, tip if tip >= first else 0, differing, stored)

    def _read(self, record: BlockRecord) -> ServedBlock | None:
        known = self._known.get(record.block)
        if known is None:
            block = read_served(record)
            if block is not None:
                self._known[record.block] = (block.block_hash, block.header_root, block.view)
            return block
        digest, root, view = known
        return ServedBlock(digest, root, record.computed_root, view)


def heights_apart(chains: Sequence[ServedChain]) -> list[int]:
    """The heights at which chains may differ, ascending.

    They are those at which a chain's block is not the store's, or all heights if the chains have different stores.
    """
    if len({id(chain.stored) for chain in chains}) > 1:
        return sorted({height for chain in chains for height, _ in chain.items()})
    return sorted({height for chain in chains for height in chain.differing})


def heights_held_by_two(chains: Iterable[ServedChain], until: int) -> int:
    """The number of heights up to ``until`` at which at least two chains have a block."""
    steps: dict[int, int] = {}
    for chain in chains:
        last = min(chain.tip, until)
        if chain.first_height <= last:
            steps[chain.first_height] = steps.get(chain.first_height, 0) + 1
            steps[last + 1] = steps.get(last + 1, 0) - 1
    found = held = before = 0
    for height in sorted(steps):
        found += (height - before) * (held > 1)
        held, before = held + steps[height], height
    return found


def longest_chain(validators: Sequence[ValidatorRecord]) -> Sequence[BlockRecord]:
    """The longest chain of blocks from height 1 on that validators served. Byzantine validators do not count.

    It is the longest chain served by one validator from height 1 on; of equally long ones, an unmutated validator's.
    It is extended by the further blocks of validators that joined later and share its last blocks.
    """
    validators = [validator for validator in validators if not validator.byzantine]
    held = [validator for validator in validators if validator.blocks and validator.first_height == 1]
    longest = max(held, key=lambda v: (v.tip, v.mutant is None, -v.index), default=None)
    chain: Sequence[BlockRecord] = [] if longest is None else longest.blocks
    for validator in sorted(validators, key=lambda v: v.first_height):
        overlap = len(chain) + 1 - validator.first_height
        if not 0 < overlap < len(validator.blocks) or validator.first_height == 1:
            continue
        if is_part(replace(validator, blocks=validator.blocks[:overlap]), chain):
            chain = joined(chain, validator.blocks[overlap:])
    return chain


def is_part(validator: ValidatorRecord, chain: Sequence[BlockRecord]) -> bool:
    """Whether every block of a validator, with its receipts, equals the block of ``chain`` at the same height."""
    mine, same = validator.blocks, chain[validator.first_height - 1 : validator.tip]
    return len(mine) == len(same) and all(
        mine[place].block == same[place].block and mine[place].receipts == same[place].receipts
        for place in differing_places(mine, same)
    )
