"""Common parts of attacks on the mempool: transactions that stay in it and cannot run."""

from __future__ import annotations

from typing import Final

from loadgen.workloads.base import Intent, Member, Observation, Terms
from validator.chain.transactions import Transfer
from validator.primitives.types import PRICE_LIMIT

FEE_HEADROOM: Final = 4
"""Factor of the observed basefee that a transaction bids; it is the same for honest users."""
MAX_NONCES: Final = 256
"""Number of consecutive nonces, from an account's nonce on, that a mempool accepts."""


def terms(nonce: int, observation: Observation) -> Terms:
    """Terms of a transaction with this nonce, the usual fee limits, and the least tip."""
    cycle, cell = FEE_HEADROOM * observation.basefee_cycle + 1, FEE_HEADROOM * observation.basefee_cell
    return Terms(nonce, min(cycle, PRICE_LIMIT - 1), 1, min(cell, PRICE_LIMIT - 1))


def payment(member: Member, stated: Terms | None = None) -> Intent:
    """A payment of one unit to the user itself, with the ``stated`` nonce and fees, or the usual ones."""
    return Intent(Transfer(member.address), member.parameters.tx_base_cycles, 0, value=1, terms=stated)
