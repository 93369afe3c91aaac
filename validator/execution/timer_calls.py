"""The rules of ``schedule_timer``, ``cancel_timer`` and ``extend_timer`` (SPEC §4).

The caller charges costs before anything here reads the arguments. The checks are in SPEC's order; the first failure
wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from validator.chain.records import PYTHON_AGENT, PYTHON_CODE, Actor, BidMemory, Naming, Timer, bid_memory_key
from validator.execution.escrow import end_unfired, lock_bid
from validator.execution.lane_rules import Bids, LaneRules, Offer
from validator.execution.watching import add_watcher, require_watchable
from validator.primitives.codec import keccak256
from validator.primitives.errors import Rejection
from validator.primitives.params import Parameters
from validator.primitives.types import HEIGHT_LIMIT, PRICE_LIMIT, Address, TimerId, is_name, is_reserved
from validator.pvm.compiler.programs import compiled_as
from validator.pvm.runtime.host import TIERS, ScheduleRequest
from validator.state.working_set import World


@dataclass(frozen=True, slots=True)
class LanePrices:
    """The block's prices per cycle and per cell."""

    basefee_cycle: int
    basefee_cell: int
    basefee_lane: int
    lane_price: int
    """What a fire pays per cycle on top of ``basefee_cycle``, without its tip."""
    p50_tip: int


@dataclass(frozen=True, slots=True)
class SchedulingTerms:
    """The limits and prices that a block checks every schedule against."""

    height: int
    fee_floor: int
    """The least ``max_fee_per_cycle`` with which a timer may fire in this block."""
    p50_tip: int
    parameters: Parameters
    rules: LaneRules
    """The rules of the block's policy (SPEC §13)."""

    @property
    def cap(self) -> int:
        """The per-fire cap in force, in cycles (SPEC §10)."""
        return self.rules.fire_cap(self.parameters)


@dataclass(slots=True)
class Allowance:
    """The amount that the timers of one transaction may still cost its sender."""

    sender: Address
    left: int


class Accepted(msgspec.Struct, frozen=True):
    """A new timer; ``clamped_from`` is the stated priority fee if it was clamped."""

    timer: Timer
    clamped_from: int | None


def timer_id_of(actor: bytes, height: int, payload: bytes, schedule_nonce: int) -> TimerId:
    """A timer's id: ``keccak256(actor ‖ height ‖ payload ‖ schedule_nonce)``."""
    return TimerId(keccak256(actor + height.to_bytes(8, "big") + payload + schedule_nonce.to_bytes(8, "big")))


def schedule(
    world: World, actor: Address, request: ScheduleRequest, terms: SchedulingTerms, allowance: Allowance | None
) -> Accepted:
    """Check a request and store its timer. ``allowance`` is ``None`` outside the transaction phase.

    Raises :class:`Rejection` with the error's name, and then changes nothing.
    """
    parameters = terms.parameters
    priority = _check_fees(request, terms)
    _check_trigger(world, request, terms)
    _check_sizes(request, parameters)
    record = world.actor(actor)
    assert record is not None, "only an actor schedules"
    if record.live_timers >= parameters.max_timers_per_actor:
        raise Rejection("TimerLimitReached")
    fee_payer, payer_cap = _fee_payer(actor, request, allowance)
    _check_gas_limit(request.gas_limit, terms)
    expires_at = _expiry(request, terms)
    offer = terms.rules.admit(Offer(request.max_fee_per_cycle, priority), terms.fee_floor)
    if request.bidding_agent is not None:
        _require_agent(world, request.bidding_agent)
    bid = _bid(request, priority, terms) if terms.rules.bids is Bids.LOCKED else None
    if bid is not None:
        lock_bid(world, fee_payer, payer_cap, bid)

    trigger = expires_at + 1 if request.height is None else request.height
    timer = Timer(
        timer_id=timer_id_of(actor, trigger, request.payload, record.schedule_nonce),
        actor=actor,
        trigger_height=trigger,
        sequence=world.globals.next_sequence,
        handler=request.handler,
        payload=None,
        fee_payer=fee_payer,
        gas_limit=request.gas_limit,
        expires_at=expires_at,
        max_fee_per_cycle=offer.max_fee,
        max_priority_fee_per_cycle=offer.priority,
        payer_cap=payer_cap,
        default_max_fee=None,
        scheduled_at=terms.height,
        bidding_agent=request.bidding_agent,
        bid=bid,
        watch=request.watch,
    )
    if allowance is not None and fee_payer != actor:
        assert payer_cap is not None
        allowance.left -= payer_cap
    world.add_timer(timer, request.payload)
    if timer.watch is not None:
        add_watcher(world, timer)
    return Accepted(timer, offer.clamped_from)


def name_agent(world: World, actor: Address, agent: Address | None) -> None:
    """Let a contract bid for the actor's timers; ``None`` reverts to its own agent. Raises ``UnknownActor``."""
    if agent is not None:
        _require_agent(world, agent)
    record = world.actor(actor)
    assert record is not None, "only an actor names an agent"
    if record.naming is not None:
        naming = record.naming._replace(agent=agent)
    else:
        memory: BidMemory | None = world.get(bid_memory_key(actor))
        naming = Naming(agent, 0 if memory is None else memory.answered_since)
    world.put_actor(actor, replace(record, naming=naming))


def _require_agent(world: World, address: Address) -> None:
    """Raises ``UnknownActor`` if this address has no Python program with a ``get_gas_bid``."""
    record = world.actor(address)
    if record is None or not record.code.startswith(PYTHON_CODE) or not _bids(world, record):
        raise Rejection("UnknownActor")


def _bids(world: World, record: Actor) -> bool:
    """Whether a Python program has a ``get_gas_bid``.

    The actor's record tells, unless the genesis set another agent; then the program is inspected.
    """
    if record.agent is None or record.agent.code == PYTHON_AGENT:
        return record.agent is not None
    return compiled_as(record.code, lambda: world.source(record.code)).bids


def cancel(world: World, actor: Address, timer_id: bytes) -> Timer:
    """Remove the actor's own timer. Raises ``NotFound`` or ``NotOwner``."""
    timer = _own_timer(world, actor, timer_id)
    end_unfired(world, [timer])
    return timer


def is_own(world: World, actor: Address, timer_id: bytes) -> bool:
    """Whether this is a live timer of the actor."""
    timer = world.timer(timer_id)
    return timer is not None and timer.actor == actor


def extend(
    world: World, actor: Address, timer_id: bytes, expires_at: int, height: int, parameters: Parameters
) -> Timer:
    """Extend the expiry of the actor's own timer. Raises ``NotFound``, ``NotOwner`` or ``TimerExpiryInvalid``."""
    return _extend(world, _own_timer(world, actor, timer_id), expires_at, height, parameters)


def extend_any(world: World, timer_id: bytes, expires_at: int, height: int, parameters: Parameters) -> Timer:
    """Extend the expiry of any actor's timer (SPEC §12). Raises ``NotFound`` or ``TimerExpiryInvalid``."""
    timer = world.timer(timer_id)
    if timer is None:
        raise Rejection("NotFound")
    return _extend(world, timer, expires_at, height, parameters)


def _extend(world: World, timer: Timer, expires_at: int, height: int, parameters: Parameters) -> Timer:
    expires_at = min(expires_at, height + parameters.max_ttl)
    if expires_at <= timer.expires_at or height > timer.expires_at:
        raise Rejection("TimerExpiryInvalid")
    trigger = expires_at + 1 if timer.is_watching else timer.trigger_height
    extended = replace(timer, expires_at=expires_at, trigger_height=trigger)
    world.put(extended.key, extended)
    return extended


# --- the checks of SPEC §4, in order ----------------------------------------------------------------------------------


def _check_fees(request: ScheduleRequest, terms: SchedulingTerms) -> int | None:
    if request.bid is not None and terms.rules.bids is Bids.REFUSED:
        raise Rejection("TimerArgDeprecated")
    bid = request.bid if terms.rules.bids is Bids.LOCKED else None
    for value in (request.max_fee_per_cycle, request.max_priority_fee_per_cycle, request.payer_cap, bid):
        if value is not None and not 0 <= value < PRICE_LIMIT:
            raise Rejection("TimerFeeOutOfRange")
    if request.tier is None:
        return request.max_priority_fee_per_cycle
    if request.max_priority_fee_per_cycle is not None:
        raise Rejection("TimerFeeOutOfRange")
    filled = terms.p50_tip * terms.parameters.priority_tiers[TIERS.index(request.tier)] // 10
    if filled >= PRICE_LIMIT:
        raise Rejection("TimerFeeOutOfRange")
    return filled


def _bid(request: ScheduleRequest, priority: int | None, terms: SchedulingTerms) -> int:
    """The bid of a request: the stated one, else its priority for each cycle that it may use."""
    if request.bid is not None:
        return request.bid
    bid = (priority or 0) * (terms.cap if request.gas_limit is None else request.gas_limit)
    if bid >= PRICE_LIMIT:
        raise Rejection("TimerFeeOutOfRange")
    return bid


def _check_trigger(world: World, request: ScheduleRequest, terms: SchedulingTerms) -> None:
    """Check the height or the key that is to make the timer due."""
    if request.watch is None:
        assert request.height is not None, "a timer has a height or watches a key"
        _check_height(request.height, terms.height)
    elif not terms.rules.has_watches:
        raise Rejection("WatchUnavailable")
    else:
        require_watchable(world, request.watch, terms.parameters.max_watchers_per_key)


def _check_height(height: int, current: int) -> None:
    if height <= current:
        raise Rejection("TimerHeightNotInFuture")
    if height >= HEIGHT_LIMIT:
        raise Rejection("TimerHeightOutOfRange")


def _check_sizes(request: ScheduleRequest, parameters: Parameters) -> None:
    if len(request.payload) > parameters.max_timer_payload:
        raise Rejection("TimerPayloadTooLarge")
    if not is_name(request.handler):
        raise Rejection("TimerHandlerInvalid")


def _fee_payer(actor: Address, request: ScheduleRequest, allowance: Allowance | None) -> tuple[Address, int | None]:
    payer = actor if request.fee_payer is None else request.fee_payer
    if payer == actor:
        return payer, request.payer_cap
    if is_reserved(payer) or allowance is None or payer != allowance.sender:
        raise Rejection("TimerFeePayerForbidden")
    cap = allowance.left if request.payer_cap is None else request.payer_cap
    if not 1 <= cap <= allowance.left:
        raise Rejection("TimerFeePayerForbidden")
    return payer, cap


def _check_gas_limit(gas_limit: int | None, terms: SchedulingTerms) -> None:
    if gas_limit is None:
        return
    if gas_limit < terms.parameters.min_gas_limit_per_timer:
        raise Rejection("TimerGasLimitTooLow")
    if gas_limit > terms.cap:
        raise Rejection("TimerGasLimitTooHigh")


def _expiry(request: ScheduleRequest, terms: SchedulingTerms) -> int:
    latest = terms.height + terms.parameters.max_ttl
    expires_at = latest if request.expires_at is None else min(request.expires_at, latest)
    earliest = terms.height + 1 if request.height is None else request.height
    if expires_at < earliest:
        raise Rejection("TimerExpiryInvalid")
    return expires_at


def _own_timer(world: World, actor: Address, timer_id: bytes) -> Timer:
    timer = world.timer(timer_id)
    if timer is None:
        raise Rejection("NotFound")
    if timer.actor != actor:
        raise Rejection("NotOwner")
    return timer
