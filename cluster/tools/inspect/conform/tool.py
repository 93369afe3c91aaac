"""The program under test: it gets a case and answers with the output ``O`` of the conformance tool.

A tool either runs once a case (``COMMAND --genesis G --blocks B --out O``) or stays up and answers lines
(docs/protocol.md, "Conformance"). Whatever it does wrong, a hang, a crash, garbage or a flood, is a
:class:`ToolFailure` with one line; the process is killed, and the next case starts another one.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cluster.common.checkout import users_environment
from cluster.common.errors import BadInput
from cluster.common.wording import printable
from cluster.tools.inspect.conform.case import Case, Page

MAX_ANSWER_BYTES: Final = 64 * 2**20
MAX_PRINTED_BYTES: Final = 2**20
"""Maximum output of a tool that writes its answer to a file."""
TAIL_BYTES: Final = 2_048
"""How much of the end of standard error is kept."""
LINE_CHARACTERS: Final = 200
END_TIMEOUT_S: Final = 5.0
PIECE: Final = 65_536


class ToolFailure(Exception):
    """A tool gave no answer. The message is one line."""


class Tool(Protocol):
    """What answers cases."""

    def answer(self, case: Case) -> Page:
        """The output for a case. Raises :class:`ToolFailure`."""

    def close(self) -> None:
        """End all processes of the tool."""


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """How a tool is started. It can be sent to another process, which opens the tool there."""

    text: str
    """The command line, as a shell would split it."""
    stays_up: bool
    timeout_s: int
    """Time for the answer to one case."""

    def words(self) -> list[str]:
        """The command and its arguments. Raises :class:`BadInput` if there is no such program."""
        try:
            words = shlex.split(self.text)
        except ValueError as error:
            raise BadInput(f"--tool: {error}: {self.text!r}") from None
        if not words:
            raise BadInput("--tool: expected a command")
        if shutil.which(words[0]) is None:
            raise BadInput(f"--tool: {words[0]!r} is no program that can be run")
        return words

    def open(self) -> Tool:
        """Open the tool. No process is started before the first case."""
        return ServedTool(self.words(), self.timeout_s) if self.stays_up else FileTool(self.words(), self.timeout_s)


class ServedTool:
    """A tool that stays up between cases, and answers each line of its input with a line."""

    def __init__(self, words: Sequence[str], timeout_s: float) -> None:
        self._words, self._timeout_s = words, timeout_s
        self._process: _Process | None = None

    def answer(self, case: Case) -> Page:
        request = {"genesis": case.genesis, "blocks": case.blocks}
        try:
            if self._process is None:
                self._process = _Process(self._words)
            line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
            return _page(self._process.ask(line, self._timeout_s))
        except ToolFailure:
            self.close()
            raise

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


class FileTool:
    """A tool that is started for each case, and reads and writes files."""

    def __init__(self, words: Sequence[str], timeout_s: float) -> None:
        self._words, self._timeout_s = words, timeout_s

    def answer(self, case: Case) -> Page:
        with tempfile.TemporaryDirectory(prefix="stampede-conform-") as folder:
            genesis, blocks, out = (Path(folder, name) for name in ("genesis.json", "blocks.json", "out.json"))
            genesis.write_text(json.dumps(case.genesis), encoding="utf-8")
            blocks.write_text(json.dumps(case.blocks), encoding="utf-8")
            process = _Process([*self._words, "--genesis", genesis, "--blocks", blocks, "--out", out])
            try:
                process.finish(self._timeout_s)
            finally:
                process.kill()
            if not out.is_file():
                raise ToolFailure("wrote no output file")
            if out.stat().st_size > MAX_ANSWER_BYTES:
                raise ToolFailure(_flood("wrote", MAX_ANSWER_BYTES))
            return _page(out.read_bytes())

    def close(self) -> None:
        """Nothing is left: each case ended its process."""


def _page(data: bytes) -> Page:
    """An output from its JSON. Raises :class:`ToolFailure`."""
    try:
        page = json.loads(data)
    except (ValueError, RecursionError) as error:
        start = printable(data[:60].decode("utf-8", "replace"))
        raise ToolFailure(f"its answer is no JSON: {error}: {start!r}") from None
    if not isinstance(page, dict):
        raise ToolFailure(f"its answer is no object: {_line(json.dumps(page))}")
    if "error" in page and "blocks" not in page:
        raise ToolFailure(f"refuses the input: {_line(str(page['error']))}")
    return page


def _flood(did: str, most_bytes: int) -> str:
    return f"{did} more than {most_bytes // 2**20} MiB"


def _line(text: str) -> str:
    return printable(" ".join(text.split()))[:LINE_CHARACTERS]


class _Process:
    """A process with bounded output and time, in a process group that is killed as a whole."""

    def __init__(self, words: Sequence[str | Path]) -> None:
        pipe = subprocess.PIPE
        try:
            self._child = subprocess.Popen(
                words, env=users_environment(), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise ToolFailure(f"could not be started: {error.strerror}") from None
        with suppress(OSError):  # it has ended already
            resource.prlimit(self._child.pid, resource.RLIMIT_FSIZE, (MAX_ANSWER_BYTES + 1, MAX_ANSWER_BYTES + 1))
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._input, self._output, self._errors = (
            pipe.fileno() for pipe in (self._child.stdin, self._child.stdout, self._child.stderr)
        )
        self._tail = b""
        self._open = selectors.DefaultSelector()
        for number in (self._input, self._output, self._errors):
            os.set_blocking(number, False)
        for number in (self._output, self._errors):
            self._open.register(number, selectors.EVENT_READ)

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Send a line and return the line that comes back."""
        with suppress(BlockingIOError):
            if os.read(self._output, PIECE):
                raise ToolFailure("printed more than one line for the case before")
            raise self._ended()
        unsent, answer, deadline = memoryview(line), bytearray(), time.monotonic() + timeout_s
        self._open.register(self._input, selectors.EVENT_WRITE)
        while True:
            for number in self._ready(deadline, timeout_s):
                if number == self._input:
                    unsent = self._send(unsent)
                elif number == self._errors:
                    self._read_errors()
                else:
                    piece = os.read(number, PIECE)
                    if not piece:
                        raise self._ended()
                    answer += piece
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise ToolFailure(_flood("printed", MAX_ANSWER_BYTES))
            if answer.endswith(b"\n"):
                break
        if unsent:
            raise ToolFailure("answered before it had read the case")
        if answer.count(b"\n") > 1:
            raise ToolFailure(
                f"printed more than one line: {_line(answer[:LINE_CHARACTERS].decode('utf-8', 'replace'))}"
            )
        return bytes(answer)

    def finish(self, timeout_s: float) -> None:
        """Wait until the process has ended well."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        printed, deadline = 0, time.monotonic() + timeout_s
        while self._open.get_map():
            for number in self._ready(deadline, timeout_s):
                if number == self._errors:
                    self._read_errors()
                    continue
                piece = os.read(number, PIECE)
                printed += len(piece)
                if printed > MAX_PRINTED_BYTES:
                    raise ToolFailure(_flood("printed", MAX_PRINTED_BYTES))
                if not piece:
                    self._open.unregister(number)
        try:
            code = self._child.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise ToolFailure(f"did not end within {timeout_s:g} s") from None
        if code != 0:
            raise self._ended()

    def kill(self) -> None:
        """End the process and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(END_TIMEOUT_S)
        self._open.close()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                with suppress(OSError):  # what was not sent
                    pipe.close()

    def _ready(self, deadline: float, timeout_s: float) -> list[int]:
        """Descriptors that can be read or written."""
        left = deadline - time.monotonic()
        ready = self._open.select(left) if left > 0 else []
        if not ready:
            raise ToolFailure(f"gave no answer within {timeout_s:g} s")
        return [key.fd for key, _ in ready]

    def _send(self, unsent: memoryview) -> memoryview:
        try:
            unsent = unsent[os.write(self._input, unsent) :]
        except BrokenPipeError:
            raise self._ended() from None
        if not unsent:
            self._open.unregister(self._input)
        return unsent

    def _read_errors(self) -> None:
        piece = os.read(self._errors, PIECE)
        self._tail = (self._tail + piece)[-TAIL_BYTES:]
        if not piece:
            self._open.unregister(self._errors)

    def _ended(self) -> ToolFailure:
        """The failure of a process that ended: its exit code or signal, and its last line on standard error."""
        try:
            code = self._child.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return ToolFailure("closed its output")
        with suppress(OSError):
            while piece := os.read(self._errors, PIECE):
                self._tail = (self._tail + piece)[-TAIL_BYTES:]
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return ToolFailure(f"{how}: {_line(lines[-1])}" if lines else how)
