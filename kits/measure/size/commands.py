"""``stampede size``: prints the resources that a scenario needs."""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cluster.commands.console.command import argument, flag, option
from cluster.commands.console.options import ChangeOptions, whole_number
from cluster.commands.console.output import console
from cluster.common.errors import BadInput, ExitCode

MAX_CORES: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class Size(ChangeOptions):
    HELP = "guess the cores, memory, disk and bandwidth that a scenario wants, and whether it fits here"
    RUNS_CODE = False

    scenario: Path = argument("FILE", "scenario file (YAML)", Path)
    cores: int | None = option(
        "guess for this many cores like this machine's, of one machine or a cluster (default: this machine)",
        "N",
        whole_number("number of cores", 1, MAX_CORES),
    )
    json: bool = flag("print JSON: the estimate and the calibration")

    def run(self) -> int:
        from cluster.scenario.files import load_scenario
        from kits.measure.size.estimate import estimate
        from kits.measure.size.estimate_output import print_estimate
        from kits.measure.size.measuring import calibrate

        scenario = load_scenario(self.scenario, self.changes)
        if scenario.live_problem:
            raise BadInput(f"{self.scenario}: {scenario.live_problem}")
        measured = calibrate(scenario, lambda step: print(step, file=sys.stderr, flush=True))
        files_here, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        found = estimate(scenario, measured, self.cores, files_here)
        if self.json:
            print(json.dumps({"estimate": asdict(found), "calibration": asdict(measured)}, indent=2))
        else:
            print_estimate(console(), scenario, found, self.cores is None)
        return ExitCode.FAIL if self.cores is None and found.problems else ExitCode.PASS


COMMANDS: Final = {"size": Size}
