"""``docs/actors.md``: its tables are the code's, its programs run, and its commands print what it shows."""

from __future__ import annotations

import re

import pytest

from tests.kits.actors.reference import FILE, PAGE, ROOT, TABLE, TABLES, render
from validator.pvm.language.subset import ProgramError, parse

ERRORS = re.compile(r'(?:fault|Rejection|HandlerFailure|super\(\).__init__)\("([A-Z]\w+)"')
NOT_OF_ACTORS = {
    "ConfigInvalid",  # system instructions
    "NotSystemDeployer",
    "BadScript",  # scripts
    "ScriptFailed",
}
ANEW = "write it anew: python -m tests.kits.actors.reference"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_what_the_page_shows_is_what_the_code_does(page: str) -> None:
    rendered = render(page)
    assert rendered.splitlines() == page.splitlines(), ANEW


def test_all_tables_are_on_the_page(page: str) -> None:
    assert sorted(name for _, name, _ in TABLE.findall(page)) == sorted(TABLES)


def test_the_programs_of_the_page_are_fine_but_for_the_one_that_is_not(page: str) -> None:
    programs = dict(FILE.findall(page))
    refused = []
    for name, source in programs.items():
        try:
            parse(source)
        except ProgramError:
            refused.append(name)
    assert refused == ["hasty.py"] and len(programs) > 3


def test_every_error_that_a_receipt_can_show_is_on_the_page(page: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "validator").rglob("*.py")]
    names = {name for source in sources for name in ERRORS.findall(source)} - NOT_OF_ACTORS
    assert len(names) > 30
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_links_inside_the_page_lead_somewhere(page: str) -> None:
    heads = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in re.findall(r"^#+ (.+)$", page, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= heads
