"""Rules of prose: the words to avoid, by the table in ``CONTRIBUTING.md``, in docstrings, comments, messages, docs.

Tests and the programs of actors are left out: programs are part of chains, whose roots golden vectors hold.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from tests.repository.rule import Finding, Rule
from tests.repository.sources import ROOT, WITHOUT_CIRCLES, is_in, is_python, parsed

TABLE = re.compile(r"^\| avoid \| write \|\n\|[-| ]+\|\n((?:\|.*\n)+)", re.M)

PRODUCT = (*WITHOUT_CIRCLES, "stampede.py", "stampede_command.py", "stampede_pytest.py")

CODE = re.compile(r"```.*?```|`[^`\n]*`|^ {4,}\S[^\n]*$", re.S | re.M)
"""What a Markdown page quotes: blocks of code, and names between backticks."""

TEXTS = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
"""Kinds of tokens with prose. Python 3.12 and later split an f-string into its parts."""

BARE_OPENING = re.compile(r"(?:Of|By)\b")
"""An opening that completes the attribute's name instead of saying what it is."""

KEPT = {
    "loadgen/workloads/attacks/deferred.py": "the docstring of a program that is part of chains",
}


@cache
def avoided_words() -> re.Pattern[str]:
    """Each word of the table's first column, on its own: neither a part of a name nor between backticks."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = TABLE.search(contributing)
    assert table is not None, "CONTRIBUTING.md has no table of words to avoid"
    words = [word.strip() for row in table[1].splitlines() for word in row.split("|")[1].split(",")]
    phrases = (r"\s+(?:# )?".join(map(re.escape, word.split())) for word in words)  # a line may end within a phrase
    return re.compile(rf"(?<![\w`-])(?:{'|'.join(phrases)})(?![\w`-])", re.I)


def is_code_of_product(path: str) -> bool:
    return is_python(path) and is_in(path, *PRODUCT)


def has_prose(path: str) -> bool:
    """Whether a file's sentences are read by users or developers of the product."""
    is_page = path.endswith((".md", ".yaml")) and not is_in(path, "tests")
    return (is_page or is_code_of_product(path)) and path not in KEPT


def prose_has_no_avoided_words(path: str, source: str) -> Iterator[Finding]:
    """No word of the table in ``CONTRIBUTING.md``."""
    if not avoided_words().search(source):
        return  # most files; it takes long to find strings and comments
    for line, text in _prose(path, source):
        for found in avoided_words().finditer(text):
            yield line + text.count("\n", 0, found.start()), f"avoided word: {found[0]}"


def _prose(path: str, source: str) -> Iterator[tuple[int, str]]:
    """The parts of a file that are prose, each with its first line."""
    if not is_python(path):
        yield 1, _blanked(source, CODE, TABLE) if path.endswith(".md") else source
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in TEXTS:
            yield token.start[0], token.string


def _blanked(page: str, *patterns: re.Pattern[str]) -> str:
    """The page without what the patterns match, with as many lines."""
    for pattern in patterns:
        page = pattern.sub(lambda found: "\n" * found[0].count("\n"), page)
    return page


def attributes_are_described_by_a_noun(path: str, source: str) -> Iterator[Finding]:
    """The docstring of an attribute or constant says what it is."""
    for node in parsed(source)[1]:
        body = getattr(node, "body", None)
        for before, after in pairwise(body if isinstance(body, list) else []):
            match before, after:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str() as text)):
                    if found := BARE_OPENING.match(text):
                        yield after.lineno, f"bare opening: {found[0]}"


RULES = (
    Rule(
        prose_has_no_avoided_words,
        has_prose,
        faults=(
            ("cluster/a.py", '"""The peers.\n\nSo many that they are listed.\n"""'),
            ("validator/a.py", "x = 1  # nobody asks"),
            ("consensus/a.py", "raise ValueError(f'{name} has a key of its own')"),
            ("docs/a.md", "It is sent\nanew."),
            ("docs/b.md", "    code\n\nNobody pays."),
            ("README.md", "Nobody pays, as so\nmany do."),
            ("CONTRIBUTING.md", "Nobody pays."),
            ("scenarios/a.yaml", "description: A validator stands still."),
            ("scenarios/b.yaml", "users:\n    # nobody pays"),
        ),
        fine=(
            ("cluster/a.py", "nobody = beside + anew\nx = 'byzantine-nobody'"),
            ("docs/a.md", "`nobody` pays, byzantine-nobody does not:\n\n```\nit stands\n```\n"),
        ),
    ),
    Rule(
        attributes_are_described_by_a_noun,
        is_code_of_product,
        faults=(
            ("cluster/a.py", 'LIMIT = 3\n"""Of one server."""'),
            ("cluster/a.py", 'class A:\n    names: list[str]\n    """By index."""'),
        ),
        fine=(("cluster/a.py", 'LIMIT = 3\n"""Connections of one server."""\n"""Of text."""'),),
    ),
)
