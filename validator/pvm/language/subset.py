"""The language of actors: what of Python a program may hold, checked before anything of it is compiled.

A program is one class ``…(Actor)`` of constants and methods. A method with the one parameter ``payload`` is a
handler, ``get_gas_bid(self, context)`` bids for the actor's timers, and every other one only the actor itself calls.
What is not listed here is refused, with the place and the remedy: a new version of Python brings nothing in.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from validator.primitives.limits import (
    DICT_KEY_LIMIT,
    INTEGER_LIMIT,
    MAX_COMPREHENSIONS,
    MAX_METHODS,
    MAX_NAME,
    MAX_PARAMETERS,
    MAX_TREE_DEPTH,
)
from validator.pvm.language.api import (
    BASE,
    BUILTINS,
    CONSTANTS,
    ERROR,
    GAS_BID,
    GAS_BID_PARAMETER,
    HANDLER_PARAMETER,
    HOST_CALLS,
    HOST_READS,
    METHODS,
    STATIC_METHODS,
    TASK_CALLS,
    YIELDING,
    Signature,
)
from validator.pvm.language.source import Problem, check_text
from validator.pvm.language.trees import parts_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
FEATURE_VERSION: Final = (3, 11)
SELF: Final = "self"
OWN: Final = "is_own"
"""Marks ``self.name`` in the tree where a name of :data:`~validator.pvm.language.api.YIELDING` is the program's own."""
MAX_PROBLEMS: Final = 100

OPERATORS: Final = (
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow,
    ast.LShift, ast.RShift, ast.BitOr, ast.BitXor, ast.BitAnd,
)  # fmt: skip
UNARY: Final = (ast.UAdd, ast.USub, ast.Not, ast.Invert)
COMPARISONS: Final = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot)

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
    "NamedExpr": (":=", "assign in a statement of its own"),
    "Match": ("match", "use if and elif"),
    "Div": ("/", "use //: there are no floats"),
    "MatMult": ("@", "there are no matrices"),
    "ClassDef": ("a class inside the class", "use a dict or a tuple"),
    "FunctionDef": ("a function inside a method", "write a method"),
    "AsyncFunctionDef": ("a function inside a method", "write a method"),
    "TypeAlias": ("a type alias", "leave it out"),
}
"""What is refused with a remedy of its own; everything else that is not allowed has the same one."""
NO_MODULES: Final = "there are no modules to import: use the functions and methods that are there"


class ProgramError(Exception):
    """A program is refused. ``problems`` are all that were found, in the order of the text."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(str(problems[0]))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Method:
    """One method, checked."""

    name: str
    node: Function
    parameters: tuple[str, ...]
    """Besides ``self``."""
    variables: frozenset[str]
    """Parameters, and what is assigned anywhere in it; variables of comprehensions apart."""

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
        """Whether it has a gas bidding agent of its own."""
        return GAS_BID in self.methods


Closest = Callable[[str, Iterable[str]], str | None]
"""Finds the name that another one was meant for, among some."""


def _no_guess(_name: str, _names: Iterable[str]) -> str | None:
    """A validator only needs to know whether a program is one; guessing takes long."""
    return None


def parse(source: str, closest: Closest = _no_guess) -> Program:
    """The program that a text is. Raises :class:`ProgramError` with all that is wrong with it.

    Tools for authors say by ``closest`` how a misspelt name is recognised.
    """
    wrong = check_text(source)
    if wrong is not None:
        raise ProgramError([wrong])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether a program is refused must not depend on how Python was started
            tree = ast.parse(source, feature_version=FEATURE_VERSION)
    except SyntaxError as error:
        problem = Problem(error.lineno or 1, max(error.offset or 1, 1), "this is no Python", _reason(error))
        raise ProgramError([problem]) from None
    if (deep := _too_deep(tree)) is not None:
        raise ProgramError([deep])
    checker = _Checker(closest)
    program = checker.program(tree)
    if checker.problems or program is None:
        raise ProgramError(sorted(set(checker.problems))[:MAX_PROBLEMS])
    return program


def _reason(error: SyntaxError) -> str:
    return f"the parser says: {(error.msg or 'syntax error').splitlines()[0]}"


def _too_deep(tree: ast.AST) -> Problem | None:
    """Bound the depth without recursing."""
    waiting: list[tuple[ast.AST, int, int, int]] = [(tree, 1, 1, 1)]
    while waiting:
        node, depth, line, column = waiting.pop()
        line, column = getattr(node, "lineno", line), getattr(node, "col_offset", column - 1) + 1
        if depth + hasattr(node, "ctx") > MAX_TREE_DEPTH:  # a context is a node below, too
            return Problem(line, column, f"an expression of more than {MAX_TREE_DEPTH} levels", "name a part of it")
        waiting.extend((child, depth + 1, line, column) for child in parts_of(node))
    return None


class _Checker:
    """Walks a program's tree and collects what is wrong."""

    def __init__(self, closest: Closest) -> None:
        self.problems: list[Problem] = []
        self._closest = closest
        self._methods: dict[str, Function] = {}
        self._constants: dict[str, Any] = {}
        self._variables: set[str] = set()
        """Of the method being checked, and of the comprehensions that are open."""
        self._is_async = False
        self._loops = 0
        self._comprehensions = 0
        """How many are open."""
        self._statements: dict[type[ast.stmt], Callable[[Any], None]] = {
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated_assign,
            ast.AugAssign: self._augmented_assign,
            ast.Expr: self._expression_statement,
            ast.If: self._if,
            ast.While: self._while,
            ast.For: self._for,
            ast.Return: self._return,
            ast.Raise: self._raise,
            ast.Assert: self._assert,
            ast.Delete: self._delete,
            ast.Pass: lambda _node: None,
            ast.Break: self._leave_loop,
            ast.Continue: self._leave_loop,
        }
        self._expressions: dict[type[ast.expr], Callable[[Any], None]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.BoolOp: lambda node: self._all(node.values),
            ast.Compare: self._compare,
            ast.IfExp: lambda node: self._all([node.test, node.body, node.orelse]),
            ast.Subscript: self._subscript,
            ast.List: lambda node: self._all(node.elts),
            ast.Tuple: lambda node: self._all(node.elts),
            ast.Dict: self._dict,
            ast.ListComp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.Call: self._call,
            ast.Attribute: self._attribute,
            ast.Await: self._await,
        }

    def refuse(self, node: ast.AST, what: str, remedy: str) -> None:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        self.problems.append(Problem(line, column, what, remedy))

    def _refuse_node(self, node: ast.AST) -> None:
        name = type(node).__name__
        self.refuse(node, *REFUSED.get(name, (f"{name}", "this is not part of the language of actors")))

    # --- the shell --------------------------------------------------------------------------------------------------

    def program(self, tree: ast.Module) -> Program | None:
        body = _without_docstring(tree.body)
        shell = next((node for node in body if isinstance(node, ast.ClassDef)), None)
        for extra in body:
            if isinstance(extra, ast.Import | ast.ImportFrom):
                self._refuse_node(extra)
            elif shell is not None and extra is not shell:
                self.refuse(extra, "something beside the class", f"a program is one class …({BASE}) and nothing else")
        if shell is None:
            self.refuse(body[0] if body else tree, "no class", f"expected: class Name({BASE}): …")
            return None
        self._check_shell(shell)
        self._collect(shell)
        methods = {name: self._method(node) for name, node in self._methods.items()}
        if not methods and not self.problems:
            self.refuse(
                shell, "a program without a method", f"write a handler: def handle(self, {HANDLER_PARAMETER}): …"
            )
        return Program(shell.name, self._constants, methods)

    def _check_shell(self, shell: ast.ClassDef) -> None:
        self._identifier(shell, shell.name)
        bases = shell.bases
        if len(bases) != 1 or not isinstance(bases[0], ast.Name) or bases[0].id != BASE or shell.keywords:
            self.refuse(shell, "a class of another kind", f"expected: class {shell.name}({BASE}): …")
        self._no_decorators(shell)
        self._no_type_parameters(shell)

    def _no_decorators(self, node: ast.ClassDef | Function) -> None:
        for decorator in node.decorator_list:
            self.refuse(decorator, "a decorator", "leave it out")

    def _no_type_parameters(self, node: ast.AST) -> None:
        for parameter in getattr(node, "type_params", []):
            self.refuse(parameter, "a type parameter", "leave it out")

    def _collect(self, shell: ast.ClassDef) -> None:
        """The names of constants and methods, before any method is looked into."""
        for node in _without_docstring(shell.body):
            if isinstance(node, Function):
                self._declare(node, node.name)
                self._methods.setdefault(node.name, node)
                if len(self._methods) > MAX_METHODS:
                    self.refuse(node, f"more than {MAX_METHODS} methods", "deploy a second actor")
                    return
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._class_constant(node, node.targets[0].id, node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self._annotation(node.annotation)
                self._class_constant(node, node.target.id, node.value)
            elif not isinstance(node, ast.Pass) and not _is_remark(node):
                self.refuse(node, "a statement in the class", "a class holds constants (NAME = value) and methods")

    def _declare(self, node: ast.AST, name: str) -> None:
        self._identifier(node, name)
        taken = name in self._methods or name in self._constants
        if taken:
            self.refuse(node, f"{name} is defined twice", "give it another name")
        if (name in HOST_CALLS or name in HOST_READS or name in TASK_CALLS) and name not in YIELDING:
            self.refuse(node, f"{name} is the host's", "give it another name")

    def _class_constant(self, node: ast.AST, name: str, value: ast.expr) -> None:
        self._declare(node, name)
        try:
            found = _literal(value)
        except ValueError:
            self.refuse(
                value, "a constant that is no literal", "use numbers, texts, bytes, True, False, None or tuples of them"
            )
            return
        before = len(self.problems)
        for part in ast.walk(value):
            if isinstance(part, ast.Constant):
                self._constant(part)
        if len(self.problems) == before:
            self._constants.setdefault(name, found)

    def _identifier(self, node: ast.AST, name: str) -> None:
        if name.startswith("_"):
            self.refuse(node, f"the name {name}", "names do not begin with an underscore")
        elif len(name) > MAX_NAME:
            self.refuse(node, f"a name of {len(name)} characters", f"expected at most {MAX_NAME}")
        elif name in BUILTINS or name in CONSTANTS or name in (BASE, ERROR):
            self.refuse(node, f"the name {name}, which is taken", "give it another name")

    # --- methods ----------------------------------------------------------------------------------------------------

    def _method(self, node: Function) -> Method:
        self._no_decorators(node)
        self._no_type_parameters(node)
        parameters = self._parameters(node)
        if node.returns is not None:
            self._annotation(node.returns)
        if node.name == GAS_BID:
            if parameters != (GAS_BID_PARAMETER,):
                self.refuse(
                    node, f"{GAS_BID} with other parameters", f"expected: def {GAS_BID}(self, {GAS_BID_PARAMETER})"
                )
            if isinstance(node, ast.AsyncFunctionDef):
                self.refuse(node, f"an async {GAS_BID}", "a bid is found at once")
        assigned = set(parameters) | set(_assigned(node.body))
        self._variables, self._is_async, self._loops = set(assigned), isinstance(node, ast.AsyncFunctionDef), 0
        self._block(_without_docstring(node.body))
        return Method(node.name, node, parameters, frozenset(assigned))

    def _parameters(self, node: Function) -> tuple[str, ...]:
        given = node.args
        for odd in (given.vararg, given.kwarg, *given.kwonlyargs, *given.posonlyargs):
            if odd is not None:
                self.refuse(odd, "a parameter of another kind", "parameters are plain names")
        for default in (*given.defaults, *given.kw_defaults):
            if default is not None:
                self.refuse(default, "a default value", "pass every argument")
        names = [argument.arg for argument in given.args]
        if not names or names[0] != SELF:
            self.refuse(node, "a method without self", f"expected: def {node.name}({SELF}, …)")
        for argument in given.args:
            if argument.annotation is not None:
                self._annotation(argument.annotation)
        for argument in given.args[1:]:
            self._target_name(argument, argument.arg)
            if names.count(argument.arg) > 1:
                self.refuse(argument, f"two parameters {argument.arg}", "give one of them another name")
        if len(names) > MAX_PARAMETERS + 1:
            self.refuse(node, f"{len(names) - 1} parameters", f"expected at most {MAX_PARAMETERS}")
        return tuple(names[1:])

    def _annotation(self, node: ast.expr) -> None:
        """Annotations are for readers and editors; they must be names, and nothing is done with them."""
        for part in ast.walk(node):
            is_none = isinstance(part, ast.Constant) and part.value is None
            allowed = ast.Name | ast.Load | ast.Subscript | ast.Tuple | ast.BinOp | ast.BitOr
            if not (is_none or isinstance(part, allowed)):
                self.refuse(node, "an annotation that is no type", "use names of types, such as int or list[int]")
                return

    # --- statements -------------------------------------------------------------------------------------------------

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            check = self._statements.get(type(statement))
            if check is not None:
                check(statement)
                continue
            self._refuse_node(statement)
            if isinstance(statement, ast.Try):  # its author wants to hear of all at once
                for block in _blocks(statement):
                    self._block(block)

    def _target_name(self, node: ast.AST, name: str) -> None:
        if name == SELF:
            self.refuse(node, "a new self", "give the variable another name")
        self._identifier(node, name)

    def _target(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                self._target_name(node, name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    if isinstance(part, ast.Name):
                        self._target_name(part, part.id)
                    else:
                        self.refuse(part, "a part that is no name", "unpack into names")
            case ast.Subscript():
                if isinstance(node.slice, ast.Slice):
                    self.refuse(node, "an assignment to a slice", "build a new list")
                self._subscript(node)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self.refuse(node, f"an assignment to self.{name}", "keep what must last with self.set(key, value)")
            case ast.Attribute():
                self.refuse(node, "an assignment to an attribute", "values have no attributes; use a dict")
            case _:
                self._refuse_node(node)

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            self.refuse(node, "more than one = in a statement", "write one assignment for each")
        for target in node.targets:
            self._target(target)
        self._expression(node.value)

    def _annotated_assign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        if not isinstance(node.target, ast.Name):
            self.refuse(node, "an annotation of something else than a name", "leave it out")
        if node.value is None:
            self.refuse(node, "a declaration without a value", "assign one")
        else:
            self._target(node.target)
            self._expression(node.value)

    def _augmented_assign(self, node: ast.AugAssign) -> None:
        self._operator(node, node.op)
        self._target(node.target)
        if isinstance(node.target, ast.Name):
            self._name(node.target)
        self._expression(node.value)

    def _expression_statement(self, node: ast.Expr) -> None:
        if _is_remark(node):
            return
        before = len(self.problems)
        self._expression(node.value)
        if len(self.problems) == before and not isinstance(node.value, ast.Call | ast.Await):
            self.refuse(node, "a value that nobody uses", "call something, or assign it")

    def _if(self, node: ast.If) -> None:
        self._expression(node.test)
        self._block(node.body)
        self._block(node.orelse)

    def _while(self, node: ast.While) -> None:
        self._expression(node.test)
        self._loop(node)

    def _for(self, node: ast.For) -> None:
        if isinstance(node.target, ast.Subscript):
            self.refuse(node.target, "a loop variable that is no name", "use a name")
        else:
            self._target(node.target)
        self._expression(node.iter)
        self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            self.refuse(
                node.orelse[0],
                "else after a loop",
                "put it behind the loop, with a variable that says whether it broke off",
            )
        self._loops += 1
        self._block(node.body)
        self._loops -= 1

    def _leave_loop(self, node: ast.stmt) -> None:
        if not self._loops:
            self.refuse(node, f"{type(node).__name__.lower()} outside a loop", "use return")

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._expression(node.value)

    def _raise(self, node: ast.Raise) -> None:
        error = node.exc
        is_error = isinstance(error, ast.Call) and isinstance(error.func, ast.Name) and error.func.id == ERROR
        if (
            not isinstance(error, ast.Call)
            or not is_error
            or len(error.args) > 1
            or error.keywords
            or node.cause is not None
        ):
            self.refuse(node, "another error than the actor's", f'expected: raise {ERROR}("why")')
            return
        self._all(error.args)

    def _assert(self, node: ast.Assert) -> None:
        self._expression(node.test)
        if node.msg is not None:
            self._expression(node.msg)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Slice):
                self.refuse(target, "del of something else than an element", "use it as del values[key]")
            else:
                self._subscript(target)

    # --- expressions ------------------------------------------------------------------------------------------------

    def _all(self, nodes: list[ast.expr]) -> None:
        for node in nodes:
            self._expression(node)

    def _expression(self, node: ast.expr) -> None:
        check = self._expressions.get(type(node))
        if check is None:
            self._refuse_node(node)
        else:
            check(node)

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if value is None or isinstance(value, bool | bytes | str):
            if isinstance(value, str) and not _is_text(value):
                self.refuse(node, "a lone surrogate in a text", "write the character itself as \\U…")
        elif isinstance(value, int):
            if value >= INTEGER_LIMIT:
                self.refuse(node, "an integer of more than 256 bits", "expected less than 2**256")
        elif isinstance(value, float | complex):
            self.refuse(node, "a number with a point", "use integers, in the smallest unit")
        else:
            self.refuse(node, f"the constant {value}", "this is not part of the language of actors")

    def _name(self, node: ast.Name) -> None:
        name = node.id
        if name == SELF:
            self.refuse(node, "self as a value", "use it as self.name")
        elif name in self._variables or name in CONSTANTS:
            return
        elif name in BUILTINS:
            self.refuse(node, f"{name} as a value", "call it")
        elif name.startswith("_"):
            self._identifier(node, name)
        else:
            self._undefined(node, "assign it first")

    def _undefined(self, node: ast.Name, otherwise: str) -> None:
        """A name that is no variable: it may stand behind self, or be misspelt."""
        name = node.id
        own = self._own_name(name) or self._closest(name, self._variables) or self._own_name_like(name)
        hint = otherwise if own is None else f"did you mean {own}?"
        self.refuse(node, f"the name {name}, which is nowhere defined", hint)

    def _own_name(self, name: str) -> str | None:
        """How something of the actor's own, or of the host's, is written that has this name."""
        if name in self._methods or name in HOST_CALLS or name in TASK_CALLS:
            return f"self.{name}(…)"
        return f"self.{name}" if name in HOST_READS or name in self._constants else None

    def _own_name_like(self, name: str) -> str | None:
        names = (*self._methods, *self._constants, *HOST_CALLS, *HOST_READS, *TASK_CALLS)
        found = self._closest(name, names)
        return None if found is None else self._own_name(found)

    def _operator(self, node: ast.AST, operator: ast.operator) -> None:
        if not isinstance(operator, OPERATORS):
            self.refuse(node, *REFUSED[type(operator).__name__])

    def _binary(self, node: ast.BinOp) -> None:
        self._operator(node, node.op)
        if (
            isinstance(node.op, ast.Mod)
            and isinstance(node.left, ast.Constant)
            and isinstance(node.left.value, str | bytes)
        ):
            self.refuse(node, "a formatted string", "join texts with + and str()")
        self._all([node.left, node.right])

    def _unary(self, node: ast.UnaryOp) -> None:
        if not isinstance(node.op, UNARY):
            self._refuse_node(node.op)
        self._expression(node.operand)

    def _compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for operator, right in zip(node.ops, node.comparators, strict=True):
            is_none = isinstance(right, ast.Constant) and right.value is None
            if isinstance(operator, ast.Is | ast.IsNot) and not is_none:
                self.refuse(right, "is with something else than None", "use == or !=")
            elif not isinstance(operator, COMPARISONS):
                self._refuse_node(operator)
        self._all(operands)

    def _subscript(self, node: ast.Subscript) -> None:
        self._expression(node.value)
        if isinstance(node.slice, ast.Slice):
            self._all([part for part in (node.slice.lower, node.slice.upper) if part is not None])
            if node.slice.step is not None:
                self.refuse(node.slice.step, "a slice with a step", "use a loop, or reversed()")
        else:
            self._expression(node.slice)

    def _dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self.refuse(value, "** in a dict", "use update()")
                continue
            self._expression(key)
            if isinstance(key, ast.Constant) and isinstance(key.value, int) and key.value >= DICT_KEY_LIMIT:
                self.refuse(key, "a key of more than 60 bits", "use its bytes or its text as the key")
            self._expression(value)

    def _comprehension(self, node: ast.ListComp | ast.DictComp) -> None:
        if len(node.generators) > 1:
            self.refuse(node, "a comprehension with two loops", "write loops")
            return
        (generator,) = node.generators
        self._comprehensions += 1
        if self._comprehensions > MAX_COMPREHENSIONS:
            self.refuse(node, f"more than {MAX_COMPREHENSIONS} comprehensions inside each other", "write loops")
        if generator.is_async:
            self.refuse(node, "an async comprehension", "write a loop")
        self._expression(generator.iter)
        names = list(stored_names(generator.target))
        self._target(generator.target)
        if isinstance(generator.target, ast.Subscript):
            self.refuse(generator.target, "a loop variable that is no name", "use a name")
        hidden = set(names) - self._variables
        self._variables.update(names)
        self._all(generator.ifs)
        self._all([node.elt] if isinstance(node, ast.ListComp) else [node.key, node.value])
        if any(isinstance(part, ast.Await) for part in ast.walk(node)):
            self.refuse(node, "await in a comprehension", "write a loop")
        self._variables.difference_update(hidden)
        self._comprehensions -= 1

    # --- calls and attributes ---------------------------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute) -> None:
        """Only readings and constants of ``self`` are values; methods are called."""
        is_self = isinstance(node.value, ast.Name) and node.value.id == SELF
        name = node.attr
        if name.startswith("_"):
            self._identifier(node, name)
        elif isinstance(node.value, ast.Name) and self._is_undefined(node.value):
            self._undefined(node.value, NO_MODULES)
        elif not is_self:
            self.refuse(node, f"the attribute {name}", "values have no attributes; call a method, or use a dict")
        elif name in self._constants:
            _mark_own(node)
        elif name in HOST_CALLS or name in self._methods or name in TASK_CALLS:
            self.refuse(node, f"self.{name} as a value", "call it")
        elif name not in HOST_READS:
            meant = self._own_name_like(name)
            remedy = "assign it in the class, or keep it with self.set(key, value)"
            self.refuse(node, f"self.{name}, which is nowhere defined", f"did you mean {meant}?" if meant else remedy)

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in BUILTINS and name not in self._variables:
                self._arguments(node, name, BUILTINS[name])
            case ast.Name(id=name) if name == ERROR:
                self.refuse(node, f"{ERROR} as a value", f'use it as raise {ERROR}("why")')
            case ast.Name(id=name):
                self.refuse(node, f"a call of {name}", self._function_meant(name))
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self._self_call(node, name)
            case ast.Attribute(value=ast.Name(id=kind), attr=name) if (kind, name) in STATIC_METHODS:
                self._arguments(node, f"{kind}.{name}", STATIC_METHODS[kind, name])
            case ast.Attribute(value=ast.Name() as value, attr=name) if name not in METHODS and self._is_undefined(
                value
            ):
                self._undefined(value, NO_MODULES)
            case ast.Attribute(value=value, attr=name):
                self._expression(value)
                if name in METHODS:
                    self._arguments(node, name, METHODS[name])
                elif name.startswith("_"):
                    self._identifier(node, name)
                else:
                    meant = self._closest(name, METHODS)
                    remedy = f"values have these: {', '.join(sorted(METHODS))}"
                    self.refuse(node, f"the method {name}", f"did you mean {meant}?" if meant else remedy)
            case _:
                self.refuse(node, "a call of a value", "call a method or a function by its name")

    def _is_undefined(self, node: ast.Name) -> bool:
        name = node.id
        known = name in self._variables or name in CONSTANTS or name in BUILTINS or name in (SELF, ERROR)
        return not known and not name.startswith("_")

    def _function_meant(self, name: str) -> str:
        """What stands in for a call of something that is no function."""
        own = self._own_name(name)
        if own is None and (builtin := self._closest(name, BUILTINS)) is not None:
            own = f"{builtin}(…)"
        own = own or self._own_name_like(name)
        return "there is no such function" if own is None else f"did you mean {own}?"

    def _self_call(self, node: ast.Call, name: str, *, awaited: bool = False) -> None:
        if name in self._methods:
            method = self._methods[name]
            names = tuple(argument.arg for argument in method.args.args[1:])
            _mark_own(node.func)
            self._arguments(node, f"self.{name}", Signature(names))
            if isinstance(method, ast.AsyncFunctionDef) and not awaited:
                self.refuse(
                    node, f"self.{name}(…) without await", f"await it, or start it with self.spawn(self.{name}(…))"
                )
        elif name in HOST_CALLS and name not in self._constants:
            self._arguments(node, f"self.{name}", HOST_CALLS[name])
        elif name == "spawn":
            self._spawn(node)
        elif name == "pause":
            self.refuse(node, "self.pause() without await", "write: await self.pause()")
        elif name.startswith("_"):
            self._identifier(node, name)
        elif name in HOST_READS or name in self._constants:
            self.refuse(node, f"a call of self.{name}", f"read it without brackets: self.{name}")
        else:
            meant = self._own_name_like(name)
            remedy = "write the method" if meant is None else f"did you mean {meant}?"
            self.refuse(node, f"self.{name}(…), which is nowhere defined", remedy)

    def _spawn(self, node: ast.Call) -> None:
        started = node.args[0] if len(node.args) == 1 and not node.keywords else None
        name = None if started is None else self._async_method(started)
        if name is None or not isinstance(started, ast.Call):
            self.refuse(
                node, "self.spawn of something else than an async method", "expected: self.spawn(self.method(…))"
            )
        else:
            self._self_call(started, name, awaited=True)
        if not self._is_async:
            self.refuse(node, "a task in a plain method", "write: async def")

    def _async_method(self, node: ast.expr) -> str | None:
        """The async method of the actor's own that an expression calls."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return name if isinstance(self._methods.get(name), ast.AsyncFunctionDef) else None
        return None

    def _await(self, node: ast.Await) -> None:
        if not self._is_async:
            self.refuse(node, "await in a plain method", "write: async def")
        name = self._async_method(node.value)
        match node.value:
            case ast.Call() if name is not None:
                self._self_call(node.value, name, awaited=True)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="pause"), args=[], keywords=[]):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=plain)) if plain != "spawn":
                self._expression(node.value)
                self.refuse(node, f"await of self.{plain}(…), which is not async", "leave await out")
            case _:
                self._expression(node.value)

    def _arguments(self, node: ast.Call, name: str, signature: Signature) -> None:
        """Check the number and the names of arguments, and each of them."""
        self._all([argument for argument in node.args if not isinstance(argument, ast.Starred)])
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self._refuse_node(argument)
                return
        parameters = signature.parameters
        given = list(parameters[: len(node.args)])
        for keyword in node.keywords:
            self._expression(keyword.value)
            if keyword.arg is None:
                self.refuse(keyword.value, "** in a call", "name every argument")
            elif signature.positional_only:
                self.refuse(keyword.value, f"{keyword.arg}= in a call of {name}", "pass arguments by position")
            elif keyword.arg not in parameters:
                self.refuse(keyword.value, f"{name} has no {keyword.arg}", f"it takes {', '.join(parameters)}")
            elif keyword.arg in given:
                self.refuse(keyword.value, f"{keyword.arg} is given twice", "leave one out")
            else:
                given.append(keyword.arg)
        missing = [parameter for parameter in signature.required if parameter not in given]
        if len(node.args) > len(parameters):
            self.refuse(node, f"{len(node.args)} arguments for {name}", f"expected at most {len(parameters)}")
        elif missing and all(keyword.arg is not None for keyword in node.keywords):
            self.refuse(node, f"{name} without {missing[0]}", f"it takes {', '.join(parameters) or 'nothing'}")


# --- helpers ----------------------------------------------------------------------------------------------------------


def _mark_own(node: ast.expr) -> None:
    """Note that ``self.name`` is the program's own, where the host has that name too."""
    if isinstance(node, ast.Attribute) and node.attr in YIELDING:
        setattr(node, OWN, True)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] if body and _is_remark(body[0]) else body


def _is_remark(node: ast.stmt) -> bool:
    """Whether a statement is a text and nothing else."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_text(text: str) -> bool:
    """Whether a text can be encoded: without lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


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


def stored_names(target: ast.expr) -> Iterator[str]:
    """The names that a target binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from stored_names(part)


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
        for block in _blocks(statement):
            yield from _assigned(block)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks that a statement holds."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body
