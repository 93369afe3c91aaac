"""``stampede load``: a load against any testnet with the HTTP interface."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput, ExitCode
from cluster.tools.console.options import add_change_options, parse_duration, parse_seed, whole_number

MAX_WORKERS: Final = 64
DEFAULT_S: Final = 60
DEFAULT_USERS: Final = 1
DEFAULT_INTERVAL_MS: Final = 1_000
DEFAULT_STEP_S: Final = 15
DEFAULT_P99_MS: Final = 2_000
UI_HOST: Final = "127.0.0.1"
UI_PORT: Final = 8089
MASTER_PORT: Final = 5557
OPTION_NAMES: Final = {"options": "--option", "changes": "--set", "duration_s": "--for", "step_s": "--step"}
"""Options whose names differ from those of their fields."""


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    load = commands.add_parser("load", help="put a scenario's load, or one workload, on a testnet that runs")
    load.add_argument(
        "scenario", nargs="?", type=Path, metavar="SCENARIO", help="scenario file (YAML), or the name of one that ships"
    )
    load.add_argument(
        "--target",
        action="append",
        required=True,
        dest="targets",
        type=_url,
        metavar="URL",
        help="http://host:port of a validator, or of a testnet of stampede up; repeatable",
    )
    load.add_argument("--workload", metavar="NAME", help="one workload, or a workload file, instead of SCENARIO")
    load.add_argument(
        "--users", type=whole_number("number of users", 1, 10_000), metavar="N",
        help=f"of --workload (default {DEFAULT_USERS})",
    )  # fmt: skip
    load.add_argument(
        "--interval-ms", type=whole_number("interval", 1, 3_600_000), metavar="N",
        help=f"of --workload (default {DEFAULT_INTERVAL_MS:,})",
    )  # fmt: skip
    load.add_argument(
        "--option", action="append", default=[], dest="options", metavar="NAME=VALUE", help="of --workload; repeatable"
    )
    load.add_argument("--open", action="store_true", help="turns are due by the clock alone (arrival: open)")
    load.add_argument("--seed", type=parse_seed, metavar="N", help="of the testnet's genesis (default: its own)")
    load.add_argument(
        "--for",
        dest="duration_s",
        type=parse_duration,
        metavar="DURATION",
        help=f"default {DEFAULT_S}s; with --ui none",
    )
    load.add_argument(
        "--workers",
        type=whole_number("number of workers", 0, MAX_WORKERS),
        default=0,
        metavar="N",
        help="a Locust master here, with this many workers here (default: one process without a master)",
    )
    load.add_argument(
        "--listen",
        type=_address(MASTER_PORT),
        metavar="HOST[:PORT]",
        help=f"a Locust master that workers elsewhere may join (port {MASTER_PORT})",
    )
    load.add_argument(
        "--ui",
        nargs="?",
        const=f"{UI_HOST}:{UI_PORT}",
        type=_address(UI_PORT),
        metavar="HOST[:PORT]",
        help=f"Locust's web page ({UI_HOST}:{UI_PORT})",
    )
    load.add_argument(
        "--find-knee",
        action="store_true",
        help="find the highest load at which finality stays under --p99-ms and the backlog does not grow",
    )
    load.add_argument(
        "--p99-ms", type=whole_number("latency", 1, 3_600_000), metavar="N",
        help=f"with --find-knee: bound of the latency until finality (default {DEFAULT_P99_MS:,})",
    )  # fmt: skip
    load.add_argument(
        "--step", dest="step_s", type=parse_duration, metavar="DURATION",
        help=f"with --find-knee: how long each load lasts (default {DEFAULT_STEP_S}s)",
    )  # fmt: skip
    load.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    load.add_argument("--write-plan", type=Path, metavar="FILE", help="write the plan for your own Locust, and end")
    add_change_options(load)
    load.set_defaults(command=_load)


def _url(text: str) -> str:
    url = text.rstrip("/")
    if url.startswith("https:"):
        raise argparse.ArgumentTypeError(f"{text!r}: https is not supported; expected http://host:port")
    if not url.startswith("http://"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected http://host:port")
    return url


def _address(default_port: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        host, _, port = text.rpartition(":") if ":" in text else (text, "", str(default_port))
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise argparse.ArgumentTypeError(f"{text!r}: expected host:port")
        return f"{host}:{port}"

    return parse


def _refuse_idle_options(options: Any) -> None:
    """Refuse options that would have no effect with the others. Raises :class:`BadInput`."""
    if (options.scenario is None) == (options.workload is None):
        raise BadInput("expected either SCENARIO or --workload NAME (see stampede load --help)")
    for is_so, idle, words in (
        (
            options.workload is None,
            ("users", "interval_ms", "options"),
            "only with --workload; --set changes a scenario, as in --set load.users[0].count=3",
        ),
        (options.workload is not None, ("changes",), "only with SCENARIO; --option changes a workload"),
        (
            options.write_plan is not None,
            ("find_knee", "json", "workers", "listen", "ui"),
            "not with --write-plan, which starts no load",
        ),
        (not options.find_knee, ("p99_ms", "step_s"), "only with --find-knee; --for says how long another load lasts"),
        (options.find_knee, ("ui", "duration_s"), "not with --find-knee; --step says how long each of its loads lasts"),
    ):
        for name in idle if is_so else ():
            if getattr(options, name):
                raise BadInput(f"{OPTION_NAMES.get(name, '--' + name.replace('_', '-'))}: {words}")


def _load(options: Any) -> int:
    from cluster.tools.load.knee import find_knee
    from cluster.tools.load.loading import Layout, perform_load, write_plan
    from cluster.tools.load.target import find_target, plan_of_scenario, plan_of_workload

    _refuse_idle_options(options)
    target = find_target(options.targets)
    if options.workload is None:
        plan = plan_of_scenario(target, options.scenario, options.changes, options.seed)
    else:
        users, interval_ms = options.users or DEFAULT_USERS, options.interval_ms or DEFAULT_INTERVAL_MS
        plan = plan_of_workload(target, options.workload, users, interval_ms, options.options, options.seed)
    plan = plan.made_open() if options.open or options.find_knee else plan
    layout = Layout(options.workers, options.listen, options.ui)
    if options.find_knee:
        if plan.load.locust is not None:
            raise BadInput("--find-knee: not with load.locust, whose users it cannot speed up (--unset load.locust)")
        step_s, p99_ms = options.step_s or DEFAULT_STEP_S, options.p99_ms or DEFAULT_P99_MS
        return find_knee(target, plan, layout, step_s, p99_ms, options.json)
    duration_s = options.duration_s or (None if options.ui else DEFAULT_S)
    if options.write_plan is not None:
        write_plan(target, plan, duration_s, options.write_plan)
        return ExitCode.PASS
    return perform_load(target, plan, layout, duration_s, options.json)
