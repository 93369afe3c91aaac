"""``stampede load``: a load against any testnet with the HTTP interface."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.commands.console.command import FILE, OPTIONAL, Topic, argument, flag, option
from cluster.commands.console.options import ChangeOptions, CodeOptions, parse_duration, parse_seed, whole_number
from cluster.common.errors import BadInput, ExitCode
from cluster.live.web.addresses import MAX_PORT
from validator.primitives.types import parse_decimal

MAX_WORKERS: Final = 64
DEFAULT_S: Final = 60
DEFAULT_USERS: Final = 1
DEFAULT_INTERVAL_MS: Final = 1_000
DEFAULT_STEP_S: Final = 15
DEFAULT_P99_MS: Final = 2_000
UI_HOST: Final = "127.0.0.1"
UI_PORT: Final = 8089
MASTER_PORT: Final = 5557


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
        if not host or parse_decimal(port, MAX_PORT) is None:
            raise argparse.ArgumentTypeError(f"{text!r}: expected host:port")
        return f"{host}:{port}"

    return parse


@dataclass(frozen=True, kw_only=True)
class Load(ChangeOptions, CodeOptions):
    TOPIC = Topic.RUN
    HELP = "put a scenario's load, or one workload, on a testnet that runs"

    scenario: Path | None = argument(
        "SCENARIO", "scenario file (YAML), or the name of one that ships", Path, nargs=OPTIONAL
    )
    targets: Sequence[str] = option(
        "http://host:port of a validator, or of a testnet of stampede up; repeatable",
        "URL",
        _url,
        name="--target",
        repeats=True,
        required=True,
    )
    workload: str | None = option("one workload, or a workload file, instead of SCENARIO", "NAME")
    users: int | None = option(
        f"of --workload (default {DEFAULT_USERS})", "N", whole_number("number of users", 1, 10_000)
    )
    interval_ms: int | None = option(
        f"of --workload (default {DEFAULT_INTERVAL_MS:,})", "N", whole_number("interval", 1, 3_600_000)
    )
    options: Sequence[str] = option("of --workload; repeatable", "NAME=VALUE", name="--option", repeats=True)
    open: bool = flag("turns are due by the clock alone (arrival: open)")
    seed: int | None = option("of the testnet's genesis (default: its own)", "N", parse_seed)
    duration_s: int | None = option(f"default {DEFAULT_S}s; with --ui none", "DURATION", parse_duration, name="--for")
    workers: int = option(
        "a Locust master here, with this many workers here (default: one process without a master)",
        "N",
        whole_number("number of workers", 0, MAX_WORKERS),
        default=0,
    )
    listen: str | None = option(
        f"a Locust master that workers elsewhere may join (port {MASTER_PORT})", "HOST[:PORT]", _address(MASTER_PORT)
    )
    ui: str | None = option(
        f"Locust's web page ({UI_HOST}:{UI_PORT})",
        "HOST[:PORT]",
        _address(UI_PORT),
        nargs=OPTIONAL,
        const=f"{UI_HOST}:{UI_PORT}",
    )
    find_knee: bool = flag("find the highest load at which finality stays under --p99-ms and the backlog does not grow")
    p99_ms: int | None = option(
        f"with --find-knee: bound of the latency until finality (default {DEFAULT_P99_MS:,})",
        "N",
        whole_number("latency", 1, 3_600_000),
    )
    step_s: int | None = option(
        f"with --find-knee: how long each load lasts (default {DEFAULT_STEP_S}s)",
        "DURATION",
        parse_duration,
        name="--step",
    )
    json: Path | None = option("write the figures", writes=FILE)
    write_plan: Path | None = option("write the plan for your own Locust, and end", writes=FILE)

    def run(self) -> int:
        from cluster.commands.load.knee import find_knee
        from cluster.commands.load.loading import Layout, perform_load, write_plan
        from cluster.commands.load.target import find_target, plan_of_scenario, plan_of_workload

        self._refuse_idle_options()
        target = find_target(self.targets)
        if self.scenario is not None:
            plan = plan_of_scenario(target, self.scenario, self.changes, self.seed)
        else:
            assert self.workload is not None, "one of them is given"
            users, interval_ms = self.users or DEFAULT_USERS, self.interval_ms or DEFAULT_INTERVAL_MS
            plan = plan_of_workload(target, self.workload, users, interval_ms, self.options, self.seed)
        plan = plan.made_open() if self.open or self.find_knee else plan
        layout = Layout(self.workers, self.listen, self.ui)
        if self.find_knee:
            if plan.load.locust is not None:
                raise BadInput(
                    "--find-knee: not with load.locust, whose users it cannot speed up (--unset load.locust)"
                )
            step_s, p99_ms = self.step_s or DEFAULT_STEP_S, self.p99_ms or DEFAULT_P99_MS
            return find_knee(target, plan, layout, step_s, p99_ms, self.json)
        duration_s = self.duration_s or (None if self.ui else DEFAULT_S)
        if self.write_plan is not None:
            write_plan(target, plan, duration_s, self.write_plan)
            return ExitCode.PASS
        return perform_load(target, plan, layout, duration_s, self.json)

    def _refuse_idle_options(self) -> None:
        """Refuse options that would have no effect in this combination. Raises :class:`BadInput`."""
        if (self.scenario is None) == (self.workload is None):
            raise BadInput("expected either SCENARIO or --workload NAME (see stampede load --help)")
        for is_so, idle, words in (
            (
                self.workload is None,
                ("users", "interval_ms", "options"),
                "only with --workload; --set changes a scenario, as in --set load.users[0].count=3",
            ),
            (self.workload is not None, ("changes",), "only with SCENARIO; --option changes a workload"),
            (
                self.write_plan is not None,
                ("find_knee", "json", "workers", "listen", "ui"),
                "not with --write-plan, which starts no load",
            ),
            (not self.find_knee, ("p99_ms", "step_s"), "only with --find-knee; --for says how long another load lasts"),
            (
                self.find_knee,
                ("ui", "duration_s"),
                "not with --find-knee; --step says how long each of its loads lasts",
            ),
        ):
            for name in idle if is_so else ():
                if getattr(self, name):
                    raise BadInput(f"{self.option_name(name)}: {words}")


COMMANDS: Final = {"load": Load}
