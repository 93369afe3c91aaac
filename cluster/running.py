"""One run from scenario to verdict, on either backend."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from cluster.checks import Verdict
from cluster.record import Backend, RunRecord, Sample
from cluster.results import (
    REPORT_FILE,
    checkout_commit,
    claim_run_folder,
    finish_run,
    new_run_folder,
    point_latest,
    reproduce_command,
)
from cluster.scenario import Scenario, load_scenario
from cluster.terminal import Progress, print_verdict

OnSample = Callable[[Sample], None]
OnNotice = Callable[[str], None]


def run_scenario(
    scenario_path: Path, backend: Backend = "live", seed: int | None = None, out: Path | None = None
) -> tuple[Verdict, Path]:
    """Run a scenario file, show its progress and its verdict, write its folder.

    Returns the verdict and the folder. ``seed`` overrides the scenario's. Raises
    :class:`~cluster.errors.HarnessError` where nothing could be run.
    """
    scenario = load_scenario(scenario_path)
    seed = scenario.seed if seed is None else seed
    folder = new_run_folder(scenario.name, datetime.now(UTC)) if out is None else claim_run_folder(out)
    console = Console(soft_wrap=False)
    progress = Progress(console, scenario.stop.height, backend)
    try:
        record = drive(scenario, backend, seed, folder, progress.update, progress.notice)
    finally:
        progress.close()
    verdict = finish_run(record, folder, scenario_path)
    try:
        point_latest(folder)
    except OSError as error:
        console.print(f"runs/latest is not set: {error.strerror}", style="yellow")
    print_verdict(console, verdict, folder / REPORT_FILE, reproduce_command(record, folder, scenario_path))
    sys.stdout.flush()
    return verdict, folder


def drive(
    scenario: Scenario, backend: Backend, seed: int, folder: Path, on_sample: OnSample, on_notice: OnNotice
) -> RunRecord:
    """Run a scenario on a backend; ``folder`` gets the logs and, live, the validators' data."""
    commit = checkout_commit()
    if backend == "sim":
        from cluster.simulation.driver import simulate

        return simulate(scenario, seed, commit, on_sample, on_notice)
    from cluster.live.driver import run_live

    return run_live(scenario, seed, commit, folder, on_sample, on_notice)
