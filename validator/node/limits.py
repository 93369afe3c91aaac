"""The limits of a node. Validators may differ in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from validator.chain.messages import MAX_BLOCKS_ASKED

MOST_TRANSACTIONS: Final = 100_000
"""Upper bound of :attr:`PoolLimits.max_transactions`."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The limits of :mod:`validator.node.pool.mempool`."""

    max_transactions: int = 20_000
    max_bytes: int = 64 * 1024 * 1024
    max_nonces: int = 256
    """Nonces, from the account's on, that a sender may use; so this many of its transactions can wait."""
    near_nonces: int = 16
    """A sender's first nonces. Transactions with these can evict others from a full pool; those with later ones are
    evicted first."""
    max_sender_bytes: int = 4 * 1024 * 1024
    max_evictions: int = 16
    """Evictions, for one newcomer, of transactions that could run in the next block."""
    max_idle_senders: int = 20_000
    """Senders without a waiting transaction whose accounts are remembered."""
    max_blocks_refused: int = 16
    """Number of final blocks for which a refused sender comes after the others."""
    max_blocks_waiting: int = 128
    """Number of final blocks after which a transaction that no block included is dropped."""


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """The limits of :mod:`validator.node.blocks`."""

    max_held_blocks: int = 1_024
    """Blocks held above the final one; :mod:`validator.node.blocks.block_tree` names the exceptions."""
    max_held_bytes: int = 256 * 1024 * 1024
    """Total size of their bodies."""
    max_proven_ahead: int = 2 * MAX_BLOCKS_ASKED
    """Blocks that are proved final and wait for execution, beyond which no more are requested."""
    journal_blocks: int = 64
    """Final blocks between two replacements of the journal."""


DEFAULT_POOL_LIMITS: Final = PoolLimits()
DEFAULT_BLOCK_LIMITS: Final = BlockLimits()
