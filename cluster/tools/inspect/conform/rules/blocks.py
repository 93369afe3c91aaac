"""Rules of blocks, of transactions, and of basefees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cluster.tools.inspect.conform.cases.running_chain import ExecutedBlock
from cluster.tools.inspect.conform.rules.observation import Observation, ShownTransaction
from cluster.tools.inspect.conform.rules.rule import failing_in, rejecting, rules_of
from validator.primitives.types import is_reserved, parse_address


def _tx(check: Callable[[ShownTransaction], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(check(each) for each in seen.executed)


def _block(check: Callable[[Observation, ExecutedBlock], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(check(seen, block) for block in seen.blocks)


# --- blocks -----------------------------------------------------------------------------------------------------------


def _is_empty(_: Observation, block: ExecutedBlock) -> bool:
    parts = ("txs", "fires", "messages", "destroyed", "deferred")
    return not any(block.page[part] for part in parts)


def _fires_after_transactions(seen: Observation, block: ExecutedBlock) -> bool:
    return seen.policy != "gba_auction" and bool(block.page["fires"]) and bool(block.page["txs"])


def _activates(seen: Observation) -> bool:
    return len({seen.is_auction(block) for block in seen.blocks if seen.policy != "fifo"}) == 2


def _fires_in_order_of_age(seen: Observation, block: ExecutedBlock) -> bool:
    return not seen.is_auction(block) and len(block.page["fires"]) > 1


def _ends_at_the_first_that_does_not_fit(seen: Observation, block: ExecutedBlock) -> bool:
    return not seen.is_auction(block) and "lane_full" in block.page["deferred"].values()


def _reverts(seen: Observation) -> bool:
    return any(each.shown["status"] == "reverted" for each in seen.executed)


def _changes_parameters(seen: Observation) -> bool:
    first, *others = seen.blocks
    return any(block.parameters != first.parameters for block in others)


def _proposer_pays(_: Observation, block: ExecutedBlock) -> bool:
    proposer = block.outcome.receipts.proposer
    return any(fire.fee_payer == proposer for fire in block.outcome.receipts.fires) and block.page["tips"] > 0


def _messages_waited(_: Observation, block: ExecutedBlock) -> bool:
    sources = ("txs", "fires", "callbacks")
    return bool(block.page["messages"]) and not any(block.page.get(part) for part in sources)


def _tips_to_proposer(_: Observation, block: ExecutedBlock) -> bool:
    return any(int.from_bytes(receipt.tip) > 0 for receipt in block.outcome.receipts.transactions)


def _fire_tips_to_proposer(_: Observation, block: ExecutedBlock) -> bool:
    return any(int.from_bytes(receipt.tip) > 0 for receipt in block.outcome.receipts.fires)


BLOCK_RULES: Final = rules_of(
    "B",
    (
        ("an empty block moves basefees and nothing else", _block(_is_empty)),
        ("timers fire after the transactions", _block(_fires_after_transactions)),
        ("the tips of transactions go to the proposer", _block(_tips_to_proposer)),
        ("the tips of transactions can pay for the block's fires", _block(_proposer_pays)),
        ("the tips of fires go to the proposer", _block(_fire_tips_to_proposer)),
        ("parameters are those at the beginning of the block", _changes_parameters),
        ("outside the auction timers fire by age", _block(_fires_in_order_of_age)),
        (
            "outside the auction the first that does not fit ends the phase",
            _block(_ends_at_the_first_that_does_not_fit),
        ),
        ("the auction begins after ACTIVATION_HEIGHT", _activates),
        ("a message that does not fit waits for a later block", _block(_messages_waited)),
        ("a failing handler reverts all but its cycles, its cells and the nonce", _reverts),
    ),
)

# --- transactions -----------------------------------------------------------------------------------------------------


def _fee_too_low(of_cells: bool) -> Callable[[Observation], bool]:
    def reached(seen: Observation) -> bool:
        return any(
            (each.number("max_fee_per_cycle") >= each.block.page["basefee_cycle"]) is of_cells
            for each in seen.rejected("FeeTooLow")
        )

    return reached


def _lane_full(lane: str) -> Callable[[Observation], bool]:
    def reached(seen: Observation) -> bool:
        return any(_lane_of(each) == lane for each in seen.rejected("LaneFull"))

    return reached


def _lane_of(refused: ShownTransaction) -> str:
    if refused.given["kind"] == "system":
        return "system"
    used = sum(shown["cells"] for shown in refused.block.page["txs"])
    return "cells" if used + refused.number("cells_limit") > refused.block.parameters.lane_user_cells else "user"


def _tip_is_clipped(each: ShownTransaction) -> bool:
    room = each.number("max_fee_per_cycle") - each.block.page["basefee_cycle"]
    return each.number("max_priority_fee_per_cycle") > room


def _is_returned(each: ShownTransaction) -> bool:
    return bool(each.shown["cycles"] < each.number("gas_limit"))


def _pays_for_payload(each: ShownTransaction) -> bool:
    return each.given["kind"] == "call" and bool(each.given["payload"]) and each.shown["cells"] > 0


def _moves_value(status: str) -> Callable[[ShownTransaction], bool]:
    return lambda each: each.shown["status"] == status and each.number("value") > 0 and each.given["kind"] != "system"


def _nonce_rises_after_a_failure(seen: Observation) -> bool:
    failed: set[str] = set()
    for each in seen.executed:
        if each.given["sender"] in failed:
            return True
        if each.shown["status"] == "reverted":
            failed.add(each.given["sender"])
    return False


def _gives_to_a_reserved_address(each: ShownTransaction) -> bool:
    return (
        each.given["kind"] == "transfer" and each.number("value") > 0 and is_reserved(parse_address(each.given["to"]))
    )


ADMISSION_RULES: Final = rules_of(
    "A",
    (
        ("BadNonce", rejecting("BadNonce")),
        ("FeeTooLow for a cycle", _fee_too_low(of_cells=False)),
        ("FeeTooLow for a cell", _fee_too_low(of_cells=True)),
        ("GasTooLow", rejecting("GasTooLow")),
        ("LaneFull of cycles", _lane_full("user")),
        ("LaneFull of system instructions", _lane_full("system")),
        ("LaneFull of cells", _lane_full("cells")),
        ("InsufficientFunds", rejecting("InsufficientFunds")),
        ("the tip is at most the room above the basefee", _tx(_tip_is_clipped)),
        ("what is not used is returned", _tx(_is_returned)),
        ("base cycles and the payload's bytes are charged first", _tx(_pays_for_payload)),
        ("OutOfCycles uses up all cycles", failing_in("txs", "OutOfCycles")),
        ("OutOfCells leaves the cycles charged", failing_in("txs", "OutOfCells")),
        ("the nonce rises, whatever follows", _nonce_rises_after_a_failure),
        ("the value moves to the receiver", _tx(_moves_value("ok"))),
        ("the value comes back from a failing call", _tx(_moves_value("reverted"))),
        ("a call of an account that is no actor", failing_in("txs", "UnknownActor")),
        ("a reserved address takes what it is given", _tx(_gives_to_a_reserved_address)),
    ),
)

# --- basefees ---------------------------------------------------------------------------------------------------------

Step = tuple[int, int, int, int, int, ExecutedBlock]
"""Basefee, the next one, used, target, slope, and the block."""


def _steps(seen: Observation, of: str) -> list[Step]:
    found: list[Step] = []
    for block, following in zip(seen.blocks, seen.blocks[1:], strict=False):
        parameters, page = block.parameters, block.page
        if of == "lane":
            if seen.policy != "cip1" or not seen.is_auction(block):
                continue
            figures = page["lane_cycles"], parameters.lane_timer_cycles // 2, parameters.lane_basefee_slope
            name = "basefee_lane_timer"
        elif of == "cell":
            figures, name = (page["cells"], parameters.block_cells_target, 8), "basefee_cell"
        else:
            figures, name = (page["cycles"], parameters.block_cycles_target, 8), "basefee_cycle"
        found.append((page[name], following.page[name], *figures, block))
    return found


def _step(check: Callable[[Step], bool], *kinds: str) -> Callable[[Observation], bool]:
    names = kinds or ("cycle", "cell", "lane")
    return lambda seen: any(check(step) for of in names for step in _steps(seen, of))


def _rises(step: Step) -> bool:
    return step[1] > step[0]


def _falls(step: Step) -> bool:
    return step[1] < step[0]


def _rests(step: Step) -> bool:
    return step[2] == step[3]


def _rises_by_one(step: Step) -> bool:
    basefee, following, used, target, slope, _ = step
    exact = basefee * min(8 * abs(used - target), slope * target) // (8 * slope * target)
    return used > target and exact == 0 and following == basefee + 1


def _largest_step(step: Step) -> bool:
    basefee, following, used, target, slope, _ = step
    return 8 * abs(used - target) > slope * target and basefee >= 8 and following != basefee


def _at_maximum(step: Step) -> bool:
    return step[2] > step[3] and step[1] == step[5].parameters.max_basefee


def _at_minimum(step: Step) -> bool:
    return step[2] < step[3] and step[1] == step[5].parameters.min_basefee


def _has_multiplier(seen: Observation) -> bool:
    return any(
        block.page["fires"] and block.parameters.lane_fee_multiplier_milli != 1_000 and seen.is_auction(block)
        for block in seen.blocks
    )


def _lane_alias(seen: Observation) -> bool:
    return any(
        not seen.is_auction(block) and block.page["basefee_lane_timer"] == block.page["basefee_cycle"] != following
        for block, following in ((b, b.parameters.initial_basefee) for b in seen.blocks)
    )


def _p50_by(weight: str) -> Callable[[Observation], bool]:
    def reached(seen: Observation) -> bool:
        return any(
            following.page["p50_tip"] > 0
            and len({fire["tip"] for fire in block.page["fires"]}) > 1
            and block.parameters.p50_weight.value == weight
            for block, following in zip(seen.blocks, seen.blocks[1:], strict=False)
        )

    return reached


def _p50_back_to_zero(seen: Observation) -> bool:
    return any(a.page["p50_tip"] > 0 == b.page["p50_tip"] for a, b in zip(seen.blocks, seen.blocks[1:], strict=False))


BASEFEE_RULES: Final = rules_of(
    "F",
    (
        ("the cycle's basefee rises above its target", _step(_rises, "cycle")),
        ("the cycle's basefee falls below its target", _step(_falls, "cycle")),
        ("the cell's basefee rises above its target", _step(_rises, "cell")),
        ("the cell's basefee falls below its target", _step(_falls, "cell")),
        ("the lane's basefee rises above its target", _step(_rises, "lane")),
        ("the lane's basefee falls below its target", _step(_falls, "lane")),
        ("a basefee rests at its target", _step(_rests)),
        ("a basefee rises by one at least", _step(_rises_by_one)),
        ("a step is bounded by the slope", _step(_largest_step)),
        ("a basefee stays at MAX_BASEFEE", _step(_at_maximum)),
        ("a basefee stays at MIN_BASEFEE", _step(_at_minimum)),
        ("the lane price has a multiplier", _has_multiplier),
        ("outside the auction the lane's basefee is the cycle's", _lane_alias),
        ("p50 is the median of fires", _p50_by("fires")),
        ("p50 is weighted by cycles", _p50_by("cycles")),
        ("p50 is 0 if no timer fired", _p50_back_to_zero),
    ),
)
