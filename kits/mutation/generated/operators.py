"""Mutation operators: they find the places of a module's source that can be changed into a bug, in its syntax tree.

A change replaces the text of one node. All lines keep their numbers, so a diff is a line or two. Code that no run can
depend on is left unchanged: docstrings, annotations, decorators, texts of errors and ``__repr__``, and code for type
checkers.
"""

from __future__ import annotations

import ast
import difflib
from enum import StrEnum
from itertools import pairwise
from typing import Final

import msgspec

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
UNUSED_FUNCTIONS: Final = frozenset({"__repr__", "__str__"})
FOR_TYPE_CHECKERS: Final = frozenset({"TYPE_CHECKING", "cast", "TypeVar", "NewType", "overload"})


class Operator(StrEnum):
    """The kinds of changes."""

    COMPARISON = "comparison turned"
    BOUND = "bound off by one"
    STATEMENT = "statement dropped"
    CONSTANT = "constant changed"
    LOGIC = "and/or swapped"
    NEGATION = "not removed"
    ARGUMENTS = "arguments swapped"


class Candidate(msgspec.Struct, frozen=True, order=True):
    """A possible change of the code: it replaces the text at one place of one module."""

    path: str
    """Path of the module, relative to the root of the code."""
    line: int
    """Line number of the replaced text, from 1."""
    start: int
    """Offset of the replaced bytes in the UTF-8 source."""
    end: int
    operator: Operator
    text: str
    """The replacement text."""

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def applied(self, source: str) -> str:
        """The module's source with the change."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        """The change as lines of a diff, without context; each ends in a line feed."""
        lines = difflib.unified_diff(source.splitlines(), self.applied(source).splitlines(), n=0, lineterm="")
        return "".join(f"{line}\n" for line in lines if not line.startswith(("---", "+++", "@@")))


def candidates(path: str, source: str) -> list[Candidate]:
    """All changes of a module, in the order of its text."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found))


class _Finder(ast.NodeVisitor):
    """Walks a module and collects changes."""

    def __init__(self, path: str, source: str) -> None:
        self.found: list[Candidate] = []
        self._path = path
        self._data = source.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._bounds: set[ast.expr] = set()
        """Operands and arguments that are bounds, rather than plain constants."""

    # --- code that is left unchanged ----------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in UNUSED_FUNCTIONS or any("overload" in ast.unparse(each) for each in node.decorator_list):
            return
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._visit_all(node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(node.body)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Collect no changes in a ``raise`` statement: they would only affect the error's text."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Collect no changes in an f-string: they would only affect a text."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Collect no changes in an ``assert`` statement: its condition is always true, so a change has no effect."""

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        if isinstance(node.target, ast.Attribute | ast.Subscript):
            self._replace(node, "pass", Operator.STATEMENT)
        self.visit(node.value)

    def _visit_all(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    # --- statements ---------------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass", Operator.STATEMENT)
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._replace(node, "pass", Operator.STATEMENT)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass", Operator.STATEMENT)
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass", Operator.STATEMENT)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "pass", Operator.STATEMENT)

    # --- expressions --------------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        self._bounds.update(operands)
        for (left, right), sign in zip(pairwise(operands), node.ops, strict=True):
            turned = SIGNS[COMPARISONS[type(sign)]]
            self._replace_between(left, right, SIGNS[type(sign)], turned, Operator.COMPARISON)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        if len(node.values) == 2:  # with more, replacing one word would change the grouping
            left, right = node.values
            self._replace_between(left, right, word, other, Operator.LOGIC)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            operand = self._text(*self._span(node))[len("not") :].strip()
            self._replace(node, f"({operand})", Operator.NEGATION)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub):
            self._bounds.update((node.left, node.right))
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        self._bounds.update(filter(None, (node.lower, node.upper)))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in FOR_TYPE_CHECKERS:
            return
        if name == "range":
            self._bounds.update(node.args)
        for one, other in pairwise(node.args):
            if not isinstance(one, ast.Starred) and not isinstance(other, ast.Starred):
                self._swap(one, other)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value), Operator.CONSTANT)
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1), Operator.BOUND if node in self._bounds else Operator.CONSTANT)

    # --- text ---------------------------------------------------------------------------------------------------------

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, start: int, end: int) -> str:
        return self._data[start:end].decode()

    def _replace(self, node: ast.expr | ast.stmt, text: str, operator: Operator) -> None:
        start, end = self._span(node)
        self._add(node.lineno, start, end, operator, text)

    def _replace_between(self, left: ast.expr, right: ast.expr, old: str, new: str, operator: Operator) -> None:
        """Collect the change of an operator's text between two operands.

        Nothing is collected if ``old`` does not occur exactly once between them, or if there is a comment.
        """
        start, end = self._span(left)[1], self._span(right)[0]
        between = self._text(start, end)
        if between.count(old) != 1 or "#" in between:
            return
        at = start + between.index(old)
        self._add(self._line_at(at), at, at + len(old), operator, new)

    def _swap(self, one: ast.expr, other: ast.expr) -> None:
        (start, middle), (begin, end) = self._span(one), self._span(other)
        first, between, second = self._text(start, middle), self._text(middle, begin), self._text(begin, end)
        is_plain = not isinstance(one, ast.GeneratorExp) and not set(between) - set(", \n")  # no parentheses
        if is_plain and first != second:
            self._add(one.lineno, start, end, Operator.ARGUMENTS, f"{second}{between}{first}")

    def _line_at(self, offset: int) -> int:
        return self._data.count(b"\n", 0, offset) + 1

    def _add(self, line: int, start: int, end: int, operator: Operator, text: str) -> None:
        more = self._data.count(b"\n", start, end) - text.count("\n")
        if operator is Operator.STATEMENT:
            text += "\n" * more  # lines keep their numbers
        self.found.append(Candidate(self._path, line, start, end, operator, text))
