"""One value, one encoding: whatever decodes is exactly what would be encoded again."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgpack
import pytest
from blake3 import blake3
from Crypto.Hash import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.chain.block import (
    BlockReceipts,
    DestroyedReceipt,
    Effects,
    Event,
    FireReceipt,
    Header,
    MessageReceipt,
    QueryReceipt,
    TransactionReceipt,
)
from validator.chain.messages import FinalBlocksResponse, _Envelope
from validator.chain.transactions import Call, Deploy, SignedTransaction, TransactionBody, Transfer
from validator.primitives.codec import (
    CodecError,
    decode,
    encode,
    keccak256,
    merkle_root,
    pack_uint,
    tagged_hash,
    unpack_uint,
)

ROOT: Final = Path(__file__).parents[3]

REPEATABLE = settings(max_examples=300, deadline=None, derandomize=True)

BODY = TransactionBody("c", 1, 2**40, 0, b"\1", b"", b"\2", b"", b"", Call(bytes(20), "h", b"\0\xff"))
HEADER = Header("c", 5, 6, bytes(32), 1, bytes(32), bytes(32), bytes(32), b"\1", b"\2", b"\3", 4, 5, 6, 7)
RECEIPT = TransactionReceipt(bytes(32), bytes(20), False, "OutOfCycles", 1, 2, b"\1", b"", Effects())
FIRE = FireReceipt(bytes(32), bytes(20), 1, 0, bytes(20), True, "", 1, 2, b"\1", b"", b"", Effects())
END = DestroyedReceipt(bytes(32), "expired", Event("TimerExpired", bytes(20), (("timer_id", "00"),)))
QUERY = QueryReceipt(bytes(32), bytes(20), "ok", 100, b"\1")
MESSAGE = MessageReceipt(bytes(20), bytes(20), "run", True, "", 1_000, 2, Effects())
RECEIPTS = BlockReceipts(1, bytes(20), (RECEIPT,), (FIRE,), (END,), (QUERY,), (MESSAGE,), 0, b"")
SAMPLES: list[Any] = [
    BODY,
    TransactionBody("c", 0, 0, 2**64 - 1, b"", b"", b"", b"", b"", Transfer(bytes(20))),
    TransactionBody("c", 0, 0, 2**64 - 1, b"", b"", b"", b"", b"", Deploy("builtin:script")),
    SignedTransaction(bytes(32), bytes(64), encode(BODY)),
    HEADER,
    RECEIPTS,
    _Envelope(FinalBlocksResponse((b"body",), (), b"certificate")),
]
KINDS = tuple(type(sample) for sample in SAMPLES)


def wide(value: Any) -> list[bytes]:
    """Longer MessagePack forms of a value than the canonical one."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int):
        forms = [(b"\xcc", 1), (b"\xcd", 2), (b"\xce", 4), (b"\xcf", 8)]
        found = [form + value.to_bytes(size, "big") for form, size in forms if value < 256**size]
        return [form for form in found if form != msgpack.packb(value)]
    if isinstance(value, bytes):
        return [form + len(value).to_bytes(size, "big") + value for form, size in ((b"\xc5", 2), (b"\xc6", 4))]
    if isinstance(value, str):
        raw = value.encode()
        return [form + len(raw).to_bytes(size, "big") + raw for form, size in ((b"\xda", 2), (b"\xdb", 4))]
    inner = b"".join(msgpack.packb(item) for item in value)
    return [form + len(value).to_bytes(size, "big") + inner for form, size in ((b"\xdc", 2), (b"\xdd", 4))]


def wide_encodings(value: Any) -> list[bytes]:
    """The encoding with exactly one part in a longer form than it needs, for every part."""
    if not isinstance(value, list):
        return wide(value)
    found = list(wide(value))
    for place, item in enumerate(value):
        before = msgpack.packb(value)[: len(array_head(len(value)))] + b"".join(map(msgpack.packb, value[:place]))
        after = b"".join(map(msgpack.packb, value[place + 1 :]))
        found += [before + form + after for form in wide_encodings(item)]
    return found


def array_head(length: int) -> bytes:
    return bytes(msgpack.Packer().pack_array_header(length))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_no_longer_form_of_any_part_is_accepted(sample: Any) -> None:
    plain = msgpack.unpackb(encode(sample))
    assert msgpack.packb(plain) == encode(sample), "the encoding is plain MessagePack in its shortest forms"
    forms = wide_encodings(plain)
    assert len(forms) > 5
    for form in forms:
        assert msgpack.unpackb(form) == plain
        with pytest.raises(CodecError):
            decode(form, type(sample))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_missing_additional_and_trailing_parts_are_refused(sample: Any) -> None:
    plain, data = msgpack.unpackb(encode(sample)), encode(sample)
    wrongs: list[Any] = [[*plain, 0], [*plain, None], plain[:-1], [], None, {}]
    for wrong in wrongs:
        with pytest.raises(CodecError):
            decode(msgpack.packb(wrong), type(sample))
    for bad in (data + b"\0", data[:-1], b"", b"\xc1", b"\x00" + data):
        with pytest.raises(CodecError):
            decode(bad, type(sample))


@REPEATABLE
@given(st.sampled_from(SAMPLES), st.data())
def test_a_mutated_encoding_is_refused_or_is_another_values_encoding(sample: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode(sample))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(encoded) - 1))
        match data.draw(st.sampled_from(["set", "insert", "delete"])):
            case "set":
                encoded[place] = data.draw(st.integers(0, 255))
            case "insert":
                encoded.insert(place, data.draw(st.integers(0, 255)))
            case _ if len(encoded) > 1:
                del encoded[place]
    try:
        value = decode(bytes(encoded), type(sample))
    except CodecError:
        return
    assert encode(value) == encoded
    assert value == sample or bytes(encoded) != encode(sample)


@REPEATABLE
@given(st.binary(max_size=60), st.sampled_from(KINDS))
def test_random_bytes_never_raise_anything_else(data: bytes, kind: type) -> None:
    with suppress(CodecError):
        assert encode(decode(data, kind)) == data


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(CodecError):
        decode(b"\x91" * 100_000 + b"\0", Header)


def test_a_codec_that_only_decodes_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: without the second encoding, longer forms pass."""

    class Echo:
        def encode(self, _value: object) -> bytes:
            return form

    plain = msgpack.unpackb(encode(HEADER))
    form = wide_encodings(plain)[0]
    monkeypatch.setattr("validator.primitives.codec._encoder", Echo())
    assert decode(form, Header) == HEADER


# --- integers -------------------------------------------------------------------------------------------------------


@REPEATABLE
@given(st.integers(0, 2**256 - 1))
def test_integers_come_back(value: int) -> None:
    packed = pack_uint(value)
    assert unpack_uint(packed, 2**256) == value
    assert packed[:1] != b"\0"
    assert (packed == b"") == (value == 0)


@pytest.mark.parametrize("data", [b"\0", b"\0\1", bytes(33), b"\1" + bytes(32), b"\xff" * 33])
def test_integers_that_are_not_canonical_or_too_long_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        unpack_uint(data, 2**300)


def test_integers_have_a_limit() -> None:
    assert unpack_uint(pack_uint(2**96 - 1), 2**96) == 2**96 - 1
    with pytest.raises(CodecError, match="out of range"):
        unpack_uint(pack_uint(2**96), 2**96)


# --- hashes ---------------------------------------------------------------------------------------------------------


def test_keccak_is_ethereums() -> None:
    assert keccak256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak256(b"abc") == keccak.new(digest_bits=256, data=b"abc").digest()


def test_tags_keep_hashes_apart() -> None:
    assert tagged_hash(b"ab", b"c") == blake3(b"\2abc").digest()
    assert tagged_hash(b"ab", b"c") != tagged_hash(b"a", b"bc")


def naive_root(tag: bytes, leaves: list[bytes]) -> bytes:
    def node(part: list[bytes]) -> bytes:
        if len(part) == 1:
            return tagged_hash(tag + b"/leaf", part[0])
        half = 1 << (len(part) - 1).bit_length() - 1
        return tagged_hash(tag + b"/node", node(part[:half]) + node(part[half:]))

    return tagged_hash(tag + b"/root", len(leaves).to_bytes(8, "big") + (node(leaves) if leaves else b""))


@REPEATABLE
@given(st.integers(0, 40))
def test_merkle_roots_equal_a_recursive_definition(count: int) -> None:
    leaves = [tagged_hash(b"leaf", bytes([i])) for i in range(count)]
    assert merkle_root(b"t", leaves) == naive_root(b"t", list(leaves))


def test_merkle_roots_tell_order_length_and_content() -> None:
    a, b = tagged_hash(b"", b"a"), tagged_hash(b"", b"b")
    lists = [[], [a], [b], [a, b], [b, a], [a, a], [a, b, b], [a, b, a], [a, b, b, b]]
    roots = {merkle_root(b"t", leaves) for leaves in lists} | {merkle_root(b"u", leaves) for leaves in lists}
    assert len(roots) == 2 * len(lists)


# --- threads ----------------------------------------------------------------------------------------------------------

FIRST_USES = """
import sys, threading
import msgspec
from validator.primitives.codec import decode, encode

sys.setswitchinterval(1e-6)
for number in range(100):
    inner = msgspec.defstruct(f"Inner{number}", [("a", int), ("b", tuple[int, ...])], array_like=True, frozen=True)
    outer = msgspec.defstruct(f"Outer{number}", [("x", inner), ("y", tuple[inner, ...])], array_like=True, frozen=True)
    value = outer(inner(1, (2,)), (inner(3, ()),))
    data, found, gate = encode(value), [], threading.Barrier(4)

    def use():
        gate.wait()
        found.append(decode(data, outer))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [value] * 4
print("done")
"""


def first_uses(*planted: str) -> subprocess.CompletedProcess[str]:
    """Threads that decode a struct for the first time, at a time, in another process."""
    program = FIRST_USES.replace("sys.setswitchinterval", "".join(planted) + "sys.setswitchinterval")
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


def test_threads_may_decode_a_struct_for_the_first_time_at_a_time() -> None:
    done = first_uses()
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_without_the_lock_such_threads_crash_their_process() -> None:
    """What msgspec does. Validators of one process did so when they started on disks with blocks."""
    without = (
        "from contextlib import nullcontext\nfrom validator.primitives import codec\ncodec._making = nullcontext()\n"
    )
    assert first_uses(without).returncode == -signal.SIGSEGV
