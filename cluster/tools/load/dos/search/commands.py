"""``stampede dos search``: a search for the most harmful attack within a budget."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from cluster.tools.console.options import add_change_options, parse_seed, whole_number

DEFAULT_SCENARIO: Final = Path("narrow-lanes")
OBJECTIVES: Final = ("lateness", "spend_ratio", "block_time", "starvation")
MAX_BUDGET: Final = 10**30


def add_search(dos: Any) -> None:
    """Add ``search`` to the parser of ``stampede dos``."""
    dos.epilog = "stampede dos search searches for attacks that no list has (see stampede dos search --help)."
    search = type(dos)(
        prog=f"{dos.prog} search",
        description="Searches for the attack that does the most harm for a budget: candidates on the transition alone,"
        " the best of them in the simulator. Writes what it finds as a scenario. 0: an attack was found and confirmed,"
        " 3: none was, or it was interrupted.",
    )
    search.add_argument(
        "scenario",
        type=Path,
        nargs="?",
        default=DEFAULT_SCENARIO,
        metavar="SCENARIO",
        help=f"scenario file (YAML), or the name of one that ships (default {DEFAULT_SCENARIO}); its attackers are left"
        " out",
    )
    search.add_argument(
        "--objective", choices=OBJECTIVES, default="lateness", help="what to maximise (default %(default)s)"
    )
    search.add_argument(
        "--budget",
        type=parse_budget,
        required=True,
        metavar="COINS",
        help="what all attackers hold together at genesis, in the smallest unit; 5e13 is a way to write it",
    )
    search.add_argument(
        "--minutes",
        type=whole_number("number of minutes", 1, 10_000),
        default=10,
        metavar="M",
        help="how long to search, without confirming and shrinking (default %(default)s)",
    )
    search.add_argument(
        "--candidates",
        type=whole_number("number of candidates", 1, 10**7),
        metavar="N",
        help="end after this many candidates, those of an interrupted search included",
    )
    search.add_argument(
        "--blocks",
        type=whole_number("number of blocks", 20, 10_000),
        default=200,
        metavar="N",
        help="of a candidate's run (default %(default)s)",
    )
    search.add_argument(
        "--seed", type=parse_seed, metavar="SEED", help="of the search and its runs (default: the scenario's)"
    )
    search.add_argument(
        "--processes",
        type=whole_number("number of processes", 1, 1_024),
        metavar="N",
        help="worker processes (default: one for each processor); 1: without Ray",
    )
    search.add_argument(
        "--confirm",
        type=whole_number("number of attacks", 1, 100),
        default=3,
        metavar="N",
        help="how many of the best to run in the simulator (default %(default)s)",
    )
    search.add_argument(
        "--out", type=Path, metavar="DIR", help="the search's folder; an interrupted search continues in its folder"
    )
    add_change_options(search)
    search.set_defaults(command=_search)
    dos.words["search"] = search


def parse_budget(text: str) -> int:
    """An amount as an integer, or as digits with an exponent: ``5e13``."""
    digits, _, exponent = text.partition("e")
    is_number = all(part.isascii() and part.isdecimal() and len(part) <= 31 for part in (digits, exponent or "0"))
    budget = int(digits) * 10 ** min(int(exponent or 0), 31) if is_number else 0
    if not 1 <= budget <= MAX_BUDGET:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a valid budget: expected 1 to 1e30, such as 5e13")
    return budget


def _search(options: Any) -> int:
    from cluster.tools.load.dos.search.search_run import run_search

    return run_search(options)
