"""The check of statements."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from validator.pvm.language.api import ERROR
from validator.pvm.language.expressions import ExpressionChecker
from validator.pvm.language.names import Names
from validator.pvm.language.trees import blocks, is_remark


class StatementChecker:
    """Checks statements and collects their problems. A table maps each kind of syntax node to its check."""

    def __init__(self, names: Names, expressions: ExpressionChecker) -> None:
        self._names = names
        self._refuse = names.refuse
        self._expressions = expressions
        self._loops = 0
        """Number of nested loops that are being checked."""
        self._checks: dict[type[ast.stmt], Callable[[Any], None]] = {
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

    def check(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            check = self._checks.get(type(statement))
            if check is not None:
                check(statement)
                continue
            self._names.refuse_node(statement)
            if isinstance(statement, ast.Try):  # the author wants to see all problems at once
                for block in blocks(statement):
                    self.check(block)

    def annotation(self, node: ast.expr) -> None:
        """Check an annotation: it must look like a type, made of names. It has no effect when the program runs."""
        for part in ast.walk(node):
            is_none = isinstance(part, ast.Constant) and part.value is None
            allowed = ast.Name | ast.Load | ast.Subscript | ast.Tuple | ast.BinOp | ast.BitOr
            if not (is_none or isinstance(part, allowed)):
                self._refuse(node, "an annotation that is no type", "use names of types, such as int or list[int]")
                return

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            self._refuse(node, "more than one = in a statement", "write one assignment for each")
        for target in node.targets:
            self._expressions.target(target)
        self._expressions.check(node.value)

    def _annotated_assign(self, node: ast.AnnAssign) -> None:
        self.annotation(node.annotation)
        if not isinstance(node.target, ast.Name):
            self._refuse(node, "an annotation of something else than a name", "leave it out")
        if node.value is None:
            self._refuse(node, "a declaration without a value", "assign one")
        else:
            self._expressions.target(node.target)
            self._expressions.check(node.value)

    def _augmented_assign(self, node: ast.AugAssign) -> None:
        self._expressions.operator(node, node.op)
        self._expressions.target(node.target)
        if isinstance(node.target, ast.Name):
            self._expressions.name(node.target)
        self._expressions.check(node.value)

    def _expression_statement(self, node: ast.Expr) -> None:
        if is_remark(node):
            return
        before = len(self._names.problems)
        self._expressions.check(node.value)
        if len(self._names.problems) == before and not isinstance(node.value, ast.Call | ast.Await):
            self._refuse(node, "a value that is never used", "call something, or assign it")

    def _if(self, node: ast.If) -> None:
        self._expressions.check(node.test)
        self.check(node.body)
        self.check(node.orelse)

    def _while(self, node: ast.While) -> None:
        self._expressions.check(node.test)
        self._loop(node)

    def _for(self, node: ast.For) -> None:
        if isinstance(node.target, ast.Subscript):
            self._refuse(node.target, "a loop variable that is no name", "use a name")
        else:
            self._expressions.target(node.target)
        self._expressions.check(node.iter)
        self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            self._refuse(
                node.orelse[0],
                "else after a loop",
                "put it behind the loop, with a variable that says whether it broke off",
            )
        self._loops += 1
        self.check(node.body)
        self._loops -= 1

    def _leave_loop(self, node: ast.stmt) -> None:
        if not self._loops:
            self._refuse(node, f"{type(node).__name__.lower()} outside a loop", "use return")

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._expressions.check(node.value)

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
            self._refuse(node, "another error than the actor's", f'expected: raise {ERROR}("why")')
            return
        self._expressions.check_all(error.args)

    def _assert(self, node: ast.Assert) -> None:
        self._expressions.check(node.test)
        if node.msg is not None:
            self._expressions.check(node.msg)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Slice):
                self._refuse(target, "del of something else than an element", "use it as del values[key]")
            else:
                self._expressions.subscript(target)
