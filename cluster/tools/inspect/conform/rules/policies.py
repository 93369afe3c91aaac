"""Rules of docs/policies.md: candidates of ``cip1``, ``gba_auction``, ``bias_auction`` and watched keys."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from cluster.tools.inspect.conform.cases.running_chain import ExecutedBlock
from cluster.tools.inspect.conform.rules.observation import Observation
from cluster.tools.inspect.conform.rules.rule import Reached, failing, rules_of
from validator.chain.block import Cancelled, Locked
from validator.chain.records import ACTOR_WEIGHT, BIAS_RATE, MEDIAN_FIRES, WATCHABLE, BiasRate, Watchable
from validator.primitives.params import DEFAULTS
from validator.scheduler.fairness import ONE


def _in(policy: str, check: Callable[[Observation, ExecutedBlock], bool]) -> Reached:
    """Reached by a block of an auction of the policy."""
    return lambda seen: (
        seen.policy == policy and any(check(seen, block) for block in seen.blocks if seen.is_auction(block))
    )


def _writes(prefix: bytes) -> Callable[[Observation, ExecutedBlock], bool]:
    return lambda _, block: any(change.key[:1] == prefix for change in block.outcome.changes)


def _fires_with(name: str) -> Callable[[Observation, ExecutedBlock], bool]:
    """Whether timers of two actors fire in a block in which a parameter has not its default."""

    def check(_: Observation, block: ExecutedBlock) -> bool:
        fires = block.outcome.receipts.fires
        has_another = getattr(block.parameters, name) != getattr(DEFAULTS, name)
        return has_another and len({fire.actor for fire in fires}) > 1

    return check


CANDIDATE_RULES: Final = rules_of(
    "K",
    (
        ("fires count for the deployer", _in("cip1", _fires_with("weight_party"))),
        ("the median is smoothed", _in("cip1", _writes(MEDIAN_FIRES))),
        ("weights have a lower bound", _in("cip1", _fires_with("weight_clip_min_milli"))),
        ("weights have an upper bound", _in("cip1", _fires_with("weight_clip_max_milli"))),
    ),
)


def _timers_first(_: Observation, block: ExecutedBlock) -> bool:
    return bool(block.page["fires"]) and bool(block.page["txs"])


def _waits(reason: str) -> Callable[[Observation, ExecutedBlock], bool]:
    return lambda _, block: reason in block.page["deferred"].values()


def _second_pass(_: Observation, block: ExecutedBlock) -> bool:
    """Whether a timer came after one with a lower tip: its actor had used its slice."""
    fires = block.outcome.receipts.fires
    return any(
        int.from_bytes(first.tip_per_cycle) < int.from_bytes(second.tip_per_cycle) for first, second in pairwise(fires)
    )


def _weighs_again(_: Observation, block: ExecutedBlock) -> bool:
    changes = [change for change in block.outcome.changes if change.key[:1] == ACTOR_WEIGHT]
    return any(change.before is not None and change.after is not None for change in changes)


def _starves(_: Observation, block: ExecutedBlock) -> bool:
    height = block.page["height"]
    return any(
        height - fire.trigger_height >= block.parameters.starvation_blocks for fire in block.outcome.receipts.fires
    )


def _leaves_a_fraction(_: Observation, block: ExecutedBlock) -> bool:
    return any(ONE * fire.cycles % block.parameters.lane_timer_cycles for fire in block.outcome.receipts.fires)


GBA_RULES: Final = rules_of(
    "W",
    (
        ("timers fire before the transactions", _in("gba_auction", _timers_first)),
        ("the max fee covers the cycle's basefee", _in("gba_auction", _waits("below_basefee"))),
        ("an actor that used its slice comes in the second pass", _in("gba_auction", _second_pass)),
        ("a payer that cannot pay waits", _in("gba_auction", _waits("insufficient_funds"))),
        ("a fire gives its actor a weight", _in("gba_auction", _writes(ACTOR_WEIGHT))),
        ("a weight changes by the scores of an epoch", _in("gba_auction", _weighs_again)),
        ("a late timer weighs at least the floor", _in("gba_auction", _starves)),
        ("the rest of the lane is rounded up in a score", _in("gba_auction", _leaves_a_fraction)),
    ),
)


def _bias(check: Callable[[Observation, ExecutedBlock], bool]) -> Reached:
    return _in("bias_auction", check)


def _locks(_: Observation, block: ExecutedBlock) -> bool:
    receipts = block.outcome.receipts
    return any(
        isinstance(change, Locked) and bool(change.amount)
        for run in receipts.transactions
        for change in run.effects.timer_changes
    )


def _ends_unfired(seen: Observation, block: ExecutedBlock) -> bool:
    cancelled = any(
        isinstance(change, Cancelled)
        for run in block.outcome.receipts.transactions
        for change in run.effects.timer_changes
    )
    return cancelled or bool(block.page["destroyed"])


def _pays_by(rule: str) -> Callable[[Observation, ExecutedBlock], bool]:
    def check(_: Observation, block: ExecutedBlock) -> bool:
        is_left_out = "lane_full" in block.page["deferred"].values()
        return block.parameters.payment_rule.value == rule and bool(block.page["fires"]) and is_left_out

    return check


def _pays_reserve(_: Observation, block: ExecutedBlock) -> bool:
    return bool(block.parameters.reserve_price) and bool(block.page["fires"])


def _late_first(_: Observation, block: ExecutedBlock) -> bool:
    return len({fire.trigger_height for fire in block.outcome.receipts.fires}) > 1


def _rate_moves(rises: bool) -> Callable[[Observation, ExecutedBlock], bool]:
    def check(_: Observation, block: ExecutedBlock) -> bool:
        for change in block.outcome.changes:
            if change.key[:1] == BIAS_RATE and isinstance(change.after, BiasRate):
                before = block.parameters.bias_lambda_micro if change.before is None else change.before.micro
                if change.after.micro != before and (change.after.micro > before) is rises:
                    return True
        return False

    return check


def _watch(check: Callable[[Watchable | None, Watchable | None], bool]) -> Reached:
    return _bias(
        lambda _, block: any(
            check(change.before, change.after) for change in block.outcome.changes if change.key[:1] == WATCHABLE
        )
    )


def _digest_changes(before: Watchable | None, after: Watchable | None) -> bool:
    return before is not None and after is not None and before.digest != after.digest and bool(before.watchers)


def _due_in_its_block(seen: Observation, block: ExecutedBlock) -> bool:
    height = block.page["height"]
    return any(
        fire.timer_id in _watchers(seen) and fire.trigger_height == height for fire in block.outcome.receipts.fires
    ) and any(tx["status"] == "ok" for tx in block.page["txs"])


def _due_in_the_next(seen: Observation, block: ExecutedBlock) -> bool:
    return any(fire.timer_id in _watchers(seen) and not block.page["txs"] for fire in block.outcome.receipts.fires)


def _watchers(seen: Observation) -> set[bytes]:
    return {change.timer_id for _, change in seen.changes("watching")}


BIAS_RULES: Final = rules_of(
    "X",
    (
        ("a bid is locked", _bias(_locks)),
        ("a timer that ends without a fire gets its bid back", _bias(_ends_unfired)),
        ("TimerFeePayerForbidden or InsufficientBalance of a bid", failing("InsufficientBalance")),
        ("the late gain on those who bid", _bias(_late_first)),
        ("an actor has MAX_FIRES_PER_ACTOR fires", _bias(_waits("actor_limit"))),
        ("payment rule vcg", _bias(_pays_by("vcg"))),
        ("payment rule critical", _bias(_pays_by("critical"))),
        ("payment rule first_price", _bias(_pays_by("first_price"))),
        ("the reserve price", _bias(_pays_reserve)),
        ("λ rises", _bias(_rate_moves(True))),
        ("λ falls", _bias(_rate_moves(False))),
    ),
)

WATCH_RULES: Final = rules_of(
    "Y",
    (
        ("a key may be watched", _watch(lambda before, after: before is None and after is not None)),
        ("a key may be watched no more", _watch(lambda before, after: before is not None and after is None)),
        ("WatchUnavailable", failing("WatchUnavailable")),
        ("WatchKeyInvalid", failing("WatchKeyInvalid")),
        ("WatchNotAllowed", failing("WatchNotAllowed")),
        ("WatcherLimitReached", failing("WatcherLimitReached")),
        ("a key with watchers has changed", _watch(_digest_changes)),
        ("watchers of a change by a transaction fire in its block", _bias(_due_in_its_block)),
        ("watchers of a later change fire in the next block", _bias(_due_in_the_next)),
    ),
)
