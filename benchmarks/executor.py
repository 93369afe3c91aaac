"""A foreign executor: what a block costs a validator that leaves its transition to a program.

Two validators execute the same blocks and make them final, in turns, on disks in memory: one with the built-in
transition, and one with the reference executor in another process. A block has 200 fires and no transactions.

- ``foreign_block_ratio``: the time of a block with the executor against the time of the built-in transition.
- ``foreign_block_ms``, ``own_block_ms``: the two times.
- ``scheduling_block_ratio``: the same ratio of blocks with 20 transactions that schedule these timers.
"""

from __future__ import annotations

import json
import time
from functools import partial
from statistics import median

from chains import RICH, actor_address, actors
from nacl.signing import SigningKey
from reporting import Lane, Metric, Size, run_benchmark

from cluster.disks.memory import MemoryDisk
from cluster.scenario.executor_process import foreign_executor
from validator.chain.genesis import Genesis
from validator.chain.transactions import Call, Transaction, address_of, parse, sign, transaction_hash
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import Build, Built, Execute, Executed, Finalize, Finalized
from validator.primitives.params import Parameters
from validator.transition.transition import PreparedTransaction

CHAIN_ID = "benchmark"
FIRES = 200
PER_TRANSACTION = 10
LOTS = 10**9
KEY = SigningKey(b"\x07" * 32)
SENDER = address_of(bytes(KEY.verify_key))


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=0.5)


def lanes(size: Size) -> list[Lane]:
    metrics = [
        Metric("foreign_block_ratio", "×", 2, at_least=False),
        Metric("own_block_ms", "ms"),
        Metric("foreign_block_ms", "ms"),
        Metric("scheduling_block_ratio", "×"),
    ]
    return [Lane(partial(_compared, size.of(4, 40)), metrics)]


def _compared(blocks: int) -> list[float]:
    genesis = Genesis(
        CHAIN_ID,
        (bytes(KEY.verify_key),),
        parameters=Parameters(max_timers_per_actor=LOTS),
        accounts={SENDER: RICH},
        actors=actors(PER_TRANSACTION),
    )
    author, own = Executor(MemoryDisk(), genesis), Executor(MemoryDisk(), genesis)
    foreign = foreign_executor("stampede executor")(MemoryDisk(), genesis)
    times: dict[int, tuple[list[float], list[float]]] = {0: ([], []), FIRES: ([], [])}
    try:
        for height in range(1, 2 * blocks + 1):
            wires = [_scheduling(height, place, blocks) for place in range(FIRES // PER_TRANSACTION)]
            built = author.run(Build(height, author.final_digest, 0, tuple(wires) if height <= blocks else ()))
            assert isinstance(built, Built) and (height > blocks or len(built.block.transactions) == len(wires))
            fires = _finish(author, built).fires
            assert fires == (FIRES if height > blocks else 0), f"{fires} fires at height {height}"
            for executor, taken in zip((own, foreign), times[fires], strict=True):
                began = time.perf_counter()
                executed = executor.run(Execute(built.digest, built.block, {}))
                assert executed == Executed(built.digest, None), executed
                _finish(executor, built)
                taken.append(time.perf_counter() - began)
    finally:
        for executor in (author, own, foreign):
            executor.close()
    own_s, foreign_s = (median(taken) for taken in times[FIRES])
    own_scheduling_s, foreign_scheduling_s = (median(taken) for taken in times[0])
    return [foreign_s / own_s, 1_000 * own_s, 1_000 * foreign_s, foreign_scheduling_s / own_scheduling_s]


def _scheduling(height: int, place: int, delay: int) -> PreparedTransaction:
    """A transaction that schedules timers due after ``delay`` blocks."""
    timer = {"in": delay, "payload": [["set", "k", "v"]], "gas_limit": 2_500, "max_fee_per_cycle": 10**12}
    script = json.dumps([["schedule", timer]] * PER_TRANSACTION).encode()
    nonce = (height - 1) * (FIRES // PER_TRANSACTION) + place
    transaction = Transaction(
        SENDER, nonce, 400_000, 40_000, 10**12, 1, 10**12, Call(actor_address(place % PER_TRANSACTION), "run", script)
    )
    wire = sign(KEY, CHAIN_ID, transaction)
    return PreparedTransaction(transaction_hash(wire), wire, parse(wire, CHAIN_ID))


def _finish(executor: Executor, built: Built) -> Finalized:
    final = executor.run(Finalize(built.digest, b""))
    assert isinstance(final, Finalized)
    return final


if __name__ == "__main__":
    main()
