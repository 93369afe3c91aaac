"""Performs the runs of a scorecard, in the simulator or on live testnets, and takes the measures of each.

Simulated runs are distributed over processes; live runs are performed one after the other. Processor time and size of
state come from a second execution of the run's final blocks (:mod:`cluster.audit.reexecution`). The first execution
cannot be measured: the simulator executes for all validators at once, and live validators share the machine. A full
block of honest users is measured in the same process as the second execution, once for the parameters of a chain.
Processor time varies between machines and runs. Everything else of a simulated run follows from scenario and seed.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np
from rich.console import Console

from cluster.audit.reexecution.again import execute_again
from cluster.checks.kind import Judged
from cluster.checks.run import judge_run
from cluster.commands.console.output import print_line
from cluster.commands.console.outputs import Outputs
from cluster.commands.sweeps.outcome import crashed
from cluster.common.checkout import checkout_commit
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.disks.memory import MemoryDisk
from cluster.record.archive import BlockRecord
from cluster.record.run import RunObserver, RunRecord, RunRequest
from kits.market.dos.cases import BASELINE, Plan
from kits.market.dos.measures import ExecutedBlock, RunMeasures, block_rate, measure_run
from kits.market.trials import Trial
from validator.chain.block import BlockReceipts
from validator.chain.genesis import Genesis, Policy, PolicyFile
from validator.node.executor.executor import Executor
from validator.primitives.codec import decode
from validator.primitives.params import Parameters

NO_ATTACK: Final = "no-attack"
"""Part of the folder name of a run without an attack."""
FULL_BLOCKS_KEPT: Final = 16
"""Maximum number of cached results of :func:`full_block_s` in a process."""
OF_THE_PROGRAM: Final = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""The types of objects that are part of the program, not of its data. They are not counted."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one run of a scorecard."""

    measures: RunMeasures | None
    """Measures of the run; ``None`` if it crashed."""
    problem: str = ""
    """The check that failed, or the crash, in one line; empty if there is neither."""

    @property
    def crashed(self) -> bool:
        """Whether the run ended by an exception that was not expected."""
        return self.measures is None

    @property
    def fails(self) -> bool:
        """Whether a check failed."""
        return bool(self.problem) and not self.crashed


def run_case(plan: Plan, trial: Trial) -> CaseResult:
    """Simulate one run, in a worker. If it crashes, the result has the crash as its problem.

    A user's policy is executed again for the first run of each variant.
    """
    from cluster.watches.watched_simulation import simulate

    variant, attack = map(str, trial.cell)
    try:
        record = simulate(plan.scenario(variant, attack), trial.seed)
        if record.interrupted:
            raise KeyboardInterrupt
        if (attack, trial.seed) == (BASELINE, plan.seeds[0]):
            execute_again(record)
        return measure_case(plan, judge_run(record))
    except Exception as error:  # noqa: BLE001 (a crash of the run is a finding)
        return CaseResult(None, problem=crashed(trial.seed, error, 0.0).reason)


def run_live_cases(plan: Plan, folder: Path, output: Console) -> Iterator[tuple[Trial, CaseResult]]:
    """Perform all runs of a plan on live testnets, one after the other, as ``stampede run`` does.

    Each run has a separate folder inside ``folder``. A signal ends the run and raises :class:`KeyboardInterrupt`. A
    testnet that cannot be started raises :class:`~cluster.common.errors.HarnessError`.
    """
    from cluster.commands.run.scenario_run import PlannedRun, drive, perform_run

    commit, trials = checkout_commit(), plan.trials
    for number, trial in enumerate(trials):
        variant, attack = map(str, trial.cell)
        scenario = plan.scenario(variant, attack)
        request = RunRequest(scenario, trial.seed, commit, folder / f"{number}-{attack or NO_ATTACK}")

        def perform(
            _: Path, observer: RunObserver, interrupts: Interrupts, request: RunRequest = request
        ) -> AbstractContextManager[RunRecord]:
            return drive(request, "live", observer, interrupts)

        judged = perform_run(PlannedRun(scenario, "live", perform, outputs=Outputs(annotates=False)), request.folder)
        if judged.books.record.interrupted:
            raise KeyboardInterrupt
        yield trial, measure_case(plan, judged)
        what = f"{attack or 'no attack'} on {variant}, seed {trial.seed}"
        print_line(output, f"{number + 1} of {len(trials)} runs  {what}")


def measure_case(plan: Plan, judged: Judged) -> CaseResult:
    """Execute the blocks of a judged run again and measure them; returns the run's result."""
    record, verdict = judged.books.record, judged.verdict
    chain = judged.books.chain
    blocks = measured_blocks(record.genesis, chain, min(plan.window.last, len(chain)))
    measures = measure_run(blocks, record.scenario.load, record.seed, plan.window)
    measures.full_block_s = full_block_s(record.genesis.policy, record.genesis.parameters, record.genesis.policy_file)
    measures.blocks_per_second = block_rate(record.first_finalizations, plan.window)
    measures.attackers_sent = _sent_by_attackers(record)
    measures.pool_transactions = max((_pool_size(each.status) for each in record.validators), default=0)
    return CaseResult(measures, " ".join(verdict.reason.split()) if verdict.outcome is Outcome.FAIL else "")


@lru_cache(FULL_BLOCKS_KEPT)
def full_block_s(policy: Policy, parameters: Parameters, policy_file: PolicyFile | None = None) -> float:
    """Processor seconds of a full block of honest users in this process; 0 if the parameters leave no room for one."""
    # Imported here since it loads compiled code.
    from cluster.audit.reexecution.full_block import full_block_seconds

    genesis = Genesis("full-block", (bytes(32),), policy, parameters, policy_file=policy_file)
    return full_block_seconds(genesis, time.process_time)


def measured_blocks(genesis: Genesis, chain: Sequence[BlockRecord], sized: int) -> list[ExecutedBlock]:
    """Execute a chain's blocks again, from height 1 on; returns each with the processor time of its execution.

    The block at height ``sized`` also has the size of the state after it, and of what execution holds in memory. From
    a block on whose execution differs from the recorded one, blocks have only their receipts.
    """
    # Imported here since it loads compiled code.
    from cluster.audit.reexecution.reexecutor import Reexecutor

    reexecutor = Reexecutor(genesis)
    blocks: list[ExecutedBlock] = []
    for record in chain:
        before = time.process_time()
        mismatch = reexecutor.take(record)
        took_s = time.process_time() - before
        if mismatch is not None:  # a check reports it; later blocks cannot be executed
            return blocks + [ExecutedBlock(decode(each.receipts, BlockReceipts)) for each in chain[len(blocks) :]]
        sizes = sizes_of(reexecutor.executor) if len(blocks) + 1 == sized else ()
        blocks.append(ExecutedBlock(decode(record.receipts, BlockReceipts), took_s, *sizes))
    return blocks


def _sent_by_attackers(record: RunRecord) -> int:
    titles = {group.title for group in record.scenario.load.users if group.is_attack}
    sends = record.load.sends.workloads
    return sum(sends[title].sent for title in titles if title in sends)


def _pool_size(status: dict[str, Any] | None) -> int:
    size = (status or {}).get("pending_transactions", 0)
    return size if isinstance(size, int) else 0


# --- sizes ------------------------------------------------------------------------------------------------------------


def sizes_of(executor: Executor) -> tuple[int, int]:
    """The bytes of the state's keys and values after the final block, and those of all objects that the executor holds.

    These include the state's caches and the scheduler's indexes, but not the data on disk.
    """
    state = sum(len(key) + len(value) for key, value in executor.final_view.scan(b""))
    return state, memory_bytes(executor, without=(MemoryDisk,))


def memory_bytes(root: object, without: Collection[type] = ()) -> int:
    """The total size in bytes of an object and of all objects reachable from it, each counted once.

    It is counted by the sizes of Python's objects, so the same run gives the same bytes on every machine.

    Types, modules, functions and instances of ``without`` are skipped, with all that is reachable only through them.
    Memory that extension modules other than NumPy hide from Python's garbage collector is not counted.
    """
    skipped = (*OF_THE_PROGRAM, *without)
    seen, waiting, total = {id(root)}, [root], 0
    while waiting:
        value = waiting.pop()
        total += sys.getsizeof(value)
        for each in _referents(value):
            if id(each) not in seen and not isinstance(each, skipped):
                seen.add(id(each))
                waiting.append(each)
    return total


def _referents(value: object) -> list[Any]:
    """The objects that an object refers to, including the base of a NumPy view, which the collector does not report."""
    if isinstance(value, np.ndarray) and value.base is not None:
        return [value.base]
    return gc.get_referents(value)
