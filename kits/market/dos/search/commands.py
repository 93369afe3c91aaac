"""``stampede dos search``: a search for the most harmful attack within a budget."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.commands.console.command import FOLDER, OPTIONAL, argument, option
from cluster.commands.console.options import ChangeOptions, CodeOptions, ForceOption, parse_seed, whole_number
from cluster.common.units import SECONDS_PER_MINUTE
from cluster.record.folder import SEARCH
from validator.primitives.types import parse_decimal

DEFAULT_SCENARIO: Final = Path("narrow-lanes")
OBJECTIVES: Final = ("lateness", "spend_ratio", "block_time", "starvation")
MAX_ZEROS: Final = 30
MAX_BUDGET: Final = 10**MAX_ZEROS


def parse_budget(text: str) -> int:
    """An amount as an integer, or as digits with an exponent: ``5e13``."""
    digits, e, exponent = text.partition("e")
    number, zeros = parse_decimal(digits, MAX_BUDGET), parse_decimal(exponent if e else "0", MAX_ZEROS)
    budget = 0 if number is None or zeros is None else number * 10**zeros
    if not 1 <= budget <= MAX_BUDGET:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a valid budget: expected 1 to 1e30, such as 5e13")
    return budget


@dataclass(frozen=True, kw_only=True)
class Search(ForceOption, ChangeOptions, CodeOptions):
    KIND = SEARCH
    HELP = "search for the most harmful attack within a budget"
    DESCRIPTION = (
        "Searches for the attack that does the most harm for a budget: candidates on the transition alone, the best of"
        " them in the simulator. Writes what it finds as a scenario. 0: an attack was found and confirmed, 3: none was,"
        " or it was interrupted."
    )

    scenario: Path = argument(
        "SCENARIO",
        f"scenario file (YAML), or the name of one that ships (default {DEFAULT_SCENARIO}); its attackers are left out",
        Path,
        nargs=OPTIONAL,
        default=DEFAULT_SCENARIO,
    )
    policy: str | None = option(
        "policy, as in stampede dos: its name, or the path of a Python file (default: the scenario's own)", "NAME"
    )
    objective: str = option("what to maximise (default %(default)s)", choices=OBJECTIVES, default="lateness")
    budget: int = option(
        "what all attackers hold together at genesis, in the smallest unit; 5e13 is a way to write it",
        "COINS",
        parse_budget,
        required=True,
    )
    minutes: int = option(
        "how long to search, without confirming and shrinking (default %(default)s)",
        "M",
        whole_number("number of minutes", 1, 10_000),
        default=10,
    )
    candidates: int | None = option(
        "end after this many candidates, those of an interrupted search included",
        "N",
        whole_number("number of candidates", 1, 10**7),
    )
    blocks: int = option(
        "of a candidate's run (default %(default)s)", "N", whole_number("number of blocks", 20, 10_000), default=200
    )
    seed: int | None = option("of the search and its runs (default: the scenario's)", "SEED", parse_seed)
    processes: int | None = option(
        "worker processes (default: one for each processor); 1: without Ray",
        "N",
        whole_number("number of processes", 1, 1_024),
    )
    confirm: int = option(
        "how many of the best to run in the simulator (default %(default)s)",
        "N",
        whole_number("number of attacks", 1, 100),
        default=3,
    )
    out: Path | None = option("the search's folder; an interrupted search continues in its folder", writes=FOLDER)

    def run(self) -> int:
        from kits.market.dos.cases import policy_changes
        from kits.market.dos.search.search_run import command_of, load_problem, run_search
        from kits.market.dos.search.searching import Limits

        own = () if self.policy is None else policy_changes(self.policy)
        changes = (*own, *self.changes)
        problem = load_problem(self.scenario, changes, self.objective, self.budget, self.seed, self.blocks)
        command = command_of(problem, self.scenario, self.changes, self.policy)
        limits = Limits(self.minutes * SECONDS_PER_MINUTE, self.candidates)
        return run_search(problem, command, limits, self.processes, self.confirm, self.out)
