"""YAML that users write is read at a bounded cost, and nothing of it is lost in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.common.errors import BadInput, ExitCode
from cluster.common.strict_yaml import MAX_CHARACTERS, MAX_NESTED, MAX_VALUES, NoYaml, parse
from cluster.scenario import load_scenario
from cluster.scenario.overrides import SettingError, parse_setting
from cluster.tools.cli.main import main
from cluster.tools.run.commands import parse_fault

MERGES = "m0: &m0 {k0: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 31))
"""What PyYAML writes out to 2**30 fields."""
LISTS = "l0: &l0 [1, 2]\n" + "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
"""9**9 lists, which take no room until somebody writes them."""
IN_ONE_LINE = "[&a [1, 1, 1, 1, 1, 1, 1, 1, 1], " + ", ".join(
    f"&{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
TOO_MUCH = f"more than {MAX_VALUES:,} values, with the target of an alias counted at each use"


# --- right texts ----------------------------------------------------------------------------------------------------


def test_aliases_and_merge_keys_work() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\nd: {<<: [*a, {z: 4}], <<: {w: 5}}"
    assert parse(text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": [{"x": 1, "y": 2}, {"x": 1, "y": 2}],
        "d": {"x": 1, "y": 2, "z": 4, "w": 5},
    }


def test_what_a_merge_key_brings_may_be_overridden_where_it_is_merged_again() -> None:
    text = "a: &a {x: 1}\nouter:\n  b: &b {<<: *a, x: 2}\nc: {<<: *b}"
    assert parse(text) == {"a": {"x": 1}, "outer": {"b": {"x": 2}}, "c": {"x": 2}}


@pytest.mark.slow
def test_the_bounds_are_those_that_are_stated() -> None:
    assert len(parse(f"[{'1,' * (MAX_VALUES - 1)}]")) == MAX_VALUES - 1
    tens = MAX_VALUES // 10
    assert len(parse(f"[&a [{'1,' * 9}], {'*a,' * (tens - 2)}]")) == tens - 1
    with pytest.raises(NoYaml):
        parse(f"[&a [{'1,' * 9}], {'*a,' * (tens - 1)}]")
    parse("[" * (MAX_NESTED - 1) + "1" + "]" * (MAX_NESTED - 1))
    assert len(parse("'" + "a" * 1_000_000 + "'")) == 1_000_000


# --- texts that come to too much ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MERGES, f"line 15: {TOO_MUCH}"),
        (LISTS, f"line 6: {TOO_MUCH}"),
        pytest.param(f"[{'1,' * MAX_VALUES}]", f"line 1: {TOO_MUCH}", marks=pytest.mark.slow),
        (f"- &a {'a' * 1_000_000}\n" + "- *a\n" * 10, f"line 7: {TOO_MUCH}"),
        ("a: &a [*a]", "line 1: an alias is inside its own target"),
        ("l0: &l0 [1]\n" + "".join(f"l{n}: &l{n} [*l{n - 1}]\n" for n in range(1, 99)), "nested too deeply"),
        ("[" * MAX_NESTED + "1" + "]" * MAX_NESTED, "nested too deeply"),
        ("a" * (MAX_CHARACTERS + 1), f"more than {MAX_CHARACTERS:,} characters"),
        ("a: " + "1:" * 100_000 + "1", "line 1: cannot be read as int"),
        ("a: " + "1:" * 180 + "1.5", "line 1: cannot be read as float"),
        ("a: !!int ''", "line 1: cannot be read as int"),
        ("{b: 1, b: 2}", "line 1: field 'b' is given twice"),
        ("{1: 1, 1: 2}", "line 1: field '1' is given twice"),
    ],
)
def test_what_comes_to_too_much_is_refused(text: str, problem: str) -> None:
    with pytest.raises(NoYaml) as caught:
        parse(text)
    assert str(caught.value) == problem


def test_problems_are_short() -> None:
    with pytest.raises(NoYaml) as caught:
        parse(f"{{{'b' * 9_000}: 1, {'b' * 9_000}: 2}}")
    assert len(str(caught.value)) < 500


# --- everywhere that YAML is read -----------------------------------------------------------------------------------


def test_files_settings_and_faults_to_inject_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_text(f"name: a\n{LISTS}faults: [{{kind: *l9, at_height: 1}}]\n")
    with pytest.raises(BadInput, match=f"no YAML: line 7: {TOO_MUCH}"):
        load_scenario(tmp_path / "bomb.yaml")
    bomb = f"{IN_ONE_LINE}]"
    with pytest.raises(SettingError, match=f"^faults: the value .* is no YAML: {TOO_MUCH}"):
        parse_setting(f"faults={bomb}")
    with pytest.raises(BadInput, match=f"^FAULT: no YAML: {TOO_MUCH}"):
        parse_fault(bomb)
    with pytest.raises(SettingError, match="field 'kind' is given twice"):
        parse_setting("faults[+]={kind: kill, kind: pause, target: leader, at_height: 3, for_ms: 5}")
    with pytest.raises(BadInput, match=r"^FAULT: no YAML: field 'kind' is given twice"):
        parse_fault("{kind: kill, kind: pause}")


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("faults: [{kind: [WORDS]}]", "fault"),
        ("links: {topology: {kind: [WORDS]}}", "topology"),
        ("load: {phases: [{kind: [WORDS]}]}", "phase"),
    ],
)
def test_of_a_kind_that_is_no_name_only_the_beginning_is_quoted(place: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(f"name: a\n{place.replace('WORDS', 'text, ' * 5_000)}\n")
    with pytest.raises(BadInput, match=rf"kind: unknown {what} \['text', 'text', .*\.\.\.\]; known: ") as caught:
        load_scenario(path)
    assert len(str(caught.value)) < 1_000


# --- what is read ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_regular_files_of_some_size_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    large, heir, child = tmp_path / "large", tmp_path / "heir.yaml", tmp_path / "child.yaml"
    large.write_text("#" * MAX_CHARACTERS + "\n")
    heir.write_text("extends: pipe\nname: heir\n")
    child.write_text("extends: large\nname: child\n")
    too_large = f"cannot be read: more than {MAX_CHARACTERS:,} characters"
    assert main(["validate", *map(str, (tmp_path / "pipe", heir, large, child))]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.splitlines() == [
        f"stampede: {tmp_path}/pipe: cannot be read: is no regular file",
        f"stampede: {heir}: extends: {tmp_path}/pipe: cannot be read: is no regular file",
        f"stampede: {large}: {too_large}",
        f"stampede: {child}: extends: {large}: {too_large}",
    ]
    large.write_text("name: large\n" + "#" * (MAX_CHARACTERS - 12))
    assert main(["validate", str(large)]) == ExitCode.PASS
