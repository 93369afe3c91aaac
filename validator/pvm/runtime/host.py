"""The interface of the host that a running handler calls (SPEC §2). The transition implements :class:`Host`."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from validator.chain.records import DEFAULT_HANDLER, Watch
from validator.primitives.meter import Meter
from validator.primitives.params import Parameters
from validator.primitives.types import Address, Hash, TimerId
from validator.state.working_set import World

TIERS: Final = ("economy", "standard", "fast", "urgent")


class ScheduleRequest(msgspec.Struct, frozen=True):
    """The arguments of ``schedule_timer``, as the program gave them. Exactly one of height and watch is given."""

    height: int | None
    payload: bytes
    handler: str = DEFAULT_HANDLER
    fee_payer: Address | None = None
    gas_limit: int | None = None
    expires_at: int | None = None
    max_fee_per_cycle: int | None = None
    max_priority_fee_per_cycle: int | None = None
    payer_cap: int | None = None
    tier: str | None = None
    bid: int | None = None
    bidding_agent: Address | None = None
    watch: Watch | None = None


class BlockTerms(Protocol):
    """The prices and parameters of the block in which a handler runs."""

    @property
    def fee_floor(self) -> int:
        """The least ``max_fee_per_cycle`` with which a timer may fire in this block."""

    @property
    def parameters(self) -> Parameters:
        """The parameters in force."""


class Host(Protocol):
    """The host of one run of a handler of ``actor``, called by ``sender``.

    Every host call charges first, then checks its arguments, then acts. It raises
    :class:`~validator.primitives.errors.HandlerFailure` if it cannot be paid for or is refused.
    """

    world: World
    meter: Meter
    actor: Address
    sender: Address
    value: int
    """Amount that the transaction pays to the actor, if a transaction calls the handler; 0 in other runs."""
    origin: Hash
    """Hash of the transaction that started the run, directly or through messages; zero bytes if none did."""

    @property
    def height(self) -> int:
        """The block's height."""

    @property
    def terms(self) -> BlockTerms:
        """The prices and parameters of the block in which the handler runs."""

    def prepay(self, cycles: int) -> None:
        """Charge the part of the next call's cost that does not depend on its arguments, before they are read."""

    def burn(self, cycles: int) -> None:
        """Use up this many cycles, without doing any work."""

    def report(self, name: str, *fields: tuple[str, str]) -> None:
        """Add an event of the protocol to the receipt, free of charge."""

    def emit(self, name: str, data: str) -> None:
        """Add an event of the program to the receipt."""

    def transfer(self, to: Address, amount: int) -> None:
        """Pay from the actor's account."""

    # --- storage ------------------------------------------------------------------------------------------------------

    def kv_get(self, key: str) -> bytes | None:
        """The value under a key of the actor's storage; ``None`` if there is none."""

    def kv_set(self, key: str, value: bytes) -> None:
        """Store a value."""

    def kv_delete(self, key: str) -> None:
        """Remove a value."""

    def publish(self, key: str, value: bytes) -> None:
        """Store a value that every actor may read."""

    def published(self, address: Address, key: str) -> bytes | None:
        """The value that an actor published under a key; ``None`` if there is none."""

    def allow_watching(self, key: str, allowed: bool) -> None:
        """Let timers of any actor watch a key of the actor's storage, or no more."""

    def saved_timer(self, key: str) -> bytes:
        """The timer id that is stored, as hex digits, under a key of the actor's storage; empty if there is none."""

    # --- timers -------------------------------------------------------------------------------------------------------

    def schedule_timer(self, request: ScheduleRequest) -> TimerId:
        """Schedule a timer."""

    def cancel_timer(self, timer_id: bytes) -> None:
        """Remove the actor's own timer."""

    def extend_timer(self, timer_id: bytes, expires_at: int) -> None:
        """Extend the expiry of the actor's own timer."""

    def is_pending(self, timer_id: bytes) -> bool:
        """Whether the actor has this timer."""

    def set_bidding_agent(self, agent: Address | None) -> None:
        """Name the contract that bids for the actor's timers; ``None`` for the actor's own agent."""

    # --- messages and jobs --------------------------------------------------------------------------------------------

    def send(self, to: Address, handler: str, payload: bytes, cycles: int | None, cells: int | None) -> None:
        """Queue a message and pay for its run in full; ``None`` reserves the maximum."""

    def request_job(self, payload: bytes, results_needed: int, handler: str) -> Hash:
        """Ask the runners for results and pay for the callback in full; returns the job's id."""

    def consume_result(self, job_id: bytes) -> None:
        """Consume the results of a job, which settles it. Only the job's callback may call it."""
