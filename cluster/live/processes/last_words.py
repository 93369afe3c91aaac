"""The reason why a host ended itself, left to its successor in a preallocated file.

The file has its full size from the host's first start on, and the words overwrite its content. A full disk has no room
for another or a longer file, and may itself be the reason to report.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from cluster.common.wording import json_bytes

FILE_BYTES: Final = 4_096
MAX_CHARACTERS: Final = 650
"""Limit of a reason. A character needs up to six bytes: the length of a control character that JSON escapes."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """The reason why a host ended itself, and the process and validator that it concerns."""

    pid: int
    validator: int
    reason: str
    started: int = 0
    """Start time of the process. In a container every process has one of the same few ids, so ``pid`` is not enough."""
    is_users: bool = False
    """Whether a user's file raised it, so that every other process would end in the same way."""


def reserve(path: Path) -> None:
    """Preallocate the file for a host's words, unless it exists already. Raises :class:`OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        missing = FILE_BYTES - os.fstat(file.fileno()).st_size
        file.write(b" " * missing)
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, words: LastWords) -> None:
    """Write the words into the preallocated file. Raises :class:`OSError`."""
    content = json_bytes(replace(words, reason=words.reason[:MAX_CHARACTERS]))
    with path.open("r+b", buffering=0) as file:
        file.write(content.ljust(FILE_BYTES))
        os.fsync(file.fileno())


def read(path: Path) -> LastWords | None:
    """The words of the previous process; ``None`` if it left none, was killed while writing, or had no folder."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LastWords)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
