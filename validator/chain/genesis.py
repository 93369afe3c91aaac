"""The content of the genesis file: SPEC §17's ``G``, with a chain id and the validators' keys.

Every validator builds the state and the block of height 0 from it. The first block names that block as its parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from validator.primitives.params import Parameters
from validator.primitives.types import Address, ValidatorError
from validator.primitives.user_file import SUFFIX


class GenesisError(ValidatorError):
    """The genesis cannot be built; one line with the reason."""


class Policy(StrEnum):
    """The chain's scheduling policy (SPEC §13). Blocks up to ``ACTIVATION_HEIGHT`` run as ``fifo`` under any."""

    CIP1 = "cip1"
    """The auction of SPEC, by tips and by the fires of a sliding window."""
    FIFO = "fifo"
    """First in, first out, at the price of a cycle alone."""
    GBA_AUCTION = "gba_auction"
    """An auction before the transactions, by tips and by weights that actors earn (seed design 000)."""
    BIAS_AUCTION = "bias_auction"
    """An auction by bids that are locked when timers are scheduled, and by the time that they waited (seed 003 §9)."""


class Replaces(StrEnum):
    """A family of rules of a shipped policy that a user's policy replaces."""

    ORDER = "order"
    """Which timers fire, and in which order."""
    PRICES = "prices"
    """What the lane costs, and what a fire pays."""
    WAITING = "waiting"
    """Whether a due timer that can pay may wait although the lane has room for it."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A user's policy: a file with a class that is derived from the timer phase of a shipped policy."""

    name: str
    """The file's name, without ``.py``."""
    source: str
    """The file's text."""
    replaces: frozenset[Replaces] = frozenset()
    """What its class replaces, as the class says."""
    parameters: tuple[tuple[str, int], ...] = ()
    """The value of each parameter that its class states, by name, names ascending."""

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.name}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class GenesisAgent:
    """A gas bidding agent that an actor has from the start."""

    code: str
    max_fee_per_cycle: int
    max_priority_fee_per_cycle: int


@dataclass(frozen=True, slots=True)
class GenesisActor:
    """An actor that exists from the start."""

    code: str
    deployer: Address
    balance: int = 0
    agent: GenesisAgent | None = None


@dataclass(frozen=True, slots=True)
class GenesisEpoch:
    """A committee: the validators that vote and lead from view ``first_view`` on."""

    first_view: int
    members: tuple[int, ...]
    """Indices of validators, strictly ascending."""


@dataclass(frozen=True, slots=True)
class Genesis:
    """The content of the genesis file. Balances are in the smallest CBY unit."""

    chain_id: str
    validators: tuple[bytes, ...]
    """The validators' public keys (32 bytes each), in the order of their indices. A validator's account is the address
    of its key."""
    policy: Policy = Policy.CIP1
    """The shipped policy. If there is a policy file, the one from which its policy is derived."""
    parameters: Parameters = field(default_factory=Parameters)
    accounts: Mapping[Address, int] = field(default_factory=dict)
    actors: Mapping[Address, GenesisActor] = field(default_factory=dict)
    system_deployers: tuple[Address, ...] = ()
    runners: tuple[Address, ...] = ()
    """Runners that are registered in the genesis state, so may submit results of jobs (SPEC §14)."""
    epochs: tuple[GenesisEpoch, ...] = ()
    """Changes of the committee, in ascending order of their views. Before the first change, all validators belong to
    the committee."""
    preset: str | None = None
    """Name of the preset that the parameters came from, for readers; ``parameters`` holds all values."""
    policy_file: PolicyFile | None = None
    """The user's policy; ``None`` if the shipped one schedules timers."""

    @property
    def policy_name(self) -> str:
        """The policy's name for readers."""
        return self.policy.value if self.policy_file is None else self.policy_file.name

    @property
    def policy_parameters(self) -> dict[str, int]:
        """The values of the parameters that the user's policy states, by name."""
        return {} if self.policy_file is None else dict(self.policy_file.parameters)

    def policy_file_at(self, height: int) -> PolicyFile | None:
        """The user's policy in the block at a height; ``None`` up to ``ACTIVATION_HEIGHT``."""
        return None if height <= self.parameters.activation_height else self.policy_file

    def policy_at(self, height: int) -> Policy:
        """The scheduling policy of the block at a height. It is ``fifo`` up to ``ACTIVATION_HEIGHT`` (SPEC §13)."""
        return Policy.FIFO if height <= self.parameters.activation_height else self.policy

    def runs_auction(self, height: int) -> bool:
        """Whether the block at a height runs an auction by fees, which agents may offer (SPEC §9)."""
        return self.policy_at(height) in (Policy.CIP1, Policy.GBA_AUCTION)

    @property
    def locks_bids(self) -> bool:
        """Whether bids are locked when timers are scheduled."""
        return self.policy is Policy.BIAS_AUCTION
