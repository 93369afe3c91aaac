"""Runs the experiments of a lab: continuation, the table, the results.

The log ``runs.jsonl`` gets a line for each run as it ends. A lab that was interrupted goes on in its folder. The table
is written when all runs ended, and pages are made from the table alone: they show the numbers that the digest covers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
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
from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import Decision, Experiment
from kits.market.lab.measures import range_of
from kits.market.lab.table import TABLE_FILE, Row, digest, read_table, write_table
from kits.market.trials import Trial, cell_text, run_trials

LOG_FILE: Final = "runs.jsonl"
SUMMARY_FILE: Final = "lab.json"
FORMAT: Final = "stampede-lab/1"
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
        return Results(found, range_of)

    def decision(self, experiment: Experiment) -> Decision:
        """What an experiment's rule says of its results."""
        return experiment.decide(self.results(experiment))

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
                "answer": decision.answer,
                "recommendation": decision.recommendation,
                "limits": decision.limits,
            }
        return {
            "format": FORMAT,
            "commit": self.commit,
            "effort": EFFORTS[self.is_quick],
            "digest": self.digest,
            "experiments": experiments,
        }


class _Summary(msgspec.Struct):
    """What is read from ``lab.json``; the rest follows from the table."""

    format: str
    commit: str
    effort: str
    digest: str
    experiments: dict[str, Any]


def read_lab(folder: Path, known: Sequence[Experiment]) -> Lab:
    """Read the results of a lab of ``known`` experiments. Raises :class:`BadInput`."""
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
        raise BadInput(f"{path}: is no summary of a lab of this version")
    by_name = {each.name: each for each in known}
    if unknown := [name for name in summary.experiments if name not in by_name]:
        raise BadInput(f"{path}: this version has no experiment {unknown[0]!r}")
    experiments = [by_name[name] for name in summary.experiments]
    is_quick = efforts[summary.effort]
    return _checked(folder, Lab(experiments, is_quick, summary.commit, read_table(folder / TABLE_FILE)), summary.digest)


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
    text = "\n".join(" ".join(map(str, (*each.key, blocks[each.question]))) for each in trials)
    return {
        "list of experiments": ", ".join(blocks),
        "effort": EFFORTS[is_quick],
        "plan": hashlib.sha256(text.encode()).hexdigest()[:16],
        "commit": commit,
    }


def run_one(experiments: Sequence[Experiment], is_quick: bool, trial: Trial) -> Row:
    """Run a trial, in a worker. Raises :class:`HarnessError` if a measure is no finite number."""
    experiment = next(each for each in experiments if each.name == trial.question)
    measures = experiment.run(trial.cell, trial.seed, experiment.effort(is_quick))
    for name, value in measures.items():
        if not math.isfinite(value):
            raise HarnessError(f"{trial}: {name} is {value}")
    return Row(*trial.key, measures)


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
    lab = Lab(experiments, is_quick, commit, read_table(folder / TABLE_FILE))
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
            "metrics": list(each.shown),
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
