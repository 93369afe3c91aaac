"""Checks the queries to gas bidding agents, as far as an observer can judge them (SPEC §9).

Checked are: which actors have an agent and could pay, what a query may cost, and which timer is next. Which timers may
be queried, given their terms, is checked in :mod:`cluster.audit.ledger.timer_phase`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cluster.audit.chain_codec import Bidder, QueryReceipt
from cluster.audit.ledger.context import short
from validator.chain.genesis import Genesis
from validator.chain.transactions import SCRIPT_CODE
from validator.execution.bidding import MIN_QUERY_CYCLES, UNPAID_QUERY_CYCLES
from validator.primitives.types import address_text
from validator.pvm.compiler.programs import compiled
from validator.pvm.language.subset import ProgramError

OWN: Final = b""
"""The value in place of a contract's address that means the actor's own agent."""
NO_TIMER: Final = b""
UNPAID: Final = "unpaid"
OUTCOMES: Final = ("ok", "failed", UNPAID)


def has_own_bid(code: str) -> bool:
    """Whether an actor's code is a program with its own bidding method (``get_gas_bid``)."""
    return code != SCRIPT_CODE and compiled(code).bids


class Agents:
    """Tracks which agent bids for each timer: the actor's own one, or a contract that the actor named (SPEC §9)."""

    def __init__(self, genesis: Genesis) -> None:
        self._contracts: set[bytes] = {at for at, actor in genesis.actors.items() if has_own_bid(actor.code)}
        self._fixed: set[bytes] = {at for at, actor in genesis.actors.items() if actor.agent is not None}
        self._named: dict[bytes, bytes] = {}
        """The agent that each actor named for all its timers; empty bytes if it went back to its own agent."""
        self._named_at_pricing: dict[bytes, bytes] | None = None
        """The agents before the change, for actors that named another one during the timers' turns.

        ``None`` outside of the timers' turns.
        """
        self._of_timers: dict[bytes, bytes] = {}
        self._with_agents_of_timers: set[bytes] = set()
        """Actors that named an agent for a timer, ever."""

    def deployed(self, actor: bytes, code: str) -> str:
        """Enter a new actor, whose program may include an agent. Returns the problem with its code, or empty text."""
        try:
            if has_own_bid(code):
                self._contracts.add(actor)
        except ProgramError as error:
            return f"deployed what is no program: {error}"
        return ""

    def named(self, actor: bytes, change: Bidder) -> Iterator[str]:
        """Enter an actor's change of agent, for one timer or for all without a specific agent. Yields problems."""
        if change.agent and change.agent not in self._contracts:
            yield f"named {address_text(change.agent)} for its agent, which has no get_gas_bid"
        if change.timer_id:
            self._of_timers[change.timer_id] = change.agent
            self._with_agents_of_timers.add(actor)
        else:
            if self._named_at_pricing is not None:
                self._named_at_pricing.setdefault(actor, self._named.get(actor, OWN))
            self._named[actor] = change.agent

    def keep(self) -> None:
        """Called when prices are fixed: until :meth:`let_go`, changes for all timers of an actor have no effect yet."""
        self._named_at_pricing = {}

    def let_go(self) -> None:
        """Called when the timers' turns are over: changes of agents made since :meth:`keep` take effect."""
        self._named_at_pricing = None

    def ended(self, timer_id: bytes) -> None:
        """Called when a timer is no longer pending: forget the agent named for it."""
        self._of_timers.pop(timer_id, None)

    def is_fixed(self, actor: bytes) -> bool:
        """Whether an actor's own agent is a fixed bid from the genesis."""
        return actor in self._fixed

    def may_bid_for(self, actor: bytes) -> bool:
        """Whether an actor may have an agent for any of its timers."""
        return actor in self._with_agents_of_timers or self.agent_of(actor, NO_TIMER) is not None

    def agent_of(self, actor: bytes, timer_id: bytes) -> bytes | None:
        """The agent that bids for a timer: a contract's address, empty for the actor's own agent, ``None`` for none."""
        named = self._of_timers.get(timer_id)
        if named is None:
            named = (self._named_at_pricing or {}).get(actor, self._named.get(actor, OWN))
        has_own_method = actor in self._contracts and actor not in self._fixed
        if named == actor and has_own_method:
            return OWN
        return None if named == OWN and not (has_own_method or actor in self._fixed) else named


class QueryAudit:
    """Checks the queries to bidding agents in each block of a chain: admission, order, cost and payment."""

    def __init__(self, genesis: Genesis, agents: Agents) -> None:
        self._genesis = genesis
        self._parameters = genesis.parameters
        self._agents = agents
        self._unpaid_heights: dict[bytes, int] = {}
        """The height at which each actor was last found unable to pay for a query, keyed by actor."""
        self._queried_heights: dict[bytes, int] = {}
        """The height of the last query for each actor's timers, keyed by actor."""
        self._height = 0
        self._spent = 0
        self._asked: set[bytes] = set()
        self._by_actor: Counter[bytes] = Counter()

    def begin_block(self, height: int) -> None:
        """Begin the next block: reset the counts per block."""
        self._height, self._spent = height, 0
        self._asked.clear()
        self._by_actor.clear()

    def order_problems(
        self, queries: Sequence[QueryReceipt], candidates: Mapping[bytes, Sequence[bytes]]
    ) -> Iterator[str]:
        """Compare a block's queries with those due and their order; yields problems. Call it before :meth:`problems`.

        ``candidates``: the timers that may be queried, keyed by actor, in the order of height and sequence number.
        """
        parameters = self._parameters
        spent, unpaid, left = 0, set[bytes](), deque(queries)
        for timer_id, actor in self._order_of(candidates):
            if spent + parameters.gba_max_cycles > parameters.gba_budget_cycles:
                break
            if actor in unpaid:
                continue
            if not left:
                yield f"timer {short(timer_id)} was not asked about, though its turn came and the budget had room"
                return
            query = left.popleft()
            if query.timer_id != timer_id:
                asked = short(query.timer_id)
                yield f"timer {asked} was asked about where the turn was that of timer {short(timer_id)}"
                return
            spent += spent_by(query)
            if query.outcome == UNPAID:
                unpaid.add(actor)
        if left:
            yield f"timer {short(left[0].timer_id)} was asked about, whose turn did not come"

    def _order_of(self, candidates: Mapping[bytes, Sequence[bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Timers to query, each with its actor, in the order of queries.

        The order is by rank within the actor's timers, then by height of the actor's last query, then by timer id.
        """
        asked = {actor: timers for actor, timers in candidates.items() if not self._is_paused(actor)}
        if not asked:
            return
        for rank in range(self._parameters.gba_queries_per_actor):
            of_rank = sorted(
                (self._queried_heights.get(actor, 0), timers[rank], actor)
                for actor, timers in asked.items()
                if rank < len(timers)
            )
            yield from ((timer_id, actor) for _, timer_id, actor in of_rank)

    def problems(self, query: QueryReceipt, balance: int, basefee_cycle: int | None) -> Iterator[str]:
        """Check and enter the next query; yields problems.

        ``balance`` is the actor's before the query. ``basefee_cycle`` is ``None`` if unknown.
        """
        yield from self._admission_problems(query)
        yield from self._cost_problems(query)
        if basefee_cycle is not None:
            can_pay = balance >= self._parameters.gba_max_cycles * basefee_cycle
            if can_pay and query.outcome == UNPAID:
                yield "was unpaid, though its actor could pay"
            if not can_pay and query.outcome != UNPAID:
                yield "was made, though its actor could not pay"
        self._enter(query)

    def _admission_problems(self, query: QueryReceipt) -> Iterator[str]:
        parameters = self._parameters
        if not self._genesis.runs_auction(self._height):
            yield "was made in a block that runs first in, first out"
        agent = self._agents.agent_of(query.actor, query.timer_id)
        if agent is None:
            yield "was made of an actor without an agent"
        elif agent != query.agent:
            yield "was made of another agent than bids for that timer"
        if query.timer_id in self._asked:
            yield "was made twice in one block"
        if self._by_actor[query.actor] >= parameters.gba_queries_per_actor:
            yield "is one more than its actor may have in a block"
        if self._is_paused(query.actor):
            yield f"was made, though its actor could not pay at height {self._unpaid_heights[query.actor]}"
        if self._spent + parameters.gba_max_cycles > parameters.gba_budget_cycles:
            yield "was made beyond the block's budget"

    def _is_paused(self, actor: bytes) -> bool:
        """Whether queries for an actor are paused in this block, because it was recently unable to pay for one."""
        unpaid = self._unpaid_heights.get(actor)
        return unpaid is not None and self._height - unpaid <= self._parameters.gba_unpaid_pause

    def _cost_problems(self, query: QueryReceipt) -> Iterator[str]:
        if query.outcome not in OUTCOMES:
            yield f"came to {query.outcome[:40]!r}, which is no outcome"
        low, high = MIN_QUERY_CYCLES, self._parameters.gba_max_cycles
        if query.agent == OWN and self._agents.is_fixed(query.actor):
            high = MIN_QUERY_CYCLES
            if query.outcome == "failed":
                yield "failed, which a fixed bid never does"
        if query.outcome == UNPAID:
            low = high = 0
        if not low <= query.cycles <= high:
            yield f"used {query.cycles} cycles, expected {low} to {high}"

    def _enter(self, query: QueryReceipt) -> None:
        self._asked.add(query.timer_id)
        self._by_actor[query.actor] += 1
        self._queried_heights[query.actor] = self._height
        self._spent += spent_by(query)
        if query.outcome == UNPAID:
            self._unpaid_heights[query.actor] = self._height


def spent_by(query: QueryReceipt) -> int:
    """A query's share of a block's budget for queries, in cycles (SPEC §9)."""
    return UNPAID_QUERY_CYCLES if query.outcome == UNPAID else query.cycles
