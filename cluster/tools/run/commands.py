"""``stampede run``, ``attach`` and ``up``: run a testnet. ``inject`` and ``stop``: control a live one."""

from __future__ import annotations

import argparse
import os
import reprlib
from pathlib import Path
from typing import Any

from cluster.common.errors import BadInput, ExitCode
from cluster.live.web.addresses import Served
from cluster.tools.console.options import (
    add_bind_option,
    add_change_options,
    add_stop_on_fail,
    parse_duration,
    parse_seed,
    whole_number,
)

MAX_PORT = 65_535
MIN_LEASE_S, MAX_LEASE_S, DEFAULT_LEASE_S = 10, 86_400, 300


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    run = commands.add_parser("run", help="run a scenario and judge it")
    run.add_argument(
        "scenario",
        type=Path,
        metavar="SCENARIO",
        help="scenario file (YAML), or the name of one that ships, such as smoke",
    )
    run.add_argument(
        "--backend",
        choices=("live", "sim"),
        default="live",
        help="real processes on Ray, or the simulator (default %(default)s)",
    )
    run.add_argument(
        "--check-determinism",
        action="store_true",
        help="with --backend sim: run twice, and fail at the first event that differs",
    )
    run.add_argument(
        "--keep",
        action="store_true",
        help="with --backend live: if the run does not pass, leave the testnet running (idle) until Ctrl-C",
    )
    run.add_argument(
        "--for",
        dest="duration_s",
        type=parse_duration,
        metavar="DURATION",
        help="stop the load after this time (90s, 30m, 24h) instead of at the scenario's stop height",
    )
    run.add_argument(
        "--attachable",
        dest="lease_s",
        type=whole_number("number of seconds", MIN_LEASE_S, MAX_LEASE_S),
        metavar="SECONDS",
        help="with --backend live: if this process dies, the testnet goes on this long, for stampede attach to take it"
        f" over (default {DEFAULT_LEASE_S} with --for and RAY_ADDRESS, else it ends with this process)",
    )
    _add_run_options(run)
    run.set_defaults(command=_run)

    attach = commands.add_parser("attach", help="take over a live run whose driver has died, up to its verdict")
    attach.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    attach.set_defaults(command=_attach)

    up = commands.add_parser("up", help="keep a live testnet running until Ctrl-C, then judge it")
    up.add_argument("scenario", type=Path, metavar="SCENARIO", help="as in stampede run; its stop height is ignored")
    up.add_argument(
        "--port",
        type=whole_number("port", 1, MAX_PORT),
        default=0,
        metavar="N",
        help="port of the testnet's own HTTP endpoint (default: a free one)",
    )
    up.add_argument(
        "--faucet",
        action="store_true",
        help="serve a faucet (POST /faucet) to clients with the token in the file faucet-token; see chain.faucet",
    )
    _add_run_options(up)
    up.set_defaults(command=_up)

    inject = commands.add_parser("inject", help="add a fault to a running live testnet, now or later")
    inject.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    inject.add_argument(
        "fault",
        metavar="FAULT",
        help="as in a scenario's faults, such as '{kind: kill, target: leader}'; now, or with at_height or at_ms later",
    )
    inject.set_defaults(command=_inject)

    stop = commands.add_parser("stop", help="end a running live testnet as if it had reached its stop height")
    stop.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    stop.set_defaults(command=_stop)


def _add_run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=parse_seed, metavar="N", help="use this seed instead of the scenario's")
    command.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default runs/<time>-<scenario>)")
    add_stop_on_fail(command)
    add_bind_option(command)
    add_change_options(command)


def _run(options: Any) -> int:
    from cluster.tools.run.scenario_run import LiveOptions, run_scenario

    return run_scenario(
        options.scenario,
        options.backend,
        options.seed,
        options.out,
        options.check_determinism,
        options.changes,
        LiveOptions(keep=options.keep, served=Served(options.bind), lease_s=_lease_s(options)),
        stop_on_fail=options.stop_on_fail,
        duration_s=options.duration_s,
    )


def _lease_s(options: Any) -> int | None:
    """The time for which the testnet outlives its driver; ``None`` if it does not."""
    if options.lease_s is not None or options.backend != "live" or options.duration_s is None:
        return int(options.lease_s) if options.lease_s is not None else None
    from cluster.live.driver.ray_session import ADDRESS_VARIABLE, LOCAL_ADDRESS

    is_joined = os.environ.get(ADDRESS_VARIABLE, LOCAL_ADDRESS) not in ("", LOCAL_ADDRESS)
    return DEFAULT_LEASE_S if is_joined else None


def _attach(options: Any) -> int:
    from cluster.tools.run.attaching import attach_run

    return attach_run(options.run)


def _up(options: Any) -> int:
    from cluster.tools.run.scenario_run import LiveOptions, run_scenario

    live = LiveOptions(run_until_stopped=True, served=Served(options.bind, options.port), faucet=options.faucet)
    return run_scenario(
        options.scenario,
        "live",
        options.seed,
        options.out,
        changes=options.changes,
        live=live,
        stop_on_fail=options.stop_on_fail,
    )


def _inject(options: Any) -> int:
    from cluster.live.control_client import ControlClient

    fault = ControlClient.of_run(options.run).add_fault(parse_fault(options.fault))
    when = f"height {fault['at_height']:,}" if "at_height" in fault else f"{fault['at_ms']:,} ms after the start"
    print(f"added: {fault['kind']} at {when}")
    return ExitCode.PASS


def _stop(options: Any) -> int:
    from cluster.live.control_client import ControlClient

    ControlClient.of_run(options.run).stop()
    print("stop requested")
    return ExitCode.PASS


def parse_fault(text: str) -> dict[str, Any]:
    """The fields of a fault, from YAML. Raises :class:`BadInput`."""
    from cluster.common.strict_yaml import NoYaml, parse

    try:
        fields = parse(text)
    except NoYaml as error:
        raise BadInput(f"FAULT: no YAML: {error.problem}") from None
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        shown = reprlib.repr(text)
        raise BadInput(f"FAULT: expected fields of a fault, such as {{kind: kill, target: leader}}, got {shown}")
    return fields
