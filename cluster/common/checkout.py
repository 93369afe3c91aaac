"""Where the code is, and which version of it this is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The folder that holds the packages: of a checkout, or of an installation."""
GIT_TIMEOUT_S: Final = 10
UNKNOWN_COMMIT: Final = "unknown"


def checkout_commit(folder: Path | None = None) -> str:
    """The git commit of the checkout that holds the code, ``-dirty`` behind it where a file changed; else ``unknown``.

    ``folder`` is another checkout. Files that git does not know are not looked at. Where the code is in no checkout, as
    in a container's image, the environment's ``STAMPEDE_COMMIT`` says which commit it is.
    """
    checkout = ROOT if folder is None else folder
    if not (checkout / ".git").exists():
        return os.environ.get("STAMPEDE_COMMIT") or UNKNOWN_COMMIT
    commit = _git(checkout, "rev-parse", "--short=12", "HEAD")
    changes = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    if not commit or changes is None:
        return UNKNOWN_COMMIT
    return f"{commit}-dirty" if changes else commit


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
