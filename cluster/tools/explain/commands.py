"""``stampede validate``, ``explain`` and ``schema``: scenario files before a run."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.common.wording import printable
from cluster.tools.console.options import add_change_options
from cluster.tools.console.output import console

PLAIN_WIDTH: Final = 120
"""Columns if the output is not a terminal."""
PICTURE: Final = ".svg"
PAGE: Final = ".html"


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    validate = commands.add_parser("validate", help="check scenario files, and show which backends can run them")
    validate.add_argument("scenarios", type=Path, nargs="+", metavar="FILE", help="scenario file (YAML)")
    validate.set_defaults(command=_validate)

    explain = commands.add_parser("explain", help="show what a scenario will do and when, its network and warnings")
    explain.add_argument("scenario", type=Path, metavar="FILE", help="scenario file (YAML)")
    explain.add_argument(
        "--out", type=_output, metavar="FILE", help="write a page (.html) or the network's picture (.svg) instead"
    )
    explain.add_argument("--backend", choices=("live", "sim"), help="the backend to run it on; an error if it cannot")
    add_change_options(explain)
    explain.set_defaults(command=_explain)

    schema = commands.add_parser("schema", help="print the JSON schema of scenario files, for editors")
    schema.set_defaults(command=_schema)


def _output(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (PICTURE, PAGE):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a name that ends in {PAGE} or {PICTURE}")
    return path


def _validate(options: Any) -> int:
    are_valid = True
    for path in options.scenarios:
        result, problems = _validated(path)
        if result:
            print(printable(result))
        for problem in problems:
            print(f"stampede: {printable(problem)}", file=sys.stderr)
        are_valid = are_valid and not problems
    return ExitCode.PASS if are_valid else ExitCode.BAD_INPUT


def _validated(path: Path) -> tuple[str, list[str]]:
    """The backends of a valid file as text, or all errors of an invalid one."""
    from cluster.scenario.files import load_scenario, problems_in

    if problems := problems_in(path):
        return "", problems
    scenario = load_scenario(path)
    live, sim = scenario.live_problem, scenario.simulator_problem
    if live and sim:
        return "", [f"{path}: no backend can run it: live: {live}; sim: {sim}"]
    where = f"sim only: {live}" if live else f"live only: {sim}" if sim else "live and sim"
    return f"{path}: valid ({where})", []


def _explain(options: Any) -> int:
    from cluster.common.files import write_for_user
    from cluster.record.folder import RUNS_FOLDER
    from cluster.scenario import change_scenario, load_scenario
    from cluster.scenario.overrides import options_of
    from cluster.tools.explain.distances import distances
    from cluster.tools.explain.outline import outline
    from cluster.tools.explain.outline_output import print_outline, render_outline
    from cluster.tools.explain.picture import picture

    path: Path = options.scenario
    scenario = change_scenario(load_scenario(path), options.changes, f"{path} with {options_of(options.changes)}")
    problem = scenario.live_problem if options.backend == "live" else scenario.simulator_problem
    if options.backend and problem:
        raise BadInput(f"{path}: {problem}")
    found, apart = outline(scenario, options.backend), distances(scenario.network)
    if options.out is None:
        print_outline(console(PLAIN_WIDTH), scenario, found, apart)
        return ExitCode.PASS
    is_picture = options.out.suffix == PICTURE
    content = picture(scenario) + "\n" if is_picture else render_outline(scenario, found, apart, str(path))
    if options.out.parent == RUNS_FOLDER:
        with suppress(OSError):  # the next line reports it
            RUNS_FOLDER.mkdir(exist_ok=True)
    write_for_user(options.out, content)
    print(f"written to {options.out}")
    return ExitCode.PASS


def _schema(_: Any) -> int:
    from cluster.scenario.schema import schema_text

    sys.stdout.write(schema_text())
    return ExitCode.PASS
