"""Pending timers by tier: as the calendar of a validator counts them, with the backlog apart."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster.audit.ledger.timer_register import TimerRegister
from validator.primitives.params import Parameters
from validator.scheduler.calendar import count_tiers
from validator.scheduler.rows import ROW

PARAMETERS = replace(Parameters(), ring_buffer_size=20, epoch_length=10, epoch_horizon=3)


class Life(NamedTuple):
    scheduled_at: int
    trigger_height: int
    expires_at: int

    @property
    def is_watching(self) -> bool:
        return self.trigger_height > self.expires_at


LIVES = st.builds(
    lambda scheduled_at, ahead, lives, watches: Life(
        scheduled_at, scheduled_at + ahead, scheduled_at + ahead + (-1 if watches else lives)
    ),
    st.integers(0, 40), st.integers(1, 90), st.integers(0, 30), st.booleans(),
)  # fmt: skip


def by_tier(lives: list[Life], height: int) -> dict[str, int]:
    register: Any = SimpleNamespace(pending=dict(enumerate(lives)))
    return TimerRegister.by_tier(register, height, PARAMETERS)


@given(st.lists(LIVES, max_size=30), st.integers(0, 90))
def test_the_books_count_tiers_as_the_calendar_does(lives: list[Life], height: int) -> None:
    rows = np.zeros(len(lives), ROW)
    for row, life in zip(rows, lives, strict=True):
        row["scheduled_at"], row["trigger"], row["expires_at"] = life
    found = by_tier(lives, height)
    assert found["due"] == sum(life.trigger_height <= height and not life.is_watching for life in lives)
    expected = count_tiers(rows, height, PARAMETERS)
    assert {**found, "ring": found["due"] + found["ring"]} == {"due": found["due"], **expected}


def test_each_tier_is_named() -> None:
    lives = [Life(1, 5, 99), Life(1, 12, 99), Life(1, 39, 99), Life(1, 49, 99), Life(1, 90, 40)]
    assert by_tier(lives, 5) == {"due": 1, "ring": 2, "epoch": 1, "overflow": 1}
