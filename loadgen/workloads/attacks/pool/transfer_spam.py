"""Transfer spam: cheapest transactions, up to the user's maximum of unconfirmed ones."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.pool.base import payment
from loadgen.workloads.base import Intent, Observation, Options, Workload


class TransferSpamOptions(Options):
    """Options of :class:`TransferSpam`."""

    per_turn: Annotated[int, Field(ge=1, le=16)] = 16
    """Payments per turn, up to the user's maximum of unconfirmed transactions."""


class TransferSpam(Workload[TransferSpamOptions]):
    """An attack in which a user pays one unit to itself, as often as it may."""

    name: ClassVar[str] = "transfer-spam"
    options_type: ClassVar[type[Options]] = TransferSpamOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "honest transactions find blocks and mempools full of payments that move nothing"
    defence: ClassVar[str] = (
        "each costs `TX_BASE_CYCLES`; senders take turns by tip; the user lane is apart from the timer lane"
    )
    actor_percent: ClassVar[int] = 0

    def intents(self, observation: Observation) -> list[Intent]:
        return [payment(self.member)] * self.options.per_turn
