"""What a hostile peer makes of the frames that validators send each other.

It has those of the run itself that it sent or received, and those of another chain. Frames of a second run of the same
chain would be no fair attack: in them a quorum of honest validators has voted for other blocks.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

import msgspec
import pytest

from tests.validator import network as network_module
from tests.validator.chains import make_genesis
from tests.validator.network import Network
from validator.chain.messages import (
    MAX_GOSSIPED_TRANSACTIONS,
    BlockRequest,
    ChunkRequest,
    FinalBlocksRequest,
    SnapshotRequest,
    TransactionsMessage,
    ViewRequest,
    encode_message,
)

FOREIGN_HEIGHT: Final = 4
ASKED: Final = (
    BlockRequest(bytes(32)),
    FinalBlocksRequest(1, 64),
    SnapshotRequest(),
    ChunkRequest(1, 0, 0),
    ViewRequest(bytes(32)),
)
"""What a validator asks in rarer cases."""
ODD_VALUES: Final[tuple[Any, ...]] = (
    None,
    -1,
    0,
    2**63,
    2**64 - 1,
    -(2**63),
    b"",
    b"x" * 33,
    "",
    "x",
    [],
    {},
    1.5,
    True,
)
NESTED: Final = (b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01", b"\x91\x92\x01", b"\x91\x92\x02\x91")
LENGTHS: Final = (
    b"\x91\x92\x01\xc6\xff\xff\xff\xff",
    b"\x91\x92\x02\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc1",
)


def requests() -> list[bytes]:
    """Frames of the rarer kinds, which a short run may not bring."""
    return [encode_message(request) for request in ASKED]


def record_foreign() -> list[bytes]:
    """The frames of a short run of another chain with the same validators."""
    frames: dict[bytes, None] = {}

    def tap(_sender: int, _target: int, payload: bytes) -> bytes:
        frames.setdefault(payload)
        return payload

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "make_genesis", lambda: replace(make_genesis(), chain_id="another-chain"))
        network = Network(tap=tap)
    network.start().run_to(FOREIGN_HEIGHT)
    return list(frames)


class HostilePeer:
    """Draws frames that no honest peer sends, or that one sent at another time."""

    def __init__(self, random: Random, frames: list[bytes], foreign: list[bytes]) -> None:
        self._random = random
        self._frames = frames
        """Those that it has seen; more may be added."""
        self._foreign = foreign
        """Those of another chain."""

    def draw(self) -> bytes:
        """A frame's payload."""
        frame = self._random.choice(self._frames)
        kinds = (
            self._flipped,
            self._cut,
            self._extended,
            self._as_it_was,
            self._with_another_value,
            self._of_another_chain,
            self._nested,
            self._garbage,
            self._oversized,
        )
        return self._random.choice(kinds)(frame)

    def _flipped(self, frame: bytes) -> bytes:
        data = bytearray(frame)
        for _ in range(self._random.choice((1, 1, 2, 8))):
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return bytes(data)

    def _cut(self, frame: bytes) -> bytes:
        return frame[: self._random.randrange(len(frame))]

    def _extended(self, frame: bytes) -> bytes:
        return frame + self._random.randbytes(self._random.choice((1, 4, 100)))

    def _as_it_was(self, frame: bytes) -> bytes:
        """Duplicated, out of order, or another's."""
        return frame

    def _with_another_value(self, frame: bytes) -> bytes:
        """One value somewhere in it is another, and the encoding is right."""
        tree = msgspec.msgpack.decode(frame)
        places = list(leaves(tree))
        holder, key = self._random.choice(places)
        if (
            isinstance(holder[key], bytes)
            and self._random.random() < 0.5
            and holder[key][:1] in (b"\x93", b"\x94", b"\x97")
        ):
            holder[key] = self._within(holder[key])
        else:
            holder[key] = self._random.choice(ODD_VALUES)
        return msgspec.msgpack.encode(tree)

    def _within(self, inner: bytes) -> bytes:
        """Of a message in an envelope a value is another."""
        try:
            tree = msgspec.msgpack.decode(inner)
        except (msgspec.MsgspecError, ValueError):
            return inner
        places = list(leaves(tree))
        holder, key = self._random.choice(places)
        holder[key] = self._random.choice(ODD_VALUES)
        return msgspec.msgpack.encode(tree)

    def _of_another_chain(self, _frame: bytes) -> bytes:
        return self._random.choice(self._foreign)

    def _nested(self, _frame: bytes) -> bytes:
        return self._random.choice(NESTED) * self._random.choice((100, 2_000, 50_000))

    def _garbage(self, _frame: bytes) -> bytes:
        return self._random.choice((*LENGTHS, self._random.randbytes(self._random.randrange(200))))

    def _oversized(self, _frame: bytes) -> bytes:
        many = tuple(number.to_bytes(2, "big") for number in range(MAX_GOSSIPED_TRANSACTIONS + 1))
        return encode_message(TransactionsMessage(many))


def leaves(tree: Any) -> Any:
    """``(list, index)`` of every value in nested lists."""
    for index, value in enumerate(tree):
        yield tree, index
        if isinstance(value, list):
            yield from leaves(value)
