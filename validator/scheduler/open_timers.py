"""Due timers with an open fee field, by actor: the timers that bidding agents are asked about."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import merge

from validator.chain.records import Timer
from validator.primitives.types import Address
from validator.scheduler.agents import OWN, Party, party_of
from validator.scheduler.parties import Parties
from validator.scheduler.rows import HAS_AGENT, OPEN_MAX, OPEN_PRIORITY, Rows

Place = tuple[int, int]
"""The place of a timer in the order of triggers: ``(trigger_height, sequence)``."""


class OpenTimers:
    """Places of due timers with an open fee field, by actors that may bid."""

    def __init__(self, parties: Parties) -> None:
        self.asked: set[Address] = set()
        """Actors that have a due timer with an open fee field about which an agent can be asked."""
        self._parties = parties
        self._places: dict[tuple[Address, bool], list[Place]] = {}
        """Ascending places of the timers, by actor and by whether the timers name a contract as their agent."""

    def places(self, actor: Address, with_own: bool) -> Iterator[Place]:
        """Places of an actor's timers that name a contract and, if ``with_own``, of those that name none; ascending."""
        kinds = (True, False) if with_own else (True,)
        return merge(*(self._places.get((actor, names), ()) for names in kinds))

    def add(self, timer: Timer) -> None:
        """Add a due timer at its place, which may be anywhere. Timers with fixed fees are ignored."""
        is_open = timer.max_fee_per_cycle is None or timer.max_priority_fee_per_cycle is None
        if is_open and timer.actor in self._parties.bidders:
            insort(self._places.setdefault(_key(party_of(timer)), []), (timer.trigger_height, timer.sequence))
            self.refresh(timer.actor)

    def remove(self, timer: Timer) -> None:
        """Remove a due timer that ended."""
        if not self._places:
            return
        key, place = _key(party_of(timer)), (timer.trigger_height, timer.sequence)
        places = self._places.get(key, [])
        at = bisect_left(places, place)
        if at < len(places) and places[at] == place:
            del places[at]
            self._drop_empty(key)
            self.refresh(timer.actor)

    def append(self, rows: Rows, height: int) -> None:
        """Add the timers that become due at ``height``. They follow all present ones, and ``rows`` are in order."""
        rows = _open_to_agents(rows)
        for number, sequence in zip(rows["actor"].tolist(), rows["sequence"].tolist(), strict=True):
            self._places.setdefault(_key(self._parties.numbers.party(number)), []).append((height, sequence))
        self._refresh_of(rows)

    def cut(self, rows: Rows, height: int) -> None:
        """Undo :meth:`append` of these rows."""
        rows = _open_to_agents(rows)
        for key in {_key(self._parties.numbers.party(number)) for number in set(rows["actor"].tolist())}:
            places = self._places[key]
            del places[bisect_left(places, (height, 0)) :]
            self._drop_empty(key)
        self._refresh_of(rows)

    def refresh(self, actor: Address) -> None:
        """Update :attr:`asked` for an actor whose timers or agent have changed."""
        has_own = (actor, False) in self._places and self._parties.agent_of(Party(actor)) is not None
        (self.asked.add if has_own or (actor, True) in self._places else self.asked.discard)(actor)

    def _refresh_of(self, rows: Rows) -> None:
        for actor in {self._parties.numbers.party(number).actor for number in set(rows["actor"].tolist())}:
            self.refresh(actor)

    def _drop_empty(self, key: tuple[Address, bool]) -> None:
        if not self._places[key]:
            del self._places[key]


def _open_to_agents(rows: Rows) -> Rows:
    flags = rows["flags"]
    chosen: Rows = rows[((flags & HAS_AGENT) != 0) & ((flags & (OPEN_MAX | OPEN_PRIORITY)) != 0)]
    return chosen


def _key(party: Party) -> tuple[Address, bool]:
    return party.actor, party.named != OWN
