"""Attacks on the calendar: creation, changes and ends of pending timers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import (
    CALL_GAS_LIMIT,
    Burst,
    BurstOptions,
    Programmed,
    invoke,
    largest_work,
    next_multiple,
)
from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from loadgen.workloads.churn import Churn, ChurnOptions
from loadgen.workloads.script import Script, attempt, burn, emit, extend_saved, fire_gas_limit, schedule, transfer
from validator.primitives.types import address_text


class CancelStormOptions(ChurnOptions):
    """Options of :class:`CancelStorm`."""

    timers: Annotated[int, Field(ge=1, le=500)] = 200
    """Timers per generation."""
    cancel_percent: Annotated[int, Field(ge=1, le=100)] = 100
    """Share of timers that are cancelled; the others are extended."""


class CancelStorm(Churn):
    """An attack that schedules a generation of timers in each turn, and cancels the previous turn's generation."""

    name: ClassVar[str] = "cancel-storm"
    options_type: ClassVar[type[Options]] = CancelStormOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "cancelled timers leave work behind for the blocks in which they were due"
    defence: ClassVar[str] = (
        "cancelling is paid and O(1) in ring and epoch queue; no block walks what earlier blocks cancelled"
    )


class ExpiryStormOptions(BurstOptions):
    """Options of :class:`ExpiryStorm`."""

    wait_blocks: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Blocks that a due timer waits before it expires."""


class ExpiryStorm(Burst[ExpiryStormOptions]):
    """An attack with timers that request the maximum cycles of a fire, so that few of them fire before they expire."""

    name: ClassVar[str] = "expiry-storm"
    options_type: ClassVar[type[Options]] = ExpiryStormOptions
    goal: ClassVar[str] = "thousands of timers have to be removed in one block, for the price of the few that fire"
    defence: ClassVar[str] = "removal draws on `TIMER_GC_CYCLES` alone; what does not fit is carried"

    def payload(self) -> Script:
        return largest_work(self.member)

    def expires_at(self, height: int) -> int:
        return height + self.options.wait_blocks


FIRST_EXPIRY_BLOCKS: Final = 10
"""Blocks from a timer's trigger height to its first expiry."""


class ExtendStormOptions(Options):
    """Options of :class:`ExtendStorm`."""

    timers: Annotated[int, Field(ge=1, le=500)] = 200
    """Timers that are extended."""
    times: Annotated[int, Field(ge=1, le=16)] = 2
    """Number of extensions of each timer in a turn."""
    ahead_blocks: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Blocks until they are due."""


class ExtendStorm(Workload[ExtendStormOptions]):
    """Schedules its timers in the first turn, and extends all of them in each later one."""

    name: ClassVar[str] = "extend-storm"
    options_type: ClassVar[type[Options]] = ExtendStormOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "the order of expiry changes so often that keeping it costs more than the attacker pays"
    defence: ClassVar[str] = "an extension costs 500 cycles, must be later than the one before, and ends at `MAX_TTL`"

    def __init__(self, options: ExtendStormOptions, member: Member) -> None:
        super().__init__(options, member)
        self._expires_at = 0
        """The last requested expiry; 0 before the timers are scheduled."""

    def intents(self, observation: Observation) -> list[Intent]:
        if not self._expires_at:
            self._expires_at = observation.height + self.options.ahead_blocks + FIRST_EXPIRY_BLOCKS
            return [self.member.call(self._schedule())]
        script: Script = []
        for _ in range(self.options.times):
            self._expires_at += 1
            script += [attempt(extend_saved(_key(slot), self._expires_at)) for slot in range(self.options.timers)]
        return [self.member.call(script)]

    def dropped(self, intent: Intent) -> None:
        self._expires_at = 0

    def _schedule(self) -> Script:
        gas_limit, ahead = fire_gas_limit([], self.member.parameters), self.options.ahead_blocks
        return [
            attempt(schedule(ahead, [], gas_limit=gas_limit, expires_at=self._expires_at, save_as=_key(slot)))
            for slot in range(self.options.timers)
        ]


def _key(slot: int) -> str:
    return f"timer/{slot}"


class FarFutureOptions(Options):
    """Options of :class:`FarFuture`."""

    timers: Annotated[int, Field(ge=1, le=1_000)] = 200
    """Timers per turn."""
    ahead_blocks: Annotated[int, Field(ge=1, le=2_000_000)] = 100_000
    """Blocks until the first of them is due."""
    spread_blocks: Annotated[int, Field(ge=1, le=500_000)] = 10_000
    """The heights are drawn from this many blocks."""
    payload_bytes: Annotated[int, Field(ge=0, le=400)] = 100
    """Bytes that each timer adds to its payload."""


class FarFuture(Workload[FarFutureOptions]):
    """An attack that in each turn schedules timers due far in the future, until its actor may have no more timers."""

    name: ClassVar[str] = "far-future"
    options_type: ClassVar[type[Options]] = FarFutureOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = (
        "state grows by timers that are not due for long, and every step of the calendar becomes dearer"
    )
    defence: ClassVar[str] = "`MAX_TIMERS_PER_ACTOR` and `MAX_TTL` bound the growth; the overflow tree costs O(log n)"

    def intents(self, observation: Observation) -> list[Intent]:
        options, random = self.options, self.member.random
        size = min(options.timers, self.member.timer_room(observation))
        payload: Script = [emit("far", "." * options.payload_bytes)]
        gas_limit = fire_gas_limit(payload, self.member.parameters)
        heights = [options.ahead_blocks + random.randrange(options.spread_blocks) for _ in range(size)]
        script: Script = [attempt(schedule(height, payload, gas_limit=gas_limit)) for height in heights]
        return [self.member.call(script)] if script else []


DRAIN_BLOCKS: Final = 6
"""Blocks before its timers' due height at which the actor is drained, so that the transfer is in a block in time."""
FUNDED_PERCENT: Final = 50
"""Share of the account's balance with which a drained actor is funded again, in percent."""


class InsolvencyStormOptions(BurstOptions):
    """Options of :class:`InsolvencyStorm`."""

    every_blocks: Annotated[int, Field(ge=16, le=10_000)] = 24
    """Timers of all attackers become due at multiples of this height."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 20_000
    """Cycles of work of a fire, if there were one."""


class InsolvencyStorm(Burst[InsolvencyStormOptions]):
    """An attack that in each period funds its actor, schedules timers, and drains the actor before they are due."""

    name: ClassVar[str] = "insolvency-storm"
    options_type: ClassVar[type[Options]] = InsolvencyStormOptions
    goal: ClassVar[str] = "timers take part in the auction, and none can pay when its turn comes"
    defence: ClassVar[str] = (
        "solvency is judged at a timer's turn; destroying it draws on `TIMER_GC_CYCLES`, not on the lane"
    )

    def __init__(self, options: InsolvencyStormOptions, member: Member) -> None:
        super().__init__(options, member)
        self._drained_for = 0
        """The last due height for which the actor was drained."""

    def intents(self, observation: Observation) -> list[Intent]:
        due = next_multiple(self.options.every_blocks, observation.height + 1)
        if due - observation.height > DRAIN_BLOCKS:
            return self._schedule(due, observation)
        if self._drained_for == due or not observation.actor_balance:
            return []
        self._drained_for = due
        account = address_text(self.member.address)
        return [self.member.call([attempt(transfer(account, observation.actor_balance))])]

    def payload(self) -> Script:
        return [burn(self.options.burn)]

    def _schedule(self, due: int, observation: Observation) -> list[Intent]:
        size = min(self.options.timers, self.member.timer_room(observation))
        if not size:
            return []
        intent = self.member.call([attempt(self.timer(due, observation))] * size)
        if observation.actor_balance:
            return [intent]
        return [replace(intent, value=observation.balance * FUNDED_PERCENT // 100)]


PROGRAM: Final = '''
class PayloadAbuse(Actor):
    """Schedules timers with long payloads, which it makes itself."""

    def store(self, payload):
        assert self.sender == self.deployer, "only the owner"
        text = "x" * payload["bytes"]
        self.schedule(self.height + payload["ahead"], text, "read", gas_limit=payload["gas"])

    def read(self, payload):
        assert self.sender == self.address, "only the timer"
        self.emit("read", len(payload))
'''
FORM_CELLS: Final = 200
"""Cells of a call, without the text that is a timer's payload."""
TEXT_HEAD: Final = 5
"""Maximum bytes that the encoding of a text takes in addition to the text, for its type and length."""
FIRE_CYCLES: Final = 5_000
"""Cycles of a fire, without reading its payload."""
BYTES_PER_SCHEDULED_CYCLE: Final = 2
"""Minimum bytes of a payload that an actor makes, packs, hashes and schedules per cycle."""
BYTES_PER_READ_CYCLE: Final = 8
"""Minimum bytes of a payload that a fire reads per cycle."""


class PayloadAbuseOptions(Options):
    """Options of :class:`PayloadAbuse`."""

    payload_bytes: Annotated[int, Field(ge=1, le=1_048_576)] = 1_048_576
    """Bytes of a payload; limited by a timer's maximum and by a transaction's cells."""
    ahead_blocks: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Blocks until the timer is due."""


class PayloadAbuse(Programmed[PayloadAbuseOptions]):
    """An attack that schedules one timer with a very long payload in each turn.

    ``MAX_TIMER_PAYLOAD`` allows 1 MiB by default, but a timer is scheduled by a transaction, which uses a cell per byte
    and has at most ``LANE_USER_CELLS`` cells: 1,000,000 by default. So a payload of 1 MiB needs a wider lane.
    """

    name: ClassVar[str] = "payload-abuse"
    options_type: ClassVar[type[Options]] = PayloadAbuseOptions
    program: ClassVar[str] = PROGRAM
    goal: ClassVar[str] = "state and blocks swell by payloads that wait for their timers"
    defence: ClassVar[str] = (
        "`MAX_TIMER_PAYLOAD` bounds a payload, each byte is a paid cell, and the cell basefee rises"
    )
    actor_percent: ClassVar[int] = 20

    def intents(self, observation: Observation) -> list[Intent]:
        options, parameters = self.options, self.member.parameters
        if not self.member.timer_room(observation):
            return []
        most = min(parameters.lane_user_cells - FORM_CELLS, parameters.max_timer_payload - TEXT_HEAD)
        size = max(1, min(options.payload_bytes, most))
        payload = {"bytes": size, "ahead": options.ahead_blocks, "gas": FIRE_CYCLES + size // BYTES_PER_READ_CYCLE}
        gas_limit = CALL_GAS_LIMIT + size // BYTES_PER_SCHEDULED_CYCLE
        return [invoke(self.member, "store", payload, gas_limit, size + FORM_CELLS)]
