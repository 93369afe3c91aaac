"""``stampede k8s``: a scenario on a Kubernetes cluster with the KubeRay operator."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.tools.console.options import (
    add_change_options,
    add_stop_on_fail,
    parse_duration,
    parse_seed,
    whole_number,
)
from cluster.tools.k8s.rendering import add_render

if TYPE_CHECKING:
    from cluster.tools.k8s.client.kubernetes_run import Asked, Place

DEFAULT_NAMESPACE: Final = "stampede"
DEFAULT_PORT: Final = 9464
MAX_PORT: Final = 65_535
MAX_HOST: Final = 511


def add_commands(commands: Any) -> None:
    """Add the commands to the console command's parser."""
    k8s = commands.add_parser("k8s", help="run scenarios on Kubernetes, with the KubeRay operator")
    group = k8s.add_subparsers(required=True, metavar="COMMAND", parser_class=type(k8s))

    add_render(group)
    run = group.add_parser("run", help="run a scenario in the cluster, fetch its folder, delete everything")
    _add_scenario_options(run)
    run.add_argument("--out", type=Path, metavar="DIR", help="the run's folder here (default runs/<time>-<scenario>)")
    run.add_argument("--keep", action="store_true", help="keep the run's volumes in the cluster")
    run.add_argument(
        "--for",
        dest="duration_s",
        type=parse_duration,
        metavar="DURATION",
        help="stop the load after this time (90s, 30m, 24h) instead of at the scenario's stop height",
    )
    run.set_defaults(command=_run)

    up = group.add_parser("up", help="have a testnet in the cluster until stampede k8s delete")
    _add_scenario_options(up)
    up.add_argument(
        "--port",
        type=whole_number("port", 1, MAX_PORT),
        default=DEFAULT_PORT,
        metavar="N",
        help="port of the testnet's own HTTP endpoint in its pod (default %(default)s)",
    )
    up.add_argument("--faucet", action="store_true", help="serve a faucet, as in stampede up")
    up.set_defaults(command=_up, duration_s=None)

    logs = group.add_parser("logs", help="print the driver's output, or the log of a pod")
    _add_name(logs)
    which = logs.add_mutually_exclusive_group()
    which.add_argument("--validator", metavar="NAME", help="of the pod that carries this validator")
    which.add_argument("--host", type=whole_number("host", 0, MAX_HOST), metavar="N", help="of this host's pod")
    logs.add_argument("--follow", action="store_true", help="until the pod has ended")
    logs.set_defaults(command=_logs)

    report = group.add_parser("report", help="fetch the folder of a run that has ended and kept its volumes")
    _add_name(report)
    report.add_argument("--out", type=Path, metavar="DIR", help="folder here (default runs/<time>-<scenario>)")
    report.set_defaults(command=_report)

    delete = group.add_parser("delete", help="delete everything of a run or testnet, with its volumes")
    _add_name(delete)
    delete.set_defaults(command=_delete)

    inject = group.add_parser("inject", help="add a fault to a testnet in the cluster, now or later")
    _add_name(inject)
    inject.add_argument("fault", metavar="FAULT", help="as in stampede inject")
    inject.set_defaults(command=_inject)

    for listed in group._choices_actions:  # argparse shows this text only in the list
        group.choices[listed.dest].description = listed.help


def _add_scenario_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "scenario",
        type=Path,
        metavar="SCENARIO",
        help="scenario file (YAML), or the name of one that ships, such as smoke",
    )
    command.add_argument("--name", metavar="NAME", help="name in the cluster (default: the scenario's)")
    _add_place(command)
    command.add_argument("--seed", type=parse_seed, metavar="N", help="use this seed instead of the scenario's")
    command.add_argument("--monitoring", action="store_true", help="create objects for Prometheus and Grafana, too")
    command.add_argument(
        "--start-timeout",
        dest="start_timeout_s",
        type=parse_duration,
        default="15m",
        metavar="DURATION",
        help="give up if the pods are not up after this time (default %(default)s)",
    )
    add_stop_on_fail(command)
    add_change_options(command)


def _add_name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="name of the run or testnet in the cluster")
    _add_place(command)


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--namespace", default=DEFAULT_NAMESPACE, metavar="NS", help="namespace of all objects (default %(default)s)"
    )
    command.add_argument("--context", metavar="CTX", help="context of kubectl's configuration (default: its own)")


def _place(options: Any) -> Place:
    from cluster.tools.k8s.client.kubernetes_run import Place

    return Place(options.namespace, options.context)


def _asked(options: Any) -> Asked:
    from cluster.tools.k8s.client.kubernetes_run import Asked

    return Asked(
        options.scenario,
        _place(options),
        options.name,
        options.seed,
        options.changes,
        options.duration_s,
        options.stop_on_fail,
        options.monitoring,
        options.start_timeout_s,
    )


def _run(options: Any) -> int:
    from cluster.tools.k8s.client.kubernetes_run import run_on_kubernetes

    return run_on_kubernetes(_asked(options), options.out, options.keep)


def _up(options: Any) -> int:
    from cluster.tools.k8s.client.kubernetes_run import up_on_kubernetes

    return up_on_kubernetes(_asked(options), options.port, options.faucet)


def _logs(options: Any) -> int:
    from cluster.tools.k8s.client.inspecting import show_logs

    return show_logs(_place(options), options.name, options.validator, options.host, options.follow)


def _report(options: Any) -> int:
    from cluster.tools.k8s.client.inspecting import fetch_report

    return fetch_report(_place(options), options.name, options.out)


def _delete(options: Any) -> int:
    from cluster.tools.k8s.client.inspecting import delete

    return delete(_place(options), options.name)


def _inject(options: Any) -> int:
    from cluster.tools.k8s.client.inspecting import inject

    return inject(_place(options), options.name, options.fault)
