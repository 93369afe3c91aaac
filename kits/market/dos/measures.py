"""The effect of an attack on the honest users of a chain, and its cost: pure functions of executed blocks.

:func:`measure_run` reads the final blocks of one run. An :class:`ExecutedBlock` takes the receipts of the transition
(``Outcome.receipts``) or those that a validator serves (``decode(record.receipts, BlockReceipts)``).
:func:`measure_attack` compares an attacked run with one of the same seed and honest users, but without attackers.

- *Attackers* are the accounts and actors of the plan's attacking groups, and what these deploy. All others are honest.
- The *window* is the range of heights in which the attack acts. Fires, transactions and cycles are those of its
  blocks, and lateness is that of the timers with a trigger height in it, whenever they fire.
- *Lateness* of a timer is the height at which it fires minus its trigger height, in blocks. A timer that is due and
  still waits counts with the least possible lateness: it fires in the next block at best. A timer that is destroyed
  after it was due counts with the lateness that it had reached. A timer that its owner cancels does not count.
- *Spend* is what the attackers paid over the whole run: fees for transactions, fires and agents' queries, and payments
  to others, in the smallest CBY unit. Payments from others are not subtracted: honest users may pay any account.
- *Delay* is the lateness that the attack added to the attacked run's honest timers: the sum of their lateness minus
  their number times the mean lateness of the baseline, in blocks.
- *Displaced* fires are the honest fires that the attacked run lacks, compared with the baseline's fires per block. A
  failed fire or transaction does not count.
- A *ratio of spend* is ``None`` if the attack had no such effect, and 0 if the effect was free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cluster.common.quantiles import counted_quantile, quantile
from cluster.common.units import MILLISECONDS_PER_SECOND
from kits.market.metric import Better, Metric
from loadgen.workloads import LoadPlan
from validator.chain.block import BlockReceipts, Effects
from validator.chain.receipts import ended_timers, unpack

TAIL: Final = 0.99
"""The quantile that the tail metrics use (p99)."""


class ExecutedBlock(NamedTuple):
    """A final block's receipts, and measurements of its execution."""

    receipts: BlockReceipts
    cpu_s: float | None = None
    """Processor seconds of the block's execution, if they were measured."""
    state_bytes: int | None = None
    """Bytes of all keys and values of the state after the block, if they were counted."""
    memory_bytes: int | None = None
    """Bytes of all objects that execution holds in memory after the block, if they were counted."""


class Window(NamedTuple):
    """Heights in which an attack acts, both included."""

    first: int
    last: int

    def has(self, height: int) -> bool:
        return self.first <= height <= self.last


def attack_window(plan: LoadPlan, stop_height: int) -> Window | None:
    """The range of blocks that can contain transactions of a plan's attackers; ``None`` if no attacker takes a turn.

    It follows from the heights of the attackers' groups and phases, up to ``stop_height``. Phases by time have no
    heights, and exclude no block. Phases that follow prices or the backlog exclude no block either, unless their rates
    are 0.
    """
    schedules = [plan.schedule_of(group) for group in plan.users if group.is_attack]

    def acts_at(height: int) -> bool:
        return any(schedule.has_turns_at(height) for schedule in schedules)

    first = next(filter(acts_at, range(stop_height)), None)
    last = next(filter(acts_at, reversed(range(stop_height))), None)
    return None if first is None or last is None else Window(first + 1, last + 1)


@dataclass(slots=True)
class RunMeasures:
    """What was measured in one run: the effect on honest users, and the attackers' activity and cost."""

    window: Window
    blocks: int = 0
    """Number of the window's blocks that the chain has."""
    lateness: Counter[int] = field(default_factory=Counter)
    """Number of honest timers for each lateness in blocks, including those that still wait or were destroyed."""
    waiting: int = 0
    """Number of the timers in :attr:`lateness` that still wait at the end of the run."""
    destroyed: int = 0
    """Number of the timers in :attr:`lateness` that were destroyed when due: they expired, or could not be paid for."""
    fires: int = 0
    """Honest fires that succeeded."""
    failed_fires: int = 0
    fees_of_fires: int = 0
    """Fees that the honest fires paid, including failed ones."""
    transactions: int = 0
    """Honest transactions that succeeded."""
    transaction_cycles: int = 0
    """Cycles of the honest transactions that succeeded."""
    block_cycles: list[int] = field(default_factory=list)
    """Cycles executed in each block of the window: by transactions, fires, queries, callbacks and messages."""
    cpu_s: list[float] = field(default_factory=list)
    """Processor seconds of each measured block of the window."""
    full_block_s: float | None = None
    """Processor seconds of a full block of honest users, if measured in the same process."""
    state_bytes: int | None = None
    """Bytes of the whole state after the window's last block; ``None`` if not counted."""
    memory_bytes: int | None = None
    """Bytes of the objects that execution holds in memory after the window's last block; ``None`` if not counted."""
    backlog: list[int] = field(default_factory=list)
    """Number of honest timers that are due and wait, after each block from height 1 on."""
    longest_wait: list[int] = field(default_factory=list)
    """After each block: the greatest least possible lateness of an honest timer that waits; 0 if none waits."""
    spend: int = 0
    """Amount that the attackers spent over the whole run, in the smallest CBY unit."""
    attackers_transactions: int = 0
    """Transactions of the attackers over the whole run, including failed ones."""
    attackers_fires: int = 0
    attackers_fire_cycles: list[int] = field(default_factory=list)
    """Cycles of the attackers' fires in each block from height 1 on."""
    attackers_timers: int = 0
    """The attackers' timers that are live after the window's last block."""
    attackers_cycles: int = 0
    """Cycles that the attackers' transactions, fires, queries, callbacks and messages used in the window's blocks."""
    attackers_sent: int = 0
    """Transactions that attackers sent to validators, including those that no block contains."""
    pool_transactions: int = 0
    """Transactions in the fullest mempool of a validator at the end."""
    blocks_per_second: float | None = None
    """Final blocks per second in the window, in the run's (real or virtual) time; ``None`` if not observed."""

    @property
    def timers(self) -> int:
        """Honest timers that came due in the window."""
        return self.lateness.total()

    @property
    def mean_lateness(self) -> float:
        """Mean lateness in blocks; 0 if no honest timer came due."""
        return sum(late * count for late, count in self.lateness.items()) / self.timers if self.timers else 0.0

    def lateness_at(self, share: float) -> int | None:
        """The quantile of lateness at ``share``; ``None`` if no timer came due."""
        return counted_quantile(self.lateness, share) if self.lateness else None

    @property
    def fee_per_fire(self) -> float:
        """The mean fee of an honest fire; 0 if there was none."""
        fires = self.fires + self.failed_fires
        return self.fees_of_fires / fires if fires else 0.0

    def per_block(self, count: float) -> float:
        """A count per block of the window; 0 if the chain does not reach it."""
        return count / self.blocks if self.blocks else 0.0


class Effect(NamedTuple):
    """What an attack did: an attacked run, compared with its baseline."""

    metrics: dict[str, float | None]
    """Values of :data:`METRICS`, keyed by name; ``None`` for what is undefined or was not measured."""
    recovered: bool
    """Whether the chain recovered; if not, recovery takes longer than ``recovery_blocks``."""
    acted: bool
    """Whether a transaction or a fire of an attacker is in a block, or attackers sent any to validators."""


def measure_run(blocks: Sequence[ExecutedBlock], plan: LoadPlan, seed: int, window: Window) -> RunMeasures:
    """Measure one run from its final blocks, from height 1 on. ``plan`` and ``seed`` identify the attackers."""
    return _Reader(frozenset(plan.attacking_addresses(seed)), window).read(blocks)


def measure_attack(attacked: RunMeasures, baseline: RunMeasures) -> Effect:
    """Compare an attacked run with its baseline: same seed, window and honest users, no attackers."""
    return Effect(
        {name: metric.measure(attacked, baseline) for name, metric in METRICS.items() if metric.measure},
        recovery_blocks(attacked, baseline)[1],
        bool(attacked.attackers_transactions or attacked.attackers_fires or attacked.attackers_sent),
    )


def block_rate(final_ms: Mapping[int, float], window: Window) -> float | None:
    """Final blocks per second in a window. ``final_ms`` has the time at which each height became final, in order.

    ``None`` if fewer than two times were observed, or if they do not differ.
    """
    seen = [(height, at) for height, at in final_ms.items() if window.has(height)]
    if len(seen) < 2 or seen[-1][1] <= seen[0][1]:
        return None
    (first, began_ms), (last, ended_ms) = seen[0], seen[-1]
    return (last - first) * MILLISECONDS_PER_SECOND / (ended_ms - began_ms)


def recovery_blocks(attacked: RunMeasures, baseline: RunMeasures) -> tuple[int, bool]:
    """Number of blocks from the window's end until the chain has recovered, and whether it has.

    It has recovered once backlog and longest wait stay within the baseline's maxima. If it never does, the number is
    that of all blocks after the window (0 if the chain ended before).
    """
    usual = max(baseline.backlog, default=0), max(baseline.longest_wait, default=0)
    levels = list(zip(attacked.backlog, attacked.longest_wait, strict=True))[max(0, attacked.window.last - 1) :]
    if not levels:
        return 0, False
    above = [place for place, level in enumerate(levels) if level[0] > usual[0] or level[1] > usual[1]]
    if not above:
        return 0, True
    took = above[-1] + 1
    return (took, True) if took < len(levels) else (len(levels) - 1, False)


class _Reader:
    """Reads the blocks of a run one after the other, and collects its :class:`RunMeasures`."""

    def __init__(self, attackers: frozenset[bytes], window: Window) -> None:
        self._attackers = set(attackers)
        self._window = window
        self._honest: dict[bytes, int] = {}
        """Trigger heights of the live honest timers, keyed by timer ID."""
        self._hostile: set[bytes] = set()
        """IDs of the attackers' live timers."""
        self._found = RunMeasures(window)

    def read(self, blocks: Sequence[ExecutedBlock]) -> RunMeasures:
        for block in blocks:
            self._read(block)
        found, next_height = self._found, len(blocks) + 1
        for trigger in self._waiting(len(blocks)):
            if self._window.has(trigger):
                found.lateness[next_height - trigger] += 1
                found.waiting += 1
        return found

    def _read(self, block: ExecutedBlock) -> None:
        receipts, found, attackers = block.receipts, self._found, self._attackers
        attackers.update(each.created for each in receipts.transactions if each.created and each.sender in attackers)
        for effects in _effects(receipts):
            for item in effects.scheduled:
                if item.actor in attackers:
                    self._hostile.add(item.timer_id)
                else:
                    self._honest[item.timer_id] = item.trigger_height
        self._note_ends(receipts)
        found.spend += self._spent(receipts)
        found.attackers_transactions += sum(each.sender in attackers for each in receipts.transactions)
        hostile = [each.cycles for each in receipts.fires if each.actor in attackers]
        found.attackers_fires += len(hostile)
        found.attackers_fire_cycles.append(sum(hostile))
        if self._window.has(receipts.height):
            self._note_work(block)
        waits = [receipts.height + 1 - trigger for trigger in self._waiting(receipts.height)]
        found.backlog.append(len(waits))
        found.longest_wait.append(max(waits, default=0))

    def _note_ends(self, receipts: BlockReceipts) -> None:
        for timer_id, end in ended_timers(receipts):
            self._hostile.discard(timer_id)
            trigger = self._honest.pop(timer_id, None)
            if trigger is None or end.state == "cancelled" or not self._window.has(trigger):
                continue
            self._found.lateness[receipts.height - trigger] += 1
            self._found.destroyed += end.fire is None

    def _note_work(self, block: ExecutedBlock) -> None:
        """Add a block of the window to the measures: its fires, transactions, cycles, processor time and sizes."""
        receipts, found = block.receipts, self._found
        found.blocks += 1
        for fire in receipts.fires:
            if fire.actor not in self._attackers:
                found.fires += fire.ok
                found.failed_fires += not fire.ok
                found.fees_of_fires += unpack(fire.burned) + unpack(fire.tip)
        for transaction in receipts.transactions:
            if transaction.ok and transaction.sender not in self._attackers:
                found.transactions += 1
                found.transaction_cycles += transaction.cycles
        found.block_cycles.append(executed_cycles(receipts))
        found.attackers_cycles += sum(cycles for party, cycles in _uses(receipts) if party in self._attackers)
        if block.cpu_s is not None:
            found.cpu_s.append(block.cpu_s)
        if block.state_bytes is not None:
            found.state_bytes, found.memory_bytes = block.state_bytes, block.memory_bytes
        found.attackers_timers = len(self._hostile)

    def _spent(self, receipts: BlockReceipts) -> int:
        """The amount that attackers spent in a block: fees, and payments to others."""
        attackers = self._attackers
        fees = [each for each in receipts.transactions if each.sender in attackers]
        spent = sum(unpack(each.burned) + unpack(each.tip) for each in fees)
        spent += sum(unpack(each.burned) + unpack(each.tip) for each in receipts.fires if each.fee_payer in attackers)
        spent += sum(unpack(each.burned) for each in receipts.queries if each.actor in attackers)
        for effects in _effects(receipts):
            for move in effects.movements:
                if move.source in attackers and move.target not in attackers:
                    spent += unpack(move.amount)
        return spent

    def _waiting(self, height: int) -> list[int]:
        """The trigger heights of the honest timers that are due after a block and wait."""
        return [trigger for trigger in self._honest.values() if trigger <= height]


def executed_cycles(receipts: BlockReceipts) -> int:
    """Cycles that a block executed in all of its phases, garbage collection included."""
    return receipts.gc_cycles + sum(cycles for _, cycles in _uses(receipts))


def _uses(receipts: BlockReceipts) -> list[tuple[bytes, int]]:
    """The sender or actor of each execution of a block, with its cycles."""
    used = [(each.sender, each.cycles) for each in receipts.transactions]
    used += [(each.actor, each.cycles) for each in receipts.fires]
    used += [(each.actor, each.cycles) for each in receipts.queries]
    used += [(each.actor, each.cycles) for each in receipts.callbacks]
    return used + [(each.sender, each.cycles) for each in receipts.messages]


def _effects(receipts: BlockReceipts) -> Iterator[Effects]:
    for part in (receipts.transactions, receipts.fires, receipts.callbacks, receipts.messages):
        yield from (each.effects for each in part)


# --- the measures of an attack ----------------------------------------------------------------------------------------

Value = Callable[[RunMeasures], float | None]
"""A figure of one run; ``None`` if it is undefined or was not measured."""


def _of(words: str, value: Value, unit: str = "", better: Better = "less") -> Metric:
    """The attacked run's value alone."""
    return Metric(words, unit, better, measure=lambda run, usual: value(run))


def _added(words: str, value: Value, unit: str = "") -> Metric:
    """The attacked run's value minus the baseline's."""
    added = f"{words}, less the baseline's"
    return Metric(added, unit, "less", measure=lambda run, usual: _less(value(run), value(usual)))


def _to_usual(words: str, value: Value, more: str = "", better: Better = "less") -> Metric:
    """The attacked run's value as a ratio to the baseline's."""
    ratio = f"{words}, to the baseline's{more}"
    return Metric(ratio, "", better, measure=lambda run, usual: _ratio(value(run), value(usual)))


def _per_coin(words: str, value: Value) -> Metric:
    """What an attack added for each unit that it spent; ``None`` if it added or spent nothing."""

    def per_coin(run: RunMeasures, usual: RunMeasures) -> float | None:
        added = _less(value(run), value(usual))
        return _ratio(added, run.spend) if added is not None and added > 0 else None

    return Metric(f"{words} per unit spent", "", "less", measure=per_coin)


def _price_of(words: str, effect: Callable[[RunMeasures, RunMeasures], float]) -> Metric:
    """Spend per unit of an effect; ``None`` without an effect, 0 if the attackers spent nothing."""
    price = f"spend per {words}; 0 if it was free"
    return Metric(price, COIN, "more", measure=lambda run, usual: _ratio(run.spend, effect(run, usual)))


def _delay_blocks(run: RunMeasures, usual: RunMeasures) -> float:
    return max(0.0, run.timers * (run.mean_lateness - usual.mean_lateness))


def _displaced_fires(run: RunMeasures, usual: RunMeasures) -> float:
    return max(0.0, (usual.per_block(usual.fires) - run.per_block(run.fires)) * run.blocks)


def _spend_ratio(run: RunMeasures, usual: RunMeasures) -> float | None:
    return _ratio(_ratio(run.spend, _displaced_fires(run, usual)), usual.fee_per_fire)


def _tail(values: Sequence[float]) -> float | None:
    return quantile(values, TAIL) if values else None


def _cpu_per_cycle(run: RunMeasures) -> float | None:
    total = sum(run.block_cycles)
    return sum(run.cpu_s) / total if run.cpu_s and total else None


def _ratio(value: float | None, usual: float | None) -> float | None:
    return None if value is None or not usual else value / usual


def _less(value: float | None, usual: float | None) -> float | None:
    return None if value is None or usual is None else value - usual


COIN: Final = "the smallest CBY unit"
METRICS: Final[Mapping[str, Metric]] = {
    "lateness_p50": _of("p50 of the honest timers' lateness", lambda run: run.lateness_at(0.5), "blocks"),
    "lateness_p99": _of("p99 of the honest timers' lateness", lambda run: run.lateness_at(TAIL), "blocks"),
    "lateness_max": _of("greatest lateness of an honest timer", lambda run: run.lateness_at(1.0), "blocks"),
    "lateness_p99_added": _added("p99 of the honest timers' lateness", lambda run: run.lateness_at(TAIL), "blocks"),
    "waiting": _of("honest timers that were due and still wait at the end", lambda run: run.waiting),
    "destroyed": _of("honest timers that were destroyed when they were due", lambda run: run.destroyed),
    "destroyed_added": _added("honest timers that were destroyed when they were due", lambda run: run.destroyed),
    "honest_fires_per_block": _of(
        "honest fires per block that did their work", lambda run: run.per_block(run.fires), better="more"
    ),
    "honest_fires_ratio": _to_usual(
        "honest fires per block that did their work", lambda run: run.per_block(run.fires), better="more"
    ),
    "displaced_fires": Metric(
        "honest fires that the baseline had, and the attacked run had not", "", "less", measure=_displaced_fires
    ),
    "user_transactions_ratio": _to_usual(
        "honest transactions per block that did their work", lambda run: run.per_block(run.transactions), better="more"
    ),
    "user_cycles_ratio": _to_usual(
        "cycles of honest transactions per block", lambda run: run.per_block(run.transaction_cycles), better="more"
    ),
    "block_cycles_p99": _of("p99 of the cycles that a block executed", lambda run: _tail(run.block_cycles)),
    "block_cycles_ratio": _to_usual("p99 of the cycles that a block executed", lambda run: _tail(run.block_cycles)),
    "cpu_ratio": _to_usual("p99 of a block's processor time", lambda run: _tail(run.cpu_s), "; measured"),
    "cpu_full_ratio": _of(
        "p99 of a block's processor time, to that of a full block of honest users; measured",
        lambda run: _ratio(_tail(run.cpu_s), run.full_block_s),
    ),
    "cpu_per_cycle_ratio": _to_usual("processor time per executed cycle", _cpu_per_cycle, "; measured"),
    "block_rate_ratio": _to_usual(
        "blocks per second", lambda run: run.blocks_per_second, "; in the simulator execution takes no time", "more"
    ),
    "state_bytes_added": _added("bytes of state after the attack", lambda run: run.state_bytes),
    "memory_bytes_added": _added(
        "bytes in the memory of a validator's execution after the attack", lambda run: run.memory_bytes
    ),
    "pool_transactions_added": _added(
        "transactions in the fullest mempool at the end", lambda run: run.pool_transactions
    ),
    "attackers_timers": _of("the attackers' live timers after the attack", lambda run: run.attackers_timers),
    "delay_blocks": Metric(
        "lateness that the attack added to all honest timers together", "blocks", "less", measure=_delay_blocks
    ),
    "spend": _of("what the attackers paid", lambda run: run.spend, COIN, "more"),
    "spend_per_block_of_delay": _price_of("block of delay", _delay_blocks),
    "spend_per_fire_displaced": _price_of("displaced fire", _displaced_fires),
    "spend_ratio": Metric(
        "spend per displaced fire, to what an honest fire paid in the baseline", "", "more", measure=_spend_ratio
    ),
    "state_bytes_per_coin": _per_coin("bytes of state added", lambda run: run.state_bytes),
    "memory_bytes_per_coin": _per_coin("bytes of memory added", lambda run: run.memory_bytes),
    "recovery_blocks": Metric(
        "time after the attack until honest timers wait as in the baseline",
        "blocks",
        "less",
        measure=lambda run, usual: recovery_blocks(run, usual)[0],
    ),
}
MEASURED: Final = frozenset(name for name, metric in METRICS.items() if metric.words.endswith("; measured"))
"""Metrics that depend on the machine."""
