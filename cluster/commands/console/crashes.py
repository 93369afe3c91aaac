"""The end of a command by an exception that was not expected: a bug, which is no verdict.

Nothing that is known by then gets lost: it is written first, and the traceback goes to a file next to it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cluster.common.errors import Crash, HarnessError, crash_reason
from cluster.common.files import write_atomically
from cluster.record.folder import TRACEBACK_FILE, run_folder
from validator.primitives.user_file import UserFileError
from validator.pvm.host_python import UnfitPython

EXPECTED: Final = (HarnessError, UserFileError, UnfitPython)


def nothing_more(_reason: str) -> None:
    """Keeps what the folder of a command has already."""


@contextmanager
def crash_kept(folder: Path, keep: Callable[[str], None] = nothing_more) -> Iterator[None]:
    """Turn an unexpected exception inside the block into a :class:`Crash`, with its traceback in a file of ``folder``.

    Before that ``keep`` is called with the reason, to write what is known. What it raises goes to the file, too.
    """
    try:
        yield
    except EXPECTED:
        raise
    except Exception as error:
        told, reason = traceback.format_exc(), crash_reason(error)
        try:
            keep(reason)
        except Exception:  # noqa: BLE001 (what is known may be what crashed)
            told += f"\nWhat was known could not be written:\n\n{traceback.format_exc()}"
        raise Crash(crash_line(reason, _left(folder / TRACEBACK_FILE, told))) from error


@contextmanager
def command_folder(out: Path | None, name: str, goes_on: bool = False) -> Iterator[Path]:
    """:func:`~cluster.record.folder.run_folder` of a command, which keeps the traceback of its crash there."""
    with run_folder(out, name, goes_on) as folder, crash_kept(folder):
        yield folder


def crash_line(reason: str, place: str) -> str:
    """The one line about an unexpected exception; ``place`` says where its traceback is."""
    return f"crashed, without a verdict: {reason}; a bug of Stampede's, whose traceback is {place}"


def show_traceback() -> str:
    """Print the traceback of the exception that is handled on standard error. Returns where it is."""
    with suppress(OSError):  # a terminal that was closed
        traceback.print_exc(file=sys.stderr)
    return "above"


def _left(path: Path, told: str) -> str:
    try:
        write_atomically(path, told)
    except OSError:
        return show_traceback()
    return f"in {path}"
