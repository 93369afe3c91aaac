"""Executes a run's chain again in its own process: ``python -m cluster.audit.reexecution.follower BLOCKS [aside]``.

``BLOCKS`` is a file of blocks: an archive, or the one to which a run's store appends
(:class:`cluster.record.chain_store.FileBlocks`). Standard input has first the genesis, as one line of JSON; then lines
with the current number of blocks in the file; then ``end``. Standard output reports progress in lines of JSON
(:class:`Reexecuted`). The process ends after ``end`` once it has executed all announced blocks; at the first block with
another result; or at once when the pipe closes without ``end``, because the driver has ended.

With ``aside``, during a live run, it runs where a processor is idle, and measures blocks that take long. It keeps the
state and some final blocks, not the chain. A Python with few packages can run it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final

import msgspec

from cluster.audit.reexecution import ASIDE, END
from cluster.audit.reexecution.reexecutor import Reexecutor
from cluster.common.errors import BadInput, ExitCode
from cluster.record.archive import ARCHIVE_MAGIC, Reexecuted, items_of
from cluster.record.genesis_file import from_json
from validator.chain.genesis import Genesis

NICENESS: Final = 19
TELL_EVERY_S: Final = 0.5


Orders = SimpleQueue[int | None]
"""The driver's commands: up to which height to execute; ``None`` for the end."""


def read_orders(pipe: BinaryIO, orders: Orders) -> None:
    """Read until the end of the pipe, and end the process if ``end`` did not come."""
    is_end = False
    for line in pipe:
        is_end = line.strip() == END
        if is_end:
            _yield_no_more()
        orders.put(None if is_end else int(line))
    if not is_end:
        os._exit(ExitCode.INCONCLUSIVE)


def follow(reexecutor: Reexecutor, file: BinaryIO, orders: Orders, full_block: Callable[[], float]) -> None:
    """Execute the blocks in ``file`` as far as the driver has announced them, and report progress.

    ``full_block`` measures a full block's processor time; called only if a block took long. Raises :class:`BadInput` if
    an announced block is missing or malformed.
    """
    file.seek(len(ARCHIVE_MAGIC))
    blocks, told_s = items_of(file), time.monotonic()
    for announced in iter(orders.get, None):
        while reexecutor.height < announced:
            _, block = next(blocks, (b"", None))
            if block is None:
                raise BadInput(f"the store of blocks cannot be read behind height {reexecutor.height}")
            found = reexecutor.take(block)
            if found is not None:
                _tell(found)
                return
            if time.monotonic() - told_s > TELL_EVERY_S:
                told_s = time.monotonic()
                _tell(reexecutor.result)
    end, slowest = reexecutor.result, reexecutor.slowest
    if slowest is not None:
        at, seconds = slowest
        end = replace(end, slowest_height=at, slowest_s=seconds, full_block_s=full_block())
    _tell(end)


def _tell(progress: Reexecuted) -> None:
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


def _full_block_s(genesis: Genesis) -> float:
    # Imported here since another Python may lack the packages.
    from cluster.audit.reexecution.full_block import full_block_seconds

    return full_block_seconds(genesis, time.thread_time)


def main() -> int:
    """Entry point of the follower process. Returns its exit code."""
    is_aside = ASIDE in sys.argv[2:]
    if is_aside:
        _yield_to_others()
    orders: Orders = SimpleQueue()
    try:
        genesis = from_json(sys.stdin.buffer.readline().decode())
        reexecutor = Reexecutor(genesis, time.thread_time if is_aside else None)
        threading.Thread(target=read_orders, args=(sys.stdin.buffer, orders), daemon=True).start()
        with Path(sys.argv[1]).open("rb") as file:
            follow(reexecutor, file, orders, lambda: _full_block_s(genesis))
    except (BadInput, OSError) as error:
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT
    return ExitCode.PASS


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # the thread may still hold the standard input, which an ordinary end would wait for
