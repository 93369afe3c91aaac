"""The ledger of a chain: its final blocks as the specification executes them, with the figures that checks read.

A block that deviates from the specification is a violation. It ends the ledger, unless it is by its state root alone:
its figures stay those of the block before, and its state is then that of no block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set
from typing import Final

from cluster.audit.figures import BlockColumns, RunOutcomes, TimerFigures, effects_of
from cluster.audit.paid_waits import PaidWaits, paid_waits
from cluster.audit.specified.judge import Executed, SpecifiedChain
from cluster.audit.violation import BOUNDS, Violation, short
from cluster.record.rules import Mechanism
from spec.encoding import Call, Receipts
from spec.leaves import tier_of
from spec.phase import NO_ROOM, Phase
from spec.policies.cip1 import Cip1
from spec.world import Timer, World
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


SHOWN_BY: Final[Mapping[str, Mechanism]] = {
    "A-14": Mechanism.TRANSACTIONS_REVERTED,
    "B-06": Mechanism.PARAMETERS_CHANGED,
    "B-08": Mechanism.LANE_CYCLES_FULL,
    "B-09": Mechanism.AUCTION_BEGAN,
    "B-10": Mechanism.DEFERRED_LANE_FULL,
    "F-08": Mechanism.BASEFEE_LEAST_STEP,
    "F-10": Mechanism.BASEFEE_AT_CAP,
    "F-11": Mechanism.BASEFEE_AT_FLOOR,
    "G-02": Mechanism.QUERIES_FAILED,
    "G-05": Mechanism.QUERY_BUDGET_USED_UP,
    "G-06": Mechanism.BID_REMEMBERED,
    "G-11": Mechanism.QUERIES_UNPAID,
    "J-14": Mechanism.CALLBACKS,
    "J-15": Mechanism.CALLBACKS,
    "L-01": Mechanism.TIMERS_EXPIRED,
    "L-02": Mechanism.EXPIRED_CARRIED_OVER,
    "L-13": Mechanism.WINDOW_PRUNED,
    "L-16": Mechanism.LANE_CYCLES_FULL,
    "L-17": Mechanism.LANE_CELLS_FULL,
    "L-18": Mechanism.SCAN_LIMIT_REACHED,
    "L-20": Mechanism.LANE_CYCLES_FULL,
    "L-21": Mechanism.TIMERS_INSUFFICIENT_FUNDS,
    "L-25": Mechanism.FIRES_REVERTED,
    "M-01": Mechanism.MESSAGES,
    "Y-08": Mechanism.WATCHES_TRIGGERED,
    "Y-09": Mechanism.WATCHES_TRIGGERED,
}
"""The mechanism that a rule shows."""
LEAST_OF_ODD: Final = 3
"""The smallest odd number of values whose wrongly computed median can differ from the right one."""


def mechanisms(world: World, receipts: Receipts, waited: Set[bytes]) -> Set[Mechanism]:
    """The mechanisms that the last block of a chain reached. ``waited`` are the timers that had no room in the block
    before."""
    return {*(SHOWN_BY[rule] for rule in world.rules & SHOWN_BY.keys()), *_seen(world, receipts, waited)}


def _seen(world: World, receipts: Receipts, waited: Set[bytes]) -> Iterator[Mechanism]:
    p = world.parameters
    if any(timer_id in world.timers for timer_id in world.waiting):
        yield Mechanism.BACKLOG
    changes = {change[0] for effects in effects_of(receipts) for change in effects.timer_changes}
    if "cancelled" in changes:
        yield Mechanism.TIMERS_CANCELLED
    if "extended" in changes:
        yield Mechanism.TIMERS_EXTENDED
    if receipts.queries:
        yield Mechanism.AGENT_QUERIES
    if receipts.gc_cycles + p["GC_CYCLES_PER_REMOVAL"] > p["TIMER_GC_CYCLES"]:
        yield Mechanism.GC_BUDGET_USED_UP
    if any(each.reason == "expired" and each.timer_id in waited for each in receipts.destroyed):
        yield Mechanism.TIMERS_EXPIRED_WAITING
    fired = dict(world.fires.get(world.height, ()))
    in_window = sum(fires > fired.get(account, 0) for account, fires in world.recent.items())
    yield from _medians(in_window, Mechanism.WINDOW_MEDIAN_ODD, Mechanism.WINDOW_MEDIAN_EVEN)
    yield from _medians(len(receipts.fires), Mechanism.TIP_MEDIAN_ODD, Mechanism.TIP_MEDIAN_EVEN)
    if not world.height % p["EPOCH_LENGTH"]:
        yield Mechanism.EPOCH_ENTERED
        if any(_was_cut_off(world, timer) for timer in world.timers.values()):
            yield Mechanism.OVERFLOW_CUT


def _medians(count: int, odd: Mechanism, even: Mechanism) -> Iterator[Mechanism]:
    if count and count % 2 == 0:
        yield even
    elif count >= LEAST_OF_ODD:
        yield odd


def _was_cut_off(world: World, timer: Timer) -> bool:
    """Whether a timer came out of the overflow tree with the epoch that the last block entered."""
    p = world.parameters
    epochs_away = timer.trigger_height // p["EPOCH_LENGTH"] - world.height // p["EPOCH_LENGTH"]
    is_last = epochs_away == p["EPOCH_HORIZON"] and timer.scheduled_at < world.height
    return is_last and tier_of(world, timer) == "epoch"
