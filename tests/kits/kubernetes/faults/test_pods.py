"""The Kubernetes API over real HTTP: what is asked, what is tried again, and how a refusal reads."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from kits.kubernetes.client import cluster as cluster_module
from kits.kubernetes.client.cluster import OF_A_DRIVER, in_a_pod
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.faults import pods as pods_module
from kits.kubernetes.faults.pods import Eviction, Pod, why_not_in_a_pod
from kits.kubernetes.library import config
from kits.kubernetes.names import CORDONED_BY
from tests.kits.kubernetes.api_server import CHAOS, INSTANCE, NAMESPACE, ApiServer, api_at, pod_of_host

POD = Pod("smoke-host-1-x7k2p", "uid-smoke-host-1-x7k2p", "machine-1")


def test_a_hosts_pod_is_found_by_its_labels(cluster: ApiServer) -> None:
    assert cluster.api().pod_of(1) == POD
    assert cluster.asked == ["GET /api/v1/pods labelSelector=app.kubernetes.io/instance=smoke,stampede.io/host=1"]


def test_a_pod_that_is_being_deleted_carries_nothing_any_more(cluster: ApiServer) -> None:
    dying = pod_of_host(1)
    dying["metadata"] |= {"name": "dying", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.add(dying)
    assert cluster.api().pod_of(1) == POD
    cluster.remove("pods", POD.name)
    with pytest.raises(ClusterError, match=r"expected one pod of host 1 \(.*\) in testnets, found none"):
        cluster.api().pod_of(1)


def test_several_pods_of_a_host_are_none(cluster: ApiServer) -> None:
    other = pod_of_host(1)
    other["metadata"]["name"] = "other"
    cluster.add(other)
    with pytest.raises(ClusterError, match="found smoke-host-1-x7k2p, other"):
        cluster.api().pod_of(1)


def test_a_pod_is_deleted_once(cluster: ApiServer) -> None:
    api = cluster.api()
    api.delete(POD)
    assert POD.name not in cluster.pods
    assert cluster.asked == [f"DELETE /api/v1/pods/{POD.name}"]
    assert cluster.bodies[0].items() >= {"gracePeriodSeconds": 1, "preconditions": {"uid": POD.uid}}.items()
    api.delete(POD)  # it is gone: 404
    cluster.add(pod_of_host(1))
    api.delete(POD._replace(uid="of the one before"))
    assert POD.name in cluster.pods, "another one with its name stays"


def test_a_disruption_budget_forbids_an_eviction_for_a_while(cluster: ApiServer) -> None:
    cluster.refused_evictions = 1
    api = cluster.api()
    assert api.evict(POD) is Eviction.FORBIDDEN and POD.name in cluster.pods
    assert cluster.waits == [], "the driver does not wait for it"
    assert api.evict(POD) is Eviction.BEGUN and POD.name not in cluster.pods
    assert api.evict(POD) is Eviction.GONE
    assert cluster.asked == [f"POST /api/v1/pods/{POD.name}/eviction"] * 3
    assert (cluster.bodies[0]["apiVersion"], cluster.bodies[0]["kind"]) == ("policy/v1", "Eviction")
    assert cluster.bodies[0]["metadata"] == {"name": POD.name, "namespace": NAMESPACE}


def test_a_node_is_cordoned_and_uncordoned(cluster: ApiServer) -> None:
    api = cluster.api()
    assert api.is_open("machine-1")
    api.cordon("machine-1")
    assert cluster.nodes["machine-1"]["spec"] == {"unschedulable": True} and not api.is_open("machine-1")
    assert cluster.nodes["machine-1"]["metadata"]["annotations"] == {CORDONED_BY: f"{NAMESPACE}/{INSTANCE}"}
    api.uncordon("machine-1")
    assert cluster.nodes["machine-1"]["spec"] == cluster.nodes["machine-1"]["metadata"]["annotations"] == {}
    with pytest.raises(ClusterError, match='status 404: nodes "machine-9" not found'):
        api.cordon("machine-9")


def test_chaos_mesh_is_there_or_not(cluster: ApiServer) -> None:
    api = cluster.api()
    assert api.has_chaos_mesh()
    cluster.has_chaos_mesh = False
    assert not api.has_chaos_mesh()
    assert cluster.asked == [f"GET {CHAOS}"] * 2


def test_an_object_of_chaos_mesh_comes_is_in_force_and_goes(cluster: ApiServer) -> None:
    api = cluster.api()
    chaos = {"apiVersion": "chaos-mesh.org/v1alpha1", "kind": "PodChaos", "metadata": {"name": "a"}, "spec": {}}
    assert api.conditions_of("podchaos", "a") is None
    cluster.looks_until_injected = 2
    api.begin_chaos("podchaos", chaos)
    api.begin_chaos("podchaos", chaos)  # the answer to the first attempt was lost
    assert [api.conditions_of("podchaos", "a") for _ in range(2)] == [
        {"AllInjected": False, "Paused": False},
        {"AllInjected": True, "Paused": False},
    ]
    api.end_chaos("podchaos", "a")
    api.end_chaos("podchaos", "a")
    assert cluster.chaos == {}


@pytest.mark.parametrize("code", [429, 500, 503])
def test_what_fails_for_a_moment_is_tried_again(cluster: ApiServer, code: int) -> None:
    cluster.plant("list", "pods", code, times=OF_A_DRIVER.tries - 1)
    assert cluster.api().pod_of(1) == POD
    assert cluster.waits == [0.25, 0.5, 1.0]
    cluster.plant("list", "pods", code, times=OF_A_DRIVER.tries, body="try again")
    with pytest.raises(ClusterError, match=rf"list pods in namespace testnets: status {code} after 4 tries: try again"):
        cluster.api().pod_of(1)
    assert cluster.faults[-1].times == 0


def test_a_token_that_is_refused_is_one_line_at_once(cluster: ApiServer) -> None:
    with pytest.raises(ClusterError) as error:
        cluster.api("wrong").check()
    assert str(error.value).endswith("no right to list pods in namespace testnets: the credentials are refused (401)")
    assert len(cluster.asked) == 1


def test_a_server_that_does_not_answer_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    waits: list[float] = []
    with pytest.raises(
        ClusterError, match=rf"^no cluster answers at http://127.0.0.1:{port}: list pods .*onnection"
    ) as error:
        api_at(f"http://127.0.0.1:{port}", wait=waits.append).check()
    assert "\n" not in str(error.value) and len(waits) == OF_A_DRIVER.tries - 1


def test_a_process_outside_of_a_pod_says_what_it_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods_module, "TOKEN_FILE", tmp_path / "token")
    environment: dict[str, str] = {}
    for variable in ("STAMPEDE_NAMESPACE", "STAMPEDE_INSTANCE", "KUBERNETES_SERVICE_HOST"):
        assert why_not_in_a_pod(environment) == f"{variable} is not set"
        environment[variable] = "here"
    assert why_not_in_a_pod(environment) == f"there is no token at {tmp_path / 'token'}"
    (tmp_path / "token").write_text("secret", encoding="ascii")
    assert why_not_in_a_pod(environment) == ""


def test_a_client_in_a_pod_uses_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ClusterError, match="the Kubernetes API cannot be used: Service host/port is not set"):
        in_a_pod()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    loader = config.incluster_config
    for name, file in (("SERVICE_TOKEN_FILENAME", "token"), ("SERVICE_CERT_FILENAME", "ca.crt")):
        (tmp_path / file).write_text("secret", encoding="ascii")
        monkeypatch.setattr(loader, name, str(tmp_path / file))
    monkeypatch.setattr(cluster_module, "ApiClient", lambda configuration: configuration)
    found: Any = in_a_pod().api
    assert found.host == "https://127.0.0.1:6443"
    assert found.get_api_key_with_prefix("authorization") == "bearer secret"
    assert found.no_proxy == "127.0.0.1", "which the library forgets"
    assert found.retries is False, "attempts are counted here alone"
