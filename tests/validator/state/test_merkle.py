"""The tree against the documented encoding, hard-coded roots, and its cost."""

from __future__ import annotations

import random
import re

import pytest

from cluster.simulation.disk import MemoryDisk
from tests.validator.state.naive_state import DOCUMENT, NaiveState, documented_program
from validator.state import LogStateStore, merkle
from validator.state.log import NO_POSITION, encode_entry
from validator.state.merkle import TWIG_ENTRIES, Tree, TreeOverlay, derive, entry_hash
from validator.types import Height

GOLDEN_BATCHES: list[dict[bytes, bytes | None]] = [
    {},
    {b"a": b"one", b"b": b""},
    {b"a": b"two", b"c": b"three"},
    {b"b": None, b"d": None, b"c": b"three"},
    {b"b": b"four", **{b"k" + i.to_bytes(2, "big"): i.to_bytes(2, "big") for i in range(2048)}},
]
GOLDEN_ROOTS = [
    "1a7bc221ba95b93a707c0e90f217f097d597399eb7f0a698314cf8f9d67e93e8",
    "edab0eee4b8295e1dc90e083f247dd71b832130f928b5c3ad8025336f7f0118d",
    "07bc4b281f3735cad1d3ab204a1a79c98df82638b2cf770a6606ec0f749df04f",
    "a246ed9306bdc8b7ae6e8766fb27bd42e1f8349cb06467c1dedfee4461707afd",
    "a9b4606e62d0ca33305e36c11d00a90ba4865fdd1793299c11bdde6d58981087",
]


def test_golden_roots_hold_in_the_store() -> None:
    view = LogStateStore.open(MemoryDisk()).final
    roots = []
    for height, batch in enumerate(GOLDEN_BATCHES):
        view = view.derive(Height(height), batch)
        roots.append(view.root.hex())
    assert roots == GOLDEN_ROOTS


def test_golden_roots_hold_in_the_documented_program() -> None:
    program = documented_program()
    entries: list[tuple[bytes, bytes, int | None]] = []
    active: set[int] = set()
    for batch, root in zip(GOLDEN_BATCHES, GOLDEN_ROOTS, strict=True):
        entries, active = program["apply"](entries, active, batch)
        assert program["state_root"](entries, active).hex() == root


def test_documented_vectors_are_those_tested_here() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").split("## Test vectors")[1].split("Worked")[0]
    assert re.findall(r"`([0-9a-f]{64})`", table) == GOLDEN_ROOTS


def test_worked_vector_follows_from_the_package() -> None:
    worked = DOCUMENT.read_text(encoding="utf-8").split("Worked")[1].split("## Views")[0]
    printed = re.findall(r"`([0-9a-f]{6,})`", worked)
    encoded = [encode_entry(b"a", b"one", NO_POSITION), encode_entry(b"b", b"", NO_POSITION)]
    hashes = [entry_hash(entry) for entry in encoded]
    overlay = derive(Tree(), hashes, [])
    twig = overlay.twig(0)
    expected = [
        *encoded,
        *hashes,
        *merkle.hash_pairs(merkle.ENTRY_NODE_KEY, hashes),
        merkle.ABSENT_ENTRY_NODES[1],
        twig.entries_root,
        merkle.twig_hash(*twig),
        overlay.root,
    ]
    assert printed == [item.hex() for item in expected]
    assert twig.active_bits == b"\x03" + bytes(255)


SIZES = [0, 1, 2, 3, 1023, 2047, 2048, 2049, 4095, 4096, 4097, 3 * TWIG_ENTRIES + 5]


@pytest.mark.parametrize("size", SIZES)
def test_tree_equals_a_full_rebuild_however_it_was_cut_into_batches(size: int) -> None:
    rng = random.Random(size)
    model = NaiveState().apply({i.to_bytes(4, "big"): b"v" for i in range(size)})
    leaves = [entry_hash(encode_entry(key, value, NO_POSITION)) for key, value, _ in model.entries]
    base, done = Tree(), 0
    branch: list[TreeOverlay] = []
    while done < size:
        step = min(rng.choice([1, 2, 700, 2048, 2049, 5000]), size - done)
        branch.append(derive(branch[-1] if branch else base, leaves[done : done + step], []))
        done += step
        if rng.random() < 0.3:
            base.absorb(branch.pop(0))
    for overlay in branch:
        base.absorb(overlay)
    assert base.root == model.root
    assert derive(base, [], []).root == model.root


def test_deactivation_alone_changes_the_root_and_nothing_else() -> None:
    leaves = [entry_hash(bytes([i])) for i in range(5)]
    parent = derive(Tree(), leaves, [])
    child = derive(parent, [], [3])
    assert child.root != parent.root
    assert (child.next_position, child.frontier) == (parent.next_position, parent.frontier)
    assert child.twig(0).active_bits[0] == 0b10111
    assert parent.twig(0).active_bits[0] == 0b11111


def test_number_of_entries_is_part_of_the_root() -> None:
    assert merkle.state_root(1, merkle.ABSENT) != merkle.state_root(0, merkle.ABSENT)


def test_domains_are_apart() -> None:
    keys = [merkle.ENTRY_KEY, merkle.ENTRY_NODE_KEY, merkle.TWIG_KEY, merkle.UPPER_NODE_KEY, merkle.ROOT_KEY]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 32 for key in keys)


def test_only_touched_nodes_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    twigs = 64
    base = Tree()
    base.absorb(derive(base, [entry_hash(i.to_bytes(4, "big")) for i in range(twigs * TWIG_ENTRIES)], []))
    hashed = {"nodes": 0, "twigs": 0}
    pairs, twig = merkle.hash_pairs, merkle.twig_hash

    def counted_pairs(key: bytes, row: list[bytes]) -> list[bytes]:
        hashed["nodes"] += len(row) // 2
        return pairs(key, row)

    def counted_twig(entries_root: bytes, active_bits: bytes) -> bytes:
        hashed["twigs"] += 1
        return twig(entries_root, active_bits)

    monkeypatch.setattr(merkle, "hash_pairs", counted_pairs)
    monkeypatch.setattr(merkle, "twig_hash", counted_twig)
    derive(base, [entry_hash(b"x")], [0, 1, 5 * TWIG_ENTRIES])
    assert hashed["twigs"] == 3
    assert hashed["nodes"] <= merkle.TWIG_LEVELS + 3 * 7
