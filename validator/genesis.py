"""The genesis file: what the chain starts from (SPEC §17's ``G``, with a chain id and the validators' keys).

Every validator builds the same height-0 state and block from it; the hash of that block is where the chain hangs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from validator.params import Parameters
from validator.types import Address


@dataclass(frozen=True, slots=True)
class GenesisActor:
    """An actor that exists from the start."""

    code: str
    deployer: Address
    balance: int = 0


@dataclass(frozen=True, slots=True)
class Genesis:
    """Everything that the first block builds upon. Balances in the smallest CBY unit."""

    chain_id: str
    validators: tuple[bytes, ...]
    """Public keys (32 bytes each), in index order; an index's account is the address of its key."""
    parameters: Parameters = field(default_factory=Parameters)
    accounts: Mapping[Address, int] = field(default_factory=dict)
    actors: Mapping[Address, GenesisActor] = field(default_factory=dict)
    system_deployers: tuple[Address, ...] = ()
