"""``stampede k8s render``: the manifests of a scenario, as files or as a stream."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.commands.console.command import FOLDER, OPTIONAL, SEVERAL, argument, flag, option
from cluster.commands.console.options import ChangeOptions, RunbooksOption
from cluster.common.errors import BadInput, ExitCode
from kits.kubernetes.names import FORMS

if TYPE_CHECKING:
    from kits.kubernetes.render.deployment import Deployment, Monitoring
    from kits.kubernetes.render.metadata import Manifest
    from kits.kubernetes.render.planning import Plan

STANDARD_OUTPUT: Final = "-"


def _folder(text: str) -> Path | None:
    return None if text == STANDARD_OUTPUT else Path(text)


def parse_label(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE`` of a label."""
    from kits.kubernetes.section import check_labels

    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE, such as release=monitoring")
    try:
        check_labels({key: value})
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return key, value


def work(forms: str) -> Any:
    """The option ``--command``, whose values have these forms."""
    text = f"what the driver does: {forms} (default run); a drill takes only the section kubernetes of the scenario"
    return option(text, "WORD", name="--command", nargs=SEVERAL, default=("run",))


@dataclass(frozen=True, kw_only=True)
class MonitoringOptions(RunbooksOption):
    """``--monitoring``: whether there are objects for Prometheus and Grafana, and what they have."""

    monitoring: bool = flag("create objects for Prometheus and Grafana, too")
    labels: Sequence[tuple[str, str]] = option(
        "give these objects a label, by which Prometheus and Grafana find them; repeatable",
        "KEY=VALUE",
        parse_label,
        name="--label",
        repeats=True,
    )

    @property
    def monitored(self) -> Monitoring | None:
        """What the options ask for. Raises :class:`BadInput` for one that needs ``--monitoring``."""
        from kits.kubernetes.render.deployment import Monitoring

        if self.monitoring:
            return Monitoring(dict(self.labels), self.runbooks)
        if self.labels or self.runbooks:
            raise BadInput(f"{'--label' if self.labels else '--runbooks'}: expected --monitoring with it")
        return None


@dataclass(frozen=True, kw_only=True)
class Render(MonitoringOptions, ChangeOptions):
    HELP = "write the manifests of a scenario"
    RUNS_CODE = False

    scenario: Path = argument("SCENARIO", "scenario file (YAML), or the name of one that ships", Path)
    name: str | None = option("name of the deployment (default: the scenario's or drill's)", "NAME")
    namespace: str | None = option(
        "namespace, which is rendered, too (default: the one of the command that applies the manifests)", "NAME"
    )
    out: Path | None = option(
        f"folder for a file per object and a kustomization.yaml (default {STANDARD_OUTPUT}: standard output)",
        parse=_folder,
        writes=FOLDER,
    )
    words: Sequence[str] = work(FORMS)
    schedule: str | None = option(
        "do it at these times, in cron syntax: a CronJob instead of the RayJob (default: once; a soak: every night)",
        "CRON",
    )

    def run(self) -> int:
        from kits.kubernetes.text import files, stream

        found = rendered(
            self.scenario, self.words, self.changes, self.name, self.namespace, self.monitored, self.schedule
        )
        if self.out is None:
            sys.stdout.write(stream(found))
        else:
            write_folder(self.out, files(found))
            print(f"{self.out}: {len(found)} objects; kubectl apply --kustomize {self.out}")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Role(ChangeOptions):
    HELP = "write the role of a user of these commands, with the least rights"
    RUNS_CODE = False

    scenario: Path = argument(
        "SCENARIO",
        "scenario to be run (default %(default)s): faults by Kubernetes and pods for the load need more rights",
        Path,
        nargs=OPTIONAL,
        default="smoke",
    )
    words: Sequence[str] = work(FORMS)
    namespace: str | None = option("namespace (default: the one of the command that applies the role)", "NS")
    monitoring: bool = flag("with the rights for --monitoring")

    def run(self) -> int:
        from kits.kubernetes.client.rights import client_role
        from kits.kubernetes.render.deployment import Monitoring
        from kits.kubernetes.text import stream

        monitoring = Monitoring() if self.monitoring else None
        objects = rendered(self.scenario, self.words, self.changes, namespace=self.namespace, monitoring=monitoring)
        sys.stdout.write(stream(client_role(self.namespace, objects)))
        return ExitCode.PASS


def rendered(
    path: Path,
    words: Sequence[str] = ("run",),
    changes: Sequence[Any] = (),
    name: str | None = None,
    namespace: str | None = None,
    monitoring: Monitoring | None = None,
    schedule: str | None = None,
) -> list[Manifest]:
    """The manifests of a scenario file, for a command of the driver. Raises :class:`BadInput`."""
    from cluster.scenario.files import load_scenario
    from kits.kubernetes.render import manifests, soak_manifests
    from kits.kubernetes.render.cron_job import check_schedule
    from kits.kubernetes.render.deployment import Deployment
    from kits.kubernetes.render.planning import plan_of

    plan = plan_of(words, partial(load_scenario, path), changes)
    deployment = Deployment(plan.name if name is None else name, namespace, plan.command, plan.text(path), monitoring)
    times = None if schedule is None else check_schedule(schedule)
    if not plan.command:
        return soak_manifests(plan.scenario, deployment, times)
    if times is None:
        return manifests(plan.scenario, deployment)
    return _scheduled(plan, deployment, path, words, times)


def _scheduled(plan: Plan, deployment: Deployment, path: Path, words: Sequence[str], times: str) -> list[Manifest]:
    """The manifests of a schedule for a plan. Raises :class:`BadInput`."""
    from cluster.scenario.files import find_scenario, load_scenario, scenario_text
    from cluster.scenario.overrides import options_text
    from kits.kubernetes.client.rights import client_role
    from kits.kubernetes.render import manifests, scheduled_manifests
    from kits.kubernetes.render.cron_job import client_command
    from kits.kubernetes.render.planning import section_of

    run = replace(deployment, name=f"{deployment.name}-run")
    made = manifests(plan.scenario, run)
    role, *others = client_role(deployment.namespace, made)
    if others:
        raise BadInput("--schedule: not with faults of how: node, whose rights over nodes no schedule is given")
    given = plan.scenario
    if plan.subject:
        given = load_scenario(path, section_of(plan.scenario))
    timer = replace(deployment, command=(), scenario_text=scenario_text(given, find_scenario(path)), monitoring=None)
    command = client_command(run, given, options_text(plan.changes), words)
    return scheduled_manifests(plan.scenario, timer, command, made, times, role["rules"])


def write_folder(folder: Path, texts: dict[str, str]) -> None:
    """Write rendered files into a folder, which is created if missing, and remove old ones of an earlier rendering.

    Raises :class:`BadInput` if a file of these names is not one of an earlier rendering; or with a line for each file
    that cannot be written, after all others were.
    """
    from cluster.common.files import all_tried, write_for_user, writing_for_user
    from cluster.record.folder import claimed

    with claimed(folder):
        for name in texts:
            if (folder / name).exists() and not _is_rendered(folder / name):
                raise BadInput(f"{folder / name}: is no file of stampede k8s render: choose another folder, or move it")
        with all_tried() as trying:
            for name, text in texts.items():
                with trying():
                    write_for_user(folder / name, text)
            for path in folder.glob("*.yaml"):
                with trying(), writing_for_user(path):
                    if path.name not in texts and _is_rendered(path):
                        path.unlink()


def _is_rendered(path: Path) -> bool:
    """Whether a file is one of an earlier rendering."""
    from kits.kubernetes.text import MADE_BY

    return path.is_file() and path.read_text(encoding="utf-8", errors="replace").startswith(MADE_BY)
