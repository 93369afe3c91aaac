"""The scheduler's index: the data structures that find timers fast.

It is derived from state only. It is positioned at one block, and equals a rebuild from that block's state. It moves to
a child in two steps, which can both be undone:

- :meth:`SchedulerIndex.begin` makes the changes that follow from the parent's state: timers that become due move from
  the calendar to the waiting pool, and fires that leave the window are no longer counted.
  :meth:`SchedulerIndex.abandon` undoes it.
- :meth:`SchedulerIndex.advance` applies the block's changes. :meth:`SchedulerIndex.retreat` undoes both steps.

Its parts answer most questions: :attr:`SchedulerIndex.calendar` about timers that are not due yet,
:attr:`SchedulerIndex.pool` about those that are, :attr:`SchedulerIndex.open` about those that agents are asked about,
:attr:`SchedulerIndex.parties` about agents and recent fires, :attr:`SchedulerIndex.supplies` about the default agent.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Self

import numpy as np

from validator.chain.genesis import Genesis
from validator.chain.records import (
    ACTOR,
    ACTOR_WEIGHT,
    BID_MEMORY,
    FIRES,
    KEPT_ANSWER,
    OVERFLOW,
    SUPPLY,
    TIMER,
    Actor,
    Fires,
    Timer,
    decode_record,
    height_in,
    kept_answer_parties,
)
from validator.primitives.types import Address, Hash, TimerId
from validator.scheduler.agents import OWN, Party, party_of
from validator.scheduler.calendar import Calendar
from validator.scheduler.open_timers import OpenTimers
from validator.scheduler.parties import Parties, set_or_drop
from validator.scheduler.rows import ROW, SUPPLIED, Rows, pack_row, words_of
from validator.scheduler.waiting import WaitingPool
from validator.state import View
from validator.state.working_set import Change

NO_CHANGES: Final[Mapping[Party, int]] = MappingProxyType({})


class Supplies:
    """The max fees, by height, that the default agent gave to timers without one (SPEC §9), and the number of live rows
    that each supply prices."""

    def __init__(self, genesis: Genesis, parties: Parties) -> None:
        self._genesis = genesis
        self._parties = parties
        self.max_fees: dict[int, int] = {}
        """The supplied max fee, by the height of the supply."""
        self.standing: dict[int, int] = {}
        """Number of live rows that each supply prices, by the height of the supply."""
        self.first_height = genesis.parameters.activation_height + 1
        """The first block that prices timers."""

    def height_for(self, timer: Timer, now: int, since: Mapping[Party, int] = NO_CHANGES) -> int | None:
        """The height of the supply that prices a timer due at height ``now``; ``None`` if no supply does.

        ``since`` has the new :meth:`~validator.scheduler.parties.Parties.answered_since` of each party for which it
        changed in block ``now``.
        """
        if timer.max_fee_per_cycle is not None or timer.default_max_fee is not None:
            return None
        height = max(timer.trigger_height, self.first_height)
        if height > now or not self._genesis.runs_auction(height):
            return None
        party = party_of(timer)
        answered = self._parties.answered_since(party)
        if height == now:
            answered = since.get(party, answered)
        return None if 0 < answered <= height else height

    def count(self, height: int, change: int) -> None:
        """Add ``change`` to the number of live rows that the supply of ``height`` prices."""
        number = self.standing.get(height, 0) + change
        if number:
            self.standing[height] = number
        else:
            self.standing.pop(height, None)


class _Beginning(NamedTuple):
    """The changes that :meth:`SchedulerIndex.begin` made for one block, by which they are undone."""

    appended: int
    dropped: tuple[Fires, ...]
    triggered: Mapping[TimerId, tuple[Timer, Timer]] = MappingProxyType({})
    """Timers that became due because a key changed: each before and after."""


class SchedulerIndex:
    """The scheduler's index of one state: its live timers, the fires in the window, agents and their bids."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self.calendar = Calendar(genesis.parameters)
        self.pool = WaitingPool()
        self.parties = Parties(genesis.parameters.weight_party)
        self.open = OpenTimers(self.parties)
        self.supplies = Supplies(genesis, self.parties)
        self._fire_heights: list[int] = []
        self._deployed: list[Address] = []
        """Actors that were added ahead of the block's changes."""
        self._height = 0
        self._beginnings: list[_Beginning] = []
        self._staged: list[tuple[Timer | None, Timer | None]] | None = None
        """Changes of timers that the overflow tree applied ahead of the block's other changes; ``None`` if none."""

    @classmethod
    def rebuild(cls, genesis: Genesis, view: View) -> Self:
        """Build the index of a state by scanning the state."""
        index = cls(genesis)
        index._height = view.height
        index.calendar.start_at(view.height)
        for prefix in (ACTOR, BID_MEMORY, KEPT_ANSWER, ACTOR_WEIGHT, SUPPLY, FIRES):
            index._take(Change(key, None, decode_record(key, value)) for key, value in view.scan(prefix))
        timers: list[Timer] = [decode_record(key, value) for key, value in view.scan(TIMER)]
        timers.sort(key=lambda timer: (timer.trigger_height, timer.sequence))
        for timer in timers:
            index._add_timer(timer)
        assert index.calendar.overflow_root() == view.get(OVERFLOW), "the overflow tree's root is under the state root"
        return index

    # --- moving -----------------------------------------------------------------------------------------------------

    def begin(self, height: int, dropped: Sequence[Fires]) -> None:
        """Prepare for the next block. ``dropped``: the fires of the blocks that leave the window with it."""
        assert height == self._height + 1, "a block follows the one that the index was last at"
        if height % self._genesis.parameters.epoch_length == 0:
            self.calendar.enter(height // self._genesis.parameters.epoch_length)
        self._height = height
        appended = self._append_due()
        for fires in dropped:
            self.parties.count(fires, -1)
        self._beginnings.append(_Beginning(appended, tuple(dropped)))

    def make_due(self, changes: Iterable[Change]) -> None:
        """Have timers that watch a key wait from now on, if these changes of the block make them due in it."""
        pairs = (
            (before, after)
            for _, before, after in changes
            if isinstance(before, Timer) and before.is_watching and after is not None
        )
        triggered = {pair[0].timer_id: pair for pair in pairs if pair[1].trigger_height == self._height}
        if not triggered:
            return
        self._cut_due(self._beginnings[-1].appended)
        for before, after in triggered.values():
            self.calendar.remove(before)
            self.calendar.add(after, self._packed_row(after))
        self._beginnings[-1] = self._beginnings[-1]._replace(appended=self._append_due(), triggered=triggered)

    def is_due(self, timer: Timer) -> bool:
        """Whether a timer, as it was before the block that was begun, is due in it."""
        return self._when_due(timer).trigger_height <= self._height

    def _when_due(self, before: Timer) -> Timer:
        """A timer as :meth:`make_due` had it; as it was before the block if it was not among those."""
        _, after = self._beginnings[-1].triggered.get(before.timer_id, (before, before))
        return after

    def _append_due(self) -> int:
        """Have the timers wait that become due at this height. Returns their number."""
        rows = self.calendar.rows_at(self._height)
        if len(rows):
            self.pool.append(rows)
            self.open.append(rows, self._height)
        return len(rows)

    def _cut_due(self, appended: int) -> None:
        """Undo :meth:`_append_due`, which returned ``appended``."""
        if appended:
            self.open.cut(self.pool.cut(appended), self._height)

    def abandon(self) -> None:
        """Undo :meth:`begin`, and all changes that were applied since, ahead of :meth:`advance`."""
        if self._staged is not None:
            staged, self._staged = self._staged, None
            self._change_timers((after, before) for before, after in reversed(staged))
        for address in self._deployed:
            self._change_actor(address, None)
        self._deployed = []
        beginning = self._beginnings.pop()
        self._cut_due(beginning.appended)
        for before, after in beginning.triggered.values():
            self.calendar.remove(after)
            self.calendar.add(before, self._packed_row(before))
        self.parties.withdraw()
        if self._height == self.supplies.first_height:
            self.pool.withdraw_supplies()
        self.supplies.standing.pop(self._height, None)
        for fires in beginning.dropped:
            self.parties.count(fires, +1)
        if self._height % self._genesis.parameters.epoch_length == 0:
            self.calendar.leave()
        self._height -= 1

    def advance(self, changes: Sequence[Change]) -> None:
        """Apply the changes of the block that was begun."""
        self.parties.confirm()
        self._deployed = []
        self._take(change for change in changes if change.key[:1] != TIMER)
        if self._height in self.supplies.max_fees:
            self.supply(self.supplies.max_fees[self._height])
        timers = self._timer_changes(changes)
        if self._staged is None:
            self._change_timers(timers)
        else:
            self._staged = None
            self._change_timers(pair for pair in timers if not self._is_beyond(pair))

    def _timer_changes(self, changes: Sequence[Change]) -> Iterator[tuple[Timer | None, Timer | None]]:
        """A block's changes of timers, after :meth:`make_due`."""
        triggered = self._beginnings[-1].triggered
        for key, before, after in changes:
            if key[:1] == TIMER:
                yield before if before is None or not triggered else self._when_due(before), after

    def overflow_root_after(
        self, changes: Iterable[tuple[Timer | None, Timer | None]], deployed: Mapping[Address, Actor]
    ) -> Hash | None:
        """The overflow tree's root after the block's changes of timers; ``None`` if the tree is empty then.

        Applies those changes and the ``deployed`` actors ahead of the block's other changes. :meth:`abandon` undoes
        them.
        """
        self._deployed = list(deployed)
        for address, actor in deployed.items():
            self._change_actor(address, actor)
        self._staged = [pair for pair in changes if self._is_beyond(pair)]
        self._change_timers(self._staged)
        return self.calendar.overflow_root()

    def _is_beyond(self, change: tuple[Timer | None, Timer | None]) -> bool:
        timer = change[0] if change[1] is None else change[1]
        assert timer is not None
        return self.calendar.is_beyond(timer)

    def redo(self, height: int, changes: Sequence[Change]) -> None:
        """Move to a child block that was executed before; ``changes`` are its changes."""
        self.begin_again(height, changes)
        self.advance(changes)

    def begin_again(self, height: int, changes: Sequence[Change]) -> None:
        """Prepare for a child block whose changes are known, since it was executed before."""
        dropped: list[Fires] = [
            change.before for change in changes if isinstance(change.before, Fires) and change.after is None
        ]
        self.begin(height, dropped)
        self.make_due(changes)

    def retreat(self, changes: Sequence[Change]) -> None:
        """Move back to the parent of the block that made these changes."""
        self._take(Change(change.key, change.after, change.before) for change in changes if change.key[:1] != TIMER)
        self._change_timers((after, before) for before, after in self._timer_changes(changes))
        self.abandon()

    def settle(self, height: int) -> None:
        """Drop the data that is needed only to undo blocks up to ``height``, which are final."""
        self._beginnings = self._beginnings[len(self._beginnings) - (self._height - height) :]
        self.calendar.forget_until(height)
        if self._height == height:
            self.pool.sweep()

    def supply(self, max_fee: int, since: Mapping[Party, int] = NO_CHANGES) -> None:
        """Record that the default agent supplies ``max_fee`` to the timers first priced in this block.

        Timers of a party whose max fees a kept answer prices in this block are left out (``since`` as in
        :meth:`Supplies.height_for`): by the end of the block, a handler may have named another agent, with another kept
        answer.
        """
        is_first = self._height == self.supplies.first_height
        first = 0 if is_first else self.pool.count - self._beginnings[-1].appended
        if first == self.pool.count:
            return  # no timer is first priced in this block
        answered = np.zeros(len(self.parties.table), np.bool_)
        for number in self.pool.agents_of_unsupplied(first):
            party = self.parties.numbers.party(number)
            answered[number] = since.get(party, self.parties.answered_since(party)) > 0
        self.supplies.count(self._height, self.pool.supply(first, max_fee, answered))

    # --- questions ----------------------------------------------------------------------------------------------------

    def open_rows(self, actor: Address, with_own: bool) -> Iterator[np.void]:
        """Rows of an actor's due timers that have an open fee field and name a contract as their agent.

        With ``with_own``, also of those that name none. In the order of ``(trigger_height, sequence)``.
        """
        for trigger, sequence in self.open.places(actor, with_own):
            yield self.pool.rows[self.pool.position_of(trigger, sequence)]

    def unsupplied(self, parties: Iterable[Party]) -> list[bytes]:
        """Ids of these parties' due timers with an open max fee that the default agent has not supplied."""
        numbers = self.parties.numbers
        return self.pool.unsupplied([numbers.number(party) for party in parties if party in numbers])

    def fire_heights_below(self, height: int) -> list[int]:
        """Heights below ``height`` of the blocks with recorded fires, ascending."""
        return self._fire_heights[: bisect_left(self._fire_heights, height)]

    def timers_rows(self) -> Rows:
        """The rows of all live timers, by ``(trigger_height, sequence)``."""
        future = self.calendar.rows()
        return np.concatenate([self.pool.living(), future[future["trigger"] > self._height]])

    # --- changes ------------------------------------------------------------------------------------------------------

    def _take(self, changes: Iterable[Change]) -> None:
        for key, before, after in changes:
            match key[:1]:
                case b"f":
                    self._change_fires(height_in(key), before, after)
                case b"p":
                    set_or_drop(self.supplies.max_fees, height_in(key), after)
                case b"b":
                    self.parties.keep(Address(key[1:]), OWN, None if after is None else after.kept)
                case b"B":
                    self.parties.keep(*kept_answer_parties(key), after)
                case b"W":
                    self.parties.weigh(Address(key[1:]), after)
                case b"c":
                    self._change_actor(Address(key[1:]), after)
                case _:
                    pass

    def _change_fires(self, height: int, before: Fires | None, after: Fires | None) -> None:
        """Apply a change of the fires recorded for a block.

        The block's own fires are counted here. :meth:`begin` and :meth:`abandon` count those that leave the window.
        """
        if after is None:
            del self._fire_heights[bisect_left(self._fire_heights, height)]
        else:
            insort(self._fire_heights, height)
        if height == self._height or not self._beginnings:
            if before is not None:
                self.parties.count(before, -1)
            if after is not None:
                self.parties.count(after, +1)

    def _change_actor(self, address: Address, actor: Actor | None) -> None:
        if self.parties.change(address, actor):
            self.open.refresh(address)

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
            elif after.trigger_height == before.trigger_height:
                self.calendar.change(after, self._packed_row(after))
            else:
                self.calendar.remove(before)
                self.calendar.add(after, self._packed_row(after))
        if ended:
            self._end_timers(ended)

    def _add_timer(self, timer: Timer) -> None:
        if timer.trigger_height > self._height:
            self.calendar.add(timer, self._packed_row(timer))
            return
        row = self._row(timer)
        self.pool.put(row)
        self.open.add(timer)
        height = self.supplies.height_for(timer, self._height)
        if height is not None and int(row["flags"][0]) & SUPPLIED:
            self.supplies.count(height, +1)

    def _end_timers(self, timers: list[Timer]) -> None:
        """Remove due timers that ended."""
        supplied = self.pool.kill([(timer.trigger_height, timer.sequence) for timer in timers])
        for timer, was_supplied in zip(timers, supplied, strict=True):
            self.open.remove(timer)
            height = self.supplies.height_for(timer, self._height) if was_supplied else None
            if height is not None:
                self.supplies.count(height, -1)

    def _packed_row(self, timer: Timer) -> bytes:
        """The packed row of a timer, without a max fee that the default agent supplies."""
        has_agent = timer.actor in self.parties.bidders
        return pack_row(timer, self.parties.number(party_of(timer)), has_agent, self._genesis.locks_bids)

    def _row(self, timer: Timer) -> Rows:
        """The row of a due timer."""
        row = np.frombuffer(bytearray(self._packed_row(timer)), ROW)
        height = self.supplies.height_for(timer, self._height)
        if height is not None and height in self.supplies.max_fees:
            row["max_low"], row["max_high"] = words_of(self.supplies.max_fees[height])
            row["flags"] |= SUPPLIED
        return row
