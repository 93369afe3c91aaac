"""Output of a calibration: the tables of gaps, the JSON page, and the file of the profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cluster.commands.compare.comparison import Change
from cluster.commands.compare.statistics import Interval
from cluster.commands.console.output import plain_table, print_line
from cluster.common.outcome import Outcome
from cluster.common.strict_yaml import dump
from cluster.report.svg import number
from cluster.scenario.sections.measurements.profile import ProfileSection
from kits.measure.calibrate.gaps import GOALS, ScenarioGaps

LINE_WIDTH: Final = 120
STYLES: Final = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INCONCLUSIVE: "yellow"}


def print_gaps(console: Any, found: ScenarioGaps) -> None:
    """Print the table of a scenario's gaps; the metrics with a goal come first and have a verdict."""
    origin = "the profile is fitted to these runs" if found.is_fitted else "not used to fit"
    print_line(console, f"{found.scenario}  ({origin})")
    numbers = ("live", "live interval", "simulated", "simulated interval", "gap", "gap interval")
    table = plain_table(("metric", *numbers, "goal"), right=numbers, folded=())
    for gap in found.gaps:
        outcome = found.outcome_of(gap.name) if gap.name in GOALS else None
        table.add_row(
            *cells(gap), "" if outcome is None else outcome.value, style=STYLES[outcome] if outcome else "dim"
        )
    console.print(table)
    for name in GOALS:
        if name not in [gap.name for gap in found.gaps]:
            print_line(console, f"{name}  not measured: inconclusive")
    if any(found.not_passed):
        live, simulated = found.not_passed
        print_line(
            console, f"note  not all runs passed their checks: {live:,} live and {simulated:,} simulated did not"
        )


def cells(gap: Change) -> tuple[str, ...]:
    """The texts of a row: name, both means and intervals, the gap in percent and its interval."""
    difference, share, interval = gap.difference, gap.share, gap.share_interval
    (live, simulated), (of_live, of_simulated) = difference.means, difference.intervals
    percent = "–" if share is None else f"{100 * share:+.1f} %"
    around = "–" if interval is None else f"{100 * interval[0]:+.1f} … {100 * interval[1]:+.1f} %"
    return gap.name, number(live), _range(of_live), number(simulated), _range(of_simulated), percent, around


def _range(interval: Interval) -> str:
    low, high = (number(end) for end in interval)
    return low if low == high else f"{low} … {high}"


def calibration_page(found: Sequence[ScenarioGaps], profile: ProfileSection, outcome: Outcome) -> dict[str, Any]:
    """The calibration as JSON."""
    return {
        "verdict": outcome.value,
        "within_share": found[0].within,
        "scenarios": [each.page() for each in found],
        "profile": profile.model_dump(),
    }


def profile_text(profile: ProfileSection, origin: str) -> str:
    """The text of a profile's file; ``origin`` is one line on where it comes from."""
    fields = dump(profile.model_dump(), default_flow_style=None, width=LINE_WIDTH)
    return f"# {origin}\n{fields}"
