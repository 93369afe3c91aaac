"""The calendar's logical tiers (SPEC §5): where a timer would sit if maintenance were done at once."""

from __future__ import annotations

import numpy as np

from validator.primitives.params import Parameters
from validator.scheduler.rows import Rows


def count_tiers(rows: Rows, height: int, parameters: Parameters) -> dict[str, int]:
    """How many of these live timers each tier holds at the end of block ``height``.

    A timer enters the ring when it is scheduled within its reach, or when the epoch of its trigger begins; whatever is
    due in the next block counts as ring. It leaves the overflow once its epoch is within the horizon.
    """
    trigger = rows["trigger"]
    epoch, current = trigger // np.uint64(parameters.epoch_length), height // parameters.epoch_length
    direct = trigger < rows["scheduled_at"] + np.uint64(parameters.ring_buffer_size)
    ring = (trigger <= height + 1) | direct | (epoch <= current)
    within = ring | (epoch <= current + parameters.epoch_horizon)
    return {
        "ring": int(ring.sum()),
        "epoch": int((within & ~ring).sum()),
        "overflow": int((~within).sum()),
    }
