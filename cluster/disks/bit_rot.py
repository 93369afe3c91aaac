"""The places at which a bit of a validator's disk may rot: archive, journal or state log, if durable long enough."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple

from validator.state.log import FRAMES_OFFSET
from validator.storage.archive import PRUNED_FILE
from validator.storage.journal import JOURNAL_FILE
from validator.storage.segments import ARCHIVE_FILE, INDEX_FILE

FINALS_SINCE_ROT: Final = 2
"""Minimum number of final blocks committed after the bytes that rot. Damage to the last commit looks like a torn write,
which recovery correctly derives again from the archive."""
STATE_LOG_PREFIX: Final = "state/log-"
CHECKED: Final = (ARCHIVE_FILE, INDEX_FILE, PRUNED_FILE, JOURNAL_FILE, STATE_LOG_PREFIX)
"""Prefixes of the names of files that are checked completely when a validator starts."""
BITS_PER_BYTE: Final = 8


class Rot(NamedTuple):
    """The place of a bit that rots: the file, the byte's offset, and the bit in the byte (0 to 7)."""

    file: str
    offset: int
    bit: int

    def __str__(self) -> str:
        return f"{self.file} at offset {self.offset}"


def may_rot(file: str) -> bool:
    """Whether bits of a file may rot: a validator checks the file completely when it starts."""
    return file.startswith(CHECKED)


def draw_rot(random: Random, sizes: Mapping[str, int]) -> Rot | None:
    """A random bit among the first ``sizes[file]`` bytes of the files; ``None`` if there are none."""
    ranges = [(file, FRAMES_OFFSET if file.startswith(STATE_LOG_PREFIX) else 0, size) for file, size in sizes.items()]
    ranges = [(file, first, end) for file, first, end in ranges if first < end]
    if not ranges:
        return None
    file, first, end = random.choice(ranges)
    return Rot(file, random.randrange(first, end), random.randrange(BITS_PER_BYTE))
