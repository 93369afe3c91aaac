"""``stampede mutants``: the kill table, and the search for machine-made bugs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.console.command import FILE, FOLDER, SEVERAL, Topic, option
from cluster.commands.console.options import ForceOption, parse_seed, whole_number
from cluster.commands.console.output import console
from cluster.commands.sweeps.commands import worker_count
from cluster.common.errors import BadInput, ExitCode
from cluster.common.suggestions import unknown
from cluster.record.folder import MACHINE

if TYPE_CHECKING:
    from kits.mutation.detection import Kill

DEFAULT_SEEDS: Final = 4
DEFAULT_MACHINE_SEEDS: Final = 20
MAX_BUGS: Final = 10_000
OF_MACHINE: Final = ("machine_seed", "scenarios", "least", "out")
"""Names of the options that are allowed only with ``--machine``."""
MAX_SEEDS: Final = 1_000
PLAIN_WIDTH: Final = 200
"""Columns of a table that is written to a file or a pipe."""


@dataclass(frozen=True, kw_only=True)
class Mutants(ForceOption):
    KIND = MACHINE
    TOPIC = Topic.SEARCH
    HELP = "plant known bugs and print which check catches each"
    RUNS_CODE = False
    DESCRIPTION = (
        "Runs the harness against planted bugs. 0: all are caught, 1: one survives. With --machine: 0: all were tried,"
        " 1: a smaller share than --least was seen, 3: it was interrupted."
    )

    json: Path | None = option("write the table there too", writes=FILE)
    junit: Path | None = option("write JUnit XML there, a test case a mutant", writes=FILE)
    seeds: int | None = option(
        f"seeds of its scenario, from 1 on, over which each is counted (default: {DEFAULT_SEEDS}); more are tried"
        " until it is caught; with --machine: seeds of each protocol and scenario, from 0 on"
        f" (default: {DEFAULT_MACHINE_SEEDS})",
        "N",
        whole_number("number of seeds", 1, MAX_SEEDS),
    )
    only: Sequence[str] = option(
        "plant these only; with --machine: change code below these paths only", "NAME", nargs=SEVERAL, default=()
    )
    workers: int | None = option("worker processes (default: one a processor)", "N", worker_count)
    machine: int | None = option(
        "derive N bugs from the code, and say what share of them random scenarios detect",
        "N",
        whole_number("number of bugs", 1, MAX_BUGS),
    )
    machine_seed: int | None = option("with --machine: the seed of the draw (default: 0)", "N", parse_seed)
    scenarios: Sequence[Path] | None = option(
        "with --machine: run these too; files, or names of scenarios that ship", "SCENARIO", Path, nargs=SEVERAL
    )
    least: int | None = option(
        "with --machine: fail if less than N percent are seen", "N", whole_number("percentage", 0, 100)
    )
    out: Path | None = option("with --machine: its folder; an interrupted search continues there", writes=FOLDER)

    def run(self) -> int:
        if self.machine is not None:
            return self._search(self.machine)
        for name in OF_MACHINE:
            if getattr(self, name) is not None:
                raise BadInput(f"{self.option_name(name)}: expected together with --machine N")
        return self._kill_table()

    def _search(self, bugs: int) -> int:
        from cluster.commands.console.output import print_line
        from cluster.commands.sweeps.drawing.random_scenario import check_installed
        from cluster.commands.sweeps.runner import check_task
        from cluster.commands.sweeps.tasks import ScenarioTask
        from kits.mutation.generated.report import page, print_search, search_xml
        from kits.mutation.generated.search import Plan, search

        check_installed()
        scenarios = tuple(ScenarioTask.load(path) for path in self.scenarios or ())
        for task in scenarios:
            check_task(task, 0)
        seeds = self.seeds or DEFAULT_MACHINE_SEEDS
        plan = Plan(bugs, seeds, self.machine_seed or 0, tuple(self.only), scenarios)
        output = console(PLAIN_WIDTH)
        found = search(plan, self.out, self.workers, lambda line: print_line(output, line))
        print_search(output, found)
        self._write(page(found), lambda: search_xml(found))
        if not found.is_complete:
            return ExitCode.INCONCLUSIVE
        return ExitCode.FAIL if found.percent_seen < (self.least or 0) else ExitCode.PASS

    def _kill_table(self) -> int:
        from cluster.commands.sweeps.fanout import run_each
        from kits.mutation.detection import all_bugs, detect, page, table_xml
        from kits.mutation.output import print_table

        known = all_bugs()
        names = list(dict.fromkeys(self.only or known))
        for name in names:
            if name not in known:
                raise BadInput(f"--only: {unknown('mutant', name, known)}")
        output = console(PLAIN_WIDTH)
        found: dict[int, Kill] = {}
        work = partial(detect, min_seeds=self.seeds or DEFAULT_SEEDS)
        for number, kill in run_each(work, names, self.workers, "mutant"):
            found[number] = kill
            if output.is_terminal:
                word = "caught" if kill.caught else "survived"
                output.print(f"{len(found)} of {len(names)}  {kill.name} {word}", markup=False)
        kills = [found[number] for number in sorted(found)]
        print_table(output, kills)
        self._write(page(kills), lambda: table_xml(kills))
        return ExitCode.PASS if all(kill.caught for kill in kills) else ExitCode.FAIL

    def _write(self, page: object, junit: Callable[[], str]) -> None:
        from cluster.common.files import all_tried, write_for_user, write_json_for_user

        with all_tried() as trying:
            with trying():
                write_json_for_user(self.json, page)
            if self.junit is not None:
                with trying():
                    write_for_user(self.junit, junit())


COMMANDS: Final = {"mutants": Mutants}
