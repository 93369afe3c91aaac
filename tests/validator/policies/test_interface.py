"""The interface of policies: mypy holds the shipped phases against it here, and its hooks are those of the phases."""

from __future__ import annotations

import inspect
from typing import Final

import pytest

from validator.execution.lane_rules import LaneRules
from validator.execution.timer_phase import TimerPhase
from validator.policies.auction import AuctionPhase
from validator.policies.bias_auction import BiasAuctionPhase
from validator.policies.cip1 import Cip1Phase
from validator.policies.fifo import FifoPhase
from validator.policies.gba_auction import GbaAuctionPhase
from validator.policies.interface import AuctionPolicyPhase, PolicyPhase, PolicyRules

SHIPPED: Final[tuple[type[PolicyPhase], ...]] = (FifoPhase, Cip1Phase, GbaAuctionPhase, BiasAuctionPhase)
AUCTIONS: Final[tuple[type[AuctionPolicyPhase], ...]] = (Cip1Phase, GbaAuctionPhase)
RULES: Final[tuple[PolicyRules, ...]] = tuple(phase.rules for phase in SHIPPED)


@pytest.mark.parametrize(
    ("interface", "kind"), [(PolicyRules, LaneRules), (PolicyPhase, TimerPhase), (AuctionPolicyPhase, AuctionPhase)]
)
def test_each_hook_is_one_of_the_phases_with_the_same_arguments(interface: type, kind: type) -> None:
    hooks = [each for name, each in vars(interface).items() if inspect.isfunction(each) and name[0] != "_"]
    assert hooks
    for hook in hooks:
        of_kind = inspect.signature(getattr(kind, hook.__name__))
        assert list(inspect.signature(hook).parameters) == list(of_kind.parameters), hook.__name__
        assert inspect.signature(hook).return_annotation == of_kind.return_annotation, hook.__name__
        assert inspect.getdoc(hook), hook.__name__


def test_each_attribute_is_one_of_the_phases() -> None:
    named = inspect.get_annotations(PolicyPhase)
    assert named.keys() <= {*TimerPhase.__annotations__}
