"""Creates the objects of a deployment in order, finds them again by their labels, and deletes them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from cluster.common.errors import BadInput, ExitCode
from cluster.common.wording import counted, first_few
from kits.kubernetes.client.cluster import Cluster, Object, Query
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.client.rights import missing_namespace, rights_of
from kits.kubernetes.kinds import (
    CLAIM,
    CLUSTER_ROLE,
    DELETED,
    EVENT,
    NAMESPACE,
    NODE,
    POD,
    RAY_JOB,
    Kind,
    kind_of,
)
from kits.kubernetes.names import (
    CORDONED_BY,
    CREATED_BY,
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    STAMPEDE,
    driver_account,
    runs_claim,
    scenario_config_map,
)

ENDED: Final = frozenset({"Complete", "Failed", "ValidationFailed"})
"""Values of ``jobDeploymentStatus`` of a RayJob that has ended or will never start."""
NOT_RUN: Final = ("", "PENDING")
"""Values of ``jobStatus`` of a job whose driver has not started."""
SUCCEEDED: Final = "SUCCEEDED"
EXIT_CODE: Final = re.compile(r"exit code (\d+)")
GONE_TIMEOUT_S = 90.0
GONE_POLL_S = 1.0
MAX_SHOWN: Final = 4
OPENED: Final = {"metadata": {"annotations": {CORDONED_BY: None}}, "spec": {"unschedulable": None}}
"""The patch that uncordons a node."""


def selector(name: str) -> dict[str, str]:
    """The label query that selects all objects of a deployment."""
    return {"labelSelector": f"{INSTANCE_LABEL}={name},{MANAGED_BY_LABEL}={STAMPEDE}"}


def is_ours(found: Object, name: str) -> bool:
    """Whether an object belongs to the Stampede deployment ``name``, by its labels."""
    labels = found["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY_LABEL) == STAMPEDE and labels.get(INSTANCE_LABEL) == name


def has_ended(job: Object) -> bool:
    """Whether a RayJob has ended, or will never start."""
    return (job.get("status") or {}).get("jobDeploymentStatus") in ENDED


def has_driver_started(job: Object) -> bool:
    """Whether the driver of a RayJob has started, according to the job's status."""
    return (job.get("status") or {}).get("jobStatus", "") not in NOT_RUN


def exit_code_of(job: Object) -> ExitCode | None:
    """The exit code of a RayJob's driver; ``None`` if the status does not have one that the driver gives."""
    status = job.get("status") or {}
    if status.get("jobStatus") == SUCCEEDED:
        return ExitCode.PASS
    found = EXIT_CODE.search(str(status.get("message", "")))
    return ExitCode(int(found[1])) if found and int(found[1]) in set(ExitCode) else None


def nothing_of(name: str, namespace: str) -> BadInput:
    """The error for a name that no object in the namespace belongs to."""
    return BadInput(f"{name}: namespace {namespace} has nothing of a deployment of this name")


def how_to_delete(name: str, namespace: str) -> str:
    """The command that deletes a deployment."""
    return f"stampede k8s delete {name} --namespace {namespace}"


def check_rights(cluster: Cluster, namespace: str, command: str, manifests: Sequence[Object] = ()) -> None:
    """Ask the cluster for all rights that a command needs. Raises :class:`ClusterError` with those that are missing.

    A cluster that does not answer the question refuses nothing. Without the right to see events a command does its
    work, and shows no warnings.
    """
    asked = [right for right in rights_of(command, manifests) if right.resource != EVENT.plural]
    if any(kind_of(each) == NAMESPACE for each in manifests) and _namespace(cluster, namespace) is None:
        asked += missing_namespace()
    try:
        missing = [str(right) for right in asked if cluster.refuses(right, namespace)]
    except ClusterError as error:
        if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            raise
        return
    if missing:
        raise ClusterError(
            f"{cluster.server}: no right in namespace {namespace} to {', '.join(missing)}: stampede k8s role prints a"
            f" role with all that is needed",
            HTTPStatus.FORBIDDEN,
        )


def make_room(cluster: Cluster, namespace: str, name: str, notice: Callable[[str], None]) -> None:
    """Delete an earlier run of the same name, if it has ended.

    Raises :class:`BadInput` if it is still running, if it left its volumes, or if another object has the name.
    """
    job = cluster.get(RAY_JOB, namespace, name)
    if job is None:
        if cluster.get(CLAIM, namespace, runs_claim(name)) is not None:
            raise BadInput(
                f"{name}: namespace {namespace} has the volumes of an earlier run of this name: expected another"
                f" --name, or first {how_to_delete(name, namespace)}"
            )
        return
    if not is_ours(job, name):
        raise BadInput(f"{name}: namespace {namespace} has another RayJob of this name: expected another --name")
    if not has_ended(job):
        raise BadInput(
            f"{name}: a run of this name is in namespace {namespace}: expected another --name,"
            f" or first {how_to_delete(name, namespace)}"
        )
    notice(f"an earlier run {name} has ended: it is deleted")
    delete_all(cluster, namespace, name)
    wait_until_gone(cluster, namespace, name, CLAIM)


def make_namespace(cluster: Cluster, manifests: Sequence[Object]) -> bool:
    """Create the namespace that is among the manifests, unless it exists. Returns whether it was created."""
    manifest = next((each for each in manifests if kind_of(each) == NAMESPACE), None)
    if manifest is None:
        return False
    name = manifest["metadata"]["name"]
    metadata = {**manifest["metadata"], "annotations": {CREATED_BY: STAMPEDE}}
    is_missing = _namespace(cluster, name) is None
    return is_missing and cluster.create({**manifest, "metadata": metadata}, NAMESPACE, name)


def _namespace(cluster: Cluster, name: str) -> Object | None:
    """A namespace; ``None`` if it is missing. Without the right to look it counts as there, with nothing known of it:
    if it is missing, the creation of the first object fails."""
    try:
        return cluster.get(NAMESPACE, name, name)
    except ClusterError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return {"metadata": {}}


def create_all(
    cluster: Cluster, manifests: Sequence[Object], namespace: str, name: str, on_created: Callable[[], None]
) -> None:
    """Create the objects in order, except the namespace. ``on_created`` is called after each.

    If an object exists already, deletes those that it has created, and raises :class:`BadInput`. Raises
    :class:`ClusterError`, too.
    """
    created: list[tuple[Kind, str]] = []
    for manifest in manifests:
        kind, each = kind_of(manifest), manifest["metadata"]["name"]
        if kind == NAMESPACE:
            continue
        try:
            is_new = cluster.create(manifest, kind, namespace)
        except ClusterError as error:
            raise _explained(error, kind, namespace) from None
        if is_new:
            created.append((kind, each))
            on_created()
        else:
            for one, other in reversed(created):
                cluster.delete(one, namespace, other)
            raise BadInput(
                f"{kind.name} {each} exists in namespace {namespace}: expected another --name,"
                f" or first {how_to_delete(name, namespace)}"
            )


def _explained(error: ClusterError, kind: Kind, namespace: str) -> ClusterError:
    """An error at the creation of an object, with an explanation if its status is 404 (Not Found)."""
    if error.status != HTTPStatus.NOT_FOUND:
        return error
    if "namespaces" in str(error):
        return ClusterError(f"there is no namespace {namespace}, and no right to create it", error.status)
    hint = ": expected a cluster with the KubeRay operator" if kind == RAY_JOB else ""
    return ClusterError(f"the cluster has no {kind.resource}{hint}", error.status)


def items_of(cluster: Cluster, kind: Kind, namespace: str, query: Query) -> list[Object]:
    """The objects that a query selects; none of an optional kind that the cluster lacks, or the user may not list."""
    try:
        return cluster.list(kind, namespace, query).get("items") or []
    except ClusterError as error:
        if kind.is_optional and error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
            return []
        raise


def find_all(cluster: Cluster, namespace: str, name: str) -> list[tuple[Kind, str]]:
    """Kind and name of a deployment's objects, in the order of deletion. Objects that are deleted with their owner are
    left out."""

    def is_here(kind: Kind, meta: Object) -> bool:
        """Whether an object belongs to this namespace's deployment. A cluster-wide role may be another namespace's."""
        return kind.is_namespaced or meta["name"] == f"{namespace}-{driver_account(name)}"

    found: list[tuple[Kind, str]] = []
    for kind in DELETED:
        try:
            items = items_of(cluster, kind, namespace, selector(name))
        except ClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                continue
            raise
        metas = [each["metadata"] for each in items]
        found += [(kind, meta["name"]) for meta in metas if not meta.get("ownerReferences") and is_here(kind, meta)]
    return found


def delete_all(cluster: Cluster, namespace: str, name: str, keeps_volumes: bool = False) -> int:
    """Delete all objects of a deployment. Returns the number of deleted objects.

    With ``keeps_volumes`` the volumes stay, and so does the scenario, which is needed to read them.
    """
    deleted, found = 0, find_all(cluster, namespace, name)
    if any(kind == CLUSTER_ROLE for kind, _ in found):
        _open_nodes(cluster, f"{namespace}/{name}")  # the driver may have been killed before it did that
    for kind, each in found:
        if keeps_volumes and (kind == CLAIM or each == scenario_config_map(name)):
            continue
        deleted += cluster.delete(kind, namespace, each)
    return deleted


def _open_nodes(cluster: Cluster, deployment: str) -> None:
    """Uncordon the nodes that a deployment has cordoned. Does nothing if the user has no right to do so."""
    try:
        nodes = cluster.list(NODE, "", {}).get("items") or []
        for meta in (node["metadata"] for node in nodes):
            if (meta.get("annotations") or {}).get(CORDONED_BY) == deployment:
                cluster.patch(NODE, meta["name"], OPENED)
    except ClusterError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise


def is_namespace_made(cluster: Cluster, namespace: str) -> bool:
    """Whether a client of Stampede has made a namespace; ``False`` also without the right to look."""
    found = _namespace(cluster, namespace)
    return found is not None and CREATED_BY in (found["metadata"].get("annotations") or {})


def delete_namespace(cluster: Cluster, namespace: str) -> bool:
    """Delete a namespace if it has no jobs, volumes or pods. Returns whether it was deleted."""
    if any(cluster.list(kind, namespace, {}).get("items") for kind in (RAY_JOB, CLAIM, POD)):
        return False
    return cluster.delete(NAMESPACE, namespace, namespace)


def wait_until_gone(cluster: Cluster, namespace: str, name: str, *kinds: Kind) -> list[str]:
    """Wait until a deployment's objects of these kinds are gone. Returns what is left after a minute and a half."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while True:
        pages = [(kind, cluster.list(kind, namespace, selector(name)).get("items") or []) for kind in kinds]
        left = [f"{kind.name} {each['metadata']['name']}" for kind, items in pages for each in items]
        if not left or time.monotonic() > deadline:
            return left
        cluster.wait(GONE_POLL_S)


def deletion_line(count: int, left: Sequence[str]) -> str:
    """A line of text for the user: how many objects were deleted, and which are not gone yet."""
    rest = f"; still being deleted: {first_few(list(left), MAX_SHOWN)}" if left else ""
    return f"deleted {counted(count, 'object')}{rest}"
