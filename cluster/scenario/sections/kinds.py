"""Kinds of faults and checks: classes that are found in a module, in an installed package, or in a file of the user."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import isclass
from types import ModuleType
from typing import Annotated, Any, Final, TypeVar

from blake3 import blake3
from pydantic import Field

from cluster.scenario.sections.base import Section
from validator.primitives import user_file
from validator.primitives.user_file import MAX_BYTES, NAME_PATTERN, SUFFIX

KEPT: Final = 64
"""Number of texts of kinds whose classes a process keeps."""
T = TypeVar("T")


class OwnKind(Section):
    """A custom kind of fault, or a custom check. A scenario file names it by the path of a Python file."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """The file's name, without ``.py``, which is the kind's name."""
    source: Annotated[str, Field(min_length=1, max_length=MAX_BYTES)]
    """The file's text."""

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.name}{SUFFIX}"

    def executed(self, base: type[T], what: str) -> type[T]:
        """Execute the text. Returns its one class of ``base``; ``what`` that is. To be called within
        :func:`~validator.primitives.user_file.one_line`."""
        user_file.require_runs(self.file)
        digest = blake3(f"{self.name}\n{self.source}".encode()).hexdigest(length=8)
        module = ModuleType(f"stampede_{what}_{self.name.replace('-', '_')}_{digest}")
        sys.modules[module.__name__] = module  # pydantic looks there for the names in annotations
        exec(compile(self.source, self.file, "exec", dont_inherit=True), vars(module))
        return only_class_in(module, base, what)


def classes_in(module: ModuleType, base: type[T]) -> Sequence[type[T]]:
    """The subclasses of ``base`` that a module defines, as they are written."""
    found = vars(module).values()
    return [each for each in found if isclass(each) and issubclass(each, base) and each.__module__ == module.__name__]


def only_class_in(module: ModuleType, base: type[T], what: str) -> type[T]:
    """The one class of ``base`` in a module. Raises :class:`ValueError` if it has none, or several."""
    found = classes_in(module, base)
    if len(found) != 1:
        raise ValueError(f"expected one class of a {what}, got {', '.join(each.__name__ for each in found) or 'none'}")
    return found[0]


def refuse_path(place: str, given: Any) -> None:
    """Raise :class:`ValueError`, with its place before it, for the path of a Python file: only the reader of a
    scenario's file replaces it."""
    if isinstance(given, str) and given.endswith(SUFFIX):
        raise ValueError(f"{place}{given!r} is a path, which only a scenario that is read from a file may have")
