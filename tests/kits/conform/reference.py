"""The tables of docs/conformance.md: families in their order, and rules with their families.

``python -m tests.kits.conform.reference`` writes them again.
"""

from __future__ import annotations

from pathlib import Path

from kits.conform.families.table import TABLE
from kits.conform.rules import RULES

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"
FAMILIES, FAMILIES_END = "<!-- families -->\n", "<!-- end of families -->"
TABLE_OF_RULES, RULES_END = "<!-- rules -->\n", "<!-- end of rules -->"


def families_table() -> str:
    """The families with what they are about, in the order in which an implementer makes them pass."""
    rows = [
        f"| {place} | `{name}` | {family.about} |" for place, (name, family) in enumerate(TABLE.families.items(), 1)
    ]
    return "\n".join(["", "| | family | about |", "|---|---|---|", *rows, "", ""])


def rules_table() -> str:
    """The rules with the families that are about them."""
    rows = [
        f"| {rule} | {about} | "
        + ", ".join(f"`{name}`" for name, family in TABLE.families.items() if rule in family.rules)
        + " |"
        for rule, about in RULES.items()
    ]
    return "\n".join(["", "| rule | about | families |", "|---|---|---|", *rows, "", ""])


def with_tables(page: str) -> str:
    """A page with its tables as they should be."""
    for begin, end, table in (
        (FAMILIES, FAMILIES_END, families_table()),
        (TABLE_OF_RULES, RULES_END, rules_table()),
    ):
        before, _, rest = page.partition(begin)
        page = before + begin + table + end + rest.partition(end)[2]
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
