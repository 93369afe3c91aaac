"""The image and the manifests of ``k8s/``: right by their schemas, confined, in agreement with the rest of the project.

Core kinds are validated by ``kubernetes-validate``, the ``RayJob`` against KubeRay's resource definition where that is
at hand (``../shared/k8s-schemas``). Both validations are closed: a field that the schema does not know is an error.
Each check has planted faults that it must find.
"""

from __future__ import annotations

import copy
import gzip
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
RAY_JOB_DEFINITION = ROOT.parent / "shared" / "k8s-schemas" / "ray.io_rayjobs.yaml.gz"
KUBERNETES_VERSIONS = ("1.30", kubernetes_validate.latest_version())

Document = dict[str, Any]


def manifest_files() -> list[Path]:
    """Every manifest under ``k8s/``; kustomize's own file is none."""
    return sorted(path for path in K8S.rglob("*.yaml") if path.name != "kustomization.yaml")


def documents() -> list[Document]:
    return [document for path in manifest_files() for document in yaml.safe_load_all(path.read_text()) if document]


def document(kind: str) -> Document:
    (found,) = (each for each in documents() if each["kind"] == kind)
    return copy.deepcopy(found)


def core_documents() -> list[Document]:
    return [each for each in documents() if each["kind"] != "RayJob"]


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
    definition = yaml.safe_load(gzip.decompress(RAY_JOB_DEFINITION.read_bytes()))
    (version,) = (each for each in definition["spec"]["versions"] if each["name"] == "v1")
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # the API server knows it: checked as a core kind's
    return jsonschema.Draft202012Validator(schema)


def ray_job_problem(manifest: Document) -> str | None:
    """What the API server would refuse or drop in a ``RayJob``, ``None`` where nothing."""
    for error in ray_job_validator().iter_errors(manifest):
        return f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
    return core_problem({"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifest["metadata"]})


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("manifest", core_documents(), ids=lambda each: each["kind"])
def test_core_manifests_are_valid(manifest: Document, version: str) -> None:
    assert core_problem(manifest, version) is None


def test_ray_job_is_valid() -> None:
    assert ray_job_problem(document("RayJob")) is None


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_pods_of_the_ray_job_are_valid_pods(version: str) -> None:
    for name, template in pod_templates(document("RayJob")):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template["spec"]}
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
        ("Namespace", "metadata.labels", misspelled),
        ("Namespace", "metadata.labels", ["restricted"]),
        ("ServiceAccount", "automountServiceAccountToken", misspelled),
        ("ServiceAccount", "automountServiceAccountToken", "no"),
        ("PersistentVolumeClaim", "spec.accessModes", misspelled),
        ("PersistentVolumeClaim", "spec.accessModes", "ReadWriteOnce"),
        ("NetworkPolicy", "spec.podSelector", misspelled),
        ("NetworkPolicy", "spec.policyTypes", misspelled),
        ("NetworkPolicy", "spec.ingress.1.ports.0.protocol", 6),
        ("Pod", "spec.containers.0.image", 1),
        ("Pod", "spec.containers.0.name", missing),
        ("Pod", "spec.securityContext.runAsNonRoot", misspelled),
    ],
)
def test_a_fault_in_a_core_manifest_is_found(kind: str, path: str, value: Any) -> None:
    assert core_problem(plant(document(kind), path, value)) is not None


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
    """Every pod that a manifest leads to, by name."""
    if manifest["kind"] == "Pod":
        yield manifest["metadata"]["name"], manifest
    if manifest["kind"] == "RayJob":
        cluster = manifest["spec"]["rayClusterSpec"]
        yield "submitter", manifest["spec"]["submitterPodTemplate"]
        yield "head", cluster["headGroupSpec"]["template"]
        for group in cluster["workerGroupSpecs"]:
            yield group["groupName"], group["template"]


def pod_problems(manifest: Document) -> list[str]:
    """Where a pod of the manifest has more rights, or fewer bounds, than it needs."""
    return [
        f"{name}: {problem}"
        for name, template in pod_templates(manifest)
        for problem in _spec_problems(template["spec"])
    ]


def _spec_problems(spec: Document) -> Iterator[str]:
    security = spec.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        yield "may run as root"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    if spec.get("automountServiceAccountToken") is not False:
        yield "gets an API token"
    if any(key in spec for key in ("hostNetwork", "hostPID", "hostIPC")) or any(
        "hostPath" in v for v in spec["volumes"]
    ):
        yield "shares something with its machine"
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        yield from (f"{container['name']}: {problem}" for problem in _container_problems(container, volumes))


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
    for bound in ("requests", "limits"):
        if not {"cpu", "memory"} <= container.get("resources", {}).get(bound, {}).keys():
            yield f"no {bound}"
    mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
    if "/tmp" not in mounts:
        yield "cannot write to /tmp"
    for name in set(mounts.values()) - volumes:
        yield f"mounts {name}, which is no volume"


PODS = [each for each in documents() if each["kind"] in ("Pod", "RayJob")]


@pytest.mark.parametrize("manifest", PODS, ids=lambda each: each["kind"])
def test_pods_are_confined(manifest: Document) -> None:
    assert pod_problems(manifest) == []


def test_validators_are_no_background_work() -> None:
    for name, template in pod_templates(document("RayJob")):
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
        (f"{HEAD}.template.spec.hostNetwork", True, "shares something"),
        ("spec.submitterPodTemplate.spec.volumes.0.hostPath", {"path": "/"}, "shares something"),
        (f"{CONTAINER}.securityContext.readOnlyRootFilesystem", False, "can be written"),
        (f"{CONTAINER}.securityContext.allowPrivilegeEscalation", missing, "may gain privileges"),
        (f"{CONTAINER}.securityContext.capabilities", {"drop": ["NET_RAW"]}, "keeps capabilities"),
        (f"{CONTAINER}.env", [], "usage statistics"),
        (f"{CONTAINER}.resources.limits", missing, "no limits"),
        (f"{CONTAINER}.volumeMounts.0.mountPath", "/var", "cannot write to /tmp"),
        (f"{CONTAINER}.volumeMounts.1.name", "data", "mounts data"),
    ],
)
def test_a_pod_with_too_many_rights_is_found(path: str, value: Any, expected: str) -> None:
    assert any(expected in problem for problem in pod_problems(plant(document("RayJob"), path, value)))


def policy_problems(policy: Document) -> list[str]:
    """Where traffic may pass the namespace's border: all but DNS, and the operator's calls to the job server."""
    spec = policy["spec"]
    problems = [] if spec["podSelector"] == {} else ["some pods are not selected"]
    problems += [f"{way} is open" for way in ("Ingress", "Egress") if way not in spec.get("policyTypes", [])]
    for way, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(way, []):
            if not rule.get(peers):
                problems.append(f"{way} is open to everybody")
            ports = {port.get("port") for port in rule.get("ports", [])}
            problems += [f"{way}: {peer}" for peer in rule.get(peers, []) if not _may_pass(way, peer, ports)]
    return problems


def _may_pass(way: str, peer: Document, ports: set[int]) -> bool:
    if peer.keys() == {"podSelector"}:
        return True
    if way == "ingress":
        operator = {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}
        return peer.get("podSelector") == operator and ports == {8265}
    dns = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    return peer.get("namespaceSelector") == dns and ports == {53}


def test_traffic_stays_in_the_namespace() -> None:
    assert policy_problems(document("NetworkPolicy")) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.podSelector", {"matchLabels": {"app": "ray"}}),
        ("spec.policyTypes", ["Ingress"]),
        ("spec.ingress.0", {}),
        ("spec.ingress.0.from.0", {"namespaceSelector": {}}),
        ("spec.ingress.1.ports", missing),
        ("spec.ingress.1.from.0.podSelector", missing),
        ("spec.egress.0.to.0", {"ipBlock": {"cidr": "0.0.0.0/0"}}),
        ("spec.egress.1.ports", missing),
    ],
)
def test_a_gap_in_the_policy_is_found(path: str, value: Any) -> None:
    assert policy_problems(plant(document("NetworkPolicy"), path, value)) != []


# --- agreement ------------------------------------------------------------------------------------------------------


def agreement_problems(manifests: list[Document]) -> list[str]:
    """Where the manifests name what is not there, or differ from each other."""
    names = {(each["kind"], each["metadata"]["name"]) for each in manifests}
    problems = []
    for each in manifests:
        namespace = each["metadata"]["name"] if each["kind"] == "Namespace" else each["metadata"].get("namespace")
        if ("Namespace", namespace) not in names:
            problems.append(f"{each['kind']}: namespace {namespace}")
        for pod, template in pod_templates(each):
            spec = template["spec"]
            needs = [("ServiceAccount", spec["serviceAccountName"])]
            claims = (volume.get("persistentVolumeClaim") for volume in spec["volumes"])
            needs += [("PersistentVolumeClaim", claim["claimName"]) for claim in claims if claim]
            problems += [f"{pod}: no {kind} {name}" for kind, name in needs if (kind, name) not in names]
    images = {
        c["image"] for each in manifests for _, template in pod_templates(each) for c in template["spec"]["containers"]
    }
    if len(images) != 1:
        problems.append(f"different images, so perhaps different Pythons: {sorted(images)}")
    return problems


def test_manifests_agree_with_each_other() -> None:
    assert agreement_problems(documents()) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.namespace", "default"),
        (f"{HEAD}.template.spec.serviceAccountName", "ray"),
        (f"{HEAD}.template.spec.volumes.1.persistentVolumeClaim.claimName", "data"),
        (f"{CONTAINER}.image", "stampede:0.0.9"),
    ],
)
def test_a_disagreement_between_manifests_is_found(path: str, value: Any) -> None:
    others = [each for each in documents() if each["kind"] != "RayJob"]
    assert agreement_problems([*others, plant(document("RayJob"), path, value)]) != []


def test_the_image_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    head = dict(pod_templates(document("RayJob")))["head"]
    assert head["spec"]["containers"][0]["image"] == f"{project['name']}:{project['version']}"


def test_ray_has_the_same_version_everywhere() -> None:
    locked = locked_version(ROOT / "requirements.lock", "ray")
    assert locked_version(K8S / "requirements.lock", "ray") == locked
    assert document("RayJob")["spec"]["rayClusterSpec"]["rayVersion"] == locked


def test_the_entrypoint_runs_a_shipped_scenario_and_keeps_its_result() -> None:
    job = document("RayJob")
    command, verb, scenario, option, folder = shlex.split(job["spec"]["entrypoint"].replace(" +", "+"))
    assert (command, verb, option) == ("stampede", "run", "--out")
    assert (ROOT / scenario).is_file()
    head = dict(pod_templates(job))["head"]["spec"]
    (container,) = head["containers"]
    written = f"{container['workingDir']}/{folder}"
    (mount,) = (each for each in container["volumeMounts"] if written.startswith(each["mountPath"] + "/"))
    (volume,) = (each for each in head["volumes"] if each["name"] == mount["name"])
    assert "persistentVolumeClaim" in volume


def test_the_cluster_goes_when_the_job_ends() -> None:
    spec = document("RayJob")["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["ttlSecondsAfterFinished"] > 0
    assert spec["activeDeadlineSeconds"] > 0
    assert spec["backoffLimit"] == spec["submitterConfig"]["backoffLimit"] == 0


def test_kustomize_takes_every_file_of_the_base() -> None:
    kustomization = yaml.safe_load((K8S / "base" / "kustomization.yaml").read_text())
    assert kustomization["kind"] == "Kustomization"
    assert kustomization.keys() <= {"apiVersion", "kind", "resources", "images", "labels"}
    assert sorted(kustomization["resources"]) == [path.name for path in manifest_files() if path.parent.name == "base"]


# --- the image ------------------------------------------------------------------------------------------------------


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile with their arguments, continuation lines joined."""
    text = "\n".join(line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", text)
    return [(name.upper(), rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def dockerfile_problems(dockerfile: str) -> list[str]:
    """What is wrong with the image's recipe."""
    steps = instructions(dockerfile)
    checks: list[Callable[[list[tuple[str, str]]], Iterator[str]]] = [_base_problems, _user_problems, _install_problems]
    return [problem for check in checks for problem in check(steps)]


def _base_problems(steps: list[tuple[str, str]]) -> Iterator[str]:
    arguments = dict(rest.split("=", 1) for name, rest in steps if name == "ARG" and "=" in rest)
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    for image in (rest for name, rest in steps if name == "FROM"):
        resolved = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], image)
        pinned = re.match(r"python:(\d+\.\d+\.\d+)-slim-\w+$", resolved)
        if not pinned:
            yield f"base image {resolved} is not pinned"
        elif not SpecifierSet(requires).contains(pinned[1]):
            yield f"Python {pinned[1]} is not {requires}"


def _user_problems(steps: list[tuple[str, str]]) -> Iterator[str]:
    users = [rest for name, rest in steps if name == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", users[-1]):
        yield "does not end as a numeric user that is not root"
    elif int(users[-1].split(":")[0]) != document("Pod")["spec"]["securityContext"]["runAsUser"]:
        yield "ends as another user than the pods run as"


def _install_problems(steps: list[tuple[str, str]]) -> Iterator[str]:
    for command in (rest for name, rest in steps if name == "RUN" and "pip install" in rest):
        if "--require-hashes" not in command and not ("--no-index" in command and "--no-deps" in command):
            yield f"installs without hashes: {command}"
    for name, rest in steps:
        if name == "ADD":
            yield "ADD may fetch from the network"
        if name == "COPY":
            *sources, _ = rest.split()
            yield from (f"copies {source}, which is not there" for source in sources if not (ROOT / source).exists())


def test_the_image_is_pinned_hashed_and_not_root() -> None:
    assert dockerfile_problems((K8S / "Dockerfile").read_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("ARG PYTHON_VERSION=3.11.13", "ARG PYTHON_VERSION=3.10.13", "is not >="),
        ("ARG PYTHON_VERSION=3.11.13", "ARG PYTHON_VERSION=3", "not pinned"),
        ("python:${PYTHON_VERSION}-slim-bookworm", "python:latest", "not pinned"),
        ("USER 10001:10001", "USER root", "not root"),
        ("USER 10001:10001", "", "not root"),
        ("USER 10001:10001", "USER 1000", "another user"),
        (" --require-hashes", "", "without hashes"),
        ("--no-index ", "", "without hashes"),
        ("COPY scenarios scenarios", "COPY examples examples", "not there"),
        ("COPY scenarios scenarios", "ADD https://example.org/scenarios scenarios", "may fetch"),
    ],
)
def test_a_fault_in_the_image_is_found(old: str, new: str, expected: str) -> None:
    dockerfile = (K8S / "Dockerfile").read_text()
    assert old in dockerfile
    assert any(expected in problem for problem in dockerfile_problems(dockerfile.replace(old, new)))


def test_the_image_gets_nothing_but_what_is_copied_by_name() -> None:
    ignore = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert ignore[0] == "*"
    copied = {
        source.split("/")[0]
        for name, rest in instructions((K8S / "Dockerfile").read_text())
        if name == "COPY"
        for source in rest.split()[:-1]
    }
    assert {line[1:] for line in ignore if line.startswith("!")} == copied
