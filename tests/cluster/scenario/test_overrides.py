"""Fields of a scenario that are set from outside its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, load_scenario, minimal_fields
from cluster.scenario.overrides import (
    Change,
    SettingError,
    apply_changes,
    differences,
    parse_removal,
    parse_setting,
    setting_text,
)

DATA: dict[str, Any] = {"a": {"b": 1}, "items": [{"x": 1}, {"x": 2}], "text": "t", "empty": []}
SCENARIO = Scenario.model_validate(
    {"name": "s", "validators": 4, "faults": [{"kind": "kill", "target": "leader", "at_height": 3}]}
)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("a.b=2", {**DATA, "a": {"b": 2}}),
        ("a.c.d=[1, 2]", {**DATA, "a": {"b": 1, "c": {"d": [1, 2]}}}),
        ("items[1].x=null", {**DATA, "items": [{"x": 1}, {"x": None}]}),
        ('items[+]={"x": 3}', {**DATA, "items": [*DATA["items"], {"x": 3}]}),
        ("new[+].x=1.5", {**DATA, "new": [{"x": 1.5}]}),
        ("text=a=b", {**DATA, "text": "a=b"}),
    ],
)
def test_a_value_is_set(setting: str, expected: dict[str, Any]) -> None:
    assert apply_changes(DATA, [parse_setting(setting)]) == expected
    assert DATA["a"] == {"b": 1}, "the given data stays as it is"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "a=0.1"),
        (1e-7, "a=1.0e-07"),
        (None, "a=null"),
        ("keyed-hash", "a=keyed-hash"),
        ("9", 'a="9"'),
        ("it's\nso", 'a="it\'s\\nso"'),
        ({"kind": "kill", "target": ["b", "c"], "at_height": 15}, "a={kind: kill, target: [b, c], at_height: 15}"),
        ([], "a=[]"),
    ],
)
def test_a_setting_is_written_as_it_is_read(value: Any, text: str) -> None:
    assert setting_text(Change("a", value)) == text
    assert parse_setting(text) == Change("a", value)


def test_items_and_fields_are_removed() -> None:
    assert apply_changes(DATA, [parse_removal("items[0]"), parse_removal("a.b")]) == {
        "a": {},
        "items": [{"x": 2}],
        "text": "t",
        "empty": [],
    }


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("a.b", "is no setting: expected path=value"),
        ("=1", "'' is no path"),
        ("a..b=1", "'a..b' is no path"),
        ("a[x]=1", "is no path"),
        ("a={", "is no YAML"),
        ("a=!!int yes", "is no YAML"),
        ("items[2].x=1", r"items\[2\]: items has 2 items; expected a position from 0 to 1; \[\+\] adds one"),
        ("none[0]=1", r"none\[0\]: none is empty; \[\+\] adds one"),
        ("items.0.x=1", r"^items\.0: items is a list; did you mean items\[0\]\?$"),
        ("items.x=1", r"^items\.x: items is a list; did you mean items\[0\]\.x\?$"),
        ("items.7.x=1", r"^items\[7\]: items has 2 items; expected a position from 0 to 1; \[\+\] adds one$"),
        ("a[0]=1", r"a\[0\]: a is no list"),
        ("empty.x=1", r"^empty\.x: empty is a list; did you mean empty\[\+\]\.x\?$"),
        ("text.x=1", "text.x: text has no fields"),
    ],
)
def test_what_cannot_be_set_is_said(setting: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        apply_changes(DATA, [parse_setting(setting)])


def test_what_is_not_there_cannot_be_removed() -> None:
    for path, words in (
        ("a.c", "a.c: is not set"),
        ("items[+]", "nothing to remove"),
        ("items[7]", r"^items\[7\]: items has 2 items; expected a position from 0 to 1$"),
    ):
        with pytest.raises(SettingError, match=words):
            apply_changes(DATA, [parse_removal(path)])


def test_differences_make_one_of_the_other() -> None:
    after = {"a": {"b": 3, "c": {"d": 1}}, "items": [], "empty": []}
    changes = list(differences(DATA, after))
    assert changes == [
        Change("a.b", 3),
        Change("a.c", {"d": 1}),
        Change("items", []),
        Change("text", removes=True),
    ]
    assert apply_changes(DATA, changes) == after


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("links.los=0.1", "links.los: unknown field; did you mean loss\\?"),
        ("lings.loss=0.1", "lings: unknown field; did you mean links\\?"),
        ("links.loss=2", "links.loss: expected at most 0.9, got 2"),
        ("faults[0].at_height=99", r"faults\[0\].at_height: 99 is not below stop.height"),
        ("chain.params.NO_SUCH=1", "chain.params.NO_SUCH"),
    ],
)
def test_an_unknown_path_or_a_wrong_value_is_one_line(setting: str, words: str) -> None:
    with pytest.raises(BadInput, match=f"^here: {words}"):
        change_scenario(SCENARIO, [parse_setting(setting)], "here")


def test_minimal_fields_make_the_scenario_again() -> None:
    assert minimal_fields(SCENARIO) == {
        "name": "s",
        "faults": [{"at_height": 3, "target": ["leader"], "kind": "kill"}],
    }
    for path in sorted((Path(__file__).resolve().parents[3] / "scenarios").rglob("*.yaml")):
        scenario = load_scenario(path)
        assert Scenario.model_validate(minimal_fields(scenario)) == scenario


def test_a_run_with_other_settings_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "quiet.yaml"
    path.write_text("name: quiet  # a comment\nconsensus: {block_interval_ms: 50}\nvalidators: 4\n")
    settings = ["--set", "stop.height=4", "--set", "consensus.signatures=keyed-hash", "--unset", "validators.count"]
    assert main(["run", "quiet.yaml", "--backend", "sim", "--out", "out", *settings]) == ExitCode.INCONCLUSIVE
    written = yaml.safe_load(Path("out/scenario.yaml").read_text())
    assert written["stop"] == {"height": 4}
    assert load_scenario(Path("out/scenario.yaml")).consensus.block_interval_ms == 50
    assert "out/scenario.yaml --backend sim" in Path("out/report.html").read_text()


def test_wrong_settings_end_the_command_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quiet.yaml").write_text("name: quiet\n")
    for settings, words in (
        (["--set", "stop"], "is no setting"),
        (["--set", "stop.hight=4"], "quiet.yaml with --set: stop.hight: unknown field; did you mean height?"),
        (["--unset", "name"], "quiet.yaml with --unset: name: is missing"),
        (
            ["--set", "seed=2", "--unset", "name"],
            "quiet.yaml with --set and --unset: name: is missing",
        ),
    ):
        assert main(["run", "quiet.yaml", *settings]) == ExitCode.BAD_INPUT
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["quiet.yaml"]
