"""How the auditor reads a chain: blocks, transactions and receipts by the byte tables of ``docs/protocol.md``.

Validators read and write with the structs of :mod:`validator.chain.block` and :mod:`validator.primitives.codec`. A bug
there is on both sides of each of their comparisons. So the auditor reads the same bytes with another library, into
records of its own, and works roots and hashes out itself: what a validator writes otherwise than the tables say does
not pass.

A field is read by its kind in the table: ``u64`` an integer, ``uint`` big-endian bytes without leading zeros, addresses
and hashes by their lengths. Whatever is left over, of another type or not canonical is :class:`Unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgpack
from blake3 import blake3
from Crypto.Hash import keccak

U64_LIMIT: Final = 2**64
ADDRESS_BYTES: Final = 20
HASH_BYTES: Final = 32
MAX_UINT_BYTES: Final = 32

T = TypeVar("T")
Read = Callable[[Any], Any]


class Unreadable(Exception):
    """Bytes that are not what the protocol's tables say."""


# --- records --------------------------------------------------------------------------------------------------------


class Header(NamedTuple):
    """A block's header; amounts are big-endian bytes."""

    chain_id: str
    height: int
    view: int
    parent_hash: bytes
    proposer: int
    transactions_root: bytes
    receipts_root: bytes
    state_root: bytes
    basefee_cycle: bytes
    basefee_cell: bytes
    basefee_lane_timer: bytes
    lane_cycles: int
    lane_cells: int
    user_cycles: int
    user_cells: int


class Block(NamedTuple):
    """A header with its hash, and signed transactions as they are on the wire."""

    header: Header
    transactions: tuple[bytes, ...]
    digest: bytes


class Event(NamedTuple):
    name: str
    actor: bytes
    fields: tuple[tuple[str, str], ...]


class Movement(NamedTuple):
    source: bytes
    target: bytes
    amount: bytes


class Scheduled(NamedTuple):
    """A timer as it was stored; ``None`` is what its caller left open."""

    timer_id: bytes
    actor: bytes
    trigger_height: int
    sequence: int
    expires_at: int
    fee_payer: bytes
    gas_limit: int | None
    max_fee_per_cycle: bytes | None
    max_priority_fee_per_cycle: bytes | None
    payer_cap: bytes | None


class Cancelled(NamedTuple):
    timer_id: bytes


class Extended(NamedTuple):
    timer_id: bytes
    expires_at: int


class Bidder(NamedTuple):
    """Another actor's program bids from now on: for a timer, or, without one, for those of the actor that runs."""

    timer_id: bytes
    agent: bytes


TimerChange = Cancelled | Extended | Bidder


class Sent(NamedTuple):
    to: bytes
    handler: str
    cycles: int
    cells: int


class Effects(NamedTuple):
    """The effects of a handler's run."""

    movements: tuple[Movement, ...] = ()
    scheduled: tuple[Scheduled, ...] = ()
    timer_changes: tuple[TimerChange, ...] = ()
    events: tuple[Event, ...] = ()
    messages: tuple[Sent, ...] = ()


class TransactionReceipt(NamedTuple):
    transaction_hash: bytes
    sender: bytes
    ok: bool
    error: str
    cycles: int
    cells: int
    burned: bytes
    tip: bytes
    effects: Effects
    created: bytes


class FireReceipt(NamedTuple):
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


class DestroyedReceipt(NamedTuple):
    timer_id: bytes
    reason: str
    event: Event


class QueryReceipt(NamedTuple):
    """``bid`` is the agent's answer, ``agent`` the contract that was asked; empty if it is the actor's own."""

    timer_id: bytes
    actor: bytes
    outcome: str
    cycles: int
    burned: bytes
    bid: tuple[bytes | None, bytes | None] | None
    agent: bytes


class MessageReceipt(NamedTuple):
    to: bytes
    sender: bytes
    handler: str
    ok: bool
    error: str
    cycles: int
    cells: int
    effects: Effects


class CallbackReceipt(NamedTuple):
    job_id: bytes
    actor: bytes
    handler: str
    ok: bool
    error: str
    cycles: int
    cells: int
    effects: Effects
    unsettled: Event | None


class BlockReceipts(NamedTuple):
    """The receipts of a block, each list in execution order, and their root."""

    height: int
    proposer: bytes
    transactions: tuple[TransactionReceipt, ...]
    fires: tuple[FireReceipt, ...]
    destroyed: tuple[DestroyedReceipt, ...]
    queries: tuple[QueryReceipt, ...]
    messages: tuple[MessageReceipt, ...]
    gc_cycles: int
    p50_tip: bytes
    callbacks: tuple[CallbackReceipt, ...]
    root: bytes


class Transfer(NamedTuple):
    to: bytes


class Deploy(NamedTuple):
    code: str


class Call(NamedTuple):
    to: bytes
    handler: str
    payload: bytes


class CancelTimer(NamedTuple):
    timer_id: bytes


class UpdateTimerConfig(NamedTuple):
    config: str


class ExtendTimer(NamedTuple):
    timer_id: bytes
    new_expires_at: int


Instruction = CancelTimer | UpdateTimerConfig | ExtendTimer


class System(NamedTuple):
    instruction: Instruction


class TransactionBody(NamedTuple):
    """The fields that a sender signed."""

    chain_id: str
    nonce: int
    gas_limit: int
    cells_limit: int
    max_fee_per_cycle: bytes
    max_priority_fee_per_cycle: bytes
    max_fee_per_cell: bytes
    value: bytes
    timer_allowance: bytes
    action: Transfer | Deploy | Call | System


class Submission(NamedTuple):
    """The payload of a runner's ``submit_result``."""

    job_id: bytes
    result: bytes


class Appointment(NamedTuple):
    """The payload of ``register_runner`` and ``unregister_runner``."""

    runner: bytes


# --- reading --------------------------------------------------------------------------------------------------------


def read_block(data: bytes) -> Block:
    """A block. Raises :class:`Unreadable`."""
    raw = _unpack(data)
    header, transactions = _fields("block", raw, 2)
    return Block(_header(header), _transactions(transactions), tagged(b"header", msgpack.packb(header)))


def read_header(block: bytes) -> tuple[Header, bytes]:
    """A block's header and its hash. Raises :class:`Unreadable`."""
    header, _ = _fields("block", _unpack(block), 2)
    return _header(header), tagged(b"header", msgpack.packb(header))


def read_receipts(data: bytes) -> BlockReceipts:
    """A block's receipts. Raises :class:`Unreadable`."""
    raw = _unpack(data)
    if type(raw) is not list or len(raw) not in (9, 10) or (len(raw) == 10 and raw[9] == []):
        raise Unreadable("receipts: expected 9 fields, and callbacks where there are any")
    height, proposer, transactions, fires, destroyed, queries, messages, gc_cycles, p50_tip = raw[:9]
    callbacks = raw[9] if len(raw) == 10 else []
    read = BlockReceipts(
        _u64(height),
        _address(proposer),
        _receipts_of_transactions(transactions),
        _fires(fires),
        _destroyed(destroyed),
        _queries(queries),
        _messages(messages),
        _u64(gc_cycles),
        _uint(p50_tip),
        _callbacks(callbacks),
        b"",
    )
    lists = [transactions, fires, destroyed, queries, messages, *([callbacks] if callbacks else [])]
    summary = [height, proposer, gc_cycles, p50_tip, *map(len, lists)]
    items = [summary, *(item for each in lists for item in each)]
    return read._replace(root=merkle_root(b"receipts", [msgpack.packb(item) for item in items]))


def read_transaction(wire: bytes) -> tuple[bytes, TransactionBody]:
    """Sender and body of a signed transaction; its signature is not looked at. Raises :class:`Unreadable`."""
    public_key, _, body = (_bytes(each) for each in _fields("transaction", _unpack(wire), 3))
    return address_of(public_key), _body(_unpack(body))


def read_submission(payload: bytes) -> Submission:
    """Raises :class:`Unreadable`."""
    return _submission(_unpack(payload))


def read_appointment(payload: bytes) -> Appointment:
    """Raises :class:`Unreadable`."""
    return _appointment(_unpack(payload))


def amount(data: bytes, limit: int) -> int:
    """The integer below a limit that a ``uint`` stands for. Raises :class:`Unreadable`."""
    value = int.from_bytes(_uint(data), "big")
    if value >= limit:
        raise Unreadable(f"integer {value} is out of range, expected below {limit}")
    return value


# --- hashes ---------------------------------------------------------------------------------------------------------


def keccak256(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


def tagged(tag: bytes, data: bytes) -> bytes:
    """BLAKE3 over the tag's length in a byte, the tag and the data."""
    return blake3(bytes((len(tag),)) + tag + data).digest()


def merkle_root(tag: bytes, contents: Sequence[bytes]) -> bytes:
    """The root over a list; an odd node moves up alone, and the list's length is part of the root."""
    level = [tagged(tag + b"/leaf", content) for content in contents]
    while len(level) > 1:
        pairs = [tagged(tag + b"/node", b"".join(level[at : at + 2])) for at in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return tagged(tag + b"/root", len(contents).to_bytes(8, "big") + b"".join(level))


def transaction_hash(wire: bytes) -> bytes:
    return tagged(b"transaction", wire)


def transactions_root(hashes: Sequence[bytes]) -> bytes:
    return merkle_root(b"transactions", hashes)


def address_of(public_key: bytes) -> bytes:
    """The account of a key."""
    return keccak256(public_key)[-ADDRESS_BYTES:]


def deployed_address(sender: bytes, nonce: int) -> bytes:
    """The address of an actor that a transaction deploys."""
    return keccak256(sender + nonce.to_bytes(8, "big"))[-ADDRESS_BYTES:]


# --- kinds ----------------------------------------------------------------------------------------------------------


def _unpack(data: bytes) -> Any:
    """The value of canonical MessagePack: lists, texts, bytes, integers, booleans and null."""
    try:
        value = msgpack.unpackb(data, raw=False)
        is_canonical = msgpack.packb(value) == data
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Unreadable(f"no MessagePack: {error}") from None
    if not is_canonical:
        raise Unreadable("no canonical MessagePack: the same value has another encoding")
    return value


def _fields(name: str, value: Any, count: int) -> list[Any]:
    if type(value) is not list or len(value) != count:
        raise Unreadable(f"{name}: expected a list of {count}, got {_words(value)}")
    return value


def _words(value: Any) -> str:
    return f"a list of {len(value)}" if type(value) is list else type(value).__name__


def _u64(value: Any) -> int:
    if type(value) is not int or not 0 <= value < U64_LIMIT:
        raise Unreadable(f"expected a u64, got {_words(value)}")
    return value


def _of_type(kind: type[T], name: str) -> Callable[[Any], T]:
    def read(value: Any) -> T:
        if type(value) is not kind:
            raise Unreadable(f"expected {name}, got {_words(value)}")
        return value

    return read


_bytes: Final = _of_type(bytes, "bytes")
_text: Final = _of_type(str, "a text")
_flag: Final = _of_type(bool, "a flag")


def _bytes_of(*lengths: int) -> Callable[[Any], bytes]:
    def read(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in lengths:
            raise Unreadable(f"expected {' or '.join(map(str, lengths))} bytes, got {_words(value)}")
        return value

    return read


_address: Final = _bytes_of(ADDRESS_BYTES)
_address_or_none: Final = _bytes_of(0, ADDRESS_BYTES)
_hash: Final = _bytes_of(HASH_BYTES)
_hash_or_none: Final = _bytes_of(0, HASH_BYTES)


def _uint(value: Any) -> bytes:
    if type(value) is not bytes or len(value) > MAX_UINT_BYTES or value[:1] == b"\0":
        raise Unreadable(f"expected an integer as bytes without leading zeros, got {_words(value)}")
    return value


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _struct(kind: type[T], *reads: Read) -> Callable[[Any], T]:
    name, count = kind.__name__, len(reads)

    def read(value: Any) -> T:
        fields = _fields(name, value, count)
        return kind(*[one(field) for one, field in zip(reads, fields, strict=True)])

    return read


def _list_of(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    def read_all(value: Any) -> tuple[T, ...]:
        if type(value) is not list:
            raise Unreadable(f"expected a list, got {_words(value)}")
        return tuple([read(each) for each in value]) if value else ()

    return read_all


def _tagged_struct(kinds: dict[Any, tuple[type, tuple[Read, ...]]]) -> Read:
    """One of several structs, distinguished by their first field."""
    reads: dict[Any, Read] = {tag: _struct(kind, *fields) for tag, (kind, fields) in kinds.items()}

    def read(value: Any) -> Any:
        if type(value) is not list or not value or type(value[0]) not in (str, int) or value[0] not in reads:
            raise Unreadable(f"expected one of {', '.join(map(str, reads))}, got {_words(value)}")
        return reads[value[0]](value[1:])

    return read


# --- the tables -----------------------------------------------------------------------------------------------------

_transactions: Final = _list_of(_bytes)
_header: Final = _struct(
    Header,
    *(_text, _u64, _u64, _hash, _u64, _hash, _hash, _hash),
    *(_uint, _uint, _uint, _u64, _u64, _u64, _u64),
)


def _pair(value: Any) -> tuple[str, str]:
    name, text = _fields("field of an event", value, 2)
    return _text(name), _text(text)


_event: Final = _struct(Event, _text, _bytes, _list_of(_pair))
_scheduled: Final = _struct(
    Scheduled,
    *(_hash, _address, _u64, _u64, _u64, _address),
    *(_or_null(_u64), _or_null(_uint), _or_null(_uint), _or_null(_uint)),
)
_timer_change: Final = _tagged_struct(
    {
        "cancelled": (Cancelled, (_hash,)),
        "extended": (Extended, (_hash, _u64)),
        "bidder": (Bidder, (_hash_or_none, _address_or_none)),
    }
)
_effects: Final = _struct(
    Effects,
    _list_of(_struct(Movement, _address, _address, _uint)),
    _list_of(_scheduled),
    _list_of(_timer_change),
    _list_of(_event),
    _list_of(_struct(Sent, _address, _text, _u64, _u64)),
)
_receipts_of_transactions: Final = _list_of(
    _struct(
        TransactionReceipt,
        *(_hash, _address, _flag, _text, _u64, _u64, _uint, _uint, _effects, _address_or_none),
    )
)
_fires: Final = _list_of(
    _struct(
        FireReceipt,
        *(_hash, _address, _u64, _u64, _address, _flag, _text, _u64, _u64, _uint, _uint, _uint, _effects),
    )
)
_destroyed: Final = _list_of(_struct(DestroyedReceipt, _hash, _text, _event))


def _bid(value: Any) -> tuple[bytes | None, bytes | None]:
    max_fee, priority = (_or_null(_uint)(each) for each in _fields("bid", value, 2))
    return max_fee, priority


def _query(value: Any) -> QueryReceipt:
    """The agent comes last and is left out if it is the actor's own."""
    if type(value) is list and len(value) == 6:
        return _query_of_own([*value, b""])
    if type(value) is list and value and value[-1] == b"":
        raise Unreadable("QueryReceipt: an agent that is none is left out")
    return _query_of_own(value)


_query_of_own: Final = _struct(QueryReceipt, _hash, _address, _text, _u64, _uint, _or_null(_bid), _address_or_none)
_queries: Final = _list_of(_query)
_messages: Final = _list_of(_struct(MessageReceipt, _address, _address, _text, _flag, _text, _u64, _u64, _effects))
_callbacks: Final = _list_of(
    _struct(CallbackReceipt, _hash, _address, _text, _flag, _text, _u64, _u64, _effects, _or_null(_event))
)
_instruction: Final = _tagged_struct(
    {48: (CancelTimer, (_bytes,)), 49: (UpdateTimerConfig, (_text,)), 50: (ExtendTimer, (_bytes, _u64))}
)
_action: Final = _tagged_struct(
    {
        "transfer": (Transfer, (_address,)),
        "deploy": (Deploy, (_text,)),
        "call": (Call, (_address, _text, _bytes)),
        "system": (System, (_instruction,)),
    }
)
_body: Final = _struct(TransactionBody, _text, _u64, _u64, _u64, _uint, _uint, _uint, _uint, _uint, _action)
_submission: Final = _struct(Submission, _bytes, _bytes)
_appointment: Final = _struct(Appointment, _bytes)
