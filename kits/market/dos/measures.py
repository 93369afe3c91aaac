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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cluster.common.quantiles import counted_quantile, quantile
from cluster.common.units import MILLISECONDS_PER_SECOND
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

    def per_block(self, count: float) -> float:
        """A count per block of the window; 0 if the chain does not reach it."""
        return count / self.blocks if self.blocks else 0.0


@dataclass(frozen=True, slots=True)
class AttackMeasures:
    """Comparison of an attacked run with its baseline, the same run without attackers.

    A value is ``None`` if it is undefined or was not measured.
    """

    lateness_p50: float | None
    """Median lateness of the attacked run's honest timers, in blocks."""
    lateness_p99: float | None
    lateness_max: float | None
    lateness_p99_added: float | None
    """p99 of the lateness minus the baseline's p99, in blocks."""
    waiting: float
    """Honest timers of the window that still wait at the end."""
    destroyed: float
    """Honest timers of the window that were destroyed when they were due."""
    destroyed_added: float
    """Number of destroyed honest timers minus the baseline's number."""
    honest_fires_per_block: float
    honest_fires_ratio: float | None
    """Ratio of honest fires per block to the baseline's."""
    displaced_fires: float
    """Number of displaced fires, at least 0."""
    user_transactions_ratio: float | None
    """Ratio of honest transactions per block to the baseline's."""
    user_cycles_ratio: float | None
    """Ratio of honest transactions' cycles per block to the baseline's."""
    block_cycles_p99: float | None
    """p99 of the cycles executed in a block. Cycles are a deterministic measure of a block's execution time."""
    block_cycles_ratio: float | None
    """:attr:`block_cycles_p99` as a ratio to the baseline's."""
    cpu_ratio: float | None
    """p99 of a block's processor seconds, as a ratio to the baseline's. They may be measured in different processes."""
    cpu_full_ratio: float | None
    """p99 of a block's processor seconds, as a ratio to those of a full block of honest transactions and timers."""
    cpu_per_cycle_ratio: float | None
    """Ratio of processor seconds per executed cycle in the window's blocks to the baseline's."""
    state_bytes_added: float | None
    """Bytes of the state after the window, minus the baseline's."""
    memory_bytes_added: float | None
    """Bytes of the objects that execution holds in memory after the window, minus the baseline's."""
    attackers_timers: float
    """Attackers' timers that are live after the window."""
    block_rate_ratio: float | None
    """Ratio of blocks per second in the window to the baseline's."""
    delay_blocks: float
    """Blocks of lateness that the attack added to all honest timers together, at least 0."""
    spend: float
    """Amount that the attackers spent over the whole run, in the smallest CBY unit."""
    spend_per_block_of_delay: float | None
    spend_per_fire_displaced: float | None
    spend_ratio: float | None
    """Ratio of the spend per displaced fire to the fee of an honest fire in the baseline."""
    state_bytes_per_coin: float | None
    """Bytes of state added per unit that the attackers spent; ``None`` if none were added, or nothing was spent."""
    memory_bytes_per_coin: float | None
    """Bytes of memory added per unit that the attackers spent; ``None`` if none were added, or nothing was spent."""
    recovery_blocks: float
    """Blocks after the window until backlog and longest wait stay within the baseline's maxima."""
    recovered: bool
    """Whether the chain recovered; if not, recovery takes longer than :attr:`recovery_blocks`."""
    acted: bool
    """Whether a transaction or a fire of an attacker is in a block."""


def measure_run(blocks: Sequence[ExecutedBlock], plan: LoadPlan, seed: int, window: Window) -> RunMeasures:
    """Measure one run from its final blocks, from height 1 on. ``plan`` and ``seed`` identify the attackers."""
    return _Reader(frozenset(plan.attacking_addresses(seed)), window).read(blocks)


def measure_attack(attacked: RunMeasures, baseline: RunMeasures) -> AttackMeasures:
    """Compare an attacked run with its baseline: same seed, window and honest users, no attackers."""
    fires, usual_fires = attacked.per_block(attacked.fires), baseline.per_block(baseline.fires)
    delay = max(0.0, attacked.timers * (attacked.mean_lateness - baseline.mean_lateness))
    displaced = max(0.0, (usual_fires - fires) * attacked.blocks)
    per_fire = _spend_per(attacked.spend, displaced)
    usual_fee = baseline.fees_of_fires / (baseline.fires + baseline.failed_fires) if baseline.fees_of_fires else None
    p99, usual_p99 = attacked.lateness_at(TAIL), baseline.lateness_at(TAIL)
    cycles, usual_cycles = (_tail(run.block_cycles) for run in (attacked, baseline))
    grown = _difference(attacked.state_bytes, baseline.state_bytes)
    held = _difference(attacked.memory_bytes, baseline.memory_bytes)
    recovery, recovered = recovery_blocks(attacked, baseline)
    return AttackMeasures(
        lateness_p50=attacked.lateness_at(0.5),
        lateness_p99=p99,
        lateness_max=attacked.lateness_at(1.0),
        lateness_p99_added=_difference(p99, usual_p99),
        waiting=attacked.waiting,
        destroyed=attacked.destroyed,
        destroyed_added=attacked.destroyed - baseline.destroyed,
        honest_fires_per_block=fires,
        honest_fires_ratio=_ratio(fires, usual_fires),
        displaced_fires=displaced,
        user_transactions_ratio=_ratio(
            attacked.per_block(attacked.transactions), baseline.per_block(baseline.transactions)
        ),
        user_cycles_ratio=_ratio(
            attacked.per_block(attacked.transaction_cycles), baseline.per_block(baseline.transaction_cycles)
        ),
        block_cycles_p99=cycles,
        block_cycles_ratio=_ratio(cycles, usual_cycles),
        cpu_ratio=_ratio(_tail(attacked.cpu_s), _tail(baseline.cpu_s)),
        cpu_full_ratio=_ratio(_tail(attacked.cpu_s), attacked.full_block_s),
        cpu_per_cycle_ratio=_ratio(_cpu_per_cycle(attacked), _cpu_per_cycle(baseline)),
        state_bytes_added=grown,
        memory_bytes_added=held,
        attackers_timers=attacked.attackers_timers,
        block_rate_ratio=_ratio(attacked.blocks_per_second, baseline.blocks_per_second),
        delay_blocks=delay,
        spend=attacked.spend,
        spend_per_block_of_delay=_spend_per(attacked.spend, delay),
        spend_per_fire_displaced=per_fire,
        spend_ratio=_ratio(per_fire, usual_fee),
        state_bytes_per_coin=_added_per_coin(grown, attacked.spend),
        memory_bytes_per_coin=_added_per_coin(held, attacked.spend),
        recovery_blocks=recovery,
        recovered=recovered,
        acted=bool(attacked.attackers_transactions or attacked.attackers_fires),
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
        found.attackers_cycles += self._attackers_cycles(receipts)
        if block.cpu_s is not None:
            found.cpu_s.append(block.cpu_s)
        if block.state_bytes is not None:
            found.state_bytes, found.memory_bytes = block.state_bytes, block.memory_bytes
        found.attackers_timers = len(self._hostile)

    def _attackers_cycles(self, receipts: BlockReceipts) -> int:
        """Cycles that a block executed for the attackers."""
        used = [(each.sender, each.cycles) for each in receipts.transactions]
        used += [(each.actor, each.cycles) for each in receipts.fires]
        used += [(each.actor, each.cycles) for each in receipts.queries]
        used += [(each.actor, each.cycles) for each in receipts.callbacks]
        used += [(each.sender, each.cycles) for each in receipts.messages]
        return sum(cycles for who, cycles in used if who in self._attackers)

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
    parts = (receipts.transactions, receipts.fires, receipts.queries, receipts.callbacks, receipts.messages)
    return receipts.gc_cycles + sum(each.cycles for part in parts for each in part)


def _effects(receipts: BlockReceipts) -> Iterator[Effects]:
    for transaction in receipts.transactions:
        yield transaction.effects
    for fire in receipts.fires:
        yield fire.effects
    for callback in receipts.callbacks:
        yield callback.effects
    for message in receipts.messages:
        yield message.effects


def _tail(values: Sequence[float]) -> float | None:
    return quantile(values, TAIL) if values else None


def _cpu_per_cycle(run: RunMeasures) -> float | None:
    total = sum(run.block_cycles)
    return sum(run.cpu_s) / total if run.cpu_s and total else None


def _ratio(value: float | None, usual: float | None) -> float | None:
    return None if value is None or not usual else value / usual


def _added_per_coin(added: float | None, spend: float) -> float | None:
    return _ratio(added, spend) if added is not None and added > 0 else None


def _difference(value: float | None, usual: float | None) -> float | None:
    return None if value is None or usual is None else value - usual


def _spend_per(spend: int, effect: float) -> float | None:
    """Spend per unit of effect; ``None`` without an effect, 0 if the attackers spent nothing."""
    return spend / effect if effect else None
