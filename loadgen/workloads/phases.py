"""Phases of the load: the number of turns that users take, by the chain's height or by the time since the load began.

Users know heights and times on Locust and in the simulator, so that the same phases apply to both. A *rate* scales a
user's turns: at 2 it takes two turns in each ``interval_ms``, at 0.5 one in two of them, at 0 none. Rates are
thousandths and all arithmetic is on integers, so that the same heights and times give the same turns everywhere.

A phase is by height or by time. By height a ramp pauses while the chain stalls; by time it continues.
"""

from __future__ import annotations

import reprlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

Height = Annotated[int, Field(ge=1, le=1_000_000)]
Rate = Annotated[float, Field(ge=0, le=100)]

MILLI: Final = 1_000
MAX_MS: Final = 31 * 86_400 * 1_000
"""The longest load, in milliseconds."""
GRID_MS: Final = 50
"""Interval at which a rate that changes smoothly is updated, for phases by time."""
MAX_TRACE_POINTS: Final = 10_000

Moment = Annotated[int, Field(ge=0, le=MAX_MS)]
Duration = Annotated[int, Field(ge=1, le=MAX_MS)]
TracePoint = Annotated[tuple[Moment, Rate], Field(strict=False)]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a user knows when it evaluates its phases: the time, and the chain's height, price and backlog."""

    height: int = 0
    at_ms: int = 0
    """Time since the load began."""
    basefee_lane: int = 0
    backlog: int = 0
    """Number of due timers that wait on the chain."""


class _Phase(BaseModel):
    """A phase from one height or time to another one, or to the end."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    from_height: Height | None = None
    """The phase begins once this height is final; by default at once."""
    until_height: Height | None = None
    """The phase ends once this height is final; by default it lasts to the end."""
    from_ms: Moment | None = None
    """Start by time: the phase begins this many milliseconds after the load."""
    until_ms: Duration | None = None
    """End by time: the phase ends this many milliseconds after the load began; by default it lasts to the end."""

    @model_validator(mode="after")
    def _ends_later(self) -> _Phase:
        by_height = [name for name in ("from_height", "until_height") if getattr(self, name) is not None]
        by_time = [name for name in ("from_ms", "until_ms") if getattr(self, name) is not None]
        if by_height and by_time:
            raise ValueError(f"{by_time[0]}: a phase goes by height or by time; this one has {by_height[0]} as well")
        if self.end is not None and self.end <= self.begin:
            raise ValueError(f"until_{self.unit}: {self.end} is not above from_{self.unit} ({self.begin})")
        return self

    @property
    def is_by_time(self) -> bool:
        return self.from_ms is not None or self.until_ms is not None

    @property
    def unit(self) -> str:
        """Unit of the phase's bounds, which is the suffix of their fields' names: ``ms`` or ``height``."""
        return "ms" if self.is_by_time else "height"

    @property
    def begin(self) -> int:
        """The first height or millisecond of the phase."""
        return (self.from_ms or 0) if self.is_by_time else (self.from_height or 1)

    @property
    def end(self) -> int | None:
        """The first height or millisecond after the phase; ``None`` if it lasts to the end."""
        return self.until_ms if self.is_by_time else self.until_height

    def lasts_at(self, seen: Seen) -> bool:
        place = seen.at_ms if self.is_by_time else seen.height
        return self.begin <= place and (self.end is None or place < self.end)

    def rate_milli(self, seen: Seen) -> int:
        """The rate at a moment of the phase, in thousandths."""
        return self._rate_after((seen.at_ms if self.is_by_time else seen.height) - self.begin)

    def has_turns(self, seen: Seen) -> bool:
        """Whether turns can come due at a moment of the phase, at least for some prices and backlog."""
        return self.rate_milli(seen) > 0

    def next_change_ms(self, at_ms: int) -> int | None:
        """The first millisecond after ``at_ms`` at which the rate may change by time; ``None`` if there is none.

        After the phase it is the phase's end, which is before ``at_ms``.
        """
        if not self.is_by_time:
            return None
        if at_ms < self.begin:
            return self.begin
        step = self._step_ms(at_ms - self.begin)
        changes = [self.end] if step is None else [self.end, self.begin + step]
        return min((change for change in changes if change is not None), default=None)

    def _rate_after(self, place: int) -> int:
        """The rate, in thousandths, ``place`` heights or milliseconds after the phase's beginning."""
        raise NotImplementedError

    def _step_ms(self, place: int) -> int | None:
        """In a phase by time, the next place at which the rate may change; ``None`` if it stays constant."""
        return None

    def _smooth(self, place: int) -> int:
        """The place whose rate applies at ``place``: by time the last multiple of :data:`GRID_MS`, else ``place``."""
        return place // GRID_MS * GRID_MS if self.is_by_time else place


class _BoundedPhase(_Phase):
    """A phase that must have an end."""

    @model_validator(mode="after")
    def _has_an_end(self) -> _BoundedPhase:
        if self.end is None:
            raise ValueError(f"until_{self.unit}: a {getattr(self, 'kind', 'phase')} needs one")
        return self

    @property
    def _length(self) -> int:
        assert self.end is not None
        return self.end - self.begin


class SteadyPhase(_Phase):
    """Turns are this many times as frequent."""

    kind: Literal["steady"]
    rate: Rate
    """Factor of the number of turns by ``interval_ms``."""

    def _rate_after(self, place: int) -> int:
        return _milli(self.rate)


class RampPhase(_BoundedPhase):
    """Turns become more or less frequent, by the same amount from each height or moment to the next."""

    kind: Literal["ramp"]
    from_rate: Rate = 0.0
    """The rate at the beginning."""
    to_rate: Rate
    """The rate at the end."""

    def _rate_after(self, place: int) -> int:
        first, last = _milli(self.from_rate), _milli(self.to_rate)
        return first + (last - first) * self._smooth(place) // self._length

    def _step_ms(self, place: int) -> int:
        return self._smooth(place) + GRID_MS


class StepPhase(_BoundedPhase):
    """Turns become more or less frequent in steps of the same length and height."""

    kind: Literal["step"]
    from_rate: Rate = 0.0
    """The rate of the first step."""
    to_rate: Rate
    """The rate of the last step."""
    steps: Annotated[int, Field(ge=2, le=1_000)] = 5
    """Number of steps."""

    def _rate_after(self, place: int) -> int:
        first, last = _milli(self.from_rate), _milli(self.to_rate)
        return first + (last - first) * self._number(place) // (self.steps - 1)

    def _step_ms(self, place: int) -> int:
        return -(-(self._number(place) + 1) * self._length // self.steps)

    def _number(self, place: int) -> int:
        return place * self.steps // self._length


class SpikePhase(_BoundedPhase):
    """Turns become more frequent up to the middle of the phase, and less frequent again from there."""

    kind: Literal["spike"]
    rate: Rate
    """The rate in the middle."""
    base_rate: Rate = 1.0
    """The rate at the beginning and at the end."""

    def _rate_after(self, place: int) -> int:
        base, peak, place = _milli(self.base_rate), _milli(self.rate), self._smooth(place)
        return base + (peak - base) * 2 * min(place, self._length - place) // self._length

    def _step_ms(self, place: int) -> int:
        return self._smooth(place) + GRID_MS


class SinePhase(_Phase):
    """Turns become more and less frequent, like a sine."""

    kind: Literal["sine"]
    rate: Rate = 1.0
    """The mean rate, at which it begins."""
    amplitude: Rate
    """Amount by which the rate rises above the mean and falls below it; at most ``rate``."""
    period: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    """Blocks of one period, if the phase is by height."""
    period_ms: Annotated[int, Field(ge=4 * GRID_MS, le=MAX_MS)] | None = None
    """Milliseconds of one period, if the phase is by time."""

    @model_validator(mode="after")
    def _has_a_period(self) -> SinePhase:
        if self.amplitude > self.rate:
            raise ValueError(f"amplitude: {self.amplitude:g} is above rate ({self.rate:g})")
        _check_units(self, ("period",), ("period_ms",))
        return self

    def _rate_after(self, place: int) -> int:
        period = self.period_ms if self.is_by_time else self.period
        assert period is not None
        return _milli(self.rate) + _sine(_milli(self.amplitude), self._smooth(place) % period, period)

    def _step_ms(self, place: int) -> int:
        return self._smooth(place) + GRID_MS


class BurstPhase(_Phase):
    """Turns are more frequent in a part of each period."""

    kind: Literal["burst"]
    rate: Rate
    """The rate in a burst."""
    base_rate: Rate = 1.0
    """The rate between bursts."""
    blocks: Height | None = None
    """Blocks of a burst, if the phase is by height; by default one."""
    every: Height | None = None
    """Blocks from the beginning of one burst to that of the next, if the phase is by height; by default ten. The first
    burst begins with the phase."""
    lasts_ms: Duration | None = None
    """Milliseconds of a burst, if the phase is by time."""
    every_ms: Duration | None = None
    """Milliseconds from the beginning of one burst to that of the next, if the phase is by time."""

    @model_validator(mode="after")
    def _leaves_a_pause(self) -> BurstPhase:
        _check_units(self, (), ("lasts_ms", "every_ms"), ("blocks", "every"))
        name, every_name = ("lasts_ms", "every_ms") if self.is_by_time else ("blocks", "every")
        length, every = self.lengths
        if length >= every:
            raise ValueError(f"{name}: {length} is not below {every_name} ({every})")
        return self

    @property
    def lengths(self) -> tuple[int, int]:
        """Lengths of a burst and of a period, in milliseconds or blocks."""
        if self.is_by_time:
            return self.lasts_ms or 1, self.every_ms or 1
        return self.blocks or 1, self.every or 10

    def _rate_after(self, place: int) -> int:
        length, every = self.lengths
        return _milli(self.rate if place % every < length else self.base_rate)

    def _step_ms(self, place: int) -> int:
        length, every = self.lengths
        begun = place // every * every
        return begun + (length if place - begun < length else every)


class TracePhase(_Phase):
    """Turns are as frequent as in a recorded load."""

    kind: Literal["trace"]
    points: Annotated[list[TracePoint], Field(min_length=1, max_length=MAX_TRACE_POINTS)]
    """Pairs of a place and a rate, ascending: heights or milliseconds after the phase's beginning. A rate holds up to
    the next place; before the first one it is 0. A scenario's file may name a file of them instead."""

    @field_validator("points", mode="before")
    @classmethod
    def _is_no_path(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError(f"{given!r} is a path, which only a scenario that is read from a file may have")
        return given

    @model_validator(mode="after")
    def _ascends(self) -> TracePhase:
        for number, (before, after) in enumerate(zip(self.points, self.points[1:], strict=False), 1):
            if after[0] <= before[0]:
                raise ValueError(f"points[{number}]: {after[0]} is not above {before[0]}, the place before")
        return self

    def _rate_after(self, place: int) -> int:
        number = bisect_right(self.points, place, key=_place_of)
        return _milli(self.points[number - 1][1]) if number else 0

    def _step_ms(self, place: int) -> int | None:
        number = bisect_right(self.points, place, key=_place_of)
        return self.points[number][0] if number < len(self.points) else None


class FeedbackPhase(_Phase):
    """Turns are as frequent as the users' view of the chain decides: they back off, or press on."""

    kind: Literal["feedback"]
    watches: Literal["basefee_lane", "backlog"]
    """What the rate follows: the basefee of the timer lane, or the number of due timers that wait."""
    low: Annotated[int, Field(ge=0, lt=2**63)]
    """Up to this value ``low_rate`` holds."""
    high: Annotated[int, Field(ge=1, lt=2**63)]
    """From this value on ``high_rate`` holds; in between the rate changes evenly."""
    low_rate: Rate
    """The rate at ``low`` and below."""
    high_rate: Rate
    """The rate at ``high`` and above."""

    @model_validator(mode="after")
    def _low_is_low(self) -> FeedbackPhase:
        if self.high <= self.low:
            raise ValueError(f"high: {self.high} is not above low ({self.low})")
        return self

    def rate_milli(self, seen: Seen) -> int:
        value = min(max(seen.basefee_lane if self.watches == "basefee_lane" else seen.backlog, self.low), self.high)
        first, last = _milli(self.low_rate), _milli(self.high_rate)
        return first + (last - first) * (value - self.low) // (self.high - self.low)

    def has_turns(self, seen: Seen) -> bool:
        return self.low_rate > 0 or self.high_rate > 0


class PausePhase(_Phase):
    """No user takes a turn."""

    kind: Literal["pause"]

    def _rate_after(self, place: int) -> int:
        return 0


AnyPhase = (
    SteadyPhase | RampPhase | StepPhase | SpikePhase | SinePhase | BurstPhase | TracePhase | FeedbackPhase | PausePhase
)
PHASE_NAMES: Final = ("steady", "ramp", "step", "spike", "sine", "burst", "trace", "feedback", "pause")


def _is_known(given: Any) -> Any:
    if isinstance(given, dict):
        if "kind" not in given:
            raise ValueError(f"kind: is missing; known: {', '.join(PHASE_NAMES)}")
        if given["kind"] not in PHASE_NAMES:
            raise ValueError(f"kind: unknown phase {reprlib.repr(given['kind'])}; known: {', '.join(PHASE_NAMES)}")
    return given


Phase = Annotated[Annotated[AnyPhase, Field(discriminator="kind")], BeforeValidator(_is_known)]


def check_order(phases: Sequence[AnyPhase]) -> None:
    """Raise :class:`ValueError`, with the field, if phases overlap, are out of order, or mix heights and times."""
    for position, phase in enumerate(phases[1:], 1):
        before = phases[position - 1]
        if phase.is_by_time != before.is_by_time:
            raise ValueError(
                f"phases[{position}]: goes by {_scale(phase)}, and the phase before by {_scale(before)};"
                f" expected all by height or all by time"
            )
        if before.end is None:
            raise ValueError(f"phases[{position - 1}].until_{before.unit}: is missing, and another phase follows")
        if phase.begin < before.end:
            raise ValueError(
                f"phases[{position}].from_{phase.unit}: {phase.begin} is below {before.end},"
                f" where the phase before ends"
            )


def check_reached(phases: Sequence[AnyPhase], from_height: int | None, until_height: int | None) -> None:
    """Raise :class:`ValueError`, with the field, if a phase by height lies outside of its group's heights."""
    for position, phase in enumerate(phases):
        if phase.is_by_time:
            continue
        if until_height is not None and phase.begin >= until_height:
            raise ValueError(
                f"phases[{position}].from_height: {phase.begin} is not below the group's until_height ({until_height})"
            )
        if from_height is not None and phase.end is not None and phase.end <= from_height:
            raise ValueError(
                f"phases[{position}].until_height: {phase.end} is not above the group's from_height ({from_height})"
            )


def _scale(phase: AnyPhase) -> str:
    return "time" if phase.is_by_time else "height"


def _check_units(
    phase: _Phase, needed_by_height: Sequence[str], needed_by_time: Sequence[str], by_height: Sequence[str] = ()
) -> None:
    """Raise :class:`ValueError` if a phase has a field of the other unit (blocks or ms), or lacks a needed one."""
    needed, of_others = needed_by_height, needed_by_time
    if phase.is_by_time:
        needed, of_others = needed_by_time, [*needed_by_height, *by_height]
    for name in of_others:
        if getattr(phase, name) is not None:
            raise ValueError(f"{name}: the phase goes by {'time' if phase.is_by_time else 'height'}")
    for name in needed:
        if getattr(phase, name) is None:
            raise ValueError(f"{name}: is missing in a phase by {'time' if phase.is_by_time else 'height'}")


def _place_of(point: tuple[int, float]) -> int:
    return point[0]


def _milli(rate: float) -> int:
    return round(rate * MILLI)


def _sine(amplitude: int, place: int, period: int) -> int:
    """A sine at a place of its period, by Bhaskara's approximation, in integers: within 0.2 % of the amplitude."""
    half = 2 * place >= period
    x = 2 * place - period if half else 2 * place
    product = x * (period - x)
    height = amplitude * 16 * product // (5 * period * period - 4 * product)
    return -height if half else height
