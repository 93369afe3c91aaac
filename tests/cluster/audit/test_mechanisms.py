"""Mechanisms are noted at the heights that reach them, and at no other."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.record.rules import Mechanism
from tests.cluster.audit.chains import everything, ledger_of, make, signed
from tests.validator.chains import ACTOR, BOB, OTHER, PRICE, make_genesis, schedule, script
from validator.chain.genesis import Policy
from validator.chain.transactions import Call, Transfer

CAP = 6_000
SMALL_LANE = {"MAX_CYCLES_PER_FIRE": CAP, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": CAP, "LANE_TIMER_CYCLES": CAP}
STEADY = {"MIN_BASEFEE": PRICE, "MAX_BASEFEE": PRICE}
FEES: dict[str, Any] = {"max_fee_per_cycle": 10**9}


def reached(heights: int, blocks: dict[int, list[Any]], /, *other: dict[int, list[Any]], **params: Any) -> Any:
    """The heights of each mechanism of a chain in which an actor, and another one, have these operations by height."""
    genesis = make_genesis({"SCAN_LIMIT": 100, "TIMER_GC_CYCLES": 40_000, **STEADY, **params})
    calls = tuple(zip((ACTOR, OTHER), (blocks, *other), strict=False))

    def wires(author: Any, height: int) -> list[bytes]:
        given: Any = [(0, Call(actor, "run", script(*at[height])), {}) for actor, at in calls if height in at]
        return signed(author, *given)

    ledger = ledger_of(*make(genesis, heights, wires)[:2])
    assert ledger.violations == []
    return {mechanism: list(heights) for mechanism, heights in ledger.reached.items()}


def timers(count: int, ahead: int = 1, **fields: Any) -> list[Any]:
    return [schedule(ahead, **{**FEES, **fields}) for _ in range(count)]


def test_a_chain_in_which_nothing_happens_reaches_nothing_but_the_floor() -> None:
    assert reached(3, {}) == {Mechanism.BASEFEE_AT_FLOOR: [1, 2, 3]}
    assert reached(3, {}, MIN_BASEFEE=1) == {}


M = Mechanism
SHARED = {
    *(M.MESSAGES, M.TIMERS_EXTENDED, M.TIMERS_INSUFFICIENT_FUNDS, M.TIP_MEDIAN_ODD, M.TIP_MEDIAN_EVEN, M.BACKLOG),
    *(M.LANE_CYCLES_FULL, M.TRANSACTIONS_REVERTED, M.CALLBACKS, M.EPOCH_ENTERED, M.FIRES_REVERTED, M.TIMERS_CANCELLED),
    *(M.PARAMETERS_CHANGED, M.TIMERS_EXPIRED, M.TIMERS_EXPIRED_WAITING, M.BASEFEE_AT_FLOOR, M.DEFERRED_LANE_FULL),
}
AUCTION = {M.AUCTION_BEGAN, M.SCAN_LIMIT_REACHED}
ASKED = {M.AGENT_QUERIES, M.QUERY_BUDGET_USED_UP}
OF_POLICIES = {
    Policy.CIP1: SHARED | AUCTION | ASKED | {M.WINDOW_MEDIAN_EVEN, M.WINDOW_PRUNED, M.BID_REMEMBERED},
    Policy.FIFO: SHARED,
    Policy.GBA_AUCTION: SHARED | AUCTION | ASKED | {M.BID_REMEMBERED},
    Policy.BIAS_AUCTION: (SHARED | AUCTION | {M.WATCHES_TRIGGERED}) - {M.BASEFEE_AT_FLOOR},
}


@pytest.mark.parametrize(("policy", "expected"), OF_POLICIES.items())
def test_a_chain_with_everything_reaches_what_its_policy_has(policy: Policy, expected: set[Mechanism]) -> None:
    ledger = ledger_of(*everything(policy)[:2])
    assert ledger.reached.keys() == expected
    last = {
        Mechanism.AUCTION_BEGAN: [7],
        Mechanism.EPOCH_ENTERED: [4, 8, 12, 16, 20, 24],
        Mechanism.CALLBACKS: list(range(3, 25, 2)),
    }
    for mechanism, heights in last.items():
        assert list(ledger.reached.get(mechanism, heights)) == heights


# --- what is seen in a block ------------------------------------------------------------------------------------------


def test_epochs_and_timers_that_come_within_the_horizon() -> None:
    near, far = schedule(6, **FEES), schedule(8, save_as="far", **FEES)  # epochs 1 and 2
    calendar = {"EPOCH_LENGTH": 4, "EPOCH_HORIZON": 1, "RING_BUFFER_SIZE": 4}
    found = reached(12, {1: [near, far]}, **calendar)
    assert found[Mechanism.EPOCH_ENTERED] == [4, 8, 12]
    assert found[Mechanism.OVERFLOW_CUT] == [4], "epoch 2 comes within the horizon with epoch 1"
    found = reached(5, {1: [near, far], 2: [["cancel", {"saved": "far"}]]}, **calendar)
    assert Mechanism.OVERFLOW_CUT not in found and found[Mechanism.TIMERS_CANCELLED] == [2]


@pytest.mark.parametrize(("fires", "odd", "even"), [(0, [], []), (1, [], []), (2, [], [2]), (3, [2], []), (4, [], [2])])
def test_medians_of_tips(fires: int, odd: list[int], even: list[int]) -> None:
    found = reached(2, {1: timers(fires)})
    assert (found.get(Mechanism.TIP_MEDIAN_ODD, []), found.get(Mechanism.TIP_MEDIAN_EVEN, [])) == (odd, even)


def test_the_window_of_fires() -> None:
    found = reached(6, {1: timers(1)}, {1: timers(1)}, FAIRNESS_WINDOW_BLOCKS=2)  # both fire in block 2
    assert found[Mechanism.WINDOW_PRUNED] == [5]
    assert found[Mechanism.WINDOW_MEDIAN_EVEN] == [3, 4], "over the fires of earlier blocks"
    found = reached(6, {1: timers(1)}, FAIRNESS_WINDOW_BLOCKS=9)
    assert not found.keys() & {M.WINDOW_PRUNED, M.WINDOW_MEDIAN_EVEN, M.WINDOW_MEDIAN_ODD}


def test_one_that_expires_without_room_and_one_that_did_not_wait() -> None:
    found = reached(3, {1: timers(2, expires_at=2)}, **SMALL_LANE)
    assert found[Mechanism.LANE_CYCLES_FULL] == found[Mechanism.BACKLOG] == [2]
    assert found[Mechanism.TIMERS_EXPIRED_WAITING] == found[Mechanism.TIMERS_EXPIRED] == [3]
    assert not found.keys() & {M.LANE_CELLS_FULL, M.TIMERS_CANCELLED, M.SCAN_LIMIT_REACHED}
    found = reached(3, {1: timers(1, expires_at=2, max_fee_per_cycle=PRICE)}, LANE_FEE_MULTIPLIER_MILLI=1_000)
    assert Mechanism.TIMERS_EXPIRED_WAITING not in found


def test_removals_without_budget() -> None:
    budget = {"SCAN_LIMIT": 1, "TIMER_GC_CYCLES": 400, "GC_CYCLES_PER_REMOVAL": 200}
    found = reached(4, {1: timers(4, expires_at=2)}, **budget, **SMALL_LANE)
    assert found[Mechanism.EXPIRED_CARRIED_OVER][0] == 3 and found[Mechanism.TIMERS_EXPIRED] == [3, 4]
    found = reached(4, {1: timers(4, expires_at=2)}, **{**budget, "TIMER_GC_CYCLES": 4_000}, **SMALL_LANE)
    assert not found.keys() & {M.GC_BUDGET_USED_UP, M.EXPIRED_CARRIED_OVER}


def test_a_lane_without_cells_and_a_scan_of_so_many() -> None:
    writes = [schedule(1, ["set", "k", "v" * 900], **FEES) for _ in range(2)]
    found = reached(2, {1: writes}, LANE_TIMER_CELLS=500)
    assert found[Mechanism.LANE_CELLS_FULL] == [2] and Mechanism.LANE_CYCLES_FULL not in found
    for limit, expected in ((2, [2]), (3, [])):
        assert reached(2, {1: timers(3)}, SCAN_LIMIT=limit, **SMALL_LANE).get(M.SCAN_LIMIT_REACHED, []) == expected


def test_bounds_and_the_least_step_of_basefees() -> None:
    for least, most, target, mechanism in (
        (PRICE, 2 * PRICE, 10**6, Mechanism.BASEFEE_AT_FLOOR),
        (1, PRICE, 1_000, Mechanism.BASEFEE_AT_CAP),
    ):
        found = reached(1, {1: timers(1)}, MIN_BASEFEE=least, MAX_BASEFEE=most, BLOCK_CYCLES_TARGET=target)
        assert found[mechanism] == [1]
    genesis = make_genesis({"MIN_BASEFEE": 1, "INITIAL_BASEFEE": 7, "BLOCK_CYCLES_TARGET": 999})
    made = make(genesis, 1, lambda author, _: signed(author, (0, Transfer(BOB), {"value": 1})))
    assert list(ledger_of(*made[:2]).reached[Mechanism.BASEFEE_LEAST_STEP]) == [1]


def test_a_change_that_is_taken_back_is_none() -> None:
    before: list[Any] = [schedule(9, save_as="t", **FEES)]
    cancels: list[Any] = [["cancel", {"saved": "t"}]]
    assert reached(3, {1: before, 2: cancels})[Mechanism.TIMERS_CANCELLED] == [2]
    assert Mechanism.TIMERS_CANCELLED not in reached(3, {1: before, 2: [*cancels, ["fail", "no"]]})
