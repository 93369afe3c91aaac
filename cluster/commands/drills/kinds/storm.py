"""``storm``: thousands of timers that cannot pay or bid too little, in addition to honest ones.

The chain has to remove them within the garbage collection's budget, without delaying the honest timers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.checks.metrics.actor_classes import class_of_actors
from cluster.checks.metrics.metrics import finality_latencies
from cluster.commands.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, option
from cluster.commands.drills.expectations import TIMERS_ONCE, receipts_of, unmet
from cluster.common.outcome import Outcome
from cluster.common.quantiles import counted_quantile, quantile
from cluster.scenario import Scenario
from loadgen.workloads.storm import ONE_RISE_PERCENT, StormOptions
from loadgen.workloads.storm import Storm as StormWorkload

HARDENED: Final = "hardened"
PLAIN: Final = "plain"
"""Preset without a priority floor: timers without a tip rank equal to the honest ones, which wait for many of them."""
HONEST_USERS: Final = 8
MIN_TIMERS: Final = 1_000
"""Minimum number of timers in a storm."""
TIMERS_PER_USER: Final = 1_000
"""Timers per user, just below the limit of an actor's pending timers; a larger storm has more users."""
BURST: Final = 100
BURSTS_AT_ONCE: Final = 10
"""Number of bursts of all users together per block."""
BLOCK_MS: Final = 200
SCHEDULED_PERCENT: Final = 75
"""Percentage of the timers that must have been scheduled; a bid just above the price is refused while it rises."""
ENOUGH_PERCENT: Final = 90
"""Percentage of the scheduled timers that must have ended without a fire."""


@dataclass(frozen=True)
class Storm(Drill):
    name: ClassVar[str] = "storm"
    summary: ClassVar[str] = "thousands of timers expire or cannot pay; honest timers still fire in time"

    timers: int = option(6_000, "number of timers", least=MIN_TIMERS, most=1_000_000)
    bid_percent: int = option(
        ONE_RISE_PERCENT, "bid of timers with funds, in percent of the price", least=100, most=10_000
    )
    preset: str = option(HARDENED, "the chain's parameters", choices=(HARDENED, PLAIN))
    lateness_blocks: int = option(5, "maximum p99 of the honest timers' lateness, in blocks", least=0, most=1_000)
    finality_ms: int = option(1_500, "maximum p95 of the finality latency", least=10, most=60_000)

    def scenario(self) -> Scenario:
        users = -(-self.timers // TIMERS_PER_USER)
        blocks = -(-self.timers // (BURST * BURSTS_AT_ONCE))
        storm = {
            "workload": StormWorkload.name,
            "count": users,
            "interval_ms": max(BLOCK_MS, BLOCK_MS * users // BURSTS_AT_ONCE),
            "options": {"timers": BURST, "in_all": -(-self.timers // users), "bid_percent": self.bid_percent},
        }
        height = 30 + 2 * blocks
        return self.build(
            chain={"preset": HARDENED} if self.preset == HARDENED else {},
            load={"users": [{"workload": "heartbeat", "count": HONEST_USERS}, storm]},
            stop={"height": height, "drain_blocks": 15, "timeout_s": TIMEOUT_S + 10 * blocks},
            success={"heights_compared": height, "transactions": 20, "fires": 50, "stall_ms": 30_000},
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "storm",
                f"at least {SCHEDULED_PERCENT} % of {_timers(scenario):,} timers are scheduled, and {ENOUGH_PERCENT} %"
                " of those end without a fire: some expired, some without funds",
                self._judge_storm,
            ),
            Expectation(
                "honest_lateness",
                f"99 % of the honest timers fire at most {self.lateness_blocks} blocks late, and all of them fire",
                self._judge_lateness,
            ),
            Expectation(
                "finality",
                f"95 % of the blocks are final within {self.finality_ms:,} ms after their proposal",
                self._judge_finality,
            ),
            TIMERS_ONCE,
        ]

    def _judge_storm(self, books: Books) -> Judgement:
        storm, timers = _actors(books, is_storm=True), _timers(books.record.given or books.record.scenario)
        if timers < MIN_TIMERS:
            return Outcome.INCONCLUSIVE, f"{timers:,} timers are no storm: at least {MIN_TIMERS:,} make one"
        reasons = Counter(each.reason for each in _destroyed(books) if each.event.actor in storm)
        most = max((len(_destroyed_in(books, height)) for height in range(1, len(books.chain) + 1)), default=0)
        taken = sum(timers.scheduled for actor, timers in books.ledger.timers.by_actor.items() if actor in storm)
        text = (
            f"{reasons['expired']:,} expired and {reasons['insufficient_funds']:,} had no funds, of {taken:,}"
            f" scheduled and {timers:,} requested; at most {most:,} removed per block"
        )
        is_storm = taken * 100 >= timers * SCHEDULED_PERCENT
        enough = is_storm and reasons.total() * 100 >= taken * ENOUGH_PERCENT and len(reasons) > 1
        return (Outcome.PASS if enough else Outcome.INCONCLUSIVE), text

    def _judge_lateness(self, books: Books) -> Judgement:
        honest = _actors(books, is_storm=False)
        lost = [each for each in _destroyed(books) if each.event.actor in honest]
        if lost:
            return Outcome.FAIL, f"{len(lost):,} honest timers ended without a fire, the first {lost[0].reason}"
        late: Counter[int] = Counter()
        for height, record in enumerate(books.chain, start=1):
            receipts = receipts_of(record.receipts)
            if receipts is not None:
                late.update(height - fire.trigger_height for fire in receipts.fires if fire.actor in honest)
        waiting = [life for life in books.ledger.world.timers.values() if life.actor in honest]
        late.update(
            len(books.chain) - life.trigger_height for life in waiting if life.trigger_height < len(books.chain)
        )
        if not late:
            return Outcome.INCONCLUSIVE, "no honest timer fired"
        p99, most = counted_quantile(late, 0.99), max(late)
        text = (
            f"{late.total():,} honest timers: p50 {counted_quantile(late, 0.5)}, p99 {p99}, at most {most} blocks late"
        )
        return (Outcome.PASS if p99 <= self.lateness_blocks else unmet(books)), text

    def _judge_finality(self, books: Books) -> Judgement:
        latencies = list(finality_latencies(books.record).values())
        if not latencies:
            return Outcome.INCONCLUSIVE, "no block was seen both proposed and final"
        p95 = quantile(latencies, 0.95)
        text = f"{len(latencies):,} blocks: p50 {quantile(latencies, 0.5):,.0f} ms, p95 {p95:,.0f} ms"
        return (Outcome.PASS if p95 <= self.finality_ms else unmet(books)), text


def _timers(scenario: Scenario) -> int:
    """Number of timers of the storm's users."""
    plans = [(group.count, group.parsed_options()) for group in scenario.load.users]
    return sum(count * options.in_all for count, options in plans if isinstance(options, StormOptions))


def _actors(books: Books, is_storm: bool) -> set[bytes]:
    """The actors of the storm's users; those of all other users if ``is_storm`` is false."""
    classes = class_of_actors(books.record)
    return {actor for actor, name in classes.items() if (name == StormWorkload.name) is is_storm}


def _destroyed(books: Books) -> Iterator[Any]:
    for height in range(1, len(books.chain) + 1):
        yield from _destroyed_in(books, height)


def _destroyed_in(books: Books, height: int) -> Sequence[Any]:
    receipts = receipts_of(books.chain[height - 1].receipts)
    return () if receipts is None else receipts.destroyed
