"""The disks of validators, and how they fail."""

import errno
import os
from typing import Final

PLANNED_FAILURE: Final = "planned fault"
"""Text in the error of a disk that fails because of a fault; a stop with it is attributed to the fault."""
NO_SPACE: Final = os.strerror(errno.ENOSPC)
"""The kernel's error when a fault fills a live disk."""
