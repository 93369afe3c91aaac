"""A byte order mark at the beginning of a file that a user writes is no part of its text."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.compare.budget import read_budget
from cluster.common.errors import BadInput
from cluster.common.files import read_json_object
from cluster.common.strict_json import Wrong
from cluster.local_chain.programs import read_source
from cluster.record import genesis_file
from cluster.scenario.files import load_scenario
from kits.conform import t8n_input
from kits.conform.peer import read_secret
from kits.explore.schedule import read_schedule

PROGRAM = "class A(Actor):\n    def f(self, payload):\n        pass\n"
GENESIS = '{"chain_id": "a", "validators": ["' + "ab" * 32 + '"]}'
REQUEST = '{"genesis": {}, "blocks": []}'
SCHEDULE = '{"scope": {}, "rules": [], "steps": []}'


def scenario_with(field: str) -> Callable[[Path], object]:
    """Reads a scenario in which a field is the file's path."""

    def read(path: Path) -> object:
        scenario = path.with_name("own.yaml")
        scenario.write_text(f"name: own\n{field.replace('FILE', f'./{path.name}')}\n", encoding="utf-8")
        return load_scenario(scenario)

    return read


FILES: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "scenario": ("scenario.yaml", "name: a\nseed: 7\n", load_scenario),
    "parent": ("parent.yaml", "name: a\nseed: 7\n", scenario_with("extends: FILE")),
    "trace": ("a.csv", "0,1\n", scenario_with("load: {phases: [{kind: trace, from_ms: 0, points: FILE}]}")),
    "program of an actor": (
        "a.py",
        PROGRAM,
        scenario_with("chain: {actors: {a: {deployer: seed:b, program: FILE}}}"),
    ),
    "Locustfile": ("a.py", "import locust\n", scenario_with("load: {locust: FILE}")),
    "program": ("a.py", PROGRAM, read_source),
    "budget": ("a.yaml", "metrics: {block_time_p50_ms: {more: 10%}}\n", read_budget),
    "genesis": ("a.json", GENESIS, genesis_file.read_genesis),
    "genesis of t8n": ("a.json", "{}", t8n_input.read_genesis),
    "blocks of t8n": ("a.json", "[]", lambda path: t8n_input.read_blocks(path, t8n_input.genesis_of({}))),
    "request of t8n": ("a.json", REQUEST, lambda path: t8n_input.read_request(path.read_bytes())),
    "result": ("a.json", '{"a": 1}', read_json_object),
    "schedule": ("a.json", SCHEDULE, read_schedule),
    "secret": ("a.hex", "ab" * 32, read_secret),
}


def outcome(read: Callable[[Path], Any], path: Path) -> str:
    try:
        return repr(read(path))
    except (BadInput, Wrong) as error:
        return f"refused: {error}"


@pytest.mark.parametrize("kind", FILES)
def test_a_byte_order_mark_changes_nothing(kind: str, tmp_path: Path) -> None:
    name, text, read = FILES[kind]
    path = tmp_path / name
    path.write_bytes(text.encode())
    plain = outcome(read, path)
    assert kind == "schedule" or not plain.startswith("refused"), plain
    path.write_bytes(BOM_UTF8 + text.encode())
    assert outcome(read, path) == plain
