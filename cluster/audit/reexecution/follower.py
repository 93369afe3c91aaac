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
    """A report of the process: how far it has executed the chain, and at the end its results."""

    height: int
    """The number of blocks from height 1 on whose results were as recorded."""
    root: str
    """The state root after these blocks, in hex; empty once a block gave a result other than recorded."""
    reason: str = ""
    """How the next block's result differed from the record, in one line; empty if no block's did."""
    receipts: bytes = b""
    """The encoded receipts of the block with the differing result, as executed here; empty if there are none."""
    trace: bytes = b""
    """The encoded trace of the block with the differing result, as executed here; empty if there is none."""
    slowest_height: int = 0
    """The height of the block that took longest to execute; 0 if none took long.

    This field and those below are set only at the end.
    """
    slowest_s: float = 0.0
    """The processor time of the slowest block, in seconds."""
    full_block_s: float = 0.0
    """The processor time in seconds of a full block of honest transactions and timers
    (:mod:`cluster.audit.reexecution.full_block`)."""


class _Orders:
    """The driver's commands from standard input: up to which height to execute. A dedicated thread reads them."""

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
        """Wait until the block at a height is in the file; ``False`` if ``end`` came before it."""
        with self._changed:
            self._changed.wait_for(lambda: self._height >= height or self._is_end)
            return self._height >= height


def follow(reexecutor: Reexecutor, file: BinaryIO, orders: _Orders, full_block: Callable[[], float]) -> None:
    """Execute the blocks in ``file`` as far as the driver has announced them, and report progress.

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
    """Read the next block from the file. Raises :class:`BadInput` if it is missing or malformed."""
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
    """Give this process the lowest priority, so that it uses only otherwise idle processors.

    On Linux it also gets the idle scheduling policy: other threads then preempt it at once, whereas they may have to
    queue next to a process that is merely nice.
    """
    os.nice(NICENESS)
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _yield_no_more() -> None:
    """Leave the idle scheduling policy of Linux, if permitted, and keep the lowest priority.

    The testnet has stopped by then, so the process need only give way to other programs.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(threading.main_thread().native_id or 0, os.SCHED_OTHER, os.sched_param(0))


def main() -> int:
    """Entry point of the follower process. Returns its exit code."""
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
