"""The check of expressions: operators, displays, attributes and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from validator.primitives.limits import DICT_KEY_LIMIT, INTEGER_LIMIT, MAX_COMPREHENSIONS
from validator.pvm.language.api import (
    BUILTINS,
    CONSTANTS,
    ERROR,
    HOST_CALLS,
    HOST_READS,
    METHODS,
    STATIC_METHODS,
    TASK_CALLS,
    Signature,
)
from validator.pvm.language.names import REFUSED, Names
from validator.pvm.language.trees import SELF, mark_own, stored_names

OPERATORS: Final = (
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow,
    ast.LShift, ast.RShift, ast.BitOr, ast.BitXor, ast.BitAnd,
)  # fmt: skip
UNARY: Final = (ast.UAdd, ast.USub, ast.Not, ast.Invert)
COMPARISONS: Final = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot)

NO_MODULES: Final = "there are no modules to import: use the functions and methods that are there"


class ExpressionChecker:
    """Checks expressions and collects their problems. A table maps each kind of syntax node to its check."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._refuse = names.refuse
        self.is_async = False
        """Whether the method being checked is async."""
        self._comprehensions = 0
        """Number of nested comprehensions that are being checked."""
        self._checks: dict[type[ast.expr], Callable[[Any], None]] = {
            ast.Constant: self.constant,
            ast.Name: self.name,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.BoolOp: lambda node: self.check_all(node.values),
            ast.Compare: self._compare,
            ast.IfExp: lambda node: self.check_all([node.test, node.body, node.orelse]),
            ast.Subscript: self.subscript,
            ast.List: lambda node: self.check_all(node.elts),
            ast.Tuple: lambda node: self.check_all(node.elts),
            ast.Dict: self._dict,
            ast.ListComp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.Call: self._call,
            ast.Attribute: self._attribute,
            ast.Await: self._await,
        }

    def check_all(self, nodes: list[ast.expr]) -> None:
        for node in nodes:
            self.check(node)

    def check(self, node: ast.expr) -> None:
        check = self._checks.get(type(node))
        if check is None:
            self._names.refuse_node(node)
        else:
            check(node)

    def target(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                self._names.check_target(node, name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    if isinstance(part, ast.Name):
                        self._names.check_target(part, part.id)
                    else:
                        self._refuse(part, "a part that is no name", "unpack into names")
            case ast.Subscript():
                if isinstance(node.slice, ast.Slice):
                    self._refuse(node, "an assignment to a slice", "build a new list")
                self.subscript(node)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self._refuse(node, f"an assignment to self.{name}", "keep what must last with self.set(key, value)")
            case ast.Attribute():
                self._refuse(node, "an assignment to an attribute", "values have no attributes; use a dict")
            case _:
                self._names.refuse_node(node)

    def constant(self, node: ast.Constant) -> None:
        value = node.value
        if value is None or isinstance(value, bool | bytes | str):
            if isinstance(value, str) and not _is_text(value):
                self._refuse(node, "a lone surrogate in a text", "write the character itself as \\U…")
        elif isinstance(value, int):
            if value >= INTEGER_LIMIT:
                self._refuse(node, "an integer of more than 256 bits", "expected less than 2**256")
        elif isinstance(value, float | complex):
            self._refuse(node, "a number with a point", "use integers, in the smallest unit")
        else:
            self._refuse(node, f"the constant {value}", "this is not part of the language of actors")

    def name(self, node: ast.Name) -> None:
        name = node.id
        if name == SELF:
            self._refuse(node, "self as a value", "use it as self.name")
        elif name in self._names.variables or name in CONSTANTS:
            return
        elif name in BUILTINS:
            self._refuse(node, f"{name} as a value", "call it")
        elif name.startswith("_"):
            self._names.check(node, name)
        else:
            self._names.undefined(node, "assign it first")

    def operator(self, node: ast.AST, operator: ast.operator) -> None:
        if not isinstance(operator, OPERATORS):
            self._refuse(node, *REFUSED[type(operator).__name__])

    def _binary(self, node: ast.BinOp) -> None:
        self.operator(node, node.op)
        if (
            isinstance(node.op, ast.Mod)
            and isinstance(node.left, ast.Constant)
            and isinstance(node.left.value, str | bytes)
        ):
            self._refuse(node, "a formatted string", "join texts with + and str()")
        self.check_all([node.left, node.right])

    def _unary(self, node: ast.UnaryOp) -> None:
        if not isinstance(node.op, UNARY):
            self._names.refuse_node(node.op)
        self.check(node.operand)

    def _compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for operator, right in zip(node.ops, node.comparators, strict=True):
            is_none = isinstance(right, ast.Constant) and right.value is None
            if isinstance(operator, ast.Is | ast.IsNot) and not is_none:
                self._refuse(right, "is with something else than None", "use == or !=")
            elif not isinstance(operator, COMPARISONS):
                self._names.refuse_node(operator)
        self.check_all(operands)

    def subscript(self, node: ast.Subscript) -> None:
        self.check(node.value)
        if isinstance(node.slice, ast.Slice):
            self.check_all([part for part in (node.slice.lower, node.slice.upper) if part is not None])
            if node.slice.step is not None:
                self._refuse(node.slice.step, "a slice with a step", "use a loop, or reversed()")
        else:
            self.check(node.slice)

    def _dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self._refuse(value, "** in a dict", "use update()")
                continue
            self.check(key)
            if isinstance(key, ast.Constant) and isinstance(key.value, int) and key.value >= DICT_KEY_LIMIT:
                self._refuse(key, "a key of more than 60 bits", "use its bytes or its text as the key")
            self.check(value)

    def _comprehension(self, node: ast.ListComp | ast.DictComp) -> None:
        if len(node.generators) > 1:
            self._refuse(node, "a comprehension with two loops", "write loops")
            return
        (generator,) = node.generators
        self._comprehensions += 1
        if self._comprehensions > MAX_COMPREHENSIONS:
            self._refuse(node, f"more than {MAX_COMPREHENSIONS} comprehensions inside each other", "write loops")
        if generator.is_async:
            self._refuse(node, "an async comprehension", "write a loop")
        self.check(generator.iter)
        names = list(stored_names(generator.target))
        self.target(generator.target)
        if isinstance(generator.target, ast.Subscript):
            self._refuse(generator.target, "a loop variable that is no name", "use a name")
        hidden = set(names) - self._names.variables
        self._names.variables.update(names)
        self.check_all(generator.ifs)
        self.check_all([node.elt] if isinstance(node, ast.ListComp) else [node.key, node.value])
        if any(isinstance(part, ast.Await) for part in ast.walk(node)):
            self._refuse(node, "await in a comprehension", "write a loop")
        self._names.variables.difference_update(hidden)
        self._comprehensions -= 1

    def _attribute(self, node: ast.Attribute) -> None:
        """Check an attribute that is used as a value: it must be a host value or a constant of ``self``."""
        is_self = isinstance(node.value, ast.Name) and node.value.id == SELF
        name = node.attr
        if name.startswith("_"):
            self._names.check(node, name)
        elif isinstance(node.value, ast.Name) and self._names.is_undefined(node.value):
            self._names.undefined(node.value, NO_MODULES)
        elif not is_self:
            self._refuse(node, f"the attribute {name}", "values have no attributes; call a method, or use a dict")
        elif name in self._names.constants:
            mark_own(node)
        elif name in HOST_CALLS or name in self._names.methods or name in TASK_CALLS:
            self._refuse(node, f"self.{name} as a value", "call it")
        elif name not in HOST_READS:
            meant = self._names.own_like(name)
            remedy = "assign it in the class, or keep it with self.set(key, value)"
            self._refuse(node, f"self.{name}, which is nowhere defined", f"did you mean {meant}?" if meant else remedy)

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in BUILTINS and name not in self._names.variables:
                self._arguments(node, name, BUILTINS[name])
            case ast.Name(id=name) if name == ERROR:
                self._refuse(node, f"{ERROR} as a value", f'use it as raise {ERROR}("why")')
            case ast.Name(id=name):
                self._refuse(node, f"a call of {name}", self._names.function_meant(name))
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self._self_call(node, name)
            case ast.Attribute(value=ast.Name(id=kind), attr=name) if (kind, name) in STATIC_METHODS:
                self._arguments(node, f"{kind}.{name}", STATIC_METHODS[kind, name])
            case ast.Attribute(value=ast.Name() as value, attr=name) if (
                name not in METHODS and self._names.is_undefined(value)
            ):
                self._names.undefined(value, NO_MODULES)
            case ast.Attribute(value=value, attr=name):
                self.check(value)
                if name in METHODS:
                    self._arguments(node, name, METHODS[name])
                elif name.startswith("_"):
                    self._names.check(node, name)
                else:
                    meant = self._names.closest(name, METHODS)
                    remedy = f"values have these: {', '.join(sorted(METHODS))}"
                    self._refuse(node, f"the method {name}", f"did you mean {meant}?" if meant else remedy)
            case _:
                self._refuse(node, "a call of a value", "call a method or a function by its name")

    def _self_call(self, node: ast.Call, name: str, *, awaited: bool = False) -> None:
        if name in self._names.methods:
            method = self._names.methods[name]
            names = tuple(argument.arg for argument in method.args.args[1:])
            mark_own(node.func)
            self._arguments(node, f"self.{name}", Signature(names))
            if isinstance(method, ast.AsyncFunctionDef) and not awaited:
                self._refuse(
                    node, f"self.{name}(…) without await", f"await it, or start it with self.spawn(self.{name}(…))"
                )
        elif name in HOST_CALLS and name not in self._names.constants:
            self._arguments(node, f"self.{name}", HOST_CALLS[name])
        elif name == "spawn":
            self._spawn(node)
        elif name == "pause":
            self._refuse(node, "self.pause() without await", "write: await self.pause()")
        elif name.startswith("_"):
            self._names.check(node, name)
        elif name in HOST_READS or name in self._names.constants:
            self._refuse(node, f"a call of self.{name}", f"read it without brackets: self.{name}")
        else:
            meant = self._names.own_like(name)
            remedy = "write the method" if meant is None else f"did you mean {meant}?"
            self._refuse(node, f"self.{name}(…), which is nowhere defined", remedy)

    def _spawn(self, node: ast.Call) -> None:
        started = node.args[0] if len(node.args) == 1 and not node.keywords else None
        name = None if started is None else self._async_method(started)
        if name is None or not isinstance(started, ast.Call):
            self._refuse(
                node, "self.spawn of something else than an async method", "expected: self.spawn(self.method(…))"
            )
        else:
            self._self_call(started, name, awaited=True)
        if not self.is_async:
            self._refuse(node, "a task in a plain method", "write: async def")

    def _await(self, node: ast.Await) -> None:
        if not self.is_async:
            self._refuse(node, "await in a plain method", "write: async def")
        name = self._async_method(node.value)
        match node.value:
            case ast.Call() if name is not None:
                self._self_call(node.value, name, awaited=True)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="pause"), args=[], keywords=[]):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=plain)) if plain != "spawn":
                self.check(node.value)
                self._refuse(node, f"await of self.{plain}(…), which is not async", "leave await out")
            case _:
                self.check(node.value)

    def _arguments(self, node: ast.Call, name: str, signature: Signature) -> None:
        """Check the arguments of a call: each expression, their number, and the names of those passed by name."""
        self.check_all([argument for argument in node.args if not isinstance(argument, ast.Starred)])
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self._names.refuse_node(argument)
                return
        parameters = signature.parameters
        given = list(parameters[: len(node.args)])
        for keyword in node.keywords:
            self.check(keyword.value)
            if keyword.arg is None:
                self._refuse(keyword.value, "** in a call", "name every argument")
            elif signature.positional_only:
                self._refuse(keyword.value, f"{keyword.arg}= in a call of {name}", "pass arguments by position")
            elif keyword.arg not in parameters:
                self._refuse(keyword.value, f"{name} has no {keyword.arg}", f"it takes {', '.join(parameters)}")
            elif keyword.arg in given:
                self._refuse(keyword.value, f"{keyword.arg} is given twice", "leave one out")
            else:
                given.append(keyword.arg)
        missing = [parameter for parameter in signature.required if parameter not in given]
        if len(node.args) > len(parameters):
            self._refuse(node, f"{len(node.args)} arguments for {name}", f"expected at most {len(parameters)}")
        elif missing and all(keyword.arg is not None for keyword in node.keywords):
            self._refuse(node, f"{name} without {missing[0]}", f"it takes {', '.join(parameters) or 'nothing'}")

    def _async_method(self, node: ast.expr) -> str | None:
        """The async method of the actor that an expression calls."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return name if isinstance(self._names.methods.get(name), ast.AsyncFunctionDef) else None
        return None


def _is_text(text: str) -> bool:
    """Whether a text can be encoded, so has no lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
