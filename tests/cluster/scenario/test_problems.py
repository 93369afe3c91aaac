"""What is wrong with a scenario is said in words of its own: what was expected, what was given, what is near."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from cluster.common.errors import BadInput
from cluster.scenario import Scenario
from cluster.scenario.fields import fields_at
from cluster.scenario.files import change_scenario, fault_to_add, scenario_from
from cluster.scenario.overrides import parse_setting
from cluster.scenario.problems import PATTERN_TEXTS
from loadgen.workloads import WORKLOADS

SCENARIO = Scenario.model_validate(
    {"name": "s", "faults": [{"kind": "pause", "target": "leader", "at_height": 3, "for_ms": 9}]}
)
NAME = "(lower-case letters, digits, - and _, at most 64, the first a letter or a digit)"
TARGET = "the name of a validator, a list of such, region:NAME, leader, random or f"


def said_of(text: str) -> str:
    """The line that a scenario's fields are refused with."""
    with pytest.raises(BadInput) as caught:
        scenario_from({"name": "s", **yaml.safe_load(text)}, "here")
    return str(caught.value).removeprefix("here: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("falts: []", "falts: unknown field; did you mean faults?"),
        ("links: {jitter: 3}", "links.jitter: unknown field; did you mean jitter_ms?"),
        ("stop: {timeout_ms: 9}", "stop.timeout_ms: unknown field; did you mean timeout_s?"),
        ("stop: {x: 9}", "stop.x: unknown field; known: height, duration_s, timeout_s, drain_blocks"),
        (
            "success: {metrics: {fires: {max: 4}}}",
            "success.metrics.fires.max: unknown field; known: at_least, at_most",
        ),
        (
            "faults: [{kind: pause, target: f, at_ms: 1, for_s: 4}]",
            "faults[0].for_s: unknown field; did you mean for_ms?",
        ),
        (
            "faults: [{kind: pause, target: f, at_heigth: 1, for_ms: 4}]",
            "faults[0].at_heigth: unknown field; did you mean at_height?",
        ),
        (
            "faults: [{kind: degrade, form: [validator-0], at_ms: 1, for_ms: 4, loss: 0.5}]",
            "faults[0].form: unknown field; did you mean from?",
        ),
        (
            "faults: [{kind: kill, targte: f, at_ms: 1}]",
            "faults[0].targte: unknown field; did you mean target? (and 1 more)",
        ),
        (
            "load: {users: [{workload: flood, options: {timer: 1}}]}",
            "load.users[0].options.timer: unknown field; did you mean timers?",
        ),
        (
            "load: {users: [{workload: program, options: {program: token, calls: [{handler: a, gas: 1}]}}]}",
            "load.users[0].options.calls[0].gas: unknown field; known: handler, payload, gas_limit, cells_limit, value",
        ),
        (
            "links: {topology: {kind: star, hubb: validator-0}}",
            "links.topology.hubb: unknown field; did you mean hub?",
        ),
        (
            "load: {phases: [{kind: steady, rates: 2}]}",
            "load.phases[0].rates: unknown field; did you mean rate? (and 1 more)",
        ),
        (
            "load: {users: [{workload: churn, phases: [{kind: steady, rates: 2}]}]}",
            "load.users[0].phases[0].rates: unknown field; did you mean rate? (and 1 more)",
        ),
    ],
)
def test_an_unknown_field_is_told_what_is_near_or_what_there_is(text: str, line: str) -> None:
    assert said_of(text) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("stop: {timeout_s: 4m}", "stop.timeout_s: expected a whole number, got '4m'"),
        ("stop: {height: 4.5}", "stop.height: expected a whole number, got 4.5"),
        ("stop: {height: true}", "stop.height: expected a whole number, got true"),
        ("stop: {height: 2001-02-03}", "stop.height: expected a whole number, got the date 2001-02-03"),
        ("storage: {segment_kib: big}", "storage.segment_kib: expected a whole number, got 'big'"),
        ("links: {jitter_ms: '2'}", "links.jitter_ms: expected a number, got '2'"),
        ("links: {loss: [1]}", "links.loss: expected a number, got a list"),
        ("links: {loss: {a: 1}}", "links.loss: expected a number, got a mapping"),
        ("links: {loss: }", "links.loss: expected a number, got nothing"),
        (
            "links: {latency_matrix_ms: {east: {west_s: x}}}",
            "links.latency_matrix_ms.east.west_s: expected a number, got 'x'",
        ),
        (
            "validators: {allow_more_faults: 'yes'}",
            "validators.allow_more_faults: expected true or false, got 'yes'",
        ),
        ("chain: {params: [1]}", "chain.params: expected a mapping of fields, got a list"),
        ("description: 3", "description: expected a text, got 3"),
        ("faults: 3", "faults: expected a list, got 3"),
        ("1: 3", "[1]: expected the name of a field, got 1"),
        ("name: Mine Run", f"name: expected a name {NAME}, got 'Mine Run'"),
        ("links: {regions: {US: [validator-0]}}", f"links.regions.US: expected a name {NAME}, got 'US'"),
        (
            "faults: [{kind: kill, target: Leader, at_ms: 1}]",
            f"faults[0].target: expected {TARGET} (did you mean leader?), got 'Leader'",
        ),
        (
            "faults: [{kind: kill, target: [a, B], at_ms: 1}]",
            f"faults[0].target[1]: expected {TARGET}, got 'B'",
        ),
        (
            "faults: [{kind: degrade, from: ['B'], loss: 0.1, at_ms: 1, for_ms: 2}]",
            f"faults[0].from[0]: expected a validator's name or region:NAME {NAME}, got 'B'",
        ),
        ("faults: [{kind: kill, at_ms: 1}]", f"faults[0].target: is missing; expected {TARGET}"),
        (
            "faults: [{kind: leader_delay, at_ms: 1, for_ms: 1}]",
            "faults[0].delay_ms: is missing",
        ),
        (
            "load: {users: [{}]}",
            "load.users[0].workload: is missing; expected the path of a Python file or one of "
            + ", ".join(sorted(WORKLOADS)),
        ),
        ("stop: {height: 0}", "stop.height: expected at least 1, got 0"),
        ("links: {latency_ms: 1.0e+9}", "links.latency_ms: expected at most 60000, got 1000000000.0"),
        ("seed: 18446744073709551616", "seed: expected less than 18446744073709551616, got 18446744073709551616"),
        ("links: {topology: {kind: small-world, k: 3}}", "links.topology.k: expected a multiple of 2, got 3"),
        ("consensus: {protocol: raft}", "consensus.protocol: expected 'simplex' or 'hotstuff', got 'raft'"),
        ("faults: [{kind: kill, target: [], at_ms: 1}]", "faults[0].target: expected at least 1 in the list, got 0"),
        (
            "load: {users: [{workload: program, options: {program: token, calls: [{handler: ''}]}}]}",
            "load.users[0].options.calls[0].handler: expected a text of at least 1 character, got ''",
        ),
    ],
)
def test_a_wrong_value_is_told_what_was_expected(text: str, line: str) -> None:
    assert said_of(text) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "faults: [{kind: kill, target: leeder, at_ms: 1}]",
            "faults[0].target: no validator is named 'leeder'; did you mean leader?",
        ),
        (
            "faults: [{kind: kill, target: bob, at_ms: 1}]",
            "faults[0].target: no validator is named 'bob'; there are leader, random, f, region:NAME,"
            " validator-0, validator-1, validator-2, validator-3",
        ),
        (
            "faults: [{kind: kill, target: validater-2, at_ms: 1}]",
            "faults[0].target: no validator is named 'validater-2'; did you mean validator-2?",
        ),
        (
            "validators: 3\nlinks: {regions: {us-east: [validator-3]}}",
            "links.regions.us-east: no validator is named 'validator-3'; there are validator-0, validator-1,"
            " validator-2",
        ),
        (
            "links: {regions: {us-east: [validator-1], eu: [validator-1]}}",
            "links.regions.eu: validator-1 is in us-east and in eu; expected each validator once, in one region",
        ),
        (
            "links: {regions: {eu: [validator-1, validator-1]}}",
            "links.regions.eu: validator-1 is named twice; expected each validator once, in one region",
        ),
    ],
)
def test_an_unknown_validator_is_told_who_there_is(text: str, line: str) -> None:
    assert said_of(text) == line


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("links.los=0.1", "here: links.los: unknown field; did you mean loss?"),
        ("faults[0].for_s=3", "here: faults[0].for_s: unknown field; did you mean for_ms?"),
        ("faults[0].for_ms=4s", "here: faults[0].for_ms: expected a whole number, got '4s'"),
        (
            "validators=none",
            "here: validators: expected a number, a list of validators or a mapping of fields, got 'no",
        ),
        ("name=Mine Run", f"here: name: expected a name {NAME}, got 'Mine Run'"),
    ],
)
def test_a_setting_is_told_the_same(setting: str, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        change_scenario(SCENARIO, [parse_setting(setting)], "here")
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ({"kind": "kill", "at_ms": 1}, f"target: is missing; expected {TARGET}"),
        ({"kind": "pause", "target": "f", "at_ms": 1, "for_s": 4}, "for_s: unknown field; did you mean for_ms?"),
        (
            {"kind": "pause", "target": "f", "at_ms": 1, "for_ms": "4"},
            "for_ms: expected a whole number, got '4'",
        ),
        (
            {"kind": "kill", "target": "leeder", "at_ms": 1},
            "target: no validator is named 'leeder'; did you mean leader?",
        ),
        ({"at_ms": 1}, "kind: is missing; known: bit_rot, clock_skew, "),
    ],
)
def test_a_fault_that_is_injected_is_told_the_same(fault: dict[str, Any], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        fault_to_add(SCENARIO, fault, has_end=False)
    assert str(caught.value).startswith(line)


# --- nothing is left to pydantic's words ------------------------------------------------------------------------------

ROOTS: tuple[type[BaseModel], ...] = (Scenario, *(workload.options_type for workload in WORKLOADS.values()))


def schemas_within(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        schema = list(schema.values())
    for each in schema if isinstance(schema, list | tuple) else ():
        yield from schemas_within(each)


def test_every_pattern_has_words() -> None:
    schemas = [schema for model in ROOTS for schema in schemas_within(model.__pydantic_core_schema__)]
    found = {each["pattern"] for each in schemas if each.get("type") == "str" and each.get("pattern")}
    assert found
    assert found <= set(PATTERN_TEXTS)


@pytest.mark.parametrize(
    "wrong",
    [None, True, -1, 10**6, 1 << 20_000, 0.5, float("nan"), "", "x y", "9", [], [[]], {}, {"x": 1}, (1,), b"x"],
    ids=lambda wrong: f"{wrong}"[:9] if not isinstance(wrong, int) or wrong < 1 << 64 else "very many digits",
)
@pytest.mark.parametrize("path", ["", "stop", "consensus", "links", "load", "success", "validators", "chain"])
def test_no_wrong_value_is_answered_in_other_words(path: str, wrong: Any) -> None:
    for name in fields_at(Scenario, path.split(".") if path else [], {}):
        given: dict[str, Any] = {"name": "a"}
        (given.setdefault(path, {}) if path else given)[name] = wrong
        try:
            scenario_from(given)
        except BadInput as error:
            line = str(error)
            assert "\n" not in line
            assert not re.search(r"Input should|Extra inputs|valid (string|integer|number)|Field required", line), line


def test_fields_are_found_behind_kinds_items_and_workloads() -> None:
    faults = [{"kind": "pause"}, {"kind": "degrade"}, {"kind": "weather"}, {}]
    given = {"load": {"users": [{"workload": "flood"}]}, "faults": faults}
    assert fields_at(Scenario, [], given)[:2] == ["name", "description"]
    assert "for_ms" in fields_at(Scenario, ["faults", 0], given)
    assert "from" in fields_at(Scenario, ["faults", 1], given)
    assert [fields_at(Scenario, ["faults", place], given) for place in (2, 3, 4)] == [[], [], []]
    assert "timers" in fields_at(Scenario, ["load", "users", 0, "options"], given)
    assert fields_at(Scenario, ["load", "users", 1, "options"], given) == []
    assert fields_at(Scenario, ["links", "regions", "east"], given) == []


def test_mappings_and_sequences_of_any_kind_are_plain_data() -> None:
    stop = MappingProxyType({"height": 9})
    made = scenario_from(
        MappingProxyType({"name": "a", "stop": stop, "links": {"regions": {"east": ("validator-0",)}}})
    )
    assert made == scenario_from({"name": "a", "stop": {"height": 9}, "links": {"regions": {"east": ["validator-0"]}}})


def test_a_number_of_very_many_digits_is_not_written_out() -> None:
    with pytest.raises(BadInput, match=r"seed: expected less than .*, got a number of very many digits"):
        scenario_from({"name": "a", "seed": 1 << 20_000})


def test_of_many_validators_the_roles_are_told_too() -> None:
    kill = {"kind": "kill", "target": "bob", "at_height": 3}
    with pytest.raises(BadInput) as caught:
        scenario_from({"name": "a", "validators": 30, "faults": [kill]})
    assert "there are leader, random, f, region:NAME, validator-0, " in str(caught.value)
    assert str(caught.value).endswith("…, validator-29")
