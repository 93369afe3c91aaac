"""``stampede k8s``: a scenario on a Kubernetes cluster with the KubeRay operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.commands.console.command import FOLDER, Command, Group, Topic, argument, flag, option
from cluster.commands.console.options import (
    ChangeOptions,
    CodeOptions,
    DurationOption,
    ForceOption,
    SeedOption,
    StopOnFailOption,
    parse_duration,
    parse_port,
    whole_number,
)
from cluster.common.errors import BadInput
from cluster.record.folder import RUN, SCORECARD, SWEEP, Kind
from kits.kubernetes.names import RUN_FORMS
from kits.kubernetes.rendering import MonitoringOptions, Render, Role, work

if TYPE_CHECKING:
    from kits.kubernetes.client.cluster import Place
    from kits.kubernetes.client.kubernetes_run import Asked

DEFAULT_NAMESPACE: Final = "stampede"
DEFAULT_PORT: Final = 9464
MAX_HOST: Final = 511


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(Command):
    """Where in which cluster."""

    namespace: str = option("namespace of all objects (default %(default)s)", "NS", default=DEFAULT_NAMESPACE)
    context: str | None = option("context of kubectl's configuration (default: its own)", "CTX")

    @property
    def place(self) -> Place:
        """The namespace and the context."""
        from kits.kubernetes.client.cluster import Place

        return Place(self.namespace, self.context)


@dataclass(frozen=True, kw_only=True)
class NamedOptions(PlaceOptions):
    """A run or testnet in the cluster."""

    RUNS_CODE = False

    name: str = argument("NAME", "name of the run or testnet in the cluster")


@dataclass(frozen=True, kw_only=True)
class ScenarioOptions(CodeOptions, SeedOption, PlaceOptions, StopOnFailOption, MonitoringOptions, ChangeOptions):
    """What ``run`` and ``up`` have in common."""

    scenario: Path = argument("SCENARIO", "scenario file (YAML), or the name of one that ships, such as smoke", Path)
    name: str | None = option("name in the cluster (default: the scenario's)", "NAME")
    start_timeout_s: int = option(
        "give up if the pods are not up after this time (default %(default)s)",
        "DURATION",
        parse_duration,
        name="--start-timeout",
        default="15m",
    )

    def asked(self, duration_s: int | None = None, words: Sequence[str] = ("run",)) -> Asked:
        """What these options describe; ``duration_s`` is how long the load of a run lasts, if that is limited."""
        from kits.kubernetes.client.kubernetes_run import Asked

        return Asked(
            self.scenario,
            self.place,
            self.name,
            words,
            self.seed,
            self.changes,
            duration_s,
            self.stop_on_fail,
            self.monitored,
            self.start_timeout_s,
        )


@dataclass(frozen=True, kw_only=True)
class Run(ForceOption, DurationOption, ScenarioOptions):
    HELP = "run a scenario in the cluster, fetch its folder, delete everything"

    out: Path | None = option("the run's folder here (default runs/<time>-<scenario>)", writes=FOLDER)
    keep: bool = flag("keep the run's volumes in the cluster")
    words: Sequence[str] = work(RUN_FORMS)

    def kind(self) -> Kind:
        return {"sweep": SWEEP, "dos": SCORECARD}.get(self.words[0], RUN)

    def run(self) -> int:
        from kits.kubernetes.client.kubernetes_run import run_on_kubernetes

        return run_on_kubernetes(self.asked(self.duration_s, self.words), self.out, self.keep)


@dataclass(frozen=True, kw_only=True)
class Up(ScenarioOptions):
    HELP = "have a testnet in the cluster until stampede k8s delete"

    port: int = option(
        "port of the testnet's own HTTP endpoint in its pod (default %(default)s)",
        "N",
        parse_port,
        default=DEFAULT_PORT,
    )
    faucet: bool = flag("serve a faucet, as in stampede up")

    def run(self) -> int:
        from kits.kubernetes.client.kubernetes_run import up_on_kubernetes

        return up_on_kubernetes(self.asked(), self.port, self.faucet)


@dataclass(frozen=True, kw_only=True)
class List(PlaceOptions):
    HELP = "list the runs and testnets in a namespace"
    RUNS_CODE = False

    def run(self) -> int:
        from kits.kubernetes.client.listing import show_list

        return show_list(self.place)


@dataclass(frozen=True, kw_only=True)
class Status(NamedOptions):
    HELP = "show how far a run or testnet is, its volumes and pods"

    def run(self) -> int:
        from kits.kubernetes.client.listing import show_status

        return show_status(self.place, self.name)


@dataclass(frozen=True, kw_only=True)
class Logs(NamedOptions):
    HELP = "print the driver's output, or the log of a pod"

    validator: str | None = option("of the pod that carries this validator", "NAME")
    host: int | None = option("of this host's pod", "N", whole_number("host", 0, MAX_HOST))
    follow: bool = flag("wait for the pod, and print until it has ended")
    previous: bool = flag("of the container before its last restart")

    def run(self) -> int:
        from kits.kubernetes.client.inspecting import show_logs

        if self.validator is not None and self.host is not None:
            raise BadInput("--host: not together with --validator, which names a pod, too")
        if self.previous and self.follow:
            raise BadInput("--follow: not together with --previous, whose log has ended")
        return show_logs(self.place, self.name, self.validator, self.host, self.follow, self.previous)


@dataclass(frozen=True, kw_only=True)
class Report(NamedOptions):
    HELP = "fetch the folder of a run that has ended and kept its volumes"

    out: Path | None = option("folder here (default runs/<time>-<scenario>)", writes=FOLDER)

    def run(self) -> int:
        from kits.kubernetes.client.inspecting import fetch_report

        return fetch_report(self.place, self.name, self.out)


@dataclass(frozen=True, kw_only=True)
class Delete(NamedOptions):
    HELP = "delete everything of a run or testnet, with its volumes"

    def run(self) -> int:
        from kits.kubernetes.client.inspecting import delete

        return delete(self.place, self.name)


@dataclass(frozen=True, kw_only=True)
class Inject(NamedOptions):
    HELP = "add a fault to a testnet in the cluster, now or later"

    fault: str = argument("FAULT", "as in stampede inject")

    def run(self) -> int:
        from kits.kubernetes.client.inspecting import inject

        return inject(self.place, self.name, self.fault)


TOOLS: Final = {
    "render": Render,
    "run": Run,
    "up": Up,
    "list": List,
    "status": Status,
    "logs": Logs,
    "report": Report,
    "delete": Delete,
    "inject": Inject,
    "role": Role,
}
COMMANDS: Final = {
    "k8s": Group("run scenarios on Kubernetes, with the KubeRay operator", TOOLS, "COMMAND", Topic.KUBERNETES)
}
