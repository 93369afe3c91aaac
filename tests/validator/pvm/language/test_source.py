"""What passes the scan of the text is small and flat enough for the parser of every Python."""

# ruff: noqa: E501, SIM905  # tables, one case a line
from __future__ import annotations

import re
import warnings
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.pvm.parsing import parsed
from tests.validator.pvm.pythons import VERSIONS, answers, here, python
from validator.primitives.limits import MAX_BRACKETS, MAX_ELIFS, MAX_INDENT, MAX_LOGICAL_LINE, MAX_SOURCE_BYTES
from validator.pvm.language.source import _TOKEN, check_text, count_tokens

PIECES = (
    "( ) [ ] { } x 1 a. , : = + - ** * ~ < == . @ ; -> ... 0x 1e _ # \" ' f' r\" b' \"\"\" ''' \\ % //".split()
    + "not_ _if_ _else_ _for_ _in_ _is_ _and_ lambda_ _async_ await_ yield_ return_ del_ global_x import_x".split()
    + "def_f( class_A( else: try: with_ match_x: case_ elif_x: if_x: while_x: for_x_in_x: *x **x := raise_ assert_".split()
    + ["\n", "\n ", "\n  ", "\n\n", "é", "\t", "\r"]
)
UNITS = (
    "f( f(**{1: [x_for_x_in_( {**( lambda: (lambda_x=( {1:[ (yield_ x[ x[y:( f(a=( not( -( *( (a:=( await_( ((a, {a:{ if_(x with_( "
    "for_( a[(b:=( {a:lambda:{ f(lambda:( {**{ [*[ (x_for_x_in_( x_if_( match_( a:( @( - ~ not_ + a. 1+ 1** a_if_b_else_ lambda: x= "
    "x, a< a_and_ await_ x: yield_ a[0] a() 'a' a; if_a: pass; a@ del_ 1,"
).split()


def spelled(piece: str) -> str:
    return piece.replace("_", " ") if len(piece) > 1 else piece


def soup(random: Random) -> str:
    """Tokens in any order, or one construct inside itself as often as fits."""
    if random.random() < 0.4:
        unit = spelled(random.choice(UNITS))
        opened = sum(unit.count(bracket) for bracket in "([{")
        count = min(MAX_BRACKETS // opened if opened else MAX_LOGICAL_LINE, (MAX_LOGICAL_LINE - 5) // len(unit))
        closing = "".join({"(": ")", "[": "]", "{": "}"}[each] for each in reversed(unit * count) if each in "([{")
        return unit * count + random.choice(["", "x", "x y", ":", "!", "="]) + random.choice(["", closing])
    pool = random.sample(PIECES, random.choice([2, 4, 12, len(PIECES)]))
    return "".join(spelled(random.choice(pool)) for _ in range(random.choice([5, 30, 100, 300])))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**40))
def test_the_parser_raises_nothing_but_syntax_errors(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert re.fullmatch(r"\d+:\d+|SyntaxError|[0-9a-f]{16}", parsed(soup(Random(seed))))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_refuses_the_same_texts(version: str) -> None:
    other = python(version)
    if other is None:
        pytest.skip(f"there is no Python {version} here")
    texts = [soup(Random(seed)) for seed in range(2_000)]
    one, two = answers(here(), "parsing.py", texts), answers(other, "parsing.py", texts)
    different = {text: (mine, its) for text, mine, its in zip(texts, one, two, strict=True) if mine != its}
    assert not different


def lines(*each: str) -> str:
    return "\n".join(each)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("x" * (MAX_SOURCE_BYTES + 1), 1, 1),
        ("x = 1\ny = é", 2, 5),
        ("x = 1\r\n", 1, 6),
        ("\tx", 1, 1),
        ("x = 1 # \u200b", 1, 9),
        ("'''\n\u0430'''", 2, 1),
        ("x = \\\n1", 1, 5),
        ("(" * MAX_BRACKETS + "[", 1, MAX_BRACKETS + 1),
        ("(\n" * MAX_BRACKETS + "{", MAX_BRACKETS + 1, 1),
        (lines(*(" " * i + "if x:" for i in range(MAX_INDENT + 2))), MAX_INDENT + 2, MAX_INDENT + 2),
        (lines("if x: y", *["elif x: y"] * (MAX_ELIFS + 1)), MAX_ELIFS + 2, 1),
        ("x\ny = " + "1+" * (MAX_LOGICAL_LINE // 2), 2, 1),
        ("(\n" + "x,\n" * (MAX_LOGICAL_LINE // 2) + ")", 1, 1),
        ("'" + "x" * MAX_LOGICAL_LINE + "'", 1, 1),
        ("f'x'", 1, 2),
        ("x = rF'x'", 1, 7),
        ("x = t'x'", 1, 6),
        ("x = 'a\\N{BULLET}'", 1, 7),
        ('x = """\n\\N{BULLET}"""', 2, 1),
        ("x = u'\\N{BULLET}'", 1, 7),
    ],
)
def test_a_refusal_says_where_and_what_instead(text: str, line: int, column: int) -> None:
    found = check_text(text)
    assert found is not None
    assert (found.line, found.column) == (line, column)
    assert found.what and found.remedy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(" * MAX_BRACKETS + ")" * MAX_BRACKETS,
        "# " + "(" * 1_000,
        "x = '(((((((((((((((((((((((((((' + \"[[[[[[[[[[[[[[[[[[[[[[[[[[[\"",
        "x = '\\'((((((((((((((((((((((((('",
        "x = '''\n  '((((((((((((((((((((((\n'''",
        "x = 1 if'a'else 2",
        "x = r'\\N{BULLET}' + rb'\\N' + b'\\N'",
        "x = '\\\\N{BULLET}'",
        lines(*(" " * i + "if x:" for i in range(MAX_INDENT + 1))),
        lines("if x: y", *["elif x: y"] * MAX_ELIFS, "else: y", "if x: y", *["elif x: y"] * MAX_ELIFS),
        "x = [\n" + "      # much to say\n" * 50 + "]",
    ],
)
def test_what_is_small_and_flat_passes(text: str) -> None:
    assert check_text(text) is None


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a=b+a", 5),
        ("x = self.get('k', 0x1f)", 10),
        ("# one two\nx  # three", 1),
        ("((-1))", 6),
        ("""'it "is"' + "a 'b' # c" # '""", 3),
        (r'"a\"b" + r"a\\" # c', 4),
        ("'x # y\nz", 2),
        ('"""a\nb', 1),
        ('"""a\\', 1),
        ('"""a "b" c""" + 1', 3),
    ],
)
def test_tokens_are_words_numbers_signs_and_strings(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@given(st.text(st.sampled_from(list("ab1_ \n\"'\\#(+")), max_size=60))
def test_every_sign_of_a_text_is_blank_or_in_one_token(text: str) -> None:
    """None is passed over, and a token that begins with a quote never fails to match: it would be looked at again."""
    tokens = list(_TOKEN.finditer(text))
    spans = [(0, 0), *(token.span() for token in tokens), (len(text), len(text))]
    assert all(not text[end:start].strip() for (_, end), (start, _) in pairwise(spans))
    for token in tokens:
        if token[0][0] in "\"'":
            assert len(token[0]) > 1 or token.end() == len(text) or text[token.end()] == "\n"
