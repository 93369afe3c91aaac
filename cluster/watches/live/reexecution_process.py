"""The process that re-executes the chain during a live run (:mod:`cluster.audit.reexecution.follower`).

It begins once the run is some seconds old, so that it does not slow down a short run with busy processors. It ends with
the driver, however the driver ends, since it reads a pipe that only the driver holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil

from cluster.audit.reexecution import ASIDE, END, MODULE
from cluster.common.checkout import ROOT, own_environment
from cluster.record.archive import Reexecuted
from cluster.record.chain_store import FileBlocks
from cluster.record.genesis_file import genesis_page
from cluster.record.run import RunRecord, note_own_problem

BEGIN_AFTER_S: Final = 20.0
"""Delay from the first block to the start of the process. Most short runs are over by then."""
LOG_FILE: Final = "logs/reexecution.log"
POLL_S: Final = 0.1
STUCK_S: Final = 120.0
"""At the end of a run, the re-execution is given up after this time without a further block."""
READ_BYTES: Final = 1 << 20


class ReexecutionProcess:
    """The driver's handle of the process that re-executes one run.

    Call :meth:`look` regularly, :meth:`finish` at the end of the run, and :meth:`close` in any case.
    """

    def __init__(self, record: RunRecord, folder: Path) -> None:
        self._record = record
        self._log_file = folder / LOG_FILE
        self._process: subprocess.Popen[bytes] | None = None
        self._first_block_s: float | None = None
        """Time of the first block (monotonic)."""
        self._driver_began_s = 0.0
        """Processor time of the driver at the first block."""
        self._told = 0
        self._unread = b""
        self._progress: Reexecuted | None = None
        self._is_difference_told = False

    @property
    def height(self) -> int:
        """Number of blocks whose re-execution matches the record."""
        return 0 if self._progress is None else self._progress.heights

    @property
    def judge_core_seconds(self) -> float:
        """Processor time that the driver and the re-execution process used since the first block.

        The re-execution counts only while its process runs.
        """
        if self._first_block_s is None:
            return 0.0
        found = time.process_time() - self._driver_began_s
        with suppress(psutil.Error):
            if self._process is not None:
                times = psutil.Process(self._process.pid).cpu_times()
                found += times.user + times.system
        return found

    def look(self) -> str:
        """Start the process once it is due, tell it the number of blocks, and read its answers.

        Returns the difference that it found, in words, once; otherwise an empty text. Raises :class:`OSError`.
        """
        store = self._record.store
        if not isinstance(store, FileBlocks) or not len(store):
            return ""
        if self._first_block_s is None:
            self._first_block_s, self._driver_began_s = time.monotonic(), time.process_time()
        if self._process is None and time.monotonic() - self._first_block_s < BEGIN_AFTER_S:
            return ""
        if self._process is None:
            self._process = self._start(store)
        if len(store) > self._told:
            self._told = len(store)
            store.flush()
            self._say(b"%d" % self._told)
        self._read()
        if self._is_difference_told or self._progress is None or not self._progress.reason:
            return ""
        self._is_difference_told = True
        return f"height {self._progress.heights + 1}: executed again during the run, {self._progress.reason}"

    def finish(self, checkpoint: Callable[[], None]) -> None:
        """Wait until the process has executed all blocks, if it was started, and enter the result into the record.

        ``checkpoint`` may raise to end the wait.
        """
        if self._process is None:
            return
        self.look()
        self._say(END)
        height, since_s = self.height, time.monotonic()
        while self._process.poll() is None and time.monotonic() - since_s < STUCK_S:
            checkpoint()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
            self._read()
            if self.height > height:
                height, since_s = self.height, time.monotonic()
        self._read()
        self._enter()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._process = None

    def _start(self, store: FileBlocks) -> subprocess.Popen[bytes]:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(store.path.absolute()), ASIDE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=own_environment(),
                start_new_session=True,
            )
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._process = process
        self._say(json.dumps(genesis_page(self._record.genesis)).encode())
        return process

    def _say(self, line: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):  # it ended: the end of the run reports why
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while part := self._process.stdout.read(READ_BYTES):
            *lines, self._unread = (self._unread + part).split(b"\n")
            for line in lines:
                self._progress = msgspec.json.decode(line, type=Reexecuted)

    def _enter(self) -> None:
        assert self._process is not None
        found = self._record.reexecuted = self._progress or Reexecuted(0, "")
        if not found.reason and found.heights < self._told:
            code = self._process.poll()
            why = f"made no progress for {STUCK_S:g} s" if code is None else f"ended with exit code {code}"
            note_own_problem(
                self._record,
                f"the re-execution during the run {why} at height {found.heights} of {self._told}"
                f" (see {self._log_file})",
            )
