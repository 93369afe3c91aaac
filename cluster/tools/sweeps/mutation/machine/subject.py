"""A process that runs scenarios with a changed module, or without a change, and answers each in one line of JSON.

It ends when the process that started it ends, whatever the reason. It keeps no compiled code that it makes with a
change.
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

from cluster.tools.sweeps.mutation.machine.planting import LineRecorder, plant

MIB: Final = 2**20
CRASH: Final = "crash"
IMPORT_CRASH: Final = "import crash"
FAIL: Final = "fail"


class Request(NamedTuple):
    """What the process is to do."""

    changed: tuple[str, str] | None
    """Path and source of the changed module."""
    runs: bytes
    """Pickled: for each run its task, its seed, and the seconds of processor time that it may take."""
    records_lines: bool
    memory_mib: int


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one run, or at last, the lines that ran."""

    verdict: str = ""
    """That of the run, or why it has none."""
    reason: str = ""
    """In one line."""
    cpu_s: float = 0.0
    lines: dict[str, list[int]] = {}


def main() -> None:
    """Answer one request; a run that fails is the last."""
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
    """Nobody writes any more: the other end of the pipe closes with its process."""
    os.read(0, 1)
    os._exit(1)


def _send(answers: BinaryIO, answer: Answer) -> None:
    answers.write(msgspec.json.encode(answer) + b"\n")


def _load(request: Request) -> Sequence[tuple[Any, int, float]]:
    """Import all that runs need."""
    from numba.core.caching import Cache

    import cluster.simulation.driver
    import cluster.tools.sweeps.outcome  # noqa: F401 (imported before memory is bounded)
    from cluster.tools.sweeps.worker import bound_memory, free_memory

    if request.changed is not None:
        setattr(Cache, "save_overload", _keep_nothing)  # noqa: B010 (no assignment to a method)
    runs: Sequence[tuple[Any, int, float]] = pickle.loads(request.runs)
    free_memory()
    bound_memory(request.memory_mib * MIB)
    return runs


def _keep_nothing(*_: object) -> None:
    """Do not keep compiled code: it may hold what was changed."""


def _run(task: Any, seed: int, limit_s: float, stops: bool) -> Answer:
    from cluster.simulation.driver import simulate
    from cluster.tools.sweeps.outcome import judge
    from cluster.tools.sweeps.tasks import shares_executions

    started = time.process_time()
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(started + limit_s), hard))
    try:
        shares = shares_executions(task, seed)
        record = simulate(task.scenario(seed), seed, stop_on_fail=stops, shares_executions=shares)
        outcome, _ = judge(record, 0.0)
    except Exception as error:  # noqa: BLE001 (a crash is a finding)
        return Answer(CRASH, _one_line(error), time.process_time() - started)
    return Answer(outcome.verdict, outcome.why, time.process_time() - started)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    main()
