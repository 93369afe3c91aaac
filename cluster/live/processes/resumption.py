"""Notes that a paused host was resumed on purpose, not by the end of the process that had paused it.

A host that is paused on purpose cannot renew its lease (:mod:`cluster.live.host.lease`). A process that resumes
it on purpose first writes the time into a file, and the lease counts from that time. A pause that ends because the
driver or the signal actor of the node is gone leaves no note.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

SUFFIX: Final = ".resumed"


def boot_seconds() -> float:
    """Seconds since the machine was started, including suspensions: the same in all its processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def note_file(data_folder: Path, host: int) -> Path:
    """The file that notes the resumption of a host, in the folder of the validators' data."""
    return data_folder / f"host-{host}{SUFFIX}"


def note(path: Path) -> None:
    """Note that a process of this machine is about to be resumed on purpose. Raises :class:`OSError`."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(f"{boot_seconds()!r}\n", encoding="ascii")
    temporary.replace(path)


def noted(path: Path) -> float | None:
    """The last noted time, in :func:`boot_seconds`; ``None`` without a credible note."""
    try:
        resumed_s = float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return resumed_s if resumed_s <= boot_seconds() else None  # otherwise from before the machine's last start
