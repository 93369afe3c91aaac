"""The context of the block that the ledger enters, and the log of evaluated rules and violations."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from cluster.audit.chain_codec import BlockReceipts, Header, TransactionBody
from cluster.audit.fee_market import Basefees
from cluster.record.rules import Mechanism
from validator.chain.genesis import Genesis, Policy, Replaces
from validator.primitives.params import Parameters

CHAIN: Final = "chain"
TIMERS: Final = "timers"
CONSERVATION: Final = "conservation"
BOUNDS: Final = "bounds"

MAX_VIOLATIONS: Final = 1_000
MAX_HEIGHTS_REACHED: Final = 1_000
"""Heights kept per mechanism."""

Bodies = tuple[tuple[bytes, TransactionBody], ...]
"""Sender and body of each transaction."""


class PolicyRules(NamedTuple):
    """What tells a policy's blocks from those of other policies."""

    is_auctioned: bool
    """Whether timers offer fees, by themselves or by agents, and go by score."""
    has_lane_fee: bool = False
    """Whether a fire pays a price of the lane on top of the cycle's basefee (SPEC §7)."""
    locks_bids: bool = False
    """Whether bids are locked when timers are scheduled, and timers go by bid and by the time that they waited."""
    timers_first: bool = False
    """Whether timers fire before the transactions, in slices of the lane, and wait if their payer cannot pay."""
    is_order_known: bool = True
    """Whether timers go by this policy's order, and not by one of a user's file."""
    is_price_known: bool = True
    """Whether the lane has this policy's prices, and not those of a user's file."""
    conserves_work: bool = True
    """Whether each due timer that can pay fires if the lane has room for it. Without known prices that is unknown."""


POLICY_RULES: Final[Mapping[Policy, PolicyRules]] = {
    Policy.CIP1: PolicyRules(is_auctioned=True, has_lane_fee=True),
    Policy.FIFO: PolicyRules(is_auctioned=False),
    Policy.GBA_AUCTION: PolicyRules(is_auctioned=True, timers_first=True),
    Policy.BIAS_AUCTION: PolicyRules(is_auctioned=False, locks_bids=True),
}


def rules_at(genesis: Genesis, height: int) -> PolicyRules:
    """What the policy in force at a height makes of a block. Only a price that is known gives an order that is."""
    rules, policy_file = POLICY_RULES[genesis.policy_at(height)], genesis.policy_file_at(height)
    if policy_file is None:
        return rules
    has_price = Replaces.PRICES not in policy_file.replaces
    return rules._replace(
        is_order_known=has_price and Replaces.ORDER not in policy_file.replaces,
        is_price_known=has_price,
        conserves_work=has_price and Replaces.WAITING not in policy_file.replaces,
        has_lane_fee=rules.has_lane_fee and has_price,
    )


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a block breaks."""

    check: str
    """The check that this violation fails: ``chain``, ``timers``, ``conservation`` or ``bounds``."""
    height: int
    what: str


@dataclass(slots=True)
class AuditLog:
    """The violations, evaluated rules and reached mechanisms that a ledger found on its chain."""

    violations: list[Violation] = field(default_factory=list)
    evaluated: Counter[str] = field(default_factory=Counter)
    """How often each of :class:`~cluster.record.rules.LedgerRule` was evaluated."""
    reached: dict[Mechanism, deque[int]] = field(default_factory=dict)
    """The newest :data:`MAX_HEIGHTS_REACHED` heights at which the chain reached each mechanism, ascending."""

    def found(self, check: str, height: int, what: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(Violation(check, height, what))


@dataclass(frozen=True)
class BlockContext:
    """The block that the ledger is processing. ``header`` and ``bodies`` are left out if only receipts are known."""

    receipts: BlockReceipts
    parameters: Parameters
    """The parameters in force in this block."""
    policy: PolicyRules
    """What the policy in force makes of a block (SPEC §13)."""
    log: AuditLog
    header: Header | None = None
    bodies: Bodies = ()

    @cached_property
    def height(self) -> int:
        return self.receipts.height

    @cached_property
    def basefees(self) -> Basefees:
        """The basefees that the header states; zeros if the header is unknown."""
        return Basefees(0, 0, 0) if self.header is None else Basefees.of(self.header)

    @cached_property
    def is_priced(self) -> bool:
        """Whether the prices of the lane are known."""
        return self.header is not None and self.policy.is_price_known

    @cached_property
    def is_auctioned(self) -> bool:
        """Whether timers offer fees, and go by score."""
        return self.policy.is_auctioned

    @cached_property
    def is_fifo(self) -> bool:
        return not (self.policy.is_auctioned or self.policy.locks_bids)

    @cached_property
    def lane_price(self) -> int:
        """The price per lane cycle, on top of the cycle basefee (SPEC §7); 0 where a policy has none, or no header."""
        has_one = self.policy.has_lane_fee
        return self.basefees.lane_timer * self.parameters.lane_fee_multiplier_milli // 1_000 if has_one else 0

    @cached_property
    def fire_price(self) -> int:
        """The price of a fire per cycle, without tip (SPEC §7)."""
        return self.basefees.cycle + self.lane_price

    @cached_property
    def max_cells_cost(self) -> int:
        """The price of the most cells that a fire may use."""
        return self.parameters.max_cells_per_fire * self.basefees.cell

    def lane_fee(self, cycles: int, cells: int, burned: int) -> int:
        """The part of the burned fees of fires that is the price of the lane."""
        if self.policy.is_price_known or self.header is None:
            return cycles * self.lane_price
        return burned - cycles * self.basefees.cycle - cells * self.basefees.cell

    @cached_property
    def fee_floor(self) -> int:
        """The least ``max_fee_per_cycle`` of a timer that may fire; 0 without an auction or a header."""
        return self.basefees.cycle if self.policy.timers_first else self.lane_price

    @cached_property
    def fire_cap(self) -> int:
        """The most cycles of a fire (SPEC §10)."""
        p = self.parameters
        return p.max_cycles_per_fire if self.is_fifo else p.max_cycles_per_fire_auction_phase

    @cached_property
    def latest_end(self) -> int:
        """The latest height at which a timer scheduled or extended in this block may expire."""
        return self.height + self.parameters.max_ttl

    def found(self, check: str, what: str) -> None:
        self.log.found(check, self.height, what)

    def evaluate(self, rule: str, times: int = 1) -> None:
        """Count evaluations of a rule."""
        self.log.evaluated[rule] += times

    def reach(self, mechanism: Mechanism) -> None:
        """Note that the block reaches a mechanism."""
        heights = self.log.reached.setdefault(mechanism, deque(maxlen=MAX_HEIGHTS_REACHED))
        if not heights or heights[-1] != self.height:
            heights.append(self.height)


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a block, such as a fire, with the name that its violations carry."""

    context: BlockContext
    what: str
    """What the part is, in words."""
    key: bytes = b""
    """The hash or id that names the part, if it has one."""

    @property
    def name(self) -> str:
        return f"{self.what} {short(self.key)}" if self.key else self.what

    def found(self, check: str, *problems: str) -> None:
        for problem in problems:
            self.context.found(check, f"{self.name} {problem}")


def hex_bytes(text: str) -> bytes:
    """The bytes of hex digits; empty for any other text."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def short(key: bytes) -> str:
    """The first 16 hex digits of a hash or an id, for use in messages."""
    return key.hex()[:16]
