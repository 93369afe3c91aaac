"""The tables' columns in ``docs/data.md``, which are made from their definitions:

python -m tests.cluster.tables.reference
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.commands.inspect.export import sources

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "data.md"
TABLES: Final = re.compile(r"(?<=<!-- tables -->\n).*(?=<!-- end -->)", re.DOTALL)


def reference() -> str:
    """The sections of all tables."""
    return "\n".join(_lines())


def page() -> str:
    """The page with these sections."""
    return TABLES.sub(lambda _: reference(), PAGE.read_text(encoding="utf-8"))


def _lines() -> Iterator[str]:
    for title, table in ((source.title, table) for source in sources() for table in source.tables):
        yield f"## `{table.name}` of {title}\n\n{table.words}\n"
        yield "| column | type | unit | what |\n|---|---|---|---|"
        for column in table.columns:
            yield f"| `{column.name}` | {column.type.value} | {column.unit} | {column.words} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
