"""Timers: how they are scheduled, extended and cancelled (``docs/protocol.md``, *Scheduling*)."""

from __future__ import annotations

from typing import NamedTuple

from spec import watches
from spec.encoding import BID_ESCROW, HEIGHT_LIMIT, PRICE_LIMIT, Address, Hash, is_name, is_reserved, keccak256, number8
from spec.runs import Run
from spec.world import Naming, Timer, Watch, World

TIERS = ("economy", "standard", "fast", "urgent")
DEFAULT_HANDLER = "handle_timer"
HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class Request(NamedTuple):
    """What a handler asks for. It gives a height or a watch, and not both."""

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


def parse_id(text: str) -> bytes:
    """The id that 64 hex digits give; empty, which is no timer's, for any other text."""
    return bytes.fromhex(text) if len(text) == 64 and HEX_DIGITS.issuperset(text) else b""


def timer_id_of(actor: Address, height: int, payload: bytes, nonce: int) -> Hash:
    return keccak256(actor + number8(height) + payload + number8(nonce))


def schedule(run: Run, request: Request) -> tuple[Timer, int | None]:
    """Check a request, in the order of the errors, and enter its timer.

    Returns the timer, and the priority that was stated if it was clamped. Raises :class:`spec.world.Refusal`.
    """
    world, actor, policy, p = run.world, run.actor, run.world.policy, run.world.parameters
    world.refuse("T-02", "TimerArgDeprecated", request.bid is not None and policy.bids == "refused")
    priority = _priority(world, request)
    if request.height is None:
        assert request.watch is not None, "a timer has a height or watches a key"
        watches.require(world, request.watch)
    else:
        world.refuse("T-06", "TimerHeightNotInFuture", request.height <= world.height)
        world.refuse("T-07", "TimerHeightOutOfRange", request.height >= HEIGHT_LIMIT)
    world.refuse("T-08", "TimerPayloadTooLarge", len(request.payload) > p["MAX_TIMER_PAYLOAD"])
    world.refuse("T-09", "TimerHandlerInvalid", not is_name(request.handler))
    world.refuse("T-10", "TimerLimitReached", world.live_timers.get(actor, 0) >= p["MAX_TIMERS_PER_ACTOR"])
    payer, payer_cap = _payer(run, request)
    if request.gas_limit is not None:
        world.refuse("T-13", "TimerGasLimitTooLow", request.gas_limit < p["MIN_GAS_LIMIT_PER_TIMER"])
        world.refuse("T-14", "TimerGasLimitTooHigh", request.gas_limit > policy.fire_cap(world))
    expires_at = _expiry(world, request)
    max_fee, kept, clamped_from = policy.accept_fees(world, request.max_fee_per_cycle, priority)
    if request.bidding_agent is not None:
        require_agent(world, request.bidding_agent)
    bid = _lock_bid(world, request, priority, payer, payer_cap) if policy.bids == "locked" else None

    height = expires_at + 1 if request.height is None else request.height
    nonce = world.schedule_nonce.get(actor, 0)
    timer = Timer(
        timer_id_of(actor, height, request.payload, nonce),
        actor,
        height,
        world.count("next sequence"),
        request.handler,
        request.payload,
        payer,
        request.gas_limit,
        expires_at,
        max_fee,
        kept,
        payer_cap,
        world.height,
        request.bidding_agent,
        bid,
        request.watch,
    )
    world.reached("T-01")
    world.put(world.schedule_nonce, actor, nonce + 1)
    world.add_timer(timer)
    if payer != actor:
        world.reached("T-12")
        assert run.allowance is not None and payer_cap is not None
        run.allowance -= payer_cap
    if timer.watch is not None:
        watches.add(world, timer.watch, timer.timer_id)
    return timer, clamped_from


def _priority(world: World, request: Request) -> int | None:
    """The priority of a request: stated, filled by its tier, or open."""
    bid = request.bid if world.policy.bids == "locked" else None
    for figure in (request.max_fee_per_cycle, request.max_priority_fee_per_cycle, request.payer_cap, bid):
        if figure is not None and not 0 <= figure < PRICE_LIMIT:
            raise world.refusal("T-04", "TimerFeeOutOfRange")
    if request.tier is None:
        return request.max_priority_fee_per_cycle
    filled: int = world.p50 * world.parameters["PRIORITY_TIERS"][TIERS.index(request.tier)] // 10
    is_stated = request.max_priority_fee_per_cycle is not None
    world.refuse("T-04", "TimerFeeOutOfRange", is_stated or filled >= PRICE_LIMIT)
    world.reached("T-05")
    return filled


def _payer(run: Run, request: Request) -> tuple[Address, int | None]:
    """The payer, and what it pays at most. Another payer than the actor is the sender of the transaction that runs."""
    payer = run.actor if request.fee_payer is None else request.fee_payer
    if payer == run.actor:
        return payer, request.payer_cap
    is_allowed = run.allowance is not None and payer == run.sender and not is_reserved(payer)
    cap = run.allowance if request.payer_cap is None else request.payer_cap
    if not is_allowed or cap is None or not 1 <= cap <= (run.allowance or 0):
        raise run.world.refusal("T-11", "TimerFeePayerForbidden")
    return payer, cap


def _expiry(world: World, request: Request) -> int:
    latest: int = world.height + world.parameters["MAX_TTL"]
    world.reached("T-17", request.expires_at is None)
    world.reached("T-16", request.expires_at is not None and request.expires_at > latest)
    expires_at = latest if request.expires_at is None else min(request.expires_at, latest)
    earliest = world.height + 1 if request.height is None else request.height
    world.refuse("T-15", "TimerExpiryInvalid", expires_at < earliest)
    return expires_at


def own_timer(run: Run, timer_id: bytes) -> Timer:
    """The running actor's timer. Raises ``NotFound`` or ``NotOwner``."""
    timer = run.world.timers.get(timer_id)
    if timer is None:
        raise run.world.refusal("T-24", "NotFound")
    run.world.refuse("T-25", "NotOwner", timer.actor != run.actor)
    return timer


def extend(world: World, timer: Timer, expires_at: int, refused_by: str = "T-15") -> Timer:
    """Set a later expiry, at most ``MAX_TTL`` from now. Raises ``TimerExpiryInvalid``."""
    latest = world.height + world.parameters["MAX_TTL"]
    is_too_late = world.height > timer.expires_at
    world.refuse(refused_by, "TimerExpiryInvalid", is_too_late or min(expires_at, latest) <= timer.expires_at)
    world.reached("T-22")
    world.reached("T-23", expires_at > latest)
    extended = timer._replace(expires_at=min(expires_at, latest))
    if timer.is_watching:
        extended = extended._replace(trigger_height=extended.expires_at + 1)
        world.move_timer(extended)
    else:
        world.put(world.timers, timer.timer_id, extended)
    return extended


def end_unfired(world: World, timer: Timer) -> None:
    """Remove a timer that did not fire: its bid is returned, and it watches no key."""
    world.remove_timer(timer)
    if timer.watch is not None:
        watches.remove(world, timer.watch, timer.timer_id)
    if timer.bid:
        world.reached("X-02")
        world.debit(BID_ESCROW, timer.bid)
        world.credit(timer.fee_payer, timer.bid)


def _lock_bid(world: World, request: Request, priority: int | None, payer: Address, cap: int | None) -> int:
    """Take a timer's bid from its payer, under ``bias_auction``."""
    gas_limit = world.policy.fire_cap(world) if request.gas_limit is None else request.gas_limit
    bid: int = (priority or 0) * gas_limit if request.bid is None else request.bid
    world.refuse("T-04", "TimerFeeOutOfRange", bid >= PRICE_LIMIT)
    world.refuse("T-11", "TimerFeePayerForbidden", cap is not None and bid > cap)
    world.refuse("X-03", "InsufficientBalance", world.balance.get(payer, 0) < bid)
    world.reached("X-01")
    world.debit(payer, bid)
    world.credit(BID_ESCROW, bid)
    return bid


def name_agent(world: World, actor: Address, agent: Address | None) -> None:
    """Have a contract bid for an actor's timers from now on. Raises ``UnknownActor``."""
    if agent is not None:
        require_agent(world, agent)
    world.reached("P-10")
    named = world.namings.get(actor)
    own = world.answers.get((actor, b""))
    since = named.since if named is not None else 0 if own is None else own.since
    world.put(world.namings, actor, Naming(agent, since))


def require_agent(world: World, address: Address) -> None:
    """Raises ``UnknownActor`` unless the address is a contract: an actor whose program has a ``get_gas_bid``."""
    actor = world.actors.get(address)
    if actor is None or actor.code not in world.programs or not world.language.bids(world.programs[actor.code]):
        raise world.refusal("T-20", "UnknownActor")
