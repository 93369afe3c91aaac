"""A user's programs in a scenario file: each path is replaced by the program's text when the scenario is read.

So the scenario is self-contained: the run's folder, other hosts and a replay need no other file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.common.suggestions import closest
from loadgen.workloads.actor_program import PROGRAM_SUFFIX, is_program_path
from validator.primitives.limits import MAX_SOURCE_BYTES

PLACES: Final = (
    ("chain", "actors", None, "program"),
    ("load", "users", None, "options", "program"),
    ("load", "users", None, "options", "deploys", None),
)
"""Places of programs in a scenario; ``None`` is any item of a list and any name."""


def with_programs_read(fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A copy of a scenario's fields with programs for paths, which are relative to a folder.

    Raises :class:`BadInput` with field and reason, in one line, if a program cannot be read.
    """
    for place in PLACES:
        fields = _replaced(fields, place, "", folder)
    return fields


def _replaced(value: Any, place: tuple[str | None, ...], path: str, folder: Path) -> Any:
    if not place:
        is_path = isinstance(value, str) and is_program_path(value)
        return _program(value, folder, path) if is_path else value
    step, *rest = place
    if isinstance(value, dict) and (step is None or step in value):
        steps = list(value) if step is None else [step]
        return value | {each: _replaced(value[each], tuple(rest), f"{path}.{each}", folder) for each in steps}
    if isinstance(value, list) and step is None:
        return [_replaced(each, tuple(rest), f"{path}[{number}]", folder) for number, each in enumerate(value)]
    return value


def _program(given: str, folder: Path, field: str) -> dict[str, str]:
    """The replacement of a path: the program's name and text."""
    path = folder / given
    try:
        if not path.is_file():
            raise BadInput(f"{field[1:]}: {path}: no such file{_meant(path)}")
        with path.open("rb") as file:
            content = file.read(MAX_SOURCE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"{field[1:]}: {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MAX_SOURCE_BYTES:
        raise BadInput(f"{field[1:]}: {path}: expected a program of at most {MAX_SOURCE_BYTES:,} characters")
    if not content.isascii() or not content:
        raise BadInput(f"{field[1:]}: {path}: expected a program's text, in ASCII alone")
    return {"name": path.stem, "source": content.decode("ascii")}


def _meant(path: Path) -> str:
    try:
        found = closest(path.name, sorted(each.name for each in path.parent.glob(f"*{PROGRAM_SUFFIX}")))
    except OSError:
        found = None
    return "" if found is None else f"; did you mean {found}?"
