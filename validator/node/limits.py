"""The limits of a node. Validators may differ in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from validator.chain.messages import MAX_BLOCKS_ASKED

MOST_TRANSACTIONS: Final = 100_000
"""Upper bound of :attr:`PoolLimits.max_transactions`."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The limits of :mod:`validator.node.mempool`."""

    max_transactions: int = 20_000
    max_bytes: int = 64 * 1024 * 1024
    max_nonces: int = 256
    """Number of nonces, from the account's on, that a sender may use. So this many of its transactions can wait."""
    near_nonces: int = 16
    """Number of a sender's nonces, from the account's on, whose transactions can evict others from a full pool. Those
    with later nonces are evicted first."""
    max_sender_bytes: int = 4 * 1024 * 1024
    max_evictions: int = 16
    """Maximum number of transactions, of those that could run in the next block, that are evicted for one newcomer."""
    max_idle_senders: int = 20_000
    """Maximum number of senders without a waiting transaction whose accounts are remembered."""
    max_blocks_refused: int = 16
    """Number of final blocks for which a refused sender comes after the others."""
    max_blocks_waiting: int = 128
    """Number of final blocks after which a transaction that no block included is dropped."""


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """The limits of :mod:`validator.node.blocks`."""

    max_held_blocks: int = 1_024
    """Maximum number of blocks held above the final one. :mod:`validator.node.blocks.block_tree` names exceptions."""
    max_held_bytes: int = 256 * 1024 * 1024
    """Maximum total size in bytes of the bodies of the held blocks."""
    max_proven_ahead: int = 2 * MAX_BLOCKS_ASKED
    """Once this many blocks are proved final and wait for execution, no more are requested."""
    journal_blocks: int = 64
    """Number of final blocks between two replacements of the journal."""


DEFAULT_POOL_LIMITS: Final = PoolLimits()
DEFAULT_BLOCK_LIMITS: Final = BlockLimits()
