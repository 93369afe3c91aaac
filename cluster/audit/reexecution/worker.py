"""The shadow process: ``python -m cluster.audit.reexecution.worker RUN`` executes a run's blocks; prints JSON results.

A Python with few packages can run it: it imports what executes a block, and no other part of the harness.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cluster.audit.reexecution.reexecutor import Reexecutor
from cluster.common.errors import BadInput, ExitCode
from cluster.record.archive import BLOCKS_FILE, GENESIS_FILE, BlockRecord, open_blocks
from cluster.record.genesis_file import read_genesis
from validator.chain.genesis import Genesis
from validator.primitives.codec import encode


@dataclass(frozen=True, slots=True)
class Mismatched:
    """The first block whose result is not as recorded. Receipts and trace are encoded; empty if there are none."""

    height: int
    reason: str
    receipts: bytes
    trace: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of executing a run's blocks again, up to the first one whose result is not as recorded."""

    python: str
    """The version of the Python."""
    hash_seed: str
    heights: int
    """The number of blocks from height 1 on whose results were as recorded."""
    root: str
    mismatch: Mismatched | None


def answer(genesis: Genesis, blocks: Sequence[BlockRecord]) -> Answer:
    """Execute a run's blocks, up to the first one whose result is not as recorded."""
    reexecutor = Reexecutor(genesis)
    mismatches = (reexecutor.take(record) for record in blocks)
    found = next((found for found in mismatches if found is not None), None)
    heights, mismatch = len(blocks), None
    if found is not None:
        trace = b"" if found.trace is None else encode(found.trace)
        heights, mismatch = found.height - 1, Mismatched(found.height, found.reason, found.receipts, trace)
    hash_seed = os.environ.get("PYTHONHASHSEED", "random")
    return Answer(platform.python_version(), hash_seed, heights, reexecutor.root.hex(), mismatch)


def main() -> int:
    """Entry point of the shadow process. Returns its exit code."""
    folder = Path(sys.argv[1])
    try:
        blocks = open_blocks(folder / BLOCKS_FILE)
        found = answer(read_genesis(folder / GENESIS_FILE), blocks)
    except (BadInput, OSError) as error:
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT
    sys.stdout.write(msgspec.json.encode(found).decode())
    return ExitCode.PASS


if __name__ == "__main__":
    sys.exit(main())
