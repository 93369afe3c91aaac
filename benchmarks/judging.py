"""The judge of a long run: memory of the process that keeps the books, and the time from the run's end to its verdict.

A synthetic chain (:mod:`long_chain`) of 64 validators is entered block by block, as the driver of a live run does it:
each block once into the store and the ledger, a validator's claim that it has the same, and the moment at which it
was final there. Then the run is judged, and its folder written.

- ``driver_memory_mb``: the most that the process had resident, imports included.
- ``verdict_seconds``: from the end of the run to its verdict and report on the disk.
- ``report_mb``: the report's size.
- ``judged_blocks_per_second``: blocks that are entered a CPU second. A run whose blocks are final faster than that gets
  its verdict later.

The goals are those of 100,000 heights and 8 million timers (``--full``, more than half an hour).
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from long_chain import LongChain
from reporting import Metric, Size, run_benchmark

from cluster.audit.books import KeptLedger, final_queries
from cluster.audit.ledger.ledger import Ledger
from cluster.checks.run import judge_run
from cluster.record.chain_store import FileBlocks, ServedBlocks
from cluster.record.finalizations import Finalization
from cluster.record.run import RunRecord, Supply, ValidatorRecord
from cluster.report.results import finish_run
from cluster.scenario import Scenario
from validator.primitives.types import parse_address

VALIDATORS = 64
TIMERS_PER_BLOCK = 80
HEIGHTS, QUICK_HEIGHTS, FULL_HEIGHTS = 5_000, 500, 100_000
INTERVAL_MS = 500.0
MEMORY_GOAL_MB = 600
VERDICT_GOAL_S = 30
REPORT_GOAL_MB = 8


def main() -> None:
    run_benchmark(__doc__, measure, full=f"{FULL_HEIGHTS:,} heights, which take more than half an hour")


def measure(size: Size) -> list[Metric]:
    heights = FULL_HEIGHTS if size.full else QUICK_HEIGHTS if size.quick else HEIGHTS
    with tempfile.TemporaryDirectory(prefix="judging-") as folder:
        return judged(Path(folder), heights)


def judged(folder: Path, heights: int) -> list[Metric]:
    """The metrics of a run of so many heights."""
    chain = LongChain(VALIDATORS, TIMERS_PER_BLOCK)
    stop = {"height": heights, "timeout_s": max(60, int(heights * INTERVAL_MS / 1_000))}
    scenario = Scenario.model_validate({"name": "long", "validators": VALIDATORS, "stop": stop})
    record = RunRecord(scenario, "live", 1, "benchmark", chain.genesis)
    record.store = FileBlocks(folder / "blocks.part")
    names = scenario.validators.names
    record.validators = [ValidatorRecord(name, index, ServedBlocks(record.store)) for index, name in enumerate(names)]
    whole = ServedBlocks(record.store)
    record.kept_ledger = kept = KeptLedger(whole, Ledger(chain.genesis))
    stored = kept.reader.stored(record.store)
    took_s = 0.0
    for height, block in enumerate(chain.blocks(heights), start=1):
        record.proposals[height] = height * INTERVAL_MS
        for validator in range(VALIDATORS):
            at_ms = height * INTERVAL_MS + 100.0 + validator
            record.finalizations.append(Finalization(at_ms, validator, height))
        begun_s = time.process_time()
        whole.append(block)
        kept.advance()
        stored.read(record.store)
        took_s += time.process_time() - begun_s
        if height % (heights // 10) == 0:
            print(f"height {height:,}: {_resident_mb():,.0f} MB", flush=True)
    record.duration_ms = heights * INTERVAL_MS + 1_000
    begun_s = time.monotonic()
    for found in record.validators:
        found.blocks = served = ServedBlocks(record.store)
        served.extend_as_stored(heights)
    kept.advance({heights})
    _answer(record, kept)
    judged_run = judge_run(record)
    assert judged_run.books.ledger is kept.ledger, "the books are kept once"
    assert not judged_run.books.findings, judged_run.books.findings[:3]
    failed = [check for check in judged_run.verdict.checks if check.verdict == "fail"]
    assert not failed, failed
    finish_run(record, folder, judged=judged_run)
    verdict_s = time.monotonic() - begun_s
    report_mb = (folder / "report.html").stat().st_size / 1e6
    is_full = heights == FULL_HEIGHTS
    return [
        Metric("driver_memory_mb", _resident_mb(), "MB", MEMORY_GOAL_MB, at_least=False),
        Metric("verdict_seconds", verdict_s, "s", VERDICT_GOAL_S, at_least=False),
        Metric("report_mb", report_mb, "MB", REPORT_GOAL_MB, at_least=False),
        Metric("judged_blocks_per_second", heights / took_s, "blocks/s"),
        Metric("heights", heights, "all of the goal" if is_full else f"of {FULL_HEIGHTS:,}"),
    ]


def _answer(record: RunRecord, kept: KeptLedger) -> None:
    """What honest validators answer at the end."""
    asked, ledger = final_queries(record.genesis, kept.blocks, kept.ledger), kept.ledger
    for found in record.validators:
        found.balances = {text: ledger.accounts.balances[parse_address(text)] for text in asked.accounts}
        found.pending_timers = {text: bytes.fromhex(text) in ledger.timers.pending for text in asked.timers}
        found.supply = Supply(ledger.accounts.held(), ledger.accounts.burned)
        found.status = {"name": found.name, "height": found.tip, "pending_timers": len(ledger.timers.pending)}


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024 / 1e6


if __name__ == "__main__":
    main()
