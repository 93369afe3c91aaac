"""Workloads and Locustfiles of one's own beside a scenario's file: the text takes the place of the path."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.common.errors import BadInput
from cluster.scenario.files import (
    change_scenario,
    execute_own_code,
    load_scenario,
    minimal_fields,
    problems_in,
    scenario_from,
    scenario_text,
)
from cluster.scenario.overrides import parse_setting
from cluster.watches.watched_simulation import WatchedSimulation
from loadgen.workloads import OwnWorkload
from loadgen.workloads.locustfiles import OwnLocust, OwnLocustfile
from tests.loadgen.own_workloads import BEGINNING, PAYS
from tests.loadgen.test_own_locust import block

WORKLOADS = "Your own workload"
SCENARIO = "name: own\nload: {users: [{workload: heartbeat}, {workload: ../pays.py, count: 2, options: {}}]}"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "scenarios" / "own.yaml"
    path.parent.mkdir()
    path.write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "pays.py").write_text(PAYS, encoding="utf-8")
    return path


def test_the_text_is_read_with_the_scenario(own: Path, tmp_path: Path) -> None:
    scenario = load_scenario(own)
    assert scenario.load.users[1].workload == OwnWorkload(name="pays", source=PAYS)
    assert scenario.load.titles == ["heartbeat", "pays", "pays"]
    child = tmp_path / "child.yaml"
    child.write_text("extends: scenarios/own.yaml\nseed: 3\n", encoding="utf-8")
    assert load_scenario(child).load == scenario.load, "a path is relative to the file that has it"
    (tmp_path / "pays.py").unlink()
    own.write_text(scenario_text(scenario, None), encoding="utf-8")
    assert load_scenario(own) == scenario, "the copy in a run's folder needs no other file"
    assert scenario_from(minimal_fields(scenario)) == scenario


def test_the_example_of_the_page_is_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "pulse.py").write_text(block("python", WORKLOADS), encoding="utf-8")
    (tmp_path / "pulses.yaml").write_text(block("yaml", WORKLOADS), encoding="utf-8")
    assert load_scenario(tmp_path / "pulses.yaml").load.titles == ["pulse"] * 3 + ["heartbeat"] * 2


def test_a_change_may_name_one(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.py").write_text(f"# ‡\n{PAYS}", encoding="utf-8-sig")
    changed = change_scenario(load_scenario(own), [parse_setting("load.users[0].workload=./other.py")], "--set")
    assert changed.load.users[0].workload == OwnWorkload(name="other", source=f"# ‡\n{PAYS}")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "load.users[1].workload: {path}: no such file; did you mean pay.py?"),
        (b"", "load.users[1].workload: {path}: expected a program in Python, got an empty file"),
        (b"# \xff", "load.users[1].workload: {path}: expected a text in UTF-8; byte 2 is none of it"),
        (b"#" * 100_001, "load.users[1].workload: {path}: expected a file of at most 100,000 bytes"),
        (b"x = (", "load.users[1].workload: file pays.py, line 1: '(' was never closed"),
        (
            BEGINNING.encode(),
            "load.users[1].workload: file pays.py: expected one subclass of loadgen.workloads.base.Workload, got none"
            " (Own has no method intents)",
        ),
    ],
)
def test_a_file_that_is_no_workload_is_one_line(own: Path, tmp_path: Path, content: bytes | None, line: str) -> None:
    path = tmp_path / "pays.py"
    path.unlink()
    if content is None:
        (tmp_path / "pay.py").touch()
    else:
        path.write_bytes(content)
    wanted = f"{own}: {line.format(path=own.parent / '../pays.py')}"
    with pytest.raises(BadInput) as raised:
        load_scenario(own)
    assert str(raised.value) == wanted
    assert problems_in(own) == [wanted]


@pytest.mark.parametrize(
    ("group", "line"),
    [
        ("{workload: 5}", "load.users[0].workload: expected a text, got 5"),
        ("{workload: {name: a}}", "load.users[0].workload.source: is missing"),
        ("{workload: {name: A, source: pass}}", "load.users[0].workload.name: expected a name (lower-case letters, "),
        ("{workload: {name: a, sauce: pass}}", "load.users[0].workload.sauce: unknown field; did you mean source?"),
    ],
)
def test_a_wrong_field_is_named(own: Path, group: str, line: str) -> None:
    own.write_text(f"name: own\nload: {{users: [{group}]}}", encoding="utf-8")
    with pytest.raises(BadInput) as raised:
        load_scenario(own)
    assert str(raised.value).startswith(f"{own}: {line}")


def test_an_option_that_is_misspelt_is_told_what_there_is(own: Path, tmp_path: Path) -> None:
    options = BEGINNING.replace("class Own", "class Mine(Options):\n    payments: int = 3\n\n\nclass Own")
    (tmp_path / "pays.py").write_text(f"{options}    options_type = Mine\n    intents = None\n", encoding="utf-8")
    own.write_text(SCENARIO.replace("{}", "{payment: 2}"), encoding="utf-8")
    scenario = load_scenario(own)  # which executes nothing, and so does not know the options
    line = r"^own\.yaml: load\.users\[1\]\.options\.payment: unknown field; did you mean payments\?"
    with pytest.raises(BadInput, match=line):
        execute_own_code(scenario, "own.yaml")


def test_options_are_checked_when_the_workload_is_executed(own: Path) -> None:
    own.write_text(SCENARIO.replace("{}", "{timers: 3}"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"^x: load\.users\[1\]\.options\.timers: unknown field$"):
        execute_own_code(load_scenario(own), "x")


# --- Locustfiles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["../users.py", "[../users.py]", "{files: ../users.py}", "{files: [../users.py]}"])
def test_locustfiles_are_read_with_the_scenario(own: Path, tmp_path: Path, given: str) -> None:
    (tmp_path / "users.py").write_text("# ‡\n", encoding="utf-8")
    own.write_text(f"name: own\nload: {{locust: {given}}}", encoding="utf-8")
    scenario = load_scenario(own)
    assert scenario.load.locust == OwnLocust(files=[OwnLocustfile(name="users", source="# ‡\n")])
    (tmp_path / "users.py").unlink()
    own.write_text(scenario_text(scenario, None), encoding="utf-8")
    assert load_scenario(own) == scenario == scenario_from(minimal_fields(scenario))
    assert scenario.live_problem is None
    with pytest.raises(BadInput, match=r"^own: load\.locust: .* only the live testnet answers"):
        WatchedSimulation(scenario, 1, "test")


def test_the_example_of_locust_users_is_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "readers.py").write_text("a = 1", encoding="utf-8")
    (tmp_path / "readers.yaml").write_text(block("yaml", "Your own Locust users"), encoding="utf-8")
    locust = load_scenario(tmp_path / "readers.yaml").load.locust
    assert locust is not None and locust.user_count == 20


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("../user.py", "load.locust: {folder}/../user.py: no such file; did you mean users.py?"),
        ("{files: [../users.py, ../user.py]}", "load.locust.files[1]: {folder}/../user.py: no such file; did you mean"),
        ("5", "load.locust: expected the path of a Locustfile, a list of such or a mapping of fields, got 5"),
        ("{files: 5}", "load.locust.files: expected a list, got 5"),
        ("{users: 5}", "load.locust.files: is missing"),
        ("{file: ../users.py}", "load.locust.file: unknown field; did you mean files?"),
        ("[../users.py, ../users.py]", "load.locust.files[1]: two files are named users.py; expected different names"),
    ],
)
def test_locustfiles_that_are_none_are_one_line(own: Path, tmp_path: Path, given: str, line: str) -> None:
    (tmp_path / "users.py").write_text("a = 1", encoding="utf-8")
    own.write_text(f"name: own\nload: {{locust: {given}}}", encoding="utf-8")
    with pytest.raises(BadInput) as raised:
        load_scenario(own)
    assert str(raised.value).startswith(f"{own}: {line.format(folder=own.parent)}")
