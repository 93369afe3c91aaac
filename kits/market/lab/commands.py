"""``stampede lab``: experiments about scheduling policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.console.command import FOLDER, Command, Group, Topic, argument, flag, option
from cluster.commands.console.options import ForceOption
from cluster.commands.console.output import console, plain_table, print_line
from cluster.commands.sweeps.commands import worker_count
from cluster.common.errors import BadInput, ExitCode
from cluster.common.wording import quoted
from cluster.record.folder import LAB, Kind

if TYPE_CHECKING:
    from kits.market.lab.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class ListExperiments(Command):
    HELP = "list the experiments"
    RUNS_CODE = False

    json: bool = flag("as JSON, with question, factors, metrics, seeds and decision rule")

    def run(self) -> int:
        from kits.market.lab.experiments.registry import EXPERIMENTS
        from kits.market.lab.running import listed

        experiments, output = list(EXPERIMENTS.values()), console()
        if self.json:
            print_line(output, listed(experiments))
            return ExitCode.PASS
        table = plain_table(("name", "cells", "question"), right=("cells",), folded=("question",))
        for each in experiments:
            table.add_row(each.name, f"{len(each.cells())}", each.question)
        output.print(table)
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class LabOptions(ForceOption):
    """What ``run`` and ``run-all`` have in common."""

    RUNS_CODE = False

    EPILOG = "The exit code says whether all runs ended, not what they show."

    quick: bool = flag("few seeds and blocks, for a first look: minutes")
    workers: int | None = option("processes (default: one per processor of each node)", "N", worker_count)
    out: Path | None = option("folder of table and pages; an interrupted lab continues in its folder", writes=FOLDER)

    def kind(self) -> Kind:
        from kits.market.lab.experiments.registry import EXPERIMENTS

        return LAB._replace(names=(*LAB.names, *(f"{name}.html" for name in EXPERIMENTS)))

    def run_experiments(self, experiments: Sequence[Experiment], name: str) -> int:
        """Run experiments with these options; returns the exit code."""
        from cluster.commands.console.crashes import command_folder
        from kits.market.lab.page import INDEX_FILE, write_pages
        from kits.market.lab.running import run_lab
        from kits.market.lab.table import TABLE_FILE

        output = console()
        with command_folder(self.out, name, goes_on=True) as folder:
            try:
                lab = run_lab(experiments, self.quick, folder, self.workers, output)
            except KeyboardInterrupt:
                again = f"--out {quoted(str(folder))}"
                print_line(output, f"the runs that ended are kept; the same command with {again} makes the others")
                raise
            write_pages(folder, lab)
        for each in experiments:
            decision = lab.decision(each)
            print_line(output, f"{each.name}: {decision.answer} {decision.recommendation}")
        print_line(output, f"table   {folder / TABLE_FILE}")
        print_line(output, f"digest  {lab.digest}")
        print_line(output, f"pages   {folder / INDEX_FILE}")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class RunExperiment(LabOptions):
    HELP = "run one experiment"

    name: str = argument("NAME", "name of the experiment (see stampede lab list)")

    def run(self) -> int:
        from cluster.common.suggestions import unknown
        from kits.market.lab.experiments.registry import EXPERIMENTS

        if self.name not in EXPERIMENTS:
            raise BadInput(unknown("experiment", self.name, EXPERIMENTS))
        return self.run_experiments([EXPERIMENTS[self.name]], f"lab-{self.name}")


@dataclass(frozen=True, kw_only=True)
class RunAll(LabOptions):
    HELP = "run all experiments"

    def run(self) -> int:
        from kits.market.lab.experiments.registry import EXPERIMENTS

        return self.run_experiments(list(EXPERIMENTS.values()), "lab")


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    HELP = "write the pages of a lab again, from its table"
    RUNS_CODE = False

    folder: Path = argument("DIR", "folder of the lab (--out)", Path)

    def run(self) -> int:
        from cluster.record.folder import claimed
        from kits.market.lab.experiments.registry import EXPERIMENTS
        from kits.market.lab.page import INDEX_FILE, write_pages
        from kits.market.lab.running import read_lab

        output = console()
        with claimed(self.folder):
            lab = read_lab(self.folder, list(EXPERIMENTS.values()))
            write_pages(self.folder, lab)
        print_line(output, f"digest  {lab.digest}")
        print_line(output, f"pages   {self.folder / INDEX_FILE}")
        return ExitCode.PASS


COMMANDS: Final = {
    "lab": Group(
        "run experiments about scheduling policies",
        {"list": ListExperiments, "run": RunExperiment, "run-all": RunAll, "report": Report},
        "list|run|run-all|report",
        Topic.ECONOMICS,
    )
}
