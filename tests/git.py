"""Git in repositories that tests make."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from cluster.common.checkout import gits_environment

SETTINGS: Final = ("user.name=test", "user.email=test@test.invalid", "commit.gpgsign=false")
"""The user's settings that a commit depends on."""


def git(folder: Path, *arguments: str) -> str:
    """What a command of git prints in a folder. Raises :class:`subprocess.CalledProcessError` if it fails."""
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    command = ["git", "-C", str(folder), *settings, *arguments]
    done = subprocess.run(command, env=gits_environment(), capture_output=True, text=True, check=True)
    return done.stdout.strip()
