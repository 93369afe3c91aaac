"""``stampede size``."""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.tools.console.options import add_change_options, whole_number
from cluster.tools.console.output import console

MAX_CORES: Final = 100_000


def add_commands(commands: Any) -> None:
    """Add the command to the console command's parser."""
    size = commands.add_parser(
        "size", help="guess the cores, memory, disk and bandwidth that a scenario wants, and whether it fits here"
    )
    size.add_argument("scenario", type=Path, metavar="FILE", help="scenario file (YAML)")
    size.add_argument(
        "--cores",
        type=whole_number("number of cores", 1, MAX_CORES),
        metavar="N",
        help="guess for this many cores like this machine's, of one machine or a cluster (default: this machine)",
    )
    size.add_argument("--json", action="store_true", help="print JSON: the estimate and the calibration")
    add_change_options(size)
    size.set_defaults(command=_size)


def _size(options: Any) -> int:
    from cluster.scenario import change_scenario, load_scenario
    from cluster.scenario.overrides import options_of
    from cluster.tools.explain.size.calibration import calibrate
    from cluster.tools.explain.size.estimate import estimate
    from cluster.tools.explain.size.estimate_output import print_estimate

    path: Path = options.scenario
    scenario = change_scenario(load_scenario(path), options.changes, f"{path} with {options_of(options.changes)}")
    if scenario.live_problem:
        raise BadInput(f"{path}: {scenario.live_problem}")
    measured = calibrate(scenario, lambda step: print(step, file=sys.stderr, flush=True))
    files_here, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = estimate(scenario, measured, options.cores, files_here)
    if options.json:
        print(json.dumps({"estimate": asdict(found), "calibration": asdict(measured)}, indent=2))
    else:
        print_estimate(console(), scenario, found, options.cores is None)
    return ExitCode.FAIL if options.cores is None and found.problems else ExitCode.PASS
