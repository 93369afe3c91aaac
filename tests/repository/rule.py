"""A rule: a check that is run over every file that it is about, and over planted faults, which it must find.

A check takes a file's path and text, and yields each problem as ``(line, reason)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

Finding = tuple[int, str]
Check = Callable[[str, str], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """A check, the files that it is about, and what it must and must not find, as (path, text)."""

    check: Check
    about: Callable[[str], bool]
    faults: tuple[tuple[str, str], ...]
    fine: tuple[tuple[str, str], ...] = ()


def rule_name(rule: Rule) -> str:
    return rule.check.__name__
