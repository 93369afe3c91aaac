"""Performs one run from scenario to verdict, in the simulator or as a live testnet.

Signals are deferred while the run's folder exists and is incomplete (:class:`~cluster.common.interrupts.Interrupts`).
They end the run or the collection of its data, but never the checks, the writing or the clean-up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Console

from cluster.commands.console.crashes import crash_kept
from cluster.commands.console.outputs import TERMINAL_ONLY, Outputs
from cluster.commands.console.terminal import Progress
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode, HarnessError
from cluster.common.files import all_tried
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.common.plugins import TRACERS, expect_function, load_named
from cluster.live.handover import handover
from cluster.live.processes.driver_lock import driving
from cluster.live.web.addresses import ON_THE_LOOPBACK, Served
from cluster.record.folder import ENDPOINTS_FILE, REPORT_FILE, point_latest, run_folder
from cluster.record.run import Backend, RunObserver, RunRecord, RunRequest, Step
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, find_scenario, load_scenario
from cluster.scenario.overrides import Change, parse_setting
from validator.chain.genesis import GenesisError
from validator.policies.own import PolicyError
from validator.primitives.types import ValidatorError

if TYPE_CHECKING:
    from cluster.audit.figures import Failure
    from cluster.checks.kind import Judged
    from cluster.checks.run import Judge
    from cluster.record.archive import BlockRecord

STOP_HEIGHT: Final = "stop.height"
STOP_DURATION: Final = "stop.duration_s"

Perform = Callable[[Path, RunObserver, Interrupts], AbstractContextManager[RunRecord]]
"""Function that performs a run, called as ``perform(folder, observer, interrupts)``. The context that it returns gives
the run's record; leaving the context stops the testnet."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Options that have an effect only in live runs."""

    keep: bool = False
    """Whether the testnet of a run that does not pass stays up, idle, until a signal."""
    run_until_stopped: bool = False
    """Whether the run ends at a signal or a stop request, not at the scenario's stop height or time."""
    served: Served = ON_THE_LOOPBACK
    faucet: bool = False
    """Whether to add a faucet if the scenario has none."""
    lease_s: float | None = None
    """Time in seconds for which the testnet continues if its driver dies, so that another driver can take the run over.
    ``None`` if it ends with the driver."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that is still to be performed: its scenario and backend, and how to perform and judge it."""

    scenario: Scenario
    backend: Backend
    perform: Perform
    source: Path | None = None
    """Path of the scenario's file; ``None`` if the scenario differs from every file."""
    live: LiveOptions = LiveOptions()
    judge: Judge | None = None
    """Function that adds the checks of a drill to the verdict; ``None`` if the run is no drill."""
    outputs: Outputs = TERMINAL_ONLY
    is_again: bool = False
    """Whether the run was judged before: its record stays as it is, and ``runs/latest`` does not point at it."""


def run_scenario(
    scenario_path: Path,
    backend: Backend = "live",
    seed: int | None = None,
    out: Path | None = None,
    twice: bool = False,
    changes: Sequence[Change] = (),
    live: LiveOptions = LiveOptions(),
    stop_on_fail: bool = False,
    duration_s: int | None = None,
    outputs: Outputs = TERMINAL_ONLY,
) -> ExitCode:
    """Run a scenario file, show the run's progress and verdict, write its folder. Returns the verdict's exit code.

    ``seed`` overrides the scenario's seed. With ``twice`` the simulator runs the scenario twice and compares every
    event. ``changes`` are applied to the scenario, and the run's folder has the changed scenario. With ``stop_on_fail``
    the run ends at the first violation of a rule that is seen during the run. With ``duration_s`` the load stops after
    that time instead of at the scenario's stop height. ``outputs`` are the files that the user wants of the result.
    Raises :class:`~cluster.common.errors.HarnessError` if the scenario cannot be run, or if the two runs differ.
    """
    if live.keep and backend != "live":
        raise BadInput("--keep needs --backend live")
    if live.lease_s is not None and backend != "live":
        raise BadInput("--attachable needs --backend live: a simulation is repeated instead")
    if live.served != ON_THE_LOOPBACK and backend != "live":
        option = "--bind" if live.served.bind != ON_THE_LOOPBACK.bind else "--port"
        raise BadInput(f"{option} needs --backend live: the simulator does not listen")
    if live.served.tells_dashboard and backend != "live":
        raise BadInput("--dashboard needs --backend live: a simulation has none")
    if twice and backend != "sim":
        raise BadInput("--check-determinism needs --backend sim: live runs do not repeat")
    if twice and outputs.collector is not None:
        raise BadInput("--otlp: not with --check-determinism, which runs twice")
    if twice and stop_on_fail:
        raise BadInput("--stop-on-fail: not with --check-determinism, which compares whole runs")
    scenario_path = find_scenario(scenario_path)
    scenario, changes = changed_scenario(scenario_path, changes, backend, duration_s, live.faucet)
    chosen = scenario.seed if seed is None else seed

    def perform(folder: Path, observer: RunObserver, interrupts: Interrupts) -> AbstractContextManager[RunRecord]:
        request = RunRequest(scenario, chosen, checkout_commit(), folder, stop_on_fail, live.lease_s)
        return drive(request, backend, observer, interrupts, twice=twice, live=live)

    planned = PlannedRun(scenario, backend, perform, None if changes else scenario_path, live, outputs=outputs)
    return perform_run(planned, out).verdict.exit_code


def changed_scenario(
    path: Path, changes: Sequence[Change], backend: Backend, duration_s: int | None = None, faucet: bool = False
) -> tuple[Scenario, Sequence[Change]]:
    """Load a scenario file and apply the changes of all options; returns the scenario and these changes.

    Raises :class:`BadInput` for a wrong file or change, and for a scenario that the backend cannot run.
    """
    scenario = load_scenario(path, changes)
    if duration_s is not None:
        asked = _lasting(duration_s, changes)
        scenario, changes = change_scenario(scenario, asked, f"{path} with --for"), [*changes, *asked]
    if faucet and scenario.chain.faucet is None:
        asked = [parse_setting("chain.faucet={}")]
        scenario, changes = change_scenario(scenario, asked, f"{path} with a faucet"), [*changes, *asked]
    problem = scenario.live_problem if backend == "live" else scenario.simulator_problem
    if problem:
        raise BadInput(f"{path}: {problem}")
    return scenario, changes


def perform_run(planned: PlannedRun, out: Path | None) -> Judged:
    """Perform a run, show its progress and its verdict, write its folder. Returns the judged run."""
    with (
        Interrupts() as interrupts,
        run_folder(out, planned.scenario.name) as folder,
        nullcontext() if planned.live.lease_s is None else driving(folder),
    ):
        return run_in(planned, folder, interrupts)


def run_in(planned: PlannedRun, folder: Path, interrupts: Interrupts) -> Judged:
    """Perform a run in a given folder, show its progress and verdict, write the folder and the outputs.

    Returns the judged run.
    """
    scenario, source, live, outputs = planned.scenario, planned.source, planned.live, planned.outputs
    known = _Known(folder, interrupts, planned.judge)
    with crash_kept(folder, known.keep), ExitStack() as testnet, ExitStack() as tracing:
        console = Console()
        progress = Progress(
            Console(quiet=outputs.quiet), _known_end(scenario, live), planned.backend, scenario.validators.names
        )
        observer = RunObserver(progress.update, progress.notice, on_begin=known.begin)
        with _one_line_failures(folder):
            try:
                tracer = tracing.enter_context(_tracing(planned, folder))
                if tracer is not None:
                    observer = replace(observer, on_step=tracer.on_step, on_look=tracer.on_look)
                record = testnet.enter_context(planned.perform(folder, observer, interrupts))
                if not live.keep:
                    testnet.close()
            finally:
                progress.close()
            known.is_driven = True
            from cluster.commands.run import ending  # checks and report, for which no testnet waits
            from cluster.report import results, run_index

            if record.scenario.faults != scenario.faults:
                source = None  # faults were added during the run
            judged = ending.finish(record, folder, interrupts, source, planned.judge, planned.is_again)
            handover.finish(folder)
        try:
            if not planned.is_again:
                point_latest(folder)
            run_index.refresh_index(folder)
        except OSError as error:
            console.print(f"runs/ is not up to date: {error.strerror}", style="yellow")
        report = folder / REPORT_FILE
        reproduce = results.reproduce_command(record, folder, source)
        ending.print_verdict(console, judged.verdict, report if report.exists() else None, reproduce, outputs.quiet)
        with all_tried() as trying:
            with trying():
                outputs.write(ending.ending_of(judged, reproduce, datetime.now(UTC)))
            if tracer is not None:
                books = judged.books
                ending.print_traces(console, *tracer.finish(books.record, books.chain, books.reasons), outputs.quiet)
            if live.keep and judged.verdict.outcome is not Outcome.PASS and not record.interrupted:
                ending.print_kept(console, folder / ENDPOINTS_FILE)
                interrupts.wait_for_one()
    return judged


@dataclass(slots=True)
class _Known:
    """What is known of a run, to be kept if an exception ends it that was not expected."""

    folder: Path
    interrupts: Interrupts
    judge: Judge | None
    record: RunRecord | None = None
    is_driven: bool = False
    """Whether the driver has done its part: what crashes later are the checks, or what writes their results."""

    def begin(self, record: RunRecord) -> None:
        self.record = record

    def keep(self, reason: str) -> None:
        """Judge what the driver collected. What cannot be judged is written without a verdict."""
        if self.record is None:
            return
        from cluster.commands.run import ending
        from cluster.report import results, run_index

        try:
            if not self.is_driven and self.record.validators:
                ending.finish(self.record, self.folder, self.interrupts, judge=self.judge)
        finally:
            results.leave_unjudged(self.record, self.folder, f"the harness crashed: {reason}")
        point_latest(self.folder)
        run_index.refresh_index(self.folder)


class Tracer(Protocol):
    """Observes one run, and exports what it saw of it."""

    def on_step(self, step: Step) -> None: ...

    def on_look(self, record: RunRecord) -> None: ...

    def finish(
        self, record: RunRecord, chain: Sequence[BlockRecord], reasons: Mapping[Failure, str]
    ) -> tuple[str, bool]:
        """Export the rest of a run that is over. Returns what was exported in words, and whether that was all."""
        ...

    def close(self) -> None: ...


@contextmanager
def _tracing(planned: PlannedRun, folder: Path) -> Iterator[Tracer | None]:
    """The tracer of a run, if its spans are wanted, until the context ends. Raises :class:`BadInput`."""
    collector = planned.outputs.collector
    if collector is None:
        yield None
        return
    tracer: Tracer | None = load_named(TRACERS, "otlp", expect_function, purpose="--otlp", kit="tracing")(
        collector, folder, planned.scenario, planned.backend
    )
    try:
        yield tracer
    finally:
        if tracer is not None:
            tracer.close()


def drive(
    request: RunRequest,
    backend: Backend,
    observer: RunObserver,
    interrupts: Interrupts,
    twice: bool = False,
    live: LiveOptions = LiveOptions(),
) -> AbstractContextManager[RunRecord]:
    """Perform a run on a backend; returns a context manager that gives the run's record.

    A live testnet stays up, idle, until the context ends.
    """
    what, watch = (request.scenario, request.seed, request.commit), (observer.on_sample, observer.on_notice)
    if twice:
        from cluster.watches.determinism import simulate_twice

        return nullcontext(simulate_twice(*what, *watch, interrupts.checkpoint, observer.on_begin))
    if backend == "sim":
        from cluster.watches.watched_simulation import simulate

        more = (interrupts.checkpoint, request.stop_on_fail)
        return nullcontext(simulate(*what, *watch, *more, on_step=observer.on_step, on_begin=observer.on_begin))
    from cluster.watches.live.audited_testnet import live_testnet

    stopping = threading.Event() if live.run_until_stopped else None
    return live_testnet(request, observer, interrupts, stopping, live.served)


def _lasting(duration_s: int, changes: Sequence[Change]) -> list[Change]:
    """The change that sets a run's duration. Raises :class:`BadInput` if ``changes`` set the run's end, too."""
    for change in changes:
        if change.path in ("stop", STOP_HEIGHT, STOP_DURATION):
            raise BadInput(f"--for: not with --set or --unset of {change.path}, which says when the load stops, too")
    return [parse_setting(f"{STOP_DURATION}={duration_s}")]


def _known_end(scenario: Scenario, live: LiveOptions) -> int | None:
    """The height at which the load will stop; ``None`` if it is not known."""
    is_timed = live.run_until_stopped or scenario.stop.duration_s is not None
    return None if is_timed else scenario.stop.height


@contextmanager
def _one_line_failures(folder: Path) -> Iterator[None]:
    """Turn expected failures into harness errors."""
    try:
        yield
    except GenesisError as error:
        raise BadInput(f"the genesis cannot be built: {error}") from error
    except PolicyError as error:
        raise BadInput(str(error)) from None
    except ValidatorError as error:
        raise HarnessError(f"the run crashed: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise HarnessError(f"{error.filename or folder}: {error.strerror or error}") from error
