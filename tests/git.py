"""Git in repositories that tests make."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

SETTINGS: Final = ("user.name=test", "user.email=test@test.invalid", "commit.gpgsign=false")
"""The user's settings that a commit depends on."""


def git(folder: Path, *arguments: str) -> str:
    """What a command of git prints in a folder. Raises :class:`subprocess.CalledProcessError` if it fails."""
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    command = ["git", "-C", str(folder), *settings, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
