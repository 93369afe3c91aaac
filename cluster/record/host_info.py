"""The machine of a run, as far as it may affect metrics, and its load by other work."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Final

import psutil

PROCESSORS_FILE: Final = Path("/proc/cpuinfo")
BYTES_PER_GIB: Final = 1 << 30


@cache
def machine() -> dict[str, str | int | float]:
    """This process's machine: operating system, processors and their model, memory, Python. Nothing identifies it."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "processors": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / BYTES_PER_GIB, 1),
        "python": platform.python_version(),
    }


class Busyness:
    """How busy the machine is from now on, with any work."""

    def __init__(self) -> None:
        self._before = _seconds()
        self.load_average_max = 0.0

    def look(self) -> None:
        """Note the load average: the number of processes that run or are ready to, over the last minute."""
        self.load_average_max = max(self.load_average_max, os.getloadavg()[0])

    def metrics(self) -> dict[str, float]:
        """``load_average_max`` and, if the system reports it, ``steal_share`` of all processor time until now."""
        (steal, total), (steal_before, total_before) = _seconds(), self._before
        found = {"load_average_max": self.load_average_max}
        if total > total_before:
            found["steal_share"] = (steal - steal_before) / (total - total_before)
        return found


def _seconds() -> tuple[float, float]:
    """Stolen and total seconds of the processors since boot; zeros if the system does not count stolen ones."""
    times = psutil.cpu_times()._asdict()
    counted = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))  # those are in user
    return (times["steal"], counted) if "steal" in times else (0.0, 0.0)


def _processor() -> str:
    try:
        lines = PROCESSORS_FILE.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, None) or platform.processor() or "unknown"
