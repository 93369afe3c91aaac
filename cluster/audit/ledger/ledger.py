"""An observer's own books, kept from nothing but the genesis and final blocks with their receipts.

The ledger follows every timer from the block that scheduled it to the block that ended it, and every account's balance
from the genesis on. It checks as it goes and collects what is wrong as :class:`Violation`; it raises nothing, since it
reads what validators that may be broken have served. Its rules:

- *Chain*: canonical encodings, consecutive heights, parent hashes, the chain id, ``transactions_root`` and
  ``receipts_root`` recomputed, receipts that belong to their transactions, nonces, the proposer's account.
- *Timers* (SPEC §4, §6, §11): scheduled once, for the future, on terms that are allowed; changed by their own actor or
  a system instruction alone; fired never early, never expired, at most once, only while pending, within their limits,
  in turn and only where they fit; destroyed only for a reason that holds; no expired timer left lying while there is
  budget to remove it; no eligible timer passed over that would have fitted (:mod:`cluster.audit.ledger.timer_phase`);
  ids recomputed where the payload follows from the chain.
- *Amounts* (SPEC §2, §7, §9, §10): basefees, median tip and tips follow from the blocks before
  (:mod:`cluster.audit.ledger.fee_market`), fees are what prices and use say, paid by who said so and can; nothing
  becomes negative, only the owner's money moves, reverted handlers leave nothing behind, messages cost nobody anything
  when they run, agents are asked only where their actors can pay, and minted = balances + burned.
- *Instructions* (SPEC §12): given only by those who may, and done as they say.
- *Messages* (SPEC §14): paid for when they are sent, run once, in the order of sending
  (:mod:`cluster.audit.ledger.messages`).
- *Jobs* (SPEC §14): paid for once, answered by runners, called back once and in order, consumed at most once
  (:mod:`cluster.audit.ledger.jobs`).

Movements hold transaction values and an actor's transfers; fees come on top: a payer loses ``burned + tip``, the tips
of transactions and later those of fires go to ``BlockReceipts.proposer``.

Parameters are the genesis's and what system instructions changed, in force from the block after. The genesis block's
own hash is not recomputed; that all validators agree on the block that hangs from it is the agreement check's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from cluster.audit.chain_codec import (
    Bidder,
    Block,
    BlockReceipts,
    Call,
    CallbackReceipt,
    Cancelled,
    CancelTimer,
    Deploy,
    DestroyedReceipt,
    Effects,
    Extended,
    ExtendTimer,
    FireReceipt,
    Header,
    MessageReceipt,
    Movement,
    QueryReceipt,
    Scheduled,
    System,
    TransactionBody,
    TransactionReceipt,
    Transfer,
    Unreadable,
    UpdateTimerConfig,
    address_of,
    amount,
    deployed_address,
    read_block,
    read_receipts,
    read_transaction,
    transaction_hash,
    transactions_root,
)
from cluster.audit.ledger.agent_queries import Agents, QueryAudit
from cluster.audit.ledger.fee_market import Basefees, fire_cap, first_basefees, following_basefees, lane_price
from cluster.audit.ledger.jobs import JobBooks, Run
from cluster.audit.ledger.messages import MessageBooks
from cluster.audit.ledger.parameters import GovernedParameters
from cluster.audit.ledger.timer_ids import ScheduledTerms, handler_input, scheduled_terms, timer_id
from cluster.audit.ledger.timer_phase import Offer, Terms, TurnAudit
from validator.chain.genesis import Genesis
from validator.chain.transactions import SCRIPT_CODE
from validator.execution.mailbox import MESSAGES_PER_DEFERRED_RUN, MESSAGES_PER_TRANSACTION
from validator.primitives.params import Parameters
from validator.primitives.types import PRICE_LIMIT, RUNNER_CONTRACT_ADDRESS, address_text

CHAIN: Final = "chain"
TIMERS: Final = "timers"
CONSERVATION: Final = "conservation"

CHAIN_LINKS: Final = "chain links"
TRANSACTION_FEES: Final = "transaction fees"
VALUES: Final = "values moved"
FIRE_TIMES: Final = "fire times"
FIRE_FEES: Final = "fire fees"
LANE_LIMITS: Final = "lane limits"
PASSED_OVER: Final = "no timer passed over"
EXPIRED_GONE: Final = "expired timers gone"
TIMER_IDS: Final = "timer ids"
QUERY_ORDER: Final = "order of queries"
LEDGER_RULES: Final = (
    CHAIN_LINKS,
    TRANSACTION_FEES,
    VALUES,
    FIRE_TIMES,
    FIRE_FEES,
    LANE_LIMITS,
    PASSED_OVER,
    EXPIRED_GONE,
    TIMER_IDS,
    QUERY_ORDER,
)
"""Rules whose evaluations are counted: a rule that was never looked at says nothing (:attr:`Ledger.evaluated`)."""

MAX_VIOLATIONS: Final = 1_000
"""Violations kept; further ones are counted only."""

MAX_PAYLOAD_KEPT_BYTES: Final = 65_536
"""Longest timer payload that is remembered for recomputing ids."""

EXPIRED: Final = "expired"
INSUFFICIENT_FUNDS: Final = "insufficient_funds"
FEE_LIMIT: Final = 2**256


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be."""

    check: str
    """``chain``, ``timers`` or ``conservation``."""
    height: int
    what: str


class TimerState(StrEnum):
    """Where a timer's life has come to."""

    PENDING = "pending"
    FIRED = "fired"
    CANCELLED = "cancelled"
    EXPIRED = EXPIRED
    INSUFFICIENT_FUNDS = INSUFFICIENT_FUNDS


@dataclass(slots=True)
class TimerLife:
    """One timer, from its schedule to its end. Heights throughout."""

    timer_id: bytes
    actor: bytes
    scheduled_at: int
    trigger_height: int
    sequence: int
    expires_at: int
    terms: Terms
    state: TimerState = TimerState.PENDING
    ended_at: int | None = None
    """The height that fired, cancelled or destroyed it."""
    extensions: int = 0
    payload: bytes | None = None
    """Where it follows from the chain, while the timer is pending."""

    @property
    def is_pending(self) -> bool:
        return self.state is TimerState.PENDING


@dataclass(frozen=True, slots=True)
class BlockFigures:
    """One block in numbers, for metrics and curves. Fees are those in force during the block."""

    height: int
    transactions: int
    reverted: int
    scheduled: int
    fires: int
    destroyed: int
    messages: int
    queries: int
    pending: int
    """Timers pending after the block."""
    backlog: int
    """Those of them whose trigger height has passed."""
    basefee_cycle: int
    basefee_cell: int
    basefee_lane_timer: int
    lane_cycles: int
    lane_limit: int
    """``LANE_TIMER_CYCLES``, as it was in force."""
    user_cycles: int


Bodies = tuple[tuple[bytes, TransactionBody], ...]
"""Sender and body of each transaction."""


@dataclass(frozen=True)
class _Context:
    """The block that is being applied. ``header`` and ``bodies`` are missing for evidence, which is receipts alone."""

    height: int
    proposer: bytes
    gc_cycles: int
    p50_tip: bytes = b""
    header: Header | None = None
    bodies: Bodies = ()

    @cached_property
    def basefees(self) -> Basefees | None:
        """As the header says; ``None`` where there is none."""
        return None if self.header is None else Basefees.of(self.header)

    @property
    def basefee_cycle(self) -> int:
        return 0 if self.basefees is None else self.basefees.cycle

    @property
    def basefee_cell(self) -> int:
        return 0 if self.basefees is None else self.basefees.cell

    @property
    def basefee_lane_timer(self) -> int:
        return 0 if self.basefees is None else self.basefees.lane_timer


class Ledger:
    """The books of one chain of final blocks. Feed it with :meth:`apply`, read it at any height."""

    def __init__(self, genesis: Genesis) -> None:
        self.genesis = genesis
        self.height = 0
        self.tip_hash: bytes | None = None
        self.balances: dict[bytes, int] = {address: genesis.accounts[address] for address in genesis.accounts}
        for address, actor in genesis.actors.items():
            self.balances[address] = self.balances.get(address, 0) + actor.balance
        self.minted = sum(self.balances.values())
        self.burned = 0
        self.burned_cell = self.burned_lane_timer = 0
        """What of it was burned at the cell's basefee, and at the timer lane's price; the rest was at the cycle's."""
        self.tips = 0
        self.timers: dict[bytes, TimerLife] = {}
        self.pending: dict[bytes, TimerLife] = {}
        self.states: Counter[TimerState] = Counter()
        """Timers by state; ``pending`` is kept up to date too."""
        self.lateness: Counter[int] = Counter()
        """Fires by the number of blocks that they came after their trigger height."""
        self.figures: list[BlockFigures] = []
        self.transactions = 0
        self.reverted = 0
        self.messages = 0
        self.queries = 0
        self.evaluated: Counter[str] = Counter()
        """How often each of :data:`LEDGER_RULES` was evaluated."""
        self.violations: list[Violation] = []
        self.violation_count = 0
        self.broken = False
        """The books ended at a block that could not be read or does not follow; everything after it is ignored."""
        self._governed = GovernedParameters(genesis.parameters)
        self._agents = Agents(genesis)
        self._audit = QueryAudit(genesis, self._agents)
        self.turns = TurnAudit(genesis, self._agents)
        self.jobs = JobBooks(genesis)
        self._mailboxes = MessageBooks()
        self._basefees = first_basefees(genesis.parameters)
        """That the next block must say are in force."""
        self._nonces: Counter[bytes] = Counter()
        self._schedule_nonces: Counter[bytes] = Counter()
        self._actors: set[bytes] = set(genesis.actors)
        self._scripts: set[bytes] = {at for at, actor in genesis.actors.items() if actor.code == SCRIPT_CODE}
        self._last_sequence = -1
        self._backlog = 0
        self._due: Counter[int] = Counter()
        self._expiring: dict[int, list[bytes]] = {}

    # --- feeding ----------------------------------------------------------------------------------------------------

    def apply(self, block: bytes, receipts: bytes) -> None:
        """Enter the next final block, both parts in their canonical encoding."""
        if self.broken:
            return
        height = self.height + 1
        try:
            sealed, outcome = read_block(block), read_receipts(receipts)
            bodies = tuple(read_transaction(wire) for wire in sealed.transactions)
            if not self._follows(sealed.header, outcome):
                self.broken = True
                return
            self._check_seal(sealed, outcome, bodies)
            context = _Context(height, outcome.proposer, outcome.gc_cycles, outcome.p50_tip, sealed.header, bodies)
            self._enter(context, outcome)
        except Unreadable as error:
            self._violation(CHAIN, height, f"the served bytes cannot be read: {error}")
            self.broken = True
            return
        self.tip_hash = sealed.digest

    def apply_evidence(self, receipts: bytes, block: bytes | None = None) -> None:
        """Enter what a validator's own, rejected execution of the next height gave.

        ``block`` is the final block of that height, where somebody has it: it says which prices were in force.
        """
        if self.broken:
            return
        height = self.height + 1
        try:
            outcome = read_receipts(receipts)
            sealed = read_block(block) if block is not None else None
            bodies = tuple(read_transaction(wire) for wire in sealed.transactions) if sealed is not None else ()
            if outcome.height != height:
                self._violation(CHAIN, height, f"the evidence is for height {outcome.height}")
                self.broken = True
                return
            header = sealed.header if sealed is not None else None
            context = _Context(height, outcome.proposer, outcome.gc_cycles, outcome.p50_tip, header, bodies)
            self._enter(context, outcome)
        except Unreadable as error:
            self._violation(CHAIN, height, f"the evidence cannot be read: {error}")
            self.broken = True

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Pending timers whose trigger height has passed."""
        return self._backlog

    @property
    def parameters(self) -> Parameters:
        """Those in force in the block that was entered last."""
        return self._governed.in_force

    def nonce(self, sender: bytes) -> int:
        """That of a sender's next transaction."""
        return self._nonces[sender]

    @property
    def ids_recomputed(self) -> int:
        """Timers whose id follows from the chain, and was compared."""
        return self.evaluated[TIMER_IDS]

    @property
    def fires(self) -> int:
        return self.states[TimerState.FIRED]

    def held(self) -> int:
        """The sum of all balances."""
        return sum(self.balances.values())

    # --- the chain --------------------------------------------------------------------------------------------------

    def _follows(self, header: Header, outcome: BlockReceipts) -> bool:
        """Whether block and receipts are for the next height; without that there are no books to keep."""
        expected = self.height + 1
        if header.height != expected:
            self._violation(CHAIN, expected, f"a block of height {header.height} where {expected} is due")
            return False
        if outcome.height != expected:
            self._violation(CHAIN, expected, f"the receipts are for height {outcome.height}")
            return False
        return True

    def _check_seal(
        self, block: Block, outcome: BlockReceipts, bodies: tuple[tuple[bytes, TransactionBody], ...]
    ) -> None:
        header = block.header
        hashes = [transaction_hash(wire) for wire in block.transactions]
        validators = self.genesis.validators
        account = address_of(validators[header.proposer]) if 0 <= header.proposer < len(validators) else b""
        receipted = [receipt.transaction_hash for receipt in outcome.transactions]
        senders = [receipt.sender for receipt in outcome.transactions]
        rules = (
            (header.chain_id == self.genesis.chain_id, f"the header is for chain {header.chain_id!r}"),
            (self.tip_hash in (None, header.parent_hash), "the parent hash is not the hash of the block before"),
            (
                transactions_root(hashes) == header.transactions_root,
                "transactions_root is not the transactions' root",
            ),
            (outcome.root == header.receipts_root, "receipts_root is not the receipts' root"),
            (receipted == hashes, f"{len(receipted)} receipts do not belong to the {len(hashes)} transactions"),
            (senders == [sender for sender, _ in bodies], "a receipt names another sender than its transaction"),
            (outcome.proposer == account, f"the tips go to {address_text(outcome.proposer)}, not to the proposer"),
            (
                header.lane_cycles == sum(fire.cycles for fire in outcome.fires)
                and header.lane_cells == sum(fire.cells for fire in outcome.fires),
                "the lane's use in the header is not what the fires used",
            ),
            (
                header.user_cycles == sum(receipt.cycles for receipt in outcome.transactions)
                and header.user_cells == sum(receipt.cells for receipt in outcome.transactions),
                "the transactions' use in the header is not what they were charged for",
            ),
        )
        self.evaluated[CHAIN_LINKS] += 1
        for holds, what in rules:
            if not holds:
                self._violation(CHAIN, header.height, what)
        for sender, body in bodies:
            if body.chain_id != self.genesis.chain_id:
                self._violation(CHAIN, header.height, f"a transaction is for chain {body.chain_id!r}")
            if body.nonce != self._nonces[sender]:
                what = f"nonce {body.nonce} of {address_text(sender)} where {self._nonces[sender]} is due"
                self._violation(CHAIN, header.height, what)
            self._nonces[sender] = body.nonce + 1

    # --- a block ----------------------------------------------------------------------------------------------------

    def _enter(self, context: _Context, outcome: BlockReceipts) -> None:
        """In the block's order: transactions and their tips, expired timers, queries, fires, timers that could not pay,
        the fires' tips, callbacks, messages."""
        self.height = context.height
        self._governed.begin_block()
        self._audit.begin_block(context.height)
        self.jobs.begin_block(context.height)
        self._check_phase(context, outcome)
        self._backlog += self._due.pop(context.height, 0)
        paired = len(context.bodies) == len(outcome.transactions)
        for position, receipt in enumerate(outcome.transactions):
            self._enter_transaction(
                context, receipt, context.bodies[position][1] if paired and context.bodies else None
            )
        self._credit_tips(context, outcome.transactions)
        for destroyed in outcome.destroyed:
            if destroyed.reason != INSUFFICIENT_FUNDS:
                self._enter_destroyed(context, destroyed)
        self.turns.begin_phase(context.height, self.parameters, context.basefees)
        self._check_query_order(context, outcome.queries)
        for query in outcome.queries:
            self._enter_query(context, query)
        self.turns.price()
        insolvent = [destroyed for destroyed in outcome.destroyed if destroyed.reason == INSUFFICIENT_FUNDS]
        for turn in self.turns.merged(outcome.fires, insolvent):
            if isinstance(turn, FireReceipt):
                self._enter_fire(context, turn)
            else:
                self._enter_destroyed(context, turn)
        self._credit_tips(context, outcome.fires)
        self._check_nothing_was_passed_over(context, outcome)
        self.turns.end_phase(outcome.fires)
        self._mailboxes.begin_deferred()
        for callback in outcome.callbacks:
            self._enter_callback(context, callback)
        for what in self.jobs.phase_problems(outcome.callbacks, len(outcome.messages)):
            self._violation(CHAIN, context.height, what)
        self._mailboxes.begin_messages()
        for message in outcome.messages:
            self._enter_message(context, message)
        for what in self._mailboxes.phase_problems(self.jobs.holds_messages_up, self.parameters):
            self._violation(CHAIN, context.height, what)
        self._check_expired_are_gone(context)
        if context.header is not None:
            auctioned = self.genesis.runs_auction(context.height)
            self._basefees = following_basefees(context.header, self.parameters, auctioned)
        self._note_figures(context, outcome)

    def _note_figures(self, context: _Context, outcome: BlockReceipts) -> None:
        reverted = sum(not receipt.ok for receipt in outcome.transactions)
        receipts: tuple[TransactionReceipt | FireReceipt | CallbackReceipt | MessageReceipt, ...]
        receipts = (*outcome.transactions, *outcome.fires, *outcome.callbacks, *outcome.messages)
        self.transactions += len(outcome.transactions)
        self.messages += len(outcome.messages)
        self.queries += len(outcome.queries)
        self.reverted += reverted
        header = context.header
        if header is None:
            return
        self.figures.append(
            BlockFigures(
                height=context.height,
                transactions=len(outcome.transactions),
                reverted=reverted,
                scheduled=sum(len(receipt.effects.scheduled) for receipt in receipts),
                fires=len(outcome.fires),
                destroyed=len(outcome.destroyed),
                messages=len(outcome.messages),
                queries=len(outcome.queries),
                pending=len(self.pending),
                backlog=self._backlog,
                basefee_cycle=context.basefee_cycle,
                basefee_cell=context.basefee_cell,
                basefee_lane_timer=context.basefee_lane_timer,
                lane_cycles=header.lane_cycles,
                lane_limit=self.parameters.lane_timer_cycles,
                user_cycles=header.user_cycles,
            )
        )

    # --- transactions -----------------------------------------------------------------------------------------------

    def _enter_transaction(self, context: _Context, receipt: TransactionReceipt, body: TransactionBody | None) -> None:
        name = f"transaction {receipt.transaction_hash.hex()[:16]}"
        burned, tip = _amount(receipt.burned), _amount(receipt.tip)
        self._check_outcome(context, name, receipt.ok, receipt.error, receipt.effects)
        if body is not None:
            self._check_transaction_fee(context, name, receipt, body)
            self._check_value(context, name, receipt, body)
            if receipt.ok and isinstance(body.action, Deploy):
                self._enter_deployed(context, name, receipt, body)
            if isinstance(body.action, System):
                self._enter_instruction(context, name, receipt, body.action)
        self._pay(receipt.sender, burned, tip)
        self.burned_cell += receipt.cells * context.basefee_cell
        script = body.action if body is not None and isinstance(body.action, Call) else None
        source = script.payload if script is not None and script.to in self._scripts else None
        self._check_sponsored(context, name, receipt, body)
        actor = None if script is None else script.to
        self._enter_effects(context, receipt.effects, actor, source, receipt.sender)
        self._enter_transactions_jobs(context, name, receipt, body)
        self._check_not_negative(context, name, receipt.sender, receipt.effects.movements)

    def _check_sponsored(
        self, context: _Context, name: str, receipt: TransactionReceipt, body: TransactionBody | None
    ) -> None:
        """What its sender pays for timers keeps to what it allowed (SPEC §4, step 6)."""
        sponsored = [item for item in receipt.effects.scheduled if item.fee_payer != item.actor]
        granted = sum(0 if item.payer_cap is None else _amount(item.payer_cap) for item in sponsored)
        if any(item.fee_payer != receipt.sender or not item.payer_cap for item in sponsored):
            self._violation(CONSERVATION, context.height, f"{name} scheduled at the cost of somebody who did not ask")
        elif body is not None and granted > _amount(body.timer_allowance):
            what = f"{name} scheduled timers for {granted} of its sender's, who allowed {_amount(body.timer_allowance)}"
            self._violation(CONSERVATION, context.height, what)

    def _enter_transactions_jobs(
        self, context: _Context, name: str, receipt: TransactionReceipt, body: TransactionBody | None
    ) -> None:
        """The jobs that it requested, or its part as a call of the runner contract."""
        call = body.action if body is not None and isinstance(body.action, Call) else None
        if call is not None and call.to == RUNNER_CONTRACT_ADDRESS:
            sender, effects = receipt.sender, receipt.effects
            for what in self.jobs.contract_problems(sender, call, receipt.ok, receipt.error, effects):
                self._violation(CHAIN, context.height, f"{name} {what}")
            return
        actor = call.to if call is not None else None if body is None else receipt.sender
        base = self.parameters.tx_base_cycles
        run = Run(actor, receipt.cycles, receipt.cells, base, MESSAGES_PER_TRANSACTION)
        self._enter_jobs(context, name, run, receipt.effects)
        if body is None:
            for what in self.jobs.enter_contract_events(receipt.effects):
                self._violation(CHAIN, context.height, f"{name} {what}")

    def _enter_jobs(self, context: _Context, name: str, run: Run, effects: Effects) -> None:
        for what in self.jobs.run_problems(run, effects):
            self._violation(CHAIN, context.height, f"{name} {what}")
        for what in self.jobs.payment_problems(run, effects):
            self._violation(CONSERVATION, context.height, f"{name} {what}")
        for what in self._mailboxes.sent_problems(run, effects, self.parameters):
            self._violation(CONSERVATION, context.height, f"{name} {what}")

    def _check_transaction_fee(
        self, context: _Context, name: str, receipt: TransactionReceipt, body: TransactionBody
    ) -> None:
        self.evaluated[TRANSACTION_FEES] += 1
        basefee = context.basefee_cycle
        headroom = amount(body.max_fee_per_cycle, PRICE_LIMIT) - basefee
        if headroom < 0:
            self._violation(CONSERVATION, context.height, f"{name} was taken below the basefee")
        if receipt.cycles > body.gas_limit or receipt.cells > body.cells_limit:
            self._violation(CONSERVATION, context.height, f"{name} used more than its limits")
        expected = receipt.cycles * basefee + receipt.cells * context.basefee_cell
        self._check_charge(context, name, "burned", _amount(receipt.burned), expected)
        tip_per_cycle = max(0, min(amount(body.max_priority_fee_per_cycle, PRICE_LIMIT), headroom))
        self._check_charge(context, name, "tipped", _amount(receipt.tip), receipt.cycles * tip_per_cycle)

    def _check_value(self, context: _Context, name: str, receipt: TransactionReceipt, body: TransactionBody) -> None:
        """A transaction's value moves once, first and only when it succeeds; all else moves from the called actor."""
        self.evaluated[VALUES] += 1
        if not receipt.ok:
            return
        action = body.action
        value = 0 if isinstance(action, System) else _amount(body.value)
        target = action.to if isinstance(action, Transfer | Call) else receipt.created
        movements = list(receipt.effects.movements)
        if value:
            first = movements.pop(0) if movements else None
            if first is None or (first.source, first.target, _amount(first.amount)) != (receipt.sender, target, value):
                self._violation(CONSERVATION, context.height, f"{name} did not move its value of {value}")
        owner = action.to if isinstance(action, Call) else None
        self._check_sources(context, name, movements, owner)

    def _enter_deployed(self, context: _Context, name: str, receipt: TransactionReceipt, body: TransactionBody) -> None:
        if receipt.created != deployed_address(receipt.sender, body.nonce):
            self._violation(CHAIN, context.height, f"{name} deployed to a wrong address")
        if not isinstance(body.action, Deploy):
            return
        self._actors.add(receipt.created)
        if problem := self._agents.deployed(receipt.created, body.action.code):
            self._violation(CHAIN, context.height, f"{name} {problem}")
        if body.action.code == SCRIPT_CODE:
            self._scripts.add(receipt.created)

    def _enter_instruction(self, context: _Context, name: str, receipt: TransactionReceipt, action: System) -> None:
        """Given by one who may, and done as it says (SPEC §12)."""
        instruction, changes = action.instruction, receipt.effects.timer_changes
        if isinstance(instruction, UpdateTimerConfig):
            self._enter_update(context, name, receipt, instruction)
        if not receipt.ok:
            return
        if receipt.sender not in self.genesis.system_deployers:
            what = f"{name} gave a system instruction, which {address_text(receipt.sender)} must not"
            self._violation(CHAIN, context.height, what)
        expected: tuple[Cancelled | Extended, ...] = ()
        if isinstance(instruction, CancelTimer) and instruction.timer_id in self.pending:
            expected = (Cancelled(instruction.timer_id),)
        elif isinstance(instruction, ExtendTimer):
            latest = context.height + self.parameters.max_ttl
            expected = (Extended(instruction.timer_id, min(instruction.new_expires_at, latest)),)
        if changes != expected or receipt.effects.scheduled or receipt.effects.movements:
            self._violation(TIMERS, context.height, f"{name} did something else than its system instruction says")

    def _enter_update(
        self, context: _Context, name: str, receipt: TransactionReceipt, instruction: UpdateTimerConfig
    ) -> None:
        changed = self._governed.changed_by(instruction.config)
        if receipt.ok and changed is not None:
            self._governed.change(changed)
        elif receipt.ok:
            self._violation(CHAIN, context.height, f"{name} changed parameters in a way that is not allowed")
        elif changed is not None and receipt.error == "ConfigInvalid":
            self._violation(CHAIN, context.height, f"{name} was refused a change of parameters that is allowed")

    # --- the timer phase ----------------------------------------------------------------------------------------------

    def _check_phase(self, context: _Context, outcome: BlockReceipts) -> None:
        """What the phase as a whole must keep to; before activation, and after, SPEC §13."""
        self.evaluated[LANE_LIMITS] += 1
        lane, height = self.parameters.lane_timer_cycles, context.height
        if sum(fire.cycles for fire in outcome.fires) > lane:
            self._violation(TIMERS, height, f"the fires used more than the lane's {lane} cycles")
        self._check_collection(context, outcome)
        if context.basefees is None:
            return
        for name, said, expected in zip(Basefees._fields, context.basefees, self._basefees, strict=True):
            if said != expected:
                what = f"basefee_{name} is {said}, the block before gives {expected}"
                self._violation(CONSERVATION, height, what)
        p50_tip = amount(context.p50_tip, PRICE_LIMIT)
        if p50_tip != self.turns.p50_tip:
            what = f"the median tip is {p50_tip}, the fires of the block before give {self.turns.p50_tip}"
            self._violation(CONSERVATION, height, what)

    def _check_collection(self, context: _Context, outcome: BlockReceipts) -> None:
        """Destroying timers is counted, and keeps to its budget: the expired ones leave the scan's share alone."""
        parameters = self.parameters
        cost, budget = parameters.gc_cycles_per_removal, parameters.timer_gc_cycles
        expired = sum(destroyed.reason == EXPIRED for destroyed in outcome.destroyed)
        if context.gc_cycles < cost * len(outcome.destroyed):
            what = f"destroying {len(outcome.destroyed)} timers at {cost} each counts {context.gc_cycles} cycles only"
            self._violation(TIMERS, context.height, what)
        if cost * expired > budget - parameters.scan_limit * cost or cost * len(outcome.destroyed) > budget:
            what = f"{len(outcome.destroyed)} timers were destroyed ({expired} expired), beyond the budget of {budget}"
            self._violation(TIMERS, context.height, what)

    def _check_query_order(self, context: _Context, queries: tuple[QueryReceipt, ...]) -> None:
        """Agents are asked about the timers whose turn it is, in that order, as far as the budget reaches (SPEC §9)."""
        candidates = self.turns.candidates()
        if candidates is None:
            return
        self.evaluated[QUERY_ORDER] += len(queries)
        for what in self._audit.order_problems(queries, candidates):
            self._violation(TIMERS, context.height, what)

    def _enter_query(self, context: _Context, query: QueryReceipt) -> None:
        name = f"the query about timer {_short(query.timer_id)}"
        burned = _amount(query.burned)
        life = self.pending.get(query.timer_id)
        if life is None or life.actor != query.actor or not life.trigger_height <= context.height <= life.expires_at:
            self._violation(TIMERS, context.height, f"{name} is about none that was due and its actor's")
        basefee = None if context.header is None else context.basefee_cycle
        for what in self._audit.problems(query, self.balances.get(query.actor, 0), basefee):
            self._violation(CONSERVATION, context.height, f"{name} {what}")
        for what in self.turns.queried(query):
            self._violation(TIMERS, context.height, f"{name} {what}")
        self._check_charge(context, name, "burned", burned, query.cycles * context.basefee_cycle)
        self._pay(query.actor, burned, 0)
        self._check_not_negative(context, name, query.actor, ())

    # --- callbacks and messages -------------------------------------------------------------------------------------

    def _enter_callback(self, context: _Context, callback: CallbackReceipt) -> None:
        """One that ran. Whoever requested its job had paid for it; nobody pays now."""
        name = f"the callback of job {_short(callback.job_id)}"
        for what in self.jobs.callback_problems(callback):
            self._violation(CHAIN, context.height, f"{name} {what}")
        self._enter_deferred(context, name, callback, callback.actor, callback.job_id)
        self._mailboxes.enter_callback(callback, self.parameters)
        for what in self.jobs.settlement_problems(callback):
            self._violation(CHAIN, context.height, f"{name} {what}")

    def _enter_message(self, context: _Context, message: MessageReceipt) -> None:
        """One that ran. Whoever sent it had paid for it; nobody pays now."""
        name = f"a message to {address_text(message.to)}"
        if message.to not in self._actors:
            self._violation(CHAIN, context.height, f"{name} ran, where there is no actor")
        for what in self._mailboxes.message_problems(message, self.parameters):
            self._violation(CHAIN, context.height, f"{name} {what}")
        self._enter_deferred(context, name, message, message.to)

    def _enter_deferred(
        self,
        context: _Context,
        name: str,
        receipt: CallbackReceipt | MessageReceipt,
        actor: bytes,
        callback_of: bytes = b"",
    ) -> None:
        """What a run that was paid for in advance used and left behind."""
        parameters = self.parameters
        base = parameters.message_base_cycles
        self._check_outcome(context, name, receipt.ok, receipt.error, receipt.effects)
        if not base <= receipt.cycles <= parameters.message_cycles:
            self._violation(CONSERVATION, context.height, f"{name} used {receipt.cycles} cycles, which none can")
        if receipt.cells > parameters.message_cells:
            self._violation(CONSERVATION, context.height, f"{name} used {receipt.cells} cells, which none can")
        self._check_sources(context, name, receipt.effects.movements, actor)
        self._check_own_payer(context, name, receipt.effects)
        self._enter_effects(context, receipt.effects, actor, None)
        run = Run(actor, receipt.cycles, receipt.cells, base, MESSAGES_PER_DEFERRED_RUN, callback_of)
        self._enter_jobs(context, name, run, receipt.effects)
        self._check_not_negative(context, name, actor, receipt.effects.movements)

    # --- fires and destroyed timers ---------------------------------------------------------------------------------

    def _enter_fire(self, context: _Context, fire: FireReceipt) -> None:
        name = f"fire of timer {_short(fire.timer_id)}"
        offer = self.turns.offer(fire.timer_id)
        life = self._end(context, fire.timer_id, TimerState.FIRED)
        payload = None if life is None else life.payload
        if life is not None:
            life.payload = None
            self._check_fire_time(context, fire, life)
            if fire.fee_payer != life.terms.fee_payer:
                what = f"{name} was paid by {address_text(fire.fee_payer)}, its schedule names another"
                self._violation(CONSERVATION, context.height, what)
        if offer is not None:
            self._check_turn(context, fire, offer, name)
        self.turns.fired(fire, offer)
        self._check_outcome(context, name, fire.ok, fire.error, fire.effects)
        self._check_fire_fee(context, name, fire)
        self._check_fire_limits(context, name, fire)
        self._check_sources(context, name, fire.effects.movements, fire.actor)
        self._check_own_payer(context, name, fire.effects)
        self._pay(fire.fee_payer, _amount(fire.burned), _amount(fire.tip))
        self.burned_cell += fire.cells * context.basefee_cell
        self.burned_lane_timer += fire.cycles * (self._lane_price(context) or 0)
        script = handler_input(payload) if payload is not None and fire.actor in self._scripts else None
        self._enter_effects(context, fire.effects, fire.actor, script)
        base = self.parameters.fire_base_cycles
        run = Run(fire.actor, fire.cycles, fire.cells, base, MESSAGES_PER_DEFERRED_RUN)
        self._enter_jobs(context, name, run, fire.effects)
        self._check_not_negative(context, name, fire.fee_payer, fire.effects.movements)

    def _check_turn(self, context: _Context, fire: FireReceipt, offer: Offer, name: str) -> None:
        """Its turn had come, at the price that its terms give, and its payer could pay for all of it."""
        for what in self.turns.take_turn(offer):
            self._violation(TIMERS, context.height, f"{name} {what}")
        tip = amount(fire.tip_per_cycle, PRICE_LIMIT)
        if offer.passes and tip != offer.tip:
            what = f"{name} tips {tip} a cycle, where its terms and prices give {offer.tip}"
            self._violation(CONSERVATION, context.height, what)
        if fire.cycles > offer.gas_limit:
            self._violation(TIMERS, context.height, f"{name} used {fire.cycles} cycles of at most {offer.gas_limit}")
        if (available := self._available(offer)) < offer.max_cost:
            what = f"{name} may cost {offer.max_cost}, which its payer did not have: {available}"
            self._violation(CONSERVATION, context.height, what)

    def _available(self, offer: Offer) -> int:
        """What the payer of a timer has for it."""
        balance = self.balances.get(offer.terms.fee_payer, 0)
        return balance if offer.terms.payer_cap is None else min(balance, offer.terms.payer_cap)

    def _check_fire_time(self, context: _Context, fire: FireReceipt, life: TimerLife) -> None:
        self.evaluated[FIRE_TIMES] += 1
        name = _short(fire.timer_id)
        if context.height < life.trigger_height:
            early = life.trigger_height - context.height
            what = f"timer {name} fired {early} blocks before its trigger height {life.trigger_height}"
            self._violation(TIMERS, context.height, what)
        elif context.height > life.expires_at:
            self._violation(TIMERS, context.height, f"timer {name} fired after it expired at {life.expires_at}")
        self.lateness[max(0, context.height - life.trigger_height)] += 1
        if (fire.actor, fire.trigger_height, fire.sequence) != (life.actor, life.trigger_height, life.sequence):
            what = f"timer {name} fired with another actor, trigger height or sequence than it was scheduled with"
            self._violation(TIMERS, context.height, what)

    def _check_fire_fee(self, context: _Context, name: str, fire: FireReceipt) -> None:
        self.evaluated[FIRE_FEES] += 1
        tip_per_cycle = amount(fire.tip_per_cycle, PRICE_LIMIT)
        self._check_charge(context, name, "tipped", _amount(fire.tip), fire.cycles * tip_per_cycle)
        if context.header is None:
            return
        price = self._lane_price(context)
        if price is None and tip_per_cycle:
            self._violation(CONSERVATION, context.height, f"{name} tipped in a block that runs first in, first out")
        expected = fire.cycles * (context.basefee_cycle + (price or 0)) + fire.cells * context.basefee_cell
        self._check_charge(context, name, "burned", _amount(fire.burned), expected)

    def _check_fire_limits(self, context: _Context, name: str, fire: FireReceipt) -> None:
        parameters = self.parameters
        cap = fire_cap(parameters, self.genesis.runs_auction(context.height))
        if fire.cycles > cap:
            self._violation(TIMERS, context.height, f"{name} used {fire.cycles} cycles of at most {cap}")
        if fire.cells > parameters.max_cells_per_fire:
            what = f"{name} used {fire.cells} cells of at most {parameters.max_cells_per_fire}"
            self._violation(TIMERS, context.height, what)

    def _enter_destroyed(self, context: _Context, destroyed: DestroyedReceipt) -> None:
        if destroyed.reason not in (EXPIRED, INSUFFICIENT_FUNDS):
            what = f"timer {_short(destroyed.timer_id)} was destroyed for an unknown reason, {destroyed.reason[:40]!r}"
            self._violation(TIMERS, context.height, what)
        expired = destroyed.reason == EXPIRED
        self.evaluated[EXPIRED_GONE] += expired
        if destroyed.reason == INSUFFICIENT_FUNDS and (offer := self.turns.offer(destroyed.timer_id)) is not None:
            self._check_insolvency(context, destroyed, offer)
        life = self._end(context, destroyed.timer_id, TimerState.EXPIRED if expired else TimerState.INSUFFICIENT_FUNDS)
        if life is None:
            return
        life.payload = None
        if context.height < life.trigger_height:
            what = f"timer {_short(life.timer_id)} was destroyed before its trigger height {life.trigger_height}"
            self._violation(TIMERS, context.height, what)
        if expired and context.height <= life.expires_at:
            what = f"timer {_short(life.timer_id)} was destroyed as expired, but lives to {life.expires_at}"
            self._violation(TIMERS, context.height, what)

    def _check_insolvency(self, context: _Context, destroyed: DestroyedReceipt, offer: Offer) -> None:
        """Its turn had come, and its payer could not pay for all of it."""
        name = f"timer {_short(destroyed.timer_id)}"
        for what in self.turns.take_turn(offer):
            self._violation(TIMERS, context.height, f"{name} {what}")
        available = self._available(offer)
        if available >= offer.max_cost:
            what = f"{name} was destroyed for insufficient funds, though its payer had {available} of {offer.max_cost}"
            self._violation(TIMERS, context.height, what)
        said = dict(destroyed.event.fields)
        expected = {"needed": str(offer.max_cost), "balance": str(available)}
        for field, value in (expected | {"fee_payer": address_text(offer.terms.fee_payer)}).items():
            if said.get(field) != value:
                what = f"{name} was destroyed with {field} {said.get(field, 'left out')[:60]}, it was {value}"
                self._violation(TIMERS, context.height, what)

    def _lane_price(self, context: _Context) -> int | None:
        """What a lane cycle costs on top of a cycle (SPEC §7); ``None`` where there is no auction, or no header."""
        if context.basefees is None or not self.genesis.runs_auction(context.height):
            return None
        return lane_price(context.basefees, self.parameters)

    def _check_nothing_was_passed_over(self, context: _Context, outcome: BlockReceipts) -> None:
        judged, problems = self.turns.judge(outcome.gc_cycles)
        self.evaluated[PASSED_OVER] += judged + (len(outcome.fires) if context.header is not None else 0)
        for key, why in problems:
            self._violation(TIMERS, context.height, f"timer {_short(key)} was due and passed over, {why}")

    # --- timers -----------------------------------------------------------------------------------------------------

    def _enter_effects(
        self,
        context: _Context,
        effects: Effects,
        actor: bytes | None,
        script: bytes | None,
        sender: bytes | None = None,
    ) -> None:
        """What a handler left behind. ``actor`` is whose it was, ``None`` where that is unknown or anyone's timers may
        change; ``script`` is its input, where the handler is a script's; ``sender`` the transaction's, where it was in
        one.
        """
        for movement in effects.movements:
            moved = _amount(movement.amount)
            self.balances[movement.source] = self.balances.get(movement.source, 0) - moved
            self.balances[movement.target] = self.balances.get(movement.target, 0) + moved
        terms = None
        if script is not None and effects.scheduled:
            terms = scheduled_terms(script)
        if terms is not None and len(terms) != len(effects.scheduled):
            terms = None  # some schedule was refused and caught: which one cannot be told
        for position, item in enumerate(effects.scheduled):
            known = terms[position] if terms is not None and item.actor == actor else None
            self._check_owner(context, item.timer_id, item.actor, actor, "scheduled")
            self._schedule(context, item, known)
            if known is not None:
                self._check_asked(context, item, known, sender or item.actor)
        for change in effects.timer_changes:
            if isinstance(change, Bidder):
                self._enter_bidder(context, change, effects, actor)
                continue
            life = self.pending.get(change.timer_id)
            if life is not None:
                self._check_owner(context, change.timer_id, life.actor, actor, "changed")
            if isinstance(change, Cancelled):
                self._cancel(context, change)
            else:
                self._extend(context, change)

    def _enter_bidder(self, context: _Context, change: Bidder, effects: Effects, actor: bytes | None) -> None:
        """An agent that was named for a timer that this run scheduled, or for those of the actor that ran (SPEC §9)."""
        owners = {item.timer_id: item.actor for item in effects.scheduled}
        if actor is None and not change.timer_id:
            return  # whose run it was is not known
        owner = owners.get(change.timer_id) if change.timer_id else actor
        if owner is None or owner in self._scripts:
            what = f"an agent was named for {_short(change.timer_id) or 'the timers of an actor'} by who must not"
            self._violation(TIMERS, context.height, what)
            return
        for what in self._agents.named(owner, change):
            self._violation(TIMERS, context.height, f"{address_text(owner)} {what}")

    def _check_owner(self, context: _Context, key: bytes, owner: bytes, actor: bytes | None, verb: str) -> None:
        if actor is not None and actor != owner:
            what = f"timer {_short(key)} of {address_text(owner)} was {verb} by {address_text(actor)}"
            self._violation(TIMERS, context.height, what)

    def _check_end(self, context: _Context, key: bytes, expires_at: int) -> None:
        latest = context.height + self.parameters.max_ttl
        if expires_at > latest:
            what = f"timer {_short(key)} was given the end {expires_at}, the latest is {latest}"
            self._violation(TIMERS, context.height, what)

    def _check_terms(self, context: _Context, item: Scheduled, terms: Terms, script: ScheduledTerms | None) -> None:
        """A timer's terms are ones that a schedule may have (SPEC §4, steps 7 and 9), and those that were asked for."""
        name, parameters = f"timer {_short(item.timer_id)}", self.parameters
        cap = fire_cap(parameters, self.genesis.runs_auction(context.height))
        if terms.gas_limit is not None and not parameters.min_gas_limit_per_timer <= terms.gas_limit <= cap:
            self._violation(TIMERS, context.height, f"{name} was scheduled with a gas limit of {terms.gas_limit}")
        price = self._lane_price(context)
        least = None if price is None else price + (terms.priority or 0)
        if least is not None and terms.max_fee is not None and terms.max_fee < least:
            what = f"{name} was scheduled with {terms.max_fee} a cycle, where lane price and priority take {least}"
            self._violation(TIMERS, context.height, what)
        if script is not None and not terms.are_those_of(script):
            self._violation(TIMERS, context.height, f"{name} has other terms than its schedule says")

    def _check_asked(self, context: _Context, item: Scheduled, script: ScheduledTerms, sender: bytes) -> None:
        """A timer's trigger height, end and payer are what its script asked for (SPEC §4, steps 6 and 8)."""
        latest = context.height + self.parameters.max_ttl
        trigger = script.trigger_height(context.height)
        end = latest if script.expires_at is None else min(script.expires_at, latest)
        problems = []
        if item.trigger_height != trigger:
            problems.append(f"is for height {item.trigger_height}, its schedule gives {trigger}")
        if item.expires_at != end:
            problems.append(f"expires at {item.expires_at}, its schedule gives {end}")
        payer = script.payer(item.actor, sender)
        if item.fee_payer != payer:
            problems.append(f"is paid by {address_text(item.fee_payer)}, its schedule names {address_text(payer)}")
        for problem in problems:
            self._violation(TIMERS, context.height, f"timer {_short(item.timer_id)} {problem}")

    def _schedule(self, context: _Context, item: Scheduled, script: ScheduledTerms | None) -> None:
        name, height = _short(item.timer_id), context.height
        nonce = self._schedule_nonces[item.actor]
        self._schedule_nonces[item.actor] += 1
        if item.timer_id in self.timers:
            self._violation(TIMERS, height, f"timer {name} was scheduled a second time")
            return
        if item.trigger_height <= height:
            self._violation(TIMERS, height, f"timer {name} was scheduled for height {item.trigger_height}")
        if item.expires_at < item.trigger_height:
            self._violation(TIMERS, height, f"timer {name} was scheduled to expire before its trigger height")
        self._check_end(context, item.timer_id, item.expires_at)
        if item.sequence <= self._last_sequence:
            self._violation(TIMERS, height, f"timer {name} has sequence {item.sequence} after {self._last_sequence}")
        self._last_sequence = max(self._last_sequence, item.sequence)
        payload = None if script is None else script.payload
        if payload is not None:
            self.evaluated[TIMER_IDS] += 1
            if timer_id(item.actor, item.trigger_height, payload, nonce) != item.timer_id:
                self._violation(TIMERS, height, f"timer {name} has another id than its schedule gives")
        kept = payload if payload is not None and len(payload) <= MAX_PAYLOAD_KEPT_BYTES else None
        terms = Terms.of(item)
        self._check_terms(context, item, terms, script)
        life = TimerLife(
            item.timer_id, item.actor, height, item.trigger_height, item.sequence, item.expires_at, terms, payload=kept
        )
        self.timers[item.timer_id] = self.pending[item.timer_id] = life
        self.turns.scheduled(item, terms, life)
        self.states[TimerState.PENDING] += 1
        self._expiring.setdefault(item.expires_at, []).append(item.timer_id)
        if item.trigger_height <= height:
            self._backlog += 1
        else:
            self._due[item.trigger_height] += 1

    def _cancel(self, context: _Context, change: Cancelled) -> None:
        life = self._end(context, change.timer_id, TimerState.CANCELLED)
        if life is not None:
            life.payload = None

    def _extend(self, context: _Context, change: Extended) -> None:
        name = _short(change.timer_id)
        life = self.pending.get(change.timer_id)
        if life is None:
            self._violation(TIMERS, context.height, f"timer {name} was extended, but is not pending")
            return
        if change.expires_at <= life.expires_at:
            self._violation(TIMERS, context.height, f"timer {name} was extended to an earlier end")
        self._check_end(context, change.timer_id, change.expires_at)
        life.expires_at = change.expires_at
        life.extensions += 1
        self._expiring.setdefault(change.expires_at, []).append(change.timer_id)

    def _end(self, context: _Context, key: bytes, state: TimerState) -> TimerLife | None:
        """Take a timer off the pending ones. ``None`` where it is not there, which is a violation."""
        life = self.pending.pop(key, None)
        if life is None:
            ended = self.timers.get(key)
            word = "destroyed" if state in (TimerState.EXPIRED, TimerState.INSUFFICIENT_FUNDS) else state.value
            before = (
                "was never scheduled"
                if ended is None
                else f"had {_ended_words(ended.state)} at height {ended.ended_at}"
            )
            verb = "fired" if state is TimerState.FIRED else f"was {word}"
            self._violation(TIMERS, context.height, f"timer {_short(key)} {verb}, but {before}")
            return None
        life.state, life.ended_at = state, context.height
        self.turns.ended(key)
        self._agents.ended(key)
        self.states[TimerState.PENDING] -= 1
        self.states[state] += 1
        if life.trigger_height <= context.height:
            self._backlog -= 1
        else:
            self._due[life.trigger_height] -= 1
        return life

    def _check_expired_are_gone(self, context: _Context) -> None:
        """Every due timer past its end is destroyed, unless the garbage collection's budget ran out (SPEC §6)."""
        forgotten = [key for key in self._expiring.pop(context.height - 1, ()) if self._is_expired(key, context.height)]
        if not forgotten:
            return
        parameters = self.parameters
        budget = parameters.timer_gc_cycles - parameters.scan_limit * parameters.gc_cycles_per_removal
        if context.gc_cycles + parameters.gc_cycles_per_removal > budget:
            self._expiring.setdefault(context.height, []).extend(forgotten)
            return
        self.evaluated[EXPIRED_GONE] += len(forgotten)
        for key in forgotten:
            what = (
                f"timer {_short(key)} was forgotten: it expired at {self.pending[key].expires_at} and is still pending"
            )
            self._violation(TIMERS, context.height, what)

    def _is_expired(self, key: bytes, height: int) -> bool:
        life = self.pending.get(key)
        return life is not None and life.expires_at < height

    @property
    def burned_cycle(self) -> int:
        """What was burned at the cycle's basefee: by transactions, fires and queries."""
        return self.burned - self.burned_cell - self.burned_lane_timer

    # --- amounts ----------------------------------------------------------------------------------------------------

    def _pay(self, payer: bytes, burned: int, tip: int) -> None:
        self.balances[payer] = self.balances.get(payer, 0) - burned - tip
        self.burned += burned

    def _credit_tips(self, context: _Context, receipts: Iterable[TransactionReceipt | FireReceipt]) -> None:
        tips = sum(_amount(receipt.tip) for receipt in receipts)
        self.tips += tips
        if tips:
            self.balances[context.proposer] = self.balances.get(context.proposer, 0) + tips

    def _check_charge(self, context: _Context, name: str, verb: str, charged: int, expected: int) -> None:
        if (context.header is not None or verb == "tipped") and charged != expected:
            self._violation(
                CONSERVATION, context.height, f"{name} {verb} {charged} where its use and prices give {expected}"
            )

    def _check_outcome(self, context: _Context, name: str, ok: bool, error: str, effects: Effects) -> None:
        if ok and error:
            self._violation(CHAIN, context.height, f"{name} succeeded with error {error[:40]!r}")
        if not ok and (effects.movements or effects.scheduled or effects.timer_changes or effects.events):
            self._violation(CONSERVATION, context.height, f"{name} reverted but left effects behind")

    def _check_sources(self, context: _Context, name: str, movements: Iterable[Movement], owner: bytes | None) -> None:
        for movement in movements:
            if movement.source != owner:
                what = (
                    f"{name} moved {_amount(movement.amount)} of {address_text(movement.source)}, which it does not own"
                )
                self._violation(CONSERVATION, context.height, what)

    def _check_own_payer(self, context: _Context, name: str, effects: Effects) -> None:
        """Outside of transactions nobody but the actor pays for its timers."""
        if any(item.fee_payer != item.actor for item in effects.scheduled):
            self._violation(CONSERVATION, context.height, f"{name} scheduled a timer at somebody else's cost")

    def _check_not_negative(self, context: _Context, name: str, payer: bytes, movements: tuple[Movement, ...]) -> None:
        for address in dict.fromkeys((payer, *(movement.source for movement in movements))):
            balance = self.balances.get(address, 0)
            if balance < 0:
                what = f"{name} left {address_text(address)} with {balance}: it spent what it never had"
                self._violation(CONSERVATION, context.height, what)

    def _violation(self, check: str, height: int, what: str) -> None:
        self.violation_count += 1
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(Violation(check, height, what))


def _amount(data: bytes) -> int:
    return amount(data, FEE_LIMIT)


def _short(key: bytes) -> str:
    return key.hex()[:16]


def _ended_words(state: TimerState) -> str:
    if state is TimerState.INSUFFICIENT_FUNDS:
        return "been destroyed for insufficient funds"
    return "been cancelled" if state is TimerState.CANCELLED else state.value
