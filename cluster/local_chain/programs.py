"""Reads the files of programs. Problems are reported as lines that an editor can jump to."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.common.suggestions import closest
from validator.primitives.limits import MAX_SOURCE_BYTES
from validator.pvm.language.source import Problem
from validator.pvm.language.subset import Program, ProgramError, parse

READ_LIMIT: Final = 64 * MAX_SOURCE_BYTES
"""Maximum number of bytes read from a file: far more than any program has."""


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A valid program with the path and text of its file."""

    path: Path
    source: str
    program: Program


def read_source(path: Path) -> str:
    """The text of a program's file, with unchanged line ends. Raises :class:`BadInput`."""
    try:
        if not (path.is_dir() or stat.S_ISREG(path.stat().st_mode)):
            raise BadInput(f"{path}: is no regular file")  # opening a pipe would wait for a writer
        with path.open("rb") as file:
            data = file.read(READ_LIMIT + 1)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > READ_LIMIT:
        raise BadInput(f"{path}: more than {READ_LIMIT:,} bytes; a program has at most {MAX_SOURCE_BYTES:,}")
    try:
        return data.decode(ENCODING)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}:{line}: byte 0x{data[error.start]:02x} is no UTF-8; programs are ASCII text") from None


def meant(name: str, names: Iterable[str]) -> str | None:
    """The one of ``names`` that an author probably meant by an unknown ``name``; ``None`` if no guess is likely.

    It is a similar name, or the counterpart of a Python name.
    """
    usual = _ELSEWHERE.get(name)
    return closest(name, names) if usual is None else usual if usual in names else None


_ELSEWHERE: Final = {"print": "emit"}
"""Names in the actors' language, keyed by the Python name that an author may use for them by habit."""


def problem_line(path: Path, problem: Problem) -> str:
    """A problem as text, in the form of compiler messages."""
    return f"{path}:{problem.line}:{problem.column}: {problem.what}; {problem.remedy}"


def read_program(path: Path) -> ProgramFile:
    """Read and parse a program that is to run. If it is invalid, raises :class:`BadInput` with its first problem."""
    return checked_program(path, read_source(path))


def checked_program(path: Path, source: str) -> ProgramFile:
    """Parse a program's text as that of a file. If it is invalid, raises :class:`BadInput` with its first problem."""
    try:
        return ProgramFile(path, source, parse(source, meant))
    except ProgramError as error:
        more = len(error.problems) - 1
        rest = f" ({more} more: stampede actor check {path})" if more and path.exists() else ""
        raise BadInput(problem_line(path, error.problems[0]) + rest) from None
