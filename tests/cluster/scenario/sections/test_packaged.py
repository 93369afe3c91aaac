"""Sections of scenarios that installed packages bring."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.compare.scenario_diff import FieldDifference, differences
from cluster.common import plugins
from cluster.common.errors import BadInput
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, load_scenario, scenario_from
from cluster.scenario.overrides import parse_removal, parse_setting
from cluster.scenario.schema import scenario_schema
from cluster.scenario.sections import packaged
from cluster.scenario.sections.packaged import section_named
from tests.cluster.checks.test_own_checks import sent_to_a_host
from tests.packages import install

SOURCE = '''
from cluster.scenario.sections.base import Section
from cluster.scenario.sections.packaged import PackagedSection

class Wind(Section):
    """The wind."""

    knots: int = 7
    """Its speed."""

class Weather(PackagedSection):
    """The weather of a testnet."""

    rain_mm: int = 3
    """What falls."""
    wind: Wind = Wind()
'''
PLAIN = {"name": "a"}
WET: dict[str, Any] = {**PLAIN, "weather": {"rain_mm": 9}}


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with the section ``weather``, and ``wind``, which is none."""
    caches = (packaged.section_names, packaged.section_named, packaged._extended)
    points = f"[{plugins.SECTIONS}]\nweather = their_weather:Weather\nwind = their_weather:Wind\n"
    install(tmp_path / "theirs", "their_weather", points, SOURCE)
    monkeypatch.syspath_prepend(tmp_path / "theirs")
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()
    sys.modules.pop("their_weather", None)


def test_a_scenario_may_have_it_and_survives_being_written_down() -> None:
    scenario = Scenario.model_validate(WET)
    assert scenario.model_dump(mode="json", exclude_unset=True) == WET
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario != Scenario.model_validate(PLAIN)


def test_its_reader_gets_its_defaults_where_a_scenario_has_none() -> None:
    assert Scenario.model_validate(PLAIN).name == "a" and "their_weather" not in sys.modules, "only if it is read"
    kind: Any = section_named("weather")
    found = [kind.of(Scenario.model_validate(given)).model_dump() for given in (PLAIN, WET)]
    assert found == [{"rain_mm": mm, "wind": {"knots": 7}} for mm in (3, 9)]


def test_settings_reach_it() -> None:
    plain = Scenario.model_validate(PLAIN)
    changed = change_scenario(plain, [parse_setting("weather.rain_mm=9")], "here")
    assert changed == Scenario.model_validate(WET)
    assert change_scenario(changed, [parse_removal("weather")], "here") == plain


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("wether.rain_mm=1", "wether: unknown field; did you mean weather?"),
        ("weather.rain=1", "weather.rain: unknown field; did you mean rain_mm?"),
        ("weather.wind.x=1", "weather.wind.x: unknown field; known: knots"),
        ("weather.rain_mm=much", "weather.rain_mm: expected a whole number, got 'much'"),
    ],
)
def test_what_is_wrong_in_it_is_one_line(setting: str, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        change_scenario(Scenario.model_validate(PLAIN), [parse_setting(setting)], "here")
    assert str(caught.value) == f"here: {line}"


def test_errors_in_it_are_told_with_all_others() -> None:
    with pytest.raises(BadInput, match=r"^here: seed: .* \(and 1 more\)$"):
        scenario_from({**PLAIN, "seed": -1, "weather": {"rain": 1}}, "here")


def test_a_host_does_not_get_it_and_so_needs_no_package() -> None:
    assert Scenario.model_validate_json(sent_to_a_host(Scenario.model_validate(WET))) == Scenario(name="a")


def test_two_scenarios_differ_in_its_fields(tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file, text in zip(files, ("name: a", "name: a\nweather: {rain_mm: 9}"), strict=True):
        file.write_text(text, encoding="utf-8")
    assert differences(*files) == [FieldDifference("weather.rain_mm", "3", "9")]


def test_what_is_no_section_is_refused_where_a_scenario_has_it() -> None:
    with pytest.raises(BadInput, match=r"^their_weather: .*:Wind, its stampede.sections wind, cannot be used: "):
        Scenario.model_validate({**PLAIN, "wind": {}})
    assert load_scenario("smoke").name == "smoke"


def test_the_schema_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.scenario.schema.section_names", lambda: ("weather",))
    schema = scenario_schema()
    assert schema["properties"]["weather"] == {"$ref": "#/$defs/Weather"}
    assert schema["$defs"]["Weather"]["description"] == "The weather of a testnet."
    assert schema["$defs"]["Wind"]["properties"]["knots"]["description"] == "Its speed."


@pytest.mark.parametrize(("section", "kit"), [("dos", "market"), ("kubernetes", "kubernetes")])
def test_a_section_of_a_kit_that_is_missing_is_refused_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, section: str, kit: str
) -> None:
    monkeypatch.setattr(plugins, "points", lambda *given: [])
    with pytest.raises(BadInput) as caught:
        Scenario.model_validate({**PLAIN, section: {}})
    expected = f"{section}: no installed package has it; expected the kit {kit}: pip install 'stampede[{kit}]'"
    assert str(caught.value) == expected
