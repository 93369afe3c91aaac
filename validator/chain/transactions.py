"""Transactions: their content, signatures and wire form (SPEC §2).

On the wire a transaction is ``[public_key, signature, body]``; ``body`` is the canonical encoding of
:class:`TransactionBody`, which contains the chain id. The signature covers ``"stampede/transaction/v1" ‖ body``. The
sender's address is the last 20 bytes of keccak256 of the public key. :class:`Transaction` is the decoded, checked form
that the state transition works on; it has no key and no signature.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from validator.primitives.cache import SizedCache
from validator.primitives.codec import CodecError, decode, encode, keccak256, pack_uint, tagged_hash, unpack_uint
from validator.primitives.limits import MAX_SOURCE_BYTES
from validator.primitives.types import (
    ADDRESS_BYTES,
    AMOUNT_LIMIT,
    HASH_BYTES,
    MAX_NAME_BYTES,
    PRICE_LIMIT,
    Address,
    Hash,
    ValidatorError,
    is_name,
    is_reserved,
)

SIGNING_DOMAIN: Final = b"stampede/transaction/v1"
MAX_TRANSACTION_BYTES: Final = 2 * 1024 * 1024
REMEMBERED_ADDRESSES: Final = 4_096
"""Number of public keys whose addresses are cached."""
REMEMBERED_SIGNATURES: Final = 1 << 15
"""Number of transactions whose valid signatures are cached: all validators of a process receive the same
transactions."""
U64_LIMIT: Final = 2**64

BUILTIN: Final = "builtin:"
SCRIPT_CODE: Final = "builtin:script"


PRICE_BUMP_PERCENT: Final = 10
"""The minimum increase of the fee, in per cent, with which a transaction replaces one of the same nonce in a
mempool."""


class TransactionError(ValidatorError):
    """A transaction is malformed, badly signed or for another chain.

    The message is one line. ``reason`` is the mempool's code for the refusal.
    """

    def __init__(self, line: str, reason: str = "malformed") -> None:
        super().__init__(line)
        self.reason = reason


# --- bodies ---------------------------------------------------------------------------------------------------------


class Transfer(msgspec.Struct, frozen=True, array_like=True, tag="transfer"):
    """The action of a transaction that moves its ``value`` to an account."""

    to: bytes


class Deploy(msgspec.Struct, frozen=True, array_like=True, tag="deploy"):
    """The action of a transaction that creates an actor. The transaction's ``value`` is paid to the actor."""

    code: str
    """``builtin:script``, or a Python program's source."""


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """The action of a transaction that runs an actor's handler."""

    to: bytes
    handler: str
    payload: bytes


class CancelTimer(msgspec.Struct, frozen=True, array_like=True, tag=48):
    """The system instruction ``SYS_CANCEL_TIMER``, which removes a timer of any actor."""

    timer_id: bytes


class UpdateTimerConfig(msgspec.Struct, frozen=True, array_like=True, tag=49):
    """The system instruction ``SYS_UPDATE_TIMER_CONFIG``, which changes governed parameters from the next block on."""

    config: str
    """The changes: a JSON object of parameters' ``LIKE_THIS`` names and new values."""


class ExtendTimer(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """The system instruction ``SYS_EXTEND_TIMER``, which extends the expiry of a timer of any actor."""

    timer_id: bytes
    new_expires_at: int


Instruction = CancelTimer | UpdateTimerConfig | ExtendTimer


class System(msgspec.Struct, frozen=True, array_like=True, tag="system"):
    """The action of a transaction that carries a system instruction (SPEC §12).

    Only the ``system_deployers`` of the genesis may send it.
    """

    instruction: Instruction


Action = Transfer | Deploy | Call | System


class TransactionBody(msgspec.Struct, frozen=True, array_like=True):
    """The part of a transaction that is signed. Prices and amounts are big-endian bytes without leading zeros."""

    chain_id: str
    nonce: int
    gas_limit: int
    cells_limit: int
    max_fee_per_cycle: bytes
    max_priority_fee_per_cycle: bytes
    max_fee_per_cell: bytes
    value: bytes
    timer_allowance: bytes
    action: Action


class SignedTransaction(msgspec.Struct, frozen=True, array_like=True):
    """The wire form of a transaction: the sender's public key, the signature, and the encoded body."""

    public_key: bytes
    signature: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Transaction:
    """A decoded transaction, in the form that the state transition takes. All quantities are plain integers."""

    sender: Address
    nonce: int
    gas_limit: int
    cells_limit: int
    max_fee_per_cycle: int
    max_priority_fee_per_cycle: int
    max_fee_per_cell: int
    action: Action
    value: int = 0
    timer_allowance: int = 0

    @property
    def kind(self) -> str:
        """``transfer``, ``deploy``, ``call`` or ``system``."""
        return type(self.action).__name__.lower()


@lru_cache(maxsize=REMEMBERED_ADDRESSES)
def address_of(public_key: bytes) -> Address:
    """The account that a public key owns."""
    return Address(keccak256(public_key)[12:])


def transaction_hash(wire: bytes) -> Hash:
    """The hash of a signed transaction, signature included."""
    return tagged_hash(b"transaction", wire)


def unsigned_hash(transaction: Transaction) -> Hash:
    """The hash of an unsigned transaction, over its sender and nonce. Chains without consensus use it."""
    return tagged_hash(b"transaction", transaction.sender + transaction.nonce.to_bytes(8, "big"))


def sign(key: SigningKey, chain_id: str, transaction: Transaction) -> bytes:
    """The wire form of a transaction, signed by its sender's key."""
    message = signed_message(chain_id, transaction)
    return wire_form(bytes(key.verify_key), message, key.sign(message).signature)


def signed_message(chain_id: str, transaction: Transaction) -> bytes:
    """The bytes that a transaction's signature covers: the domain and the encoded body."""
    return SIGNING_DOMAIN + encode(
        TransactionBody(
            chain_id=chain_id,
            nonce=transaction.nonce,
            gas_limit=transaction.gas_limit,
            cells_limit=transaction.cells_limit,
            max_fee_per_cycle=pack_uint(transaction.max_fee_per_cycle),
            max_priority_fee_per_cycle=pack_uint(transaction.max_priority_fee_per_cycle),
            max_fee_per_cell=pack_uint(transaction.max_fee_per_cell),
            value=pack_uint(transaction.value),
            timer_allowance=pack_uint(transaction.timer_allowance),
            action=transaction.action,
        )
    )


def wire_form(public_key: bytes, message: bytes, signature: bytes) -> bytes:
    """The wire form of a transaction, from its :func:`signed_message` and the signature over that."""
    return encode(SignedTransaction(public_key, signature, message[len(SIGNING_DOMAIN) :]))


def parse(wire: bytes, chain_id: str, is_signed: bool = True) -> Transaction:
    """Decode, and check everything that needs no state, the signature last. Raises :class:`TransactionError`.

    With ``is_signed=False`` the signature is not looked at: for chains whose only sender is the caller.
    """
    if len(wire) > MAX_TRANSACTION_BYTES:
        raise TransactionError(f"transaction of {len(wire)} bytes, expected at most {MAX_TRANSACTION_BYTES}")
    try:
        signed = decode(wire, SignedTransaction)
        body = decode(signed.body, TransactionBody)
        transaction = _from_body(address_of(signed.public_key), body)
    except CodecError as error:
        raise TransactionError(f"malformed transaction: {error}") from None
    if body.chain_id != chain_id:
        raise TransactionError(f"transaction is for chain {body.chain_id!r}, expected {chain_id!r}", "wrong_chain")
    check_shape(transaction)
    if is_signed:
        _check_signature(transaction_hash(wire), signed)
    return transaction


_well_signed: SizedCache[bool] = SizedCache(REMEMBERED_SIGNATURES)
"""Cache of the hashes of transactions with valid signatures. A transaction's hash also covers its signature."""


def _check_signature(digest: Hash, signed: SignedTransaction) -> None:
    name = digest.hex()
    if _well_signed.get(name):
        return
    try:
        VerifyKey(signed.public_key).verify(SIGNING_DOMAIN + signed.body, signed.signature)
    except (BadSignatureError, ValueError, TypeError):
        raise TransactionError("bad signature", "bad_signature") from None
    _well_signed.put(name, True, 1)


def _from_body(sender: Address, body: TransactionBody) -> Transaction:
    return Transaction(
        sender=sender,
        nonce=body.nonce,
        gas_limit=body.gas_limit,
        cells_limit=body.cells_limit,
        max_fee_per_cycle=unpack_uint(body.max_fee_per_cycle, PRICE_LIMIT),
        max_priority_fee_per_cycle=unpack_uint(body.max_priority_fee_per_cycle, PRICE_LIMIT),
        max_fee_per_cell=unpack_uint(body.max_fee_per_cell, PRICE_LIMIT),
        value=unpack_uint(body.value, AMOUNT_LIMIT),
        timer_allowance=unpack_uint(body.timer_allowance, AMOUNT_LIMIT),
        action=body.action,
    )


def check_shape(transaction: Transaction) -> None:
    """Check that a transaction is well-formed, apart from its fields' types. Raises :class:`TransactionError`."""
    for name in ("nonce", "gas_limit", "cells_limit"):
        number: int = getattr(transaction, name)
        if not 0 <= number < U64_LIMIT:
            raise TransactionError(f"{name}: {number} is out of range, expected 0 to 2**64 - 1")
    if is_reserved(transaction.sender):
        raise TransactionError("sender: reserved address")
    match transaction.action:
        case Transfer(to=to) | Call(to=to) if len(to) != ADDRESS_BYTES:
            raise TransactionError(f"to: {len(to)} bytes, expected {ADDRESS_BYTES}")
        case Call(handler=handler) if not is_name(handler):
            raise TransactionError(f"handler: expected 1 to {MAX_NAME_BYTES} bytes")
        case System(instruction=CancelTimer(timer_id=timer_id) | ExtendTimer(timer_id=timer_id)) if (
            len(timer_id) != HASH_BYTES
        ):
            raise TransactionError(f"timer_id: {len(timer_id)} bytes, expected {HASH_BYTES}")
        case System(instruction=ExtendTimer(new_expires_at=height)) if not 0 <= height < U64_LIMIT:
            raise TransactionError(f"new_expires_at: {height} is out of range, expected 0 to 2**64 - 1")
        case Deploy(code=code) if (problem := code_problem(code)) is not None:
            raise TransactionError(f"code: {problem}")
        case _:
            pass


def code_problem(code: str) -> str | None:
    """Why an actor cannot have this code; ``None`` if nothing is wrong.

    A program's length and characters are checked, but the program is not parsed.
    """
    if code.startswith(BUILTIN) and code != SCRIPT_CODE:
        return f"{code[:64]!r} is unknown; known: {SCRIPT_CODE}, or a Python program's source"
    if not 1 <= len(code) <= MAX_SOURCE_BYTES or not code.isascii():
        return f"a program of {len(code):,} characters; expected 1 to {MAX_SOURCE_BYTES:,}, ASCII alone"
    return None


def least_replacement_fee(fee: int) -> int:
    """The least fee per cycle with which a transaction replaces one with this fee in a mempool. It is always higher."""
    return fee + max(1, -(-fee * PRICE_BUMP_PERCENT // 100))


def deployed_address(sender: bytes, nonce: int) -> Address:
    """The address of the actor that a ``deploy`` with this nonce creates (SPEC §2)."""
    return Address(keccak256(sender + nonce.to_bytes(8, "big"))[12:])
