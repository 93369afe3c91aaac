"""``stampede lab``: experiments about scheduling policies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.console.command import FOLDER, OPTIONAL, Group, Topic, argument, flag, option
from cluster.commands.console.options import CodeOptions, ForceOption, whole_number
from cluster.commands.console.output import console, plain_table, print_line
from cluster.commands.sweeps.commands import seed_range, worker_count
from cluster.common.errors import ExitCode
from cluster.common.wording import quoted
from cluster.record.folder import LAB, TUNING, Kind

EXPORT_FOLDER: Final = "export"

if TYPE_CHECKING:
    from kits.market.lab.experiment import Experiment


def kind_of_lab(names: Iterable[str]) -> Kind:
    """What a lab of some experiments writes into its folder."""
    return LAB._replace(names=(*LAB.names, *(f"{name}.html" for name in names), f"{EXPORT_FOLDER}/*"))


@dataclass(frozen=True, kw_only=True)
class ListExperiments(CodeOptions):
    HELP = "list the experiments"

    file: str | None = argument("FILE", "a Python file with an experiment, instead of all", nargs=OPTIONAL)
    json: bool = flag("as JSON, with question, factors, metrics, seeds and decision rule")

    def run(self) -> int:
        from kits.market.lab.experiments.registry import EXPERIMENTS
        from kits.market.lab.files import experiment_of, of_packages
        from kits.market.lab.running import listed

        all_known = {} if self.file else {**EXPERIMENTS, **of_packages(EXPERIMENTS)}
        experiments = [experiment_of(self.file, EXPERIMENTS)] if self.file else list(all_known.values())
        output = console()
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

    EPILOG = "The exit code says whether all runs ended, not what they show."

    quick: bool = flag("few seeds and blocks, for a first look: minutes")
    seeds: range | None = option("run the seeds A to B - 1 instead of the experiment's", "A:B", seed_range)
    blocks: int | None = option(
        "length of each run instead of the experiment's", "N", whole_number("number of blocks", 10, 100_000)
    )
    jobs: int | None = option("runs at a time (default: one per processor of each node)", "N", worker_count)
    out: Path | None = option("folder of table and pages; an interrupted lab continues in its folder", writes=FOLDER)

    def kind(self) -> Kind:
        from kits.market.lab.experiments.registry import EXPERIMENTS

        return kind_of_lab(EXPERIMENTS)

    def run_experiments(self, experiments: Sequence[Experiment], name: str) -> int:
        """Run experiments with these options; returns the exit code."""
        from cluster.commands.console.crashes import command_folder
        from kits.market.lab.page import INDEX_FILE, write_pages
        from kits.market.lab.running import run_lab
        from kits.market.lab.table import TABLE_FILE

        output = console()
        with command_folder(self.out, name, goes_on=True) as folder:
            try:
                lab = run_lab(experiments, self.quick, folder, self.jobs, output)
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
class RunExperiment(LabOptions, CodeOptions):
    HELP = "run one experiment"

    name: str = argument(
        "NAME", "name of the experiment (see stampede lab list), or the path of a Python file with one"
    )
    policy: list[str] = option(
        "Python file with a policy, as a further level of the experiment's factor policy", "FILE", repeats=True
    )

    def kind(self) -> Kind:
        return kind_of_lab([Path(self.name).stem])

    def run(self) -> int:
        from kits.market.lab.experiments.registry import EXPERIMENTS
        from kits.market.lab.files import experiment_of, policies_of

        found = experiment_of(self.name, EXPERIMENTS).changed(self.blocks, self.seeds, policies_of(self.policy))
        return self.run_experiments([found], f"lab-{found.name}")


@dataclass(frozen=True, kw_only=True)
class RunAll(LabOptions):
    HELP = "run all experiments that ship"
    RUNS_CODE = False

    def run(self) -> int:
        from kits.market.lab.experiments.registry import EXPERIMENTS

        found = [each.changed(self.blocks, self.seeds, {}) for each in EXPERIMENTS.values()]
        return self.run_experiments(found, "lab")


@dataclass(frozen=True, kw_only=True)
class Tune(ForceOption, CodeOptions):
    KIND = TUNING
    HELP = "look for the parameters of your policy that are best for a measure"
    DESCRIPTION = (
        "Looks for the values of the parameters that a policy in a file states, with an experiment's jobs. What is"
        " claimed comes from held-out seeds. 0: a candidate is clearly better than the defaults there, and the"
        " constraints hold; 3: none is, or it was interrupted."
    )

    name: str = argument("NAME", "experiment with a factor policy: its name, or the path of a Python file with one")
    policy: str = option("Python file with the policy", "FILE", required=True)
    measure: str = option("what is to be best", "MEASURE", required=True)
    keep: list[str] = option("constraint on a measure, such as starved_share<=0.1", "BOUND", repeats=True)
    at: list[str] = option(
        "level of another factor (default: the mean over all its levels)", "FACTOR=LEVEL", repeats=True
    )
    candidates: int = option(
        "how many to try (default %(default)s)", "N", whole_number("number of candidates", 2, 10_000), default=40
    )
    seeds: range = option("seeds of the search (default 0:3)", "A:B", seed_range, default=range(3))
    held_out: range = option("seeds of what is claimed (default 100:108)", "A:B", seed_range, default=range(100, 108))
    blocks: int | None = option(
        "length of each run (default: that of --quick)", "N", whole_number("number of blocks", 10, 100_000)
    )
    jobs: int | None = option("runs at a time (default: one per processor of each node)", "N", worker_count)
    out: Path | None = option("folder of the search; an interrupted one continues in its folder", writes=FOLDER)

    def run(self) -> int:
        from cluster.commands.console.crashes import command_folder
        from cluster.common.files import write_json_for_user
        from kits.market.lab.experiments.registry import EXPERIMENTS
        from kits.market.lab.files import experiment_of, policies_of
        from kits.market.lab.tune import SUMMARY_FILE, judge, make_problem, search, summary

        output = console()
        with command_folder(self.out, f"tune-{Path(self.policy).stem}", goes_on=True) as folder:
            policies = policies_of([self.policy])
            (policy,) = policies.values()
            experiment = experiment_of(self.name, EXPERIMENTS).changed(self.blocks, None, policies)
            problem = make_problem(
                experiment, policy, self.measure, self.keep, self.at, self.seeds, self.held_out, self.candidates
            )
            tried = search(problem, folder, self.jobs, output)
            found = judge(problem, tried, self.jobs)
            write_json_for_user(folder / SUMMARY_FILE, summary(problem, tried, found))
        values = ", ".join(f"{name} {value:,}" for name, value in found.best.values.items())
        print_line(output, f"best      {values}: {self.measure} {found.best.means[self.measure]:.4g} in the search")
        print_line(output, f"defaults  {self.measure} {tried[0].means[self.measure]:.4g} in the search")
        held = "" if found.holds else "; a constraint does not hold there"
        print_line(output, f"held out  {self.measure} changes by {found.change.text}{held}")
        print_line(output, f"summary   {folder / SUMMARY_FILE}")
        return ExitCode.PASS if found.is_confirmed(problem.sign) else ExitCode.INCONCLUSIVE


@dataclass(frozen=True, kw_only=True)
class Report(CodeOptions):
    HELP = "write the pages of a lab again, from its table"

    folder: Path = argument("DIR", "folder of the lab (--out)", Path)
    export: bool = flag("also write figures as SVG and PDF, and tables as CSV and LaTeX, into its folder export")

    def run(self) -> int:
        from cluster.record.folder import claimed
        from kits.market.lab.experiments.registry import EXPERIMENTS
        from kits.market.lab.page import INDEX_FILE, write_pages
        from kits.market.lab.running import read_lab

        output = console()
        with claimed(self.folder):
            lab = read_lab(self.folder, EXPERIMENTS)
            write_pages(self.folder, lab)
            if self.export:
                from kits.market.lab.exports import write_exports

                write_exports(self.folder / EXPORT_FOLDER, lab)
        print_line(output, f"digest  {lab.digest}")
        print_line(output, f"pages   {self.folder / INDEX_FILE}")
        if self.export:
            print_line(output, f"export  {self.folder / EXPORT_FOLDER}")
        return ExitCode.PASS


COMMANDS: Final = {
    "lab": Group(
        "run experiments about scheduling policies",
        {"list": ListExperiments, "run": RunExperiment, "run-all": RunAll, "report": Report, "tune": Tune},
        "list|run|run-all|report|tune",
        Topic.ECONOMICS,
    )
}
