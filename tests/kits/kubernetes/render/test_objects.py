"""Names, deadlines, groups, budgets: what follows from a scenario."""

from __future__ import annotations

import json
import re
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.common.errors import BadInput
from cluster.scenario import Scenario
from kits.kubernetes.render import Deployment, Monitoring, manifests, soak_manifests
from kits.kubernetes.render.deployment import MAX_NAME, WORKS, name_for
from kits.kubernetes.render.metadata import Manifest
from kits.kubernetes.render.objects import MAX_SCENARIO_BYTES, hosts_that_may_go, results_pod
from kits.kubernetes.section import KubernetesSection

RUN = ("run", "/etc/stampede/scenario.yaml")
UP = ("up", "/etc/stampede/scenario.yaml", "--port", "9464")
DOS = ("dos", "/etc/stampede/scenario.yaml")
SWEEP = ("sweep", "/etc/stampede/scenario.yaml", "--seeds", "0:9")


def plan(**sections: Any) -> Scenario:
    return Scenario.model_validate({"name": "a", **sections})


def job_of(scenario: Scenario, command: tuple[str, ...] = RUN) -> Manifest:
    (job,) = (each for each in manifests(scenario, Deployment("a", None, command)) if each["kind"] == "RayJob")
    spec: Manifest = job["spec"]
    return spec


def groups_of(scenario: Scenario, command: tuple[str, ...] = RUN) -> dict[str, Manifest]:
    cluster = job_of(scenario, command)["rayClusterSpec"]
    return {group["groupName"]: group for group in cluster["workerGroupSpecs"]}


def test_workers_of_the_load_have_locustfiles_of_ones_own_from_their_master() -> None:
    def worker(**load: Any) -> list[str]:
        scenario = plan(load=load, kubernetes={"load": {"pods": 2}})
        found = manifests(scenario, Deployment("a", None, RUN))
        (deployment,) = (each for each in found if each["kind"] == "Deployment" and "load" in each["metadata"]["name"])
        command: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
        return command

    users = [{"workload": "transfer"}]
    assert worker(users=users)[3:5] == ["--locustfile", "loadgen/locustfile.py"]
    locust = [{"name": "readers", "source": "a = 1"}]
    assert worker(users=users, locust=locust) == worker(locust=locust)
    assert worker(locust=locust)[3:6] == ["--locustfile", "-", "--worker"]


# --- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [RUN, UP, SWEEP])
def test_results_go_to_a_bucket_from_the_drivers_container_alone(command: tuple[str, ...]) -> None:
    section = {"results": "s3://results/a", "results_endpoint": "http://minio:9000", "results_secret": "keys"}
    with_bucket, without = plan(kubernetes=section), plan()
    assert job_of(with_bucket, command)["entrypoint"] == (
        f"python -m kits.kubernetes.uploading s3://results/a/a {job_of(without, command)['entrypoint']}"
    )
    (driver,) = job_of(with_bucket, command)["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert driver["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert {"name": "AWS_ENDPOINT_URL", "value": "http://minio:9000"} in driver["env"]
    found = manifests(with_bucket, Deployment("a", None, command))
    assert str(found).count("envFrom") == str(found).count("AWS_ENDPOINT_URL") == 1
    assert "envFrom" not in str(manifests(without, Deployment("a", None, command)))
    (policy,) = (each for each in found if each["metadata"]["name"] == "a-results")
    assert policy["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": 9000}]}]
    assert policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "driver"


@pytest.mark.parametrize(
    ("endpoint", "port"), [(None, 443), ("https://minio", 443), ("http://minio", 80), ("https://minio.a:9000", 9000)]
)
def test_the_port_of_the_buckets_server_is_open(endpoint: str | None, port: int) -> None:
    assert KubernetesSection.of(plan(kubernetes={"results_endpoint": endpoint})).results_port == port


def test_a_soak_uploads_the_folder_of_each_night() -> None:
    (*_, job) = soak_manifests(plan(kubernetes={"results": "s3://results"}), Deployment("a"))
    (night,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert "exec python -m kits.kubernetes.uploading s3://results/a stampede sweep" in night["command"][-1]
    assert night["envFrom"] == [{"secretRef": {"name": "stampede-results"}}]


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "name"),
    [
        ("smoke", "smoke"),
        ("late_join", "late-join-DIGITS"),
        ("7-nodes", "run-7-nodes-DIGITS"),
        ("a__b-", "a-b-DIGITS"),
        ("a" * MAX_NAME, "a" * MAX_NAME),
        ("a" * 64, "a" * (MAX_NAME - 7) + "-DIGITS"),
        ("a" * (MAX_NAME - 8) + "-bbbbbbbb", "a" * (MAX_NAME - 8) + "-DIGITS"),
        ("0" + "_" * 63, "run-0-DIGITS"),
    ],
)
def test_a_scenarios_name_becomes_one_that_kubernetes_takes(scenario: str, name: str) -> None:
    made = name_for(scenario)
    assert re.fullmatch(name.replace("DIGITS", "[0-9a-f]{6}"), made)
    assert Deployment(made).name == made


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a" * 40 + "-one", "a" * 40 + "-two"),
        ("late_join", "late-join"),
        ("a__b", "a_b"),
        ("7a", "run-7a"),
        ("a-", "a"),
    ],
)
def test_two_scenarios_do_not_get_one_name(first: str, second: str) -> None:
    assert name_for(first) != name_for(second)


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("scenario", ["x", "x_y", "x" * 64])
def test_a_scenario_named_as_other_work_does_not_get_its_name(scenario: str, work: str) -> None:
    names = {name_for(scenario, work), name_for(f"{work}-{scenario}"), name_for(scenario)}
    assert len(names) == 3
    assert all(Deployment(name) for name in names)


@pytest.mark.parametrize("name", ["", "A", "7a", "a_b", "a-", "-a", "a.b", "a" * (MAX_NAME + 1), "a\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"^name .*: expected lower-case letters"):
        Deployment(name)


@pytest.mark.parametrize("namespace", ["", "A", "a_b", "a-", "a" * 64])
def test_other_namespaces_are_refused(namespace: str) -> None:
    with pytest.raises(BadInput, match=r"^namespace .*: expected lower-case letters"):
        Deployment("a", namespace)


def test_names_of_a_deployment_begin_with_its_own() -> None:
    found = manifests(plan(), Deployment("mine", "tests", RUN, "name: a\n", monitoring=Monitoring()))
    others = [each for each in found if each["kind"] != "Namespace"]
    assert all(each["metadata"]["name"].startswith("mine") for each in others)
    assert {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in others} == {"mine"}
    assert "app.kubernetes.io/instance" not in found[0]["metadata"]["labels"], "several deployments share a namespace"


def test_what_others_need_comes_first() -> None:
    kinds = [
        each["kind"] for each in manifests(plan(), Deployment("a", "b", RUN, "name: a\n", monitoring=Monitoring()))
    ]
    order = [
        "Namespace",
        "ServiceAccount",
        "ConfigMap",
        "PersistentVolumeClaim",
        "NetworkPolicy",
        "PodDisruptionBudget",
    ]
    assert list(dict.fromkeys(kinds)) == [*order, "RayJob", "PodMonitor", "PrometheusRule"]


def test_a_scenario_that_no_config_map_holds_is_refused() -> None:
    text = "#" * MAX_SCENARIO_BYTES
    assert manifests(plan(), Deployment("a", None, RUN, text))
    with pytest.raises(BadInput, match=r"^a: the scenario has 1,000,001 bytes; expected at most 1,000,000"):
        manifests(plan(), Deployment("a", None, RUN, text + "#"))


# --- the job --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "command", "deadline_s"),
    [
        ({"timeout_s": 100}, RUN, 1_000),
        ({"timeout_s": 100, "duration_s": 3_600}, RUN, 4_600),
        ({"timeout_s": 100}, ("up", "x"), None),
        ({"timeout_s": 100}, SWEEP, 86_400),
    ],
)
def test_a_deadline_follows_from_the_scenario(
    stop: dict[str, int], command: tuple[str, ...], deadline_s: int | None
) -> None:
    assert job_of(plan(stop=stop), command).get("activeDeadlineSeconds") == deadline_s


def test_each_host_has_a_group_and_its_region() -> None:
    regions = {"east": ["validator-0", "validator-4"], "west": ["validator-1"]}
    groups = groups_of(plan(validators={"count": 7, "hosts": 4}, links={"regions": regions}))
    assert {name: group.get("labels") for name, group in groups.items()} == {
        "host-0": {"stampede.io/region": "east"},
        "host-1": None,
        "host-2": None,
        "host-3": None,
    }, "host 1 carries a validator of no region, too"


def test_a_region_that_is_no_label_is_refused() -> None:
    scenario = plan(links={"regions": {"east-": ["validator-0"]}})
    with pytest.raises(BadInput, match=r"^region east-: expected a label's value for stampede\.io/region"):
        groups_of(scenario)


def test_load_and_seeds_have_pods_of_their_own() -> None:
    users = [{"workload": "transfer"}]
    pods = {"load": {"pods": 3, "cpu": "1500m"}, "seeds": {"pods": 9, "cpu": 2}}
    scenario = plan(kubernetes=pods, load={"users": users})
    assert set(groups_of(scenario)) == {f"host-{number}" for number in range(4)}
    (load,) = (each for each in manifests(scenario, Deployment("a", None, RUN)) if each["kind"] == "Deployment")
    (worker,) = load["spec"]["template"]["spec"]["containers"]
    assert (load["metadata"]["name"], load["spec"]["replicas"]) == ("a-load", 3)
    assert worker["resources"]["limits"]["cpu"] == "1500m"
    for without, command in (
        (plan(kubernetes=pods), RUN),
        (plan(kubernetes=pods, load={"users": users, "external": True}), RUN),
        (plan(load={"users": users}), RUN),
        (scenario, SWEEP),
    ):
        found = manifests(without, Deployment("a", None, command))
        assert not {"Deployment", "Service"} & {each["kind"] for each in found}
        assert "STAMPEDE_LOAD" not in json.dumps(found)
    (seeds,) = groups_of(scenario, SWEEP).values()
    assert (seeds["replicas"], seeds["minReplicas"], seeds["maxReplicas"]) == (0, 0, 9)
    assert seeds["rayStartParams"]["num-cpus"] == "2"
    assert job_of(scenario, SWEEP)["rayClusterSpec"]["enableInTreeAutoscaling"] is True
    assert "enableInTreeAutoscaling" not in job_of(scenario)["rayClusterSpec"]


@pytest.mark.parametrize("command", [DOS, SWEEP])
def test_what_is_simulated_has_no_hosts(command: tuple[str, ...]) -> None:
    found = manifests(plan(), Deployment("a", None, command, monitoring=Monitoring()))
    assert not any(name.startswith("host-") for name in groups_of(plan(), command))
    assert [each["metadata"]["name"] for each in found if each["kind"] == "PersistentVolumeClaim"] == ["a-runs"]
    assert {"PodDisruptionBudget", "PodMonitor"}.isdisjoint(each["kind"] for each in found)


def test_resources_are_those_of_the_section() -> None:
    section = {"validators": {"cpu": "1500m", "memory": "512Mi", "disk": "3Gi"}, "storage_class": "fast"}
    scenario = plan(kubernetes=section)
    group = groups_of(scenario)["host-2"]
    (node,) = group["template"]["spec"]["containers"]
    asked = {"cpu": "1500m", "memory": "512Mi", "ephemeral-storage": "2Gi"}
    assert node["resources"] == {"requests": asked, "limits": asked}
    assert group["rayStartParams"]["num-cpus"] == "1", "Ray counts whole processors"
    assert group["rayStartParams"]["object-store-memory"] == str(128 * 2**20), "a quarter of a small pod"
    claims = {
        each["metadata"]["name"]: each["spec"]
        for each in manifests(scenario, Deployment("a", None, RUN))
        if each["kind"] == "PersistentVolumeClaim"
    }
    assert claims["a-host-2"]["resources"] == {"requests": {"storage": "3Gi"}}
    assert claims["a-runs"]["resources"] == {"requests": {"storage": "5Gi"}}
    assert {each["storageClassName"] for each in claims.values()} == {"fast"}


@pytest.mark.parametrize(
    ("spread", "rule"),
    [
        ("preferred", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("required", "requiredDuringSchedulingIgnoredDuringExecution"),
        ("none", None),
    ],
)
def test_validators_keep_away_from_each_other_as_asked(spread: str, rule: str | None) -> None:
    spec = groups_of(plan(kubernetes={"spread": spread}))["host-0"]["template"]["spec"]
    rules = spec.get("affinity", {}).get("podAntiAffinity", {})
    assert list(rules) == ([] if rule is None else [rule])
    assert rule is None or "kubernetes.io/hostname" in json.dumps(rules)


def test_a_fault_on_nodes_needs_a_namespace() -> None:
    fault: Any = SimpleNamespace(how="node")
    scenario = plan().model_copy(update={"faults": [fault]})
    with pytest.raises(BadInput, match="give --namespace"):
        manifests(scenario, Deployment("a", None, RUN))
    assert manifests(scenario, Deployment("a", None, SWEEP)), "simulated, it needs no rights"
    with pytest.raises(BadInput, match="give --namespace"):
        manifests(plan(kubernetes={"inject": ["node"]}), Deployment("a", None, UP))


def roles_of(scenario: Scenario, command: tuple[str, ...]) -> list[str]:
    """Kinds and names of everything that gives a driver rights."""
    found = manifests(scenario, Deployment("a", "b", command))
    return [f"{each['kind']} {each['metadata']['name']}" for each in found if "Role" in each["kind"]]


def test_a_driver_has_rights_only_for_faults_that_were_announced() -> None:
    by_pod = ["Role a-driver", "RoleBinding a-driver"]
    by_node = [*by_pod, "ClusterRole b-a-driver", "ClusterRoleBinding b-a-driver"]
    for command in (RUN, UP):
        assert roles_of(plan(), command) == []
        assert roles_of(plan(kubernetes={"inject": ["pod"]}), command) == by_pod
        assert roles_of(plan(kubernetes={"inject": ["pod", "node"]}), command) == by_node
    assert roles_of(plan(kubernetes={"inject": ["pod"]}), SWEEP) == [], "simulated, it needs no rights"


def test_results_are_read_and_not_written() -> None:
    spec = results_pod(KubernetesSection.of(plan()), Deployment("a", "b"))["spec"]
    assert spec["volumes"][1]["persistentVolumeClaim"] == {"claimName": "a-runs", "readOnly": True}
    assert spec["containers"][0]["volumeMounts"][1]["readOnly"] is True
    assert spec["serviceAccountName"] == "default", "each namespace has it"


# --- evictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "hosts"), [(1, 1), (3, 3), (4, 4), (7, 4), (7, 7), (10, 4), (10, 5), (13, 13)])
def test_evictions_take_no_more_than_the_network_withstands(count: int, hosts: int) -> None:
    scenario = plan(validators={"count": count, "hosts": hosts})
    (budget,) = (
        each for each in manifests(scenario, Deployment("a", None, RUN)) if each["kind"] == "PodDisruptionBudget"
    )
    may_go = hosts - budget["spec"]["minAvailable"]
    assert may_go == hosts_that_may_go(scenario)

    def lost(number: int) -> list[int]:
        section = scenario.validators
        return [
            sum(section.host_of(index) in gone for index in range(count)) for gone in combinations(range(hosts), number)
        ]

    assert max(lost(may_go)) <= scenario.validators.withstood
    assert may_go == hosts or max(lost(may_go + 1)) > scenario.validators.withstood
