"""A second interpreter of the language of actors: it walks a program's own tree and charges as it goes.

It shares nothing with the VM but the tables (names, limits, weights) and the host, and is written for being obviously
right, not for speed: every evaluation is a generator, so that any of them may give its task's turn away. Dicts are
Python's own, keys as they are. What each thing costs is said once more here, in another way than
:mod:`validator.pvm.compiler.charges` and :mod:`validator.pvm.runtime.operations` do: the nodes that a piece evaluates
are listed, and each has its own price.
"""

from __future__ import annotations

import ast
import operator
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from validator.chain.records import Watch
from validator.execution.handler_context import HandlerContext
from validator.primitives.codec import keccak256
from validator.primitives.costs import READ_CONTEXT_CYCLES
from validator.primitives.errors import HandlerFailure, OutOfCycles
from validator.primitives.limits import (
    DICT_KEY_LIMIT,
    INTEGER_LIMIT,
    MAX_CALL_DEPTH,
    MAX_COMPARED_DEPTH,
    MAX_ELEMENTS,
    MAX_ERROR_TEXT,
    MAX_INTEGER_DIGITS,
    MAX_KEY_TEXT,
    MAX_STORAGE_KEY,
    MAX_TASKS,
    MAX_TEXT,
    MAX_VALUE_BYTES,
    MAX_VALUE_DEPTH,
)
from validator.pvm.compiler import weights as w
from validator.pvm.language.api import BUILTINS, CONSTANTS, HOST_CALLS, HOST_READS
from validator.pvm.runtime.host import TIERS, ScheduleRequest

Value = Any
Names = dict[str, Value]
Steps = Generator["Task | None", None, Any]
LITERAL = 31
"""Texts written out that are no longer are compared for nothing more."""
TEXTS = (str, bytes)
SEQUENCES = (list, tuple)
CONTAINERS = (list, tuple, dict)
LOOPS = (ast.While, ast.For)
COMPREHENSIONS = (ast.ListComp, ast.DictComp)
COMPARED: dict[type[ast.cmpop], Callable[[int], bool]] = {
    ast.Lt: lambda sign: sign < 0,
    ast.LtE: lambda sign: sign <= 0,
    ast.Gt: lambda sign: sign > 0,
    ast.GtE: lambda sign: sign >= 0,
}
NUMERIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}


class Return(Exception):
    """A method returns."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class Break(Exception):
    """A loop ends."""


class Continue(Exception):
    """A loop goes on with its next turn."""


class Task:
    """What ``spawn`` gives."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.ended = False
        self.result: Value = None
        self.waiting: list[Task] = []


@lru_cache(maxsize=4)
def parsed(source: str) -> ast.Module:
    """A program runs several times, with other bounds; nothing changes its tree."""
    return ast.parse(source)


def fail(name: str) -> NoReturn:
    raise HandlerFailure(name)


def is_number(value: Value) -> bool:
    return type(value) in (int, bool)


def fitting(number: int) -> int:
    return number if abs(number) < INTEGER_LIMIT else fail("IntegerTooLarge")


def is_called(node: ast.AST, *names: str) -> bool:
    """Whether a node is a call of one of these on ``self``."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return name in names
    return False


# --- what a piece of a program costs ----------------------------------------------------------------------------------


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are evaluated with an expression; of a comprehension, only what it goes over."""
    yield node
    if isinstance(node, COMPREHENSIONS):
        yield from evaluated(node.generators[0].iter)
    else:
        for child in ast.iter_child_nodes(node):
            yield from evaluated(child)


def price(node: ast.AST) -> int:
    """Of an expression."""
    return sum(map(own_price, evaluated(node)))


def own_price(node: ast.AST) -> int:
    if isinstance(node, ast.Compare):
        return sum(w.NODES[ast.Compare] + w.OPERATORS.get(type(each), 0) for each in node.ops)
    base = w.NODES.get(type(node), 0)  # contexts, operators, keywords and loops' heads are no nodes of their own
    match node:
        case ast.BinOp(op=op) | ast.UnaryOp(op=op):
            return base + w.OPERATORS.get(type(op), 0)
        case ast.BoolOp(values=parts):
            return base * len(parts)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return base + w.DISPLAY_ELEMENT * len(parts)
        case ast.Dict(keys=keys):
            return base + 2 * w.DISPLAY_ELEMENT * len(keys) + w.MADE_KEY * sum(not is_written(key) for key in keys)
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in HOST_READS:
            return base + READ_CONTEXT_CYCLES + w.HOST_READ
        case ast.Await(value=awaited):
            is_direct = isinstance(awaited, ast.Call) and own_name(awaited) not in (None, "spawn")
            return base + (0 if is_direct else w.TASK_TURN)
        case ast.Call(func=ast.Name()):
            return base + w.BUILTIN
        case ast.Call():
            called = own_name(node)
            if called is None:
                return base + w.BUILTIN
            usual = w.HOST_CALL if called in HOST_CALLS else 0
            return base + {"spawn": w.TASK, "pause": w.TASK_TURN}.get(called, usual)
    return base


def own_name(node: ast.Call) -> str | None:
    """What of ``self`` is called."""
    match node.func:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return None


def is_written(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, TEXTS)


def entry_price(method: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Of entering a method."""
    waiting: list[ast.AST] = [*method.body]
    parts = 0
    while waiting:
        node = waiting.pop()
        parts += isinstance(node, ast.expr)
        waiting += ast.iter_child_nodes(node)
    beyond = parts - w.METHOD_PARTS_INCLUDED
    return w.OWN_CALL + (beyond // w.METHOD_PARTS_PER_CYCLE if beyond > 0 else 0)


def target_price(target: ast.expr) -> int:
    if isinstance(target, ast.Tuple | ast.List):
        return w.DISPLAY_ELEMENT * len(target.elts)
    return price(target) if isinstance(target, ast.Subscript) else 0


def statement_price(node: ast.stmt) -> int:
    """Of a statement, or of a compound one's head."""
    base = w.NODES[type(node)]
    match node:
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            return base + target_price(target) + price(value)
        case ast.AugAssign(target=target, op=op, value=value):
            return base + w.OPERATORS.get(type(op), 0) + 2 * target_price(target) + price(value)
        case ast.Delete(targets=targets):
            return sum(base + price(target) for target in targets)
        case ast.Raise(exc=ast.Call(args=arguments)):
            return base + sum(map(price, arguments))
        case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head):
            return base + price(head)
    return base + sum(map(price, ast.iter_child_nodes(node)))


def element_price(node: ast.ListComp | ast.DictComp) -> int:
    (loop,) = node.generators
    made = [node.elt] if isinstance(node, ast.ListComp) else [node.key, node.value]
    extra = w.MADE_KEY if isinstance(node, ast.DictComp) and not is_written(node.key) else 0
    return w.ITERATION + target_price(loop.target) + extra + sum(map(price, [*loop.ifs, *made]))


# --- running ----------------------------------------------------------------------------------------------------------


class Interpreter:
    """One run of one handler."""

    def __init__(self, source: str, context: HandlerContext) -> None:
        (shell,) = parsed(source).body
        assert isinstance(shell, ast.ClassDef)
        self.methods: dict[str, Any] = {}
        self.constants: Names = {}
        for node in shell.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.methods[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = ast.literal_eval(node.value)
        self.context = context
        self.ready: deque[Task] = deque()
        self.alive: set[Task] = set()
        self.library = Library(self.charge)
        self.host = Host(context, self.charge)

    def charge(self, cycles: int) -> None:
        meter = self.context.meter
        if meter.cycles_used + cycles > meter.cycles_limit:
            meter.cycles_used = meter.cycles_limit
            raise OutOfCycles
        meter.cycles_used += cycles

    def run(self, handler: str, payload: Value) -> Value:
        """Run a handler and all its tasks; what it returns."""
        first = self.start(self.call(handler, [payload], 0))
        while self.ready:
            self.turn(self.ready.popleft())
        if self.alive:
            fail("Deadlock")
        return first.result

    def start(self, steps: Steps) -> Task:
        if len(self.alive) >= MAX_TASKS:
            fail("TooManyTasks")
        task = Task(steps)
        self.alive.add(task)
        self.ready.append(task)
        return task

    def turn(self, task: Task) -> None:
        try:
            awaited = next(task.steps)
        except StopIteration as end:
            task.ended, task.result = True, end.value
            self.alive.discard(task)
            self.ready.extend(task.waiting)
        else:
            (self.ready if awaited is None else awaited.waiting).append(task)

    def call(self, name: str, arguments: list[Value], depth: int) -> Steps:
        if depth > MAX_CALL_DEPTH:
            fail("RecursionError")
        node = self.methods[name]
        names = dict(zip([each.arg for each in node.args.args[1:]], arguments, strict=True))
        try:
            yield from self.block(node.body, names, depth, entry_price(node))
        except Return as returned:
            return returned.value

    # --- statements ---------------------------------------------------------------------------------------------------

    def block(
        self,
        statements: list[ast.stmt],
        names: Names,
        depth: int,
        extra: int = 0,
        turn: tuple[ast.expr, Value] | None = None,
    ) -> Steps:
        """Statements, each straight-line piece paid for before it; ``turn`` is done once the first one is paid for."""
        is_paid = False
        for place, node in enumerate(statements):
            if not is_paid:
                ahead = statements[place:]
                ends = [i for i, each in enumerate(ahead, 1) if isinstance(each, ast.If | ast.While | ast.For)]
                piece = ahead[: ends[0]] if ends else ahead
                self.charge(extra + sum(map(statement_price, piece)))
                if turn is not None:
                    self.bind(*turn, names)
                extra, turn, is_paid = 0, None, True
            yield from self.statement(node, names, depth)
            is_paid = not isinstance(node, ast.If | ast.While | ast.For)

    def statement(self, node: ast.stmt, names: Names, depth: int) -> Steps:  # noqa: C901
        match node:
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                found = yield from self.value(value, names, depth)
                yield from self.store(target, found, names, depth)
            case ast.AugAssign():
                yield from self.augment(node, names, depth)
            case ast.Expr(value=value):
                yield from self.value(value, names, depth)
            case ast.Pass():
                pass
            case ast.If(test=test, body=body, orelse=orelse):
                found = yield from self.value(test, names, depth)
                yield from self.block(body if found else orelse, names, depth)
            case ast.While() | ast.For():
                try:
                    yield from self.loop(node, names, depth)
                except Break:
                    return
            case ast.Break():
                raise Break
            case ast.Continue():
                raise Continue
            case ast.Return(value=value):
                raise Return(None if value is None else (yield from self.value(value, names, depth)))
            case ast.Raise(exc=ast.Call(args=arguments)):
                found = yield from self.values(arguments, names, depth)
                self.give_up(*found)
            case ast.Assert(test=test, msg=message):
                if not (yield from self.value(test, names, depth)):
                    self.give_up(*(yield from self.values([message] if message else [], names, depth)))
            case ast.Delete(targets=targets):
                for target in targets:
                    assert isinstance(target, ast.Subscript)
                    holder, index = yield from self.values([target.value, target.slice], names, depth)
                    self.library.delete(holder, index)
            case _:
                raise AssertionError(node)

    def give_up(self, text: Value = "") -> NoReturn:
        fail("ActorError" + (f": {text[:MAX_ERROR_TEXT]}" if isinstance(text, str) and text else ""))

    def store(self, target: ast.expr, found: Value, names: Names, depth: int) -> Steps:
        if isinstance(target, ast.Subscript):
            holder, index = yield from self.values([target.value, target.slice], names, depth)
            self.library.put(holder, index, found)
        else:
            self.bind(target, found, names)

    def bind(self, target: ast.expr, found: Value, names: Names) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = found
            return
        assert isinstance(target, ast.Tuple | ast.List)
        parts = self.library.gone_over(found)
        if len(parts) != len(target.elts):
            fail("ValueError")
        for part, each in zip(target.elts, parts, strict=True):
            assert isinstance(part, ast.Name)
            names[part.id] = each

    def augment(self, node: ast.AugAssign, names: Names, depth: int) -> Steps:
        if isinstance(node.target, ast.Name):
            before = self.name(node.target.id, names)
            right = yield from self.value(node.value, names, depth)
            names[node.target.id] = self.library.in_place(node.op, before, right)
            return
        assert isinstance(node.target, ast.Subscript)
        holder, index = yield from self.values([node.target.value, node.target.slice], names, depth)
        before = self.library.item(holder, index)
        right = yield from self.value(node.value, names, depth)
        self.library.put(holder, index, self.library.in_place(node.op, before, right))

    def loop(self, node: ast.While | ast.For, names: Names, depth: int) -> Steps:
        if isinstance(node, ast.For):
            source = yield from self.source(node.iter, names, depth)
            extra = w.ITERATION + target_price(node.target)
            for each in source:
                with suppress(Continue):
                    yield from self.block(node.body, names, depth, extra, (node.target, each))
            return
        while (yield from self.value(node.test, names, depth)):
            with suppress(Continue):
                yield from self.block(node.body, names, depth, w.ITERATION + price(node.test))

    def source(self, node: ast.expr, names: Names, depth: int) -> Steps:
        """What a loop goes over; a range is never made a list of."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            bounds = yield from self.values(node.args, names, depth)
            return self.library.counted(bounds)
        return self.library.gone_over((yield from self.value(node, names, depth)))

    # --- expressions --------------------------------------------------------------------------------------------------

    def values(self, nodes: list[Any], names: Names, depth: int) -> Steps:
        found = []
        for node in nodes:
            found.append((yield from self.value(node, names, depth)))  # noqa: PERF401  # no comprehension may yield
        return found

    def name(self, name: str, names: Names) -> Value:
        return names[name] if name in names else fail("NameError")

    def value(self, node: ast.expr, names: Names, depth: int) -> Steps:  # noqa: C901
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return CONSTANTS[name] if name in CONSTANTS else self.name(name, names)
            case ast.Attribute(attr=name):
                return self.constants[name] if name in self.constants else self.host.reading(name)
            case ast.BinOp(left=left, op=op, right=right):
                one, other = yield from self.values([left, right], names, depth)
                return self.library.binary(op, one, other)
            case ast.UnaryOp(op=op, operand=operand):
                return self.library.unary(op, (yield from self.value(operand, names, depth)))
            case ast.BoolOp(op=op, values=parts):
                for part in parts:
                    found = yield from self.value(part, names, depth)
                    if bool(found) is isinstance(op, ast.Or):
                        break
                return found
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen = yield from self.value(test, names, depth)
                return (yield from self.value(body if chosen else orelse, names, depth))
            case ast.Compare():
                return (yield from self.compare(node, names, depth))
            case ast.List(elts=parts):
                return (yield from self.values(parts, names, depth))
            case ast.Tuple(elts=parts):
                return tuple((yield from self.values(parts, names, depth)))
            case ast.Dict(keys=keys, values=values):
                pairs = []
                for key, each in zip(keys, values, strict=True):
                    pairs.append((yield from self.values([key, each], names, depth)))
                return {self.library.key(key): each for key, each in pairs}
            case ast.Subscript(value=holder, slice=ast.Slice(lower=lower, upper=upper)):
                bounds = [ast.Constant(None) if each is None else each for each in (lower, upper)]
                return self.library.slice(*(yield from self.values([holder, *bounds], names, depth)))
            case ast.Subscript(value=holder, slice=index):
                return self.library.item(*(yield from self.values([holder, index], names, depth)))
            case ast.ListComp() | ast.DictComp():
                return (yield from self.comprehension(node, names, depth))
            case ast.Await(value=awaited):
                return (yield from self.wait(awaited, names, depth))
            case ast.Call():
                return (yield from self.called(node, names, depth))
        raise AssertionError(node)

    def compare(self, node: ast.Compare, names: Names, depth: int) -> Steps:
        left = yield from self.value(node.left, names, depth)
        before = node.left
        for op, node_right in zip(node.ops, node.comparators, strict=True):
            right = yield from self.value(node_right, names, depth)
            is_free = any(isinstance(side, ast.Constant) and is_short(side.value) for side in (before, node_right))
            if not self.library.holds(op, left, right, is_free):
                return False
            left, before = right, node_right
        return True

    def comprehension(self, node: ast.ListComp | ast.DictComp, names: Names, depth: int) -> Steps:
        (loop,) = node.generators
        source = yield from self.source(loop.iter, names, depth)
        elements: list[Value] = []
        pairs: dict[Value, Value] = {}
        cycles = element_price(node)
        for each in source:
            self.charge(cycles)
            inner = dict(names)
            self.bind(loop.target, each, inner)
            for test in loop.ifs:
                if not (yield from self.value(test, inner, depth)):
                    break
            else:
                if isinstance(node, ast.ListComp):
                    elements.append((yield from self.value(node.elt, inner, depth)))
                else:
                    key = self.library.key((yield from self.value(node.key, inner, depth)))
                    pairs[key] = yield from self.value(node.value, inner, depth)
        return elements if isinstance(node, ast.ListComp) else pairs

    def wait(self, node: ast.expr, names: Names, depth: int) -> Steps:
        if is_called(node, "pause"):
            self.library.charge(w.TASK_LEVEL * depth)
            yield None
            return None
        if is_called(node, *self.methods):
            return (yield from self.value(node, names, depth))
        task = yield from self.value(node, names, depth)
        self.library.charge(w.TASK_LEVEL * depth)
        if type(task) is not Task:
            fail("TypeError")
        if not task.ended:
            yield task
        return task.result

    def called(self, node: ast.Call, names: Names, depth: int) -> Steps:
        if is_called(node, "spawn"):
            (started,) = node.args
            assert isinstance(started, ast.Call)
            name = own_name(started)
            assert name is not None
            arguments = yield from self.values(started.args, names, depth)
            return self.start(self.call(name, arguments, 0))
        holder = [node.func.value] if isinstance(node.func, ast.Attribute) and own_name(node) is None else []
        if holder and isinstance(holder[0], ast.Name) and holder[0].id in ("bytes", "int"):
            holder = []
        given = yield from self.values([*holder, *node.args], names, depth)
        named = {}
        for keyword in node.keywords:
            assert keyword.arg is not None
            named[keyword.arg] = yield from self.value(keyword.value, names, depth)
        own = own_name(node)
        if own in self.methods:
            return (yield from self.call(own, given, depth + 1))
        if own is not None:
            return self.host.called(own, given, named)
        if isinstance(node.func, ast.Name):
            assert node.func.id in BUILTINS
            return getattr(self.library, f"builtin_{node.func.id}")(*given)
        assert isinstance(node.func, ast.Attribute)
        kind = "method" if holder else "static"
        return getattr(self.library, f"{kind}_{node.func.attr}")(*given)


def is_short(value: Value) -> bool:
    return len(value) <= LITERAL if isinstance(value, TEXTS) else True


# --- values -----------------------------------------------------------------------------------------------------------


class Library:
    """Operators, builtins and methods of values."""

    def __init__(self, charge: Callable[[int], None]) -> None:
        self.charge = charge

    # --- what sizes cost ----------------------------------------------------------------------------------------------

    def looked_at(self, characters: int) -> None:
        self.charge(w.OPERATION + characters // w.BYTES_PER_CYCLE)

    def made(self, length: int, is_narrow: bool) -> None:
        """A new text or bytes."""
        if length > MAX_TEXT:
            fail("ValueTooLarge")
        self.looked_at(length if is_narrow else length * w.WIDE_TEXT)

    def searched(self, text: Value, part: Value, times: int = 1) -> None:
        places = 0 if len(part) > len(text) else len(text) - len(part) + 1
        each = len(part) if places <= w.SEARCHED_PLACES or len(part) < w.SEARCHED_PART else w.SEARCHED_PART
        self.looked_at(times * (len(text) * 4 + places * each))

    def copied(self, elements: int, cycles: int = w.ELEMENT) -> None:
        if elements > MAX_ELEMENTS:
            fail("ValueTooLarge")
        self.charge(w.OPERATION + elements * cycles)

    # --- operators ----------------------------------------------------------------------------------------------------

    def binary(self, op: ast.operator, left: Value, right: Value) -> Value:  # noqa: C901
        if isinstance(op, ast.Add) and type(left) is type(right) and isinstance(left, (*TEXTS, *SEQUENCES)):
            if isinstance(left, TEXTS):
                self.made(len(left) + len(right), narrow(left, right))
            else:
                self.copied(len(left) + len(right))
            return left + right
        if isinstance(op, ast.Mult) and not (is_number(left) and is_number(right)):
            return self.repeat(left, right)
        if not (is_number(left) and is_number(right)):
            fail("TypeError")
        if bool in (type(left), type(right)):
            self.charge(w.OPERATION)
        if type(op) in NUMERIC:
            return fitting(NUMERIC[type(op)](left, right))
        if isinstance(op, ast.FloorDiv | ast.Mod):
            if right == 0:
                fail("ZeroDivisionError")
            return int(left // right if isinstance(op, ast.FloorDiv) else left % right)
        if right < 0:
            fail("ValueError")
        if isinstance(op, ast.Pow):
            return self.power(int(left), int(right))
        if isinstance(op, ast.RShift):
            return int(left) >> min(right, 300)
        if left and right > 256:
            fail("IntegerTooLarge")
        return fitting(int(left) << right) if left else 0

    def power(self, base: int, exponent: int) -> int:
        self.charge(w.POWER)
        if abs(base) <= 1:
            return base ** (exponent % 2 + 2) if exponent else 1
        if exponent > 300:
            fail("IntegerTooLarge")
        return fitting(base**exponent)

    def repeat(self, left: Value, right: Value) -> Value:
        values, count = (right, left) if is_number(left) else (left, right)
        if not is_number(count):
            fail("TypeError")
        if isinstance(count, bool):
            self.charge(w.OPERATION)
        count = max(int(count), 0) if values else 0
        if isinstance(values, TEXTS):
            self.made(len(values) * count, narrow(values))
        elif isinstance(values, SEQUENCES):
            self.copied(len(values) * count)
        else:
            fail("TypeError")
        return values * count

    def in_place(self, op: ast.operator, left: Value, right: Value) -> Value:
        if isinstance(left, list) and isinstance(op, ast.Add):
            added = list(self.gone_over(right))
            self.copied(len(left) + len(added))
            self.charge(element(right) * len(added) - len(added))
            left.extend(added)
            return left
        found = self.binary(op, left, right)
        if isinstance(left, list) and isinstance(op, ast.Mult):
            left[:] = found
            return left
        return found

    def unary(self, op: ast.unaryop, value: Value) -> Value:
        if isinstance(op, ast.Not):
            return not value
        if not is_number(value):
            fail("TypeError")
        number = int(value)
        return {ast.USub: -number, ast.UAdd: number}[type(op)] if not isinstance(op, ast.Invert) else fitting(~number)

    def holds(self, op: ast.cmpop, left: Value, right: Value, is_free: bool) -> bool:
        """One comparison; ``is_free`` where a short text or the like is written out."""
        if isinstance(op, ast.Is | ast.IsNot):
            return (left is right) is isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            return self.contains(right, left) is isinstance(op, ast.In)
        before, self.charge = self.charge, (lambda _cycles: None) if is_free else self.charge
        try:
            if isinstance(op, ast.Eq | ast.NotEq):
                return self.equal(left, right) is isinstance(op, ast.Eq)
            return COMPARED[type(op)](self.order(left, right))
        finally:
            self.charge = before

    def equal(self, left: Value, right: Value, depth: int = MAX_COMPARED_DEPTH) -> bool:
        kind = type(left)
        if kind is int and type(right) is int:
            return bool(left == right)
        if kind in TEXTS and kind is type(right):
            self.looked_at(min(len(left), len(right)))
            return bool(left == right)
        if kind is not type(right) or kind not in CONTAINERS:
            self.charge(w.OPERATION)
            return bool(left == right) if is_number(left) and is_number(right) else left is right
        self.charge(w.CONTAINER_COMPARED)
        if len(left) != len(right):
            return False
        if depth == 0:
            fail("RecursionError")
        for key in list(left) if kind is dict else range(len(left)):
            self.charge(w.NODE_COMPARED)
            if kind is dict and key not in right:
                return False
            if not self.equal(left[key], right[key], depth - 1):
                return False
        return True

    def order(self, left: Value, right: Value, depth: int = MAX_COMPARED_DEPTH) -> int:
        if is_number(left) and is_number(right):
            self.charge(w.OPERATION if bool in (type(left), type(right)) else 0)
            return (left > right) - (left < right)
        if type(left) is not type(right) or not isinstance(left, (*TEXTS, *SEQUENCES)):
            fail("TypeError")
        if isinstance(left, TEXTS):
            self.looked_at(min(len(left), len(right)))
            return (left > right) - (left < right)
        self.charge(w.CONTAINER_COMPARED)
        if depth == 0:
            fail("RecursionError")
        for one, other in zip(left, right, strict=False):
            self.charge(w.NODE_COMPARED)
            if not self.equal(one, other, depth - 1):
                return self.order(one, other, depth - 1)
        return (len(left) > len(right)) - (len(left) < len(right))

    def contains(self, holder: Value, value: Value) -> bool:
        if isinstance(holder, dict):
            return self.looked_up(value) in holder
        if isinstance(holder, SEQUENCES):
            return self.place(holder, value) is not None
        if isinstance(holder, str) and isinstance(value, str):
            self.searched(holder, value)
            return value in holder
        if isinstance(holder, bytes) and (isinstance(value, bytes) or is_number(value)):
            self.searched(holder, value if isinstance(value, bytes) else b"")
            if is_number(value) and not 0 <= value <= 255:
                fail("ValueError")
            return value in holder
        fail("TypeError")

    def place(self, values: Value, wanted: Value) -> int | None:
        for place, each in enumerate(values):
            self.charge(w.NODE_COMPARED)
            if self.equal(each, wanted):
                return place
        return None

    # --- elements -----------------------------------------------------------------------------------------------------

    def looked_up(self, key: Value) -> Value:
        if not isinstance(key, (*TEXTS, int)):
            fail("TypeError")
        if is_number(key):
            self.charge(w.NUMBER_KEY)
        return key

    def key(self, key: Value) -> Value:
        self.looked_up(key)
        is_too_large = abs(key) >= DICT_KEY_LIMIT if is_number(key) else len(key) > MAX_KEY_TEXT
        return fail("KeyTooLarge") if is_too_large else key

    def inside(self, values: Value, index: Value) -> int:
        if not is_number(index):
            fail("TypeError")
        if isinstance(index, bool):
            self.charge(w.OPERATION)
        if index >= len(values) or index < -len(values):
            fail("IndexError")
        return int(index)

    def item(self, holder: Value, index: Value) -> Value:
        if isinstance(holder, dict):
            return holder[index] if self.looked_up(index) in holder else fail("KeyError")
        if not isinstance(holder, (*TEXTS, *SEQUENCES)):
            fail("TypeError")
        return holder[self.inside(holder, index)]

    def put(self, holder: Value, index: Value, value: Value) -> None:
        if isinstance(holder, dict):
            holder[self.key(index)] = value
        elif isinstance(holder, list):
            holder[self.inside(holder, index)] = value
        else:
            fail("TypeError")

    def delete(self, holder: Value, index: Value) -> None:
        if isinstance(holder, dict):
            if self.looked_up(index) not in holder:
                fail("KeyError")
            del holder[index]
        elif isinstance(holder, list):
            self.copied(len(holder))
            del holder[self.inside(holder, index)]
        else:
            fail("TypeError")

    def slice(self, holder: Value, lower: Value, upper: Value) -> Value:
        if any(not (bound is None or is_number(bound)) for bound in (lower, upper)):
            fail("TypeError")
        if not isinstance(holder, (*TEXTS, *SEQUENCES)):
            fail("TypeError")
        found = holder[lower:upper]
        if isinstance(holder, TEXTS):
            self.made(len(found), narrow(holder))
        else:
            self.copied(len(found))
        return found

    def gone_over(self, values: Value) -> Value:
        """What a loop goes over."""
        if isinstance(values, dict):
            self.copied(len(values))
            return list(values)
        return values if isinstance(values, (*TEXTS, *SEQUENCES)) else fail("TypeError")

    def counted(self, bounds: list[Value]) -> range:
        if not all(map(is_number, bounds)):
            fail("TypeError")
        if len(bounds) == 3 and bounds[2] == 0:
            fail("ValueError")
        return range(*map(int, bounds))

    # --- builtins -----------------------------------------------------------------------------------------------------

    def builtin_abs(self, number: Value) -> int:
        return abs(int(number)) if is_number(number) else fail("TypeError")

    def builtin_all(self, values: Value) -> bool:
        values = self.gone_over(values)
        self.copied(len(values), element(values))
        return all(map(bool, values))

    def builtin_any(self, values: Value) -> bool:
        values = self.gone_over(values)
        self.copied(len(values), element(values))
        return any(map(bool, values))

    def builtin_bool(self, value: Value) -> bool:
        return bool(value)

    def builtin_bytes(self, value: Value) -> bytes:
        if is_number(value):
            if value < 0:
                fail("ValueError")
            self.made(int(value), True)
            return bytes(int(value))
        if isinstance(value, bytes):
            return value
        if not isinstance(value, SEQUENCES):
            fail("TypeError")
        self.copied(len(value), w.MADE_ELEMENT)
        for part in value:
            if not is_number(part):
                fail("TypeError")
            if part not in range(256):
                fail("ValueError")
        return bytes(value)

    def builtin_chr(self, code: Value) -> str:
        if not is_number(code):
            fail("TypeError")
        return chr(code) if 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else fail("ValueError")

    def builtin_dict(self, value: Value = ()) -> dict[Value, Value]:
        if isinstance(value, dict):
            return self.method_copy(value)
        values = self.gone_over(value)
        self.copied(len(values))
        found = {}
        for pair in values:
            self.charge(w.PAIR)
            if not isinstance(pair, SEQUENCES) or len(pair) != 2:
                fail("ValueError")
            found[self.key(pair[0])] = pair[1]
        return found

    def builtin_enumerate(self, values: Value, start: Value = 0) -> list[Value]:
        if not is_number(start):
            fail("TypeError")
        values = self.gone_over(values)
        self.copied(len(values), w.MADE_PAIR + (element(values) - 1))
        fitting(start + len(values))
        return [(int(start) + place, each) for place, each in enumerate(values)]

    def builtin_int(self, value: Value) -> int:
        if is_number(value):
            return int(value)
        if not isinstance(value, str):
            fail("TypeError")
        self.charge(w.NUMBER_TEXT)
        digits = value.removeprefix("-")
        if not 1 <= len(digits) <= MAX_INTEGER_DIGITS or not set(digits) <= set("0123456789"):
            fail("ValueError")
        return fitting(int(value))

    def builtin_keccak256(self, data: Value) -> bytes:
        if not isinstance(data, bytes):
            fail("TypeError")
        self.charge(w.KECCAK + len(data) // w.KECCAK_BYTES_PER_CYCLE)
        return bytes(keccak256(data))

    def builtin_len(self, value: Value) -> int:
        return len(value) if isinstance(value, (*TEXTS, *CONTAINERS)) else fail("TypeError")

    def builtin_list(self, values: Value = ()) -> list[Value]:
        values = self.gone_over(values)
        self.copied(len(values), element(values))
        return list(values)

    def builtin_tuple(self, values: Value = ()) -> tuple[Value, ...]:
        return tuple(self.builtin_list(values))

    def builtin_reversed(self, values: Value) -> list[Value]:
        return self.builtin_list(values)[::-1]

    def builtin_max(self, *values: Value) -> Value:
        return self.extreme(values, 1)

    def builtin_min(self, *values: Value) -> Value:
        return self.extreme(values, -1)

    def extreme(self, values: Value, sign: int) -> Value:
        if len(values) == 1:
            values = self.gone_over(values[0])
        if not values:
            fail("ValueError")
        self.copied(len(values))
        best = values[0]
        for each in list(values)[1:]:
            self.charge(w.NODE_COMPARED)
            best = each if self.order(each, best) == sign else best
        return best

    def builtin_ord(self, character: Value) -> int:
        return ord(character) if isinstance(character, TEXTS) and len(character) == 1 else fail("TypeError")

    def builtin_range(self, *bounds: Value) -> list[int]:
        numbers = self.counted(list(bounds))
        span, step = (numbers.stop - numbers.start) * (1 if numbers.step > 0 else -1), abs(numbers.step)
        self.copied(max(0, (span + step - 1) // step), w.MADE_ELEMENT)
        return list(numbers)

    def builtin_sorted(self, values: Value, descending: Value = False) -> list[Value]:
        found = self.builtin_list(values)
        self.sort(found)
        return found[::-1] if descending else found

    def sort(self, values: list[Value]) -> None:
        self.copied(len(values))
        a_number = w.SORTED_ELEMENT * len(values) * max(1, len(values).bit_length())
        self.charge(w.SORT + a_number)
        width = max([self.sorted_width(each) for each in values] or [1])
        self.charge(a_number * width - a_number)
        kinds = [sorted_kind(each) for each in values]
        if any(kind != kinds[0] for kind in kinds):
            fail("TypeError")
        values.sort()

    def sorted_width(self, value: Value) -> int:
        if not isinstance(value, tuple):
            return 1 + (len(value) // w.BYTES_PER_CYCLE if isinstance(value, TEXTS) else 0)
        self.charge(w.CONTAINER_COMPARED)
        self.copied(len(value), w.SORTED_PART)
        return 1 + sum(self.sorted_width(part) for part in value if not isinstance(part, tuple))

    def builtin_str(self, value: Value) -> str:
        if isinstance(value, str):
            return value
        if not is_number(value):
            fail("TypeError")
        self.charge(w.NUMBER_TEXT)
        return str(value)

    def builtin_sum(self, values: Value) -> int:
        values = self.gone_over(values)
        self.copied(len(values), w.SUMMED_ELEMENT)
        total = 0
        for each in values:
            total = fitting(total + each) if is_number(each) else fail("TypeError")
        return total

    def builtin_zip(self, *values: Value) -> list[Value]:
        found = [self.gone_over(each) for each in values]
        for _ in found[1:]:
            self.charge(w.OPERATION)
        self.copied(min(map(len, found)), 2 + sum(map(element, found)))
        return list(zip(*found, strict=False))

    def static_fromhex(self, text: Value) -> bytes:
        if not isinstance(text, str):
            fail("TypeError")
        self.looked_at(12 * len(text))
        if len(text) % 2 or not set(text) <= set("0123456789abcdefABCDEF"):
            fail("ValueError")
        return bytes.fromhex(text)

    def static_from_bytes(self, data: Value) -> int:
        if not isinstance(data, bytes):
            fail("TypeError")
        return int.from_bytes(data, "big") if len(data) <= 32 else fail("IntegerTooLarge")

    # --- methods: lists -----------------------------------------------------------------------------------------------

    def needs(self, value: Value, *kinds: type) -> Value:
        return value if isinstance(value, kinds) else fail("TypeError")

    def method_append(self, values: Value, value: Value) -> None:
        self.needs(values, list).append(value)

    def method_extend(self, values: Value, others: Value) -> None:
        self.in_place(ast.Add(), self.needs(values, list), others)

    def method_insert(self, values: Value, index: Value, value: Value) -> None:
        if not is_number(index):
            fail("TypeError")
        self.copied(len(self.needs(values, list)))
        place = max(0, index + len(values)) if index < 0 else min(index, len(values))
        values[place:place] = [value]

    def method_pop(self, values: Value, *given: Value) -> Value:
        if isinstance(values, dict):
            if not given:
                fail("TypeError")
            if self.looked_up(given[0]) in values:
                return values.pop(given[0])
            return given[1] if len(given) == 2 else fail("KeyError")
        if len(given) == 2:
            fail("TypeError")
        self.needs(values, list)
        if not given:
            return values.pop() if values else fail("IndexError")
        self.copied(len(values))
        return values.pop(self.inside(values, given[0]))

    def method_remove(self, values: Value, value: Value) -> None:
        place = self.place(self.needs(values, list), value)
        if place is None:
            fail("ValueError")
        self.copied(len(values))
        del values[place]

    def method_reverse(self, values: Value) -> None:
        self.copied(len(self.needs(values, list)))
        values.reverse()

    def method_sort(self, values: Value) -> None:
        self.sort(self.needs(values, list))

    def method_clear(self, values: Value) -> None:
        self.copied(len(self.needs(values, list, dict)))
        values.clear()

    def method_copy(self, values: Value) -> Value:
        self.copied(len(self.needs(values, list, dict)), w.MADE_ELEMENT if isinstance(values, dict) else w.ELEMENT)
        return values.copy()

    def method_index(self, values: Value, value: Value) -> int:
        place = self.place(self.needs(values, *SEQUENCES), value)
        return fail("ValueError") if place is None else place

    def method_count(self, values: Value, value: Value) -> int:
        if isinstance(values, SEQUENCES):
            found = 0
            for each in values:
                self.charge(w.NODE_COMPARED)
                found += self.equal(each, value)
            return found
        self.alike(values, value)
        self.searched(values, value)
        return int(values.count(value))

    # --- methods: dicts -----------------------------------------------------------------------------------------------

    def method_get(self, values: Value, key: Value, default: Value = None) -> Value:
        return self.needs(values, dict).get(self.looked_up(key), default)

    def method_setdefault(self, values: Value, key: Value, default: Value) -> Value:
        return self.needs(values, dict).setdefault(self.key(key), default)

    def method_update(self, values: Value, others: Value) -> None:
        self.copied(len(self.needs(others, dict)), w.MADE_ELEMENT)
        self.needs(values, dict).update(others)

    def method_keys(self, values: Value) -> list[Value]:
        return list(self.gone_over(self.needs(values, dict)))

    def method_values(self, values: Value) -> list[Value]:
        self.copied(len(self.needs(values, dict)))
        return list(values.values())

    def method_items(self, values: Value) -> list[Value]:
        self.copied(len(self.needs(values, dict)), w.MADE_PAIR)
        return list(values.items())

    # --- methods: texts and bytes -------------------------------------------------------------------------------------

    def alike(self, *texts: Value) -> None:
        if not isinstance(texts[0], TEXTS) or len(set(map(type, texts))) > 1:
            fail("TypeError")

    def method_join(self, text: Value, parts: Value) -> Value:
        self.needs(text, *TEXTS)
        cycles = w.MADE_ELEMENT + (element(parts) - 1)
        parts = list(self.gone_over(parts))
        self.copied(len(parts), cycles)
        self.alike(text, *parts)
        self.made(sum(map(len, parts)) + len(text) * max(0, len(parts) - 1), narrow(text, *parts))
        return text.join(parts)

    def method_split(self, text: Value, separator: Value) -> list[Value]:
        self.alike(text, separator)
        if not separator:
            fail("ValueError")
        self.searched(text, separator, w.SPLIT)
        self.looked_at(len(text) * (1 if narrow(text) else w.WIDE_TEXT))
        found = list(text.split(separator))
        self.copied(len(found), w.MADE_ELEMENT)
        return found

    def method_startswith(self, text: Value, prefix: Value) -> bool:
        self.alike(text, prefix)
        self.looked_at(len(prefix))
        return bool(text[: len(prefix)] == prefix)

    def method_endswith(self, text: Value, suffix: Value) -> bool:
        self.alike(text, suffix)
        self.looked_at(len(suffix))
        return bool(text.endswith(suffix))

    def method_find(self, text: Value, part: Value) -> int:
        self.alike(text, part)
        self.searched(text, part)
        return int(text.find(part))

    def method_replace(self, text: Value, old: Value, new: Value) -> Value:
        self.alike(text, old, new)
        if not old:
            fail("ValueError")
        self.searched(text, old, w.REPLACED)
        found = new.join(text.split(old))
        self.copied(text.count(old), w.MADE_ELEMENT)
        self.made(len(found), narrow(text, new))
        return found

    def method_strip(self, text: Value, characters: Value = None) -> Value:
        if characters is None:
            characters = b" \t\n\r\v\f" if isinstance(text, bytes) else " \t\n\r\v\f"
        self.alike(text, characters)
        self.charge(w.OPERATION + len(text) * (w.STRIPPED_CHARACTER + len(characters) // w.BYTES_PER_CYCLE))
        return text.strip(characters)

    def method_lower(self, text: Value) -> str:
        self.ascii_work(text)
        return "".join(chr(ord(each) + 32) if "A" <= each <= "Z" else each for each in text)

    def method_upper(self, text: Value) -> str:
        self.ascii_work(text)
        return "".join(chr(ord(each) - 32) if "a" <= each <= "z" else each for each in text)

    def ascii_work(self, text: Value) -> None:
        self.looked_at(4 * len(self.needs(text, str)))
        if not narrow(text):
            fail("ValueError")

    def method_encode(self, text: Value) -> bytes:
        self.needs(text, str)
        self.looked_at(len(text) * (1 if narrow(text) else w.WIDE_CODING))
        found = text.encode()
        return found if len(found) <= MAX_TEXT else fail("ValueTooLarge")

    def method_decode(self, data: Value) -> str:
        self.looked_at(len(self.needs(data, bytes)))
        if any(byte > 127 for byte in data):
            self.looked_at(w.WIDE_CODING * len(data))
        try:
            return data.decode()
        except UnicodeDecodeError:
            fail("ValueError")

    def method_hex(self, data: Value) -> str:
        if 2 * len(self.needs(data, bytes)) > MAX_TEXT:
            fail("ValueTooLarge")
        self.looked_at(8 * len(data))
        return data.hex()

    # --- methods: integers --------------------------------------------------------------------------------------------

    def method_to_bytes(self, number: Value, length: Value) -> bytes:
        if not (is_number(number) and is_number(length)):
            fail("TypeError")
        if not 0 <= length <= 32 or not 0 <= number < 256 ** int(length):
            fail("ValueError")
        return int(number).to_bytes(int(length), "big")

    def method_bit_length(self, number: Value) -> int:
        return int(number).bit_length() if is_number(number) else fail("TypeError")


def narrow(*texts: Value) -> bool:
    """Whether all of these count once a character: bytes, and texts of ASCII."""
    return all(isinstance(text, bytes) or all(ord(each) < 128 for each in text) for text in texts)


def element(values: Value) -> int:
    """Of each element that is taken out of a value."""
    return w.WIDE_TEXT if isinstance(values, str) and not narrow(values) else w.ELEMENT


def sorted_kind(value: Value, levels: int = 1) -> Value:
    if is_number(value):
        return "number"
    if isinstance(value, tuple) and levels:
        return [sorted_kind(part, 0) for part in value]
    return type(value).__name__ if isinstance(value, TEXTS) else fail("TypeError")


# --- the host ---------------------------------------------------------------------------------------------------------


class Host:
    """Calls and readings on ``self``, by a real host."""

    def __init__(self, context: HandlerContext, charge: Callable[[int], None]) -> None:
        self.context = context
        self.charge = charge
        self.room = 0

    def reading(self, name: str) -> Value:
        context = self.context
        if name == "deployer":
            actor = context.world.actor(context.actor)
            assert actor is not None
            return bytes(actor.deployer)
        return {
            "height": context.height,
            "sender": bytes(context.sender),
            "origin_hash": bytes(context.origin),
            "address": bytes(context.actor),
            "balance": context.world.balance(context.actor),
            "value": context.value,
            "lane_price": context.terms.fee_floor,
        }[name]

    # --- arguments ----------------------------------------------------------------------------------------------------

    def text(self, value: Value) -> str:
        if not isinstance(value, str):
            fail("TypeError")
        return value if len(value) <= MAX_STORAGE_KEY else fail("ValueTooLarge")

    def key(self, value: Value) -> str:
        text = self.text(value)
        beyond = len(text) * (1 if narrow(text) else w.WIDE_TEXT) - 32
        self.charge(beyond // w.KEY_BYTES_PER_CYCLE if beyond > 0 else 0)
        return text

    def number(self, value: Value) -> int:
        return int(value) if is_number(value) else fail("TypeError")

    def or_none(self, value: Value) -> int | None:
        return None if value is None else self.number(value)

    def natural(self, value: Value) -> int:
        return self.number(value) if self.number(value) >= 0 else fail("ValueError")

    def data(self, value: Value) -> bytes:
        return value if isinstance(value, bytes) else fail("TypeError")

    def account(self, value: Value) -> Any:
        return value if len(self.data(value)) == 20 else fail("ValueError")

    # --- encoding -----------------------------------------------------------------------------------------------------

    def node(self, size: int) -> None:
        self.charge(w.VALUE_NODE + size // w.BYTES_PER_CYCLE)
        self.room -= 1 + size
        if self.room < 0:
            fail("ValueTooLarge")

    def wide(self, value: Value, size: int) -> None:
        if isinstance(value, str) and not narrow(value):
            self.charge(size * w.WIDE_CODING // w.BYTES_PER_CYCLE)

    def packed(self, value: Value) -> bytes:
        self.room = MAX_VALUE_BYTES
        return self.encoded(value, MAX_VALUE_DEPTH)

    def encoded(self, value: Value, depth: int) -> bytes:
        self.node(len(value) if isinstance(value, TEXTS) else 0)
        self.wide(value, len(value) if isinstance(value, str) else 0)
        if isinstance(value, CONTAINERS):
            if depth == 0:
                fail("ValueInvalid")
            if not isinstance(value, dict):
                head = msgspec.msgpack.encode([None] * len(value))[: -len(value) or None]
                return head + b"".join([self.encoded(part, depth - 1) for part in value])
            head = msgspec.msgpack.encode(dict.fromkeys(map(str, range(len(value)))))[: head_size(len(value))]
            pairs = sorted((self.encoded(key, 0), key) for key in value)
            return head + b"".join([key + self.encoded(value[name], depth - 1) for key, name in pairs])
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            self.charge(w.WIDE_INTEGER)
            size = (abs(value).bit_length() + 7) // 8
            return msgspec.msgpack.encode(msgspec.msgpack.Ext(1, bytes([value < 0]) + abs(value).to_bytes(size, "big")))
        if value is None or isinstance(value, (int, *TEXTS)):
            return msgspec.msgpack.encode(value)
        fail("ValueInvalid")

    def decoded(self, data: bytes) -> Value:
        """What this host once encoded."""
        self.room = MAX_VALUE_BYTES
        return self.seen(msgspec.msgpack.decode(data, strict=False)) if data else None

    def seen(self, found: Value) -> Value:
        self.node(len(found.encode() if isinstance(found, str) else found) if isinstance(found, TEXTS) else 0)
        self.wide(found, len(found.encode()) if isinstance(found, str) else 0)
        if isinstance(found, list):
            return [self.seen(part) for part in found]
        if isinstance(found, dict):
            return {self.seen(key): self.seen(value) for key, value in found.items()}
        if isinstance(found, msgspec.msgpack.Ext):
            self.charge(w.WIDE_INTEGER)
            magnitude = int.from_bytes(bytes(found.data)[1:], "big")
            return -magnitude if bytes(found.data)[0] else magnitude
        return found

    # --- calls --------------------------------------------------------------------------------------------------------

    def called(self, name: str, given: list[Value], named: Names) -> Value:
        """A call, its price taken before anything else happens."""
        prices = {"get": 10, "pending": 10, "emit": 50, "send": 80, "schedule": 1_000, "cancel": 500, "extend": 500}
        prices |= dict.fromkeys(("set", "delete", "transfer", "consume_result"), 200)
        prices |= {"published": 10, "publish": 200, "set_bidding_agent": 200, "allow_watching": 200}
        prices |= dict.fromkeys(("schedule_timer", "schedule_timer_ex"), 1_000)
        prices |= {"burn": 0, "request_job": 500 + self.context.terms.parameters.message_cycles}
        self.context.prepay(prices[name])
        return getattr(self, name)(*given, **named)

    def get(self, key: Value, default: Value = None) -> Value:
        stored = self.context.kv_get(self.key(key))
        return default if stored is None else self.decoded(stored)

    def set(self, key: Value, value: Value) -> None:
        self.context.kv_set(self.key(key), self.packed(value))

    def delete(self, key: Value) -> None:
        self.context.kv_delete(self.key(key))

    def allow_watching(self, key: Value, allowed: Value = True) -> None:
        if not isinstance(allowed, bool):
            fail("TypeError")
        self.context.allow_watching(self.key(key), allowed)

    def publish(self, key: Value, value: Value) -> None:
        self.context.publish(self.key(key), self.packed(value))

    def published(self, address: Value, key: Value) -> Value:
        found = self.context.published(self.account(address), self.key(key))
        return None if found is None else self.decoded(found)

    def set_bidding_agent(self, agent: Value) -> None:
        self.context.set_bidding_agent(None if agent is None else self.account(agent))

    def payload(self, value: Value) -> bytes:
        return b"" if value is None else self.packed(value)

    def name(self, value: Value) -> str:
        text = self.text(value)
        size = len(text.encode())
        self.charge(size - 32 if size > 32 else 0)
        return text

    def schedule(
        self,
        height: Value = None,
        payload: Value = None,
        handler: Value = "handle_timer",
        fee_payer: Value = None,
        **more: Value,
    ) -> bytes:
        tier = more.pop("tier", None)
        if tier is not None and self.text(tier) not in TIERS:
            fail("ValueError")
        watched = more.pop("watch", None)
        if watched is not None and height is not None:
            fail("ValueError")
        at, packed = self.number(height) if watched is None else None, self.payload(payload)
        self.charge(max(0, len(packed) - 32) // w.KECCAK_BYTES_PER_CYCLE)
        request: dict[str, Any] = {
            "height": at,
            "payload": packed,
            "handler": self.name(handler),
            "fee_payer": None if fee_payer is None else self.account(fee_payer),
        }
        agent = more.pop("bidding_agent", None)
        bid = more.pop("bid", None)
        numbers: dict[str, Any] = {name: self.or_none(value) for name, value in more.items()}
        offered = self.or_none(bid)
        named = None if agent is None else self.account(agent)
        watch = None
        if watched is not None:
            if not isinstance(watched, tuple) or len(watched) != 2:
                fail("TypeError")
            watch = Watch(self.account(watched[0]), self.key(watched[1]))
        made = ScheduleRequest(**request, **numbers, tier=tier, bid=offered, bidding_agent=named, watch=watch)
        return bytes(self.context.schedule_timer(made))

    schedule_timer = schedule_timer_ex = schedule

    def cancel(self, timer_id: Value) -> None:
        self.context.cancel_timer(self.data(timer_id))

    def extend(self, timer_id: Value, expires_at: Value) -> None:
        self.context.extend_timer(self.data(timer_id), self.number(expires_at))

    def pending(self, timer_id: Value) -> bool:
        return self.context.is_pending(self.data(timer_id))

    def send(self, to: Value, handler: Value, payload: Value = None, cycles: Value = None, cells: Value = None) -> None:
        packed = self.payload(payload)
        address, name = self.account(to), self.name(handler)
        self.context.send(address, name, packed, self.or_none(cycles), self.or_none(cells))

    def transfer(self, to: Value, amount: Value) -> None:
        self.context.transfer(self.account(to), self.natural(amount))

    def emit(self, name: Value, data: Value = "") -> None:
        if isinstance(data, bytes):
            self.charge(8 * len(data) // w.BYTES_PER_CYCLE)
            shown = data.hex()
        else:
            shown = str(int(data)) if is_number(data) else data if isinstance(data, str) else fail("TypeError")
        self.charge(len(shown) * (1 if narrow(shown) else w.WIDE_CODING) // w.BYTES_PER_CYCLE)
        self.context.emit(self.name(name), shown)

    def burn(self, cycles: Value) -> None:
        self.context.burn(self.natural(cycles))

    def request_job(self, payload: Value, results_needed: Value, handler: Value) -> bytes:
        packed = self.packed(payload)
        return bytes(self.context.request_job(packed, self.number(results_needed), self.name(handler)))

    def consume_result(self, job_id: Value) -> None:
        self.context.consume_result(self.data(job_id))


def head_size(count: int) -> int:
    """Bytes before a dict's first pair."""
    return 1 if count < 16 else 3 if count < 2**16 else 5
