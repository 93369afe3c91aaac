"""The calendar's logical tiers (SPEC §5): where a timer would sit if maintenance were done at once."""

from __future__ import annotations

from collections.abc import Iterable

from validator.params import Parameters
from validator.records import Timer


def tier_of(timer: Timer, height: int, parameters: Parameters) -> str:
    """``ring``, ``epoch`` or ``overflow``, at the end of block ``height``.

    A timer enters the ring when it is scheduled within its reach, or when the epoch of its trigger begins; whatever is
    due in the next block counts as ring. It leaves the overflow once its epoch is within the horizon.
    """
    if timer.trigger_height <= height + 1:
        return "ring"
    if timer.trigger_height < timer.scheduled_at + parameters.ring_buffer_size:
        return "ring"
    epoch, current = timer.trigger_height // parameters.epoch_length, height // parameters.epoch_length
    if epoch <= current:
        return "ring"
    return "epoch" if epoch <= current + parameters.epoch_horizon else "overflow"


def count_tiers(timers: Iterable[Timer], height: int, parameters: Parameters) -> dict[str, int]:
    """How many live timers each tier holds."""
    counts = {"ring": 0, "epoch": 0, "overflow": 0}
    for timer in timers:
        counts[tier_of(timer, height, parameters)] += 1
    return counts
