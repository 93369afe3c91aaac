"""Replacement churn: transactions with one nonce, signed repeatedly with higher fees.

By default an earlier nonce is missing, so that no transaction ever runs, and none costs anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.pool.base import MAX_NONCES, payment, terms
from loadgen.workloads.base import Intent, Member, Observation, Options, Terms, Workload
from validator.chain.transactions import least_replacement_fee
from validator.primitives.types import PRICE_LIMIT


class ReplacementChurnOptions(Options):
    """Options of :class:`ReplacementChurn`."""

    per_turn: Annotated[int, Field(ge=1, le=16)] = 16
    """Transactions per turn."""
    gap: Annotated[int, Field(ge=0, le=255)] = 1
    """Number of nonces that are left out, from the account's on; with 0 the replaced transactions compete for the next
    block."""
    replacements: Annotated[int, Field(ge=1, le=200)] = 50
    """Number of replacements of a nonce before the next nonce is used."""


class ReplacementChurn(Workload[ReplacementChurnOptions]):
    """An attack that replaces a transaction in the mempool repeatedly, each time with the least fees that do so."""

    name: ClassVar[str] = "replacement-churn"
    options_type: ClassVar[type[Options]] = ReplacementChurnOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "validators check and spread one transaction after another, of which one is paid for at most"
    defence: ClassVar[str] = "a replacement bids 10 % more for every cycle, and the balance has to cover it"
    actor_percent: ClassVar[int] = 0

    def __init__(self, options: ReplacementChurnOptions, member: Member) -> None:
        super().__init__(options, member)
        self._count = 0
        self._last: Terms | None = None

    def intents(self, observation: Observation) -> list[Intent]:
        return [payment(self.member, self._next(observation)) for _ in range(self.options.per_turn)]

    def _next(self, observation: Observation) -> Terms:
        number, place = divmod(self._count, 1 + self.options.replacements)
        self._count += 1
        window = MAX_NONCES - self.options.gap
        nonce = observation.confirmed_nonce + self.options.gap + number % window
        if place == 0 or self._last is None or self._last.nonce != nonce:
            self._last = terms(nonce, observation)
        else:
            self._last = replace(
                self._last,
                max_fee_per_cycle=min(least_replacement_fee(self._last.max_fee_per_cycle), PRICE_LIMIT - 1),
                max_priority_fee_per_cycle=least_replacement_fee(self._last.max_priority_fee_per_cycle),
            )
        return self._last
