"""``stampede inject`` and ``stampede stop``: telling a live testnet that is up what to do."""

from __future__ import annotations

import argparse
import reprlib
from pathlib import Path
from typing import Any

from cluster.common.errors import BadInput, ExitCode


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    inject: argparse.ArgumentParser = commands.add_parser(
        "inject", help="add a fault to a live run that goes on, at once or later"
    )
    inject.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    inject.add_argument(
        "fault",
        metavar="FAULT",
        help="as in a scenario's faults, as '{kind: kill, target: leader}'; at once, or with at_height or at_ms",
    )
    inject.set_defaults(command=_inject)

    stop: argparse.ArgumentParser = commands.add_parser(
        "stop", help="end a live run that goes on as if its stop height was reached"
    )
    stop.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    stop.set_defaults(command=_stop)


def _inject(options: Any) -> int:
    from cluster.live.control_client import ControlClient

    told = ControlClient.of_run(options.run).add_fault(_fault(options.fault))
    when = f"height {told['at_height']:,}" if "at_height" in told else f"{told['at_ms']:,} ms after the testnet was up"
    print(f"told: {told['kind']} at {when}")
    return ExitCode.PASS


def _stop(options: Any) -> int:
    from cluster.live.control_client import ControlClient

    ControlClient.of_run(options.run).stop()
    print("told to end")
    return ExitCode.PASS


def _fault(text: str) -> dict[str, Any]:
    from cluster.common.strict_yaml import NoYaml, parse

    try:
        fields = parse(text)
    except NoYaml as error:
        raise BadInput(f"FAULT: no YAML: {error.problem}") from None
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        shown = reprlib.repr(text)
        raise BadInput(f"FAULT: expected fields of a fault, such as {{kind: kill, target: leader}}, got {shown}")
    return fields
