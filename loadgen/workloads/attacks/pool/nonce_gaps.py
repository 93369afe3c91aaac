"""Nonce gaps: transactions whose predecessor never comes, so that they stay in the mempool and cannot run."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.attacks.pool.base import MAX_NONCES, payment, terms
from loadgen.workloads.base import Intent, Observation, Options, Workload


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
    are too far ahead, then begin after the gap again."""

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
