"""The translation of network policies (:mod:`tests.k8s.enforcement`), without a cluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.k8s.enforcement import rules
from tests.k8s.generated import variant

NAMESPACES = [
    {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}} for name in ("a", "kuberay")
]
NAME = {"app.kubernetes.io/name": "stampede", "app.kubernetes.io/instance": "stampede-smoke"}
DRIVER, HOST, STRANGER, OPERATOR = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"


def pod(address: str, space: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": address, "namespace": space, "labels": labels}, "status": {"podIP": address}}


PODS = [
    pod(DRIVER, "a", {**NAME, "app.kubernetes.io/component": "driver"}),
    pod(HOST, "a", {**NAME, "app.kubernetes.io/component": "validators"}),
    pod(STRANGER, "a", {}),
    pod(OPERATOR, "kuberay", {"app.kubernetes.io/component": "kuberay-operator"}),
    {"metadata": {"name": "without an address", "namespace": "a", "labels": NAME}, "status": {}},
]


@pytest.fixture
def policies() -> list[dict[str, Any]]:
    return [each for each in copy.deepcopy(variant(space="a")) if each["kind"] == "NetworkPolicy"]


def accepted(page: str, address: str, way: str) -> list[str]:
    """What may pass to or from a pod."""
    side = {"ingress": "daddr", "egress": "saddr"}[way]
    jump = f"ip {side} {address} jump "
    (chain,) = (line.partition(jump)[2] for line in page.splitlines() if jump in line)
    body = page.partition(f"  chain {chain} {{\n")[2].partition("  }")[0].splitlines()
    assert [line.rsplit(" ", 1)[1] for line in body][-2:] == ["drop", "drop"]
    return [line.strip() for line in body[:-2]]


def test_pods_of_a_deployment_reach_each_other_and_the_operator_its_driver(policies: list[dict[str, Any]]) -> None:
    page = rules("a", policies, PODS, NAMESPACES)
    own = [f"ip saddr {DRIVER} return", f"ip saddr {HOST} return"]
    assert accepted(page, HOST, "ingress") == own
    assert sorted(accepted(page, DRIVER, "ingress")) == sorted([*own, f"ip saddr {OPERATOR} tcp dport 8265 return"])
    assert STRANGER not in page, "no policy is about it"


def test_a_policy_that_lets_everybody_in_is_translated(policies: list[dict[str, Any]]) -> None:
    confined = next(each for each in policies if each["metadata"]["name"].endswith("-confined"))
    del confined["spec"]["ingress"][0]["from"]
    assert "ip version 4 return" in accepted(rules("a", policies, PODS, NAMESPACES), HOST, "ingress")


def test_a_selector_of_another_kind_is_refused(policies: list[dict[str, Any]]) -> None:
    policies[0]["spec"]["podSelector"] = {"matchExpressions": []}
    with pytest.raises(AssertionError, match="another kind"):
        rules("a", policies, PODS, NAMESPACES)
