"""Processes in a namespace of their own for tests: as in a pod, they have few ids, and those exist outside, too."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

UNSHARE: Final = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
"""Before a command: it is process 1 of its own, and has its own mounts. It ends with its parent."""


def why_no_pods() -> str:
    """Why such processes cannot be started here; empty if they can."""
    if shutil.which(UNSHARE[0]) is None:
        return "needs unshare"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return f"needs process namespaces: {tried.stderr.strip()}" if tried.returncode else ""
