"""The parameters of a chain: defaults, presets, ranges, and which of them are governed (``docs/scenarios.md``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from spec.encoding import PRICE_LIMIT

Parameters = dict[str, Any]
"""The value of each parameter by its name: integers, texts, and a list of four integers."""

DEFAULTS: Parameters = {
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
PRESETS: dict[str, Parameters] = {
    "hardened": {"PRIORITY_FLOOR": 1, "TIE_BREAK": "aged", "P50_WEIGHT": "cycles", "DEFAULT_TIP_CAP": 8}
}
GOVERNED = (
    "FAIRNESS_WINDOW_BLOCKS",
    "LANE_BASEFEE_SLOPE",
    "LANE_FEE_MULTIPLIER_MILLI",
    "LANE_TIMER_CYCLES",
    "MAX_CELLS_PER_FIRE",
    "MAX_CYCLES_PER_FIRE",
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE",
    "MAX_TTL",
    "PRIORITY_FLOOR",
    "PRIORITY_TIERS",
    "TIMER_GC_CYCLES",
)
"""What the instruction 49 may change, in ascending order."""

RANGES = {
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
    "INITIAL_BASEFEE": (1, PRICE_LIMIT - 1),
    "MIN_BASEFEE": (1, PRICE_LIMIT - 1),
    "MAX_BASEFEE": (1, PRICE_LIMIT - 1),
    "WEIGHT_LAMBDA_MILLI": (10, 1_000),
    "WEIGHT_MIN_MILLI": (1, 1_000),
    "WEIGHT_MAX_MILLI": (1, 1_000),
    "STARVATION_FLOOR_MILLI": (1, 1_000),
    "RESERVE_PRICE": (0, PRICE_LIMIT - 1),
    "BIAS_LAMBDA_MICRO": (10_000, 10**7),
    "BIAS_LAMBDA_MIN_MICRO": (10_000, 10**7),
    "BIAS_LAMBDA_MAX_MICRO": (10_000, 10**7),
    "BIAS_LAMBDA_STEP_MILLI": (0, 1_000),
    "MAX_WATCHERS_PER_KEY": (1, 1_024),
}
"""The least and the greatest value of each integer parameter whose range is not 1 to 10⁹."""
CHOICES = {
    "TIE_BREAK": ("id", "aged"),
    "P50_WEIGHT": ("fires", "cycles"),
    "WEIGHT_PARTY": ("actor", "deployer"),
    "PAYMENT_RULE": ("vcg", "critical", "first_price"),
}
_DECIMAL = re.compile("0|[1-9][0-9]{0,39}")


class BadParameter(ValueError):
    """A parameter is unknown, has no such value, or does not fit the others. The message begins with its name."""


def integer_of(value: Any) -> Any:
    """The number that decimal text gives; any other value as it is."""
    return int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


def checked(name: str, value: Any) -> Any:
    """The value of one parameter. Raises :class:`BadParameter`."""
    if name not in DEFAULTS:
        raise BadParameter(f"{name}: unknown parameter")
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise BadParameter(f"{name}: expected one of {', '.join(CHOICES[name])}, got {value!r}")
        return value
    if name == "PRIORITY_TIERS":
        if not isinstance(value, list) or len(value) != 4:
            raise BadParameter(f"{name}: expected a list of four integers, got {value!r}")
        return [_within(name, item, 0, 1_000) for item in value]
    return _within(name, value, *RANGES.get(name, (1, 10**9)))


def _within(name: str, value: Any, low: int, high: int) -> int:
    value = integer_of(value)
    if type(value) is not int or not low <= value <= high:
        raise BadParameter(f"{name}: expected an integer from {low} to {high}, got {value!r}")
    return value


def made(given: Mapping[str, Any], preset: str | None = None) -> Parameters:
    """All parameters: the given ones, else the preset's, else the defaults. Raises :class:`BadParameter`."""
    if preset is not None and preset not in PRESETS:
        raise BadParameter(f"preset: {preset!r} is unknown")
    parameters = DEFAULTS | PRESETS.get(preset or "", {}) | {name: checked(name, given[name]) for name in given}
    check_together(parameters)
    return parameters


def check_together(p: Parameters) -> None:
    """Raises :class:`BadParameter` if parameters do not fit each other."""
    ascending: Iterable[tuple[str | int, ...]] = (
        ("MIN_GAS_LIMIT_PER_TIMER", "MAX_CYCLES_PER_FIRE", "LANE_TIMER_CYCLES"),
        ("MIN_GAS_LIMIT_PER_TIMER", "MAX_CYCLES_PER_FIRE_AUCTION_PHASE", "LANE_TIMER_CYCLES"),
        (2 * p["SCAN_LIMIT"] * p["GC_CYCLES_PER_REMOVAL"], "TIMER_GC_CYCLES"),
        ("EPOCH_LENGTH", "RING_BUFFER_SIZE"),
        ("MESSAGE_CYCLES", "LANE_DEFERRED_CYCLES"),
        ("WEIGHT_CLIP_MIN_MILLI", "WEIGHT_CLIP_MAX_MILLI"),
        ("WEIGHT_MIN_MILLI", "STARVATION_FLOOR_MILLI", "WEIGHT_MAX_MILLI"),
        ("BIAS_LAMBDA_MIN_MICRO", "BIAS_LAMBDA_MICRO", "BIAS_LAMBDA_MAX_MICRO"),
        ("MIN_BASEFEE", "INITIAL_BASEFEE", "MAX_BASEFEE"),
    )
    for names in ascending:
        values = [p[name] if isinstance(name, str) else name for name in names]
        if values != sorted(values):
            raise BadParameter(f"{names[-1]}: expected {' <= '.join(map(str, names))}")


def stored_key(name: str) -> str:
    """The key of a governed parameter in the storage of ``0x00…09``."""
    return "system:cip1:" + name.lower()


def stored_text(value: Any) -> str:
    """A governed parameter as it is stored: decimal text, tiers as a JSON list without spaces."""
    return str(value).replace(" ", "")
