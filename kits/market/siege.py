"""``siege``: attackers from the load's library act next to honest users for a while; bounds limit the harm they may do.

The blocks before the attack are the baseline. The metrics are those of the scorecard of ``stampede dos``
(:mod:`kits.market.dos.measures`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.commands.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, option
from cluster.commands.drills.expectations import READINGS_KEPT, TIMERS_ONCE, unmet
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.archive import BlockRecord
from cluster.scenario import Scenario
from kits.market.dos.cases import POLICIES
from kits.market.dos.measures import (
    TAIL,
    ExecutedBlock,
    RunMeasures,
    Window,
    attack_window,
    block_rate,
    measure_run,
    recovery_blocks,
)
from kits.market.dos.section import ATTACK_NAMES, DosSection
from validator.chain.block import BlockReceipts
from validator.primitives.codec import CodecError, decode

FROM_HEIGHT: Final = 30
UNTIL_HEIGHT: Final = 80
HEIGHT: Final = 160
BUDGET: Final = 3 * 10**13
"""Total budget of the attackers, in the smallest CBY unit. Their timers continue after the attackers have stopped, and
the lane's price doubles every six blocks: the budget lasts for about ten more blocks. A chain reaction that survives
with some funds grows again once the price is low, so a second wave can come about thirty blocks later."""
SETTLED_HEIGHT: Final = 10
"""The baseline begins after this height, when every user has begun."""
BLOCK_MS: Final = 400
"""Block interval: long enough to execute a full block on all validators of a busy laptop."""
LANES: Final[dict[str, int]] = {
    "LANE_TIMER_CYCLES": 500_000,
    "LANE_USER_CYCLES": 1_250_000,
    "BLOCK_CYCLES_TARGET": 1_250_000,
    "MAX_CYCLES_PER_FIRE": 137_500,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 62_500,
}
"""Limits of the lanes: a quarter of the defaults, so that full blocks take no longer than :data:`BLOCK_MS`."""
HONEST: Final[list[dict[str, Any]]] = [
    {"workload": "heartbeat", "count": 5, "interval_ms": 4_000},
    {
        "workload": "flood",
        "count": 8,
        "interval_ms": 2_400,
        "options": {"timers": 4, "spread_blocks": 4, "burn": 2_000, "explicit_percent": 0},
    },
    {"workload": "transfer", "count": 3, "interval_ms": 600},
]
"""Honest users: a heartbeat of each tier, and floods that bid as the attackers do, with the default agent. They need a
tenth of the lane, and more on a slow machine, since they act by time, not by block."""
ATTACKING_PERCENT: Final = 50
"""Percentage of the executed cycles that must be the attackers' for the run to count as an attack."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """The measures of a run before and under attack."""

    before: RunMeasures
    during: RunMeasures
    ended: Window
    """The attack with its aftermath: to the attack's last height, or to a later last block that used more than the
    lane's target, most of it for the attackers' fires. Honest users alone can fill a block that comes late on a busy
    machine."""


@dataclass(frozen=True)
class Siege(Drill):
    name: ClassVar[str] = "siege"
    summary: ClassVar[str] = "users attack for a while; honest timers, transactions and blocks go on"

    attack: str = option("chain-reaction", "the attack", choices=ATTACK_NAMES)
    policy: str = option("hardened", "the chain's policy, or its preset", choices=tuple(POLICIES))
    validators: int = option(4, "number of validators", most=64)
    lateness_blocks: int = option(6, "maximum p99 of the honest timers' lateness, in blocks", least=0, most=1_000)
    fires_percent: int = option(75, "required honest fires per block, in percent of those before", most=100)
    users_percent: int = option(75, "required honest transactions per second, in percent of those before", most=100)
    pace_percent: int = option(50, "required block rate, in percent of that before", most=100)
    recovery_blocks: int = option(50, "limit for the last honest timer that waits, in blocks", least=0, most=1_000)

    def scenario(self) -> Scenario:
        policy, preset = POLICIES[self.policy]
        plan = DosSection(from_height=FROM_HEIGHT, until_height=UNTIL_HEIGHT, budget=BUDGET)
        return self.build(
            validators={"count": self.validators},
            consensus={"block_interval_ms": BLOCK_MS},
            chain={"policy": policy, "params": LANES} | ({} if preset is None else {"preset": preset}),
            load={"users": [*HONEST, plan.group(self.attack, HEIGHT)]},
            stop={"height": HEIGHT, "drain_blocks": 10, "timeout_s": TIMEOUT_S},
            success={"heights_compared": HEIGHT, "transactions": 100, "fires": 200, "stall_ms": 30_000},
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        heights = _heights(attack_window(scenario.load, scenario.stop.height))
        return [
            Expectation(
                "attack",
                f"at least {ATTACKING_PERCENT} % of the cycles that blocks{heights} execute are the attackers'",
                _judge_attack,
            ),
            self._under_attack(
                "honest_lateness",
                f"99 % of the honest timers that become due under attack fire at most {self.lateness_blocks} blocks"
                " late, and none is destroyed",
                self._judge_lateness,
            ),
            self._under_attack(
                "honest_fires",
                f"under attack at least {self.fires_percent} % as many honest timers fire per block as before",
                self._judge_fires,
            ),
            self._under_attack(
                "user_lane",
                f"under attack at least {self.users_percent} % as many honest transactions per second as before",
                self._judge_users,
            ),
            self._under_attack(
                "pace",
                f"under attack the block rate is at least {self.pace_percent} % of that before",
                self._judge_pace,
            ),
            self._under_attack(
                "recovery",
                f"{self.recovery_blocks} blocks after the attack no more honest timers wait than ever before it,"
                " and none longer",
                self._judge_recovery,
            ),
            TIMERS_ONCE,
        ]

    @staticmethod
    def _under_attack(name: str, text: str, judge: Callable[[Books, Attacked], Judgement]) -> Expectation:
        """An expectation whose outcome is inconclusive if there was no attack."""

        def judge_attacked(books: Books) -> Judgement:
            found = measure(books)
            return (Outcome.INCONCLUSIVE, found) if isinstance(found, str) else judge(books, found)

        return Expectation(name, text, judge_attacked)

    def _judge_lateness(self, books: Books, found: Attacked) -> Judgement:
        late = found.during
        p99 = late.lateness_at(TAIL)
        if p99 is None:
            return Outcome.INCONCLUSIVE, "no honest timer became due under attack"
        text = (
            f"{late.timers:,} honest timers: p50 {late.lateness_at(0.5)}, p99 {p99}, at most {late.lateness_at(1)}"
            f" blocks late; {late.waiting:,} still wait, {late.destroyed:,} were destroyed"
        )
        return _met(books, p99 <= self.lateness_blocks and not late.destroyed), text

    def _judge_fires(self, books: Books, found: Attacked) -> Judgement:
        before, during = (run.per_block(run.fires) for run in (found.before, found.during))
        if not before:
            return Outcome.INCONCLUSIVE, "no honest timer fired before the attack"
        is_met = during * 100 >= before * self.fires_percent
        return _met(books, is_met), f"{before:.1f} per block before, {during:.1f} under attack"

    def _judge_users(self, books: Books, found: Attacked) -> Judgement:
        before, during = (run.per_block(run.transactions) * _pace(books, run) for run in (found.before, found.during))
        if not before:
            return Outcome.INCONCLUSIVE, "no honest transaction was executed before the attack"
        is_met = during * 100 >= before * self.users_percent
        return _met(books, is_met), f"{before:.1f} per second before, {during:.1f} under attack"

    def _judge_pace(self, books: Books, found: Attacked) -> Judgement:
        before, during = (_pace(books, run) for run in (found.before, found.during))
        if not before:
            return Outcome.INCONCLUSIVE, "no blocks were seen to become final before the attack"
        is_met = during * 100 >= before * self.pace_percent
        return _met(books, is_met), f"{before:.1f} blocks/s before, {during:.1f} under attack"

    def _judge_recovery(self, books: Books, found: Attacked) -> Judgement:
        ended, left = found.ended.last, len(books.chain) - found.ended.last
        took, is_over = recovery_blocks(replace(found.during, window=found.ended), found.before)
        # Timers that became due under attack fire within the bound of their lateness, or fail its expectation.
        if left < (self.lateness_blocks if is_over else self.recovery_blocks):
            text = f"the attack ended at height {ended}, and the run {counted(left, 'block')} later"
            return Outcome.INCONCLUSIVE, text
        text = f"the attack ended at height {ended}; " + (
            f"{counted(took, 'block')} later honest timers waited as before it"
            if is_over
            else f"{counted(took, 'block')} later {found.during.backlog[-1]:,} honest timers still wait"
        )
        return _met(books, is_over and took <= self.recovery_blocks), text


def measure(books: Books) -> Attacked | str:
    """The measures before and under attack, or why there was no attack."""
    record = books.record
    scenario = record.given or record.scenario
    window = attack_window(scenario.load, scenario.stop.height)
    if window is None:
        return "the scenario has no attackers"
    before = Window(min(SETTLED_HEIGHT + 1, window.first - 1), window.first - 1)
    blocks = executed_blocks(books.chain)
    if len(blocks) < window.last:
        return f"the attack lasts from height {window.first} to {window.last}: the run ended at {len(blocks)}"
    plan, seed = scenario.load, record.seed
    usual = measure_run(blocks[: before.last], plan, seed, before)
    during = measure_run(blocks, plan, seed, window)
    if not during.attackers_cycles:
        return f"blocks{_heights(window)} executed nothing of the attackers"
    target = scenario.chain.parameters().lane_timer_cycles // 2
    used = zip(during.attackers_fire_cycles, books.ledger.blocks.lane_cycles, strict=False)
    above = [height for height, (hostile, cycles) in enumerate(used, 1) if cycles > target and 2 * hostile > cycles]
    ended = Window(window.first, max([window.last, *above[-1:]]))
    return Attacked(usual, during, ended)


def executed_blocks(chain: Sequence[BlockRecord]) -> list[ExecutedBlock]:
    """The blocks before the first unreadable one, which the check ``chain`` reports."""
    blocks: list[ExecutedBlock] = []
    for record in chain:
        receipts = _receipts_of(record.receipts)
        if receipts is None:
            break
        blocks.append(ExecutedBlock(receipts))
    return blocks


def _judge_attack(books: Books) -> Judgement:
    found = measure(books)
    if isinstance(found, str):
        return Outcome.INCONCLUSIVE, found
    during = found.during
    share = during.attackers_cycles / sum(during.block_cycles)
    text = (
        f"{share:.0%} of the executed cycles are the attackers', who had {during.attackers_transactions:,} transactions"
        f" and {during.attackers_fires:,} fires in the whole run and paid {during.spend:,}"
    )
    return (Outcome.PASS if share * 100 >= ATTACKING_PERCENT else Outcome.INCONCLUSIVE), text


def _met(books: Books, is_met: bool) -> Outcome:
    return Outcome.PASS if is_met else unmet(books)


def _pace(books: Books, run: RunMeasures) -> float:
    """Final blocks per second in a run's window; 0 if none were seen to become final."""
    return block_rate(books.record.first_finalizations, run.window) or 0.0


def _heights(window: Window | None) -> str:
    return "" if window is None else f" from height {window.first} to {window.last}"


@lru_cache(READINGS_KEPT)
def _receipts_of(data: bytes) -> BlockReceipts | None:
    try:
        return decode(data, BlockReceipts)
    except CodecError:
        return None
