"""The process of a foreign executor, at the other end of two pipes (:mod:`validator.node.executor.stream`).

Calls are synchronous: a validator waits for each answer, so a simulated run does not depend on how fast an executor is.
The only real time is a limit for an answer. Its end, the end of the process, and bytes that are no frame end the
validator with one line, which has the last line that the process wrote to its standard error.

The process is killed when its validator ends, and its input ends if the validator is killed.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from functools import partial
from typing import Final

from cluster.common.checkout import own_environment, users_environment
from validator.node.executor.foreign import MAX_REASON, ForeignExecutor
from validator.node.executor.stream import LENGTH_BYTES, ExecutorError, framed, require_length

ANSWER_TIMEOUT_S: Final = 60.0
"""Real time in which an executor answers one request."""
ENDING_TIMEOUT_S: Final = 1.0
"""Real time that a process which closed its output gets to end, so that its exit code is known."""
MAX_LAST_WORDS: Final = 4_096
"""Bytes of an executor's standard error that are kept, the newest."""
READ_BYTES: Final = 1 << 16
OWN_COMMAND: Final = "stampede"
"""As the first word of a command: this installation, whatever the path holds."""


class ExecutorProcess:
    """A running executor."""

    def __init__(self, command: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Start it, without a shell. Raises :class:`ExecutorError`."""
        self._command = command
        self._timeout_s = timeout_s
        self._last_words = b""
        try:
            self._process = subprocess.Popen(
                arguments_of(command),
                env=environment_of(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ExecutorError(f"executor {command!r} cannot be started: {reason}") from None
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._in, self._out, self._err = (pipe.fileno() for pipe in pipes if pipe is not None)
        for pipe in (self._in, self._out, self._err):
            os.set_blocking(pipe, False)
        self.close = weakref.finalize(self, _end, self._process)
        """Ends the process; called a second time, it does nothing."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: bytes) -> bytes:
        """Send a request, and wait for the answer. Raises :class:`ExecutorError`; the process has ended then."""
        try:
            return self._exchange(framed(request), time.monotonic() + self._timeout_s)
        except ExecutorError as error:
            reason = str(error)
        except TimeoutError:
            reason = f"no answer within {self._timeout_s:g} s"
        except (OSError, EOFError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_TIMEOUT_S)
            code = self._process.poll()
            reason = "it closed its output" if code is None else f"it ended with code {code}"
        last = self._last_line()
        self.close()
        raise ExecutorError(f"executor {self._command!r}: {reason}{last and f'; its last line: {last}'}")

    def _exchange(self, frame: bytes, deadline: float) -> bytes:
        """Write a frame and read one, both at once, and the standard error. Raises :class:`TimeoutError`,
        :class:`EOFError`, :class:`OSError` or :class:`ExecutorError`."""
        unsent, answer = memoryview(frame), bytearray()
        poll = select.poll()
        for pipe, events in ((self._in, select.POLLOUT), (self._out, select.POLLIN), (self._err, select.POLLIN)):
            poll.register(pipe, events)
        while unsent or not _is_whole(answer):
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1_000)
            if not ready:
                raise TimeoutError
            for pipe, _ in ready:
                if pipe == self._in:
                    unsent = unsent[os.write(pipe, unsent[:READ_BYTES]) :]
                    if not unsent:
                        poll.unregister(pipe)
                elif pipe == self._err:
                    if not self._note_words():
                        poll.unregister(pipe)
                elif data := os.read(pipe, READ_BYTES):
                    answer += data
                else:
                    raise EOFError
        return bytes(answer[LENGTH_BYTES:])

    def _note_words(self) -> bool:
        """Read the standard error; ``False`` at its end."""
        words = os.read(self._err, READ_BYTES)
        self._last_words = (self._last_words + words)[-MAX_LAST_WORDS:]
        return bool(words)

    def _last_line(self) -> str:
        """The last line that the process wrote to its standard error so far."""
        with suppress(OSError):
            while self._note_words():
                pass
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return lines[-1][:MAX_REASON] if lines else ""


def _is_whole(answer: bytearray) -> bool:
    """Whether a frame is complete. Raises :class:`ExecutorError` if it is too long, or if more follows."""
    if len(answer) < LENGTH_BYTES:
        return False
    end = LENGTH_BYTES + require_length(int.from_bytes(answer[:LENGTH_BYTES], "big"))
    if len(answer) > end:
        raise ExecutorError(f"it sent {len(answer) - end:,} bytes after its answer")
    return len(answer) == end


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its group, and close the pipes."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def arguments_of(command: str) -> list[str]:
    """The words of a command. The first word ``stampede`` is this installation's. Raises :class:`ValueError`."""
    words = shlex.split(command)
    if not words:
        raise ValueError("an empty command")
    if words[0] == OWN_COMMAND:
        return [sys.executable, "-m", "cluster.tools.cli.main", *words[1:]]
    return words


def environment_of(command: str) -> dict[str, str]:
    """The environment of a command: that of the user, unless it is this installation's. Raises :class:`ValueError`."""
    return own_environment() if shlex.split(command)[:1] == [OWN_COMMAND] else users_environment()


def foreign_executor(command: str) -> type[ForeignExecutor]:
    """An executor class whose transition a command performs."""
    return type("ForeignExecutor", (ForeignExecutor,), {"start": staticmethod(partial(ExecutorProcess, command))})
