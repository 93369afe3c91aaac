"""Transfer of a seed's folder from the node where it ran: packed, sent in pieces, unpacked whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

MAX_BYTES: Final = 256 * 2**20
"""Maximum total size of a folder's files. Beyond it the largest are left out, and :data:`LEFT_OUT_FILE` names them."""
CHUNK_BYTES: Final = 2 * 2**20
LEFT_OUT_FILE: Final = "left-out.txt"


def packed(folder: Path, max_bytes: int = MAX_BYTES) -> Iterator[bytes]:
    """Pack a folder, and yield the zip file in pieces; yields nothing if the folder does not exist."""
    if not folder.is_dir():
        return
    kept, left_out = _bounded(folder, max_bytes)
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in kept:
                archive.write(path, path.relative_to(folder).as_posix())
            if left_out:
                lines = [f"{path.relative_to(folder).as_posix()} {path.stat().st_size:,} bytes\n" for path in left_out]
                archive.writestr(LEFT_OUT_FILE, "".join(lines))
        file.seek(0)
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _bounded(folder: Path, max_bytes: int) -> tuple[list[Path], list[Path]]:
    """The files to send, and the files to leave out: the largest, until the rest fits into ``max_bytes``."""
    kept = sorted(path for path in folder.rglob("*") if path.is_file())
    left_out = []
    while sum(path.stat().st_size for path in kept) > max_bytes:
        left_out.append(max(kept, key=lambda path: path.stat().st_size))
        kept.remove(left_out[-1])
    return kept, left_out


class Arriving:
    """A folder that arrives in pieces. :meth:`finish` unpacks it at its target, :meth:`drop` discards the pieces."""

    def __init__(self) -> None:
        self._pieces: IO[bytes] = tempfile.SpooledTemporaryFile(CHUNK_BYTES)  # noqa: SIM115 (it lives as long as this)
        self._is_empty = True

    def add(self, piece: bytes) -> None:
        """Append the next piece."""
        self._pieces.write(piece)
        self._is_empty = False

    def drop(self) -> None:
        """Discard the pieces received so far, because no further pieces will arrive."""
        self._pieces.seek(0)
        self._pieces.truncate()
        self._is_empty = True

    def finish(self, target: Path) -> None:
        """Unpack the folder as a whole, replacing an older one. Does nothing if no piece came."""
        if self._is_empty:
            return
        new = target.with_name(f".{target.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            with zipfile.ZipFile(self._pieces) as archive:
                archive.extractall(new)
            if target.exists():
                shutil.rmtree(target)
            new.rename(target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            self.drop()
