"""``stampede validate``, ``explain``, ``scenarios``, ``schema`` and ``grafana``: commands that run nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.console.command import FILE, SEVERAL, Command, Topic, argument, flag, option
from cluster.commands.console.options import ChangeOptions, RunbooksOption
from cluster.commands.console.output import console, plain_table
from cluster.common.errors import BadInput, ExitCode
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import printable

if TYPE_CHECKING:
    from cluster.record.run import Backend

PLAIN_WIDTH: Final = 120
"""Width of the output in columns if it is not a terminal."""
PICTURE: Final = ".svg"
PAGE: Final = ".html"


def _output(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (PICTURE, PAGE):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a name that ends in {PAGE} or {PICTURE}")
    return path


@dataclass(frozen=True, kw_only=True)
class Validate(Command):
    TOPIC = Topic.RUN
    HELP = "check scenario files, and show which backends can run them"
    RUNS_CODE = False

    scenarios: Sequence[Path] = argument("FILE", "scenario file (YAML)", Path, nargs=SEVERAL)

    def run(self) -> int:
        are_valid = True
        for path in self.scenarios:
            result, problems, warnings = _validated(path)
            if result:
                print(printable(result))
            for warning in warnings:
                print(f"stampede: warning: {printable(warning)}", file=sys.stderr)
            for problem in problems:
                print(f"stampede: {printable(problem)}", file=sys.stderr)
            are_valid = are_valid and not problems
        return ExitCode.PASS if are_valid else ExitCode.BAD_INPUT


def _validated(path: Path) -> tuple[str, list[str], list[str]]:
    """Check a scenario file. Returns a text with the backends that can run it, or an empty text and all errors; then
    the warnings."""
    from cluster.commands.explain.warnings import warnings_of_policy
    from cluster.scenario.files import load_scenario, problems_in

    if problems := problems_in(path):
        return "", problems, []
    scenario = load_scenario(path)
    live, sim = scenario.live_problem, scenario.simulator_problem
    if live and sim:
        return "", [f"{path}: no backend can run it: live: {live}; sim: {sim}"], []
    where = f"sim only: {live}" if live else f"live only: {sim}" if sim else "live and sim"
    warnings = [f"{path}: {field}: {what}" for field, what in warnings_of_policy(scenario)]
    return f"{path}: valid ({where})", [], warnings


@dataclass(frozen=True, kw_only=True)
class Explain(ChangeOptions):
    TOPIC = Topic.RUN
    HELP = "show what a scenario will do and when, its network and warnings"
    RUNS_CODE = False

    scenario: Path = argument("FILE", "scenario file (YAML)", Path)
    out: Path | None = option(
        "write a page (.html) or the network's picture (.svg) instead", parse=_output, writes=FILE
    )
    backend: Backend | None = option("the backend to run it on; an error if it cannot", choices=("live", "sim"))

    def run(self) -> int:
        from cluster.commands.explain.outline import distances, outline
        from cluster.commands.explain.outline_output import print_outline, render_outline
        from cluster.commands.explain.picture import picture
        from cluster.common.files import write_for_user
        from cluster.scenario.files import load_scenario

        path = self.scenario
        scenario = load_scenario(path, self.changes)
        problem = scenario.live_problem if self.backend == "live" else scenario.simulator_problem
        if self.backend and problem:
            raise BadInput(f"{path}: {problem}")
        found, apart = outline(scenario, self.backend), distances(scenario.network)
        if self.out is None:
            print_outline(console(PLAIN_WIDTH), scenario, found, apart)
            return ExitCode.PASS
        is_picture = self.out.suffix == PICTURE
        content = picture(scenario) + "\n" if is_picture else render_outline(scenario, found, apart, str(path))
        write_for_user(self.out, content)
        print(f"written to {self.out}")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Scenarios(Command):
    TOPIC = Topic.RUN
    HELP = "list the scenarios that ship, which stampede run finds by their names"
    RUNS_CODE = False

    def run(self) -> int:
        from rich.text import Text

        from cluster.scenario.files import load_scenario, shipped_scenarios

        table = plain_table(("name", "backends", "at least", "what it shows"), folded=("what it shows",))
        for name, path in sorted(shipped_scenarios().items()):
            scenario = load_scenario(path)
            backends = [
                backend
                for backend, problem in (("live", scenario.live_problem), ("sim", scenario.simulator_problem))
                if not problem
            ]
            seconds = scenario.stop.duration_s
            if seconds is None:
                seconds = round(scenario.stop.height * scenario.consensus.block_interval_ms / MILLISECONDS_PER_SECOND)
            table.add_row(Text(name), ", ".join(backends), f"{seconds:,} s", Text(scenario.description))
        console(PLAIN_WIDTH).print(table)
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Schema(Command):
    HELP = "print the JSON schema of scenario files, for editors"
    RUNS_CODE = False

    def run(self) -> int:
        from cluster.scenario.schema import schema_text

        sys.stdout.write(schema_text())
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Grafana(RunbooksOption):
    HELP = "print a dashboard for Grafana, or with --rules the rules for Prometheus"
    RUNS_CODE = False
    DESCRIPTION = (
        "Print a dashboard for Grafana, which shows the testnets that a Prometheus scrapes by their own endpoints;"
        " or with --rules a rule file for that Prometheus: recorded series and alerts."
    )

    rules: bool = flag("print recorded series and alerts as a rule file for Prometheus instead")

    def run(self) -> int:
        from cluster.report.alerts import rules_text
        from cluster.report.grafana import dashboard_text

        sys.stdout.write(rules_text(self.runbooks) if self.rules else dashboard_text())
        return ExitCode.PASS


COMMANDS: Final = {
    "validate": Validate,
    "explain": Explain,
    "scenarios": Scenarios,
    "schema": Schema,
    "grafana": Grafana,
}
