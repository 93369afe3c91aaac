"""The scorecard: for each attack the mean of every metric over seeds, with its interval, and a grade.

A metric without a value for a seed is missing there, and its mean is over the other seeds. The grade of an attack is
the worst grade of its metrics, from their means and the scenario's bounds; a metric without a value has no grade.

Grades say what honest users lose, and a strong attack is an F under every policy. To tell variants apart, each score is
also held against the same attack's on the *reference*, seed by seed: the first variant of ``cip1``, otherwise the first
variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from cluster.commands.compare.statistics import CONFIDENCE
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome, worst
from cluster.record.folder import SCORECARD_FORMAT
from kits.market.dos.case_runs import CaseResult
from kits.market.dos.cases import BASELINE, Plan
from kits.market.dos.measures import MEASURED, METRICS, Effect, measure_attack
from kits.market.dos.section import GRADES, DosSection, Grade, grade
from kits.market.estimates import Cell, Estimate, Results, by_bootstrap
from kits.market.trials import Trial

REFERENCE: Final = "cip1"
SPEND_RATIOS: Final = ("spend_per_block_of_delay", "spend_per_fire_displaced", "spend_ratio")


@dataclass(frozen=True)
class Score:
    """The score of one attack on one variant: its metrics, grades and outcome."""

    variant: str
    attack: str
    dos: DosSection
    ran: Mapping[int, CaseResult]
    """Results keyed by seed, of the runs that ended."""
    usual: Mapping[int, CaseResult]
    """The same without the attack."""

    @cached_property
    def effects(self) -> dict[int, Effect]:
        """Effects keyed by seed, of the seeds whose attacked run and baseline both have measures."""
        pairs = {seed: (self.ran[seed].measures, self.usual[seed].measures) for seed in self.ran if seed in self.usual}
        return {seed: measure_attack(run, usual) for seed, (run, usual) in pairs.items() if run and usual}

    @property
    def problems(self) -> list[str]:
        """Checks that failed and runs that crashed, with their seeds."""
        where = f"{self.variant}, {self.attack or 'no attack'}"
        return [f"{where}, seed {seed}: {result.problem}" for seed, result in self.ran.items() if result.problem]

    @property
    def crashed(self) -> bool:
        """Whether a run crashed."""
        return any(result.crashed for result in self.ran.values())

    @property
    def fails(self) -> bool:
        """Whether a check failed."""
        return any(result.fails for result in self.ran.values())

    @property
    def recovered(self) -> bool:
        """Whether the chain recovered with every seed."""
        return all(effect.recovered for effect in self.effects.values())

    @property
    def acted(self) -> bool:
        """Whether attackers sent something with every seed."""
        return bool(self.effects) and all(effect.acted for effect in self.effects.values())

    @property
    def rows(self) -> dict[int, dict[str, float | None]]:
        """The metrics of each seed."""
        return {seed: effect.metrics for seed, effect in self.effects.items()}

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """The means over the seeds that have a value, keyed by metric; metrics without a value are left out."""
        results = Results({(): self.rows})
        return {name: by_bootstrap(values) for name in METRICS if (values := results.values((), name))}

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
            "problems": self.problems,
            "intervals": {name: each and each.interval and list(each.interval) for name, each in found.items()},
            "values": {name: [row[name] for row in self.rows.values()] for name in METRICS},
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
    results: Mapping[Trial, CaseResult]
    """Results of the runs that ended."""
    commit: str
    interrupted: bool = False

    def _score(self, variant: str, attack: str) -> Score:
        return Score(variant, attack, self.dos, self._ran(variant, attack), self._ran(variant, BASELINE))

    def _ran(self, variant: str, attack: str) -> dict[int, CaseResult]:
        ended = {seed: self.results.get(self.plan.trial(variant, attack, seed)) for seed in self.plan.seeds}
        return {seed: result for seed, result in ended.items() if result is not None}

    @cached_property
    def scores(self) -> dict[str, tuple[Score, ...]]:
        """Scores keyed by variant, each in the order of the attacks. Attacks of which no seed ended are left out."""
        found = {}
        for variant in self.plan.variants:
            scores = (self._score(variant, attack) for attack in self.plan.attacks)
            found[variant] = tuple(each for each in scores if each.effects or each.problems)
        return found

    @cached_property
    def by_cell(self) -> dict[Cell, Score]:
        """Scores keyed by variant and attack."""
        return {(variant, score.attack): score for variant, scores in self.scores.items() for score in scores}

    @cached_property
    def baselines(self) -> list[Score]:
        """The runs of each variant without an attack."""
        return [self._score(variant, BASELINE) for variant in self.plan.variants]

    @property
    def baseline_problems(self) -> list[str]:
        """Checks that failed in runs without an attack, and such runs that crashed, as text."""
        return [problem for each in self.baselines for problem in each.problems]

    @property
    def crashed(self) -> bool:
        """Whether a run crashed."""
        return any(result.crashed for result in self.results.values())

    @property
    def problems(self) -> list[str]:
        """Checks that failed and runs that crashed, those without an attack first, as text."""
        attacked = [problem for score in self.by_cell.values() for problem in score.problems]
        return [*self.baseline_problems, *attacked]

    @property
    def reference(self) -> str:
        """The variant that all others are held against."""
        variants = self.plan.variants
        return next((each for each in variants if each.split()[0] == REFERENCE), variants[0])

    @cached_property
    def against(self) -> dict[Cell, Against]:
        """The scores of each variant but the reference against the reference's, keyed by variant and attack."""
        rows = {cell: score.rows for cell, score in self.by_cell.items()}
        bases = {cell: (self.reference, score.attack) for cell, score in self.by_cell.items()}
        return {
            cell: _against(Results(rows), cell, base, self.dos)
            for cell, base in bases.items()
            if cell != base and base in rows
        }

    @property
    def outcome(self) -> Outcome:
        found = [score.outcome for score in self.by_cell.values()]
        if any(each.fails for each in self.baselines):
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
            "problems": self.baseline_problems,
            "interrupted": self.interrupted,
            "outcome": self.outcome.value,
        }

    def _against_page(self, variant: str, score: Score) -> dict[str, list[str]] | None:
        found = self.against.get((variant, score.attack))
        return None if found is None else {"better": list(found.better), "worse": list(found.worse)}


def _against(results: Results, cell: Cell, base: Cell, dos: DosSection) -> Against:
    """Compare an attack's score with the reference's, in each graded metric that is not measured on a machine."""
    better: list[str] = []
    worse: list[str] = []
    for name, bounds in dos.bounds.items():
        changes = [] if name in MEASURED else results.differences((cell, name), (base, name))
        if direction := by_bootstrap(changes).direction if changes else 0:
            is_worse = (direction > 0) is (bounds[0] < bounds[-1])
            (worse if is_worse else better).append(name)
    return Against(tuple(better), tuple(worse))
