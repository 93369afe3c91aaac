"""``stampede dos``: the scorecard of attacks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.console.command import FILE, FOLDER, OPTIONAL, SEVERAL, Topic, argument, flag, option
from cluster.commands.console.options import ChangeOptions, CodeOptions, ForceOption
from cluster.commands.console.output import console, print_line
from cluster.commands.sweeps.commands import seed_range, worker_count
from cluster.common.errors import BadInput
from cluster.record.folder import SCORECARD
from kits.market.dos.search.commands import Search

if TYPE_CHECKING:
    from cluster.scenario import Scenario
    from kits.market.dos.case_runs import CaseResult
    from kits.market.dos.cases import Plan
    from kits.market.dos.scorecard import Scorecard
    from kits.market.trials import Trial

DEFAULT_SCENARIO: Final = Path("siege")
DEFAULT_SEEDS: Final = range(1, 4)
QUICK_SEEDS: Final = range(1, 2)
PLAIN_WIDTH: Final = 320
"""Width, in columns, of a table that is written to a file or a pipe."""


@dataclass(frozen=True, kw_only=True)
class Dos(ForceOption, ChangeOptions, CodeOptions):
    KIND = SCORECARD
    TOPIC = Topic.ECONOMICS
    HELP = "attack a scenario, and score what each attack did and what it cost"
    DESCRIPTION = (
        "Runs each attack against the same scenario without it, with the same seeds and honest users, and grades it"
        " from A to F. 0: every attack reaches the scenario's least grade, 1: one does not, or a check of a run fails,"
        " 3: an attack did nothing."
    )
    EPILOG = "stampede dos search searches for attacks that no list has (see stampede dos search --help)."

    scenario: Path = argument(
        "SCENARIO",
        f"scenario file (YAML), or the name of one that ships (default {DEFAULT_SCENARIO})",
        Path,
        nargs=OPTIONAL,
        default=DEFAULT_SCENARIO,
    )
    attacks: Sequence[str] = option(
        "attacks, or paths of Python files with your own attacks (default: those of the scenario's own groups,"
        " or all if it has none)",
        "NAME",
        name="--attack",
        nargs=SEVERAL,
        repeats=True,
    )
    policies: Sequence[str] = option(
        "policies: cip1, hardened, fifo, gba_auction, bias_auction, or paths of Python files with your own policies"
        " (default: the scenario's own)",
        "NAME",
        name="--policy",
        nargs=SEVERAL,
        repeats=True,
    )
    parameters: Sequence[str] = option(
        "parameters of the chain; a name that is given more than once is tried with each of its values",
        "NAME=VALUE",
        name="--param",
        nargs=SEVERAL,
        repeats=True,
    )
    seeds: range | None = option("seeds A to B - 1 (default 1:4; quick and live 1:2)", "A:B", seed_range)
    quick: bool = flag("short runs and one seed, for a first look: minutes")
    live: bool = flag(
        "run named attacks, and the same without them, on live testnets one after the other; each takes minutes"
    )
    workers: int | None = option("processes (default: one per processor)", "N", worker_count)
    json: Path | None = option("also write the scorecard to FILE", writes=FILE)
    out: Path | None = option("folder of the scorecard and its page", writes=FOLDER)

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        super().add_to(parser)
        search = type(parser)(prog=f"{parser.prog} search", description=Search.DESCRIPTION)
        Search.add_to(search)
        parser.words["search"] = search  # type: ignore[attr-defined]

    def run(self) -> int:
        from cluster.commands.console.crashes import command_folder
        from cluster.record.run import Backend
        from cluster.scenario.files import load_scenario
        from kits.market.dos.cases import make_plan, make_variants

        if self.live and self.workers is not None:
            raise BadInput("--workers: not with --live, whose runs come one after the other")
        scenario = load_scenario(self.scenario, self.changes)
        variants = make_variants(scenario, self.policies, self.parameters)
        seeds = self.seeds or (QUICK_SEEDS if self.quick or self.live else DEFAULT_SEEDS)
        backend: Backend = "live" if self.live else "sim"
        plan = make_plan(scenario, self.attacks, variants, seeds, self.quick, backend)
        with command_folder(self.out, f"dos-{scenario.name}", goes_on=True) as folder:
            card = self._scorecard(plan, scenario, folder)
        return card.exit_code

    def _scorecard(self, plan: Plan, scenario: Scenario, folder: Path) -> Scorecard:
        """Perform the runs of a plan, print its scorecard and write it into a folder. Returns the scorecard."""
        from cluster.common.checkout import checkout_commit
        from cluster.common.files import all_tried, write_for_user, write_json_for_user
        from cluster.record.folder import SCORECARD_FILE, SCORECARD_PAGE_FILE
        from kits.market.dos.case_runs import run_case, run_live_cases
        from kits.market.dos.scorecard import Scorecard
        from kits.market.dos.scorecard_output import print_scorecard, render_scorecard
        from kits.market.dos.section import DosSection
        from kits.market.trials import run_trials

        output = console(PLAIN_WIDTH)
        results: dict[Trial, CaseResult] = {}
        interrupted = False
        if self.live:
            runs = run_live_cases(plan, folder, output)
        else:
            runs = run_trials(partial(run_case, plan), plan.trials, self.workers, output)
        try:
            results.update(runs)  # keeps those before an interruption
        except KeyboardInterrupt:
            interrupted = True
        card = Scorecard(plan, DosSection.of(scenario), results, checkout_commit(), interrupted)
        print_scorecard(output, card)
        page = card.page()
        with all_tried() as trying:
            with trying():
                write_json_for_user(self.json, page)
            with trying():
                write_json_for_user(folder / SCORECARD_FILE, page)
            with trying():
                write_for_user(folder / SCORECARD_PAGE_FILE, render_scorecard(card))
                print_line(output, f"scorecard  {folder / SCORECARD_PAGE_FILE}")
        return card


COMMANDS: Final = {"dos": Dos}
