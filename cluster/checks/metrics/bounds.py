"""Bounds on validators' use of memory and processor: parts of the check ``bounds``.

**Memory** of a live host's process. The first sample of a validator is the process's memory at the start. From then on
it may grow by :data:`ROOM_BYTES` for each validator on it, which is the sum of the bounds of a validator's queues and
caches, and by as much as its disk: state that has been paid for has indexes in memory.

**Processor** time of a block. The process that executes a live run's chain again measures each block alone
(:mod:`cluster.audit.reexecution.follower`), and a full block of honest transactions and timers on the same machine. No
block of the run may take longer than :data:`MAX_FULL_BLOCKS` times the full block.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from cluster.checks.verdict import Result
from cluster.common.outcome import Outcome
from cluster.record.run import Resources, RunRecord

MIB: Final = 1 << 20
ROOM_BYTES: Final = 1_280 * MIB
"""The allowed growth of memory per validator, besides the growth of its disk.

It covers the mempool and the transactions queued for it, payloads and messages of peers (five times as much, decoded),
request bodies from clients, and answers that clients have not taken yet.
"""

MAX_FULL_BLOCKS: Final = 1.5


def processor_result(record: RunRecord) -> Result | None:
    """Judge the slowest block's processor time against a full block's.

    ``None`` if the chain was not executed again during the run.
    """
    found = record.reexecuted
    if found is None:
        return None
    if not found.slowest_s:
        return Outcome.PASS, "no block took long"
    text = f"block {found.slowest_height:,} took {found.slowest_s:.2f} s of a processor"
    if not found.full_block_s:
        return Outcome.INCONCLUSIVE, f"{text}, and no full block was measured"
    share = found.slowest_s / found.full_block_s
    text += f", {share:.2f} times a full block of {found.full_block_s:.2f} s, {MAX_FULL_BLOCKS} allowed"
    return (Outcome.PASS if share <= MAX_FULL_BLOCKS else Outcome.FAIL), text


def memory_results(record: RunRecord) -> list[Result]:
    """Judge the growth of memory of each validator whose process was measured more than once."""
    looks: defaultdict[int, list[Resources]] = defaultdict(list)
    for look in record.resources:
        if look.memory_bytes is not None:
            looks[look.validator].append(look)
    section = record.scenario.validators
    sharing = -(-section.count // section.host_count)
    names = section.names
    return [_memory_result(names[index], of_one, sharing) for index, of_one in sorted(looks.items()) if len(of_one) > 1]


def _memory_result(name: str, looks: list[Resources], sharing: int) -> Result:
    first = looks[0]
    started = first.memory_bytes or 0
    worst = max(looks, key=lambda look: (look.memory_bytes or 0) - _allowed(first, look, sharing))
    grown, allowed = (worst.memory_bytes or 0) - started, _allowed(first, worst, sharing)
    text = f"{name}'s process grew by {grown / MIB:,.0f} MiB from {started / MIB:,.0f} MiB on"
    return (Outcome.PASS if grown <= allowed else Outcome.FAIL), f"{text}, {allowed / MIB:,.0f} MiB allowed"


def _allowed(first: Resources, look: Resources, sharing: int) -> int:
    return sharing * (ROOM_BYTES + max(0, look.disk_bytes - first.disk_bytes))
