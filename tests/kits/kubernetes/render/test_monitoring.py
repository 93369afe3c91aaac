"""The ports at which Prometheus finds validators are those at which a host serves them, also after a restart."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.checkout import ROOT
from cluster.live.web.addresses import PORTS_VARIABLE
from cluster.scenario import Scenario
from kits.kubernetes.render import Deployment, Monitoring, monitoring
from kits.kubernetes.render.metadata import Manifest
from kits.kubernetes.render.monitoring import alerts, http_ports, monitors, port_range
from tests.hangs import HANGS_AFTER_S

SCENARIO: dict[str, Any] = {"name": "several", "validators": {"count": 7, "hosts": 4}}
STARTED = """
import json, os, sys
from cluster.live.host.host import ValidatorHost
host = ValidatorHost(sys.argv[1], sys.argv[2], 1, 0, "127.0.0.1")
print(json.dumps([address.url for address in host.start()]), flush=True)
os._exit(9)
"""
"""A host that is killed as soon as its validators serve."""


def first_free(count: int) -> int:
    """The first of so many ports in a row that are free."""
    for first in range(28_000, 30_000, count):
        with socket.socket() as one:
            try:
                for port in range(first, first + count):
                    with socket.socket() as each:
                        each.bind(("127.0.0.1", port))
            except OSError:
                continue
            one.close()
            return first
    raise AssertionError("no ports are free")


@pytest.mark.slow
def test_a_host_serves_at_the_ports_that_are_scraped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario.model_validate(SCENARIO)
    monkeypatch.setattr(monitoring, "FIRST_PORT", first_free(4))
    environment = {**os.environ, PORTS_VARIABLE: port_range(scenario)}
    expected = [f"http://127.0.0.1:{port}" for port in http_ports(scenario)]
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", STARTED, str(tmp_path), scenario.model_dump_json()],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
            check=False,
        )
        assert done.returncode == 9, done.stderr
        assert json.loads(done.stdout) == expected


def test_alerts_know_the_quorum_and_the_disk() -> None:
    scenario = Scenario.model_validate({**SCENARIO, "kubernetes": {"validators": {"disk": "10Gi"}}})
    found = {name: expression for name, expression, *_ in alerts(scenario, Deployment("mine"))}
    assert " < 5 and " in found["StampedeNoQuorum"]
    assert found["StampedeFewPeers"].endswith("< 4")
    assert found["StampedeDiskFills"].endswith(f"> {8 * 2**30}")
    assert all('{app_kubernetes_io_instance="mine"}' in each for each in found.values())
    alone = Scenario.model_validate({"name": "a", "validators": 1})
    assert "StampedeFewPeers" not in {name for name, *_ in alerts(alone, Deployment("a"))}


def test_alerts_are_the_same_whether_the_namespace_is_known() -> None:
    assert monitored("tests")["PrometheusRule"]["spec"] == monitored()["PrometheusRule"]["spec"]


def monitored(namespace: str | None = None) -> dict[str, Manifest]:
    """The objects for monitoring, by kind."""
    deployment = Deployment("mine", namespace, ("run", "a.yaml"))
    return {each["kind"]: each for each in monitors(Scenario.model_validate(SCENARIO), deployment, Monitoring())}


RENDER = ["k8s", "render", "smoke", "--name", "mine"]


def test_objects_for_monitoring_alone_have_the_labels_that_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--label", "release=prometheus", "--label", "example.com/team=", "--runbooks", "https://docs.example/a"]
    assert main([*RENDER, "--monitoring", *given]) == 0
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    labelled = {each["kind"]: each for each in found if each["metadata"]["labels"].get("release") == "prometheus"}
    assert labelled.keys() == monitored().keys()
    for kind, plain in monitored().items():
        added = {"release": "prometheus", "example.com/team": ""}
        assert labelled[kind]["metadata"]["labels"] == {**plain["metadata"]["labels"], **added}
    (group,) = labelled["PrometheusRule"]["spec"]["groups"]
    assert all("https://docs.example/a#" in rule["annotations"]["runbook_url"] for rule in group["rules"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--monitoring", "--label", "release"], "--label: 'release': expected KEY=VALUE, such as release=monitoring"),
        (
            ["--monitoring", "--label", "/a=b"],
            "--label: expected a label, such as kubernetes.io/arch or disk, got '/a'",
        ),
        (["--monitoring", "--label", "a=b c"], "--label: expected a label's value for a (letters, digits"),
        (
            ["--monitoring", "--label", "app.kubernetes.io/name=mine"],
            "label app.kubernetes.io/name: Stampede sets it itself: expected another one",
        ),
        (["--label", "a=b"], "--label: expected --monitoring with it"),
        (["--runbooks", "https://a"], "--runbooks: expected --monitoring with it"),
    ],
)
def test_a_wrong_option_of_monitoring_is_one_line(
    capsys: pytest.CaptureFixture[str], options: list[str], line: str
) -> None:
    assert main([*RENDER, *options]) == 2
    printed = capsys.readouterr()
    assert line in printed.err and printed.err.count("\n") == 1 and printed.out == ""


def test_grafana_finds_the_dashboard_by_its_label() -> None:
    config = monitored()["ConfigMap"]
    assert config["metadata"]["name"] == "mine-dashboard"
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config["metadata"]["labels"]["app.kubernetes.io/instance"] == "mine"
    assert list(config["data"]) == ["stampede-mine.json"]


def test_the_dashboard_selects_by_labels_that_the_monitor_gives() -> None:
    """The operator adds namespace, pod, container and endpoint."""
    found = monitored("tests")
    page = json.loads(found["ConfigMap"]["data"]["stampede-mine.json"])
    given = {re.sub(r"\W", "_", each) for each in found["PodMonitor"]["spec"]["podTargetLabels"]} | {"namespace"}
    targets = [target for panel in page["panels"] for target in panel["targets"]]
    asked = {label for target in targets for label in re.findall(r'(\w+)="', target["expr"])}
    assert asked == {"app_kubernetes_io_instance", "namespace"} and asked <= given
    legends = {each["legendFormat"] for each in targets if "stampede_height" in each["expr"]}
    assert set(re.findall(r"\{\{(\w+)\}\}", "".join(legends))) <= given | {"endpoint"}
    chosen = {each["name"]: each.get("current", {}).get("value") for each in page["templating"]["list"]}
    assert chosen == {"datasource": None, "instance": "mine", "namespace": "tests"}


def test_dashboards_of_several_namespaces_are_told_apart() -> None:
    pages = [json.loads(monitored(space)["ConfigMap"]["data"]["stampede-mine.json"]) for space in (None, "a", "b")]
    assert [page["title"] for page in pages] == ["Stampede mine", "Stampede a/mine", "Stampede b/mine"]
    assert len({page["uid"] for page in pages}) == 3
