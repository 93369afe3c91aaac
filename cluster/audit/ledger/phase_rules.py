"""Checks of a block's timer phase: fees in force, queries to agents, fires, destroyed timers, timers passed over.

Basefees and the median tip follow from the blocks before (SPEC §7, :mod:`cluster.audit.fee_market`). A timer fires in
turn and only if it fits, within its limits, at the price that its terms give, and with a payer that can pay in full. No
eligible timer that would have fitted is passed over (:mod:`cluster.audit.ledger.timer_phase`).
"""

from __future__ import annotations

from collections import Counter

from cluster.audit.chain_codec import DestroyedReceipt, FireReceipt, Locked, QueryReceipt
from cluster.audit.fee_market import BIAS_UNIT, Basefees, critical_bid, following_basefees
from cluster.audit.ledger.accounts import Accounts, check_charge
from cluster.audit.ledger.agent_queries import Agents, QueryAudit
from cluster.audit.ledger.context import BOUNDS, CONSERVATION, TIMERS, BlockContext, Part, short
from cluster.audit.ledger.timer_phase import EXPIRED, INSUFFICIENT_FUNDS, Offer, TurnAudit
from cluster.audit.ledger.timer_register import TimerRegister
from cluster.audit.paid_waits import Lane, PaidWaits, Wait
from cluster.record.rules import LedgerRule
from validator.chain.genesis import Genesis
from validator.primitives.params import PaymentRule
from validator.primitives.types import address_text


class PhaseRules:
    """Checks each block's timer phase against what the auditor knows of turns, timers and accounts."""

    def __init__(
        self, genesis: Genesis, turns: TurnAudit, agents: Agents, timers: TimerRegister, accounts: Accounts
    ) -> None:
        self._turns = turns
        self._timers = timers
        self._accounts = accounts
        self._queries = QueryAudit(genesis, agents)
        self._basefees = Basefees(*[genesis.parameters.initial_basefee] * 3)
        """The basefees that the next block must state."""
        self._at_begin: dict[bytes, int] = {}
        """Balances by account when the phase began; empty unless a timer may wait because its payer cannot pay."""
        self.paid_waits = PaidWaits()

    # --- the whole phase --------------------------------------------------------------------------------------------

    def check(self, context: BlockContext) -> None:
        """Check a block's fees in force, its use of the lane and its removals, with or without auction (SPEC §13)."""
        context.evaluate(LedgerRule.LANE_LIMITS)
        lane = context.parameters.lane_timer_cycles
        if sum(fire.cycles for fire in context.receipts.fires) > lane:
            context.found(TIMERS, f"the fires used more than the lane's {lane} cycles")
        self._check_collection(context)
        if context.header is None:
            return
        for name, said, expected in zip(Basefees._fields, context.basefees, self._basefees, strict=True):
            if said != expected and (context.is_priced or name != "lane_timer"):
                context.found(CONSERVATION, f"basefee_{name} is {said}, the block before gives {expected}")
        said, expected = context.receipts.p50_tip, self._turns.p50_tip
        if said != expected and context.is_priced:
            context.found(CONSERVATION, f"the median tip is {said}, the fires of the block before give {expected}")

    def _check_collection(self, context: BlockContext) -> None:
        """Check that every destroyed timer is charged to the budget for removals, and that the budget is kept.

        Expired timers must leave untouched the share of the budget that is reserved for the scan.
        """
        parameters, gone = context.parameters, context.receipts.destroyed
        cost, budget = parameters.gc_cycles_per_removal, parameters.timer_gc_cycles
        expired = sum(destroyed.reason == EXPIRED for destroyed in gone)
        if context.receipts.gc_cycles < cost * len(gone):
            counts = f"counts {context.receipts.gc_cycles} cycles only"
            context.found(TIMERS, f"destroying {len(gone)} timers at {cost} each {counts}")
        if cost * expired > budget - parameters.scan_limit * cost or cost * len(gone) > budget:
            what = f"{len(gone)} timers were destroyed ({expired} expired), beyond the budget of {budget}"
            context.found(TIMERS, what)

    def begin(self, context: BlockContext) -> None:
        """Begin the phase, once transactions and expired timers are entered: enter the queries, and fix prices."""
        self._queries.begin_block(context.height)
        self._turns.begin_phase(context)
        queries = context.receipts.queries
        candidates = self._turns.candidates()
        if candidates is not None:
            # agents are asked about the timers whose turn it is, in that order, as far as the budget reaches (SPEC §9)
            context.evaluate(LedgerRule.QUERY_ORDER, len(queries))
            for what in self._queries.order_problems(queries, candidates):
                context.found(TIMERS, what)
        for query in queries:
            self._enter_query(context, query)
        self._turns.price()
        p = context.parameters
        is_used_up = context.receipts.gc_cycles + p.gc_cycles_per_removal > p.timer_gc_cycles
        needs_balances = is_used_up or context.policy.timers_first or not context.policy.is_order_known
        self._at_begin = dict(self._accounts.balances) if needs_balances else {}

    def turns(self, context: BlockContext) -> list[FireReceipt | DestroyedReceipt]:
        """A block's fires, and its timers destroyed because they could not pay, in the order of their turns."""
        insolvent = [each for each in context.receipts.destroyed if each.reason == INSUFFICIENT_FUNDS]
        return self._turns.merged(context.receipts.fires, insolvent)

    def end(self, context: BlockContext) -> None:
        """Check that no timer was passed over, after all turns, and compute the basefees of the next block."""
        self.check_nothing_was_passed_over(context)
        self.check_paid_waits(context)
        if context.policy.locks_bids:
            self.settle_bids(context)
        self._turns.end_phase(context.receipts.fires)
        if context.header is not None:
            self._basefees = following_basefees(context.header, context.parameters, context.policy.has_lane_fee)

    def check_nothing_was_passed_over(self, context: BlockContext) -> None:
        """Check that no eligible timer that would have fitted still waits."""
        fires = context.receipts.fires
        spent: Counter[bytes] = Counter()
        for fire in fires:
            spent[fire.fee_payer] += fire.burned + fire.tip
            for movement in fire.effects.movements:
                spent[movement.source] += movement.amount
            for change in fire.effects.timer_changes:
                spent[fire.actor] += change.amount if isinstance(change, Locked) else 0

        def can_surely_pay(offer: Offer) -> bool:
            """Whether a payer had enough when the phase began, whatever it spent in it."""
            payer, cap = offer.terms.fee_payer, offer.terms.payer_cap
            left = self._at_begin.get(payer, 0) - spent[payer]
            return (left if cap is None else min(left, cap - offer.bid)) >= offer.max_cost

        judged, problems = self._turns.judge(context.receipts.gc_cycles, can_surely_pay)
        context.evaluate(LedgerRule.PASSED_OVER, judged + (len(fires) if context.header is not None else 0))
        for key, why in problems:
            context.found(TIMERS, f"timer {short(key)} was due and passed over, {why}")

    def settle_bids(self, context: BlockContext) -> None:
        """Check what each fire paid of its bid, and return the rest (SPEC §13, ``bias_auction``)."""
        phase = self._turns.phase
        if phase is None:
            return
        left_out, p = phase.best_left_out(), context.parameters
        for turn in phase.turns:
            fire, offer = turn.fire, turn.offer
            part = Part(context, "fire of timer", fire.timer_id)
            self._accounts.lock(offer.terms.fee_payer, -offer.bid)
            self._accounts.balances[offer.terms.fee_payer] -= fire.tip
            least = min(offer.bid, p.reserve_price) if context.is_priced else 0
            if not least <= fire.tip <= offer.bid:
                part.found(CONSERVATION, f"paid {fire.tip}, where its bid and the reserve give {least} to {offer.bid}")
            elif self._turns.is_scan_known:
                context.evaluate(LedgerRule.BID_PAYMENTS)
                expected = min(offer.bid, max(p.reserve_price, _due(p.payment_rule, offer, left_out)))
                if fire.tip != expected:
                    part.found(CONSERVATION, f"paid {fire.tip} of its bid, where the others' bids give {expected}")

    def check_paid_waits(self, context: BlockContext) -> None:
        """Check that no timer waits longer at a price that it pays than the rises of that price allow."""
        phase = self._turns.phase
        if phase is None or context.header is None or not context.policy.has_lane_fee:
            return
        p, fees, waits = context.parameters, context.basefees, []
        for life, offer in phase.waiting:
            spare = self._available(offer) - (offer.max_cost - context.max_cells_cost)
            if spare >= context.max_cells_cost:
                waits.append(Wait(life.timer_id, offer.gas_limit, offer.max_fee, spare))
        context.evaluate(LedgerRule.PAID_WAITS, len(waits))
        lane = Lane(p, phase.used.cycles, phase.used.cells, fees.lane_timer, fees.cell)
        for late in self.paid_waits.enter(lane, waits):
            what = f"the {late.full.value} of the lane were used up before it in each, and their price rose too little"
            context.found(BOUNDS, f"timer {short(late.timer_id)} waits for {late.length} blocks in a row: {what}")

    # --- single timers ----------------------------------------------------------------------------------------------

    def _enter_query(self, context: BlockContext, query: QueryReceipt) -> None:
        part = Part(context, "the query about timer", query.timer_id)
        life = self._timers.pending.get(query.timer_id)
        if life is None or life.actor != query.actor or not life.trigger_height <= context.height <= life.expires_at:
            part.found(TIMERS, "is about none that was due and its actor's")
        basefee = None if context.header is None else context.basefees.cycle
        balance = self._accounts.balances[query.actor]
        part.found(CONSERVATION, *self._queries.problems(query, balance, basefee))
        part.found(TIMERS, *self._turns.queried(query))
        check_charge(part, "burned", query.burned, query.cycles * context.basefees.cycle)
        self._accounts.pay(query.actor, query.burned)
        self._accounts.check_not_negative(part, query.actor)

    def fire(self, part: Part, fire: FireReceipt) -> tuple[bytes | None, Offer | None]:
        """Check and enter a fire without its effects. Returns the timer's payload and its offer, each if known."""
        offer = self._turns.offer(fire.timer_id)
        payload = self._timers.fire(part, fire)
        if offer is not None:
            self._check_turn(part, fire, offer)
        self._turns.fired(fire, offer)
        return payload, offer

    def _check_turn(self, part: Part, fire: FireReceipt, offer: Offer) -> None:
        """Check that a fired timer was next and fitted, at the price of its terms, with a payer that could pay."""
        context = part.context
        part.found(TIMERS, *self._turns.take_turn(offer))
        if offer.passes and context.is_priced and fire.tip_per_cycle != offer.tip and not context.policy.locks_bids:
            part.found(CONSERVATION, f"tips {fire.tip_per_cycle} a cycle, where its terms and prices give {offer.tip}")
        if fire.cycles > offer.gas_limit:
            part.found(TIMERS, f"used {fire.cycles} cycles of at most {offer.gas_limit}")
        if context.is_priced and (available := self._available(offer)) < offer.max_cost:
            part.found(CONSERVATION, f"may cost {offer.max_cost}, which its payer did not have: {available}")

    def _available(self, offer: Offer) -> int:
        balance = self._accounts.balances[offer.terms.fee_payer]
        return balance if offer.terms.payer_cap is None else min(balance, offer.terms.payer_cap - offer.bid)

    def check_fire_cost(self, part: Part, fire: FireReceipt) -> None:
        """Check that a fire used no more than any fire may (SPEC §10), and that its burned fee and tip equal what its
        use and the prices give."""
        context = part.context
        context.evaluate(LedgerRule.FIRE_FEES)
        if fire.cycles > context.fire_cap:
            part.found(TIMERS, f"used {fire.cycles} cycles of at most {context.fire_cap}")
        if fire.cells > (most := context.parameters.max_cells_per_fire):
            part.found(TIMERS, f"used {fire.cells} cells of at most {most}")
        if context.policy.locks_bids:
            if fire.cycles and fire.tip_per_cycle != fire.tip // fire.cycles:
                part.found(CONSERVATION, f"says {fire.tip_per_cycle} a cycle for a payment of {fire.tip}")
        elif context.policy.is_price_known:
            check_charge(part, "tipped", fire.tip, fire.cycles * fire.tip_per_cycle)
        if not context.is_priced:
            return
        if context.is_fifo and fire.tip_per_cycle:
            part.found(CONSERVATION, "tipped in a block that runs first in, first out")
        expected = fire.cycles * context.fire_price + fire.cells * context.basefees.cell
        check_charge(part, "burned", fire.burned, expected)

    def destroy(self, context: BlockContext, destroyed: DestroyedReceipt) -> None:
        """Check and enter a timer that was destroyed."""
        part = Part(context, "timer", destroyed.timer_id)
        if destroyed.reason not in (EXPIRED, INSUFFICIENT_FUNDS):
            part.found(TIMERS, f"was destroyed for an unknown reason, {destroyed.reason[:40]!r}")
        context.evaluate(LedgerRule.EXPIRED_GONE, destroyed.reason == EXPIRED)
        if destroyed.reason == INSUFFICIENT_FUNDS and (offer := self._turns.offer(destroyed.timer_id)) is not None:
            self._check_insolvency(part, destroyed, offer)
        self._timers.destroy(context, destroyed)

    def _check_insolvency(self, part: Part, destroyed: DestroyedReceipt, offer: Offer) -> None:
        """Check a timer destroyed for insufficient funds: it was next, and its payer could not pay in full."""
        part.found(TIMERS, *self._turns.take_turn(offer))
        if part.context.policy.timers_first:
            part.found(TIMERS, "was destroyed for insufficient funds, where the policy carries it over")
        if not part.context.policy.is_order_known:
            return  # receipts do not have the fires before it
        available = self._available(offer)
        if available >= offer.max_cost:
            had = f"its payer had {available} of {offer.max_cost}"
            part.found(TIMERS, f"was destroyed for insufficient funds, though {had}")
        said = dict(destroyed.event.fields)
        expected = {"needed": str(offer.max_cost), "balance": str(available)}
        for field, value in (expected | {"fee_payer": address_text(offer.terms.fee_payer)}).items():
            if said.get(field) != value:
                part.found(TIMERS, f"was destroyed with {field} {said.get(field, 'left out')[:60]}, it was {value}")


def _due(rule: PaymentRule, offer: Offer, left_out: Offer | None) -> int:
    """What a fire owes of its bid before the reserve and its bid bound it (SPEC §13)."""
    if rule is PaymentRule.FIRST_PRICE:
        return offer.bid
    if left_out is None:
        return 0
    if rule is PaymentRule.VCG:
        return left_out.bid - offer.bias // BIAS_UNIT
    return critical_bid(left_out.bid, left_out.bias, left_out.gas_limit, offer.bias, offer.gas_limit)
