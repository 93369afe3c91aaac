"""The errors of disks that fail because of a fault, by which a stop is attributed to the fault."""

from __future__ import annotations

import errno
import os
from typing import Final

PLANNED_FAILURE: Final = "planned fault"
NO_SPACE: Final = os.strerror(errno.ENOSPC)
"""The kernel's error when a fault fills a live disk."""
