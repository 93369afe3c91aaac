"""docs/protocol.md names each field of the output of ``stampede t8n`` and of ``genesis.json``, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cluster.record.genesis_file import FIELDS, genesis_page
from kits.conform.families.table import TABLE
from kits.conform.t8n_input import genesis_of

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
OUTPUT = PAGE.partition("A block of `O`:")[2].partition("### `genesis.json`")[0]
GENESIS = PAGE.partition("### `genesis.json`")[2].partition("Test cases for an implementation:")[0]
FAMILIES = ("jobs", "unpaid-queries", "watched-keys", "bids-below-the-price", "messages", "deployed-scripts", "nonces")
OF_EVENTS = {"actor", "name"}
"""The fields that each event has; the others are named with the events."""


def first_cells(text: str) -> set[str]:
    """The names in the first two cells of a text's table rows."""
    rows = re.findall(r"^\|([^|\n]*)\|([^|\n]*)\|", text, re.M)
    return {name for row in rows for name in re.findall(r"`([a-z0-9_]+)`", row[0] + row[1])}


def keys_of(page: dict[str, Any]) -> set[str]:
    """The names of an output's fields at each level, without addresses, ids and names of storage."""
    found: set[str] = set()
    for block in page["blocks"]:
        found |= set(block) | set(block["gba"]) | set(block["tiers"]) | set(block["deferred"].values())
        for part in ("txs", "fires", "messages", "callbacks", "destroyed"):
            for each in block.get(part, ()):
                found |= set(each)
        for event in block["events"]:
            found |= set(event) & OF_EVENTS
    final = page["final"]
    found |= set(final)
    for each in (*final["accounts"].values(), *final["timers"]):
        found |= set(each)
    return found


def test_each_field_of_the_output_is_on_the_page() -> None:
    names = set(re.findall(r"`([a-z0-9_]+)`", OUTPUT))
    shown: set[str] = set()
    for name in FAMILIES:
        for seed in range(3):
            shown |= keys_of(TABLE.families[name].case(seed)[1].answer())
    assert shown - names == set()
    assert {"callbacks", "consumed", "created", "watch", "below_basefee", "not_admitted"} <= shown
    assert first_cells(OUTPUT.partition("\n| of | key |")[0]) >= {"height", "txs", "tiers", "gba", "deferred"}


def test_each_field_of_a_genesis_file_is_on_the_page() -> None:
    named = re.findall(r"^\| `([a-z_]+)` \|", GENESIS, re.M)
    assert sorted(named) == sorted(FIELDS)
    assert set(genesis_page(genesis_of({}))) <= FIELDS
