"""Each rule holds in the repository, finds its planted faults, and lets correct code pass."""

from __future__ import annotations

from functools import cache

import pytest

from tests.repository import code_rules, import_rules, word_rules
from tests.repository.rule import Rule, rule_name
from tests.repository.sources import text_files

RULES = (*import_rules.RULES, *code_rules.RULES, *word_rules.RULES)


@cache
def findings() -> dict[str, list[str]]:
    """What each rule finds in the tree, if it is about any file. File by file, so that each is parsed once."""
    found: dict[str, list[str]] = {}
    for path, text in text_files().items():
        for rule in RULES:
            if rule.about(path):
                lines = found.setdefault(rule_name(rule), [])
                lines += [f"{path}:{line}: {why}" for line, why in rule.check(path, text)]
    return found


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_rule_holds(rule: Rule) -> None:
    found = findings()
    assert rule_name(rule) in found, "it is about no file"
    assert not found[rule_name(rule)], "\n".join(found[rule_name(rule)])


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_rule_finds_planted_faults(rule: Rule) -> None:
    for path, text in rule.faults:
        assert rule.about(path) or path == "a.py", path
        assert list(rule.check(path, text)), f"not found in {path}: {text}"


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_rule_lets_fine_code_pass(rule: Rule) -> None:
    for path, text in rule.fine:
        assert list(rule.check(path, text)) == [], f"{path}: {text}"
