"""Ranges, relations and presets of the parameters; every error begins with the parameter's name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from validator.primitives.params import GOVERNED, ParameterError, Parameters, parse_value

DEFAULTS = {
    "LANE_TIMER_CYCLES": 2_000_000,
    "TIMER_GC_CYCLES": 5_000_000,
    "GC_CYCLES_PER_REMOVAL": 200,
    "MAX_CYCLES_PER_FIRE": 550_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 250_000,
    "MAX_CELLS_PER_FIRE": 550_000,
    "MIN_GAS_LIMIT_PER_TIMER": 1_000,
    "FIRE_BASE_CYCLES": 1_000,
    "TX_BASE_CYCLES": 1_000,
    "LANE_USER_CYCLES": 5_000_000,
    "LANE_DEFERRED_CYCLES": 7_000_000,
    "LANE_SYSTEM_CYCLES": 500_000,
    "BLOCK_CYCLES_TARGET": 5_000_000,
    "BLOCK_CELLS_TARGET": 500_000,
    "MESSAGE_CYCLES": 100_000,
    "MESSAGE_CELLS": 10_000,
    "ACTIVATION_HEIGHT": 0,
    "LANE_USER_CELLS": 1_000_000,
    "LANE_TIMER_CELLS": 1_000_000,
    "MESSAGE_BASE_CYCLES": 1_000,
    "GBA_QUERIES_PER_ACTOR": 16,
    "GBA_UNPAID_PAUSE": 64,
    "RING_BUFFER_SIZE": 4_096,
    "EPOCH_LENGTH": 3_600,
    "EPOCH_HORIZON": 24,
    "MAX_TIMER_PAYLOAD": 1_048_576,
    "MAX_TIMERS_PER_ACTOR": 1_024,
    "MAX_TTL": 2_592_000,
    "FAIRNESS_WINDOW_BLOCKS": 1_000,
    "TIE_BREAK": "id",
    "P50_WEIGHT": "fires",
    "LANE_BASEFEE_SLOPE": 1,
    "LANE_FEE_MULTIPLIER_MILLI": 1_000,
    "INITIAL_BASEFEE": 1_000_000,
    "MIN_BASEFEE": 10_000,
    "MAX_BASEFEE": 10**24,
    "GBA_MAX_CYCLES": 10_000,
    "GBA_BUDGET_CYCLES": 1_000_000,
    "MAILBOX_BYTES": 1_000_000,
    "PRIORITY_TIERS": [8, 10, 15, 25],
    "SCAN_LIMIT": 4_096,
    "PRIORITY_FLOOR": 0,
    "DEFAULT_TIP_CAP": 0,
    "WEIGHT_PARTY": "actor",
    "MEDIAN_SMOOTHING_MILLI": 1_000,
    "WEIGHT_CLIP_MIN_MILLI": 1_000,
    "WEIGHT_CLIP_MAX_MILLI": 2_000,
    "WEIGHT_LAMBDA_MILLI": 200,
    "WEIGHT_MIN_MILLI": 100,
    "WEIGHT_MAX_MILLI": 1_000,
    "STARVATION_BLOCKS": 64,
    "STARVATION_FLOOR_MILLI": 500,
    "BUDGET_SLICES": 4,
    "MAX_FIRES_PER_BLOCK": 10**9,
    "MAX_FIRES_PER_ACTOR": 10**9,
    "PAYMENT_RULE": "vcg",
    "RESERVE_PRICE": 0,
    "BIAS_LAMBDA_MICRO": 100_000,
    "BIAS_LAMBDA_MIN_MICRO": 10_000,
    "BIAS_LAMBDA_MAX_MICRO": 1_000_000,
    "BIAS_LAMBDA_STEP_MILLI": 125,
    "BIAS_INTERVAL_BLOCKS": 16,
    "VALUE_LIFE_BLOCKS": 100,
    "MAX_WATCHERS_PER_KEY": 64,
}
"""SPEC §16, and behind it those of other policies."""

BOUNDS = {
    "FAIRNESS_WINDOW_BLOCKS": (1, 10**5),
    "LANE_BASEFEE_SLOPE": (1, 8),
    "LANE_FEE_MULTIPLIER_MILLI": (0, 10**4),
    "PRIORITY_FLOOR": (0, 10**18),
    "LANE_TIMER_CYCLES": (2, 10**9),
    "BLOCK_CYCLES_TARGET": (2, 10**9),
    "BLOCK_CELLS_TARGET": (2, 10**9),
    "GBA_MAX_CYCLES": (100, 10**9),
    "MESSAGE_CYCLES": (2_000, 10**9),
    "MESSAGE_BASE_CYCLES": (1, 2_000),
    "ACTIVATION_HEIGHT": (0, 10**9),
    "DEFAULT_TIP_CAP": (0, 10**9),
    "MEDIAN_SMOOTHING_MILLI": (1, 1_000),
    "WEIGHT_CLIP_MIN_MILLI": (0, 2_000),
    "WEIGHT_CLIP_MAX_MILLI": (0, 2_000),
    "INITIAL_BASEFEE": (1, 2**96 - 1),
    "MIN_BASEFEE": (1, 2**96 - 1),
    "MAX_BASEFEE": (1, 2**96 - 1),
    "WEIGHT_LAMBDA_MILLI": (10, 1_000),
    "WEIGHT_MIN_MILLI": (1, 1_000),
    "WEIGHT_MAX_MILLI": (1, 1_000),
    "STARVATION_FLOOR_MILLI": (1, 1_000),
    "RESERVE_PRICE": (0, 2**96 - 1),
    "BIAS_LAMBDA_MICRO": (10_000, 10**7),
    "BIAS_LAMBDA_MIN_MICRO": (10_000, 10**7),
    "BIAS_LAMBDA_MAX_MICRO": (10_000, 10**7),
    "BIAS_LAMBDA_STEP_MILLI": (0, 1_000),
    "MAX_WATCHERS_PER_KEY": (1, 1_024),
}
"""Where they are not 1 … 10**9 (SPEC §12)."""

INTEGERS = [name for name, value in DEFAULTS.items() if isinstance(value, int)]


def test_the_defaults_are_those_of_the_specification() -> None:
    assert Parameters().to_names() == DEFAULTS
    assert Parameters.from_names({}) == Parameters()
    assert Parameters.from_names(DEFAULTS) == Parameters()


def test_a_preset_can_be_overridden() -> None:
    hardened = Parameters.from_names({}, "hardened")
    changed = {"PRIORITY_FLOOR": 1, "TIE_BREAK": "aged", "P50_WEIGHT": "cycles", "DEFAULT_TIP_CAP": 8}
    assert hardened.to_names() == {**DEFAULTS, **changed}
    assert Parameters.from_names({"PRIORITY_FLOOR": 0, "TIE_BREAK": "id"}, "hardened").to_names() == {
        **DEFAULTS,
        "P50_WEIGHT": "cycles",
        "DEFAULT_TIP_CAP": 8,
    }
    with pytest.raises(ParameterError, match=r"^preset: 'soft' is unknown; known: hardened$"):
        Parameters.from_names({}, "soft")


@pytest.mark.parametrize("name", INTEGERS)
def test_every_integer_has_its_range(name: str) -> None:
    low, high = BOUNDS.get(name, (1, 10**9))
    assert parse_value(name, low) == low
    assert parse_value(name, str(high)) == high
    for wrong in (low - 1, high + 1, -1, 2**200, str(high + 1)):
        with pytest.raises(ParameterError, match=f"^{name}: .*expected {low} to {high}$"):
            parse_value(name, wrong)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("wrong", [True, None, 1.0, "x", "", " 5", "1_0", "-5", "٣", [1], {}, "9" * 41])
def test_what_is_no_integer_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ParameterError, match=f"^{name}: expected an integer, got "):
        parse_value(name, wrong)


@pytest.mark.parametrize("wrong", [[1, 2, 3], [1, 2, 3, 4, 5], "8", 8, None, {}])
def test_tiers_are_four(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r"^PRIORITY_TIERS: expected a list of four integers"):
        parse_value("PRIORITY_TIERS", wrong)


def test_tiers_have_a_range() -> None:
    assert parse_value("PRIORITY_TIERS", [0, "1000", 5, 0]) == (0, 1_000, 5, 0)
    with pytest.raises(ParameterError, match=r"^PRIORITY_TIERS\[2\]: 1001 is out of range, expected 0 to 1000$"):
        parse_value("PRIORITY_TIERS", [0, 0, 1_001, 0])


@pytest.mark.parametrize(
    ("name", "known"),
    [("TIE_BREAK", ("id", "aged")), ("P50_WEIGHT", ("fires", "cycles")), ("WEIGHT_PARTY", ("actor", "deployer"))],
)
def test_choices(name: str, known: tuple[str, ...]) -> None:
    assert [parse_value(name, value) for value in known] == list(known)
    wrongs: list[Any] = ["", "ID", None, 1, [], {}]
    for wrong in wrongs:
        with pytest.raises(ParameterError, match=f"^{name}: expected one of {', '.join(known)}, got "):
            parse_value(name, wrong)


@pytest.mark.parametrize("name", ["NOPE", "lane_timer_cycles", "Max_Ttl", "", "MAX_TTL "])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, match=f"^{name}: unknown parameter$"):
        Parameters.from_names({name: 1})


RELATIONS = [
    ("MAX_CYCLES_PER_FIRE", {"MAX_CYCLES_PER_FIRE": 999}),
    ("MAX_CYCLES_PER_FIRE_AUCTION_PHASE", {"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 999}),
    ("LANE_TIMER_CYCLES", {"LANE_TIMER_CYCLES": 549_999}),
    ("LANE_TIMER_CYCLES", {"LANE_TIMER_CYCLES": 249_999, "MAX_CYCLES_PER_FIRE": 1_000}),
    ("TIMER_GC_CYCLES", {"TIMER_GC_CYCLES": 2 * 4_096 * 200 - 1}),
    ("TIMER_GC_CYCLES", {"SCAN_LIMIT": 12_501}),
    ("RING_BUFFER_SIZE", {"RING_BUFFER_SIZE": 3_599}),
    ("LANE_DEFERRED_CYCLES", {"LANE_DEFERRED_CYCLES": 99_999}),
    ("WEIGHT_CLIP_MIN_MILLI", {"WEIGHT_CLIP_MIN_MILLI": 1_001, "WEIGHT_CLIP_MAX_MILLI": 1_000}),
    ("INITIAL_BASEFEE", {"INITIAL_BASEFEE": 9_999}),
    ("INITIAL_BASEFEE", {"MIN_BASEFEE": 1_000_001}),
    ("INITIAL_BASEFEE", {"MAX_BASEFEE": 999_999}),
]


@pytest.mark.parametrize(("name", "given"), RELATIONS)
def test_relations_between_parameters(name: str, given: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match=f"^{name}: "):
        Parameters.from_names(given)


def test_relations_hold_at_their_borders() -> None:
    Parameters.from_names({"LANE_TIMER_CYCLES": 550_000, "TIMER_GC_CYCLES": 2 * 4_096 * 200})
    Parameters.from_names({"RING_BUFFER_SIZE": 3_600, "LANE_DEFERRED_CYCLES": 100_000})
    Parameters.from_names({"MAX_CYCLES_PER_FIRE": 1_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 1_000})
    Parameters.from_names({"WEIGHT_CLIP_MIN_MILLI": 1_000, "WEIGHT_CLIP_MAX_MILLI": 1_000})
    Parameters.from_names({"INITIAL_BASEFEE": 5, "MIN_BASEFEE": 5, "MAX_BASEFEE": 5})


def test_every_parameter_is_known_and_what_is_governed_is_among_them() -> None:
    assert {item.name.upper() for item in fields(Parameters)} == set(DEFAULTS)
    assert set(DEFAULTS) > GOVERNED
    assert len(GOVERNED) == 11
