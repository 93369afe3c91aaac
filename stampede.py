"""Stampede's public Python API: run scenarios from a test suite or a notebook.

    from stampede import load_scenario, run, simulate

    outcome = simulate("scenarios/smoke.yaml", seed=7)
    assert outcome.passed, outcome.explain()

A scenario is a path or a :class:`Scenario`. :func:`simulate` runs it in this process in virtual time, :func:`run` on
the live testnet, writing the run's folder. Both return an :class:`Outcome`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cluster.checks import Check, Verdict, check_run
from cluster.errors import BadInput, HarnessError
from cluster.interrupts import Interrupts
from cluster.record import RunRecord
from cluster.results import checkout_commit, claim_run_folder, new_run_folder
from cluster.running import finish
from cluster.scenario import Scenario, load_scenario
from cluster.simulation.driver import simulate as _simulate

__all__ = ["BadInput", "Check", "HarnessError", "Outcome", "RunRecord", "Scenario", "load_scenario", "run", "simulate"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run's record and what the checks say of it."""

    record: RunRecord
    verdict: Verdict
    folder: Path | None = None
    """Where the run was written, if it was."""

    @property
    def passed(self) -> bool:
        """Whether every check passed; an inconclusive run did not."""
        return self.verdict.exit_code == 0

    def explain(self) -> str:
        """The checks that did not pass, a line each; empty where all did."""
        return "\n".join(f"{c.name}: {c.verdict}: {c.detail}" for c in self.verdict.checks if c.verdict.value != "pass")


def simulate(scenario: Scenario | Path | str, seed: int | None = None) -> Outcome:
    """Run a scenario on the simulator; equal seeds give equal digests. Raises :class:`BadInput`."""
    scenario = _scenario(scenario)
    record = _simulate(scenario, scenario.seed if seed is None else seed, checkout_commit())
    return Outcome(record, check_run(record))


def run(scenario: Scenario | Path | str, seed: int | None = None, out: Path | str | None = None) -> Outcome:
    """Run a scenario on the live testnet and write its folder. Raises :class:`HarnessError`."""
    from cluster.live.driver import run_live

    scenario = _scenario(scenario)
    folder = new_run_folder(scenario.name, datetime.now(UTC)) if out is None else claim_run_folder(Path(out))
    chosen = scenario.seed if seed is None else seed
    with Interrupts() as interrupts:
        record = run_live(scenario, chosen, checkout_commit(), folder, interrupts=interrupts)
        return Outcome(record, finish(record, folder, interrupts), folder)


def _scenario(given: Scenario | Path | str) -> Scenario:
    return given if isinstance(given, Scenario) else load_scenario(Path(given))
