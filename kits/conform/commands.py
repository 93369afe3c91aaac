"""``stampede conform``: test another implementation of the protocol."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.commands.console.command import FILE, FOLDER, Command, Topic, argument, flag, option
from cluster.commands.console.options import ForceOption, whole_number
from cluster.commands.console.output import console
from cluster.commands.sweeps.commands import seed_range, worker_count
from cluster.common.errors import BadInput, ExitCode
from cluster.record.folder import FAILING_CASES
from kits.conform.references import REFERENCES

if TYPE_CHECKING:
    from kits.conform.tool import ToolCommand

DEFAULT_SEEDS: Final = range(20)
DEFAULT_TIMEOUT_S: Final = 30
DEFAULT_FOLDER: Final = Path("conform-failures")
MAX_TIMEOUT_S: Final = 3_600


def _families() -> Any:
    return option(
        "only families whose names match, such as 'message*'; repeatable", "NAME", name="--family", repeats=True
    )


def _seeds(default: range | None = DEFAULT_SEEDS) -> Any:
    shown = f"{DEFAULT_SEEDS.start}:{DEFAULT_SEEDS.stop}"
    return option(f"seeds A to B - 1 of each family (default {shown})", "A:B", seed_range, default=default)


@dataclass(frozen=True, kw_only=True)
class Families(Command):
    HELP = "list the families of cases and their rules"
    RUNS_CODE = False
    DESCRIPTION = "List the families of cases in the order in which an implementer makes them pass, with their rules."

    def run(self) -> int:
        from cluster.commands.console.output import plain_table
        from kits.conform.families.table import TABLE

        table = plain_table(("family", "rules", "about"))
        for name, family in TABLE.families.items():
            table.add_row(name, " ".join(family.rules), family.about)
        console().print(table)
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    HELP = "write cases with their expected outputs as files"
    RUNS_CODE = False
    DESCRIPTION = (
        "Write a corpus: a folder for each family, a file for each case with its expected output, and a manifest. "
        "`stampede conform --corpus DIR` reads it."
    )

    folder: Path = argument("DIR", "a new folder", Path, writes=FOLDER)
    families: Sequence[str] = _families()
    seeds: range = _seeds()

    def run(self) -> int:
        from kits.conform.corpus import export_corpus
        from kits.conform.families.table import TABLE

        manifest = export_corpus(self.folder, TABLE.chosen(self.families), self.seeds)
        families = len(manifest["families"])
        print(f"{manifest['cases']:,} cases, families: {families:,}, hash {manifest['hash']}")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Conform(ForceOption):
    KIND = FAILING_CASES
    TOPIC = Topic.TEST
    HELP = "test another implementation of the protocol with conformance cases"
    RUNS_CODE = False
    DESCRIPTION = (
        "Put conformance cases to a program, and compare each field of its output with this implementation's. "
        "`stampede conform families` lists the families of cases."
    )
    EPILOG = (
        "The program is called as COMMAND --genesis G.json --blocks B.json --out O.json for each case, or once with "
        "--serve. Exit codes: 0 all the same, 1 a case differs or has no answer, 2 bad input, 3 no case was answered."
    )

    tool: str | None = option("the program and its arguments", "COMMAND")
    against: str | None = option(
        "in place of a program: this project at another commit, in a checkout below this one", "COMMIT"
    )
    serve: bool = flag("COMMAND stays up: it gets a line of JSON on standard input for each case, and prints one")
    steps: bool = flag("COMMAND tells the steps of blocks that are asked for: the pages of failing cases show them")
    families: Sequence[str] = _families()
    seeds: range | None = _seeds(None)
    corpus: Path | None = option("the cases of a corpus, in place of generated ones", "DIR", Path)
    no_roots: bool = flag("do not compare state roots, for programs with another tree")
    timeout: int = option(
        "seconds for the answer to a case (default %(default)s)",
        "S",
        whole_number("number of seconds", 1, MAX_TIMEOUT_S),
        default=DEFAULT_TIMEOUT_S,
    )
    workers: int | None = option("processes, each with its own COMMAND (default: one per processor)", "N", worker_count)
    stop_on_fail: bool = flag("stop at the first case that fails")
    rules: bool = flag("also print how many cases reached each rule")
    out: Path | None = option(f"folder for failing cases, shrunk (default {DEFAULT_FOLDER})", writes=FOLDER)
    no_shrink: bool = flag("do not shrink failing cases")
    json: Path | None = option("also write the results to FILE", writes=FILE)
    junit: Path | None = option("write JUnit XML to FILE, a test case per family", writes=FILE)

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        super().add_to(parser)
        for word, command in OTHERS.items():
            other = type(parser)(prog=f"{parser.prog} {word}", description=command.DESCRIPTION)
            command.add_to(other)
            parser.words[word] = other  # type: ignore[attr-defined]

    def run(self) -> int:
        import os
        import shlex

        from cluster.commands.console.terminal import progress_bar
        from cluster.common.files import all_tried, write_for_user, write_json_for_user
        from cluster.record.folder import claimed
        from kits.conform.corpus import CorpusCases
        from kits.conform.families.table import TABLE
        from kits.conform.results.failure_page import remove_passed
        from kits.conform.results.failures import shrink_failures
        from kits.conform.results.output import print_rules, print_sweep, sweep_xml
        from kits.conform.source import GeneratedCases, Source
        from kits.conform.sweep import run_sweep

        folder = self.out or DEFAULT_FOLDER
        command = self._command()
        command.words()
        chosen = [family.name for family in TABLE.chosen(self.families)]
        source: Source
        if self.corpus is not None:
            if self.seeds is not None:
                raise BadInput("--seeds: not with --corpus, which has its own cases")
            source = CorpusCases.open(self.corpus, chosen if self.families else [])
        else:
            source = GeneratedCases(tuple(chosen), self.seeds or DEFAULT_SEEDS)
        workers = self.workers or len(os.sched_getaffinity(0))
        output = console()
        with nullcontext() if self.no_shrink else claimed(folder):
            with progress_bar(output) as bar:
                task = bar.add_task("cases", total=source.count())
                result = run_sweep(
                    source, command, workers, not self.no_roots, self.stop_on_fail, lambda: bar.advance(task)
                )
            print_sweep(output, result)
            if not self.no_shrink:
                remove_passed(folder, result.passed)
            if result.failures and not self.no_shrink:
                shrink_failures(source, command, result, not self.no_roots, folder, output)
        if self.rules:
            print_rules(output, result)
        with all_tried() as trying:
            with trying():
                write_json_for_user(self.json, result.page())
            if self.junit is not None:
                words = ["--tool", self.tool] if self.tool is not None else ["--against", self.against or ""]
                words += ["--serve"] if self.serve else []
                with trying():
                    write_for_user(self.junit, sweep_xml(result, shlex.join(["stampede", "conform", *words])))
        return result.exit_code

    def _command(self) -> ToolCommand:
        """The program under test, ready to be started."""
        import shlex

        from kits.conform.checkouts import accepts, checkout_of, commit_of
        from kits.conform.tool import ToolCommand

        if self.tool is not None:
            if self.against is not None:
                raise BadInput("--against: not together with --tool; expected one of them")
            return ToolCommand(self.tool, self.serve, self.timeout, self.steps)
        if self.against is None:
            raise BadInput("expected --tool COMMAND or --against COMMIT")
        if self.serve or self.steps:
            raise BadInput(f"--{'serve' if self.serve else 'steps'}: not with --against, which finds out by itself")
        program = checkout_of(commit_of(self.against))
        stays_up = accepts(program, "t8n", "--serve")
        words = [str(program), "t8n", *(["--serve"] if stays_up else [])]
        return ToolCommand(shlex.join(words), stays_up, self.timeout, accepts(program, "t8n", "--steps"))


OTHERS: Final[dict[str, type[Command]]] = {"families": Families, "export": Export}
"""Commands that a first word selects in place of a sweep."""
COMMANDS: Final = {"conform": Conform, **REFERENCES}
