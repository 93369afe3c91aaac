"""The gaps between live runs and simulated ones: each metric's means, their intervals, and a verdict on the goal.

The goal is that each metric of :data:`GOALS` differs by at most a share. A gap within it passes. A gap beyond it fails
if its whole interval is beyond, and is inconclusive otherwise: more runs would decide. A metric that is missing is
inconclusive, too. Runs that did not pass their scenario's checks count, and are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cluster.commands.compare.comparison import Change
from cluster.commands.compare.statistics import compare_independent
from cluster.common.outcome import Outcome, worst

GOALS: Final = ("finality_latency_p50_ms", "finality_latency_p95_ms", "fires_per_second")
SHOWN: Final = (
    *GOALS,
    "finality_latency_p99_ms",
    "blocks_per_second",
    "transactions_per_second",
    "lateness_p95_blocks",
    "lane_use_mean_share",
    "load_latency_p50_ms",
    "load_latency_p95_ms",
    "longest_stall_ms",
    "recovery_ms",
    "messages_sent",
)
"""The metrics that are shown, if both backends have them."""
RESAMPLING_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class ScenarioGaps:
    """The gaps of one scenario."""

    scenario: str
    is_fitted: bool
    """Whether the profile was fitted to the scenario's runs."""
    gaps: tuple[Change, ...]
    """The gaps of the metrics of :data:`SHOWN`: from the live runs (first) to the simulated ones."""
    not_passed: tuple[int, int]
    """Live and simulated runs that did not pass."""
    within: float
    """The share by which a metric of :data:`GOALS` may differ."""

    def outcome_of(self, name: str) -> Outcome:
        """The verdict on one metric of :data:`GOALS`."""
        gap = next((each for each in self.gaps if each.name == name), None)
        if gap is None or gap.share is None or gap.share_interval is None:
            return Outcome.INCONCLUSIVE
        if abs(gap.share) <= self.within:
            return Outcome.PASS
        low, high = gap.share_interval
        return Outcome.FAIL if low > self.within or high < -self.within else Outcome.INCONCLUSIVE

    @property
    def outcome(self) -> Outcome:
        """The verdict on the scenario."""
        return worst(map(self.outcome_of, GOALS))

    def page(self) -> dict[str, Any]:
        """The JSON data of the scenario."""
        return {
            "scenario": self.scenario,
            "fitted": self.is_fitted,
            "verdict": self.outcome.value,
            "runs_not_passed": list(self.not_passed),
            "metrics": {gap.name: self._page_of(gap) for gap in self.gaps},
        }

    def _page_of(self, gap: Change) -> dict[str, Any]:
        difference = gap.difference
        return {
            "runs": list(difference.counts),
            "live": difference.means[0],
            "live_interval": list(difference.intervals[0]),
            "simulated": difference.means[1],
            "simulated_interval": list(difference.intervals[1]),
            "gap_share": gap.share,
            "gap_share_interval": None if gap.share_interval is None else list(gap.share_interval),
            "verdict": self.outcome_of(gap.name).value if gap.name in GOALS else None,
        }


def gaps_of(
    scenario: str,
    is_fitted: bool,
    live: Sequence[Mapping[str, float]],
    simulated: Sequence[Mapping[str, float]],
    not_passed: tuple[int, int],
    within: float,
) -> ScenarioGaps:
    """Compare the metrics of live runs with those of simulated runs of a scenario."""
    generator = np.random.default_rng(RESAMPLING_SEED)
    gaps = []
    for name in SHOWN:
        measured, drawn = ([run[name] for run in runs if name in run] for runs in (live, simulated))
        if measured and drawn:
            gaps.append(Change(name, compare_independent(measured, drawn, generator), None))
    return ScenarioGaps(scenario, is_fitted, tuple(gaps), not_passed, within)
