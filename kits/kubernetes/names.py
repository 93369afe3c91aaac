"""Names that the manifests, the driver in its pod and the commands outside of the cluster share.

The labels are those that Kubernetes recommends ("Recommended Labels" in its documentation).
"""

from __future__ import annotations

from typing import Final

from cluster.live.nodes.ray_nodes import LABEL_PREFIX, LOAD, VALIDATORS

# --- labels ---------------------------------------------------------------------------------------------------------

NAME_LABEL: Final = "app.kubernetes.io/name"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
"""Label with the deployment's name, which is also that of its RayJob."""
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
VERSION_LABEL: Final = "app.kubernetes.io/version"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
HOST_LABEL: Final = f"{LABEL_PREFIX}host"
"""Label of a pod that carries a host; the value is the host's number."""

CORDONED_BY: Final = "stampede.io/cordoned-by"
"""Annotation of a node that a fault has cordoned; the value is ``NAMESPACE/DEPLOYMENT``."""

CREATED_BY: Final = "stampede.io/created-by"
"""Annotation of a namespace that ``stampede k8s run`` or ``up`` has made; the value is :data:`STAMPEDE`."""

STAMPEDE: Final = "stampede"
"""Value of the labels name, part-of and managed-by."""

DRIVER: Final = "driver"
SUBMITTER: Final = "submitter"
RESULTS: Final = "results"

RUN_FORMS: Final = "run, drill NAME [OPTION=VALUE …], sweep A:B, dos [ATTACK …]"
FORMS: Final = f"{RUN_FORMS} or soak"
"""What a driver can be told to do by ``--command``, as text for the user. A soak has no driver to follow."""

LOAD_PORT: Final = 5557
"""Port of the load's master."""

# --- Ray ------------------------------------------------------------------------------------------------------------

HOST_GROUP_PREFIX: Final = "host-"
"""Prefix of a worker group's name: the group ``host-N`` carries host N."""

# --- files and volumes ----------------------------------------------------------------------------------------------

RUNS_PATH: Final = "/opt/stampede/runs"
"""Mount path of the volume of runs in the driver's pod, and of a host's volume in its pod."""
SCENARIO_FOLDER: Final = "/etc/stampede"
SCENARIO_FILE: Final = "scenario.yaml"
"""Key of the scenario in the ConfigMap, and its name in :data:`SCENARIO_FOLDER`."""
SCENARIO_PATH: Final = f"{SCENARIO_FOLDER}/{SCENARIO_FILE}"
"""Path of the scenario in a pod that has it."""


def load_name(instance: str) -> str:
    """The name of the Deployment of the load's workers, and of the Service of their master."""
    return f"{instance}-{LOAD}"


def host_group(number: int) -> str:
    """The name of the worker group that carries a host."""
    return f"{HOST_GROUP_PREFIX}{number}"


def host_claim(instance: str, number: int) -> str:
    """The name of the PersistentVolumeClaim of a host."""
    return f"{instance}-{host_group(number)}"


def runs_claim(instance: str) -> str:
    """The name of the PersistentVolumeClaim of the runs."""
    return f"{instance}-runs"


def scenario_config_map(instance: str) -> str:
    """The name of the ConfigMap of the scenario."""
    return f"{instance}-scenario"


def dashboard_config_map(instance: str) -> str:
    """The name of the ConfigMap of the dashboard for Grafana."""
    return f"{instance}-dashboard"


def driver_account(instance: str) -> str:
    """The name of the ServiceAccount of a driver that talks to the Kubernetes API."""
    return f"{instance}-driver"


def results_pod_name(instance: str) -> str:
    """The name of the pod that serves the volume of runs for reading."""
    return f"{instance}-results"


def instance_labels(instance: str) -> dict[str, str]:
    """The labels that select everything of a deployment."""
    return {NAME_LABEL: STAMPEDE, INSTANCE_LABEL: instance}


def component_labels(instance: str, component: str) -> dict[str, str]:
    """The labels that select the pods of a component of a deployment."""
    return {**instance_labels(instance), COMPONENT_LABEL: component}


def host_labels(instance: str, number: int) -> dict[str, str]:
    """The labels that select the pod that carries a host."""
    return {**component_labels(instance, VALIDATORS), HOST_LABEL: str(number)}
