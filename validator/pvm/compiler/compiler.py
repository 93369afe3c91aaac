"""The compiler from a checked program to self-metering code.

Every straight-line piece begins with its charge, ``_left -= n``, and ends the handler if nothing is left
(:mod:`validator.pvm.compiler.charges`). An expression (:mod:`validator.pvm.compiler.expressions`) becomes Python's own
operation, after a test of the values, if that costs the same for all values that pass the test; otherwise it calls
:mod:`validator.pvm.runtime.operations`. So ``a + b`` adds if both are integers and the sum fits, and calls ``_add``
otherwise: result and cost are the same either way. Local variables that hold only integers are found beforehand
(:mod:`validator.pvm.compiler.integers`) and need no tests.

Names that begin with an underscore belong to the compiler; programs may not use them.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from types import CodeType
from typing import Final

from validator.primitives.limits import MAX_CALL_DEPTH, MAX_KEY_TEXT
from validator.pvm.compiler import nodes
from validator.pvm.compiler.charges import entry_cost, pieces, statement_cost, turn_cost
from validator.pvm.compiler.expressions import DEPTH, FUNCTION, LEFT, ExpressionCompiler, Unit, parts_of_value
from validator.pvm.compiler.integers import is_integer
from validator.pvm.compiler.nodes import STORE
from validator.pvm.language.subset import Method, Program
from validator.pvm.language.trees import Function

FILE_NAME: Final = "<actor>"
"""File name of compiled programs in tracebacks."""
MAX_GUARDS: Final = 2_500
"""Maximum number of operators of one program that are compiled to Python's operator behind a test. Further operators
are compiled to calls, so that the time to compile is bounded. No program that can be deployed with the default
parameters has this many: its tokens would cost more than a block's lane."""
_IN_PLACE: Final[dict[type[ast.operator], str]] = {ast.Add: "_add_in_place", ast.Mult: "_mult_in_place"}


def compile_program(program: Program, *, observed: bool = False, guards: int = MAX_GUARDS) -> CodeType:
    """Compile a program. The result is the code of a function that returns the program's methods by name.

    The code's global names are the operations. Its only free variable holds the remaining cycles. With ``observed``,
    each piece also calls ``_observe(number)`` when it runs, for the profiler. ``guards`` is the maximum number of
    operators behind a test, and only affects the program's speed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's warnings about a program must not depend on how it was started
        module = compile(module_of(Unit(program, observed, guards)), FILE_NAME, "exec", dont_inherit=True, optimize=0)
    return _only_code_in(_only_code_in(module))


def _only_code_in(code: CodeType) -> CodeType:
    (inner,) = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return inner


def piece_lines(program: Program) -> list[list[tuple[int, int]]]:
    """For each straight-line piece, in the order of their numbers: its charges, as pairs of line and cycles."""
    unit = Unit(program, observed=True, guards=0)
    module_of(unit)
    return unit.lines


_SHELL: Final = f"""
def _shell():
    {LEFT} = 0
    def _make():
        nonlocal {LEFT}
"""


def module_of(unit: Unit) -> ast.Module:
    """A function around ``_make()``, which returns the functions by method name."""
    tree = ast.parse(_SHELL)
    (shell,) = tree.body
    assert isinstance(shell, ast.FunctionDef)
    make = shell.body[-1]
    assert isinstance(make, ast.FunctionDef)
    methods = unit.program.methods
    functions = [_Function(unit, method).definition() for method in methods.values()]
    names: list[ast.expr | None] = [ast.Constant(name) for name in methods]
    table = ast.Dict(names, [nodes.name(FUNCTION + name) for name in methods])
    make.body += [*functions, ast.Return(table)]
    nodes.place(tree)
    return tree


class _Function:
    """Builds one method's function: its blocks and statements."""

    def __init__(self, unit: Unit, method: Method) -> None:
        self._unit = unit
        self._method = method
        self._expressions = ExpressionCompiler(unit, method)
        self._build = self._expressions.build

    def definition(self) -> Function:
        method = self._method
        arguments = [ast.arg(DEPTH), *(ast.arg(name) for name in method.parameters)]
        body: list[ast.stmt] = [ast.Nonlocal([LEFT])]
        deep = ast.Compare(nodes.name(DEPTH), [ast.Gt()], [ast.Constant(MAX_CALL_DEPTH)])
        body.append(ast.If(deep, [ast.Expr(nodes.call("_too_deep"))], []))
        body += self._block(method.node.body, entry_cost(method.node), method.node.lineno)
        kind = ast.AsyncFunctionDef if method.is_async else ast.FunctionDef
        parameters = ast.arguments([], arguments, None, [], [], None, [])
        made = kind(FUNCTION + method.name, parameters, body, [])
        if "type_params" in made._fields:
            made.type_params = []  # type: ignore[union-attr]  # from Python 3.12 on
        return nodes.at(made, method.node)

    def _block(
        self, block: list[ast.stmt], extra: int = 0, head: int = 0, first: Iterable[ast.stmt] = ()
    ) -> list[ast.stmt]:
        """Compile a block: each of its pieces is preceded by its charge.

        The first charge includes ``extra``, the cost of line ``head``. The statements ``first`` follow it.
        """
        made: list[ast.stmt] = []
        for piece in pieces(block):
            lines = [(statement.lineno, statement_cost(statement)) for statement in piece]
            if extra:
                lines = [(head, extra), *lines]
            made += self._charge(sum(cycles for _, cycles in lines), piece[0], lines)
            extra = 0
            made += first
            first = ()
            for statement in piece:
                made += [nodes.at(part, statement) for part in self._statement(statement)]
        return made

    def _charge(self, cycles: int, place: ast.stmt, lines: list[tuple[int, int]]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        number = self._unit.piece_number(lines)
        if number is not None:
            made.append(ast.Expr(nodes.call("_observe", ast.Constant(number))))
        if cycles:
            made.append(ast.AugAssign(nodes.store(LEFT), ast.Sub(), ast.Constant(cycles)))
            spent = ast.Compare(nodes.name(LEFT), [ast.Lt()], [ast.Constant(0)])
            made.append(ast.If(spent, [ast.Expr(nodes.call("_out"))], []))
        return [nodes.at(part, place) for part in made]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._assign(target, value)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.Expr(value=ast.Constant()):
                return [ast.Pass()]
            case ast.Expr(value=value):
                return [ast.Expr(self._build(value))]
            case ast.If(test=test, body=body, orelse=orelse):
                return [ast.If(self._build(test), self._block(body), self._block(orelse))]
            case ast.While(test=test, body=body):
                return [ast.While(self._build(test), self._block(body, turn_cost(node), node.lineno), [])]
            case ast.For():
                return self._for(node)
            case ast.Return(value=value):
                return [ast.Return(None if value is None else self._build(value))]
            case ast.Raise(exc=ast.Call(args=arguments)):
                return [ast.Expr(nodes.call("_fail", *map(self._build, arguments)))]
            case ast.Assert(test=test, msg=message):
                failed = nodes.call("_fail", *([] if message is None else [self._build(message)]))
                return [ast.If(ast.UnaryOp(ast.Not(), self._build(test)), [ast.Expr(failed)], [])]
            case ast.Delete(targets=targets):
                return [ast.Expr(self._element_call("_del_item", target)) for target in targets]
        return [node]  # pass, break, continue

    def _for(self, node: ast.For) -> list[ast.stmt]:
        if isinstance(node.target, ast.Name):
            body = self._block(node.body, turn_cost(node), node.lineno)
            return [ast.For(node.target, self._expressions.iterated(node.iter), body, [])]
        element = self._expressions.temporary()
        unpacked = [nodes.at(part, node) for part in self._unpack(node.target, nodes.name(element))]
        body = self._block(node.body, turn_cost(node), node.lineno, unpacked)
        return [ast.For(nodes.store(element), self._expressions.iterated(node.iter), body, [])]

    def _unpack(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Unpack a value into targets by Python's own unpacking. A dict is replaced by its keys first."""
        if isinstance(value, ast.Tuple | ast.List):
            return [ast.Assign([target], value)]
        made, held = self._hold(value)
        assert isinstance(held, ast.Name | ast.Constant)
        unpacked = held if isinstance(held, ast.Constant) else parts_of_value(held)
        return [*made, ast.Assign([target], unpacked)]

    def _assign(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        if not isinstance(target, ast.Subscript):
            assigned = self._build(value)
            return [ast.Assign([target], assigned)] if isinstance(target, ast.Name) else self._unpack(target, assigned)
        is_simple = nodes.is_simple(target.value) and nodes.is_simple(target.slice)
        made, stored = self._hold(self._build(value), is_simple)
        more, container = self._hold(self._build(target.value), nodes.is_simple(target.slice))
        most, index = self._hold(self._build(target.slice))
        return [*made, *more, *most, *self._set_item(container, index, stored)]

    def _set_item(self, container: ast.expr, index: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Store a value into a container.

        Python's own assignment is used for an integer index of a list and for a short text as a dict's key, otherwise
        the operation ``_set_item``.
        """
        stored: list[ast.stmt] = [ast.Assign([ast.Subscript(container, index, STORE)], value)]
        called: list[ast.stmt] = [ast.Expr(nodes.call("_set_item", container, index, value))]
        if not self._unit.may_guard():
            return called
        if is_integer(index, self._expressions.integers, {}):
            return [ast.If(nodes.is_of(container, "list"), stored, called)]
        if isinstance(index, ast.Constant):
            is_key = isinstance(index.value, str) and nodes.is_written_key(index)
            return [ast.If(nodes.is_of(container, "dict"), stored, called)] if is_key else called
        into_list = nodes.all_of([nodes.is_of(container, "list"), nodes.is_int(index)])
        is_short = ast.Compare(nodes.call("_len", index), [ast.LtE()], [ast.Constant(MAX_KEY_TEXT)])
        into_dict = nodes.all_of([nodes.is_of(container, "dict"), nodes.is_of(index, "str"), is_short])
        return [ast.If(ast.BoolOp(ast.Or(), [into_list, into_dict]), stored, called)]

    def _hold(self, value: ast.expr, before_simple: bool = True) -> tuple[list[ast.stmt], ast.expr]:
        """Make a value usable several times: statements that store it in a variable if necessary, and the value.

        Unless ``before_simple``, a name is stored too: it must be read before a later expression can fail, since it may
        have no value yet.
        """
        if isinstance(value, ast.Constant) or (nodes.is_simple(value) and before_simple):
            return [], value
        name = self._expressions.temporary()
        return [nodes.assign(name, value)], nodes.name(name)

    def _augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        if isinstance(node.target, ast.Name):
            left = nodes.name(node.target.id)
            return [ast.Assign([nodes.store(node.target.id)], self._in_place(node.op, left, node.value))]
        assert isinstance(node.target, ast.Subscript)
        made, container = self._hold(self._build(node.target.value), nodes.is_simple(node.target.slice))
        more, index = self._hold(self._build(node.target.slice))
        before = nodes.call("_item", container, index)
        name = self._expressions.temporary()
        kept = nodes.assign(name, before)
        changed = self._expressions.temporary()
        result = nodes.assign(changed, self._in_place(node.op, nodes.name(name), node.value))
        return [*made, *more, kept, result, *self._set_item(container, index, nodes.name(changed))]

    def _in_place(self, operator: ast.operator, left: ast.Name, right: ast.expr) -> ast.expr:
        return self._expressions.binary(operator, left, right, _IN_PLACE.get(type(operator)))

    def _element_call(self, function: str, target: ast.expr) -> ast.Call:
        assert isinstance(target, ast.Subscript)
        return nodes.call(function, self._build(target.value), self._build(target.slice))
