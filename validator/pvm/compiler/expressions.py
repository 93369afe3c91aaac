"""The compiler of expressions: it turns checked expressions into expressions that charge for their work."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from validator.primitives.limits import INTEGER_BITS, INTEGER_LIMIT
from validator.pvm.compiler import nodes
from validator.pvm.compiler.charges import Comprehension, element_cost
from validator.pvm.compiler.integers import Known, integers_of, is_integer
from validator.pvm.compiler.nodes import IS_NOT, LOAD, STORE
from validator.pvm.language.api import CONSTANTS, HOST_CALLS, METHODS, STATIC_METHODS
from validator.pvm.language.subset import Method, Program
from validator.pvm.language.trees import stored_names

LEFT: Final = "_left"
DEPTH: Final = "_depth"
FUNCTION: Final = "_f_"
TEMPORARY: Final = "_t"

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
_NEVER_LARGER: Final = (ast.FloorDiv, ast.Mod)
"""Operators whose result fits into the bit limit of integers if both operands do."""
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


class Unit:
    """One program being compiled."""

    def __init__(self, program: Program, observed: bool, guards: int) -> None:
        self.program = program
        self.constants = program.constants
        self.lines: list[list[tuple[int, int]]] = []
        """For each observed piece, in the order of their numbers: its charges, as pairs of line and cycles."""
        self._is_observed = observed
        self._guards_left = guards

    def may_guard(self) -> bool:
        """Whether one more operator may be compiled to Python's operator behind a test. The call counts it."""
        self._guards_left -= 1
        return self._guards_left >= 0

    def has_method(self, name: str) -> bool:
        return name in self.program.methods

    def piece_number(self, lines: list[tuple[int, int]]) -> int | None:
        """Give a new piece its number, and record its charges by line. ``None`` unless pieces are observed."""
        if not self._is_observed:
            return None
        self.lines.append(lines)
        return len(self.lines) - 1


class ExpressionCompiler:
    """Compiles the expressions of one method. A table maps each kind of syntax node to a method of this class."""

    def __init__(self, unit: Unit, method: Method) -> None:
        self._unit = unit
        self.integers = integers_of(method, unit.constants)
        """Variables that hold only integers."""
        self._known: Known = {}
        """Cached results of :func:`is_integer`. They are valid inside the innermost open comprehension."""
        self._inner = 0
        """Number of nested comprehensions that are being compiled."""
        self._temporaries = 0
        self._renamed: dict[str, str] = {}
        """For each variable of the open comprehensions, its name in the compiled code."""
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

    def build(self, node: ast.expr) -> ast.expr:
        return nodes.at(self._build_plain(node), node)

    def build_all(self, parts: list[ast.expr]) -> list[ast.expr]:
        return [self.build(part) for part in parts]

    def _build_plain(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Constant():
                return ast.Constant(node.value)
            case ast.Name(id=name):
                if name in CONSTANTS:
                    return ast.Constant(CONSTANTS[name])
                return nodes.name(self._renamed.get(name, name))
            case ast.BinOp(left=left, op=operator, right=right):
                return self.binary(operator, left, right)
            case ast.BoolOp(op=operator, values=values):
                return ast.BoolOp(operator, self.build_all(values))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return ast.IfExp(*self.build_all([test, body, orelse]))
            case ast.List(elts=parts):
                return ast.List(self.build_all(parts), LOAD)
            case ast.Tuple(elts=parts):
                return ast.Tuple(self.build_all(parts), LOAD)
        return self._builders[type(node)](node)

    def temporary(self) -> str:
        self._temporaries += 1
        return f"_h{self._temporaries}"

    def _is_integer(self, node: ast.expr) -> bool:
        return is_integer(node, self.integers, self._unit.constants, self._known)

    def _t(self) -> str:
        """Name of the variable that holds the value of a test. Each nesting level of comprehensions has one."""
        return f"{TEMPORARY}{self._inner}" if self._inner else TEMPORARY

    def iterated(self, node: ast.expr) -> ast.expr:
        """Compile the iterable of a loop. A ``range`` stays a range, without a list of its numbers."""
        match node:
            case ast.Call(func=ast.Name(id="range"), args=arguments):
                return nodes.call("_range", *map(self.build, arguments))
        return nodes.call("_iterable", self.build(node))

    def _fitting(self, result: ast.expr) -> ast.Compare:
        """A test whether an integer is within the bit limit. It also stores the integer in the test's variable."""
        held = ast.NamedExpr(nodes.store(self._t()), result)
        bounds = [ast.Constant(-INTEGER_LIMIT + 1), held, ast.Constant(INTEGER_LIMIT - 1)]
        return ast.Compare(bounds[0], [ast.LtE(), ast.LtE()], bounds[1:])

    def binary(self, operator: ast.operator, left: ast.expr, right: ast.expr, in_place: str | None = None) -> ast.expr:
        function = in_place or _BINARY[type(operator)]
        one, other = self.build(left), self.build(right)
        are_integers = self._is_integer(left), self._is_integer(right)
        small_shift = isinstance(right, ast.Constant) and right.value.__class__ is int and right.value <= INTEGER_BITS
        if isinstance(operator, ast.LShift) and all(are_integers) and small_shift:
            return self._or_overflow(ast.BinOp(one, operator, other))
        if isinstance(operator, ast.RShift) and all(are_integers) and small_shift:
            return ast.BinOp(one, operator, other)
        if not isinstance(operator, _INLINE) or not self._unit.may_guard():
            return nodes.call(function, one, other)
        if all(are_integers):
            plain = ast.BinOp(one, operator, other)
            return plain if isinstance(operator, _NEVER_LARGER) else self._or_overflow(plain)
        return self._guarded(operator, one, other, are_integers, function)

    def _or_overflow(self, result: ast.expr) -> ast.expr:
        return ast.IfExp(self._fitting(result), nodes.name(self._t()), nodes.call("_overflow"))

    def _guarded(
        self, operator: ast.operator, one: ast.expr, other: ast.expr, are_integers: tuple[bool, bool], function: str
    ) -> ast.expr:
        """Compile a binary operator to a test, with Python's operator if both operands are integers and the result
        fits, and a call of the operation otherwise."""
        tests: list[ast.expr] = []
        used: list[ast.expr] = []
        for value, is_known in zip((one, other), are_integers, strict=True):
            if not nodes.is_simple(value):
                held = self.temporary()
                used.append(nodes.name(held))
                tests.append(nodes.is_int(ast.NamedExpr(nodes.store(held), value)))
            else:
                used.append(value)
                # a name is read before anything to its right, since it may have no value yet
                tests += [] if is_known and (value is other or nodes.is_simple(other)) else [nodes.is_int(value)]
        if len(tests) > 1:  # both are tested in any case, the left one first
            tests = [ast.BinOp(tests[0], ast.BitAnd(), tests[1])] if not nodes.is_simple(other) else tests
        result: ast.expr = ast.BinOp(used[0], operator, used[1])
        if not isinstance(operator, _NEVER_LARGER):
            tests.append(self._fitting(result))
            result = nodes.name(self._t())
        return ast.IfExp(nodes.all_of(tests), result, nodes.call(function, *used))

    def _unary(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.build(node.operand)
        if isinstance(node.op, ast.Not):
            return ast.UnaryOp(ast.Not(), operand)
        if isinstance(node.op, ast.Invert):
            return nodes.call("_invert", operand)
        if self._is_integer(node.operand):
            return ast.UnaryOp(node.op, operand)
        return nodes.call("_neg" if isinstance(node.op, ast.USub) else "_pos", operand)

    def _compare(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        if len(node.ops) == 1:
            return self._comparison(node.ops[0], *operands)
        if all(self._is_plain(*pair) for pair in zip(node.ops, operands, operands[1:], strict=False)):
            return ast.Compare(self.build(node.left), node.ops, list(map(self.build, node.comparators)))
        return self._chain(node.ops, operands)

    def _chain(self, operators: list[ast.cmpop], operands: list[ast.expr]) -> ast.expr:
        """``a < b < c`` as ``a < b and b < c``, where each value is evaluated at most once, and only if needed."""
        tests: list[ast.expr] = []
        left = self.build(operands[0])
        for place, operator in enumerate(operators):
            right = self.build(operands[place + 1])
            used = right
            if not nodes.is_simple(right):
                held = self.temporary()
                used, right = nodes.name(held), ast.NamedExpr(nodes.store(held), right)
            if self._is_plain(operator, operands[place], operands[place + 1]):
                tests.append(ast.Compare(left, [operator], [right]))
            else:
                known = self._is_integer(operands[place]), self._is_integer(operands[place + 1])
                tests.append(self._compared(operator, left, right, known))
            left = used
        return ast.BoolOp(ast.And(), tests)

    def _is_plain(self, operator: ast.cmpop, left: ast.expr, right: ast.expr) -> bool:
        """Whether Python's own comparison costs the same for all values."""
        if isinstance(operator, ast.Is | ast.IsNot):
            return True
        if isinstance(operator, ast.In | ast.NotIn):
            return False
        return any(map(nodes.is_short, (left, right))) or (self._is_integer(left) and self._is_integer(right))

    def _comparison(self, operator: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
        one, other = self.build(left), self.build(right)
        if self._is_plain(operator, left, right):
            return ast.Compare(one, [operator], [other])
        return self._compared(operator, one, other, (self._is_integer(left), self._is_integer(right)))

    def _compared(
        self, operator: ast.cmpop, one: ast.expr, other: ast.expr, are_integers: tuple[bool, bool]
    ) -> ast.expr:
        """Compile a comparison to a test, with Python's comparison if both operands are integers, and a call of the
        operation otherwise."""
        is_other = isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot)
        if is_other or not self._unit.may_guard():
            return _by_operation(operator, one, other)
        tests: list[ast.expr] = []
        used: list[ast.expr] = []
        for value, is_known in zip((one, other), are_integers, strict=True):
            if is_known and nodes.is_simple(value) and (value is other or nodes.is_simple(other)):
                used.append(value)  # as in _guarded
                continue
            is_held = isinstance(value, ast.NamedExpr)
            held = value.target.id if isinstance(value, ast.NamedExpr) else self.temporary()
            used.append(value if nodes.is_simple(value) else nodes.name(held))
            is_ready = nodes.is_simple(value) or is_held
            tests.append(nodes.is_int(value if is_ready else ast.NamedExpr(nodes.store(held), value)))
        is_usual = nodes.all_of(tests) if nodes.is_simple(other) else ast.BinOp(tests[0], ast.BitAnd(), tests[1])
        return ast.IfExp(is_usual, ast.Compare(used[0], [operator], [used[1]]), _by_operation(operator, *used))

    def _element(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.slice, ast.Slice):
            bounds = [ast.Constant(None) if part is None else part for part in (node.slice.lower, node.slice.upper)]
            return nodes.call("_slice", self.build(node.value), *self.build_all(bounds))
        container, index = self.build(node.value), self.build(node.slice)
        if isinstance(index, ast.Constant) and isinstance(index.value, str | bytes):
            return ast.Subscript(container, index, LOAD)
        if isinstance(index, ast.Constant) and index.value.__class__ is not int:
            return nodes.call("_item", container, index)
        if not self._unit.may_guard():
            return nodes.call("_item", container, index)
        return self._usual_element(container, index, self._is_integer(node.slice))

    def _usual_element(self, container: ast.expr, index: ast.expr, is_integer: bool) -> ast.expr:
        """Compile an access to an element: Python's own access for the usual values, otherwise the operation.

        Usual are a text as the index, and an integer as the index of anything except a dict.
        """
        holder: ast.expr = container
        if not nodes.is_simple(container):
            name = self.temporary()
            holder, container = ast.NamedExpr(nodes.store(name), container), nodes.name(name)
        held: ast.expr = index
        if not nodes.is_simple(index):
            name = self.temporary()
            held, index = ast.NamedExpr(nodes.store(name), index), nodes.name(name)
        no_dict = ast.Compare(ast.Attribute(holder, "__class__", LOAD), [IS_NOT], [nodes.name("_dict")])
        if is_integer:
            is_usual: ast.expr = no_dict
            if not nodes.is_simple(held):
                is_usual = ast.BinOp(no_dict, ast.BitAnd(), nodes.is_int(held))
        else:
            into_list = ast.BinOp(no_dict, ast.BitAnd(), nodes.is_int(held))
            is_usual = ast.BoolOp(ast.Or(), [into_list, nodes.is_of(index, "str")])
        return ast.IfExp(is_usual, ast.Subscript(container, index, LOAD), nodes.call("_item", container, index))

    def _dict(self, node: ast.Dict) -> ast.expr:
        keys = [key for key in node.keys if key is not None]
        made = list(map(self.build, node.values))
        if all(map(nodes.is_written_key, keys)):
            return ast.Dict(list(map(self.build, keys)), made)
        pairs = zip(map(self.build, keys), made, strict=True)
        return nodes.call("_dict_of", *(part for pair in pairs for part in pair))

    def _comprehension(self, node: Comprehension) -> ast.expr:
        """Compile a comprehension. It gets a condition that charges for each element, and is true or ends the handler.

        The iterable is evaluated before the comprehension, since Python allows no ``:=`` in it.
        """
        (generator,) = node.generators
        source = self.temporary()
        found = ast.NamedExpr(nodes.store(source), self.iterated(generator.iter))
        before, renamed = self.integers, self._renamed
        names = set(stored_names(generator.target))
        is_range = isinstance(generator.target, ast.Name) and nodes.is_range(generator.iter)
        self.integers = (before | names) if is_range else (before - names)
        before_known, self._known = self._known, {}
        self._renamed = renamed | {name: f"_c_{name}" for name in names}
        self._inner += 1
        cycles = element_cost(node)
        number = self._unit.piece_number([(node.lineno, cycles)])
        tests = [_paid(cycles, number)]
        loop = self._loop(generator.target, nodes.name(source), tests)
        loop[-1].ifs += map(self.build, generator.ifs)
        made: ast.expr
        if isinstance(node, ast.ListComp):
            made = ast.ListComp(self.build(node.elt), loop)
        else:
            key = self.build(node.key)
            key = key if nodes.is_written_key(key) else nodes.call("_key", key)
            made = ast.DictComp(key, self.build(node.value), loop)
        self._inner -= 1
        self.integers, self._renamed, self._known = before, renamed, before_known
        return ast.Subscript(ast.Tuple([found, made], LOAD), ast.Constant(1), LOAD)

    def _loop(self, target: ast.expr, source: ast.expr, paid: list[ast.expr]) -> list[ast.comprehension]:
        """Make the loop of a comprehension. If its elements are unpacked, a second loop over one element does that."""
        renamed = self._renamed_target(target)
        if isinstance(target, ast.Name):
            return [ast.comprehension(renamed, source, paid, 0)]
        element = f"_e{self._inner}"
        parts = ast.Tuple([parts_of_value(nodes.name(element))], LOAD)
        return [ast.comprehension(nodes.store(element), source, paid, 0), ast.comprehension(renamed, parts, [], 0)]

    def _renamed_target(self, target: ast.expr) -> ast.expr:
        if isinstance(target, ast.Name):
            return nodes.store(self._renamed[target.id])
        assert isinstance(target, ast.Tuple | ast.List)
        return ast.Tuple([self._renamed_target(part) for part in target.elts], STORE)

    def _read(self, node: ast.Attribute) -> ast.expr:
        name = node.attr
        if name in self._unit.constants:
            return ast.Constant(self._unit.constants[name])
        return nodes.call(f"_r_{name}")

    def _called(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Name(id=name):
                return self._builtin(name, node.args)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._self_call(node, name)
            case ast.Attribute(value=ast.Name(id=kind), attr=name) if (kind, name) in STATIC_METHODS:
                return nodes.call(f"_s_{kind}_{name}", *map(self.build, node.args))
            case ast.Attribute(value=value, attr=name):
                assert name in METHODS
                return self._value_method(name, value, node.args)
        raise AssertionError("a call that was not checked")

    def _builtin(self, name: str, arguments: list[ast.expr]) -> ast.expr:
        made = list(map(self.build, arguments))
        if name == "len":
            return nodes.call("_len", *made)
        if name == "abs" and self._is_integer(arguments[0]):
            return nodes.call("_abs", *made)
        return nodes.call(f"_b_{name}", *made)

    def _self_call(self, node: ast.Call, name: str) -> ast.expr:
        arguments = list(map(self.build, node.args))
        if self._unit.has_method(name):
            deeper = ast.BinOp(nodes.name(DEPTH), ast.Add(), ast.Constant(1))
            return nodes.call(FUNCTION + name, deeper, *arguments)
        if name == "spawn":
            (started,) = node.args
            assert isinstance(started, ast.Call) and isinstance(started.func, ast.Attribute)
            passed = map(self.build, started.args)
            return nodes.call("_spawn", nodes.call(FUNCTION + started.func.attr, ast.Constant(0), *passed))
        if name == "pause":
            return nodes.call("_pause", nodes.name(DEPTH))
        assert name in HOST_CALLS
        keywords = [ast.keyword(keyword.arg, self.build(keyword.value)) for keyword in node.keywords]
        return ast.Call(nodes.name(f"_h_{name}"), arguments, keywords)

    def _value_method(self, name: str, value: ast.expr, arguments: list[ast.expr]) -> ast.expr:
        holder, made = self.build(value), list(map(self.build, arguments))
        called = nodes.call(f"_m_{name}", holder, *made)
        if not all(map(nodes.is_simple, (holder, *made))):
            return called
        at_once = ast.Call(ast.Attribute(holder, name, LOAD), made, [])
        if name == "append":
            return ast.IfExp(nodes.is_of(holder, "list"), at_once, called)
        if name == "get":
            is_usual = nodes.all_of([nodes.is_of(holder, "dict"), nodes.is_of(made[0], "str")])
            return ast.IfExp(is_usual, at_once, called)
        return called

    def _await(self, node: ast.Await) -> ast.expr:
        made = self.build(node.value)
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name != "spawn":
                is_direct = name == "pause" or self._unit.has_method(name)
                return ast.Await(made if is_direct else _waited(made))
        return ast.Await(_waited(made))


def _by_operation(operator: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
    if isinstance(operator, ast.Is | ast.IsNot):
        return ast.Compare(left, [operator], [right])
    called = nodes.call(_COMPARISONS[type(operator)], left, right)
    if isinstance(operator, ast.NotEq | ast.NotIn):
        return ast.UnaryOp(ast.Not(), called)
    return called


def parts_of_value(value: ast.Name) -> ast.expr:
    """An expression for the parts of a value that is unpacked into names: the value itself, or a dict's keys."""
    return ast.IfExp(nodes.is_of(value, "dict"), nodes.call("_parts", value), value)


def _paid(cycles: int, number: int | None) -> ast.expr:
    """An expression that charges cycles, and is true unless it ends the handler.

    It is ``(_left := _left - n) >= 0 or _out()``, or a call of ``_pay`` if pieces are observed.
    """
    if number is not None:
        return nodes.call("_pay", ast.Constant(cycles), ast.Constant(number))
    left = ast.NamedExpr(nodes.store(LEFT), ast.BinOp(nodes.name(LEFT), ast.Sub(), ast.Constant(cycles)))
    is_paid = ast.Compare(left, [ast.GtE()], [ast.Constant(0)])
    return ast.BoolOp(ast.Or(), [is_paid, nodes.call("_out")])


def _waited(task: ast.expr) -> ast.expr:
    return nodes.call("_wait", nodes.name(DEPTH), task)
