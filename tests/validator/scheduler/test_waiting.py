"""The pool of due timers against exact integers (:mod:`tests.validator.naive_pool`): orders, expiries, every change."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.naive_pool import (
    TOP,
    NaivePool,
    Party,
    Terms,
    Waiting,
    draw_cap,
    draw_row,
    draw_rows,
    draw_terms,
    is_supplied,
)
from validator.scheduler import order, waiting
from validator.scheduler.order import CHUNK
from validator.scheduler.rows import DEAD, ROW, WORD_BITS, timer_id_of_row
from validator.scheduler.waiting import FIRST_BATCH, WaitingPool

PARTIES = 6
REPEATABLE = settings(deadline=None, derandomize=True)


class Pools:
    """A pool and its model, changed alike."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pool, self.model = WaitingPool(), NaivePool()
        self.swept: list[Waiting] = []
        self.last = 0
        self.cap = draw_cap(self.random)

    def terms(self) -> Terms:
        """Random ones; the cap changes rarely, as it does on a chain: every summary is worked out anew with it."""
        if self.random.random() < 0.05:
            self.cap = draw_cap(self.random)
        return draw_terms(self.random, PARTIES, self.cap)

    def append(self, count: int) -> None:
        rows = draw_rows(self.random, count, self.last + 1, PARTIES)
        self.pool.append(np.concatenate([np.zeros(0, ROW), *(row.packed() for row in rows)]))
        self.model.rows += rows
        self.last += count

    def cut(self, count: int) -> None:
        cut = self.pool.cut(count)
        tail = self.model.rows[len(self.model.rows) - count :]
        del self.model.rows[len(self.model.rows) - count :]
        assert [timer_id_of_row(row) for row in cut] == [row.timer_id for row in tail if row.alive]

    def kill(self, count: int) -> None:
        chosen = self.random.sample(self.model.living(), min(count, len(self.model.living())))
        if chosen:
            places = [row.place for row in chosen]
            assert self.pool.kill(places) == [self.model.kill(place) for place in places]

    def put(self, count: int) -> None:
        """Change living rows, bring dead ones back, insert such as were swept."""
        known = self.model.rows + self.swept
        for row in self.random.sample(known, min(count, len(known))):
            new = draw_row(self.random, *row.place, PARTIES)
            self.pool.put(new.packed())
            self.model.put(new)

    def supply(self, first: int, terms: Terms) -> None:
        max_fee = self.random.choice((1, 1_001, 2**64 + 7, TOP))
        assert self.pool.supply(first, max_fee, terms.answered()) == self.model.supply(first, max_fee, terms)

    def require_equal(self, terms: Terms) -> None:
        """Every answer of the pool is the model's."""
        pool, model = self.pool, self.model
        assert pool.live == len(model.living())
        shown = [(place(row), timer_id_of_row(row), is_supplied(row), max_fee(row)) for row in pool.living()]
        expected = [(row.max_fee if row.supplied is None else row.supplied) or 0 for row in model.living()]
        rows = zip(model.living(), expected, strict=True)
        assert shown == [(row.place, row.timer_id, row.supplied is not None, fee) for row, fee in rows]
        for most in (0, 1, 7, pool.count):
            expired = [place(pool.rows[at]) for at in pool.expired(terms.height, most)]
            assert expired == model.expired(terms.height, most)
        in_turn = [place(pool.rows[at]) for at in pool.positions(terms.height, terms.cap)]
        assert in_turn == model.in_turn(terms)
        fresh = np.zeros((pool.count + CHUNK - 1) // CHUNK, order.SUMMARY)
        for chunk in range(len(fresh)):
            order.summarize(pool.rows, pool.count, chunk, np.uint64(terms.cap), fresh)
        assert np.array_equal(pool.summary(terms.cap)[: len(fresh)], fresh)
        found = pool.best_first(terms.actors(), terms.prices(), terms.biases())
        assert [(place(pool.rows[at]), tip, score) for at, tip, score in found] == model.best_first(terms)

    def step(self, terms: Terms) -> None:
        size = len(self.model.rows)
        match self.random.choice(("append", "cut", "kill", "kill", "put", "supply", "supply", "withdraw", "sweep")):
            case "append":
                self.append(self.random.choice((0, 1, 40, CHUNK)))
            case "cut":
                self.cut(self.random.randrange(min(size, 60) + 1))
            case "kill":
                self.kill(self.random.choice((1, 5, size // 2)))
            case "put":
                self.put(self.random.choice((1, 9)))
            case "supply":
                self.supply(self.random.randrange(size + 1) if self.random.random() < 0.5 else 0, terms)
            case "withdraw":
                self.pool.withdraw_supplies()
                self.model.withdraw()
            case _:
                if self.pool.sweep():
                    self.swept += self.model.sweep()
                    assert self.pool.count == self.pool.live


def place(row: np.void) -> tuple[int, int]:
    return int(row["trigger"]), int(row["sequence"])


def max_fee(row: np.void) -> int:
    return int(row["max_high"]) << WORD_BITS | int(row["max_low"])


def compare(seed: int, sizes: tuple[int, ...], steps: int) -> None:
    pools = Pools(seed)
    pools.append(pools.random.choice(sizes))
    for _ in range(steps):
        terms = pools.terms()
        pools.require_equal(terms)
        pools.step(terms)
        pools.require_equal(terms)
        pools.require_equal(pools.terms())


def swept_at(monkeypatch: pytest.MonkeyPatch, dead: int) -> None:
    monkeypatch.setattr(waiting, "MIN_SWEPT", dead)


BORDERS = (CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "steps", "examples"),
    [
        ((0, 1, 2, 5, 30), 30, 15),
        (BORDERS, 12, 10),
        ((2_000, 4_000), 4, 4),  # where rows are many, few have them all
        pytest.param((0, 1, 2, 5, 30), 30, 60, marks=pytest.mark.soak),
        pytest.param(BORDERS, 12, 60, marks=pytest.mark.soak),
        pytest.param((2_000, 4_000), 4, 16, marks=pytest.mark.soak),
    ],
)
def test_the_pool_answers_as_exact_integers_do(
    sizes: tuple[int, ...], steps: int, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept_at(monkeypatch, 3)

    @settings(REPEATABLE, max_examples=examples)
    @given(st.integers(0, 2**32))
    def agree(seed: int) -> None:
        compare(seed, sizes, steps)

    agree()


@pytest.mark.parametrize("by_id", [True, False])
def test_thousands_of_equal_scores_come_in_the_order_of_the_tie_break(by_id: bool) -> None:
    """More than the largest batch, all over the chunks, batch after batch without a gap or a repetition."""
    pools = Pools(7)
    pools.append(waiting.LARGEST_BATCH + FIRST_BATCH + 3 * CHUNK)
    for row in list(pools.model.rows):
        new = Waiting(row.timer_id, *row.place, 2**40, 0, False, TOP, 5, None)
        pools.pool.put(new.packed())
        pools.model.put(new)
    terms = Terms(100, 1_000, 0, 0, 10**9, 2, by_id, (Party(0, None),) * PARTIES)
    pools.require_equal(terms)
    assert len(pools.model.best_first(terms)) == pools.pool.count


def test_where_a_row_stands() -> None:
    pools = Pools(3)
    pools.append(2 * CHUNK + 9)
    rows, count = pools.pool.rows, pools.pool.count
    places = [row.place for row in pools.model.rows]
    for at, (trigger, sequence) in enumerate(places):
        assert pools.pool.position_of(trigger, sequence) == at
        assert order.find(rows, count, np.uint64(trigger), np.uint64(sequence)) == at
    for trigger, sequence in ((0, 0), (2**62, 0), (places[50][0], 0), (places[50][0], 2**62)):
        expected = sum(other < (trigger, sequence) for other in places)
        assert order.find(rows, count, np.uint64(trigger), np.uint64(sequence)) == expected
    with pytest.raises(AssertionError):
        pools.pool.position_of(places[-1][0], places[-1][1] + 1)
    with pytest.raises(AssertionError):
        pools.pool.kill([(places[-1][0] + 1, places[-1][1])])


def test_a_swept_row_comes_back_where_it_belongs() -> None:
    pools = Pools(5)
    pools.append(12 * CHUNK)
    gone = [row.place for row in pools.model.rows if row.sequence % 4]
    pools.pool.kill(gone)
    for place_ in gone:
        pools.model.kill(place_)
    assert pools.pool.sweep()
    assert len(pools.model.sweep()) == len(gone)
    assert not pools.pool.sweep(), "there is nothing left to sweep"
    terms = pools.terms()
    pools.require_equal(terms)
    for trigger, sequence in (gone[0], gone[700], gone[-1]):
        new = draw_row(pools.random, trigger, sequence, PARTIES)
        pools.pool.put(new.packed())
        pools.model.put(new)
        pools.require_equal(terms)


def test_few_dead_rows_are_not_swept() -> None:
    pools = Pools(6)
    pools.append(4 * CHUNK)
    pools.pool.kill([row.place for row in pools.model.rows[: waiting.MIN_SWEPT - 1]])
    assert not pools.pool.sweep()
    assert pools.pool.count == 4 * CHUNK


# --- planted faults ---------------------------------------------------------------------------------------------------

Method = Callable[..., Any]


def without_staling(method: Method) -> Method:
    """A change after which the summaries stay as they were."""

    def changed(pool: WaitingPool, *arguments: Any) -> Any:
        stale = set(pool._stale)
        result = method(pool, *arguments)
        pool._stale = {chunk for chunk in stale if chunk * CHUNK < pool.count}
        return result

    return changed


def later_words_first(_: Method) -> Method:
    """Ids compared from the last word to the first."""

    def best_first(pool: WaitingPool, actors: Any, prices: Any, biases: Any) -> Any:
        turned = WaitingPool()
        rows = pool.rows[: pool.count].copy()
        for word in range(4):
            rows[f"id{word}"] = pool.rows[f"id{3 - word}"][: pool.count]
        turned.append(rows)
        return ORIGINAL_BEST_FIRST(turned, actors, prices)

    return best_first


def with_dead_ones(_: Method) -> Method:
    """Sweeping brings dead rows back."""

    def sweep(pool: WaitingPool) -> bool:
        pool.rows["flags"] &= ~np.uint32(DEAD)
        pool.live = pool.count
        return True

    return sweep


def one_batch(method: Method) -> Method:
    def best_first(pool: WaitingPool, actors: Any, prices: Any, biases: Any) -> Any:
        return (found for _, found in zip(range(FIRST_BATCH), method(pool, actors, prices), strict=False))

    return best_first


def to_all(method: Method) -> Method:
    return lambda pool, first, max_fee, answered: method(pool, first, max_fee, np.zeros_like(answered))


def from_the_start(method: Method) -> Method:
    return lambda pool, first, max_fee, answered: method(pool, 0, max_fee, answered)


ORIGINAL_BEST_FIRST = WaitingPool.best_first
FAULTS: list[tuple[str, Callable[[Method], Method]]] = [
    ("kill", without_staling),
    ("put", without_staling),
    ("supply", without_staling),
    ("cut", without_staling),
    ("append", without_staling),
    ("best_first", later_words_first),
    ("best_first", one_batch),
    ("sweep", with_dead_ones),
    ("supply", to_all),
    ("supply", from_the_start),
    ("withdraw_supplies", lambda _: lambda _pool: None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[f"{name} {fault.__name__}" for name, fault in FAULTS])
def test_a_fault_in_the_pool_is_caught(
    name: str, fault: Callable[[Method], Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    swept_at(monkeypatch, 3)
    monkeypatch.setattr(WaitingPool, name, fault(getattr(WaitingPool, name)))
    assert any(is_caught(seed) for seed in range(60))


def is_caught(seed: int) -> bool:
    try:
        compare(seed, (0, 30, CHUNK, 3 * CHUNK + 1), 12)
    except (AssertionError, IndexError):
        return True
    return False
