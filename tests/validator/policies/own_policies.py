"""Texts of policies of one's own, and chains that they schedule."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.validator.chains import SMALL, Chain, make_genesis
from validator.chain.genesis import Genesis, Policy
from validator.policies.own import read_policy

PAGE: Final = Path(__file__).parents[3] / "docs/policies.md"

DEADLINES: Final = """
from validator.policies.fifo import FifoPhase


class EarliestDeadline(FifoPhase):
    replaces = {"order"}
    passes_over = True

    def candidates(self):
        return map(self.turn, sorted(self.eligible(), key=lambda timer: (timer.expires_at, timer.timer_id)))
"""

NEVER_ODD: Final = """
from validator.policies.fifo import FifoPhase


class NeverOdd(FifoPhase):
    replaces = {"order"}

    def candidates(self):
        return (self.turn(timer) for timer in self.eligible() if timer.actor[-1] % 2 == 0)
"""
"""Timers of odd addresses never fire."""
NOTHING: Final = """
from validator.policies.fifo import FifoPhase


class Nothing(FifoPhase):
    replaces = {"order"}

    def candidates(self):
        return iter(())
"""
"""No timer fires."""
HASHED: Final = """
from validator.policies.fifo import FifoPhase


class Hashed(FifoPhase):
    replaces = {"order", "waiting"}
    passes_over = True

    def candidates(self):
        timers = [timer for timer in self.eligible() if hash(timer.timer_id) % 2]
        return map(self.turn, sorted(timers, key=lambda timer: hash(timer.timer_id)))
"""
"""The order and the choice of timers depend on the hash seed of the process."""
LOTTERY: Final = """
import random

from validator.policies.fifo import FifoPhase


class Lottery(FifoPhase):
    replaces = {"order", "waiting"}
    passes_over = True

    def candidates(self):
        timers = self.eligible()
        random.shuffle(timers)
        return map(self.turn, timers[: len(timers) // 2])
"""
"""Two executions in one process differ, so no validator accepts the block of another."""

BASES: Final = {
    Policy.CIP1: "cip1.Cip1Phase",
    Policy.FIFO: "fifo.FifoPhase",
    Policy.GBA_AUCTION: "gba_auction.GbaAuctionPhase",
    Policy.BIAS_AUCTION: "bias_auction.BiasAuctionPhase",
}


STATED: Final = """
from validator.policies.fifo import FifoPhase, FifoRules


class Priced(FifoRules):
    def lane_price(self, basefee_lane, parameters):
        return self.own["lane_price"]


class Stated(FifoPhase):
    replaces = {"order", "prices", "waiting"}
    rules = Priced()
    policy_parameters = {
        "most_fires": {"default": 2, "min": 1, "max": 9},
        "lane_price": {"default": 3, "min": -1, "max": 10_000_000_000_000_000_000_000_000_000},
    }

    def candidates(self):
        return map(self.turn, self.eligible()[: self.own["most_fires"]])
"""
"""A policy with two parameters: the fires of a block, and the price of the lane."""


def derived(policy: Policy, *lines: str) -> str:
    """A policy derived from a shipped one, with these lines in its class."""
    module, _, name = BASES[policy].partition(".")
    body = "".join(f"    {line}\n" for line in lines or ("pass",))
    return f"from validator.policies.{module} import {name}\n\n\nclass Own({name}):\n{body}"


def of_admitted_fees(policy: Policy) -> str:
    """A policy derived from ``fifo`` or ``bias_auction`` with a fee floor of 100, which new timers must reach."""
    module, _, name = {Policy.FIFO: "fifo.FifoRules", Policy.BIAS_AUCTION: "bias_auction.BiasRules"}[policy].partition(
        "."
    )
    mine = (
        f"from validator.policies.auction import AuctionRules\nfrom validator.policies.{module} import {name}\n\n\n"
        f"class Mine({name}):\n    def fee_floor(self, basefee_lane, parameters):\n        return 100\n\n"
        "    def admit(self, offer, fee_floor):\n        return AuctionRules.admit(self, offer, fee_floor)\n\n\n"
    )
    return mine + derived(policy, 'replaces = {"prices"}', "rules = Mine()")


def example(language: str) -> str:
    """The example of the page, of a language."""
    section = PAGE.read_text(encoding="utf-8").partition("## Your own policy\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(found)


def genesis_of(source: str, params: dict[str, Any] | None = None, **fields: Any) -> Genesis:
    policy, policy_file = read_policy("own", source)
    return replace(make_genesis({**SMALL, **(params or {})}, policy=policy, **fields), policy_file=policy_file)


def chain_of(source: str, params: dict[str, Any] | None = None, **fields: Any) -> Chain:
    return Chain(genesis_of(source, params, **fields))
