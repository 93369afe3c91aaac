"""A driver's side of a handover: the clock of the run, and the files from which another driver continues."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

from cluster.common.errors import BadInput
from cluster.live.handover import checkpoint
from cluster.live.handover.left import LeftClock, LeftRun, RunPhase
from cluster.live.handover.rows import SIGHTINGS_FILE, TOLD_FILE, AppendFile, Row, Sightings, Told, remove_told
from cluster.live.processes.steady_clock import CLOCK
from cluster.record.archive import BLOCKS_FILE
from cluster.record.chain_store import FileBlocks
from cluster.record.folder import JOURNAL_FILE, STORE_FILE, WATCHDOG_FILE
from cluster.record.run import RunRecord
from cluster.record.saved import enter
from cluster.run.events import Seen
from cluster.run.journal import Journal, read_journal
from cluster.run.loop import RunLoop

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


class JournalFile(AppendFile):
    """The journal of a run in a file."""

    def __init__(self, path: Path, kept: bytes = b"") -> None:
        """Keep the first bytes of a journal, which are ``kept``, and go on with it. Raises :class:`OSError`."""
        super().__init__(path, len(kept))
        self._hasher = blake3(kept)
        self.note = Journal(self.add).note

    @classmethod
    def reopen(cls, path: Path, mark: tuple[int, str]) -> tuple[JournalFile, list[Seen]]:
        """Go on with the journal of another driver up to a :attr:`mark`, and return what it has.

        Raises :class:`BadInput` if that is not there, and :class:`OSError`.
        """
        size, digest = mark
        content = path.read_bytes()[:size]
        if len(content) < size or blake3(content).hexdigest() != digest:
            raise BadInput(f"{path}: is damaged: its first {size:,} bytes are not those that the checkpoint names")
        told, _ = read_journal(content)
        return cls(path, content), told

    @property
    def mark(self) -> tuple[int, str]:
        """What it has so far: its length in bytes, and its hash in hex."""
        return self.size, self._hasher.hexdigest()

    def add(self, row: bytes) -> None:
        super().add(row)
        self._hasher.update(row)


class RunFiles:
    """The files of a run that outlive its driver: blocks and journal; and if another driver may take over, checkpoints
    every few seconds, and at once after the loop was told something, with what was seen and told besides.
    """

    def __init__(
        self,
        folder: Path,
        notice: Callable[[str], None],
        store: FileBlocks,
        journal: JournalFile,
        seen: tuple[Sightings, Told] | None = None,
        phase: RunPhase = FOLLOWING,
    ) -> None:
        """Without ``seen`` no other driver may take over."""
        self.phase = phase
        self.store, self.journal = store, journal
        self.sightings = None if seen is None else seen[0]
        self.told = None if seen is None else seen[1]
        self._folder = folder
        self._notice = notice
        self._is_failing = False
        """Whether the last checkpoint could not be written."""
        self._size = 0
        """Size of the last checkpoint that was written, in bytes."""
        self._due_s = 0.0
        """Time at which the next checkpoint is due (monotonic)."""
        self._mark: object = None

    @classmethod
    def new(cls, folder: Path, notice: Callable[[str], None], is_attachable: bool) -> RunFiles:
        """Begin the files of a run. Raises :class:`OSError`."""
        folder.mkdir(parents=True, exist_ok=True)
        store, journal = FileBlocks(folder / STORE_FILE), JournalFile(folder / JOURNAL_FILE)
        seen = (Sightings(folder / SIGHTINGS_FILE), Told(folder / TOLD_FILE)) if is_attachable else None
        return cls(folder, notice, store, journal, seen)

    @classmethod
    def reopen(
        cls, folder: Path, notice: Callable[[str], None], left: LeftRun, loop: RunLoop
    ) -> tuple[RunFiles, list[tuple[int, Row]]]:
        """Go on with the files of another driver. The loop and its record come to where they were for it.

        Returns the votes and certificates that hosts reported, too. Raises :class:`BadInput` and :class:`OSError`.
        """
        journal, told_before = JournalFile.reopen(folder / JOURNAL_FILE, left.journal)
        for seen in told_before:
            loop.handle(seen)  # what followed was done
        store, sightings, told, rows = restore(left, loop.record, folder)
        loop.record.faults = loop.faults.records
        return cls(folder, notice, store, journal, (sightings, told), left.phase), rows

    def look(self, mark: object, write: Callable[[], None]) -> None:
        """Persist what was seen; ``write`` a checkpoint if one is due, or if ``mark`` or the journal has changed."""
        self.keep()
        if (mark, self.journal.mark) != self._mark or time.monotonic() >= self._due_s:
            self._mark = mark, self.journal.mark
            begun_s = time.monotonic()
            write()
            now_s = time.monotonic()
            self._due_s = now_s + max(EVERY_S, SHARE * (now_s - begun_s), self._size / MAX_BYTES_PER_S)

    def keep(self) -> None:
        """Persist what was seen, so that it outlives this process. A full disk does not end the run."""
        for file in (self.journal, self.sightings, self.told):
            with suppress(OSError):  # rows wait for the next time; the checkpoint reports the problem
                if file is not None:
                    file.flush()

    def write(self, left: LeftRun) -> None:
        """Write a checkpoint, after the files that it refers to.

        A failure, such as a full disk, does not end the run: the previous checkpoint is still complete, and the next is
        tried when it is due. Only the first of several successive failures is reported.
        """
        try:
            for file in (self.store, self.journal, self.sightings):
                if file is not None:
                    file.sync()
            if self.told is not None:
                self.told.flush()
            self._size = checkpoint.write(self._folder, left)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                reason = error.strerror or error
                self._notice(f"{self._folder}: the checkpoint cannot be written: {reason}; it will be tried again")

    def close(self) -> None:
        self.keep()
        for file in (self.journal, self.sightings, self.told):
            if file is not None:
                file.close()


def restore(
    left: LeftRun, record: RunRecord, folder: Path
) -> tuple[FileBlocks, Sightings, Told, list[tuple[int, Row]]]:
    """Fill a record from the checkpoint and the files of a driver that died.

    Returns the files for more blocks and observations, and the votes and certificates that they have. Raises
    :class:`OSError`.
    """
    record.store = store = FileBlocks.reopen(folder / STORE_FILE, folder / BLOCKS_FILE)
    enter(left.record, record)
    sightings, record.finalizations, record.proposals = Sightings.reopen(folder / SIGHTINGS_FILE)
    return (store, sightings, *Told.reopen(folder / TOLD_FILE))


def finish(folder: Path) -> None:
    """Remove all files for another driver from the folder of a run that has its verdict. Raises :class:`OSError`."""
    checkpoint.remove(folder)
    (folder / SIGHTINGS_FILE).unlink(missing_ok=True)
    remove_told(folder / TOLD_FILE)
    (folder / WATCHDOG_FILE).unlink(missing_ok=True)
