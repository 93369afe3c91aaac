"""Variables and expressions that can hold only integers: compiled code needs no tests for them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from typing import Any, Final

from validator.pvm.compiler import nodes
from validator.pvm.language.api import HOST_READS
from validator.pvm.language.subset import Method
from validator.pvm.language.trees import stored_names, walk

_INTEGER_BUILTINS: Final = frozenset({"len", "ord", "abs", "int"})
_INTEGER_READS: Final = frozenset(name for name, (kind, _) in HOST_READS.items() if kind == "int")

Known = dict[ast.expr, bool]


def is_integer(node: ast.expr, names: Set[str], constants: dict[str, Any], known: Known | None = None) -> bool:
    """Whether every value that an expression can give is an integer; truth values do not count.

    ``names`` are the variables that hold only integers. ``known`` caches results.
    """
    if known is None:
        known = {}
    found = known.get(node)
    if found is None:
        found = known[node] = _finds_integer(node, names, constants, known)
    return found


def _finds_integer(node: ast.expr, names: Set[str], constants: dict[str, Any], known: Known) -> bool:
    match node:
        case ast.Constant(value=value):
            return value.__class__ is int
        case ast.Name(id=name):
            return name in names
        case ast.UnaryOp(op=ast.Not()):
            return False
        case ast.UnaryOp(operand=operand):
            return is_integer(operand, names, constants, known)
        case ast.BinOp(left=one, right=other) | ast.IfExp(body=one, orelse=other):
            return is_integer(one, names, constants, known) and is_integer(other, names, constants, known)
        case ast.Call(func=ast.Name(id=name)):
            return name in _INTEGER_BUILTINS
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name in _INTEGER_READS or constants.get(name).__class__ is int
    return False


def integers_of(method: Method, constants: dict[str, Any]) -> frozenset[str]:
    """The variables of a method that can hold only integers; parameters may hold any value.

    If a variable may hold another value, the variables bound to expressions that use it are checked again.
    """
    integers = set(method.variables) - set(method.parameters)
    bindings = list(_bindings(method.node.body))
    users: dict[str, list[int]] = {}
    for place, (_, value) in enumerate(bindings):
        for name in {part.id for part in walk(value) if isinstance(part, ast.Name)} if value is not None else ():
            users.setdefault(name, []).append(place)
    waiting = list(range(len(bindings)))
    while waiting:
        name, value = bindings[waiting.pop()]
        if name in integers and (value is None or not is_integer(value, integers, constants)):
            integers.remove(name)
            waiting += users.get(name, [])
    return frozenset(integers)


def _bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr | None]]:
    """Iterate over the bindings of names: the name, and the expression that gives its value.

    The expression is ``None`` if no single one gives the value, as in an unpacking.
    """
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield name, value
            case ast.AugAssign(target=ast.Name(id=name) as target, op=operator, value=value):
                yield name, ast.BinOp(nodes.name(target.id), operator, value)
            case ast.Assign(targets=[target]):
                yield from ((name, None) for name in stored_names(target))
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
                yield name, ast.Constant(0)
            case ast.For(target=target):
                yield from ((name, None) for name in stored_names(target))
        for block in ("body", "orelse"):
            yield from _bindings(getattr(statement, block, []))
