"""The parties of the index: agents, their last valid bids and recent fires, in the form for the compiled loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from validator.chain.records import Actor, ActorWeight, Fires, KeptAnswer
from validator.primitives.params import WeightParty
from validator.primitives.types import Address
from validator.scheduler import order
from validator.scheduler.agents import OWN, Party, agent_of, may_bid, parties_of
from validator.scheduler.fairness import FireCounts
from validator.scheduler.rows import PartyNumbers, words_of

MIN_PARTIES: Final = 64
NOTHING_KEPT: Final = KeptAnswer()


def is_changed(since: int, answer: KeptAnswer) -> bool:
    """Whether an agent starts or stops to price max fees with a new answer.

    ``since`` is the block since which its answers have priced them, or 0 if they did not.
    """
    return (since > 0) != (answer.max_fee_per_cycle is not None)


class Parties:
    """The agents that bid, their kept answers, and the fires in the window, by party."""

    def __init__(self, weight_party: WeightParty = WeightParty.ACTOR) -> None:
        self.fires = FireCounts()
        self._by_deployer = weight_party is WeightParty.DEPLOYER
        self._deployers: dict[Address, Address] = {}
        """Deployers of actors, if fires are counted for them. An address never gets another deployer, so it stays."""
        self._counted_at: dict[Address, int] = {}
        """Numbers of the parties whose rows have the fires that are counted for an account, by account."""
        self.numbers = PartyNumbers()
        self.table = np.zeros(MIN_PARTIES, order.ACTOR)
        """Recent fires and last bid of each party, by party number, in the form that the compiled loops read."""
        self.greatest_bid = (0, 0)
        """Upper bounds of ``(max_fee, priority)`` in the agents' last valid bids."""
        self.unsettled: set[Address] = set()
        """Actors that named another agent since timers were last priced, if that changes the pricing of their max fees:
        their :class:`~validator.chain.records.Naming` does not record it yet."""
        self.bidders: dict[Address, Actor] = {}
        """Actors that have a bidding agent or may get one."""
        self.weights: dict[Address, ActorWeight] = {}
        """The weights that actors earned, by actor."""
        self._kept: dict[tuple[Address, Address], KeptAnswer] = {}
        """Kept answers by actor and agent."""
        self._expected: list[Party] = []
        """Parties whose bids :meth:`expect` changed ahead of the block's changes."""

    def agent_of(self, party: Party) -> Address | None:
        """The agent that bids for a party; ``None`` if only the default agent does."""
        record = self.bidders.get(party.actor)
        return None if record is None else agent_of(party, record)

    def kept_for(self, party: Party) -> KeptAnswer:
        """The last valid answer of the agent that bids for a party."""
        agent = self.agent_of(party)
        return NOTHING_KEPT if agent is None else self._kept.get((party.actor, agent), NOTHING_KEPT)

    def answered_since(self, party: Party) -> int:
        """The block since which a kept answer has priced the max fee of a party's timers; 0 if none does."""
        record = self.bidders.get(party.actor)
        if record is None:
            return 0
        if record.naming is not None and party.named == OWN:
            return record.naming.answered_since
        return self.kept_for(party).since

    def number(self, party: Party) -> int:
        """The party's number. A new party gets one, and a row in :attr:`table`."""
        known = self.numbers.find(party)
        if known is not None:
            return known
        number = self.numbers.number(party)
        if number >= len(self.table):
            self.table = np.concatenate([self.table, np.zeros(len(self.table), order.ACTOR)])
        account = self._account_of(party.actor)
        counted_at = self.table[number]["counted_at"] = self._counted_at.setdefault(account, number)
        if counted_at == number:
            self.table[number]["recent"] = self.fires.by_account.get(account, 0)
        self._set_weight(number, self.weights.get(party.actor))
        self._set_bid(party, self.kept_for(party))
        return number

    # --- changes ------------------------------------------------------------------------------------------------------

    def count(self, fires: Fires, sign: int) -> None:
        """Add a block's fires to the counts, or subtract them. ``sign``: 1 or -1."""
        self.fires.count(fires, sign)
        for account, _ in fires.counts:
            if account in self._counted_at:
                self.table[self._counted_at[account]]["recent"] = self.fires.by_account.get(account, 0)

    def close(self, actor: Address) -> None:
        """Leave an actor's timers out of the search for the best ones, or have them alone, until :meth:`reopen`."""
        for number in self.numbers.of(actor):
            self.table[number]["closed"] = 1

    def reopen(self) -> None:
        """Open all actors again."""
        self.table["closed"] = 0

    def weigh(self, actor: Address, record: ActorWeight | None) -> None:
        """Record the weight that an actor earned; ``None`` removes it."""
        set_or_drop(self.weights, actor, record)
        for number in self.numbers.of(actor):
            self._set_weight(number, record)

    def keep(self, actor: Address, agent: Address, answer: KeptAnswer | None) -> None:
        """Record the last valid answer of an actor's agent; ``None`` removes it."""
        set_or_drop(self._kept, (actor, agent), answer)
        self._reprice(actor, parties_of(actor, agent))

    def change(self, address: Address, actor: Actor | None) -> bool:
        """Store an actor's changed record. Returns whether another agent may bid for the actor now."""
        if self._by_deployer and actor is not None:
            self._deployers[address] = actor.deployer
        before = self.bidders.get(address)
        set_or_drop(self.bidders, address, actor if may_bid(actor) else None)
        if actor is not None and before is not None and before.naming == actor.naming:
            return False
        self._reprice(address, (Party(address),))
        return True

    def expect(self, kept: Mapping[Party, KeptAnswer]) -> None:
        """Use these answers as the parties' bids from now on. The block's changes will contain the same answers."""
        for party, answer in kept.items():
            if party in self.numbers:
                self._set_bid(party, answer)
                self._expected.append(party)

    def confirm(self) -> None:
        """Forget what :meth:`withdraw` would undo, since the block's changes with the expected answers follow."""
        self._expected = []

    def withdraw(self) -> None:
        """Undo :meth:`expect`."""
        for party in self._expected:
            self._set_bid(party, self.kept_for(party))
        self._expected = []

    def _account_of(self, actor: Address) -> Address:
        """The account for which an actor's fires are counted."""
        return self._deployers[actor] if self._by_deployer else actor

    def _reprice(self, actor: Address, parties: Iterable[Party]) -> None:
        """Update the bids of an actor's parties, whose agents or bids have changed."""
        for party in parties:
            if party in self.numbers:
                self._set_bid(party, self.kept_for(party))
        record = self.bidders.get(actor)
        is_unsettled = (
            record is not None
            and record.naming is not None
            and is_changed(record.naming.answered_since, self.kept_for(Party(actor)))
        )
        (self.unsettled.add if is_unsettled else self.unsettled.discard)(actor)

    def _set_weight(self, number: int, record: ActorWeight | None) -> None:
        row = self.table[number]
        epoch, weight, scores, fires = (0, 0, 0, 0) if record is None else record
        row["weight_epoch"], row["weight"], row["weight_scores"], row["weight_fires"] = epoch, weight, scores, fires

    def _set_bid(self, party: Party, answer: KeptAnswer) -> None:
        row = self.table[self.number(party)]
        max_fee, priority, _ = answer
        row["has_bid"] = (0 if max_fee is None else order.BIDS_MAX) | (0 if priority is None else order.BIDS_PRIORITY)
        row["max_low"], row["max_high"] = words_of(max_fee or 0)
        row["priority_low"], row["priority_high"] = words_of(priority or 0)
        greatest = self.greatest_bid
        self.greatest_bid = max(greatest[0], max_fee or 0), max(greatest[1], priority or 0)


def set_or_drop(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    """Store a value; ``None`` removes the key."""
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
