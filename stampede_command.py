"""The entry of the ``stampede`` command: checks that Python imports Stampede's own packages, and loads the rest.

The packages have ordinary names. A module of the same name earlier on Python's path, such as a ``validator.py`` in a
folder of ``PYTHONPATH``, would be imported instead and fail later.
"""

from __future__ import annotations

import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OWN_PACKAGES: Final = ("cluster", "consensus", "kits", "loadgen", "spec", "validator")
KITS: Final = "kits"
"""The one that may be missing: a core can be installed without it."""
BAD_INPUT: Final = 2
INCONCLUSIVE: Final = 3
WITHOUT_DOCSTRINGS: Final = 2
"""Python's level of optimisation that drops docstrings."""
CRASH: Final = 4
"""The code for a bug, as in :mod:`cluster.common.errors`, which may be what cannot be loaded."""


def hidden() -> str | None:
    """The error if another module hides a package of Stampede; ``None`` if none does."""
    root = Path(__file__).resolve().parent
    for name in OWN_PACKAGES:
        spec = find_spec(name)
        places = [] if spec is None else [*(spec.submodule_search_locations or []), *filter(None, [spec.origin])]
        if name == KITS and not (root / name).is_dir():
            continue
        if not places:
            return f"the package {name} is missing: expected it in {root}"
        if Path(places[0]).resolve() != root / name:
            return f"{places[0]} hides Stampede's own {name}, which is in {root}: take its folder off PYTHONPATH"
    return None


def without_texts() -> str | None:
    """The error if Python drops docstrings, which commands show: descriptions of rules, cases and bugs."""
    if sys.flags.optimize < WITHOUT_DOCSTRINGS:
        return None
    return "Python drops the texts that commands show: expected at most PYTHONOPTIMIZE=1 or python -O"


def main() -> int:
    """Run the process's own command line; returns the exit code."""
    if (problem := hidden() or without_texts()) is not None:
        print(f"stampede: {problem}", file=sys.stderr)
        return BAD_INPUT
    try:
        from cluster.common.checkout import keep_out

        keep_out()
        from cluster.commands.cli.main import main as perform

        return perform()
    except KeyboardInterrupt:  # while the rest is loaded
        print("stampede: interrupted", file=sys.stderr)
        return INCONCLUSIVE
    except Exception as error:  # noqa: BLE001 (a bug is no verdict)
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        print(f"stampede: crashed, without a verdict: {what}; the traceback is above", file=sys.stderr)
        return CRASH
