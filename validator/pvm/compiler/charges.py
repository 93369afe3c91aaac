"""Costs of a program's straight-line pieces: sums of the weights over the syntax tree.

A block is cut into pieces after every statement that contains blocks. Each piece is charged as a whole before it runs:
its plain statements, and the head of the compound statement that ends it. The first piece of a loop's body is charged
together with the iteration itself and, for ``while``, the next test. A comprehension's work for one element is charged
together with its iteration too. A piece's charge includes both arms of a conditional expression and all parts of
``and`` and ``or``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.primitives.costs import READ_CONTEXT_CYCLES
from validator.pvm.compiler.weights import (
    BUILTIN,
    DISPLAY_ELEMENT,
    HOST_CALL,
    HOST_READ,
    ITERATION,
    MADE_KEY,
    METHOD_PARTS_INCLUDED,
    METHOD_PARTS_PER_CYCLE,
    NODES,
    OPERATORS,
    OWN_CALL,
    TASK,
    TASK_TURN,
)
from validator.pvm.language.api import BUILTINS, HOST_CALLS, HOST_READS, METHODS, STATIC_METHODS
from validator.pvm.language.trees import OWN, Function, parts_of, walk

Comprehension = ast.ListComp | ast.DictComp
Compound = ast.If | ast.While | ast.For

Piece = list[ast.stmt]


def pieces(block: list[ast.stmt]) -> Iterator[Piece]:
    """A block's straight-line pieces, in order; only the last statement of each may be compound."""
    piece: Piece = []
    for statement in block:
        piece.append(statement)
        if isinstance(statement, Compound):
            yield piece
            piece = []
    if piece:
        yield piece


def statement_cost(statement: ast.stmt) -> int:
    """Cycles of a plain statement, or of the head of a compound one."""
    own = NODES[type(statement)]
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return own + cost(test)
        case ast.For(iter=iterated):
            return own + cost(iterated)
        case ast.Assign(targets=targets, value=value):
            return own + cost(value) + sum(map(_target_cost, targets))
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return own + cost(value) + _target_cost(target)
        case ast.AugAssign(target=target, op=operator, value=value):
            return own + _extra(operator) + cost(value) + 2 * _target_cost(target)
        case ast.Delete(targets=targets):
            return own * len(targets) + sum(map(_target_cost, targets))
        case ast.Raise(exc=ast.Call(args=arguments)):
            return own + sum(map(cost, arguments))
        case ast.Assert(test=test, msg=message):
            return own + cost(test) + (0 if message is None else cost(message))
        case ast.Return(value=ast.expr() as value) | ast.Expr(value=value):
            return own + cost(value)
        case _:
            return own


def entry_cost(method: Function) -> int:
    """Cycles for entering a method, without its first piece."""
    parts = sum(isinstance(node, ast.expr) for statement in method.body for node in walk(statement))
    return OWN_CALL + max(0, parts - METHOD_PARTS_INCLUDED) // METHOD_PARTS_PER_CYCLE


def turn_cost(loop: ast.While | ast.For) -> int:
    """Cycles for each iteration of a loop, without its body."""
    if isinstance(loop, ast.While):
        return ITERATION + cost(loop.test)
    return ITERATION + _target_cost(loop.target)


def element_cost(node: Comprehension) -> int:
    """Cycles of a comprehension for each element that it visits."""
    (generator,) = node.generators
    head = ITERATION + _target_cost(generator.target) + sum(map(cost, generator.ifs))
    if isinstance(node, ast.ListComp):
        return head + cost(node.elt)
    return head + _key_cost(node.key) + cost(node.value)


def _target_cost(target: ast.expr) -> int:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return DISPLAY_ELEMENT * len(parts)
        case ast.Subscript(value=value, slice=index):
            return NODES[ast.Subscript] + cost(value) + cost(index)
    return 0


def _key_cost(key: ast.expr) -> int:
    """Cycles of a key in a dict display or comprehension."""
    is_written_out = isinstance(key, ast.Constant) and isinstance(key.value, str | bytes)
    return cost(key) if is_written_out else MADE_KEY + cost(key)


def cost(node: ast.expr) -> int:
    """Cycles of an expression, without the work of comprehensions per element."""
    own = NODES[type(node)]
    match node:
        case ast.ListComp(generators=[generator]) | ast.DictComp(generators=[generator]):
            return own + cost(generator.iter)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return own + DISPLAY_ELEMENT * len(parts) + sum(map(cost, parts))
        case ast.Dict(keys=keys, values=values):
            return (
                own
                + 2 * DISPLAY_ELEMENT * len(values)
                + sum(_key_cost(key) for key in keys if key is not None)
                + sum(map(cost, values))
            )
        case ast.Call():
            return own + _call_cost(node)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return own + (READ_CONTEXT_CYCLES + HOST_READ if name in HOST_READS and not hasattr(node, OWN) else 0)
        case ast.Slice(lower=lower, upper=upper):
            return own + sum(cost(part) for part in (lower, upper) if part is not None)
        case ast.BoolOp(values=parts):
            return own * len(parts) + sum(map(cost, parts))
        case ast.Compare(left=left, ops=operators, comparators=others):
            return sum(own + _extra(operator) for operator in operators) + cost(left) + sum(map(cost, others))
        case ast.BinOp(left=left, op=operator, right=right):
            return own + _extra(operator) + cost(left) + cost(right)
        case ast.UnaryOp(op=operator, operand=operand):
            return own + _extra(operator) + cost(operand)
        case ast.Await(value=awaited):
            return own + cost(awaited) + (0 if _is_self_call(awaited) else TASK_TURN)
    return own + sum(cost(part) for part in parts_of(node) if isinstance(part, ast.expr))


def _extra(operator: ast.AST) -> int:
    return OPERATORS.get(type(operator), 0)


def _is_self_call(awaited: ast.expr) -> bool:
    """Whether an awaited expression calls a method of the actor, or pauses. Any other gives a task to wait for."""
    match awaited:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return name != "spawn"
    return False


def _call_cost(node: ast.Call) -> int:
    passed = sum(map(cost, (*node.args, *(keyword.value for keyword in node.keywords))))
    match node.func:
        case ast.Name(id=name) if name in BUILTINS:
            return passed + BUILTIN
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            is_host = name in HOST_CALLS and not hasattr(node.func, OWN)
            return passed + {"spawn": TASK, "pause": TASK_TURN}.get(name, HOST_CALL if is_host else 0)
        case ast.Attribute(value=ast.Name(id=kind), attr=name) if (kind, name) in STATIC_METHODS:
            return passed + BUILTIN
        case ast.Attribute(value=value, attr=name) if name in METHODS:
            return passed + BUILTIN + cost(value)
    return passed
