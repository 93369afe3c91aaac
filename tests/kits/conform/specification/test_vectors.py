"""The worked examples of `tests/vectors/t8n/`: explained input, and what of the output is expected.

`expected` may leave out fields; a list must have the expected length. The specification must agree too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.conform.specification.compare import compare, difference, validators_answer

VECTORS = sorted((Path(__file__).parents[3] / "vectors" / "t8n").glob("*.json"))


def shown_of(output: Any, expected: Any) -> Any:
    """The part of an output that an expectation speaks of. `deferred`, a map of its own, is always meant whole."""
    if isinstance(output, dict) and isinstance(expected, dict):
        parts = {name: output[name] for name in output if name in expected}
        return {name: part if name == "deferred" else shown_of(part, expected[name]) for name, part in parts.items()}
    if isinstance(output, list) and isinstance(expected, list) and len(output) == len(expected):
        return [shown_of(item, wanted) for item, wanted in zip(output, expected, strict=True)]
    return output


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    vector = json.loads(path.read_text(encoding="utf-8"))
    assert vector.keys() == {"description", "genesis", "blocks", "expected"}
    output = validators_answer(vector["genesis"], vector["blocks"])
    assert compare(vector["genesis"], vector["blocks"]) is None
    found = difference(shown_of(output, vector["expected"]), vector["expected"])
    assert found is None, f"{path.name}: {found}"


def test_every_section_has_a_vector() -> None:
    sections = {int(path.stem.split("-")[1]) for path in VECTORS if path.stem.startswith("section-")}
    assert sections == {*range(2, 15), 17}


def test_an_expectation_is_held_against_the_output() -> None:
    output = {"a": [{"b": 1, "c": 2}], "deferred": {"t": "lane_full"}}
    for right in ({}, {"a": [{"b": 1}]}, {"a": [{}], "deferred": {"t": "lane_full"}}):
        assert difference(shown_of(output, right), right) is None
    wrongs: list[dict[str, Any]]
    wrongs = [{"a": []}, {"a": [{"b": 2}]}, {"a": [{"x": 1}]}, {"a": [{"b": True}]}, {"x": 1}, {"deferred": {}}]
    for wrong in wrongs:
        assert difference(shown_of(output, wrong), wrong) is not None
