"""A policy of one's own beside a scenario's file: the text takes the place of the path, and goes with the genesis."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cluster.checks.run import judge_run
from cluster.commands.explain.outline import outline
from cluster.common.errors import BadInput
from cluster.record import genesis_file
from cluster.report.results import result_of
from cluster.report.tables import facts
from cluster.scenario.files import (
    change_scenario,
    load_scenario,
    minimal_fields,
    problems_in,
    scenario_from,
    scenario_text,
)
from cluster.scenario.genesis import build_genesis, validator_set
from cluster.scenario.overrides import parse_setting
from cluster.scenario.sections.chain import ChainSection, OwnPolicy
from cluster.watches.watched_simulation import WatchedSimulation, simulate
from consensus.keys import KeyedHashScheme
from tests.validator.policies.own_policies import DEADLINES, STATED, derived, example
from validator.chain.genesis import Genesis, Policy, Replaces
from validator.policies.own import PolicyError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SCENARIO = """name: own
chain: {policy: ../deadline.py}
load: {users: [{workload: heartbeat, count: 3}]}
stop: {height: 9}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "scenarios" / "own.yaml"
    path.parent.mkdir()
    path.write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "deadline.py").write_text(DEADLINES, encoding="utf-8")
    return path


def genesis_of(path: Path) -> Genesis:
    scenario = load_scenario(path)
    return build_genesis(scenario, 1, validator_set(KeyedHashScheme(), scenario, 1))


def test_the_text_is_read_with_the_scenario(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario(own)
    assert scenario.chain.policy == OwnPolicy(name="deadline", source=DEADLINES)
    child = tmp_path / "child.yaml"
    child.write_text("extends: scenarios/own.yaml\nseed: 3\n", encoding="utf-8")
    assert load_scenario(child).chain == scenario.chain, "a path is relative to the file that has it"
    monkeypatch.chdir(tmp_path)
    changed = change_scenario(scenario, [parse_setting("chain.policy=./deadline.py")], "--set")
    assert changed.chain == scenario.chain
    (tmp_path / "deadline.py").unlink()
    own.write_text(scenario_text(scenario, None), encoding="utf-8")
    assert load_scenario(own) == scenario, "the copy in a run's folder needs no other file"
    assert scenario_from(minimal_fields(scenario)) == scenario


def test_the_genesis_has_the_text(own: Path) -> None:
    genesis = genesis_of(own)
    assert genesis.policy is Policy.FIFO
    assert genesis.policy_file is not None and genesis.policy_file.replaces == {Replaces.ORDER}
    page = json.loads(genesis_file.to_json(genesis))
    assert page["policy"] == {"name": "deadline", "source": DEADLINES}
    assert genesis_file.from_json(json.dumps(page)) == genesis


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        ({"name": "a"}, "policy: field 'source' is missing"),
        ({"name": "a", "source": "x = ("}, "policy: file a.py, line 1: '(' was never closed"),
        ({"name": "a", "source": "x = 1", "base": 1}, "policy: unknown field 'base'; known: name, parameters, source"),
        (
            {"name": "a", "source": STATED, "parameters": {"most_fires": 99}},
            "policy.parameters.most_fires: 99 is out of range, expected 1 to 9",
        ),
        ({"name": "a", "source": STATED, "parameters": 3}, "policy.parameters: expected an object, got a number"),
    ],
)
def test_a_genesis_with_a_wrong_policy_is_one_line(own: Path, policy: object, line: str) -> None:
    page = json.loads(genesis_file.to_json(genesis_of(own))) | {"policy": policy}
    with pytest.raises(BadInput, match=line.replace("(", r"\(")):
        genesis_file.from_json(json.dumps(page))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "chain.policy: {path}: no such file; did you mean deadlines.py?"),
        (b"", "chain.policy: {path}: expected a program in Python, got an empty file"),
        (b"x = (", "chain.policy: file deadline.py, line 1: '(' was never closed"),
        (b"x = 1", "chain.policy: file deadline.py: expected one class that is derived from the timer phase of a"),
    ],
)
def test_a_file_that_is_no_policy_is_one_line(own: Path, tmp_path: Path, content: bytes | None, line: str) -> None:
    path = tmp_path / "deadline.py"
    path.unlink()
    if content is None:
        (tmp_path / "deadlines.py").touch()
    else:
        path.write_bytes(content)
    (found,) = problems_in(own)
    assert found.startswith(f"{own}: {line.format(path=own.parent / '../deadline.py')}")
    assert "\n" not in found


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        ("5", "chain.policy: expected 'cip1', 'fifo', 'gba_auction' or 'bias_auction', got 5"),
        ("{name: a}", "chain.policy.source: is missing"),
        ("{name: a, sauce: x}", "chain.policy.sauce: unknown field; did you mean source?"),
    ],
)
def test_a_wrong_field_is_named(own: Path, policy: str, line: str) -> None:
    own.write_text(f"name: own\nchain: {{policy: {policy}}}", encoding="utf-8")
    with pytest.raises(BadInput) as raised:
        load_scenario(own)
    assert str(raised.value).startswith(f"{own}: {line}")


def test_a_path_is_refused_where_no_file_can_be_read() -> None:
    with pytest.raises(ValueError, match="is a path, which only a scenario that is read from a file may have"):
        ChainSection.model_validate({"policy": "./deadline.py"})


# --- parameters -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stated(own: Path, tmp_path: Path) -> Path:
    (tmp_path / "deadline.py").write_text(STATED, encoding="utf-8")
    own.write_text(SCENARIO.replace("}", ", policy_parameters: {most_fires: 1}}", 1), encoding="utf-8")
    return own


def test_a_scenario_gives_parameters_that_the_policy_states(stated: Path) -> None:
    genesis = genesis_of(stated)
    assert genesis.policy_parameters == {"lane_price": 3, "most_fires": 1}
    page = json.loads(genesis_file.to_json(genesis))
    assert page["policy"]["parameters"] == {"lane_price": 3, "most_fires": 1}
    assert genesis_file.from_json(json.dumps(page)) == genesis
    page["policy"]["parameters"] = {"most_fires": "2"}
    assert genesis_file.from_json(json.dumps(page)).policy_parameters == {"lane_price": 3, "most_fires": 2}
    changed = load_scenario(stated, [parse_setting("chain.policy_parameters.most_fires=4")])
    _, policy_file = changed.chain.policies()
    assert policy_file is not None and dict(policy_file.parameters)["most_fires"] == 4


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (
            "chain.policy_parameters.most_fires=0",
            "chain.policy_parameters.most_fires: 0 is out of range, expected 1 to 9",
        ),
        (
            "chain.policy_parameters.most=1",
            "chain.policy_parameters.most: unknown parameter; deadline.py states most_f",
        ),
        (
            "chain.policy=fifo",
            "chain.policy_parameters.most_fires: fifo states no parameters; chain.params has those of",
        ),
    ],
)
def test_a_wrong_parameter_of_a_policy_is_one_line(stated: Path, setting: str, line: str) -> None:
    with pytest.raises(BadInput) as raised:
        load_scenario(stated, [parse_setting(setting)])
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_judge_and_the_pages_know_the_parameters(stated: Path) -> None:
    settings = ("load.users=[{workload: flood, count: 3}]", "stop.height=32")
    scenario = load_scenario(stated, list(map(parse_setting, settings)))
    judged = judge_run(simulate(scenario, 1))
    assert {check.name: check.verdict.value for check in judged.verdict.checks}["timers"] == "pass"
    assert result_of(judged, NOW)["policy_parameters"] == {"lane_price": 3, "most_fires": 1}
    assert ("Policy's parameters", "lane_price 3, most_fires 1") in facts(judged.books, NOW)
    (table,) = (each for each in outline(scenario) if each.title == "Parameters of the policy deadline")
    assert table.rows[1] == ("most_fires", "1", "2", "1 to 9")


# --- runs -------------------------------------------------------------------------------------------------------------


def test_the_example_of_the_page_runs_and_passes(tmp_path: Path) -> None:
    (tmp_path / "patience.py").write_text(example("python"), encoding="utf-8")
    (tmp_path / "patient.yaml").write_text(example("yaml"), encoding="utf-8")
    record = WatchedSimulation(load_scenario(tmp_path / "patient.yaml"), 3, "test", scheme=KeyedHashScheme()).run()
    judged = judge_run(record)
    assert judged.verdict.exit_code == 0, judged.verdict.reason
    assert judged.books.ledger.timers.fires > 50


def test_an_exception_ends_the_run_in_one_line(own: Path, tmp_path: Path) -> None:
    broken = derived(Policy.FIFO, "def candidates(self):", "    return iter([1 // (self.terms.height - 5)][1:])")
    (tmp_path / "deadline.py").write_text(broken, encoding="utf-8")
    line = r"^file deadline\.py, line 6: ZeroDivisionError: "
    with pytest.raises(PolicyError, match=line):
        WatchedSimulation(load_scenario(own), 3, "test", scheme=KeyedHashScheme()).run()
    with pytest.raises(BadInput, match=line):
        simulate(load_scenario(own), 3)
