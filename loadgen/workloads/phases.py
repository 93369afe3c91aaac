"""Phases of the load: how many turns users take, by the height of the chain.

Users know heights on Locust and in the simulator, so that the same phases apply to both. A *rate* scales a user's
turns: at 2 it takes two turns in each ``interval_ms``, at 0.5 one in two of them, at 0 none. Rates are thousandths, and
what a user has earned towards its next turn is an integer, so that the same heights give the same turns everywhere.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Height = Annotated[int, Field(ge=1, le=1_000_000)]
Rate = Annotated[float, Field(ge=0, le=100)]

MILLI: Final = 1_000


class _Phase(BaseModel):
    """From one height on, up to another one or the end."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    from_height: Height = 1
    """It begins once this height is final."""
    until_height: Height | None = None
    """It is over once this height is final; by default it lasts to the end."""

    @model_validator(mode="after")
    def _ends_later(self) -> _Phase:
        if self.until_height is not None and self.until_height <= self.from_height:
            raise ValueError(f"until_height: {self.until_height} is not above from_height ({self.from_height})")
        return self

    def lasts_at(self, height: int) -> bool:
        return self.from_height <= height and (self.until_height is None or height < self.until_height)


class SteadyPhase(_Phase):
    """Turns are so many times as frequent."""

    kind: Literal["steady"]
    rate: Rate
    """How many times as many turns as ``interval_ms`` says."""

    def rate_milli(self, height: int) -> int:
        """The rate at a height at which it lasts, in thousandths."""
        return _milli(self.rate)


class RampPhase(_Phase):
    """Turns become more or less frequent, by the same amount from each height to the next."""

    kind: Literal["ramp"]
    from_rate: Rate = 0.0
    """The rate at ``from_height``."""
    to_rate: Rate
    """The rate that it comes to when ``until_height`` is final."""

    @model_validator(mode="after")
    def _has_an_end(self) -> RampPhase:
        if self.until_height is None:
            raise ValueError("until_height: a ramp needs one")
        return self

    def rate_milli(self, height: int) -> int:
        assert self.until_height is not None
        first, last = _milli(self.from_rate), _milli(self.to_rate)
        return first + (last - first) * (height - self.from_height) // (self.until_height - self.from_height)


class BurstPhase(_Phase):
    """For some blocks of each period turns are more frequent."""

    kind: Literal["burst"]
    rate: Rate
    """The rate in a burst."""
    base_rate: Rate = 1.0
    """The rate between bursts."""
    blocks: Height = 1
    """How many blocks a burst lasts."""
    every: Height = 10
    """Blocks from the beginning of one burst to that of the next; the first begins with the phase."""

    @model_validator(mode="after")
    def _leaves_a_pause(self) -> BurstPhase:
        if self.blocks >= self.every:
            raise ValueError(f"blocks: {self.blocks} is not below every ({self.every})")
        return self

    def rate_milli(self, height: int) -> int:
        is_burst = (height - self.from_height) % self.every < self.blocks
        return _milli(self.rate if is_burst else self.base_rate)


class PausePhase(_Phase):
    """Nobody takes a turn."""

    kind: Literal["pause"]

    def rate_milli(self, height: int) -> int:
        return 0


AnyPhase = SteadyPhase | RampPhase | BurstPhase | PausePhase
PHASE_NAMES: Final = ("steady", "ramp", "burst", "pause")


def _is_known(given: Any) -> Any:
    if isinstance(given, dict):
        if "kind" not in given:
            raise ValueError(f"kind: is missing; known: {', '.join(PHASE_NAMES)}")
        if given["kind"] not in PHASE_NAMES:
            raise ValueError(f"kind: unknown phase {reprlib.repr(given['kind'])}; known: {', '.join(PHASE_NAMES)}")
    return given


Phase = Annotated[Annotated[AnyPhase, Field(discriminator="kind")], BeforeValidator(_is_known)]


def check_order(phases: Sequence[AnyPhase]) -> None:
    """Raise :class:`ValueError`, with the field, if phases are not one after the other."""
    for position, phase in enumerate(phases[1:], 1):
        before = phases[position - 1]
        if before.until_height is None:
            raise ValueError(f"phases[{position - 1}].until_height: is missing, and another phase follows")
        if phase.from_height < before.until_height:
            raise ValueError(
                f"phases[{position}].from_height: {phase.from_height} is below {before.until_height},"
                f" where the phase before ends"
            )


class Rhythm:
    """When one user takes its turns.

    A user is looked at again and again. For each look it is asked for :meth:`next_delay_ms`, how long it is until the
    one after it, and then :meth:`takes_turn` says whether this look is a turn. So the delay behind a look is reckoned
    with the heights that were known at the looks before it.
    """

    def __init__(
        self,
        interval_ms: int,
        phases: Sequence[AnyPhase] = (),
        from_height: int | None = None,
        until_height: int | None = None,
    ) -> None:
        self.interval_ms = interval_ms
        self._phases = tuple(phases)
        self._from_height = from_height or 0
        self._until_height = until_height
        self._is_plain = not (phases or from_height or until_height)
        self._height = 0
        self._turn_costs = interval_ms * MILLI
        """Milliseconds times thousandths of a rate."""
        self._earned = 0

    def rate_milli(self, height: int) -> int:
        """The rate when a height is final, in thousandths."""
        if height < self._from_height or (self._until_height is not None and height >= self._until_height):
            return 0
        phase = next((phase for phase in self._phases if phase.lasts_at(height)), None)
        return MILLI if phase is None else phase.rate_milli(height)

    def next_delay_ms(self) -> int:
        """How long until the user is looked at again, at the rate of the height that it knows of."""
        if self._is_plain:
            return self.interval_ms
        rate = self.rate_milli(self._height)
        delay_ms = self.interval_ms if rate <= MILLI else max(1, -(-self._turn_costs // rate))
        self._earned = min(self._earned + delay_ms * rate, 2 * self._turn_costs)
        return delay_ms

    def takes_turn(self, height: int) -> bool:
        """Whether the user takes a turn now that it knows of this height."""
        if self._is_plain:
            return True
        self._height = max(self._height, height)
        if self.rate_milli(height) == 0 or self._earned < self._turn_costs:
            return False
        self._earned -= self._turn_costs
        return True


def _milli(rate: float) -> int:
    return round(rate * MILLI)
