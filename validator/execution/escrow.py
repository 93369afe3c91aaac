"""Bids that are locked while their timers are pending (SPEC §13, ``bias_auction``).

A system account holds them, so balances and burned amounts add up to what was minted at any time.
"""

from __future__ import annotations

from collections.abc import Sequence

from validator.chain.records import Timer
from validator.execution.watching import forget_watchers
from validator.primitives.errors import Rejection
from validator.primitives.types import BID_ESCROW_ADDRESS, Address
from validator.state.working_set import World


def lock_bid(world: World, payer: Address, payer_cap: int | None, amount: int) -> None:
    """Take a new timer's bid from its payer. Raises :class:`Rejection` if the payer may not or cannot pay it."""
    if payer_cap is not None and amount > payer_cap:
        raise Rejection("TimerFeePayerForbidden")
    if world.balance(payer) < amount:
        raise Rejection("InsufficientBalance")
    world.debit(payer, amount)
    world.credit(BID_ESCROW_ADDRESS, amount)


def end_unfired(world: World, timers: Sequence[Timer]) -> None:
    """Remove timers that end without a fire: they watch no key any more, and their bids are returned."""
    world.remove_timers(timers)
    forget_watchers(world, timers)
    for timer in timers:
        if timer.bid:
            pay_from_escrow(world, timer.fee_payer, timer.bid)


def pay_from_escrow(world: World, to: Address, amount: int) -> None:
    world.debit(BID_ESCROW_ADDRESS, amount)
    world.credit(to, amount)
