"""The language: each kind of node that Python knows is allowed and shown here, or refused with place and remedy."""

from __future__ import annotations

import ast
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.pvm.attacks import REFUSED, REFUSED_PROGRAMS, refused_program
from tests.validator.pvm.programs import draw
from tests.validator.pvm.running import program
from validator.primitives.limits import MAX_COMPREHENSIONS, MAX_TREE_DEPTH
from validator.pvm.compiler.compiler import compile_program
from validator.pvm.language.subset import ProgramError, parse

ALLOWED = '''
"""A program may say what it is."""
class Everything(Actor):
    """And its class, too."""
    TEXT: str = "text"
    MANY = (1, -2, (True, None, b"bytes"))
    pass

    async def handle(self, payload: dict[str, int | None]) -> None:
        n: int = 1
        n += 1; n -= 1; n *= 3; n //= 2; n %= 5; n **= 2; n <<= 1; n >>= 1; n |= 1; n ^= 1; n &= 7
        a, b = 1 + 2 - 3 * 4, 5 // 6 % 7
        [c, d] = [a ** 2, ~a & b | a ^ b << 1 >> 1]
        x = (not a) == (+a != -b)
        x = a < b <= c > d >= n
        x = (a in [b] and a not in (b,)) or a is None or b is not None
        x = a if b else c
        x = {"a": 1, b"b": 2, 3: 4}
        x = [e for e in range(3) if e]
        x = {e: f for e, f in enumerate("ab")}
        x = [1, 2, 3][0] + len([1, 2][1:]) + len([1][:1])
        y = [1]
        y[0] = 1
        y[0] += 1
        del y[0]
        while a:
            if b:
                break
            elif c:
                continue
            else:
                pass
        for e in y:
            """A remark."""
        for e, f in [(1, 2)]:
            assert e, "why"
        self.emit("e", data=self.TEXT)
        t = self.spawn(self.task(1))
        await t
        await self.pause()
        y.append(await self.task(2))
        if self.height < 0:
            raise ActorError("why")
        if self.height < 0:
            raise ActorError()
        x = FAST + str(int.from_bytes(b"a")) + bytes.fromhex("00").hex()
        return

    async def task(self, n):
        return self.plain(n)

    def plain(self, n):
        return n

    def get_gas_bid(self, context):
        return {"max_fee_per_cycle": 1, "max_priority_fee_per_cycle": 1}
'''

NOT_NODES = {"expr", "stmt", "mod", "slice", "Index", "ExtSlice", "Num", "Str", "Bytes", "NameConstant", "Ellipsis"}
"""Names of ``ast`` that no tree of today's Python holds."""
HOLDERS = (ast.mod, ast.expr_context, ast.type_ignore)
"""What is no part of a program's text."""
EXAMPLES: dict[str, str] = {
    "AsyncFor": "async for x in payload:\n    pass",
    "AsyncWith": "async with payload:\n    pass",
    "ClassDef": "class Inner:\n    pass",
    "FunctionDef": "def inner():\n    pass",
    "AsyncFunctionDef": "async def inner():\n    pass",
    "DictComp": "x = {1: 2 for a in b for c in d}",
    "Div": "x = 1 / 2",
    "ExceptHandler": "try:\n    pass\nexcept ValueError:\n    pass",
    "FormattedValue": "x = f'{payload}'",
    "JoinedStr": "x = f'{payload}'",
    "GeneratorExp": "x = sum(a for a in payload)",
    "Global": "global x",
    "Import": "import os",
    "ImportFrom": "from os import path",
    "alias": "import os as x",
    "Lambda": "x = lambda: 1",
    "MatMult": "x = payload @ payload",
    "Match": "match payload:\n    case 1:\n        pass",
    "MatchAs": "match payload:\n    case x:\n        pass",
    "MatchClass": "match payload:\n    case int():\n        pass",
    "MatchMapping": "match payload:\n    case {}:\n        pass",
    "MatchOr": "match payload:\n    case 1 | 2:\n        pass",
    "MatchSequence": "match payload:\n    case []:\n        pass",
    "MatchSingleton": "match payload:\n    case None:\n        pass",
    "MatchStar": "match payload:\n    case [*x]:\n        pass",
    "MatchValue": "match payload:\n    case 1:\n        pass",
    "match_case": "match payload:\n    case 1:\n        pass",
    "NamedExpr": "x = (y := 1)",
    "Nonlocal": "nonlocal x",
    "Set": "x = {1}",
    "SetComp": "x = {a for a in payload}",
    "Starred": "x = [*payload]",
    "Try": "try:\n    pass\nfinally:\n    pass",
    "TryStar": "try:\n    pass\nexcept* ValueError:\n    pass",
    "With": "with payload:\n    pass",
    "withitem": "with payload as x:\n    pass",
    "Yield": "yield 1",
    "YieldFrom": "yield from payload",
    "TypeAlias": "type X = int",
    "TypeVar": "def inner[T]():\n    pass",
    "TypeVarTuple": "def inner[*T]():\n    pass",
    "ParamSpec": "def inner[**T]():\n    pass",
    "TemplateStr": "x = t'{payload}'",
    "Interpolation": "x = t'{payload}'",
}
"""Of each kind of node that is refused, what would make one."""


def kinds() -> list[str]:
    """Every kind of node of a program that this Python's trees may hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are only there for old programs
        found = {name: getattr(ast, name) for name in dir(ast)}
    nodes = {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, ast.AST)}
    abstract = {kind.__mro__[1] for kind in nodes.values()} - {ast.AST}
    is_old = {name for name, kind in nodes.items() if name in NOT_NODES or kind.__name__ != name}
    return sorted(
        name
        for name, kind in nodes.items()
        if kind is not ast.AST and kind not in abstract and name not in is_old and not issubclass(kind, HOLDERS)
        if name not in ("AugLoad", "AugStore", "Param", "Suite")
    )


def used_in(tree: ast.AST) -> set[str]:
    return {type(node).__name__ for node in ast.walk(tree)}


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_of_node_is_shown_or_refused(kind: str) -> None:
    if kind in used_in(ast.parse(ALLOWED)):
        compile_program(parse(ALLOWED))
        return
    assert kind in EXAMPLES, f"nobody decided about {kind}"
    with pytest.raises(ProgramError) as refused:
        parse(program(EXAMPLES[kind]))
    for problem in refused.value.problems:
        assert problem.line >= 1 and problem.column >= 1
        assert problem.what and problem.remedy


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_PROGRAMS])
def test_attacks_on_the_check_are_refused(name: str) -> None:
    with pytest.raises(ProgramError) as refused:
        parse(refused_program(name))
    assert all(problem.line >= 1 and problem.column >= 1 and problem.remedy for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("body", "line", "column", "what"),
    [
        ("x = payload.real", 3, 13, "the attribute real"),
        ("pass\nimport os", 4, 9, "an import"),
        ("x = [1, 2 / 3]", 3, 17, "/"),
        ("x = 1\nself.x = x", 4, 9, "an assignment to self.x"),
        ("x = {y for y in payload}", 3, 13, "a set"),
        ("return nothing", 3, 16, "the name nothing, which is nowhere defined"),
        ("x = handle(payload)", 3, 13, "a call of handle"),
        ("x = max(1, key=2)", 3, 24, "key= in a call of max"),
        ("self.set('a')", 3, 9, "self.set without value"),
        ("self.set('a', 1, 2)", 3, 9, "3 arguments for self.set"),
        ("self.set('a', 1, value=2)", 3, 32, "value is given twice"),
        ("self.sett('a')", 3, 9, "self.sett(…), which is nowhere defined"),
        ("x = 'a' % payload", 3, 13, "a formatted string"),
        ("break", 3, 9, "break outside a loop"),
        ("for x in payload:\n    pass\nelse:\n    pass", 6, 13, "else after a loop"),
    ],
)
def test_a_refusal_says_what_and_where(body: str, line: int, column: int, what: str) -> None:
    with pytest.raises(ProgramError) as refused:
        parse(program(body))
    found = refused.value.problems[0]
    assert (found.line, found.column, found.what) == (line, column, what)


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_text() -> None:
    with pytest.raises(ProgramError) as refused:
        parse(program("import os\nx = 1.5\ntry:\n    pass\nexcept ValueError:\n    pass"))
    assert [(problem.line, problem.what) for problem in refused.value.problems] == [
        (3, "an import"),
        (4, "a number with a point"),
        (5, "try"),
    ]


def test_comprehensions_inside_each_other_are_bounded() -> None:
    """Python 3.12 crashes at twenty."""
    nested = "1"
    for level in range(MAX_COMPREHENSIONS):
        nested = f"[{nested} for x{level} in payload]"
    compile_program(parse(program(f"x = {nested}")))
    with pytest.raises(ProgramError, match="comprehensions inside each other"):
        parse(program(f"x = [{nested} for y in payload]"))


def test_two_parameters_of_one_name_never_reach_compile() -> None:
    with pytest.raises(ProgramError, match="two parameters x"):
        parse("class A(Actor):\n    def add(self, x, x):\n        return x\n")


def test_warnings_as_errors_refuse_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_program(parse(program("x = '\\d'\ny = 1if x else 2\nz = 'a'['b']\nassert (1, 'x')")))


def test_the_deepest_program_that_is_allowed_compiles() -> None:
    for made in (
        lambda n: "-" * n + "1",
        lambda n: "x" + "[x]" * n,
        lambda n: "1" + "+x" * n,
        lambda n: "not " * n + "1",
    ):
        depth = next(n for n in range(MAX_TREE_DEPTH, 0, -1) if is_allowed(program(f"x = 1\nx = {made(n)}")))
        assert depth > MAX_TREE_DEPTH - 10
        compile_program(parse(program(f"x = 1\nx = {made(depth)}")))


def is_allowed(source: str) -> bool:
    try:
        parse(source)
    except ProgramError:
        return False
    return True


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.data())
def test_a_program_with_something_cut_out_is_refused_or_compiles(seed: int, data: Any) -> None:
    source = draw(seed)
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, min(len(source), start + 40)))
    try:
        checked = parse(
            source[:start] + data.draw(st.sampled_from(["", "x", "(", "[x]", ".y", "=", " for x in y"])) + source[end:]
        )
    except ProgramError:
        return
    compile_program(checked)
