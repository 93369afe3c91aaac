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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from validator.chain.genesis import Genesis
from validator.chain.records import (
    ACTOR,
    BID_MEMORY,
    FIRES,
    KEPT_ANSWER,
    OVERFLOW,
    SUPPLY,
    TIMER,
    Actor,
    Fires,
    KeptAnswer,
    Timer,
    decode_record,
    height_in,
    kept_answer_parties,
)
from validator.primitives.types import Address, Hash
from validator.scheduler import kernels
from validator.scheduler.agents import OWN, Party, agent_of, may_bid, parties_of, party_of
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
    PartyNumbers,
    Rows,
    pack_row,
)
from validator.scheduler.waiting import WaitingPool
from validator.state import View
from validator.state.working_set import Change

MIN_PARTIES: Final = 64
NOTHING_KEPT: Final = KeptAnswer()
NO_CHANGES: Final[Mapping[Party, int]] = MappingProxyType({})


def is_changed(since: int, answer: KeptAnswer) -> bool:
    """Whether an answer prices max fees where none did, or the other way round."""
    return (since > 0) != (answer.max_fee_per_cycle is not None)


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
        self.numbers = PartyNumbers()
        self.actors = np.zeros(MIN_PARTIES, kernels.ACTOR)
        """By the number of a party: what the kernels know of it."""
        self._bidders: dict[Address, Actor] = {}
        """Actors that have a bidding agent, or may come to have one."""
        self._kept: dict[tuple[Address, Address], KeptAnswer] = {}
        """By actor and agent."""
        self._unsettled: set[Address] = set()
        """Actors whose :class:`~validator.chain.records.Naming` does not say yet what prices their timers."""
        self._supplies: dict[int, int] = {}
        """What the default agent supplied, by the height at which it did."""
        self._supplied: dict[int, int] = {}
        """How many live rows stand by each supply."""
        self._fire_heights: list[int] = []
        self._open: dict[tuple[Address, bool], list[tuple[int, int]]] = {}
        """``(trigger_height, sequence)`` of due timers with an open field, ascending, by actors that may bid, and by
        whether the timers name a contract."""
        self._asked: set[Address] = set()
        """Those of them some of whose such timers have an agent."""
        self._greatest_bid = (0, 0)
        self._expected: list[Party] = []
        """Parties whose bids were changed ahead of the block's changes."""
        self._deployed: list[Address] = []
        """Actors that were taken in ahead of the block's changes."""
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
        for prefix in (ACTOR, BID_MEMORY, KEPT_ANSWER, SUPPLY, FIRES):
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
        self._height = height
        if len(rows):
            self.pool.append(rows)
            self._append_open(rows[_is_open_to_agents(rows)])
        for fires in dropped:
            self._count(fires, -1)
        self._beginnings.append(_Beginning(len(rows), tuple(dropped)))

    def abandon(self) -> None:
        """Undo :meth:`begin`, and whatever was done since ahead of the block's changes."""
        if self._staged is not None:
            staged, self._staged = self._staged, None
            self._change_timers((after, before) for before, after in reversed(staged))
        for address in self._deployed:
            self._change_actor(address, None)
        self._deployed = []
        beginning = self._beginnings.pop()
        if beginning.appended:
            rows = self.pool.cut(beginning.appended)
            self._cut_open(rows[_is_open_to_agents(rows)])
        for party in self._expected:
            self._set_bid(party, self.kept_for(party))
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
        self._expected, self._deployed = [], []
        self._take(change for change in changes if change.key[:1] != TIMER)
        if self._height in self._supplies:
            self.supply(self._supplies[self._height])
        timers = ((change.before, change.after) for change in changes if change.key[:1] == TIMER)
        if self._staged is None:
            self._change_timers(timers)
        else:
            self._staged = None
            self._change_timers(pair for pair in timers if not self._is_beyond(pair))

    def overflow_root_after(
        self, changes: Iterable[tuple[Timer | None, Timer | None]], deployed: Mapping[Address, Actor]
    ) -> Hash | None:
        """The overflow tree's root after the block's changes of timers, ``None`` where the tree is empty then.

        The tree takes them in ahead of the rest, and the block's new actors with them; :meth:`abandon` takes them back.
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

    def supply(self, max_fee: int, since: Mapping[Party, int] = NO_CHANGES) -> None:
        """The default agent supplies ``max_fee`` to the timers that are priced for the first time in this block.

        Those of a party whose max fees a kept answer prices in this block are left to that (``since`` as of
        :meth:`supply_height`): what is kept when the block ends may be another agent's, named by a handler since.
        """
        first = 0 if self._height == self._first_priced else self.pool.count - self._beginnings[-1].appended
        answered = np.zeros(len(self.actors), np.bool_)
        for number in self.pool.agents_of_unsupplied(first):
            party = self.numbers.party(number)
            answered[number] = since.get(party, self.answered_since(party)) > 0
        number = self.pool.supply(first, max_fee, answered)
        if number:
            self._supplied[self._height] = self._supplied.get(self._height, 0) + number

    def supply_height(self, timer: Timer, since: Mapping[Party, int] = NO_CHANGES) -> int | None:
        """The height of the supply that a due timer stands by, ``None`` where it stands by none.

        ``since`` are the parties of whom that changed in this block (:meth:`answered_since`).
        """
        if timer.max_fee_per_cycle is not None or timer.default_max_fee is not None:
            return None
        height = max(timer.trigger_height, self._first_priced)
        if height > self._height or not self._genesis.runs_auction(height):
            return None
        party = party_of(timer)
        answered = self.answered_since(party)
        if height == self._height:
            answered = since.get(party, answered)
        return None if 0 < answered <= height else height

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

    def agent_of(self, party: Party) -> Address | None:
        """Who bids for a party; ``None`` where nobody but the default agent does."""
        record = self._bidders.get(party.actor)
        return None if record is None else agent_of(party, record)

    def kept_for(self, party: Party) -> KeptAnswer:
        """The last good answer of the agent that bids for a party."""
        agent = self.agent_of(party)
        return NOTHING_KEPT if agent is None else self._kept.get((party.actor, agent), NOTHING_KEPT)

    def answered_since(self, party: Party) -> int:
        """The block since which a kept answer has priced the max fee of a party's timers; 0 where none does."""
        record = self._bidders.get(party.actor)
        if record is not None and record.naming is not None and party.named == OWN:
            return record.naming.answered_since
        return self.kept_for(party).since

    def unsettled(self) -> set[Address]:
        """Actors that named another agent since timers were last priced, if that changes who prices their max fees."""
        return set(self._unsettled)

    def bidders(self) -> set[Address]:
        """The actors with an agent that have due timers with an open field."""
        return set(self._asked)

    def open_rows(self, actor: Address, with_own: bool) -> Iterator[np.void]:
        """The rows of an actor's due timers with an open field that name a contract, and ``with_own`` those that name
        nobody, too; by ``(trigger_height, sequence)``."""
        places = (self._open.get((actor, names), ()) for names in ((True, False) if with_own else (True,)))
        for trigger, sequence in merge(*places):
            yield self.pool.rows[self.pool.position_of(trigger, sequence)]

    def unsupplied(self, parties: Iterable[Party]) -> list[bytes]:
        """Ids of these parties' due timers with an open max fee that the default agent has not supplied."""
        return self.pool.unsupplied([self.numbers.number(party) for party in parties if party in self.numbers])

    def expect_bids(self, kept: Mapping[Party, KeptAnswer]) -> None:
        """Price with these answers from now on; the block's changes will say the same."""
        for party, answer in kept.items():
            if party in self.numbers:
                self._set_bid(party, answer)
                self._expected.append(party)

    @property
    def greatest_bid(self) -> tuple[int, int]:
        """Bounds from above of the agents' last good ``(max_fee, priority)``."""
        return self._greatest_bid

    def _note_open(self, party: Party, trigger: int, sequence: int) -> None:
        if party.actor in self._bidders:
            insort(self._open.setdefault(_open_key(party), []), (trigger, sequence))
            self._note_asked(party.actor)

    def _forget_open(self, party: Party, trigger: int, sequence: int) -> None:
        places = self._open.get(_open_key(party), [])
        at = bisect_left(places, (trigger, sequence))
        if at < len(places) and places[at] == (trigger, sequence):
            del places[at]
            if not places:
                del self._open[_open_key(party)]
            self._note_asked(party.actor)

    def _append_open(self, rows: Rows) -> None:
        """Rows that come due with the block that begins: behind all that stand."""
        for number, sequence in zip(rows["actor"].tolist(), rows["sequence"].tolist(), strict=True):
            self._open.setdefault(_open_key(self.numbers.party(number)), []).append((self._height, sequence))
        for actor in self._actors_of(rows):
            self._note_asked(actor)

    def _cut_open(self, rows: Rows) -> None:
        """Undo :meth:`_append_open`."""
        for key in {_open_key(self.numbers.party(number)) for number in set(rows["actor"].tolist())}:
            places = self._open[key]
            del places[bisect_left(places, (self._height, 0)) :]
            if not places:
                del self._open[key]
        for actor in self._actors_of(rows):
            self._note_asked(actor)

    def _actors_of(self, rows: Rows) -> set[Address]:
        return {self.numbers.party(number).actor for number in set(rows["actor"].tolist())}

    def _note_asked(self, actor: Address) -> None:
        has_own = (actor, False) in self._open and self.agent_of(Party(actor)) is not None
        (self._asked.add if has_own or (actor, True) in self._open else self._asked.discard)(actor)

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
                    self._keep(Address(key[1:]), OWN, None if after is None else after.kept)
                case b"B":
                    self._keep(*kept_answer_parties(key), after)
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
            self.actors["recent"][self.numbers.of(actor)] = self.fires.by_actor.get(actor, 0)

    def _keep(self, actor: Address, agent: Address, answer: KeptAnswer | None) -> None:
        _set_or_drop(self._kept, (actor, agent), answer)
        self._reprice(actor, parties_of(actor, agent))

    def _reprice(self, actor: Address, parties: Iterable[Party]) -> None:
        """Who bids for these parties of an actor, or what they bid, has changed."""
        for party in parties:
            if party in self.numbers:
                self._set_bid(party, self.kept_for(party))
        record = self._bidders.get(actor)
        is_unsettled = (
            record is not None
            and record.naming is not None
            and is_changed(record.naming.answered_since, self.kept_for(Party(actor)))
        )
        (self._unsettled.add if is_unsettled else self._unsettled.discard)(actor)

    def _set_bid(self, party: Party, answer: KeptAnswer) -> None:
        row = self.actors[self._number(party)]
        max_fee, priority, _ = answer
        row["has_bid"] = (0 if max_fee is None else kernels.BIDS_MAX) | (
            0 if priority is None else kernels.BIDS_PRIORITY
        )
        row["max_low"], row["max_high"] = _words(max_fee or 0)
        row["priority_low"], row["priority_high"] = _words(priority or 0)
        greatest = self._greatest_bid
        self._greatest_bid = max(greatest[0], max_fee or 0), max(greatest[1], priority or 0)

    def _change_actor(self, address: Address, actor: Actor | None) -> None:
        before = self._bidders.get(address)
        _set_or_drop(self._bidders, address, actor if may_bid(actor) else None)
        if actor is None or before is None or before.naming != actor.naming:
            self._reprice(address, (Party(address),))
            self._note_asked(address)

    def _number(self, party: Party) -> int:
        known = len(self.numbers)
        number = self.numbers.number(party)
        if number >= len(self.actors):
            larger = np.zeros(2 * len(self.actors), kernels.ACTOR)
            larger[: len(self.actors)] = self.actors
            self.actors = larger
        if number == known:
            self.actors[number]["recent"] = self.fires.by_actor.get(party.actor, 0)
            self._set_bid(party, self.kept_for(party))
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
            self._note_open(party_of(timer), timer.trigger_height, timer.sequence)
        height = self.supply_height(timer)
        if height is not None and int(row["flags"][0]) & SUPPLIED:
            self._supplied[height] = self._supplied.get(height, 0) + 1

    def _end_timers(self, timers: list[Timer]) -> None:
        """Due timers that are gone."""
        supplied = self.pool.kill([(timer.trigger_height, timer.sequence) for timer in timers])
        for timer, was_supplied in zip(timers, supplied, strict=True):
            self._forget_open(party_of(timer), timer.trigger_height, timer.sequence)
            height = self.supply_height(timer) if was_supplied else None
            if height is not None:
                self._supplied[height] -= 1
                if not self._supplied[height]:
                    del self._supplied[height]

    def _row(self, timer: Timer) -> Rows:
        packed = pack_row(timer, self._number(party_of(timer)), timer.actor in self._bidders)
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


def _open_key(party: Party) -> tuple[Address, bool]:
    return party.actor, party.named != OWN


def _words(value: int) -> tuple[int, int]:
    """``(low, high)``."""
    return value & WORD_MASK, value >> WORD_BITS


def _set_or_drop(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
