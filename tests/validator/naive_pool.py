"""What the waiting pool must answer, by exact Python integers over plain rows, and random rows for both."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from validator.chain.records import Timer
from validator.policies.bias_auction import bias, table
from validator.primitives.types import Address, TimerId
from validator.scheduler import order
from validator.scheduler.rows import ROW, SUPPLIED, WORD_BITS, WORD_MASK, Rows, pack_row

TOP: int = 2**96 - 1
"""The greatest fee."""


@dataclass(frozen=True)
class Waiting:
    """A due timer as the pool should know it."""

    timer_id: bytes
    trigger: int
    sequence: int
    expires_at: int
    actor: int
    has_agent: bool
    max_fee: int | None
    priority: int | None
    gas: int | None
    supplied: int | None = None
    alive: bool = True

    @property
    def place(self) -> tuple[int, int]:
        return self.trigger, self.sequence

    def packed(self) -> Rows:
        """The row, as the index hands it to the pool."""
        timer = Timer(
            timer_id=TimerId(self.timer_id),
            actor=Address(bytes(20)),
            trigger_height=self.trigger,
            sequence=self.sequence,
            handler="",
            payload=b"",
            fee_payer=Address(bytes(20)),
            gas_limit=self.gas,
            expires_at=self.expires_at,
            max_fee_per_cycle=self.max_fee,
            max_priority_fee_per_cycle=self.priority,
            payer_cap=None,
            default_max_fee=self.supplied,
            scheduled_at=0,
        )
        return np.frombuffer(bytearray(pack_row(timer, self.actor, self.has_agent)), ROW)


@dataclass(frozen=True)
class Party:
    """An actor: its fires in the window, and its agent's last good bid."""

    recent: int
    bid: tuple[int, int] | None
    earned: tuple[int, int, int, int] | None = None
    """Epoch, weight in it, scores and fires in it (``gba_auction``)."""
    shares_with: int | None = None
    """The party that has the fires that weigh this one; ``None`` for itself."""

    def counted_at(self, own: int) -> int:
        return own if self.shares_with is None else self.shares_with


@dataclass(frozen=True)
class Terms:
    """What a block prices with."""

    height: int
    price: int
    tip: int
    floor: int
    cap: int
    divisor: int
    by_id: bool
    parties: tuple[Party, ...]
    rate: int | None = None
    """λ in millionths, where a row's bid and its bias count for each cycle (``bias_auction``)."""
    weights: tuple[int, int, int, int, int, int] | None = None
    """Where weights only break ties: epoch, decay in thousandths, least and greatest weight, blocks after which a timer
    starves, and the weight that it has then."""
    rounding: tuple[int, int, int] | None = None
    """Where fairness weights are rounded: median, least and greatest weight, in units of 2**-16."""

    def prices(self) -> npt.NDArray[np.void]:
        """For the kernels. The bounds of the bids are upper ones, not always the least."""
        bids = [party.bid for party in self.parties if party.bid is not None]
        words = {
            "price": self.price,
            "tip": self.tip,
            "bid_max": max((bid[0] for bid in bids), default=0),
            "bid_priority": max((bid[1] for bid in bids), default=0),
        }
        prices = np.zeros(1, order.PRICES)
        for name, value in words.items():
            prices[f"{name}_low"], prices[f"{name}_high"] = value & WORD_MASK, value >> WORD_BITS
        for name in ("height", "floor", "cap", "divisor", "by_id"):
            prices[name] = int(getattr(self, name))
        if self.rate is not None:
            prices["formula"] = order.Formula.DENSITY
        elif self.weights is not None:
            prices["formula"] = order.Formula.TIP_FIRST
            names = ("epoch", "decay", "least_weight", "most_weight", "starvation_blocks", "starvation_weight")
            for name, value in zip(names, self.weights, strict=True):
                prices[name] = value
        elif self.rounding is not None:
            prices["formula"] = order.Formula.ROUNDED
            prices["median"], prices["least_weight"], prices["most_weight"] = self.rounding
        return prices

    def biases(self) -> npt.NDArray[np.uint64]:
        return order.NO_BIASES if self.rate is None else table(self.height, self.rate)

    def density(self, row: Waiting, bid: int) -> int:
        assert self.rate is not None
        return min(bid * 2**32 + bias(max(0, self.height - row.trigger), self.rate), 2**128 - 1) // (
            row.gas or self.cap
        )

    def score(self, row: Waiting, tip: int) -> int:
        party = self.parties[row.actor]
        if self.weights is None:
            party = self.parties[party.counted_at(row.actor)]
        if self.weights is None and self.rounding is not None:
            median, least, most = self.rounding
            weight = floor(2**16 * max(Fraction(0), 2 - Fraction(party.recent * 2**16, median)))
            return (tip + self.floor) * min(most, max(least, weight))
        if self.weights is None:
            return (tip + self.floor) * (2 * self.divisor - min(2 * party.recent, self.divisor))
        now, decay, least, most, starving_after, starving = self.weights
        weight = least
        if party.earned is not None:
            epoch, weight, scores, fires = party.earned
            for _ in range(epoch, now):
                mean = scores // fires if scores else 0
                weight = min(most, max(least, ((1_000 - decay) * weight + decay * mean) // 1_000))
                scores = 0
        if self.height - row.trigger >= starving_after:
            weight = max(weight, starving)
        return tip * 2**32 + weight

    def actors(self) -> npt.NDArray[np.void]:
        table = np.zeros(len(self.parties), order.ACTOR)
        for number, (row, party) in enumerate(zip(table, self.parties, strict=True)):
            max_fee, priority = party.bid or (0, 0)
            row["recent"], row["counted_at"] = party.recent, party.counted_at(number)
            row["has_bid"] = 0 if party.bid is None else order.BIDS_MAX | order.BIDS_PRIORITY
            row["max_low"], row["max_high"] = max_fee & WORD_MASK, max_fee >> WORD_BITS
            row["priority_low"], row["priority_high"] = priority & WORD_MASK, priority >> WORD_BITS
            names = ("weight_epoch", "weight", "weight_scores", "weight_fires")
            for name, value in zip(names, party.earned or (0, 0, 0, 0), strict=True):
                row[name] = value
        return table

    def answered(self) -> npt.NDArray[np.bool_]:
        return np.array([party.bid is not None for party in self.parties], bool)


@dataclass
class NaivePool:
    """Rows in a list, dead ones and all."""

    rows: list[Waiting] = field(default_factory=list)

    def living(self) -> list[Waiting]:
        return [row for row in self.rows if row.alive]

    def put(self, row: Waiting) -> None:
        at = bisect_left(self.rows, row.place, key=lambda other: other.place)
        is_there = at < len(self.rows) and self.rows[at].place == row.place
        self.rows[at : at + is_there] = [row]

    def kill(self, place: tuple[int, int]) -> bool:
        row = self.rows[bisect_left(self.rows, place, key=lambda other: other.place)]
        assert row.place == place
        self.put(replace(row, alive=False))
        return row.supplied is not None

    def supply(self, first: int, max_fee: int, terms: Terms) -> int:
        number = 0
        for at, row in enumerate(self.rows[first:], first):
            by_agent = row.has_agent and terms.parties[row.actor].bid is not None
            if row.alive and row.max_fee is None and row.supplied is None and not by_agent:
                self.rows[at] = replace(row, supplied=max_fee)
                number += 1
        return number

    def sweep(self) -> list[Waiting]:
        """Drop the dead ones; returns them."""
        dead = [row for row in self.rows if not row.alive]
        self.rows = self.living()
        return dead

    def withdraw(self) -> None:
        self.rows = [replace(row, supplied=None) for row in self.rows]

    def expired(self, height: int, most: int) -> list[tuple[int, int]]:
        return [row.place for row in self.living() if row.expires_at < height][:most]

    def in_turn(self, terms: Terms) -> list[tuple[int, int]]:
        return [row.place for row in self.living() if row.expires_at >= terms.height and (row.gas or 0) <= terms.cap]

    def best_first(self, terms: Terms) -> list[tuple[tuple[int, int], int, int]]:
        """Place, tip and score of what clears the gate (SPEC §6.4, §6.5, §8, §9)."""
        found = []
        for row in self.living():
            if row.expires_at < terms.height or (row.gas or 0) > terms.cap:
                continue
            tie: Any = row.timer_id if terms.by_id else row.place
            if terms.rate is not None:
                locked = (row.supplied if row.max_fee is None else row.max_fee) or 0
                found.append((-terms.density(row, locked), tie, row.place, locked))
                continue
            party = terms.parties[row.actor]
            bid = party.bid if row.has_agent else None
            offered = row.supplied if bid is None else bid[0]
            max_fee = offered if row.max_fee is None else row.max_fee
            default = terms.tip if bid is None else bid[1]
            priority = default if row.priority is None else row.priority
            if max_fee is None or max_fee < terms.price:
                continue
            tip = min(priority, max_fee - terms.price)
            score = terms.score(row, tip)
            found.append((-score, tie, row.place, tip))
        return [(place, tip, -score) for score, _, place, tip in sorted(found)]


# --- random ones ------------------------------------------------------------------------------------------------------


def draw_fee(random: Random) -> int:
    """Few different ones, so that many are equal, and some of 96 bits."""
    return random.choice((0, 1, 2, 500, 1_000, 1_001, 2**64 - 1, 2**64, 2**64 + 1, TOP - 1, TOP, random.randrange(TOP)))


def draw_cap(random: Random) -> int:
    return random.choice((1_000, 5_000, 10**9))


def draw_terms(random: Random, parties: int, cap: int) -> Terms:
    divisor = random.choice((2, 3, 7, 2**29 - 1))
    people = [
        Party(
            random.choice((0, 0, 1, 2, divisor // 2, divisor, 3 * divisor)),
            None if random.random() < 0.5 else (draw_fee(random), draw_fee(random)),
            None if random.random() < 0.3 else draw_earned(random),
            None if random.random() < 0.7 else random.randrange(parties),
        )
        for _ in range(parties)
    ]
    return Terms(
        height=random.randrange(95, 110),
        price=random.choice((0, 1, 1_000, 1_001, 2**64, 2**95)),
        tip=draw_fee(random),
        floor=random.choice((0, 0, 1, 10**18)),
        cap=cap,
        divisor=divisor,
        by_id=random.random() < 0.5,
        parties=tuple(people),
        weights=None if random.random() < 0.5 else draw_weights(random),
        rate=None if random.random() < 0.7 else random.choice((10_000, 100_000, 900_000)),
        rounding=None if random.random() < 0.4 else draw_rounding(random, divisor),
    )


def draw_earned(random: Random) -> tuple[int, int, int, int]:
    fires = random.choice((1, 1, 3, 2_000))
    return random.choice((0, 3, 8, 9)), random.randint(6_553, 2**16), random.randint(0, 2**16) * fires, fires


def draw_rounding(random: Random, divisor: int) -> tuple[int, int, int]:
    least, most = sorted(random.choice((0, 0, 1, 2**15, 2**16, 2**17)) for _ in range(2))
    return 2**15 * divisor + random.choice((0, 1, 2**14)), least, most


def draw_weights(random: Random) -> tuple[int, int, int, int, int, int]:
    starving = random.choice((6_553, 2**15, 2**16))
    return 9, random.choice((1, 200, 1_000)), 6_553, 2**16, random.choice((1, 5, 64)), starving


def draw_row(random: Random, trigger: int, sequence: int, parties: int) -> Waiting:
    return Waiting(
        timer_id=draw_id(random, sequence),
        trigger=trigger,
        sequence=sequence,
        expires_at=random.choice((99, 100, 101, 102, 2**40)),
        actor=random.randrange(parties),
        has_agent=random.random() < 0.4,
        max_fee=None if random.random() < 0.5 else draw_fee(random),
        priority=None if random.random() < 0.5 else draw_fee(random),
        gas=None if random.random() < 0.3 else random.choice((1_000, 1_001, 5_000, 5_001, 10**9)),
    )


def draw_id(random: Random, sequence: int) -> bytes:
    """Words from few, so that ids often differ in a late word only; unique by the last bytes of some word."""
    words = [random.choice((bytes(8), bytes(7) + b"\1", b"\x80" + bytes(7), b"\xff" * 8)) for _ in range(4)]
    at = random.randrange(4)
    words[at] = random.choice((b"\0", b"\x7f", b"\xff")) + bytes(3) + sequence.to_bytes(4, "big")
    return b"".join(words)


def draw_rows(random: Random, count: int, first: int, parties: int) -> list[Waiting]:
    """Rows that may stand behind sequence ``first``, several to a trigger height."""
    trigger, rows = 10 + first, []
    for sequence in range(first, first + count):
        trigger += random.random() < 0.3
        rows.append(draw_row(random, trigger, sequence, parties))
    return rows


def is_supplied(row: np.void) -> bool:
    return bool(int(row["flags"]) & SUPPLIED)
