"""The machine of a run, as far as it may matter to metrics, and how busy it was with other work."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

PROCESSORS_FILE: Final = Path("/proc/cpuinfo")
TICKS_FILE: Final = Path("/proc/stat")
STEAL_FIELD: Final = 7
"""Of the line ``cpu`` there, from 0 (proc(5)): ticks that a hypervisor gave to other machines."""
TIMES_COUNTED: Final = 8
"""Fields of it that add up to all ticks; what follows them is counted in them already."""
BYTES_PER_GIB: Final = 1 << 30


def machine() -> dict[str, str | int | float]:
    """Of this process: operating system, processors and their model, memory, Python. Nothing that names the machine."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "processors": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / BYTES_PER_GIB, 1),
        "python": platform.python_version(),
    }


class Busyness:
    """How busy the machine is from now on, with whatever it does."""

    def __init__(self) -> None:
        self._before = _ticks()
        self.load_average_max = 0.0

    def look(self) -> None:
        """Note the load average: how many processes run or wait to, over the last minute."""
        self.load_average_max = max(self.load_average_max, os.getloadavg()[0])

    def metrics(self) -> dict[str, float]:
        """``load_average_max`` and, if the system knows it, ``steal_share`` of all processor time until now."""
        (steal, ticks), (steal_before, ticks_before) = _ticks(), self._before
        found = {"load_average_max": self.load_average_max}
        if ticks > ticks_before:
            found["steal_share"] = (steal - steal_before) / (ticks - ticks_before)
        return found


def _ticks() -> tuple[int, int]:
    """Stolen ticks and all ticks of the processors since the system began; zeros if it does not tell."""
    try:
        fields = TICKS_FILE.read_text(encoding="ascii", errors="replace").split("\n", 1)[0].split()[1:]
        counts = [int(field) for field in fields[:TIMES_COUNTED]]
    except (OSError, ValueError):
        return 0, 0
    return (counts[STEAL_FIELD], sum(counts)) if len(counts) == TIMES_COUNTED else (0, 0)


def _processor() -> str:
    """The processors' model, if the operating system knows it."""
    try:
        lines = PROCESSORS_FILE.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
