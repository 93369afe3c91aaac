"""The places at which a bit of a validator's disk may rot: archive, journal or state log, if durable long before."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple

from validator.state.log import FRAMES_OFFSET
from validator.storage.archive import PRUNED_FILE
from validator.storage.journal import JOURNAL_FILE
from validator.storage.segments import ARCHIVE_FILE, INDEX_FILE

FINALS_SINCE_ROT: Final = 2
"""So many final blocks at least were committed behind what rots: damage to the last commit looks like a torn write,
and recovery derives it again from the archive, as it should."""
STATE_LOG_PREFIX: Final = "state/log-"
CHECKED: Final = (ARCHIVE_FILE, INDEX_FILE, PRUNED_FILE, JOURNAL_FILE, STATE_LOG_PREFIX)
"""Beginnings of the names of files that everything is checked of when a validator starts."""
BITS_PER_BYTE: Final = 8


class Rot(NamedTuple):
    """One bit of a file."""

    file: str
    offset: int
    bit: int

    def __str__(self) -> str:
        return f"{self.file} at offset {self.offset}"


def may_rot(file: str) -> bool:
    """Whether a file is one that everything is checked of when a validator starts."""
    return file.startswith(CHECKED)


def draw_rot(random: Random, sizes: Mapping[str, int]) -> Rot | None:
    """A bit among the first bytes of files, of each so many as ``sizes`` says; ``None`` if there are none."""
    ranges = [(file, FRAMES_OFFSET if file.startswith(STATE_LOG_PREFIX) else 0, size) for file, size in sizes.items()]
    ranges = [(file, first, end) for file, first, end in ranges if first < end]
    if not ranges:
        return None
    file, first, end = random.choice(ranges)
    return Rot(file, random.randrange(first, end), random.randrange(BITS_PER_BYTE))
