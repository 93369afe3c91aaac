"""``docs/kubernetes.md`` is right about options, lines that are printed, and what pods of a size ask for together."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import yaml

from cluster.commands.cli import main as cli
from cluster.common.checkout import ROOT
from cluster.scenario.files import change_scenario, load_scenario
from cluster.scenario.overrides import parse_setting
from kits.kubernetes.names import CORDONED_BY
from kits.kubernetes.render import Deployment, manifests
from kits.kubernetes.render.access import ways_by_kubernetes
from kits.kubernetes.section import amount_of

PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
FROM_KUBERNETES = (
    "0/3 nodes are available",
    "unbound immediate PersistentVolumeClaims",
    "PersistentVolumeClaim NAME-host-1: ProvisioningFailed",
    "RayCluster NAME-…: FailedToCreatePod",
    "exceeded quota",
    "CrashLoopBackOff",
    "Evicted",
    "OOMKilled",
    "DeadlineExceeded",
)
"""Parts of lines that the cluster says."""
PLACE = re.compile(r"[A-Z]{2,}|…|\d+|: |^driver |inconclusive|rayjobs\.ray\.io")
"""What a line has another text for, and where its parts are joined."""
OFFLINE = ("render", "role")
"""Commands that talk to no cluster."""
VERB = re.compile(r"\b(?:create|delete|get|list|watch)\b")


def table(section: str, column: str) -> list[list[str]]:
    """The rows of the first table of a section whose first column has that title."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    _, found, rest = text.partition(f"\n| {column} |")
    assert found, f"{section} has no table of {column}"
    lines = rest.split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# --- options --------------------------------------------------------------------------------------------------------


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    choices: dict[str, argparse.ArgumentParser] = dict(found.choices)
    return choices


def options() -> dict[str, set[str]]:
    """The options of each command that talks to a cluster."""
    commands = subcommands(subcommands(cli._parser())["k8s"])
    return {
        name: {text for action in parser._actions for text in action.option_strings if text.startswith("--")}
        - {"--help"}
        for name, parser in commands.items()
        if name not in OFFLINE
    }


def options_on_page(rows: list[list[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for names, commands, _ in rows:
        named = set(quoted(commands))
        for command in options().keys() - named if commands.startswith("all but ") else named:
            found.setdefault(command, set()).update(quoted(names))
    return found


def test_the_page_has_every_option() -> None:
    rows = table("Commands", "option")
    assert options_on_page(rows) == options()
    assert options_on_page(rows[1:]) != options(), "a row that is missing is noticed"
    assert options_on_page([["`--all`", "`run`", ""], *rows]) != options(), "one that is too much, too"


def test_the_page_has_every_command() -> None:
    named = [quoted(row[0])[0].split()[2] for row in table("Commands", "command")]
    assert set(named) == {*OFFLINE, *options()}


def test_the_page_has_every_right_of_the_role() -> None:
    rules = yaml.safe_load((ROOT / "k8s" / "client-role.yaml").read_text())["rules"]
    given = {
        ".".join(filter(None, (name, rule["apiGroups"][0]))): rule["verbs"]
        for rule in rules
        for name in rule["resources"]
    }
    rows = table("What is rendered", "resource")
    assert {name: sorted(VERB.findall(verbs)) for names, verbs, _ in rows for name in quoted(names)} == given


# --- faults ---------------------------------------------------------------------------------------------------------


def shown(subcommand: str, page: str) -> list[list[str]]:
    """The words behind each ``stampede k8s SUBCOMMAND`` that a page shows as a command."""
    lines = re.findall(rf"^    stampede k8s {subcommand} (.*)$", page, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def refused_faults(page: str) -> list[str]:
    """The faults that a page injects, and for which the driver of no testnet that it brings up has the rights."""
    allowed = {(name, how) for name, *options in shown("up", page) for how in allowed_by(name, options)}
    faults = [(name, yaml.safe_load(fault)) for name, fault, *_ in shown("inject", page)]
    return [fault["how"] for name, fault in faults if "how" in fault and (name, fault["how"]) not in allowed]


def allowed_by(name: str, options: list[str]) -> set[str]:
    settings = [parse_setting(each) for option, each in pairwise(options) if option == "--set"]
    return ways_by_kubernetes(change_scenario(load_scenario(name), settings, "the page"))


def test_the_faults_that_the_page_injects_are_allowed() -> None:
    assert len(shown("inject", PAGE)) > 0
    assert refused_faults(PAGE) == []
    without = re.sub(r" --set '\S*inject=[^']*'", "", PAGE)
    assert without != PAGE and refused_faults(without) == ["pod"], "a testnet without the rights is noticed"


def test_the_page_says_how_a_node_is_opened_by_hand() -> None:
    section = PAGE.partition("\n### A node stays cordoned\n")[2].partition("\n## ")[0]
    assert f"annotation `{CORDONED_BY}`" in section
    assert f"    kubectl annotate node NODE {CORDONED_BY}-\n" in section, "else a later deletion opens the node again"
    assert "    kubectl uncordon NODE\n" in section
    assert shown("delete", section) == [["NAME", "--namespace", "NAMESPACE"]]


# --- lines ----------------------------------------------------------------------------------------------------------


def texts_of_commands() -> list[str]:
    """The texts in the modules that talk to a cluster or to a bucket."""
    folder = ROOT / "kits" / "kubernetes"
    modules = [*(folder / "client").glob("*.py"), folder / "uploading.py"]
    nodes = [node for module in modules for node in ast.walk(ast.parse(module.read_text()))]
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def unknown_parts(line: str) -> list[str]:
    """The parts of a line on the page that no command prints."""
    for said in FROM_KUBERNETES:
        line = line.replace(said, "…")
    parts = [part.strip(" :,-()") for part in PLACE.split(line)]
    known = texts_of_commands()
    return [part for part in parts if part and not any(part in text for text in known)]


@pytest.mark.slow
def test_the_lines_of_failures_are_printed() -> None:
    lines = [line for row in table("What failures look like", "symptom") for line in quoted(row[1])]
    assert len(lines) > 20
    assert {line: unknown_parts(line) for line in lines if unknown_parts(line)} == {}


@pytest.mark.parametrize(
    "line", ["host 1 finds no machine: …", "NAME: not up since 900 s", "no cluster replies at SERVER"]
)
def test_a_line_that_nobody_prints_is_noticed(line: str) -> None:
    assert unknown_parts(line) != []


# --- sizes ----------------------------------------------------------------------------------------------------------

GIB = 2**30


def pods_of(document: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The pods of a RayJob, with their number."""
    spec = document["spec"]["rayClusterSpec"]
    yield 1, spec["headGroupSpec"]["template"]
    yield 1, document["spec"]["submitterPodTemplate"]
    for group in spec["workerGroupSpecs"]:
        yield group["replicas"], group["template"]


def totals(count: int, validators: str, driver: str) -> tuple[float, float, float]:
    """Processors, GiB of memory and of volumes that a deployment of the smoke scenario asks for."""
    pods = [f"kubernetes.validators={validators}", f"kubernetes.driver={driver}"]
    settings = [f"validators.count={count}", f"validators.hosts={count}", *pods]
    scenario = change_scenario(load_scenario("smoke"), [parse_setting(each) for each in settings], "the page")
    found = manifests(scenario, Deployment("size", None, ("run", "a.yaml"), "name: a\n"))
    (job,) = (each for each in found if each["kind"] == "RayJob")
    limits = [
        (number, container["resources"]["limits"])
        for number, pod in pods_of(job)
        for container in pod["spec"]["containers"]
    ]
    volumes = [each["spec"]["resources"] for each in found if each["kind"] == "PersistentVolumeClaim"]
    return (
        float(sum(number * amount_of(each["cpu"]) for number, each in limits)),
        float(sum(number * amount_of(each["memory"]) for number, each in limits)) / GIB,
        float(sum(amount_of(each["requests"]["storage"]) for each in volumes)) / GIB,
    )


def test_sizes_are_what_pods_ask_for() -> None:
    rows = table("Sizes", "validators | `kubernetes.validators`")
    assert [int(row[0]) for row in rows] == [4, 16, 64, 128]
    for count, validators, driver, *given in rows:
        expected = totals(int(count), quoted(validators)[0], quoted(driver)[0])
        assert tuple(float(each.split()[0]) for each in given) == expected, count
        assert totals(int(count) + 1, quoted(validators)[0], quoted(driver)[0]) != expected
        assert set(yaml.safe_load(quoted(validators)[0])) == {"cpu", "memory", "disk"}
