"""Runs a drill: prints its expectations, runs its scenario, and judges the run by the checks and the expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text

from cluster.commands.console.output import console
from cluster.commands.console.outputs import TERMINAL_ONLY, Outputs
from cluster.commands.drills.base import Drill
from cluster.commands.run.scenario_run import PlannedRun, drive, perform_run
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.record.run import Backend, DrillRecord, RunObserver, RunRecord, RunRequest
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario
from cluster.scenario.overrides import Change, options_of


def run_drill(
    drill: Drill,
    backend: Backend,
    seed: int | None = None,
    out: Path | None = None,
    changes: Sequence[Change] = (),
    stop_on_fail: bool = False,
    outputs: Outputs = TERMINAL_ONLY,
) -> ExitCode:
    """Run a drill, show its expectations, progress and verdict, and write its folder. Returns the verdict's exit code.

    ``changes`` apply to the drill's scenario. With ``stop_on_fail`` the first violation of a rule ends the run.
    ``outputs`` are the files that the user wants of the result. Raises :class:`BadInput` if the backend cannot run it.
    """
    if (problem := drill.problem(backend)) is not None:
        raise BadInput(f"drill {drill.name}: {problem}")
    scenario = change_scenario(drill.scenario(), changes, f"drill {drill.name} with {options_of(changes)}")
    if backend == "live" and (problem := scenario.live_problem):
        raise BadInput(f"drill {drill.name}: {problem}")
    chosen = scenario.seed if seed is None else seed
    output = console(quiet=outputs.quiet)
    output.print(Text(f"drill    {drill.name}: {drill.summary}"), soft_wrap=True)
    for expectation in drill.expectations(scenario):
        output.print(Text(f"expected {expectation.name}: {expectation.text}"), soft_wrap=True)

    @contextmanager
    def perform(folder: Path, observer: RunObserver, interrupts: Interrupts) -> Iterator[RunRecord]:
        request = RunRequest(scenario, chosen, checkout_commit(), folder, stop_on_fail)
        with drill.alongside(scenario, folder), drive(request, backend, observer, interrupts) as record:
            changed = (*changes, *_added(scenario, record))
            record.drill = DrillRecord(drill.page(record.scenario, changed), drill.command(changed))
            yield record

    return perform_run(
        PlannedRun(scenario, backend, perform, judge=drill.judge, outputs=outputs), out
    ).verdict.exit_code


def _added(scenario: Scenario, record: RunRecord) -> list[Change]:
    """The faults added during the run (``stampede inject``), as changes of the scenario."""
    ran = record.given or record.scenario
    added = ran.faults[len(scenario.faults) :]
    return [Change("faults[+]", fault.model_dump(mode="json", exclude_unset=True)) for fault in added]
