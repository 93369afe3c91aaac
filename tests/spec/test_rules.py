"""Each numbered rule of the documents has its place in the specification, and each place its rule."""

from __future__ import annotations

import re
from functools import cache

from tests.repository.sources import is_in, is_python, text_files

IN_DOCUMENTS = re.compile(r"\[([A-Z]-\d\d)\]")
IN_SPECIFICATION = re.compile(r'["\[]([A-Z]-\d\d)["\]]')


@cache
def numbered() -> set[str]:
    """The numbers in the documents."""
    pages = (text_files()[f"docs/{name}.md"] for name in ("protocol", "policies"))
    return {number for page in pages for number in IN_DOCUMENTS.findall(page)}


def without_place(texts: list[str]) -> set[str]:
    """The rules that only the documents or only the specification has."""
    return numbered() ^ {number for text in texts for number in IN_SPECIFICATION.findall(text)}


def test_each_rule_has_its_place() -> None:
    texts = [text for path, text in text_files().items() if is_python(path) and is_in(path, "spec")]
    assert len(numbered()) > 240
    assert without_place(texts) == set()
    assert without_place([text.replace('"L-08"', '"L-99"') for text in texts]) == {"L-08", "L-99"}


def test_the_page_links_the_modules_that_apply_the_rules_of_each_letter() -> None:
    places: dict[str, set[str]] = {}
    for path, text in text_files().items():
        if is_python(path) and is_in(path, "spec") and path != "spec/__init__.py":
            for number in IN_SPECIFICATION.findall(text):
                places.setdefault(number[0], set()).add(path)
    rows = re.findall(r"^\| ([A-Z]) \| (.*spec/.*) \|$", text_files()["docs/protocol.md"], re.MULTILINE)
    assert {letter: set(re.findall(r"\]\(\.\./(\S+)\)", links)) for letter, links in rows} == places
