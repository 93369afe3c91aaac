"""The language of actors: the subset of Python that a program may use, checked before it is compiled.

A program is one class ``…(Actor)`` of constants and methods. A method with ``payload`` as its only parameter is a
handler, ``get_gas_bid(self, context)`` bids for the actor's timers, and only the actor itself calls the other methods.
Everything that the checks do not allow explicitly is refused, with the place and the remedy. So a new version of Python
adds nothing to the language.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from validator.primitives.limits import MAX_METHODS, MAX_PARAMETERS, MAX_TREE_DEPTH
from validator.pvm.language.api import (
    BASE,
    GAS_BID,
    GAS_BID_PARAMETER,
    HANDLER_PARAMETER,
    HOST_CALLS,
    HOST_READS,
    TASK_CALLS,
    YIELDING,
)
from validator.pvm.language.expressions import ExpressionChecker
from validator.pvm.language.names import Closest, Names
from validator.pvm.language.source import Problem, check_text
from validator.pvm.language.statements import StatementChecker
from validator.pvm.language.trees import SELF, Function, blocks, is_remark, parts_of, stored_names

FEATURE_VERSION: Final = (3, 11)
MAX_PROBLEMS: Final = 100


class ProgramError(Exception):
    """A program is refused. ``problems`` are the problems found, in the order of the text."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(str(problems[0]))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Method:
    """One checked method."""

    name: str
    node: Function
    parameters: tuple[str, ...]
    """Parameters without ``self``."""
    variables: frozenset[str]
    """Parameters and all names assigned in the method, without variables of comprehensions."""

    @property
    def is_async(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef)

    @property
    def is_handler(self) -> bool:
        return self.parameters == (HANDLER_PARAMETER,)


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program."""

    name: str
    constants: dict[str, Any]
    methods: dict[str, Method]

    @property
    def handlers(self) -> list[str]:
        return [method.name for method in self.methods.values() if method.is_handler]

    @property
    def bids(self) -> bool:
        """Whether the program has its own gas bidding agent."""
        return GAS_BID in self.methods


def _no_guess(_name: str, _names: Iterable[str]) -> str | None:
    """A ``Closest`` that never suggests a name. Validators use it: they need no suggestions, and these take long."""
    return None


def parse(source: str, closest: Closest = _no_guess) -> Program:
    """Parse and check a program's source. Raises :class:`ProgramError` with the problems found.

    Tools for authors pass ``closest`` to suggest corrections of misspelt names.
    """
    wrong = check_text(source)
    if wrong is not None:
        raise ProgramError([wrong])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a refusal must not depend on how Python was started
            tree = ast.parse(source, feature_version=FEATURE_VERSION)
    except SyntaxError as error:
        problem = Problem(error.lineno or 1, max(error.offset or 1, 1), "this is no Python", _reason(error))
        raise ProgramError([problem]) from None
    if (deep := _too_deep(tree)) is not None:
        raise ProgramError([deep])
    names = Names(closest)
    program = _Shell(names).program(tree)
    if names.problems or program is None:
        raise ProgramError(sorted(set(names.problems))[:MAX_PROBLEMS])
    return program


def _reason(error: SyntaxError) -> str:
    return f"the parser says: {(error.msg or 'syntax error').splitlines()[0]}"


def _too_deep(tree: ast.AST) -> Problem | None:
    """Check the depth of a syntax tree, without recursion. Returns a problem if it has too many levels."""
    waiting: list[tuple[ast.AST, int, int, int]] = [(tree, 1, 1, 1)]
    while waiting:
        node, depth, line, column = waiting.pop()
        line, column = getattr(node, "lineno", line), getattr(node, "col_offset", column - 1) + 1
        if depth + hasattr(node, "ctx") > MAX_TREE_DEPTH:  # a context is a child node, too
            return Problem(line, column, f"an expression of more than {MAX_TREE_DEPTH} levels", "name a part of it")
        waiting.extend((child, depth + 1, line, column) for child in parts_of(node))
    return None


class _Shell:
    """Checks a module's syntax tree: the actor's class, its constants and methods. Collects the problems."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._refuse = names.refuse
        self._expressions = ExpressionChecker(names)
        self._statements = StatementChecker(names, self._expressions)

    def program(self, tree: ast.Module) -> Program | None:
        body = _without_docstring(tree.body)
        shell = next((node for node in body if isinstance(node, ast.ClassDef)), None)
        for extra in body:
            if isinstance(extra, ast.Import | ast.ImportFrom):
                self._names.refuse_node(extra)
            elif shell is not None and extra is not shell:
                self._refuse(extra, "something outside the class", f"a program is one class …({BASE}) and nothing else")
        if shell is None:
            self._refuse(body[0] if body else tree, "no class", f"expected: class Name({BASE}): …")
            return None
        self._check_shell(shell)
        self._collect(shell)
        methods = {name: self._method(node) for name, node in self._names.methods.items()}
        if not methods and not self._names.problems:
            self._refuse(
                shell, "a program without a method", f"write a handler: def handle(self, {HANDLER_PARAMETER}): …"
            )
        return Program(shell.name, self._names.constants, methods)

    def _check_shell(self, shell: ast.ClassDef) -> None:
        self._names.check(shell, shell.name)
        bases = shell.bases
        if len(bases) != 1 or not isinstance(bases[0], ast.Name) or bases[0].id != BASE or shell.keywords:
            self._refuse(shell, "a class of another kind", f"expected: class {shell.name}({BASE}): …")
        self._no_decorators(shell)
        self._no_type_parameters(shell)

    def _no_decorators(self, node: ast.ClassDef | Function) -> None:
        for decorator in node.decorator_list:
            self._refuse(decorator, "a decorator", "leave it out")

    def _no_type_parameters(self, node: ast.AST) -> None:
        for parameter in getattr(node, "type_params", []):
            self._refuse(parameter, "a type parameter", "leave it out")

    def _collect(self, shell: ast.ClassDef) -> None:
        """Collect the names of constants and methods, before any method is checked."""
        for node in _without_docstring(shell.body):
            if isinstance(node, Function):
                self._declare(node, node.name)
                self._names.methods.setdefault(node.name, node)
                if len(self._names.methods) > MAX_METHODS:
                    self._refuse(node, f"more than {MAX_METHODS} methods", "deploy a second actor")
                    return
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._class_constant(node, node.targets[0].id, node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self._statements.annotation(node.annotation)
                self._class_constant(node, node.target.id, node.value)
            elif not isinstance(node, ast.Pass) and not is_remark(node):
                self._refuse(node, "a statement in the class", "a class holds constants (NAME = value) and methods")

    def _declare(self, node: ast.AST, name: str) -> None:
        self._names.check(node, name)
        taken = name in self._names.methods or name in self._names.constants
        if taken:
            self._refuse(node, f"{name} is defined twice", "give it another name")
        if (name in HOST_CALLS or name in HOST_READS or name in TASK_CALLS) and name not in YIELDING:
            self._refuse(node, f"{name} is the host's", "give it another name")

    def _class_constant(self, node: ast.AST, name: str, value: ast.expr) -> None:
        self._declare(node, name)
        try:
            found = _literal(value)
        except ValueError:
            self._refuse(
                value, "a constant that is no literal", "use numbers, texts, bytes, True, False, None or tuples of them"
            )
            return
        before = len(self._names.problems)
        for part in ast.walk(value):
            if isinstance(part, ast.Constant):
                self._expressions.constant(part)
        if len(self._names.problems) == before:
            self._names.constants.setdefault(name, found)

    def _method(self, node: Function) -> Method:
        self._no_decorators(node)
        self._no_type_parameters(node)
        parameters = self._parameters(node)
        if node.returns is not None:
            self._statements.annotation(node.returns)
        if node.name == GAS_BID:
            if parameters != (GAS_BID_PARAMETER,):
                self._refuse(
                    node, f"{GAS_BID} with other parameters", f"expected: def {GAS_BID}(self, {GAS_BID_PARAMETER})"
                )
            if isinstance(node, ast.AsyncFunctionDef):
                self._refuse(node, f"an async {GAS_BID}", "a bid is found at once")
        assigned = set(parameters) | set(_assigned(node.body))
        self._names.variables = set(assigned)
        self._expressions.is_async = isinstance(node, ast.AsyncFunctionDef)
        self._statements.check(_without_docstring(node.body))
        return Method(node.name, node, parameters, frozenset(assigned))

    def _parameters(self, node: Function) -> tuple[str, ...]:
        given = node.args
        for odd in (given.vararg, given.kwarg, *given.kwonlyargs, *given.posonlyargs):
            if odd is not None:
                self._refuse(odd, "a parameter of another kind", "parameters are plain names")
        for default in (*given.defaults, *given.kw_defaults):
            if default is not None:
                self._refuse(default, "a default value", "pass every argument")
        names = [argument.arg for argument in given.args]
        if not names or names[0] != SELF:
            self._refuse(node, "a method without self", f"expected: def {node.name}({SELF}, …)")
        for argument in given.args:
            if argument.annotation is not None:
                self._statements.annotation(argument.annotation)
        for argument in given.args[1:]:
            self._names.check_target(argument, argument.arg)
            if names.count(argument.arg) > 1:
                self._refuse(argument, f"two parameters {argument.arg}", "give one of them another name")
        if len(names) > MAX_PARAMETERS + 1:
            self._refuse(node, f"{len(names) - 1} parameters", f"expected at most {MAX_PARAMETERS}")
        return tuple(names[1:])


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] if body and is_remark(body[0]) else body


def _literal(node: ast.expr) -> Any:
    """The value of a constant expression. Raises :class:`ValueError`."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)) if not isinstance(value, bool):
            return -value
        case ast.Tuple(elts=parts):
            return tuple(_literal(part) for part in parts)
    raise ValueError


def _assigned(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements assign, those of nested blocks included."""
    for statement in body:
        match statement:
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from stored_names(target)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                yield from stored_names(target)
            case ast.For(target=target):
                yield from stored_names(target)
            case ast.Try(handlers=handlers):
                yield from (handler.name for handler in handlers if handler.name is not None)
        for block in blocks(statement):
            yield from _assigned(block)
