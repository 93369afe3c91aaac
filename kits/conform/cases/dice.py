"""Random sources of a seed, and helpers of those that draw from them."""

from __future__ import annotations

import json
import random
from typing import Any


class Dice:
    """The random sources of a seed. Each kind of draw has a separate one, so that a new kind changes no older draw."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.other = random.Random(f"policies of {seed}")
        self.third = random.Random(f"candidates of {seed}")
        self.fourth = random.Random(f"watches of {seed}")
        self.fifth = random.Random(f"deploys of {seed}")


def near(rng: random.Random, value: int) -> int:
    """A figure at, next to or around `value`."""
    return max(0, rng.choice([value, value, value - 1, value + 1, value * rng.randint(1, 30) // 10]))


def payload_bytes(value: Any) -> bytes:
    """The bytes of a payload: a text, a list (its JSON), or ``{"hex": digits}``."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode()
