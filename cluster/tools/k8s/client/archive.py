"""Extraction of a run's folder from the archive by which it is fetched. The archive is checked as a whole first."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from cluster.common.errors import HarnessError

MAX_BYTES: Final = 64 * 2**30
"""Maximum size of an archive, and maximum total size of the files in it."""
MAX_MEMBERS: Final = 1_000_000


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
