"""The state transition: one block over its parent's state (SPEC §3).

``Transition.apply`` reads like SPEC's list, one method a step. It is a pure function of the parent's state and the
block's content: no clock, no randomness, no order that depends on hashing. It returns an :class:`Outcome` with all
fields of the header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec.structs import replace

from validator.chain.block import (
    BlockReceipts,
    CallbackReceipt,
    Cancelled,
    Event,
    Extended,
    Header,
    MessageReceipt,
    TransactionReceipt,
    receipts_root,
)
from validator.chain.genesis import Genesis
from validator.chain.records import ACTOR, OVERFLOW, TIMER, Fires, QueuedMessage, Timer, fires_key, supply_key
from validator.chain.transactions import (
    Call,
    CancelTimer,
    Deploy,
    ExtendTimer,
    Instruction,
    System,
    Transaction,
    Transfer,
    UpdateTimerConfig,
    deployed_address,
)
from validator.execution import governance, jobs, mailbox, runner_contract, watching
from validator.execution.bidding import BiddingFigures
from validator.execution.governance import parameters_in_force
from validator.execution.handler_context import HandlerContext, RunResult, run_handler
from validator.execution.jobs import Waiting
from validator.execution.mailbox import MESSAGES_PER_DEFERRED_RUN, MESSAGES_PER_TRANSACTION
from validator.execution.timer_calls import Allowance, LanePrices, SchedulingTerms, extend_any
from validator.execution.timer_phase import TimerPhase
from validator.policies.own import PolicyError, phase_of
from validator.policies.registry import PHASES, Phases
from validator.primitives.codec import pack_uint
from validator.primitives.errors import HandlerFailure, Rejection
from validator.primitives.meter import Meter
from validator.primitives.types import (
    RUNNER_CONTRACT_ADDRESS,
    SYSTEM_PARAMETERS_ADDRESS,
    Address,
    Hash,
    Height,
    ValidatorError,
)
from validator.primitives.user_file import one_line
from validator.pvm.deployment import byte_cycles, deployment, token_cycles
from validator.pvm.dispatch import program
from validator.pvm.language.subset import ProgramError
from validator.pvm.runtime.machine import PythonVm, Vm
from validator.scheduler.fairness import FairnessWeights, weigh
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.pricing import BASEFEE_SLOPE, next_basefee
from validator.state import View
from validator.state.working_set import Change, World, batch_of


class NotAdmitted(Exception):
    """A transaction is not allowed in this block (SPEC §2, admission). ``name`` is the error's name in SPEC §17."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class BlockContext:
    """The inputs of a block's execution other than its transactions and its parent's state."""

    height: Height
    proposer: Address
    """Account that gets the tips."""
    genesis: Genesis
    explains: bool = False
    """Whether the outcome explains why each remaining timer was carried; for tools."""


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A decoded transaction with its wire form and hash."""

    hash: Hash
    wire: bytes
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class BlockResult:
    """What a validator needs of a block's execution: the state and the receipts, and the header's fields."""

    view: View
    changes: list[Change]
    receipts: BlockReceipts
    receipts_root: Hash
    prices: LanePrices
    basefee_lane_timer: int
    lane_cycles: int
    lane_cells: int
    user_cycles: int
    user_cells: int
    live_timers: int
    backlog: int
    """Number of due timers that are live after the block."""

    @property
    def state_root(self) -> Hash:
        return self.view.root

    def matches(self, header: Header) -> str | None:
        """The first field in which the header differs from execution; ``None`` if all match."""
        return next((name for name, value in self.header_fields().items() if getattr(header, name) != value), None)

    def header_fields(self) -> dict[str, int | bytes]:
        """The header's fields by execution, in the order of comparison."""
        return {
            "height": self.receipts.height,
            "basefee_cycle": pack_uint(self.prices.basefee_cycle),
            "basefee_cell": pack_uint(self.prices.basefee_cell),
            "basefee_lane_timer": pack_uint(self.basefee_lane_timer),
            "lane_cycles": self.lane_cycles,
            "lane_cells": self.lane_cells,
            "user_cycles": self.user_cycles,
            "user_cells": self.user_cells,
            "receipts_root": self.receipts_root,
            "state_root": self.state_root,
        }


@dataclass(frozen=True, slots=True)
class Outcome(BlockResult):
    """The result of a block's execution by :class:`Transition`, with figures for observers and tools."""

    burned: int
    """Amount that this block burned, all lanes."""
    tips: int
    carried: dict[bytes, str]
    """Why each remaining timer was carried, by timer id, if the context asks for it."""
    bidding: BiddingFigures
    events: list[Event]
    """Every event of the block, in order."""


@dataclass(slots=True)
class UserLane:
    """What a block's transactions have used of their lanes so far, and the amounts that they burned and tipped."""

    cycles: int = 0
    """Cycles of all transactions."""
    system_cycles: int = 0
    """Cycles of system instructions, which have a separate lane."""
    cells: int = 0
    burned: int = 0
    tips: int = 0


@dataclass(slots=True)
class DeferredLane:
    """The lane of callbacks and messages in one block.

    ``used``: the cycles that they used so far, without those that they reserved for others.
    """

    limit: int
    used: int = 0
    is_full: bool = False
    """Whether a callback or message did not fit. None after it runs in this block."""

    def admits(self, reserved: int) -> bool:
        """Whether the next callback or message, with this many reserved cycles, runs in this block."""
        self.is_full = self.is_full or self.used + reserved > self.limit
        return not self.is_full


@dataclass(slots=True)
class Transition:
    """The execution of one block on its parent's state: :meth:`apply` or :meth:`select` performs it, once."""

    phases: ClassVar[Phases] = PHASES
    """The timer phase of each shipped policy."""

    parent: View
    index: SchedulerIndex
    """The scheduler's index, positioned at the parent. It is left begun for this block; the caller advances it."""
    context: BlockContext
    vm: Vm = field(default_factory=PythonVm)
    world: World = field(init=False)
    terms: SchedulingTerms = field(init=False)
    """Scheduling terms with the parameters at the block's beginning."""
    prices: LanePrices = field(init=False)
    fairness: FairnessWeights = field(init=False)
    phase: TimerPhase = field(init=False)
    """The block's timer phase, once it began."""
    user_lane: UserLane = field(init=False)
    deferred_lane: DeferredLane = field(init=False)
    receipts: list[TransactionReceipt] = field(init=False)
    callbacks: list[CallbackReceipt] = field(init=False)
    messages: list[MessageReceipt] = field(init=False)
    events: list[Event] = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(self.parent)
        self.user_lane = UserLane()
        self.receipts, self.callbacks, self.messages, self.events = [], [], [], []

    def apply(self, transactions: Sequence[PreparedTransaction]) -> Outcome:
        """Process a whole block. Raises :class:`NotAdmitted` if it holds a transaction that is not allowed."""
        self.start()
        for prepared in transactions:
            self.execute(prepared)
        return self.finish()

    def select(
        self, candidates: Iterable[PreparedTransaction], most: int, most_bytes: int
    ) -> tuple[list[PreparedTransaction], tuple[Address, ...], Outcome]:
        """Build a block: take each candidate that is admitted, in the order given, up to ``most`` and ``most_bytes``.

        A candidate that does not fit uses no room: neither its bytes nor its cycles count. Later candidates of its
        sender are skipped.

        Also returns the senders of which no candidate was taken, for another reason than lack of room.
        """
        self.start()
        taken: list[PreparedTransaction] = []
        refused: dict[Address, bool] = {}
        without_room: set[Address] = set()
        for prepared in candidates:
            if len(taken) == most:
                break
            transaction = prepared.transaction
            ahead = transaction.nonce - self.world.account(transaction.sender).nonce
            if ahead < 0:
                continue  # it has run already, in a block that is not final yet
            if transaction.sender in without_room:
                continue
            if len(prepared.wire) > most_bytes:
                without_room.add(transaction.sender)
                continue
            try:
                self.execute(prepared)
            except NotAdmitted as refusal:
                if refusal.name == "LaneFull":
                    without_room.add(transaction.sender)
                else:
                    refused.setdefault(transaction.sender, True)
            else:
                taken.append(prepared)
                most_bytes -= len(prepared.wire)
                refused[transaction.sender] = False
        return taken, tuple(sender for sender, is_refused in refused.items() if is_refused), self.finish()

    # --- step 1 -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the block. The timers fire now if the policy has them before the transactions."""
        with self._users_errors():
            self.freeze()
            if self.terms.rules.timers_first:
                self.run_timers()

    def freeze(self) -> None:
        """Freeze the basefees, the fairness window and the parameters for the block."""
        height, genesis, chain = self.context.height, self.context.genesis, self.world.globals
        parameters = parameters_in_force(self.parent, genesis.parameters)
        self.deferred_lane = DeferredLane(parameters.lane_deferred_cycles)
        rules = self.policy_phase.rules
        basefee_lane = chain.basefee_lane_timer
        price, floor = rules.lane_price(basefee_lane, parameters), rules.fee_floor(basefee_lane, parameters)
        self.prices = LanePrices(chain.basefee_cycle, chain.basefee_cell, basefee_lane, price, chain.p50_tip)
        self.terms = SchedulingTerms(height, floor, chain.p50_tip, parameters, rules)
        self.index.begin(height, self._drop_old_fires())
        self.fairness = weigh(self.world, self.index.parties.fires, parameters)

    @property
    def policy_phase(self) -> type[TimerPhase]:
        """The timer phase of the policy that is in force."""
        genesis, height = self.context.genesis, self.context.height
        phase, policy_file = self.phases[genesis.policy_at(height)], genesis.policy_file_at(height)
        return phase if policy_file is None else phase_of(policy_file, phase)

    def _users_errors(self) -> AbstractContextManager[None]:
        """Context manager that turns exceptions of a user's policy into :class:`PolicyError`.

        The validator's expected errors, such as those of its disk, stay what they are.
        """
        policy_file = self.context.genesis.policy_file_at(self.context.height)
        return nullcontext() if policy_file is None else one_line(policy_file.file, PolicyError, (ValidatorError,))

    def _drop_old_fires(self) -> list[Fires]:
        """Remove from state, and return, the fires older than the fairness window ``[H - window, H - 1]``."""
        dropped: list[Fires] = []
        for height in self.index.fire_heights_below(self.context.height - self.terms.parameters.fairness_window_blocks):
            fires: Fires | None = self.world.get(fires_key(height))
            assert fires is not None, "the index follows the state"
            self.world.put(fires_key(height), None)
            dropped.append(fires)
        return dropped

    # --- step 3 -------------------------------------------------------------------------------------------------------

    def execute(self, prepared: PreparedTransaction) -> None:
        """Admit, charge, run and settle one transaction (SPEC §2)."""
        transaction = prepared.transaction
        tip = self.admit(transaction)
        per_cycle = self.prices.basefee_cycle + tip
        upfront = transaction.gas_limit * per_cycle + transaction.cells_limit * self.prices.basefee_cell
        self.world.raise_nonce(transaction.sender)
        self.world.debit(transaction.sender, upfront)
        meter = Meter(transaction.gas_limit, transaction.cells_limit)
        created: list[Address] = []
        with self._users_errors():
            result = self.run_action(prepared, meter, created)
        burned = meter.cycles_used * self.prices.basefee_cycle + meter.cells_used * self.prices.basefee_cell
        tips = meter.cycles_used * tip
        self.world.credit(transaction.sender, upfront - burned - tips)
        self.events.extend(result.effects.events)
        self.user_lane.cycles += meter.cycles_used
        if isinstance(transaction.action, System):
            self.user_lane.system_cycles += meter.cycles_used
        self.user_lane.cells += meter.cells_used
        self.user_lane.burned += burned
        self.user_lane.tips += tips
        self.receipts.append(
            TransactionReceipt(
                transaction_hash=prepared.hash,
                sender=transaction.sender,
                ok=result.ok,
                error=result.error,
                cycles=meter.cycles_used,
                cells=meter.cells_used,
                burned=pack_uint(burned),
                tip=pack_uint(tips),
                effects=result.effects,
                created=created[0] if result.ok and created else b"",
            )
        )

    def admit(self, transaction: Transaction) -> int:
        """The tip per cycle of an admissible transaction. Raises :class:`NotAdmitted`, in the order of SPEC §17."""
        parameters, prices = self.terms.parameters, self.prices
        account = self.world.account(transaction.sender)
        if transaction.nonce != account.nonce:
            raise NotAdmitted("BadNonce")
        if transaction.max_fee_per_cycle < prices.basefee_cycle or transaction.max_fee_per_cell < prices.basefee_cell:
            raise NotAdmitted("FeeTooLow")
        if transaction.gas_limit < parameters.tx_base_cycles:
            raise NotAdmitted("GasTooLow")
        if not self._fits_its_lane(transaction):
            raise NotAdmitted("LaneFull")
        tip = min(transaction.max_priority_fee_per_cycle, transaction.max_fee_per_cycle - prices.basefee_cycle)
        cycles_cost = transaction.gas_limit * (prices.basefee_cycle + tip)
        cells_cost = transaction.cells_limit * prices.basefee_cell
        if account.balance < transaction.value + cycles_cost + cells_cost:
            raise NotAdmitted("InsufficientFunds")
        return tip

    def _fits_its_lane(self, transaction: Transaction) -> bool:
        p, lane = self.terms.parameters, self.user_lane
        if isinstance(transaction.action, System):
            used, limit = lane.system_cycles, p.lane_system_cycles
        else:
            used, limit = lane.cycles - lane.system_cycles, p.lane_user_cycles
        return used + transaction.gas_limit <= limit and lane.cells + transaction.cells_limit <= p.lane_user_cells

    def run_action(self, prepared: PreparedTransaction, meter: Meter, created: list[Address]) -> RunResult:
        """Run the transaction's action; ``created`` gets a deployed actor's address."""
        transaction, action = prepared.transaction, prepared.transaction.action
        target = self._target(transaction)
        allowance = Allowance(transaction.sender, transaction.timer_allowance)
        run = HandlerContext(
            self.world,
            meter,
            target,
            transaction.sender,
            self.terms,
            allowance,
            MESSAGES_PER_TRANSACTION,
            value=transaction.value,
            origin=prepared.hash,
        )

        def body(context: HandlerContext) -> None:
            meter.charge(self.terms.parameters.tx_base_cycles)
            match action:
                case Transfer():
                    context.move(transaction.sender, target, transaction.value)
                case Deploy(code=code):
                    meter.charge(byte_cycles(code), len(code.encode()))
                    meter.charge(token_cycles(code))
                    context.move(transaction.sender, target, transaction.value)
                    self.deploy(target, code, transaction.sender)
                    created.append(target)
                case Call(handler=handler, payload=payload):
                    meter.charge(0, len(payload))
                    context.move(transaction.sender, target, transaction.value)
                    self.call(context, handler, payload)
                case System(instruction=instruction):
                    self.run_instruction(context, instruction)

        return run_handler(run, body)

    def call(self, context: HandlerContext, handler: str, payload: bytes) -> None:
        """Run a handler of the called actor, or of the runner contract (SPEC §14)."""
        if context.actor == RUNNER_CONTRACT_ADDRESS:
            runner_contract.run(context, handler, payload, self.context.genesis.system_deployers)
            return
        actor = self.world.actor(context.actor)
        if actor is None:
            raise Rejection("UnknownActor")
        program(self.vm, actor.code, handler, payload)(context)

    def run_instruction(self, context: HandlerContext, instruction: Instruction) -> None:
        """Perform a system instruction (SPEC §12)."""
        if context.sender not in self.context.genesis.system_deployers:
            raise Rejection("NotSystemDeployer")
        match instruction:
            case CancelTimer(timer_id=timer_id):
                if governance.cancel_timer(self.world, timer_id) is not None:
                    context.timer_changes.append(Cancelled(timer_id))
            case UpdateTimerConfig(config=config):
                governance.update_config(self.world, self.context.genesis.parameters, config)
            case ExtendTimer(timer_id=timer_id, new_expires_at=expires_at):
                timer = extend_any(self.world, timer_id, expires_at, self.context.height, self.terms.parameters)
                context.timer_changes.append(Extended(timer_id, timer.expires_at))

    @staticmethod
    def _target(transaction: Transaction) -> Address:
        match transaction.action:
            case Deploy():
                return deployed_address(transaction.sender, transaction.nonce)
            case System():
                return SYSTEM_PARAMETERS_ADDRESS
            case Transfer(to=to) | Call(to=to):
                return Address(to)

    def deploy(self, address: Address, code: str, deployer: Address) -> None:
        if self.world.actor(address) is not None:
            raise HandlerFailure("ActorExists")
        try:
            deployed = deployment(code, deployer)
        except ProgramError:
            raise HandlerFailure("ProgramInvalid") from None  # its message depends on the version of Python
        self.world.put_actor(address, deployed.actor)
        if deployed.program_key is not None:
            self.world.put(deployed.program_key, deployed.source)

    # --- step 4 -------------------------------------------------------------------------------------------------------

    def finish(self) -> Outcome:
        """Perform all steps after the last transaction. Returns the block's outcome."""
        with self._users_errors():
            self.world.credit(self.context.proposer, self.user_lane.tips)
            if not self.terms.rules.timers_first:
                self.trigger_timers()
                self.run_timers()
            phase = self.phase
            self.run_callbacks()
            self.run_messages()
            watching.trigger(self.world, self.context.height + 1)
            phase.count_fires()
            jobs.end_jobs(self.world, self.context.height)
            ended = self.keep_calendar()
            self.keep_supplies(phase, ended)
            burned = self.close(phase)
            return self.outcome(phase, burned, len(ended))

    def trigger_timers(self) -> None:
        """Make timers due that watch what the transactions changed (SPEC §13)."""
        if watching.trigger(self.world, self.context.height):
            self.index.make_due(self.world.changes_under(TIMER))

    def run_timers(self) -> None:
        """Run the timer phase, and pay its tips to the proposer."""
        self.phase = self.timer_phase()
        self.phase.run()
        self.events.extend(self.phase.events)
        self.world.credit(self.context.proposer, self.phase.use.tips)

    def timer_phase(self) -> TimerPhase:
        return self.policy_phase(
            self.world,
            self.index,
            self.terms,
            self.prices,
            self.fairness,
            self.vm,
            self.context.explains,
        )

    # --- step 5 -------------------------------------------------------------------------------------------------------

    def run_callbacks(self) -> None:
        """Run the callbacks of jobs completed before this block, as far as the lane reaches (SPEC §14)."""
        while (waiting := jobs.first_waiting(self.world, self.context.height)) is not None:
            if len(self.callbacks) == jobs.CALLBACKS_PER_BLOCK:
                self.deferred_lane.is_full = True
            if not self.deferred_lane.admits(self.terms.parameters.message_cycles):
                return
            self.deferred_lane.used += self.run_callback(waiting)

    def run_callback(self, waiting: Waiting) -> int:
        """Run one callback; returns the cycles it used, without those it reserved for messages and jobs."""
        job_id, job = waiting
        payload = jobs.callback_payload(self.world, waiting)
        jobs.dequeue(self.world)
        actor = self.world.actor(job.actor)
        assert actor is not None, "a job's actor exists"
        meter = Meter(self.terms.parameters.message_cycles, self.terms.parameters.message_cells)
        context = HandlerContext(
            self.world,
            meter,
            job.actor,
            RUNNER_CONTRACT_ADDRESS,
            self.terms,
            messages_left=MESSAGES_PER_DEFERRED_RUN,
            callback_of=job_id,
        )
        result = self.run_deferred(context, program(self.vm, actor.code, job.handler, payload))
        unsettled = None
        if not jobs.end_callback(self.world, job_id, self.context.height):
            unsettled = Event("JobNotConsumed", job.actor, (("job_id", job_id.hex()),))
            self.events.append(unsettled)
        self.callbacks.append(
            CallbackReceipt(
                job_id=job_id,
                actor=job.actor,
                handler=job.handler,
                ok=result.ok,
                error=result.error,
                cycles=meter.cycles_used,
                cells=meter.cells_used,
                effects=result.effects,
                unsettled=unsettled,
            )
        )
        return meter.cycles_used - result.cycles_reserved

    def run_deferred(self, context: HandlerContext, body: Callable[[HandlerContext], None]) -> RunResult:
        """Run the handler of a callback or message, which is prepaid. The base cycles are charged first."""

        def charged(run: HandlerContext) -> None:
            run.meter.charge(self.terms.parameters.message_base_cycles)
            body(run)

        result = run_handler(context, charged)
        self.events.extend(result.effects.events)
        return result

    def run_messages(self) -> None:
        """Run the messages queued before this phase, as far as the callbacks left room in the lane (SPEC §14)."""
        end = self.world.globals.next_message
        while self.world.globals.first_message < end:
            message = mailbox.first(self.world)
            if not self.deferred_lane.admits(message.cycles):
                return
            self.deferred_lane.used += self.run_message(message)

    def run_message(self, message: QueuedMessage) -> int:
        """Run one message; returns the cycles it used, without those it reserved for messages and jobs."""
        receiver = mailbox.dequeue(self.world, message)
        meter = Meter(message.cycles, message.cells)
        context = HandlerContext(
            self.world,
            meter,
            message.to,
            message.sender,
            self.terms,
            messages_left=MESSAGES_PER_DEFERRED_RUN,
            origin=message.origin,
        )
        result = self.run_deferred(context, program(self.vm, receiver.code, message.handler, message.payload))
        self.messages.append(
            MessageReceipt(
                to=message.to,
                sender=message.sender,
                handler=message.handler,
                ok=result.ok,
                error=result.error,
                cycles=meter.cycles_used,
                cells=meter.cells_used,
                effects=result.effects,
            )
        )
        return meter.cycles_used - result.cycles_reserved

    # --- step 6 -------------------------------------------------------------------------------------------------------

    def keep_supplies(self, phase: TimerPhase, ended: list[Timer]) -> None:
        """Record the default agent's supply of this block, and drop supplies that no live timer uses."""
        standing = dict(self.index.supplies.standing)
        touched: set[int] = {self.context.height}
        for timer in ended:
            height = self.index.supplies.height_for(timer, self.context.height, phase.bidding.since)
            if height is not None and height in standing:
                standing[height] -= 1
                touched.add(height)
        for height in sorted(touched):
            if standing.get(height, 0) == 0:
                self.world.put(supply_key(height), None)
            elif height == self.context.height:
                self.world.put(supply_key(height), phase.supplied_max_fee)

    def keep_calendar(self) -> list[Timer]:
        """Record the overflow tree's root after this block. Returns the due timers that ended in it."""
        changes: list[tuple[Timer | None, Timer | None]] = [
            (change.before, change.after) for change in self.world.changes_under(TIMER)
        ]
        actors = self.world.changes_under(ACTOR)
        deployed = {Address(key[1:]): actor for key, before, actor in actors if before is None and actor is not None}
        self.world.put(OVERFLOW, self.index.overflow_root_after(changes, deployed))
        ended = (before for before, after in changes if before is not None and after is None)
        return [timer for timer in ended if self.index.is_due(timer)]

    def close(self, phase: TimerPhase) -> int:
        """Set the counters and prices for the next block; returns the amount that this block burned."""
        p, chain, user, lane = self.terms.parameters, self.world.globals, self.user_lane, phase.use
        fires = [(int.from_bytes(fire.tip_per_cycle, "big"), fire.cycles) for fire in phase.fires]
        rules = self.terms.rules
        cycles, cells = user.cycles + lane.cycles, user.cells + lane.cells
        basefee_cycle = next_basefee(chain.basefee_cycle, cycles, p.block_cycles_target, BASEFEE_SLOPE, p)
        closed = replace(
            chain,
            basefee_cycle=basefee_cycle,
            basefee_cell=next_basefee(chain.basefee_cell, cells, p.block_cells_target, BASEFEE_SLOPE, p),
            basefee_lane_timer=rules.next_basefee_lane(chain.basefee_lane_timer, basefee_cycle, lane.cycles, p),
            p50_tip=rules.next_p50_tip(fires, p),
            last_block_cycle_usage=cycles,
            burned_user=chain.burned_user + user.burned,
            burned_timer_cycle=chain.burned_timer_cycle + lane.burned_cycle,
            burned_timer_lane=chain.burned_timer_lane + lane.burned_lane,
            burned_bidding=chain.burned_bidding + phase.bidding.burned,
        )
        self.world.globals = closed
        return closed.burned - chain.burned

    def outcome(self, phase: TimerPhase, burned: int, ended: int) -> Outcome:
        """Commit the changes to a child state and collect the header's fields."""
        receipts = BlockReceipts(
            height=self.context.height,
            proposer=self.context.proposer,
            transactions=tuple(self.receipts),
            fires=tuple(phase.fires),
            destroyed=tuple(phase.destroyed),
            queries=tuple(phase.bidding.receipts),
            messages=tuple(self.messages),
            gc_cycles=phase.use.gc_cycles,
            p50_tip=pack_uint(self.prices.p50_tip),
            callbacks=tuple(self.callbacks),
        )
        changes = self.world.changes()
        return Outcome(
            view=self.parent.derive(self.context.height, batch_of(changes)),
            changes=changes,
            receipts=receipts,
            receipts_root=receipts_root(receipts),
            prices=self.prices,
            basefee_lane_timer=self.prices.basefee_lane,
            lane_cycles=phase.use.cycles,
            lane_cells=phase.use.cells,
            user_cycles=self.user_lane.cycles,
            user_cells=self.user_lane.cells,
            burned=burned,
            tips=self.user_lane.tips + phase.use.tips,
            live_timers=self.world.globals.live_timers,
            backlog=self.index.pool.live - ended,
            carried=phase.carried,
            bidding=phase.bidding.figures,
            events=self.events,
        )
