"""Run a load: ``python -m loadgen.run --plan FILE``.

This program starts the plan's Locust processes, each with its share of the users. It ends them on SIGTERM, on SIGINT,
at the plan's time limit, or (with ``--until-eof``) when standard input ends. Then it writes the sum of their
statistics. With ``--workers`` or ``--listen`` the processes are a master and its workers instead, and some workers may
run elsewhere. Locust processes end with this one even if it is killed: they watch a pipe that only it holds open.

Exit codes: 0 the load ran until it was stopped or its time was up (failed requests are counted, not fatal); 1 a Locust
process ended early, or without its statistics; 2 the plan is wrong; 4 an exception that was not expected, whose
traceback is printed.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from loadgen.runplan import OWN_FILES_SUFFIX, STOP_TIMEOUT_S, PlanError, RunPlan, Statistics

PASS: Final = 0
FAIL: Final = 1
BAD_INPUT: Final = 2
CRASH: Final = 4

MASTER: Final = 0
"""Process number of the master; if there is one, no other process writes statistics."""
LOOPBACK: Final = "127.0.0.1"
LOOK_S: Final = 0.05
MAX_SPAWN_RATE: Final = 100
"""Maximum number of users that Locust starts per second; it warns about higher rates."""
KILL_AFTER_S: Final = 8.0
"""Seconds after SIGTERM at which a Locust process that still runs is killed."""
OVERTIME_S: Final = 5.0
"""Seconds that Locust has after the time limit to end by itself, before it is told to end."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which Locust processes of a load run here: single processes, or a master and its workers."""

    processes: Sequence[int]
    """Numbers of the plan's processes that run here, each with its share of the users. Unused if there is a master."""
    workers: int = 0
    """Number of workers that are started here. There is a master if it is above 0, or if ``listen`` is given."""
    listen: tuple[str, int] | None = None
    """Host and port at which the master listens for workers; port 0 means any free port. With ``None`` a master listens
    on the loopback interface, at any free port."""
    expected: int = 0
    """Number of workers for which the master waits before the load begins."""
    ui: tuple[str, int] | None = None
    """Host and port of Locust's web interface; ``None`` for no interface."""

    @property
    def has_master(self) -> bool:
        return self.workers > 0 or self.listen is not None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadgen.run", description="Run a load against validators.")
    parser.add_argument("--plan", required=True, type=Path, metavar="FILE", help="the plan file (JSON)")
    parser.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    parser.add_argument(
        "--processes", type=_numbers, metavar="N,N", help="only these of the plan's processes, from 0 on (default: all)"
    )
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N", help="a master here, with this many workers here"
    )
    parser.add_argument("--listen", type=_address, metavar="HOST:PORT", help="a master here, with workers elsewhere")
    parser.add_argument("--expected", type=int, metavar="N", help="begin with this many workers (default: those here)")
    parser.add_argument("--ui", type=_address, metavar="HOST:PORT", help="Locust's web interface")
    options = parser.parse_args(arguments)
    try:
        plan = RunPlan.read(options.plan)
    except PlanError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return BAD_INPUT
    is_shared = options.ui or (plan.needs_master and not options.workers and not options.listen)
    workers = plan.process_count if is_shared and plan.process_count > 1 else options.workers
    numbers = options.processes or range(plan.process_count)
    expected = max(1, workers if options.expected is None else options.expected)
    layout = Layout(numbers, workers, options.listen, expected, options.ui)
    try:
        with _signals() as wake_up:
            return _run(plan, options.plan, layout, wake_up, watch_input=options.until_eof)
    except Exception:  # noqa: BLE001 (a bug is no verdict)
        traceback.print_exc()
        return CRASH


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _run(plan: RunPlan, plan_file: Path, layout: Layout, wake_up: int, watch_input: bool) -> int:
    numbers = [MASTER] if layout.has_master else layout.processes
    _remove_files(plan, numbers)
    pipe_read, pipe_write = os.pipe()
    locusts: list[subprocess.Popen[bytes]] = []
    watched = [wake_up, sys.stdin.fileno()] if watch_input else [wake_up]
    folder = plan_file.absolute().with_suffix(OWN_FILES_SUFFIX)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        start = partial(_start_locust, folder, plan.write_locustfiles(folder), pipe=pipe_read)
        if layout.has_master:
            locusts.append(start(_master_options(plan, plan_file, layout), MASTER))
            port = _port_of(plan, locusts[0])
            if port is not None:
                locusts += [start(_worker_options(port), worker) for worker in range(layout.workers)]
        else:
            locusts += [start(_own_options(plan, plan_file, process, layout), process) for process in numbers]
        steady = [] if plan.load.locust is not None else locusts[:1] if layout.has_master else locusts
        all_well = _wait(locusts, steady, watched, time.monotonic() + plan.run_time_s)
        if layout.has_master:
            _stop(locusts[:1])  # it has the workers' counts, and ends them
        _stop(locusts)
        total = _sum_up(plan, numbers, all_well)
        total.write(Path(plan.stats_file))
    finally:
        os.close(pipe_write)
        os.close(pipe_read)
        _remove_files(plan, numbers)
        shutil.rmtree(folder, ignore_errors=True)
    return PASS if total.is_whole else FAIL


def _remove_files(plan: RunPlan, numbers: Sequence[int]) -> None:
    """Remove the files that processes write for this one: ready files, their statistics, and the master's port."""
    plan.port_file.unlink(missing_ok=True)
    for process in numbers:
        plan.ready_file(process).unlink(missing_ok=True)
        plan.share_file(process).unlink(missing_ok=True)


def _own_options(plan: RunPlan, plan_file: Path, process: int, layout: Layout) -> list[str]:
    """Locust's command-line options for a single process, which runs its share of the users without a master."""
    return _test_options(plan, plan_file, len(plan.share(process)) + plan.own_user_count, layout.ui)


def _master_options(plan: RunPlan, plan_file: Path, layout: Layout) -> list[str]:
    host, port = layout.listen or (LOOPBACK, 0)
    options = ["--master", "--master-bind-host", host, "--master-bind-port", str(port), "--enable-rebalancing"]
    options += ["--expect-workers", str(layout.expected)]
    return options + _test_options(plan, plan_file, plan.load.client_count + plan.own_user_count, layout.ui)


def _worker_options(port: int) -> list[str]:
    return ["--worker", "--master-host", LOOPBACK, "--master-port", str(port)]


def _test_options(plan: RunPlan, plan_file: Path, users: int, ui: tuple[str, int] | None) -> list[str]:
    """Locust's command-line options for a process that controls the load: a master or a single process."""
    options = ["--plan", str(plan_file.absolute()), "--users", str(users)]
    options += ["--spawn-rate", str(min(users, MAX_SPAWN_RATE)), "--run-time", f"{plan.run_time_s}s"]
    options += ["--stop-timeout", str(STOP_TIMEOUT_S), "--exit-code-on-error", "0", "--only-summary"]
    if ui is None:
        return [*options, "--headless"]
    return [*options, "--autostart", "--web-host", ui[0], "--web-port", str(ui[1])]


def _start_locust(
    folder: Path, files: Sequence[Path], options: Sequence[str], process: int, pipe: int
) -> subprocess.Popen[bytes]:
    """Start a Locust process in the load's folder, where it finds nothing of the user's, and in a separate session, so
    that signals reach it only through this process."""
    command = [
        sys.executable,
        "-m",
        "loadgen.locust_process",
        "--locustfile",
        ",".join(map(str, files)),
        "--loglevel",
        "WARNING",
        *options,
    ]
    return subprocess.Popen(
        command,
        env=os.environ | {"STAMPEDE_LOAD_PROCESS": str(process), "STAMPEDE_LOAD_PIPE": str(pipe)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        pass_fds=(pipe,),
        start_new_session=True,
    )


def _port_of(plan: RunPlan, master: subprocess.Popen[bytes]) -> int | None:
    """Wait for the port at which the master listens for workers; ``None`` if the master ends before."""
    while not plan.port_file.exists():
        if master.poll() is not None:
            return None
        time.sleep(LOOK_S)
    return int(plan.port_file.read_text(encoding="utf-8"))


def _wait(
    locusts: list[subprocess.Popen[bytes]], steady: list[subprocess.Popen[bytes]], watched: list[int], ends_at: float
) -> bool:
    """Wait for a signal, the end of input, the end of all processes, or until :data:`OVERTIME_S` after ``ends_at``.

    False if a process failed, or one of ``steady`` ended before ``ends_at``: exit code 0 does not say that a load ran.
    """
    while True:
        is_early, codes = time.monotonic() < ends_at, [(locust, locust.poll()) for locust in locusts]
        failed = [code for locust, code in codes if code or (code == 0 and is_early and locust in steady)]
        if failed:
            print(f"loadgen: a Locust process ended early with exit code {failed[0]}", file=sys.stderr)
            return False
        if all(code == 0 for _, code in codes):
            return True
        ready = select.select(watched, [], [], max(0.0, ends_at + OVERTIME_S - time.monotonic()))[0]
        if not ready or any(_says_stop(descriptor, watched[0]) for descriptor in ready):
            return True


def _says_stop(descriptor: int, wake_up: int) -> bool:
    """Read from a descriptor that is ready; whether that is SIGTERM, SIGINT, or the end of standard input."""
    data = os.read(descriptor, 4_096)
    if descriptor == wake_up:
        return bool(set(data) & {signal.SIGTERM, signal.SIGINT})
    return not data


def _stop(locusts: list[subprocess.Popen[bytes]]) -> None:
    """Tell every Locust process to end, and kill those that do not."""
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


def _sum_up(plan: RunPlan, numbers: Sequence[int], all_well: bool) -> Statistics:
    """The sum of the processes' statistics; one that did not write its share is left out, and the sum is not whole."""
    total = Statistics(is_whole=all_well)
    for process in numbers:
        try:
            share = Statistics.model_validate_json(plan.share_file(process).read_bytes())
        except (OSError, ValidationError):
            lines = [f"Locust process {process} ended without its statistics"] if all_well else []
            share = Statistics(is_whole=False, lost=lines)
        total = total.plus(share)
    return total


@contextmanager
def _signals() -> Iterator[int]:
    """Context manager that catches SIGTERM, SIGINT and SIGCHLD. Their numbers are read from the given descriptor."""
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
