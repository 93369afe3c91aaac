"""The interface of a scheduling policy: what a hook is given, and what each hook returns.

A policy is a class that is derived from a shipped phase and replaces some hooks; the others stay those of the phase.
Heights are block numbers; cycles and cells are counts; amounts, and prices for each cycle or cell, are whole numbers of
the smallest CBY unit. ``tests/validator/policies/test_interface.py`` holds the shipped phases against it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol

from validator.chain.block import DestroyedReceipt, Event, FireReceipt
from validator.chain.records import Timer
from validator.execution.lane_rules import LaneRules, Offer
from validator.execution.timer_calls import LanePrices, SchedulingTerms
from validator.execution.timer_phase import Candidate, LaneUse
from validator.primitives.meter import Meter
from validator.primitives.params import Parameters
from validator.scheduler.fairness import FairnessWeights
from validator.state.working_set import World


class PolicyRules(Protocol):
    """The hooks outside of the timer phase. They depend on their arguments and on ``own`` alone."""

    own: ClassVar[Mapping[str, int]]
    """The values of the policy's parameters, by name."""

    def fire_cap(self, parameters: Parameters, /) -> int:
        """The most cycles that a fire may use."""

    def lane_price(self, basefee_lane: int, parameters: Parameters, /) -> int:
        """The price of a cycle of a fire, in addition to the basefee of the cycle."""

    def fee_floor(self, basefee_lane: int, parameters: Parameters, /) -> int:
        """The least ``max_fee_per_cycle`` with which a timer may fire."""

    def admit(self, offer: Offer, fee_floor: int, /) -> Offer:
        """The fee fields to store for a new timer; raise ``Rejection`` to refuse it."""

    def next_basefee_lane(self, basefee_lane: int, basefee_cycle: int, used: int, parameters: Parameters, /) -> int:
        """The basefee of the lane in the next block, after a block whose fires used ``used`` cycles."""

    def next_p50_tip(self, fires: Sequence[tuple[int, int]], parameters: Parameters, /) -> int:
        """The median tip for each cycle, from ``(tip for each cycle, cycles)`` of this block's fires."""


class PolicyPhase(Protocol):
    """One block's timer phase: what every hook is given as ``self``, and the hooks in the order of their calls."""

    rules: ClassVar[LaneRules]
    """The hooks outside of the timer phase."""
    replaces: ClassVar[Collection[str]]
    """What the auditor takes from the policy: some of ``order``, ``prices``, ``waiting``."""
    passes_over: ClassVar[bool]
    """Whether a timer without room in the lane is passed over; otherwise it ends the phase."""
    asks_agents: ClassVar[bool]
    """Whether bidding agents are asked for prices."""
    policy_parameters: ClassVar[Mapping[str, Mapping[str, int]]]
    """The parameters that the policy states: ``default``, ``min`` and ``max`` of each, by name."""
    own: ClassVar[Mapping[str, int]]
    """Their values on this chain, by name."""
    world: World
    """The state: accounts, actors, timers and records."""
    terms: SchedulingTerms
    """The block's height, limits and parameters."""
    prices: LanePrices
    """The block's prices."""
    fairness: FairnessWeights
    """The weights of actors, from their fires in the window."""
    use: LaneUse
    """What the phase has used, burned and tipped so far."""
    fires: list[FireReceipt]
    """The fires so far, in order."""
    destroyed: list[DestroyedReceipt]
    """The timers that were removed without a fire."""
    events: list[Event]
    """The events of the phase, in order."""

    def candidates(self) -> Iterator[Candidate]:
        """The due timers that take part, each once, in the order of their turns: ``self.turn(timer, tip)`` of some
        of ``self.eligible()``."""

    def is_priced_out(self, timer: Timer, /) -> bool:
        """Whether a timer takes no part because it offers too little. It only explains why the timer waits."""

    def scan(self, candidates: Iterable[Candidate], /) -> None:
        """Give the candidates their turns, up to the limits of the lane."""

    def leave_out(self, candidate: Candidate, /) -> None:
        """Called with each timer that the lane has no room or no turn for."""

    def max_cost(self, candidate: Candidate, /) -> int:
        """The most that a fire may cost, an amount. It is charged before the fire, and :meth:`settle` returns the
        rest."""

    def available(self, timer: Timer, /) -> int:
        """The amount that a timer's payer can pay for its fire."""

    def turn_away(self, timer: Timer, needed: int, balance: int, /) -> bool:
        """What becomes of a timer whose payer has ``balance`` of the amount ``needed``: returns whether it was
        destroyed; otherwise it waits."""

    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int, /) -> tuple[int, int]:
        """Return what a fire did not use. Returns the amounts burned and tipped."""

    def count_fires(self) -> None:
        """Record in state what later blocks need to know of this block's fires. Called at the block's end."""


class AuctionPolicyPhase(PolicyPhase, Protocol):
    """The further hooks of a policy that is derived from ``Cip1Phase`` or ``GbaAuctionPhase``."""

    def price(self, timer: Timer, /) -> tuple[int, int]:
        """What a timer offers for each cycle: the most in all, and the most as a tip."""

    def score(self, timer: Timer, tip: int, /) -> int:
        """A timer's score, of at most 128 bits; the greatest comes first. The class sets ``formula = None``."""
