"""Fetches a run's folder from a cluster: a pod mounts the volume of runs read-only and sends it as an archive."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from cluster.live.kubernetes.names import RUNS_PATH
from cluster.tools.k8s.client.archive import MAX_BYTES, BadArchive, extract
from cluster.tools.k8s.client.cluster import Cluster, ClusterError, Object
from cluster.tools.k8s.client.execution import Container
from cluster.tools.k8s.client.kinds import POD
from cluster.tools.k8s.client.progress import is_ready, state_of

START_TIMEOUT_S = 180.0
"""Time limit for the reading pod to start. It is long, since a volume may have to be detached from a node first."""
POLL_S = 0.5
TRIES: Final = 3
CHANGED_MEANWHILE: Final = 1
"""Exit code of ``tar`` if a file changed while ``tar`` read it."""


def container_of(cluster: Cluster, namespace: str, pod: Object) -> Container:
    """The first container of a pod."""
    return Container(cluster, namespace, pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])


def fetch_folder(
    cluster: Cluster, namespace: str, pod: Object, name: str, target: Path, checkpoint: Callable[[], None]
) -> None:
    """Fetch the folder ``name`` of the volume of runs into the folder ``target``.

    ``pod`` is the manifest of the reading pod. It is created here; the caller deletes it. Raises
    :class:`ClusterError`, :class:`BadArchive` and :class:`OSError`.
    """
    reader = pod["metadata"]["name"]
    cluster.create(pod, POD, namespace)
    _wait_until_ready(cluster, namespace, reader)
    container = container_of(cluster, namespace, pod)
    # the dot follows a symbolic link to the folder
    command = ["tar", "--create", "--hard-dereference", "--file=-", f"--directory={RUNS_PATH}", f"{name}/."]
    for attempt in range(1, TRIES + 1):
        with tempfile.TemporaryFile(dir=target.parent) as archive:
            try:
                ended = container.execute(command, partial(_write, archive), checkpoint)
            except ClusterError:
                if attempt == TRIES:
                    raise
                cluster.wait(POLL_S)
                continue
            if ended.code not in (0, CHANGED_MEANWHILE):
                raise ClusterError(f"the run's folder cannot be read: {ended.errors or f'tar ended with {ended.code}'}")
            archive.seek(0)
            extract(archive, name, target)
            return


def _write(archive: BinaryIO, data: bytes) -> None:
    if archive.tell() + len(data) > MAX_BYTES:
        raise BadArchive(f"the archive of the run's folder: more than {MAX_BYTES:,} bytes")
    archive.write(data)


def _wait_until_ready(cluster: Cluster, namespace: str, name: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        pod = cluster.get(POD, namespace, name)
        if pod is None:
            raise ClusterError(f"pod {name} was deleted by another client")
        if is_ready(pod):
            return
        if pod.get("status", {}).get("phase") == "Failed" or time.monotonic() > deadline:
            raise ClusterError(f"pod {name}, which reads the volume of runs, {state_of(pod).words}")
        cluster.wait(POLL_S)
