"""Gas bidding agents: the queries of a block, which are paid, bounded and rotate (SPEC §9).

All queries precede the pricing of the first timer. The timers that may be asked about, their order and their number are
fixed before the first query. An answer also serves the actor's other timers that have the same agent and were not asked
about themselves. Candidates are found rank by rank, as far as the budget reaches.

The default agent prices the fields that an answer leaves open. A kept answer may lose its max fee, or the actor may
name an agent without one. Then the default agent supplies the timers that it never priced, each in its own record,
because their heights no longer tell what it supplied. :class:`~validator.chain.records.KeptAnswer` and
:class:`~validator.chain.records.Naming` record since when answers have had a max fee; this module updates that once a
block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from validator.chain.block import Event, QueryReceipt
from validator.chain.records import (
    ACTOR,
    PYTHON_AGENT,
    Actor,
    BidMemory,
    KeptAnswer,
    Timer,
    bid_memory_key,
    kept_answer_key,
    timer_key,
)
from validator.execution.handler_context import ReadOnlyContext
from validator.execution.timer_calls import LanePrices, SchedulingTerms
from validator.primitives import costs
from validator.primitives.codec import pack_uint
from validator.primitives.errors import HandlerFailure
from validator.primitives.meter import Meter
from validator.primitives.types import Address
from validator.pvm.runtime.machine import Vm
from validator.scheduler.agents import OWN, Party, agent_of, parties_of, party_of
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.parties import NOTHING_KEPT, is_changed
from validator.scheduler.rows import OPEN_MAX, WORD_BITS, timer_id_of_row
from validator.state.working_set import World

UNPAID_QUERY_CYCLES: Final = 100
"""Cycles of the block's budget that are used up by a query for which the actor cannot pay."""


class Bid(NamedTuple):
    """An agent's answer, per cycle; the default agent prices fields that are ``None``."""

    max_fee: int | None
    priority: int | None


class Answer(NamedTuple):
    """The result of a query; ``bid`` is ``None`` if the agent failed."""

    cycles: int
    bid: Bid | None


class BidCandidate(NamedTuple):
    """A timer about which an agent may be asked. Candidates of one rank are asked about in sorted order."""

    queried_height: int
    timer_id: bytes
    actor: Address


class BiddingFigures(NamedTuple):
    """What a block's queries came to, for observers and tools."""

    spent: int
    """Cycles of ``GBA_BUDGET_CYCLES`` that were spent."""
    not_admitted: int
    """Number of candidates that were not queried, if all are counted."""
    defaulted: tuple[bytes, ...]
    """Ids of timers whose max fee the default agent prices, whatever answers are kept."""


@dataclass(slots=True)
class BiddingRound:
    """The queries of one block.

    The fields are in three groups: the block (``world`` to ``counts_all``), the results for the phase and the receipts
    (``receipts`` to ``defaulted``), and the round's own bookkeeping.
    """

    world: World
    index: SchedulerIndex
    terms: SchedulingTerms
    prices: LanePrices
    vm: Vm
    counts_all: bool
    """Whether to count all candidates that are not queried, which costs a look at each."""
    receipts: list[QueryReceipt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    spent: int = 0
    """Cycles of ``GBA_BUDGET_CYCLES`` that were spent."""
    burned: int = 0
    not_admitted: int = 0
    """Number of candidates that were not queried, if all are counted."""
    since: dict[Party, int] = field(default_factory=dict)
    """The block since which a kept answer prices the max fees of a party's timers, or 0 if none does now. Only for
    parties for which this changed in this block."""
    defaulted: list[bytes] = field(default_factory=list)
    """Ids of timers whose max fee the default agent prices, whatever answers are kept. These are the timers whose query
    gave no max fee, and those of parties whose kept answer just lost its max fee."""
    _results: dict[bytes, Bid | None] = field(default_factory=dict)
    _unpaid: set[Address] = field(default_factory=set)
    _balances: dict[Address, int] = field(default_factory=dict)
    """Balances, before the first query, of the actors whose agents are asked. Each is noted at the actor's first query,
    since only its queries change it."""
    _renamed: dict[Address, Actor] = field(default_factory=dict)
    """Actors that named another agent in this block, with their current records."""
    _answered: set[tuple[Address, Address]] = field(default_factory=set)
    """Actor and agent of each valid answer."""

    @property
    def figures(self) -> BiddingFigures:
        """What the queries came to. Unlike the round it does not keep the block's working set alive."""
        return BiddingFigures(self.spent, self.not_admitted, tuple(self.defaulted))

    def run(self) -> None:
        """Ask about the candidates, in order, as far as the budget reaches."""
        self._renamed = {
            Address(key[1:]): after
            for key, before, after in self.world.changes_under(ACTOR)
            if before is not None and after is not None and before.naming != after.naming
        }
        if not (self._renamed or self.index.open.asked or self.index.parties.unsettled):
            return  # no agent is to be asked, and nothing to be settled
        for candidate in self._candidates():
            if candidate.actor in self._unpaid or not self._is_affordable():
                self.not_admitted += 1
                if not self.counts_all and not self._is_affordable():
                    break
            else:
                self.query(candidate)
        self._settle()

    def bid_for(self, timer: Timer) -> Bid | None:
        """The agent's bid for a timer with an open field; ``None`` if the default agent prices it."""
        if timer.timer_id in self._results:
            return self._results[timer.timer_id]
        return self._last_answer(party_of(timer))

    @property
    def apart(self) -> list[bytes]:
        """Ids of the timers that are not priced as the index prices their parties."""
        timers = {timer_id: self._timer(timer_id) for timer_id in self._results}
        odd = (key for key, bid in self._results.items() if bid != self._last_answer(party_of(timers[key])))
        return list(dict.fromkeys((*odd, *self.defaulted)))

    # --- candidates -------------------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[BidCandidate]:
        """The timers about which agents may be asked, in the order of asking.

        First comes one timer of each actor, then a second one of each, and so on. Within such a rank, the actor that
        was asked least recently comes first, then the lowest timer id.
        """
        actors = sorted(self.index.open.asked | self._renamed.keys())
        waiting = {actor: self._of(actor) for actor in actors if not self._is_paused(actor)}
        heights = {actor: self._memory(actor).queried_height for actor in waiting}
        for _rank in range(self.terms.parameters.gba_queries_per_actor):
            candidates: list[BidCandidate] = []
            for actor in list(waiting):
                timer_id = next(waiting[actor], None)
                if timer_id is None:
                    del waiting[actor]
                else:
                    candidates.append(BidCandidate(heights[actor], timer_id, actor))
            if not candidates:
                return
            yield from sorted(candidates)

    def _of(self, actor: Address) -> Iterator[bytes]:
        """Ids of an actor's timers that may be asked about, by ``(trigger_height, sequence)``."""
        for row in self.index.open_rows(actor, with_own=self._agent_of(Party(actor)) is not None):
            timer_id = timer_id_of_row(row)
            if row["expires_at"] < self.terms.height or row["gas_limit"] > self.terms.cap:
                continue
            max_fee = int(row["max_high"]) << WORD_BITS | int(row["max_low"])
            if not int(row["flags"]) & OPEN_MAX and max_fee < self.terms.fee_floor:
                continue
            if not self.world.is_removed(timer_key(timer_id)):
                yield timer_id

    def _is_paused(self, actor: Address) -> bool:
        unpaid = self._memory(actor).unpaid_height
        return unpaid > 0 and self.terms.height - unpaid <= self.terms.parameters.gba_unpaid_pause

    # --- queries ------------------------------------------------------------------------------------------------------

    def _is_affordable(self) -> bool:
        parameters = self.terms.parameters
        return self.spent + parameters.gba_max_cycles <= parameters.gba_budget_cycles

    def query(self, candidate: BidCandidate) -> None:
        """Ask the agent about one timer, and charge the timer's actor for it."""
        actor, height = candidate.actor, self.terms.height
        timer = self._timer(candidate.timer_id)
        agent = self._agent_of(party_of(timer))
        assert agent is not None, "only agents are asked"
        self._balances.setdefault(actor, self.world.balance(actor))
        memory = self._memory(actor)._replace(queried_height=height)
        if self.world.balance(actor) < self.terms.parameters.gba_max_cycles * self.prices.basefee_cycle:
            self.spent += UNPAID_QUERY_CYCLES
            self._unpaid.add(actor)
            self._remember(actor, memory._replace(unpaid_height=height))
            self._note(candidate, agent, "unpaid", 0, None)
            return
        answer = self._ask(timer, agent)
        used = max(costs.MIN_QUERY_CYCLES, answer.cycles)
        self.world.debit(actor, used * self.prices.basefee_cycle)
        self.spent += used
        self._remember(actor, memory)
        if answer.bid is not None:
            self._answered.add((actor, agent))
            max_fee, priority = answer.bid
            kept = self._kept(actor, agent)._replace(max_fee_per_cycle=max_fee, max_priority_fee_per_cycle=priority)
            self._keep(actor, agent, kept)
        self._note(candidate, agent, "failed" if answer.bid is None else "ok", used, answer.bid)

    def _ask(self, timer: Timer, agent: Address) -> Answer:
        """Run an agent's ``get_gas_bid`` for a timer. ``builtin:fixed`` always answers the same, for 100 cycles."""
        contract = timer.actor if agent == OWN else agent
        record = self.world.actor(contract)
        assert record is not None, "an agent is an actor"
        own = record.agent if agent == OWN else None
        if own is not None and own.code != PYTHON_AGENT:
            assert own.code == "builtin:fixed", f"no actor can have an agent with code {own.code!r}"
            return Answer(costs.MIN_QUERY_CYCLES, Bid(own.max_fee_per_cycle, own.max_priority_fee_per_cycle))
        meter = Meter(self.terms.parameters.gba_max_cycles, 0)
        context = self.context_for(timer.actor, contract, meter)
        try:
            bid = self.vm.bid(record.code, self._offered(timer), context)
        except HandlerFailure:
            return Answer(meter.cycles_used, None)
        return Answer(meter.cycles_used, Bid(*bid))

    def context_for(self, owner: Address, contract: Address, meter: Meter) -> ReadOnlyContext:
        """The context of a query's run: the agent's own storage, with the timer's actor as the caller."""
        return ReadOnlyContext(self.world, meter, contract, owner, self.terms)

    def _offered(self, timer: Timer) -> dict[str, int | bytes]:
        """The arguments of a query (SPEC §9)."""
        chain = self.world.globals
        return {
            "trigger_block_height": timer.trigger_height,
            "current_block_height": self.terms.height,
            "basefee_cycle": self.prices.basefee_cycle,
            "basefee_cell": self.prices.basefee_cell,
            "basefee_lane_timer": self.terms.fee_floor,
            "last_block_cycle_usage": chain.last_block_cycle_usage,
            "previous_block_p50_priority_tip_per_cycle": self.terms.p50_tip,
            "owner_actor_balance": self._balances[timer.actor],
            "owner": bytes(timer.actor),
            "timer_id": bytes(timer.timer_id),
        }

    def _note(self, candidate: BidCandidate, agent: Address, outcome: str, cycles: int, bid: Bid | None) -> None:
        burned = cycles * self.prices.basefee_cycle
        self.burned += burned
        self._results[candidate.timer_id] = bid
        shown = None if bid is None else (_packed(bid.max_fee), _packed(bid.priority))
        self.receipts.append(
            QueryReceipt(candidate.timer_id, candidate.actor, outcome, cycles, pack_uint(burned), shown, agent)
        )
        if bid is None or bid.max_fee is None:
            self.defaulted.append(candidate.timer_id)
        if bid is None:
            fields = (("timer_id", candidate.timer_id.hex()), ("reason", outcome))
            self.events.append(Event("GbaFallback", candidate.actor, fields))

    # --- who prices from now on ---------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Record, after all queries, where kept answers started or stopped to price max fees in this block."""
        actors = sorted({*(actor for actor, _ in self._answered), *self._renamed, *self.index.parties.unsettled})
        repriced = [Party(actor) for actor in actors]
        for actor, agent in sorted(self._answered):
            kept, parties = self._kept(actor, agent), parties_of(actor, agent)
            repriced.extend(parties)
            if is_changed(kept.since, kept):
                since = 0 if kept.max_fee_per_cycle is None else self.terms.height
                self._keep(actor, agent, kept._replace(since=since))
                self.since |= dict.fromkeys((party for party in parties if self._is_kept_for(party, agent)), since)
        for actor in actors:
            self._settle_naming(actor)
        self.defaulted.extend(self._left(party for party, since in self.since.items() if not since))
        self.index.parties.expect({party: self._kept_for(party) for party in repriced})

    def _is_kept_for(self, party: Party, agent: Address) -> bool:
        """Whether ``agent`` bids for a party, and its kept answer, not a naming, records since when it prices."""
        record = self.world.actor(party.actor)
        assert record is not None, "a party is an actor's"
        return agent_of(party, record) == agent and (party.named != OWN or record.naming is None)

    def _settle_naming(self, actor: Address) -> None:
        record, party = self.world.actor(actor), Party(actor)
        if record is None or record.naming is None:
            return
        kept = self._kept_for(party)
        if is_changed(record.naming.answered_since, kept):
            self.since[party] = 0 if kept.max_fee_per_cycle is None else self.terms.height
            naming = record.naming._replace(answered_since=self.since[party])
            self.world.put_actor(actor, replace(record, naming=naming))

    def _left(self, parties: Iterable[Party]) -> list[bytes]:
        """Ids of the parties' due timers with an open max fee that the default agent has never priced."""
        ids = self.index.unsupplied(parties)
        return [timer_id for timer_id in ids if not self.world.is_removed(timer_key(timer_id))]

    # --- records ------------------------------------------------------------------------------------------------------

    def _agent_of(self, party: Party) -> Address | None:
        """The agent that bids for a party; ``None`` if only the default agent bids."""
        record = self._renamed.get(party.actor)
        return self.index.parties.agent_of(party) if record is None else agent_of(party, record)

    def _last_answer(self, party: Party) -> Bid | None:
        """The kept answer's bid for a party; ``None`` if it has no fee."""
        max_fee, priority, _ = self._kept_for(party)
        return None if max_fee is None and priority is None else Bid(max_fee, priority)

    def _kept_for(self, party: Party) -> KeptAnswer:
        agent = self._agent_of(party)
        return NOTHING_KEPT if agent is None else self._kept(party.actor, agent)

    def _kept(self, actor: Address, agent: Address) -> KeptAnswer:
        if agent == OWN:
            return self._memory(actor).kept
        kept: KeptAnswer | None = self.world.get(kept_answer_key(actor, agent))
        return NOTHING_KEPT if kept is None else kept

    def _keep(self, actor: Address, agent: Address, answer: KeptAnswer) -> None:
        if agent == OWN:
            self._remember(actor, self._memory(actor).keeping(answer))
        else:
            self.world.put(kept_answer_key(actor, agent), answer)

    def _timer(self, timer_id: bytes) -> Timer:
        timer = self.world.timer(timer_id)
        assert timer is not None, "a waiting timer is in state"
        return timer

    def _memory(self, actor: Address) -> BidMemory:
        memory: BidMemory | None = self.world.get(bid_memory_key(actor))
        return BidMemory() if memory is None else memory

    def _remember(self, actor: Address, memory: BidMemory) -> None:
        self.world.put(bid_memory_key(actor), memory)


def _packed(figure: int | None) -> bytes | None:
    return None if figure is None else pack_uint(figure)
