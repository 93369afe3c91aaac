"""The parameters of the chain (SPEC §16), their ranges (SPEC §12) and presets (SPEC §8).

One table has every parameter's default, its range, and whether a system instruction may change it. Values are
immutable; a governed change makes a new :class:`Parameters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

from validator.primitives.types import PRICE_LIMIT, ValidatorError, number_of

ORDINARY_MAXIMUM: Final = 10**9


class ParameterError(ValidatorError):
    """A parameter is unknown, of the wrong type, out of range or in conflict with another one.

    The message names the parameter and what is expected.
    """


class UnknownParameter(ParameterError):
    """A name is given that no parameter has."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: unknown parameter")
        self.name = name


class TieBreak(StrEnum):
    """The order of timers of equal score (SPEC §8)."""

    ID = "id"
    AGED = "aged"


class P50Weight(StrEnum):
    """How fires are weighted in the median tip (SPEC §9): equally, or by their cycles."""

    FIRES = "fires"
    CYCLES = "cycles"


class PaymentRule(StrEnum):
    """What a fire pays of its bid under ``bias_auction`` (SPEC §13)."""

    VCG = "vcg"
    """The bid of the first timer that was left out, less the bias of the one that fired."""
    CRITICAL = "critical"
    """The least bid with which the timer would still have come before the first one that was left out."""
    FIRST_PRICE = "first_price"
    """The bid."""


class WeightParty(StrEnum):
    """Whose fires in the window decide an actor's fairness weight under ``cip1`` (SPEC §8)."""

    ACTOR = "actor"
    """The actor's own."""
    DEPLOYER = "deployer"
    """Those of all actors with the same deployer."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The chain's parameters: every parameter of SPEC §16, its name in lower case.

    Cycles, cells, blocks and prices are integers.
    """

    lane_timer_cycles: int = 2_000_000
    timer_gc_cycles: int = 5_000_000
    gc_cycles_per_removal: int = 200
    max_cycles_per_fire: int = 550_000
    max_cycles_per_fire_auction_phase: int = 250_000
    max_cells_per_fire: int = 550_000
    min_gas_limit_per_timer: int = 1_000
    fire_base_cycles: int = 1_000
    tx_base_cycles: int = 1_000
    lane_user_cycles: int = 5_000_000
    lane_deferred_cycles: int = 7_000_000
    lane_system_cycles: int = 500_000
    block_cycles_target: int = 5_000_000
    block_cells_target: int = 500_000
    message_cycles: int = 100_000
    message_cells: int = 10_000
    activation_height: int = 0
    lane_user_cells: int = 1_000_000
    lane_timer_cells: int = 1_000_000
    message_base_cycles: int = 1_000
    gba_queries_per_actor: int = 16
    gba_unpaid_pause: int = 64
    ring_buffer_size: int = 4_096
    epoch_length: int = 3_600
    epoch_horizon: int = 24
    max_timer_payload: int = 1_048_576
    max_timers_per_actor: int = 1_024
    max_ttl: int = 2_592_000
    fairness_window_blocks: int = 1_000
    tie_break: TieBreak = TieBreak.ID
    p50_weight: P50Weight = P50Weight.FIRES
    lane_basefee_slope: int = 1
    lane_fee_multiplier_milli: int = 1_000
    initial_basefee: int = 1_000_000
    min_basefee: int = 10_000
    max_basefee: int = 10**24
    gba_max_cycles: int = 10_000
    gba_budget_cycles: int = 1_000_000
    mailbox_bytes: int = 1_000_000
    priority_tiers: tuple[int, int, int, int] = (8, 10, 15, 25)
    scan_limit: int = 4_096
    priority_floor: int = 0
    default_tip_cap: int = 0
    weight_party: WeightParty = WeightParty.ACTOR
    median_smoothing_milli: int = 1_000
    weight_clip_min_milli: int = 1_000
    weight_clip_max_milli: int = 2_000
    weight_lambda_milli: int = 200
    weight_min_milli: int = 100
    weight_max_milli: int = 1_000
    starvation_blocks: int = 64
    starvation_floor_milli: int = 500
    budget_slices: int = 4
    max_fires_per_block: int = ORDINARY_MAXIMUM
    max_fires_per_actor: int = ORDINARY_MAXIMUM
    payment_rule: PaymentRule = PaymentRule.VCG
    reserve_price: int = 0
    bias_lambda_micro: int = 100_000
    bias_lambda_min_micro: int = 10_000
    bias_lambda_max_micro: int = 1_000_000
    bias_lambda_step_milli: int = 125
    bias_interval_blocks: int = 16
    value_life_blocks: int = 100
    max_watchers_per_key: int = 64

    def __post_init__(self) -> None:
        _check_relations(self)

    @staticmethod
    def from_names(given: Mapping[str, Any], preset: str | None = None) -> Parameters:
        """Make parameters from values by ``LIKE_THIS`` names. They override the preset, which overrides the defaults.

        Raises :class:`ParameterError`, whose message begins with the parameter's name.
        """
        if preset is not None and preset not in PRESETS:
            raise ParameterError(f"preset: {preset!r} is unknown; known: {', '.join(sorted(PRESETS))}")
        values: dict[str, Any] = dict(PRESETS[preset]) if preset is not None else {}
        for name, value in given.items():
            values[_field_of(name)] = parse_value(name, value)
        return replace(DEFAULTS, **values)

    def to_names(self) -> dict[str, Any]:
        """Every parameter by its ``LIKE_THIS`` name, as JSON values."""
        named: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            named[item.name.upper()] = list(value) if isinstance(value, tuple) else value
        return named


GOVERNED: Final = frozenset(
    {
        "LANE_TIMER_CYCLES",
        "TIMER_GC_CYCLES",
        "MAX_CYCLES_PER_FIRE",
        "MAX_CYCLES_PER_FIRE_AUCTION_PHASE",
        "MAX_CELLS_PER_FIRE",
        "MAX_TTL",
        "FAIRNESS_WINDOW_BLOCKS",
        "LANE_BASEFEE_SLOPE",
        "LANE_FEE_MULTIPLIER_MILLI",
        "PRIORITY_TIERS",
        "PRIORITY_FLOOR",
    }
)
"""Parameters that ``SYS_UPDATE_TIMER_CONFIG`` may change (marked † in SPEC §16)."""

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "hardened": {"priority_floor": 1, "tie_break": TieBreak.AGED, "p50_weight": P50Weight.CYCLES, "default_tip_cap": 8}
}

_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "FAIRNESS_WINDOW_BLOCKS": (1, 10**5),
    "LANE_BASEFEE_SLOPE": (1, 8),
    "LANE_FEE_MULTIPLIER_MILLI": (0, 10**4),
    "PRIORITY_FLOOR": (0, 10**18),
    "LANE_TIMER_CYCLES": (2, ORDINARY_MAXIMUM),
    "BLOCK_CYCLES_TARGET": (2, ORDINARY_MAXIMUM),
    "BLOCK_CELLS_TARGET": (2, ORDINARY_MAXIMUM),
    "GBA_MAX_CYCLES": (100, ORDINARY_MAXIMUM),
    "MESSAGE_CYCLES": (2_000, ORDINARY_MAXIMUM),
    "MESSAGE_BASE_CYCLES": (1, 2_000),
    "ACTIVATION_HEIGHT": (0, ORDINARY_MAXIMUM),
    "DEFAULT_TIP_CAP": (0, ORDINARY_MAXIMUM),
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
"""The least and the greatest value of each integer parameter whose range is not ``1 … 10**9``."""

_TIER_RANGE: Final = (0, 1_000)


def parse_value(name: str, value: Any) -> Any:
    """Convert one parameter's JSON value to its Python value. Integers may be decimal strings.

    Rules that relate it to other parameters are not checked. Raises :class:`ParameterError`.
    """
    match _field_of(name):
        case "tie_break":
            return _choice(name, value, TieBreak)
        case "p50_weight":
            return _choice(name, value, P50Weight)
        case "weight_party":
            return _choice(name, value, WeightParty)
        case "payment_rule":
            return _choice(name, value, PaymentRule)
        case "priority_tiers":
            if not isinstance(value, list | tuple) or len(value) != 4:
                raise ParameterError(f"{name}: expected a list of four integers, got {value!r}")
            return tuple(integer(f"{name}[{i}]", item, _TIER_RANGE) for i, item in enumerate(value))
        case _:
            return integer(name, value, _RANGES.get(name, (1, ORDINARY_MAXIMUM)))


def integer_range(name: str) -> tuple[int, int] | None:
    """The least and the greatest value of a parameter by its ``LIKE_THIS`` name; ``None`` if it is not an integer."""
    is_integer = isinstance(getattr(DEFAULTS, _field_of(name)), int)
    return _RANGES.get(name, (1, ORDINARY_MAXIMUM)) if is_integer else None


def _field_of(name: str) -> str:
    field_name = name.lower()
    if name != name.upper() or field_name not in _FIELD_NAMES:
        raise UnknownParameter(name)
    return field_name


def _choice(name: str, value: Any, choices: type[StrEnum]) -> StrEnum:
    known = [choice.value for choice in choices]
    if value not in known:
        raise ParameterError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    return choices(value)


def integer(name: str, value: Any, bounds: tuple[int, int]) -> int:
    """The integer that a JSON value gives, within inclusive bounds. Raises :class:`ParameterError`."""
    value = number_of(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(f"{name}: expected an integer, got {value!r}")
    low, high = bounds
    if not low <= value <= high:
        raise ParameterError(f"{name}: {value} is out of range, expected {low} to {high}")
    return value


def _check_relations(p: Parameters) -> None:
    """Check the rules of SPEC §12 and §5 that relate parameters to each other."""
    for name in ("max_cycles_per_fire", "max_cycles_per_fire_auction_phase"):
        cap: int = getattr(p, name)
        if cap < p.min_gas_limit_per_timer:
            raise ParameterError(
                f"{name.upper()}: {cap} is below MIN_GAS_LIMIT_PER_TIMER ({p.min_gas_limit_per_timer})"
            )
        if p.lane_timer_cycles < cap:
            raise ParameterError(f"LANE_TIMER_CYCLES: {p.lane_timer_cycles} is below {name.upper()} ({cap})")
    least = 2 * p.scan_limit * p.gc_cycles_per_removal
    if p.timer_gc_cycles < least:
        raise ParameterError(
            f"TIMER_GC_CYCLES: {p.timer_gc_cycles} is below 2 * SCAN_LIMIT * GC_CYCLES_PER_REMOVAL ({least})"
        )
    if p.ring_buffer_size < p.epoch_length:
        raise ParameterError(f"RING_BUFFER_SIZE: {p.ring_buffer_size} is below EPOCH_LENGTH ({p.epoch_length})")
    if p.lane_deferred_cycles < p.message_cycles:
        raise ParameterError(
            f"LANE_DEFERRED_CYCLES: {p.lane_deferred_cycles} is below MESSAGE_CYCLES ({p.message_cycles})"
        )
    if p.weight_clip_min_milli > p.weight_clip_max_milli:
        raise ParameterError("WEIGHT_CLIP_MIN_MILLI: expected WEIGHT_CLIP_MIN_MILLI <= WEIGHT_CLIP_MAX_MILLI")
    if not p.weight_min_milli <= p.starvation_floor_milli <= p.weight_max_milli:
        raise ParameterError(
            "STARVATION_FLOOR_MILLI: expected WEIGHT_MIN_MILLI <= STARVATION_FLOOR_MILLI <= WEIGHT_MAX_MILLI"
        )
    if not p.bias_lambda_min_micro <= p.bias_lambda_micro <= p.bias_lambda_max_micro:
        raise ParameterError(
            "BIAS_LAMBDA_MICRO: expected BIAS_LAMBDA_MIN_MICRO <= BIAS_LAMBDA_MICRO <= BIAS_LAMBDA_MAX_MICRO"
        )
    if not 1 <= p.min_basefee <= p.initial_basefee <= p.max_basefee < PRICE_LIMIT:
        raise ParameterError("INITIAL_BASEFEE: expected 1 <= MIN_BASEFEE <= INITIAL_BASEFEE <= MAX_BASEFEE < 2**96")


_FIELD_NAMES: Final = frozenset(item.name for item in fields(Parameters))
PARAMETER_NAMES: Final = tuple(item.name.upper() for item in fields(Parameters))
"""Parameter names in files and instructions, in the order of the table of ``docs/protocol.md``."""
DEFAULTS: Final = Parameters()
