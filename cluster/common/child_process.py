"""A program of the user's, at the other end of pipes: a foreign executor, or a tool under test.

Its time and its output are bounded, and whatever it does wrong is one line. It is killed with its process group.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cluster.common.wording import printable

ENDING_TIMEOUT_S: Final = 1.0
"""Real time that a process which closed its output gets to end, so that its exit code is known."""
MAX_LAST_WORDS: Final = 4_096
"""Bytes of a process's standard error that are kept, the newest."""
MAX_LINE: Final = 200
"""Characters of a process's last line that are shown."""
PIECE_BYTES: Final = 1 << 16
MAX_LAST_PIECES: Final = 32
"""Pieces that are read of the standard error of a process that closed its output."""

IsWhole = Callable[[bytearray], bool]
"""Whether an answer is complete, given all of it so far. Raises :class:`ProgramFailure` if it is wrong."""


class ProgramFailure(Exception):
    """A program did something wrong. The message is one line, without a subject: ``ended with exit code 1``."""


class ChildProcess:
    """A running program. After a :class:`ProgramFailure` it must be closed."""

    def __init__(self, words: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        """Start it, without a shell. Raises :class:`ProgramFailure`."""
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                words, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ProgramFailure(f"cannot be started: {reason}") from None
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._in, self._out, self._err = (pipe.fileno() for pipe in pipes if pipe is not None)
        for number in (self._in, self._out, self._err):
            os.set_blocking(number, False)
        self._last_words = b""
        self.close = weakref.finalize(self, _end, self._process)
        """Ends the process; called a second time, it does nothing."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: bytes, is_whole: IsWhole, timeout_s: float) -> bytearray:
        """Send a request, and wait for the answer. Raises :class:`ProgramFailure`."""
        unsent, answer, deadline = memoryview(request), bytearray(), time.monotonic() + timeout_s
        with suppress(BlockingIOError):
            raise ProgramFailure("sent more than one answer") if os.read(self._out, PIECE_BYTES) else self._ended()
        poll = self._poll()
        poll.register(self._in, select.POLLOUT)
        while not is_whole(answer):
            for pipe in _ready(poll, deadline, timeout_s):
                if pipe == self._in:
                    unsent = self._send(unsent)
                    if not unsent:
                        poll.unregister(pipe)
                elif piece := self._read(pipe, poll):
                    answer += piece if pipe == self._out else b""
                elif pipe == self._out:
                    raise self._ended()
        if unsent:
            raise ProgramFailure("answered before it had read the request")
        return answer

    def finish(self, most_bytes: int, timeout_s: float) -> None:
        """Close its input, and wait until it has ended well, after at most ``most_bytes`` of output. Raises
        :class:`ProgramFailure`."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        poll, left, deadline, printed = self._poll(), {self._out, self._err}, time.monotonic() + timeout_s, 0
        while left:
            for pipe in _ready(poll, deadline, timeout_s):
                piece = self._read(pipe, poll)
                printed += len(piece) if pipe == self._out else 0
                if printed > most_bytes:
                    raise flood("printed", most_bytes)
                if not piece:
                    left.discard(pipe)
        try:
            code = self._process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise ProgramFailure(f"did not end within {timeout_s:g} s") from None
        if code != 0:
            raise self._ended()

    def _poll(self) -> select.poll:
        poll = select.poll()
        for pipe in (self._out, self._err):
            poll.register(pipe, select.POLLIN)
        return poll

    def _send(self, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(self._in, unsent[:PIECE_BYTES]) :]
        except BrokenPipeError:
            raise self._ended() from None

    def _read(self, pipe: int, poll: select.poll) -> bytes:
        """What a pipe has; at its end nothing, and it is polled no more. Standard error goes to the last words."""
        piece = os.read(pipe, PIECE_BYTES)
        if pipe == self._err:
            self._last_words = (self._last_words + piece)[-MAX_LAST_WORDS:]
        if not piece:
            poll.unregister(pipe)
        return piece

    def _ended(self) -> ProgramFailure:
        """The failure of a process that closed a pipe: its exit code or signal, and its last line on standard error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_TIMEOUT_S)
        with suppress(OSError):
            for _ in range(MAX_LAST_PIECES):  # one that still runs may write without end
                piece = os.read(self._err, PIECE_BYTES)
                if not piece:
                    break
                self._last_words = (self._last_words + piece)[-MAX_LAST_WORDS:]
        code = self._process.poll()
        if code is None:
            how = "closed its output"
        else:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return ProgramFailure(f"{how}: {one_line(lines[-1])}" if lines else how)


def _ready(poll: select.poll, deadline: float, timeout_s: float) -> list[int]:
    """Pipes that can be read or written. At the deadline there are none, whatever the program still writes."""
    left_s = deadline - time.monotonic()
    ready = poll.poll(left_s * 1_000) if left_s > 0 else []
    if not ready:
        raise ProgramFailure(f"gave no answer within {timeout_s:g} s")
    return [pipe for pipe, _ in ready]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its group, and close the pipes."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def flood(did: str, most_bytes: int) -> ProgramFailure:
    """The failure of a program with more output than this number of bytes."""
    return ProgramFailure(f"{did} more than {most_bytes // 2**20} MiB")


def one_line(text: str) -> str:
    """A program's text as it is shown."""
    return printable(" ".join(text.split()))[:MAX_LINE]
