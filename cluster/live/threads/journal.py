"""Writes one validator's journal on a separate thread, many appends per sync.

Operations are done strictly in order. While a batch is being written, new operations collect into the next one, so
under load the number of syncs depends on the disk's speed, not on the number of appends (group commit).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import groupby

from cluster.live.threads.worker_thread import WorkerThread
from validator.node.events import Append, ReplaceJournal
from validator.storage.disk import Disk
from validator.storage.journal import JOURNAL_FILE

Operation = Append | ReplaceJournal


class JournalWriter:
    """Writes one validator's journal, in batches.

    ``on_written`` is called on the loop after each batch, with the highest token that became durable. The token is
    ``None`` if the batch only replaced the journal. After a failure, which goes to ``on_crash``, it is unknown what was
    written, and nothing is written any more.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        on_written: Callable[[int | None], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.on_timed: Callable[[float], None] = lambda _: None
        """Called on the loop with the seconds from the beginning of each batch until its answer is handled."""
        self._began_s = 0.0
        self._disk = disk
        self._on_written = on_written
        self._on_crash = on_crash
        self._thread = WorkerThread(f"journal {name}")
        self._waiting: list[Operation] = []
        self._is_writing = False
        self._broken = False

    @property
    def idle(self) -> bool:
        """Whether every operation is durable and answered."""
        return not self._is_writing

    def write(self, operation: Operation) -> None:
        """Queue an operation; returns at once."""
        self._waiting.append(operation)
        if not self._is_writing and not self._broken:
            self._write_next()

    async def close(self) -> None:
        """End once every operation is written. No operation may be queued afterwards."""
        while self._is_writing:
            await self._thread.call(lambda: None)  # ends after the batch under way
        self._thread.close()

    def _write_next(self) -> None:
        batch, self._waiting = self._waiting, []
        self._is_writing, self._began_s = True, time.monotonic()
        self._thread.run(partial(self._write, batch), self._written)

    def _written(self, token: int | None, error: BaseException | None) -> None:
        self._is_writing = False
        if error is not None:
            self._broken = True
            self._on_crash(error)
            return
        began_s = self._began_s
        if self._waiting:
            self._write_next()
        self._on_written(token)
        self.on_timed(time.monotonic() - began_s)

    def _write(self, batch: list[Operation]) -> int | None:
        """Perform a batch, on the thread; returns the highest token that became durable."""
        token = None
        for is_append, group in groupby(batch, key=lambda operation: isinstance(operation, Append)):
            operations = list(group)
            data = b"".join(operation.data for operation in operations)
            if is_append:
                self._disk.append(JOURNAL_FILE, data)
                self._disk.sync(JOURNAL_FILE)
                token = max(operation.token for operation in operations if isinstance(operation, Append))
            else:
                self._disk.replace(JOURNAL_FILE, operations[-1].data)
        return token
