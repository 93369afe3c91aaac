"""Attacks on the mempool and the user lane."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.base import Intent, Member, Observation, Options, Terms, Workload
from validator.chain.transactions import Transfer, least_replacement_fee
from validator.primitives.types import PRICE_LIMIT

# Common parts of attacks on the mempool: transactions that stay in it and cannot run.

FEE_HEADROOM: Final = 4
"""Factor of the observed basefee that a transaction bids; it is the same for honest users."""
MAX_NONCES: Final = 256
"""Number of consecutive nonces, from an account's nonce on, that a mempool accepts."""


def terms(nonce: int, observation: Observation) -> Terms:
    """Terms of a transaction with this nonce, the usual fee limits, and the least tip."""
    cycle, cell = FEE_HEADROOM * observation.basefee_cycle + 1, FEE_HEADROOM * observation.basefee_cell
    return Terms(nonce, min(cycle, PRICE_LIMIT - 1), 1, min(cell, PRICE_LIMIT - 1))


def payment(member: Member, stated: Terms | None = None) -> Intent:
    """A payment of one unit to the user itself, with the ``stated`` nonce and fees, or the usual ones."""
    return Intent(Transfer(member.address), member.parameters.tx_base_cycles, 0, value=1, terms=stated)


class NonceGapsOptions(Options):
    """Options of :class:`NonceGaps`."""

    per_turn: Annotated[int, Field(ge=1, le=16)] = 16
    """Transactions per turn."""
    gap: Annotated[int, Field(ge=1, le=255)] = 1
    """Number of nonces that are left out, from the account's on."""
    stride: Annotated[int, Field(ge=1, le=64)] = 1
    """Distance of the nonces that are used."""


class NonceGaps(Workload[NonceGapsOptions]):
    """An attack with transactions whose nonces begin after a gap. They ascend until the mempool refuses the nonces that
    are too far ahead, then begin after the gap again.
    """

    name: ClassVar[str] = "nonce-gaps"
    options_type: ClassVar[type[Options]] = NonceGapsOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "the mempool fills up with transactions that never run, and so cost nothing"
    defence: ClassVar[str] = "256 nonces a sender; what cannot run is evicted first, and dropped after 128 blocks"
    actor_percent: ClassVar[int] = 0
    _used = 0

    def intents(self, observation: Observation) -> list[Intent]:
        options = self.options
        first = self._used
        self._used += options.per_turn
        nonces = [observation.confirmed_nonce + options.gap + options.stride * at for at in range(first, self._used)]
        if nonces[0] - observation.confirmed_nonce >= MAX_NONCES:
            self._used = 0  # from the start again: nonces of dropped transactions are accepted
        return [payment(self.member, terms(nonce, observation)) for nonce in nonces]


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
    """An attack that replaces a transaction in the mempool repeatedly, each time with the least fees that do so.

    By default an earlier nonce is missing, so that no transaction ever runs, and none costs anything.
    """

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
