"""The process of a foreign executor, at the other end of two pipes (:mod:`validator.node.executor.stream`).

Calls are synchronous: a validator waits for each answer, so a simulated run does not depend on how fast an executor is.
The only real time is a limit for an answer. Its end, the end of the process, and bytes that are no frame end the
validator with one line, which has the last line that the process wrote to its standard error.

The process is killed when its validator ends, and its input ends if the validator is killed.
"""

from __future__ import annotations

import shlex
import sys
from functools import partial
from typing import Final

from cluster.common.checkout import own_environment, users_environment
from cluster.common.child_process import ChildProcess, ProgramFailure
from validator.node.executor.foreign import ForeignExecutor
from validator.node.executor.stream import LENGTH_BYTES, ExecutorError, framed, require_length

ANSWER_TIMEOUT_S: Final = 60.0
"""Real time in which an executor answers one request."""
OWN_COMMAND: Final = "stampede"
"""As the first word of a command: this installation, whatever the path holds."""


class ExecutorProcess:
    """A running executor."""

    def __init__(self, command: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Start it, without a shell. Raises :class:`ExecutorError`."""
        self._command = command
        self._timeout_s = timeout_s
        try:
            self._process = ChildProcess(arguments_of(command), environment_of(command))
        except (ProgramFailure, ValueError) as failure:
            raise ExecutorError(f"executor {command!r} {failure}") from None
        self.close = self._process.close
        """Ends the process; called a second time, it does nothing."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: bytes) -> bytes:
        """Send a request, and wait for the answer. Raises :class:`ExecutorError`; the process has ended then."""
        try:
            return bytes(self._process.ask(framed(request), _is_whole, self._timeout_s)[LENGTH_BYTES:])
        except (ProgramFailure, ExecutorError) as failure:
            self.close()
            raise ExecutorError(f"executor {self._command!r}: {failure}") from None


def _is_whole(answer: bytearray) -> bool:
    """Whether a frame is complete. Raises :class:`ExecutorError` if it is too long, :class:`ProgramFailure` if more
    follows."""
    if len(answer) < LENGTH_BYTES:
        return False
    end = LENGTH_BYTES + require_length(int.from_bytes(answer[:LENGTH_BYTES], "big"))
    if len(answer) > end:
        raise ProgramFailure(f"sent {len(answer) - end:,} bytes after its answer")
    return len(answer) == end


def arguments_of(command: str) -> list[str]:
    """The words of a command. The first word ``stampede`` is this installation's. Raises :class:`ValueError`."""
    words = shlex.split(command)
    if not words:
        raise ValueError("an empty command")
    if words[0] == OWN_COMMAND:
        return [sys.executable, "-m", "cluster.commands.cli.main", *words[1:]]
    return words


def environment_of(command: str) -> dict[str, str]:
    """The environment of a command: that of the user, unless it is this installation's. Raises :class:`ValueError`."""
    return own_environment() if shlex.split(command)[:1] == [OWN_COMMAND] else users_environment()


def foreign_executor(command: str) -> type[ForeignExecutor]:
    """An executor class whose transition a command performs."""
    return type("ForeignExecutor", (ForeignExecutor,), {"start": staticmethod(partial(ExecutorProcess, command))})
