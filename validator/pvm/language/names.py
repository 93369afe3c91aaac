"""Names that a program may use, problems with them, and suggestions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, Final

from validator.primitives.limits import MAX_NAME
from validator.pvm.language.api import BASE, BUILTINS, CONSTANTS, ERROR, HOST_CALLS, HOST_READS, TASK_CALLS
from validator.pvm.language.source import Problem
from validator.pvm.language.trees import SELF, Function

REFUSED: Final[dict[str, tuple[str, str]]] = {
    "Import": ("an import", "everything that a program may use is there without one"),
    "ImportFrom": ("an import", "everything that a program may use is there without one"),
    "Try": ("try", "check before you act: nothing can be caught"),
    "TryStar": ("try", "check before you act: nothing can be caught"),
    "With": ("with", "there is nothing to open or close"),
    "AsyncWith": ("async with", "there is nothing to open or close"),
    "AsyncFor": ("async for", "loop over a list and await inside the loop"),
    "Global": ("global", "keep what must last with self.set(key, value)"),
    "Nonlocal": ("nonlocal", "keep what must last with self.set(key, value)"),
    "Lambda": ("a lambda", "write a method"),
    "Yield": ("a generator", "return a list"),
    "YieldFrom": ("a generator", "return a list"),
    "GeneratorExp": ("a generator", "write a list comprehension"),
    "SetComp": ("a set", "use a dict with True for values"),
    "Set": ("a set", "use a dict with True for values"),
    "JoinedStr": ("a formatted string", "join texts with + and str()"),
    "FormattedValue": ("a formatted string", "join texts with + and str()"),
    "Starred": ("a starred expression", "name every part"),
    "NamedExpr": (":=", "assign in a separate statement"),
    "Match": ("match", "use if and elif"),
    "Div": ("/", "use //: there are no floats"),
    "MatMult": ("@", "there are no matrices"),
    "ClassDef": ("a class inside the class", "use a dict or a tuple"),
    "FunctionDef": ("a function inside a method", "write a method"),
    "AsyncFunctionDef": ("a function inside a method", "write a method"),
    "TypeAlias": ("a type alias", "leave it out"),
}
"""Syntax nodes that are refused with a specific text: what the node is, and the remedy. All other forbidden nodes share
one text."""

Closest = Callable[[str, Iterable[str]], str | None]
"""Finds the name among some that a misspelt one was meant for."""


class Names:
    """The names of one program, and the problems found so far."""

    def __init__(self, closest: Closest) -> None:
        self.problems: list[Problem] = []
        self.closest = closest
        self.methods: dict[str, Function] = {}
        self.constants: dict[str, Any] = {}
        self.variables: set[str] = set()
        """Variables of the method being checked, and of the open comprehensions."""

    def refuse(self, node: ast.AST, what: str, remedy: str) -> None:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        self.problems.append(Problem(line, column, what, remedy))

    def refuse_node(self, node: ast.AST) -> None:
        name = type(node).__name__
        self.refuse(node, *REFUSED.get(name, (f"{name}", "this is not part of the language of actors")))

    def check(self, node: ast.AST, name: str) -> None:
        if name.startswith("_"):
            self.refuse(node, f"the name {name}", "names do not begin with an underscore")
        elif len(name) > MAX_NAME:
            self.refuse(node, f"a name of {len(name)} characters", f"expected at most {MAX_NAME}")
        elif name in BUILTINS or name in CONSTANTS or name in (BASE, ERROR):
            self.refuse(node, f"the name {name}, which is taken", "give it another name")

    def check_target(self, node: ast.AST, name: str) -> None:
        if name == SELF:
            self.refuse(node, "a new self", "give the variable another name")
        self.check(node, name)

    def undefined(self, node: ast.Name, otherwise: str) -> None:
        """Report an undefined name. The problem suggests a name that was meant, else it has the text ``otherwise``."""
        name = node.id
        own = self.own(name) or self.closest(name, self.variables) or self.own_like(name)
        hint = otherwise if own is None else f"did you mean {own}?"
        self.refuse(node, f"the name {name}, which is nowhere defined", hint)

    def is_undefined(self, node: ast.Name) -> bool:
        name = node.id
        known = name in self.variables or name in CONSTANTS or name in BUILTINS or name in (SELF, ERROR)
        return not known and not name.startswith("_")

    def own(self, name: str) -> str | None:
        """The expression with ``self`` for a name that is a member of the actor or the host; ``None`` for any other."""
        if name in self.methods or name in HOST_CALLS or name in TASK_CALLS:
            return f"self.{name}(…)"
        return f"self.{name}" if name in HOST_READS or name in self.constants else None

    def own_like(self, name: str) -> str | None:
        names = (*self.methods, *self.constants, *HOST_CALLS, *HOST_READS, *TASK_CALLS)
        found = self.closest(name, names)
        return None if found is None else self.own(found)

    def function_meant(self, name: str) -> str:
        """The remedy for a call of something that is not a function."""
        own = self.own(name)
        if own is None and (builtin := self.closest(name, BUILTINS)) is not None:
            own = f"{builtin}(…)"
        own = own or self.own_like(name)
        return "there is no such function" if own is None else f"did you mean {own}?"
