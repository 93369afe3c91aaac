"""The votes and certificates that hosts reported, row by row in a file, so that they outlive the driver.

A host reports each vote and certificate once. Another driver judges what a killed driver left unjudged; reports
already judged constrain later votes and certificates. So the newest rows are kept: one file is written to, and the
previous one is kept until this one is full.

======================  ============================================================================================
bytes                   content
======================  ============================================================================================
8                       the number of the first row in the run, little-endian
4, then as many         for each row the length of what follows, little-endian, and a :class:`Row` in MessagePack
======================  ============================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from cluster.live.handover.append_file import AppendFile
from cluster.live.host.observations import CertificateSeen, Observation, VoteSent

TOLD_FILE: Final = "told.part"
BEFORE_SUFFIX: Final = ".before"
MAX_BYTES: Final = 8 << 20
"""Limit per file: about a minute of reports from four validators that make a hundred blocks a second."""
FIRST: Final = struct.Struct("<Q")
LENGTH: Final = struct.Struct("<I")


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
    """The files of reported votes and certificates, open for more rows."""

    def __init__(self, path: Path) -> None:
        """Begin without rows. Raises :class:`OSError`."""
        _before(path).unlink(missing_ok=True)
        self._path, self.count = path, 0
        """The number of rows in the run so far."""
        self._file = self._new_file()

    @classmethod
    def reopen(cls, path: Path) -> tuple[Told, list[tuple[int, Row]]]:
        """Continue the files of another driver, and return the kept rows with their numbers.

        An incomplete row at the end is removed. Raises :class:`OSError`.
        """
        before, _ = _read(_before(path))
        newest, whole = _read(path)
        rows = before + newest
        found = cls.__new__(cls)
        found._path, found.count = path, rows[-1][0] + 1 if rows else 0
        found._file = AppendFile(path, whole) if whole else found._new_file()
        return found, rows

    def add(self, row: Row) -> None:
        encoded = msgspec.msgpack.encode(row)
        self._file.add(LENGTH.pack(len(encoded)) + encoded)
        self.count += 1

    def flush(self) -> None:
        """Write the rows, so that they outlive this process. Raises :class:`OSError`."""
        self._file.flush()
        if self._file.size >= MAX_BYTES:
            if self._path.exists():
                self._path.replace(_before(self._path))
            full, self._file = self._file, self._new_file()
            full.close()

    def close(self) -> None:
        self._file.close()

    def _new_file(self) -> AppendFile:
        file = AppendFile(self._path)
        file.add(FIRST.pack(self.count))
        return file


def remove(path: Path) -> None:
    """Remove the rows of a run, which are no longer needed. Raises :class:`OSError`."""
    for each in (path, _before(path)):
        each.unlink(missing_ok=True)


def _before(path: Path) -> Path:
    return path.with_name(path.name + BEFORE_SUFFIX)


def _read(path: Path) -> tuple[list[tuple[int, Row]], int]:
    """The rows of a file with their numbers, and the length of its complete part in bytes. Raises :class:`OSError`."""
    content = path.read_bytes() if path.exists() else b""
    if len(content) < FIRST.size:
        return [], 0
    (first,) = FIRST.unpack_from(content)
    rows: list[tuple[int, Row]] = []
    whole = FIRST.size
    while len(content) - whole >= LENGTH.size:
        (length,) = LENGTH.unpack_from(content, whole)
        encoded = content[whole + LENGTH.size : whole + LENGTH.size + length]
        if len(encoded) < length or not length:  # space that the file system allocated and never filled has no length
            break
        rows.append((first + len(rows), msgspec.msgpack.decode(encoded, type=Row)))
        whole += LENGTH.size + length
    return rows, whole
