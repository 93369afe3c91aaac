"""Bytes: how the protocol's values are written, read and hashed (``docs/protocol.md``, *Encoding* to *Receipts*).

A *struct* is a named tuple here and an array in MessagePack, with the fields in the order of the tables. An amount or
price is an ``int`` in this package, and :func:`uint` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgpack
from blake3 import blake3
from Crypto.Hash import keccak

Address = bytes
Hash = bytes

U64_LIMIT = 2**64
PRICE_LIMIT = 2**96
AMOUNT_LIMIT = 2**128
HEIGHT_LIMIT = 2**63
MAX_NAME_BYTES = 256
MAX_TRANSACTION_BYTES = 2 * 2**20
MAX_CODE = 16_000
SCRIPT = "builtin:script"
"""The code of actors whose payloads are scripts."""
NO_HASH = bytes(32)
PARAMETERS_ADDRESS = bytes(19) + b"\x09"
RUNNER_CONTRACT = bytes(19) + b"\x0a"
BID_ESCROW = bytes(19) + b"\x0b"


class Unreadable(Exception):
    """Bytes do not follow the tables. The message says where, and what is expected."""


# --- hashes -----------------------------------------------------------------------------------------------------------


def keccak256(data: bytes) -> Hash:
    return keccak.new(digest_bits=256, data=data).digest()


def tagged(tag: bytes, data: bytes) -> Hash:
    """BLAKE3 over the tag's length in one byte, the tag and the data."""
    return blake3(bytes((len(tag),)) + tag + data).digest()


def merkle_root(name: bytes, contents: Sequence[bytes]) -> Hash:
    """The root over a list. An odd last node moves up a level unchanged. The root covers the length."""
    level = [tagged(name + b"/leaf", content) for content in contents]
    while len(level) > 1:
        pairs = [tagged(name + b"/node", level[i] + level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return tagged(name + b"/root", number8(len(contents)) + b"".join(level))


def address_of(public_key: bytes) -> Address:
    """The address of a key's account."""
    return keccak256(public_key)[12:]


def deployed_address(sender: Address, nonce: int) -> Address:
    """[D-01] The address of the actor that a transaction deploys."""
    return keccak256(sender + number8(nonce))[12:]


def is_reserved(address: Address) -> bool:
    """Whether an address is one of the system's, ``0x00…00`` to ``0x00…0f``."""
    return address[:19] == bytes(19) and address[19] < 16


def address_text(address: Address) -> str:
    return "0x" + address.hex()


# --- MessagePack ------------------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """The one encoding of a value. Named tuples and tuples are arrays."""
    packed: bytes = msgpack.packb(value)
    return packed


def decode(data: bytes) -> Any:
    """The value of canonical MessagePack. Raises :class:`Unreadable`."""
    try:
        value = msgpack.unpackb(data, raw=False)
        is_canonical = msgpack.packb(value) == data
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Unreadable(f"no MessagePack: {error}") from None
    if not is_canonical:
        raise Unreadable("no canonical MessagePack: the same value has another encoding")
    return value


def number8(number: int) -> bytes:
    """A number of 8 bytes, as keys and hashes have it."""
    return number.to_bytes(8, "big")


def uint(number: int) -> bytes:
    """An amount or price: big-endian, without leading zeros."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def uint_or_null(number: int | None) -> bytes | None:
    return None if number is None else uint(number)


# --- reading fields ---------------------------------------------------------------------------------------------------

Read = Callable[[Any], Any]


def _of(kind: type, name: str) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise Unreadable(f"expected {name}, got {type(value).__name__}")
        return value

    return read


def _bytes_of(*lengths: int) -> Read:
    def read(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in lengths:
            raise Unreadable(f"expected {' or '.join(map(str, lengths))} bytes, got {value!r:.80}")
        return value

    return read


def _uint_below(limit: int, stays_bytes: bool = False) -> Read:
    def read(value: Any) -> int | bytes:
        if type(value) is not bytes or value[:1] == b"\0" or int.from_bytes(value, "big") >= limit:
            raise Unreadable(f"expected an integer below {limit} as bytes without leading zeros, got {value!r:.80}")
        return value if stays_bytes else int.from_bytes(value, "big")

    return read


def _u64(value: Any) -> int:
    if type(value) is not int or not 0 <= value < U64_LIMIT:
        raise Unreadable(f"expected a u64, got {value!r:.80}")
    return value


def _list_of(read: Read) -> Read:
    return lambda value: [read(each) for each in _list(value)]


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


_list, _flag, _text, _bytes = _of(list, "a list"), _of(bool, "a flag"), _of(str, "a text"), _of(bytes, "bytes")
_address, _hash = _bytes_of(20), _bytes_of(32)
_price, _amount = _uint_below(PRICE_LIMIT), _uint_below(AMOUNT_LIMIT)


def read_struct(kind: Any, reads: Sequence[Read], value: Any) -> Any:
    """A struct from the list of its fields. Raises :class:`Unreadable`."""
    if type(value) is not list or len(value) != len(reads):
        raise Unreadable(f"{kind.__name__}: expected a list of {len(reads)}, got {value!r:.80}")
    return kind(*[read(field) for read, field in zip(reads, value, strict=True)])


def struct(*fields: Any) -> tuple[Any, ...]:
    return fields


def _tagged_struct(kinds: dict[Any, tuple[Any, list[Read]]], value: Any) -> Any:
    """A struct of several shapes: it begins with its tag."""
    if type(value) is not list or not value or type(value[0]) not in (str, int) or value[0] not in kinds:
        raise Unreadable(f"expected one of {', '.join(map(str, kinds))}, got {value!r:.80}")
    return read_struct(*kinds[value[0]], value[1:])


# --- transactions -----------------------------------------------------------------------------------------------------


class Transfer(NamedTuple):
    to: Address


class Deploy(NamedTuple):
    code: str


class Call(NamedTuple):
    to: Address
    handler: str
    payload: bytes


class CancelTimer(NamedTuple):
    timer_id: Hash


class UpdateTimerConfig(NamedTuple):
    config: str


class ExtendTimer(NamedTuple):
    timer_id: Hash
    new_expires_at: int


class System(NamedTuple):
    instruction: CancelTimer | UpdateTimerConfig | ExtendTimer


class Transaction(NamedTuple):
    """The signed body of a transaction, its sender and its hash."""

    nonce: int
    gas_limit: int
    cells_limit: int
    max_fee_per_cycle: int
    max_priority_fee_per_cycle: int
    max_fee_per_cell: int
    value: int
    timer_allowance: int
    action: Transfer | Deploy | Call | System
    sender: Address
    hash: Hash


_INSTRUCTIONS: dict[int, tuple[Any, list[Read]]] = {
    48: (CancelTimer, [_hash]),
    49: (UpdateTimerConfig, [_text]),
    50: (ExtendTimer, [_hash, _u64]),
}
_ACTIONS: dict[str, tuple[Any, list[Read]]] = {
    "transfer": (Transfer, [_address]),
    "deploy": (Deploy, [_text]),
    "call": (Call, [_address, _text, _bytes]),
    "system": (System, [partial(_tagged_struct, _INSTRUCTIONS)]),
}
_BODY = (_text, _u64, _u64, _u64, _price, _price, _price, _amount, _amount, partial(_tagged_struct, _ACTIONS))


def transaction_hash(wire: bytes) -> Hash:
    return tagged(b"transaction", wire)


def read_transaction(wire: bytes, chain_id: str) -> Transaction:
    """A transaction from its bytes. Signatures are not verified. Raises :class:`Unreadable` for a malformed one."""
    if len(wire) > MAX_TRANSACTION_BYTES:
        raise Unreadable("transaction: expected 2 MiB at most")
    public_key, _, body = read_struct(struct, [_bytes] * 3, decode(wire))
    named, *numbers, action = read_struct(struct, _BODY, decode(body))
    sender = address_of(public_key)
    if named != chain_id or is_reserved(sender):
        raise Unreadable("transaction: of another chain, or of a reserved address")
    if isinstance(action, Call) and not is_name(action.handler):
        raise Unreadable("transaction: a handler has 1 to 256 bytes")
    if isinstance(action, Deploy) and not is_code(action.code):
        raise Unreadable("transaction: no code")
    return Transaction._make((*numbers, action, sender, transaction_hash(wire)))


def is_name(text: str, may_be_empty: bool = False) -> bool:
    """Whether a text names a handler or an event: 1 (or 0) to 256 bytes of UTF-8, without lone surrogates."""
    try:
        return (may_be_empty or text != "") and len(text.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def is_code(text: str) -> bool:
    """Whether a text may be deployed: the script's code, or what may be the source of a program."""
    return text == SCRIPT or (not text.startswith("builtin:") and 1 <= len(text) <= MAX_CODE and text.isascii())


# --- blocks -----------------------------------------------------------------------------------------------------------


class Header(NamedTuple):
    chain_id: str
    height: int
    view: int
    parent_hash: Hash
    proposer: int
    """Index in the genesis's list of validators."""
    transactions_root: Hash
    receipts_root: Hash
    state_root: Hash
    basefee_cycle: int
    basefee_cell: int
    basefee_lane_timer: int
    lane_cycles: int
    lane_cells: int
    user_cycles: int
    user_cells: int


_HEADER = (_text, _u64, _u64, _hash, _u64, _hash, _hash, _hash, _price, _price, _price, _u64, _u64, _u64, _u64)


class Block(NamedTuple):
    header: Header
    transactions: tuple[bytes, ...]
    hash: Hash


def read_block(data: bytes) -> Block:
    """A block from its bytes. Raises :class:`Unreadable`."""
    value = decode(data)
    header, wires = read_struct(struct, (partial(read_struct, Header, _HEADER), _list_of(_bytes)), value)
    return Block(header, tuple(wires), tagged(b"header", encode(value[0])))


def transactions_root(wires: Sequence[bytes]) -> Hash:
    return merkle_root(b"transactions", [transaction_hash(wire) for wire in wires])


# --- receipts ---------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    name: str
    actor: Address
    fields: list[tuple[str, str]]


class Movement(NamedTuple):
    source: Address
    target: Address
    amount: bytes


class Scheduled(NamedTuple):
    timer_id: Hash
    actor: Address
    trigger_height: int
    sequence: int
    expires_at: int
    fee_payer: Address
    gas_limit: int | None
    max_fee_per_cycle: bytes | None
    max_priority_fee_per_cycle: bytes | None
    payer_cap: bytes | None


class Sent(NamedTuple):
    to: Address
    handler: str
    cycles: int
    cells: int


class Effects(NamedTuple):
    """What a run did, in order. All lists are empty if it failed."""

    movements: list[Movement]
    scheduled: list[Scheduled]
    timer_changes: list[Any]
    """Structs that begin with their tags, such as ``("cancelled", timer_id)``."""
    events: list[Event]
    messages: list[Sent]


class TransactionReceipt(NamedTuple):
    transaction_hash: Hash
    sender: Address
    ok: bool
    error: str
    cycles: int
    cells: int
    burned: bytes
    tip: bytes
    effects: Effects
    created: Address
    """Empty if no actor was deployed."""


class FireReceipt(NamedTuple):
    timer_id: Hash
    actor: Address
    trigger_height: int
    sequence: int
    fee_payer: Address
    ok: bool
    error: str
    cycles: int
    cells: int
    burned: bytes
    tip: bytes
    tip_per_cycle: bytes
    effects: Effects


class DestroyedReceipt(NamedTuple):
    timer_id: Hash
    reason: str
    event: Event


class QueryReceipt(NamedTuple):
    timer_id: Hash
    actor: Address
    outcome: str
    cycles: int
    burned: bytes
    bid: tuple[bytes | None, bytes | None] | None
    agent: Address
    """Empty, and then left out of the encoding, if it is the actor's own agent."""


class MessageReceipt(NamedTuple):
    to: Address
    sender: Address
    handler: str
    ok: bool
    error: str
    cycles: int
    cells: int
    effects: Effects


class CallbackReceipt(NamedTuple):
    job_id: Hash
    actor: Address
    handler: str
    ok: bool
    error: str
    cycles: int
    cells: int
    effects: Effects
    unsettled: Event | None


class Receipts(NamedTuple):
    height: int
    proposer: Address
    """The account that got the tips."""
    transactions: list[TransactionReceipt]
    fires: list[FireReceipt]
    destroyed: list[DestroyedReceipt]
    queries: list[QueryReceipt]
    messages: list[MessageReceipt]
    gc_cycles: int
    p50_tip: bytes
    callbacks: list[CallbackReceipt]
    """Left out of the encoding if it is empty."""


def _written(receipts: Receipts) -> list[Any]:
    """The fields of receipts as they are written: without last fields that are empty."""
    fields: list[Any] = list(receipts)
    fields[5] = [query if query.agent else query[:-1] for query in receipts.queries]
    return fields if receipts.callbacks else fields[:-1]


def encode_receipts(receipts: Receipts) -> bytes:
    return encode(_written(receipts))


def receipts_root(receipts: Receipts) -> Hash:
    """The root over a summary, then each receipt, list after list; callbacks last, where there are any."""
    height, proposer, *lists, gc_cycles, p50_tip = _written(receipts)[:9]
    if receipts.callbacks:
        lists.append(receipts.callbacks)
    summary = [height, proposer, gc_cycles, p50_tip, *map(len, lists)]
    return merkle_root(b"receipts", [encode(item) for item in [summary, *(item for each in lists for item in each)]])


_empty_or_address, _empty_or_hash, _RUN = _bytes_of(0, 20), _bytes_of(0, 32), (_flag, _text, _u64, _u64)
_fee, _cap, _sum = (_uint_below(limit, stays_bytes=True) for limit in (PRICE_LIMIT, AMOUNT_LIMIT, 2**256))
_TERMS = (_or_null(_u64), _or_null(_fee), _or_null(_fee), _or_null(_cap))
_CHANGES: dict[str, tuple[Any, list[Read]]] = {
    "cancelled": (struct, [_hash]),
    "extended": (struct, [_hash, _u64]),
    "bidder": (struct, [_empty_or_hash, _empty_or_address]),
    "locked": (struct, [_hash, _fee]),
    "watching": (struct, [_hash, _address, _text]),
    "watchable": (struct, [_address, _text, _empty_or_hash]),
    "unwatchable": (struct, [_address, _text]),
}
_movements = _list_of(partial(read_struct, Movement, (_address, _address, _sum)))
_scheduled = _list_of(partial(read_struct, Scheduled, (_hash, _address, _u64, _u64, _u64, _address, *_TERMS)))
_changes = _list_of(lambda value: _tagged_struct(_CHANGES, value) and tuple(value))
_event = partial(read_struct, Event, (_text, _bytes, _list_of(partial(read_struct, struct, (_text, _text)))))
_sent = _list_of(partial(read_struct, Sent, (_address, _text, _u64, _u64)))
_effects = partial(read_struct, Effects, (_movements, _scheduled, _changes, _list_of(_event), _sent))
_TRANSACTION = (_hash, _address, *_RUN, _sum, _sum, _effects, _empty_or_address)
_FIRE = (_hash, _address, _u64, _u64, _address, *_RUN, _sum, _sum, _fee, _effects)
_bid = partial(read_struct, struct, (_or_null(_fee), _or_null(_fee)))
_QUERY = (_hash, _address, _text, _u64, _sum, _or_null(_bid), _empty_or_address)
_transactions = _list_of(partial(read_struct, TransactionReceipt, _TRANSACTION))
_fires = _list_of(partial(read_struct, FireReceipt, _FIRE))
_destroyed = _list_of(partial(read_struct, DestroyedReceipt, (_hash, _text, _event)))
_queries = _list_of(lambda query: read_struct(QueryReceipt, _QUERY, [*query, b""] if len(_list(query)) == 6 else query))
_messages = _list_of(partial(read_struct, MessageReceipt, (_address, _address, _text, *_RUN, _effects)))
_CALLBACK = (_hash, _address, _text, *_RUN, _effects, _or_null(_event))
_callbacks = _list_of(partial(read_struct, CallbackReceipt, _CALLBACK))
_RECEIPTS = (_u64, _address, _transactions, _fires, _destroyed, _queries, _messages, _u64, _fee, _callbacks)


def read_receipts(data: bytes) -> Receipts:
    """Receipts from their bytes. Raises :class:`Unreadable`."""
    value = _list(decode(data))
    receipts: Receipts = read_struct(Receipts, _RECEIPTS, [*value, []] if len(value) == 9 else value)
    if encode_receipts(receipts) != data:
        raise Unreadable("receipts: what is empty and last is left out")
    return receipts
