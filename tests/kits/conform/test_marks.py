"""The mark of a rule is behind the words that state the rule: they have the names of its place in ``spec/``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kits.conform.rules import RULES
from tests.repository.sources import is_in, is_python, text_files

MARKS = re.compile(r"(?:\s*\[[A-Z]-\d\d\])+")
UNIT = re.compile(r"\n\s*\n|\n(?=\|)|\n\s*(?:-|\d+\.) ")
"""What is between paragraphs, rows of a table, and items of a list."""
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*(])")
NAME = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+|[A-Za-z]+_[A-Za-z_]+")
REFUSAL = re.compile(r'\("([A-Z]-\d\d)"(?: if \w+ else "([A-Z]-\d\d)")?, "([A-Z]\w+)"')


def clauses(page: str) -> Iterator[tuple[str, str]]:
    """Each mark of a page, and the words to which it belongs, as docs/conformance.md says."""
    for unit in UNIT.split(page):
        head, begin = unit[1:].partition("|")[0] if unit.startswith("|") else "", 0
        for found in MARKS.finditer(unit):
            clause = head + SENTENCE.split(unit[begin : found.start()].strip())[-1]
            begin = found.end()
            for rule in re.findall(r"[A-Z]-\d\d", found[0]):
                yield rule, clause


def names() -> dict[str, set[str]]:
    """The names that the words of each rule have, and those of the errors with which ``spec/`` refuses by it."""
    found = {rule: set(NAME.findall(about)) for rule, about in RULES.items()}
    for path, text in text_files().items():
        if is_python(path) and is_in(path, "spec"):
            for rule, other, error in REFUSAL.findall(text):
                for each in filter(None, (rule, other)):
                    found[each].add(error)
    return found


def misplaced(pages: list[str]) -> dict[str, set[str]]:
    """The marks that are not behind the names of their rules, and the names that are missing."""
    wanted = names()
    given = [(rule, clause) for page in pages for rule, clause in clauses(page)]
    return {
        rule: missing for rule, clause in given if (missing := {name for name in wanted[rule] if name not in clause})
    }


def pages() -> list[str]:
    return [text_files()[f"docs/{name}.md"] for name in ("protocol", "policies")]


def test_each_mark_is_behind_the_names_of_its_rule() -> None:
    assert sum(map(bool, names().values())) > 80
    assert misplaced(pages()) == {}


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (
            "`NotOwner`. [T-25] `cancel` removes the timer. [T-21]",
            "`NotOwner`. `cancel` removes the timer. [T-21] [T-25]",
            "T-25",
        ),
        ("`NotRunner`, [J-06] `BadSubmission`, [J-07]", "`NotRunner`, `BadSubmission`, [J-07] [J-06]", ""),
        ("`NotRunner`, [J-06] `BadSubmission`", "[J-06] `NotRunner`, `BadSubmission`", "J-06"),
        (
            "bytes. [T-08] `TimerHandlerInvalid`: an invalid [name](#names). [T-09]",
            "bytes. `TimerHandlerInvalid`: an invalid [name](#names). [T-08] [T-09]",
            "T-08",
        ),
    ],
)
def test_a_mark_behind_other_words_is_found(right: str, wrong: str, rule: str) -> None:
    page, policies = pages()
    assert page.count(right) == 1
    assert misplaced([page.replace(right, wrong), policies]).keys() == set(filter(None, [rule]))
