"""The chains that validators served: what of each block is compared, and the longest chain of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cluster.audit.chain_codec import Header, Unreadable, read_header
from cluster.record.archive import BlockRecord
from cluster.record.run import ValidatorRecord


@dataclass(frozen=True, slots=True)
class ServedBlock:
    """A block that a validator served, as far as it is compared."""

    block_hash: bytes
    header_root: bytes
    computed_root: bytes
    view: int
    """Of consensus, in which it was proposed."""


@dataclass(frozen=True, slots=True)
class ServedChain:
    """The blocks that a validator served, up to the first one that cannot be read; false without any."""

    first_height: int
    blocks: list[ServedBlock]

    def __bool__(self) -> bool:
        return bool(self.blocks)

    @property
    def tip(self) -> int:
        """Height of the last block; 0 without any."""
        return self.first_height + len(self.blocks) - 1 if self.blocks else 0

    def at(self, height: int) -> ServedBlock | None:
        """The block at a height; ``None`` if it is not among them."""
        position = height - self.first_height
        return self.blocks[position] if 0 <= position < len(self.blocks) else None

    def items(self) -> Iterator[tuple[int, ServedBlock]]:
        """Every block with its height, ascending."""
        return enumerate(self.blocks, start=self.first_height)


def served_chain(validator: ValidatorRecord, cache: dict[bytes, tuple[Header, bytes]]) -> ServedChain:
    """The chain that a validator served. ``cache`` has headers and hashes of blocks that were read before."""
    blocks: list[ServedBlock] = []
    for record in validator.blocks:
        try:
            header, digest = cache.get(record.block) or read_header(record.block)
        except Unreadable:
            break
        cache[record.block] = header, digest
        blocks.append(ServedBlock(digest, header.state_root, record.computed_root, header.view))
    return ServedChain(validator.first_height, blocks)


def longest_chain(validators: Sequence[ValidatorRecord]) -> list[BlockRecord]:
    """The blocks of the validator that has the most from height 1 on, unmutated before mutated, and whatever one that
    joined later has on top of the same blocks. Byzantine validators do not count."""
    validators = [validator for validator in validators if not validator.byzantine]
    held = [validator for validator in validators if validator.blocks and validator.first_height == 1]
    longest = max(held, key=lambda v: (v.tip, v.mutant is None, -v.index), default=None)
    chain = [] if longest is None else list(longest.blocks)
    for validator in sorted(validators, key=lambda v: v.first_height):
        overlap = len(chain) + 1 - validator.first_height
        if not 0 < overlap < len(validator.blocks) or validator.first_height == 1:
            continue
        if is_part(replace(validator, blocks=validator.blocks[:overlap]), chain):
            chain.extend(validator.blocks[overlap:])
    return chain


def is_part(validator: ValidatorRecord, chain: Sequence[BlockRecord]) -> bool:
    """Whether a validator served what a chain has at the same heights, and nothing beyond it."""
    same = chain[validator.first_height - 1 : validator.tip]
    return len(validator.blocks) == len(same) and all(
        mine.block == theirs.block and mine.receipts == theirs.receipts
        for mine, theirs in zip(validator.blocks, same, strict=True)
    )
