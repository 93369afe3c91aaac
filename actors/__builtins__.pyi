"""Names that programs of actors may use, for editors (https://github.com/microsoft/pyright/blob/main/docs/builtin-types.md).

Written by `stampede actor stub`; docs/actors.md describes the language.
"""

from collections.abc import Awaitable as _Awaitable
from collections.abc import Coroutine as _Coroutine
from collections.abc import Iterable as _Iterable
from typing import Any as _Any
from typing import Final as _Final
from typing import TypeVar as _TypeVar

_T = _TypeVar("_T")
_Value = _Any  # None, bool, int, str, bytes, list, tuple or dict

ECONOMY: _Final = "economy"
STANDARD: _Final = "standard"
FAST: _Final = "fast"
URGENT: _Final = "urgent"
"""A tier of a timer's priority, as schedule takes it."""

def keccak256(data: bytes, /) -> bytes:
    """The 32 bytes of the hash."""

def sorted(values: _Iterable[_T], descending: bool = False, /) -> list[_T]:
    """A new list: of numbers, texts, bytes, or tuples of these, all of one kind."""

class ActorError(Exception):
    """Ends the handler and reverts everything that it did: raise ActorError("why")."""

    def __init__(self, why: str = "", /) -> None: ...

class Actor:
    """What every program derives from; a handler is a method whose one parameter is payload."""

    @property
    def height(self) -> int:
        """Height of the block."""

    @property
    def sender(self) -> bytes:
        """Who calls: an account, an actor, or this actor where a timer fires."""

    @property
    def origin_hash(self) -> bytes:
        """Hash of the transaction that this run began with, through messages too; zeros in fires, bids and callbacks."""

    @property
    def address(self) -> bytes:
        """This actor's own address."""

    @property
    def deployer(self) -> bytes:
        """Who deployed this actor."""

    @property
    def balance(self) -> int:
        """What this actor holds, in the smallest unit."""

    @property
    def value(self) -> int:
        """What the transaction pays to this actor."""

    @property
    def lane_price(self) -> int:
        """The least ``max_fee_per_cycle`` with which a timer may fire in this block."""

    def get(self, key: str, default: _Value = None) -> _Value:
        """What is stored under a key, or the default."""

    def set(self, key: str, value: _Value) -> None:
        """Store a value under a key."""

    def delete(self, key: str) -> None:
        """Remove what is stored under a key."""

    def publish(self, key: str, value: _Value) -> None:
        """Publish a value under a key, for every actor to read."""

    def published(self, address: bytes, key: str) -> _Value:
        """What an actor has published under a key, or None."""

    def allow_watching(self, key: str, allowed: bool = True) -> None:
        """Let timers of any actor watch a key of this actor's storage, or no more."""

    def schedule(
        self,
        height: int | None = None,
        payload: _Value = None,
        handler: str = "handle_timer",
        fee_payer: bytes | None = None,
        gas_limit: int | None = None,
        expires_at: int | None = None,
        max_fee_per_cycle: int | None = None,
        max_priority_fee_per_cycle: int | None = None,
        payer_cap: int | None = None,
        tier: str | None = None,
        bid: int | None = None,
        bidding_agent: bytes | None = None,
        watch: tuple[bytes, str] | None = None,
    ) -> bytes:
        """Have the chain call a handler (``handle_timer`` where none is named) at a height; the timer's id."""

    def schedule_timer(
        self,
        height: int | None = None,
        payload: _Value = None,
        handler: str = "handle_timer",
        fee_payer: bytes | None = None,
        gas_limit: int | None = None,
        expires_at: int | None = None,
        max_fee_per_cycle: int | None = None,
        max_priority_fee_per_cycle: int | None = None,
        payer_cap: int | None = None,
        tier: str | None = None,
        bid: int | None = None,
        bidding_agent: bytes | None = None,
        watch: tuple[bytes, str] | None = None,
    ) -> bytes:
        """``schedule`` by another name."""

    def schedule_timer_ex(
        self,
        height: int | None = None,
        payload: _Value = None,
        handler: str = "handle_timer",
        fee_payer: bytes | None = None,
        gas_limit: int | None = None,
        expires_at: int | None = None,
        max_fee_per_cycle: int | None = None,
        max_priority_fee_per_cycle: int | None = None,
        payer_cap: int | None = None,
        tier: str | None = None,
        bid: int | None = None,
        bidding_agent: bytes | None = None,
        watch: tuple[bytes, str] | None = None,
    ) -> bytes:
        """``schedule`` by another name."""

    def set_bidding_agent(self, agent: bytes | None) -> None:
        """Have another actor's ``get_gas_bid`` bid for this actor's timers; None for its own method."""

    def cancel(self, timer_id: bytes) -> None:
        """Cancel a timer of this actor."""

    def extend(self, timer_id: bytes, expires_at: int) -> None:
        """Move a timer's expiry later."""

    def pending(self, timer_id: bytes) -> bool:
        """Whether a timer of this actor is still to come, so that it can be cancelled."""

    def send(
        self,
        to: bytes,
        handler: str,
        payload: _Value = None,
        cycles: int | None = None,
        cells: int | None = None,
    ) -> None:
        """Queue a message to an actor, its run paid for here."""

    def transfer(self, to: bytes, amount: int) -> None:
        """Pay an account out of this actor's balance."""

    def emit(self, name: str, data: str | int | bytes = "") -> None:
        """Add an event to the receipt."""

    def burn(self, cycles: int) -> None:
        """Use up cycles."""

    def request_job(self, payload: _Value, results_needed: int, handler: str) -> bytes:
        """Ask runners outside the chain for results; the handler gets them in a later block. The job's id."""

    def consume_result(self, job_id: bytes) -> None:
        """Settle a job, once."""

    def spawn(self, work: _Coroutine[_Any, _Any, _T], /) -> _Awaitable[_T]:
        """Start an async method of this actor as a task, which may be awaited: self.spawn(self.method(…))."""

    async def pause(self) -> None:
        """Let all other tasks that are ready go first: await self.pause()."""
