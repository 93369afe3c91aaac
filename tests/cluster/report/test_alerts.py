"""Alerts and recorded series: their metrics exist, and Prometheus raises each alert when it must and not otherwise."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3
import yaml

from cluster.report.alerts import rules
from cluster.report.dashboard import TESTNET_LABEL, VALIDATOR_LABEL, dashboard_text
from cluster.tools.cli import main as cli
from stampede import up
from tests.cluster.report.test_dashboard import METRIC, histogram_of, texts
from tests.hangs import HANGS_AFTER_S
from tests.tools import PROMETHEUS, PROMTOOL, needs

needs_prometheus = needs(PROMETHEUS, PROMTOOL)
A, B = ('{job="net", validator="a"}', '{job="net", validator="b"}')
ONE = {"job": "net", "validator": "b"}


class Case(NamedTuple):
    """An alert, with the values of series every 15 s."""

    alert: str
    series: dict[str, str]
    labels: dict[str, str] | None
    """The labels of the alert that is raised after 30 minutes; ``None`` if none is."""


CASES = [
    Case("StampedeStalled", {f"stampede_height{A}": "5x120", f"stampede_height{B}": "3x120"}, {"job": "net"}),
    Case("StampedeStalled", {f"stampede_height{A}": "5x120", f"stampede_height{B}": "3+1x120"}, None),
    Case("StampedeRootsDisagree", {f"stampede_diverged{A}": "0x120", f"stampede_diverged{B}": "0x119 1"}, ONE),
    Case("StampedeRootsDisagree", {f"stampede_diverged{A}": "0x120", f"stampede_diverged{B}": "0x120"}, None),
    Case("StampedeValidatorBehind", {f"stampede_height{A}": "60+1x120", f"stampede_height{B}": "9+1x120"}, ONE),
    Case("StampedeValidatorBehind", {f"stampede_height{A}": "59+1x120", f"stampede_height{B}": "9+1x120"}, None),
    Case(
        "StampedeBacklogGrows", {f"stampede_backlog{A}": "0+2x120", f"stampede_backlog{B}": "0+2x120"}, {"job": "net"}
    ),
    Case("StampedeBacklogGrows", {f"stampede_backlog{A}": "500-2x120", f"stampede_backlog{B}": "500-2x120"}, None),
    Case("StampedeBacklogGrows", {f"stampede_backlog{A}": "40x99 41x20"}, None),
    Case(
        "StampedePeerFaults", {f'stampede_peer_faults_total{{reason="x", {B[1:]}': "3x110 4x9"}, {**ONE, "reason": "x"}
    ),
    Case("StampedePeerFaults", {f'stampede_peer_faults_total{{reason="x", {B[1:]}': "3x120"}, None),
    Case(
        "StampedeNoQuorum", {f"stampede_validator_up{A}": "1x120", f"stampede_validator_up{B}": "0x120"}, {"job": "net"}
    ),
    Case("StampedeNoQuorum", {f"stampede_validator_up{A}": "1x120", f"stampede_validator_up{B}": "1x120"}, None),
]


def alerts() -> dict[str, dict[str, Any]]:
    (group,) = rules()["groups"]
    return {rule["alert"]: rule for rule in group["rules"] if "alert" in rule}


def promtool(folder: Path, cases: list[Case]) -> subprocess.CompletedProcess[str]:
    """Prometheus' own judgement of the rules, with the series of these cases."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules()), encoding="utf-8")
    tests = [
        {
            "name": f"{number} {case.alert}",
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
            "alert_rule_test": [
                {
                    "eval_time": "30m",
                    "alertname": case.alert,
                    "exp_alerts": [] if case.labels is None else [raised(case)],
                }
            ],
        }
        for number, case in enumerate(cases)
    ]
    page = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(page), encoding="utf-8")
    return subprocess.run(
        [str(PROMTOOL), "test", "rules", str(folder / "tests.yaml")], capture_output=True, text=True, check=False
    )


def raised(case: Case) -> dict[str, Any]:
    rule = alerts()[case.alert]
    return {"exp_labels": {**rule["labels"], **(case.labels or {})}, "exp_annotations": rule["annotations"]}


def test_rules_ask_for_metrics_that_there_are() -> None:
    (group,) = rules()["groups"]
    asked = {histogram_of(name) for rule in group["rules"] for name in METRIC.findall(rule["expr"])}
    assert len(asked) >= 8
    assert asked <= {text for text in texts() if METRIC.fullmatch(text)} | {"stampede_validator_up"}


def test_each_alert_has_a_case_in_which_it_is_raised_and_one_in_which_it_is_not() -> None:
    for is_raised in (True, False):
        assert {case.alert for case in CASES if (case.labels is not None) == is_raised} == alerts().keys()


@needs_prometheus
def test_prometheus_raises_each_alert_when_it_must(tmp_path: Path) -> None:
    done = promtool(tmp_path, CASES)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_prometheus_sees_an_alert_that_is_not_raised(tmp_path: Path) -> None:
    (quiet,) = [case for case in CASES if case.alert == "StampedeRootsDisagree" and case.labels is None]
    assert promtool(tmp_path, [quiet._replace(labels=ONE)]).returncode == 1


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
