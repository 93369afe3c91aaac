"""A step that the plain engine repeats from a record is the step that it would have computed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.validator.state.engines.test_packed import random_batch
from validator.primitives.types import Height
from validator.state.engine import Step
from validator.state.engines.plain import PlainEngine


def content(engine: PlainEngine) -> dict[str, object]:
    """Everything that the engine holds."""
    tree = {name: value for name, value in vars(engine.tree).items() if name != "_groups"}
    return vars(engine) | {"tree": tree}


def groups(engine: PlainEngine) -> dict[int, bytes]:
    """The roots of all full groups, by twig."""
    full = engine.next_position // 32
    return {
        index: engine.tree.group_roots(index)[: max(0, min(64, full - 64 * index)) * 32]
        for index in range(full // 64 + 1)
    }


@pytest.mark.parametrize(
    ("seed", "slack", "keys", "steps"), [(0, 20, 10, 60), (1, 20, 60, 150), (2, 0, 60, 150), (3, 4_096, 3_000, 50)]
)
def test_a_repeated_step_is_the_computed_one(seed: int, slack: int, keys: int, steps: int) -> None:
    """One engine computes each step, and another one repeats or computes it; both go back at random."""
    rng, first, other = Random(seed), PlainEngine(slack), PlainEngine(slack)
    done: list[Step] = []
    longest = 0
    for number in range(1, steps + 1):
        batch = random_batch(rng, keys, is_wild=False)
        step = first.apply(Height(number), batch)
        assert other.repeat(first.record(step)) == step
        assert (content(other), groups(other)) == (content(first), groups(first))
        if rng.random() < 0.3:
            other.undo(step)
            assert other.apply(Height(number), batch) == step
        done.append(step)
        longest = max(longest, first.next_position)
        for _ in range(rng.choice([0, 0, 0, 1, 3])):
            if done:
                first.undo(done[-1])
                other.undo(done.pop())
                assert content(other) == content(first)
    assert longest > 50


def test_other_slots_are_not_repeated_over() -> None:
    first, other = PlainEngine(), PlainEngine()
    for engine in (first, other):
        engine.apply(Height(1), {b"a": b"1", b"b": b"1"})
    record = first.record(first.apply(Height(2), {b"a": b"2", b"c": b"2"}))
    other.slots[b"a"] = (other.slots[b"a"][0], b"rotten")
    before = content(other)
    assert other.repeat(record) is None
    assert content(other) == before
    assert other.repeat(replace(record, before=tuple(map(other.slots.get, record.keys)))) is not None
