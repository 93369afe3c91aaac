"""The choice of the transactions and timers that are traced. It follows from their hashes alone.

OpenTelemetry's variables ``OTEL_TRACES_SAMPLER`` and ``OTEL_TRACES_SAMPLER_ARG`` choose as usual, by the last eight
bytes of the trace id. Without them, the lowest few of each block are chosen: the same that a lower ratio would choose
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cluster.common.errors import BadInput
from kits.tracing.spans import HALF_BYTES

SAMPLER_VARIABLE: Final = "OTEL_TRACES_SAMPLER"
RATIO_VARIABLE: Final = "OTEL_TRACES_SAMPLER_ARG"
CHOSEN_PER_BLOCK: Final = 4
"""Transactions of a block, and timers that it schedules, that are traced by default, of each."""
RATIOS: Final = ("traceidratio", "parentbased_traceidratio")
ALL: Final = ("always_on", "parentbased_always_on")
NONE: Final = ("always_off", "parentbased_always_off")
_LIMIT: Final = 1 << (8 * HALF_BYTES)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Chooses by hash: those below a ratio, and of each block at most the lowest ``per_block``."""

    ratio: float = 1.0
    per_block: int | None = CHOSEN_PER_BLOCK

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Sampler:
        """The sampler that OpenTelemetry's variables ask for. Raises :class:`BadInput` for a wrong one."""
        name = environment.get(SAMPLER_VARIABLE, "").strip().lower()
        if not name:
            return cls()
        if name in ALL:
            return cls(per_block=None)
        if name in NONE:
            return cls(0.0)
        if name not in RATIOS:
            known = ", ".join(sorted((*RATIOS, *ALL, *NONE)))
            raise BadInput(f"{SAMPLER_VARIABLE}: {name[:40]!r} is not known; expected one of {known}")
        text = environment.get(RATIO_VARIABLE, "") or "1"
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            raise BadInput(f"{RATIO_VARIABLE}: expected a number from 0 to 1, got {text[:40]!r}")
        return cls(ratio, None)

    def choose(self, keys: Iterable[bytes]) -> set[bytes]:
        """The chosen ones of the hashes of one block."""
        bound = int(self.ratio * _LIMIT)
        chosen = sorted(key for key in keys if int.from_bytes(key[:HALF_BYTES], "big") < bound)
        return set(chosen if self.per_block is None else chosen[: self.per_block])
