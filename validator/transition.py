"""The state transition: one block over its parent's state (SPEC §3).

``Transition.apply`` reads like SPEC's list, one method a step. It is a pure function of the parent's state and the
block's content: no clock, no randomness, no order that depends on hashing. What it returns, an :class:`Outcome`, holds
everything that the header must say.

Implemented so far: policy ``cip1`` from height 1 on, with transfers, deployments and calls, timers with explicit or
default pricing, and ``builtin:script``. System instructions, custom gas bidding agents, mailbox messages and the FIFO
phase follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from validator.block import BlockReceipts, Header, TransactionReceipt, receipts_root
from validator.codec import pack_uint
from validator.errors import HandlerFailure, Rejection
from validator.host import HandlerContext, RunResult, run_handler
from validator.meter import Meter
from validator.params import Parameters
from validator.pvm.dispatch import program
from validator.records import Actor, Fires, Timer, fires_key
from validator.scheduler.fairness import FairnessWeights
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.lane import LanePrices, TimerPhase
from validator.scheduler.pricing import BASEFEE_SLOPE, lane_price, median_tip, next_basefee
from validator.scheduler.scheduling import Allowance, SchedulingTerms
from validator.state import View
from validator.transactions import Call, Deploy, Transaction, Transfer, deployed_address
from validator.types import Address, Hash, Height
from validator.world import Change, World


class NotAdmitted(Exception):
    """A transaction may not stand in this block (SPEC §2, admission). ``name`` is SPEC §17's."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class BlockContext:
    """What a block is besides its transactions."""

    height: Height
    proposer: Address
    """Account that gets the tips."""
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A decoded transaction with its wire form and hash."""

    hash: Hash
    wire: bytes
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a block came to: its child state, the changes for indexes, and the header's figures."""

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
    carried: dict[bytes, str]

    @property
    def state_root(self) -> Hash:
        return self.view.root

    def matches(self, header: Header) -> str | None:
        """The first field in which the header is not what execution gave, or ``None``."""
        expected = {
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
        return next((name for name, value in expected.items() if getattr(header, name) != value), None)


@dataclass(slots=True)
class UserLane:
    """What the transactions used and brought in so far."""

    cycles: int = 0
    cells: int = 0
    burned: int = 0
    tips: int = 0


@dataclass(slots=True)
class Transition:
    """One block being processed."""

    parent: View
    index: SchedulerIndex
    """The scheduler's index, standing at the parent."""
    context: BlockContext
    world: World = field(init=False)
    terms: SchedulingTerms = field(init=False)
    prices: LanePrices = field(init=False)
    fairness: FairnessWeights = field(init=False)
    basefee_lane: int = field(init=False)
    user_lane: UserLane = field(init=False)
    receipts: list[TransactionReceipt] = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(self.parent)
        self.user_lane = UserLane()
        self.receipts = []

    def apply(self, transactions: Sequence[PreparedTransaction]) -> Outcome:
        """Process a whole block. Raises :class:`NotAdmitted` where it holds a transaction that it must not."""
        self.start()
        for prepared in transactions:
            self.execute(prepared)
        return self.finish()

    def select(
        self, candidates: Iterable[PreparedTransaction], most: int
    ) -> tuple[list[PreparedTransaction], tuple[Address, ...], Outcome]:
        """Build a block: take each candidate that is admitted, in the order given, up to ``most``.

        Also returns the senders none of whose candidates could be taken, whatever room there was.
        """
        self.start()
        taken: list[PreparedTransaction] = []
        refused: dict[Address, bool] = {}
        for prepared in candidates:
            if len(taken) == most:
                break
            transaction = prepared.transaction
            ahead = transaction.nonce - self.world.account(transaction.sender).nonce
            if ahead < 0:
                continue  # it has run already, in a block that is not final yet
            try:
                self.execute(prepared)
            except NotAdmitted as refusal:
                if refusal.name != "LaneFull":
                    refused.setdefault(transaction.sender, True)
            else:
                taken.append(prepared)
                refused[transaction.sender] = False
        return taken, tuple(sender for sender, is_refused in refused.items() if is_refused), self.finish()

    # --- step 1 -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Freeze the basefees, the fairness window and the parameters for the block."""
        parameters, chain = self.context.parameters, self.world.globals
        self.basefee_lane = chain.basefee_lane_timer
        price = lane_price(chain.basefee_lane_timer, parameters)
        self.prices = LanePrices(chain.basefee_cycle, chain.basefee_cell, price, chain.p50_tip)
        self.terms = SchedulingTerms(self.context.height, price, chain.p50_tip, parameters)
        self.fairness = FairnessWeights.over(self._recent_fires())

    def _recent_fires(self) -> dict[Address, int]:
        """Fires in ``[H - window, H - 1]``; the block that just left the window is dropped for good."""
        recent = self.index.recent_fires()
        left = self.context.height - self.context.parameters.fairness_window_blocks - 1
        dropped: Fires | None = self.world.get(fires_key(left)) if left > 0 else None
        if dropped is None:
            return recent
        self.world.put(fires_key(left), None)
        for actor, count in dropped.counts:
            recent[actor] -= count
        return {actor: count for actor, count in recent.items() if count}

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
        result = self.run_action(transaction, meter, created)
        burned = meter.cycles_used * self.prices.basefee_cycle + meter.cells_used * self.prices.basefee_cell
        tips = meter.cycles_used * tip
        self.world.credit(transaction.sender, upfront - burned - tips)
        self.user_lane.cycles += meter.cycles_used
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
        """The tip per cycle of an admissible transaction. Raises :class:`NotAdmitted`; SPEC §17 gives the order."""
        parameters, prices = self.context.parameters, self.prices
        account = self.world.account(transaction.sender)
        if transaction.nonce != account.nonce:
            raise NotAdmitted("BadNonce")
        if transaction.max_fee_per_cycle < prices.basefee_cycle or transaction.max_fee_per_cell < prices.basefee_cell:
            raise NotAdmitted("FeeTooLow")
        if transaction.gas_limit < parameters.tx_base_cycles:
            raise NotAdmitted("GasTooLow")
        if (
            self.user_lane.cycles + transaction.gas_limit > parameters.lane_user_cycles
            or self.user_lane.cells + transaction.cells_limit > parameters.lane_user_cells
        ):
            raise NotAdmitted("LaneFull")
        tip = min(transaction.max_priority_fee_per_cycle, transaction.max_fee_per_cycle - prices.basefee_cycle)
        cycles_cost = transaction.gas_limit * (prices.basefee_cycle + tip)
        cells_cost = transaction.cells_limit * prices.basefee_cell
        if account.balance < transaction.value + cycles_cost + cells_cost:
            raise NotAdmitted("InsufficientFunds")
        return tip

    def run_action(self, transaction: Transaction, meter: Meter, created: list[Address]) -> RunResult:
        """Run what the transaction asks for; ``created`` gets a deployed actor's address."""
        action = transaction.action
        target = self._target(transaction)
        allowance = Allowance(transaction.sender, transaction.timer_allowance)
        run = HandlerContext(self.world, meter, target, transaction.sender, self.terms, allowance)

        def body(context: HandlerContext) -> None:
            meter.charge(self.context.parameters.tx_base_cycles)
            match action:
                case Transfer():
                    context.move(transaction.sender, target, transaction.value)
                case Deploy(code=code):
                    meter.charge(0, len(code.encode()))
                    context.move(transaction.sender, target, transaction.value)
                    self.deploy(target, code, transaction.sender)
                    created.append(target)
                case Call(handler=handler, payload=payload):
                    meter.charge(0, len(payload))
                    context.move(transaction.sender, target, transaction.value)
                    actor = self.world.actor(target)
                    if actor is None:
                        raise Rejection("UnknownActor")
                    program(actor.code, handler, payload)(context)

        return run_handler(run, body)

    @staticmethod
    def _target(transaction: Transaction) -> Address:
        if isinstance(transaction.action, Deploy):
            return deployed_address(transaction.sender, transaction.nonce)
        return Address(transaction.action.to)

    def deploy(self, address: Address, code: str, deployer: Address) -> None:
        if self.world.actor(address) is not None:
            raise HandlerFailure("ActorExists")
        self.world.put_actor(address, Actor(code, deployer))

    # --- steps 4 to 6 -------------------------------------------------------------------------------------------------

    def finish(self) -> Outcome:
        """Everything after the last transaction."""
        self.world.credit(self.context.proposer, self.user_lane.tips)
        phase = self.timer_phase()
        phase.run(self.due_timers())
        self.world.credit(self.context.proposer, phase.use.tips)
        self.count_fires(phase)
        self.close(phase)
        return self.outcome(phase)

    def timer_phase(self) -> TimerPhase:
        return TimerPhase(self.world, self.context.parameters, self.terms, self.prices, self.fairness)

    def due_timers(self) -> list[Timer]:
        """Timers due now, as the transactions of this block left them (they may cancel or extend one)."""
        current = (self.world.get(timer.key) for timer in self.index.due(self.context.height))
        return [timer for timer in current if timer is not None]

    def count_fires(self, phase: TimerPhase) -> None:
        """Count this block's fires for the fairness window."""
        counts: dict[Address, int] = {}
        for fire in phase.fires:
            actor = Address(fire.actor)
            counts[actor] = counts.get(actor, 0) + 1
        if counts:
            self.world.put(fires_key(self.context.height), Fires(tuple(sorted(counts.items()))))

    def close(self, phase: TimerPhase) -> None:
        """The counters and prices of the next block."""
        p, chain, user, lane = self.context.parameters, self.world.globals, self.user_lane, phase.use
        tips = [(int.from_bytes(fire.tip_per_cycle, "big"), fire.cycles) for fire in phase.fires]
        cycles, cells = user.cycles + lane.cycles, user.cells + lane.cells
        self.world.globals = chain._replace(
            basefee_cycle=next_basefee(chain.basefee_cycle, cycles, p.block_cycles_target, BASEFEE_SLOPE, p),
            basefee_cell=next_basefee(chain.basefee_cell, cells, p.block_cells_target, BASEFEE_SLOPE, p),
            basefee_lane_timer=next_basefee(
                chain.basefee_lane_timer, lane.cycles, p.lane_timer_cycles // 2, p.lane_basefee_slope, p
            ),
            p50_tip=median_tip(tips, p.p50_weight),
            last_block_cycle_usage=cycles,
            burned_user=chain.burned_user + user.burned,
            burned_timer_cycle=chain.burned_timer_cycle + lane.burned_cycle,
            burned_timer_lane=chain.burned_timer_lane + lane.burned_lane,
        )

    def outcome(self, phase: TimerPhase) -> Outcome:
        """Commit the changes to a child state and gather what the header must say."""
        receipts = BlockReceipts(
            height=self.context.height,
            proposer=self.context.proposer,
            transactions=tuple(self.receipts),
            fires=tuple(phase.fires),
            destroyed=tuple(phase.destroyed),
            gc_cycles=phase.use.gc_cycles,
            p50_tip=pack_uint(self.prices.p50_tip),
        )
        changes = self.world.changes()
        return Outcome(
            view=self.parent.derive(self.context.height, World.batch(changes)),
            changes=changes,
            receipts=receipts,
            receipts_root=receipts_root(receipts),
            prices=self.prices,
            basefee_lane_timer=self.basefee_lane,
            lane_cycles=phase.use.cycles,
            lane_cells=phase.use.cells,
            user_cycles=self.user_lane.cycles,
            user_cells=self.user_lane.cells,
            live_timers=self.world.globals.live_timers,
            carried=phase.carried,
        )
