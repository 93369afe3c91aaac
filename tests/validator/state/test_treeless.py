"""The state without a tree against the log store: the same reads, the same views that may not be used any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from cluster.disks.memory import MemoryDisk
from validator.primitives.types import HEIGHT_LIMIT, ZERO_HASH, Height
from validator.state import LogStateStore, StaleViewError, StateStore, TreelessStore, View

KEYS = [b"a", b"aa", b"ab", b"b", b"b\x00", b"\xff", b"\xff\xff"]
STORES: list[Callable[[], StateStore]] = [TreelessStore, lambda: LogStateStore.open(MemoryDisk())]


def content(view: View) -> list[object]:
    """All that a view answers; the error's name if it may not be used."""
    try:
        return [*map(view.get, KEYS), *(list(view.scan(prefix)) for prefix in (b"", b"a", b"\xff"))]
    except StaleViewError as error:
        return [type(error).__name__]


@pytest.mark.parametrize("seed", range(20))
def test_both_stores_answer_alike(seed: int) -> None:
    """Views are derived and committed at random; all views ever made are asked after each step."""
    random, stores = Random(seed), [make() for make in STORES]
    views: list[tuple[View, ...]] = [tuple(store.final for store in stores)]
    for _ in range(40):
        pair = random.choice(views)
        batch = {key: random.choice([None, random.randbytes(2)]) for key in random.sample(KEYS, 3)}
        height = Height(pair[0].height + random.randint(0, 2))
        if random.random() < 0.7:
            outcomes = [attempt(partial(view.derive, height, batch)) for view in pair]
            if isinstance(outcomes[0], str):
                assert outcomes[0] == outcomes[1]
            else:
                views.append(tuple(outcomes))
        else:
            told = [attempt(partial(store.commit, view)) for store, view in zip(stores, pair, strict=True)]
            assert told[0] == told[1]
        for tree, log in views:
            assert content(tree) == content(log)
            assert tree.height == log.height and tree.root == ZERO_HASH
    assert len({len(content(tree)) for tree, _ in views}) == 2, "some may be used, and some not"


def attempt(act: Callable[[], Any]) -> Any:
    """What it returns; the name of the error that it raises."""
    try:
        return act()
    except (StaleViewError, ValueError) as error:
        return type(error).__name__


@pytest.mark.parametrize("make", STORES)
def test_heights_do_not_fall_and_other_stores_views_are_refused(make: Callable[[], StateStore]) -> None:
    store, other = make(), make()
    view = store.final.derive(Height(3), {})
    for height in (Height(2), HEIGHT_LIMIT):
        with pytest.raises(ValueError, match="cannot follow height 3"):
            view.derive(Height(height), {})
    with pytest.raises(ValueError, match="only its own views"):
        other.commit(view)


@pytest.mark.parametrize("make", STORES)
def test_a_closed_store_has_no_views(make: Callable[[], StateStore]) -> None:
    store = make()
    view = store.final.derive(Height(1), {b"a": b"1"})
    store.commit(view)
    store.close()
    with pytest.raises(StaleViewError):
        view.get(b"a")
