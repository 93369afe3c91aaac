"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from cluster.errors import BadInput


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_for_user(path: Path, content: str) -> None:
    """Write a file that the user named. Raises :class:`BadInput` where that cannot be done."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None
