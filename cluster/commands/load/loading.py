"""Puts a load on a running testnet, and prints and writes the results."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from cluster.checks.metrics.load_latency import (
    WorkloadLatency,
    json_number,
    latencies_of,
    latency_metrics,
    latency_text,
    response_times,
    timeline_page,
)
from cluster.commands.console.output import console, plain_table, print_line
from cluster.commands.load.following import ChainFollower, Look
from cluster.commands.load.target import PlannedLoad, Target
from cluster.common.errors import BadInput, Crash, ExitCode, HarnessError, TestnetError
from cluster.common.files import write_for_user, write_json_for_user
from cluster.common.interrupts import Interrupts
from cluster.common.wording import counted
from cluster.live.driver.load_process import ENDPOINTS_FILE, EXTRA_RUN_TIME_S, LOG_FILE, STATS_FILE, LoadProcess
from loadgen.runplan import (
    LOCUSTFILE,
    LOCUSTFILE_OF_THE_MASTER,
    MAX_RUN_TIME_S,
    OWN_FILES_SUFFIX,
    STOP_TIMEOUT_S,
    RunPlan,
    Statistics,
    dump_json,
)
from loadgen.workloads.measures import Sends

LOOK_S: Final = 0.1
TELL_S: Final = 5.0
START_TIMEOUT_S: Final = 60.0
DRAIN_S: Final = 10.0
"""Time limit, after the load, for its transactions to become final."""
MAX_REASONS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Layout:
    """The Locust processes of a load: number of workers, and addresses of master and web page as ``host:port``."""

    workers: int = 0
    listen: str | None = None
    ui: str | None = None

    @property
    def options(self) -> list[str]:
        """Options of :mod:`loadgen.run` for this layout."""
        options = ["--workers", str(self.workers)] if self.workers else []
        options += ["--listen", self.listen] if self.listen else []
        return options + (["--ui", self.ui] if self.ui else [])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a load."""

    statistics: Statistics
    latencies: list[WorkloadLatency]
    looks: list[Look]
    """The first and the last observation of the chain during the load; empty if no validator answered."""
    exit_code: int | None
    """Exit code of the load's process."""
    began_epoch_ms: float = 0.0
    """Start of the load, in milliseconds since the epoch."""
    sends_transactions: bool = True
    """Whether the load has users that send transactions, and not only the user's own Locust users."""
    why_ended: str = ""
    """Why this is no whole load: its process ended early, or without its counts. Empty if it is one."""

    @property
    def why_nothing(self) -> str:
        """Why this is no load: nothing was sent, or nothing of it became final. Empty if it is one."""
        stats = self.statistics
        if any(each.final for each in self.latencies):
            return ""
        if not self.sends_transactions and stats.requests > stats.failures:
            return ""
        if not stats.transactions_sent:
            return f"nothing was sent: {_most_frequent(stats.errors) or 'no turn was taken'}"
        reason = _most_frequent(stats.rejections) or "none was refused"
        return f"of {counted(stats.transactions_sent, 'transaction')} none became final: {reason}"

    @property
    def seconds(self) -> float:
        return self.looks[-1].at_s - self.looks[0].at_s if self.looks else 0.0

    @property
    def rate(self) -> float:
        """Final transactions per second, from all senders."""
        if self.seconds <= 0:
            return 0.0
        return (self.looks[-1].transactions - self.looks[0].transactions) / self.seconds

    @property
    def page(self) -> dict[str, Any]:
        """The result as JSON."""
        stats = self.statistics
        return {
            "seconds": round(self.seconds, 3),
            "requests": stats.requests,
            "failures": stats.failures,
            "responses": {f"{name}_ms": round(value, 3) for name, value in response_times(stats.timeline).items()},
            "transactions_sent": stats.transactions_sent,
            "transactions_rejected": stats.transactions_rejected,
            "final_per_s": round(self.rate, 3),
            "backlog_before": self.looks[0].backlog if self.looks else None,
            "backlog_after": self.looks[-1].backlog if self.looks else None,
            "errors": stats.errors,
            "rejections": stats.rejections,
            "late_by_cause": stats.late_by_cause,
            "workloads": {each.workload: each.page for each in self.latencies},
            "latency": {name: json_number(round(value, 3)) for name, value in latency_metrics(self.latencies).items()},
            "timeline": timeline_page(stats.timeline, self.began_epoch_ms),
        }


def perform_load(
    target: Target, planned: PlannedLoad, layout: Layout, duration_s: int | None, page: Path | None
) -> ExitCode:
    """Put a load on a testnet for ``duration_s`` seconds, or until a signal; print and write the results.

    Raises :class:`~cluster.common.errors.HarnessError` if the load did not do its work, if nothing was sent, or if
    nothing of it became final.
    """
    out = console()
    with Interrupts() as interrupts:
        outcome = run_load(
            target, planned, layout, duration_s, interrupts, lambda line: print_line(out, line), is_told=True
        )
    show(outcome)
    write_json_for_user(page, outcome.page)
    if outcome.why_ended:
        kind = Crash if outcome.exit_code == ExitCode.CRASH else HarnessError
        raise kind(f"the load did not do its work: {outcome.why_ended}")
    if outcome.why_nothing:
        raise HarnessError(f"the load shows nothing: {outcome.why_nothing}")
    return ExitCode.PASS


def run_load(
    target: Target,
    planned: PlannedLoad,
    layout: Layout,
    duration_s: int | None,
    interrupts: Interrupts,
    notice: Callable[[str], None],
    is_told: bool = False,
) -> Outcome:
    """Run a load for ``duration_s`` seconds (``None``: without limit), or until a signal.

    ``is_told`` turns on lines of progress. Raises :class:`~cluster.common.errors.TestnetError` if the load does not
    start.
    """
    with tempfile.TemporaryDirectory(prefix="stampede-load-") as name, ExitStack() as ending:
        folder = Path(name)
        plan = _run_plan(target, planned, duration_s, folder)
        load = LoadProcess(plan, folder, [0] if layout.options else None, layout=layout.options)
        ending.callback(load.finished, lambda: None)
        _tell_layout(plan, layout, notice)
        _wait_until_ready(load, folder, interrupts, notice if layout.listen else None)
        follower, looks, began_epoch_ms = ChainFollower(target.validators), list[Look](), time.time() * 1_000
        load.go(dict(enumerate(target.validators)))
        with suppress(KeyboardInterrupt):
            _follow(load, follower, looks, duration_s, interrupts, notice if is_told else None)
        load.stop()
        statistics = load.finished(lambda: None)
        code, why_ended = load.exit_code, ""
        if code != 0:
            reason = "; ".join(statistics.lost) or _last_line(folder / LOG_FILE)
            why_ended = f"it ended with exit code {code}: {reason}"
        latencies = _drain(follower, statistics.sends)
        sends = planned.load.user_count > 0
        return Outcome(statistics, latencies, looks, code, began_epoch_ms, sends, why_ended)


def write_plan(target: Target, planned: PlannedLoad, duration_s: int | None, file: Path) -> None:
    """Write the plan for a Locust that the user starts, and print its command."""
    plan = RunPlan(
        chain_id=target.chain_id,
        seed=planned.seed,
        endpoints=list(target.validators),
        load=planned.load.model_copy(update={"processes": 1}),
        params=planned.parameters.to_names(),
        run_time_s=duration_s or MAX_RUN_TIME_S,
        stats_file=str(file.absolute().with_suffix(".stats.json")),
    )
    write_for_user(file, dump_json(plan, indent=2, exclude_none=True) + "\n")
    try:
        files = ",".join(map(str, plan.write_locustfiles(file.with_suffix(OWN_FILES_SUFFIX))))
    except OSError as error:
        raise BadInput(f"{file}: its Locustfiles cannot be written: {error.strerror}") from None
    users = planned.load.client_count + plan.own_user_count
    options = f"--users {users} --spawn-rate {users} --stop-timeout {STOP_TIMEOUT_S}"
    print_line(console(), f"locust --locustfile {files} --plan {file} {options}")


def _run_plan(target: Target, planned: PlannedLoad, duration_s: int | None, folder: Path) -> RunPlan:
    return RunPlan(
        chain_id=target.chain_id,
        seed=planned.seed,
        endpoints_file=str(folder / ENDPOINTS_FILE),
        load=planned.load,
        params=planned.parameters.to_names(),
        run_time_s=MAX_RUN_TIME_S if duration_s is None else min(MAX_RUN_TIME_S, duration_s + EXTRA_RUN_TIME_S),
        stats_file=str(folder / STATS_FILE),
    )


def _tell_layout(plan: RunPlan, layout: Layout, notice: Callable[[str], None]) -> None:
    if layout.ui:
        notice(f"web page  http://{layout.ui}")
    if layout.listen:
        host, _, port = layout.listen.rpartition(":")
        file = LOCUSTFILE if plan.load.locust is None else LOCUSTFILE_OF_THE_MASTER
        notice(f"workers   locust --locustfile {file} --worker --master-host {host} --master-port {port}")


def _wait_until_ready(
    load: LoadProcess, folder: Path, interrupts: Interrupts, waiting: Callable[[str], None] | None
) -> None:
    """Wait until the load's processes are ready to start the load; they then only need the endpoints.

    There is no time limit if ``waiting`` is given, because workers are started elsewhere.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    if waiting is not None:
        waiting("waiting for workers")
    while not load.is_ready:
        if load.exit_code is not None or (waiting is None and time.monotonic() > deadline):
            raise TestnetError(f"the load did not start: {_last_line(folder / LOG_FILE)}")
        interrupts.wait(LOOK_S)


def _follow(
    load: LoadProcess,
    follower: ChainFollower,
    looks: list[Look],
    duration_s: int | None,
    interrupts: Interrupts,
    notice: Callable[[str], None] | None,
) -> None:
    begun = told = time.monotonic()
    while load.exit_code is None and (duration_s is None or time.monotonic() - begun < duration_s):
        look = follower.look()
        if look is not None:
            looks[:] = [looks[0] if looks else look, look]
            if notice is not None and time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                notice(
                    f"{told - begun:6.1f} s · height {look.height:,} · {look.transactions:,} transactions final"
                    f" · {look.pending:,} pending · backlog {look.backlog:,}"
                )
        interrupts.wait(LOOK_S)


def _drain(follower: ChainFollower, sends: Sends) -> list[WorkloadLatency]:
    """Wait at most :data:`DRAIN_S` for the sent transactions to become final; returns the latencies."""
    deadline = time.monotonic() + DRAIN_S
    while True:
        look = follower.look()
        latencies = _latencies(follower, sends)
        is_over = not any(each.never_final for each in latencies) or (look is not None and not look.pending)
        if is_over or time.monotonic() > deadline:
            return latencies
        time.sleep(LOOK_S)


def _latencies(follower: ChainFollower, sends: Sends) -> list[WorkloadLatency]:
    """Latencies of the transactions in the samples of both the follower and the senders."""
    bits = follower.chosen_bits
    if bits > sends.chosen_bits:
        sends = sends.model_copy(deep=True)
        sends.choose(bits)
    return latencies_of(sends, follower.final.items())


def show(outcome: Outcome) -> None:
    """Print the results of a load."""
    out, stats = console(), outcome.statistics
    print_line(
        out,
        f"{counted(stats.requests, 'request')}, {counted(stats.failures, 'failure')};"
        f" {stats.transactions_sent:,} transactions sent, {stats.transactions_rejected:,} refused;"
        f" {outcome.rate:,.1f} a second final in {outcome.seconds:.1f} s",
    )
    if times := response_times(stats.timeline):
        print_line(out, f"responses {' · '.join(f'{name} {value:,.1f} ms' for name, value in times.items())}")
    for title, reasons in (("failure", stats.errors), ("refused", stats.rejections)):
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:MAX_REASONS_SHOWN]:
            print_line(out, f"{title:<9} {count:,} × {reason}")
    if outcome.latencies:
        out.print(_latency_table(outcome.latencies))


def _most_frequent(reasons: Mapping[str, int]) -> str:
    """The most frequent of some reasons, with its number; empty if there are none."""
    reason = max(reasons, key=lambda each: reasons[each], default="")
    return reason and f"{reasons[reason]:,} × {reason}"


def _latency_table(latencies: Sequence[WorkloadLatency]) -> Table:
    quantiles = (f"{name} ms" for name in latencies[0].quantiles_ms)
    numbers = ("sent", "late", "skipped", "unsent", "rejected", "never final", *quantiles)
    table = plain_table(("workload", *numbers), right=numbers)
    for each in latencies:
        counts = (each.sent, each.late, each.skipped, each.unsent, each.rejected, each.never_final)
        shown = (f"{count:,}" for count in counts)
        table.add_row(each.workload, *shown, *map(latency_text, each.quantiles_ms.values()))
    return table


def _last_line(log: Path) -> str:
    with suppress(OSError):
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        if lines:
            return lines[-1].strip()
    return "it says nothing"
