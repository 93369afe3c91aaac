"""Families about bytes: encodings of which one is good, and the others have a flaw each."""

from __future__ import annotations

import random
from hashlib import sha512
from typing import Any, Final

import msgpack
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)
from nacl.signing import SigningKey

from cluster.disks.memory import MemoryDisk
from consensus.messages import Certificate, TimeoutCertificate, VoteKind, encode_unchecked, vote_signing_bytes
from consensus.types import Digest, Signature, ValidatorIndex, View
from kits.conform.case import Page
from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import DEPLOYER, USERS
from kits.conform.cases.requests import Requests, spellings
from kits.conform.cases.scene import ACTORS, RUNNERS
from validator.chain.block import Block, Header, transactions_root
from validator.chain.transactions import (
    MAX_TRANSACTION_BYTES,
    SIGNING_DOMAIN,
    transaction_hash,
)
from validator.primitives.codec import encode, pack_uint
from validator.primitives.types import AMOUNT_LIMIT, PRICE_LIMIT, Height
from validator.state import LogStateStore

family = FamilyTable()

CHAIN: Final = "bytes-1"
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
FIELD: Final = 2**255 - 19
TOP: Final = 1 << 255
SMALL: Final = tuple(
    int.from_bytes(bytes.fromhex(text), "little")
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
)
"""The encodings of small order, without their highest bits (docs/protocol.md)."""
NUMBERS: Final = (1, 2, 3)
PRICES: Final = (4, 5, 6)
AMOUNTS: Final = (7, 8)
ACTION: Final = 9
"""Places of fields in the body of a transaction."""
Parts = list[Any]


def little(number: int) -> bytes:
    return number.to_bytes(32, "little")


# --- transactions -----------------------------------------------------------------------------------------------------


class Sender:
    """A key that signs bodies."""

    def __init__(self, rng: random.Random) -> None:
        self._key = SigningKey(rng.randbytes(32))
        self.public_key = bytes(self._key.verify_key)

    def wire(self, body: bytes, *more: Any) -> bytes:
        """A transaction with this body, and more items than it has."""
        return bytes(msgpack.packb([self.public_key, self.sign(body), body, *more]))

    def sign(self, body: bytes, domain: bytes = SIGNING_DOMAIN) -> bytes:
        return self._key.sign(domain + body).signature


def body_of(rng: random.Random, action: Parts) -> Parts:
    """The items of a body."""
    numbers = [rng.choice([0, 1, 127, 128, 255, 256, 2**16 - 1, 2**32, 2**64 - 1]) for _ in NUMBERS]
    prices = [pack_uint(rng.choice([0, 1, 255, 256, PRICE_LIMIT - 1])) for _ in PRICES]
    amounts = [pack_uint(rng.choice([0, 1, 2**64, AMOUNT_LIMIT - 1])) for _ in AMOUNTS]
    return [CHAIN, *numbers, *prices, *amounts, action]


def actions(rng: random.Random) -> list[Parts]:
    """An action of each kind."""
    to, timer_id = rng.randbytes(20), rng.randbytes(32)
    return [
        ["transfer", to],
        ["deploy", "builtin:script"],
        ["call", to, "run", rng.randbytes(rng.choice([0, 1, 31, 32, 255, 256]))],
        ["system", [48, timer_id]],
        ["system", [49, "{}"]],
        ["system", [50, timer_id, rng.choice([0, 2**63, 2**64 - 1])]],
    ]


def changed(parts: Parts, place: int, value: Any) -> Parts:
    return [*parts[:place], value, *parts[place + 1 :]]


@family("transaction-encodings", every=2)
def transaction_encodings(rng: random.Random) -> Requests:
    """A transaction is canonical MessagePack: no other spelling, nothing after the end; its key has signed it."""
    made, sender = Requests(), Sender(rng)
    parts = body_of(rng, rng.choice(actions(rng)))
    body = bytes(msgpack.packb(parts))
    wire = sender.wire(body)
    wires = [wire, b"", wire[:-1], wire + b"\0", wire + wire, sender.wire(body, b""), wire[1:], b"\xc1" + wire]
    wires += [sender.wire(each) for each in spellings(parts)]
    wires += list(spellings([sender.public_key, sender.sign(body), body]))
    wires += [sender.wire(each) for each in (b"", body[:-1], body + b"\0", bytes(msgpack.packb(body)))]
    wires += [sender.wire(msgpack.packb(each)) for each in (parts[:-1], [*parts, None], {"": parts}, None)]
    key, signature = sender.public_key, sender.sign(body)
    others = [Sender(rng).sign(body), sender.sign(body + b"\0"), sender.sign(body, b""), signature[:-1], b""]
    others += [bytes((signature[0] ^ 1,)) + signature[1:], signature[:-1] + bytes((signature[-1] ^ 1,))]
    wires += [bytes(msgpack.packb([key, other, body])) for other in others]
    wires += [bytes(msgpack.packb([other, signature, body])) for other in (key[:-1], key + b"\0", b"", key[::-1])]
    for each in wires:
        made.ask("transaction", each, chain_id=CHAIN)
    return made


@family("transaction-fields", every=4)
def transaction_fields(rng: random.Random) -> Requests:
    """Each field of a transaction has its type and its bounds."""
    made, sender = Requests(), Sender(rng)
    wrong: list[Any] = [None, True, -1, 1.0, "1", b"1", [], {}, 2**64 - 1, msgpack.ExtType(1, b"")]
    bodies = [body_of(rng, action) for action in actions(rng)]
    parts = rng.choice(bodies)
    for place in (0, *NUMBERS, *PRICES, *AMOUNTS, ACTION):
        bodies += [changed(parts, place, value) for value in wrong]
    for places, limit in ((PRICES, PRICE_LIMIT), (AMOUNTS, AMOUNT_LIMIT)):
        values = [b"\0", b"\0\1", b"\1\0", *map(pack_uint, (limit - 1, limit, 2**256 - 1, 2**256))]
        bodies += [changed(parts, place, value) for place in places for value in values]
    bodies += [changed(parts, 0, chain) for chain in (CHAIN + "x", CHAIN[:-1], CHAIN.upper(), "")]
    bodies += [changed(parts, ACTION, action) for action in odd_actions(rng)]
    for each in bodies:
        made.ask("transaction", sender.wire(bytes(msgpack.packb(each))), chain_id=CHAIN)
    return made


def odd_actions(rng: random.Random) -> list[Parts]:
    """Actions at and beyond their bounds."""
    to, timer_id = rng.randbytes(20), rng.randbytes(32)
    found: list[Parts] = [["transfer", rng.randbytes(size)] for size in (0, 19, 20, 21, 32)]
    found += [["call", rng.randbytes(size), "run", b""] for size in (19, 21)]
    names = ["", "a", "a" * 256, "a" * 257, "\u00e9" * 128, "\u00e9" * 128 + "a", "\0", " "]
    found += [["call", to, name, b""] for name in names]
    found += [
        ["call", to, b"run", b""],
        ["call", to, "run", "text"],
        ["call", to, "run"],
        ["call", to, "run", b"", b""],
    ]
    codes = [
        "",
        "x",
        "x" * 16_000,
        "x" * 16_001,
        "\u00e9",
        "builtin:",
        "builtin:script",
        "builtin:scripts",
        "Builtin:x",
    ]
    found += [["deploy", code] for code in [*codes, " builtin:script"]]
    for instruction in (
        [47, timer_id],
        [51, timer_id],
        ["48", timer_id],
        [48, timer_id[:-1]],
        [48, timer_id + b"\0"],
        [48, timer_id, 0],
        [49, b"{}"],
        [49, ""],
        [49, "no JSON"],
        [50, timer_id],
        [50, timer_id, -1],
        [50, timer_id, b"\1"],
        [50, timer_id[:-1], 1],
        [50, timer_id, 2**64 - 1],
    ):
        found.append(["system", instruction])
    return [*found, ["system", 48, timer_id], ["Transfer", to], [0, to], [], ["transfer"], ["transfer", to, to]]


@family("transaction-sizes", every=20)
def transaction_sizes(rng: random.Random) -> Requests:
    """A transaction has 2 MiB at most."""
    made, sender = Requests(), Sender(rng)
    action = ["call", rng.randbytes(20), "run", bytes(2**17)]
    around = len(sender.wire(bytes(msgpack.packb(body_of(random.Random(0), action))))) - 2**17
    for more in (0, 1):
        payload = bytes(MAX_TRANSACTION_BYTES - around + more)
        body = msgpack.packb(body_of(random.Random(0), [*action[:-1], payload]))
        made.ask("transaction", sender.wire(bytes(body)), chain_id=CHAIN)
    return made


# --- signatures -------------------------------------------------------------------------------------------------------


@family("signatures")
def signatures(rng: random.Random) -> Requests:
    """A signature is good if it passes the four checks, which multiply nothing by the cofactor."""
    made, message = Requests(), rng.randbytes(rng.choice([0, 1, 32, 200]))
    seed, r = rng.randbytes(32), rng.randrange(1, ORDER)
    key, a = bytes(SigningKey(seed).verify_key), secret_of(seed)
    good = SigningKey(seed).sign(message).signature
    s = int.from_bytes(good[32:], "little")

    def ask(key: bytes, signature: bytes, text: bytes = message) -> None:
        made.ask("signature", signature, public_key=key.hex(), message=text.hex())

    def signed(key: bytes, nonce: bytes, blind: int, text: bytes = message) -> bytes:
        """A signature whose ``S`` is as the equation has it."""
        return nonce + little((blind + challenge(nonce, key, text) * a) % ORDER)

    ask(key, good)
    ask(key, good, message + b"\0")
    for bit in rng.sample(range(512), 6):
        ask(key, (int.from_bytes(good, "little") ^ 1 << bit).to_bytes(64, "little"))
    for more in range(1, 16):
        if s + more * ORDER < 2**256:
            ask(key, good[:32] + little(s + more * ORDER))
    ask(key, good[:32] + little(ORDER - 1))
    for size in (0, 31):
        ask(key, good[:size])
        ask(key, good[: size + 32])
        ask(key[:size], good)
    ask(key, good + b"\0")
    ask(key + b"\0", good)
    nonce = crypto_scalarmult_ed25519_base_noclamp(little(r))
    lows = [little(low | top) for low in (*SMALL, FIELD, FIELD + 1) for top in (0, TOP)]
    for low in lows:
        ask(low, nonce + little(r))
        ask(key, signed(key, low, 0))
        ask(low, low + little(0))
    eighth = little(SMALL[3])
    mixed_key, mixed_nonce = crypto_core_ed25519_add(key, eighth), crypto_core_ed25519_add(nonce, eighth)
    ask(key, signed(key, mixed_nonce, r))
    for number in range(12):  # for some of them check 4 holds
        text = message + bytes((number,))
        ask(mixed_key, signed(mixed_key, nonce, r, text), text)
    ask(little(2), good)
    ask(little(FIELD - 1), good)
    ask(little((1 << 256) - 1), good)
    return made


def secret_of(seed: bytes) -> int:
    """The secret scalar of a seed."""
    digest = bytearray(sha512(seed).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 127 | 64
    return int.from_bytes(digest, "little")


def challenge(nonce: bytes, key: bytes, message: bytes) -> int:
    digest = sha512(nonce + key + message).digest()
    return int.from_bytes(crypto_core_ed25519_scalar_reduce(digest), "little")


# --- blocks -----------------------------------------------------------------------------------------------------------

HASHES: Final = (3, 5, 6, 7)
HEADER_PRICES: Final = (8, 9, 10)
HEADER_NUMBERS: Final = (1, 2, 4, 11, 12, 13, 14)
"""Places of fields in a header."""


@family("block-encodings", every=4)
def block_encodings(rng: random.Random) -> Requests:
    """A block is canonical MessagePack whose transactions have the root in its header."""
    made = Requests()
    wires = [rng.randbytes(rng.choice([0, 1, 60])) for _ in range(rng.randrange(6))]
    root = transactions_root(list(map(transaction_hash, wires)))
    numbers = [rng.choice([0, 1, 127, 2**32, 2**64 - 1]) for _ in HEADER_NUMBERS]
    prices = [pack_uint(rng.choice([0, 1, 2**64, PRICE_LIMIT - 1])) for _ in HEADER_PRICES]
    hashes = [rng.randbytes(32) for _ in range(3)]
    fields: Parts = [CHAIN, *numbers[:2], hashes[0], numbers[2], root, *hashes[1:], *prices, *numbers[3:]]
    data = encode(Block(Header(*fields), tuple(wires)))
    parts: Parts = msgpack.unpackb(data)
    fields, listed = parts
    blocks = [data, b"", data[:-1], data + b"\0", *spellings(parts)]
    blocks += [
        msgpack.packb(each) for each in ([fields], [fields, listed, []], [fields[:-1], listed], [[*fields, 0], listed])
    ]
    others = [[*wires, b""], wires[:-1], wires[::-1], [b"", *wires], wires * 2]
    blocks += [msgpack.packb([fields, other]) for other in others]
    wrong: list[Any] = [None, True, -1, 1.0, "", b"", []]
    for place in range(len(fields)):
        values = list(wrong)
        if place in HASHES:
            values += [bytes(31), bytes(33), "\0" * 32]
        if place in HEADER_PRICES:
            values += [b"\0", b"\0\1", pack_uint(PRICE_LIMIT - 1), pack_uint(PRICE_LIMIT)]
        blocks += [msgpack.packb([changed(fields, place, value), listed]) for value in values]
    for each in blocks:
        made.ask("block", bytes(each))
    return made


@family("genesis-hashes", every=2)
def genesis_hashes(rng: random.Random) -> Requests:
    """The hash of the genesis block covers the whole genesis; the order of its keys and lists means nothing."""
    made = Requests()
    keys = [bytes(SigningKey(rng.randbytes(32)).verify_key).hex() for _ in range(rng.choice([1, 4]))]
    plain: Page = {
        "chain_id": CHAIN,
        "validators": keys,
        "accounts": {address: {"balance": rng.choice([0, 1, 2**128 - 1])} for address in rng.sample(USERS, 2)},
        "actors": {ACTORS[0]: {"code": "builtin:script", "deployer": DEPLOYER, "balance": rng.choice([0, 7])}},
        "system_deployers": [DEPLOYER, USERS[0]],
        "params": {"INITIAL_BASEFEE": rng.choice([1, 1_000]), "MIN_BASEFEE": 1},
    }
    agent = {
        "code": "builtin:fixed",
        "max_fee_per_cycle": rng.choice([0, 1, 2**96 - 1]),
        "max_priority_fee_per_cycle": 1,
    }
    with_agent = {ACTORS[0]: plain["actors"][ACTORS[0]] | {"gba": agent}}
    changes: list[Page] = [
        {},
        {"chain_id": CHAIN + "x"},
        {"chain_id": "\u00e9" * 127},
        {"chain_id": ""},
        {"validators": keys[::-1]},
        {"validators": [*keys, keys[0]]},
        {"validators": [keys[0][:-2]]},
        {"validators": []},
        {"accounts": dict(reversed(plain["accounts"].items()))},
        {"accounts": {}},
        {"accounts": {USERS[0]: {"balance": 2**128}}},
        {"accounts": {"0x" + "00" * 19 + "0f": {"balance": 1}}},
        {"accounts": {"0x" + "00" * 19 + "10": {"balance": 1}}},
        {"actors": with_agent},
        {"system_deployers": [USERS[0], DEPLOYER]},
        {"runners": list(RUNNERS[:2])},
        {"runners": list(RUNNERS[1::-1])},
        {"runners": [RUNNERS[0], RUNNERS[0]]},
        {"epochs": [{"first_view": rng.choice([1, 5]), "members": [0]}]},
        {"epochs": [{"first_view": 5, "members": [0]}, {"first_view": 5, "members": [0]}]},
        {"epochs": [{"first_view": 1, "members": [len(keys)]}]},
        {"policy": "fifo"},
        {"policy": "none"},
        {"params": {"MAX_WATCHERS_PER_KEY": 64}},
        {"params": {"MAX_WATCHERS_PER_KEY": 63}},
        {"params": {"WEIGHT_PARTY": "deployer"}},
        {"params": {"INITIAL_BASEFEE": "1", "MIN_BASEFEE": "1"}},
        {"params": {"INITIAL_BASEFEE": "01", "MIN_BASEFEE": "1"}},
        {"runners": [], "epochs": [], "preset": None},
    ]
    made.decode += [{"genesis": {**plain, **change}} for change in changes]
    return made


# --- certificates and proofs ------------------------------------------------------------------------------------------


@family("certificates", every=2)
def certificates(rng: random.Random) -> Requests:
    """A certificate has a signature of each of its signers, who are a quorum of the validators."""
    made, count = Requests(), rng.choice([1, 4, 5, 7, 10])
    secrets = [SigningKey(rng.randbytes(32)) for _ in range(count)]
    keys, need = [bytes(each.verify_key).hex() for each in secrets], count - (count - 1) // 3
    view = View(rng.choice([1, 9, 2**32, 2**63 - 2]))
    digest = Digest(rng.randbytes(32))

    def signed(signers: list[int], kind: VoteKind, view: View, parent: View, digest: Digest, chain: str = CHAIN) -> Any:
        text = vote_signing_bytes(chain.encode(), kind, view, parent, digest)
        return {ValidatorIndex(n): Signature(secrets[n].sign(text).signature) for n in signers}

    def certificate(size: int, kind: VoteKind, **other: Any) -> Certificate:
        is_null = kind == VoteKind.NULLIFY
        parent, what = (View(0), Digest(b"")) if is_null else (View(view - 1), digest)
        given: dict[str, Any] = {"view": view, "parent": parent, "digest": what} | other
        votes = signed(sorted(rng.sample(range(count), size)), kind, **given)
        return Certificate.of(kind, given["view"], given["parent"], given["digest"], votes)

    def ask(data: bytes, chain: str = CHAIN, listed: list[str] = keys) -> None:
        made.ask("certificate", data, chain_id=chain, validators=listed)

    for kind in (VoteKind.NOTARIZE, VoteKind.NULLIFY, VoteKind.FINALIZE):
        for size in {need - 1, need, count} - {0}:
            ask(encode_unchecked(certificate(size, kind)))
    good = certificate(need, VoteKind.NOTARIZE)
    data = encode_unchecked(good)
    ask(data, CHAIN + "x")
    ask(data, listed=keys[::-1])
    ask(data, listed=[*keys, *keys[:2], keys[0]])
    ask(encode_unchecked(certificate(need, VoteKind.NOTARIZE, chain=CHAIN + "x")))
    ask(encode_unchecked(certificate(need, VoteKind.NULLIFY, parent=View(1))))
    ask(encode_unchecked(certificate(need, VoteKind.NULLIFY, digest=digest)))
    ask(encode_unchecked(certificate(need, VoteKind.NOTARIZE, parent=view)))
    ask(encode_unchecked(certificate(need, VoteKind.FINALIZE, view=View(0), parent=View(0))))
    parts: Parts = msgpack.unpackb(data)
    signers, signatures = parts[5], parts[6]
    changes: list[tuple[int, Any]] = [(1, each) for each in (0, 2, 3, 4, 5, "1")] + [
        (2, each) for each in (view + 1, -1, 2**64 - 1)
    ]
    changes += [(4, each) for each in (digest[:-1], digest + b"\0", b"", bytes(32))]
    changes += [(5, each) for each in (b"", signers + b"\0", b"\0" + signers, b"\xff" * 3, b"\1")]
    flipped = bytes((signatures[0] ^ 1,)) + signatures[1:]
    changes += [(6, each) for each in (b"", signatures[:-1], signatures + b"\0", signatures + signatures[:64], flipped)]
    changes += [(6, signatures[64:] + signatures[:64])]
    for place, value in changes:
        ask(msgpack.packb(changed(parts, place, value)))
    for each in (*spellings(parts), data + b"\0", data[:-1], b""):
        ask(each)
    _ask_timeouts(rng, ask, certificate, secrets, view)
    return made


def _ask_timeouts(rng: random.Random, ask: Any, certificate: Any, secrets: list[SigningKey], view: View) -> None:
    count = len(secrets)
    need = count - (count - 1) // 3
    high = certificate(need, VoteKind.NOTARIZE)
    later = View(view + 1)

    def timeout(size: int, with_high: Certificate | None, views: list[int]) -> bytes:
        signed = {}
        for signer, known in zip(sorted(rng.sample(range(count), size)), views, strict=False):
            text = vote_signing_bytes(CHAIN.encode(), VoteKind.TIMEOUT, later, View(known), Digest(b""))
            signed[ValidatorIndex(signer)] = (View(known), Signature(secrets[signer].sign(text).signature))
        return encode_unchecked(TimeoutCertificate.of(later, with_high, signed))

    views = [view, *[rng.choice([0, view]) for _ in range(count - 1)]]
    for size in {need - 1, need, count} - {0}:
        ask(timeout(size, high, views))
    ask(timeout(need, None, [0] * count))
    ask(timeout(need, None, views))
    ask(timeout(need, high, [0] * count))
    ask(timeout(need, high, [later] * count))
    ask(timeout(need, certificate(need, VoteKind.NULLIFY), views))
    ask(timeout(need, certificate(need, VoteKind.FINALIZE), views))


@family("state-proofs")
def state_proofs(rng: random.Random) -> Requests:
    """A proof shows a key's value, or its absence, in the state with a root, and has one encoding."""
    made, disk = Requests(), MemoryDisk()
    store = LogStateStore.open(disk, "state")
    keys = [rng.randbytes(rng.choice([1, 21, 40])) for _ in range(rng.choice([1, 3, 40, 300]))]
    empty = store.final.root
    made.ask("proof", store.prove(keys[0]), key=keys[0].hex(), state_root=empty.hex())
    for height in (1, 2, 3):
        written: dict[bytes, bytes | None] = {}
        for key in rng.sample(keys, len(keys) if height == 1 else len(keys) // 2):
            written[key] = rng.randbytes(rng.choice([0, 1, 50]))
        if height == 3:
            written[keys[0]] = None
        store.commit(store.final.derive(Height(height), written))
    root = store.final.root
    for key in (*keys[:6], b"absent", rng.randbytes(21), b""):
        made.ask("proof", store.prove(key), key=key.hex(), state_root=root.hex())
    key, other = keys[-1], keys[0]
    proof = store.prove(key)
    flawed = [b"", proof[:-1], proof[:16], proof + b"\0", b"\2" + proof[1:]]
    for _ in range(24):
        bit = rng.randrange(8 * len(proof))
        flawed.append((int.from_bytes(proof, "big") ^ 1 << bit).to_bytes(len(proof), "big"))
    for each in flawed:
        made.ask("proof", each, key=key.hex(), state_root=root.hex())
    made.ask("proof", proof, key=other.hex(), state_root=root.hex())
    made.ask("proof", proof, key=key.hex(), state_root=empty.hex())
    return made
