"""Workloads: sources of intents (transactions without nonce, fees and signature), pure, with one object per user.

A workload sees an :class:`Observation` and draws from its own seeded random source. Keys, nonces and fees are the task
of :class:`loadgen.workloads.user.LoadUser`. A new workload is a file with an :class:`Options` model and a
:class:`Workload` subclass, and an entry in ``registry.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from loadgen.workloads.script import Cost, Script, cost_of, encode_script
from validator.chain.transactions import SCRIPT_CODE, Action, Call
from validator.primitives.params import Parameters
from validator.primitives.types import Address

LOAD_HANDLER = "run"
"""The handler that load transactions call; ``builtin:script`` treats all handlers alike."""


class Options(BaseModel):
    """A workload's options: unknown ones are refused, values are not coerced from other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def users_named(self) -> set[int]:
        """The numbers of the other users that these options name."""
        return set()

    def programs(self) -> dict[str, str]:
        """The code of the actor programs in these options, keyed by the field that holds the program."""
        return {}


OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, slots=True)
class Observation:
    """The chain as a user knows it at its turn, as of the newest final block that it knows."""

    height: int
    confirmed_nonce: int
    """The user's account nonce in state: the nonce of its next transaction that is not final yet."""
    basefee_cycle: int
    basefee_cell: int
    basefee_lane_timer: int
    """Basefee of the timer lane, per cycle. All three basefees are those in force during the observed block, in the
    smallest CBY unit per cycle or cell."""
    live_timers: int = 0
    """Number of live timers of the actor that the user watches."""
    open_jobs: tuple[bytes, ...] = ()
    """Jobs of the watched actor that still accept results, in no particular order."""
    backlog: int = 0
    """Number of due timers that wait on the chain."""
    next_nonce: int = 0
    """The nonce of the user's next new transaction, after unconfirmed ones. The load user sets it before a turn."""
    balance: int = 0
    """Balance of the user's account, in the smallest CBY unit."""
    actor_balance: int = 0
    """Balance of the actor that the user watches."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Nonce and fees that a workload chooses itself, to misbehave in the mempool."""

    nonce: int
    max_fee_per_cycle: int
    max_priority_fee_per_cycle: int
    max_fee_per_cell: int
    """Maximum fee per cell. All three fees are in the smallest CBY unit per cycle or cell."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction without nonce, fees and signature."""

    action: Action
    gas_limit: int
    """Limit of cycles."""
    cells_limit: int
    value: int = 0
    timer_allowance: int = 0
    terms: Terms | None = None
    """Nonce and fees to use instead of the user's next nonce and usual fees. A transaction with such terms is sent
    once, and does not change the user's next nonce."""


@dataclass(frozen=True, slots=True)
class Member:
    """The user that a workload acts for."""

    number: int
    address: Address
    actor: Address
    peers: tuple[Address, ...]
    """Accounts of all users of the plan, including this one, by number."""
    actors: tuple[Address, ...]
    """Actors of all users, by number."""
    random: Random
    parameters: Parameters

    def call(
        self, script: Script, timer_allowance: int = 0, actor: Address | None = None, cost: Cost | None = None
    ) -> Intent:
        """An intent that runs a script, by default on the user's actor, with limits equal to its cost.

        ``cost`` is the script's cost, if the caller knows it.
        """
        payload = encode_script(script)
        cost = cost_of(script) if cost is None else cost
        return Intent(
            action=Call(self.actor if actor is None else actor, LOAD_HANDLER, payload),
            gas_limit=self.parameters.tx_base_cycles + cost.cycles,
            cells_limit=len(payload) + cost.cells,
            timer_allowance=timer_allowance,
        )

    def lane_price(self, observation: Observation) -> int:
        """The price per cycle of the timer lane for a fire of the observed block."""
        return observation.basefee_lane_timer * self.parameters.lane_fee_multiplier_milli // 1_000

    def timer_room(self, observation: Observation) -> int:
        """Number of further timers that the user's actor may have, as far as known."""
        return max(0, self.parameters.max_timers_per_actor - observation.live_timers)


class Workload(ABC, Generic[OptionsT]):
    """Base class of workloads: the behaviour of one user, turn by turn."""

    name: ClassVar[str]
    options_type: ClassVar[type[Options]] = Options
    """Class of the options; by default there are none."""
    is_runner: ClassVar[bool] = False
    """Whether its users' accounts are registered runners from the genesis on."""
    is_deployer: ClassVar[bool] = False
    """Whether its users may give system instructions (SPEC §12)."""
    is_attack: ClassVar[bool] = False
    """Whether its users are attackers."""
    goal: ClassVar[str] = ""
    """For an attack: the attacker's goal, in one line."""
    defence: ClassVar[str] = ""
    """For an attack: the rules that should hold against it, in one line."""
    actor_percent: ClassVar[int] = 50
    """The actors' share of a group's budget, in percent; the accounts have the rest."""

    @property
    def watched(self) -> Address:
        """The actor that the user reads before each turn: its own, unless the workload overrides this."""
        return self.member.actor

    @classmethod
    def actor_code(cls, options: Options) -> str:
        """The code of the user's actor at genesis."""
        return SCRIPT_CODE

    def __init__(self, options: OptionsT, member: Member) -> None:
        self.options = options
        self.member = member

    @abstractmethod
    def intents(self, observation: Observation) -> list[Intent]:
        """The transactions of this turn, in nonce order; an empty list skips the turn."""

    def dropped(self, intent: Intent) -> None:
        """Called when an intent failed, because the user had no room for its transaction, or it was refused.

        Most workloads ignore this.
        """
