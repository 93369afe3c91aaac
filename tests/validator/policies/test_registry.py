"""The policies by name, and what replaces their phases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.validator.chains import make_genesis
from validator.chain.genesis import Policy
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.policies.auction import AuctionPhase
from validator.policies.cip1 import Cip1Phase
from validator.policies.fifo import FifoPhase
from validator.policies.registry import PHASES, phases_with


def test_each_policy_has_a_phase() -> None:
    assert PHASES.keys() == set(Policy)


@pytest.mark.parametrize(
    ("policy", "activation", "at"),
    [
        (Policy.CIP1, 0, {1: Policy.CIP1}),
        (Policy.CIP1, 7, {1: Policy.FIFO, 7: Policy.FIFO, 8: Policy.CIP1}),
        (Policy.FIFO, 7, {1: Policy.FIFO, 8: Policy.FIFO}),
        (Policy.GBA_AUCTION, 7, {7: Policy.FIFO, 8: Policy.GBA_AUCTION}),
    ],
)
def test_the_auction_begins_after_its_activation(policy: Policy, activation: int, at: dict[int, Policy]) -> None:
    genesis = replace(make_genesis({"ACTIVATION_HEIGHT": activation}), policy=policy)
    assert {height: genesis.policy_at(height) for height in at} == at


class _OfAll(TimerPhase):
    def expire(self) -> None:
        """Expires nothing."""


class _OfAuctions(AuctionPhase):
    def supply(self) -> None:
        """Supplies nothing."""


class _OfOne(Cip1Phase):
    def candidates(self) -> Iterator[Candidate]:
        return iter(())


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        (_OfAll, dict.fromkeys(Policy, "expire")),
        (_OfAuctions, dict.fromkeys((Policy.CIP1, Policy.GBA_AUCTION), "supply")),
        (_OfOne, {Policy.CIP1: "candidates"}),
    ],
)
def test_a_part_changes_the_phases_that_it_is_derived_from(part: Any, changed: dict[Policy, str]) -> None:
    phases = phases_with(part)
    for policy, phase in PHASES.items():
        if policy in changed:
            name = changed[policy]
            assert issubclass(phases[policy], phase)
            assert getattr(phases[policy], name) is getattr(part, name)
        else:
            assert phases[policy] is phase


def test_parts_add_up() -> None:
    phases = phases_with(_OfOne, phases_with(_OfAll))
    assert phases[Policy.CIP1].expire is _OfAll.expire
    assert phases[Policy.CIP1].candidates is _OfOne.candidates
    assert phases[Policy.FIFO].candidates is FifoPhase.candidates
