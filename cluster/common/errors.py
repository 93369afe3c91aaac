"""The harness's expected failures. Each reaches the user as one line and decides the exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command line returns."""

    PASS = 0
    FAIL = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3


class HarnessError(Exception):
    """Root of the harness's expected failures."""

    exit_code = ExitCode.INCONCLUSIVE


class BadInput(HarnessError):
    """A file, an argument or an option is wrong: what, where, and what would be right."""

    exit_code = ExitCode.BAD_INPUT


class TestnetError(HarnessError):
    """The testnet could not be started or did not answer."""
