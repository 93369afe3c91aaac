"""A process that runs scenarios with a changed module, or without a change, and answers each in one line of JSON.

It ends when its parent process ends, for any reason. It caches no code that it compiles with a change.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import threading
import time
from collections.abc import Sequence
from math import ceil
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from kits.mutation.planting import LineRecorder, plant

MIB: Final = 2**20
CRASH: Final = "crash"
IMPORT_CRASH: Final = "import crash"
FAIL: Final = "fail"


class Request(NamedTuple):
    """What the process is to do: the runs, and the changed module with which to make them."""

    changed: tuple[str, str] | None
    """Path and source of the changed module; ``None`` for no change."""
    runs: bytes
    """Pickled list with each run's task, seed and limit of processor time in seconds."""
    records_lines: bool
    memory_mib: int


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one run or, in the last answer, the lines that ran."""

    verdict: str = ""
    """The run's verdict, or :data:`CRASH` or :data:`IMPORT_CRASH` if it has none."""
    reason: str = ""
    """The reason for the verdict, in one line."""
    cpu_s: float = 0.0
    lines: dict[str, list[int]] = {}


def main() -> None:
    """Read one request, and answer its runs. With a change of the code, stop after the first run that fails."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what the code prints is no answer
    request = Request(*pickle.load(sys.stdin.buffer))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    recorder = LineRecorder()
    if request.changed is not None:
        plant(*request.changed)
    if request.records_lines:
        recorder.start()
    try:
        runs = _load(request)
    except Exception as error:  # noqa: BLE001 (a module that cannot be imported is a finding)
        _send(answers, Answer(IMPORT_CRASH, _one_line(error)))
        return
    for task, seed, limit_s in runs:
        answer = _run(task, seed, limit_s, stops=request.changed is not None)
        _send(answers, answer)
        if request.changed is not None and answer.verdict in (FAIL, CRASH):
            return
    recorder.stop()
    if request.records_lines:
        _send(answers, Answer(lines=recorder.ran))


def _end_with_parent() -> None:
    """Wait until the parent process ends, then end this process.

    The parent writes nothing after the request, so the read returns only when the parent's end of the pipe closes.
    """
    os.read(0, 1)
    os._exit(1)


def _send(answers: BinaryIO, answer: Answer) -> None:
    answers.write(msgspec.json.encode(answer) + b"\n")


def _load(request: Request) -> Sequence[tuple[Any, int, float]]:
    """Import all modules that the runs need, then limit the memory of the process; returns the runs."""
    from numba.core.caching import Cache

    import cluster.commands.sweeps.outcome
    import cluster.watches.watched_simulation  # noqa: F401 (imported before memory is bounded)
    from cluster.commands.sweeps.worker import bound_memory, free_memory

    if request.changed is not None:
        setattr(Cache, "save_overload", _keep_nothing)  # noqa: B010 (no assignment to a method)
    runs: Sequence[tuple[Any, int, float]] = pickle.loads(request.runs)
    free_memory()
    bound_memory(request.memory_mib * MIB)
    return runs


def _keep_nothing(*_: object) -> None:
    """Replacement for numba's cache function. It does nothing, since compiled code may contain the change."""


def _run(task: Any, seed: int, limit_s: float, stops: bool) -> Answer:
    from cluster.commands.sweeps.outcome import judge
    from cluster.commands.sweeps.tasks import takes_shortcuts
    from cluster.watches.watched_simulation import simulate

    started = time.process_time()
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(started + limit_s), hard))
    try:
        shortcuts = takes_shortcuts(task, seed)
        record = simulate(task.scenario(seed), seed, stop_on_fail=stops, shortcuts=shortcuts)
        outcome, _ = judge(record, 0.0)
    except Exception as error:  # noqa: BLE001 (a crash is a finding)
        return Answer(CRASH, _one_line(error), time.process_time() - started)
    return Answer(outcome.verdict, outcome.why, time.process_time() - started)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    main()
