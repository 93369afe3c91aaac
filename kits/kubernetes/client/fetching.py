"""Fetches a run's folder from a cluster: a pod mounts the volume of runs read-only and sends it as an archive.

The archive is checked as a whole before anything of it is written.
"""

from __future__ import annotations

import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from cluster.common.errors import HarnessError
from cluster.record.folder import REPORT_FILE, RESULT_FILE, SCORECARD_PAGE_FILE, SWEEP_SUMMARY_FILE
from kits.kubernetes.client.cluster import Cluster, Object
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.client.execution import Container
from kits.kubernetes.client.progress import is_ready, notice, state_of
from kits.kubernetes.kinds import POD
from kits.kubernetes.names import RUNS_PATH

REPORTS: Final = (REPORT_FILE, RESULT_FILE, SCORECARD_PAGE_FILE, SWEEP_SUMMARY_FILE)
"""Files that say how a driver's work ended, the best to read first."""
MAX_BYTES: Final = 64 * 2**30
"""Maximum size of an archive, and maximum total size of the files in it."""
MAX_MEMBERS: Final = 1_000_000
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


def print_report(folder: Path) -> None:
    """Print the path of the report in a folder that was fetched or, without one, of its result."""
    found = [folder / each for each in REPORTS if (folder / each).exists()]
    notice(f"report   {found[0] if found else f'{folder}, which has no {RESULT_FILE}'}")


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


# --- archives -------------------------------------------------------------------------------------------------------


class BadArchive(HarnessError):
    """An archive that is broken, too large, or has members other than files and folders below its top folder."""


def extract(archive: BinaryIO, top: str, target: Path) -> None:
    """Extract the folder ``top`` of an archive into the folder ``target``.

    A run's folder consists of files and folders. If a member is anything else, such as a link, or has an absolute path
    or one with ``..``, nothing is written. Raises :class:`BadArchive` for such an archive and for a broken one, and
    :class:`OSError`.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            members = _members(tar, top)
            for member in members:
                moved = member.replace(name=str(PurePosixPath(member.name).relative_to(top)))
                tar.extract(moved, target, filter="data")
    except tarfile.TarError as error:
        raise BadArchive(f"the archive of the run's folder: {error}") from None


def _members(tar: tarfile.TarFile, top: str) -> list[tarfile.TarInfo]:
    """All members below ``top``, checked."""
    found: list[tarfile.TarInfo] = []
    size = 0
    for member in tar:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] != (top,):
            raise BadArchive(f"the archive of the run's folder: {member.name!r} is no path below {top}/")
        if not (member.isdir() or (member.isfile() and len(path.parts) > 1)):
            raise BadArchive(f"the archive of the run's folder: {member.name!r} is neither a file nor a folder")
        size += member.size
        if size > MAX_BYTES or len(found) >= MAX_MEMBERS:
            raise BadArchive(f"the archive of the run's folder: more than {MAX_BYTES:,} bytes or {MAX_MEMBERS:,} files")
        if len(path.parts) > 1:
            found.append(member)
    return found
