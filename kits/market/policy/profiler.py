"""Profiler of policies: the time of each line of a user's file, and of each block.

The blocks of a run are executed twice again: once as they are, for the time of the blocks, and once with the
interpreter's trace, for that of the lines. A line has the time until its function goes on to the next one, with all
that it calls; the trace itself takes a part of it, so lines are compared with each other.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from cluster.audit.reexecution.reexecutor import Reexecutor
from cluster.common.errors import BadInput
from cluster.record.archive import BlockRecord
from validator.chain.genesis import Genesis

Clock = Callable[[], int]
"""A clock in nanoseconds."""


@dataclass(slots=True)
class LineTimes:
    """The time of each line of a file, in nanoseconds, and how often it ran."""

    file: str
    clock: Clock
    times_ns: Counter[int] = field(default_factory=Counter)
    runs: Counter[int] = field(default_factory=Counter)
    _open: dict[FrameType, tuple[int, int]] = field(default_factory=dict)
    """The line that each frame is at, and when it came there."""

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Context manager in which the lines of this thread are timed. A debugger's trace is put back."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._step if frame.f_code.co_filename == self.file else None

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "exception":
            return self._step
        if frame in self._open:
            line, since = self._open.pop(frame)
            self.times_ns[line] += self.clock() - since
        if event == "line":
            self.runs[frame.f_lineno] += 1
            self._open[frame] = frame.f_lineno, self.clock()
        return self._step


@dataclass(frozen=True, slots=True)
class PolicyProfile:
    """The times of a policy."""

    lines: LineTimes
    blocks_ns: list[int]
    """Time of each block, from height 1 on."""


def profile(genesis: Genesis, blocks: Sequence[BlockRecord], clock: Clock) -> PolicyProfile:
    """Execute the blocks of a chain with a user's policy again. Raises :class:`BadInput` if a result differs."""
    assert genesis.policy_file is not None, "the chain has a user's policy"
    times = []
    plain = Reexecutor(genesis)
    for block in blocks:
        began = clock()
        _take(plain, block)
        times.append(clock() - began)
    lines, again = LineTimes(genesis.policy_file.file, clock), Reexecutor(genesis)
    with lines.traced():
        for block in blocks:
            _take(again, block)
    return PolicyProfile(lines, times)


def _take(reexecutor: Reexecutor, block: BlockRecord) -> None:
    differs = reexecutor.take(block)
    if differs is not None:
        raise BadInput(f"block {differs.heights + 1} has another result when it is executed again: {differs.reason}")
