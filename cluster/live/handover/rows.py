"""Files of what a driver saw, row by row, so that it outlives the driver: :class:`Sightings` and :class:`Told`."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from cluster.live.host.observations import CertificateSeen, Observation, VoteSent
from cluster.record.finalizations import Finalization, Finalizations
from validator.storage.frames import frame, split

SIGHTINGS_FILE: Final = "sightings.part"
SIGHTING: Final = struct.Struct("<dHI")
PROPOSED: Final = 0xFFFF
TOLD_FILE: Final = "told.part"
BEFORE_SUFFIX: Final = ".before"
MAX_BYTES: Final = 8 << 20
"""Limit of a file of :class:`Told`: about a minute of reports from four validators that make a hundred blocks a
second."""


class AppendFile:
    """A file to which rows are appended. Rows wait in memory until :meth:`flush` has written them."""

    def __init__(self, path: Path, keep_bytes: int = 0) -> None:
        """Keep the first ``keep_bytes`` of a file, and append after them. Raises :class:`OSError`."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._waiting = bytearray()
        self._written = keep_bytes
        try:
            os.ftruncate(self._descriptor, keep_bytes)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Size in bytes, waiting rows included."""
        return self._written + len(self._waiting)

    def add(self, row: bytes) -> None:
        self._waiting += row

    def flush(self) -> None:
        """Write the rows, so that they outlive this process. Raises :class:`OSError`; the remaining rows still wait."""
        while self._waiting:
            count = os.write(self._descriptor, self._waiting)
            del self._waiting[:count]
            self._written += count

    def sync(self) -> None:
        """Sync the rows, so that they survive a power failure. Raises :class:`OSError`."""
        self.flush()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; waiting rows are dropped."""
        os.close(self._descriptor)


class Sightings(AppendFile):
    """The file of finalizations and proposals, open for more rows.

    A row is 14 bytes: the moment in milliseconds since the run began (a double), the validator (two bytes) and the
    height (four bytes), little-endian. A proposal has :data:`PROPOSED` in place of the validator.
    """

    @classmethod
    def reopen(cls, path: Path) -> tuple[Sightings, Finalizations, dict[int, float]]:
        """Continue a file, and return its rows. An incomplete last row is removed. Raises :class:`OSError`."""
        content = path.read_bytes()
        whole = len(content) - len(content) % SIGHTING.size
        finalizations, proposals = Finalizations(), dict[int, float]()
        for place, (at_ms, validator, height) in enumerate(SIGHTING.iter_unpack(content[:whole])):
            if not height:  # space that the file system allocated and never filled
                whole = place * SIGHTING.size
                break
            if validator == PROPOSED:
                proposals[height] = min(at_ms, proposals.get(height, at_ms))
            else:
                finalizations.append(Finalization(at_ms, validator, height))
        return cls(path, whole), finalizations, proposals

    def finalized(self, seen: Finalization) -> None:
        self.add(SIGHTING.pack(seen.at_ms, seen.validator, seen.height))

    def proposed(self, at_ms: float, height: int) -> None:
        self.add(SIGHTING.pack(at_ms, PROPOSED, height))


class Row(msgspec.Struct, array_like=True, frozen=True):
    """The votes and certificates of one validator in one answer of its host."""

    index: int
    """Index of the validator."""
    votes: list[VoteSent]
    certificates: list[CertificateSeen]

    @classmethod
    def of(cls, index: int, observations: Iterable[Observation]) -> Row | None:
        """The row of some observations; ``None`` without a vote or a certificate."""
        told = list(observations)
        votes = [each for each in told if isinstance(each, VoteSent)]
        certificates = [each for each in told if isinstance(each, CertificateSeen)]
        return cls(index, votes, certificates) if votes or certificates else None


class Told:
    """The votes and certificates that hosts reported, each once, in files that are open for more rows.

    Another driver judges what a killed driver left unjudged; reports already judged constrain later votes and
    certificates. So the newest rows are kept: one file is written to, and the previous one is kept until this one is
    full. A file is frames (:mod:`validator.storage.frames`) of MessagePack: the number of its first row in the run,
    then each :class:`Row`.
    """

    def __init__(self, path: Path, count: int = 0, keep_bytes: int = 0) -> None:
        """Keep the first ``keep_bytes`` of a file, up to the row with the number ``count``. Raises :class:`OSError`."""
        self._path, self.count = path, count
        """The number of rows in the run so far."""
        if not count:
            _before(path).unlink(missing_ok=True)
        self._begin(keep_bytes)

    @classmethod
    def reopen(cls, path: Path) -> tuple[Told, list[tuple[int, Row]]]:
        """Continue the files of another driver, and return the kept rows with their numbers.

        An incomplete row at the end is removed. Raises :class:`OSError`.
        """
        before, _ = _rows_of(_before(path))
        newest, whole = _rows_of(path)
        rows = before + newest
        return cls(path, rows[-1][0] + 1 if rows else 0, whole), rows

    def add(self, row: Row) -> None:
        self._file.add(frame(msgspec.msgpack.encode(row)))
        self.count += 1

    def flush(self) -> None:
        """Write the rows, so that they outlive this process. Raises :class:`OSError`."""
        self._file.flush()
        if self._file.size >= MAX_BYTES:
            full = self._file
            if self._path.exists():
                self._path.replace(_before(self._path))
            self._begin()
            full.close()

    def close(self) -> None:
        self._file.close()

    def _begin(self, keep_bytes: int = 0) -> None:
        self._file = AppendFile(self._path, keep_bytes)
        if not keep_bytes:
            self._file.add(frame(msgspec.msgpack.encode(self.count)))


def remove_told(path: Path) -> None:
    """Remove the rows of a run. Raises :class:`OSError`."""
    for each in (path, _before(path)):
        each.unlink(missing_ok=True)


def _before(path: Path) -> Path:
    return path.with_name(path.name + BEFORE_SUFFIX)


def _rows_of(path: Path) -> tuple[list[tuple[int, Row]], int]:
    """The rows of a file with their numbers, and the length of its complete part in bytes. Raises :class:`OSError`."""
    frames, whole = split(path.read_bytes()) if path.exists() else ([], 0)
    if not frames:
        return [], 0
    first = msgspec.msgpack.decode(frames[0].payload, type=int)
    return [
        (number, msgspec.msgpack.decode(each.payload, type=Row)) for number, each in enumerate(frames[1:], first)
    ], whole
