"""The scheduler's index: everything that finding the right timers quickly takes.

It is derived from state and holds nothing of its own. It stands at one block, and equals a rebuild from that block's
state. Executing a child goes in two steps, and both can be undone:

- :meth:`SchedulerIndex.begin` does what follows from the parent's state alone: timers that come due move from the
  calendar to the waiting pool, fires that leave the window are no longer counted. :meth:`SchedulerIndex.abandon` takes
  it back.
- :meth:`SchedulerIndex.advance` takes in the block's changes. :meth:`SchedulerIndex.retreat` undoes both steps.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from validator.genesis import Genesis
from validator.records import (
    ACTOR,
    BID_MEMORY,
    FIRES,
    OVERFLOW,
    SUPPLY,
    TIMER,
    Actor,
    BidMemory,
    Fires,
    Timer,
    decode_record,
    height_in,
)
from validator.scheduler import kernels
from validator.scheduler.calendar import Calendar
from validator.scheduler.fairness import FireCounts
from validator.scheduler.rows import (
    HAS_AGENT,
    OPEN_MAX,
    OPEN_PRIORITY,
    ROW,
    SUPPLIED,
    WORD_BITS,
    WORD_MASK,
    ActorNumbers,
    Rows,
    pack_row,
)
from validator.scheduler.waiting import WaitingPool
from validator.state import View
from validator.types import Address, Hash
from validator.world import Change

LEAST_ACTORS: Final = 64


class _Beginning(NamedTuple):
    """What beginning a block did."""

    appended: int
    dropped: tuple[Fires, ...]


class SchedulerIndex:
    """Live timers, fires in the window, and bids, of one state."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self.calendar = Calendar(genesis.parameters)
        self.pool = WaitingPool()
        self.fires = FireCounts()
        self.numbers = ActorNumbers()
        self.actors = np.zeros(LEAST_ACTORS, kernels.ACTOR)
        """By actor number: what the kernels know of an actor."""
        self._agents: set[Address] = set()
        """Actors with a bidding agent of their own."""
        self._memories: dict[Address, BidMemory] = {}
        self._supplies: dict[int, int] = {}
        """What the default agent supplied, by the height at which it did."""
        self._supplied: dict[int, int] = {}
        """How many live rows stand by each supply."""
        self._fire_heights: list[int] = []
        self._open: dict[Address, list[tuple[int, int]]] = {}
        """``(trigger_height, sequence)`` of due timers with an open field, ascending, of actors with an agent."""
        self._greatest_bid = (0, 0)
        self._expected: list[Address] = []
        """Actors whose bids were changed ahead of the block's changes."""
        self._height = 0
        self._beginnings: list[_Beginning] = []
        self._staged: list[tuple[Timer | None, Timer | None]] | None = None
        """Changes that the overflow tree took in ahead of the block's others."""

    @classmethod
    def rebuild(cls, genesis: Genesis, view: View) -> Self:
        """The index of a state, by scanning it."""
        index = cls(genesis)
        index._height = view.height
        index.calendar.start_at(view.height)
        for prefix in (ACTOR, BID_MEMORY, SUPPLY, FIRES):
            index._take(Change(key, None, decode_record(key, value)) for key, value in view.scan(prefix))
        timers: list[Timer] = [decode_record(key, value) for key, value in view.scan(TIMER)]
        timers.sort(key=lambda timer: (timer.trigger_height, timer.sequence))
        for timer in timers:
            index._add_timer(timer)
        assert index.calendar.overflow_root() == view.get(OVERFLOW), "the overflow tree's root is under the state root"
        return index

    # --- moving -----------------------------------------------------------------------------------------------------

    def begin(self, height: int, dropped: Sequence[Fires]) -> None:
        """Prepare for the next block; ``dropped`` are the fires that leave the window with it."""
        assert height == self._height + 1, "a block follows the one at which the index stands"
        if height % self._genesis.parameters.epoch_length == 0:
            self.calendar.enter(height // self._genesis.parameters.epoch_length)
        rows = self.calendar.rows_at(height)
        if len(rows):
            self.pool.append(rows)
            for row in rows[_is_open_to_agents(rows)]:
                self._note_open(self.numbers.address(int(row["actor"])), height, int(row["sequence"]))
        for fires in dropped:
            self._count(fires, -1)
        self._beginnings.append(_Beginning(len(rows), tuple(dropped)))
        self._height = height

    def abandon(self) -> None:
        """Undo :meth:`begin`, and whatever was done since ahead of the block's changes."""
        if self._staged is not None:
            staged, self._staged = self._staged, None
            self._change_timers((after, before) for before, after in reversed(staged))
        beginning = self._beginnings.pop()
        if beginning.appended:
            rows = self.pool.cut(beginning.appended)
            for row in rows[_is_open_to_agents(rows)]:
                self._forget_open(self.numbers.address(int(row["actor"])), self._height, int(row["sequence"]))
        for actor in self._expected:
            self._remember(actor, self._memories.get(actor))
        self._expected = []
        if self._height == self._genesis.parameters.activation_height + 1:
            self.pool.withdraw_supplies()
        self._supplied.pop(self._height, None)
        for fires in beginning.dropped:
            self._count(fires, +1)
        if self._height % self._genesis.parameters.epoch_length == 0:
            self.calendar.leave()
        self._height -= 1

    def advance(self, changes: Sequence[Change]) -> None:
        """Take in the changes of the block that was begun."""
        self._expected = []
        self._take(change for change in changes if change.key[:1] != TIMER)
        if self._height in self._supplies:
            self.supply(self._supplies[self._height])
        timers = ((change.before, change.after) for change in changes if change.key[:1] == TIMER)
        if self._staged is None:
            self._change_timers(timers)
        else:
            self._staged = None
            self._change_timers(pair for pair in timers if not self._is_beyond(pair))

    def overflow_root_after(self, changes: Iterable[tuple[Timer | None, Timer | None]]) -> Hash | None:
        """The overflow tree's root after the block's changes of timers, ``None`` where the tree is empty then.

        The tree takes them in ahead of the rest; :meth:`abandon` takes them back.
        """
        self._staged = [pair for pair in changes if self._is_beyond(pair)]
        self._change_timers(self._staged)
        return self.calendar.overflow_root()

    def _is_beyond(self, change: tuple[Timer | None, Timer | None]) -> bool:
        timer = change[0] if change[1] is None else change[1]
        assert timer is not None
        return self.calendar.is_beyond(timer)

    def redo(self, height: int, changes: Sequence[Change]) -> None:
        """Move to a child that was executed before."""
        dropped: list[Fires] = [
            change.before for change in changes if isinstance(change.before, Fires) and change.after is None
        ]
        self.begin(height, dropped)
        self.advance(changes)

    def retreat(self, changes: Sequence[Change]) -> None:
        """Move back to the parent of the block that made these changes."""
        self._take(Change(change.key, change.after, change.before) for change in changes if change.key[:1] != TIMER)
        self._change_timers((change.after, change.before) for change in changes if change.key[:1] == TIMER)
        self.abandon()

    def settle(self, height: int) -> None:
        """Blocks up to ``height`` are final: let go of what only going back behind them would need."""
        self._beginnings = self._beginnings[len(self._beginnings) - (self._height - height) :]
        self.calendar.forget_until(height)
        if self._height == height:
            self.pool.sweep()

    # --- the default agent's supply -----------------------------------------------------------------------------------

    def supply(self, max_fee: int) -> None:
        """The default agent supplies ``max_fee`` to the timers that are priced for the first time in this block.

        Those of an actor whose own agent has answered, in this block (:meth:`expect_bids`) or before, are left to that
        agent.
        """
        first = 0 if self._height == self._first_priced else self.pool.count - self._beginnings[-1].appended
        number = self.pool.supply(first, max_fee, self.actors["has_bid"] != 0)
        if number:
            self._supplied[self._height] = self._supplied.get(self._height, 0) + number

    def supply_height(self, timer: Timer, answered: Container[Address] = ()) -> int | None:
        """The height of the supply that a due timer stands by, ``None`` where it stands by none."""
        if timer.max_fee_per_cycle is not None or timer.default_max_fee is not None:
            return None
        height = max(timer.trigger_height, self._first_priced)
        if height > self._height or not self._genesis.runs_auction(height):
            return None
        memory = self._memories.get(timer.actor)
        if memory is not None and 0 < memory.first_answer_height <= height:
            return None
        return None if height == self._height and timer.actor in answered else height

    def supply_of(self, height: int) -> int:
        """What the default agent supplied at a height."""
        return self._supplies[height]

    def supplied_rows(self) -> dict[int, int]:
        """How many live rows stand by the supply of each height."""
        return dict(self._supplied)

    @property
    def _first_priced(self) -> int:
        """The first block that prices timers."""
        return self._genesis.parameters.activation_height + 1

    # --- agents -----------------------------------------------------------------------------------------------------

    def has_agent(self, actor: Address) -> bool:
        """Whether an actor has a bidding agent of its own."""
        return actor in self._agents

    def bidders(self) -> list[Address]:
        """The actors with an agent that have due timers with an open field."""
        return sorted(self._open)

    def open_rows(self, actor: Address) -> Iterator[np.void]:
        """The rows of such an actor's due timers with an open field, by ``(trigger_height, sequence)``."""
        for trigger, sequence in self._open.get(actor, ()):
            yield self.pool.rows[self.pool.position_of(trigger, sequence)]

    def expect_bids(self, memories: Mapping[Address, BidMemory]) -> None:
        """Price with these answers from now on; the block's changes will say the same."""
        for actor, memory in memories.items():
            self._set_bid(actor, memory)
            self._expected.append(actor)

    @property
    def greatest_bid(self) -> tuple[int, int]:
        """Bounds from above of the agents' last good ``(max_fee, priority)``."""
        return self._greatest_bid

    def _note_open(self, actor: Address, trigger: int, sequence: int) -> None:
        if actor in self._agents:
            insort(self._open.setdefault(actor, []), (trigger, sequence))

    def _forget_open(self, actor: Address, trigger: int, sequence: int) -> None:
        places = self._open.get(actor, [])
        at = bisect_left(places, (trigger, sequence))
        if at < len(places) and places[at] == (trigger, sequence):
            del places[at]
            if not places:
                del self._open[actor]

    # --- questions ----------------------------------------------------------------------------------------------------

    def fire_heights_below(self, height: int) -> list[int]:
        """The recorded blocks with fires below a height, ascending."""
        return self._fire_heights[: bisect_left(self._fire_heights, height)]

    def timers_rows(self) -> Rows:
        """The rows of all live timers, by ``(trigger_height, sequence)``."""
        future = self.calendar.rows()
        return np.concatenate([self.pool.living(), future[future["trigger"] > self._height]])

    def contents(self) -> tuple[Any, ...]:
        """Everything that a state determines, in a fixed order, to compare two indexes."""
        rows = self.timers_rows().copy()
        actors = [self.numbers.address(int(number)) for number in rows["actor"]]
        rows["actor"] = 0
        return (
            rows.tobytes(),
            actors,
            sorted(self.fires.by_actor.items()),
            sorted(self._supplied.items()),
            self._fire_heights,
        )

    # --- parts --------------------------------------------------------------------------------------------------------

    def _take(self, changes: Iterable[Change]) -> None:
        for key, before, after in changes:
            match key[:1]:
                case b"f":
                    self._change_fires(height_in(key), before, after)
                case b"p":
                    _set_or_drop(self._supplies, height_in(key), after)
                case b"b":
                    self._remember(Address(key[1:]), after)
                case b"c":
                    self._change_actor(Address(key[1:]), after)
                case _:
                    pass

    def _change_fires(self, height: int, before: Fires | None, after: Fires | None) -> None:
        """Fires that leave the window are uncounted by :meth:`begin`, and counted again by :meth:`abandon`."""
        if after is None:
            del self._fire_heights[bisect_left(self._fire_heights, height)]
        else:
            insort(self._fire_heights, height)
        if height == self._height or not self._beginnings:
            if before is not None:
                self._count(before, -1)
            if after is not None:
                self._count(after, +1)

    def _count(self, fires: Fires, sign: int) -> None:
        self.fires.count(fires, sign)
        for actor, _ in fires.counts:
            self.actors[self._number(actor)]["recent"] = self.fires.by_actor.get(actor, 0)

    def _remember(self, actor: Address, memory: BidMemory | None) -> None:
        _set_or_drop(self._memories, actor, memory)
        self._set_bid(actor, memory)

    def _set_bid(self, actor: Address, memory: BidMemory | None) -> None:
        row = self.actors[self._number(actor)]
        max_fee = None if memory is None else memory.max_fee_per_cycle
        priority = None if memory is None else memory.max_priority_fee_per_cycle
        row["has_bid"] = 0 if max_fee is None else 1
        row["max_low"], row["max_high"] = _words(max_fee or 0)
        row["priority_low"], row["priority_high"] = _words(priority or 0)
        greatest = self._greatest_bid
        self._greatest_bid = max(greatest[0], max_fee or 0), max(greatest[1], priority or 0)

    def _change_actor(self, address: Address, actor: Actor | None) -> None:
        if actor is not None and actor.agent is not None:
            self._agents.add(address)
        else:
            self._agents.discard(address)

    def _number(self, actor: Address) -> int:
        number = self.numbers.number(actor)
        if number >= len(self.actors):
            larger = np.zeros(2 * len(self.actors), kernels.ACTOR)
            larger[: len(self.actors)] = self.actors
            self.actors = larger
        return number

    def _change_timers(self, changes: Iterable[tuple[Timer | None, Timer | None]]) -> None:
        ended: list[Timer] = []
        for before, after in changes:
            if after is None:
                assert before is not None
                if before.trigger_height <= self._height:
                    ended.append(before)
                else:
                    self.calendar.remove(before)
            elif before is None:
                self._add_timer(after)
            elif after.trigger_height <= self._height:
                self.pool.put(self._row(after))
            else:
                self.calendar.change(after, self._row(after))
        if ended:
            self._end_timers(ended)

    def _add_timer(self, timer: Timer) -> None:
        row = self._row(timer)
        if timer.trigger_height > self._height:
            self.calendar.add(timer, row)
            return
        self.pool.put(row)
        if timer.max_fee_per_cycle is None or timer.max_priority_fee_per_cycle is None:
            self._note_open(timer.actor, timer.trigger_height, timer.sequence)
        height = self.supply_height(timer)
        if height is not None and int(row["flags"][0]) & SUPPLIED:
            self._supplied[height] = self._supplied.get(height, 0) + 1

    def _end_timers(self, timers: list[Timer]) -> None:
        """Due timers that are gone."""
        supplied = self.pool.kill([(timer.trigger_height, timer.sequence) for timer in timers])
        for timer, was_supplied in zip(timers, supplied, strict=True):
            if timer.actor in self._open:
                self._forget_open(timer.actor, timer.trigger_height, timer.sequence)
            height = self.supply_height(timer) if was_supplied else None
            if height is not None:
                self._supplied[height] -= 1
                if not self._supplied[height]:
                    del self._supplied[height]

    def _row(self, timer: Timer) -> Rows:
        packed = pack_row(timer, self._number(timer.actor), timer.actor in self._agents)
        row = np.frombuffer(bytearray(packed), ROW)
        height = self.supply_height(timer) if timer.trigger_height <= self._height else None
        if height is not None and height in self._supplies:
            row["max_low"], row["max_high"] = _words(self._supplies[height])
            row["flags"] |= SUPPLIED
        return row


def _is_open_to_agents(rows: Rows) -> npt.NDArray[np.bool_]:
    flags = rows["flags"]
    chosen: npt.NDArray[np.bool_] = ((flags & HAS_AGENT) != 0) & ((flags & (OPEN_MAX | OPEN_PRIORITY)) != 0)
    return chosen


def _words(value: int) -> tuple[int, int]:
    """``(low, high)``."""
    return value & WORD_MASK, value >> WORD_BITS


def _set_or_drop(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
