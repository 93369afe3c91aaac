"""Bytes: how the protocol's values are written, read and hashed (``docs/protocol.md``, *Encoding* to *Receipts*).

A *struct* is a named tuple here and an array in MessagePack, with the fields in the order of the tables. The types of
its fields say how it is read (:func:`reader`). Amounts and prices are an ``int`` in this package, and :func:`uint`
writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgpack
from blake3 import blake3
from Crypto.Hash import keccak

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


# --- types of fields --------------------------------------------------------------------------------------------------

Read = Callable[[Any], Any]


def _of(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise Unreadable(f"expected {kind.__name__}, got {type(value).__name__}")
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


def _tagged_struct(kinds: dict[Any, Any]) -> Read:
    """Reads a struct of several shapes, which begins with its tag. What is read has no tag."""
    reads = {tag: reader(kind) for tag, kind in kinds.items()}

    def read(value: Any) -> Any:
        if type(value) is not list or not value or type(value[0]) not in (str, int) or value[0] not in kinds:
            raise Unreadable(f"expected one of {', '.join(map(str, kinds))}, got {value!r:.80}")
        return reads[value[0]](value[1:])

    return read


Address = Annotated[bytes, _bytes_of(20)]
Hash = Annotated[bytes, _bytes_of(32)]
AddressOrEmpty = Annotated[bytes, _bytes_of(0, 20)]
HashOrEmpty = Annotated[bytes, _bytes_of(0, 32)]
U64 = Annotated[int, _u64]
Price = Annotated[int, _uint_below(PRICE_LIMIT)]
Amount = Annotated[int, _uint_below(AMOUNT_LIMIT)]
PriceBytes = Annotated[bytes, _uint_below(PRICE_LIMIT, stays_bytes=True)]
"""A price in receipts, where it stays as it is written."""
AmountBytes = Annotated[bytes, _uint_below(AMOUNT_LIMIT, stays_bytes=True)]
SumBytes = Annotated[bytes, _uint_below(2**256, stays_bytes=True)]


def reader(kind: Any) -> Read:
    """What reads values of a type: one of the above, a struct, a list, or what may be null."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        read: Read = parts[1]
        return read
    if hasattr(kind, "_fields"):
        fields = get_type_hints(kind, include_extras=True).values()
        return _struct_of([reader(field) for field in fields], len(kind._field_defaults), lambda fields: kind(*fields))
    if origin is tuple:
        return _struct_of([reader(field) for field in parts], 0, tuple)
    if origin is list:
        read_list, read_item = _of(list), reader(parts[0])
        return lambda value: [read_item(item) for item in read_list(value)]
    if origin in (Union, UnionType):
        read_value = reader(parts[0])
        return lambda value: None if value is None else read_value(value)
    return _of(kind)


def _struct_of(reads: Sequence[Read], optional: int, make: Callable[..., Any]) -> Read:
    """Reads a struct from the list of its fields, of which the last ``optional`` ones may be left out."""

    def read(value: Any) -> Any:
        if type(value) is not list or not len(reads) - optional <= len(value) <= len(reads):
            raise Unreadable(f"expected a list of {len(reads)}, got {value!r:.80}")
        return make([read(field) for read, field in zip(reads, value, strict=False)])

    return read


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
    new_expires_at: U64


Instruction = Annotated[
    CancelTimer | UpdateTimerConfig | ExtendTimer,
    _tagged_struct({48: CancelTimer, 49: UpdateTimerConfig, 50: ExtendTimer}),
]


class System(NamedTuple):
    instruction: Instruction


Action = Annotated[
    Transfer | Deploy | Call | System,
    _tagged_struct({"transfer": Transfer, "deploy": Deploy, "call": Call, "system": System}),
]


class Transaction(NamedTuple):
    """The signed body of a transaction, its sender and its hash."""

    nonce: U64
    gas_limit: U64
    cells_limit: U64
    max_fee_per_cycle: Price
    max_priority_fee_per_cycle: Price
    max_fee_per_cell: Price
    value: Amount
    timer_allowance: Amount
    action: Action
    sender: Address
    hash: Hash


_read_signed = reader(tuple[bytes, bytes, bytes])
_read_body = reader(tuple[str, U64, U64, U64, Price, Price, Price, Amount, Amount, Action])


def transaction_hash(wire: bytes) -> Hash:
    return tagged(b"transaction", wire)


def read_transaction(wire: bytes, chain_id: str) -> Transaction:
    """A transaction from its bytes. Signatures are not verified. Raises :class:`Unreadable` for a malformed one."""
    if len(wire) > MAX_TRANSACTION_BYTES:
        raise Unreadable("transaction: expected 2 MiB at most")
    public_key, _, body = _read_signed(decode(wire))
    named, *numbers, action = _read_body(decode(body))
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
    height: U64
    view: U64
    parent_hash: Hash
    proposer: U64
    """Index in the genesis's list of validators."""
    transactions_root: Hash
    receipts_root: Hash
    state_root: Hash
    basefee_cycle: Price
    basefee_cell: Price
    basefee_lane_timer: Price
    lane_cycles: U64
    lane_cells: U64
    user_cycles: U64
    user_cells: U64


class Block(NamedTuple):
    header: Header
    transactions: tuple[bytes, ...]
    hash: Hash


_read_block = reader(tuple[Header, list[bytes]])


def read_block(data: bytes) -> Block:
    """A block from its bytes. Raises :class:`Unreadable`."""
    value = decode(data)
    header, wires = _read_block(value)
    return Block(header, tuple(wires), tagged(b"header", encode(value[0])))


def transactions_root(wires: Sequence[bytes]) -> Hash:
    return merkle_root(b"transactions", [transaction_hash(wire) for wire in wires])


# --- receipts ---------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    name: str
    actor: bytes
    fields: list[tuple[str, str]]


class Movement(NamedTuple):
    source: Address
    target: Address
    amount: SumBytes


class Scheduled(NamedTuple):
    timer_id: Hash
    actor: Address
    trigger_height: U64
    sequence: U64
    expires_at: U64
    fee_payer: Address
    gas_limit: U64 | None
    max_fee_per_cycle: PriceBytes | None
    max_priority_fee_per_cycle: PriceBytes | None
    payer_cap: AmountBytes | None


CHANGES: dict[str, Any] = {
    "cancelled": tuple[Hash],
    "extended": tuple[Hash, U64],
    "bidder": tuple[HashOrEmpty, AddressOrEmpty],
    "locked": tuple[Hash, PriceBytes],
    "watching": tuple[Hash, Address, str],
    "watchable": tuple[Address, str, HashOrEmpty],
    "unwatchable": tuple[Address, str],
}
_read_change = _tagged_struct(CHANGES)
TimerChange = Annotated[tuple[Any, ...], lambda value: _read_change(value) and tuple(value)]
"""A struct that begins with its tag, such as ``("cancelled", timer_id)``."""


class Sent(NamedTuple):
    to: Address
    handler: str
    cycles: U64
    cells: U64


class Effects(NamedTuple):
    """What a run did, in order. All lists are empty if it failed."""

    movements: list[Movement]
    scheduled: list[Scheduled]
    timer_changes: list[TimerChange]
    events: list[Event]
    messages: list[Sent]


class TransactionReceipt(NamedTuple):
    transaction_hash: Hash
    sender: Address
    ok: bool
    error: str
    cycles: U64
    cells: U64
    burned: SumBytes
    tip: SumBytes
    effects: Effects
    created: AddressOrEmpty
    """Empty if no actor was deployed."""


class FireReceipt(NamedTuple):
    timer_id: Hash
    actor: Address
    trigger_height: U64
    sequence: U64
    fee_payer: Address
    ok: bool
    error: str
    cycles: U64
    cells: U64
    burned: SumBytes
    tip: SumBytes
    tip_per_cycle: PriceBytes
    effects: Effects


class DestroyedReceipt(NamedTuple):
    timer_id: Hash
    reason: str
    event: Event


class QueryReceipt(NamedTuple):
    timer_id: Hash
    actor: Address
    outcome: str
    cycles: U64
    burned: SumBytes
    bid: tuple[PriceBytes | None, PriceBytes | None] | None
    agent: AddressOrEmpty = b""
    """Empty, and then left out of the encoding, if it is the actor's own agent."""


class MessageReceipt(NamedTuple):
    to: Address
    sender: Address
    handler: str
    ok: bool
    error: str
    cycles: U64
    cells: U64
    effects: Effects


class CallbackReceipt(NamedTuple):
    job_id: Hash
    actor: Address
    handler: str
    ok: bool
    error: str
    cycles: U64
    cells: U64
    effects: Effects
    unsettled: Event | None


class Receipts(NamedTuple):
    height: U64
    proposer: Address
    """The account that got the tips."""
    transactions: list[TransactionReceipt]
    fires: list[FireReceipt]
    destroyed: list[DestroyedReceipt]
    queries: list[QueryReceipt]
    messages: list[MessageReceipt]
    gc_cycles: U64
    p50_tip: PriceBytes
    callbacks: list[CallbackReceipt] = []
    """Left out of the encoding if it is empty."""


def written(value: Any) -> Any:
    """The fields of a struct as they are written: its last ones are left out while they have their defaults."""
    fields, defaults = list(value), list(value._field_defaults.values())
    while defaults and fields[-1] == defaults.pop():
        fields.pop()
    return fields


def encode_receipts(receipts: Receipts) -> bytes:
    return encode(written(receipts._replace(queries=list(map(written, receipts.queries)))))


def receipts_root(receipts: Receipts) -> Hash:
    """The root over a summary, then each receipt, list after list; callbacks last, where there are any."""
    lists: list[list[Any]] = [
        receipts.transactions,
        receipts.fires,
        receipts.destroyed,
        receipts.queries,
        receipts.messages,
    ]
    lists += [receipts.callbacks] if receipts.callbacks else []
    summary = [receipts.height, receipts.proposer, receipts.gc_cycles, receipts.p50_tip, *map(len, lists)]
    return merkle_root(b"receipts", [encode(summary), *(encode(written(item)) for each in lists for item in each)])


_read_receipts = reader(Receipts)


def read_receipts(data: bytes) -> Receipts:
    """Receipts from their bytes. Raises :class:`Unreadable`."""
    receipts: Receipts = _read_receipts(decode(data))
    if encode_receipts(receipts) != data:
        raise Unreadable("receipts: what is empty and last is left out")
    return receipts
