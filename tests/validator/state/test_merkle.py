"""The tree against the documented encoding, hard-coded roots, and its cost."""

from __future__ import annotations

import random
import re

import pytest

from cluster.disks.memory import MemoryDisk
from tests.validator.state.naive_state import DOCUMENT, NaiveState
from validator.primitives.types import Hash, Height
from validator.state import LogStateStore, hashing, merkle
from validator.state.hashing import NO_POSITION, TWIG_ENTRIES, TWIG_LEVELS, Entry, entry_hash, key_hash
from validator.state.merkle import Tree

GOLDEN_BATCHES: list[dict[bytes, bytes | None]] = [
    {},
    {b"a": b"one", b"b": b""},
    {b"a": b"two", b"c": b"three"},
    {b"b": None, b"d": None, b"c": b"three"},
    {b"b": b"four", **{b"k" + i.to_bytes(2, "big"): i.to_bytes(2, "big") for i in range(2048)}},
]
GOLDEN_ROOTS = [
    "383f0847c39b835197b266514a4a20b5b2ab98805211e734f63d69bd06684a3a",
    "9025c37cfffee25944ae80953b403c75704b68dd900a8259b8efc18ae2fef6bf",
    "0e25eddfae45ed4d1ee2dd6c5e5f8a05d40477d18a606aacb2e5f602993d7390",
    "f22b094ceb52d6e800e23cddf48366c118a1517a2acdd6eb5b0fac718a1ddf92",
    "36b3db3aa2ba00c0f7aba8aec8ce9a189616565f036f32b3744ab1d83fb9c0f2",
]


def test_golden_roots_hold_in_the_store() -> None:
    view = LogStateStore.open(MemoryDisk()).final
    roots = []
    for height, batch in enumerate(GOLDEN_BATCHES):
        view = view.derive(Height(height), batch)
        roots.append(view.root.hex())
    assert roots == GOLDEN_ROOTS


def test_golden_roots_hold_in_the_specification() -> None:
    state = NaiveState()
    for height, (batch, root) in enumerate(zip(GOLDEN_BATCHES, GOLDEN_ROOTS, strict=True)):
        state = state.apply(batch, height)
        assert state.root.hex() == root


def test_documented_vectors_are_those_tested_here() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").split("## Test vectors")[1].split("Worked")[0]
    assert re.findall(r"`([0-9a-f]{64})`", table) == GOLDEN_ROOTS


def test_worked_vector_follows_from_the_package() -> None:
    worked = DOCUMENT.read_text(encoding="utf-8").split("Worked")[1].split("## ")[0]
    printed = re.findall(r"`([0-9a-f]{6,})`", worked)
    places = [key_hash(b"a"), key_hash(b"b")]
    first = Entry(Height(1), NO_POSITION, places[1], b"a", b"one").encode()
    second = Entry(Height(1), NO_POSITION, places[0], b"b", b"").encode()
    encoded = [first, second] if places[0] < places[1] else [second, first]
    hashes = [entry_hash(entry) for entry in encoded]
    tree = Tree()
    tree.extend(hashes, [], 2)
    twig = tree.twig(0)
    expected = [
        *places,
        *encoded,
        *hashes,
        *hashing.hash_pairs(hashing.ENTRY_NODE_KEY, hashes),
        hashing.ABSENT_ENTRY_NODES[1],
        twig.entries_root,
        hashing.twig_hash(*twig),
        tree.root,
    ]
    assert [item.hex() for item in expected] == printed
    assert twig.active_bits == b"\x03" + bytes(255)


SIZES = [0, 1, 2, 3, 1023, 2047, 2048, 2049, 4095, 4096, 4097, 3 * TWIG_ENTRIES + 5]


@pytest.mark.parametrize("size", SIZES)
def test_tree_equals_a_full_rebuild_however_it_was_cut_and_undone(size: int) -> None:
    rng = random.Random(size)
    model = NaiveState().apply({i.to_bytes(4, "big"): b"v" for i in range(size)}, 1)
    leaves = [Hash(entry) for entry in model.tree.entries]
    tree, done = Tree(), 0
    while done < size:
        step = min(rng.choice([1, 2, 700, 2048, 2049, 5000]), size - done)
        before = (tree.root, tree.next_position, tree.frontier, tree.twig(0), tree.upper_node(1, 0))
        undo = tree.extend(leaves[done : done + step], [done] if step > 1 else [], 77)
        tree.revert(undo)
        assert before == (tree.root, tree.next_position, tree.frontier, tree.twig(0), tree.upper_node(1, 0))
        done += step
        tree.extend(leaves[done - step : done], [], done)
    assert tree.root == model.root


def test_deactivation_alone_changes_the_root_and_nothing_else() -> None:
    tree = Tree()
    tree.extend([entry_hash(bytes([i])) for i in range(5)], [], 5)
    before = (tree.next_position, tree.frontier)
    root = tree.root
    undo = tree.extend([], [3], 5)
    assert tree.root != root
    assert (tree.next_position, tree.frontier) == before
    assert tree.twig(0).active_bits[0] == 0b10111
    tree.revert(undo)
    assert (tree.root, tree.twig(0).active_bits[0]) == (root, 0b11111)


def test_numbers_of_entries_and_of_live_keys_are_part_of_the_root() -> None:
    roots = {hashing.state_root(entries, live, hashing.ABSENT) for entries in (0, 1) for live in (0, 1)}
    assert len(roots) == 4


def test_domains_are_apart() -> None:
    names = ("KEY_KEY", "ENTRY_KEY", "ENTRY_NODE_KEY", "TWIG_KEY", "UPPER_NODE_KEY", "ROOT_KEY")
    keys = {getattr(hashing, name) for name in names}
    assert len(keys) == len(names)
    assert all(len(key) == 32 for key in keys)


def test_only_touched_nodes_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    twigs = 64
    tree = Tree()
    tree.extend([entry_hash(i.to_bytes(4, "big")) for i in range(twigs * TWIG_ENTRIES)], [], 1)
    hashed = {"nodes": 0, "twigs": 0}
    pairs, twig = hashing.hash_pairs, hashing.twig_hash

    def counted_pairs(key: bytes, row: list[bytes]) -> list[bytes]:
        hashed["nodes"] += len(row) // 2
        return pairs(key, row)

    def counted_twig(entries_root: bytes, active_bits: bytes) -> bytes:
        hashed["twigs"] += 1
        return twig(entries_root, active_bits)

    monkeypatch.setattr(merkle, "hash_pairs", counted_pairs)
    monkeypatch.setattr(merkle, "twig_hash", counted_twig)
    tree.extend([entry_hash(b"x")], [0, 1, 5 * TWIG_ENTRIES], 1)
    assert hashed["twigs"] == 3
    assert hashed["nodes"] <= TWIG_LEVELS + 3 * 7
