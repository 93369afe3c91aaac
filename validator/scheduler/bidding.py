"""Gas bidding agents: the queries of a block, paid, bounded and rotating (SPEC §9).

All queries come before the first timer is priced. Which timers may be asked about, in which order, and how many, is
fixed before the first query; an answer then serves every other timer of its actor that was not asked about itself.
Candidates are found rank by rank, and no further than the budget reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from validator.block import Event, QueryReceipt
from validator.codec import pack_uint
from validator.errors import HandlerFailure
from validator.host import ReadOnlyContext
from validator.meter import Meter
from validator.pvm.machine import Vm
from validator.records import PYTHON_AGENT, BiddingAgent, BidMemory, Timer, bid_memory_key, timer_key
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.rows import OPEN_MAX, WORD_BITS, timer_id_of_row
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


class BidCandidate(NamedTuple):
    """A timer that may be asked about, in the order of asking within a rank."""

    queried_height: int
    timer_id: bytes
    actor: Address


@dataclass(slots=True)
class BiddingRound:
    """The queries of one block."""

    world: World
    index: SchedulerIndex
    terms: SchedulingTerms
    basefee_cycle: int
    basefee_cell: int
    vm: Vm
    counts_all: bool
    """Whether to count the candidates that are not admitted, too; costs a look at every one."""
    receipts: list[QueryReceipt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    spent: int = 0
    """Of ``GBA_BUDGET_CYCLES``."""
    burned: int = 0
    not_admitted: int = 0
    """Candidates that were not queried, where all are counted."""
    answered: set[Address] = field(default_factory=set)
    """Actors whose agent gave a good answer in this block."""
    defaulted: list[bytes] = field(default_factory=list)
    """Timers that were asked about in vain: the default agent prices them."""
    _results: dict[bytes, Bid | None] = field(default_factory=dict)
    _unpaid: set[Address] = field(default_factory=set)
    _balances: dict[Address, int] = field(default_factory=dict)
    """What the actors that are asked held before the first query: one snapshot, since queries alone change it."""

    def run(self) -> None:
        """Ask about the candidates, in their order, as far as the budget reaches."""
        for candidate in self._candidates():
            if candidate.actor in self._unpaid or not self._is_affordable():
                self.not_admitted += 1
                if not self.counts_all and not self._is_affordable():
                    break
            else:
                self.query(candidate)
        self.index.expect_bids({actor: self._memory(actor) for actor in sorted(self.answered)})

    def bid_for(self, timer: Timer) -> Bid | None:
        """What an actor's agent bids for a timer with an open field; ``None`` where the default agent does."""
        if timer.timer_id in self._results:
            return self._results[timer.timer_id]
        return self._last_answer(timer.actor) if self.index.has_agent(timer.actor) else None

    @property
    def apart(self) -> list[bytes]:
        """Timers whose query came to something else than their actor's last good answer."""
        actors = {receipt.timer_id: Address(receipt.actor) for receipt in self.receipts}
        return [timer_id for timer_id, bid in self._results.items() if bid != self._last_answer(actors[timer_id])]

    # --- candidates -------------------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[BidCandidate]:
        """The timers that may be asked about: by rank among their actor's, then by how long ago it was asked, then
        id."""
        waiting = {actor: self._of(actor) for actor in self.index.bidders() if not self._is_paused(actor)}
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
        for row in self.index.open_rows(actor):
            timer_id = timer_id_of_row(row)
            if row["expires_at"] < self.terms.height or row["gas_limit"] > self.terms.cap:
                continue
            max_fee = int(row["max_high"]) << WORD_BITS | int(row["max_low"])
            if not int(row["flags"]) & OPEN_MAX and max_fee < self.terms.lane_price:
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
        """Ask about one timer, and charge for it."""
        actor, height = candidate.actor, self.terms.height
        self._balances.setdefault(actor, self.world.balance(actor))
        memory = self._memory(actor)._replace(queried_height=height)
        if self.world.balance(actor) < self.terms.parameters.gba_max_cycles * self.basefee_cycle:
            self.spent += UNPAID_QUERY_CYCLES
            self._unpaid.add(actor)
            self._remember(actor, memory._replace(unpaid_height=height))
            self._note(candidate, "unpaid", 0, None)
            return
        record = self.world.actor(actor)
        assert record is not None and record.agent is not None, "only actors with an agent are asked"
        answer = self._ask(candidate, record.code, record.agent)
        used = max(LEAST_QUERY_CYCLES, answer.cycles)
        self.world.debit(actor, used * self.basefee_cycle)
        self.spent += used
        if answer.bid is not None:
            self.answered.add(actor)
            memory = memory._replace(
                first_answer_height=memory.first_answer_height or height,
                max_fee_per_cycle=answer.bid.max_fee,
                max_priority_fee_per_cycle=answer.bid.priority,
            )
        self._remember(actor, memory)
        self._note(candidate, "failed" if answer.bid is None else "ok", used, answer.bid)

    def _ask(self, candidate: BidCandidate, code: str, agent: BiddingAgent) -> Answer:
        """Ask an agent. ``builtin:fixed`` always answers the same, for 100 cycles."""
        if agent.code != PYTHON_AGENT:
            assert agent.code == "builtin:fixed", f"no actor can have an agent with code {agent.code!r}"
            return Answer(LEAST_QUERY_CYCLES, Bid(agent.max_fee_per_cycle, agent.max_priority_fee_per_cycle))
        meter = Meter(self.terms.parameters.gba_max_cycles, 0)
        context = ReadOnlyContext(self.world, meter, candidate.actor, candidate.actor, self.terms)
        try:
            bid = self.vm.bid(code, self._offered(candidate), context)
        except HandlerFailure:
            return Answer(meter.cycles_used, None)
        return Answer(meter.cycles_used, Bid(*bid))

    def _offered(self, candidate: BidCandidate) -> dict[str, int]:
        """What an agent is told (SPEC §9)."""
        timer, chain = self.world.timer(candidate.timer_id), self.world.globals
        assert timer is not None, "candidates are live"
        return {
            "trigger_block_height": timer.trigger_height,
            "current_block_height": self.terms.height,
            "basefee_cycle": self.basefee_cycle,
            "basefee_cell": self.basefee_cell,
            "basefee_lane_timer": self.terms.lane_price,
            "last_block_cycle_usage": chain.last_block_cycle_usage,
            "previous_block_p50_priority_tip_per_cycle": self.terms.p50_tip,
            "owner_actor_balance": self._balances[candidate.actor],
        }

    def _note(self, candidate: BidCandidate, outcome: str, cycles: int, bid: Bid | None) -> None:
        burned = cycles * self.basefee_cycle
        self.burned += burned
        self._results[candidate.timer_id] = bid
        told = None if bid is None else (pack_uint(bid.max_fee), pack_uint(bid.priority))
        self.receipts.append(
            QueryReceipt(candidate.timer_id, candidate.actor, outcome, cycles, pack_uint(burned), told)
        )
        if bid is None:
            self.defaulted.append(candidate.timer_id)
            fields = (("timer_id", candidate.timer_id.hex()), ("reason", outcome))
            self.events.append(Event("GbaFallback", candidate.actor, fields))

    # --- records ------------------------------------------------------------------------------------------------------

    def _last_answer(self, actor: Address) -> Bid | None:
        memory = self._memory(actor)
        if memory.max_fee_per_cycle is None or memory.max_priority_fee_per_cycle is None:
            return None
        return Bid(memory.max_fee_per_cycle, memory.max_priority_fee_per_cycle)

    def _memory(self, actor: Address) -> BidMemory:
        memory: BidMemory | None = self.world.get(bid_memory_key(actor))
        return BidMemory() if memory is None else memory

    def _remember(self, actor: Address, memory: BidMemory) -> None:
        self.world.put(bid_memory_key(actor), memory)
