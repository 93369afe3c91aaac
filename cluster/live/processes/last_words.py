"""The reason why a host ended itself, left to its successor in a file that needs no more room on the disk.

The file has its whole size from the host's first start on, and the words are written over what stands there: a disk
that is full has no room for another file, nor for a longer one, and then that is the reason to report.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from cluster.live.injection import LastWords

FILE_BYTES: Final = 4_096
MAX_CHARACTERS: Final = 650
"""Of a reason, which needs up to six bytes a character: so many has a control character that JSON escapes."""


def reserve(path: Path) -> None:
    """Make room for the words of a host, unless a host before it did. Raises :class:`OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        missing = FILE_BYTES - os.fstat(file.fileno()).st_size
        file.write(b" " * missing)
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, words: LastWords) -> None:
    """Put the words in the room that was made for them. Raises :class:`OSError`."""
    content = msgspec.json.encode(replace(words, reason=words.reason[:MAX_CHARACTERS]))
    with path.open("r+b", buffering=0) as file:
        file.write(content.ljust(FILE_BYTES))
        os.fsync(file.fileno())


def read(path: Path) -> LastWords | None:
    """The words of the process before; ``None`` if it left none, was killed as it wrote, or had no folder."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LastWords)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
