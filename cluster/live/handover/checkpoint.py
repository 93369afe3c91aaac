"""The checkpoint of a live run: one file that is replaced as a whole, and the one before it.

====================  ==============================================================================================
line                  content
====================  ==============================================================================================
1                     the format's name
2                     BLAKE3 of all that follows, in hex
rest                  a :class:`~cluster.live.handover.left_run.LeftRun`, a JSON object in one line
====================  ==============================================================================================

The file holds the token of the run's Ray, so only its owner may read and write it. A file that belongs to another user,
or that others may write, is refused. So is one of another version, or one whose fields do not match
:class:`~cluster.live.handover.left_run.LeftRun`. Data that grows with a run is not in it: blocks and sightings are in
separate files, to which rows are appended.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from blake3 import blake3
from pydantic import BaseModel, TypeAdapter, ValidationError

from cluster.common.errors import BadInput
from cluster.common.wording import printable
from cluster.live.handover.left_run import VERSION, LeftRun
from cluster.record.folder import CHECKPOINT_BEFORE_FILE, CHECKPOINT_FILE, CHECKPOINT_FILES
from cluster.scenario.sections.faults import BaseFault, Fault

T = TypeVar("T")

FORMAT: Final = b"stampede checkpoint "
MAGIC: Final = FORMAT + b"2\n"
FORBIDDEN_MODE: Final = stat.S_IWGRP | stat.S_IWOTH

_ANY_FAULT: Final[TypeAdapter[Any]] = TypeAdapter(Fault)


class Damaged(Exception):
    """A checkpoint is incomplete or was changed. The message is one line."""


class _About(msgspec.Struct, frozen=True):
    """The fields of a checkpoint that every version of the format has."""

    version: int
    commit: str


def encode(left: object) -> bytes:
    """Encode a run, or a part of it, as JSON."""
    try:
        return msgspec.json.encode(left, enc_hook=_plain)
    except UnicodeEncodeError:  # half a surrogate pair, from a file name or a validator's answer
        plain = msgspec.to_builtins(left, str_keys=True, enc_hook=_plain)
        return json.dumps(plain, ensure_ascii=False).encode(errors="replace")


def decode_part(body: bytes, kind: type[T]) -> T:
    """The inverse of :func:`encode`. Raises :class:`msgspec.DecodeError` if ``body`` is not of this kind."""
    return msgspec.json.decode(body, type=kind, dec_hook=_from_json)


def decode(body: bytes) -> LeftRun:
    """The run of a checkpoint. Raises :class:`BadInput`, with one line, if it is not of this version."""
    try:
        about = msgspec.json.decode(body, type=_About)
        if about.version != VERSION:
            raise BadInput(
                f"is of version {about.version}, written by commit {printable(about.commit)};"
                f" expected version {VERSION}: attach with the code that began the run"
            )
        return decode_part(body, LeftRun)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"does not fit version {VERSION}: {printable(str(error))}; expected a run as this code writes it:"
            " attach with the code that began the run"
        ) from None


def write(folder: Path, left: LeftRun) -> int:
    """Replace the checkpoint of a run, and keep the previous one. Returns the size in bytes.

    Raises :class:`OSError`.
    """
    body = encode(left)
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
    return len(body)


def read(folder: Path) -> LeftRun:
    """The newest complete checkpoint of a run. Changes nothing.

    Raises :class:`BadInput` if there is none, or if it is not of this version: then no older one is used.
    """
    problems = []
    for name in CHECKPOINT_FILES:
        try:
            return decode(_read(folder / name))
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
    content = path.read_bytes()
    name, _, rest = content.partition(b"\n")
    if content.startswith(FORMAT) and name + b"\n" != MAGIC and name.removeprefix(FORMAT).isdigit():
        number, expected = name.removeprefix(FORMAT).decode(), MAGIC.removeprefix(FORMAT).decode().strip()
        raise BadInput(f"is of format {number}; expected format {expected}: attach with the code that began the run")
    if not content.startswith(MAGIC):
        raise Damaged("is no checkpoint of a run")
    digest, _, body = rest.partition(b"\n")
    if blake3(body).hexdigest().encode() != digest:
        raise Damaged("is damaged: its checksum does not hold")
    return body


def _plain(value: Any) -> Any:
    """Encode types that :mod:`msgspec` does not know: models of a scenario, or of a load."""
    if not isinstance(value, BaseModel):
        raise NotImplementedError(f"a checkpoint has no place for a {type(value).__name__}")
    return value.model_dump(mode="json")


def _from_json(kind: type, value: Any) -> Any:
    text = msgspec.json.encode(value)
    try:
        return _ANY_FAULT.validate_json(text) if kind is BaseFault else _model(kind).model_validate_json(text)
    except ValidationError as error:
        (first, *_) = error.errors()
        where = ".".join(map(str, first["loc"]))
        what = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {what}" if where else what) from None


def _model(kind: type) -> type[BaseModel]:
    if not issubclass(kind, BaseModel):
        raise NotImplementedError(f"a checkpoint has no place for a {kind.__name__}")
    return kind


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
