"""Pods for seeds: asked for at the start, given up when nothing is left, asked for again if a batch comes back."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from cluster.commands.sweeps import seed_pods
from cluster.commands.sweeps.seed_pods import SEED_PODS_VARIABLE, SeedPods
from cluster.common.errors import BadInput, HarnessError
from cluster.live.driver.ray_session import RaySession
from cluster.live.nodes.ray_nodes import RayNode

HEAD = RayNode("00", "10.0.0.1", {}, {"CPU": 2.0, "node:__internal_head__": 1.0})
POD = RayNode("01", "10.0.0.2", {}, {"CPU": 1.0, "stampede_seeds": 1.0})


class Cluster:
    """A session, and the wait of its interrupts: the pod joins after some waits, if it was asked for."""

    def __init__(self, waits: int, is_ours: bool = False) -> None:
        self.is_ours = is_ours
        self.requests: list[tuple[str, int]] = []
        self.waits = waits

    def request_nodes(self, resource: str, count: int) -> None:
        self.requests.append((resource, count))

    def nodes(self) -> list[RayNode]:
        return [HEAD, POD] if self.requests and self.waits <= 0 else [HEAD]

    def wait(self, seconds: float) -> None:
        self.waits -= 1


def waited_for(cluster: Any, **environment: str) -> tuple[SeedPods, list[str]]:
    told: list[str] = []
    pods = SeedPods(cluster, environment)
    pods.wait_for_first(cluster, told.append)
    return pods, told


def test_pods_are_asked_for_until_nothing_is_left() -> None:
    cluster = Cluster(waits=2)
    pods, told = waited_for(cluster, STAMPEDE_SEED_PODS="3")
    assert (cluster.requests, cluster.waits, told) == ([("stampede_seeds", 3)], 0, ["3 pods asked for"])
    for are_needed in (True, False, False, True):
        pods.keep(are_needed)
    assert [count for _, count in cluster.requests] == [3, 0, 3], "each change once"


@pytest.mark.parametrize(("is_ours", "environment"), [(False, {}), (True, {"STAMPEDE_SEED_PODS": "3"})])
def test_without_an_autoscaler_nothing_is_asked_for(is_ours: bool, environment: dict[str, str]) -> None:
    cluster = Cluster(5, is_ours)
    pods, told = waited_for(cluster, **environment)
    pods.keep(are_needed=True)
    assert (cluster.requests, cluster.waits, told) == ([], 5, [])


def test_pods_that_do_not_come_are_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_pods, "TIMEOUT_S", -1.0)
    with pytest.raises(HarnessError, match="no pod for seeds joined within"):
        waited_for(Cluster(waits=1), STAMPEDE_SEED_PODS="1")


@pytest.mark.parametrize("given", ["", "-1", "two", "513", "1" * 5_000])
def test_a_number_of_pods_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(BadInput, match=rf"^{SEED_PODS_VARIABLE}=.*: expected a number of pods up to 512$"):
        waited_for(Cluster(waits=0), STAMPEDE_SEED_PODS=given)


def test_the_request_is_one_that_ray_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.autoscaler import sdk

    taken: list[Any] = []

    def request_resources(num_cpus: int | None = None, bundles: list[dict[str, int]] | None = None) -> None:
        taken.append(bundles)

    assert {"num_cpus", "bundles"} <= signature(sdk.request_resources).parameters.keys()
    monkeypatch.setattr(sdk, "request_resources", request_resources)
    session = RaySession(None, None)
    session.request_nodes("stampede_seeds", 2)
    session.request_nodes("stampede_seeds", 0)
    assert taken == [[{"stampede_seeds": 1}] * 2, []]
