"""A measured profile: how long messages, syncs and the executor's jobs take on one machine.

``stampede calibrate`` fits it to live runs, and a scenario names its file. The simulator draws from it; the live
testnet ignores it. Times are whole microseconds. A distribution is given by quantiles at equal distances: the first is
the least value, the last the greatest, and values between two of them are equally likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from cluster.scenario.sections.base import Section

MAX_US: Final = 600_000_000
MAX_QUANTILES: Final = 101
MILLI: Final = 1_000
_BITS: Final = 32
"""Bits of a random number from which a value is drawn."""

Microseconds = Annotated[int, Field(ge=0, le=MAX_US)]


def _ascending(values: list[int]) -> list[int]:
    for place in range(1, len(values)):
        if values[place] < values[place - 1]:
            raise ValueError(
                f"expected ascending values, got {values[place]} after {values[place - 1]} at place {place}"
            )
    return values


Quantiles = Annotated[list[Microseconds], Field(min_length=2, max_length=MAX_QUANTILES), AfterValidator(_ascending)]


class JobCost(Section):
    """Processor time of a kind of job. All fields are required, so that a profile replaces an inherited one whole."""

    base_us: Microseconds
    """Processor time of an empty block's job."""
    transaction_us: Microseconds
    """Additional processor time of each transaction."""
    fire_us: Microseconds
    """Additional processor time of each fire."""
    scatter_milli: Quantiles
    """Distribution of the factor by which a job deviates from that sum, in thousandths. It includes the processor time
    that everything but jobs takes away from a job."""

    def typical_us(self, transactions: int, fires: int) -> int:
        """The processor time of a job in microseconds, without its random deviation."""
        return self.base_us + self.transaction_us * transactions + self.fire_us * fires

    def draw_us(self, transactions: int, fires: int, random: Random) -> int:
        """Draw the processor time of a job in microseconds."""
        return self.typical_us(transactions, fires) * draw(self.scatter_milli, random) // MILLI


class ProfileSection(Section):
    """The measured times of a machine that carries all validators."""

    processors: Annotated[int, Field(ge=1, le=512)]
    """Processors that all validators share."""
    link_us: Quantiles
    """Delay of a message in addition to that of the scenario's links."""
    sync_us: Quantiles
    """Time from the beginning of a sync of the disk until its answer is handled."""
    message_us: Quantiles
    """Time for handling a message that has arrived."""
    hand_over_us: Quantiles
    """Time for handing a job to the executor, and for handling its result."""
    build: JobCost
    """Building a block."""
    execute: JobCost
    """Executing a peer's block."""
    finalize: JobCost
    """Committing a final block, without its syncs."""
    warm_up_us: Quantiles
    """Processor time that a validator's first block with fires takes in addition, unless it recovered blocks from its
    disk."""
    start_us: Quantiles
    """Time from a restart to a running validator."""


def draw(quantiles: Sequence[int], random: Random) -> int:
    """Draw a value of the distribution with these quantiles."""
    place = random.getrandbits(_BITS) * (len(quantiles) - 1)
    lower, fraction = place >> _BITS, place & ((1 << _BITS) - 1)
    low, high = quantiles[lower], quantiles[lower + 1]
    return low + ((high - low) * fraction >> _BITS)
