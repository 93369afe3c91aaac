"""``schedule_timer``, ``cancel_timer``, ``extend_timer``: every check of SPEC §4, and the order in which they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from Crypto.Hash import keccak
from msgspec import structs

from tests.validator.chains import ACTOR, ALICE, BOB, OTHER, Chain, make_genesis, schedule
from validator.chain.records import LONGEST_INLINE_PAYLOAD, TIMER_PAYLOAD, Timer, timer_key, timer_payload_key
from validator.execution import timer_calls as scheduling
from validator.execution.lane_rules import LaneRules
from validator.execution.timer_calls import Allowance, SchedulingTerms
from validator.policies.cip1 import Cip1Phase
from validator.policies.fifo import FifoPhase
from validator.primitives.errors import Rejection
from validator.primitives.types import SYSTEM_PARAMETERS_ADDRESS, Address
from validator.pvm.runtime.host import ScheduleRequest
from validator.state.working_set import World

H = 50
"""The height of the block in which these tests schedule."""
PRICE = 1_000
TTL = 100
LIMIT = 2
"""Live timers that an actor may have."""
PAYLOAD = 64
CAP = 250_000
P50 = 40

PARAMETERS = {"MAX_TTL": TTL, "MAX_TIMERS_PER_ACTOR": LIMIT, "MAX_TIMER_PAYLOAD": PAYLOAD}
GOOD = ScheduleRequest(height=H + 1, payload=b"x")


class Scene:
    """A world with the actors' timers in it, and the terms of a block."""

    def __init__(self, live: int = 0, allowance: int | None = 10, rules: LaneRules = Cip1Phase.rules) -> None:
        chain = Chain(make_genesis(PARAMETERS))
        self.world = World(chain.view)
        self.terms = SchedulingTerms(H, PRICE, P50, chain.parameters, rules)
        self.allowance = None if allowance is None else Allowance(ALICE, allowance)
        for _ in range(live):
            self.schedule()

    def schedule(self, actor: Address = ACTOR, **fields: Any) -> Timer:
        request = structs.replace(GOOD, **fields)
        return scheduling.schedule(self.world, actor, request, self.terms, self.allowance).timer

    def refusal(self, **fields: Any) -> str:
        """Why a request is refused, empty where it is not; a refusal changes nothing."""
        before = self.world.changes(), self.allowance and self.allowance.left
        try:
            self.schedule(**fields)
        except Rejection as rejection:
            assert (self.world.changes(), self.allowance and self.allowance.left) == before
            return rejection.name
        return ""


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("TimerArgDeprecated", {"bid": 1}),
    ("TimerFeeOutOfRange", {"payer_cap": 2**96}),
    ("TimerHeightNotInFuture", {"height": H}),
    ("TimerPayloadTooLarge", {"payload": bytes(PAYLOAD + 1)}),
    ("TimerHandlerInvalid", {"handler": ""}),
    ("TimerLimitReached", {"live": LIMIT}),
    ("TimerFeePayerForbidden", {"fee_payer": BOB}),
    ("TimerGasLimitTooLow", {"gas_limit": 999}),
    ("TimerExpiryInvalid", {"expires_at": H}),
    ("TimerRejectedBelowBasefee", {"max_fee_per_cycle": PRICE - 1}),
]
"""One violation of each check, in SPEC's order; together they do not contradict each other."""


@pytest.mark.parametrize(("error", "fields"), WRONG, ids=[error for error, _ in WRONG])
def test_each_check_alone(error: str, fields: dict[str, Any]) -> None:
    assert Scene(fields.get("live", 0)).refusal(**without_live(fields)) == error


@pytest.mark.parametrize(("earlier", "later"), list(combinations(range(len(WRONG)), 2)))
def test_of_two_violations_the_earlier_check_speaks(earlier: int, later: int) -> None:
    both = {**WRONG[later][1], **WRONG[earlier][1]}
    assert Scene(both.get("live", 0)).refusal(**without_live(both)) == WRONG[earlier][0]


def without_live(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "live"}


def test_swapped_checks_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: sizes before heights."""
    check_height, check_sizes = scheduling._check_height, scheduling._check_sizes

    def swapped(height: int, current: int) -> None:
        check_sizes(request, scene.terms.parameters)
        check_height(height, current)

    scene, request = Scene(), structs.replace(GOOD, height=H, payload=bytes(PAYLOAD + 1))
    monkeypatch.setattr(scheduling, "_check_height", swapped)
    assert scene.refusal(height=H, payload=bytes(PAYLOAD + 1)) == "TimerPayloadTooLarge"


FEE_FIELDS = ("max_fee_per_cycle", "max_priority_fee_per_cycle", "payer_cap")


@pytest.mark.parametrize("name", FEE_FIELDS)
def test_fee_fields_have_a_range(name: str) -> None:
    assert Scene().refusal(**{name: -1}) == "TimerFeeOutOfRange"
    assert Scene().refusal(**{name: 2**96}) == "TimerFeeOutOfRange"
    assert Scene().refusal(**{name: 2**96 - 1}) == ""
    assert Scene().refusal(**{name: 0}) == ("TimerRejectedBelowBasefee" if name == "max_fee_per_cycle" else "")


def test_a_tier_fills_the_priority_and_does_not_go_with_one() -> None:
    assert Scene().refusal(tier="fast", max_priority_fee_per_cycle=0) == "TimerFeeOutOfRange"
    timer = Scene().schedule(tier="fast", max_fee_per_cycle=PRICE + 50)
    assert timer.max_priority_fee_per_cycle == 50, "a tier counts as explicit and is clamped: 60 to 50"
    assert Scene().schedule(tier="economy").max_priority_fee_per_cycle == P50 * 8 // 10


def test_a_tier_that_fills_more_than_a_fee_may_be_is_refused() -> None:
    """A rich actor's tip could become a median that no row holds, and ended every validator at once."""
    scene = Scene()
    for p50, error in ((2**96 - 1, "TimerFeeOutOfRange"), ((2**96 - 1) * 10 // 25, "")):
        scene.terms = replace(scene.terms, p50_tip=p50)
        assert scene.refusal(tier="urgent") == error


def test_heights() -> None:
    assert [Scene().refusal(height=height) for height in (-1, 0, H - 1, H)] == ["TimerHeightNotInFuture"] * 4
    assert [Scene().refusal(height=height) for height in (2**63, 2**200)] == ["TimerHeightOutOfRange"] * 2
    assert Scene().refusal(height=2**63 - 1) == "TimerExpiryInvalid"
    assert Scene().refusal(height=H + TTL) == ""
    assert Scene().refusal(height=H + TTL + 1) == "TimerExpiryInvalid"


def test_sizes() -> None:
    assert Scene().refusal(payload=bytes(PAYLOAD)) == ""
    assert [Scene().refusal(handler=name) for name in ("x" * 257, "é" * 129)] == ["TimerHandlerInvalid"] * 2
    assert [Scene().refusal(handler=name) for name in ("x" * 256, "é" * 128)] == ["", ""]


def test_the_limit_counts_live_timers_of_the_actor_alone() -> None:
    scene = Scene(LIMIT)
    scene.schedule(actor=OTHER)
    assert scene.refusal() == "TimerLimitReached"
    timers = [timer for timer in live(scene.world) if timer.actor == ACTOR]
    scheduling.cancel(scene.world, ACTOR, timers[0].timer_id)
    assert scene.refusal() == ""


def live(world: World) -> list[Timer]:
    return [change.after for change in world.changes() if isinstance(change.after, Timer)]


def test_the_payer_is_the_actor_or_the_transactions_sender() -> None:
    assert Scene().schedule().fee_payer == ACTOR
    assert Scene().schedule(fee_payer=ACTOR, payer_cap=2**90).payer_cap == 2**90
    for payer in (BOB, OTHER, SYSTEM_PARAMETERS_ADDRESS):
        assert Scene().refusal(fee_payer=payer) == "TimerFeePayerForbidden"
    outside = Scene(allowance=None)
    assert outside.refusal(fee_payer=ALICE) == "TimerFeePayerForbidden"
    assert outside.refusal(fee_payer=ACTOR) == ""


def test_the_allowance() -> None:
    scene = Scene(allowance=10)
    assert [scene.refusal(fee_payer=ALICE, payer_cap=cap) for cap in (0, 11)] == ["TimerFeePayerForbidden"] * 2
    first = scene.schedule(fee_payer=ALICE, payer_cap=4)
    assert scene.allowance is not None
    assert (first.payer_cap, scene.allowance.left) == (4, 6)
    assert scene.refusal(fee_payer=ALICE, payer_cap=5, gas_limit=1) == "TimerGasLimitTooLow"
    scheduling.cancel(scene.world, ACTOR, first.timer_id)
    assert scene.allowance.left == 6, "a cancel gives nothing back"
    assert (scene.schedule(fee_payer=ALICE).payer_cap, scene.allowance.left) == (6, 0)
    assert scene.refusal(fee_payer=ALICE) == "TimerFeePayerForbidden"
    assert scene.schedule(actor=OTHER, payer_cap=99).payer_cap == 99, "with the actor as payer it takes none"


def test_gas_limits() -> None:
    assert [Scene().refusal(gas_limit=gas) for gas in (-1, 0, 999)] == ["TimerGasLimitTooLow"] * 3
    assert [Scene().refusal(gas_limit=gas) for gas in (1_000, CAP)] == ["", ""]
    assert Scene().refusal(gas_limit=CAP + 1) == "TimerGasLimitTooHigh"
    assert Scene().schedule().gas_limit is None


def test_expiries() -> None:
    assert Scene().schedule().expires_at == H + TTL
    assert Scene().schedule(expires_at=H + 1).expires_at == H + 1
    assert Scene().schedule(expires_at=2**200).expires_at == H + TTL
    assert Scene().refusal(height=H + 5, expires_at=H + 4) == "TimerExpiryInvalid"
    assert Scene().refusal(expires_at=-1) == "TimerExpiryInvalid"


def test_prices() -> None:
    assert Scene().schedule(max_fee_per_cycle=PRICE).max_fee_per_cycle == PRICE
    both: dict[str, Any] = {"max_fee_per_cycle": PRICE + 7, "max_priority_fee_per_cycle": 8}
    scene = Scene()
    accepted = scheduling.schedule(scene.world, ACTOR, structs.replace(GOOD, **both), scene.terms, scene.allowance)
    assert (accepted.timer.max_priority_fee_per_cycle, accepted.clamped_from) == (7, 8)
    alone = Scene().schedule(max_priority_fee_per_cycle=2**95)
    assert (alone.max_fee_per_cycle, alone.max_priority_fee_per_cycle) == (None, 2**95), (
        "clamped where both are explicit"
    )


def test_ids_sequence_and_counters() -> None:
    scene = Scene()
    first, second = scene.schedule(), scene.schedule()
    third = scene.schedule(actor=OTHER)
    for timer, actor, nonce in ((first, ACTOR, 0), (second, ACTOR, 1), (third, OTHER, 0)):
        data = actor + (H + 1).to_bytes(8, "big") + b"x" + nonce.to_bytes(8, "big")
        assert timer.timer_id == keccak.new(digest_bits=256, data=data).digest()
    assert [timer.sequence for timer in (first, second, third)] == [0, 1, 2]
    assert scene.refusal(gas_limit=1) == "TimerLimitReached"
    record = scene.world.actor(ACTOR)
    assert record is not None
    assert (record.schedule_nonce, record.live_timers, scene.world.globals.live_timers) == (2, 2, 3)
    scheduling.cancel(scene.world, ACTOR, first.timer_id)
    record = scene.world.actor(ACTOR)
    assert record is not None
    assert (record.schedule_nonce, record.live_timers, scene.world.globals.live_timers) == (2, 1, 2)
    assert scene.schedule().sequence == 3


# --- cancel and extend ----------------------------------------------------------------------------------------------


def extend(scene: Scene, expires_at: int, actor: Address = ACTOR, height: int = H, timer: bytes = b"") -> Timer:
    return scheduling.extend(scene.world, actor, timer, expires_at, height, scene.terms.parameters)


CHANGES: list[Callable[[Scene, Address, bytes], Any]] = [
    lambda scene, actor, timer: scheduling.cancel(scene.world, actor, timer),
    lambda scene, actor, timer: extend(scene, H + TTL, actor, H, timer),
]


@pytest.mark.parametrize("change", CHANGES, ids=["cancel", "extend"])
def test_only_the_owner_changes_a_timer(change: Callable[[Scene, Address, bytes], Any]) -> None:
    scene = Scene()
    timer = scene.schedule(expires_at=H + 5).timer_id
    with pytest.raises(Rejection, match="NotOwner"):
        change(scene, OTHER, timer)
    for unknown in (b"", bytes(32), timer[:-1], timer + b"\0"):
        with pytest.raises(Rejection, match="NotFound"):
            change(scene, ACTOR, unknown)
    change(scene, ACTOR, timer)


def test_a_cancelled_timer_is_gone() -> None:
    scene = Scene()
    timer = scene.schedule()
    scheduling.cancel(scene.world, ACTOR, timer.timer_id)
    assert scene.world.timer(timer.timer_id) is None
    with pytest.raises(Rejection, match="NotFound"):
        scheduling.cancel(scene.world, ACTOR, timer.timer_id)


def test_an_extension_goes_upward_is_clamped_and_cannot_come_too_late() -> None:
    scene = Scene()
    timer = scene.schedule(expires_at=H + 5).timer_id
    for wrong in (-1, H + 4, H + 5):
        with pytest.raises(Rejection, match="TimerExpiryInvalid"):
            extend(scene, wrong, timer=timer)
    assert extend(scene, H + 6, timer=timer).expires_at == H + 6
    with pytest.raises(Rejection, match="TimerExpiryInvalid"):
        extend(scene, H + 50, height=H + 7, timer=timer)
    assert extend(scene, 2**100, height=H + 6, timer=timer).expires_at == H + 6 + TTL
    with pytest.raises(Rejection, match="TimerExpiryInvalid"):
        extend(scene, 2**100, height=H + 6, timer=timer)


# --- before activation ------------------------------------------------------------------------------------------------


def test_before_activation_bids_and_prices_are_not_looked_at() -> None:
    assert Scene(rules=FifoPhase.rules).refusal(bid=1) == ""
    assert Scene(rules=FifoPhase.rules).refusal(max_fee_per_cycle=PRICE - 1) == ""
    timer = Scene(rules=FifoPhase.rules).schedule(max_fee_per_cycle=PRICE + 5, max_priority_fee_per_cycle=6)
    assert timer.max_priority_fee_per_cycle == 6, "nothing is clamped"
    for name in FEE_FIELDS:
        assert Scene(rules=FifoPhase.rules).refusal(**{name: 2**96}) == "TimerFeeOutOfRange"


def test_each_phase_has_its_own_cap() -> None:
    caps = {Cip1Phase.rules: CAP, FifoPhase.rules: 550_000}
    for rules, cap in caps.items():
        assert Scene(rules=rules).refusal(gas_limit=cap) == ""
        assert Scene(rules=rules).refusal(gas_limit=cap + 1) == "TimerGasLimitTooHigh"


def test_an_ignored_bid_is_reported_even_where_a_later_check_refuses_and_goes_with_a_revert() -> None:
    chain = Chain(make_genesis({"ACTIVATION_HEIGHT": 3}))
    events = chain.run(["try", schedule(0, bid=1)], schedule(9, bid=7)).effects.events
    assert [event.name for event in events] == ["TimerBidIgnored", "ScriptCaught", "TimerBidIgnored"]
    assert events[0].fields == ()
    assert chain.run(schedule(9, bid=7), ["fail", ""]).effects.events == ()
    chain.empty(1)
    assert chain.run(schedule(9, bid=7)).error == "TimerArgDeprecated"


# --- long payloads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, LONGEST_INLINE_PAYLOAD, LONGEST_INLINE_PAYLOAD + 1])
def test_a_long_payload_has_a_record_of_its_own_which_goes_with_its_timer(length: int) -> None:
    chain = Chain()
    text = '"' + " " * (length - 2) + '"' if length else ""
    for _ in range(2):
        chain.run(["schedule", {"in": 2, "payload": text, "save_as": "t"}])
    first, second = chain.timers()
    apart = [chain.view.get(timer_payload_key(timer.timer_id)) for timer in (first, second)]
    assert apart == ([text.encode()] * 2 if length > LONGEST_INLINE_PAYLOAD else [None] * 2)
    assert {timer.payload for timer in (first, second)} == {None if length > LONGEST_INLINE_PAYLOAD else text.encode()}
    chain.run(["cancel", {"saved": "t"}])
    assert chain.outcome is not None
    (fire,) = chain.outcome.receipts.fires
    assert (fire.timer_id, fire.error) == (first.timer_id, "BadScript"), "it was read where it fired"
    assert not list(chain.view.scan(TIMER_PAYLOAD)), "fired or cancelled"


def test_what_changes_about_a_timer_writes_its_long_payload_no_more() -> None:
    chain = Chain()
    chain.run(["schedule", {"in": 9, "payload": '"' + " " * 5_000 + '"', "save_as": "t", "expires_at": 20}])
    key = timer_payload_key(chain.timers()[0].timer_id)
    chain.run(["extend", {"saved": "t", "expires_at": 30}])
    assert chain.timers()[0].expires_at == 30
    assert chain.outcome is not None
    changed = {change.key: change.after for change in chain.outcome.changes}
    assert timer_key(chain.timers()[0].timer_id) in changed
    assert key not in changed
