"""The parts of blocks that nobody executed: transactions, receipts and headers as a right chain has them.

Synthetic chains are made of them, those of the tests (``tests/cluster/records.py``) and of benchmarks
(:mod:`long_chain`). All prices are :data:`PRICE`; everything that the auditor recomputes is right.
"""

from __future__ import annotations

from collections.abc import Sequence

from nacl.signing import SigningKey

from cluster.record.archive import BlockRecord
from validator.chain.block import (
    Block,
    BlockReceipts,
    Effects,
    FireReceipt,
    Header,
    Scheduled,
    TransactionReceipt,
    header_hash,
    receipts_root,
    transactions_root,
)
from validator.chain.transactions import Action, Transaction, address_of, sign, transaction_hash
from validator.primitives.codec import encode, pack_uint, tagged_hash

PRICE = 1_000_000
USER = SigningKey(bytes([7]) * 32)
USER_ADDRESS = address_of(bytes(USER.verify_key))
"""The sender of every transaction."""
PROGRAM = "class Idle(Actor):\n    def run(self, payload):\n        pass\n"
"""Of actors. Nobody executes it: what their runs come to is what the maker of a chain says."""
FIRE_CYCLES, FIRE_CELLS = 2_000, 10
NO_EFFECTS = Effects()


def signed(
    chain_id: str, action: Action, nonce: int, gas_limit: int, cells_limit: int, tip: int, value: int = 0
) -> bytes:
    """A transaction of the user; ``tip`` is a cycle's."""
    transaction = Transaction(
        sender=USER_ADDRESS,
        nonce=nonce,
        gas_limit=gas_limit,
        cells_limit=cells_limit,
        max_fee_per_cycle=2 * PRICE,
        max_priority_fee_per_cycle=tip,
        max_fee_per_cell=2 * PRICE,
        action=action,
        value=value,
    )
    return sign(USER, chain_id, transaction)


def transaction_receipt(wire: bytes, cycles: int, cells: int, tip: int, effects: Effects) -> TransactionReceipt:
    """The receipt of a transaction that used so much."""
    return TransactionReceipt(
        transaction_hash=transaction_hash(wire),
        sender=USER_ADDRESS,
        ok=True,
        error="",
        cycles=cycles,
        cells=cells,
        burned=pack_uint((cycles + cells) * PRICE),
        tip=pack_uint(cycles * tip),
        effects=effects,
    )


def fire_receipt(timer: Scheduled, tip: int) -> FireReceipt:
    """The receipt of a timer's fire, which its actor pays."""
    return FireReceipt(
        timer_id=timer.timer_id,
        actor=timer.actor,
        trigger_height=timer.trigger_height,
        sequence=timer.sequence,
        fee_payer=timer.actor,
        ok=True,
        error="",
        cycles=FIRE_CYCLES,
        cells=FIRE_CELLS,
        burned=pack_uint(FIRE_CYCLES * 2 * PRICE + FIRE_CELLS * PRICE),
        tip=pack_uint(FIRE_CYCLES * tip),
        tip_per_cycle=pack_uint(tip),
        effects=NO_EFFECTS,
    )


def header_of(
    chain_id: str, view: int, parent: bytes, proposer: int, wires: Sequence[bytes], receipts: BlockReceipts
) -> Header:
    """The header of a block with these transactions and receipts; its state root is made up."""
    return Header(
        chain_id=chain_id,
        height=receipts.height,
        view=view,
        parent_hash=parent,
        proposer=proposer,
        transactions_root=transactions_root([transaction_hash(wire) for wire in wires]),
        receipts_root=receipts_root(receipts),
        state_root=tagged_hash(b"root", receipts.height.to_bytes(8, "big")),
        basefee_cycle=pack_uint(PRICE),
        basefee_cell=pack_uint(PRICE),
        basefee_lane_timer=pack_uint(PRICE),
        lane_cycles=sum(fire.cycles for fire in receipts.fires),
        lane_cells=sum(fire.cells for fire in receipts.fires),
        user_cycles=sum(receipt.cycles for receipt in receipts.transactions),
        user_cells=sum(receipt.cells for receipt in receipts.transactions),
    )


def record_of(header: Header, wires: Sequence[bytes], receipts: BlockReceipts) -> tuple[BlockRecord, bytes]:
    """The block as validators serve it, and its hash."""
    return BlockRecord(encode(Block(header, tuple(wires))), encode(receipts), header.state_root), header_hash(header)
