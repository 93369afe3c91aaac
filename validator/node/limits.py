"""The limits of a node. Each validator has its own: two may differ in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from validator.chain.messages import MAX_BLOCKS_ASKED

MOST_TRANSACTIONS: Final = 100_000
"""The most that :attr:`PoolLimits.max_transactions` may be."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The limits of :mod:`validator.node.pool.mempool`."""

    max_transactions: int = 20_000
    max_bytes: int = 64 * 1024 * 1024
    max_nonces: int = 256
    """Nonces from the account's on that a sender may use; so many of its transactions wait at most."""
    near_nonces: int = 16
    """A sender's first nonces: with these it can push others out of a full pool; those beyond are pushed out first."""
    max_sender_bytes: int = 4 * 1024 * 1024
    max_evictions: int = 16
    """Transactions that could run in the next block, and leave for one newcomer."""
    max_idle_senders: int = 20_000
    """Senders without a waiting transaction whose accounts are remembered."""
    max_blocks_refused: int = 16
    """For so many final blocks a refused sender comes after the others."""
    max_blocks_waiting: int = 128
    """After so many final blocks a transaction that no block took is dropped."""


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """The limits of :mod:`validator.node.blocks`."""

    max_held_blocks: int = 1_024
    """Blocks above the final one that are held; beyond it, those that :mod:`validator.node.blocks.block_tree` names."""
    max_held_bytes: int = 256 * 1024 * 1024
    """Bytes of their bodies."""
    max_proven_ahead: int = 2 * MAX_BLOCKS_ASKED
    """Blocks that are proved final and wait for execution, beyond which no more are asked for."""
    journal_blocks: int = 64
    """Final blocks between two replacements of the journal."""


DEFAULT_POOL_LIMITS: Final = PoolLimits()
DEFAULT_BLOCK_LIMITS: Final = BlockLimits()
