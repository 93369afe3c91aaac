"""The harness's expected failures. Each reaches the user as one line and decides the exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    PASS = 0
    FAIL = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3


class HarnessError(Exception):
    """Root of the harness's expected failures."""

    exit_code = ExitCode.INCONCLUSIVE


class BadInput(HarnessError):
    """A wrong file, argument or option. The message has the place, the error and the correct form."""

    exit_code = ExitCode.BAD_INPUT


class TestnetError(HarnessError):
    """The testnet could not be started or did not answer."""
