"""Python files of a user next to the scenario: a policy, a workload, a kind of fault.

Their exceptions become errors of one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

SUFFIX: Final = ".py"
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,63}$"
"""Pattern of a file's name, without its suffix."""
MAX_BYTES: Final = 100_000
"""Maximum number of bytes of a file's text."""


class UserFileError(ValueError):
    """A user's file is invalid, or has raised an exception. The message is one line, which names the file and, if
    known, the line in it."""


_RUNS: Final = [True]
"""Whether this process may execute files of users."""


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Context manager in which the process executes no user's file: a command that only reads them would have a bug."""
    _RUNS.append(False)
    try:
        yield
    finally:
        _RUNS.pop()


def require_runs(file: str) -> None:
    """Called before a user's file is executed."""
    assert all(_RUNS), f"{file} is executed by a command that only reads it"


def place_of(file: str, line: int | None) -> str:
    """The text by which errors name a file, or a line in it. Unlike a field's path it contains a space."""
    return f"file {file}" if line is None else f"file {file}, line {line}"


@contextmanager
def one_line(
    file: str, kind: type[UserFileError] = UserFileError, unchanged: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Context manager that turns exceptions of a user's code into ``kind``, with file and line.

    A :class:`UserFileError`, and an exception of a type in ``unchanged``, stays what it is.
    """
    try:
        yield
    except UserFileError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, unchanged):
            raise
        raise kind(_said(error, file)) from error


def caused_by(error: Exception, files: Iterable[str]) -> UserFileError | None:
    """The error of one line of an exception that came through code of a user's file; ``None`` if it did not."""
    if isinstance(error, UserFileError):
        return error
    ran, frame = set(), error.__traceback__
    while frame is not None:
        ran.add(frame.tb_frame.f_code.co_filename)
        frame = frame.tb_next
    return next((UserFileError(_said(error, file)) for file in files if file in ran), None)


def _said(error: BaseException, file: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{place_of(file, error.lineno)}: {error.msg}"
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == file:
            line = frame.tb_lineno
        frame = frame.tb_next
    text = " ".join(str(error).split())
    return f"{place_of(file, line)}: {type(error).__name__}{f': {text}' if text else ''}"
