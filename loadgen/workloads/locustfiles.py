"""Custom Locust users and a custom shape: Locustfiles next to the scenario, which run in parallel with the load's
users.

The reader of a scenario file replaces the paths by the texts. Only Locust's processes execute them; the reader only
checks their syntax, because Locust patches the process that imports it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from loadgen.workloads.base import Options
from validator.primitives.user_file import MAX_BYTES, SUFFIX, place_of

NAME_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"
SHAPE: Final = "LoadTestShape"
"""Name of the base class of shapes in Locust."""
CHAIN_USERS: Final = "stampede_users"
"""Name of the module from which Locust imports the load's users."""
TAKEN_NAMES: Final = frozenset({CHAIN_USERS, "gevent", "loadgen", "validator", *sys.stdlib_module_names})
"""Names that a Locustfile may not have, because it would hide the module with that name."""


class OwnLocustfile(Options):
    """A custom Locustfile. A scenario file names it by its path."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """The file's name, without ``.py``."""
    source: Annotated[str, Field(min_length=1, max_length=MAX_BYTES)]
    """The file's text."""

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.name}{SUFFIX}"


class OwnLocust(Options):
    """Custom Locust users and a custom shape. In a scenario file, the path of a file or a list of paths is enough."""

    files: Annotated[list[OwnLocustfile], Field(min_length=1, max_length=16)]
    """The Locustfiles."""
    users: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of custom users; by default one, or as many as the shape decides."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"files": [given]}
        return {"files": given} if isinstance(given, list) else given

    @model_validator(mode="after")
    def _is_one_load(self) -> OwnLocust:
        known, shapes = {SHAPE}, list[str]()
        for place, file in enumerate(self.files):
            if file.name in TAKEN_NAMES:
                raise ValueError(
                    f"files[{place}]: {file.file} would hide the module {file.name}; expected another name"
                )
            if file.name in [other.name for other in self.files[:place]]:
                raise ValueError(f"files[{place}]: two files are named {file.file}; expected different names")
            try:
                tree = ast.parse(file.source, file.file)
            except SyntaxError as error:
                raise ValueError(f"files[{place}]: {place_of(file.file, error.lineno)}: {error.msg}") from None
            shapes += [f"{name} in {file.file}" for name in _shapes(tree, known)]
        if len(shapes) > 1:
            raise ValueError(f"files: expected one {SHAPE} at most, got {', '.join(shapes)}")
        if shapes and self.users is not None:
            raise ValueError(f"users: the shape ({shapes[0]}) says how many there are; expected none")
        return self

    @property
    def user_count(self) -> int:
        """Number of custom Locust users; unused if a custom shape decides it."""
        return self.users or 1


def _shapes(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """The concrete load shape classes of a file; the names of all its shape classes, and their aliases, are added to
    ``known``.
    """
    for node in tree.body:
        match node:
            case ast.ImportFrom(names=names):
                known |= {alias.asname for alias in names if alias.asname and alias.name in known}
            case ast.ClassDef(name=name, bases=bases) if known & {_last_part(base) for base in bases}:
                known.add(name)
                if not any(_is_abstract(statement) for statement in node.body):
                    yield name


def _last_part(base: ast.expr) -> str:
    """The last part of a base class's dotted name; empty if the expression is not a name."""
    match base:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_abstract(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id="abstract")], value=ast.Constant(value=True)):
            return True
        case ast.AnnAssign(target=ast.Name(id="abstract"), value=ast.Constant(value=True)):
            return True
    return False
