"""Walks over Python's syntax trees, and predicates of nodes.

The walks leave out the nodes for operators and for whether a name is read or written. They are as many as all others
together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from validator.pvm.language.api import YIELDING

Function = ast.FunctionDef | ast.AsyncFunctionDef
SELF: Final = "self"
OWN: Final = "is_own"
"""Name of the attribute that marks the node of ``self.name`` if the program defines that name, and the host has it too
(:data:`~validator.pvm.language.api.YIELDING`)."""
_LEAVES: Final = frozenset({"ctx", "op", "ops"})
_NO_NODES: Final = frozenset(
    {"id", "attr", "kind", "type_comment", "lineno", "level", "conversion", "simple", "is_async"}
)
_fields: Final[dict[type[ast.AST], tuple[str, ...]]] = {ast.Constant: ()}
"""Cache of :func:`fields_of`."""


def fields_of(kind: type[ast.AST]) -> tuple[str, ...]:
    """The names of the fields of a node class that may hold child nodes other than contexts and operators."""
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
    """Iterate over the blocks inside a compound statement, such as its body and its ``else`` part."""
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
