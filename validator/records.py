"""What state holds: records, their keys and their encodings.

=========================================  ====================================================================
key                                        record
=========================================  ====================================================================
``a`` ‖ address[20]                        :class:`Account`
``c`` ‖ address[20]                        :class:`Actor`
``s`` ‖ address[20] ‖ key                  a storage value; keys over 256 bytes go by ``S`` ‖ address ‖ hash, and the
                                           record then holds the key too
``t`` ‖ trigger height[8] ‖ sequence[8]    :class:`Timer`
``i`` ‖ timer id[32]                       trigger height[8] ‖ sequence[8] of that timer
``f`` ‖ height[8]                          :class:`Fires` of that block, while it is in the fairness window
``g``                                      :class:`Globals`
=========================================  ====================================================================

Integers in keys are big-endian, so that keys sort as their numbers do. Everything that influences a later block is
here, and so under ``state_root``; every index elsewhere is derived from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from validator.codec import encode, pack_uint, tagged_hash
from validator.types import Address, TimerId

ACCOUNT: Final = b"a"
ACTOR: Final = b"c"
STORAGE: Final = b"s"
LONG_STORAGE: Final = b"S"
TIMER: Final = b"t"
TIMER_BY_ID: Final = b"i"
FIRES: Final = b"f"
GLOBALS: Final = b"g"

LONGEST_PLAIN_STORAGE_KEY: Final = 256


class Account(NamedTuple):
    """Balance and nonce of an account or actor."""

    balance: int = 0
    nonce: int = 0


class Actor(NamedTuple):
    """An account with code."""

    code: str
    deployer: Address
    schedule_nonce: int = 0
    live_timers: int = 0


class Timer(NamedTuple):
    """A pending timer (SPEC §4). ``None`` where the caller left a field open."""

    timer_id: TimerId
    actor: Address
    trigger_height: int
    sequence: int
    handler: str
    payload: bytes
    fee_payer: Address
    gas_limit: int | None
    expires_at: int
    max_fee_per_cycle: int | None
    max_priority_fee_per_cycle: int | None
    payer_cap: int | None
    default_max_fee: int | None
    scheduled_at: int

    @property
    def key(self) -> bytes:
        """The state key of this timer."""
        return timer_key(self.trigger_height, self.sequence)

    def due_height(self, height: int) -> int:
        """When it is next due, seen from the end of block ``height``."""
        return max(self.trigger_height, height + 1)


class Fires(NamedTuple):
    """How often each actor fired in one block, actors ascending."""

    counts: tuple[tuple[Address, int], ...]


class Globals(NamedTuple):
    """The chain's counters and prices, as they stand for the next block."""

    next_sequence: int
    basefee_cycle: int
    basefee_cell: int
    basefee_lane_timer: int
    p50_tip: int
    last_block_cycle_usage: int
    live_timers: int
    minted: int
    burned_user: int
    """Burned by transactions since genesis."""
    burned_timer_cycle: int
    """Burned by fires at ``basefee_cycle``, and for their cells."""
    burned_timer_lane: int
    """Burned by fires at the lane price."""

    @property
    def burned(self) -> int:
        return self.burned_user + self.burned_timer_cycle + self.burned_timer_lane


# --- keys -----------------------------------------------------------------------------------------------------------


def account_key(address: bytes) -> bytes:
    return ACCOUNT + address


def actor_key(address: bytes) -> bytes:
    return ACTOR + address


def storage_key(address: bytes, key: str) -> bytes:
    raw = key.encode()
    if len(raw) <= LONGEST_PLAIN_STORAGE_KEY:
        return STORAGE + address + raw
    return LONG_STORAGE + address + tagged_hash(b"storage key", raw)


def timer_key(trigger_height: int, sequence: int) -> bytes:
    return TIMER + trigger_height.to_bytes(8, "big") + sequence.to_bytes(8, "big")


def timer_id_key(timer_id: bytes) -> bytes:
    return TIMER_BY_ID + timer_id


def fires_key(height: int) -> bytes:
    return FIRES + height.to_bytes(8, "big")


# --- encodings ------------------------------------------------------------------------------------------------------


def _pack_optional(value: int | None) -> bytes | None:
    return None if value is None else pack_uint(value)


def _unpack(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _unpack_optional(data: bytes | None) -> int | None:
    return None if data is None else int.from_bytes(data, "big")


def _encode_account(record: Account) -> bytes:
    return encode((pack_uint(record.balance), record.nonce))


def _decode_account(data: bytes) -> Account:
    balance, nonce = msgspec.msgpack.decode(data)
    return Account(_unpack(balance), nonce)


def _decode_actor(data: bytes) -> Actor:
    code, deployer, schedule_nonce, live_timers = msgspec.msgpack.decode(data)
    return Actor(code, Address(deployer), schedule_nonce, live_timers)


def _encode_timer(record: Timer) -> bytes:
    *plain, max_fee, priority, cap, default_fee, scheduled_at = record
    fees = [_pack_optional(value) for value in (max_fee, priority, cap, default_fee)]
    return encode((*plain, *fees, scheduled_at))


def _decode_timer(data: bytes) -> Timer:
    *plain, max_fee, priority, cap, default_fee, scheduled_at = msgspec.msgpack.decode(data)
    fees = [_unpack_optional(value) for value in (max_fee, priority, cap, default_fee)]
    return Timer._make((*plain, *fees, scheduled_at))


def _decode_fires(data: bytes) -> Fires:
    (counts,) = msgspec.msgpack.decode(data)
    return Fires(tuple((Address(actor), count) for actor, count in counts))


def _encode_globals(record: Globals) -> bytes:
    return encode([pack_uint(value) for value in record])


def _decode_globals(data: bytes) -> Globals:
    return Globals(*map(_unpack, msgspec.msgpack.decode(data)))


def _identity(data: bytes) -> bytes:
    return data


_CODECS: Final[dict[bytes, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]]] = {
    ACCOUNT: (_encode_account, _decode_account),
    ACTOR: (encode, _decode_actor),
    STORAGE: (_identity, _identity),
    LONG_STORAGE: (_identity, _identity),
    TIMER: (_encode_timer, _decode_timer),
    TIMER_BY_ID: (_identity, _identity),
    FIRES: (encode, _decode_fires),
    GLOBALS: (_encode_globals, _decode_globals),
}


def encode_record(key: bytes, record: Any) -> bytes:
    """A record's value under its key."""
    return _CODECS[key[:1]][0](record)


def decode_record(key: bytes, value: bytes) -> Any:
    """The record that a key's value holds."""
    return _CODECS[key[:1]][1](value)
