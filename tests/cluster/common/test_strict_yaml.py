"""YAML that users write is read at a bounded cost, and nothing of it is lost in silence."""

from __future__ import annotations

import math
import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.commands.cli.main import main
from cluster.commands.run.commands import parse_fault
from cluster.common.errors import BadInput, ExitCode
from cluster.common.strict_yaml import MAX_CHARACTERS, MAX_DIGITS, MAX_NESTED, MAX_VALUES, NoYaml, dump, parse
from cluster.scenario.files import load_scenario
from cluster.scenario.overrides import SettingError, parse_setting

MERGES = "m0: &m0 {k0: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 31))
"""What PyYAML writes out to 2**30 fields."""
LISTS = "l0: &l0 [1, 2]\n" + "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
"""9**9 lists, which take no room until somebody writes them."""
IN_ONE_LINE = "[&a [1, 1, 1, 1, 1, 1, 1, 1, 1], " + ", ".join(
    f"&{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
NO_TAG = "could not determine a constructor for the tag 'tag:yaml.org,2002:"
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


# --- numbers, booleans and texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # the same in both versions of YAML
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.5e+3", 1500.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("!!int '010'", 10),
        ("!!float 1", 1.0),
        ("!!str 010", "010"),
        # other numbers than in YAML 1.1
        ("010", 10),
        ("-0010", -10),
        # no texts, as in YAML 1.1
        ("09", 9),
        ("0o17", 15),
        ("1e3", 1000.0),
        ("1e-3", 0.001),
        ("1.5e3", 1500.0),
        ("-.5", -0.5),
        # numbers, booleans and dates in YAML 1.1
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        ("1_000", "1_000"),
        ("1_000.5", "1_000.5"),
        ("0x_1F", "0x_1F"),
        ("0b11", "0b11"),
        *((text, text) for text in ("yes", "No", "ON", "off", "y", "n")),
        ("2024-01-31", "2024-01-31"),
        ("2024-01-31 10:20:30", "2024-01-31 10:20:30"),
        ("=", "="),
    ],
)
def test_a_text_without_quotes_is_what_yaml_1_2_says(text: str, value: object) -> None:
    found = parse(f"a: {text}")["a"]
    assert found == value and type(found) is type(value)
    assert parse(text) == value


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("stop: {height: 1:30}", "stop.height: expected a whole number, got '1:30'"),
        ("stop: {height: 1_000}", "stop.height: expected a whole number, got '1_000'"),
        ("stop: {height: 0b11}", "stop.height: expected a whole number, got '0b11'"),
        ("load: {external: yes}", "load.external: expected true or false, got 'yes'"),
        ("load: {external: off}", "load.external: expected true or false, got 'off'"),
        ("links: {loss: 0:30.5}", "links.loss: expected a number, got '0:30.5'"),
    ],
)
def test_what_only_yaml_1_1_takes_for_a_value_is_refused_where_one_is_expected(
    field: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(f"name: old\n{field}\n")
    with pytest.raises(BadInput) as caught:
        load_scenario(path)
    assert str(caught.value) == f"{path}: {problem}"


def test_scenarios_and_settings_are_read_by_yaml_1_2(tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_text("name: new\nstop: {height: 010}\nlinks: {loss: 1e-3}\nvalidators: [{name: no}, {name: 1e3}]\n")
    with pytest.raises(BadInput, match=r"validators.nodes\[1\].name: expected a text, got 1000.0"):
        load_scenario(path)
    path.write_text(path.read_text().replace("1e3", "'1e3'"))
    scenario = load_scenario(path, [parse_setting("load.users[+]={workload: transfer, count: 010}")])
    assert scenario.stop.height == 10 and scenario.links.loss == 0.001
    assert scenario.validators.names == ["no", "1e3"]
    assert scenario.load.users[0].count == 10


# --- what is written ------------------------------------------------------------------------------------------------

BITS_OF_VALUES = "0179_+-.:eEoxbafTZ "
LOOK_LIKE_VALUES = [
    *("y", "N", "yes", "No", "on", "OFF", "true", "null", "~", "", "=", "<<", ".inf", "-.INF", ".NaN", "1e3", "0o17"),
    *("0_9", "1_000", "0b11", "1:30", "2001-1-1", "2001-12-14t21:59:43.10-05:00", "0x1F", "1e400", "-.5", "+7", "010"),
    *("".join(letters) for count in (1, 2) for letters in product(BITS_OF_VALUES, repeat=count)),
]
AS_GO_READS = re.compile(
    r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-f_]+|[0-9][0-9_]*)|[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]+)?|[yn]",
    re.IGNORECASE,
)
"""What Go's readers, so also kubectl's, take for a number or a boolean, in addition to what YAML 1.1 does."""


@pytest.mark.parametrize("style", [{}, {"default_flow_style": True, "width": math.inf}, {"width": 40}])
def test_texts_that_look_like_values_are_written_in_quotes(style: dict[str, Any]) -> None:
    for text in LOOK_LIKE_VALUES:
        written = dump({"a": text, text: 1}, **style)
        assert parse(written) == yaml.safe_load(written) == {"a": text, text: 1}, written
        if AS_GO_READS.fullmatch(text):
            assert written.count(f"'{text}'") == 2, written


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.text("\n \t:#-|>'\"\x85\u2028ab0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_what_is_written_is_read_the_same_by_both_versions(value: object) -> None:
    for style in ({}, {"default_flow_style": True, "width": math.inf}, {"default_flow_style": None, "width": 40}):
        written = dump(value, **style)
        assert parse(written) == value
        assert yaml.safe_load(written) == value


@pytest.mark.parametrize("line_break", ["\x85", "\u2028", "\u2029"])
def test_other_line_breaks_are_kept_next_to_the_usual_one(line_break: str) -> None:
    text = f"a{line_break}\n{line_break}b\n"
    assert parse(dump({"a": text})) == {"a": text}


def test_equal_parts_are_written_without_aliases() -> None:
    part = [1, 2]
    assert dump({"a": part, "b": part}) == "a:\n- 1\n- 2\nb:\n- 1\n- 2\n"


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
        (f"a: {'9' * 5_000}", f"line 1: a number of more than {MAX_DIGITS} characters"),
        (f"a: 0x{'9' * 5_000}", f"line 1: a number of more than {MAX_DIGITS} characters"),
        (f"a: 0.{'9' * 5_000}", f"line 1: a number of more than {MAX_DIGITS} characters"),
        ("a: !!int ''", "line 1: cannot be read as int"),
        ("a: !!int 0b1", "line 1: cannot be read as int"),
        ("a: !!float 1:30", "line 1: cannot be read as float"),
        ("a: !!bool yes", "line 1: cannot be read as bool"),
        ("a: !!timestamp 2024-01-31", f"line 1: {NO_TAG}timestamp'"),
        ("a: !!set {b}", f"line 1: {NO_TAG}set'"),
        ("<<", f"line 1: {NO_TAG}merge'"),
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
