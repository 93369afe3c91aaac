"""The checkpoint of a live run: one file that is replaced as a whole, and the one before it.

====================  ==============================================================================================
line                  content
====================  ==============================================================================================
1                     the format's name
2                     BLAKE3 of all that follows, in hex
3                     the header, a JSON object: what is needed to find the testnet
rest                  the state, a pickle; objects outside of it (:data:`Outside`) stand in it by their names
====================  ==============================================================================================

A pickle runs code when it is read. So the file is only its owner's to read and write, and one that belongs to somebody
else, or that others may write, is refused. It is read by the same version of the code alone. What grows with a run is
not in it: blocks and sightings are files of their own, to which rows are appended.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from blake3 import blake3

from cluster.common.errors import BadInput
from cluster.record.folder import CHECKPOINT_BEFORE_FILE, CHECKPOINT_FILE

MAGIC: Final = b"stampede checkpoint 1\n"
FORBIDDEN_MODE: Final = stat.S_IWGRP | stat.S_IWOTH

Outside = Mapping[str, object]
"""Objects that are not part of a state, by the names that stand for them."""


class Damaged(Exception):
    """A checkpoint that was not written to its end, or was changed. One line."""


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, outside: Outside) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = {id(each): name for name, each in outside.items()}

    def persistent_id(self, value: object) -> str | None:
        return self._names.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, outside: Outside) -> None:
        super().__init__(file)
        self._outside = outside

    def persistent_load(self, name: str) -> object:
        return self._outside[name]


class Checkpoint:
    """One that was read."""

    def __init__(self, header: dict[str, Any], state: bytes) -> None:
        self.header = header
        self._state = state

    def state(self, outside: Outside) -> Any:
        """The state, made of these outside objects. Raises :class:`BadInput` if it is another version's."""
        try:
            return _Unpickler(io.BytesIO(self._state), outside).load()
        except (pickle.UnpicklingError, AttributeError, ImportError, KeyError, TypeError, EOFError) as error:
            raise BadInput(f"{CHECKPOINT_FILE}: cannot be read by this version: {error}") from None


def write(folder: Path, header: Mapping[str, Any], state: object, outside: Outside) -> None:
    """Replace the checkpoint of a run; the last one stays as the one before. Raises :class:`OSError`."""
    buffer = io.BytesIO()
    _Pickler(buffer, outside).dump(state)
    body = json.dumps(header, separators=(",", ":")).encode() + b"\n" + buffer.getvalue()
    target, temporary = folder / CHECKPOINT_FILE, folder / f".{CHECKPOINT_FILE}.{os.getpid()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(MAGIC + blake3(body).hexdigest().encode() + b"\n")
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            target.replace(folder / CHECKPOINT_BEFORE_FILE)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(folder)


def read(folder: Path) -> Checkpoint:
    """The newest whole checkpoint of a run. Raises :class:`BadInput` if there is none."""
    problems = []
    for name in (CHECKPOINT_FILE, CHECKPOINT_BEFORE_FILE):
        try:
            return _read(folder / name)
        except FileNotFoundError:
            continue
        except (OSError, Damaged) as error:
            problems.append(f"{folder / name}: {error}")
    why = "; ".join(problems) or f"{folder}: has no checkpoint; expected a run that was started with --attachable"
    raise BadInput(why)


def remove(folder: Path) -> None:
    """The run has its verdict: nobody takes it over any more. Raises :class:`OSError`."""
    half_done = folder.glob(f".{CHECKPOINT_FILE}.*")  # of drivers that were killed while they wrote
    for path in (folder / CHECKPOINT_FILE, folder / CHECKPOINT_BEFORE_FILE, *half_done):
        path.unlink(missing_ok=True)


def _read(path: Path) -> Checkpoint:
    about = path.stat()
    if about.st_uid != os.geteuid() or about.st_mode & FORBIDDEN_MODE:
        raise Damaged("belongs to somebody else, or others may write it; expected a file of yours, with mode 600")
    content = path.read_bytes()
    if not content.startswith(MAGIC):
        raise Damaged("is no checkpoint of a run")
    digest, _, body = content[len(MAGIC) :].partition(b"\n")
    if blake3(body).hexdigest().encode() != digest:
        raise Damaged("is damaged: its checksum does not hold")
    header, _, state = body.partition(b"\n")
    try:
        return Checkpoint(json.loads(header), state)
    except ValueError as error:
        raise Damaged(f"has a header that is no JSON: {error}") from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
