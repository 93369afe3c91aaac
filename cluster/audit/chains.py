"""The chains that validators served: the parts of each block that are compared, and the longest chain of a run."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster.record.archive import BlockRecord
from cluster.record.chain_store import BlockStore, ServedBlocks, differing_places, joined
from cluster.record.run import ValidatorRecord
from spec.encoding import Unreadable, read_block


class ServedBlock(NamedTuple):
    """The parts of a served block that are compared between validators: its hash, both state roots, its view."""

    block_hash: bytes
    header_root: bytes
    computed_root: bytes
    view: int
    """The consensus view in which it was proposed."""


def read_served(record: BlockRecord) -> ServedBlock | None:
    """The parts of a block that are compared; ``None`` if it cannot be read."""
    try:
        block = read_block(record.block)
    except Unreadable:
        return None
    return ServedBlock(block.hash, block.header.state_root, record.computed_root, block.header.view)


def read_blocks(chain: Iterable[BlockRecord]) -> list[ServedBlock]:
    """The parts of a chain's blocks that are compared, up to the first block that cannot be read."""
    found: list[ServedBlock] = []
    for record in chain:
        block = read_served(record)
        if block is None:
            break
        found.append(block)
    return found


class StoredChain:
    """What all validators need of the blocks in a store."""

    def __init__(self, store: BlockStore) -> None:
        self.store = store
        self.views = array("Q")
        """The view of each block; 0 if the block cannot be read."""
        self.wrong_roots: list[int] = []
        """Heights at which the computed root is not the header's."""
        self.unreadable: list[int] = []
        """Heights of blocks that cannot be read, ascending."""

    def read(self) -> StoredChain:
        """Decode the blocks that were appended to the store since the last call."""
        for height in range(len(self.views) + 1, len(self.store) + 1):
            block = read_served(self.store.at(height))
            self.views.append(0 if block is None else block.view)
            if block is None:
                self.unreadable.append(height)
            elif block.header_root != block.computed_root:
                self.wrong_roots.append(height)
        return self


@dataclass(frozen=True, slots=True)
class ServedChain:
    """The blocks that a validator served, up to the first one that cannot be decoded. It is falsy if there are none."""

    first_height: int
    tip: int
    """Height of the last block; 0 if there is none."""
    differing: dict[int, ServedBlock]
    """The blocks that differ from the store's, ascending by height."""
    stored: StoredChain | None = None
    """The others."""

    @property
    def heights(self) -> range:
        return range(self.first_height, self.tip + 1)

    def __len__(self) -> int:
        return len(self.heights)

    def at(self, height: int) -> ServedBlock | None:
        """The block at a height; ``None`` if there is none."""
        if height not in self.heights or self.stored is None:
            return self.differing.get(height)
        return self.differing.get(height) or read_served(self.stored.store.at(height))

    def view_at(self, height: int) -> int:
        """The view of the block at one of the chain's heights."""
        if self.stored is None or height in self.differing:
            return self.differing[height].view
        return self.stored.views[height - 1]

    @property
    def wrong_roots(self) -> list[int]:
        """The heights at which the computed root is not the header's, ascending."""
        own = {height for height, block in self.differing.items() if block.computed_root != block.header_root}
        stored = () if self.stored is None else self.stored.wrong_roots
        return sorted(own.union(height for height in stored if height in self.heights and height not in self.differing))


class ChainReader:
    """Decodes the chains that validators served, each block of a store once."""

    def __init__(self) -> None:
        self._stored: dict[int, StoredChain] = {}

    def stored(self, store: BlockStore) -> StoredChain:
        """The decoded blocks of a store. Blocks that were decoded before are not decoded again."""
        return self._stored.setdefault(id(store), StoredChain(store)).read()

    def read(self, validator: ValidatorRecord) -> ServedChain:
        """The chain that a validator served."""
        first, blocks = validator.first_height, validator.blocks
        if isinstance(blocks, ServedBlocks):
            own, stored = blocks.differing, self.stored(blocks.store)
        else:
            own, stored = dict(enumerate(blocks, start=first)), None
        read = {height: read_served(record) for height, record in own.items()}
        end = first + len(blocks)
        unread = [height for height in stored.unreadable if first <= height < end] if stored is not None else []
        unread = [height for height in unread if height not in read]
        unread += [height for height, block in read.items() if block is None]
        tip = min(unread, default=end) - 1
        differing = {height: block for height, block in read.items() if block is not None and height <= tip}
        return ServedChain(first, tip if tip >= first else 0, differing, stored)


def heights_apart(chains: Sequence[ServedChain]) -> list[int]:
    """The heights at which chains may differ, ascending.

    They are those at which a chain's block is not the store's, or all heights if the chains have different stores.
    """
    if any(chain.stored is None for chain in chains) or len({id(chain.stored) for chain in chains}) > 1:
        return sorted({height for chain in chains for height in chain.heights})
    return sorted({height for chain in chains for height in chain.differing})


def heights_held_by_two(chains: Iterable[ServedChain], until: int) -> int:
    """The number of heights up to ``until`` at which at least two chains have a block."""
    held = Counter(height for chain in chains for height in chain.heights[: max(0, until - chain.first_height + 1)])
    return sum(count > 1 for count in held.values())


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
