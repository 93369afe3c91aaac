"""What a chain says against what the specification says: each final block is executed, and compared field by field.

So is the state root of the first blocks, while the state is small: a fault that no receipt shows changes it. The parent
of the first block is the genesis block, whose hash follows from the genesis and its state root.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from cluster.audit.specified.chain import StateRoots, spec_chain
from cluster.audit.specified.differences import AMOUNTS, Difference, of_receipts, shown
from cluster.audit.specified.own_policy import NotAllowed, OwnPolicy, OwnPrices, own_policy
from cluster.audit.violation import BOUNDS, CHAIN, CONSERVATION, STATE_ROOTS, TIMERS, Violation
from spec.block import BlockRun, NotAdmitted, genesis_hash, run_block
from spec.encoding import (
    Block,
    Receipts,
    Transaction,
    Unreadable,
    address_of,
    encode_receipts,
    read_block,
    read_receipts,
    read_transaction,
    receipts_root,
    transactions_root,
)
from validator.chain.genesis import Genesis

BLOCK: Final = "the block"
"""The field of a deviation of a block that cannot be executed."""
CANONICAL: Final = "canonical bytes of receipts"
PRICES: Final = ("basefee_cycle", "basefee_cell", "basefee_lane_timer")
"""The prices in a header. They follow from the block before, and all amounts of the block follow from them."""
PAYMENTS: Final = (*PRICES, *AMOUNTS, "cycles", "cells", "fee_payer")
"""The fields that say what is paid, for what and by whom."""
OF_TIMERS: Final = ("receipts.fires", "receipts.destroyed", "receipts.queries", "receipts.gc_cycles")
REFUSALS: Final = {"LaneFull": BOUNDS, "FeeTooLow": CONSERVATION, "InsufficientFunds": CONSERVATION}
"""The check that a transaction fails which its block must not have, by the reason; any other fails ``chain``."""
OF_ROOTS: Final = "header.state_root"
ROOTS_COMPARED: Final = 32
"""The first heights of a chain, at which state roots are compared. All leaves are made at each, which takes 1 to 5 %
of a short run's processor time."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """The first difference of a block from the specification, or why it cannot be executed."""

    height: int
    difference: Difference
    check: str
    """The check that it fails: of amounts, of timers, of lanes, of state roots, or of the chain."""
    rules: tuple[str, ...] = ()
    """The numbered rules that the specification applied in the block."""

    @property
    def violation(self) -> Violation:
        """The deviation in a line."""
        field, said, expected = self.difference
        return Violation(self.check, self.height, f"{field} is {said}, by the specification {expected}")


class Executed(NamedTuple):
    """A block, and what the specification says that it comes to."""

    block: Block
    transactions: list[Transaction]
    run: BlockRun
    receipts: Receipts


class SpecifiedChain:
    """A chain that the specification executes as its blocks come, up to the first that deviates.

    One that deviates in nothing but its state root is executed: only roots are no longer compared after it.
    """

    def __init__(self, genesis: Genesis) -> None:
        """Raises :class:`~validator.policies.own.PolicyError`."""
        self._genesis = genesis
        self._own = own_policy(genesis)
        self.world: Final = spec_chain(genesis, self._own)
        self.last: Executed | None = None
        """The last block that was executed."""
        self.deviation: Deviation | None = None
        """The deviation after which nothing is executed any more."""
        self._roots = StateRoots(ROOTS_COMPARED)
        root = self._roots.root(self.world)
        self.genesis_hash = None if root is None else genesis_hash(self.world.genesis, root)
        """The hash of the genesis block; ``None`` if its state root is not known."""
        self._parent = self.genesis_hash
        """The hash of the last block; ``None`` if it is the genesis block and is not known."""

    @property
    def has_told_prices(self) -> bool:
        """Whether the prices of the timer lane are those of a user's policy."""
        return self._own is not None and issubclass(self._own, OwnPrices)

    def enter(self, block: bytes, receipts: bytes) -> Deviation | None:
        """Execute the next block; returns how it deviates, or how one before did that ended the execution."""
        if self.deviation is not None:
            return self.deviation
        found = self._judged(block, receipts)
        if found is not None and found.check == STATE_ROOTS:
            self._roots.end()
        else:
            self.deviation = found
        return found

    def judge_receipts(self, block: bytes, receipts: bytes) -> Deviation | None:
        """Execute the next block, the chain's last, and compare nothing but the receipts that a validator has of it.

        ``None``, too, if a block deviated before, or if this one cannot be executed, whoever has receipts of it.
        """
        found = None if self.deviation is not None else self._judged(block, receipts, receipts_alone=True)
        return None if found is None or found.difference.field == BLOCK else found

    def _judged(self, block: bytes, receipts: bytes, receipts_alone: bool = False) -> Deviation | None:
        height, check = self.world.height + 1, ""
        self.world.rules.clear()
        try:
            read = read_block(block)
            if self._own is not None and issubclass(self._own, OwnPolicy):
                self._own.told = _read(receipts)
            self.last = self._execute(read)
            differing = self._of_receipts(self.last.receipts, receipts)
            found = next(differing if receipts_alone else self._differences(self.last, differing), None)
            found, self._parent = found and found.brief, read.hash
        except NotAllowed as own:
            found = Difference(own.field, own.said, own.expected)
        except (Unreadable, NotAdmitted) as error:
            found = Difference(BLOCK, "final", f"not valid: {error}")
            check = REFUSALS.get(str(error), CHAIN)
        if found is None:
            return None
        return Deviation(height, found, check or _check_of(found.field), tuple(sorted(self.world.rules)))

    def _execute(self, block: Block) -> Executed:
        header, due, validators = block.header, self.world.height + 1, self._genesis.validators
        if header.height != due:
            raise Unreadable(f"it has height {header.height} where {due} is due")
        if header.proposer >= len(validators):
            raise Unreadable(f"its proposer is number {header.proposer} of {len(validators)}")
        proposer = address_of(validators[header.proposer])
        transactions = [read_transaction(wire, self._genesis.chain_id) for wire in block.transactions]
        return Executed(block, transactions, *run_block(self.world, proposer, transactions))

    # --- comparing ----------------------------------------------------------------------------------------------------

    def _differences(self, executed: Executed, receipts: Iterator[Difference]) -> Iterator[Difference]:
        """Where a block differs: in its prices, from which amounts follow, then in the receipts and the header."""
        block, run, world = executed.block, executed.run, self.world
        root = self._roots.root(world) or block.header.state_root
        if world.height == 1 and root != block.header.state_root:
            self._parent = None  # the root of the genesis may have been another one, too
        expected = {
            "basefee_cycle": world.basefee_cycle,
            "basefee_cell": world.basefee_cell,
            "basefee_lane_timer": world.basefee_lane,
            "chain_id": self._genesis.chain_id,
            "parent_hash": self._parent or block.header.parent_hash,
            "lane_cycles": run.phase.cycles,
            "lane_cells": run.phase.cells,
            "user_cycles": run.cycles,
            "user_cells": run.cells,
            "transactions_root": transactions_root(block.transactions),
            "receipts_root": receipts_root(executed.receipts),
            "state_root": root,
        }
        fields = [
            Difference(f"header.{name}", shown(said), shown(value))
            for name, value in expected.items()
            if (said := getattr(block.header, name)) != value
        ]
        yield from (each for each in fields if each.field.startswith("header.basefee"))
        yield from receipts
        yield from fields

    @property
    def leaves(self) -> dict[bytes, bytes]:
        """The leaves of the state tree as specified."""
        return self._roots.leaves(self.world)

    @staticmethod
    def _of_receipts(specified: Receipts, said: bytes) -> Iterator[Difference]:
        """Where receipts differ from the specified ones; in the median tip first."""
        expected = encode_receipts(specified)
        if said == expected:
            return
        with suppress(Unreadable):
            yield from sorted(of_receipts(said, expected), key=lambda each: each.field != "receipts.p50_tip")
        yield Difference("receipts", "malformed", CANONICAL)


def _read(receipts: bytes) -> Receipts:
    """Receipts from their bytes. Raises :class:`NotAllowed` for malformed ones."""
    try:
        return read_receipts(receipts)
    except Unreadable:
        raise NotAllowed("receipts", "malformed", CANONICAL) from None


def _check_of(field: str) -> str:
    """The check that a difference in a field fails."""
    if field.startswith(("receipts.", "header.basefee")) and field.rpartition(".")[2] in PAYMENTS:
        return CONSERVATION
    if field == OF_ROOTS:
        return STATE_ROOTS
    return TIMERS if field.startswith(OF_TIMERS) else CHAIN
