"""The shadow process: ``python -m cluster.audit.reexecution.worker RUN`` executes a run's blocks, and says in JSON what
they gave.

It may be run by a Python that has little installed: it imports what executes a block, and nothing of the harness
besides.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from cluster.audit.reexecution.reexecutor import Mismatch, Reexecutor
from cluster.common.errors import BadInput, ExitCode
from cluster.record.archive import BLOCKS_FILE, GENESIS_FILE, BlockRecord, decode_blocks
from cluster.record.genesis_file import read_genesis
from validator.chain.genesis import Genesis
from validator.primitives.codec import encode


def answer(genesis: Genesis, blocks: list[BlockRecord]) -> dict[str, Any]:
    """The result of re-execution, up to the first block that gives something else."""
    reexecutor = Reexecutor(genesis)
    mismatches = (reexecutor.take(record) for record in blocks)
    mismatch = next((found for found in mismatches if found is not None), None)
    return {
        "python": platform.python_version(),
        "hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        "heights": len(blocks) if mismatch is None else mismatch.height - 1,
        "root": reexecutor.root.hex(),
        "mismatch": None if mismatch is None else _mismatch_page(mismatch),
    }


def _mismatch_page(mismatch: Mismatch) -> dict[str, Any]:
    return {
        "height": mismatch.height,
        "reason": mismatch.reason,
        "receipts": mismatch.receipts.hex(),
        "trace": "" if mismatch.trace is None else encode(mismatch.trace).hex(),
    }


def main() -> int:
    """Entry of the process."""
    folder = Path(sys.argv[1])
    try:
        blocks = decode_blocks((folder / BLOCKS_FILE).read_bytes(), str(folder / BLOCKS_FILE))
        page = answer(read_genesis(folder / GENESIS_FILE), blocks)
    except (BadInput, OSError) as error:
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT
    json.dump(page, sys.stdout)
    return ExitCode.PASS


if __name__ == "__main__":
    sys.exit(main())
