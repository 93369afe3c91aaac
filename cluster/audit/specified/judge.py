"""What a chain says against what the specification says: each final block is executed, and compared field by field.

State roots are not compared: the specification has the leaves of the tree and not the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Any, Final, get_args, get_type_hints

from cluster.audit.ledger.context import BOUNDS, CHAIN, CONSERVATION, TIMERS
from cluster.audit.specified.chain import spec_chain
from cluster.audit.specified.own_policy import NotAllowed, own_policy
from spec.block import NotAdmitted, Outcome, run_block
from spec.encoding import (
    Block,
    Receipts,
    Unreadable,
    address_of,
    decode,
    encode_receipts,
    read_block,
    read_receipts,
    read_transaction,
    receipts_root,
    transactions_root,
)
from validator.chain.genesis import Genesis

AMOUNTS: Final = (".burned", ".tip", ".tip_per_cycle", ".cycles", ".cells")
"""The fields of receipts from which a charge follows."""
LONGEST_SHOWN: Final = 80
"""Characters of a value in a deviation."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """The first field in which a block deviates from the specification, or why it cannot be executed."""

    height: int
    field: str
    """Such as ``receipts.fires[2].burned``."""
    said: str
    """What the chain says."""
    expected: str
    """What the specification says."""
    rules: tuple[str, ...] = ()
    """The numbered rules that the specification applied in the block."""

    @property
    def check(self) -> str:
        """The check that it fails: of prices, of amounts, of timers, or of the chain."""
        if self.field.startswith("header.basefee"):
            return BOUNDS
        if self.field.endswith(AMOUNTS):
            return CONSERVATION
        return TIMERS if self.field.startswith(("receipts.fires", "receipts.destroyed")) else CHAIN

    @property
    def text(self) -> str:
        """The deviation in a line."""
        return f"{self.field} is {self.said}, by the specification {self.expected}"


class SpecifiedChain:
    """A chain that the specification executes as its blocks come, up to the first that deviates."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._own = own_policy(genesis)
        self._world = spec_chain(genesis, self._own)
        self.deviation: Deviation | None = None

    @property
    def height(self) -> int:
        """The height of the last block that was executed."""
        return self._world.height

    def balance(self, address: bytes) -> int:
        """The balance of an account after the last block."""
        return self._world.balance.get(address, 0)

    @property
    def pending(self) -> Set[bytes]:
        """Ids of the timers that are live after the last block."""
        return self._world.timers.keys()

    @property
    def held(self) -> int:
        """The sum of all balances after the last block."""
        return sum(self._world.balance.values())

    @property
    def burned(self) -> int:
        """What was burned since the genesis."""
        return self._world.burned

    def enter(self, block: bytes, receipts: bytes) -> Deviation | None:
        """Execute the next block. After one that deviates, nothing is executed any more."""
        if self.deviation is None:
            height = self._world.height + 1
            self._world.rules.clear()
            found = next(self._deviations(block, receipts), None)
            if found is not None:
                rules = tuple(sorted(self._world.rules))
                self.deviation = Deviation(height, *found, rules)
        return self.deviation

    def _deviations(self, block: bytes, receipts: bytes) -> Iterator[tuple[str, str, str]]:
        """Field, what the chain says, what the specification says."""
        try:
            read = read_block(block)
            if self._own is not None:
                self._own.told = read_receipts(receipts)
            outcome = self._execute(read)
        except NotAllowed as told:
            yield told.field, told.said, told.expected
            return
        except (Unreadable, NotAdmitted) as error:
            yield "the block", "final", f"not valid: {error}"
            return
        encoded = encode_receipts(outcome.receipts)
        if encoded != receipts:
            yield from _of_receipts(receipts, encoded)
        for name, expected in self._header_fields(read, outcome).items():
            said = getattr(read.header, name)
            if said != expected:
                yield f"header.{name}", _shown(said), _shown(expected)

    def _execute(self, block: Block) -> Outcome:
        validators = self._genesis.validators
        if block.header.height != self._world.height + 1 or block.header.proposer >= len(validators):
            raise Unreadable(f"height {block.header.height}, proposer {block.header.proposer}")
        proposer = address_of(validators[block.header.proposer])
        transactions = [read_transaction(wire, self._genesis.chain_id) for wire in block.transactions]
        return run_block(self._world, proposer, transactions)

    def _header_fields(self, block: Block, outcome: Outcome) -> dict[str, Any]:
        return {
            "chain_id": self._genesis.chain_id,
            "basefee_cycle": outcome.basefee_cycle,
            "basefee_cell": outcome.basefee_cell,
            "basefee_lane_timer": outcome.basefee_lane,
            "lane_cycles": outcome.lane_cycles,
            "lane_cells": outcome.lane_cells,
            "user_cycles": outcome.user_cycles,
            "user_cells": outcome.user_cells,
            "transactions_root": transactions_root(block.transactions),
            "receipts_root": receipts_root(outcome.receipts),
        }


def _of_receipts(said: bytes, expected: bytes) -> Iterator[tuple[str, str, str]]:
    """The first difference of two encodings of receipts, by the names of the fields."""
    try:
        ours = decode(said)
    except Unreadable as error:
        yield "receipts", str(error), "canonical bytes"
        return
    yield from _differences("receipts", Receipts, ours, decode(expected))


def _differences(path: str, kind: Any, said: Any, expected: Any) -> Iterator[tuple[str, str, str]]:
    """Where two decoded values of a kind of struct differ, in the order of their fields."""
    if said == expected:
        return
    if not isinstance(said, list) or not isinstance(expected, list) or kind is None:
        yield path, _shown(said), _shown(expected)
    elif hasattr(kind, "_fields"):
        kinds = get_type_hints(kind)
        for place, name in enumerate(kind._fields):
            pair = [fields[place] if place < len(fields) else None for fields in (said, expected)]
            yield from _differences(f"{path}.{name}", kinds[name], *pair)
    else:
        (item, *_), several = get_args(kind) or (None,), max(len(said), len(expected))
        for place in range(several):
            pair = [items[place] if place < len(items) else "nothing" for items in (said, expected)]
            yield from _differences(f"{path}[{place}]", item, *pair)


def _shown(value: Any) -> str:
    """A value for readers: bytes in hex, and not too much of it."""
    text = "0x" + value.hex() if isinstance(value, bytes) else str(value)
    if isinstance(value, list | tuple):
        text = "[" + ", ".join(_shown(item) for item in value) + "]"
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
