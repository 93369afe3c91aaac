"""Specifications of pods and containers under the *restricted* pod security standard.

Pods have no rights and a read-only root file system, and their resource requests equal the limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cluster.common.checkout import NAMESPACE_VARIABLE
from kits.kubernetes.names import RUNS_PATH, SCENARIO_FOLDER, scenario_config_map
from kits.kubernetes.render.metadata import Manifest
from kits.kubernetes.section import Cpu, KubernetesSection, Memory, amount_of

MIB: Final = 1024**2
MIN_SEED_MIB: Final = 256
USER: Final = 10_001
"""ID of the user and group that the image runs as."""
WORKING_FOLDER: Final = "/opt/stampede"
UPLOADER: Final = "kits.kubernetes.uploading"
"""The module that runs a command and uploads its folder."""
TMP: Final = "tmp"
RUNS: Final = "runs"
SCENARIO: Final = "scenario"
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_LIFETIME_S: Final = 3_607
"""Lifetime of the mounted token, in seconds: Kubernetes' default."""

CONTAINER_SECURITY: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
ENVIRONMENT: Final[Mapping[str, str]] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else validators have low priority, and Locust takes their processors
    "HOME": "/tmp",
}


def variable(name: str, value: str) -> Manifest:
    """The manifest of an environment variable."""
    return {"name": name, "value": value}


def resources(cpu: str, memory: str, scratch: str) -> Manifest:
    """Resource requests of a container, with equal limits. ``scratch`` is disk space on the node."""
    amounts = {"cpu": cpu, "memory": memory, "ephemeral-storage": scratch}
    return {"requests": dict(amounts), "limits": dict(amounts)}


def whole_processors(cpu: Cpu) -> int:
    """A number of processors rounded down to a whole number, at least one."""
    return max(1, int(amount_of(cpu)))


def memory_per_seed_mib(memory: Memory, seeds: int, others_mib: int) -> int:
    """Memory in MiB for each seed, if ``seeds`` of them run in a pod at a time. ``others_mib`` is left for Ray and
    other processes in the pod."""
    return max(MIN_SEED_MIB, (int(amount_of(memory) / MIB) - others_mib) // seeds)


def container(
    name: str,
    section: KubernetesSection,
    asked: Manifest,
    mounts: Sequence[Manifest] = (),
    env: Sequence[Manifest] = (),
    **more: Any,
) -> Manifest:
    """The specification of a container with Stampede's image. ``asked`` are its resources, ``more`` further fields."""
    return {
        "name": name,
        "image": section.image_name,
        "imagePullPolicy": section.pull_policy,
        "workingDir": WORKING_FOLDER,
        **more,
        "env": [*(variable(*each) for each in ENVIRONMENT.items()), *env],
        "securityContext": _copied(CONTAINER_SECURITY),
        "resources": asked,
        "volumeMounts": [{"name": TMP, "mountPath": "/tmp"}, *mounts],
    }


def pod(
    containers: Sequence[Manifest],
    section: KubernetesSection,
    account: str,
    tmp_size: str,
    volumes: Sequence[Manifest] = (),
    *,
    gets_token: bool = False,
    **more: Any,
) -> Manifest:
    """The specification of a pod. ``gets_token`` mounts the account's token; ``more`` are further fields."""
    found: Manifest = {"serviceAccountName": account, "automountServiceAccountToken": gets_token, **more}
    if section.pull_secret is not None:
        found["imagePullSecrets"] = [{"name": section.pull_secret}]
    if section.node_selector:
        found["nodeSelector"] = dict(section.node_selector)
    return {
        **found,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": list(containers),
        "volumes": [{"name": TMP, "emptyDir": {"sizeLimit": tmp_size}}, *volumes],
    }


def claimed(claim: str, *, read_only: bool = False) -> tuple[Manifest, Manifest]:
    """A pod's volume with the folders of runs, from its claim, and its mount."""
    only = {"readOnly": True} if read_only else {}
    volume = {"name": RUNS, "persistentVolumeClaim": {"claimName": claim, **only}}
    return volume, {"name": RUNS, "mountPath": RUNS_PATH, **only}


def with_scenario(deployment_name: str) -> tuple[Manifest, Manifest]:
    """A pod's volume with the scenario of a deployment, and its mount."""
    volume = {"name": SCENARIO, "configMap": {"name": scenario_config_map(deployment_name)}}
    return volume, {"name": SCENARIO, "mountPath": SCENARIO_FOLDER, "readOnly": True}


def own_namespace() -> Manifest:
    """The environment variable with the namespace of the pod."""
    return {"name": NAMESPACE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}


def uploading(section: KubernetesSection, name: str) -> tuple[str, ...]:
    """The words before a command of a deployment's driver that upload its folder afterwards; none without a bucket."""
    return () if section.results is None else ("python", "-m", UPLOADER, f"{section.results}/{name}")


def bucket_access(section: KubernetesSection) -> Manifest:
    """Fields of the container that uploads to the bucket; none without a bucket."""
    return {} if section.results is None else {"envFrom": [{"secretRef": {"name": section.results_secret}}]}


def bucket_address(section: KubernetesSection) -> list[Manifest]:
    """The environment variable that names the bucket's server; none if it is AWS."""
    return [] if section.results_endpoint is None else [variable("AWS_ENDPOINT_URL", section.results_endpoint)]


def projected_token(name: str) -> tuple[Manifest, Manifest]:
    """A volume with the account's token, and its mount. It gives the token to only one container of a pod."""
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_LIFETIME_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return {"name": name, "projected": {"sources": sources}}, {
        "name": name,
        "mountPath": TOKEN_PATH,
        "readOnly": True,
    }


def _copied(value: Any) -> Any:
    """A deep copy as plain lists and dicts, which can be changed."""
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list | tuple) else value
