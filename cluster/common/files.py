"""Atomic writing of files, and the files that all pages share."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from cluster.common.errors import BadInput

STYLE_FILE: Final = Path(__file__).parent / "style" / "style.css"
"""The style of all pages: reports, and the pages of a testnet's own endpoint."""
THEME_FILE: Final = STYLE_FILE.with_name("theme.js")
"""The script that switches a page between light and dark."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: it appears whole or not at all."""
    with writing_atomically(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """A file that appears whole when the block ends, or not at all. Raises :class:`OSError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_target(path: Path | None) -> None:
    """Check, before the work, that a file named by the user can be written. ``None`` is no file.

    Raises :class:`BadInput` if it cannot.
    """
    if path is None:
        return
    if path.is_dir():
        raise BadInput(f"{path}: cannot be written: is a folder, expected a file's name")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {path.parent}: {error.strerror}") from None


def write_for_user(path: Path, content: str) -> None:
    """Write a file named by the user. Raises :class:`BadInput` if it cannot be written."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror or error}") from None


def write_json_for_user(path: Path | None, page: object, indent: int = 2) -> None:
    """Write ``page`` as JSON to a file named by the user; do nothing if ``path`` is ``None``.

    Raises :class:`BadInput` if the file cannot be written.
    """
    if path is not None:
        write_for_user(path, json.dumps(page, indent=indent) + "\n")
