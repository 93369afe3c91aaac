"""From a checked program to code that meters itself.

Every straight-line piece begins with its charge, ``_left -= n``, and ends the handler where nothing is left
(:mod:`validator.pvm.compiler.charges` says what it is). Expressions become Python's own where these cost the same
whatever the values are, behind a test that they are what they must be; for all else they call
:mod:`validator.pvm.runtime.operations`. So ``a + b`` adds where both are integers and the sum fits, and calls ``_add``
otherwise: what comes out, and what it costs, is the same either way. Which local variables can hold nothing but
integers is found beforehand (:func:`integers_of`), and saves the tests.

Names that begin with an underscore are the compiler's; programs have none.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator, Set
from types import CodeType
from typing import Any, Final, TypeVar

from validator.primitives.limits import INTEGER_BITS, INTEGER_LIMIT, MAX_CALL_DEPTH, MAX_KEY_TEXT
from validator.pvm.compiler.charges import Comprehension, element_cost, entry_cost, pieces, statement_cost, turn_cost
from validator.pvm.compiler.weights import BYTES_PER_CYCLE
from validator.pvm.language.api import CONSTANTS, HOST_CALLS, HOST_READS, METHODS, STATIC_METHODS
from validator.pvm.language.subset import Function, Method, Program, stored_names
from validator.pvm.language.trees import parts_of, walk

FILE_NAME: Final = "<actor>"
"""Of compiled programs, as tracebacks show it."""
LEFT: Final = "_left"
DEPTH: Final = "_depth"
FUNCTION: Final = "_f_"
TEMPORARY: Final = "_t"
MAX_GUARDS: Final = 2_500
"""Places of a program where Python's own operator stands behind a test. What is beyond them calls operations alone, so
that the time that compiling takes is bounded. No program has as many that can be deployed with the default parameters:
its tokens cost more than a block's lane."""
LONGEST_PLAIN_TEXT: Final = BYTES_PER_CYCLE - 1
"""Python itself compares with a text or bytes written out, up to this length, with a number, None, True and False."""

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "_add",
    ast.Sub: "_sub",
    ast.Mult: "_mult",
    ast.FloorDiv: "_floordiv",
    ast.Mod: "_mod",
    ast.Pow: "_pow",
    ast.LShift: "_lshift",
    ast.RShift: "_rshift",
    ast.BitAnd: "_bitand",
    ast.BitOr: "_bitor",
    ast.BitXor: "_bitxor",
}
_IN_PLACE: Final[dict[type[ast.operator], str]] = {ast.Add: "_add_in_place", ast.Mult: "_mult_in_place"}
_NEVER_LARGER: Final = (ast.FloorDiv, ast.Mod)
"""Of two integers that fit, the result fits."""
_INLINE: Final = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor)
_COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "_eq",
    ast.NotEq: "_eq",
    ast.Lt: "_lt",
    ast.LtE: "_le",
    ast.Gt: "_gt",
    ast.GtE: "_ge",
    ast.In: "_contains",
    ast.NotIn: "_contains",
}
_INTEGER_BUILTINS: Final = frozenset({"len", "ord", "abs", "int"})
_INTEGER_READS: Final = frozenset(name for name, (kind, _) in HOST_READS.items() if kind == "int")


def compile_program(program: Program, *, observed: bool = False, guards: int = MAX_GUARDS) -> CodeType:
    """The code of a function that gives the program's methods by name. Its names are those of the operations, and its
    one free variable holds the cycles that are left.

    With ``observed``, each piece also says by ``_observe(number)`` that it runs; for the profiler. How many ``guards``
    there are changes how fast the program is and nothing else.
    """
    compiler = _Compiler(program, observed, guards)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Python thinks of a program must not depend on how it was started
        module = compile(compiler.module(), FILE_NAME, "exec", dont_inherit=True, optimize=0)
    return _only_code_in(_only_code_in(module))


def _only_code_in(code: CodeType) -> CodeType:
    (inner,) = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return inner


def piece_lines(program: Program) -> list[list[tuple[int, int]]]:
    """Of each piece, in the order of their numbers: what it charges, by line."""
    compiler = _Compiler(program, observed=True, guards=0)
    compiler.module()
    return compiler.lines


LOAD, STORE, IS, IS_NOT = ast.Load(), ast.Store(), ast.Is(), ast.IsNot()
"""One of each, as Python's own parser has it: they are half of all nodes otherwise."""

# --- building blocks --------------------------------------------------------------------------------------------------


def _name(name: str) -> ast.Name:
    return ast.Name(name, LOAD)


def _store(name: str) -> ast.Name:
    return ast.Name(name, STORE)


def _constant(value: Any) -> ast.Constant:
    return ast.Constant(value)


def _call(function: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(_name(function), list(arguments), [])


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([_store(name)], value)


def _is_of(value: ast.expr, kind: str) -> ast.Compare:
    """A test of a value's class: ``int``, ``str``, ``list`` or ``dict``."""
    return ast.Compare(ast.Attribute(value, "__class__", LOAD), [IS], [_name(f"_{kind}")])


def _is_int(value: ast.expr) -> ast.Compare:
    return _is_of(value, "int")


def _is_simple(node: ast.expr) -> bool:
    """Whether evaluating it twice changes nothing and costs little."""
    return isinstance(node, ast.Name | ast.Constant)


def _is_short(node: ast.expr) -> bool:
    """Whether it is written out, and compared for nothing more."""
    if not isinstance(node, ast.Constant):
        return False
    return not isinstance(node.value, str | bytes) or len(node.value) <= LONGEST_PLAIN_TEXT


def _is_written_key(node: ast.expr) -> bool:
    """Whether it is a text or bytes written out that may be a dict's key."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and len(node.value) <= MAX_KEY_TEXT


def _place(tree: ast.AST) -> None:
    """Give every node a place, its parent's where it has none of its own."""
    waiting: list[tuple[Any, int]] = [(tree, 1)]
    while waiting:
        node, line = waiting.pop()
        if node._attributes:
            line = getattr(node, "lineno", line)
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
        waiting += [(part, line) for part in parts_of(node)]


_Made = TypeVar("_Made", bound=ast.stmt | ast.expr)


def _at(made: _Made, node: ast.AST) -> _Made:
    """What was made for a node is in its line."""
    line = getattr(node, "lineno", None)
    if line is not None:
        made.lineno = line
    return made


def _all_of(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


# --- which variables are integers -------------------------------------------------------------------------------------


Known = dict[ast.expr, bool]


def is_integer(node: ast.expr, names: Set[str], constants: dict[str, Any], known: Known | None = None) -> bool:
    """Whether an expression can give nothing but integers (truth values are none), if it gives anything.

    ``names`` hold integers alone; ``known`` is what was found out before.
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
    """The variables of a method that can hold nothing but integers; parameters hold whatever is passed.

    A variable that is found to hold something else is looked for in what other variables are bound to.
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
    """What each name is bound to, wherever it is; ``None`` for whatever cannot be said."""
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield name, value
            case ast.AugAssign(target=ast.Name(id=name) as target, op=operator, value=value):
                yield name, ast.BinOp(_name(target.id), operator, value)
            case ast.Assign(targets=[target]):
                yield from ((name, None) for name in stored_names(target))
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
                yield name, _constant(0)
            case ast.For(target=target):
                yield from ((name, None) for name in stored_names(target))
        for block in ("body", "orelse"):
            yield from _bindings(getattr(statement, block, []))


# --- the compiler -----------------------------------------------------------------------------------------------------


class _Compiler:
    """Builds one module's tree."""

    def __init__(self, program: Program, observed: bool, guards: int) -> None:
        self._program = program
        self._guards_left = guards
        self._observed = observed
        self.lines: list[list[tuple[int, int]]] = []

    def module(self) -> ast.Module:
        """A function around ``_make()``, which gives the functions by method name."""
        tree = ast.parse(_SHELL)
        (shell,) = tree.body
        assert isinstance(shell, ast.FunctionDef)
        make = shell.body[-1]
        assert isinstance(make, ast.FunctionDef)
        functions = [_Function(self, method).definition() for method in self._program.methods.values()]
        names = [_constant(name) for name in self._program.methods]
        table = ast.Dict(list(names), [_name(FUNCTION + name) for name in self._program.methods])
        make.body += [*functions, ast.Return(table)]
        _place(tree)
        return tree

    @property
    def constants(self) -> dict[str, Any]:
        return self._program.constants

    def may_guard(self) -> bool:
        """Whether one more operator may stand behind a test."""
        self._guards_left -= 1
        return self._guards_left >= 0

    def has_method(self, name: str) -> bool:
        return name in self._program.methods

    def piece_number(self, lines: list[tuple[int, int]]) -> int | None:
        """The number of a piece that charges so much by line, where somebody observes."""
        if not self._observed:
            return None
        self.lines.append(lines)
        return len(self.lines) - 1


_SHELL: Final = f"""
def _shell():
    {LEFT} = 0
    def _make():
        nonlocal {LEFT}
"""


class _Function:
    """Builds one method's function."""

    def __init__(self, compiler: _Compiler, method: Method) -> None:
        self._compiler = compiler
        self._method = method
        self._integers = integers_of(method, compiler.constants)
        self._known: Known = {}
        """What is known of expressions where the open comprehensions' variables are what they are."""
        self._inner = 0
        """How many comprehensions are open."""
        self._temporaries = 0
        self._builders: dict[type[ast.expr], Callable[[Any], ast.expr]] = {
            ast.UnaryOp: self._unary,
            ast.Compare: self._compare,
            ast.Subscript: self._element,
            ast.Dict: self._dict,
            ast.ListComp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.Await: self._await,
            ast.Attribute: self._read,
            ast.Call: self._called,
        }
        self._renamed: dict[str, str] = {}
        """The variables of the comprehensions that are open, which are nobody else's."""

    def definition(self) -> Function:
        method = self._method
        arguments = [ast.arg(DEPTH), *(ast.arg(name) for name in method.parameters)]
        body: list[ast.stmt] = [ast.Nonlocal([LEFT])]
        deep = ast.Compare(_name(DEPTH), [ast.Gt()], [_constant(MAX_CALL_DEPTH)])
        body.append(ast.If(deep, [ast.Expr(_call("_too_deep"))], []))
        body += self._block(method.node.body, entry_cost(method.node), method.node.lineno)
        kind = ast.AsyncFunctionDef if method.is_async else ast.FunctionDef
        parameters = ast.arguments([], arguments, None, [], [], None, [])
        made = kind(FUNCTION + method.name, parameters, body, [])
        if "type_params" in made._fields:
            made.type_params = []  # type: ignore[union-attr]  # from Python 3.12 on
        return _at(made, method.node)

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _block(
        self, block: list[ast.stmt], extra: int = 0, head: int = 0, first: Iterable[ast.stmt] = ()
    ) -> list[ast.stmt]:
        """A block, each piece behind its charge; the first one pays ``extra`` too, what line ``head`` costs, and
        ``first`` stands behind that."""
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
                made += [_at(part, statement) for part in self._statement(statement)]
        return made

    def _charge(self, cycles: int, place: ast.stmt, lines: list[tuple[int, int]]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        number = self._compiler.piece_number(lines)
        if number is not None:
            made.append(ast.Expr(_call("_observe", _constant(number))))
        if cycles:
            made.append(ast.AugAssign(_store(LEFT), ast.Sub(), _constant(cycles)))
            spent = ast.Compare(_name(LEFT), [ast.Lt()], [_constant(0)])
            made.append(ast.If(spent, [ast.Expr(_call("_out"))], []))
        return [_at(part, place) for part in made]

    # --- statements ---------------------------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._assign(target, value)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.Expr(value=ast.Constant()):
                return [ast.Pass()]
            case ast.Expr(value=value):
                return [ast.Expr(self._expression(value))]
            case ast.If(test=test, body=body, orelse=orelse):
                return [ast.If(self._expression(test), self._block(body), self._block(orelse))]
            case ast.While(test=test, body=body):
                return [ast.While(self._expression(test), self._block(body, turn_cost(node), node.lineno), [])]
            case ast.For():
                return self._for(node)
            case ast.Return(value=value):
                return [ast.Return(None if value is None else self._expression(value))]
            case ast.Raise(exc=ast.Call(args=arguments)):
                return [ast.Expr(_call("_fail", *map(self._expression, arguments)))]
            case ast.Assert(test=test, msg=message):
                failed = _call("_fail", *([] if message is None else [self._expression(message)]))
                return [ast.If(ast.UnaryOp(ast.Not(), self._expression(test)), [ast.Expr(failed)], [])]
            case ast.Delete(targets=targets):
                return [ast.Expr(self._element_call("_del_item", target)) for target in targets]
        return [node]  # pass, break, continue

    def _for(self, node: ast.For) -> list[ast.stmt]:
        if isinstance(node.target, ast.Name):
            body = self._block(node.body, turn_cost(node), node.lineno)
            return [ast.For(node.target, self._iterated(node.iter), body, [])]
        element = self._temporary()
        unpacked = [_at(part, node) for part in self._unpack(node.target, _name(element))]
        body = self._block(node.body, turn_cost(node), node.lineno, unpacked)
        return [ast.For(_store(element), self._iterated(node.iter), body, [])]

    def _unpack(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Python's own unpacking, of anything but a dict."""
        if isinstance(value, ast.Tuple | ast.List):
            return [ast.Assign([target], value)]
        made, held = self._hold(value)
        assert isinstance(held, ast.Name | ast.Constant)
        unpacked = held if isinstance(held, ast.Constant) else self._parts(held)
        return [*made, ast.Assign([target], unpacked)]

    def _iterated(self, node: ast.expr) -> ast.expr:
        """What a loop goes over; ``range`` is counted as the loop goes."""
        match node:
            case ast.Call(func=ast.Name(id="range"), args=arguments):
                return _call("_range", *map(self._expression, arguments))
        return _call("_iterable", self._expression(node))

    def _assign(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        if not isinstance(target, ast.Subscript):
            assigned = self._expression(value)
            return [ast.Assign([target], assigned)] if isinstance(target, ast.Name) else self._unpack(target, assigned)
        is_simple = _is_simple(target.value) and _is_simple(target.slice)
        made, stored = self._hold(self._expression(value), is_simple)
        more, container = self._hold(self._expression(target.value), _is_simple(target.slice))
        most, index = self._hold(self._expression(target.slice))
        return [*made, *more, *most, *self._set_item(container, index, stored)]

    def _set_item(self, container: ast.expr, index: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Store at once into a list by an integer, and into a dict by a text that may be a key; the operation does what
        else there is."""
        stored: list[ast.stmt] = [ast.Assign([ast.Subscript(container, index, STORE)], value)]
        called: list[ast.stmt] = [ast.Expr(_call("_set_item", container, index, value))]
        if not self._compiler.may_guard():
            return called
        if is_integer(index, self._integers, {}):
            return [ast.If(_is_of(container, "list"), stored, called)]
        if isinstance(index, ast.Constant):
            is_key = isinstance(index.value, str) and _is_written_key(index)
            return [ast.If(_is_of(container, "dict"), stored, called)] if is_key else called
        into_list = _all_of([_is_of(container, "list"), _is_int(index)])
        is_short = ast.Compare(_call("_len", index), [ast.LtE()], [_constant(MAX_KEY_TEXT)])
        into_dict = _all_of([_is_of(container, "dict"), _is_of(index, "str"), is_short])
        return [ast.If(ast.BoolOp(ast.Or(), [into_list, into_dict]), stored, called)]

    def _hold(self, value: ast.expr, before_simple: bool = True) -> tuple[list[ast.stmt], ast.expr]:
        """A value that is to be used more than once: itself, or put into a variable first.

        A name, too, is looked at before what stands behind it and may fail: it may have no value yet.
        """
        if isinstance(value, ast.Constant) or (_is_simple(value) and before_simple):
            return [], value
        name = self._temporary()
        return [_assign(name, value)], _name(name)

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"_h{self._temporaries}"

    def _augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        if isinstance(node.target, ast.Name):
            left = _name(node.target.id)
            return [ast.Assign([_store(node.target.id)], self._in_place(node.op, left, node.value))]
        assert isinstance(node.target, ast.Subscript)
        made, container = self._hold(self._expression(node.target.value), _is_simple(node.target.slice))
        more, index = self._hold(self._expression(node.target.slice))
        before = _call("_item", container, index)
        name = self._temporary()
        kept = _assign(name, before)
        changed = self._temporary()
        result = _assign(changed, self._in_place(node.op, _name(name), node.value))
        return [*made, *more, kept, result, *self._set_item(container, index, _name(changed))]

    def _in_place(self, operator: ast.operator, left: ast.Name, right: ast.expr) -> ast.expr:
        return self._binary(operator, left, right, _IN_PLACE.get(type(operator)))

    def _element_call(self, function: str, target: ast.expr) -> ast.Call:
        assert isinstance(target, ast.Subscript)
        return _call(function, self._expression(target.value), self._expression(target.slice))

    # --- expressions --------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> ast.expr:
        return _at(self._build(node), node)

    def _build(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Constant():
                return _constant(node.value)
            case ast.Name(id=name):
                return _constant(CONSTANTS[name]) if name in CONSTANTS else _name(self._renamed.get(name, name))
            case ast.BinOp(left=left, op=operator, right=right):
                return self._binary(operator, left, right)
            case ast.BoolOp(op=operator, values=values):
                return ast.BoolOp(operator, self._all(values))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return ast.IfExp(*self._all([test, body, orelse]))
            case ast.List(elts=parts):
                return ast.List(self._all(parts), LOAD)
            case ast.Tuple(elts=parts):
                return ast.Tuple(self._all(parts), LOAD)
        return self._builders[type(node)](node)

    def _all(self, nodes: list[ast.expr]) -> list[ast.expr]:
        return [self._expression(node) for node in nodes]

    def _is_integer(self, node: ast.expr) -> bool:
        return is_integer(node, self._integers, self._compiler.constants, self._known)

    def _t(self) -> str:
        """The variable that a test puts its value into; inside a comprehension another one, which it shares."""
        return f"{TEMPORARY}{self._inner}" if self._inner else TEMPORARY

    def _fitting(self, result: ast.expr) -> ast.Compare:
        """A test that an integer fits, which leaves it in a variable."""
        held = ast.NamedExpr(_store(self._t()), result)
        bounds = [_constant(-INTEGER_LIMIT + 1), held, _constant(INTEGER_LIMIT - 1)]
        return ast.Compare(bounds[0], [ast.LtE(), ast.LtE()], bounds[1:])

    def _binary(self, operator: ast.operator, left: ast.expr, right: ast.expr, in_place: str | None = None) -> ast.expr:
        function = in_place or _BINARY[type(operator)]
        one, other = self._expression(left), self._expression(right)
        are_integers = self._is_integer(left), self._is_integer(right)
        small_shift = isinstance(right, ast.Constant) and right.value.__class__ is int and right.value <= INTEGER_BITS
        if isinstance(operator, ast.LShift) and all(are_integers) and small_shift:
            return self._or_overflow(ast.BinOp(one, operator, other))
        if isinstance(operator, ast.RShift) and all(are_integers) and small_shift:
            return ast.BinOp(one, operator, other)
        if not isinstance(operator, _INLINE) or not self._compiler.may_guard():
            return _call(function, one, other)
        if all(are_integers):
            plain = ast.BinOp(one, operator, other)
            return plain if isinstance(operator, _NEVER_LARGER) else self._or_overflow(plain)
        return self._guarded(operator, one, other, are_integers, function)

    def _or_overflow(self, result: ast.expr) -> ast.expr:
        return ast.IfExp(self._fitting(result), _name(self._t()), _call("_overflow"))

    def _guarded(
        self, operator: ast.operator, one: ast.expr, other: ast.expr, are_integers: tuple[bool, bool], function: str
    ) -> ast.expr:
        """Python's own operator where both are integers and the result fits, the operation otherwise."""
        tests: list[ast.expr] = []
        used: list[ast.expr] = []
        for value, is_known in zip((one, other), are_integers, strict=True):
            if not _is_simple(value):
                held = self._temporary()
                used.append(_name(held))
                tests.append(_is_int(ast.NamedExpr(_store(held), value)))
            else:
                used.append(value)
                # a name is looked at before what stands to its right, since it may have no value yet
                tests += [] if is_known and (value is other or _is_simple(other)) else [_is_int(value)]
        if len(tests) > 1:  # both are looked at in any case, the left one first
            tests = [ast.BinOp(tests[0], ast.BitAnd(), tests[1])] if not _is_simple(other) else tests
        result: ast.expr = ast.BinOp(used[0], operator, used[1])
        if not isinstance(operator, _NEVER_LARGER):
            tests.append(self._fitting(result))
            result = _name(self._t())
        return ast.IfExp(_all_of(tests), result, _call(function, *used))

    def _unary(self, node: ast.UnaryOp) -> ast.expr:
        operand = self._expression(node.operand)
        if isinstance(node.op, ast.Not):
            return ast.UnaryOp(ast.Not(), operand)
        if isinstance(node.op, ast.Invert):
            return _call("_invert", operand)
        if self._is_integer(node.operand):
            return ast.UnaryOp(node.op, operand)
        return _call("_neg" if isinstance(node.op, ast.USub) else "_pos", operand)

    def _compare(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        if len(node.ops) == 1:
            return self._comparison(node.ops[0], *operands)
        if all(self._is_plain(*pair) for pair in zip(node.ops, operands, operands[1:], strict=False)):
            return ast.Compare(self._expression(node.left), node.ops, list(map(self._expression, node.comparators)))
        return self._chain(node.ops, operands)

    def _chain(self, operators: list[ast.cmpop], operands: list[ast.expr]) -> ast.expr:
        """``a < b < c`` as ``a < b and b < c``, with each value found once, and only where it is needed."""
        tests: list[ast.expr] = []
        left = self._expression(operands[0])
        for place, operator in enumerate(operators):
            right = self._expression(operands[place + 1])
            used = right
            if not _is_simple(right):
                held = self._temporary()
                used, right = _name(held), ast.NamedExpr(_store(held), right)
            if self._is_plain(operator, operands[place], operands[place + 1]):
                tests.append(ast.Compare(left, [operator], [right]))
            else:
                known = self._is_integer(operands[place]), self._is_integer(operands[place + 1])
                tests.append(self._compared(operator, left, right, known))
            left = used
        return ast.BoolOp(ast.And(), tests)

    def _is_plain(self, operator: ast.cmpop, left: ast.expr, right: ast.expr) -> bool:
        """Whether Python's own comparison costs the same whatever the values are."""
        if isinstance(operator, ast.Is | ast.IsNot):
            return True
        if isinstance(operator, ast.In | ast.NotIn):
            return False
        return any(map(_is_short, (left, right))) or (self._is_integer(left) and self._is_integer(right))

    def _comparison(self, operator: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
        one, other = self._expression(left), self._expression(right)
        if self._is_plain(operator, left, right):
            return ast.Compare(one, [operator], [other])
        return self._compared(operator, one, other, (self._is_integer(left), self._is_integer(right)))

    def _compared(
        self, operator: ast.cmpop, one: ast.expr, other: ast.expr, are_integers: tuple[bool, bool]
    ) -> ast.expr:
        """Python's own comparison where both are integers, the operation otherwise."""
        is_other = isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot)
        if is_other or not self._compiler.may_guard():
            return self._by_operation(operator, one, other)
        tests: list[ast.expr] = []
        used: list[ast.expr] = []
        for value, is_known in zip((one, other), are_integers, strict=True):
            if is_known and _is_simple(value) and (value is other or _is_simple(other)):
                used.append(value)  # as in _guarded
                continue
            is_held = isinstance(value, ast.NamedExpr)
            held = value.target.id if isinstance(value, ast.NamedExpr) else self._temporary()
            used.append(value if _is_simple(value) else _name(held))
            tests.append(_is_int(value if _is_simple(value) or is_held else ast.NamedExpr(_store(held), value)))
        is_usual = _all_of(tests) if _is_simple(other) else ast.BinOp(tests[0], ast.BitAnd(), tests[1])
        return ast.IfExp(is_usual, ast.Compare(used[0], [operator], [used[1]]), self._by_operation(operator, *used))

    def _by_operation(self, operator: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
        if isinstance(operator, ast.Is | ast.IsNot):
            return ast.Compare(left, [operator], [right])
        called = _call(_COMPARISONS[type(operator)], left, right)
        if isinstance(operator, ast.NotEq | ast.NotIn):
            return ast.UnaryOp(ast.Not(), called)
        return called

    def _element(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.slice, ast.Slice):
            bounds = [_constant(None) if part is None else part for part in (node.slice.lower, node.slice.upper)]
            return _call("_slice", self._expression(node.value), *self._all(bounds))
        container, index = self._expression(node.value), self._expression(node.slice)
        if isinstance(index, ast.Constant) and isinstance(index.value, str | bytes):
            return ast.Subscript(container, index, LOAD)
        if isinstance(index, ast.Constant) and index.value.__class__ is not int:
            return _call("_item", container, index)
        if not self._compiler.may_guard():
            return _call("_item", container, index)
        return self._usual_element(container, index, self._is_integer(node.slice))

    def _usual_element(self, container: ast.expr, index: ast.expr, is_integer: bool) -> ast.expr:
        """Python's own where the index is a text, or an integer and the container no dict; the operation otherwise."""
        holder: ast.expr = container
        if not _is_simple(container):
            name = self._temporary()
            holder, container = ast.NamedExpr(_store(name), container), _name(name)
        held: ast.expr = index
        if not _is_simple(index):
            name = self._temporary()
            held, index = ast.NamedExpr(_store(name), index), _name(name)
        no_dict = ast.Compare(ast.Attribute(holder, "__class__", LOAD), [IS_NOT], [_name("_dict")])
        if is_integer:
            is_usual: ast.expr = no_dict
            if not _is_simple(held):
                is_usual = ast.BinOp(no_dict, ast.BitAnd(), _is_int(held))
        else:
            into_list = ast.BinOp(no_dict, ast.BitAnd(), _is_int(held))
            is_usual = ast.BoolOp(ast.Or(), [into_list, _is_of(index, "str")])
        return ast.IfExp(is_usual, ast.Subscript(container, index, LOAD), _call("_item", container, index))

    def _dict(self, node: ast.Dict) -> ast.expr:
        keys = [key for key in node.keys if key is not None]
        made = list(map(self._expression, node.values))
        if all(map(_is_written_key, keys)):
            return ast.Dict(list(map(self._expression, keys)), made)
        pairs = zip(map(self._expression, keys), made, strict=True)
        return _call("_dict_of", *(part for pair in pairs for part in pair))

    # --- comprehensions -----------------------------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension) -> ast.expr:
        """Each element is charged for by a condition that always holds, or ends the handler.

        What it goes over is found before it, since Python allows no ``:=`` there.
        """
        (generator,) = node.generators
        source = self._temporary()
        found = ast.NamedExpr(_store(source), self._iterated(generator.iter))
        before, renamed = self._integers, self._renamed
        names = set(stored_names(generator.target))
        is_range = isinstance(generator.target, ast.Name) and _is_range(generator.iter)
        self._integers = (before | names) if is_range else (before - names)
        before_known, self._known = self._known, {}
        self._renamed = renamed | {name: f"_c_{name}" for name in names}
        self._inner += 1
        cycles = element_cost(node)
        number = self._compiler.piece_number([(node.lineno, cycles)])
        tests = [self._paid(cycles, number)]
        loop = self._loop(generator.target, _name(source), tests)
        loop[-1].ifs += map(self._expression, generator.ifs)
        made: ast.expr
        if isinstance(node, ast.ListComp):
            made = ast.ListComp(self._expression(node.elt), loop)
        else:
            key = self._expression(node.key)
            key = key if _is_written_key(key) else _call("_key", key)
            made = ast.DictComp(key, self._expression(node.value), loop)
        self._inner -= 1
        self._integers, self._renamed, self._known = before, renamed, before_known
        return ast.Subscript(ast.Tuple([found, made], LOAD), _constant(1), LOAD)

    def _loop(self, target: ast.expr, source: ast.expr, paid: list[ast.expr]) -> list[ast.comprehension]:
        """One loop, or where an element is unpacked, a second one over it alone."""
        renamed = self._renamed_target(target)
        if isinstance(target, ast.Name):
            return [ast.comprehension(renamed, source, paid, 0)]
        element = f"_e{self._inner}"
        parts = ast.Tuple([self._parts(_name(element))], LOAD)
        return [ast.comprehension(_store(element), source, paid, 0), ast.comprehension(renamed, parts, [], 0)]

    def _parts(self, value: ast.Name) -> ast.expr:
        """What is unpacked into names: the value, or a dict's keys."""
        return ast.IfExp(_is_of(value, "dict"), _call("_parts", value), value)

    def _renamed_target(self, target: ast.expr) -> ast.expr:
        if isinstance(target, ast.Name):
            return _store(self._renamed[target.id])
        assert isinstance(target, ast.Tuple | ast.List)
        return ast.Tuple([self._renamed_target(part) for part in target.elts], STORE)

    def _paid(self, cycles: int, number: int | None) -> ast.expr:
        """``(_left := _left - n) >= 0 or _out()``, which is true; as a call where somebody observes."""
        if number is not None:
            return _call("_pay", _constant(cycles), _constant(number))
        left = ast.NamedExpr(_store(LEFT), ast.BinOp(_name(LEFT), ast.Sub(), _constant(cycles)))
        is_paid = ast.Compare(left, [ast.GtE()], [_constant(0)])
        return ast.BoolOp(ast.Or(), [is_paid, _call("_out")])

    # --- calls --------------------------------------------------------------------------------------------------------

    def _read(self, node: ast.Attribute) -> ast.expr:
        name = node.attr
        if name in self._compiler.constants:
            return _constant(self._compiler.constants[name])
        return _call(f"_r_{name}")

    def _called(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Name(id=name):
                return self._builtin(name, node.args)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._self_call(node, name)
            case ast.Attribute(value=ast.Name(id=kind), attr=name) if (kind, name) in STATIC_METHODS:
                return _call(f"_s_{kind}_{name}", *map(self._expression, node.args))
            case ast.Attribute(value=value, attr=name):
                assert name in METHODS
                return self._value_method(name, value, node.args)
        raise AssertionError("a call that was not checked")

    def _builtin(self, name: str, arguments: list[ast.expr]) -> ast.expr:
        made = list(map(self._expression, arguments))
        if name == "len":
            return _call("_len", *made)
        if name == "abs" and self._is_integer(arguments[0]):
            return _call("_abs", *made)
        return _call(f"_b_{name}", *made)

    def _self_call(self, node: ast.Call, name: str) -> ast.expr:
        arguments = list(map(self._expression, node.args))
        if self._compiler.has_method(name):
            deeper = ast.BinOp(_name(DEPTH), ast.Add(), _constant(1))
            return _call(FUNCTION + name, deeper, *arguments)
        if name == "spawn":
            (started,) = node.args
            assert isinstance(started, ast.Call) and isinstance(started.func, ast.Attribute)
            passed = map(self._expression, started.args)
            return _call("_spawn", _call(FUNCTION + started.func.attr, _constant(0), *passed))
        if name == "pause":
            return _call("_pause", _name(DEPTH))
        assert name in HOST_CALLS
        keywords = [ast.keyword(keyword.arg, self._expression(keyword.value)) for keyword in node.keywords]
        return ast.Call(_name(f"_h_{name}"), arguments, keywords)

    def _value_method(self, name: str, value: ast.expr, arguments: list[ast.expr]) -> ast.expr:
        holder, made = self._expression(value), list(map(self._expression, arguments))
        called = _call(f"_m_{name}", holder, *made)
        if not all(map(_is_simple, (holder, *made))):
            return called
        at_once = ast.Call(ast.Attribute(holder, name, LOAD), made, [])
        if name == "append":
            return ast.IfExp(_is_of(holder, "list"), at_once, called)
        if name == "get":
            is_usual = _all_of([_is_of(holder, "dict"), _is_of(made[0], "str")])
            return ast.IfExp(is_usual, at_once, called)
        return called

    def _await(self, node: ast.Await) -> ast.expr:
        made = self._expression(node.value)
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name != "spawn":
                is_direct = name == "pause" or self._compiler.has_method(name)
                return ast.Await(made if is_direct else self._waited(made))
        return ast.Await(self._waited(made))

    @staticmethod
    def _waited(task: ast.expr) -> ast.expr:
        return _call("_wait", _name(DEPTH), task)


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
