"""Alerts and recorded series: their metrics exist, and Prometheus raises each alert when it must and not otherwise."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import urllib3
import yaml

from cluster.commands.cli import main as cli
from cluster.common.checkout import ROOT
from cluster.report.alerts import RUNBOOKS, rules
from cluster.report.grafana import TESTNET_LABEL, VALIDATOR_LABEL, dashboard_text
from cluster.scenario import Scenario
from kits.kubernetes.render import Deployment, Monitoring
from kits.kubernetes.render.monitoring import monitors
from stampede import up
from tests.cluster.report.test_grafana import METRIC, histogram_of, texts
from tests.hangs import HANGS_AFTER_S
from tests.tools import PROMETHEUS, PROMTOOL, needs

needs_prometheus = needs(PROMETHEUS, PROMTOOL)
ALL = A, B, C, D = tuple(f'{{job="net", validator="{name}"}}' for name in "abcd")
LATER = A2, B2 = tuple(f'{{job="net", validator="{name}-2"}}' for name in "ab")
"""Validators of a later run of the same name."""
OTHER = '{job="other", validator="b"}'
NET = {"job": "net"}
ONE = {**NET, "validator": "b"}
TESTNETS, KUBERNETES = "stampede grafana --rules", "PrometheusRule"
MINUTES = 30


class Case(NamedTuple):
    """An alert, with the values of series every 15 s. Labels are those of :data:`TESTNETS`."""

    alert: str
    series: dict[str, str]
    labels: dict[str, str] | None
    """The labels of the alert that is raised at the end; ``None`` if none is in any minute."""
    sets: tuple[str, ...] = (TESTNETS, KUBERNETES)
    """The rule sets that have the alert."""


def at(validators: Iterable[str], metric: str, values: str) -> dict[str, str]:
    """The same values of a metric at several validators."""
    return {f"{metric}{validator}": values for validator in validators}


def disk(blocks: str, state: str) -> dict[str, str]:
    """The series of the disk of a validator."""
    values = {"blocks": blocks, "state": state}
    return {f'stampede_disk_bytes{{file="{file}", {B[1:]}': each for file, each in values.items()}


FAULTS = f'stampede_peer_faults_total{{reason="x", {B[1:]}'
FIRST_FAULT = Case("StampedePeerFaults", {FAULTS: "0x110 1x9"}, {**ONE, "reason": "x"})
SLOW_START = {**at((A, B), "stampede_height", "0x120"), **at(ALL, "up", "0x120")}
ENDED = {**at(ALL, "stampede_height", "0+1x60 stale"), **at(ALL, "up", "1x60 0x36 stale")}
"""A run that ends after 15 minutes, and whose pods go 9 minutes later."""
QUORUM_IS_QUIET = [
    Case("StampedeNoQuorum", series, None, (KUBERNETES,))
    for series in (
        at(ALL, "up", "0x120"),
        SLOW_START,
        ENDED,
        {**ENDED, **at(LATER, "up", "_x64 0x56"), **at(LATER[:1], "stampede_height", "_x80 0x40")},
        at((A, B, C), "stampede_height", "0+1x120"),
    )
]
CASES = [
    Case("StampedeStalled", {**at(ALL, "stampede_height", "5x120"), **at([OTHER], "stampede_height", "3+1x120")}, NET),
    Case("StampedeStalled", {f"stampede_height{A}": "5x120", f"stampede_height{B}": "3+1x120"}, None),
    Case("StampedeRootsDisagree", {f"stampede_diverged{A}": "0x120", f"stampede_diverged{B}": "0x119 1"}, ONE),
    Case("StampedeRootsDisagree", {f"stampede_diverged{A}": "0x120", f"stampede_diverged{B}": "0x120"}, None),
    Case("StampedeValidatorBehind", {f"stampede_height{A}": "60+1x120", f"stampede_height{B}": "9+1x120"}, ONE),
    Case("StampedeValidatorBehind", {f"stampede_height{A}": "59+1x120", f"stampede_height{B}": "9+1x120"}, None),
    Case("StampedeValidatorBehind", {f"stampede_height{A}": "60+1x120", f"stampede_height{OTHER}": "9+1x120"}, None),
    Case("StampedeBacklogGrows", {f"stampede_backlog{A}": "0+2x120", f"stampede_backlog{B}": "0+2x120"}, NET),
    Case("StampedeBacklogGrows", {f"stampede_backlog{A}": "500-2x120", f"stampede_backlog{B}": "500-2x120"}, None),
    Case("StampedeBacklogGrows", {f"stampede_backlog{A}": "40x99 41x20"}, None),
    FIRST_FAULT,
    FIRST_FAULT._replace(series={FAULTS: "3x110 4x9"}),
    FIRST_FAULT._replace(series={FAULTS: "3x120"}, labels=None),
    Case(
        "StampedeNoQuorum",
        {f"stampede_validator_up{A}": "1x120", f"stampede_validator_up{B}": "0x120"},
        NET,
        (TESTNETS,),
    ),
    Case("StampedeNoQuorum", at((A, B), "stampede_validator_up", "1x120"), None, (TESTNETS,)),
    *QUORUM_IS_QUIET,
    # two validators are left, and of the others not even the pods; then none, but the pods are there
    Case(
        "StampedeNoQuorum",
        {**at((A, B), "stampede_height", "0+1x120"), **at((C, D), "stampede_height", "0+1x110 stale")},
        NET,
        (KUBERNETES,),
    ),
    Case(
        "StampedeNoQuorum",
        {**at(ALL, "stampede_height", "0+1x60 stale"), **at(ALL, "up", "1x60 0x60")},
        NET,
        (KUBERNETES,),
    ),
    Case("StampedeFewPeers", {f"stampede_peers{A}": "2x120", f"stampede_peers{B}": "1x120"}, ONE, (KUBERNETES,)),
    Case("StampedeFewPeers", at((A, B), "stampede_peers", "2x120"), None, (KUBERNETES,)),
    Case("StampedeDiskFills", disk("5e8x120", "4e8x120"), ONE, (KUBERNETES,)),
    Case("StampedeDiskFills", disk("4e8x120", "4e8x120"), None, (KUBERNETES,)),
]


def rules_of(name: str) -> list[dict[str, Any]]:
    """The rules of a set; those of Kubernetes are of four validators with a disk of 1 GiB."""
    if name == TESTNETS:
        (group,) = rules()["groups"]
    else:
        scenario = Scenario.model_validate({"name": "mine", "kubernetes": {"validators": {"disk": "1Gi"}}})
        _, found, _ = monitors(scenario, Deployment("mine"), Monitoring())
        (group,) = found["spec"]["groups"]
    return list(group["rules"])


def alerts(name: str = TESTNETS) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules_of(name) if "alert" in rule}


def as_in(name: str, text: str) -> str:
    """Labels in Prometheus' notation, as the metrics of a rule set have them."""
    if name == TESTNETS:
        return text
    return re.sub(r'job=("\w+")', r'namespace=\1, app_kubernetes_io_instance="mine"', text).replace(
        "validator=", "pod="
    )


def promtool(folder: Path, cases: list[Case], changed: Mapping[str, str] = MappingProxyType({})) -> str:
    """What Prometheus finds wrong with the rules, with the series of these cases. ``changed`` are other expressions."""
    for number, name in enumerate((TESTNETS, KUBERNETES)):
        found = [{**rule, "expr": changed.get(rule.get("alert", ""), rule["expr"])} for rule in rules_of(name)]
        groups = {"groups": [{"name": name, "interval": "15s", "rules": found}]}
        (folder / f"rules-{number}.yaml").write_text(yaml.safe_dump(groups), encoding="utf-8")
        tests = [judged(name, case) for case in cases if name in case.sets]
        page = {"rule_files": [f"rules-{number}.yaml"], "evaluation_interval": "15s", "tests": tests}
        (folder / f"tests-{number}.yaml").write_text(yaml.safe_dump(page), encoding="utf-8")
    files = [str(folder / f"tests-{number}.yaml") for number in range(2)]
    done = subprocess.run([str(PROMTOOL), "test", "rules", *files], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def judged(name: str, case: Case) -> dict[str, Any]:
    """A case as a test of ``promtool``."""
    series = [{"series": as_in(name, each), "values": values} for each, values in case.series.items()]
    minutes = range(1, MINUTES + 1) if case.labels is None else [MINUTES]
    expected = [] if case.labels is None else [raised(name, case)]
    tests = [{"eval_time": f"{each}m", "alertname": case.alert, "exp_alerts": expected} for each in minutes]
    title = f"{case.alert} {case.labels} {case.series}"
    return {"name": title, "interval": "15s", "input_series": series, "alert_rule_test": tests}


def raised(name: str, case: Case) -> dict[str, Any]:
    rule = alerts(name)[case.alert]
    texts = as_in(name, ", ".join(f'{key}="{value}"' for key, value in (case.labels or {}).items()))
    found = dict(re.findall(r'(\w+)="(.*?)"', texts))
    return {"exp_labels": {**rule["labels"], **found}, "exp_annotations": rule["annotations"]}


def test_rules_ask_for_metrics_that_there_are() -> None:
    known = {text for text in texts() if METRIC.fullmatch(text)} | {"stampede_validator_up"}
    for name in (TESTNETS, KUBERNETES):
        asked = {histogram_of(metric) for rule in rules_of(name) for metric in METRIC.findall(rule["expr"])}
        assert len(asked) >= 5 and asked <= known


def test_each_alert_has_a_case_in_which_it_is_raised_and_one_in_which_it_is_not() -> None:
    for name in (TESTNETS, KUBERNETES):
        for is_raised in (True, False):
            found = {case.alert for case in CASES if name in case.sets and (case.labels is not None) == is_raised}
            assert found == alerts(name).keys()


def test_each_alert_leads_to_its_section_of_the_page() -> None:
    sections = re.findall(r"^## (Stampede\w+)$", (ROOT / RUNBOOKS).read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(sections) == sorted(alerts(TESTNETS).keys() | alerts(KUBERNETES).keys())
    for name in (TESTNETS, KUBERNETES):
        for alert, rule in alerts(name).items():
            assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{alert.lower()}"


@needs_prometheus
def test_prometheus_raises_each_alert_when_it_must(tmp_path: Path) -> None:
    assert promtool(tmp_path, CASES) == ""


COUNT = 'stampede_height{app_kubernetes_io_instance="mine"}'


@needs_prometheus
@pytest.mark.parametrize(
    ("wrong", "case"),
    [
        (f"(count({COUNT}) or vector(0)) < 3", QUORUM_IS_QUIET[0]),
        (f"count by (namespace, app_kubernetes_io_instance) ({COUNT}) < 3", QUORUM_IS_QUIET[1]),
        (f"(count({COUNT}) or vector(0)) < 3 and max(max_over_time({COUNT}[30m])) > 0", QUORUM_IS_QUIET[2]),
        (None, FIRST_FAULT._replace(series={FAULTS: "_x110 1x9"})),
    ],
    ids=["while it starts", "some while it starts", "after the end", "a counter that begins with its first fault"],
)
def test_prometheus_sees_what_is_wrong(tmp_path: Path, wrong: str | None, case: Case) -> None:
    changed = {} if wrong is None else {case.alert: wrong}
    assert "got:[" in promtool(tmp_path, [case], changed)


@pytest.mark.parametrize("wrong", ["alerts.md", "ftp://docs/alerts.md", "https://", "https://docs/alerts.md#top"])
def test_the_address_of_the_page_can_be_another(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    assert cli.main(["grafana", "--rules", "--runbooks", "https://docs.example/alerts.md"]) == 0
    assert "runbook_url: https://docs.example/alerts.md#stampedestalled\n" in capsys.readouterr().out
    assert cli.main(["grafana", "--rules", "--runbooks", wrong]) == 2
    assert f"{wrong!r}: expected http://… or https://…, without #" in capsys.readouterr().err


def test_the_command_prints_either(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grafana"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(dashboard_text())
    assert cli.main(["grafana", "--rules"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == rules()


# --- a real Prometheus ------------------------------------------------------------------------------------------------

SCENARIO = {
    "name": "watched",
    "consensus": {"block_interval_ms": 100},
    "load": {"users": [{"workload": "heartbeat", "count": 4, "interval_ms": 300}]},
    "faults": [],
}
QUIET = {"Peer faults", "Dropped of peers", "Transactions that were not executed", "Messages changed on links"}
"""Panels without a value in a testnet to which nothing happens."""
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: watched
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """A running server's HTTP interface."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pool = urllib3.PoolManager(retries=urllib3.Retry(connect=50, backoff_factor=0.1))

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer; fails if it is an error."""
        reply = self._pool.request("GET", f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}")
        assert reply.status == 200, reply.data
        return reply.json()["data"]

    def has(self, expression: str) -> bool:
        return bool(self.ask("query", query=expression)["result"])


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """A server that scrapes one target."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules()).replace("15s", "1s"), encoding="utf-8")
    text = CONFIGURATION.format(rules=folder / "rules.yaml", target=target)
    (folder / "prometheus.yaml").write_text(text, encoding="utf-8")
    command = [str(PROMETHEUS), f"--config.file={folder / 'prometheus.yaml'}", f"--web.listen-address={address}"]
    server = subprocess.Popen(
        [*command, f"--storage.tsdb.path={folder / 'data'}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield Prometheus(address)
    finally:
        server.terminate()
        server.wait(HANGS_AFTER_S)


def expressions() -> dict[str, list[str]]:
    """The expressions of each panel, as Grafana asks for them."""
    chosen = {
        f'{TESTNET_LABEL}="$testnet"': 'job="watched"',
        "$__rate_interval": "10s",
        "$__range": "1m",
        ":15s]": ":1s]",
    }
    found: dict[str, list[str]] = {}
    for panel in json.loads(dashboard_text())["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for placeholder, value in chosen.items():
                expression = expression.replace(placeholder, value)
            assert "$" not in expression
            found.setdefault(panel["title"], []).append(expression)
    return found


@needs_prometheus
@pytest.mark.slow
@pytest.mark.live
def test_prometheus_has_a_value_for_each_panel_and_rule(tmp_path: Path) -> None:
    with up(SCENARIO, out=tmp_path / "run") as testnet:
        target = urllib.parse.urlsplit(testnet.url).netloc
        with prometheus(tmp_path / "prometheus", target) as server:
            recorded = {rule["record"] for rule in rules()["groups"][0]["rules"] if "record" in rule}
            awaited = recorded | {each for title, each in panels() if title not in QUIET}
            deadline = time.monotonic() + HANGS_AFTER_S
            while awaited := {each for each in awaited if not server.has(each)}:
                assert time.monotonic() < deadline, awaited
            for title, expression in panels():
                assert server.has(expression) or title in QUIET
            (group,) = server.ask("rules")["groups"]
            assert {rule["name"] for rule in group["rules"] if rule["health"] == "ok"} == recorded | alerts().keys()
            assert server.ask("alerts")["alerts"] == []
            (up_again,) = server.ask("query", query='stampede_validator_up{validator="validator-0"}')["result"]
            assert up_again["metric"].keys() >= {TESTNET_LABEL, VALIDATOR_LABEL}
    assert testnet.outcome is not None and testnet.outcome.passed, testnet.outcome


def panels() -> list[tuple[str, str]]:
    return [(title, each) for title, found in expressions().items() for each in found]
