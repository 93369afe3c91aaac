"""The scorecard: for each attack the mean of every metric over seeds, with its interval, and a grade.

A metric without a value for a seed is missing there, and its mean is over the other seeds. The grade of an attack is
the worst grade of its metrics, from their means and the scenario's bounds; a metric without a value has no grade.

Grades say what honest users lose, and a strong attack is an F under every policy. To tell variants apart, each score is
also held against the same attack's on the *reference*, seed by seed: the first variant of ``cip1``, otherwise the first
variant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from cluster.commands.compare.statistics import CONFIDENCE
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome, worst
from cluster.record.folder import SCORECARD_FORMAT
from cluster.scenario.sections.dos import GRADES, MEASURED, METRICS, DosSection, Grade, grade
from kits.market.dos.case_runs import CaseResult
from kits.market.dos.cases import BASELINE, Case, Plan
from kits.market.dos.measures import Effect, measure_attack
from kits.market.estimates import Estimate, by_bootstrap

REFERENCE: Final = "cip1"
SPEND_RATIOS: Final = ("spend_per_block_of_delay", "spend_per_fire_displaced", "spend_ratio")


@dataclass(frozen=True)
class Score:
    """The score of one attack on one variant: its metrics, grades and outcome."""

    attack: str
    effects: dict[int, Effect]
    """Effects keyed by seed, of the seeds whose attacked run and baseline both have measures."""
    dos: DosSection
    problems: tuple[str, ...] = ()
    """Checks that failed and runs that crashed, with their seeds."""
    crashed: bool = False
    """Whether a run crashed."""
    fails: bool = False
    """Whether a check failed."""

    @property
    def recovered(self) -> bool:
        """Whether the chain recovered with every seed."""
        return all(effect.recovered for effect in self.effects.values())

    @property
    def acted(self) -> bool:
        """Whether attackers sent something with every seed."""
        return bool(self.effects) and all(effect.acted for effect in self.effects.values())

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """The means over the seeds that have a value, keyed by metric; metrics without a value are left out."""
        found = {name: [effect.metrics[name] for effect in self.effects.values()] for name in METRICS}
        known = {name: [value for value in values if value is not None] for name, values in found.items()}
        return {name: by_bootstrap(values) for name, values in known.items() if values}

    @cached_property
    def grades(self) -> dict[str, Grade]:
        """The grade of each graded metric with a value. Recovery has the worst grade if a seed did not recover."""
        bounds, metrics = self.dos.bounds, self.metrics
        found = {name: grade(metrics[name].mean, bounds[name]) for name in bounds if name in metrics}
        if "recovery_blocks" in found and not self.recovered:
            found["recovery_blocks"] = GRADES[-1]
        return found

    @property
    def grade(self) -> Grade | None:
        """The worst of the attack's grades; ``None`` if it has none."""
        return max(self.grades.values(), key=GRADES.index, default=None)

    @property
    def is_too_low(self) -> bool:
        """Whether the attack did something, and its grade is below the one that it must reach."""
        grade = self.grade
        return self.acted and grade is not None and GRADES.index(grade) > GRADES.index(self.dos.at_least)

    @property
    def outcome(self) -> Outcome:
        """Fail if a check failed, or the grade is too low; inconclusive if a run crashed, or the attack had no visible
        activity."""
        if self.fails or self.is_too_low:
            return Outcome.FAIL
        return Outcome.PASS if self.acted and self.grades and not self.crashed else Outcome.INCONCLUSIVE

    @property
    def is_free(self) -> bool:
        """Whether the attackers spent nothing."""
        return "spend" in self.metrics and self.metrics["spend"].mean <= 0

    def page(self) -> dict[str, Any]:
        """The score as JSON: the means keyed by metric, then the other fields."""
        found = {name: self.metrics.get(name) for name in METRICS}
        return {
            **{name: each and each.mean for name, each in found.items()},
            "seeds": list(self.effects),
            "grade": self.grade,
            "grades": dict(self.grades),
            "outcome": self.outcome.value,
            "free": self.is_free,
            "acted": self.acted,
            "recovered": self.recovered,
            "problems": list(self.problems),
            "intervals": {name: each and each.interval and list(each.interval) for name, each in found.items()},
            "values": {name: [effect.metrics[name] for effect in self.effects.values()] for name in METRICS},
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
        baseline_fails=any(result.fails for result in baseline.values()),
    )


def _score(plan: Plan, dos: DosSection, results: Mapping[Case, CaseResult], variant: str, attack: str) -> Score | None:
    cases = [Case(variant, attack, seed) for seed in plan.seeds if Case(variant, attack, seed) in results]
    effects: dict[int, Effect] = {}
    for case in cases:
        measures, baseline = results[case].measures, results.get(case._replace(attack=BASELINE))
        if measures is not None and baseline is not None and baseline.measures is not None:
            effects[case.seed] = measure_attack(measures, baseline.measures)
    ran = [results[case] for case in cases]
    problems = _problems(zip(cases, ran, strict=True))
    if not effects and not problems:
        return None
    crashed, fails = any(each.crashed for each in ran), any(each.fails for each in ran)
    return Score(attack, effects, dos, problems, crashed, fails)


def _against(score: Score, usual: Score, dos: DosSection) -> Against:
    """Compare an attack's score with the reference's, in each graded metric that is not measured on a machine."""
    better: list[str] = []
    worse: list[str] = []
    pairs = [
        (effect.metrics, usual.effects[seed].metrics) for seed, effect in score.effects.items() if seed in usual.effects
    ]
    for name, bounds in dos.bounds.items():
        if name in MEASURED:
            continue
        known = [(mine[name], theirs[name]) for mine, theirs in pairs]
        changes = [mine - theirs for mine, theirs in known if mine is not None and theirs is not None]
        if not changes:
            continue
        change = by_bootstrap(changes)
        low, high = change.interval or (change.mean, change.mean)
        if low > 0 or high < 0:
            is_worse = (low > 0) is (bounds[0] < bounds[-1])
            (worse if is_worse else better).append(name)
    return Against(tuple(better), tuple(worse))


def _problems(results: Iterable[tuple[Case, CaseResult]]) -> tuple[str, ...]:
    return tuple(
        f"{case.variant}, {case.attack or 'no attack'}, seed {case.seed}: {result.problem}"
        for case, result in results
        if result.problem
    )
