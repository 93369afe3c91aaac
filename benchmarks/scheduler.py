"""The scheduler's data structures: what scheduling and cancelling cost, and what a waiting timer weighs.

- ``schedule_cost_ratio``: a block whose transactions schedule and cancel timers, with very many live timers against
  few; whole blocks, in turns.
- ``extended_cost_ratio``: finding the timers of the blocks of an epoch, two fifths of whose timers were extended,
  against the same epoch before. None of the heights that are looked up holds one that was extended.
- ``bytes_per_timer``: what the process's resident set grows by when timers with a payload of 32 bytes are added,
  everything included: state, indexes, allocator. Measured in a process of its own, over all three tiers.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from statistics import median

from chains import RICH, BenchmarkChain, actor_address, actors, call, interleaved
from reporting import Lane, Metric, Size, resident_bytes, run_benchmark

from validator.chain.records import TIMER, decode_record
from validator.execution.timer_calls import extend_any
from validator.primitives.params import Parameters
from validator.primitives.types import Address
from validator.pvm.runtime.host import ScheduleRequest
from validator.state.working_set import World
from validator.transition.transition import PreparedTransaction

LOTS = 10**9
SMALL = 1_000
TRANSACTIONS = 100
PAIRS = 10
PAYLOAD_BYTES = 32
SENDERS = 1
LOOKED_UP = 200
WEIGHED_BEFORE = 10_000
EVERYWHERE = 120_000
"""Heights over ring, epoch queue and overflow."""


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--weigh":
        print(_weigh(int(sys.argv[2])))
        return
    run_benchmark(__doc__, lanes, minutes=3, full="a million live timers; about 10 min")


def lanes(size: Size) -> list[Lane]:
    live = size.of(2_000, 300_000, 1_000_000)
    weighed, epoch = size.of(5_000, 1_000_000), size.of(5_000, 200_000, 500_000)
    costs = [
        Metric("schedule_cancel_cost", f"µs a pair, {SMALL:,} live"),
        Metric("schedule_cost_ratio", f"× ({live:,} live / {SMALL:,})", 1.5, at_least=False),
    ]
    extended = Metric("extended_cost_ratio", f"× ({epoch:,} timers, 40 % extended)", 1.5, at_least=False)
    weight = Metric("bytes_per_timer", f"bytes ({weighed:,} timers)", 400, at_least=False)
    return [
        Lane(partial(_costs, live, size.of(1, 15)), costs),
        Lane(partial(_extended_ratio, epoch), [extended]),
        Lane(partial(_bytes_a_timer, weighed), [weight]),
    ]


# --- cost -------------------------------------------------------------------------------------------------------------


def _costs(live: int, rounds: int) -> Iterator[float]:
    """What a schedule and a cancel cost, with few live timers in µs, and with many against that."""
    with _chain(SMALL) as small, _chain(live) as large:
        for chain in (small, large):
            chain.timed_block(_schedules(chain, cancels=False))
        few, many = interleaved(rounds, partial(_pair_cost, small), partial(_pair_cost, large))
    yield few * 1e6
    yield many / few


def _chain(live: int) -> BenchmarkChain:
    chain = BenchmarkChain(
        Parameters(max_timers_per_actor=LOTS),
        actors(1_000),
        {actor_address(number, SENDERS): RICH for number in range(TRANSACTIONS)},
    )
    chain.fill(live, partial(_spread, live, 2_000, 80_000))
    return chain


def _pair_cost(chain: BenchmarkChain) -> float:
    seconds, outcome = chain.timed_block(_schedules(chain, cancels=True))
    assert all(receipt.ok for receipt in outcome.receipts.transactions)
    return seconds / (TRANSACTIONS * PAIRS)


def _schedules(chain: BenchmarkChain, cancels: bool) -> list[PreparedTransaction]:
    """Transactions that schedule timers near and far, and cancel those of the block before."""
    nonce, transactions = World(chain.view).account(actor_address(0, SENDERS)).nonce, []
    for number in range(TRANSACTIONS):
        operations = []
        for pair in range(PAIRS):
            name = f"{number}/{pair}"
            if cancels:
                operations.append(f'["cancel",{{"saved":"{name}"}}]')
            delay = (100, 20_000)[pair % 2]
            operations.append(f'["schedule",{{"in":{delay},"payload":"{"x" * PAYLOAD_BYTES}","save_as":"{name}"}}]')
        payload = f"[{','.join(operations)}]".encode()
        transactions.append(call(actor_address(number, SENDERS), nonce, actor_address(number), payload))
    return transactions


def _spread(count: int, ahead: int, length: int, first: int) -> Iterator[tuple[Address, ScheduleRequest]]:
    """Timers over ``length`` heights, the first of which is ``ahead`` of the first block after the filling."""
    for number in range(count):
        height = first + ahead + number * 7_919 % length
        yield actor_address(number % 1_000), ScheduleRequest(height, number.to_bytes(PAYLOAD_BYTES, "big"))


# --- extended timers ------------------------------------------------------------------------------------------------


def _extended_ratio(count: int) -> float:
    parameters = Parameters(max_timers_per_actor=LOTS)
    first, length = 2 * parameters.epoch_length, parameters.epoch_length
    heights = range(first + length // 2, first + length // 2 + LOOKED_UP)
    with BenchmarkChain(parameters, actors(1_000)) as chain:
        chain.fill(
            count,
            lambda _: (
                (actor_address(i % 1_000), ScheduleRequest(first + i % length, i.to_bytes(PAYLOAD_BYTES, "big")))
                for i in range(count)
            ),
        )
        before = median(_lookup_cost(chain, height) for height in heights)
        records = (decode_record(key, value) for key, value in chain.view.scan(TIMER))
        extended = [timer for timer in records if timer.trigger_height % length < 2 * length // 5]
        with chain.block_without_transactions() as world:
            for timer in extended:
                extend_any(world, timer.timer_id, timer.expires_at + 1, chain.next_height, parameters)
        return median(_lookup_cost(chain, height) for height in heights) / before


def _lookup_cost(chain: BenchmarkChain, height: int) -> float:
    """Seconds to find the timers of a height."""
    began = time.perf_counter()
    assert len(chain.index.calendar.rows_at(height))
    return time.perf_counter() - began


# --- weight -----------------------------------------------------------------------------------------------------------


def _bytes_a_timer(count: int) -> float:
    done = subprocess.run([sys.executable, __file__, "--weigh", str(count)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _weigh(count: int) -> float:
    with BenchmarkChain(Parameters(max_timers_per_actor=LOTS), actors(1_000)) as chain:
        chain.fill(WEIGHED_BEFORE, partial(_spread, WEIGHED_BEFORE, 0, EVERYWHERE))
        before = resident_bytes()
        chain.fill(count, partial(_spread, count, 0, EVERYWHERE))
        return (resident_bytes() - before) / count


if __name__ == "__main__":
    main()
