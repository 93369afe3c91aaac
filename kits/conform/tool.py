"""The program under test: it gets a case and answers with the output ``O`` of the conformance tool.

A tool either runs once a case (``COMMAND --genesis G --blocks B --out O``) or stays up and answers lines
(docs/protocol.md, "Conformance"). Whatever it does wrong, a hang, a crash, garbage or a flood, is a
:class:`ToolFailure` with one line; the process is killed, and the next case starts another one.
"""

from __future__ import annotations

import json
import resource
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cluster.common.checkout import users_environment
from cluster.common.child_process import MAX_LINE, ChildProcess, ProgramFailure, flood, one_line
from cluster.common.errors import BadInput
from cluster.common.files import json_problem
from cluster.common.wording import printable
from kits.conform.case import Case, Page

MAX_ANSWER_BYTES: Final = 64 * 2**20
MAX_PRINTED_BYTES: Final = 2**20
"""Maximum output of a tool that writes its answer to a file."""


ToolFailure = ProgramFailure
"""A tool gave no answer. The message is one line."""


class Unsupported(Exception):
    """A tool says that it does not have what a case is about. The message is its reason, one line."""


class Tool(Protocol):
    """What answers cases."""

    def answer(self, case: Case, wants_steps: bool = False) -> Page:
        """The output for a case, with the steps of its blocks if they are wanted. Raises :class:`ToolFailure`, and
        :class:`Unsupported`."""

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
    tells_steps: bool = False
    """Whether it can answer with the steps of blocks."""

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
        self._process: ChildProcess | None = None

    def answer(self, case: Case, wants_steps: bool = False) -> Page:
        request = case.request
        if wants_steps and not case.decode:
            request["steps"] = True
        try:
            if self._process is None:
                self._process = _started(self._words)
            line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
            return _page(self._process.ask(line, _is_line, self._timeout_s))
        except ToolFailure:
            self.close()
            raise

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class FileTool:
    """A tool that is started for each case, and reads and writes files."""

    def __init__(self, words: Sequence[str], timeout_s: float) -> None:
        self._words, self._timeout_s = words, timeout_s

    def answer(self, case: Case, wants_steps: bool = False) -> Page:
        if case.decode:
            raise Unsupported("a program is asked about bytes with --serve alone")
        with tempfile.TemporaryDirectory(prefix="stampede-conform-") as folder:
            genesis, blocks, out = (Path(folder, name) for name in ("genesis.json", "blocks.json", "out.json"))
            genesis.write_text(json.dumps(case.genesis), encoding="utf-8")
            blocks.write_text(json.dumps(case.blocks), encoding="utf-8")
            steps = ["--steps"] if wants_steps else []
            process = _started([*self._words, "--genesis", genesis, "--blocks", blocks, "--out", out, *steps])
            try:
                process.finish(MAX_PRINTED_BYTES, self._timeout_s)
            finally:
                process.close()
            if not out.is_file():
                raise ToolFailure("wrote no output file")
            if out.stat().st_size > MAX_ANSWER_BYTES:
                raise flood("wrote", MAX_ANSWER_BYTES)
            return _page(out.read_bytes())

    def close(self) -> None:
        """Nothing is left: each case ended its process."""


def _page(data: bytes | bytearray) -> Page:
    """An output from its JSON. Raises :class:`ToolFailure`, and :class:`Unsupported`."""
    try:
        page = json.loads(data)
    except (ValueError, RecursionError) as error:
        start = printable(data[:60].decode("utf-8", "replace"))
        raise ToolFailure(f"its answer is no JSON: {json_problem(error)}: {start!r}") from None
    if not isinstance(page, dict):
        raise ToolFailure(f"its answer is no object: {one_line(json.dumps(page))}")
    if page.keys() == {"unsupported"}:
        raise Unsupported(one_line(str(page["unsupported"])))
    if "error" in page and "blocks" not in page:
        raise ToolFailure(f"refuses the input: {one_line(str(page['error']))}")
    return page


def _is_line(answer: bytearray) -> bool:
    """Whether an answer is complete: one line."""
    if len(answer) > MAX_ANSWER_BYTES:
        raise flood("printed", MAX_ANSWER_BYTES)
    if not answer.endswith(b"\n"):
        return False
    if answer.count(b"\n") > 1:
        raise ToolFailure(f"printed more than one line: {one_line(answer[:MAX_LINE].decode('utf-8', 'replace'))}")
    return True


def _started(words: Sequence[str | Path]) -> ChildProcess:
    """A process of the tool, which can write no larger files than an answer may have. Raises :class:`ToolFailure`."""
    process = ChildProcess(words, users_environment())
    with suppress(OSError):  # it has ended already
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MAX_ANSWER_BYTES + 1, MAX_ANSWER_BYTES + 1))
    return process
