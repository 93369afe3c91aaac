"""``stampede run``, ``attach`` and ``up``: run a testnet. ``inject`` and ``stop``: control a live one."""

from __future__ import annotations

import os
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.commands.console.command import FOLDER, Command, Topic, argument, flag, option
from cluster.commands.console.options import (
    BackendOption,
    BindOption,
    ChangeOptions,
    CodeOptions,
    DurationOption,
    ForceOption,
    SeedOption,
    StopOnFailOption,
    parse_port,
    whole_number,
)
from cluster.commands.console.outputs import TracedOutputOptions
from cluster.common.errors import BadInput, ExitCode
from cluster.live.web.addresses import Served

MIN_LEASE_S, MAX_LEASE_S, DEFAULT_LEASE_S = 10, 86_400, 300


@dataclass(frozen=True, kw_only=True)
class RunFolder(Command):
    """What all that act on a run have in common."""

    folder: Path = argument("RUN", "the run's folder", Path)


@dataclass(frozen=True, kw_only=True)
class RunOptions(
    SeedOption, StopOnFailOption, BindOption, ForceOption, ChangeOptions, CodeOptions, TracedOutputOptions
):
    """What ``run`` and ``up`` have in common."""

    out: Path | None = option("the run's folder (default runs/<time>-<scenario>)", writes=FOLDER)
    port: int = option(
        "port of the testnet's own HTTP endpoint (default: a free one)",
        "N",
        parse_port,
        default=0,
    )


@dataclass(frozen=True, kw_only=True)
class Run(BackendOption, DurationOption, RunOptions):
    TOPIC = Topic.RUN
    HELP = "run a scenario and judge it"

    scenario: Path = argument("SCENARIO", "scenario file (YAML), or the name of one that ships, such as smoke", Path)
    check_determinism: bool = flag("with --backend sim: run twice, and fail at the first event that differs")
    dashboard: bool = flag("with --backend live: print the address of the live dashboard")
    keep: bool = flag("with --backend live: if the run does not pass, leave the testnet running (idle) until Ctrl-C")
    lease_s: int | None = option(
        "with --backend live: if this process dies, the testnet goes on this long, for stampede attach to take it"
        f" over (default {DEFAULT_LEASE_S} with --for and RAY_ADDRESS, else it ends with this process)",
        "SECONDS",
        whole_number("number of seconds", MIN_LEASE_S, MAX_LEASE_S),
        name="--attachable",
    )

    def run(self) -> int:
        from cluster.commands.run.scenario_run import LiveOptions, run_scenario

        return run_scenario(
            self.scenario,
            self.backend,
            self.seed,
            self.out,
            self.check_determinism,
            self.changes,
            LiveOptions(keep=self.keep, served=Served(self.bind, self.port, self.dashboard), lease_s=self._lease_s()),
            stop_on_fail=self.stop_on_fail,
            duration_s=self.duration_s,
            outputs=self.outputs,
        )

    def _lease_s(self) -> int | None:
        """Time in seconds for which the testnet continues without its driver; ``None`` if it ends with the driver."""
        if self.lease_s is not None or self.backend != "live" or self.duration_s is None:
            return self.lease_s
        from cluster.live.driver.ray_session import ADDRESS_VARIABLE, LOCAL_ADDRESS

        is_joined = os.environ.get(ADDRESS_VARIABLE, LOCAL_ADDRESS) not in ("", LOCAL_ADDRESS)
        return DEFAULT_LEASE_S if is_joined else None


@dataclass(frozen=True, kw_only=True)
class Attach(RunFolder, CodeOptions, TracedOutputOptions):
    TOPIC = Topic.RUN
    HELP = "take over a live run whose driver has died, up to its verdict"

    def run(self) -> int:
        from cluster.commands.run.attaching import attach_run

        return attach_run(self.folder, self.outputs)


@dataclass(frozen=True, kw_only=True)
class Up(RunOptions):
    TOPIC = Topic.RUN
    HELP = "keep a live testnet running until Ctrl-C, then judge it"

    scenario: Path = argument("SCENARIO", "as in stampede run; its stop height is ignored", Path)
    faucet: bool = flag(
        "serve a faucet (POST /faucet) to clients with the token in the file faucet-token; see chain.faucet"
    )

    def run(self) -> int:
        from cluster.commands.run.scenario_run import LiveOptions, run_scenario

        live = LiveOptions(run_until_stopped=True, served=Served(self.bind, self.port, True), faucet=self.faucet)
        return run_scenario(
            self.scenario,
            "live",
            self.seed,
            self.out,
            changes=self.changes,
            live=live,
            stop_on_fail=self.stop_on_fail,
            outputs=self.outputs,
        )


@dataclass(frozen=True, kw_only=True)
class Inject(RunFolder):
    TOPIC = Topic.RUN
    HELP = "add a fault to a running live testnet, now or later"
    RUNS_CODE = False

    fault: str = argument(
        "FAULT",
        "as in a scenario's faults, such as '{kind: kill, target: leader}'; now, or with at_height or at_ms later",
    )

    def run(self) -> int:
        from cluster.commands.run.control_client import ControlClient

        fault = ControlClient.of_run(self.folder).add_fault(parse_fault(self.fault))
        when = f"height {fault['at_height']:,}" if "at_height" in fault else f"{fault['at_ms']:,} ms after the start"
        print(f"added: {fault['kind']} at {when}")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Stop(RunFolder):
    TOPIC = Topic.RUN
    HELP = "end a running live testnet as if it had reached its stop height"
    RUNS_CODE = False

    def run(self) -> int:
        from cluster.commands.run.control_client import ControlClient

        ControlClient.of_run(self.folder).stop()
        print("stop requested")
        return ExitCode.PASS


COMMANDS: Final = {"run": Run, "attach": Attach, "up": Up, "inject": Inject, "stop": Stop}


def parse_fault(text: str) -> dict[str, Any]:
    """Parse the fields of a fault from YAML. Raises :class:`BadInput`."""
    from cluster.common.strict_yaml import NoYaml, parse

    try:
        fields = parse(text)
    except NoYaml as error:
        raise BadInput(f"FAULT: no YAML: {error.problem}") from None
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        shown = reprlib.repr(text)
        raise BadInput(f"FAULT: expected fields of a fault, such as {{kind: kill, target: leader}}, got {shown}")
    return fields
