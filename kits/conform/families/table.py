"""All families, in the order in which an implementer makes them pass."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from kits.conform.cases.crowded import CrowdedCase
from kits.conform.cases.family import FamilyTable
from kits.conform.families import (
    agents,
    blocks,
    bounds,
    encodings,
    messages,
    policies,
    scheduling,
    scripts,
    state,
    transactions,
    turns,
)
from kits.conform.families.programs import calls, deployments, jobs

MOST_BLOCKS: Final = 5
"""Maximum number of blocks of a crowded case, or a few more if the last of them are empty."""
family: Final = FamilyTable()


@family("crowded")
def crowded(rng: random.Random) -> CrowdedCase:
    """Many rules at once: transactions, timers, agents and messages that are drawn without a plan."""
    made = CrowdedCase(rng.getrandbits(48))
    made.make(MOST_BLOCKS)
    return made


TABLE: Final = FamilyTable()
for _part in (
    blocks,
    transactions,
    scripts,
    scheduling,
    turns,
    messages,
    agents,
    state,
    calls,
    jobs,
    deployments,
    policies,
    bounds,
    encodings,
):
    TABLE.families |= _part.family.families
TABLE.families |= family.families


def ordered_rules(family: str, reached: Iterable[str]) -> tuple[str, ...]:
    """Ids of rules in the order of the documents, those that a family is about first."""
    about = TABLE.families[family].rules if family in TABLE.families else ()
    return tuple(sorted(reached, key=lambda rule: (rule not in about, rule)))


def rules_about(family: str, reached: Iterable[str]) -> tuple[str, ...]:
    """Those of the rules that a family is about."""
    return tuple(rule for rule in ordered_rules(family, reached) if rule in TABLE.families[family].rules)
