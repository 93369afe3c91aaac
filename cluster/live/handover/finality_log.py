"""The finalizations and proposals of a run in a file, row by row, so that they outlive the driver that saw them.

A row is 14 bytes: the moment in milliseconds since the run began (a double), the validator (two bytes) and the height
(four bytes), little-endian. A proposal has :data:`PROPOSED` in place of the validator.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from cluster.live.handover.append_file import AppendFile
from cluster.record.finalizations import Finalization, Finalizations

SIGHTINGS_FILE: Final = "sightings.part"
ROW: Final = struct.Struct("<dHI")
PROPOSED: Final = 0xFFFF


class Sightings:
    """The file of finalizations and proposals, open for more rows."""

    def __init__(self, path: Path) -> None:
        """Begin a new file. Raises :class:`OSError`."""
        self._file = AppendFile(path)

    @classmethod
    def reopen(cls, path: Path) -> tuple[Sightings, Finalizations, dict[int, float]]:
        """Continue a file, and return its rows. An incomplete last row is removed. Raises :class:`OSError`."""
        content = path.read_bytes()
        whole = len(content) - len(content) % ROW.size
        finalizations, proposals = Finalizations(), dict[int, float]()
        for place, (at_ms, validator, height) in enumerate(ROW.iter_unpack(content[:whole])):
            if not height:  # space that the file system allocated and never filled
                whole = place * ROW.size
                break
            if validator == PROPOSED:
                proposals[height] = min(at_ms, proposals.get(height, at_ms))
            else:
                finalizations.append(Finalization(at_ms, validator, height))
        found = cls.__new__(cls)
        found._file = AppendFile(path, whole)
        return found, finalizations, proposals

    def finalized(self, seen: Finalization) -> None:
        self._file.add(ROW.pack(seen.at_ms, seen.validator, seen.height))

    def proposed(self, at_ms: float, height: int) -> None:
        self._file.add(ROW.pack(at_ms, PROPOSED, height))

    def flush(self) -> None:
        """Write the rows, so that they outlive this process. Raises :class:`OSError`."""
        self._file.flush()

    def sync(self) -> None:
        """Sync the rows, so that they survive a power failure. Raises :class:`OSError`."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()
