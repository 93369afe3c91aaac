"""The manifests of ``k8s/``: right by their schemas, confined, in agreement with the rest of the project.

Core kinds are validated by ``kubernetes-validate``, the ``RayJob`` against KubeRay's resource definition where that is
at hand (``../shared/k8s-schemas``). Both validations are closed: a field that the schema does not know is an error.
Each check has planted faults that it must find.
"""

from __future__ import annotations

import ast
import copy
import gzip
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from cluster.commands.cli import main as cli
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from kits.kubernetes.render import Deployment, Monitoring, manifests, soak_manifests
from kits.kubernetes.render.objects import results_pod
from kits.kubernetes.section import KubernetesSection
from tests.k8s.generated import OVERLAYS, variant

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
RENDERER = ROOT / "kits" / "kubernetes" / "render"
RAY_JOB_DEFINITION = ROOT.parent / "shared" / "k8s-schemas" / "ray.io_rayjobs.yaml.gz"
KUBERNETES_VERSIONS = ("1.30", kubernetes_validate.latest_version())
EACH_VERSION = [pytest.param(KUBERNETES_VERSIONS[0], marks=pytest.mark.slow), KUBERNETES_VERSIONS[1]]

Document = dict[str, Any]
Deployed = list[Document]
"""The manifests of a deployment."""

PATH = "/etc/stampede/scenario.yaml"
MEANS = ("pod", "node", "chaos-mesh")
REGIONS = {
    "name": "regions",
    "validators": {"count": 7, "hosts": 4},
    "links": {"regions": {"east": ["validator-1", "validator-5"], "west": ["validator-3"]}},
    "kubernetes": {"pull_secret": "registry", "storage_class": "fast", "node_selector": {"disk": "ssd"}},
}
"""Hosts with several validators, some of them in one region."""


def parsed(path: Path) -> Iterator[Document]:
    """The documents of a file, by libyaml."""
    return iter(yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def by_kubernetes(how: str) -> Deployed:
    """A deployment whose scenario has a fault by Kubernetes."""
    fault: Any = SimpleNamespace(how=how)
    scenario = load_scenario("smoke").model_copy(update={"faults": [fault]})
    return manifests(scenario, Deployment("broken", "testnets", ("run", PATH), "name: a\n"))


def ready_for(how: str) -> Deployed:
    """A testnet that stays up, into which such faults may be injected."""
    scenario = Scenario.model_validate({"name": "a", "kubernetes": {"inject": [how]}})
    return manifests(scenario, Deployment("broken", "testnets", ("up", PATH), "name: a\n"))


@cache
def deployments() -> dict[str, Deployed]:
    """What is rendered, by a name: all that is committed, and what scenarios may ask for besides."""
    smoke, regions = load_scenario("smoke"), Scenario.model_validate(REGIONS)
    found = {f"overlay {name}": variant(settings, "stampede") for name, settings in OVERLAYS.items()}
    found["base"] = [*variant(monitoring=True), *parsed(K8S / "results.yaml")]
    for folder in (K8S / "jobs").iterdir():
        found[folder.name] = [each for path in folder.glob("*-*.yaml") for each in parsed(path)]
    found |= {how: by_kubernetes(how) for how in MEANS}
    found |= {f"up for {how}": ready_for(how) for how in MEANS}
    several = Deployment("several", "testnets", ("run", PATH), "name: a\n", monitoring=Monitoring())
    found["several on a host"] = [*manifests(regions, several), results_pod(KubernetesSection.of(regions), several)]
    found["up"] = manifests(smoke, Deployment("open", None, ("up", PATH, "--port", "9464"), "name: a\n"))
    found["simulated"] = manifests(smoke, Deployment("sim", "a", ("run", PATH, "--backend", "sim"), "name: a\n"))
    found["soak of regions"] = soak_manifests(regions, Deployment("night", "a", (), "name: a\n"))
    return found


def deployed(name: str) -> Deployed:
    """A copy of a deployment, which may be changed."""
    return copy.deepcopy(deployments()[name])


def all_documents() -> list[Document]:
    return [each for found in deployments().values() for each in found]


def document(kind: str, deployment: str = "base") -> Document:
    """A copy of the first manifest of a kind."""
    return copy.deepcopy(next(each for each in deployments()[deployment] if each["kind"] == kind))


NOT_CORE = ("RayJob", "PodMonitor", "PrometheusRule")


def locked_version(lock: Path, package: str) -> str:
    found = re.search(rf"^{package}==(\S+)", lock.read_text(), re.MULTILINE)
    assert found, f"{package} is not in {lock.name}"
    return found[1]


# --- schemas --------------------------------------------------------------------------------------------------------


def core_problem(manifest: Document, version: str = KUBERNETES_VERSIONS[-1]) -> str | None:
    """What Kubernetes would refuse in a core kind, ``None`` where nothing."""
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
    return None


def closed(schema: Any) -> Any:
    """An OpenAPI v3 schema of a resource definition as a JSON schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items() if key not in ("properties", "default")}
    if "properties" in schema:
        result["properties"] = {name: closed(each) for name, each in schema["properties"].items()}
    keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if schema.get("type") == "object" and "additionalProperties" not in schema and not keeps_unknown:
        result["additionalProperties"] = False
    if schema.get("nullable") is True and "type" in schema:
        result["type"] = [schema["type"], "null"]
    return result


@cache
def ray_job_validator() -> jsonschema.Draft202012Validator:
    if not RAY_JOB_DEFINITION.exists():
        pytest.skip(f"KubeRay's resource definition is not at hand ({RAY_JOB_DEFINITION.name})")
    definition = yaml.load(gzip.decompress(RAY_JOB_DEFINITION.read_bytes()), Loader=yaml.CSafeLoader)
    (version,) = (each for each in definition["spec"]["versions"] if each["name"] == "v1")
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # the API server knows it: checked as a core kind's
    return jsonschema.Draft202012Validator(schema)


def ray_job_problem(manifest: Document) -> str | None:
    """What the API server would refuse or drop in a ``RayJob``, ``None`` where nothing."""
    for error in ray_job_validator().iter_errors(manifest):
        return f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
    return core_problem({"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifest["metadata"]})


@pytest.mark.parametrize("version", EACH_VERSION)
@pytest.mark.parametrize("name", deployments())
def test_core_manifests_are_valid(name: str, version: str) -> None:
    for each in deployments()[name]:
        if each["kind"] not in NOT_CORE:
            assert core_problem(each, version) is None, each["kind"]


@pytest.mark.parametrize("name", deployments())
def test_ray_jobs_are_valid(name: str) -> None:
    for each in deployments()[name]:
        if each["kind"] == "RayJob":
            assert ray_job_problem(each) is None


@pytest.mark.parametrize("version", EACH_VERSION)
def test_pods_of_ray_jobs_are_valid_pods(version: str) -> None:
    for each in all_documents():
        for name, template in pod_templates(each):
            metadata = {"name": name, **template["metadata"]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            assert core_problem(pod, version) is None


def plant(manifest: Document, path: str, value: Any) -> Document:
    """The manifest with one field set, or with it renamed where ``value`` is a renaming."""
    changed = copy.deepcopy(manifest)
    *parents, last = (int(part) if part.isdecimal() else part for part in path.split("."))
    place: Any = changed
    for part in parents:
        place = place[part]
    if callable(value):
        value(place, last)
    else:
        place[last] = value
    return changed


def misspelled(place: Document, field: str) -> None:
    place[field[:-1]] = place.pop(field)


def missing(place: Document, field: str) -> None:
    del place[field]


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("PodDisruptionBudget", "spec.minAvailable", misspelled),
        ("ConfigMap", "data", ["name: a"]),
        ("Namespace", "metadata.labels", misspelled),
        ("Namespace", "metadata.labels", ["restricted"]),
        ("ServiceAccount", "automountServiceAccountToken", misspelled),
        ("ServiceAccount", "automountServiceAccountToken", "no"),
        ("PersistentVolumeClaim", "spec.accessModes", misspelled),
        ("PersistentVolumeClaim", "spec.accessModes", "ReadWriteOnce"),
        ("NetworkPolicy", "spec.podSelector", misspelled),
        ("NetworkPolicy", "spec.policyTypes", misspelled),
        ("NetworkPolicy", "spec.egress.1.ports.0.protocol", 6),
        ("Pod", "spec.containers.0.image", 1),
        ("Pod", "spec.containers.0.name", missing),
        ("Pod", "spec.securityContext.runAsNonRoot", misspelled),
    ],
)
def test_a_fault_in_a_core_manifest_is_found(kind: str, path: str, value: Any) -> None:
    assert core_problem(plant(document(kind, "base" if kind in ("Pod", "RayJob") else "pod"), path, value)) is not None


HEAD = "spec.rayClusterSpec.headGroupSpec"
WORKERS = "spec.rayClusterSpec.workerGroupSpecs.0"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec", misspelled),
        ("metadata.labels", misspelled),
        ("spec.entrypoint", misspelled),
        ("spec.entrypoint", ["stampede", "run"]),
        ("spec.shutdownAfterJobFinishes", misspelled),
        ("spec.ttlSecondsAfterFinished", "60s"),
        ("spec.rayClusterSpec.rayVersion", misspelled),
        ("spec.rayClusterSpec.authOptions.mode", "tokens"),
        (f"{HEAD}.rayStartParams.num-cpus", 2),
        (f"{HEAD}.template", missing),
        (f"{HEAD}.template.metadata.labels", misspelled),
        (f"{HEAD}.template.spec.containers.0.readinessProbe.httpGet.port", misspelled),
        (f"{WORKERS}.groupName", missing),
        (f"{WORKERS}.replicas", "two"),
        (f"{WORKERS}.template.spec.containers.0.resources.limits", misspelled),
        (f"{WORKERS}.template.spec.containers.0.securityContext.readOnlyRootFilesystem", misspelled),
        ("spec.submitterPodTemplate.spec.restartPolicy", misspelled),
    ],
)
def test_a_fault_in_the_ray_job_is_found(path: str, value: Any) -> None:
    assert ray_job_problem(plant(document("RayJob"), path, value)) is not None


def test_a_schema_may_leave_fields_open() -> None:
    opened = closed({"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": True})
    shut = closed({"type": "object", "properties": {"status": {"type": "object"}}})
    jsonschema.validate({"anything": 1}, opened)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"status": {"anything": 1}}, shut)


# --- confinement ----------------------------------------------------------------------------------------------------


def pod_templates(manifest: Document) -> Iterator[tuple[str, Document]]:
    """Every pod that a manifest leads to, by name. Of a RayJob with an autoscaler, KubeRay adds its container."""
    match manifest["kind"]:
        case "Pod":
            yield manifest["metadata"]["name"], manifest
        case "Deployment":
            yield "load", manifest["spec"]["template"]
        case "CronJob":
            yield "night", manifest["spec"]["jobTemplate"]["spec"]["template"]
        case "RayJob":
            cluster = manifest["spec"]["rayClusterSpec"]
            yield "submitter", manifest["spec"]["submitterPodTemplate"]
            head = cluster["headGroupSpec"]["template"]
            if (options := cluster.get("autoscalerOptions")) is not None:
                head = copy.deepcopy(head)
                (image,) = {each["image"] for each in head["spec"]["containers"]}
                kept = {"imagePullPolicy", "env", "securityContext", "resources", "volumeMounts"}
                added = {key: value for key, value in options.items() if key in kept}
                head["spec"]["containers"].append({"name": "autoscaler", "image": image, **added})
            yield "head", head
            for group in cluster["workerGroupSpecs"]:
                yield group["groupName"], group["template"]


def pods_of(deployment: Deployed) -> list[tuple[str, Document]]:
    return [found for each in deployment for found in pod_templates(each)]


def pod_problems(manifest: Document, with_token: str | None = None) -> list[str]:
    """Where a pod of the manifest has more rights, or fewer bounds, than it needs. One of them may have a token."""
    return [
        f"{name}: {problem}"
        for name, template in pod_templates(manifest)
        for problem in _spec_problems(template["spec"], name == with_token)
    ]


def _spec_problems(spec: Document, may_have_token: bool) -> Iterator[str]:
    security = spec.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        yield "may run as root"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    if spec.get("automountServiceAccountToken") is not may_have_token:
        yield "gets an API token" if not may_have_token else "gets no API token"
    if any(key in spec for key in ("hostNetwork", "hostPID", "hostIPC")) or any(
        "hostPath" in v for v in spec["volumes"]
    ):
        yield "shares something with its machine"
    tokens = {volume["name"] for volume in spec["volumes"] if "serviceAccountToken" in json.dumps(volume)}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        if mounted & tokens and container["name"] != "autoscaler":
            yield f"{container['name']}: gets an API token"
        volumes = {volume["name"] for volume in spec["volumes"]}
        yield from (f"{container['name']}: {problem}" for problem in _container_problems(container, volumes))


NEED_NO_PROBES = ("ray-job-submitter", "soak", "autoscaler", "load-worker")
"""They end when their work does, and serve nothing; a worker of the load ends when its master is silent."""


def _container_problems(container: Document, volumes: set[str]) -> Iterator[str]:
    security = container.get("securityContext", {})
    if security.get("readOnlyRootFilesystem") is not True:
        yield "root file system can be written"
    if security.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if security.get("capabilities") != {"drop": ["ALL"]} or "privileged" in security:
        yield "keeps capabilities"
    if {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} not in container.get("env", []):
        yield "Ray's usage statistics are on"
    resources = container.get("resources", {})
    for bound in ("requests", "limits"):
        if not {"cpu", "memory", "ephemeral-storage"} <= resources.get(bound, {}).keys():
            yield f"no {bound}"
    if resources.get("requests") != resources.get("limits"):
        yield "requests are not the limits"
    if container["name"] not in NEED_NO_PROBES and not {"livenessProbe", "readinessProbe"} <= container.keys():
        yield "no probes"
    mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
    if "/tmp" not in mounts:
        yield "cannot write to /tmp"
    for name in set(mounts.values()) - volumes:
        yield f"mounts {name}, which is no volume"


BY_API = ("drill-outage", *MEANS, *(f"up for {how}" for how in MEANS))
"""Deployments whose driver talks to the Kubernetes API."""


@pytest.mark.parametrize("name", deployments())
def test_pods_are_confined(name: str) -> None:
    for each in deployments()[name]:
        assert pod_problems(each, "head" if name in BY_API else None) == []


def test_validators_are_no_background_work() -> None:
    for name, template in pods_of(deployed("base")):
        for container in template["spec"]["containers"]:
            assert {"name": "RAY_worker_niceness", "value": "0"} in container["env"], name


CONTAINER = f"{WORKERS}.template.spec.containers.0"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (f"{HEAD}.template.spec.securityContext.runAsNonRoot", False, "may run as root"),
        (f"{HEAD}.template.spec.securityContext.runAsUser", 0, "may run as root"),
        (f"{HEAD}.template.spec.securityContext.seccompProfile", missing, "no seccomp profile"),
        (f"{HEAD}.template.spec.automountServiceAccountToken", missing, "gets an API token"),
        (f"{HEAD}.template.spec.automountServiceAccountToken", True, "gets an API token"),
        (f"{HEAD}.template.spec.hostNetwork", True, "shares something"),
        ("spec.submitterPodTemplate.spec.volumes.0.hostPath", {"path": "/"}, "shares something"),
        (f"{CONTAINER}.securityContext.readOnlyRootFilesystem", False, "can be written"),
        (f"{CONTAINER}.securityContext.allowPrivilegeEscalation", missing, "may gain privileges"),
        (f"{CONTAINER}.securityContext.capabilities", {"drop": ["NET_RAW"]}, "keeps capabilities"),
        (f"{CONTAINER}.env", [], "usage statistics"),
        (f"{CONTAINER}.resources.limits", missing, "no limits"),
        (f"{CONTAINER}.resources.limits.cpu", "9", "requests are not the limits"),
        (f"{CONTAINER}.livenessProbe", missing, "no probes"),
        (f"{CONTAINER}.volumeMounts.0.mountPath", "/var", "cannot write to /tmp"),
        (f"{CONTAINER}.volumeMounts.1.name", "data", "mounts data"),
    ],
)
def test_a_pod_with_too_many_rights_is_found(path: str, value: Any, expected: str) -> None:
    assert any(expected in problem for problem in pod_problems(plant(document("RayJob"), path, value)))


def test_the_token_of_the_autoscaler_is_nobody_elses() -> None:
    job = document("RayJob", "sweep")
    assert pod_problems(job) == []
    mounts = job["spec"]["rayClusterSpec"]["autoscalerOptions"]["volumeMounts"]
    container = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] += [each for each in mounts if each["mountPath"].startswith("/var")]
    assert pod_problems(job) == ["head: ray-head: gets an API token"]


def granted(deployment: Deployed) -> dict[str, set[str]]:
    """Verbs by resource, of all roles."""
    found: dict[str, set[str]] = {}
    for each in deployment:
        for rule in each.get("rules", []):
            for resource in rule["resources"]:
                found.setdefault(resource, set()).update(rule["verbs"])
    return found


def role_problems(deployment: Deployed) -> list[str]:
    """Roles that are bound to nobody, or to more than the driver, and rights over everything."""
    accounts = {each["metadata"]["name"] for each in deployment if each["kind"] == "ServiceAccount"}
    roles = {(each["kind"], each["metadata"]["name"]) for each in deployment if "rules" in each}
    problems = []
    for each in deployment:
        if "roleRef" in each:
            reference, (subject,) = each["roleRef"], each["subjects"]
            roles.discard((reference["kind"], reference["name"]))
            head = dict(pod_templates(next(each for each in deployment if each["kind"] == "RayJob")))["head"]["spec"]
            if subject["name"] != head["serviceAccountName"] or subject["name"] not in accounts:
                problems.append(f"bound to {subject['name']}")
            if subject.get("namespace") != each["metadata"].get("namespace", subject.get("namespace")):
                problems.append(f"bound in {subject.get('namespace')}")
    problems += [f"{resource}: *" for resource, verbs in granted(deployment).items() if "*" in {resource, *verbs}]
    return problems + [f"{name} is bound to nobody" for _, name in sorted(roles)]


PODS = {"pods": {"get", "list", "delete"}, "pods/eviction": {"create"}}
NODES = {"nodes": {"get", "patch"}}
CHAOS = {kind: {"get", "create", "delete"} for kind in ("networkchaos", "podchaos", "stresschaos")}


@pytest.mark.parametrize("name", deployments())
def test_rights_are_those_that_faults_need(name: str) -> None:
    expected = {"pod": PODS, "drill-outage": PODS, "node": PODS | NODES, "chaos-mesh": PODS | CHAOS}
    assert granted(deployments()[name]) == expected.get(name.removeprefix("up for "), {})
    assert role_problems(deployments()[name]) == []


def rights_on(page: str) -> dict[str, dict[str, set[str]]]:
    """The rights that the page on operations says a fault needs: verbs by resource, by its ``how``."""
    rows = re.findall(
        r"^\| `([\w-]+)` \| .* \| (.*:.*) \|$", page.partition("\n### Faults by Kubernetes\n")[2], re.MULTILINE
    )
    found: dict[str, dict[str, set[str]]] = {}
    for how, rights in rows:
        for part in rights.split("; "):
            resources, _, verbs = part.partition(": ")
            found.setdefault(how, {}).update({each: set(verbs.split(", ")) for each in resources.split(", ")})
    return found


def differing_rights(page: str) -> list[str]:
    """Means whose rights differ from those on the page. Over pods, all means have the same ones."""
    given = {how: granted(deployments()[how]) for how in MEANS}
    needed = rights_on(page)
    assert needed.keys() == given.keys()
    return [
        how
        for how in MEANS
        if any(not verbs <= given[how].get(resource, set()) for resource, verbs in needed[how].items())
        or given[how].keys() - needed[how].keys() - PODS.keys()
    ]


def test_the_page_says_which_rights_faults_need() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert differing_rights(page) == []
    assert differing_rights(page.replace(", stresschaos:", ":")) == ["chaos-mesh"]
    assert differing_rights(page.replace("nodes: get, patch", "nodes: get, update")) == ["node"]


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Role", "rules.0.verbs", ["*"]),
        ("Role", "metadata.name", "other"),
        ("RoleBinding", "subjects.0.name", "default"),
        ("RoleBinding", "subjects.0.name", "broken"),
        ("RoleBinding", "subjects.0.namespace", "default"),
        ("ClusterRoleBinding", "roleRef.kind", "Role"),
    ],
)
def test_a_role_for_others_is_found(kind: str, path: str, value: Any) -> None:
    changed = [plant(each, path, value) if each["kind"] == kind else each for each in deployed("node")]
    assert role_problems(changed) != []


# --- the network ----------------------------------------------------------------------------------------------------

OPERATOR = {"app.kubernetes.io/component": "kuberay-operator"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}


def policy_problems(deployment: Deployed) -> list[str]:
    """Where traffic may pass a deployment's border: all but DNS, the operator's calls to the job server, Prometheus'
    to the validators, and those of a driver, which has an account of its own, to the API server.
    """
    policies = [each for each in deployment if each["kind"] == "NetworkPolicy"]
    name = {"app.kubernetes.io/name": "stampede", "app.kubernetes.io/instance": instance_of(deployment)}
    closed_ways = [
        set(each["spec"].get("policyTypes", []))
        for each in policies
        if each["spec"]["podSelector"] == {"matchLabels": name}
    ]
    problems = [] if {"Ingress", "Egress"} in closed_ways else ["the deployment is not closed"]
    has_account = any(template["spec"]["serviceAccountName"].endswith("-driver") for _, template in pods_of(deployment))
    for each in policies:
        whom = each["spec"]["podSelector"].get("matchLabels", {})
        component = whom.get("app.kubernetes.io/component")
        for way, peers in (("ingress", "from"), ("egress", "to")):
            for rule in each["spec"].get(way, []):
                ports = {port["port"] for port in rule.get("ports", [])}
                if peers not in rule:
                    may = way == "egress" and component == "driver" and has_account and ports == {443, 6443}
                    problems += [] if may else [f"{way} is open to everybody"]
                problems += [
                    f"{way}: {peer}" for peer in rule.get(peers, []) if not _may_pass(way, peer, ports, component, name)
                ]
    return problems


def _may_pass(way: str, peer: Document, ports: set[int], component: str | None, ours: dict[str, str]) -> bool:
    if peer == {"podSelector": {"matchLabels": ours}}:
        return True
    others = peer.get("podSelector", {}).get("matchLabels")
    if way == "ingress" and others == OPERATOR:
        return component == "driver" and ports == {8265}
    if way == "ingress" and others == PROMETHEUS:
        return component == "validators" and bool(ports) and all(26_600 < port < 26_700 for port in ports)
    dns = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    return way == "egress" and peer == dns and ports == {53}


def instance_of(deployment: Deployed) -> str:
    (name,) = {
        each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in deployment if each["kind"] != "Namespace"
    }
    return str(name)


@pytest.mark.parametrize("name", deployments())
def test_traffic_stays_in_the_deployment(name: str) -> None:
    assert policy_problems(deployments()[name]) == []


@pytest.mark.parametrize(
    ("policy", "path", "value"),
    [
        ("confined", "spec.podSelector", {"matchLabels": {"app": "ray"}}),
        ("confined", "spec.policyTypes", ["Ingress"]),
        ("confined", "spec.ingress.0", {}),
        ("confined", "spec.ingress.0.from.0", {"podSelector": {}}),
        ("confined", "spec.ingress.0.from.0", {"namespaceSelector": {}}),
        ("confined", "spec.egress.0.to.0", {"ipBlock": {"cidr": "0.0.0.0/0"}}),
        ("confined", "spec.egress.1.ports", missing),
        ("operator", "spec.ingress.0.ports", missing),
        ("operator", "spec.ingress.0.ports.0.port", 6379),
        ("operator", "spec.ingress.0.from.0.podSelector", missing),
        ("operator", "spec.ingress.0.from.0.podSelector.matchLabels", {"app.kubernetes.io/name": "kuberay-operator"}),
        ("operator", "spec.podSelector", {}),
        ("prometheus", "spec.ingress.0.ports.0.port", 6379),
        ("prometheus", "spec.podSelector", {}),
    ],
)
def test_a_gap_in_the_policies_is_found(policy: str, path: str, value: Any) -> None:
    changed = [
        plant(each, path, value) if each["metadata"]["name"] == f"stampede-smoke-{policy}" else each
        for each in deployed("base")
    ]
    assert policy_problems(changed) != []


def test_only_a_driver_with_an_account_reaches_the_api() -> None:
    api = next(each for each in deployed("pod") if each["metadata"]["name"] == "broken-api")
    for each in (deployed("pod"), deployed("up")):
        api["metadata"]["labels"]["app.kubernetes.io/instance"] = instance_of(each)
        found = policy_problems([*(kept for kept in each if kept["metadata"]["name"] != "broken-api"), api])
        assert found == ([] if instance_of(each) == "broken" else ["egress is open to everybody"])


# --- agreement ------------------------------------------------------------------------------------------------------


def agreement_problems(deployment: Deployed) -> list[str]:
    """Where the manifests name what is not there, or differ from each other."""
    found = [problem for check in AGREEMENTS for problem in check(deployment)]
    return [str(problem) for problem in found]


def _reference_problems(deployment: Deployed) -> Iterator[str]:
    names = {(each["kind"], each["metadata"]["name"]) for each in deployment}
    spaces = {each["metadata"].get("namespace") for each in deployment if not each["kind"].startswith("ClusterRole")}
    spaces -= {None} if ("Namespace" in {each["kind"] for each in deployment}) else set()
    if len(spaces) != 1:
        yield f"different namespaces: {spaces}"
    for space in spaces - {None}:
        if ("Namespace", space) not in names:
            yield f"namespace {space}"
    for pod, template in pods_of(deployment):
        spec = template["spec"]
        account = spec["serviceAccountName"]
        needs = [] if account == "default" else [("ServiceAccount", account)]  # each namespace has that one
        for volume in spec["volumes"]:
            if claim := volume.get("persistentVolumeClaim"):
                needs.append(("PersistentVolumeClaim", claim["claimName"]))
            if config := volume.get("configMap"):
                needs.append(("ConfigMap", config["name"]))
        yield from (f"{pod}: no {kind} {name}" for kind, name in needs if (kind, name) not in names)
    images = {c["image"] for _, template in pods_of(deployment) for c in template["spec"]["containers"]}
    if len(images) != 1:
        yield f"different images, so perhaps different Pythons: {sorted(images)}"


def _selector_problems(deployment: Deployed) -> Iterator[str]:
    """Every selector finds pods, and a PodMonitor and a policy find their ports."""
    pods = pods_of(deployment)
    for each in deployment:
        spec = each.get("spec", {})
        selector = {"NetworkPolicy": "podSelector", "PodDisruptionBudget": "selector", "PodMonitor": "selector"}
        if each["kind"] not in selector:
            continue
        wanted = spec[selector[each["kind"]]]["matchLabels"].items()
        found = [template for _, template in pods if wanted <= template["metadata"]["labels"].items()]
        if not found:
            yield f"{each['metadata']['name']} selects no pod"
        for template in found:
            ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0].get("ports", [])}
            named = [endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", [])]
            yield from (f"no port {name}" for name in named if name not in ports)
            for rule in spec.get("ingress", []):
                numbers = [port["port"] for port in rule.get("ports", [])]
                yield from (f"no port {number}" for number in numbers if number not in ports.values())
    for name, template in pods:
        for term in _anti_affinities(template["spec"]):
            if not term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items():
                yield f"{name} keeps away from others than its kind"


def _anti_affinities(spec: Document) -> Iterator[Document]:
    rules = spec.get("affinity", {}).get("podAntiAffinity", {})
    yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    weighted = rules.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    yield from (each["podAffinityTerm"] for each in weighted)


def _host_problems(deployment: Deployed) -> Iterator[str]:
    """Each host has one group, with its number everywhere, a volume of its own, and ports for its validators."""
    for job in (each for each in deployment if each["kind"] == "RayJob"):
        claimed = []
        groups = [
            each for each in job["spec"]["rayClusterSpec"]["workerGroupSpecs"] if each["groupName"].startswith("host-")
        ]
        for number, group in enumerate(groups):
            template = group["template"]
            resources = json.loads(group["rayStartParams"]["resources"].strip("'"))
            numbers = (
                group["groupName"] == f"host-{number}",
                template["metadata"]["labels"].get("stampede.io/host") == str(number),
                resources == {"stampede_validators": 1, f"stampede_host_{number}": 1},
                group["replicas"] == group["minReplicas"] == group["maxReplicas"] == 1,
            )
            if not all(numbers):
                yield f"group {group['groupName']} is not that of host {number}"
            volumes = [volume.get("persistentVolumeClaim") for volume in template["spec"]["volumes"]]
            claimed += [claim["claimName"] for claim in volumes if claim]
        if len(set(claimed)) != len(groups):
            yield "hosts share a volume, or have none"
        labels = [group.get("labels", {}) for group in groups]
        if any("labels" in group["rayStartParams"] for group in groups) or any(
            set(each) - {"stampede.io/region"} for each in labels
        ):
            yield "Ray's labels are not KubeRay's"


def _load_problems(deployment: Deployed) -> Iterator[str]:
    """Workers of the load find their master, which expects as many as there are."""
    services = {each["metadata"]["name"]: each for each in deployment if each["kind"] == "Service"}
    for workers in (each for each in deployment if each["kind"] == "Deployment"):
        spec = workers["spec"]
        if not spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items():
            yield f"{workers['metadata']['name']} does not select its own pods"
        command = spec["template"]["spec"]["containers"][0]["command"]
        service = services.get(command[command.index("--master-host") + 1])
        if service is None:
            yield "workers look for a master that no service has"
            continue
        (port,) = service["spec"]["ports"]
        if command[command.index("--master-port") + 1] != str(port["port"]):
            yield "workers look for another port than the service's"
        drivers = [template for _, template in pods_of(deployment) if
                   service["spec"]["selector"].items() <= template["metadata"]["labels"].items()]  # fmt: skip
        for container in (template["spec"]["containers"][0] for template in drivers):
            listening = {each["name"]: each["containerPort"] for each in container["ports"]}.get(port["targetPort"])
            told = {each["name"]: each.get("value") for each in container["env"]}
            if told.get("STAMPEDE_LOAD_LISTEN") != f"0.0.0.0:{listening}":
                yield "the master listens elsewhere than the service sends"
            if told.get("STAMPEDE_LOAD_WORKERS") != str(spec["replicas"]):
                yield "the master expects another number of workers"
        if not drivers:
            yield "the service of the load selects no pod"


def _start_problems(deployment: Deployed) -> Iterator[str]:
    """A raylet has 15 s for each of four ports. ``ray start`` waits for it as long, and less than the probe."""
    for job in (each for each in deployment if each["kind"] == "RayJob"):
        cluster = job["spec"]["rayClusterSpec"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            if {"dashboard-agent-grpc-port", "runtime-env-agent-port"} & group["rayStartParams"].keys():
                yield "a port of an agent that is fixed shortens the time for the others"
            container = group["template"]["spec"]["containers"][0]
            told, probe = {each["name"]: each.get("value") for each in container["env"]}, container["livenessProbe"]
            limit_s = probe["initialDelaySeconds"] + probe["periodSeconds"] * probe["failureThreshold"]
            if not 4 * 15 < int(told.get("RAY_raylet_start_wait_time_s", 30)) < limit_s:
                yield "ray start gives up on its raylet before that does, or after the probe"


AGREEMENTS = (_reference_problems, _selector_problems, _host_problems, _load_problems, _start_problems)


@pytest.mark.parametrize("name", deployments())
def test_manifests_agree_with_each_other(name: str) -> None:
    assert agreement_problems(deployments()[name]) == []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("RayJob", "metadata.namespace", "default"),
        ("RayJob", f"{HEAD}.template.spec.serviceAccountName", "ray"),
        ("RayJob", f"{HEAD}.template.spec.volumes.1.persistentVolumeClaim.claimName", "data"),
        ("RayJob", f"{HEAD}.template.spec.volumes.2.configMap.name", "scenario"),
        ("RayJob", f"{HEAD}.template.metadata.labels", {"app": "ray"}),
        ("RayJob", f"{CONTAINER}.image", "stampede:0.0.9"),
        ("RayJob", f"{CONTAINER}.ports.0.name", "web"),
        ("RayJob", f"{CONTAINER}.ports.0.containerPort", 8080),
        ("RayJob", f"{WORKERS}.groupName", "host-9"),
        ("RayJob", f"{WORKERS}.maxReplicas", 2),
        ("RayJob", f"{WORKERS}.rayStartParams.resources", "'{\"stampede_host_0\": 1}'"),
        ("RayJob", f"{WORKERS}.rayStartParams.labels", "a=b"),
        ("RayJob", f"{WORKERS}.rayStartParams.runtime-env-agent-port", "8302"),
        ("RayJob", f"{HEAD}.rayStartParams.dashboard-agent-grpc-port", "8301"),
        ("RayJob", f"{CONTAINER}.livenessProbe.failureThreshold", 9),
        ("RayJob", f"{CONTAINER}.env.3", {"name": "A", "value": "1"}),
        ("RayJob", f"{WORKERS}.template.metadata.labels", {"stampede.io/host": "1"}),
        ("RayJob", f"{WORKERS}.template.spec.volumes.1.persistentVolumeClaim.claimName", "stampede-smoke-host-1"),
        ("PodDisruptionBudget", "spec.selector.matchLabels", {"app": "ray"}),
        ("PodMonitor", "spec.selector.matchLabels", {"app": "ray"}),
        ("PodMonitor", "spec.podMetricsEndpoints.0.port", "metrics"),
        ("Pod", "spec.volumes.1.persistentVolumeClaim.claimName", "runs"),
    ],
)
def test_a_disagreement_between_manifests_is_found(kind: str, path: str, value: Any) -> None:
    changed = [plant(each, path, value) if each["kind"] == kind else each for each in deployed("base")]
    assert agreement_problems(changed) != []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", "spec.replicas", 3),
        ("Deployment", "spec.selector.matchLabels", {"app": "locust"}),
        ("Deployment", "spec.template.spec.containers.0.command.9", "elsewhere"),
        ("Deployment", "spec.template.spec.containers.0.command.11", "5558"),
        ("Service", "spec.ports.0.port", 5558),
        ("Service", "spec.ports.0.targetPort", "dashboard"),
        ("Service", "spec.selector", {"app": "locust"}),
        ("Service", "metadata.name", "master"),
    ],
)
def test_a_disagreement_about_the_load_is_found(kind: str, path: str, value: Any) -> None:
    large = deployed("overlay large")
    assert [each for each in large if each["kind"] == kind]
    changed = [plant(each, path, value) if each["kind"] == kind else each for each in large]
    assert agreement_problems(changed) != []


def environment_of(deployment: Deployed) -> set[str]:
    """Our variables that containers get."""
    containers = [each for _, template in pods_of(deployment) for each in template["spec"]["containers"]]
    return {v["name"] for each in containers for v in each["env"] if v["name"].startswith("STAMPEDE_")}


def variables_read(source: str) -> set[str]:
    """The texts of a module that may be names of environment variables of ours."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and re.fullmatch("STAMPEDE_[A-Z_]+", text)}


def test_the_program_reads_every_variable_that_pods_get() -> None:
    files = [path for path in (ROOT / "cluster").rglob("*.py") if path.parent != RENDERER]
    read = set[str]().union(*(variables_read(path.read_text()) for path in files))
    found = set[str]().union(*map(environment_of, deployments().values()))
    load = {"STAMPEDE_LOAD_LISTEN", "STAMPEDE_LOAD_WORKERS"}
    assert found == {"STAMPEDE_NAMESPACE", "STAMPEDE_INSTANCE", "STAMPEDE_PORTS", "STAMPEDE_SEED_PODS", *load}
    assert found <= read
    assert variables_read("A = 'STAMPEDE_A'\nB = 'see STAMPEDE_B'") == {"STAMPEDE_A"}


def test_images_have_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for _, template in pods_of(deployed("base")):
        for container in template["spec"]["containers"]:
            assert container["image"] == f"{project['name']}:{project['version']}"


def test_ray_has_the_same_version_everywhere() -> None:
    locked = locked_version(ROOT / "requirements.lock", "ray")
    assert locked_version(K8S / "requirements.lock", "ray") == locked
    for each in all_documents():
        if each["kind"] == "RayJob":
            assert each["spec"]["rayClusterSpec"]["rayVersion"] == locked


def test_the_entrypoint_reads_the_mounted_scenario_and_keeps_its_result() -> None:
    for name in ("base", "sweep"):
        job, config = document("RayJob", name), document("ConfigMap", name)
        command, verb, scenario, *_ = shlex.split(job["spec"]["entrypoint"])
        assert (command, verb) == ("stampede", "run" if name == "base" else "sweep")
        head = dict(pod_templates(job))["head"]["spec"]
        mounts = {mount["mountPath"]: mount["name"] for mount in head["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in head["volumes"]}
        folder, file = scenario.rsplit("/", 1)
        assert volumes[mounts[folder]]["configMap"]["name"] == config["metadata"]["name"]
        assert yaml.safe_load(config["data"][file])["name"] == "smoke"
        written = f"{head['containers'][0]['workingDir']}/runs"
        assert "persistentVolumeClaim" in volumes[mounts[written]]


@pytest.mark.parametrize("name", deployments())
def test_the_command_line_takes_every_command(name: str) -> None:
    for each in deployments()[name]:
        if each["kind"] == "RayJob":
            program, *words = shlex.split(each["spec"]["entrypoint"])
            assert program == "stampede"
            assert callable(cli._parser().parse_args(words).make)


def test_nothing_is_repeated_and_clusters_go_when_their_jobs_end() -> None:
    for name, found in deployments().items():
        for spec in (each["spec"] for each in found if each["kind"] == "RayJob"):
            assert spec["shutdownAfterJobFinishes"] is True
            assert spec["ttlSecondsAfterFinished"] > 0
            assert ("activeDeadlineSeconds" in spec) == (not name.startswith("up")), name
            assert spec["backoffLimit"] == spec["submitterConfig"]["backoffLimit"] == 0
        for spec in (each["spec"] for each in found if each["kind"] == "CronJob"):
            job = spec["jobTemplate"]["spec"]
            assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
            assert (spec["concurrencyPolicy"], job["activeDeadlineSeconds"] < 86_400) == ("Forbid", True)


def metric_names(page: str) -> set[str]:
    """The metrics that a module writes."""
    return {
        node.value
        for node in ast.walk(ast.parse(page))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch("stampede_[a-z_]+", node.value)
    }


def test_alerts_are_about_metrics_that_exist() -> None:
    served = metric_names((ROOT / "cluster/live/host/metrics.py").read_text())
    rules = [rule for group in document("PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"stampede_[a-z_]+", rule["expr"])}
    assert {"stampede_height", "stampede_peers", "stampede_disk_bytes"} <= asked
    assert asked <= served
    assert "stampede_heights" not in served
    monitor = document("PodMonitor")
    labels = {re.sub(r"[^a-z]", "_", each) for each in monitor["spec"]["podTargetLabels"]}
    assert set(re.findall(r"(\w+)=\"", "".join(rule["expr"] for rule in rules))) <= labels
    assert len({rule["alert"] for rule in rules}) == len(rules)
