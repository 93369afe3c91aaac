"""The families of cases: they are many, reach the rules that they name, and make the same case of a seed each time."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.audit.ledger import SHOWN_BY
from cluster.common.errors import BadInput
from kits.conform.families.table import TABLE
from kits.conform.rules import OF_THE_TREE, RULES
from kits.conform.shrink import expected_answer
from kits.conform.source import execute_by_spec
from tests.kits.conform.reference import PAGE, with_tables

DOCS = Path(__file__).parents[3] / "docs"
MARK = re.compile(r"\[([A-Z]-\d\d)\]")
FEW = 4


def test_there_are_enough_families() -> None:
    assert len(TABLE.families) >= 60
    assert all(rule in RULES for family in TABLE.families.values() for rule in family.rules)
    named = {rule for family in TABLE.families.values() for rule in family.rules}
    assert named == set(RULES), "each rule has a family"


def test_the_documents_number_each_rule_once() -> None:
    texts = [(DOCS / name).read_text(encoding="utf-8") for name in ("protocol.md", "policies.md")]
    marks = [mark for text in texts for mark in MARK.findall(text)]
    assert sorted(marks) == sorted(RULES)


def test_the_page_has_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "see tests/kits/conform/reference.py"
    assert with_tables(page.replace("| T-07 |", "| T-77 |")) == page


def test_a_case_is_the_same_each_time_and_its_answer_is_that_of_the_tool() -> None:
    for family in list(TABLE.families.values())[::9]:
        case, chain = family.case(3)
        again, _ = family.case(3)
        assert json.dumps(case.request) == json.dumps(again.request)
        assert case.sentence
        assert expected_answer(replace(case, **json.loads(json.dumps(case.request)))) == chain.answer()
        assert family.case(4)[0].request != case.request


def reached(name: str, seeds: int) -> set[str]:
    family = TABLE.families[name]
    return {rule for seed in family.of_seeds(range(seeds)) for rule in execute_by_spec(family.case(seed)[0])[1]}


def test_few_seeds_reach_nearly_all_rules() -> None:
    found = {rule for name in TABLE.families for rule in reached(name, FEW)}
    assert len(RULES) - len(found) <= 5, sorted(set(RULES) - found)
    assert found <= set(RULES) - OF_THE_TREE


def test_an_empty_block_reaches_few_rules() -> None:
    """What is no transaction reaches no rule about them: the marks follow what happened, not the family."""
    assert {rule[0] for rule in reached("empty-blocks", 2)} == {"B", "F"}


def test_families_are_chosen_by_patterns() -> None:
    assert [family.name for family in TABLE.chosen(["tip*", "fifo"])] == ["fifo", "tips"]
    assert len(TABLE.chosen([])) == len(TABLE.families)
    with pytest.raises(BadInput, match="no such family; did you mean nonces"):
        TABLE.chosen(["noncse"])


def test_mechanisms_are_shown_by_rules_that_there_are() -> None:
    assert SHOWN_BY.keys() <= RULES.keys()
