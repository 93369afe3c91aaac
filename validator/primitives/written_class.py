"""Classes as a user's file writes them: read from its syntax tree, without executing it. Pure.

Classes at the top level of a file are read. A base is one of these, or a shipped class that the file imports by its
name. When the file runs, a class may turn out to be another one: whoever executes the file compares.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
ABSTRACT: Final = "abstractmethod"


class NotWritten(ValueError):
    """A value is not written as a literal."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line: Final = line


@dataclass(frozen=True, slots=True, eq=False)
class WrittenClass:
    """A class of a user's file."""

    node: ast.ClassDef
    bases: tuple[Part | None, ...]
    """Its bases; ``None`` is one that is not known."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def lineage(self) -> list[Part]:
        """The class and its known bases, in the order in which names are looked up."""
        below: list[Part] = []
        for base in self.bases:
            below += base.lineage if isinstance(base, WrittenClass) else base.__mro__ if base is not None else ()
        return [self, *reversed(dict.fromkeys(reversed(below)))]

    @property
    def written(self) -> list[WrittenClass]:
        """The classes of its lineage that are in the file."""
        return [part for part in self.lineage if isinstance(part, WrittenClass)]

    @property
    def is_whole(self) -> bool:
        """Whether all bases of its lineage are known."""
        return all(base is not None for part in self.written for base in part.bases)

    @property
    def names(self) -> dict[str, ast.AST]:
        """The names that its body assigns, each with the last statement that does."""
        found: dict[str, ast.AST] = {}
        for statement in self.node.body:
            is_one = isinstance(statement, (*FUNCTIONS, ast.ClassDef))
            for node in [statement] if is_one else ast.walk(statement):
                match node:
                    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                        found[name] = node
                    case ast.Name(id=name, ctx=ast.Store()):
                        found[name] = statement
                    case ast.alias(name=name, asname=other):
                        found[other or name] = statement
        return found

    @property
    def is_abstract(self) -> bool:
        """Whether it leaves a method abstract."""
        parts = self.lineage
        abstract = {name for part in parts for name in _abstract(part)}
        holders = [next(part for part in parts if name in _defined(part)) for name in sorted(abstract)]
        return any(name in _abstract(holder) for name, holder in zip(sorted(abstract), holders, strict=True))

    def holder(self, name: str) -> Part | None:
        """The first class of its lineage that assigns a name; ``None`` if none does."""
        return next((part for part in self.lineage if name in _defined(part)), None)

    def value(self, name: str, words: Mapping[str, type[Enum]] = {}) -> Any:
        """The value of a name in the class; ``None`` if it has none. A literal may have members of ``words``.

        Raises :class:`NotWritten`.
        """
        holder = self.holder(name)
        if not isinstance(holder, WrittenClass):
            return None if holder is None else getattr(holder, name)
        match holder.names[name]:
            case ast.Assign([ast.Name()], value) | ast.AnnAssign(value=ast.expr() as value):
                return _literal(value, words)
            case other:
                raise NotWritten(getattr(other, "lineno", holder.node.lineno))


Part: TypeAlias = WrittenClass | type
"""A class of a user's file, or a shipped one."""


def classes_of(source: str, file: str, shipped: Iterable[type]) -> list[WrittenClass]:
    """The classes at the top level of a file's text, in order. Raises :class:`SyntaxError`."""
    known = {each.__name__: each for each in shipped}
    names: dict[str, Part] = {"object": object}
    found: dict[str, WrittenClass] = {}
    for node in ast.parse(source, file).body:
        match node:
            case ast.ImportFrom(module=str(module), names=aliases):
                for alias in aliases:
                    kind = object if alias.name == "ABC" else known.get(alias.name)
                    if kind is not None and (kind is object or _package(module) == _package(kind.__module__)):
                        names[alias.asname or alias.name] = kind
            case ast.ClassDef(name=name, bases=bases):
                names[name] = found[name] = WrittenClass(node, tuple(_base(base, names, known) for base in bases))
    return list(found.values())


def _package(module: str) -> str:
    return module.partition(".")[0]


def _base(node: ast.expr, names: Mapping[str, Part], known: Mapping[str, type]) -> Part | None:
    """The class that a base is; ``None`` if it is not known."""
    match node:
        case ast.Subscript(value=generic):
            return _base(generic, names, known)
        case ast.Name(name):
            return names.get(name)
        case ast.Attribute(attr=name):
            return known.get(name)
    return None


def _defined(part: Part) -> Iterable[str]:
    return part.names if isinstance(part, WrittenClass) else vars(part)


def _abstract(part: Part) -> frozenset[str]:
    """The names of the abstract methods that a class itself has."""
    if not isinstance(part, WrittenClass):
        return frozenset(name for name, value in vars(part).items() if getattr(value, "__isabstractmethod__", False))
    return frozenset(
        name
        for name, node in part.names.items()
        if isinstance(node, FUNCTIONS)
        and any(ABSTRACT in (getattr(each, "attr", ""), getattr(each, "id", "")) for each in node.decorator_list)
    )


def _literal(node: ast.expr, words: Mapping[str, type[Enum]]) -> Any:
    """The value of a literal; one of a set is a frozenset. Raises :class:`NotWritten`."""
    match node:
        case ast.Call(ast.Name("set" | "frozenset"), [], []):
            return frozenset()
        case ast.Call(ast.Name("set" | "frozenset"), [ast.Set(items) | ast.List(items) | ast.Tuple(items)], []):
            return frozenset(_literal(each, words) for each in items)
        case ast.Set(items):
            return frozenset(_literal(each, words) for each in items)
        case ast.Attribute(ast.Name(kind), name) if kind in words and name in words[kind].__members__:
            return words[kind][name].value
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise NotWritten(node.lineno) from None
