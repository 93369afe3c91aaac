"""Places of names, compared with a dict."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.primitives.codec import tagged_hash
from validator.primitives.types import Height
from validator.storage import places as places_module
from validator.storage.places import KEY_BYTES, Place, Places, keys_of


def name_of(number: int) -> bytes:
    return tagged_hash(b"name", b"%d" % number)


@pytest.fixture(autouse=True)
def few_recent_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_module, "MAX_RECENT", 5)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 40), st.integers(0, 30), st.integers(0, 30))
def test_the_last_names_are_found_and_no_other(counts: list[int], most: int, loaded: int, forgotten: int) -> None:
    """``counts``: names a block; the first ``loaded`` blocks come as they do at a start, the others one by one."""
    blocks, number = [], 0
    for count in counts:
        blocks.append([name_of(number + each) for each in range(count)])
        number += count
    places = Places(most)
    halves = (blocks[: loaded // 2], blocks[loaded // 2 : loaded])
    for index, half in enumerate(halves):
        places.load(1 + index * (loaded // 2), [keys_of(names) for names in half])
    places.settle()
    for height, names in enumerate(blocks[loaded:], start=min(loaded, len(blocks)) + 1):
        for position, name in enumerate(names):
            places.add(name, height, position)
    every = {
        name: Place(Height(height), position)
        for height, names in enumerate(blocks, 1)
        for position, name in enumerate(names)
    }
    kept = len(places)
    assert min(most, len(every)) <= kept <= min(most + 5, len(every))
    for name, place in list(every.items())[-kept:] if kept else []:
        assert places.find(name) == [place]
    for name in list(every)[: len(every) - kept]:
        assert places.find(name) == []
    places.forget(forgotten)
    for name, place in list(every.items())[-kept:] if kept else []:
        assert places.find(name) == ([place] if place.height > forgotten else [])


def test_names_that_begin_alike_are_all_found_newest_first() -> None:
    places, same = Places(100), bytes(KEY_BYTES)
    places.load(1, [same, same * 2])
    places.load(7, [same])
    places.settle()
    assert places.find(same + b"any") == [(7, 0), (2, 1), (2, 0), (1, 0)]
    places.add(same + b"any", 8, 3)
    assert places.find(same + b"any") == [(8, 3), (7, 0), (2, 1), (2, 0), (1, 0)]
    assert places.find(same + b"other") == [(7, 0), (2, 1), (2, 0), (1, 0)]


def test_the_largest_keys_and_positions_fit() -> None:
    places, name = Places(10), b"\xff" * 32
    places.add(name, 2**39, 2**24 - 1)
    for number in range(8):
        places.add(name_of(number), 2**39 + 1, number)
    assert places.find(name) == [(2**39, 2**24 - 1)]
    assert places.find(bytes(32)) == []
