"""Walks over syntax trees and predicates of nodes. Uninformative leaves are left out of the walks.

Python's trees also have nodes for whether a name is read or written and for operators: as many as all others together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from validator.pvm.language.api import YIELDING

Function = ast.FunctionDef | ast.AsyncFunctionDef
SELF: Final = "self"
OWN: Final = "is_own"
"""Marks ``self.name`` in the tree if the program defines a name of :data:`~validator.pvm.language.api.YIELDING`."""
_LEAVES: Final = frozenset({"ctx", "op", "ops"})
_NO_NODES: Final = frozenset(
    {"id", "attr", "kind", "type_comment", "lineno", "level", "conversion", "simple", "is_async"}
)
_fields: Final[dict[type[ast.AST], tuple[str, ...]]] = {ast.Constant: ()}
"""Fields that may hold one or several nodes, by class."""


def fields_of(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a class of nodes that may hold nodes other than contexts and operators."""
    found = _fields.get(kind)
    if found is None:
        found = _fields[kind] = tuple(name for name in kind._fields if name not in _LEAVES and name not in _NO_NODES)
    return found


def parts_of(node: ast.AST) -> list[ast.AST]:
    """A node's children in the order of the fields, without contexts and operators."""
    found: list[ast.AST] = []
    for name in fields_of(node.__class__):
        part = getattr(node, name, None)
        if part.__class__ is list:
            found += [each for each in part if isinstance(each, ast.AST)]
        elif isinstance(part, ast.AST):
            found.append(part)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and its descendants without contexts and operators; breadth first, like :func:`ast.walk`."""
    level = [node]
    while level:
        yield from level
        level = [part for each in level for part in parts_of(each)]


def stored_names(target: ast.expr) -> Iterator[str]:
    """The names that a target binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from stored_names(part)


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body


def is_remark(node: ast.stmt) -> bool:
    """Whether a statement consists of only a text."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def mark_own(node: ast.expr) -> None:
    """Mark ``self.name`` as the program's own, if the host has that name, too."""
    if isinstance(node, ast.Attribute) and node.attr in YIELDING:
        setattr(node, OWN, True)
