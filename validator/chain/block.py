"""Blocks, headers and receipts, as they are hashed, stored and sent (SPEC §3).

A header holds the state root **after** its block, so a quorum on a block is a quorum on its state. Receipts hold all
that an observer needs to keep its own books without access to any validator's state: charges and their recipients, the
timers that were scheduled, extended, cancelled, fired or destroyed, and every event.
"""

from __future__ import annotations

from typing import Final

import msgspec

from validator.chain.transactions import transaction_hash
from validator.primitives.codec import OmitsEmptyLast, decode, encode, merkle_root, tagged_hash
from validator.primitives.types import Hash, ValidatorError

MAX_BLOCK_BYTES: Final = 4 * 1024 * 1024


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The header of a block. Validators vote on its hash.

    The basefees are those in force during the block, as big-endian bytes.
    """

    chain_id: str
    height: int
    view: int
    parent_hash: bytes
    proposer: int
    """Index of the proposing validator."""
    transactions_root: bytes
    receipts_root: bytes
    state_root: bytes
    basefee_cycle: bytes
    basefee_cell: bytes
    basefee_lane_timer: bytes
    lane_cycles: int
    """Cycles used by timer fires."""
    lane_cells: int
    user_cycles: int
    """Cycles charged to transactions."""
    user_cells: int


class Block(msgspec.Struct, frozen=True, array_like=True):
    """A block: its header and its signed transactions, in order."""

    header: Header
    transactions: tuple[bytes, ...]


def header_hash(header: Header) -> Hash:
    """The hash of a header. It identifies the block, and is the digest that consensus votes on."""
    return tagged_hash(b"header", encode(header))


def transactions_root(hashes: list[Hash]) -> Hash:
    return merkle_root(b"transactions", hashes)


def transaction_hashes(block: Block) -> list[Hash]:
    return [transaction_hash(wire) for wire in block.transactions]


def decode_block(body: bytes) -> Block | None:
    """Decode an encoded block. ``None`` if it is too large, malformed or not canonical, or its transactions do not
    match the header's ``transactions_root``.

    A digest covers only the header. The check of the transactions ensures that only one body fits a digest: a peer
    cannot spoil a valid block by sending its header with other transactions.
    """
    if len(body) > MAX_BLOCK_BYTES:
        return None
    try:
        block = decode(body, Block)
    except ValidatorError:
        return None
    return block if block.header.transactions_root == transactions_root(transaction_hashes(block)) else None


# --- receipts -------------------------------------------------------------------------------------------------------


class Event(msgspec.Struct, frozen=True, array_like=True):
    """An event of the protocol, or one that an actor added with ``emit``.

    ``fields`` are in the order that SPEC gives. Integers are decimal text.
    """

    name: str
    actor: bytes
    fields: tuple[tuple[str, str], ...]


class Movement(msgspec.Struct, frozen=True, array_like=True):
    """An amount that was moved from one account to another, without fees."""

    source: bytes
    target: bytes
    amount: bytes


class Scheduled(msgspec.Struct, frozen=True, array_like=True):
    """A timer that was scheduled, with everything that its priority depends on.

    A field is ``None`` if the caller left it open (SPEC §4).
    """

    timer_id: bytes
    actor: bytes
    trigger_height: int
    sequence: int
    expires_at: int
    fee_payer: bytes
    gas_limit: int | None = None
    max_fee_per_cycle: bytes | None = None
    max_priority_fee_per_cycle: bytes | None = None
    payer_cap: bytes | None = None


class Cancelled(msgspec.Struct, frozen=True, array_like=True, tag="cancelled"):
    timer_id: bytes


class Extended(msgspec.Struct, frozen=True, array_like=True, tag="extended"):
    timer_id: bytes
    expires_at: int


class Bidder(msgspec.Struct, frozen=True, array_like=True, tag="bidder"):
    """A change of the gas bidding agent of a timer, or of all timers of the running actor if ``timer_id`` is empty
    (SPEC §9)."""

    timer_id: bytes
    agent: bytes
    """Address of the agent; empty if the actor reverted to its own agent."""


class Locked(msgspec.Struct, frozen=True, array_like=True, tag="locked"):
    """The bid that was locked for a new timer, taken from its fee payer (SPEC §13, ``bias_auction``)."""

    timer_id: bytes
    amount: bytes


class Watching(msgspec.Struct, frozen=True, array_like=True, tag="watching"):
    """The key that a new timer watches (SPEC §13, ``bias_auction``)."""

    timer_id: bytes
    actor: bytes
    key: str


class WatchableKey(msgspec.Struct, frozen=True, array_like=True, tag="watchable"):
    """A key that timers may watch: the running actor allowed that, or wrote the key."""

    actor: bytes
    key: str
    digest: bytes
    """The digest of the key's value after that; empty if the key has none."""


class UnwatchableKey(msgspec.Struct, frozen=True, array_like=True, tag="unwatchable"):
    """A key that timers may not watch any more."""

    actor: bytes
    key: str


TimerChange = Cancelled | Extended | Bidder | Locked | Watching | WatchableKey | UnwatchableKey


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """A message that was queued, with the cycles and cells reserved for its run."""

    to: bytes
    handler: str
    cycles: int
    cells: int


class Effects(msgspec.Struct, frozen=True, array_like=True):
    """Effects of a handler, empty if it reverted. Each list is in the order of execution."""

    movements: tuple[Movement, ...] = ()
    scheduled: tuple[Scheduled, ...] = ()
    timer_changes: tuple[TimerChange, ...] = ()
    events: tuple[Event, ...] = ()
    messages: tuple[Sent, ...] = ()


class TransactionReceipt(msgspec.Struct, frozen=True, array_like=True):
    """The receipt of one transaction. The sender paid ``burned + tip``, and the proposer got the tip."""

    transaction_hash: bytes
    sender: bytes
    ok: bool
    error: str
    """Name of the error; empty if ``ok``."""
    cycles: int
    cells: int
    burned: bytes
    tip: bytes
    effects: Effects
    created: bytes = b""
    """The address of a deployed actor."""


class FireReceipt(msgspec.Struct, frozen=True, array_like=True):
    """One timer fire. ``burned + tip`` is the part of the charge to ``fee_payer`` that was not refunded."""

    timer_id: bytes
    actor: bytes
    trigger_height: int
    sequence: int
    fee_payer: bytes
    ok: bool
    error: str
    cycles: int
    cells: int
    burned: bytes
    tip: bytes
    tip_per_cycle: bytes
    effects: Effects


class DestroyedReceipt(msgspec.Struct, frozen=True, array_like=True):
    """The receipt of a timer that ended without a fire. ``reason`` is ``expired`` or ``insufficient_funds``."""

    timer_id: bytes
    reason: str
    event: Event


class QueryReceipt(OmitsEmptyLast, frozen=True, array_like=True):
    """One admitted query of an actor's gas bidding agent; the actor paid ``burned`` (SPEC §9)."""

    timer_id: bytes
    actor: bytes
    outcome: str
    """``ok``, ``failed`` or ``unpaid``."""
    cycles: int
    burned: bytes
    bid: tuple[bytes | None, bytes | None] | None = None
    """``max_fee`` and ``priority`` per cycle in the agent's answer, each ``None`` if left open; ``None`` if the agent
    failed or was not paid."""
    agent: bytes = b""
    """The contract that was asked; empty for the actor's own agent."""


class MessageReceipt(msgspec.Struct, frozen=True, array_like=True):
    """The receipt of one message that ran. Its sender paid for the run in advance."""

    to: bytes
    sender: bytes
    handler: str
    ok: bool
    error: str
    cycles: int
    cells: int
    effects: Effects


class CallbackReceipt(msgspec.Struct, frozen=True, array_like=True):
    """The receipt of one job's callback that ran. The actor that requested the job paid for it in advance."""

    job_id: bytes
    actor: bytes
    handler: str
    ok: bool
    error: str
    cycles: int
    cells: int
    effects: Effects
    unsettled: Event | None
    """The event ``JobNotConsumed`` if the callback reverted or did not consume the job's results, else ``None``."""


class BlockReceipts(OmitsEmptyLast, frozen=True, array_like=True):
    """Everything that happened in a block, each list in execution order."""

    height: int
    proposer: bytes
    """Account that got the tips."""
    transactions: tuple[TransactionReceipt, ...]
    fires: tuple[FireReceipt, ...]
    destroyed: tuple[DestroyedReceipt, ...]
    queries: tuple[QueryReceipt, ...]
    messages: tuple[MessageReceipt, ...]
    gc_cycles: int
    p50_tip: bytes
    callbacks: tuple[CallbackReceipt, ...] = ()
    """Receipts of callbacks, which ran before the messages."""


def receipts_root(receipts: BlockReceipts) -> Hash:
    """The Merkle root over a block's receipts: its summary, then each list of receipts.

    The list of callbacks is left out if it is empty.
    """
    summary = (receipts.height, receipts.proposer, receipts.gc_cycles, receipts.p50_tip)
    lists: tuple[tuple[object, ...], ...]
    lists = (receipts.transactions, receipts.fires, receipts.destroyed, receipts.queries, receipts.messages)
    if receipts.callbacks:
        lists = (*lists, receipts.callbacks)
    items: list[object] = [(*summary, *(len(items) for items in lists))]
    for receipt_list in lists:
        items.extend(receipt_list)
    return merkle_root(b"receipts", [encode(item) for item in items])
