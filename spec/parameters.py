"""The parameters of a chain: defaults, ranges, and which of them are governed (``docs/scenarios.md``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from spec.encoding import PRICE_LIMIT

Parameters = dict[str, Any]
"""The value of each parameter by its name: integers, texts, and a list of four integers."""

PARAMETERS: dict[str, tuple[Any, ...]] = {
    "LANE_TIMER_CYCLES": (2_000_000, 2, 10**9),
    "TIMER_GC_CYCLES": (5_000_000, 1, 10**9),
    "GC_CYCLES_PER_REMOVAL": (200, 1, 10**9),
    "MAX_CYCLES_PER_FIRE": (550_000, 1, 10**9),
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": (250_000, 1, 10**9),
    "MAX_CELLS_PER_FIRE": (550_000, 1, 10**9),
    "MIN_GAS_LIMIT_PER_TIMER": (1_000, 1, 10**9),
    "FIRE_BASE_CYCLES": (1_000, 1, 10**9),
    "TX_BASE_CYCLES": (1_000, 1, 10**9),
    "LANE_USER_CYCLES": (5_000_000, 1, 10**9),
    "LANE_DEFERRED_CYCLES": (7_000_000, 1, 10**9),
    "LANE_SYSTEM_CYCLES": (500_000, 1, 10**9),
    "BLOCK_CYCLES_TARGET": (5_000_000, 2, 10**9),
    "BLOCK_CELLS_TARGET": (500_000, 2, 10**9),
    "MESSAGE_CYCLES": (100_000, 2_000, 10**9),
    "MESSAGE_CELLS": (10_000, 1, 10**9),
    "ACTIVATION_HEIGHT": (0, 0, 10**9),
    "LANE_USER_CELLS": (1_000_000, 1, 10**9),
    "LANE_TIMER_CELLS": (1_000_000, 1, 10**9),
    "MESSAGE_BASE_CYCLES": (1_000, 1, 2_000),
    "GBA_QUERIES_PER_ACTOR": (16, 1, 10**9),
    "GBA_UNPAID_PAUSE": (64, 1, 10**9),
    "RING_BUFFER_SIZE": (4_096, 1, 10**9),
    "EPOCH_LENGTH": (3_600, 1, 10**9),
    "EPOCH_HORIZON": (24, 1, 10**9),
    "MAX_TIMER_PAYLOAD": (1_048_576, 1, 10**9),
    "MAX_TIMERS_PER_ACTOR": (1_024, 1, 10**9),
    "MAX_TTL": (2_592_000, 1, 10**9),
    "FAIRNESS_WINDOW_BLOCKS": (1_000, 1, 10**5),
    "TIE_BREAK": ("id", "id", "aged"),
    "P50_WEIGHT": ("fires", "fires", "cycles"),
    "LANE_BASEFEE_SLOPE": (1, 1, 8),
    "LANE_FEE_MULTIPLIER_MILLI": (1_000, 0, 10**4),
    "INITIAL_BASEFEE": (1_000_000, 1, PRICE_LIMIT - 1),
    "MIN_BASEFEE": (10_000, 1, PRICE_LIMIT - 1),
    "MAX_BASEFEE": (10**24, 1, PRICE_LIMIT - 1),
    "GBA_MAX_CYCLES": (10_000, 100, 10**9),
    "GBA_BUDGET_CYCLES": (1_000_000, 1, 10**9),
    "MAILBOX_BYTES": (1_000_000, 1, 10**9),
    "PRIORITY_TIERS": ([8, 10, 15, 25], 0, 1_000),
    "SCAN_LIMIT": (4_096, 1, 10**9),
    "PRIORITY_FLOOR": (0, 0, 10**18),
    "DEFAULT_TIP_CAP": (0, 0, 10**9),
    "WEIGHT_PARTY": ("actor", "actor", "deployer"),
    "MEDIAN_SMOOTHING_MILLI": (1_000, 1, 1_000),
    "WEIGHT_CLIP_MIN_MILLI": (1_000, 0, 2_000),
    "WEIGHT_CLIP_MAX_MILLI": (2_000, 0, 2_000),
    "WEIGHT_LAMBDA_MILLI": (200, 10, 1_000),
    "WEIGHT_MIN_MILLI": (100, 1, 1_000),
    "WEIGHT_MAX_MILLI": (1_000, 1, 1_000),
    "STARVATION_BLOCKS": (64, 1, 10**9),
    "STARVATION_FLOOR_MILLI": (500, 1, 1_000),
    "BUDGET_SLICES": (4, 1, 10**9),
    "MAX_FIRES_PER_BLOCK": (10**9, 1, 10**9),
    "MAX_FIRES_PER_ACTOR": (10**9, 1, 10**9),
    "PAYMENT_RULE": ("vcg", "vcg", "critical", "first_price"),
    "RESERVE_PRICE": (0, 0, PRICE_LIMIT - 1),
    "BIAS_LAMBDA_MICRO": (100_000, 10_000, 10**7),
    "BIAS_LAMBDA_MIN_MICRO": (10_000, 10_000, 10**7),
    "BIAS_LAMBDA_MAX_MICRO": (1_000_000, 10_000, 10**7),
    "BIAS_LAMBDA_STEP_MILLI": (125, 0, 1_000),
    "BIAS_INTERVAL_BLOCKS": (16, 1, 10**9),
    "VALUE_LIFE_BLOCKS": (100, 1, 10**9),
    "MAX_WATCHERS_PER_KEY": (64, 1, 1_024),
}
"""The default of each parameter, and what it may be: the least and the greatest integer, or one of some texts."""
DEFAULTS: Parameters = {name: default for name, (default, *_) in PARAMETERS.items()}
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
_DECIMAL = re.compile("0|[1-9][0-9]{0,39}")


class BadParameter(ValueError):
    """A parameter is unknown, has no such value, or does not fit the others. The message begins with its name."""


def checked(name: str, value: Any) -> Any:
    """The value of one parameter; decimal text is a number. Raises :class:`BadParameter`."""
    if name not in PARAMETERS:
        raise BadParameter(f"{name}: unknown parameter")
    default, *allowed = PARAMETERS[name]
    if isinstance(default, str):
        if value not in allowed:
            raise BadParameter(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")
        return value
    if isinstance(default, list):
        if not isinstance(value, list) or len(value) != len(default):
            raise BadParameter(f"{name}: expected a list of {len(default)} integers, got {value!r}")
        return [_within(name, item, *allowed) for item in value]
    return _within(name, value, *allowed)


def _within(name: str, value: Any, low: int, high: int) -> int:
    value = int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value
    if type(value) is not int or not low <= value <= high:
        raise BadParameter(f"{name}: expected an integer from {low} to {high}, got {value!r}")
    return value


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
