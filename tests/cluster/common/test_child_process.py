"""A program at the other end of pipes: answers in pieces, and what breaks the order of requests and answers."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.common.child_process import MAX_LAST_PIECES, ChildProcess, ProgramFailure, _ready
from tests.hangs import HANGS_AFTER_S

READS_LINES = "import os, sys\nfor line in sys.stdin:\n    "


@contextmanager
def running(program: str) -> Iterator[ChildProcess]:
    child = ChildProcess([sys.executable, "-c", program], os.environ)
    try:
        yield child
    finally:
        child.close()


def is_line(answer: bytearray) -> bool:
    return answer.endswith(b"\n")


def test_requests_and_answers_may_be_larger_than_a_pipe() -> None:
    with running(READS_LINES + "print(len(line), 'x' * 500_000, flush=True)") as child:
        for size in (3, 400_000):
            answer = child.ask(b"y" * size + b"\n", is_line, HANGS_AFTER_S)
            assert answer == b"%d %s\n" % (size + 1, b"x" * 500_000)


def test_an_answer_that_was_not_asked_for_is_a_failure() -> None:
    twice = (
        "import os, sys; sys.stdin.readline(); print(1, flush=True); os.read(0, 1); print(2, flush=True); os.read(0, 1)"
    )
    with running(twice) as child:
        assert child.ask(b"1\n", is_line, HANGS_AFTER_S) == b"1\n"
        os.write(child._in, b"x")
        assert select.select([child._out], [], [], HANGS_AFTER_S)[0] != []
        with pytest.raises(ProgramFailure, match="sent more than one answer"):
            child.ask(b"2\n", is_line, HANGS_AFTER_S)


def test_an_answer_before_the_request_is_read_is_a_failure() -> None:
    program = "import os, time; os.read(0, 1); os.write(1, bytes([10])); time.sleep(1000)"
    with running(program) as child, pytest.raises(ProgramFailure, match="answered before it had read the request"):
        child.ask(bytes(10_000_000), is_line, HANGS_AFTER_S)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("print('x' * 200_000)", "printed more than 0 MiB"),
        ("import sys; sys.exit('no luck')", "ended with exit code 1: no luck"),
        ("import os; os.kill(os.getpid(), 15)", "was ended by signal 15"),
        ("import time; time.sleep(1000)", "gave no answer within 0.2 s"),
    ],
)
def test_a_program_that_does_not_end_well_is_a_failure(program: str, line: str) -> None:
    timeout_s = 0.2 if "within" in line else HANGS_AFTER_S
    with running(program) as child, pytest.raises(ProgramFailure, match=line):
        child.finish(100_000, timeout_s)


def test_a_program_that_ends_well_may_print() -> None:
    with running("import sys; sys.stdin.read(); print('x' * 90_000); print('y', file=sys.stderr)") as child:
        child.finish(100_000, HANGS_AFTER_S)


def test_a_program_that_only_complains_has_no_more_time() -> None:
    """At the deadline nothing counts that is there to be read."""
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "wb", buffering=0) as pipe:
        pipe.write(b"x")
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        assert _ready(poll, time.monotonic() + HANGS_AFTER_S, 7) == [reading]
        with pytest.raises(ProgramFailure, match="gave no answer within 7 s"):
            _ready(poll, time.monotonic(), 7)


def test_the_last_words_of_a_program_without_an_end_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has closed its output, and complains as fast as it is read."""
    pieces: list[int] = []
    read = os.read

    def flooded(pipe: int, size: int) -> bytes:
        if pipe != child._err:
            return read(pipe, size)
        pieces.append(size)
        assert len(pieces) <= 2 * MAX_LAST_PIECES, "it reads for ever"
        return b"more\n"

    with running("import os, time; os.close(1); time.sleep(1000)") as child:
        monkeypatch.setattr(os, "read", flooded)
        with pytest.raises(ProgramFailure, match="closed its output: more"):
            child.ask(b"1\n", is_line, HANGS_AFTER_S)
