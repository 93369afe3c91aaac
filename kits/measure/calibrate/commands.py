"""``stampede calibrate``: fits the simulator's times to live runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.commands.console.command import FILE, FOLDER, argument, option
from cluster.commands.console.options import ChangeOptions, CodeOptions, ForceOption, whole_number
from cluster.commands.console.output import console, print_line
from cluster.record.folder import CALIBRATION, CALIBRATION_FILE

MAX_RUNS: Final = 100
MAX_PERCENT: Final = 1_000
DEFAULT_RUNS: Final = 3
DEFAULT_PERCENT: Final = 15


@dataclass(frozen=True, kw_only=True)
class Calibrate(ForceOption, ChangeOptions, CodeOptions):
    KIND = CALIBRATION
    HELP = "fit the simulator's times to live runs of a scenario, and show how far the simulator is from live runs"

    scenario: Path = argument("SCENARIO", "scenario file (YAML), or the name of one that ships, such as smoke", Path)
    check: Sequence[Path] = option(
        "another scenario, whose gaps are shown, too; it is not used to fit, and --set does not change it; repeatable",
        "SCENARIO",
        Path,
        repeats=True,
    )
    runs: int = option(
        f"live runs of each scenario, and simulated ones (default {DEFAULT_RUNS})",
        "N",
        whole_number("number of runs", 1, MAX_RUNS),
        default=DEFAULT_RUNS,
    )
    within: int = option(
        f"the gap that p50 and p95 of finality and fires a second may have (default {DEFAULT_PERCENT})",
        "PERCENT",
        whole_number("percentage", 1, MAX_PERCENT),
        default=DEFAULT_PERCENT,
    )
    save: Path | None = option("write the profile to FILE, which scenarios can name", writes=FILE)
    json: Path | None = option("also write gaps and profile to FILE", writes=FILE)
    out: Path | None = option("folder for the live runs (default runs/<time>-calibrate-<scenario>)", writes=FOLDER)

    def run(self) -> int:
        from datetime import UTC, datetime

        import psutil

        from cluster.commands.compare.budget import EXIT_CODES
        from cluster.commands.console.crashes import command_folder
        from cluster.common.checkout import checkout_commit
        from cluster.common.files import all_tried, write_for_user, write_json_for_user
        from cluster.common.outcome import worst
        from cluster.scenario.files import load_scenario
        from kits.measure.calibrate.calibration import calibrate, check_scenarios
        from kits.measure.calibrate.output import calibration_page, print_gaps, profile_text

        scenarios = [load_scenario(self.scenario, self.changes), *map(load_scenario, self.check)]
        check_scenarios(scenarios)
        name, now = scenarios[0].name, datetime.now(UTC)
        processors = len(psutil.Process().cpu_affinity())

        def tell(step: str) -> None:
            print(step, file=sys.stderr, flush=True)

        with command_folder(self.out, f"calibrate-{name}") as folder:
            begun = {"scenarios": [{"scenario": each.name} for each in scenarios]}
            write_json_for_user(folder / CALIBRATION_FILE, begun)
            found = calibrate(scenarios, self.runs, self.within / 100, processors, folder, tell)
            outcome = worst(each.outcome for each in found.gaps)
            page = calibration_page(found.gaps, found.profile, outcome)
            write_json_for_user(folder / CALIBRATION_FILE, page)
        terminal = console()
        for each in found.gaps:
            print_gaps(terminal, each)
        print_line(terminal, f"verdict  {outcome.value}: gaps of at most {self.within} % are wanted")
        with all_tried() as trying:
            if self.save is not None:
                origin = f"stampede calibrate {name}: {self.runs} live runs, {now:%Y-%m-%d}, commit {checkout_commit()}"
                with trying():
                    write_for_user(self.save, profile_text(found.profile, origin))
            with trying():
                write_json_for_user(self.json, page)
        return EXIT_CODES[outcome]


COMMANDS: Final = {"calibrate": Calibrate}
