"""The JSON schema of scenario files: equal to the code, right for every file that ships, and strict with others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.scenario import Scenario
from cluster.scenario.schema import scenario_schema, schema_text
from cluster.scenario.sections.packaged import section_names

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted((ROOT / "scenarios").rglob("*.yaml"))
SCHEMA = scenario_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def fits(text: str) -> bool:
    return bool(VALIDATOR.is_valid(yaml.safe_load(text)))


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.kits
def test_the_published_file_is_the_schema() -> None:
    published = (ROOT / "scenarios" / "schema.json").read_text(encoding="utf-8")
    assert published == schema_text(), "stampede schema > scenarios/schema.json"


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == ExitCode.PASS
    assert json.loads(capsys.readouterr().out) == SCHEMA


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_scenario_fits_and_names_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    schema = os.path.relpath(ROOT / "scenarios" / "schema.json", path.parent)
    assert text.startswith(f"# yaml-language-server: $schema={schema}\n")
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(text))] == []


# --- what fits ------------------------------------------------------------------------------------------------------

RIGHT = {
    "the smallest": "name: a",
    "a number of validators": "name: a\nvalidators: 4",
    "a list of validators": "name: a\nvalidators: [{name: b}, ~, {byzantine: garbage}, {byzantine: [garbage, twins]}]",
    "a mutant": "name: a\nvalidators: [{mutant: double-fire}, {mutant: ~}]",
    "particular ones": "name: a\nvalidators: {nodes: [{sync_ms: 5, job_ms: 9, clock_speed: 1.5, region: east}]}",
    "a topology's name": "name: a\nlinks: {topology: ring}",
    "a topology": "name: a\nlinks: {topology: {kind: small-world, k: 4, p: 0.5}}",
    "edges": "name: a\nlinks: {topology: [[b, c], {between: [c, d], loss: 0.1}]}",
    "edges at length": "name: a\nlinks: {topology: {kind: edges, edges: [[b, c]], allow_disconnected: true}}",
    "latencies": "name: a\nlinks: {latencies: azure, regions: {us-east: [b]}, latency_matrix_ms: {c: {d: 1}}}",
    "targets": "name: a\nfaults: [{kind: kill, target: leader, at_ms: 1}, {kind: wipe, target: [b], at_height: 1}]",
    "an upgrade": "name: a\nfaults: [{kind: upgrade, target: [b, c], mutant: double-fire, at_ms: 1}]",
    "an upgrade of all": "name: a\nfaults: [{kind: upgrade, target: ~, at_ms: 1}]",
    "a region": "name: a\nfaults: [{kind: pause, target: 'region:east', at_ms: 1, for_ms: 1}]",
    "directions": "name: a\nfaults: [{kind: one_way_partition, from: [b], to: ['region:c'], at_ms: 1, for_ms: 1}]",
    "phases": "name: a\nload: {phases: [{kind: ramp, until_height: 9, to_rate: 2}, {kind: pause, from_height: 9}]}",
    "phases by time": "name: a\nload: {phases: [{kind: sine, from_ms: 0, until_ms: 9, amplitude: 1, period_ms: 200}]}",
    "a trace": "name: a\nload: {phases: [{kind: trace, from_ms: 0, points: [[0, 1], [500, 0.5]]}]}",
    "a trace in a file": "name: a\nload: {phases: [{kind: trace, from_ms: 0, points: rates.csv}]}",
    "phases of a group": "name: a\nload: {users: [{workload: flood, phases: [{kind: spike, until_ms: 9, rate: 2}]}]}",
    "a group without the load's phases": "name: a\nload: {users: [{workload: flood, phases: []}]}",
    "a group's trace in a file": "name: a\n"
    "load: {users: [{workload: flood, phases: [{kind: trace, from_ms: 0, points: rates.csv}]}]}",
    "a workload's options": "name: a\nload: {users: [{workload: flood, options: {timers: 3}}]}",
    "a workload of one's own": "name: a\nload: {users: [{workload: ./pulse.py, options: {any: 3}}]}",
    "a Locustfile": "name: a\nload: {locust: ./users.py}",
    "Locustfiles": "name: a\nload: {locust: [./users.py, {name: b, source: pass}]}",
    "Locust users": "name: a\nload: {locust: {files: [./users.py], users: 9}}",
    "Locust users of one file": "name: a\nload: {locust: {files: ./users.py}}",
    "a workload's text": "name: a\nload: {users: [{workload: {name: pulse, source: pass}}]}",
    "options of a program": "name: a\n"
    "load: {users: [{workload: program, options: {program: x, calls: [{handler: h}]}}]}",
    "parameters": "name: a\nchain: {params: {MAX_BASEFEE: '1000', TIE_BREAK: aged, PRIORITY_TIERS: [1, 2, 3, 4]}}",
    "accounts": f"name: a\nchain: {{accounts: {{'seed:b': 5, '0x{'a' * 40}': '7', '{'b' * 64}': 0}}}}",
    "actors": "name: a\nchain: {actors: {b: {program: ./c.py}, c: {program: {name: d, source: e}, balance: '5'}}}",
    "an agent": "name: a\n"
    "chain: {actors: {b: {program: c, gba: {max_fee_per_cycle: '5', max_priority_fee_per_cycle: 1}}}}",
    "deployers": "name: a\nchain: {system_deployers: ['seed:a'], faucet: {max_amount: '5'}}",
    "deployed programs": "name: a\n"
    "load: {users: [{workload: governance, options: {deploys: [b, {name: c, source: d}]}}]}",
    "a figure's bounds": "name: a\nsuccess: {metrics: {fires: {at_least: 1}}}",
    "samples' bounds": "name: a\nsuccess: {samples: {fires_per_block: {at_most: 9, breach_share: 0.1}}}",
    "forks": "name: a\nforks: [{at_height: 9, changes: {links.loss: 0.1}}]",
    "what extends another": "extends: b.yaml\nseed: 3",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_short_and_long_forms_fit(text: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(text))] == []


WRONG = {
    "nothing that has to be given": "seed: 3",
    "an unknown field": "name: a\ncolour: red",
    "an unknown field in a section": "name: a\nstop: {hight: 9}",
    "a wrong name": "name: A scenario",
    "a wrong type": "name: a\nseed: '1'",
    "out of range": "name: a\nlinks: {loss: 0.95}",
    "no validators": "name: a\nvalidators: 0",
    "an unknown behaviour": "name: a\nvalidators: [{byzantine: rude}]",
    "an unknown topology": "name: a\nlinks: {topology: torus}",
    "a topology without a kind": "name: a\nlinks: {topology: {degree: 3}}",
    "another topology's field": "name: a\nlinks: {topology: {kind: ring, hub: b}}",
    "an edge of three": "name: a\nlinks: {topology: [[b, c, d]]}",
    "unknown latencies": "name: a\nlinks: {latencies: moon}",
    "an unknown fault": "name: a\nfaults: [{kind: earthquake}]",
    "a fault without a target": "name: a\nfaults: [{kind: kill, at_ms: 1}]",
    "another fault's field": "name: a\nfaults: [{kind: kill, target: f, at_ms: 1, for_ms: 1}]",
    "a target that is a number": "name: a\nfaults: [{kind: kill, target: 3, at_ms: 1}]",
    "an unknown workload": "name: a\nload: {users: [{workload: chess}]}",
    "Locust users without files": "name: a\nload: {locust: {users: 9}}",
    "a workload without a text": "name: a\nload: {users: [{workload: {name: pulse}}]}",
    "another workload's option": "name: a\nload: {users: [{workload: transfer, options: {timers: 1}}]}",
    "an unknown parameter": "name: a\nchain: {params: {LANE: 1}}",
    "a parameter out of range": "name: a\nchain: {params: {SCAN_LIMIT: 0}}",
    "an owner without a kind": "name: a\nchain: {system_deployers: [alice]}",
    "a negative balance": "name: a\nchain: {accounts: {'seed:b': -5}}",
    "an actor without a program": "name: a\nchain: {actors: {b: {balance: 5}}}",
    "a short address": "name: a\nchain: {actors: {b: {program: c, address: '0xabc'}}}",
    "an unknown phase": "name: a\nload: {phases: [{kind: wave}]}",
    "an unknown phase of a group": "name: a\nload: {users: [{workload: flood, phases: [{kind: wave}]}]}",
    "an unknown metric": "name: a\nsuccess: {metrics: {happiness: {at_least: 1}}}",
    "a share of a metric": "name: a\nsuccess: {metrics: {fires: {at_least: 1, breach_share: 0.1}}}",
    "a wrong parent": "extends: 7",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_does_not_fit(text: str) -> None:
    assert not fits(text)


# --- descriptions ---------------------------------------------------------------------------------------------------


def properties(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        for name, inner in schema.get("properties", {}).items():
            yield f"{path}.{name}", inner
            yield from properties(inner, f"{path}.{name}")
        for name, inner in schema.get("$defs", {}).items():
            yield from properties(inner, name)


def test_every_field_is_described() -> None:
    """By its own docstring, or by that of the section that it holds."""
    parameters = "ChainSection.params."
    missing = [
        path
        for path, field in properties(SCHEMA)
        if "description" not in field and "$ref" not in field and not path.startswith(parameters)
    ]
    assert missing == []
    assert all(definition["description"] for definition in SCHEMA["$defs"].values())


def test_descriptions_are_plain_text() -> None:
    texts = [field["description"] for _, field in properties(SCHEMA) if "description" in field]
    assert not [text for text in texts if "``" in text or ":class:" in text or ":data:" in text]
    node = SCHEMA["$defs"]["NodeSection"]["properties"]
    assert node["sync_ms"]["description"] == "A slow disk: minimum time of a sync."


def test_every_section_of_a_scenario_is_in_it() -> None:
    assert SCHEMA["properties"].keys() == {"extends", *Scenario.model_fields, *section_names()}
