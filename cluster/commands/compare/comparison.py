"""The comparison of two runs or two groups of runs: every metric, its change, and whether it is significant.

*Groups* are compared by the metrics of their runs, paired by seed if both have the same seeds. *Two single runs* have
one value per metric, which allows no test. Instead their series by height are compared, in :data:`STRETCHES` ranges of
the same heights, pair by pair. This shows whether these two runs differ beyond their own fluctuations, but not whether
runs with other seeds would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cluster.checks.metrics.metrics import SERIES_EXTREMES
from cluster.commands.compare.groups import ComparedRun, Group, refuse_incomparable, scenario_differences, warnings
from cluster.commands.compare.scenario_diff import FieldDifference
from cluster.commands.compare.statistics import (
    CONFIDENCE,
    FALSE_DISCOVERY_RATE,
    Difference,
    adjusted,
    batch_means,
    compare_independent,
    compare_paired,
    needed,
)
from cluster.common.errors import BadInput
from cluster.common.wording import counted

STRETCHES: Final = 20
MIN_STRETCHES: Final = 6
"""Minimum number of ranges of heights. With fewer, no difference can be significant, so the series is not tested."""
SERIES_PREFIX: Final = "by height: "

LOWER_IS_BETTER: Final = (
    "latency",
    "host_lag",
    "driver_lag",
    "stall",
    "lateness",
    "backlog",
    "interval",
    "failures",
    "rejected",
    "dropped",
    "recovery",
    "startup",
    "memory_max",
    "expired",
    "insufficient",
    "delay_blocks",
    "block_cycles",
    "state_bytes_added",
    "memory_bytes_added",
)
HIGHER_IS_BETTER: Final = ("per_second", "jain", "honest_fires", "user_transactions", "spend")
"""Parts of the names of metrics for which a higher value is better. :data:`LOWER_IS_BETTER` is checked first; metrics
in neither list have no clear direction."""


def worse_direction(name: str) -> int:
    """1 if a higher value of a metric is worse, -1 if a lower one is, 0 if it has no clear direction."""
    if any(part in name for part in LOWER_IS_BETTER):
        return 1
    return -1 if any(part in name for part in HIGHER_IS_BETTER) else 0


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one metric from the first group to the second."""

    name: str
    difference: Difference
    adjusted_p_value: float | None
    """The p-value, adjusted for the number of tested metrics; ``None`` if the metric is not tested."""

    @property
    def is_significant(self) -> bool:
        return self.adjusted_p_value is not None and self.adjusted_p_value <= FALSE_DISCOVERY_RATE

    @property
    def share(self) -> float | None:
        """The change divided by the first group's mean; ``None`` if that mean is zero."""
        first = self.difference.means[0]
        return self.difference.change / abs(first) if first else None

    @property
    def share_interval(self) -> tuple[float, float] | None:
        first = self.difference.means[0]
        low, high = self.difference.change_interval
        return (low / abs(first), high / abs(first)) if first else None

    @property
    def word(self) -> str:
        """The direction of a significant change as a word, such as ``worse``; empty if it is not significant."""
        if not self.is_significant:
            return ""
        grew, worse = self.difference.change > 0, worse_direction(self.name)
        if not worse:
            return "more" if grew else "less"
        return "worse" if grew == (worse > 0) else "better"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison of two groups."""

    first: Group
    second: Group
    changes: tuple[Change, ...]
    """The changes of all metrics: the significant ones first, by p-value, then the others by name."""
    warnings: tuple[str, ...]
    method: str
    scenario_differences: tuple[FieldDifference, ...] = ()
    """Fields in which scenarios of the same name differ."""
    too_few: str = ""
    """Why no single metric can be significant, and how many runs are needed; empty if one can."""
    is_single: bool = False
    """Whether both groups are a single run, so that series by height are compared."""
    is_paired: bool = False
    """Whether runs of the same seed are compared with each other."""

    @property
    def significant(self) -> list[Change]:
        return [change for change in self.changes if change.is_significant]

    @property
    def summary(self) -> str:
        """The significant changes in one line."""
        names = ", ".join(f"{change.name} {change.word}" for change in self.significant)
        return names or (f"nothing can be said: {self.too_few}" if self.too_few else "nothing")

    def page(self) -> dict[str, Any]:
        """The JSON data that ``--json`` writes."""
        return {
            "groups": [
                {"name": group.name, "runs": len(group.runs), "seeds": group.seeds, "commits": group.of("commit")}
                for group in (self.first, self.second)
            ],
            "method": self.method,
            "warnings": list(self.warnings),
            "too_few": self.too_few or None,
            "scenario_differences": [difference.page() for difference in self.scenario_differences],
            "significant": [change.name for change in self.significant],
            "metrics": {change.name: _metric_page(change) for change in self.changes},
        }


def compare(first: Group, second: Group, seed: int) -> Comparison:
    """Compare two groups; ``seed`` determines the resampling. Raises :class:`BadInput`."""
    refuse_incomparable(first, second)
    is_single = len(first.runs) == len(second.runs) == 1
    is_paired = not is_single and first.seeds == second.seeds and len(set(first.seeds)) == len(first.seeds)
    names = sorted(first.metrics & second.metrics)
    if not names:
        raise BadInput("the groups have no metric in common")
    generator = np.random.default_rng(seed)
    tested: dict[str, Difference] = {}
    plain: dict[str, Difference] = {}
    for name in names:
        a, b = first.values(name), second.values(name)
        if is_single:
            plain[name] = compare_independent(a, b, generator)
        elif is_paired and len(a) == len(b) == len(first.runs):
            tested[name] = compare_paired(a, b, generator)
        else:
            tested[name] = compare_independent(a, b, generator)
    if is_single:
        tested = _series_differences(first.runs[0], second.runs[0], generator)
    plain |= {name: found for name, found in tested.items() if found.is_constant}
    tested = {name: found for name, found in tested.items() if not found.is_constant}
    sure = adjusted([difference.p_value for difference in tested.values()])
    changes = [Change(name, found, p) for (name, found), p in zip(tested.items(), sure, strict=True)]
    changes += [Change(name, found, None) for name, found in plain.items()]
    changes.sort(key=_order)
    apart = scenario_differences(first, second)
    too_few = _too_few(list(tested.values()), is_single, is_paired)
    notes = (*warnings(first, second, apart), *filter(None, [too_few]))
    method = _method(is_single, is_paired, len(tested), seed)
    return Comparison(first, second, tuple(changes), notes, method, tuple(apart or ()), too_few, is_single, is_paired)


def least_runs_problem(comparison: Comparison, tested: Sequence[Difference]) -> str:
    """Why none of the metrics ``tested`` together can be significant, and how many runs it needs; empty if one can."""
    return _too_few(tested, comparison.is_single, comparison.is_paired) if tested else ""


def _order(change: Change) -> tuple[bool, float, str]:
    p_value = change.difference.p_value if change.is_significant else 0.0
    return not change.is_significant, p_value, change.name


def _series_differences(
    first: ComparedRun, second: ComparedRun, generator: np.random.Generator
) -> dict[str, Difference]:
    """The differences between the series by height of two runs, over the heights that both have; keyed by name."""
    common = sorted(set(first.series.get("height", ())) & set(second.series.get("height", ())), key=float)  # type: ignore[arg-type]
    found: dict[str, Difference] = {}
    for name in first.series:
        if name == "height" or name.endswith(SERIES_EXTREMES) or name not in second.series:
            continue
        a, b = (dict(zip(run.series.get("height", ()), run.series[name], strict=False)) for run in (first, second))
        known = [height for height in common if a.get(height) is not None and b.get(height) is not None]
        batches = min(STRETCHES, len(known) // 2)
        if batches >= MIN_STRETCHES:
            one, other = ([float(values[height] or 0.0) for height in known] for values in (a, b))
            found[SERIES_PREFIX + name] = compare_paired(*batch_means(one, other, batches), generator)
    return found


def _too_few(tested: Sequence[Difference], is_single: bool, is_paired: bool) -> str:
    """The reason why no single metric can be significant, as text; empty if one can.

    Usually the adjustment for the number of metrics needs a lower p-value than the available runs can give.
    """
    if is_single and not tested:
        return "the runs have too few heights in common for a test: their metrics are only listed"
    if not tested:
        return ""
    most = min(tested, key=lambda difference: difference.least_p_value)
    metrics = counted(len(tested), "metric")
    if most.least_p_value * len(tested) <= FALSE_DISCOVERY_RATE:
        return ""
    wanted = needed(is_single or is_paired, len(tested))
    have = " and ".join(f"{count:,}" for count in most.counts)
    given, more = f"{have} runs", "runs in each group"
    if is_single or is_paired:
        given = more = "ranges of heights" if is_single else "pairs of runs"
        given = f"{most.counts[0]:,} {given}"
    least = f"one metric alone is significant from {wanted:,} {more} on" if wanted else "no number of runs is enough"
    return f"{given} are too few for {metrics} tested at once; {least}"


def _method(is_single: bool, is_paired: bool, tests: int, seed: int) -> str:
    if is_single:
        what = (
            f"Two single runs: the series by height are compared in up to {STRETCHES} ranges of the same heights,"
            " pair by pair; the other metrics are listed without a test. For a claim about anything but these two"
            " runs, compare several seeds."
        )
    elif is_paired:
        what = "Runs of the same seed are compared with each other."
    else:
        what = "The groups' runs are independent samples."
    kind = "signs" if is_single or is_paired else "group labels"
    return (
        f"{what} Intervals are {CONFIDENCE:.0%} percentile bootstrap intervals of means; p-values are those of"
        f" two-sided permutation tests of the difference in means (of {kind}), adjusted for {tests} tests by Benjamini"
        f" and Hochberg; significant are those up to {FALSE_DISCOVERY_RATE:g}. Seed of the resampling: {seed}."
    )


def _metric_page(change: Change) -> dict[str, Any]:
    difference = change.difference
    return {
        "counts": list(difference.counts),
        "means": list(difference.means),
        "intervals": [list(interval) for interval in difference.intervals],
        "change": difference.change,
        "change_interval": list(difference.change_interval),
        "change_share": change.share,
        "p_value": difference.p_value if change.adjusted_p_value is not None else None,
        "adjusted_p_value": change.adjusted_p_value,
        "significant": change.is_significant,
        "word": change.word,
    }
