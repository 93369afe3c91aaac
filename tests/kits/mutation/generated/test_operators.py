"""The changes that are derived from a source."""

from __future__ import annotations

import ast

import pytest

from kits.mutation.generated.operators import Candidate, Operator, candidates


def changed(source: str, operator: Operator | None = None) -> list[str]:
    """The source with each change of an operator, or with each there is."""
    found = candidates("a.py", source)
    return [one.applied(source) for one in found if operator in (None, one.operator)]


@pytest.mark.parametrize(
    ("operator", "source", "expected"),
    [
        (Operator.COMPARISON, "a < b", ["a <= b"]),
        (Operator.COMPARISON, "a <= b", ["a < b"]),
        (Operator.COMPARISON, "(a) > (b)", ["(a) >= (b)"]),
        (Operator.COMPARISON, "é == b != c", ["é != b != c", "é == b == c"]),
        (Operator.COMPARISON, "a in b", ["a not in b"]),
        (Operator.COMPARISON, "a is not b", ["a is b"]),
        (Operator.BOUND, "a < 3", ["a < 4"]),
        (Operator.BOUND, "range(2, n)", ["range(3, n)"]),
        (Operator.BOUND, "a[1:]", ["a[2:]"]),
        (Operator.BOUND, "a - 1", ["a - 2"]),
        (Operator.CONSTANT, "a = 7", ["a = 8"]),
        (
            Operator.CONSTANT,
            "def f(a: int = 7, *, b=True): ...",
            ["def f(a: int = 8, *, b=True): ...", "def f(a: int = 7, *, b=False): ..."],
        ),
        (Operator.STATEMENT, "f(1)", ["pass"]),
        (Operator.STATEMENT, "a.b = 1", ["pass"]),
        (Operator.STATEMENT, "a.b: int = 1", ["pass"]),
        (Operator.STATEMENT, "a[b] = 1", ["pass"]),
        (Operator.STATEMENT, "a += 1", ["pass"]),
        (Operator.STATEMENT, "for a in b:\n    continue", ["for a in b:\n    pass"]),
        (Operator.STATEMENT, "for a in b:\n    break", ["for a in b:\n    pass"]),
        (Operator.STATEMENT, "f(\n    a,\n)\ng = 1", ["pass\n\n\ng = 1"]),
        (Operator.LOGIC, "a and b", ["a or b"]),
        (Operator.LOGIC, "a or (b)", ["a and (b)"]),
        (Operator.NEGATION, "not a", ["(a)"]),
        (Operator.ARGUMENTS, "f(a, b + 1, *c)", ["f(b + 1, a, *c)"]),
    ],
)
def test_each_operator_changes_one_place(operator: Operator, source: str, expected: list[str]) -> None:
    found = changed(source, operator)
    assert found == expected
    for text in found:
        ast.parse(text)
        assert text.count("\n") == source.count("\n")


@pytest.mark.parametrize(
    "source",
    [
        '"""Of 3 < 4."""',
        "a = b",
        "def f(a: Literal[1]) -> Literal[2]: ...",
        "a: Literal[1]",
        "@g(1)\ndef f(): ...",
        "@g(1)\nclass A(h(2)): ...",
        "def __repr__(self):\n    return f(1)",
        "raise A(1 < 2)",
        "f'{a < 1}'",
        "assert a < 1",
        "if TYPE_CHECKING:\n    a = 1",
        "a = cast(1, b)",
        "f = g(a, a)",
        "f = g(*a, *b)",
        "a = b and c and d",
        "from a import b",
    ],
)
def test_what_no_run_depends_on_is_left_as_it_is(source: str) -> None:
    assert changed(source) == []


def test_a_change_says_where_it_is() -> None:
    source = "# é\nif (\n    a\n    < 1\n):\n    f()\n"
    turned, bound, dropped = candidates("validator/a.py", source)
    assert turned == Candidate("validator/a.py", 4, 20, 21, Operator.COMPARISON, "<=")
    assert [one.place for one in (turned, bound, dropped)] == [f"validator/a.py:{line}" for line in (4, 4, 6)]
    assert dropped.diff(source) == "-    f()\n+    pass\n"
    assert bound.diff(source) == "-    < 1\n+    < 2\n"
