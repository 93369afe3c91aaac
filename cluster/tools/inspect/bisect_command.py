"""``stampede bisect``: where the validators of a run that diverged part from the right execution."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from cluster.common.errors import BadInput, ExitCode


def add_commands(commands: Any) -> None:
    """Add the command to the console command's parser."""
    bisect: argparse.ArgumentParser = commands.add_parser(
        "bisect", help="find the step and the state keys in which a diverged validator's execution parts"
    )
    bisect.add_argument("run", type=Path, metavar="RUN", help="a run's folder, such as runs/latest")
    bisect.add_argument("--validator", metavar="NAME", help="only this one (default: all that diverged)")
    bisect.add_argument("--json", action="store_true", help="print what result.json calls divergences")
    bisect.set_defaults(command=_bisect)


def _bisect(options: Any) -> int:
    from cluster.audit.reexecution.bisect import bisect
    from cluster.audit.reexecution.describe import lines
    from cluster.audit.reexecution.reexecutor import Reexecution
    from cluster.record.folder import read_run

    run = read_run(options.run)
    wanted = [each for each in run.executions if options.validator in (None, each.validator)]
    if options.validator is not None and not wanted:
        known = ", ".join(each.validator for each in run.executions) or "nobody"
        raise BadInput(f"{options.run}: {options.validator!r} did not diverge; {known} did")
    pages = bisect(Reexecution(run.genesis, run.blocks), wanted)
    if options.json:
        print(json.dumps(pages, indent=2))
    elif pages:
        print("\n\n".join("\n".join(lines(page)) for page in pages))
    else:
        print("no validator diverged")
    return ExitCode.FAIL if pages else ExitCode.PASS
