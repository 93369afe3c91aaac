"""What a run ran on, as far as it may matter to its figures."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

PROCESSORS_FILE: Final = Path("/proc/cpuinfo")
BYTES_A_GIB: Final = 1 << 30


def machine() -> dict[str, str | int | float]:
    """Of this process: operating system, processors and their model, memory, Python. Nothing that names the machine."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "processors": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / BYTES_A_GIB, 1),
        "python": platform.python_version(),
    }


def _processor() -> str:
    """The processors' model, where the operating system tells it."""
    try:
        lines = PROCESSORS_FILE.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
