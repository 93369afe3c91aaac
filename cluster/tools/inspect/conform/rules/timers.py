"""Rules of the timer phase, of agents, and of scheduling."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from cluster.tools.inspect.conform.cases.running_chain import ExecutedBlock
from cluster.tools.inspect.conform.rules.observation import Observation
from cluster.tools.inspect.conform.rules.rule import failing, failing_in, rules_of, showing, waiting
from validator.chain.block import FireReceipt, Scheduled


def _number(data: bytes | None) -> int | None:
    return None if data is None else int.from_bytes(data)


# --- turns and fires --------------------------------------------------------------------------------------------------


def _destroyed(reason: str) -> Callable[[Observation], bool]:
    return lambda seen: any(end["reason"] == reason for block in seen.blocks for end in block.page["destroyed"])


def _fire(check: Callable[[Observation, ExecutedBlock, FireReceipt, Scheduled], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(
        check(seen, block, fire, seen.timers[fire.timer_id])
        for block, fire in seen.fires
        if fire.timer_id in seen.timers
    )


def _cip1(seen: Observation, block: ExecutedBlock) -> bool:
    return seen.policy == "cip1" and seen.is_auction(block)


def _has_no_answer(block: ExecutedBlock, timer: Scheduled) -> bool:
    return not any(query.actor == timer.actor for query in block.outcome.receipts.queries)


def _default_max_fee(seen: Observation, block: ExecutedBlock, _: FireReceipt, timer: Scheduled) -> bool:
    return _cip1(seen, block) and timer.max_fee_per_cycle is None and _has_no_answer(block, timer)


def _default_max_fee_is_kept(seen: Observation, block: ExecutedBlock, fire: FireReceipt, timer: Scheduled) -> bool:
    was_late = block.page["height"] > fire.trigger_height
    return was_late and _default_max_fee(seen, block, fire, timer)


def _default_priority(seen: Observation, block: ExecutedBlock, fire: FireReceipt, timer: Scheduled) -> bool:
    is_open = timer.max_priority_fee_per_cycle is None and _has_no_answer(block, timer)
    return _cip1(seen, block) and is_open and int.from_bytes(fire.tip_per_cycle) > 0


def _tip_cap(seen: Observation, block: ExecutedBlock, fire: FireReceipt, timer: Scheduled) -> bool:
    cap = block.parameters.default_tip_cap
    if not cap or timer.max_priority_fee_per_cycle is not None or not _cip1(seen, block):
        return False
    return block.page["p50_tip"] > block.lane_price // cap and _has_no_answer(block, timer)


def _clipped_tip(seen: Observation, block: ExecutedBlock, fire: FireReceipt, timer: Scheduled) -> bool:
    priority = _number(timer.max_priority_fee_per_cycle)
    return priority is not None and _cip1(seen, block) and int.from_bytes(fire.tip_per_cycle) < priority


def _pairs(check: Callable[[FireReceipt, FireReceipt], bool], by_id: bool | None = None) -> Callable[..., bool]:
    """Reached by two fires in a row under ``cip1`` that are as ``check`` says."""

    def reached(seen: Observation) -> bool:
        return any(
            check(first, second)
            for block in seen.blocks
            if _cip1(seen, block) and by_id in (None, block.parameters.tie_break.value == "id")
            for first, second in pairwise(block.outcome.receipts.fires)
        )

    return reached


def _tip(fire: FireReceipt) -> int:
    return int.from_bytes(fire.tip_per_cycle)


def _left(block: ExecutedBlock) -> int:
    return int(block.parameters.lane_timer_cycles - block.page["lane_cycles"])


def _lane_full(check: Callable[[ExecutedBlock], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(check(block) for block in seen.waited("lane_full") if seen.is_auction(block))


def _cycles_used_up(block: ExecutedBlock) -> bool:
    return _left(block) < block.parameters.min_gas_limit_per_timer


def _cells_used_up(block: ExecutedBlock) -> bool:
    return not _cycles_used_up(block) and block.outcome.lane_cells >= block.parameters.lane_timer_cells


def _scan_ended(block: ExecutedBlock) -> bool:
    has_room = not _cycles_used_up(block) and not _cells_used_up(block)
    return has_room and len(block.page["deferred"]) + len(block.page["fires"]) > block.parameters.scan_limit


def _passed_over(block: ExecutedBlock) -> bool:
    has_room = not _cycles_used_up(block) and not _cells_used_up(block)
    waiting_for_lane = [reason for reason in block.page["deferred"].values() if reason == "lane_full"]
    fires = len(block.page["fires"])
    is_below = len(waiting_for_lane) + fires <= block.parameters.scan_limit
    return has_room and is_below and fires < block.parameters.max_fires_per_block


def _fires_used_up(block: ExecutedBlock) -> bool:
    return len(block.page["fires"]) == block.parameters.max_fires_per_block


def _payer_cap(seen: Observation) -> bool:
    return any(
        (cap := _number(seen.timers[bytes.fromhex(event["timer_id"])].payer_cap)) is not None
        and event["balance"] == cap < event["needed"]
        for event in seen.events
        if event["name"] == "TimerCancelledInsufficientFunds" and bytes.fromhex(event["timer_id"]) in seen.timers
    )


def _gc_used_up_by_turns(seen: Observation) -> bool:
    return any(
        "insufficient_funds" in {end["reason"] for end in block.page["destroyed"]}
        and block.page["gc_cycles"] + block.parameters.gc_cycles_per_removal > block.parameters.timer_gc_cycles
        for block in seen.waited("gc_budget")
    )


def _other_pays(_: Observation, __: ExecutedBlock, fire: FireReceipt, ___: Scheduled) -> bool:
    return fire.fee_payer != fire.actor


def _fires_again_after_the_window(seen: Observation) -> bool:
    at: dict[bytes, int] = {}
    for block, fire in seen.fires:
        height = block.page["height"]
        if height - at.setdefault(fire.actor, height) > block.parameters.fairness_window_blocks and _cip1(seen, block):
            return True
    return False


def _fire_failing(*names: str) -> Callable[[Observation], bool]:
    return failing_in("fires", *names)


def _envelope(seen: Observation) -> bool:
    return any('"_handler"' in str(each.given.get("payload")) for each in seen.executed) and bool(seen.fires)


def _no_envelope(seen: Observation) -> bool:
    return _envelope(seen) and _fire_failing("BadScript")(seen)


def _weights_differ(seen: Observation) -> bool:
    return any(
        len({fire.actor for fire in block.outcome.receipts.fires}) > 1
        and _cip1(seen, block)
        and bool(block.parameters.priority_floor)
        for block in seen.blocks[1:]
    )


TURN_RULES: Final = rules_of(
    "L",
    (
        ("a due timer past its expiry is destroyed", _destroyed("expired")),
        ("expired timers beyond the garbage collection budget wait", waiting("gc_budget")),
        ("the default agent's max fee is twice the lane price", _fire(_default_max_fee)),
        ("the default max fee is that of the first block", _fire(_default_max_fee_is_kept)),
        ("the default priority is p50", _fire(_default_priority)),
        ("the default priority is capped", _fire(_tip_cap)),
        ("the tip is at most the room above the lane price", _fire(_clipped_tip)),
        ("a timer below the lane price waits", waiting("below_basefee")),
        ("a timer above the cap waits", waiting("over_cap")),
        ("the greatest score comes first", _pairs(lambda first, second: _tip(first) > _tip(second))),
        ("fairness weights outvote tips", _pairs(lambda first, second: _tip(first) < _tip(second))),
        ("PRIORITY_FLOOR lets weights count without tips", _weights_differ),
        ("fires leave the fairness window", _fires_again_after_the_window),
        ("equal scores go by id", _pairs(lambda a, b: _tip(a) == _tip(b) and a.timer_id < b.timer_id, by_id=True)),
        ("equal scores go by age", _pairs(lambda a, b: _tip(a) == _tip(b) and a.timer_id > b.timer_id, by_id=False)),
        ("turns end with the lane's cycles", _lane_full(_cycles_used_up)),
        ("turns end with the lane's cells", _lane_full(_cells_used_up)),
        ("turns end with SCAN_LIMIT", _lane_full(_scan_ended)),
        ("turns end with MAX_FIRES_PER_BLOCK", _lane_full(_fires_used_up)),
        ("a timer that does not fit is passed over", _lane_full(_passed_over)),
        ("a payer that cannot pay loses the timer", _destroyed("insufficient_funds")),
        ("the amount is within the payer's cap", _payer_cap),
        ("without a garbage collection budget such a timer waits", _gc_used_up_by_turns),
        ("another payer pays", _fire(_other_pays)),
        ("a failing fire keeps its cycles", lambda seen: any(not fire.ok for _, fire in seen.fires)),
        ("a fire's cycles end", _fire_failing("OutOfCycles")),
        ("a fire's cells end", _fire_failing("OutOfCells")),
        ("the handler and the payload may be wrapped", _envelope),
        ("what is no envelope is taken as it is", _no_envelope),
    ),
)

# --- agents -----------------------------------------------------------------------------------------------------------


def _query(outcome: str) -> Callable[[Observation], bool]:
    return lambda seen: any(query.outcome == outcome for _, query in seen.queries)


def _more_than_are_asked(seen: Observation) -> bool:
    for block in seen.blocks:
        asked: dict[bytes, int] = {}
        for query in block.outcome.receipts.queries:
            asked[query.actor] = asked.get(query.actor, 0) + 1
        most = block.parameters.gba_queries_per_actor
        for actor, count in asked.items():
            others = sum(
                seen.timers[fire.timer_id].max_fee_per_cycle is None
                for fire in block.outcome.receipts.fires
                if fire.actor == actor and fire.timer_id in seen.timers
            )
            if count == most and others > most:
                return True
    return False


def _paused(seen: Observation) -> bool:
    unpaid = [(block.page["height"], query.actor) for block, query in seen.queries if query.outcome == "unpaid"]
    return any(
        block.page["height"] > height
        and not any(query.actor == actor for query in block.outcome.receipts.queries)
        and any(fire.actor == actor for fire in block.outcome.receipts.fires)
        for height, actor in unpaid
        for block in seen.blocks
    )


def _asked_by_age(seen: Observation) -> bool:
    heights: dict[bytes, int] = {}
    for block in seen.blocks:
        queries = block.outcome.receipts.queries
        if block.page["gba"]["not_admitted"] and queries and queries[0].actor not in heights and heights:
            return True
        heights |= {query.actor: block.page["height"] for query in queries}
    return False


def _by_named_contract(seen: Observation) -> bool:
    return any(query.agent and query.outcome == "ok" for _, query in seen.queries)


def _bid_below(seen: Observation) -> bool:
    return any(
        timer_id in {query.timer_id for query in block.outcome.receipts.queries} and why == "below_basefee"
        for block, timer_id, why in seen.deferrals
    )


def _priority_alone(seen: Observation) -> bool:
    return any(query.bid is not None and query.bid[0] is None and query.bid[1] is not None for _, query in seen.queries)


def _unpaid_for_nothing(seen: Observation) -> bool:
    return any(query.outcome == "unpaid" and not query.cycles and not query.burned for _, query in seen.queries)


AGENT_RULES: Final = rules_of(
    "G",
    (
        ("an agent's bid fills open fields", _query("ok")),
        ("a failing query leaves the timer to the default agent", _query("failed")),
        ("an actor that cannot pay is not queried", _query("unpaid")),
        ("after that its agent has a pause", _paused),
        ("queries have a budget", lambda seen: any(block.page["gba"]["not_admitted"] for block in seen.blocks)),
        ("an actor has GBA_QUERIES_PER_ACTOR queries, and its last answer prices the rest", _more_than_are_asked),
        ("actors that were asked longest ago come first", _asked_by_age),
        ("a contract that was named is asked", _by_named_contract),
        ("a bid below the lane price makes a timer wait", _bid_below),
        ("an answer may leave the max fee open", _priority_alone),
        ("an unpaid query has no cycles in its receipt", _unpaid_for_nothing),
    ),
)

# --- scheduling -------------------------------------------------------------------------------------------------------


def _timer(check: Callable[[ExecutedBlock, Scheduled], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(check(block, timer) for block, timer in seen.scheduled)


def _inner(seen: Observation, name: str) -> list[Any]:
    """Values of a field of all ``schedule`` operations in transactions' scripts."""
    return [
        inner[1][name]
        for each in seen.executed
        if isinstance(each.given.get("payload"), list)
        for operation in each.given["payload"]
        for inner in (operation, operation[1] if operation and operation[0] == "try" else [])
        if isinstance(inner, list)
        and len(inner) == 2
        and inner[0] == "schedule"
        and isinstance(inner[1], dict)
        and name in inner[1]
    ]


def _asks_too_late(seen: Observation) -> bool:
    latest = {block.page["height"] + block.parameters.max_ttl for block, _ in seen.scheduled}
    stated = [value for value in _inner(seen, "expires_at") if isinstance(value, int)]
    ends = {timer.expires_at for _, timer in seen.scheduled}
    return any(value > height and height in ends for value in stated for height in latest)


def _has_tier(seen: Observation) -> bool:
    return bool(_inner(seen, "tier")) and any(timer.max_priority_fee_per_cycle for _, timer in seen.scheduled)


def _expires_by_default(block: ExecutedBlock, timer: Scheduled) -> bool:
    return timer.expires_at == block.page["height"] + block.parameters.max_ttl


def _from_allowance(_: ExecutedBlock, timer: Scheduled) -> bool:
    return timer.payer_cap is not None and timer.fee_payer != timer.actor


def _extended_to_the_limit(seen: Observation) -> bool:
    return any(
        change.expires_at == block.page["height"] + block.parameters.max_ttl
        for block, change in seen.changes("extended")
    )


SCHEDULING_RULES: Final = rules_of(
    "T",
    (
        ("a new timer has an id and a sequence", lambda seen: bool(seen.scheduled)),
        ("TimerArgDeprecated", failing("TimerArgDeprecated")),
        ("TimerBidIgnored", showing("TimerBidIgnored")),
        ("TimerFeeOutOfRange", failing("TimerFeeOutOfRange")),
        ("a tier fills the priority", _has_tier),
        ("TimerHeightNotInFuture", failing("TimerHeightNotInFuture")),
        ("TimerHeightOutOfRange", failing("TimerHeightOutOfRange")),
        ("TimerPayloadTooLarge", failing("TimerPayloadTooLarge")),
        ("TimerHandlerInvalid", failing("TimerHandlerInvalid")),
        ("TimerLimitReached", failing("TimerLimitReached")),
        ("TimerFeePayerForbidden", failing("TimerFeePayerForbidden")),
        ("a cap comes off the allowance", _timer(_from_allowance)),
        ("TimerGasLimitTooLow", failing("TimerGasLimitTooLow")),
        ("TimerGasLimitTooHigh", failing("TimerGasLimitTooHigh")),
        ("TimerExpiryInvalid", failing("TimerExpiryInvalid")),
        ("an expiry beyond H + MAX_TTL is lowered", _asks_too_late),
        ("the default expiry is H + MAX_TTL", _timer(_expires_by_default)),
        ("TimerRejectedBelowBasefee", failing("TimerRejectedBelowBasefee")),
        ("TimerPriorityClampedAtSchedule", showing("TimerPriorityClampedAtSchedule")),
        ("a bidding_agent that is no contract", failing("UnknownActor")),
        ("cancel removes a timer", lambda seen: bool(seen.changes("cancelled"))),
        ("extend moves the expiry", lambda seen: bool(seen.changes("extended"))),
        ("extend goes up to H + MAX_TTL", _extended_to_the_limit),
        ("NotFound", failing("NotFound")),
        ("NotOwner", failing("NotOwner")),
    ),
)
