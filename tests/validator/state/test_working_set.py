"""The working set of a block: revert is exact, and changes are net."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.chains import ACTOR, OTHER, Chain
from validator.chain.records import LONGEST_PLAIN_STORAGE_KEY, Account, storage_key
from validator.primitives.errors import Rejection
from validator.state.working_set import World, batch_of

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.binary(max_size=3)),
        st.tuples(st.just("delete"), st.sampled_from("abc")),
        st.tuples(st.just("credit"), st.integers(0, 5)),
        st.tuples(st.just("debit"), st.integers(0, 5)),
        st.just(("checkpoint",)),
        st.just(("revert",)),
    ),
    max_size=40,
)


def snapshot(world: World) -> tuple[Any, ...]:
    stored = tuple(world.storage_get(ACTOR, key) for key in "abc")
    return (*stored, world.balance(ACTOR), world.balance(OTHER))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(STEPS)
def test_a_revert_restores_exactly_what_was(steps: list[tuple[Any, ...]]) -> None:
    world = World(Chain().view)
    marks: list[tuple[int, Any, Any]] = []
    for kind, *rest in steps:
        match kind:
            case "set":
                world.storage_set(ACTOR, *rest)
            case "delete":
                world.storage_delete(ACTOR, *rest)
            case "credit":
                world.credit(OTHER, *rest)
            case "debit":
                world.debit(ACTOR, *rest)
            case "checkpoint":
                marks.append((world.checkpoint(), snapshot(world), world.changes()))
            case _ if marks:
                mark, seen, changes = marks.pop()
                world.revert(mark)
                assert snapshot(world) == seen
                assert world.changes() == changes


def test_changes_are_net_and_ascending() -> None:
    world = World(Chain().view)
    assert world.changes() == []
    world.storage_set(OTHER, "k", b"1")
    world.storage_set(ACTOR, "k", b"1")
    world.storage_set(ACTOR, "gone", b"1")
    world.storage_delete(ACTOR, "gone")
    world.credit(ACTOR, 5)
    world.debit(ACTOR, 5)
    changes = world.changes()
    assert [change.key for change in changes] == sorted(storage_key(actor, "k") for actor in (ACTOR, OTHER))
    assert [(change.before, change.after) for change in changes] == [(None, b"1")] * 2
    assert batch_of(changes) == {change.key: b"1" for change in changes}


def test_a_world_that_forgets_to_undo_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "revert", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_revert_restores_exactly_what_was()


@pytest.mark.parametrize("length", [0, 1, LONGEST_PLAIN_STORAGE_KEY, LONGEST_PLAIN_STORAGE_KEY + 1, 5_000])
def test_storage_keys_of_any_length(length: int) -> None:
    world, key = World(Chain().view), "x" * length
    assert world.storage_get(ACTOR, key) is None
    for value in (b"", b"v", b"\0" * 300):
        world.storage_set(ACTOR, key, value)
        assert world.storage_get(ACTOR, key) == value
    assert len(storage_key(ACTOR, key)) <= 512
    assert storage_key(ACTOR, key) != storage_key(OTHER, key)
    world.storage_delete(ACTOR, key)
    assert world.storage_get(ACTOR, key) is None


def test_a_record_under_a_long_key_holds_the_key() -> None:
    """A reader of the state can name what it finds there."""
    world, key = World(Chain().view), "é" * 200
    world.storage_set(ACTOR, key, b"value")
    (change,) = world.changes()
    assert change.after == len(key.encode()).to_bytes(4, "big") + key.encode() + b"value"


def test_amounts() -> None:
    world, stranger = World(Chain().view), b"\x31" * 20
    assert world.account(stranger) == Account(0, 0)
    with pytest.raises(Rejection, match="InsufficientBalance"):
        world.debit(stranger, 1)
    world.debit(stranger, 0)
    world.credit(stranger, 0)
    assert world.changes() == []
    world.credit(stranger, 3)
    world.debit(stranger, 3)
    world.raise_nonce(stranger)
    assert world.account(stranger) == Account(0, 1)
