"""The scorecard: for each attack the mean of every metric over seeds, with its interval, and a grade.

A metric without a value for a seed is missing there, and its mean is over the other seeds. The grade of an attack is
the worst grade of its metrics, from their means and the scenario's bounds; a metric without a value has no grade.

Grades say what honest users lose, and a strong attack is an F under every policy. To tell variants apart, each score is
also held against the same attack's on the *reference*, seed by seed: the first variant of ``cip1``, otherwise the first
variant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, Final

import numpy as np

from cluster.commands.compare.statistics import CONFIDENCE, mean_interval
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome, worst
from cluster.record.folder import SCORECARD_FORMAT
from cluster.scenario.sections.dos import GRADES, MEASURED, METRICS, DosSection, Grade, grade
from kits.market.dos.case_runs import CaseResult
from kits.market.dos.cases import BASELINE, Case, Plan
from kits.market.dos.measures import AttackMeasures, measure_attack

RESAMPLING_SEED: Final = 1
REFERENCE: Final = "cip1"
SPEND_RATIOS: Final = ("spend_per_block_of_delay", "spend_per_fire_displaced", "spend_ratio")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric's values over seeds, with their mean and its confidence interval."""

    values: tuple[float | None, ...]
    """The metric's value for each seed, in the order of the seeds; ``None`` where it has none."""
    mean: float | None
    interval: tuple[float, float] | None
    """Confidence interval of the mean; ``None`` if there are fewer than two values."""

    @staticmethod
    def of(values: Sequence[float | None]) -> Estimate:
        known = [value for value in values if value is not None]
        if not known:
            return Estimate(tuple(values), None, None)
        if len(known) == 1:
            return Estimate(tuple(values), known[0], None)
        if len(set(known)) == 1:
            return Estimate(tuple(values), known[0], (known[0], known[0]))
        interval = mean_interval(known, np.random.default_rng(RESAMPLING_SEED))
        return Estimate(tuple(values), fmean(known), interval)


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one attack on one variant: its metrics, grades and outcome."""

    attack: str
    seeds: tuple[int, ...]
    """Seeds whose attacked run and baseline both have measures."""
    metrics: dict[str, Estimate]
    recovered: bool
    """Whether the chain recovered with every seed."""
    acted: bool
    """Whether attackers sent something with every seed."""
    grades: dict[str, Grade]
    """Grades keyed by metric, for each graded metric with a value."""
    problems: tuple[str, ...]
    """Checks that failed and runs that crashed, with their seeds."""
    outcome: Outcome
    """Fail if a check failed, or the grade is too low; inconclusive if a run crashed, or the attack had no visible
    activity."""

    @property
    def grade(self) -> Grade | None:
        """The worst of the attack's grades; ``None`` if it has none."""
        return max(self.grades.values(), key=GRADES.index, default=None)

    def by_seed(self, name: str) -> dict[int, float]:
        """A metric's values, keyed by seed; seeds without a value are left out."""
        values = zip(self.seeds, self.metrics[name].values, strict=True)
        return {seed: value for seed, value in values if value is not None}

    @property
    def is_free(self) -> bool:
        """Whether the attackers spent nothing."""
        spend = self.metrics["spend"].mean
        return spend is not None and spend <= 0

    def page(self) -> dict[str, Any]:
        """The score as JSON: the means keyed by metric, then the other fields."""
        return {
            **{name: estimate.mean for name, estimate in self.metrics.items()},
            "seeds": list(self.seeds),
            "grade": self.grade,
            "grades": dict(self.grades),
            "outcome": self.outcome.value,
            "free": self.is_free,
            "acted": self.acted,
            "recovered": self.recovered,
            "problems": list(self.problems),
            "intervals": {name: _listed(estimate.interval) for name, estimate in self.metrics.items()},
            "values": {name: list(estimate.values) for name, estimate in self.metrics.items()},
        }


@dataclass(frozen=True, slots=True)
class Against:
    """The graded metrics in which an attack does less harm (``better``) or more (``worse``) on a variant than on the
    reference: the 95 % interval of the difference, paired by seed, excludes 0. With one seed any difference counts."""

    better: tuple[str, ...]
    worse: tuple[str, ...]


@dataclass(frozen=True)
class Scorecard:
    """The scores of all attacks on all variants."""

    plan: Plan
    dos: DosSection
    commit: str
    scores: dict[str, tuple[Score, ...]]
    """Scores keyed by variant, each in the order of the attacks."""
    baseline_problems: tuple[str, ...] = ()
    """Checks that failed in runs without an attack, and such runs that crashed, as text."""
    interrupted: bool = False
    crashed: bool = False
    """Whether a run crashed."""
    baseline_fails: bool = False
    """Whether a check failed in a run without an attack."""

    @property
    def problems(self) -> list[str]:
        """Checks that failed and runs that crashed, those without an attack first, as text."""
        attacked = [problem for scores in self.scores.values() for score in scores for problem in score.problems]
        return [*self.baseline_problems, *attacked]

    @property
    def reference(self) -> str:
        """The variant that all others are held against."""
        variants = self.plan.variants
        return next((each for each in variants if each.split()[0] == REFERENCE), variants[0])

    @cached_property
    def against(self) -> dict[tuple[str, str], Against]:
        """The scores of each variant but the reference against the reference's, keyed by variant and attack."""
        usual = {score.attack: score for score in self.scores.get(self.reference, ())}
        return {
            (variant, score.attack): _against(score, usual[score.attack], self.dos)
            for variant, scores in self.scores.items()
            for score in scores
            if variant != self.reference and score.attack in usual
        }

    @property
    def outcome(self) -> Outcome:
        found = [score.outcome for scores in self.scores.values() for score in scores]
        if self.baseline_fails:
            found.append(Outcome.FAIL)
        if self.interrupted or self.crashed or not found:
            found.append(Outcome.INCONCLUSIVE)
        return worst(found)

    @property
    def exit_code(self) -> ExitCode:
        if self.crashed and self.outcome is not Outcome.FAIL:
            return ExitCode.CRASH
        return ExitCode[self.outcome.name]

    def page(self) -> dict[str, Any]:
        """The JSON that ``--json`` writes; ``attacks`` are those of the first variant."""
        by_variant = {
            variant: {score.attack: {**score.page(), "against": self._against_page(variant, score)} for score in scores}
            for variant, scores in self.scores.items()
        }
        return {
            "format": SCORECARD_FORMAT,
            "scenario": self.plan.name,
            "backend": self.plan.backend,
            "commit": self.commit,
            "seeds": list(self.plan.seeds),
            "window": list(self.plan.window),
            "variant": self.plan.variants[0],
            "reference": self.reference,
            "attacks": by_variant.get(self.plan.variants[0], {}),
            "variants": by_variant,
            "bounds": {name: list(bounds) for name, bounds in self.dos.bounds.items()},
            "at_least": self.dos.at_least,
            "confidence": CONFIDENCE,
            "problems": list(self.baseline_problems),
            "interrupted": self.interrupted,
            "outcome": self.outcome.value,
        }

    def _against_page(self, variant: str, score: Score) -> dict[str, list[str]] | None:
        found = self.against.get((variant, score.attack))
        return None if found is None else {"better": list(found.better), "worse": list(found.worse)}


def make_scorecard(
    plan: Plan, dos: DosSection, results: Mapping[Case, CaseResult], commit: str, interrupted: bool = False
) -> Scorecard:
    """The scorecard of the runs that ended. Seeds without a baseline are left out."""
    scores: dict[str, tuple[Score, ...]] = {}
    for variant in plan.variants:
        found = [_score(plan, dos, results, variant, attack) for attack in plan.attacks]
        scores[variant] = tuple(score for score in found if score is not None)
    baseline = {case: result for case, result in results.items() if case.attack == BASELINE}
    return Scorecard(
        plan,
        dos,
        commit,
        scores,
        _problems(baseline.items()),
        interrupted,
        crashed=any(result.crashed for result in results.values()),
        baseline_fails=any(result.problem and not result.crashed for result in baseline.values()),
    )


def _score(plan: Plan, dos: DosSection, results: Mapping[Case, CaseResult], variant: str, attack: str) -> Score | None:
    cases = [Case(variant, attack, seed) for seed in plan.seeds if Case(variant, attack, seed) in results]
    rows: list[dict[str, Any]] = []
    for case in cases:
        result, baseline = results[case], results.get(case._replace(attack=BASELINE))
        if result.measures is not None and baseline is not None and baseline.measures is not None:
            rows.append(
                _row(measure_attack(result.measures, baseline.measures), result, baseline) | {"seed": case.seed}
            )
    if not rows and not any(results[case].problem for case in cases):
        return None
    metrics = {name: Estimate.of([row[name] for row in rows]) for name in METRICS}
    problems = _problems((case, results[case]) for case in cases)
    recovered = all(row["recovered"] for row in rows)
    acted = bool(rows) and all(row["acted"] for row in rows)
    grades = _grades(dos, metrics, recovered)
    seeds = tuple(row["seed"] for row in rows)
    outcome = _outcome(dos, grades, [results[case] for case in cases], acted)
    return Score(attack, seeds, metrics, recovered, acted, grades, problems, outcome)


def _row(measured: AttackMeasures, result: CaseResult, baseline: CaseResult) -> dict[str, Any]:
    """The metrics of one seed, keyed by name."""
    row = asdict(measured)
    row["pool_transactions_added"] = result.pool_transactions - baseline.pool_transactions
    row["acted"] = measured.acted or result.attackers_sent > 0
    return row


def _grades(dos: DosSection, metrics: Mapping[str, Estimate], recovered: bool) -> dict[str, Grade]:
    """The grade of each graded metric with a value. Recovery has the worst grade if a seed did not recover."""
    found: dict[str, Grade] = {}
    for name, bounds in dos.bounds.items():
        mean = metrics[name].mean
        if mean is not None:
            found[name] = GRADES[-1] if name == "recovery_blocks" and not recovered else grade(mean, bounds)
    return found


def _against(score: Score, usual: Score, dos: DosSection) -> Against:
    """Compare an attack's score with the reference's, in each graded metric that is not measured on a machine."""
    better: list[str] = []
    worse: list[str] = []
    for name, bounds in dos.bounds.items():
        if name in MEASURED:
            continue
        mine, theirs = score.by_seed(name), usual.by_seed(name)
        changes = [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
        ends = Estimate.of(changes).interval or tuple(changes)
        if ends and (min(ends) > 0 or max(ends) < 0):
            is_worse = (min(ends) > 0) is (bounds[0] < bounds[-1])
            (worse if is_worse else better).append(name)
    return Against(tuple(better), tuple(worse))


def _outcome(dos: DosSection, grades: Mapping[str, Grade], results: Sequence[CaseResult], acted: bool) -> Outcome:
    is_too_low = any(GRADES.index(each) > GRADES.index(dos.at_least) for each in grades.values())
    has_crashed = any(result.crashed for result in results)
    if any(result.problem and not result.crashed for result in results) or (acted and is_too_low):
        return Outcome.FAIL
    return Outcome.PASS if acted and grades and not has_crashed else Outcome.INCONCLUSIVE


def _problems(results: Iterable[tuple[Case, CaseResult]]) -> tuple[str, ...]:
    return tuple(
        f"{case.variant}, {case.attack or 'no attack'}, seed {case.seed}: {result.problem}"
        for case, result in results
        if result.problem
    )


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)
