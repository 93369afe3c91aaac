"""The queries of gas bidding agents, as far as an observer can judge them (SPEC §9).

Who has an agent, who could pay, and what a query may cost. Whether the timer asked about leaves a fee open, and could
fire, is seen where its terms are (:mod:`cluster.turns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from validator.block import QueryReceipt
from validator.genesis import Genesis
from validator.params import Parameters
from validator.pvm.programs import compiled
from validator.scheduler.bidding import LEAST_QUERY_CYCLES, UNPAID_QUERY_CYCLES
from validator.transactions import SCRIPT_CODE

UNPAID: Final = "unpaid"
OUTCOMES: Final = ("ok", "failed", UNPAID)


def has_own_bid(code: str) -> bool:
    """Whether code is a program that bids for its own timers."""
    return code != SCRIPT_CODE and compiled(code).bids


class QueryAudit:
    """Follows the queries of a chain, block after block."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._agents: set[bytes] = {
            at for at, actor in genesis.actors.items() if actor.agent is not None or has_own_bid(actor.code)
        }
        self._unpaid_heights: dict[bytes, int] = {}
        """When an actor was last found unable to pay."""
        self._height = 0
        self._spent = 0
        self._asked: set[bytes] = set()
        self._by_actor: Counter[bytes] = Counter()

    def deployed(self, actor: bytes, code: str) -> None:
        """A new actor; a program may bring an agent along."""
        if has_own_bid(code):
            self._agents.add(actor)

    def begin_block(self, height: int) -> None:
        """The next block's queries follow."""
        self._height, self._spent = height, 0
        self._asked.clear()
        self._by_actor.clear()

    def problems(self, query: QueryReceipt, balance: int, basefee_cycle: int | None) -> Iterator[str]:
        """What is wrong with the next query; ``balance`` is its actor's before it. Prices may be unknown."""
        parameters = self._genesis.parameters
        yield from self._admission_problems(query, parameters)
        yield from self._cost_problems(query, parameters)
        if basefee_cycle is not None:
            can_pay = balance >= parameters.gba_max_cycles * basefee_cycle
            if can_pay and query.outcome == UNPAID:
                yield "was unpaid, though its actor could pay"
            if not can_pay and query.outcome != UNPAID:
                yield "was made, though its actor could not pay"
        self._enter(query)

    def _admission_problems(self, query: QueryReceipt, parameters: Parameters) -> Iterator[str]:
        unpaid = self._unpaid_heights.get(query.actor)
        if not self._genesis.runs_auction(self._height):
            yield "was made in a block that runs first in, first out"
        if query.actor not in self._agents:
            yield "was made of an actor without an agent"
        if query.timer_id in self._asked:
            yield "was made twice in one block"
        if self._by_actor[query.actor] >= parameters.gba_queries_per_actor:
            yield "is one more than its actor may have in a block"
        if unpaid is not None and self._height - unpaid <= parameters.gba_unpaid_pause:
            yield f"was made, though its actor could not pay at height {unpaid}"
        if self._spent + parameters.gba_max_cycles > parameters.gba_budget_cycles:
            yield "was made beyond the block's budget"

    def _cost_problems(self, query: QueryReceipt, parameters: Parameters) -> Iterator[str]:
        if query.outcome not in OUTCOMES:
            yield f"came to {query.outcome[:40]!r}, which is no outcome"
        low, high = LEAST_QUERY_CYCLES, parameters.gba_max_cycles
        if self._has_fixed_agent(query.actor):
            high = LEAST_QUERY_CYCLES
            if query.outcome == "failed":
                yield "failed, which a fixed bid never does"
        if query.outcome == UNPAID:
            low = high = 0
        if not low <= query.cycles <= high:
            yield f"used {query.cycles} cycles, expected {low} to {high}"

    def _has_fixed_agent(self, actor: bytes) -> bool:
        record = self._genesis.actors.get(actor)  # type: ignore[call-overload]
        return record is not None and record.agent is not None and record.agent.code == "builtin:fixed"

    def _enter(self, query: QueryReceipt) -> None:
        self._asked.add(query.timer_id)
        self._by_actor[query.actor] += 1
        self._spent += UNPAID_QUERY_CYCLES if query.outcome == UNPAID else query.cycles
        if query.outcome == UNPAID:
            self._unpaid_heights[query.actor] = self._height
