"""A driver's side of a handover: the clock of the run, and the checkpoints from which another driver continues."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

from cluster.common.errors import BadInput
from cluster.live.handover import checkpoint, told
from cluster.live.handover.append_file import AppendFile
from cluster.live.handover.finality_log import SIGHTINGS_FILE, Sightings
from cluster.live.handover.left_run import LeftClock, LeftJournal, LeftRun, RunPhase
from cluster.live.handover.told import TOLD_FILE, Row, Told
from cluster.live.processes.steady_clock import CLOCK
from cluster.record.archive import BLOCKS_FILE
from cluster.record.chain_store import FileBlocks
from cluster.record.folder import STORE_FILE, WATCHDOG_FILE
from cluster.record.run import RunRecord
from cluster.record.saved import enter
from cluster.run.events import Seen
from cluster.run.journal import Journal, read_journal

EVERY_S: Final = 2.0
SHARE: Final = 50
"""Minimum ratio of the pause after a checkpoint to the time to write it: the driver has other work."""
MAX_BYTES_PER_S: Final = 400_000
"""Limit of the average rate at which checkpoints are written. A long run's checkpoint has megabytes, and the validators
need the disk, too.
"""

FOLLOWING: Final = "following"
ENDING: Final = "ending"
"""Phase after the load was stopped for good, while the validators come to rest."""
COLLECTED: Final = "collected"
"""Phase in which only the verdict is missing."""


class RunClock:
    """The time of a run: milliseconds since it began, continued from driver to driver."""

    def __init__(self) -> None:
        CLOCK.read()
        self.began_epoch_ms = CLOCK.epoch_ms()
        self._stopped_ms: float | None = None

    def now_ms(self) -> float:
        if self._stopped_ms is not None:
            return self._stopped_ms
        return CLOCK.epoch_ms() - self.began_epoch_ms

    def take_over(self, began_epoch_ms: float, reading: str) -> None:
        """Continue the time of a run, by the other driver's reading of the clock if that was on this machine, else by
        the clock of this machine.
        """
        CLOCK.take_over(reading)
        self.began_epoch_ms = began_epoch_ms

    def state(self) -> LeftClock:
        """The time now, for another driver."""
        return LeftClock(self.now_ms(), time.time(), CLOCK.reading, socket.gethostname())

    def stop(self, at_ms: float) -> None:
        """Stop the clock at the moment at which the run ended."""
        self._stopped_ms = at_ms


class JournalFile:
    """The journal of a run in a file."""

    def __init__(self, path: Path, kept: bytes = b"") -> None:
        """Keep the first bytes of a journal, which are ``kept``, and go on with it. Raises :class:`OSError`."""
        self._file = AppendFile(path, len(kept))
        self._hasher = blake3(kept)
        self.note = Journal(self._add).note

    @classmethod
    def reopen(cls, path: Path, left: LeftJournal) -> tuple[JournalFile, list[Seen]]:
        """Go on with what another driver has left of its journal, and return what it has.

        Raises :class:`BadInput` if that is not there, and :class:`OSError`.
        """
        content = path.read_bytes()[: left.size]
        if len(content) < left.size or blake3(content).hexdigest() != left.blake3:
            raise BadInput(f"{path}: is damaged: its first {left.size:,} bytes are not those that the checkpoint names")
        told, _ = read_journal(content)
        return cls(path, content), told

    @property
    def mark(self) -> LeftJournal:
        """What it has so far."""
        return LeftJournal(self._file.size, self._hasher.hexdigest())

    def _add(self, frame: bytes) -> None:
        self._file.add(frame)
        self._hasher.update(frame)

    def keep(self) -> None:
        """Write what was noted, so that it outlives this process. A full disk does not end the run."""
        with suppress(OSError):  # the rest waits for the next time
            self._file.flush()

    def sync(self) -> None:
        """Write what was noted, so that it survives a power failure. Raises :class:`OSError`."""
        self._file.sync()

    def close(self) -> None:
        self.keep()
        self._file.close()


class Handover:
    """Writes checkpoints every few seconds, and at once after a fault began or ended."""

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        self.phase: RunPhase = FOLLOWING
        self._folder = folder
        self._notice = notice
        self._is_failing = False
        """Whether the last checkpoint could not be written."""
        self.sightings: Sightings | None = None
        self.told: Told | None = None
        self._size = 0
        """Size of the last checkpoint that was written, in bytes."""
        self._due_s = 0.0
        """Time at which the next checkpoint is due (monotonic)."""
        self._mark: Hashable = None

    def begin(self) -> None:
        """Create the files for observations. Raises :class:`OSError`."""
        self.sightings = Sightings(self._folder / SIGHTINGS_FILE)
        self.told = Told(self._folder / TOLD_FILE)

    def take_over(self, sightings: Sightings, told: Told, phase: RunPhase) -> None:
        """Continue the files of another driver, in the phase that its checkpoint has."""
        self.sightings, self.told, self.phase = sightings, told, phase

    def look(self, mark: Hashable, write: Callable[[], None]) -> None:
        """Persist observations, and ``write`` if that is due or ``mark`` has changed since the last look."""
        self.keep()
        if mark != self._mark or time.monotonic() >= self._due_s:
            self._mark = mark
            begun_s = time.monotonic()
            write()
            now_s = time.monotonic()
            self._due_s = now_s + max(EVERY_S, SHARE * (now_s - begun_s), self._size / MAX_BYTES_PER_S)

    def keep(self) -> None:
        """Persist observations, so that they outlive this process. A full disk does not end the run."""
        for file in (self.sightings, self.told):
            with suppress(OSError):  # rows wait for the next time; the checkpoint reports the problem
                if file is not None:
                    file.flush()

    def write(self, left: LeftRun, store: FileBlocks, journal: JournalFile) -> None:
        """Write a checkpoint, after the files that it refers to.

        A failure, such as a full disk, does not end the run: the previous checkpoint is still complete, and the next is
        tried when it is due. Only the first of several successive failures is reported.
        """
        try:
            self._write(left, store, journal)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                reason = error.strerror or error
                self._notice(f"{self._folder}: the checkpoint cannot be written: {reason}; it will be tried again")

    def _write(self, left: LeftRun, store: FileBlocks, journal: JournalFile) -> None:
        store.sync()
        journal.sync()
        if self.sightings is not None:
            self.sightings.sync()
        if self.told is not None:
            self.told.flush()
        self._size = checkpoint.write(self._folder, left)

    def close(self) -> None:
        for file in (self.sightings, self.told):
            if file is not None:
                file.close()


def restore(left: LeftRun, record: RunRecord, folder: Path) -> tuple[Sightings, Told, list[tuple[int, Row]]]:
    """Fill a record from the checkpoint and the files of a driver that died.

    Returns the files for more observations, and the votes and certificates that they have. Raises :class:`OSError`.
    """
    record.store = FileBlocks.reopen(folder / STORE_FILE, folder / BLOCKS_FILE)
    enter(left.record, record)
    sightings, record.finalizations, record.proposals = Sightings.reopen(folder / SIGHTINGS_FILE)
    return (sightings, *Told.reopen(folder / TOLD_FILE))


def finish(folder: Path) -> None:
    """Remove all files for another driver from the folder of a run that has its verdict. Raises :class:`OSError`."""
    checkpoint.remove(folder)
    (folder / SIGHTINGS_FILE).unlink(missing_ok=True)
    told.remove(folder / TOLD_FILE)
    (folder / WATCHDOG_FILE).unlink(missing_ok=True)
