"""The checkpoint of a live run: one file that is replaced as a whole, and the one before it.

====================  ==============================================================================================
line                  content
====================  ==============================================================================================
1                     the format's name
2                     BLAKE3 of all that follows, in hex
rest                  a :class:`~cluster.live.handover.left.LeftRun`, a JSON object in one line
====================  ==============================================================================================

The file holds the token of the run's Ray, so only its owner may read and write it. A file that belongs to another user,
or that others may write, is refused. So is one of another version, or one whose fields do not match
:class:`~cluster.live.handover.left.LeftRun`. Data that grows with a run is not in it: blocks and sightings are in
separate files, to which rows are appended.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from cluster.common.errors import BadInput
from cluster.common.files import sync_folder
from cluster.common.wording import printable
from cluster.live.handover.left import VERSION, LeftRun
from cluster.record.folder import CHECKPOINT_BEFORE_FILE, CHECKPOINT_FILE, CHECKPOINT_FILES
from cluster.record.saved import Damaged, decode, encode, sealed, unsealed

FORMAT: Final = 2
ADVICE: Final = "attach with the code that began the run"
FORBIDDEN_MODE: Final = stat.S_IWGRP | stat.S_IWOTH


class _About(msgspec.Struct, frozen=True):
    """The fields of a checkpoint that every version of the format has."""

    version: int
    commit: str


def read_body(body: bytes) -> LeftRun:
    """The run of a checkpoint. Raises :class:`BadInput`, with one line, if it is not of this version."""
    try:
        about = decode(body, _About)
        if about.version == VERSION:
            return decode(body, LeftRun)
    except BadInput as error:
        raise BadInput(
            f"does not fit version {VERSION}: {error}; expected a run as this code writes it: {ADVICE}"
        ) from None
    commit = printable(about.commit)
    raise BadInput(f"is of version {about.version}, written by commit {commit}; expected version {VERSION}: {ADVICE}")


def write(folder: Path, left: LeftRun) -> int:
    """Replace the checkpoint of a run, and keep the previous one. Returns the size in bytes.

    Raises :class:`OSError`.
    """
    content = sealed("checkpoint", FORMAT, encode(left))
    target, temporary = folder / CHECKPOINT_FILE, folder / f".{CHECKPOINT_FILE}.{os.getpid()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            target.replace(folder / CHECKPOINT_BEFORE_FILE)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    return len(content)


def read(folder: Path) -> LeftRun:
    """The newest complete checkpoint of a run. Changes nothing.

    Raises :class:`BadInput` if there is none, or if it is not of this version: then no older one is used.
    """
    problems = []
    for name in CHECKPOINT_FILES:
        try:
            return read_body(_read(folder / name))
        except FileNotFoundError:
            continue
        except (OSError, Damaged) as error:
            problems.append(f"{folder / name}: {error}")
        except BadInput as error:
            raise BadInput(f"{folder / name}: {error}") from None
    why = "; ".join(problems) or f"{folder}: has no checkpoint; expected a run that was started with --attachable"
    raise BadInput(why)


def remove(folder: Path) -> None:
    """Remove the checkpoints of a run with a verdict: no driver takes it over any more. Raises :class:`OSError`."""
    half_done = folder.glob(f".{CHECKPOINT_FILE}.*")  # of drivers that were killed while they wrote
    for path in (*(folder / name for name in CHECKPOINT_FILES), *half_done):
        path.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    about = path.stat()
    if about.st_uid != os.geteuid() or about.st_mode & FORBIDDEN_MODE:
        raise Damaged("belongs to another user, or others may write it; expected a file of yours, with mode 600")
    try:
        return unsealed("checkpoint", FORMAT, path.read_bytes())
    except Damaged:
        raise
    except BadInput as error:
        raise BadInput(f"{error}: {ADVICE}") from None
