"""Runs the experiments of a lab over Ray: progress, interruption, continuation, the table.

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
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Console

from cluster.commands.console.output import print_line
from cluster.commands.console.progress_bar import is_tenth, progress_bar
from cluster.commands.sweeps.fanout import run_each
from cluster.commands.sweeps.log import LineLog
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, HarnessError
from cluster.common.files import write_json_for_user
from cluster.common.wording import counted
from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import Decision, Effort, Experiment
from kits.market.lab.measures import range_of
from kits.market.lab.table import TABLE_FILE, Row, digest, read_table, write_table

LOG_FILE: Final = "runs.jsonl"
SUMMARY_FILE: Final = "lab.json"
FORMAT: Final = "stampede-lab/1"
EFFORTS: Final = {False: "full", True: "quick"}

Key = tuple[str, str, int]
"""Name of the experiment, cell as text, and seed of a run."""


class Run(NamedTuple):
    """One run that is to be made."""

    experiment: Experiment
    cell: Cell
    seed: int
    effort: Effort

    @property
    def key(self) -> Key:
        return self.experiment.name, cell_text(self.cell), self.seed


def cell_text(cell: Cell) -> str:
    """The levels of a cell, separated by spaces."""
    return " ".join(map(str, cell))


def effort_of(experiment: Experiment, is_quick: bool) -> Effort:
    return experiment.quick if is_quick else experiment.full


def seeds_of(experiment: Experiment, is_quick: bool) -> range:
    """The seeds of an experiment. Those of a full run are others than those of a quick one: what a quick look suggested
    is not confirmed by the same draws.
    """
    first = 0 if is_quick else experiment.quick.seeds
    return range(first, first + effort_of(experiment, is_quick).seeds)


def plan(experiments: Sequence[Experiment], is_quick: bool) -> list[Run]:
    """All runs of experiments, in the order of the table."""
    found = []
    for experiment in experiments:
        effort = effort_of(experiment, is_quick)
        seeds = seeds_of(experiment, is_quick)
        found += [Run(experiment, cell, seed, effort) for cell in experiment.cells() for seed in seeds]
    return found


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
            decision, effort = self.decision(each), effort_of(each, self.is_quick)
            experiments[each.name] = {
                "blocks": effort.blocks,
                "seeds": list(seeds_of(each, self.is_quick)),
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
    expected = [run.key for run in plan(lab.experiments, lab.is_quick)]
    if [(row.experiment, row.cell, row.seed) for row in lab.rows] != expected:
        raise BadInput(f"{path}: its experiments had other factors or seeds at commit {lab.commit}")
    return lab


# --- running ----------------------------------------------------------------------------------------------------------


class LabLog(LineLog[Row]):
    """The runs that ended, on disk. Only a lab of the same plan and commit may continue it."""

    def __init__(self, folder: Path, begun: dict[str, str]) -> None:
        """Open or create the log. ``begun`` identifies the lab. Raises :class:`BadInput`."""
        self.ended: dict[Key, Row] = {}
        super().__init__(folder / LOG_FILE, Row, "lab", begun)

    def _take(self, row: Row) -> None:
        self.ended[row.experiment, row.cell, row.seed] = row


def identity(runs: Sequence[Run], is_quick: bool, commit: str) -> dict[str, str]:
    """What must be equal for a lab to go on: experiments, effort, plan (as a digest) and commit."""
    text = "\n".join(f"{' '.join(map(str, run.key))} {run.effort.blocks}" for run in runs)
    return {
        "list of experiments": ", ".join(dict.fromkeys(run.experiment.name for run in runs)),
        "effort": EFFORTS[is_quick],
        "plan": hashlib.sha256(text.encode()).hexdigest()[:16],
        "commit": commit,
    }


def run_one(run: Run) -> Row:
    """Make one run, in a worker. Raises :class:`HarnessError` if a measure is no finite number."""
    measures = run.experiment.run(run.cell, run.seed, run.effort)
    for name, value in measures.items():
        if not math.isfinite(value):
            raise HarnessError(f"{run.experiment.name} {cell_text(run.cell)}, seed {run.seed}: {name} is {value}")
    return Row(run.experiment.name, cell_text(run.cell), run.seed, measures)


def run_lab(
    experiments: Sequence[Experiment], is_quick: bool, folder: Path, workers: int | None, console: Console
) -> Lab:
    """Make all runs that the log in ``folder`` does not contain yet, and write the table and its summary.

    ``workers`` is the number of runs at a time (``None``: one for each processor of this machine or of the cluster).
    A signal raises :class:`KeyboardInterrupt`. Raises :class:`~cluster.common.errors.HarnessError`.
    """
    commit, runs = checkout_commit(), plan(experiments, is_quick)
    with closing(LabLog(folder, identity(runs, is_quick, commit))) as log:
        left = [run for run in runs if run.key not in log.ended]
        _run_all(left, len(runs), log, workers, console)
        rows = [log.ended[run.key] for run in runs]
    write_table(folder / TABLE_FILE, rows)
    lab = Lab(experiments, is_quick, commit, read_table(folder / TABLE_FILE))
    write_json_for_user(folder / SUMMARY_FILE, lab.page())
    return lab


def _run_all(left: Sequence[Run], total: int, log: LabLog, workers: int | None, console: Console) -> None:
    before = total - len(left)
    done_before = f", {before:,} of them done before" if before else ""
    print_line(console, f"{counted(total, 'run')}{done_before}")
    if not left:
        return
    with progress_bar(console) as progress:
        bar = progress.add_task("lab", total=total, completed=before)
        ended = run_each(run_one, left, workers, "run", lambda line: print_line(progress.console, line))
        with closing(ended):
            for count, (_, row) in enumerate(ended, start=before + 1):
                log.add(row)
                progress.update(bar, completed=count, description=row.experiment)
                if progress.disable and is_tenth(count, total):
                    print_line(console, f"{count:,} of {total:,} runs")


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
                effort: {"blocks": effort_of(each, is_quick).blocks, "seeds": list(seeds_of(each, is_quick))}
                for is_quick, effort in EFFORTS.items()
            },
        }
        for each in experiments
    ]
    return json.dumps(pages, indent=2)
