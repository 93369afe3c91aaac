"""Commands that read the folders of runs: ``stampede runs``, ``verify-run``, ``bisect``; ``t8n`` for given blocks; and
``nodes`` for a Ray cluster. :mod:`cluster.tools.inspect.disk_commands` has those for a validator's data folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.tools.console.options import add_change_options, whole_number
from cluster.tools.console.output import console

MAX_HASH_SEED: Final = 2**32 - 1
"""Limit of ``PYTHONHASHSEED``."""
SHOWN: Final = 30
"""Maximum number of runs shown without ``--all``."""


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    runs = commands.add_parser("runs", help="list the runs in runs/ and update their index page")
    runs.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="another folder of runs (default: runs)")
    runs.add_argument("--all", action="store_true", help=f"list all runs (default: the {SHOWN} newest)")
    runs.add_argument("--json", type=Path, metavar="FILE", help="also write the index to FILE")
    runs.set_defaults(command=_runs)

    verify = commands.add_parser("verify-run", help="execute a run's blocks again from genesis, compare state roots")
    verify.add_argument("run", type=Path, metavar="RUN", help="a run's folder, such as runs/latest")
    verify.add_argument(
        "--python",
        dest="pythons",
        action="append",
        default=[],
        metavar="PATH",
        help="Python interpreter to execute them with (default: this one); repeatable",
    )
    verify.add_argument(
        "--hash-seeds",
        type=whole_number("hash seed", 0, MAX_HASH_SEED),
        nargs="+",
        default=[],
        metavar="N",
        help="values of PYTHONHASHSEED; the blocks are executed once with each",
    )
    verify.set_defaults(command=_verify_run)

    bisect = commands.add_parser(
        "bisect", help="find the step and the state keys at which a diverged validator's execution differs"
    )
    bisect.add_argument("run", type=Path, metavar="RUN", help="a run's folder, such as runs/latest")
    bisect.add_argument("--validator", metavar="NAME", help="this validator only (default: all that diverged)")
    bisect.add_argument("--json", action="store_true", help="print JSON, as divergences in result.json")
    bisect.set_defaults(command=_bisect)

    nodes = commands.add_parser("nodes", help="list the nodes of the Ray cluster at RAY_ADDRESS, and what each carries")
    nodes.add_argument("scenario", type=Path, nargs="?", metavar="FILE", help="scenario to place on them (YAML)")
    nodes.add_argument("--json", action="store_true", help="print JSON")
    add_change_options(nodes)
    nodes.set_defaults(command=_nodes)

    t8n = commands.add_parser("t8n", help="apply the pure state transition to blocks (for conformance tests)")
    t8n.add_argument("--genesis", type=Path, required=True, metavar="G.json", help="the genesis")
    t8n.add_argument("--blocks", type=Path, required=True, metavar="B.json", help="the blocks, in order")
    t8n.add_argument("--out", type=Path, required=True, metavar="O.json", help="write the outcome to this file")
    t8n.set_defaults(command=_t8n)


def _nodes(options: argparse.Namespace) -> int:
    from cluster.scenario import change_scenario, load_scenario
    from cluster.scenario.overrides import options_of
    from cluster.tools.inspect.nodes import page_of, print_nodes, read_cluster

    if options.scenario is None and options.changes:
        raise BadInput("--set and --unset change a scenario; expected its FILE, too")
    path, scenario = options.scenario, None
    if path is not None:
        scenario = change_scenario(load_scenario(path), options.changes, f"{path} with {options_of(options.changes)}")
    found = read_cluster()
    if options.json:
        print(json.dumps(page_of(found, scenario), indent=2))
    else:
        print_nodes(console(), found, scenario)
    return ExitCode.PASS


def _runs(options: argparse.Namespace) -> int:
    from cluster.common.files import write_for_user
    from cluster.record.folder import RUNS_FOLDER
    from cluster.report.run_index import INDEX_FILE, write_index
    from cluster.tools.inspect.run_list import print_runs

    folder = RUNS_FOLDER if options.folder is None else options.folder
    try:
        entries = write_index(folder)
    except OSError as error:
        raise BadInput(f"{error.filename or folder}: {error.strerror}") from None
    out = console()
    print_runs(out, entries if options.all else entries[:SHOWN])
    if len(entries) > SHOWN and not options.all:
        out.print(f"{len(entries) - SHOWN} older ones: --all")
    out.print(f"index  {folder / INDEX_FILE}", soft_wrap=True, markup=False)
    if options.json is not None:
        write_for_user(options.json, json.dumps([entry.page() for entry in entries], indent=2) + "\n")
    return ExitCode.PASS


def _verify_run(options: Any) -> int:
    from cluster.tools.inspect.verify_run import verify_run

    return verify_run(options.run, options.pythons, options.hash_seeds)


def _bisect(options: Any) -> int:
    from cluster.audit.reexecution.bisect import bisect
    from cluster.audit.reexecution.describe import lines
    from cluster.audit.reexecution.reexecutor import Reexecution
    from cluster.record.folder import read_run

    run = read_run(options.run)
    wanted = [each for each in run.executions if options.validator in (None, each.validator)]
    if options.validator is not None and not wanted:
        known = ", ".join(each.validator for each in run.executions) or "no validator"
        raise BadInput(f"{options.run}: {options.validator!r} did not diverge; {known} did")
    pages = bisect(Reexecution(run.genesis, run.blocks), wanted)
    if options.json:
        print(json.dumps(pages, indent=2))
    elif pages:
        print("\n\n".join("\n".join(lines(page)) for page in pages))
    else:
        print("no validator diverged")
    return ExitCode.FAIL if pages else ExitCode.PASS


def _t8n(options: Any) -> int:
    from cluster.tools.inspect.t8n import run_t8n

    run_t8n(options.genesis, options.blocks, options.out)
    return ExitCode.PASS
