"""What disks say that fail because a fault told them to: by this a stop is known to be the fault's doing."""

from __future__ import annotations

import errno
import os
from typing import Final

PLANNED_FAILURE: Final = "planned fault"
NO_SPACE: Final = os.strerror(errno.ENOSPC)
"""Of a live disk that is full as it was told to be: the kernel's own words."""
