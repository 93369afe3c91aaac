"""The ledger of a chain: its final blocks as the specification executes them, with the figures that checks read.

A block that deviates from the specification is a violation. It ends the ledger, unless it is by its state root alone:
its figures stay those of the block before, and its state is then that of no block.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from cluster.audit.figures import BlockColumns, RunOutcomes, TimerFigures
from cluster.audit.mechanisms import mechanisms
from cluster.audit.paid_waits import PaidWaits, paid_waits
from cluster.audit.specified.judge import Executed, SpecifiedChain
from cluster.audit.violation import BOUNDS, Violation, short
from cluster.record.rules import Mechanism
from spec.encoding import Call
from spec.leaves import tier_of
from spec.phase import NO_ROOM, Phase
from spec.policies.cip1 import Cip1
from validator.chain.genesis import Genesis

MAX_HEIGHTS_REACHED: Final = 1_000
"""Heights kept per mechanism."""


class Ledger:
    """The ledger of one chain of final blocks. :meth:`apply` enters the next block. It never raises.

    Its state and figures may be read after any block that was entered.
    """

    def __init__(self, genesis: Genesis) -> None:
        """Raises :class:`~validator.policies.own.PolicyError` for a policy of the user that cannot be loaded."""
        self.genesis = genesis
        self.height = 0
        self.violations: list[Violation] = []
        self.blocks = BlockColumns()
        self.outcomes = RunOutcomes()
        self.timers = TimerFigures()
        self.reached: dict[Mechanism, deque[int]] = {}
        """The newest :data:`MAX_HEIGHTS_REACHED` heights at which the chain reached each mechanism, ascending."""
        self.smoothed_medians: dict[int, int] = {}
        """The fairness window's smoothed median by height, in units of 2**-16, if medians are smoothed."""
        self.tips = 0
        self.burned_cell = 0
        """The amount burned for cells, at the cell basefee."""
        self.chain = SpecifiedChain(genesis)
        self.world = self.chain.world
        """The chain's state, as specified."""
        self.started = dict(self.world.balance)
        """The balances in the genesis."""
        self.minted = self.held
        self.paid_waits = PaidWaits()
        self._without_room: frozenset[bytes] = frozenset()
        """The timers that had no room in the lane of the last block."""

    @property
    def broken(self) -> bool:
        """Whether a block deviated. All later blocks are ignored."""
        return self.chain.deviation is not None

    # --- feeding ----------------------------------------------------------------------------------------------------

    def apply(self, block: bytes, receipts: bytes) -> None:
        """Enter the next final block and its receipts, both given in their canonical encoding."""
        if self.broken:
            return
        deviation = self.chain.enter(block, receipts)
        if deviation is not None:
            self.violations.append(deviation.violation)
        if self.chain.deviation is not None:
            return
        self.height += 1
        assert self.chain.last is not None, "it was executed"
        self._note(self.chain.last)

    def _note(self, executed: Executed) -> None:
        header, run, receipts = executed.block.header, executed.run, executed.receipts
        world, phase, height = self.world, run.phase, self.height
        for mechanism in mechanisms(world, receipts, self._without_room):
            self.reached.setdefault(mechanism, deque(maxlen=MAX_HEIGHTS_REACHED)).append(height)
        self._without_room = frozenset(key for key, reason in phase.waits.items() if reason == NO_ROOM)
        self._judge_waits(phase)
        if "" in world.median:
            self.smoothed_medians[height] = world.median[""]
        cells = sum(run.cells for runs in (receipts.transactions, receipts.fires) for run in runs)
        self.burned_cell += cells * world.basefee_cell
        self.tips += run.tips + phase.tips
        actions = [transaction.action for transaction in executed.transactions]
        self.outcomes.enter(receipts, [action.to if isinstance(action, Call) else None for action in actions])
        scheduled = self.timers.enter(receipts, world.removed(world.timers))
        self.blocks.append(
            proposer=header.proposer,
            transactions=len(receipts.transactions),
            reverted=sum(not receipt.ok for receipt in receipts.transactions),
            scheduled=scheduled,
            fires=len(receipts.fires),
            destroyed=len(receipts.destroyed),
            messages=len(receipts.messages),
            queries=len(receipts.queries),
            pending=len(world.timers),
            backlog=sum(timer_id in world.timers for timer_id in world.waiting),
            basefee_cycle=world.basefee_cycle,
            basefee_cell=world.basefee_cell,
            basefee_lane_timer=world.basefee_lane,
            lane_cycles=phase.cycles,
            lane_limit=world.parameters["LANE_TIMER_CYCLES"],
            user_cycles=run.cycles,
        )

    def _judge_waits(self, phase: Phase) -> None:
        """Check that no timer waits longer at a price that it pays than the rises of that price allow."""
        if isinstance(self.world.policy, Cip1) and not self.chain.has_told_prices:
            for late in self.paid_waits.enter(phase, paid_waits(phase)):
                what = f"timer {short(late.timer_id)} waits for {late.length} blocks in a row: the {late.full.value}"
                what += " of the lane were used up before it in each, and their price rose too little"
                self.violations.append(Violation(BOUNDS, self.height, what))

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """The number of pending timers whose trigger height has passed."""
        return self.blocks.backlog[-1] if self.blocks else 0

    @property
    def tiers(self) -> dict[str, int]:
        """The number of pending timers by the tier of the calendar that holds them.

        ``due`` is the backlog, which the ring holds. A timer that watches a key counts as ``ring``. Each call looks at
        every pending timer.
        """
        found = dict.fromkeys(("due", "ring", "epoch", "overflow"), 0)
        for timer in self.world.timers.values():
            is_due = timer.trigger_height <= self.height and not timer.is_watching
            found["due" if is_due else tier_of(self.world, timer)] += 1
        return found

    # --- totals -------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """The sum of all balances."""
        return sum(self.world.balance.values())

    @property
    def burned(self) -> int:
        """What was burned since the genesis."""
        return self.world.burned

    @property
    def burned_lane_timer(self) -> int:
        """The amount burned for cycles of the timer lane, at the lane price."""
        return self.world.counters.get("burned by fires at the lane price", 0)

    @property
    def burned_cycle(self) -> int:
        """The amount burned for cycles, at the cycle basefee, by transactions, fires and queries."""
        return self.burned - self.burned_cell - self.burned_lane_timer

    @property
    def transactions(self) -> int:
        return sum(self.blocks.transactions)
