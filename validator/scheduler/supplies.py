"""The default agent's supplies: the max fee, by height, that it gave to timers without one (SPEC §9)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from validator.chain.genesis import Genesis
from validator.chain.records import Timer
from validator.scheduler.agents import Party, party_of
from validator.scheduler.parties import Parties

NO_CHANGES: Final[Mapping[Party, int]] = MappingProxyType({})


class Supplies:
    """The max fees that the default agent supplied, by height, and the number of live rows that each supply prices."""

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
