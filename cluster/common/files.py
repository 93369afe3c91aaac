"""Writing of files, also of those that a user names, and the files that all pages share.

A regular file is replaced atomically. Anything else that has the name, such as a device or a FIFO, is the user's: it is
opened and written, and stays what it is.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from cluster.common.errors import BadInput
from cluster.common.wording import SPELLED, json_text

ENCODING: Final = "utf-8-sig"
"""Encoding of the texts that users write: UTF-8, of which a byte order mark at the beginning is no part."""
STYLE_FILE: Final = Path(__file__).parent / "style" / "style.css"
"""The style of all pages: reports, and the pages of a testnet's own endpoint."""
THEME_FILE: Final = STYLE_FILE.with_name("theme.js")
"""The script that switches a page between light and dark."""
DESCRIPTORS: Final = Path("/dev/fd")
"""The folder with the open files of this process."""
MAX_LINKS: Final = 40
"""Maximum number of symbolic links that are followed, as in Linux."""

FIXED: Final = (errno.EBUSY, errno.EPERM, errno.EACCES)
"""Errors of replacing a mount point, such as a file that a container shares, or another user's file in ``/tmp``."""


# --- writing --------------------------------------------------------------------------------------------------------


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable: files that were created, renamed or removed. Raises :class:`OSError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file by :func:`writing_atomically`."""
    with writing_atomically(path) as file:
        file.write(content.encode("utf-8", SPELLED) if isinstance(content, str) else content)


@contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """A file that appears whole when the block ends, or not at all. Raises :class:`OSError`.

    Symbolic links are followed. The new file has the permissions of the old one and, where this is allowed, its owner.
    These files are opened and written in place: one that is not regular, an open file of this process such as
    ``/dev/stdout``, and one that cannot be replaced, as a mount point or a file of another user in ``/tmp``.
    """
    descriptor = _descriptor(path)
    if descriptor is not None:
        sys.stdout.flush()  # what was printed before comes first
        with open(os.dup(descriptor), "wb") as file:
            yield file
        return
    old, target = _status(path), path.resolve()
    if old is not None and not (stat.S_ISREG(old.st_mode) and _takes_files(target.parent)):
        with _in_place(path) as file:
            yield file
        return
    temporary = target.with_name(f".stampede-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            if old is not None:
                _make_alike(file, old)
            yield file
            file.flush()
            os.fsync(file.fileno())
        _replace(target, temporary)
    finally:
        temporary.unlink(missing_ok=True)


def _descriptor(path: Path) -> int | None:
    """The number of this process's open file that a path names, as ``/dev/stdout`` does; ``None`` if it names none."""
    for _ in range(MAX_LINKS):
        folder = path.parent.resolve()
        if folder == DESCRIPTORS.resolve() and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = folder / path.readlink()
    return None


def _status(path: Path) -> os.stat_result | None:
    """What is there; ``None`` if nothing is, or a symbolic link to nothing."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _takes_files(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _make_alike(file: BinaryIO, old: os.stat_result) -> None:
    """Give a new file the owner of the old one, as far as the system lets this user, and its permissions."""
    with suppress(OSError):
        os.fchown(file.fileno(), old.st_uid, old.st_gid)
    os.fchmod(file.fileno(), old.st_mode & 0o777)


def _in_place(path: Path) -> BinaryIO:
    return open(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY), "wb")


def _replace(target: Path, temporary: Path) -> None:
    try:
        temporary.replace(target)
    except OSError as error:
        if error.errno not in FIXED:
            raise
        with temporary.open("rb") as new, _in_place(target) as file:
            shutil.copyfileobj(new, file)


# --- files and folders that the user names ----------------------------------------------------------------------------


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises :class:`BadInput`, and :class:`FileNotFoundError`."""
    try:
        page = json.loads(path.read_text(encoding=ENCODING))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: no JSON: {json_problem(error)}") from None
    if not isinstance(page, dict):
        raise BadInput(f"{path}: expected an object")
    return page


def json_problem(error: ValueError | RecursionError) -> str:
    """The reason why a text cannot be read as JSON. Python's own words for a long number advise to change Python."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    is_told = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
    return str(error) if is_told else "a number has too many digits"


def check_target(path: Path) -> None:
    """Check, before the work, that a file named by the user can be written.

    The file is not opened: the reader of a FIFO would take that for the whole text. Raises :class:`BadInput`.
    """
    try:
        obstacle = _obstacle(path)
    except OSError as error:
        obstacle = error.strerror or str(error)
    if obstacle:
        raise BadInput(f"{path}: cannot be written: {obstacle}")


def check_folder(path: Path) -> None:
    """Check, before the work, that a folder named by the user takes files, or can be created.

    Raises :class:`BadInput`.
    """
    place = path
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise BadInput(f"{path}: is no folder, expected one")
    if not _takes_files(place):
        raise BadInput(f"{path}: cannot be used as a folder: {place} is read-only")


def _obstacle(path: Path) -> str:
    """Why a file cannot be written; empty if it can. Raises :class:`OSError`."""
    descriptor = _descriptor(path)
    if descriptor is not None:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        return "is open for reading only" if mode == os.O_RDONLY else ""
    old = _status(path)
    if old is None:
        return _obstacle_in(path.resolve().parent if path.is_symlink() else path.parent)
    if stat.S_ISDIR(old.st_mode):
        return "is a folder, expected a file's name"
    if stat.S_ISSOCK(old.st_mode):
        return "is a socket, expected a file's name"
    return "" if os.access(path, os.W_OK) else "is read-only"


def _obstacle_in(folder: Path) -> str:
    """Why a folder takes no files; empty if it does."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder}: {error.strerror}"


Trying: TypeAlias = Callable[[], AbstractContextManager[None]]
"""A function that makes the context of one of several outputs, for :func:`all_tried`."""


@contextmanager
def all_tried() -> Iterator[Trying]:
    """Tries for a command's outputs: one that fails does not keep later ones from being written.

    At the end raises :class:`BadInput` with the lines of all that failed.
    """
    failed: list[str] = []

    @contextmanager
    def trying() -> Iterator[None]:
        try:
            yield
        except BadInput as error:
            failed.extend(error.args)

    yield trying
    if failed:
        raise BadInput(*failed)


@contextmanager
def writing_for_user(path: Path) -> Iterator[None]:
    """A context that turns an :class:`OSError` into a :class:`BadInput`: the file ``path`` cannot be written."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror or error}") from None


def write_for_user(path: Path, content: str | bytes) -> None:
    """Write a file named by the user. Raises :class:`BadInput` if it cannot be written."""
    with writing_for_user(path):
        write_atomically(path, content)


def write_json_for_user(path: Path | None, page: object, indent: int = 2) -> None:
    """Write ``page`` as JSON to a file named by the user; do nothing if ``path`` is ``None``.

    Raises :class:`BadInput` if the file cannot be written.
    """
    if path is not None:
        write_for_user(path, json_text(page, indent=indent) + "\n")
