"""The commands that read the folders of runs (``stampede runs``, ``judge``, ``export``, ``verify-run``, ``bisect``),
and ``nodes``, which lists the nodes of a Ray cluster. The commands for a validator's data folder are in
:mod:`cluster.commands.inspect.disk_commands`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.commands.console.command import FILE, FOLDER, OPTIONAL, SEVERAL, Command, Topic, argument, flag, option
from cluster.commands.console.options import ChangeOptions, CodeOptions, whole_number
from cluster.commands.console.output import console, print_line
from cluster.commands.console.outputs import OutputOptions
from cluster.common.errors import BadInput, ExitCode
from cluster.common.wording import json_text, printable

MAX_HASH_SEED: Final = 2**32 - 1
"""Maximum value of ``PYTHONHASHSEED``."""
SHOWN: Final = 30
"""Maximum number of runs that ``stampede runs`` shows without ``--all``."""


@dataclass(frozen=True, kw_only=True)
class Runs(Command):
    TOPIC = Topic.LOOK
    HELP = "list the runs in runs/ and update their index page"
    RUNS_CODE = False

    folder: Path | None = argument("DIR", "another folder of runs (default: runs)", Path, nargs=OPTIONAL)
    all: bool = flag(f"list all runs (default: the {SHOWN} newest)")
    json: Path | None = option("also write the index to FILE", writes=FILE)
    follow: Path | None = option("print the events of this live run as they come, and list none", "RUN", Path)

    def run(self) -> int:
        if self.follow is not None:
            from cluster.commands.rerun.follow import follow
            from cluster.commands.rerun.replay import Filter

            if self.folder is not None or self.all or self.json is not None:
                raise BadInput("--follow: not with another folder, --all or --json")
            return follow(self.follow, Filter())
        from cluster.commands.inspect.run_list import print_runs
        from cluster.common.files import all_tried, write_json_for_user, writing_for_user
        from cluster.record.folder import RUNS_FOLDER, tell_version
        from cluster.report.run_index import INDEX_FILE, read_index, write_index

        folder = RUNS_FOLDER if self.folder is None else self.folder
        try:
            entries = read_index(folder)
        except OSError as error:
            raise BadInput(f"{error.filename or folder}: {error.strerror}") from None
        out = console()
        for entry in entries:
            tell_version(folder / entry.name, entry.version or None)
        print_runs(out, entries if self.all else entries[:SHOWN])
        if len(entries) > SHOWN and not self.all:
            out.print(f"{len(entries) - SHOWN} older ones: --all")
        page = folder / INDEX_FILE
        with all_tried() as trying:
            with trying(), writing_for_user(page):
                write_index(folder, entries)
                out.print(f"index  {page}", soft_wrap=True, markup=False)
            with trying():
                write_json_for_user(self.json, [entry.page() for entry in entries])
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class JudgeRun(ChangeOptions, CodeOptions, OutputOptions):
    TOPIC = Topic.LOOK
    HELP = "judge a run again, with the checks of this code or with other criteria"

    folder: Path = argument("RUN", "a run's folder, such as runs/latest", Path)

    def run(self) -> int:
        from cluster.commands.inspect.judge import judge_again

        return judge_again(self.folder, self.changes, self.outputs)


@dataclass(frozen=True, kw_only=True)
class Export(CodeOptions):
    TOPIC = Topic.LOOK
    HELP = "write a run's timers, transactions, blocks, validators and faults as tables"
    DESCRIPTION = "Writes tables for notebooks, as CSV and Parquet, and schema.json with columns, types and units."

    folder: Path = argument("RUN", "folder of a run, a sweep, a lab or a scorecard, such as runs/latest", Path)
    to: Path | None = option("another folder for the tables (default: tables in that folder)", writes=FOLDER)
    format: str | None = option("one format alone: csv, which needs no extra, or parquet", choices=("csv", "parquet"))

    def run(self) -> int:
        from cluster.commands.inspect.export import export
        from cluster.tables.files import FORMATS

        output = console()
        for line in export(self.folder, self.to, FORMATS if self.format is None else (self.format,)):
            print_line(output, line)
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class VerifyRun(CodeOptions):
    TOPIC = Topic.LOOK
    HELP = "execute a run's blocks again from genesis, compare state roots"

    folder: Path = argument("RUN", "a run's folder, such as runs/latest", Path)
    pythons: Sequence[str] = option(
        "Python interpreter to execute them with (default: this one); repeatable", "PATH", name="--python", repeats=True
    )
    hash_seeds: Sequence[int] = option(
        "values of PYTHONHASHSEED; the blocks are executed once with each",
        "N",
        whole_number("hash seed", 0, MAX_HASH_SEED),
        nargs=SEVERAL,
        default=(),
    )

    def run(self) -> int:
        from cluster.commands.inspect.verify_run import verify_run

        return verify_run(self.folder, self.pythons, self.hash_seeds)


@dataclass(frozen=True, kw_only=True)
class Bisect(CodeOptions):
    TOPIC = Topic.LOOK
    HELP = "find the step and the state keys at which a diverged validator's execution differs"

    folder: Path = argument("RUN", "a run's folder, such as runs/latest", Path)
    validator: str | None = option("this validator only (default: all that diverged)", "NAME")
    json: bool = flag("print JSON, as divergences in result.json")

    def run(self) -> int:
        from cluster.audit.reexecution.again import second_execution
        from cluster.audit.reexecution.bisect import bisect, page_of_two
        from cluster.audit.reexecution.describe import lines
        from cluster.audit.reexecution.reexecutor import Reexecution
        from cluster.record.archived_run import read_run

        run = read_run(self.folder)
        wanted = [each for each in run.executions if self.validator in (None, each.validator)]
        if self.validator is not None and not wanted:
            known = ", ".join(each.validator for each in run.executions) or "no validator"
            raise BadInput(f"{self.folder}: {self.validator!r} did not diverge; {known} did")
        pages = bisect(Reexecution(run.genesis, run.blocks), wanted)
        if not wanted and (again := second_execution(run, self.folder)) is not None:
            is_final = again.heights < len(run.blocks)
            pages = [page_of_two(again, run.blocks[again.heights] if is_final else None)]
        if self.json:
            print(json_text(pages, indent=2))
        else:
            if not wanted:
                print("no validator diverged" + (", but" if pages else ""))
            if pages:
                print("\n\n".join("\n".join(map(printable, lines(page))) for page in pages))
        return ExitCode.FAIL if pages else ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Nodes(ChangeOptions):
    HELP = "list the nodes of the Ray cluster at RAY_ADDRESS, and what each carries"
    RUNS_CODE = False

    scenario: Path | None = argument("FILE", "scenario to place on them (YAML)", Path, nargs=OPTIONAL)
    json: bool = flag("print JSON")

    def run(self) -> int:
        from cluster.commands.inspect.nodes import page_of, print_nodes, read_cluster
        from cluster.scenario.files import load_scenario

        if self.scenario is None and self.changes:
            raise BadInput("--set and --unset change a scenario; expected its FILE, too")
        scenario = None if self.scenario is None else load_scenario(self.scenario, self.changes)
        found = read_cluster()
        if self.json:
            print(json_text(page_of(found, scenario), indent=2))
        else:
            print_nodes(console(), found, scenario)
        return ExitCode.PASS


COMMANDS: Final = {
    "runs": Runs,
    "judge": JudgeRun,
    "export": Export,
    "verify-run": VerifyRun,
    "bisect": Bisect,
    "nodes": Nodes,
}
