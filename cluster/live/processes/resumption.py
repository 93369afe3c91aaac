"""The note of who resumed a paused host: an order of the driver, or the end of those who had paused it.

A host that is paused on purpose cannot renew its lease (:mod:`cluster.live.host.lease`). Whoever resumes it in good
order writes the time into a file before that, and the lease counts from there. A pause that ends since the driver or
the signals of the node are gone leaves no note.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

SUFFIX: Final = ".resumed"


def boot_seconds() -> float:
    """Seconds since the machine was started, with those in which it was suspended: the same in all its processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def note_file(data_folder: Path, host: int) -> Path:
    """Where the resumption of a host is noted, in the folder of the validators' data."""
    return data_folder / f"host-{host}{SUFFIX}"


def note(path: Path) -> None:
    """Note that a process of this machine is about to be resumed in good order. Raises :class:`OSError`."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(f"{boot_seconds()!r}\n", encoding="ascii")
    temporary.replace(path)


def noted(path: Path) -> float | None:
    """When that was last, in :func:`boot_seconds`; ``None`` if there is no note that is to be believed."""
    try:
        resumed_s = float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return resumed_s if resumed_s <= boot_seconds() else None  # else from before the machine's last start
