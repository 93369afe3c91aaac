"""The disks of validators, and how they fail."""

import errno
import os
from typing import Final, Literal, NamedTuple

PLANNED_FAILURE: Final = "planned fault"
"""Text in the error of a disk that fails because of a fault. A validator's stop with this text is attributed to the
fault."""
NO_SPACE: Final = os.strerror(errno.ENOSPC)
"""The kernel's error text for a full disk, with which a live validator stops when a fault fills its disk."""


class Trap(NamedTuple):
    """A failure that waits for the next operation of a validator's disk that it concerns."""

    fails: Literal["write", "sync"]
    """A write, which finds no space, or a sync."""
    files: str = ""
    """Prefix of the names of the files that it concerns."""
