"""Sized, named types of the consensus layer.

Views count from 1; view 0 is the genesis view, whose block is final from the start. A digest names a block.
"""

from __future__ import annotations

from typing import Final, NewType

View = NewType("View", int)
"""Consensus round, u64. Every view has one leader and ends in a notarization or a nullification."""

Digest = NewType("Digest", bytes)
"""Block hash, 32 bytes."""

ValidatorIndex = NewType("ValidatorIndex", int)
"""Position of a validator in the validator set, from 0."""

PublicKey = NewType("PublicKey", bytes)
"""Verification key, 32 bytes."""

Signature = NewType("Signature", bytes)
"""Signature, 64 bytes."""

Token = NewType("Token", int)
"""Number of one append to the journal; :class:`~consensus.interface.Durable` names it when the append is durable."""

DIGEST_BYTES: Final = 32
GENESIS_VIEW: Final = View(0)
FIRST_VIEW: Final = View(GENESIS_VIEW + 1)
"""The first view after the genesis view; no certificate opens it."""


class ConsensusError(Exception):
    """Base class of the expected failures of this package. Bugs raise other types and are not caught."""


def fault_bound(validators: int) -> int:
    """Largest number of byzantine validators that a set of this size withstands: ``f = (n - 1) // 3``."""
    return (validators - 1) // 3


def quorum(validators: int) -> int:
    """Number of votes that make a certificate: ``n - f``, which is ``2f + 1`` at ``n = 3f + 1``."""
    return validators - fault_bound(validators)
