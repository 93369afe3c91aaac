"""The dashboard asks for metrics and labels that validators serve, and its panels do not cover each other."""

from __future__ import annotations

import ast
import copy
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cluster.common.checkout import ROOT
from cluster.report.grafana import COLUMNS, Variable, dashboard
from tests.hangs import HANGS_AFTER_S

VARIABLES = (Variable("instance", "app_instance", "mine"), Variable("namespace", "namespace"))
PAGES = ("cluster/live/host/metrics.py", "cluster/live/host/http.py", "cluster/live/web/prometheus_text.py")
"""They write the metrics of a validator."""
SELECTOR = '{app_instance="$instance", namespace="$namespace"}'
TARGET_LABELS = {"instance", "job"}
"""A label of this name in a page of metrics is renamed when it is scraped."""
METRIC = re.compile(r"stampede_[a-z_]+")
HISTOGRAM = re.compile(r"(stampede_[a-z_]+_(?:seconds|blocks))_(?:bucket|sum|count)")
"""A name of a histogram's samples, with the histogram's."""

PRINTED = """
import json
from tests.cluster.report.test_grafana import made
print(json.dumps(made()))
"""


def made() -> dict[str, Any]:
    return dashboard("Stampede mine", VARIABLES, "{{validator}}")


def histogram_of(name: str) -> str:
    """The histogram of a sample's name; any other name as it is."""
    found = HISTOGRAM.fullmatch(name)
    return name if found is None else found[1]


def texts() -> set[str]:
    """The texts in the modules that write metrics."""
    nodes = [node for page in PAGES for node in ast.walk(ast.parse((ROOT / page).read_text()))]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def problems(page: dict[str, Any]) -> list[str]:
    """What is wrong with a dashboard."""
    known = texts()
    metrics = {text for text in known if METRIC.fullmatch(text)}
    found = []
    panels = page["panels"]
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"]
            asked = {histogram_of(name) for name in METRIC.findall(expression)}
            found += [f"no metric {name}" for name in sorted(asked - metrics)]
            found += [] if asked else [f"{expression} asks for nothing"]
            selected = METRIC.findall(expression.replace(SELECTOR, ""))
            found += [f"{expression} is not of this testnet"] if expression.count(SELECTOR) != len(selected) else []
            for name in asked:
                is_rate = re.search(rf"(?:rate|increase)\({name}(?:_bucket|_sum|_count)?\{{", expression) is not None
                grows = name.endswith("_total") or f"{name}_" in "".join(METRIC.findall(expression))
                found += [] if is_rate == grows else [f"{expression}: {name} is no such metric"]
            grouped = re.findall(r"(?:by|without) \((\w+)\)", expression)
            found += [f"no label {label}" for label in grouped if label not in known]
            found += [f"Prometheus gives {label} to targets" for label in grouped if label in TARGET_LABELS]
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            kept = re.findall(r" by \((\w+)\)", expression) or ["validator"]
            found += [f"{expression} has no label {label} to show" for label in shown if label not in kept]
    ids = [panel["id"] for panel in panels]
    found += ["ids of panels are not unique"] if len(set(ids)) < len(ids) else []
    for panel in panels:
        place, refs = panel["gridPos"], [target["refId"] for target in panel["targets"]]
        found += [f"panel {panel['id']} is outside"] if place["x"] + place["w"] > COLUMNS or place["y"] < 0 else []
        found += [f"panel {panel['id']}: queries are not unique"] if len(set(refs)) < len(refs) else []
    for one, other in itertools.combinations(panels, 2):
        if overlap(one["gridPos"], other["gridPos"]):
            found.append(f"panels {one['id']} and {other['id']} overlap")
    return found


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


def test_the_dashboard_is_right() -> None:
    assert problems(made()) == []


def first(page: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = page["panels"][0]
    return found


def rewrite(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    """Another text in every query."""

    def change(page: dict[str, Any]) -> None:
        for panel in page["panels"]:
            for target in panel["targets"]:
                target["expr"] = target["expr"].replace(old, new)

    return change


def place(**values: int) -> Callable[[dict[str, Any]], None]:
    return lambda page: first(page)["gridPos"].update(values)


@pytest.mark.parametrize(
    ("plant", "problem"),
    [
        (rewrite("stampede_height", "stampede_heights"), "no metric stampede_heights"),
        (rewrite("stampede_fires_total", "stampede_fires"), "no metric stampede_fires"),
        (rewrite("rate(stampede_fires_total", "max(stampede_fires_total"), "stampede_fires_total is no such metric"),
        (rewrite("stampede_event_streams{", "sum(increase(stampede_event_streams{"), "event_streams is no such metric"),
        (rewrite("by (reason)", "by (cause)"), "no label cause"),
        (rewrite("by (kind)", "by (job)"), "Prometheus gives job to targets"),
        (
            rewrite("interval_seconds_bucket", "interval_second_bucket"),
            "no metric stampede_block_interval_second_bucket",
        ),
        (rewrite("rate(stampede_fire_delay_blocks_bucket", "max(stampede_fire_delay_blocks_bucket"), "no such metric"),
        (rewrite("max(stampede_height", "max(1"), "asks for nothing"),
        (rewrite(', namespace="$namespace"', ""), "is not of this testnet"),
        (lambda page: first(page).update(id=2), "ids of panels are not unique"),
        (place(x=1), "panels 1 and 2 overlap"),
        (place(h=9), "overlap"),
        (place(x=COLUMNS), "panel 1 is outside"),
        (lambda page: first(page)["targets"].append(first(page)["targets"][0]), "queries are not unique"),
        (lambda page: first(page)["targets"][0].update(legendFormat="{{lane}}"), "has no label lane to show"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[dict[str, Any]], None], problem: str) -> None:
    page = copy.deepcopy(made())
    plant(page)
    assert any(problem in each for each in problems(page)), problems(page)


def test_every_metric_is_shown() -> None:
    """A metric that is added gets a panel."""
    shown = {histogram_of(name) for name in METRIC.findall(json.dumps(made()["panels"]))}
    assert {text for text in texts() if METRIC.fullmatch(text)} == shown


def test_it_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-c", PRINTED]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    assert done.stdout == json.dumps(made()) + "\n"


def test_variables_choose_one_testnet() -> None:
    page = made()
    datasource, instance, namespace = page["templating"]["list"]
    assert (datasource["type"], datasource["query"]) == ("datasource", "prometheus")
    assert instance["query"]["query"] == "label_values(stampede_height{}, app_instance)"
    assert namespace["query"]["query"] == 'label_values(stampede_height{app_instance="$instance"}, namespace)'
    assert instance["current"]["value"] == "mine" and "current" not in namespace
    assert {json.dumps(panel["datasource"]) for panel in page["panels"]} == {
        '{"type": "prometheus", "uid": "${datasource}"}'
    }
    assert {panel["type"] for panel in page["panels"]} == {"stat", "timeseries"}


def test_dashboards_of_two_testnets_have_ids_that_grafana_takes() -> None:
    ids = {dashboard(title, VARIABLES, "a")["uid"] for title in ("a" * 200, "b")}
    assert len(ids) == 2 and all(re.fullmatch(r"[\w-]{1,40}", each) for each in ids)
