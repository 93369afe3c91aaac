"""The overflow tree against its definition: whatever came and went, its rows are in order and its root is theirs."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from random import Random

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.naive_pool import Waiting, draw_row
from validator.scheduler import overflow
from validator.scheduler.overflow import OverflowTree
from validator.scheduler.rows import ROW, timer_id_of_row

Places = dict[tuple[int, int], bytes]


def root_of(places: Places) -> bytes | None:
    """The tree's root; there is none where it is empty."""
    return naive_root(places) if places else None


def naive_root(places: Places) -> bytes:
    """A node's hash by what ``docs/protocol.md`` says: a branch where keys first differ, a leaf where there is one."""
    if len(places) == 1:
        ((place, timer_id),) = places.items()
        return blake3(b"stampede/overflow/leaf" + packed(place) + timer_id).digest()
    bits = {place: f"{int.from_bytes(packed(place), 'big'):0128b}" for place in places}
    bit = next(i for i in range(128) if len({text[i] for text in bits.values()}) == 2)
    left, right = (naive_root({p: places[p] for p in places if bits[p][bit] == side}) for side in "01")
    return blake3(b"stampede/overflow/branch" + bytes([bit]) + left + right).digest()


def packed(place: tuple[int, int]) -> bytes:
    return place[0].to_bytes(8, "big") + place[1].to_bytes(8, "big")


class Trees:
    """A tree and what should be in it."""

    def __init__(self, seed: int) -> None:
        self.random, self.tree, self.parts = Random(seed), OverflowTree(), 0
        self.rows: dict[tuple[int, int], Waiting] = {}

    def step(self) -> None:
        match self.random.choice(("add", "add", "add", "remove", "change", "take")):
            case "add":
                place = self.random.randrange(40), self.random.randrange(2**32)
                self.rows[place] = draw_row(self.random, *place, 3)
                self.tree.add(self.rows[place].packed())
            case "remove" if self.rows:
                place = self.random.choice(sorted(self.rows))
                del self.rows[place]
                self.tree.remove(*place)
            case "change" if self.rows:
                old = self.rows[self.random.choice(sorted(self.rows))]
                new = Waiting(old.timer_id, *old.place, 77, 2, False, 5, None, None)
                self.rows[new.place] = new
                self.tree.change(new.packed())
            case "take" if self.random.random() < 0.1:
                self.cut_off()

    def cut_off(self) -> None:
        """A part is what was below the cut, in order; it goes back whole, or is dropped."""
        self.parts += 1
        below = self.random.randrange(40)
        low = [self.rows[place] for place in sorted(self.rows) if place[0] < below]
        self.tree.cut_off(self.parts, below)
        assert content(self.tree.rows(self.parts)) == content(row.packed() for row in low)
        height = self.random.randrange(40)
        at_height = [row.packed() for row in low if row.place[0] == height]
        assert content(self.tree.rows_at(self.parts, height)) == content(at_height)
        assert content(self.tree.rows(self.parts)) == content(row.packed() for row in low), "asking changes nothing"
        if self.random.random() < 0.5:
            self.tree.put_back(self.parts)
        else:
            if low:
                self.tree.remove(*low[0].place, self.parts)
                self.tree.add(low[0].packed(), self.parts)
            self.tree.drop(self.parts)
            for row in low:
                del self.rows[row.place]
        assert self.parts not in self.tree.parts()

    def require_equal(self) -> None:
        expected = [self.rows[place] for place in sorted(self.rows)]
        assert [row.tobytes() for row in self.tree.rows()] == [row.packed().tobytes() for row in expected]
        assert self.tree.root() == root_of({row.place: row.timer_id for row in expected})


def content(rows: Iterable[np.ndarray]) -> list[bytes]:
    return [row.tobytes() for row in rows]


def compare(seed: int, steps: int = 150) -> None:
    trees = Trees(seed)
    for step in range(steps):
        trees.step()
        if step % 7 == 0:
            trees.require_equal()
    trees.require_equal()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_the_tree_is_its_content(seed: int) -> None:
    compare(seed)


def test_the_order_of_coming_does_not_matter() -> None:
    random = Random(5)
    rows = [draw_row(random, random.randrange(50), sequence, 3).packed() for sequence in range(1_000)]
    roots = set()
    for _ in range(3):
        random.shuffle(rows)
        tree = OverflowTree()
        for row in rows:
            tree.add(row)
        roots.add(tree.root())
        ids = [timer_id_of_row(row) for row in tree.rows()]
        assert len(set(ids)) == 1_000
    assert len(roots) == 1


def test_a_change_of_what_no_hash_covers_keeps_the_root() -> None:
    trees = Trees(3)
    for _ in range(40):
        trees.step()
    root = trees.tree.root()
    row = next(iter(trees.rows.values()))
    trees.tree.change(Waiting(row.timer_id, *row.place, 1, 0, True, None, 3, 4).packed())
    assert trees.tree.root() == root


def is_caught() -> bool:
    try:
        for seed in range(10):
            compare(seed)
    except AssertionError:
        return True
    return False


def test_planted_faults_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys the other way round, hashes that stay stale, a height without its rows."""
    assert not is_caught()
    with monkeypatch.context() as patched:
        patched.setattr(overflow, "_IDENTITY", struct.Struct("<QQ4Q"))
        assert is_caught()
    with monkeypatch.context() as patched:
        patched.setattr(overflow, "_stale_nodes", lambda nodes, root, stale: 0)
        assert is_caught()
    with monkeypatch.context() as patched:
        patched.setattr(OverflowTree, "rows_at", lambda _tree, _part, _height: np.zeros(0, ROW))
        assert is_caught()


def test_no_choice_of_keys_makes_a_long_path() -> None:
    """Keys that each leave the path of all before one bit later: as bad as it gets."""
    tree = OverflowTree()
    keys = [(2**63 - 2**bit, 0) for bit in range(63)] + [(2**63 - 1, 2**64 - 2**bit) for bit in range(64)]
    for trigger, sequence in keys:
        row = np.zeros(1, ROW)
        row["trigger"], row["sequence"], row["id0"] = trigger, sequence, trigger
        tree.add(row)
    ids = {key: timer_id_of_row(row) for key, row in zip(sorted(keys), tree.rows(), strict=True)}
    assert tree.root() == naive_root(ids)
    tree.cut_off(1, 2**62)
    tree.put_back(1)
    assert tree.root() == naive_root(ids)
