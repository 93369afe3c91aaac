"""``stampede dos``: the scorecard of attacks."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.tools.console.options import add_change_options
from cluster.tools.console.output import console, print_line
from cluster.tools.load.dos.search.commands import add_search
from cluster.tools.sweeps.commands import seed_range, worker_count

DEFAULT_SCENARIO: Final = Path("siege")
DEFAULT_SEEDS: Final = range(1, 4)
QUICK_SEEDS: Final = range(1, 2)
PLAIN_WIDTH: Final = 320
"""Width, in columns, of a table that is written to a file or a pipe."""
TENTHS: Final = 10
"""Number of progress lines without a terminal."""


def add_commands(commands: Any) -> None:
    """Add the command to the console command's parser."""
    command = commands.add_parser(
        "dos",
        help="attack a scenario, and score what each attack did and what it cost",
        description="Runs each attack against the same scenario without it, with the same seeds and honest users, and"
        " grades it from A to F. 0: every attack reaches the scenario's least grade, 1: one does not, or a check of a"
        " run fails, 3: an attack did nothing.",
    )
    command.add_argument(
        "scenario",
        type=Path,
        nargs="?",
        default=DEFAULT_SCENARIO,
        metavar="SCENARIO",
        help=f"scenario file (YAML), or the name of one that ships (default {DEFAULT_SCENARIO})",
    )
    command.add_argument(
        "--attack",
        dest="attacks",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="attacks, or paths of Python files with your own attacks (default: those of the scenario's own groups,"
        " or all if it has none)",
    )
    command.add_argument(
        "--policy",
        dest="policies",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="policies: cip1, hardened, fifo (default: the scenario's own)",
    )
    command.add_argument(
        "--param",
        dest="parameters",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="parameters of the chain; a name that is given more than once is tried with each of its values",
    )
    add_change_options(command)
    command.add_argument(
        "--seeds", type=seed_range, metavar="A:B", help="seeds A to B - 1 (default 1:4; quick and live 1:2)"
    )
    command.add_argument("--quick", action="store_true", help="short runs and one seed, for a first look: minutes")
    command.add_argument(
        "--live",
        action="store_true",
        help="run named attacks, and the same without them, on live testnets one after the other; each takes minutes",
    )
    command.add_argument("--workers", type=worker_count, metavar="N", help="processes (default: one per processor)")
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the scorecard to FILE")
    command.add_argument("--out", type=Path, metavar="DIR", help="folder of the scorecard and its page")
    command.set_defaults(command=_dos)
    add_search(command)


def _dos(options: argparse.Namespace) -> int:
    from cluster.common.checkout import checkout_commit
    from cluster.common.files import check_target, write_for_user
    from cluster.record.folder import SCORECARD_FILE, SCORECARD_PAGE_FILE
    from cluster.record.run import Backend
    from cluster.scenario import change_scenario, load_scenario
    from cluster.scenario.overrides import options_of
    from cluster.tools.load.dos.case_runs import run_cases, run_live_cases
    from cluster.tools.load.dos.cases import make_plan, make_variants
    from cluster.tools.load.dos.page import render_scorecard
    from cluster.tools.load.dos.scorecard import make_scorecard
    from cluster.tools.load.dos.scorecard_output import print_scorecard

    if options.live and options.workers is not None:
        raise BadInput("--workers: not with --live, whose runs come one after the other")
    where = f"{options.scenario} with {options_of(options.changes)}"
    scenario = change_scenario(load_scenario(options.scenario), options.changes, where)
    variants = make_variants(scenario, options.policies, options.parameters)
    seeds = options.seeds or (QUICK_SEEDS if options.quick or options.live else DEFAULT_SEEDS)
    backend: Backend = "live" if options.live else "sim"
    plan = make_plan(scenario, options.attacks, variants, seeds, options.quick, backend)
    check_target(options.json)
    folder = _folder(options.out, scenario.name)
    output = console(PLAIN_WIDTH)
    results, interrupted, total = {}, False, len(plan.cases)
    if options.live:
        runs = run_live_cases(plan, folder)
    else:
        runs = run_cases(plan, options.workers, lambda line: print_line(output, line))
    try:
        for case, result in runs:
            results[case] = result
            if output.is_terminal or len(results) * TENTHS // total > (len(results) - 1) * TENTHS // total:
                what = f"{case.attack or 'no attack'} on {case.variant}, seed {case.seed}"
                print_line(output, f"{len(results)} of {total} runs  {what}")
    except KeyboardInterrupt:
        interrupted = True
    card = make_scorecard(plan, scenario.dos, results, checkout_commit(), interrupted)
    print_scorecard(output, card)
    text = json.dumps(card.page(), indent=2) + "\n"
    write_for_user(folder / SCORECARD_FILE, text)
    write_for_user(folder / SCORECARD_PAGE_FILE, render_scorecard(card))
    if options.json is not None:
        write_for_user(options.json, text)
    print_line(output, f"scorecard  {folder / SCORECARD_PAGE_FILE}")
    return card.exit_code


def _folder(given: Path | None, name: str) -> Path:
    """Create the folder of the scorecard. Raises :class:`BadInput`."""
    from cluster.record.folder import new_run_folder

    if given is None:
        return new_run_folder(f"dos-{name}", datetime.now(UTC))
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{given}: cannot be created: {error.strerror}") from None
    return given
