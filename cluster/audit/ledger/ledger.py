"""The ledger: recomputes the accounts, timers, jobs and messages of a chain from its genesis and final blocks.

The ledger enters each block in the block's order, and each part of it in the collaborator that owns the state: rules of
the chain and system instructions (:mod:`~cluster.audit.ledger.chain_rules`), timers
(:mod:`~cluster.audit.ledger.timer_register`), the timer phase (:mod:`~cluster.audit.ledger.phase_rules`), accounts
(:mod:`~cluster.audit.ledger.accounts`), jobs (:mod:`~cluster.audit.ledger.jobs`), messages
(:mod:`~cluster.audit.ledger.messages`) and runs of scripts (:mod:`~cluster.audit.ledger.script_runs`). They check as
they go and collect violations in one log. The ledger never raises: the validators that served the blocks may be broken.

The parameters in force are the genesis's, as changed by system instructions. A change takes effect in the next block.
"""

from __future__ import annotations

from typing import cast

from cluster.audit.chain_codec import (
    NO_EFFECTS,
    Block,
    BlockReceipts,
    Call,
    CallbackReceipt,
    Deploy,
    Effects,
    FireReceipt,
    MessageReceipt,
    Movement,
    System,
    TransactionBody,
    TransactionReceipt,
    Transfer,
    Unreadable,
    deployed_address,
    read_block,
    read_receipts,
    read_transaction,
)
from cluster.audit.figures import BlockColumns, BlockMetrics, RunOutcomes
from cluster.audit.ledger.accounts import Accounts, check_charge, check_own_payer, check_result, check_sources
from cluster.audit.ledger.agent_queries import Agents
from cluster.audit.ledger.chain_rules import ChainRules, Instructions, check_lanes
from cluster.audit.ledger.context import CHAIN, CONSERVATION, AuditLog, BlockContext, Part, rules_at
from cluster.audit.ledger.jobs import JobBooks, Run
from cluster.audit.ledger.mechanisms import ChainMechanisms, RunReceipt
from cluster.audit.ledger.messages import MessageBooks
from cluster.audit.ledger.phase_rules import PhaseRules
from cluster.audit.ledger.script_runs import ScriptRuns
from cluster.audit.ledger.timer_phase import INSUFFICIENT_FUNDS, TurnAudit
from cluster.audit.ledger.timer_register import TimerRegister
from cluster.audit.scripts.limits import MESSAGES_A_DEFERRED_RUN, MESSAGES_A_TRANSACTION
from cluster.audit.scripts.script_run import Outcome
from cluster.record.rules import LedgerRule
from spec.encoding import Receipts
from validator.chain.genesis import Genesis
from validator.primitives.types import RUNNER_CONTRACT_ADDRESS, address_text


class Ledger:
    """The auditor's ledger of one chain of final blocks. :meth:`apply` enters the next block.

    Its state and figures, which may be read after any block, are those after the last block entered.
    """

    def __init__(self, genesis: Genesis) -> None:
        self.genesis = genesis
        self.height = 0
        self.blocks = BlockColumns()
        """The metrics of each block that was entered with its header."""
        self.log = AuditLog()
        self.broken = False
        """Whether a block could not be read or had the wrong height. All later blocks are ignored."""
        agents = Agents(genesis)
        self.accounts = Accounts(genesis)
        self.turns = TurnAudit(genesis, agents)
        self.timers = TimerRegister(self.turns, agents, self.accounts)
        self.chain = ChainRules(genesis)
        self.instructions = Instructions(genesis)
        self.jobs = JobBooks(genesis)
        self.outcomes = RunOutcomes()
        self._agents = agents
        self._phase = PhaseRules(genesis, self.turns, agents, self.timers, self.accounts)
        self._mailboxes = MessageBooks()
        self.scripts = ScriptRuns(self.accounts, self.timers, self._mailboxes)
        self._mechanisms = ChainMechanisms(genesis.parameters, self.turns, self.timers.pending)

    # --- feeding ----------------------------------------------------------------------------------------------------

    def apply(self, block: bytes, receipts: bytes) -> None:
        """Check and enter the next final block and its receipts, both given in their canonical encoding."""
        if self.broken:
            return
        height = self.height + 1
        try:
            read, outcome = read_block(block), read_receipts(receipts)
            context = self._context(outcome, read)
            if read.header.height != height:
                self._end(height, f"a block of height {read.header.height} where {height} is due")
            elif outcome.height != height:
                self._end(height, f"the receipts are for height {outcome.height}")
            else:
                self.chain.check(context, read)
                self._enter(context)
                self.chain.tip_hash = read.digest
        except Unreadable as error:
            self._end(height, f"the served bytes cannot be read: {error}")

    def apply_evidence(self, receipts: bytes, block: bytes | None = None) -> None:
        """Check and enter the receipts of the next height that a diverged validator gave as evidence.

        They are of this validator's own execution, which differs from the final block's.

        ``block`` is the final block of that height, if the caller has it: it states the prices in force.
        """
        if self.broken:
            return
        height = self.height + 1
        try:
            outcome = read_receipts(receipts)
            context = self._context(outcome, read_block(block) if block is not None else None)
            if outcome.height != height:
                self._end(height, f"the evidence is for height {outcome.height}")
            else:
                self._enter(context)
        except Unreadable as error:
            self._end(height, f"the evidence cannot be read: {error}")

    def _end(self, height: int, why: str) -> None:
        self.log.found(CHAIN, height, why)
        self.broken = True

    def _context(self, outcome: BlockReceipts, block: Block | None) -> BlockContext:
        parameters, policy = self.instructions.following, rules_at(self.genesis, outcome.height)
        if block is None:
            return BlockContext(outcome, parameters, policy, self.log)
        bodies = tuple(read_transaction(wire) for wire in block.transactions)
        return BlockContext(outcome, parameters, policy, self.log, block.header, bodies)

    # --- a block ----------------------------------------------------------------------------------------------------

    def _enter(self, context: BlockContext) -> None:
        """Check and enter all parts of a block, in their order of execution.

        The order is: transactions and their tips, the timer phase, callbacks, messages. Some policies have the timer
        phase first.
        """
        outcome = context.receipts
        self.height = context.height
        self.instructions.begin_block()
        self.jobs.begin_block(context.height)
        self._phase.check(context)
        check_lanes(context)
        if context.policy.timers_first:
            self._enter_timer_phase(context)
            self._enter_transactions(context)
        else:
            self._enter_transactions(context)
            self.timers.trigger(context, context.height)
            self._enter_timer_phase(context)
        self._mailboxes.begin_deferred()
        for callback in outcome.callbacks:
            self._enter_callback(context, callback)
        for what in self.jobs.phase_problems(outcome.callbacks, len(outcome.messages)):
            context.found(CHAIN, what)
        self._mailboxes.begin_messages()
        for message in outcome.messages:
            self._enter_message(context, message)
        for what in self._mailboxes.phase_problems(self.jobs.holds_messages_up, context.parameters):
            context.found(CHAIN, what)
        self.timers.trigger(context, context.height + 1)
        self.timers.end_block(context)
        self._note_metrics(context)

    def _enter_transactions(self, context: BlockContext) -> None:
        receipts = context.receipts.transactions
        paired = len(context.bodies) == len(receipts)
        for position, receipt in enumerate(receipts):
            self._enter_transaction(
                context, receipt, context.bodies[position][1] if paired and context.bodies else None
            )
        self.accounts.credit_tips(context, receipts)

    def _enter_timer_phase(self, context: BlockContext) -> None:
        """Check and enter expired timers, queries, fires and timers that could not pay, and the fires' tips."""
        outcome = context.receipts
        for destroyed in outcome.destroyed:
            if destroyed.reason != INSUFFICIENT_FUNDS:
                self._phase.destroy(context, destroyed)
        self._phase.begin(context)
        for turn in self._phase.turns(context):
            if isinstance(turn, FireReceipt):
                self._enter_fire(context, turn)
            else:
                self._phase.destroy(context, turn)
        self.accounts.count_burned(context, outcome.fires)
        self.accounts.credit_tips(context, outcome.fires)
        self._phase.end(context)

    def _note_metrics(self, context: BlockContext) -> None:
        header, outcome = context.header, context.receipts
        if header is None:
            return
        receipts: tuple[RunReceipt, ...]
        receipts = (*outcome.transactions, *outcome.fires, *outcome.callbacks, *outcome.messages)
        self._mechanisms.enter(context, receipts, self._mailboxes.holds_back)
        called = [body.action.to if isinstance(body.action, Call) else None for _, body in context.bodies]
        self.outcomes.enter(cast(Receipts, outcome), called)
        self.blocks.append(
            BlockMetrics(
                height=context.height,
                proposer=header.proposer,
                transactions=len(outcome.transactions),
                reverted=sum(not receipt.ok for receipt in outcome.transactions),
                scheduled=sum(len(receipt.effects.scheduled) for receipt in receipts),
                fires=len(outcome.fires),
                destroyed=len(outcome.destroyed),
                messages=len(outcome.messages),
                queries=len(outcome.queries),
                pending=len(self.timers.pending),
                backlog=self.timers.backlog,
                basefee_cycle=context.basefees.cycle,
                basefee_cell=context.basefees.cell,
                basefee_lane_timer=context.basefees.lane_timer,
                lane_cycles=header.lane_cycles,
                lane_limit=context.parameters.lane_timer_cycles,
                user_cycles=header.user_cycles,
            )
        )

    # --- totals -----------------------------------------------------------------------------------------------------

    @property
    def transactions(self) -> int:
        return sum(self.blocks.column("transactions"))

    @property
    def reverted(self) -> int:
        return sum(self.blocks.column("reverted"))

    @property
    def messages(self) -> int:
        return sum(self.blocks.column("messages"))

    @property
    def queries(self) -> int:
        return sum(self.blocks.column("queries"))

    @property
    def longest_paid_wait(self) -> int:
        """The most consecutive blocks that a timer waited at a price that it paid."""
        return self._phase.paid_waits.longest

    # --- transactions -----------------------------------------------------------------------------------------------

    def _enter_transaction(
        self, context: BlockContext, receipt: TransactionReceipt, body: TransactionBody | None
    ) -> None:
        part = Part(context, "transaction", receipt.transaction_hash)
        check_result(part, receipt.ok, receipt.error, receipt.effects)
        if body is not None:
            _check_transaction_fee(part, receipt, body)
            _check_value(part, receipt, body)
            if receipt.ok and isinstance(body.action, Deploy):
                self._enter_deployed(part, receipt, body.nonce, body.action)
            if isinstance(body.action, System):
                self.instructions.enter(part, receipt, body.action, self.timers)
        script = self.scripts.transaction(part, receipt, body)
        self.accounts.pay(receipt.sender, receipt.burned, receipt.tip)
        self.accounts.burned_cell += receipt.cells * context.basefees.cell
        call = body.action if body is not None and isinstance(body.action, Call) else None
        _check_sponsored(part, receipt, body)
        self.accounts.move(receipt.effects.movements)
        payloads = None if script is None else script.payloads
        self.timers.enter(context, receipt.effects, None if call is None else call.to, payloads)
        if call is not None and call.to == RUNNER_CONTRACT_ADDRESS:
            part.found(CHAIN, *self.jobs.contract_problems(call, receipt))
        else:
            actor = call.to if call is not None else None if body is None else receipt.sender
            base = context.parameters.tx_base_cycles
            run = Run(actor, receipt.cycles, receipt.cells, base, MESSAGES_A_TRANSACTION)
            self._enter_jobs(part, run, receipt.effects, script)
            if body is None:
                part.found(CHAIN, *self.jobs.enter_contract_events(receipt.effects))
        self.accounts.check_not_negative(part, receipt.sender, receipt.effects)

    def _enter_deployed(self, part: Part, receipt: TransactionReceipt, nonce: int, action: Deploy) -> None:
        if receipt.created != deployed_address(receipt.sender, nonce):
            part.found(CHAIN, "deployed to a wrong address")
        if problem := self._agents.deployed(receipt.created, action.code):
            part.found(CHAIN, problem)
        self.accounts.deployed(receipt.created, action.code)
        self.turns.window.deployers[receipt.created] = receipt.sender

    def _enter_jobs(self, part: Part, run: Run, effects: Effects, script: Outcome | None) -> None:
        if not effects.events and not effects.messages:
            return
        part.found(CHAIN, *self.jobs.run_problems(run, effects))
        part.found(CONSERVATION, *self.jobs.payment_problems(run, effects))
        payloads = None if script is None else script.sent
        part.found(CONSERVATION, *self._mailboxes.sent_problems(run, effects, part.context.parameters, payloads))

    # --- fires ------------------------------------------------------------------------------------------------------

    def _enter_fire(self, context: BlockContext, fire: FireReceipt) -> None:
        part = Part(context, "fire of timer", fire.timer_id)
        payload, offer = self._phase.fire(part, fire)
        script = self.scripts.fire(part, fire, payload, offer)
        check_result(part, fire.ok, fire.error, fire.effects)
        self._phase.check_fire_cost(part, fire)
        self.accounts.pay(fire.fee_payer, fire.burned, 0 if context.policy.locks_bids else fire.tip)
        if fire.effects is NO_EFFECTS:
            self.accounts.check_not_negative(part, fire.fee_payer)
            return
        check_sources(part, fire.effects.movements, fire.actor)
        check_own_payer(part, fire.effects)
        base = context.parameters.fire_base_cycles
        run = Run(fire.actor, fire.cycles, fire.cells, base, MESSAGES_A_DEFERRED_RUN)
        self._enter_run(part, run, fire.effects, fire.fee_payer, script)

    # --- callbacks and messages -------------------------------------------------------------------------------------

    def _enter_callback(self, context: BlockContext, callback: CallbackReceipt) -> None:
        """Check and enter a callback. No account pays now: the run that requested the job paid for it."""
        part = Part(context, "the callback of job", callback.job_id)
        part.found(CHAIN, *self.jobs.callback_problems(callback))
        self._enter_deferred(part, callback, callback.actor, callback.job_id)
        self._mailboxes.enter_callback(callback, context.parameters)
        part.found(CHAIN, *self.jobs.settlement_problems(callback))

    def _enter_message(self, context: BlockContext, message: MessageReceipt) -> None:
        """Check and enter a message's run. No account pays now: the run that sent the message paid for it."""
        part = Part(context, f"a message to {address_text(message.to)}")
        if message.to not in self.accounts.actors:
            part.found(CHAIN, "ran, where there is no actor")
        part.found(CHAIN, *self._mailboxes.message_problems(message, context.parameters))
        self._enter_deferred(part, message, message.to, script=self.scripts.message(part, message))

    def _enter_deferred(
        self,
        part: Part,
        receipt: CallbackReceipt | MessageReceipt,
        actor: bytes,
        callback_of: bytes = b"",
        script: Outcome | None = None,
    ) -> None:
        """Check and enter a run that was paid for in advance."""
        parameters = part.context.parameters
        base = parameters.message_base_cycles
        check_result(part, receipt.ok, receipt.error, receipt.effects)
        if not base <= receipt.cycles <= parameters.message_cycles:
            part.found(CONSERVATION, f"used {receipt.cycles} cycles, which none can")
        if receipt.cells > parameters.message_cells:
            part.found(CONSERVATION, f"used {receipt.cells} cells, which none can")
        check_sources(part, receipt.effects.movements, actor)
        check_own_payer(part, receipt.effects)
        run = Run(actor, receipt.cycles, receipt.cells, base, MESSAGES_A_DEFERRED_RUN, callback_of)
        self._enter_run(part, run, receipt.effects, actor, script)

    def _enter_run(self, part: Part, run: Run, effects: Effects, payer: bytes, script: Outcome | None) -> None:
        """Check and enter the effects of a fire, a callback or a message.

        ``script`` is the expected outcome if a script ran.
        """
        self.accounts.move(effects.movements)
        self.timers.enter(part.context, effects, run.actor, None if script is None else script.payloads)
        self._enter_jobs(part, run, effects, script)
        self.accounts.check_not_negative(part, payer, effects)


def _check_sponsored(part: Part, receipt: TransactionReceipt, body: TransactionBody | None) -> None:
    """Check that a transaction charges only its sender for timers, within the sender's allowance (SPEC §4, step 6)."""
    sponsored = [item for item in receipt.effects.scheduled if item.fee_payer != item.actor]
    granted = sum(item.payer_cap or 0 for item in sponsored)
    if any(item.fee_payer != receipt.sender or not item.payer_cap for item in sponsored):
        part.found(CONSERVATION, "scheduled at the cost of an account that did not ask")
    elif body is not None and granted > body.timer_allowance:
        part.found(CONSERVATION, f"scheduled timers for {granted} of its sender's, who allowed {body.timer_allowance}")


def _check_transaction_fee(part: Part, receipt: TransactionReceipt, body: TransactionBody) -> None:
    part.context.evaluate(LedgerRule.TRANSACTION_FEES)
    basefees = part.context.basefees
    headroom = body.max_fee_per_cycle - basefees.cycle
    if headroom < 0:
        part.found(CONSERVATION, "was taken below the basefee")
    if receipt.cycles > body.gas_limit or receipt.cells > body.cells_limit:
        part.found(CONSERVATION, "used more than its limits")
    check_charge(part, "burned", receipt.burned, receipt.cycles * basefees.cycle + receipt.cells * basefees.cell)
    tip_per_cycle = max(0, min(body.max_priority_fee_per_cycle, headroom))
    check_charge(part, "tipped", receipt.tip, receipt.cycles * tip_per_cycle)


def _check_value(part: Part, receipt: TransactionReceipt, body: TransactionBody) -> None:
    """Check the movements of a successful transaction.

    The first one moves the transaction's value to its target. All others take money from the called actor.
    """
    part.context.evaluate(LedgerRule.VALUES)
    if not receipt.ok:
        return
    action = body.action
    value = 0 if isinstance(action, System) else body.value
    target = action.to if isinstance(action, Transfer | Call) else receipt.created
    movements = list(receipt.effects.movements)
    if value:
        first = movements.pop(0) if movements else None
        if first != Movement(receipt.sender, target, value):
            part.found(CONSERVATION, f"did not move its value of {value}")
    owner = action.to if isinstance(action, Call) else None
    check_sources(part, movements, owner)
