"""The ``stampede`` command's first step: it makes sure that what it imports is Stampede's own.

Stampede's packages have ordinary names. A module of one of these names that comes first on Python's path, such as a
``validator.py`` in a folder of ``PYTHONPATH``, would be taken in its place, and fail somewhere deep within.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OWN_PACKAGES: Final = ("cluster", "consensus", "loadgen", "validator")
BAD_INPUT: Final = 2


def hidden() -> str | None:
    """What stands in the place of a package of ours, in one line; ``None`` where nothing does."""
    root = Path(__file__).resolve().parent
    for name in OWN_PACKAGES:
        spec = find_spec(name)
        places = [] if spec is None else [*(spec.submodule_search_locations or []), *filter(None, [spec.origin])]
        if not places:
            return f"the package {name} is missing: expected it in {root}"
        if Path(places[0]).resolve() != root / name:
            return f"{places[0]} hides Stampede's own {name}, which is in {root}: take its folder off PYTHONPATH"
    return None


def main() -> int:
    """Run the process's own command line; returns the exit code."""
    if (problem := hidden()) is not None:
        print(f"stampede: {problem}", file=sys.stderr)
        return BAD_INPUT
    os.environ["PYTHONSAFEPATH"] = "1"  # for processes that it starts: the working directory is not on their path
    from cluster.tools.cli.entry import main as perform

    return perform()
