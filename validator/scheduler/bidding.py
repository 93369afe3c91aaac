"""Gas bidding agents: the queries of a block, paid, bounded and rotating (SPEC §9).

All queries come before the first timer is priced. Which timers may be asked about, in which order, and how many, is
fixed before the first query; an answer then serves every other timer of its actor that was not asked about itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from validator.block import Event, QueryReceipt
from validator.codec import pack_uint
from validator.records import BiddingAgent, BidMemory, Timer, bid_memory_key
from validator.scheduler.scheduling import SchedulingTerms
from validator.types import Address
from validator.world import World

LEAST_QUERY_CYCLES: Final = 100
UNPAID_QUERY_CYCLES: Final = 100
"""What an unpaid query takes from the block's budget."""


class Bid(NamedTuple):
    """An agent's answer, per cycle."""

    max_fee: int
    priority: int


class Answer(NamedTuple):
    """What a query came to; ``bid`` is ``None`` where the agent failed."""

    cycles: int
    bid: Bid | None


def ask(agent: BiddingAgent) -> Answer:
    """Ask an agent. ``builtin:fixed`` always answers the same, for 100 cycles."""
    assert agent.code == "builtin:fixed", f"no actor can have an agent with code {agent.code!r}"
    return Answer(LEAST_QUERY_CYCLES, Bid(agent.max_fee_per_cycle, agent.max_priority_fee_per_cycle))


@dataclass(slots=True)
class BiddingRound:
    """The queries of one block."""

    world: World
    terms: SchedulingTerms
    basefee_cycle: int
    receipts: list[QueryReceipt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    spent: int = 0
    """Of ``GBA_BUDGET_CYCLES``."""
    burned: int = 0
    not_admitted: int = 0
    _results: dict[bytes, Bid | None] = field(default_factory=dict)
    """Of the timers that were asked about; ``None`` stands for the default."""
    _unpaid: set[Address] = field(default_factory=set)

    def run(self, alive: Sequence[Timer]) -> None:
        """Ask about the candidates among the timers that are due and alive, by ``(trigger_height, sequence)``."""
        candidates = self._in_order(self._candidates(alive))
        for timer in candidates:
            if timer.actor in self._unpaid or not self._is_affordable():
                self.not_admitted += 1
            else:
                self._query(timer)

    def bid_for(self, timer: Timer) -> Bid | None:
        """What an actor's agent bids for a timer with an open field; ``None`` where the default agent does."""
        if timer.timer_id in self._results:
            return self._results[timer.timer_id]
        if self._agent(timer.actor) is None:
            return None
        memory = self._memory(timer.actor)
        if memory.max_fee_per_cycle is None or memory.max_priority_fee_per_cycle is None:
            return None
        return Bid(memory.max_fee_per_cycle, memory.max_priority_fee_per_cycle)

    # --- candidates -------------------------------------------------------------------------------------------------

    def _candidates(self, alive: Sequence[Timer]) -> list[tuple[int, Timer]]:
        """The timers that may be asked about, each with its rank among its actor's."""
        most = self.terms.parameters.gba_queries_per_actor
        ranks: dict[Address, int] = {}
        candidates: list[tuple[int, Timer]] = []
        for timer in alive:
            rank = ranks.get(timer.actor, 0)
            if rank < most and self._may_be_asked_about(timer):
                ranks[timer.actor] = rank + 1
                candidates.append((rank, timer))
        return candidates

    def _may_be_asked_about(self, timer: Timer) -> bool:
        if timer.max_fee_per_cycle is not None and (
            timer.max_priority_fee_per_cycle is not None or timer.max_fee_per_cycle < self.terms.lane_price
        ):
            return False
        if timer.gas_limit is not None and timer.gas_limit > self.terms.cap:
            return False
        return self._agent(timer.actor) is not None and not self._is_paused(timer.actor)

    def _is_paused(self, actor: Address) -> bool:
        unpaid = self._memory(actor).unpaid_height
        return unpaid > 0 and self.terms.height - unpaid <= self.terms.parameters.gba_unpaid_pause

    def _in_order(self, candidates: list[tuple[int, Timer]]) -> list[Timer]:
        """By rank, then by how long ago the actor was asked, then by id."""
        keyed = [(rank, self._memory(timer.actor).queried_height, timer.timer_id, timer) for rank, timer in candidates]
        return [timer for *_, timer in sorted(keyed)]

    # --- queries ------------------------------------------------------------------------------------------------------

    def _is_affordable(self) -> bool:
        parameters = self.terms.parameters
        return self.spent + parameters.gba_max_cycles <= parameters.gba_budget_cycles

    def _query(self, timer: Timer) -> None:
        memory = self._memory(timer.actor)._replace(queried_height=self.terms.height)
        if self.world.balance(timer.actor) < self.terms.parameters.gba_max_cycles * self.basefee_cycle:
            self.spent += UNPAID_QUERY_CYCLES
            self._unpaid.add(timer.actor)
            self._remember(timer, memory._replace(unpaid_height=self.terms.height))
            self._note(timer, "unpaid", 0, None)
            return
        agent = self._agent(timer.actor)
        assert agent is not None, "only actors with an agent have candidates"
        answer = ask(agent)
        used = max(LEAST_QUERY_CYCLES, answer.cycles)
        self.world.debit(timer.actor, used * self.basefee_cycle)
        self.spent += used
        if answer.bid is not None:
            memory = memory._replace(
                max_fee_per_cycle=answer.bid.max_fee, max_priority_fee_per_cycle=answer.bid.priority
            )
        self._remember(timer, memory)
        self._note(timer, "failed" if answer.bid is None else "ok", used, answer.bid)

    def _note(self, timer: Timer, outcome: str, cycles: int, bid: Bid | None) -> None:
        burned = cycles * self.basefee_cycle
        self.burned += burned
        self._results[timer.timer_id] = bid
        self.receipts.append(QueryReceipt(timer.timer_id, timer.actor, outcome, cycles, pack_uint(burned)))
        if outcome != "ok":
            fields = (("timer_id", timer.timer_id.hex()), ("reason", outcome))
            self.events.append(Event("GbaFallback", timer.actor, fields))

    # --- records ------------------------------------------------------------------------------------------------------

    def _agent(self, actor: Address) -> BiddingAgent | None:
        record = self.world.actor(actor)
        return None if record is None else record.agent

    def _memory(self, actor: Address) -> BidMemory:
        memory: BidMemory | None = self.world.get(bid_memory_key(actor))
        return BidMemory() if memory is None else memory

    def _remember(self, timer: Timer, memory: BidMemory) -> None:
        self.world.put(bid_memory_key(timer.actor), memory)
