"""The state transition: fires a second, and what waits, expires or migrates against an ordinary block.

Every block that is measured is whole: transition, state commit with fsync, index. Ratios are of medians taken in turns
in one run.

- ``fires_per_second``: full lanes of timers with empty handlers; ``reschedules_per_second``: handlers that set and
  reschedule.
- ``backlog_block_ratio``: the same 200 fires with many carried timers waiting against few. A quarter of them is below
  the lane price, a quarter has payers without funds, a quarter is over the cap, a quarter belongs to actors with a
  bidding agent that bids too low (``GBA_BUDGET_CYCLES`` allows the same number of queries in both).
- ``epoch_block_ratio``: the first block of an epoch into which many timers migrate against the blocks before it.
- ``lane_us``: microseconds of processor time for a fire of the full lane of ``live.py``, whose Python actors do two
  hundred steps of work, read, schedule and write in each: the same blocks without a testnet, executed in memory.
- ``selection_ratio_POLICY``: finding the first 200 of very many timers that wait, with different fees and bids, against
  ``cip1``.
- ``unwatched_block_ratio``: processor time of blocks of ``bias_auction`` whose fires write keys, of which none is
  watched, against the same blocks without the question whether a key is watchable; the median of three chains.
- ``gc_storm_ratio``: blocks after very many timers expired at one height against the ordinary full blocks before. Both
  lanes are full in all of them: 2,000 transactions that schedule a timer each, 2,000 fires.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain as chained
from statistics import median

from chains import RICH, BenchmarkChain, actor_address, actors, call, interleaved
from reporting import Lane, Metric, Size, run_benchmark
from runs import full_lane, simulated

from cluster.audit.chains import longest_chain
from cluster.audit.reexecution.reexecutor import Reexecutor
from validator.chain.block import BlockReceipts
from validator.chain.genesis import GenesisAgent, Policy
from validator.policies.bias_auction import BiasRules
from validator.primitives.codec import decode
from validator.primitives.params import Parameters
from validator.primitives.types import Address
from validator.pvm.runtime.host import ScheduleRequest
from validator.transition.transition import PreparedTransaction

EMPTY = b"[]"
RESCHEDULE = b'[["set","k","v"],["schedule",{"in":5,"payload":[["set","k","v"]],"gas_limit":2500}]]'
LOTS = 10**9
SMALL_BACKLOG = 1_000
FIRES = 200
HEAVY = b'[["burn",9000]]'
HEAVY_GAS = 10_000


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=4, full="a million timers that wait or expire; about 10 min")


def lanes(size: Size) -> list[Lane]:
    backlog, storm = size.of(2_000, 100_000, 1_000_000), size.of(5_000, 100_000, 1_000_000)
    waiting, migrating = size.of(1_000, 50_000, 100_000), size.of(1_000, 50_000, 100_000)
    blocks, rounds = size.of((3, 1), (12, MEASURED))
    selections = [policy for policy in Policy if policy is not Policy.CIP1]
    return [
        Lane(partial(_fires_a_second, EMPTY, 1_000, blocks), [Metric("fires_per_second", "fires/s", 20_000)]),
        Lane(partial(_fires_a_second, RESCHEDULE, 2_500, blocks), [Metric("reschedules_per_second", "fires/s", 8_000)]),
        Lane(partial(_lane_us, size), [Metric("lane_us", "µs of processor time a fire, the full lane of live.py")]),
        Lane(
            partial(_backlog_ratio, backlog, rounds),
            [Metric("backlog_block_ratio", f"× ({backlog:,} waiting / {SMALL_BACKLOG:,})", 2, at_least=False)],
        ),
        Lane(
            partial(_selection_ratios, waiting, size.of(3, WARM_UP), rounds),
            [
                Metric("selection_us", f"µs, {waiting:,} waiting, cip1"),
                *(Metric(f"selection_ratio_{policy}", "× cip1", 3, at_least=False) for policy in selections),
            ],
        ),
        Lane(
            partial(_unwatched_ratios, *size.of((1, 1), (24, 3))),
            [Metric("unwatched_block_ratio", "×", 1.1, at_least=False)],
        ),
        Lane(
            partial(_epoch_ratio, migrating, *size.of((12, 2), (50, 4))),
            [Metric("epoch_block_ratio", f"× ({migrating:,} migrating)", 3, at_least=False)],
        ),
        Lane(
            partial(_storm_ratio, storm, *size.of((5, 200), (8, 2_000))),
            [Metric("gc_storm_ratio", f"× ({storm:,} expired / full block)", 4, at_least=False)],
        ),
    ]


# --- fires ------------------------------------------------------------------------------------------------------------


def _fires_a_second(payload: bytes, gas_limit: int, blocks: int) -> float:
    parameters = Parameters(max_timers_per_actor=LOTS)
    a_block = parameters.lane_timer_cycles // gas_limit
    with BenchmarkChain(parameters, actors(100)) as chain:
        chain.fill(blocks * a_block, partial(_due, blocks, a_block, payload, gas_limit))
        speeds = []
        for _ in range(blocks):
            seconds, outcome = chain.timed_block()
            speeds.append(len(outcome.receipts.fires) / seconds)
        return median(speeds[1:])


def _due(
    blocks: int, a_block: int, payload: bytes, gas_limit: int, first: int, tip: int = 0
) -> Iterator[tuple[Address, ScheduleRequest]]:
    """Timers of a hundred actors that come due, so many a block."""
    for height in range(first, first + blocks):
        for number in range(a_block):
            request = ScheduleRequest(
                height, payload, gas_limit=gas_limit, max_fee_per_cycle=10**12, max_priority_fee_per_cycle=tip
            )
            yield actor_address(number % 100), request


def _lane_us(size: Size) -> float:
    """The lane is full in the last fifth of the blocks, but not in a quick run."""
    heights = size.of(12, 250)
    record = simulated(size.of(full_lane(heights, 500, keepers=1), full_lane(heights)), shortcuts=True)
    blocks = list(longest_chain(record.lives))
    reexecutor = Reexecutor(record.genesis)
    seconds: list[float] = []
    for block in blocks:
        began = time.process_time()
        mismatch = reexecutor.take(block)
        assert mismatch is None, mismatch
        seconds.append(time.process_time() - began)
    last = heights // 5
    fires = [len(decode(block.receipts, BlockReceipts).fires) for block in blocks[-last:]]
    assert min(fires) >= size.of(0, 100), f"the lane is not full: {min(fires)} fires"
    return 1e6 * sum(seconds[-last:]) / sum(fires)


# --- backlog ----------------------------------------------------------------------------------------------------------

POOR, BIDDERS, SENDERS = 1, 2, 3
WARM_UP = 20
MEASURED = 15
AGENTS = 250


def _backlog_ratio(backlog: int, rounds: int) -> float:
    with _backlog_chain(SMALL_BACKLOG, rounds) as small, _backlog_chain(backlog, rounds) as large:
        ordinary, crowded = interleaved(rounds, partial(_fires_of, small), partial(_fires_of, large))
        return crowded / ordinary


def _fires_of(chain: BenchmarkChain) -> float:
    seconds, outcome = chain.timed_block()
    assert len(outcome.receipts.fires) == FIRES, f"{len(outcome.receipts.fires)} fires"
    return seconds


def _backlog_chain(backlog: int, rounds: int) -> BenchmarkChain:
    """A chain on which so many timers wait, and 200 come due in each further block and fill the lane."""
    parameters = Parameters(max_timers_per_actor=LOTS, gba_budget_cycles=35_000)
    agent = GenesisAgent("builtin:fixed", 1, 1)
    everyone = {**actors(1_000), **actors(1_000, POOR, balance=1), **actors(AGENTS, BIDDERS, agent=agent)}
    chain = BenchmarkChain(parameters, everyone)
    chain.fill(
        backlog + (rounds + 1) * FIRES,
        lambda first: chained(
            _waiting(backlog, first),
            _due(rounds + 1, FIRES, HEAVY, HEAVY_GAS, first + WARM_UP, tip=1_000),
        ),
    )
    for _ in range(WARM_UP):
        chain.block()
    return chain


def _waiting(count: int, first: int) -> Iterator[tuple[Address, ScheduleRequest]]:
    for number in range(count):
        height = first + number % WARM_UP
        match number % 4:
            case 0:
                yield (
                    actor_address(number % 1_000),
                    ScheduleRequest(height, EMPTY, max_fee_per_cycle=1, max_priority_fee_per_cycle=1),
                )
            case 1:
                yield (
                    actor_address(number % 1_000, POOR),
                    ScheduleRequest(
                        height, EMPTY, gas_limit=250_000, max_fee_per_cycle=10**12, max_priority_fee_per_cycle=0
                    ),
                )
            case 2:
                yield actor_address(number % 1_000), ScheduleRequest(height, EMPTY, gas_limit=400_000)
            case _:
                yield actor_address(number // 4 % AGENTS, BIDDERS), ScheduleRequest(height, EMPTY, gas_limit=1_000)


# --- policies ---------------------------------------------------------------------------------------------------------


def _selection_ratios(waiting: int, warm_up: int, rounds: int) -> list[float]:
    """The cost of selection under `cip1` in µs, and under each other policy against that, in turns."""
    parameters = Parameters(max_timers_per_actor=LOTS, max_cycles_per_fire_auction_phase=10_000)
    with ExitStack() as held:
        chains = [held.enter_context(BenchmarkChain(parameters, actors(1_000), policy=policy)) for policy in Policy]
        for chain in chains:
            chain.fill(waiting, partial(_contending, waiting, warm_up))
            for _ in range(warm_up):
                chain.block()
        measured = interleaved(rounds, *(partial(chain.selection, FIRES) for chain in chains))
        costs = dict(zip(Policy, measured, strict=True))
        cip1 = costs.pop(Policy.CIP1)
        return [cip1 * 1e6, *(cost / cip1 for cost in costs.values())]


def _contending(count: int, warm_up: int, first: int) -> Iterator[tuple[Address, ScheduleRequest]]:
    for number in range(count):
        tip = number * 7_919 % 100_003
        yield (
            actor_address(number % 1_000),
            ScheduleRequest(
                first + number % warm_up,
                HEAVY,
                gas_limit=HEAVY_GAS,
                max_fee_per_cycle=10**12,
                max_priority_fee_per_cycle=tip,
                bid=tip * HEAVY_GAS,
            ),
        )


# --- watched keys -----------------------------------------------------------------------------------------------------


def _unwatched_ratios(rounds: int, chains: int) -> float:
    """The median over chains of the same blocks."""
    ratios = [_unwatched_ratio(rounds) for _ in range(chains)]
    print("unwatched_block_ratio of each chain:", ", ".join(f"{ratio:.2f}" for ratio in ratios), flush=True)
    return median(ratios)


def _unwatched_ratio(rounds: int) -> float:
    """The cost of asking whether written keys are watchable, where none is.

    On one chain, block by block: of two that do the same, one is up to a quarter slower.
    """
    gas_limit = 2_500
    parameters = Parameters(max_timers_per_actor=LOTS)
    a_block = parameters.lane_timer_cycles // gas_limit
    with BenchmarkChain(parameters, actors(100), policy=Policy.BIAS_AUCTION) as chain:
        chain.fill((2 * rounds + 2) * a_block, partial(_due, 2 * rounds + 2, a_block, RESCHEDULE, gas_limit))
        chain.block()
        try:
            asking, silent = interleaved(
                rounds, partial(_processor_time, chain, True), partial(_processor_time, chain, False)
            )
        finally:
            BiasRules.has_watches = True
        return asking / silent


def _processor_time(chain: BenchmarkChain, has_watches: bool) -> float:
    """Seconds of processor time of the next block, in which timers may watch keys or not."""
    BiasRules.has_watches = has_watches
    began = time.process_time()
    outcome = chain.block()
    assert outcome.receipts.fires
    return time.process_time() - began


# --- epochs -----------------------------------------------------------------------------------------------------------


def _epoch_ratio(migrating: int, length: int, epochs: int) -> float:
    """Short epochs, so that the benchmark reaches several of them; as many timers migrate into each."""
    parameters = Parameters(
        epoch_length=length, ring_buffer_size=length, epoch_horizon=2, max_timers_per_actor=LOTS, max_basefee=10**7
    )
    blocks = (epochs + 1) * length
    with BenchmarkChain(parameters, actors(1_000)) as chain:
        chain.fill(
            blocks * FIRES + (epochs - 1) * migrating,
            lambda first: chained(
                _due(blocks, FIRES, HEAVY, HEAVY_GAS, first, tip=1_000),
                *(_migrating(first // length + epoch, length, migrating) for epoch in range(2, epochs + 1)),
            ),
        )
        begun = chain.next_height // length + 1
        first: list[float] = []
        ordinary: list[float] = []
        while chain.next_height <= (begun + epochs - 1) * length:
            is_first = chain.next_height % length == 0
            seconds, _ = chain.timed_block()
            (first if is_first and chain.view.height > begun * length else ordinary).append(seconds)
        return median(first) / median(ordinary)


def _migrating(epoch: int, length: int, count: int) -> Iterator[tuple[Address, ScheduleRequest]]:
    """Timers below the lane price, spread over an epoch."""
    for number in range(count):
        height = epoch * length + number % length
        yield (
            actor_address(number % 1_000),
            ScheduleRequest(height, EMPTY, max_fee_per_cycle=1, max_priority_fee_per_cycle=0),
        )


# --- storms -----------------------------------------------------------------------------------------------------------


STORM_SENDERS = 100
TRANSACTION_GAS = 2_500


def _storm_ratio(expiring: int, before: int, a_block: int) -> float:
    """As many fires as transactions in each block, 2,000 if lanes are full; at one height very many timers expire."""
    after = before
    senders = {actor_address(number, SENDERS): RICH for number in range(STORM_SENDERS)}
    with BenchmarkChain(Parameters(max_timers_per_actor=LOTS), actors(1_000), senders) as chain:
        chain.fill(
            expiring + (before + after) * a_block,
            lambda first: chained(
                _expiring(expiring, first + 1, first + before - 1),
                _due(before + after, a_block, EMPTY, 1_000, first),
            ),
        )
        calm, stormy = [], []
        for height in range(1, before + after + 1):
            seconds, outcome = chain.timed_block(_scheduling(height, a_block))
            assert len(outcome.receipts.fires) == a_block, "a storm does not slow honest timers"
            assert len(outcome.receipts.transactions) == a_block
            if 3 < height <= before:
                calm.append(seconds)
            elif height > before and len(outcome.receipts.destroyed) > a_block:
                stormy.append(seconds)
        return median(stormy) / median(calm)


def _scheduling(height: int, count: int) -> list[PreparedTransaction]:
    """Calls that each schedule a timer. The user lane holds 2,000 of them."""
    payload = b'[["schedule",{"in":3000,"payload":[["set","k","v"]],"gas_limit":2500}]]'
    per_sender = count // STORM_SENDERS
    return [
        call(
            sender=actor_address(number % STORM_SENDERS, SENDERS),
            nonce=(height - 1) * per_sender + number // STORM_SENDERS,
            to=actor_address(number % 1_000),
            payload=payload,
            gas_limit=TRANSACTION_GAS,
            cells_limit=500,
        )
        for number in range(count)
    ]


def _expiring(count: int, height: int, expires_at: int) -> Iterator[tuple[Address, ScheduleRequest]]:
    for number in range(count):
        yield (
            actor_address(number % 1_000),
            ScheduleRequest(height, EMPTY, expires_at=expires_at, max_fee_per_cycle=1, max_priority_fee_per_cycle=0),
        )


if __name__ == "__main__":
    main()
