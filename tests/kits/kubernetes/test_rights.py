"""What the commands ask of the API is what their role gives, and what they make sure of first."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from kits.kubernetes.client.cluster import connect
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.client.objects import check_rights
from kits.kubernetes.client.rights import BESIDES, rights_of
from kits.kubernetes.commands import TOOLS
from kits.kubernetes.kinds import DELETED
from kits.kubernetes.rendering import rendered
from tests.kits.kubernetes import test_client as client
from tests.kits.kubernetes.api_server import ApiServer

server, _quick = client.server, client._quick

REVIEW = "create", "selfsubjectaccessreviews"
FOR_NEWER_CLUSTERS = {("create", "pods/exec")}
"""What Kubernetes 1.35 and newer ask for besides."""
TOLERATED = {("get", "namespaces"), *(("list", kind.plural) for kind in DELETED if kind.is_optional)}
"""What the commands try, and can do without."""
MORE = ("--monitoring", "--set", "kubernetes.inject=[pod, node]")
"""Options of a run that needs more rights."""
COMMANDS = {
    "run": ["run", "tiny.yaml"],
    "up": ["up", "tiny.yaml"],
    "report": ["report", "tiny"],
    "delete": ["delete", "tiny"],
}


def role(capsys: pytest.CaptureFixture[str], *options: str) -> set[tuple[str, str]]:
    """Verb and resource of what ``stampede k8s role`` prints."""
    assert main(["k8s", "role", *options]) == 0
    rules: list[Any] = [rule for each in yaml.safe_load_all(capsys.readouterr().out) for rule in each["rules"]]
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def test_the_role_has_what_the_commands_ask_for_and_no_more(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put("namespaces", {"metadata": {"name": "stampede"}})
    server.allowed = role(capsys, "tiny.yaml", "--namespace", "stampede")
    client.earlier(server, "Complete")
    steps = ["run tiny.yaml --keep", "report tiny --out again", "delete tiny"]
    steps += ["up tiny.yaml", "list", "status tiny", "logs tiny --validator validator-1", "delete tiny"]
    for step in steps:
        server.course = client.staying if step.startswith("up") else client.passing
        assert main(["k8s", *step.split()]) == 0, step
    assert set(server.objects) == {("namespaces", "stampede")}
    asked = {request[:2] for request in server.requests} - {REVIEW}
    assert asked - server.allowed <= TOLERATED
    assert server.allowed - asked == FOR_NEWER_CLUSTERS


def test_the_rights_of_every_command_are_known() -> None:
    assert {*BESIDES, "render", "role"} == {*TOOLS}, "render and role ask no cluster"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_right_that_is_missing_is_said_before_anything_is_made(
    server: ApiServer, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    manifests = rendered(Path("tiny.yaml"))
    rights = [right for right in rights_of(command, manifests) if right.resource != "events"]  # for warnings alone
    pairs = [(right.verb, right.resource) for right in rights]
    for right, pair in zip(rights, pairs, strict=True):
        server.allowed = set(pairs) - {pair}
        with pytest.raises(ClusterError, match=re.escape(f"no right in namespace stampede to {right}: stampede k8s ")):
            check_rights(connect(None, time.sleep), "stampede", command, manifests)
    server.allowed = []
    assert main(["k8s", *COMMANDS[command]]) == 3
    error = capsys.readouterr().err
    assert f" to {', '.join(map(str, rights))}: " in error and error.count("\n") == 1
    assert {request[:2] for request in server.requests} <= {REVIEW, ("get", "namespaces")}


def test_what_a_deployment_may_lack_is_asked_for_if_it_has_it(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put("namespaces", {"metadata": {"name": "stampede"}})
    server.allowed = role(capsys, "tiny.yaml")
    assert client.run(*MORE) == 3
    error = capsys.readouterr().err
    for right in (
        "create podmonitors.monitoring.coreos.com",
        "create pods/eviction",
        "patch nodes in the whole cluster",
    ):
        assert right in error
    assert ("create", "pods/eviction") in role(capsys, "tiny.yaml", "--command", "drill", "outage", "how=pod")
    server.allowed = role(capsys, "tiny.yaml", "--namespace", "stampede", *MORE)
    assert client.run(*MORE) == 0
    assert set(server.objects) == {("namespaces", "stampede")}


def test_a_namespace_that_is_missing_needs_the_right_to_make_it(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.allowed = {*role(capsys, "tiny.yaml"), ("get", "namespaces")}
    assert client.run() == 3
    missing = "create namespaces in the whole cluster, delete namespaces in the whole cluster: "
    assert f"no right in namespace stampede to {missing}" in capsys.readouterr().err


@pytest.mark.parametrize("status", [403, 404])
def test_a_cluster_that_answers_no_review_blocks_nothing(server: ApiServer, status: int) -> None:
    server.plant(*REVIEW, status)
    assert client.run() == 0
    assert server.count(*REVIEW) == 1
