"""Re-execution of a run's blocks from its genesis, in a process of its own.

``python -m cluster.verify RUN`` executes every block that the run kept on a fresh validator's executor and compares
what comes out, block by block: header, receipts, state root; then that these are the blocks that ``result.json``
speaks of. :func:`verify_run` starts it with another hash seed than the caller's, so that an order that depends on
hashing would show as a difference. It knows nothing of mutants: a run that a planted bug got into does not verify.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.archive import BlockRecord
from cluster.errors import BadInput, ExitCode, HarnessError
from cluster.results import RESULT_FILE, ArchivedRun, read_run
from cluster.simulation.disk import MemoryDisk
from validator.block import Block, header_hash
from validator.codec import CodecError, decode
from validator.executor import Executor, Finalize, execution_error
from validator.types import ValidatorError

HASH_SEED: Final = "4242"
"""The verifying process's ``PYTHONHASHSEED``; one up where the caller has the same."""


@dataclass(frozen=True, slots=True)
class Reexecution:
    """What re-execution came to."""

    heights: int
    """Blocks that gave what the run recorded."""
    state_root: str
    difference: str | None
    """The first thing that differs, or ``None``."""

    @property
    def exit_code(self) -> ExitCode:
        if self.difference is not None:
            return ExitCode.FAIL
        return ExitCode.PASS if self.heights else ExitCode.INCONCLUSIVE

    def line(self) -> str:
        """The outcome in one line."""
        if self.difference is not None:
            return f"fail: {self.difference}"
        if not self.heights:
            return "inconclusive: the run kept no blocks"
        return f"pass: {self.heights} heights re-executed to the same roots, the last one {self.state_root}"


def verify_run(folder: Path) -> ExitCode:
    """Re-execute a run in a fresh process, whose line goes to standard output. Raises :class:`BadInput`."""
    read_run(folder)  # what is wrong with the folder is said by this process
    seed = HASH_SEED if os.environ.get("PYTHONHASHSEED") != HASH_SEED else str(int(HASH_SEED) + 1)
    done = subprocess.run(
        [sys.executable, "-m", "cluster.verify", str(folder)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=False,
    )
    if done.returncode not in set(ExitCode):
        raise HarnessError(f"{folder}: the verifying process ended with {done.returncode}")
    return ExitCode(done.returncode)


def reexecute(run: ArchivedRun) -> Reexecution:
    """Execute a run's blocks from its genesis, and hold them against its result. Raises :class:`BadInput`."""
    tips = _recorded_tips(run)
    try:
        executor = Executor(MemoryDisk(), run.genesis)
    except ValidatorError as error:
        raise BadInput(f"the run's genesis cannot be built: {error}") from None
    for position, record in enumerate(run.blocks):
        difference = _execute(executor, record)
        if difference is not None:
            return Reexecution(position, executor.final_view.root.hex(), f"height {position + 1}: {difference}")
    return Reexecution(len(run.blocks), executor.final_view.root.hex(), _difference_from(tips, run))


def _recorded_tips(run: ArchivedRun) -> list[tuple[int, str | None]]:
    """Height and state root of each validator in ``result.json``. Raises :class:`BadInput`."""
    try:
        tips = [(tip["height"], tip["state_root"]) for tip in run.result["validators"]]
    except (KeyError, TypeError):
        tips = [(None, None)]
    if not all(isinstance(height, int) and isinstance(root, str | None) for height, root in tips):
        raise BadInput(f"{RESULT_FILE}: validators: expected a list of objects with height and state_root")
    return tips


def _difference_from(tips: list[tuple[int, str | None]], run: ArchivedRun) -> str | None:
    """How the archive differs from the longest validators of the result, or ``None``."""
    recorded, held = max((height for height, _ in tips), default=0), len(run.blocks)
    if recorded != held:
        return f"recorded {recorded} heights, the archive holds {held}"
    roots = sorted({root or "none" for height, root in tips if height == recorded})
    if held and run.blocks[-1].computed_root.hex() not in roots:
        return (
            f"recorded state root {' and '.join(roots)} at height {held},"
            f" the archive holds {run.blocks[-1].computed_root.hex()}"
        )
    return None


def _execute(executor: Executor, record: BlockRecord) -> str | None:
    """The first difference between a recorded block and its re-execution, or ``None``."""
    try:
        block = decode(record.block, Block)
    except CodecError as error:
        return f"the block cannot be read: {error}"
    digest = header_hash(block.header)
    reason = execution_error(executor, block)
    if reason is not None:
        return f"the block does not execute to its header: {reason}"
    executor.run(Finalize(digest, b""))
    archived = executor.archive.get(block.header.height)
    assert archived is not None
    if archived.receipts != record.receipts:
        return "execution gives other receipts"
    if archived.computed_root != record.computed_root:
        return f"execution gives state root {archived.computed_root.hex()}, recorded was {record.computed_root.hex()}"
    return None


def main() -> int:
    """Entry of the verifying process."""
    try:
        outcome = reexecute(read_run(Path(sys.argv[1])))
    except HarnessError as error:
        print(f"stampede: {error}", file=sys.stderr)
        return error.exit_code
    print(outcome.line())
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
