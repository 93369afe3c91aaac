"""Replaces the paths of files in a scenario by their contents: programs, policies, workloads, profiles, Locustfiles and
traces.

This happens when the scenario is read, so that it is self-contained: the run's folder, other hosts and a replay need no
other file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ValidationError

from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.common.strict_yaml import NoYaml, parse
from cluster.common.suggestions import closest
from cluster.common.wording import readable
from cluster.scenario.code.gate import note_path
from cluster.scenario.problems import describe
from cluster.scenario.sections.measurements.profile import ProfileSection
from loadgen.workloads.actor_program import PROGRAM_SUFFIX, is_program_path
from validator.primitives.limits import MAX_SOURCE_BYTES
from validator.primitives.user_file import MAX_BYTES

PLACES: Final[Sequence[tuple[str | None, ...]]] = (
    ("chain", "actors", None, "program"),
    ("load", "users", None, "options", "program"),
    ("load", "users", None, "options", "deploys", None),
)
"""Places of programs in a scenario; ``None`` is any item of a list and any name."""
PYTHON_FILES: Final[Sequence[tuple[str | None, ...]]] = (
    ("chain", "policy"),
    ("load", "users", None, "workload"),
    ("faults", None, "kind"),
    ("success", "checks", None),
)
"""Places of a policy, workloads, kinds of faults and checks, in which a text without a path is a name."""
COMMANDS: Final[Sequence[tuple[str | None, ...]]] = (
    ("validators", None, "executor"),
    ("validators", "nodes", None, "executor"),
)
"""Places of commands, whose first word may be a path."""
PROFILES: Final[Sequence[tuple[str | None, ...]]] = (("profile",),)
"""Places of profiles."""
TRACES: Final[Sequence[tuple[str | None, ...]]] = (
    ("load", "phases", None, "points"),
    ("load", "users", None, "phases", None, "points"),
)
"""Places of traces."""
MAX_TRACE_BYTES: Final = 1_000_000
POINT: Final = re.compile(r"(?P<place>-?(?:0|[1-9][0-9]{0,15})) *, *(?P<rate>-?[0-9.]+(?:[eE][-+]?[0-9]+)?)")
"""A line of a trace."""


def with_files_read(fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A copy of a scenario's fields with file contents instead of paths, which are relative to a folder.

    Raises :class:`BadInput` with field and reason, in one line, if a file cannot be read.
    """
    for place in PLACES:
        fields = _replaced(fields, place, "", lambda given, field: _program(given, folder, field))
    for named in PYTHON_FILES:
        fields = _replaced(fields, named, "", lambda given, field: _named_file(given, folder, field))
    for command in COMMANDS:
        fields = _replaced(fields, command, "", lambda given, field: _command(given, folder, field))
    for measured in PROFILES:
        fields = _replaced(fields, measured, "", lambda given, field: _profile(given, folder, field))
    fields = _with_locustfiles(fields, folder)
    for trace in TRACES:
        fields = _replaced(fields, trace, "", lambda given, field: _trace(given, folder, field))
    return fields


def _replaced(value: Any, place: tuple[str | None, ...], path: str, read: Callable[[str, str], Any]) -> Any:
    """A copy of a value in which ``read(text, field)`` replaces each text at the place."""
    if not place:
        return read(value, path[1:]) if isinstance(value, str) else value
    step, *rest = place
    if isinstance(value, dict) and (step is None or step in value):
        steps = list(value) if step is None else [step]
        return value | {each: _replaced(value[each], tuple(rest), f"{path}.{each}", read) for each in steps}
    if isinstance(value, list) and step is None:
        return [_replaced(each, tuple(rest), f"{path}[{number}]", read) for number, each in enumerate(value)]
    return value


def _program(given: str, folder: Path, field: str) -> str | dict[str, str]:
    """The name and text of the program at a path. The name of a shipped program is returned unchanged."""
    if not is_program_path(given):
        return given
    path = folder / given
    content = _content(path, field, MAX_SOURCE_BYTES).removeprefix(codecs.BOM_UTF8)
    if len(content) > MAX_SOURCE_BYTES:
        raise BadInput(f"{field}: {path}: expected a program of at most {MAX_SOURCE_BYTES:,} characters")
    if not content.isascii() or not content:
        raise BadInput(f"{field}: {path}: expected a program's text, in ASCII alone")
    return {"name": path.stem, "source": content.decode("ascii")}


def _command(given: str, folder: Path, field: str) -> str:
    """A command with a first word that is independent of the working directory, if it is a path."""
    word, space, rest = given.partition(" ")
    if not word.startswith(("./", "../")):
        return given
    path = str((folder / word).resolve())
    if readable(path) != path:
        raise BadInput(f"{field}: {readable(path)}: expected a program whose path is UTF-8, as the scenario's text is")
    command = f"{path}{space}{rest}"
    if Path(path).is_relative_to(folder.resolve()):  # ../../bin/sh is no program of the scenario
        note_path(command, Path(path), folder)
    return command


def _named_file(given: str, folder: Path, field: str) -> str | dict[str, str]:
    """The name and text of the Python file at a path. The name of what ships is returned unchanged."""
    return python_file(given, folder, field) if is_program_path(given) else given


def _with_locustfiles(fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    load = fields.get("load")
    given = load.get("locust") if isinstance(load, dict) else None
    if not isinstance(load, dict) or not isinstance(given, str | list | dict):
        return fields
    section = given if isinstance(given, dict) else {"files": given}
    files, field = section.get("files"), "load.locust" + (".files" if isinstance(given, dict) else "")
    if isinstance(files, str):
        read: Any = [python_file(files, folder, field)]
    elif isinstance(files, list):
        read = [
            python_file(each, folder, f"{field}[{place}]") if isinstance(each, str) else each
            for place, each in enumerate(files)
        ]
    else:
        return fields
    return fields | {"load": load | {"locust": section | {"files": read}}}


def python_file(given: str, folder: Path, field: str) -> dict[str, str]:
    """Name and text of a Python file that is not an actor's program."""
    path = folder / given
    text = _text(path, field, "file")
    if not text.strip():
        raise BadInput(f"{field}: {path}: expected a program in Python, got an empty file")
    note_path(text, path, folder)
    return {"name": path.stem, "source": text}


def _profile(given: str, folder: Path, field: str) -> dict[str, Any]:
    """The fields of the profile in the file at a path."""
    path = folder / given
    text = _text(path, field, "profile")
    try:
        fields = parse(text)
        ProfileSection.model_validate(fields)
    except NoYaml as error:
        raise BadInput(f"{field}: {path}: no YAML: {error}") from None
    except ValidationError as error:
        raise BadInput(f"{field}: {path}: {describe(error, fields, ProfileSection)}") from None
    return cast(dict[str, Any], fields)


def _trace(given: str, folder: Path, field: str) -> list[list[float]]:
    """The points of the trace in the file at a path, which has one point per line."""
    path = folder / given
    content = _content(path, field, MAX_TRACE_BYTES)
    if len(content) > MAX_TRACE_BYTES:
        raise BadInput(f"{field}: {path}: expected a trace of at most {MAX_TRACE_BYTES:,} bytes")
    points: list[list[float]] = []
    for number, line in enumerate(content.decode(ENCODING, "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = POINT.fullmatch(text)
        try:
            points.append([int(found["place"]), float(found["rate"])])  # type: ignore[index]
        except (TypeError, ValueError):
            raise BadInput(
                f"{field}: {path}: line {number}: expected a place and a rate, such as 1500,0.5; got {text[:40]!r}"
            ) from None
    return points


def _text(path: Path, field: str, what: str) -> str:
    """The text of a file of at most :data:`MAX_BYTES`; ``what`` it is, for errors."""
    content = _content(path, field, MAX_BYTES)
    if len(content) > MAX_BYTES:
        raise BadInput(f"{field}: {path}: expected a {what} of at most {MAX_BYTES:,} bytes")
    try:
        return content.decode(ENCODING)
    except UnicodeDecodeError as error:
        raise BadInput(f"{field}: {path}: expected a text in UTF-8; byte {error.start} is none of it") from None


def _content(path: Path, field: str, limit: int) -> bytes:
    """The file's content, up to one byte more than the limit."""
    try:
        if not path.is_file():
            raise BadInput(f"{field}: {path}: no such file{_meant(path)}")
        with path.open("rb") as file:
            return file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"{field}: {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _meant(path: Path) -> str:
    try:
        found = closest(path.name, sorted(each.name for each in path.parent.glob(f"*{path.suffix or PROGRAM_SUFFIX}")))
    except OSError:
        found = None
    return "" if found is None else f"; did you mean {found}?"
