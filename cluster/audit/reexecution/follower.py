"""Executes a run's chain again during the run: ``python -m cluster.audit.reexecution.follower BLOCKS``.

``BLOCKS`` is the file to which the run's store appends blocks (:class:`cluster.record.chain_store.FileBlocks`).
Standard input is a pipe from the driver: first the genesis, as one line of JSON; then lines with the current number of
blocks in the file; then ``end``. Standard output reports progress in lines of JSON (:class:`Progress`). The process
ends after ``end`` once it has executed all announced blocks; at the first block with another result; or at once when
the pipe closes without ``end``, because the driver has ended.

It runs where a processor is idle, and keeps the state and some final blocks, not the chain.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from cluster.audit.reexecution.full_block import full_block_seconds
from cluster.audit.reexecution.reexecutor import Reexecutor
from cluster.common.errors import BadInput, ExitCode
from cluster.record.archive import ARCHIVE_MAGIC, LENGTH_BYTES, BlockRecord, decode_item
from cluster.record.genesis_file import from_json
from validator.primitives.codec import CodecError, encode

MODULE: Final = "cluster.audit.reexecution.follower"
END: Final = b"end"
NICENESS: Final = 19
TELL_EVERY_S: Final = 0.5


class Progress(msgspec.Struct, frozen=True):
    """The progress of the execution."""

    height: int
    """Number of blocks that gave what was recorded."""
    root: str
    """The state root after them, in hex; empty once a block gave another result."""
    reason: str = ""
    """Why the next block gave another result, in one line; empty as long as none did."""
    receipts: bytes = b""
    """The receipts of that block as executed here, encoded; empty if there are none."""
    trace: bytes = b""
    """The trace of that block, likewise."""
    slowest_height: int = 0
    """The block that took longest to execute, if any took long. This field and those below are set only at the end."""
    slowest_s: float = 0.0
    """Its processor time."""
    full_block_s: float = 0.0
    """The processor time of a full block of honest transactions and timers
    (:mod:`cluster.audit.reexecution.full_block`)."""


class _Orders:
    """The driver's orders, read by a dedicated thread."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._changed = threading.Condition()
        self._height = 0
        self._is_end = False

    def read(self) -> None:
        """Read until the end of the pipe, and end the process if ``end`` did not come."""
        for line in self._pipe:
            with self._changed:
                if line.strip() == END:
                    self._is_end = True
                    _yield_no_more()
                else:
                    self._height = int(line)
                self._changed.notify()
        if not self._is_end:
            os._exit(ExitCode.INCONCLUSIVE)

    def wait(self, height: int) -> bool:
        """Wait for a block; ``False`` if it does not come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._height >= height or self._is_end)
            return self._height >= height


def follow(reexecutor: Reexecutor, file: BinaryIO, orders: _Orders, full_block: Callable[[], float]) -> None:
    """Execute block after block, as far as ordered, and report progress.

    ``full_block`` measures a full block's processor time; called only if a block took long.
    """
    file.seek(len(ARCHIVE_MAGIC))
    told_s = time.monotonic()
    while orders.wait(reexecutor.height + 1):
        found = reexecutor.take(_next_block(file))
        if found is not None:
            trace = b"" if found.trace is None else encode(found.trace)
            _tell(Progress(found.height - 1, "", found.reason, found.receipts, trace))
            return
        if time.monotonic() - told_s > TELL_EVERY_S:
            told_s = time.monotonic()
            _tell(Progress(reexecutor.height, reexecutor.root.hex()))
    end, slowest = Progress(reexecutor.height, reexecutor.root.hex()), reexecutor.slowest
    if slowest is not None:
        end = msgspec.structs.replace(end, slowest_height=slowest.height, slowest_s=slowest.seconds)
        end = msgspec.structs.replace(end, full_block_s=full_block())
    _tell(end)


def _next_block(file: BinaryIO) -> BlockRecord:
    """Raises :class:`BadInput` if the file does not have it."""
    head = file.read(LENGTH_BYTES)
    item = head + file.read(int.from_bytes(head, "big"))
    try:
        return decode_item(item)
    except CodecError as error:
        raise BadInput(f"the store of blocks cannot be read: {error}") from None


def _tell(progress: Progress) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(progress) + b"\n")
    sys.stdout.buffer.flush()


def _yield_to_others() -> None:
    """Run only where a processor has nothing else to do.

    On Linux with the idle policy: the scheduler wakes other threads at once on a processor that runs only idle work;
    next to a nice process it may queue them behind each other. Elsewhere with the lowest priority.
    """
    os.nice(NICENESS)
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _yield_no_more() -> None:
    """Run as an ordinary process of the lowest priority, if this user may: the testnet is at rest, but other programs
    are not."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(threading.main_thread().native_id or 0, os.SCHED_OTHER, os.sched_param(0))


def main() -> int:
    """Entry of the process."""
    _yield_to_others()
    orders = _Orders(sys.stdin.buffer)
    try:
        genesis = from_json(sys.stdin.buffer.readline().decode())
        reexecutor = Reexecutor(genesis, time.thread_time)
        threading.Thread(target=orders.read, daemon=True).start()
        with Path(sys.argv[1]).open("rb") as file:
            follow(reexecutor, file, orders, partial(full_block_seconds, genesis, time.thread_time))
    except (BadInput, OSError) as error:
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT
    return ExitCode.PASS


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # the thread may still hold the standard input, which an ordinary end would wait for
