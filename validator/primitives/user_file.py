"""Python files of a user next to the scenario: a policy, a workload, a kind of fault.

Their exceptions become errors of one line. Their classes are also read from the syntax tree, without executing the
file: those at its top level. A base is one of these, or a shipped class that the file imports by its name. When the
file runs, a class may turn out to be another one: whoever executes the file compares.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

SUFFIX: Final = ".py"
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,63}$"
"""Pattern of a file's name, without its suffix."""
MAX_BYTES: Final = 100_000
"""Maximum number of bytes of a file's text."""


class UserFileError(ValueError):
    """A user's file is invalid, or has raised an exception. The message is one line, which names the file and, if
    known, the line in it."""


_RUNS: Final = [True]
"""Whether this process may execute files of users."""


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Context manager in which the process executes no user's file: a command that only reads them would have a bug."""
    _RUNS.append(False)
    try:
        yield
    finally:
        _RUNS.pop()


def require_runs(file: str) -> None:
    """Called before a user's file is executed."""
    assert all(_RUNS), f"{file} is executed by a command that only reads it"


def place_of(file: str, line: int | None) -> str:
    """The text by which errors name a file, or a line in it. Unlike a field's path it contains a space."""
    return f"file {file}" if line is None else f"file {file}, line {line}"


@contextmanager
def one_line(
    file: str, kind: type[UserFileError] = UserFileError, unchanged: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Context manager that turns exceptions of a user's code into ``kind``, with file and line.

    A :class:`UserFileError`, and an exception of a type in ``unchanged``, stays what it is.
    """
    try:
        yield
    except UserFileError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, unchanged):
            raise
        raise kind(_said(error, file)) from error


def caused_by(error: Exception, files: Iterable[str]) -> UserFileError | None:
    """The error of one line of an exception that came through code of a user's file; ``None`` if it did not."""
    if isinstance(error, UserFileError):
        return error
    ran, frame = set(), error.__traceback__
    while frame is not None:
        ran.add(frame.tb_frame.f_code.co_filename)
        frame = frame.tb_next
    return next((UserFileError(_said(error, file)) for file in files if file in ran), None)


def _said(error: BaseException, file: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{place_of(file, error.lineno)}: {error.msg}"
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == file:
            line = frame.tb_lineno
        frame = frame.tb_next
    text = " ".join(str(error).split())
    return f"{place_of(file, line)}: {type(error).__name__}{f': {text}' if text else ''}"


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
