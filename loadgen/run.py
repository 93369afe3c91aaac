"""Run a load: ``python -m loadgen.run --plan FILE``.

Starts the plan's Locust processes, headless, each with its share of the users; ends them on SIGTERM, SIGINT, at the
plan's time limit, or (with ``--until-eof``) when standard input ends; and then writes the sum of their statistics.
Locust processes end with this one even if it is killed: they watch a pipe that only it holds open.

Exit codes: 0 the load ran until it was stopped or its time was up (requests that failed are counted, not fatal); 1 a
Locust process ended early; 2 the plan is wrong."""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from loadgen.runplan import PlanError, RunPlan, Statistics

PASS: Final = 0
FAIL: Final = 1
BAD_INPUT: Final = 2

LOCUSTFILE: Final = Path(__file__).with_name("locustfile.py")
PROJECT: Final = Path(__file__).parent.parent
MAX_SPAWN_RATE: Final = 100
"""Users that Locust starts a second at most; it warns beyond."""
STOP_TIMEOUT_S: Final = 2
"""How long Locust lets requests under way end."""
KILL_AFTER_S: Final = 8.0
"""A Locust process that still runs so long after SIGTERM is killed."""
OVERTIME_S: Final = 5.0
"""How long after the time limit Locust is left to end by itself."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadgen.run", description="Run a load against validators.")
    parser.add_argument("--plan", required=True, type=Path, metavar="FILE", help="the plan file (JSON)")
    parser.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    parser.add_argument(
        "--processes", type=_numbers, metavar="N,N", help="only these of the plan's processes, from 0 on (default: all)"
    )
    options = parser.parse_args(arguments)
    try:
        plan = RunPlan.read(options.plan)
    except PlanError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return BAD_INPUT
    with _signals() as wake_up:
        numbers = options.processes or range(plan.process_count)
        return _run(plan, options.plan, numbers, wake_up, watch_input=options.until_eof)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _run(plan: RunPlan, plan_file: Path, numbers: Sequence[int], wake_up: int, watch_input: bool) -> int:
    _remove_files(plan, numbers)
    pipe_read, pipe_write = os.pipe()
    try:
        locusts = [_start_locust(plan, plan_file, process, pipe_read) for process in numbers]
        watched = [wake_up, sys.stdin.fileno()] if watch_input else [wake_up]
        all_well = _wait(locusts, watched, time.monotonic() + plan.run_time_s + OVERTIME_S)
        _stop(locusts)
        _sum_up(plan, numbers).write(Path(plan.stats_file))
    finally:
        os.close(pipe_write)
        os.close(pipe_read)
        _remove_files(plan, numbers)
    return PASS if all_well else FAIL


def _remove_files(plan: RunPlan, numbers: Sequence[int]) -> None:
    """Remove the files by which processes report that they are ready, and their shares of the statistics."""
    for process in numbers:
        plan.ready_file(process).unlink(missing_ok=True)
        plan.share_file(process).unlink(missing_ok=True)


def _start_locust(plan: RunPlan, plan_file: Path, process: int, pipe: int) -> subprocess.Popen[bytes]:
    """One headless Locust process, in a session of its own, so that signals reach it only through this process."""
    users = len(range(process, plan.load.user_count, plan.process_count))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}
    environment |= {
        "STAMPEDE_LOAD_PLAN": str(plan_file.absolute()),
        "STAMPEDE_LOAD_PROCESS": str(process),
        "STAMPEDE_LOAD_PIPE": str(pipe),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH")))),
    }
    command = [sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary"]
    command += ["--users", str(users), "--spawn-rate", str(min(users, MAX_SPAWN_RATE))]
    command += ["--run-time", f"{plan.run_time_s}s", "--stop-timeout", str(STOP_TIMEOUT_S)]
    command += ["--exit-code-on-error", "0", "--loglevel", "WARNING"]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, pass_fds=(pipe,), start_new_session=True
    )


def _wait(locusts: list[subprocess.Popen[bytes]], watched: list[int], deadline: float) -> bool:
    """Wait for a reason to stop, or until every Locust process ended. False if one ended badly by itself."""
    while any(locust.poll() is None for locust in locusts):
        left = deadline - time.monotonic()
        ready = select.select(watched, [], [], max(0.0, left))[0]
        failed = [locust.returncode for locust in locusts if locust.poll() not in (None, 0)]
        if failed:
            print(f"loadgen: a Locust process ended early with exit code {failed[0]}", file=sys.stderr)
            return False
        if not ready or any(_says_stop(descriptor, watched[0]) for descriptor in ready):
            return True
    return all(locust.returncode == 0 for locust in locusts)


def _says_stop(descriptor: int, wake_up: int) -> bool:
    """Whether what came is a signal to stop, or the end of standard input."""
    data = os.read(descriptor, 4_096)
    if descriptor == wake_up:
        return bool(set(data) & {signal.SIGTERM, signal.SIGINT})
    return not data


def _stop(locusts: list[subprocess.Popen[bytes]]) -> None:
    """Tell every Locust process to end, and see that it does."""
    for locust in locusts:
        if locust.poll() is None:
            locust.terminate()
    deadline = time.monotonic() + KILL_AFTER_S
    for locust in locusts:
        try:
            locust.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            locust.kill()
            locust.wait()


def _sum_up(plan: RunPlan, numbers: Sequence[int]) -> Statistics:
    """The statistics of these processes; one that could not write its share counts for nothing."""
    total = Statistics()
    for process in numbers:
        with suppress(OSError, ValidationError):
            total = total.plus(Statistics.model_validate_json(plan.share_file(process).read_bytes()))
    return total


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor from which the numbers of the signals that came can be read, instead of what they do otherwise."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    before = {number: signal.signal(number, lambda *_: None) for number in handled}
    descriptor_before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(descriptor_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)


if __name__ == "__main__":
    sys.exit(main())
