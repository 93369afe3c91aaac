"""Measured profiles: what is drawn from them, how they are checked, and how a scenario names one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.common.errors import BadInput
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario, scenario_text
from cluster.scenario.overrides import parse_setting
from cluster.scenario.sections.measurements.profile import JobCost, draw

COST: dict[str, Any] = {"base_us": 1_000, "transaction_us": 500, "fire_us": 60, "scatter_milli": [900, 1_000, 1_100]}
PROFILE: dict[str, Any] = {
    "processors": 2,
    "link_us": [100, 300, 900],
    "sync_us": [400, 1_100, 5_000],
    "message_us": [10, 50, 300],
    "hand_over_us": [100, 400, 2_000],
    "build": COST,
    "execute": COST,
    "finalize": COST,
    "warm_up_us": [300_000, 350_000],
    "start_us": [1_000_000, 2_000_000],
}


def write(folder: Path, name: str, fields: Any) -> Path:
    path = folder / name
    path.write_text(fields if isinstance(fields, str) else yaml.safe_dump(fields), encoding="utf-8")
    return path


# --- drawing --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=20), st.integers(0, 2**32))
def test_what_is_drawn_is_between_the_ends(values: list[int], seed: int) -> None:
    quantiles, random = sorted(values), Random(seed)
    for _ in range(20):
        assert quantiles[0] <= draw(quantiles, random) <= quantiles[-1]


def test_what_is_drawn_has_the_quantiles() -> None:
    quantiles, random = [0, 100, 200, 1_000, 9_000], Random(1)
    drawn = [draw(quantiles, random) for _ in range(20_000)]
    found = np.quantile(drawn, [0.25, 0.5, 0.75])
    assert np.allclose(found, quantiles[1:4], rtol=0.05)
    assert not np.allclose(np.quantile([draw([0, 9_000], random) for _ in drawn], [0.25, 0.5, 0.75]), found, rtol=0.05)


def test_a_jobs_cost_is_drawn_around_its_sum() -> None:
    cost = JobCost(**COST)
    assert cost.typical_us(2, 10) == 1_000 + 2 * 500 + 10 * 60
    assert {cost.draw_us(2, 10, Random(seed)) for seed in range(50)} <= set(range(2_340, 2_861))
    assert JobCost(**COST | {"scatter_milli": [2_000, 2_000]}).draw_us(2, 10, Random(1)) == 5_200


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_scenario_names_a_profile_next_to_it(tmp_path: Path) -> None:
    write(tmp_path, "laptop.yaml", PROFILE)
    scenario = load_scenario(write(tmp_path, "mine.yaml", {"name": "mine", "profile": "laptop.yaml"}))
    assert scenario.profile is not None
    assert scenario.profile.model_dump() == PROFILE
    kept = Scenario.model_validate(yaml.safe_load(scenario_text(scenario, tmp_path / "mine.yaml")))
    assert kept.profile == scenario.profile  # a replay needs no other file
    changed = load_scenario(Path("smoke"), [parse_setting(f"profile={tmp_path / 'laptop.yaml'}")])
    assert changed.profile == scenario.profile
    assert load_scenario(Path("smoke")).profile is None


def test_a_profile_replaces_an_inherited_one_whole(tmp_path: Path) -> None:
    write(tmp_path, "laptop.yaml", PROFILE)
    other = PROFILE | {"processors": 8, "link_us": [1, 2], "build": COST | {"fire_us": 1}}
    write(tmp_path, "server.yaml", other)
    write(tmp_path, "base.yaml", {"name": "base", "profile": "laptop.yaml"})
    child = load_scenario(write(tmp_path, "child.yaml", {"extends": "base.yaml", "profile": "server.yaml"}))
    assert child.profile is not None
    assert child.profile.model_dump() == other


@pytest.mark.parametrize(
    ("changes", "where", "why"),
    [
        ({"processors": 0}, "processors", "expected at least 1, got 0"),
        ({"processors": None}, "processors", "is missing"),
        ({"link_us": [5]}, "link_us", "expected at least 2 in the list, got 1"),
        ({"link_us": [5, 4]}, "link_us", "expected ascending values, got 4 after 5 at place 1"),
        ({"link_us": [0] * 102}, "link_us", "expected at most 101 in the list, got 102"),
        ({"sync_us": [-1, 4]}, "sync_us[0]", "expected at least 0, got -1"),
        ({"sync_us": [0.5, 4]}, "sync_us[0]", "expected a whole number"),
        ({"start_us": [0, 600_000_001]}, "start_us[1]", "expected at most 600000000"),
        ({"execute": COST | {"base_us": "7"}}, "execute.base_us", "expected a whole number"),
        ({"execute": COST | {"fires_us": 7}}, "execute.fires_us", "unknown field; did you mean fire_us?"),
        ({"cores": 2}, "cores", "unknown field"),
    ],
)
def test_a_wrong_profile_is_one_line(tmp_path: Path, changes: dict[str, Any], where: str, why: str) -> None:
    fields = {name: value for name, value in (PROFILE | changes).items() if value is not None}
    path = write(tmp_path, "wrong.yaml", fields)
    scenario = write(tmp_path, "mine.yaml", {"name": "mine", "profile": "wrong.yaml"})
    with pytest.raises(BadInput) as raised:
        load_scenario(scenario)
    assert str(raised.value).startswith(f"{scenario}: profile: {path}: {where}: ")
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)
    inline = write(tmp_path, "inline.yaml", {"name": "mine", "profile": fields})
    with pytest.raises(BadInput, match=f"profile.{where}".replace("[", r"\[")):
        load_scenario(inline)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no such file"),
        ("a: [", "no YAML"),
        ("- 1", "expected a mapping of fields"),
        (b"\xff\xfe", "expected a text in UTF-8"),
    ],
)
def test_a_file_that_is_no_profile_is_one_line(tmp_path: Path, content: str | bytes | None, why: str) -> None:
    if content is not None:
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "wrong.yaml").write_bytes(data)
    scenario = write(tmp_path, "mine.yaml", {"name": "mine", "profile": "wrong.yaml"})
    with pytest.raises(BadInput, match=why) as raised:
        load_scenario(scenario)
    assert str(raised.value).startswith(f"{scenario}: profile: {tmp_path / 'wrong.yaml'}: ")
