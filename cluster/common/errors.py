"""The harness's expected failures, and the end of one that was not expected.

Each reaches the user as one line, or as a line for each output that failed, and decides the exit code.
"""

from __future__ import annotations

import traceback
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    PASS = 0
    FAIL = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3
    CRASH = 4
    """The harness itself failed, by an exception that was not expected: no verdict."""


class HarnessError(Exception):
    """Root of the harness's expected failures. Each argument is a line for the user."""

    exit_code = ExitCode.INCONCLUSIVE

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


class BadInput(HarnessError):
    """A wrong file, argument or option. The message has the place, the error and the correct form."""

    exit_code = ExitCode.BAD_INPUT


class TestnetError(HarnessError):
    """The testnet could not be started or did not answer."""


class Crash(HarnessError):
    """An exception that was not expected, in one line that says where its traceback is: a bug, and no verdict."""

    exit_code = ExitCode.CRASH


def crash_reason(error: BaseException, without_text: str = "") -> str:
    """An unexpected exception in one line: its type, its text (``without_text`` if it has none), its line of code."""
    text = " ".join(str(error).split()) or without_text
    message = ": ".join(filter(None, (type(error).__name__, text)))
    frames = traceback.extract_tb(error.__traceback__)
    return f"{message} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else message
