"""Reads the text of a user's policy, without executing it, for what may give other results in another process. Pure.

A line with the comment ``# deterministic: REASON`` has no warnings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

SILENCE: Final = "# deterministic: "
MODULES: Final = {
    "random": "draws numbers",
    "secrets": "draws numbers",
    "uuid": "draws numbers",
    "time": "reads a clock",
    "datetime": "reads a clock",
    "os": "reads the machine",
    "platform": "reads the machine",
    "socket": "reads the machine",
    "threading": "runs in no fixed order",
}
"""Modules that make a policy depend on more than the state, and why."""
BUILTINS: Final = {
    "hash": "depends on the hash seed of the process",
    "id": "depends on the memory of the process",
    "float": "rounds, and not everywhere alike",
    "open": "reads the machine",
    "input": "reads the machine",
}
SETS: Final = frozenset({"set", "frozenset"})
ORDERED_BY: Final = frozenset({"sorted", "len", "sum", "min", "max", "any", "all", "set", "frozenset"})
"""Functions whose result does not depend on the order in which a set is iterated."""
WRITTEN: Final = frozenset({"__slots__", "replaces", "policy_parameters"})
"""Names of a class whose values are read as they are written."""
CONTAINERS: Final = frozenset({"dict", "list", "set", "defaultdict", "Counter", "deque", "bytearray"})


class SourceWarning(NamedTuple):
    """A line of a policy that may give other results in another process."""

    line: int
    what: str


def warnings_in(source: str, with_silenced: bool = False) -> list[SourceWarning]:
    """The warnings about a policy's text, in the order of lines. Raises :class:`SyntaxError`."""
    lines = source.splitlines()
    found = sorted(set(_found(ast.parse(source))))
    return [each for each in found if with_silenced or SILENCE not in lines[each.line - 1]]


def _found(tree: ast.Module) -> Iterator[SourceWarning]:
    ordered = {
        id(part)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ORDERED_BY
        for argument in call.args
        for part in getattr(argument, "generators", ())
    }
    for node in ast.walk(tree):
        if id(node) in ordered:
            continue
        match node:
            case ast.Import(names):
                yield from _imported(node.lineno, [each.name for each in names])
            case ast.ImportFrom(module=str(module)):
                yield from _imported(node.lineno, [module])
            case ast.Call(ast.Name(name)) if name in BUILTINS:
                yield SourceWarning(node.lineno, f"{name}() {BUILTINS[name]}")
            case ast.Constant(float()):
                yield SourceWarning(node.lineno, f"{node.value!r} is a float, which {BUILTINS['float']}")
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield SourceWarning(node.lineno, f"/ gives a float, which {BUILTINS['float']}; // does not")
            case ast.For(iter=ast.expr() as over) | ast.comprehension(iter=ast.expr() as over) if _is_set(over):
                yield SourceWarning(
                    over.lineno, "a set is iterated in an order of the process; sorted() has a fixed one"
                )
            case ast.Global(names):
                yield SourceWarning(node.lineno, f"{', '.join(names)} of the module outlives the block")
    yield from _kept(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _kept(node)


def _imported(line: int, names: list[str]) -> Iterator[SourceWarning]:
    for name in names:
        if why := MODULES.get(name.partition(".")[0]):
            yield SourceWarning(line, f"{name} {why}")


def _is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(ast.Name(name)):
            return name in SETS
        case ast.BinOp(left, ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right):
            return _is_set(left) or _is_set(right)
    return False


def _kept(owner: ast.Module | ast.ClassDef) -> Iterator[SourceWarning]:
    """Values of a module or a class that its functions may change, so that they outlive a block."""
    where = "module" if isinstance(owner, ast.Module) else "class"
    for node in owner.body:
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), value=ast.expr() as value):
                is_container = isinstance(value, ast.Dict | ast.List | ast.DictComp | ast.ListComp) or (
                    isinstance(value, ast.Call)
                    and isinstance(value.func, ast.Name)
                    and value.func.id in CONTAINERS
                    and not value.args
                )
                if is_container and name not in WRITTEN:
                    what = f"{name} of the {where} can be changed, and outlives the block; a tuple cannot"
                    yield SourceWarning(node.lineno, what)
