"""The mechanisms of a chain that a block reached (:class:`~cluster.record.rules.Mechanism`).

Most are shown by a numbered rule that the specification applied in the block, in a run that failed, too. The others
are seen in the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

from cluster.audit.figures import effects_of
from cluster.record.rules import Mechanism
from spec.encoding import Receipts
from spec.leaves import tier_of
from spec.world import Timer, World

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
