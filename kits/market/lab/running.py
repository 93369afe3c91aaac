"""Runs the experiments of a lab: continuation, the table, the results.

The log ``runs.jsonl`` gets a line for each run as it ends. A lab that was interrupted goes on in its folder. The table
is written when all runs ended, and pages are made from the table alone: they show the numbers that the digest covers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console

from cluster.commands.sweeps.log import LineLog
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, HarnessError
from cluster.common.files import write_json_for_user
from cluster.common.wording import readable
from kits.market.estimates import Cell, Results, decided
from kits.market.lab.experiment import Decision, Experiment
from kits.market.lab.files import from_text, of_packages, policy_from, users_code
from kits.market.lab.table import TABLE_FILE, Row, digest, read_table, write_table
from kits.market.metric import Metric
from kits.market.trials import Trial, cell_text, run_trials

LOG_FILE: Final = "runs.jsonl"
SUMMARY_FILE: Final = "lab.json"
FORMAT: Final = "stampede-lab/2"
EFFORTS: Final = {False: "full", True: "quick"}


def plan(experiments: Sequence[Experiment], is_quick: bool) -> list[Trial]:
    """All trials of experiments, in the order of the table."""
    return [
        Trial(each.name, cell, seed) for each in experiments for cell in each.cells() for seed in each.seeds(is_quick)
    ]


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lab:
    """The results of experiments that all ended."""

    experiments: Sequence[Experiment]
    is_quick: bool
    commit: str
    rows: Sequence[Row]

    @cached_property
    def digest(self) -> str:
        return digest(self.rows)

    def digest_of(self, experiment: Experiment) -> str:
        """The digest of an experiment's rows: the same, whichever others ran in the lab."""
        return digest([row for row in self.rows if row.experiment == experiment.name])

    def results(self, experiment: Experiment) -> Results:
        cells = {cell_text(cell): cell for cell in experiment.cells()}
        found: dict[Cell, dict[int, dict[str, float]]] = {cell: {} for cell in cells.values()}
        for row in self.rows:
            if row.experiment == experiment.name:
                found[cells[row.cell]][row.seed] = dict(row.measures)
        return Results(found, lambda measure: experiment.metric(measure).range)

    def decision(self, experiment: Experiment) -> Decision:
        """What an experiment's rule says of its results."""
        return self.decided[experiment.name][0]

    @cached_property
    def decided(self) -> dict[str, tuple[Decision, Results]]:
        """What each experiment's rule says, and the results with the comparisons that it makes."""
        found = {}
        for each in self.experiments:
            results = self.results(each)
            with users_code(each):
                found[each.name] = decided(each.decide, results), results
        return found

    def metrics(self, experiment: Experiment) -> dict[str, Metric]:
        """The definitions of the measures that an experiment's page shows, those of its comparisons included."""
        compared = [side[1] for sides in self.decided[experiment.name][1].made for side in sides]
        names = (*experiment.shown, *(plot.measure for plot in experiment.plots), *compared)
        return {name: experiment.metric(name) for name in dict.fromkeys(names)}

    def page(self) -> dict[str, Any]:
        """The content of ``lab.json``."""
        experiments = {}
        for each in self.experiments:
            decision, effort = self.decision(each), each.effort(self.is_quick)
            experiments[each.name] = {
                "blocks": effort.blocks,
                "seeds": list(each.seeds(self.is_quick)),
                "cells": len(each.cells()),
                "digest": self.digest_of(each),
                "factors": {name: list(levels) for name, levels in each.factors.items()},
                "metrics": {name: metric_page(metric) for name, metric in self.metrics(each).items()},
                "comparisons": len(self.decided[each.name][1].made),
                "answer": decision.answer,
                "recommendation": decision.recommendation,
                "limits": decision.limits,
                "given": each.given,
            }
        return {
            "format": FORMAT,
            "commit": self.commit,
            "effort": EFFORTS[self.is_quick],
            "digest": self.digest,
            "experiments": experiments,
        }


def metric_page(metric: Metric) -> dict[str, str]:
    """A definition as JSON."""
    return {"words": metric.words, "unit": metric.unit, "better": metric.better}


class _Text(msgspec.Struct):
    """A file of the user."""

    name: str
    source: str


class _Given(msgspec.Struct):
    """What a command gave an experiment; see :attr:`Experiment.given`."""

    blocks: int | None
    seeds: tuple[int, int] | None
    file: _Text | None
    policies: list[_Text]


class _Experiment(msgspec.Struct):
    given: _Given


class _Summary(msgspec.Struct):
    """What is read from ``lab.json``; the rest follows from the table."""

    format: str
    commit: str
    effort: str
    digest: str
    experiments: dict[str, Any]


def read_lab(folder: Path, known: Mapping[str, Experiment]) -> Lab:
    """Read the results of a lab of ``known`` experiments, by name, of packages, and of files whose text it has.

    Raises :class:`BadInput`.
    """
    path = folder / SUMMARY_FILE
    if not path.exists():
        unfinished = (folder / LOG_FILE).exists()
        raise BadInput(
            f"{folder}: the lab has not ended: the same command with the same --out goes on"
            if unfinished
            else f"{folder}: holds no results of a lab"
        )
    try:
        summary = msgspec.json.decode(path.read_bytes(), type=_Summary)
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path}: is no summary of a lab: {error}") from None
    efforts = {name: is_quick for is_quick, name in EFFORTS.items()}
    if summary.format != FORMAT or summary.effort not in efforts:
        raise BadInput(
            f"{path}: is no summary of a lab of this version: expected the format {FORMAT}, got"
            f" {readable(summary.format[:40])}; run the lab again, or report it with commit {summary.commit}"
        )
    try:
        pages = msgspec.convert(summary.experiments, dict[str, _Experiment])
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: is no summary of a lab: {error}") from None
    experiments = [_restored(name, page.given, known, str(path)) for name, page in pages.items()]
    factors = {each.name: list(each.factors) for each in experiments}
    rows = read_table(folder / TABLE_FILE, factors)
    return _checked(folder, Lab(experiments, efforts[summary.effort], summary.commit, rows), summary.digest)


def _restored(name: str, given: _Given, known: Mapping[str, Experiment], path: str) -> Experiment:
    """An experiment of a summary, as its command had it. Raises :class:`BadInput`."""
    if given.file is not None:
        found = from_text(msgspec.structs.asdict(given.file), path)
    elif name in known or name in (known := of_packages(known)):
        found = known[name]
    else:
        raise BadInput(f"{path}: this version has no experiment {name!r}")
    policies = {each.name: policy_from(msgspec.structs.asdict(each), path) for each in given.policies}
    return found.changed(given.blocks, None if given.seeds is None else range(*given.seeds), policies)


def _checked(folder: Path, lab: Lab, written_digest: str) -> Lab:
    """Check that a table is that of its summary and of its plan. Raises :class:`BadInput`."""
    path = folder / TABLE_FILE
    if lab.digest != written_digest:
        raise BadInput(f"{path}: its digest is {lab.digest}, {SUMMARY_FILE} says {written_digest}")
    if [row.key for row in lab.rows] != [trial.key for trial in plan(lab.experiments, lab.is_quick)]:
        raise BadInput(f"{path}: its experiments had other factors or seeds at commit {lab.commit}")
    return lab


# --- running ----------------------------------------------------------------------------------------------------------


def identity(experiments: Sequence[Experiment], is_quick: bool, commit: str) -> dict[str, str]:
    """What must be equal for a lab to go on: experiments, effort, plan (as a digest) and commit."""
    blocks = {each.name: each.effort(is_quick).blocks for each in experiments}
    trials = plan(experiments, is_quick)
    lines = [" ".join(map(str, (*each.key, blocks[each.question]))) for each in trials]
    with_code = [each.given for each in experiments if each.file is not None or each.policies]
    text = "\n".join([*lines, *map(json.dumps, with_code)])
    return {
        "list of experiments": ", ".join(blocks),
        "effort": EFFORTS[is_quick],
        "plan": hashlib.sha256(text.encode()).hexdigest()[:16],
        "commit": commit,
    }


def run_one(experiments: Sequence[Experiment], is_quick: bool, trial: Trial) -> Row:
    """Run a trial, in a worker. Raises :class:`HarnessError` if a measure is no finite number."""
    experiment = next(each for each in experiments if each.name == trial.question)
    with users_code(experiment):
        measures = experiment.run(trial.cell, trial.seed, experiment.effort(is_quick))
        for name, value in measures.items():
            if not math.isfinite(value):
                raise HarnessError(f"{trial}: {name} is {value}")
    levels = dict(zip(experiment.factors, map(str, trial.cell), strict=True))
    return Row(experiment.name, levels, trial.seed, {name: float(value) for name, value in measures.items()})


def run_lab(
    experiments: Sequence[Experiment], is_quick: bool, folder: Path, workers: int | None, console: Console
) -> Lab:
    """Run all trials that the log in ``folder`` does not contain yet, and write the table and its summary.

    Arguments and errors are those of :func:`~kits.market.trials.run_trials`.
    """
    commit, trials = checkout_commit(), plan(experiments, is_quick)
    with closing(LineLog[Row](folder / LOG_FILE, Row, "lab", identity(experiments, is_quick, commit))) as log:
        before = {row.key for row in log.entries}
        left = [trial for trial in trials if trial.key not in before]
        work = partial(run_one, experiments, is_quick)
        with closing(run_trials(work, left, workers, console, len(before))) as ended:
            for _, row in ended:
                log.add(row)
        rows = {row.key: row for row in log.entries}
    write_table(folder / TABLE_FILE, [rows[trial.key] for trial in trials])
    factors = {each.name: list(each.factors) for each in experiments}
    lab = Lab(experiments, is_quick, commit, read_table(folder / TABLE_FILE, factors))
    write_json_for_user(folder / SUMMARY_FILE, lab.page())
    return lab


def listed(experiments: Sequence[Experiment]) -> str:
    """The experiments as JSON, for ``stampede lab list --json``."""
    pages = [
        {
            "name": each.name,
            "title": each.title,
            "question": each.question,
            "hypothesis": each.hypothesis,
            "factors": {name: list(levels) for name, levels in each.factors.items()},
            "metrics": {name: metric_page(each.metric(name)) for name in each.shown},
            "rule": each.rule,
            "cells": len(each.cells()),
            **{
                effort: {"blocks": each.effort(is_quick).blocks, "seeds": list(each.seeds(is_quick))}
                for is_quick, effort in EFFORTS.items()
            },
        }
        for each in experiments
    ]
    return json.dumps(pages, indent=2)
