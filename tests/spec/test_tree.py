"""The tree against the store, over batches that delete, come back, and fill twigs; and what a root costs."""

from __future__ import annotations

from random import Random

import pytest

from cluster.disks.memory import MemoryDisk
from spec import tree
from spec.tree import SLACK, Tree
from validator.primitives.types import Height
from validator.state import LogStateStore
from validator.state.engines.plain import PlainEngine


def drawn(random: Random, keys: int, changes: int) -> dict[bytes, bytes | None]:
    """A batch: some values are empty, some keys are deleted, and some of these are absent."""
    names = (b"%d" % random.randrange(keys) for _ in range(changes))
    return {name: random.choice([None, b"", random.randbytes(3), random.randbytes(70)]) for name in names}


@pytest.mark.parametrize(
    ("keys", "changes", "slack", "blocks"),
    [(1, 1, 0, 20), (3, 2, 0, 60), (12, 4, 5, 60), (300, 90, 40, 60), (2_000, 700, SLACK, 25)],
)
def test_roots_are_the_stores(keys: int, changes: int, slack: int, blocks: int) -> None:
    random, state = Random(keys), Tree(slack)
    view = LogStateStore.open(MemoryDisk(), engine=PlainEngine(slack)).final
    for height in range(blocks):
        batch = drawn(random, keys, changes)
        view = view.derive(Height(height), batch)
        state.apply(height, batch)
        if random.random() < 0.7:  # a root need not be asked for after each batch
            assert state.root == view.root
    assert state.root == view.root and dict(view.scan(b"")) == dict(sorted(state.values.items()))


def test_a_deleted_state_is_not_the_empty_one() -> None:
    state, empty = Tree(), Tree().root
    state.apply(0, {b"a": b"1"})
    state.apply(1, {b"a": None, b"b": None})
    assert state.values == {} and state.root != empty


def test_full_twigs_are_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state, kinds = Tree(), []
    state.apply(0, {b"%d" % number: b"" for number in range(4 * tree.TWIG_ENTRIES)})
    assert state.root
    right = tree.digest
    monkeypatch.setattr(tree, "digest", lambda kind, data: kinds.append(kind) or right(kind, data))
    state.apply(1, {b"1": b"new"})
    assert state.root
    assert kinds.count("entry") == 1 and kinds.count("twig") == 5 and kinds.count("entry-node") < 40
