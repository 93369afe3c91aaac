"""Runs scenarios in separate processes: with the unchanged code, or with a change of the code until a run fails."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import msgspec

from cluster.commands.sweeps.tasks import AnyTask
from cluster.common.checkout import ROOT, own_environment
from cluster.common.errors import HarnessError
from kits.mutation.generated.operators import Candidate
from kits.mutation.generated.subject import CRASH, FAIL, IMPORT_CRASH, Answer, Request

SUBJECT: Final = "kits.mutation.generated.subject"
ENDLESS: Final = "endless"
SURVIVED: Final = "survived"
SEEN: Final = (FAIL, CRASH, IMPORT_CRASH, ENDLESS)
"""The possible outcomes of a bug that was detected. Running out of memory counts as a crash."""
TIMES_AS_LONG: Final = 20
"""A run with a change counts as endless if it takes this many times the processor time of the run without it."""
LEAST_LIMIT_S: Final = 20.0
SOUND_LIMIT_S: Final = 3_600.0
"""Maximum processor time, in seconds, of a run of the unchanged code."""


class Run(NamedTuple):
    """One run of a search: the task that determines its scenario, and a seed."""

    task: AnyTask
    seed: int

    @property
    def name(self) -> str:
        return f"{self.task.title} {self.seed}"


class Sound(msgspec.Struct, frozen=True, tag="sound"):
    """The results of a group of runs of the unchanged code."""

    number: int
    """Number of the group of runs."""
    verdicts: list[str]
    cpu_s: list[float]
    """Seconds of processor time of each run."""
    lines: dict[str, list[int]]
    """Numbers of the code lines that ran, keyed by path; empty if they were not recorded."""


class Bug(msgspec.Struct, frozen=True, tag="bug"):
    """The outcome of one change of the code: whether a run detected it."""

    candidate: Candidate
    outcome: str
    """One of :data:`SEEN`, or :data:`SURVIVED`."""
    run: str = ""
    """Name of the run that detected the bug; empty if it survived."""
    reason: str = ""
    """The reason for the outcome, in one line."""
    runs: int = 0
    """Number of runs that were made with the change, including the one that detected it."""
    seconds: float = 0.0

    @property
    def seen(self) -> bool:
        return self.outcome != SURVIVED


def run_sound(runs: Sequence[Run], number: int, records_lines: bool, memory_mib: int) -> Sound:
    """Run a group of runs in one process, without a change of the code.

    Raises :class:`HarnessError` if the process does not complete them.
    """
    request = _request(None, [(run, SOUND_LIMIT_S) for run in runs], records_lines, memory_mib)
    with tempfile.TemporaryFile() as errors, _subject(request, errors.fileno()) as process:
        answers = list(_answers(process))
        code = process.wait()
        errors.seek(0)
        last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    if len(answers) != len(runs) + records_lines:
        raise HarnessError(
            f"runs without a change: the process ended with {code}{''.join(f': {line}' for line in last)}"
        )
    ended = answers[: len(runs)]
    lines = answers[-1].lines if records_lines else {}
    return Sound(number, [answer.verdict for answer in ended], [answer.cpu_s for answer in ended], lines)


def hunt(candidate: Candidate, runs: Sequence[tuple[Run, float]], memory_mib: int) -> Bug:
    """Run scenarios with a change of the code, in one process, until a run fails.

    Each of ``runs`` comes with the processor time, in seconds, that it took without the change.
    """
    started = time.monotonic()
    source = (ROOT / candidate.path).read_text(encoding="utf-8")
    limits = [(run, max(LEAST_LIMIT_S, TIMES_AS_LONG * sound_s)) for run, sound_s in runs]
    request = _request((candidate.path, candidate.applied(source)), limits, False, memory_mib)
    with _subject(request, subprocess.DEVNULL) as process:
        answers = list(_answers(process))
        code = process.wait()
    last = answers[-1] if answers else Answer()
    count = len(answers)
    if last.verdict not in (FAIL, CRASH, IMPORT_CRASH):
        if count == len(runs) and code == 0:
            return Bug(candidate, SURVIVED, runs=count, seconds=time.monotonic() - started)
        is_endless = code == -signal.SIGXCPU
        last = Answer(ENDLESS if is_endless else CRASH, f"the process ended with {code}" if not is_endless else "")
        count = min(count + 1, len(runs))
    name = runs[max(count, 1) - 1][0].name if runs else ""
    return Bug(candidate, last.verdict, name, last.reason, count, time.monotonic() - started)


def _request(
    changed: tuple[str, str] | None, runs: Sequence[tuple[Run, float]], records_lines: bool, memory_mib: int
) -> bytes:
    plain = pickle.dumps([(run.task, run.seed, limit_s) for run, limit_s in runs])
    return pickle.dumps(tuple(Request(changed, plain, records_lines, memory_mib)))


@contextmanager
def _subject(request: bytes, errors: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process and send it a request; leaving the context ends it. Signals of the terminal do not reach it."""
    process = subprocess.Popen(
        [sys.executable, "-m", SUBJECT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=ROOT,
        env=own_environment(),
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it ended before it read the request: its answers and exit code tell
            process.stdin.write(request)
            process.stdin.flush()  # stays open: the process ends when it is closed
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def _answers(process: subprocess.Popen[bytes]) -> Iterator[Answer]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=Answer)
