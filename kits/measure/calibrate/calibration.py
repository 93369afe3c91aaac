"""Calibrates the simulator: live runs of a scenario, a profile fitted to them, and the gaps of the simulated runs.

Live runs are interleaved: each round runs the scenario and every scenario to check once, so that a machine whose other
load changes during the calibration disturbs all alike. A round has its own seed, and the simulator runs the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster.checks.kind import Judged
from cluster.checks.run import judge_run
from cluster.commands.run.ending import finish
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput
from cluster.common.interrupts import Interrupts
from cluster.common.limits import MAX_SEED
from cluster.common.outcome import Outcome
from cluster.record.run import RunObserver, RunRequest
from cluster.scenario import Scenario
from cluster.scenario.sections.measurements.profile import ProfileSection
from cluster.watches.live.audited_testnet import live_testnet
from cluster.watches.watched_simulation import simulate
from kits.measure.calibrate.fit import fit
from kits.measure.calibrate.gaps import ScenarioGaps, gaps_of
from kits.measure.calibrate.observed import Observed, observed_in

Tell = Callable[[str], None]


@dataclass(slots=True)
class Series:
    """The runs of one scenario."""

    scenario: Scenario
    live: list[dict[str, float]] = field(default_factory=list)
    """The metrics of each live run."""
    simulated: list[dict[str, float]] = field(default_factory=list)
    live_not_passed: int = 0
    simulated_not_passed: int = 0

    def add_live(self, judged: Judged) -> None:
        self.live.append(judged.metrics)
        self.live_not_passed += judged.verdict.outcome is not Outcome.PASS

    def add_simulated(self, judged: Judged) -> None:
        self.simulated.append(judged.metrics)
        self.simulated_not_passed += judged.verdict.outcome is not Outcome.PASS

    def gaps(self, is_fitted: bool, within: float) -> ScenarioGaps:
        """The gaps between the live runs and the simulated ones."""
        not_passed = self.live_not_passed, self.simulated_not_passed
        return gaps_of(self.scenario.name, is_fitted, self.live, self.simulated, not_passed, within)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The result of a calibration."""

    profile: ProfileSection
    gaps: list[ScenarioGaps]
    """The gaps of each scenario, the fitted one first."""


def check_scenarios(scenarios: Sequence[Scenario]) -> None:
    """Raise :class:`BadInput` for a scenario that does not run on both backends, and for one that is named twice."""
    for place, scenario in enumerate(scenarios):
        if problem := scenario.live_problem or scenario.simulator_problem:
            raise BadInput(f"{scenario.name}: {problem}")
        if scenario.name in [other.name for other in scenarios[:place]]:
            raise BadInput(f"{scenario.name}: is named twice; expected scenarios with different names")


def calibrate(
    scenarios: Sequence[Scenario], runs: int, within: float, processors: int, folder: Path, tell: Tell
) -> Calibrated:
    """Run the scenarios live, fit a profile to the runs of the first one, and simulate all of them with it.

    ``within`` is the share by which a metric may differ; ``folder`` gets a folder for each live run. Raises
    :class:`~cluster.common.errors.HarnessError`, and :class:`KeyboardInterrupt` after a signal.
    """
    series, observed = [Series(scenario) for scenario in scenarios], Observed()
    for number in range(runs):
        for each in series:
            tell(f"live run {number + 1} of {runs}: {each.scenario.name}")
            judged, seen = _run_live(each.scenario, number, folder)
            each.add_live(judged)
            if each is series[0]:
                observed.add(seen)
    profile = fit(observed, processors)
    for each in series:
        tell(f"simulating {each.scenario.name}")
        for number in range(runs):
            each.add_simulated(_simulate(each.scenario, profile, number))
    return Calibrated(profile, [each.gaps(each is series[0], within) for each in series])


def _seed(scenario: Scenario, number: int) -> int:
    return (scenario.seed + number) % (MAX_SEED + 1)


def _run_live(scenario: Scenario, number: int, folder: Path) -> tuple[Judged, Observed]:
    """Perform a live run, and write its folder. Returns the judged run and its measurements."""
    place = folder / f"{scenario.name}-{number + 1}"
    place.mkdir()
    request = RunRequest(scenario, _seed(scenario, number), checkout_commit(), place, takes_timings=True)
    with Interrupts() as interrupts:
        with live_testnet(request, RunObserver(), interrupts) as record:
            pass
        judged = finish(record, place, interrupts)
    if record.interrupted:
        raise KeyboardInterrupt
    firing = next((height for height, fires in enumerate(judged.books.ledger.blocks.fires, 1) if fires), None)
    return judged, observed_in(record, firing)


def _simulate(scenario: Scenario, profile: ProfileSection, number: int) -> Judged:
    measured = scenario.model_copy(update={"profile": profile})
    return judge_run(simulate(measured, _seed(scenario, number), checkout_commit(), shortcuts=True))
