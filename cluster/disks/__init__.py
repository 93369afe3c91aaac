"""The disks of validators, and how they fail."""

import errno
import os
from typing import Final

PLANNED_FAILURE: Final = "planned fault"
"""Text in the error of a disk that fails because of a fault. A validator's stop with this text is attributed to the
fault."""
NO_SPACE: Final = os.strerror(errno.ENOSPC)
"""The kernel's error text for a full disk, with which a live validator stops when a fault fills its disk."""
