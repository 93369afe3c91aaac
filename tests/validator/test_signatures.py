"""The checks of signatures that docs/protocol.md lists in integers, against the vectors and both users.

``python -m tests.validator.test_signatures`` writes the vectors again.
"""

from __future__ import annotations

import json
from hashlib import sha512
from pathlib import Path
from typing import Final

import pytest
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from consensus.keys import Ed25519Scheme
from consensus.types import PublicKey, Signature

VECTORS: Final = Path(__file__).parents[1] / "vectors" / "signatures.json"
FIELD: Final = 2**255 - 19
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
CURVE: Final = -121665 * pow(121666, -1, FIELD) % FIELD
SECRET, NONCE = 0x1F2E3D4C5B6A79880011, 0x8877665544332211
MESSAGES: Final = [bytes((number,)) for number in range(256)]

Point = tuple[int, int]
NEUTRAL: Final = (0, 1)


def add(one: Point, other: Point) -> Point:
    product = CURVE * one[0] * other[0] * one[1] * other[1] % FIELD
    x = (one[0] * other[1] + other[0] * one[1]) * pow(1 + product, -1, FIELD)
    y = (one[1] * other[1] + one[0] * other[0]) * pow(1 - product, -1, FIELD)
    return x % FIELD, y % FIELD


def times(number: int, point: Point) -> Point:
    found = NEUTRAL
    while number:
        if number & 1:
            found = add(found, point)
        point, number = add(point, point), number >> 1
    return found


def encoded(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def decoded(data: bytes) -> Point | None:
    """The point with a canonical y; ``None`` if there is none."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number % 2**255
    square = (y * y - 1) * pow(CURVE * y * y + 1, -1, FIELD) % FIELD
    x = pow(square, (FIELD + 3) // 8, FIELD)
    if x * x % FIELD != square:
        x = x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    if y >= FIELD or x * x % FIELD != square:
        return None
    return (FIELD - x if x % 2 != sign else x), y


def found(data: bytes) -> Point:
    point = decoded(data)
    assert point is not None
    return point


BASE: Final = found((4 * pow(5, -1, FIELD) % FIELD).to_bytes(32, "little"))
SMALL: Final = found(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"))
"""A point of order 8."""


def is_small(data: bytes) -> bool:
    """Whether bytes encode a point of small order, also one whose y is not reduced or whose sign is not."""
    y = int.from_bytes(data, "little") % 2**255 % FIELD
    return any(times(number, SMALL)[1] == y for number in range(8))


def challenge(nonce: bytes, key: bytes, message: bytes) -> int:
    return int.from_bytes(sha512(nonce + key + message).digest(), "little") % ORDER


def failed_check(key: bytes, message: bytes, signature: bytes) -> int | None:
    """Number of the first check of docs/protocol.md that fails; ``None`` if the signature is good."""
    nonce, scalar = signature[:32], int.from_bytes(signature[32:], "little")
    if scalar >= ORDER:
        return 1
    point = decoded(key)
    if point is None or is_small(key):
        return 2
    if is_small(nonce):
        return 3
    minus = (FIELD - point[0], point[1])
    right = add(times(scalar, BASE), times(challenge(nonce, key, message), minus))
    return None if encoded(right) == nonce else 4


def signature(key: bytes, nonce: bytes, message: bytes, secret: int = SECRET, blind: int = NONCE) -> bytes:
    scalar = (blind + challenge(nonce, key, message) * secret) % ORDER
    return nonce + scalar.to_bytes(32, "little")


def vectors() -> list[dict[str, str | int | None]]:
    """Signatures that implementations judge in different ways."""
    plain, nonce = encoded(times(SECRET, BASE)), encoded(times(NONCE, BASE))
    mixed, mixed_nonce = encoded(add(found(plain), SMALL)), encoded(add(found(nonce), SMALL))
    small, of_none = encoded(SMALL), nonce + NONCE.to_bytes(32, "little")
    unreduced = (FIELD + 1).to_bytes(32, "little")
    half = signature(plain, mixed_nonce, b"")
    good = signature(plain, nonce, b"")

    def message(key: bytes, divides: bool) -> bytes:
        return next(each for each in MESSAGES if (challenge(nonce, key, each) % 8 == 0) is divides)

    larger = int.from_bytes(good[32:], "little") + ORDER
    cases: list[tuple[str, bytes, bytes, bytes]] = [
        ("good", plain, b"", good),
        ("another message", plain, b"x", good),
        ("S plus L", plain, b"", nonce + larger.to_bytes(32, "little")),
        ("a key of order 8, and the equation holds", small, message(small, True), of_none),
        ("the neutral key", encoded(NEUTRAL), b"", of_none),
        ("the neutral key plus the field's order", unreduced, b"", of_none),
        ("R is neutral, and the equation holds", plain, b"", signature(plain, encoded(NEUTRAL), b"", blind=0)),
        ("R of order 8", plain, b"", signature(plain, small, b"", blind=0)),
        ("a key with a part of order 8, and the equation holds", mixed, message(mixed, True), b""),
        ("a key with a part of order 8, and only the cofactor makes it hold", mixed, message(mixed, False), b""),
        ("R with a part of order 8, and only the cofactor makes it hold", plain, b"", half),
        ("a key that is no point", (2).to_bytes(32, "little"), b"", good),
    ]
    return [
        {
            "name": name,
            "public_key": key.hex(),
            "message": text.hex(),
            "signature": (signed or signature(key, nonce, text)).hex(),
            "fails_check": failed_check(key, text, signed or signature(key, nonce, text)),
        }
        for name, key, text, signed in cases
    ]


def test_the_vectors_are_pinned() -> None:
    assert json.loads(VECTORS.read_text(encoding="utf-8")) == vectors()


def test_the_vectors_fail_each_check() -> None:
    assert {vector["fails_check"] for vector in vectors()} == {None, 1, 2, 3, 4}


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["name"]))
def test_the_library_makes_the_same_checks(vector: dict[str, str | int | None]) -> None:
    key, message, signed = (bytes.fromhex(str(vector[name])) for name in ("public_key", "message", "signature"))
    try:
        VerifyKey(key).verify(message, signed)
        of_transactions = True
    except BadSignatureError:
        of_transactions = False
    of_votes = Ed25519Scheme().verify(PublicKey(key), message, Signature(signed))
    assert (of_transactions, of_votes) == (vector["fails_check"] is None,) * 2


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(vectors(), indent=1) + "\n", encoding="utf-8")
