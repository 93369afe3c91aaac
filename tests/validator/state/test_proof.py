"""Proofs of presence and absence, now and at retained heights; and that nothing else proves anything."""

from __future__ import annotations

import re
import weakref
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.disks.memory import MemoryDisk
from tests.validator.state.naive_state import DOCUMENT, PROGRAMS, NaiveState
from validator.primitives.types import Hash, Height
from validator.state import HistoryError, LogStateStore
from validator.state.engine import Engine
from validator.state.engines.packed import PackedEngine
from validator.state.engines.plain import PlainEngine
from validator.state.hashing import (
    ABSENT_ENTRY_NODES,
    ABSENT_UPPER_NODES,
    BITMAP_BYTES,
    ENTRY_NODE_KEY,
    TWIG_LEVELS,
    entry_hash,
    state_root,
    twig_hash,
)
from validator.state.proof import Proof, ProofError, Witness, _climb, verify
from validator.state.store import UNASKED_HEIGHTS
from validator.storage.disk import DiskError

Batch = dict[bytes, bytes | None]
KEYS = [b"k%d" % i for i in range(40)]


def history(seed: int, heights: int, engine: Engine, keys: int = 30) -> tuple[LogStateStore, list[NaiveState]]:
    """A store after some blocks, and the states that it went through; the last keys never live."""
    rng = Random(seed)
    store = LogStateStore.open(MemoryDisk(), engine=engine)
    models = [NaiveState(slack=20)]
    for height in range(1, heights + 1):
        batch: Batch = {
            KEYS[rng.randrange(keys)]: None if rng.random() < 0.4 else b"%d" % rng.randrange(99)
            for _ in range(rng.randrange(6))
        }
        models.append(models[-1].apply(batch, height))
        store.commit(store.final.derive(Height(height), batch))
        assert store.final.root == models[-1].root
    return store, models


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_key_at_every_height(seed: int) -> None:
    store, models = history(seed, 60, PlainEngine(slack=20))
    for height, model in enumerate(models[1:], start=1):
        root = store.root_at(Height(height))
        assert root == model.root
        items = model.items
        for key in KEYS:
            assert verify(root, key, store.prove(key, Height(height))) == items.get(key)
    assert [store.prove(key) for key in KEYS] == [store.prove(key, Height(60)) for key in KEYS]


def test_engines_make_the_same_proofs() -> None:
    proofs = []
    for engine in (PlainEngine(slack=20), PackedEngine(slack=20)):
        store, _ = history(3, 50, engine)
        proofs.append([store.prove(key, Height(height)) for key in KEYS for height in (10, 30, 50)])
    assert proofs[0] == proofs[1]


@pytest.mark.parametrize("twigs", [1, 2, 5])
def test_full_twigs_and_history_across_them(twigs: int) -> None:
    store = LogStateStore.open(MemoryDisk())
    roots: list[tuple[Hash, dict[bytes, bytes]]] = []
    size, items = twigs * 1024, dict[bytes, bytes]()
    for height in range(1, 5):
        batch: Batch = {b"%d" % i: b"%d" % height for i in range(0, size, height)}
        items = {**items, **{key: value for key, value in batch.items() if value is not None}}
        store.commit(store.final.derive(Height(height), batch))
        roots.append((store.final.root, dict(items)))
    rng = Random(twigs)
    for height, (root, then) in enumerate(roots, start=1):
        for key in [b"%d" % rng.randrange(2 * size) for _ in range(40)]:
            assert verify(root, key, store.prove(key, Height(height))) == then.get(key)


def test_what_proofs_are_read_with_is_given_back_when_nobody_asks() -> None:
    """A process that serves a snapshot now and then grew by megabytes each time."""
    store, _ = history(1, 30, PlainEngine(slack=20))
    proof, root = store.prove(KEYS[0], Height(28)), store.root_at(Height(28))
    prover = weakref.ref(store._prover or pytest.fail("it is kept for the next proof"))
    for height in range(31, 31 + UNASKED_HEIGHTS):
        store.commit(store.final.derive(Height(height), {}))
    assert prover() is not None
    store.commit(store.final.derive(Height(31 + UNASKED_HEIGHTS), {}))
    assert prover() is None and not store._past
    again = store.prove(KEYS[0], Height(28))
    assert verify(root, KEYS[0], again) == verify(root, KEYS[0], proof)


def test_the_empty_state_and_the_emptied_one() -> None:
    store = LogStateStore.open(MemoryDisk())
    assert verify(store.final.root, b"a", store.prove(b"a")) is None
    store.commit(store.final.derive(Height(1), {b"a": b"1"}))
    assert verify(store.final.root, b"a", store.prove(b"a")) == b"1"
    assert verify(store.final.root, b"b", store.prove(b"b")) is None
    store.commit(store.final.derive(Height(2), {b"a": None}))
    assert verify(store.final.root, b"a", store.prove(b"a")) is None
    assert verify(store.root_at(Height(1)), b"a", store.prove(b"a", Height(1))) == b"1"


def test_proofs_are_of_the_final_state_though_forks_stand_above_it() -> None:
    store, models = history(1, 20, PlainEngine(slack=20))
    fork = store.final.derive(Height(21), {b"k1": b"fork", b"k2": None})
    assert verify(store.final.root, b"k1", store.prove(b"k1")) == models[-1].items.get(b"k1")
    assert fork.get(b"k1") == b"fork"


def test_heights_that_are_not_retained_are_refused() -> None:
    store = LogStateStore.open(MemoryDisk(), retained=5)
    for height in range(1, 20):
        store.commit(store.final.derive(Height(height), {b"a": b"%d" % height}))
    assert store.first_height == 14
    assert verify(store.root_at(Height(14)), b"a", store.prove(b"a", Height(14))) == b"14"
    for height in (0, 13, 20):
        with pytest.raises(HistoryError, match=f"height {height} is not retained: 14 to 19 are"):
            store.prove(b"a", Height(height))


STORE, MODELS = history(2, 60, PlainEngine(slack=20))
ROOT, ITEMS = STORE.final.root, MODELS[-1].items
PRESENT = next(key for key in KEYS if key in ITEMS)
ABSENT_KEY = KEYS[-1]
PROOFS = {key: STORE.prove(key) for key in KEYS}


def is_rejected(root: Hash, key: bytes, proof: bytes, truth: bytes | None) -> bool:
    """Whether a proof is rejected; one that is taken must at least say the truth."""
    try:
        assert verify(root, key, proof) == truth
    except ProofError:
        return True
    return False


@pytest.mark.parametrize("key", [PRESENT, ABSENT_KEY])
def test_every_flipped_bit_and_every_cut_is_rejected(key: bytes) -> None:
    proof = PROOFS[key]
    for i in range(len(proof)):
        for bit in range(8):
            forged = proof[:i] + bytes([proof[i] ^ 1 << bit]) + proof[i + 1 :]
            assert is_rejected(ROOT, key, forged, ITEMS.get(key)), f"byte {i}, bit {bit}"
        assert is_rejected(ROOT, key, proof[:i], ITEMS.get(key))
    assert is_rejected(ROOT, key, proof + b"\0", ITEMS.get(key))


def test_proofs_of_other_keys_and_heights_are_rejected_or_true() -> None:
    for key in KEYS:
        for other, proof in PROOFS.items():
            rejected = is_rejected(ROOT, key, proof, ITEMS.get(key))
            assert rejected or key == other or not {key, other} <= ITEMS.keys(), "an entry proves its key and one gap"
    for height in range(1, 60):
        old = STORE.prove(PRESENT, Height(height))
        if STORE.root_at(Height(height)) != ROOT:
            assert is_rejected(ROOT, PRESENT, old, ITEMS[PRESENT])


def proof_of(key: bytes) -> tuple[Proof, Witness]:
    """The proof of what the final state says about a key, before it is encoded, and its witness."""
    prover, past = STORE._at(None)
    proof = prover.prove(key, past)
    assert isinstance(proof.witness, Witness)
    return proof, proof.witness


def fields(proof: Proof, witness: Witness) -> list[Proof]:
    """A proof with each of its fields changed."""

    def with_witness(**changes: Any) -> Proof:
        return proof._replace(witness=witness._replace(**changes))

    swapped = tuple(reversed(witness.entry_siblings))
    return [
        Proof(proof.next_position + 1, proof.live, witness),
        Proof(proof.next_position, proof.live + 1, witness),
        Proof(proof.next_position, 0, bytes(32)),
        with_witness(position=witness.position ^ 1),
        with_witness(entry=witness.entry[:-1]),
        with_witness(entry=witness.entry + b"\0"),
        with_witness(entry_siblings=swapped),
        with_witness(active_bits=bytes(256)),
        with_witness(active_bits=b"\xff" * 256),
    ]


def test_every_changed_field_is_rejected() -> None:
    for key in (PRESENT, ABSENT_KEY):
        for forged in fields(*proof_of(key)):
            with pytest.raises(ProofError):
                verify(ROOT, key, forged.encode())


@given(st.binary(max_size=300))
def test_noise_is_rejected(data: bytes) -> None:
    with pytest.raises(ProofError):
        verify(ROOT, PRESENT, data)


@settings(max_examples=300)
@given(st.data())
def test_spliced_proofs_are_rejected_or_true(data: st.DataObject) -> None:
    first, second = data.draw(st.sampled_from(KEYS)), data.draw(st.sampled_from(KEYS))
    cut = data.draw(st.integers(0, len(PROOFS[first])))
    is_rejected(ROOT, first, PROOFS[first][:cut] + PROOFS[second][cut:], ITEMS.get(first))


def sparse(items: list[bytes], named: set[int]) -> bytes:
    """A sparse list that names just these items."""
    return b"".join((sum(1 << i for i in named).to_bytes(8, "big"), *(items[i] for i in sorted(named))))


def test_a_proof_has_one_encoding() -> None:
    """A usual item that is spelled out, and one beyond the last, change nothing that is hashed."""
    _, witness = proof_of(PRESENT)
    words = [witness.active_bits[at : at + 8] for at in range(0, BITMAP_BYTES, 8)]
    lists = [
        (words, [bytes(8)] * 32),
        (list(witness.entry_siblings), list(ABSENT_ENTRY_NODES)),
        (list(witness.upper_siblings), list(ABSENT_UPPER_NODES)),
    ]
    named = [{i for i, item in enumerate(items) if item != usual[i]} for items, usual in lists]
    encoded = [sparse(items, chosen) for (items, _), chosen in zip(lists, named, strict=True)]
    head = PROOFS[PRESENT][: -sum(map(len, encoded))]
    assert head + b"".join(encoded) == PROOFS[PRESENT]
    for i, (items, usual) in enumerate(lists):
        spelled_out = {*range(len(items))} - named[i]
        forged = [sparse([*items, usual[len(items) % 32]], named[i] | {extra}) for extra in {*spelled_out, len(items)}]
        assert forged
        for each in forged:
            with pytest.raises(ProofError, match=r"usual item is spelled out|more items than there are"):
                verify(ROOT, PRESENT, head + b"".join([*encoded[:i], each, *encoded[i + 1 :]]))


def test_a_state_with_live_keys_is_not_proved_empty_by_an_entry_of_no_bytes() -> None:
    proof, witness = proof_of(ABSENT_KEY)
    entry_less = proof._replace(witness=witness._replace(entry=b""))
    with pytest.raises(ProofError):
        verify(ROOT, ABSENT_KEY, entry_less.encode())
    beside, bits = ABSENT_ENTRY_NODES[:TWIG_LEVELS], (1).to_bytes(BITMAP_BYTES, "little")
    forged = Proof(1, 1, Witness(0, b"", beside, bits, ()))
    root = state_root(1, 1, twig_hash(_climb(ENTRY_NODE_KEY, entry_hash(b""), 0, beside), bits))
    with pytest.raises(ProofError, match="an entry of 0 bytes"):
        verify(root, ABSENT_KEY, forged.encode())


def test_the_documented_verifier_agrees() -> None:
    documented, bad = PROGRAMS["verify"], PROGRAMS["Bad"]
    for key in KEYS:
        assert documented(ROOT, key, PROOFS[key]) == ITEMS.get(key)
        proof = PROOFS[key]
        for i in range(0, len(proof), 7):
            with pytest.raises(bad):
                documented(ROOT, key, proof[:i] + bytes([proof[i] ^ 1]) + proof[i + 1 :])
    empty = LogStateStore.open(MemoryDisk())
    assert documented(empty.final.root, b"a", empty.prove(b"a")) is None


def test_proof_vectors_of_the_page() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").split("### Proof vectors")[1].split("## ")[0]
    root, present, absent = re.findall(r"`([0-9a-f]{64,})`", text)
    assert verify(Hash(bytes.fromhex(root)), b"a", bytes.fromhex(present)) == b"one"
    assert verify(Hash(bytes.fromhex(root)), b"c", bytes.fromhex(absent)) is None


def test_rot_since_opening_is_an_error_and_no_proof() -> None:
    disk = MemoryDisk()
    store = LogStateStore.open(disk)
    store.commit(store.final.derive(Height(1), {b"%d" % i: b"%d" % i for i in range(100)}))
    content = disk.read("state/log-000001")
    at = content.index(b"77", 8192)
    disk.write("state/log-000001", at, b"x")
    with pytest.raises(DiskError, match="state"):
        store.prove(b"1")
