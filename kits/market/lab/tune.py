"""Looks for the parameters of a user's policy that are best for a measure, under constraints (``stampede lab tune``).

A candidate is a value for each parameter that the policy states. It runs in cells of an experiment with the seeds of
the search, and its value is the mean of the measure. The first candidate has the defaults, the others are chosen by
Optuna's tree-structured Parzen estimator, which knows the constraints. Candidates are asked for in batches of a fixed
size, so that equal searches have equal candidates for any number of processes.

The search has seen its seeds, so its figures flatter the winner. What is claimed comes from *held-out* seeds: the
difference to the defaults there, paired by seed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Console

from cluster.commands.console.output import print_line
from cluster.commands.sweeps.fanout import run_each
from cluster.commands.sweeps.log import LineLog
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput
from cluster.common.suggestions import unknown
from cluster.common.wording import counted
from kits.market.estimates import Cell, Estimate, by_student
from kits.market.lab.experiment import POLICY, Experiment
from kits.market.lab.files import users_code
from kits.market.metric import Metric
from validator.chain.genesis import PolicyFile
from validator.policies.own import stated_parameters, with_parameters

LOG_FILE: Final = "tuning.jsonl"
SUMMARY_FILE: Final = "tuning.json"
BATCH: Final = 4
"""Number of candidates that are asked for at a time."""
SAMPLER_SEED: Final = 1
LOGARITHMIC_FROM: Final = 50
"""A parameter is drawn on a logarithmic scale if its maximum is at least this many times its minimum, and that is 1 or
more."""
CONSTRAINT: Final = re.compile(
    r"(?P<measure>[\w.]+)(?P<sign><=|>=)(?P<bound>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e-?[0-9]+)?)"
)
Values = dict[str, int]


class Constraint(NamedTuple):
    """A bound on a measure."""

    measure: str
    is_upper: bool
    bound: float

    def excess(self, value: float) -> float:
        """By how much a value breaks it; 0 or less if it holds."""
        return value - self.bound if self.is_upper else self.bound - value

    def __str__(self) -> str:
        return f"{self.measure} {'<=' if self.is_upper else '>='} {self.bound:g}"


class Tried(msgspec.Struct, frozen=True):
    """A candidate, and the mean of each measure over the search's cells and seeds."""

    values: Values
    means: dict[str, float]


@dataclass(frozen=True)
class Problem:
    """What is sought."""

    experiment: Experiment
    """With the policy among its levels."""
    policy: PolicyFile
    cells: Sequence[Cell]
    measure: str
    constraints: Sequence[Constraint]
    seeds: range
    held_out: range
    candidates: int

    @property
    def metric(self) -> Metric:
        return self.experiment.metric(self.measure)

    @property
    def sign(self) -> int:
        return 1 if self.metric.better == "more" else -1

    @property
    def names(self) -> list[str]:
        """The measures that are looked at."""
        return list(dict.fromkeys([self.measure, *(each.measure for each in self.constraints)]))

    def holds(self, means: Mapping[str, float]) -> bool:
        return all(each.excess(means[each.measure]) <= 0 for each in self.constraints)


class Found(NamedTuple):
    """What a search found, judged by the held-out seeds."""

    best: Tried
    """The best candidate for which the constraints hold in the search; the defaults if there is none."""
    change: Estimate
    """The measure less that of the defaults."""
    means: dict[str, float]
    holds: bool
    """Whether the constraints hold there."""

    def is_confirmed(self, sign: int) -> bool:
        return self.holds and self.change.is_clear and self.change.direction == sign


def parse_constraint(text: str) -> Constraint:
    """Parse ``MEASURE<=BOUND`` or ``MEASURE>=BOUND``. Raises :class:`BadInput`."""
    found = CONSTRAINT.fullmatch(text.replace(" ", ""))
    if found is None:
        raise BadInput(f"--keep {text}: expected MEASURE<=BOUND or MEASURE>=BOUND, such as starved_share<=0.1")
    return Constraint(found["measure"], found["sign"] == "<=", float(found["bound"]))


def make_problem(
    experiment: Experiment,
    policy: PolicyFile,
    measure: str,
    keep: Sequence[str],
    at: Sequence[str],
    seeds: range,
    held_out: range,
    candidates: int,
) -> Problem:
    """The problem of a command's options; ``experiment`` has the policy. Raises :class:`BadInput`."""
    if not stated_parameters(policy):
        raise BadInput(f"{policy.file}: states no policy_parameters, so there is nothing to tune")
    constraints = [parse_constraint(each) for each in keep]
    for name in (measure, *(each.measure for each in constraints)):
        try:
            experiment.metric(name)
        except KeyError:
            known = [*experiment.shown, *experiment.metrics]
            raise BadInput(f"{experiment.name}: {unknown('measure', name, dict.fromkeys(known))}") from None
    if not experiment.metric(measure).better:
        raise BadInput(f"--measure {measure}: neither more nor less of it is better by itself; expected another one")
    if set(seeds) & set(held_out):
        raise BadInput("--held-out: expected seeds that --seeds has not, for only those say what holds")
    fixed = {POLICY: policy.name}
    for text in at:
        name, _, level = text.partition("=")
        if name not in experiment.factors or level not in map(str, experiment.factors[name]):
            levels = "; ".join(f"{each}={'|'.join(map(str, of))}" for each, of in experiment.factors.items())
            raise BadInput(f"--at {text}: expected FACTOR=LEVEL of {levels}")
        fixed[name] = level
    cells = [
        cell
        for cell in experiment.cells()
        if all(fixed.get(name, str(level)) == str(level) for name, level in zip(experiment.factors, cell, strict=True))
    ]
    if not cells:
        raise BadInput(f"{experiment.name}: has no combination of these levels")
    return Problem(experiment, policy, cells, measure, constraints, seeds, held_out, candidates)


def run_one(problem: Problem, item: tuple[Values, Cell, int]) -> dict[str, float]:
    """Run a candidate in a cell with a seed, in a worker; returns the measures that are looked at."""
    values, cell, seed = item
    experiment = problem.experiment
    own = experiment.changed(experiment.given_blocks, None, {})
    own.policies = {**experiment.policies, problem.policy.name: with_parameters(problem.policy, values)}
    with users_code(own):
        measures = own.run(cell, seed, own.effort(True))
    if missing := [name for name in problem.names if name not in measures]:
        raise BadInput(f"{experiment.name}: its runs have no measure {missing[0]}")
    return {name: float(measures[name]) for name in problem.names}


def measured(
    problem: Problem, candidates: Sequence[Values], seeds: range, jobs: int | None
) -> list[dict[int, dict[str, float]]]:
    """For each candidate the measures of each seed, as means over the cells."""
    items = [(values, cell, seed) for values in candidates for seed in seeds for cell in problem.cells]
    with closing(run_each(partial(run_one, problem), items, jobs, "run")) as ended:
        found = dict(ended)
    rows = iter(range(len(items)))
    by_candidate = []
    for _ in candidates:
        by_seed = {seed: [found[next(rows)] for _ in problem.cells] for seed in seeds}
        by_candidate.append(
            {seed: {name: fmean(row[name] for row in of) for name in problem.names} for seed, of in by_seed.items()}
        )
    return by_candidate


def means(by_seed: Mapping[int, Mapping[str, float]], names: Sequence[str]) -> dict[str, float]:
    return {name: fmean(row[name] for row in by_seed.values()) for name in names}


def search(problem: Problem, folder: Path, jobs: int | None, output: Console) -> list[Tried]:
    """Try candidates, those in the log of ``folder`` excepted; returns all in their order."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=SAMPLER_SEED))
    space = stated_parameters(problem.policy)
    study.enqueue_trial({name: bounds.default for name, bounds in space.items()})
    tried: list[Tried] = []
    with closing(LineLog[Tried](folder / LOG_FILE, Tried, "tuning", identity(problem))) as log:
        known = {tuple(each.values.items()): each for each in log.entries}
        while len(tried) < problem.candidates:
            trials = [study.ask() for _ in range(min(BATCH, problem.candidates - len(tried)))]
            batch = [{name: _value(trial, name, bounds) for name, bounds in space.items()} for trial in trials]
            new = list({key: values for values in batch if (key := tuple(values.items())) not in known}.values())
            for values, found in zip(new, measured(problem, new, problem.seeds, jobs) if new else [], strict=True):
                known[tuple(values.items())] = made = Tried(values, means(found, problem.names))
                log.add(made)
            for trial, values in zip(trials, batch, strict=True):
                each = known[tuple(values.items())]
                for one in problem.constraints:
                    trial.set_constraint(str(one), one.excess(each.means[one.measure]))
                study.tell(trial, problem.sign * each.means[problem.measure])
                tried.append(each)
            print_line(output, f"{len(tried):,} of {counted(problem.candidates, 'candidate')}")
    return tried


def _value(trial: Any, name: str, bounds: Any) -> int:
    is_logarithmic = bounds.min >= 1 and bounds.max >= LOGARITHMIC_FROM * bounds.min
    return int(trial.suggest_int(name, bounds.min, bounds.max, log=is_logarithmic))


def identity(problem: Problem) -> dict[str, Any]:
    """What must be equal for a search to go on."""
    given = problem.experiment.given
    return {
        "experiment": problem.experiment.name,
        "texts": [given["file"] and given["file"]["source"], *(each["source"] for each in given["policies"])],
        "blocks": problem.experiment.effort(True).blocks,
        "cells": [list(map(str, cell)) for cell in problem.cells],
        "measure": problem.measure,
        "constraints": list(map(str, problem.constraints)),
        "seeds": [problem.seeds.start, problem.seeds.stop],
        "commit": checkout_commit(),
    }


def judge(problem: Problem, tried: Sequence[Tried], jobs: int | None) -> Found:
    """Hold the best candidate against the defaults, with the held-out seeds."""
    usual = tried[0]
    allowed = [each for each in tried if problem.holds(each.means)]
    best = max(allowed, key=lambda each: problem.sign * each.means[problem.measure], default=usual)
    mine, theirs = measured(problem, [best.values, usual.values], problem.held_out, jobs)
    change = by_student([mine[seed][problem.measure] - theirs[seed][problem.measure] for seed in problem.held_out])
    found = means(mine, problem.names)
    return Found(best, change, found, problem.holds(found))


def summary(problem: Problem, tried: Sequence[Tried], found: Found) -> dict[str, Any]:
    """The content of ``tuning.json``."""
    metric = problem.metric
    return {
        **{name: value for name, value in identity(problem).items() if name != "texts"},
        "policy": problem.policy.name,
        "metric": {"words": metric.words, "unit": metric.unit, "better": metric.better},
        "candidates": len(tried),
        "allowed": sum(problem.holds(each.means) for each in tried),
        "defaults": msgspec.to_builtins(tried[0]),
        "best": msgspec.to_builtins(found.best),
        "held_out": {
            "seeds": [problem.held_out.start, problem.held_out.stop],
            "means": found.means,
            "change": found.change.mean,
            "interval": found.change.interval,
            "constraints_hold": found.holds,
            "confirmed": found.is_confirmed(problem.sign),
        },
    }
