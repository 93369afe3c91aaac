"""The auditor's decoder of a chain: blocks, transactions and receipts by the byte tables of ``docs/protocol.md``.

Validators encode and decode with the structs of :mod:`validator.chain.block` and :mod:`validator.primitives.codec`. A
bug there is on both sides of each of their comparisons. So the auditor decodes the same bytes with another library,
into separate records, and computes roots and hashes itself. An encoding that deviates from the tables does not pass.

A field is read by its kind in the table, which its record names: ``u64`` an integer, ``uint`` big-endian bytes without
leading zeros, addresses and hashes by their lengths. Excess bytes, wrong types and non-canonical encodings raise
:class:`Unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

import msgpack
from blake3 import blake3
from Crypto.Hash import keccak

from validator.primitives.types import AMOUNT_LIMIT, PRICE_LIMIT

U64_LIMIT: Final = 2**64
ADDRESS_BYTES: Final = 20
HASH_BYTES: Final = 32
MAX_UINT_BYTES: Final = 32
REMEMBERED_ADDRESSES: Final = 1_024
REMEMBERED_TAGS: Final = 32

T = TypeVar("T")
Read = Callable[[Any], Any]


class Unreadable(Exception):
    """Raised if bytes do not follow the protocol's tables."""


# --- kinds ----------------------------------------------------------------------------------------------------------


def _words(value: Any) -> str:
    return f"a list of {len(value)}" if type(value) is list else type(value).__name__


def _fields(name: str, value: Any, count: int) -> list[Any]:
    if type(value) is not list or len(value) != count:
        raise Unreadable(f"{name}: expected a list of {count}, got {_words(value)}")
    return value


def _u64(value: Any) -> int:
    if type(value) is not int or not 0 <= value < U64_LIMIT:
        raise Unreadable(f"expected a u64, got {_words(value)}")
    return value


def _uint_below(limit: int) -> Read:
    def read(value: Any) -> int:
        if type(value) is not bytes or len(value) > MAX_UINT_BYTES or value[:1] == b"\0":
            raise Unreadable(f"expected an integer as bytes without leading zeros, got {_words(value)}")
        number = int.from_bytes(value, "big")
        if number >= limit:
            raise Unreadable(f"integer {number} is out of range, expected below {limit}")
        return number

    return read


def _of_type(kind: type[T], name: str) -> Callable[[Any], T]:
    def read(value: Any) -> T:
        if type(value) is not kind:
            raise Unreadable(f"expected {name}, got {_words(value)}")
        return value

    return read


def _bytes_of(*lengths: int) -> Read:
    def read(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in lengths:
            raise Unreadable(f"expected {' or '.join(map(str, lengths))} bytes, got {_words(value)}")
        return value

    return read


_bytes: Final = _of_type(bytes, "bytes")
_text: Final = _of_type(str, "a text")
_PLAIN: Final[dict[type, Read]] = {bytes: _bytes, str: _text, bool: _of_type(bool, "a flag")}


def _reader(kind: Any) -> Read:
    """The function that reads a field of the given kind.

    A kind is annotated with its reader, a plain type, a list, a record, or an optional kind.
    """
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        return arguments[1]
    if get_origin(kind) is tuple:
        return _list_of(_reader(arguments[0]))
    if type(None) in arguments:
        return _or_null(_reader(arguments[0]))
    return _PLAIN.get(kind) or _record(kind)


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _list_of(read: Read) -> Read:
    def read_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Unreadable(f"expected a list, got {_words(value)}")
        return tuple([read(each) for each in value]) if value else ()

    return read_all


def _record(kind: type[T]) -> Callable[[Any], T]:
    """A function that reads a record from the list of its fields; each field is read by its type annotation."""
    reads: list[Read] = [_reader(each) for each in get_type_hints(kind, include_extras=True).values()]

    name, count, make = kind.__name__, len(reads), cast(Callable[[type[T], list[Any]], T], tuple.__new__)

    def read(value: Any) -> T:
        if type(value) is not list or len(value) != count:
            _fields(name, value, count)
        return make(kind, [one(field) for one, field in zip(reads, value, strict=True)])

    return read


def _one_of(kinds: dict[Any, type]) -> Read:
    """A function that reads one of several records. A tag before the fields tells which record it is."""
    reads: dict[Any, Read] = {tag: _record(kind) for tag, kind in kinds.items()}

    def read(value: Any) -> Any:
        if type(value) is not list or not value or type(value[0]) not in (str, int) or value[0] not in reads:
            raise Unreadable(f"expected one of {', '.join(map(str, reads))}, got {_words(value)}")
        return reads[value[0]](value[1:])

    return read


def _pair(value: Any) -> tuple[str, str]:
    name, text = _fields("field of an event", value, 2)
    return _text(name), _text(text)


U64 = Annotated[int, _u64]
Uint = Annotated[int, _uint_below(256**MAX_UINT_BYTES)]
Price = Annotated[int, _uint_below(PRICE_LIMIT)]
Amount = Annotated[int, _uint_below(AMOUNT_LIMIT)]
Address = Annotated[bytes, _bytes_of(ADDRESS_BYTES)]
AddressOrNone = Annotated[bytes, _bytes_of(0, ADDRESS_BYTES)]
Hash = Annotated[bytes, _bytes_of(HASH_BYTES)]
HashOrNone = Annotated[bytes, _bytes_of(0, HASH_BYTES)]


# --- records --------------------------------------------------------------------------------------------------------


class Header(NamedTuple):
    chain_id: str
    height: U64
    view: U64
    parent_hash: Hash
    proposer: U64
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
    """A block: its header, its encoded signed transactions, and the header's hash."""

    header: Header
    transactions: tuple[bytes, ...]
    digest: bytes


class Event(NamedTuple):
    name: str
    actor: bytes
    fields: tuple[Annotated[tuple[str, str], _pair], ...]


class Movement(NamedTuple):
    source: Address
    target: Address
    amount: Uint


class Scheduled(NamedTuple):
    """A newly scheduled timer, with its terms as stored. ``None`` is a fee or limit that its caller left open."""

    timer_id: Hash
    actor: Address
    trigger_height: U64
    sequence: U64
    expires_at: U64
    fee_payer: Address
    gas_limit: U64 | None
    max_fee_per_cycle: Price | None
    max_priority_fee_per_cycle: Price | None
    payer_cap: Amount | None


class Cancelled(NamedTuple):
    timer_id: Hash


class Extended(NamedTuple):
    timer_id: Hash
    expires_at: U64


class Bidder(NamedTuple):
    """A change of the bidding agent: from now on the contract ``agent`` bids for the timer.

    Without a timer id, it bids for all timers of the running actor.
    """

    timer_id: HashOrNone
    agent: AddressOrNone


class Locked(NamedTuple):
    """The bid that was locked for a new timer, at the cost of its fee payer."""

    timer_id: Hash
    amount: Price


class Watching(NamedTuple):
    """The key of an actor's storage that a new timer watches."""

    timer_id: Hash
    actor: Address
    key: str


class WatchableKey(NamedTuple):
    """A key that timers may watch, when that is allowed and whenever it is written."""

    actor: Address
    key: str
    digest: HashOrNone
    """The digest of the value that the key has then; empty if it has none."""


class UnwatchableKey(NamedTuple):
    """A key that timers may not watch any more."""

    actor: Address
    key: str


TimerChange = Annotated[
    Cancelled | Extended | Bidder | Locked | Watching | WatchableKey | UnwatchableKey,
    _one_of(
        {
            "cancelled": Cancelled,
            "extended": Extended,
            "bidder": Bidder,
            "locked": Locked,
            "watching": Watching,
            "watchable": WatchableKey,
            "unwatchable": UnwatchableKey,
        }
    ),
]


class Sent(NamedTuple):
    to: Address
    handler: str
    cycles: U64
    cells: U64


class Effects(NamedTuple):
    """The effects of a handler's run."""

    movements: tuple[Movement, ...] = ()
    scheduled: tuple[Scheduled, ...] = ()
    timer_changes: tuple[TimerChange, ...] = ()
    events: tuple[Event, ...] = ()
    messages: tuple[Sent, ...] = ()


NO_EFFECTS: Final = Effects()
_NOTHING: Final[list[Any]] = [[] for _ in Effects._fields]
_some_effects: Final = _record(Effects)


def _effects(value: Any) -> Effects:
    """Read the effects of a run. Most runs have none."""
    return NO_EFFECTS if value == _NOTHING else _some_effects(value)


RunEffects = Annotated[Effects, _effects]


class TransactionReceipt(NamedTuple):
    transaction_hash: Hash
    sender: Address
    ok: bool
    error: str
    cycles: U64
    cells: U64
    burned: Uint
    tip: Uint
    effects: RunEffects
    created: AddressOrNone


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
    burned: Uint
    tip: Uint
    tip_per_cycle: Price
    effects: RunEffects


class DestroyedReceipt(NamedTuple):
    timer_id: Hash
    reason: str
    event: Event


class Bid(NamedTuple):
    """A bidding agent's answer: fees per cycle. A fee of ``None`` is left to the default agent."""

    max_fee: Price | None
    priority: Price | None


class QueryReceipt(NamedTuple):
    """The receipt of a query to a bidding agent about a timer.

    ``bid`` is the agent's answer. ``agent`` is the contract that was asked; empty for the actor's own agent.
    """

    timer_id: Hash
    actor: Address
    outcome: str
    cycles: U64
    burned: Uint
    bid: Bid | None
    agent: AddressOrNone


_query_of_own: Final = _record(QueryReceipt)


def _query(value: Any) -> QueryReceipt:
    """Read a query receipt. Its last field, ``agent``, is absent if the actor's own agent was asked."""
    if type(value) is list and len(value) == 6:
        return _query_of_own([*value, b""])
    if type(value) is list and value and value[-1] == b"":
        raise Unreadable("QueryReceipt: an agent that is none is left out")
    return _query_of_own(value)


class MessageReceipt(NamedTuple):
    to: Address
    sender: Address
    handler: str
    ok: bool
    error: str
    cycles: U64
    cells: U64
    effects: RunEffects


class CallbackReceipt(NamedTuple):
    job_id: Hash
    actor: Address
    handler: str
    ok: bool
    error: str
    cycles: U64
    cells: U64
    effects: RunEffects
    unsettled: Event | None


class BlockReceipts(NamedTuple):
    """The receipts of a block, each list in execution order, and their root."""

    height: U64
    proposer: Address
    transactions: tuple[TransactionReceipt, ...]
    fires: tuple[FireReceipt, ...]
    destroyed: tuple[DestroyedReceipt, ...]
    queries: tuple[Annotated[QueryReceipt, _query], ...]
    messages: tuple[MessageReceipt, ...]
    gc_cycles: U64
    p50_tip: Price
    callbacks: tuple[CallbackReceipt, ...]
    root: bytes


class Transfer(NamedTuple):
    to: Address


class Deploy(NamedTuple):
    code: str


class Call(NamedTuple):
    to: Address
    handler: str
    payload: bytes


class CancelTimer(NamedTuple):
    timer_id: bytes


class UpdateTimerConfig(NamedTuple):
    config: str


class ExtendTimer(NamedTuple):
    timer_id: bytes
    new_expires_at: U64


Instruction = Annotated[
    CancelTimer | UpdateTimerConfig | ExtendTimer, _one_of({48: CancelTimer, 49: UpdateTimerConfig, 50: ExtendTimer})
]


class System(NamedTuple):
    instruction: Instruction


Action = Annotated[
    Transfer | Deploy | Call | System,
    _one_of({"transfer": Transfer, "deploy": Deploy, "call": Call, "system": System}),
]


class TransactionBody(NamedTuple):
    """The signed part of a transaction."""

    chain_id: str
    nonce: U64
    gas_limit: U64
    cells_limit: U64
    max_fee_per_cycle: Price
    max_priority_fee_per_cycle: Price
    max_fee_per_cell: Price
    value: Uint
    timer_allowance: Uint
    action: Action


class Submission(NamedTuple):
    """The payload of the runner contract's handler ``submit_result``, which a runner calls."""

    job_id: bytes
    result: bytes


class Appointment(NamedTuple):
    """The payload of ``register_runner`` and ``unregister_runner``."""

    runner: bytes


# --- hashes ---------------------------------------------------------------------------------------------------------


def keccak256(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


def watched_digest(value: bytes | None) -> bytes:
    """The digest of the value of a key that timers may watch; empty if the key has none."""
    return b"" if value is None else tagged(b"watched value", value)


def tagged(tag: bytes, data: bytes) -> bytes:
    """BLAKE3 over the tag's length in one byte, the tag and the data."""
    return blake3(_prefix(tag) + data).digest()


@lru_cache(REMEMBERED_TAGS)
def _prefix(tag: bytes) -> bytes:
    return bytes((len(tag),)) + tag


def merkle_root(tag: bytes, contents: Sequence[bytes]) -> bytes:
    """The Merkle root of a list. An unpaired node moves up a level unchanged. The root also covers the length."""
    leaf, node = _prefix(tag + b"/leaf"), _prefix(tag + b"/node")
    level = [blake3(leaf + content).digest() for content in contents]
    while len(level) > 1:
        pairs = [blake3(node + level[at] + level[at + 1]).digest() for at in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return tagged(tag + b"/root", len(contents).to_bytes(8, "big") + b"".join(level))


def transaction_hash(wire: bytes) -> bytes:
    return tagged(b"transaction", wire)


def transactions_root(hashes: Sequence[bytes]) -> bytes:
    return merkle_root(b"transactions", hashes)


@lru_cache(REMEMBERED_ADDRESSES)
def address_of(public_key: bytes) -> bytes:
    """The account address of a public key."""
    return keccak256(public_key)[-ADDRESS_BYTES:]


def deployed_address(sender: bytes, nonce: int) -> bytes:
    """The address of an actor that a transaction deploys."""
    return keccak256(sender + nonce.to_bytes(8, "big"))[-ADDRESS_BYTES:]


# --- reading --------------------------------------------------------------------------------------------------------

_header: Final = _record(Header)
_receipts: Final = _record(BlockReceipts)
_body: Final = _record(TransactionBody)
_transactions: Final = _list_of(_bytes)


def _unpack(data: bytes) -> Any:
    """Decode canonical MessagePack: lists, texts, bytes, integers, booleans and null. Raises :class:`Unreadable`."""
    try:
        value = msgpack.unpackb(data, raw=False)
        is_canonical = msgpack.packb(value) == data
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Unreadable(f"no MessagePack: {error}") from None
    if not is_canonical:
        raise Unreadable("no canonical MessagePack: the same value has another encoding")
    return value


def read_block(data: bytes) -> Block:
    """Decode a block. Raises :class:`Unreadable`."""
    header, transactions = _fields("block", _unpack(data), 2)
    return Block(_header(header), _transactions(transactions), tagged(b"header", msgpack.packb(header)))


def read_receipts(data: bytes) -> BlockReceipts:
    """Decode a block's receipts, and compute their root. Raises :class:`Unreadable`."""
    raw = _unpack(data)
    if type(raw) is not list or len(raw) not in (9, 10) or (len(raw) == 10 and raw[9] == []):
        raise Unreadable("receipts: expected 9 fields, and callbacks where there are any")
    read = _receipts([*raw[:9], *(raw[9:] or [[]]), b""])
    height, proposer, *lists, gc_cycles, p50_tip = raw[:9]
    lists += raw[9:]
    items = [[height, proposer, gc_cycles, p50_tip, *map(len, lists)], *(item for each in lists for item in each)]
    return read._replace(root=merkle_root(b"receipts", list(map(msgpack.Packer().pack, items))))


def read_transaction(wire: bytes) -> tuple[bytes, TransactionBody]:
    """Decode a signed transaction into sender and body, without verifying it. Raises :class:`Unreadable`."""
    public_key, _, body = (_bytes(each) for each in _fields("transaction", _unpack(wire), 3))
    return address_of(public_key), _body(_unpack(body))


def read_payload(kind: type[T], payload: bytes) -> T:
    """Decode the payload of a call of the runner contract as a ``kind`` of record. Raises :class:`Unreadable`."""
    return _record(kind)(_unpack(payload))
