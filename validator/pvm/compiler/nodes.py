"""Functions that build and classify syntax tree nodes for the compiler."""

from __future__ import annotations

import ast
from typing import Any, Final, TypeVar

from validator.primitives.limits import MAX_KEY_TEXT
from validator.pvm.compiler.weights import BYTES_PER_CYCLE
from validator.pvm.language.trees import parts_of

LONGEST_PLAIN_TEXT: Final = BYTES_PER_CYCLE - 1
"""Maximum length of a text or bytes literal with which compiled code compares by Python's own comparison. Longer ones
are compared by an operation, which charges for the length."""

LOAD, STORE, IS, IS_NOT = ast.Load(), ast.Store(), ast.Is(), ast.IsNot()
"""Shared instances of nodes without content, as in Python's own parser. Separate instances would be half of all
nodes."""


def name(name: str) -> ast.Name:
    return ast.Name(name, LOAD)


def store(name: str) -> ast.Name:
    return ast.Name(name, STORE)


def call(function: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(name(function), list(arguments), [])


def assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([store(name)], value)


def is_of(value: ast.expr, kind: str) -> ast.Compare:
    """A test of a value's class: ``int``, ``str``, ``list`` or ``dict``."""
    return ast.Compare(ast.Attribute(value, "__class__", LOAD), [IS], [name(f"_{kind}")])


def is_int(value: ast.expr) -> ast.Compare:
    return is_of(value, "int")


def is_simple(node: ast.expr) -> bool:
    """Whether an expression can be evaluated twice, cheaply and without effect: a name or a literal."""
    return isinstance(node, ast.Name | ast.Constant)


def is_short(node: ast.expr) -> bool:
    """Whether an expression is a literal with which a comparison needs no charge for its length."""
    if not isinstance(node, ast.Constant):
        return False
    return not isinstance(node.value, str | bytes) or len(node.value) <= LONGEST_PLAIN_TEXT


def is_written_key(node: ast.expr) -> bool:
    """Whether an expression is a text or bytes literal that is short enough for a dict's key."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and len(node.value) <= MAX_KEY_TEXT


def place(tree: ast.AST) -> None:
    """Give every node a position, its parent's if it has none."""
    waiting: list[tuple[Any, int]] = [(tree, 1)]
    while waiting:
        node, line = waiting.pop()
        if node._attributes:
            line = getattr(node, "lineno", line)
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
        waiting += [(part, line) for part in parts_of(node)]


_Made = TypeVar("_Made", bound=ast.stmt | ast.expr)


def at(made: _Made, node: ast.AST) -> _Made:
    """Give the node ``made`` the line of the program's node that it was made for, and return it."""
    line = getattr(node, "lineno", None)
    if line is not None:
        made.lineno = line
    return made


def all_of(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


def is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
