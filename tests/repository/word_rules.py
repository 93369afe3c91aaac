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
from tests.repository.sources import ROOT, is_in, is_python, parsed

TABLE = re.compile(r"^\| avoid \| write \|\n\|[-| ]+\|\n((?:\|.*\n)+)", re.M)

PACKAGES = ("cluster/", "consensus/", "loadgen/", "stampede/", "validator/")

DOCS = (".md", ".yaml")

CODE = re.compile(r"```.*?```|`[^`\n]*`|^ {4,}\S[^\n]*$", re.S | re.M)
"""What a Markdown page quotes: blocks of code, and names between backticks."""

TEXTS = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
"""Kinds of tokens with prose. Python 3.12 and later split an f-string into its parts."""

BARE_OPENING = re.compile(r"(?:Of|By)\b")
"""An opening that completes the attribute's name instead of saying what it is."""

KEPT = {
    "loadgen/workloads/attacks/deferred/unanswered_jobs.py": "the docstring of a program that is part of chains",
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


def has_prose(path: str) -> bool:
    """Whether a file's sentences are read by users or developers of the product."""
    if path in KEPT or is_in(path, "tests") or path == "CONTRIBUTING.md":
        return False
    return path.endswith(DOCS) or (path.endswith(".py") and path.startswith(PACKAGES))


def prose_has_no_avoided_words(path: str, source: str) -> Iterator[Finding]:
    """No word of the table in ``CONTRIBUTING.md``."""
    for line, text in _strings_and_comments(source) if path.endswith(".py") else [(1, _without_code(source))]:
        for found in avoided_words().finditer(text):
            yield line + text.count("\n", 0, found.start()), f"avoided word: {found[0]}"


def _strings_and_comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in TEXTS:
            yield token.start[0], token.string


def _without_code(page: str) -> str:
    """The page with its code blanked out, line by line."""
    return CODE.sub(lambda code: "\n" * code[0].count("\n"), page)


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
            ("scenarios/a.yaml", "description: A validator stands still."),
        ),
        fine=(
            ("cluster/a.py", "nobody = beside + anew\nx = 'byzantine-nobody'"),
            ("docs/a.md", "`nobody` pays, byzantine-nobody does not:\n\n```\nit stands\n```\n"),
        ),
    ),
    Rule(
        attributes_are_described_by_a_noun,
        lambda path: is_python(path) and path.startswith(PACKAGES),
        faults=(
            ("cluster/a.py", 'LIMIT = 3\n"""Of one server."""'),
            ("cluster/a.py", 'class A:\n    names: list[str]\n    """By index."""'),
        ),
        fine=(("cluster/a.py", 'LIMIT = 3\n"""Connections of one server."""\n"""Of text."""'),),
    ),
)
