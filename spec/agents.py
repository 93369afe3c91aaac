"""Bidding agents, and the prices of due timers in an auction (``docs/protocol.md``, *Agents*)."""

from __future__ import annotations

from collections.abc import Iterator

from spec.encoding import Address, Hash, QueryReceipt, uint, uint_or_null
from spec.fees import default_bid
from spec.host import Host
from spec.runs import Meter
from spec.world import Answer, Asked, Failure, Timer, World

Bid = tuple[int | None, int | None]
"""A max fee and a priority, each null if the agent left it open."""
LEAST_CYCLES = 100
"""What a query costs at least, and what an unpaid one takes from the budget."""


class Bidding:
    """The queries of one block, and what timers bid after them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.receipts: list[QueryReceipt] = []
        self.spent = 0
        self.not_admitted = 0
        self.burned = 0
        self._results: dict[Hash, Bid | None] = {}
        """What came of each query; null for the default agent."""
        self._balances: dict[Address, int] = {}
        """Balances of the actors whose timers were asked about, before the first query."""

    def run(self, due: list[Timer]) -> None:
        """Ask about the due timers, as far as the budget reaches."""
        p, unpaid = self.world.parameters, set[Address]()
        candidates = self._candidates(due)
        if not candidates and not self.world.namings:
            return
        answered: set[tuple[Address, Address]] = set()
        for timer, agent in candidates:
            if self.spent + p["GBA_MAX_CYCLES"] > p["GBA_BUDGET_CYCLES"] or timer.actor in unpaid:
                self.world.reached("G-05" if timer.actor not in unpaid else "G-04")
                self.not_admitted += 1
            elif self._can_pay(timer.actor):
                self._query(timer, agent, answered)
            else:
                unpaid.add(timer.actor)
                self._note_unpaid(timer, agent)
        self._settle(answered)

    def _agent_for(self, actor: Address, named: Address | None) -> Address | None:
        """The agent of an actor's timers that name this contract, or none: a contract, empty for the actor's own agent,
        or null if there is no agent."""
        world, naming = self.world, self.world.namings.get(actor)
        own = world.actors[actor].agent
        if named is None and naming is not None:
            named = naming.agent
        if named is None:
            return None if own is None else b""
        return b"" if named == actor and own is not None and own.code == "python" else named

    def _candidates(self, due: list[Timer]) -> list[tuple[Timer, Address]]:
        """The timers about which agents may be asked, and their agents, in the order of asking."""
        world, ranks, found = self.world, dict[Address, int](), []
        for timer in due:
            if not self._may_be_asked_about(timer):
                continue
            agent = self._agent_for(timer.actor, timer.bidding_agent)
            if agent is None or self._is_paused(timer.actor):
                continue
            rank = ranks[timer.actor] = ranks.get(timer.actor, -1) + 1
            if rank < world.parameters["GBA_QUERIES_PER_ACTOR"]:
                found.append((rank, world.asked.get(timer.actor, Asked()).at, timer.timer_id, timer, agent))
        world.reached("G-07", len({entry[1] for entry in found}) > 1)
        return [(timer, agent) for *_, timer, agent in sorted(found, key=lambda entry: entry[:3])]

    def _may_be_asked_about(self, timer: Timer) -> bool:
        world = self.world
        is_open = timer.max_fee is None or timer.priority is None
        is_hopeless = timer.max_fee is not None and timer.max_fee < world.fee_floor
        is_over = world.height > timer.expires_at or world.policy.is_over_cap(world, timer)
        return is_open and not is_hopeless and not is_over

    def _is_paused(self, actor: Address) -> bool:
        """Whether an actor could not pay for a query a while ago."""
        world, unpaid_at = self.world, self.world.asked.get(actor, Asked()).unpaid_at
        is_paused = unpaid_at > 0 and world.height - unpaid_at <= world.parameters["GBA_UNPAID_PAUSE"]
        world.reached("G-04", is_paused)
        return bool(is_paused)

    def _can_pay(self, actor: Address) -> bool:
        world = self.world
        self._balances.setdefault(actor, world.balance.get(actor, 0))
        cost: int = world.parameters["GBA_MAX_CYCLES"] * world.basefee_cycle
        return world.balance.get(actor, 0) >= cost

    def _note_unpaid(self, timer: Timer, agent: Address) -> None:
        world = self.world
        world.reached("G-03")
        world.reached("G-11")
        self.spent += LEAST_CYCLES
        world.put(world.asked, timer.actor, Asked(world.height, world.height))
        self._note(timer, agent, "unpaid", 0, None)

    def _query(self, timer: Timer, agent: Address, answered: set[tuple[Address, Address]]) -> None:
        """Ask an agent about one timer. The timer's actor pays."""
        world, actor = self.world, timer.actor
        cycles, bid = self._ask(timer, agent)
        used = max(LEAST_CYCLES, cycles)
        world.debit(actor, used * world.basefee_cycle)
        self.spent += used
        world.put(world.asked, actor, world.asked.get(actor, Asked())._replace(at=world.height))
        world.reached("R-15")
        world.reached("G-08", agent)
        if bid is not None:
            answered.add((actor, agent))
            before = world.answers.get((actor, agent), Answer())
            world.put(world.answers, (actor, agent), Answer(*bid, before.since))
        self._note(timer, agent, "failed" if bid is None else "ok", used, bid)

    def _ask(self, timer: Timer, agent: Address) -> tuple[int, Bid | None]:
        """The cycles that an agent used, and its bid; null if it failed."""
        world, contract = self.world, agent or timer.actor
        own = None if agent else world.actors[contract].agent
        if own is not None and own.code == "builtin:fixed":
            return LEAST_CYCLES, (own.max_fee, own.priority)
        meter = Meter(world, world.parameters["GBA_MAX_CYCLES"], 0)
        run = Host(world, meter, contract, timer.actor)
        run.is_query = True
        try:
            bid = world.language.bid(run, world.actors[contract].code, self._offered(timer))
            world.reached("P-09")
        except Failure:
            world.reached("G-02")
            bid = None
        return meter.cycles, bid

    def _offered(self, timer: Timer) -> dict[str, int | bytes]:
        """What a query tells the agent."""
        world = self.world
        return {
            "trigger_block_height": timer.trigger_height,
            "current_block_height": world.height,
            "basefee_cycle": world.basefee_cycle,
            "basefee_cell": world.basefee_cell,
            "basefee_lane_timer": world.fee_floor,
            "last_block_cycle_usage": world.counters["last block's cycles"],
            "previous_block_p50_priority_tip_per_cycle": world.p50,
            "owner_actor_balance": self._balances[timer.actor],
            "owner": timer.actor,
            "timer_id": timer.timer_id,
        }

    def _note(self, timer: Timer, agent: Address, outcome: str, cycles: int, bid: Bid | None) -> None:
        burned = cycles * self.world.basefee_cycle
        self.burned += burned
        self._results[timer.timer_id] = bid
        shown = None if bid is None else (uint_or_null(bid[0]), uint_or_null(bid[1]))
        self.receipts.append(QueryReceipt(timer.timer_id, timer.actor, outcome, cycles, uint(burned), shown, agent))
        if bid is None:
            self.world.event("GbaFallback", timer.actor, timer_id=timer.timer_id.hex(), reason=outcome)

    def _settle(self, answered: set[tuple[Address, Address]]) -> None:
        """Note where kept answers begin or cease to price max fees with this block."""
        world = self.world
        for place in answered:
            answer = world.answers[place]
            world.put(world.answers, place, answer._replace(since=self._since(answer.since, answer.max_fee)))
        for actor, naming in list(world.namings.items()):
            since = self._since(naming.since, self._kept_for(actor, None).max_fee)
            if since != naming.since:
                world.put(world.namings, actor, naming._replace(since=since))

    def _since(self, before: int, max_fee: int | None) -> int:
        return 0 if max_fee is None else before or self.world.height

    def _kept_for(self, actor: Address, named: Address | None) -> Answer:
        """The last good answer of the agent of an actor's timers that name this contract, or none."""
        agent = self._agent_for(actor, named)
        return Answer() if agent is None else self.world.answers.get((actor, agent), Answer())

    def prices(self, due: list[Timer]) -> Iterator[tuple[Timer, int, int]]:
        """The max fee and the priority of each due timer: its own, else its agent's, else the default agent's."""
        supplied, priority_now = default_bid(self.world)
        for timer in due:
            max_fee, priority = timer.max_fee, timer.priority
            if max_fee is None or priority is None:
                kept = self._kept_for(timer.actor, timer.bidding_agent)
                bid = self._results.get(timer.timer_id, (kept.max_fee, kept.priority)) or (None, None)
                if bid != (None, None):
                    self.world.reached("G-01" if bid[0] is not None else "G-10")
                    self.world.reached("G-06", timer.timer_id not in self._results)
                max_fee = bid[0] if max_fee is None else max_fee
                priority = bid[1] if priority is None else priority
                if max_fee is None:
                    timer = self._supply(timer, supplied, kept)
                    max_fee = timer.default_max_fee
                    assert max_fee is not None
                if priority is None:
                    self.world.reached("L-05", priority_now)
                    priority = priority_now
            yield timer, max_fee, priority

    def _supply(self, timer: Timer, supplied: int, kept: Answer) -> Timer:
        """The timer with the default agent's max fee, which stays what it was in the first block that priced it."""
        world = self.world
        if timer.default_max_fee is not None:
            world.reached("L-04")
            return timer
        world.reached("L-03")
        first = max(timer.trigger_height, world.genesis.parameters["ACTIVATION_HEIGHT"] + 1)
        in_turn = world.height == first and kept.max_fee is None
        world.reached("R-08", in_turn)
        timer = timer._replace(default_max_fee=supplied, in_turn=in_turn)
        world.put(world.timers, timer.timer_id, timer)
        return timer
