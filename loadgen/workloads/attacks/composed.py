"""The composed attack: all methods of the other attacks in one workload, by its options."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from enum import StrEnum
from textwrap import indent
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from loadgen.workloads.attacks.base import CALL_CELLS_LIMIT, FIELD_LIMIT, invoke, next_multiple
from loadgen.workloads.base import Intent, Member, Observation, Options, Workload
from loadgen.workloads.script import (
    MIN_MESSAGE_CYCLES,
    Cost,
    Operation,
    Script,
    attempt,
    burn,
    cancel_saved,
    cost_of,
    encode_script,
    extend_saved,
    fire_gas_limit,
    schedule_at,
    send,
    transfer,
)
from validator.chain.transactions import SCRIPT_CODE, Transfer
from validator.primitives.codec import keccak256
from validator.primitives.types import address_text

Bid = Literal["price", "market", "economy", "standard", "fast", "urgent"]
"""Source of a timer's fees: ``price``, the lane price that the user knows; ``market``, the default agent, which follows
the median tip; or a tier, which is a multiple of that median."""


class Agent(StrEnum):
    """The bidding agent of the actor."""

    NONE = "none"
    SLOW = "slow"
    """Uses up the cycles of a query."""
    FAILING = "failing"
    LOW = "low"
    """Bids nothing, so that it is asked again in the next block."""
    HIGH = "high"
    """Bids more than any account has."""
    SNIPING = "sniping"
    """Bids one more than the median tip."""


class ComposedOptions(Options):
    """Options of :class:`Composed`. Their ranges are the space that ``stampede dos search`` searches."""

    timers: Annotated[int, Field(ge=0, le=400)] = 20
    """Timers per turn; no more than a transaction can schedule."""
    due_blocks: Annotated[int, Field(ge=1, le=100)] = 4
    """The timers become due in at least this many blocks, counted from the block that the user knows."""
    every_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """The first due height of all attackers' timers is a multiple of this one."""
    spread_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """The timers are spread evenly over this many heights."""
    wait_blocks: Annotated[int, Field(ge=0, le=1_000)] = 1_000
    """Blocks that a due timer waits before it expires."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 5_000
    """Cycles of work per fire."""
    gas_percent: Annotated[int, Field(ge=50, le=1_000)] = 100
    """Cycles of a fire, in percent of those that it needs."""
    bid: Bid = "price"
    """Source of fee limit and tip: `price`, the lane price that the user knows; `market`, the default agent; a tier."""
    max_fee_percent: Annotated[int, Field(ge=100, le=10_000)] = 400
    """For `price`: the fee limit without the tip, in percent of the lane price."""
    tip_milli: Annotated[int, Field(ge=0, le=10_000)] = 0
    """For `price`: the tip, in thousandths of the lane price."""
    grind: Annotated[int, Field(ge=1, le=32)] = 1
    """Number of payloads that each timer tries, to use the one with the least id."""
    cancel_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Timers of the previous turn that are cancelled, in percent."""
    extend_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Timers of the previous turn that are extended, in percent of those that are not cancelled."""
    drain_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Amount that the actor pays back to its user in each turn, in percent of its balance."""
    messages: Annotated[int, Field(ge=0, le=200)] = 0
    """Messages per turn to the target's actor."""
    message_bytes: Annotated[int, Field(ge=2, le=10_000)] = 2
    """Bytes of a message."""
    target: Annotated[int, Field(ge=0, le=9_999)] = 0
    """The user whose actor gets the messages, counted from 0 over all groups."""
    transfers: Annotated[int, Field(ge=0, le=15)] = 0
    """Transactions per turn, each of which pays 0 to the user itself."""
    write_cells: Annotated[int, Field(ge=0, le=540_000)] = 0
    """Cells that a fire writes."""
    respawn: Annotated[int, Field(ge=0, le=4)] = 0
    """Timers that each fire schedules, with the same behaviour."""
    respawn_blocks: Annotated[int, Field(ge=1, le=100)] = 1
    """Blocks from a fire to the timers that it schedules."""
    jobs: Annotated[int, Field(ge=0, le=20)] = 0
    """Jobs per turn that no runner answers."""
    agent: Agent = Field(default=Agent.NONE, strict=False)
    """The actor's bidding agent, which decides its timers' fees: `none`, `slow`, `failing`, `low`, `high` or
    `sniping`."""
    above_backlog: Annotated[int, Field(ge=0, le=1_000)] = 0
    """A turn is skipped while fewer due timers wait."""
    below_price_percent: Annotated[int, Field(ge=0, le=10_000)] = 0
    """A turn is skipped while the lane price is above this percentage of the initial basefee; 0: never."""

    def users_named(self) -> set[int]:
        return {self.target} if self.messages else set()

    @property
    def is_program(self) -> bool:
        """Whether the actor is a Python program, because a script cannot do what the options require."""
        return bool(self.write_cells or self.respawn or self.jobs) or self.agent is not Agent.NONE


# The Python actor of a composed attack, and calls to it.

PROGRAM: Final = '''
class Composed(Actor):
    """Schedules timers, which work, write and schedule further ones."""

    def plan(self, payload):
        assert self.sender == self.deployer, "only the owner"
        for number in range(payload["timers"]):
            height = payload["height"] + number % payload["spread"]
            self.schedule(height, payload["fire"], "fire", gas_limit=payload["gas"],
                          expires_at=height + payload["wait"], max_fee_per_cycle=payload["max_fee"],
                          max_priority_fee_per_cycle=payload["tip"], tier=payload["tier"])
        for number in range(payload["jobs"]):
            self.request_job("x", 1, "answered")
        if payload["drain"] > 0:
            self.transfer(self.deployer, self.balance * payload["drain"] // 100)

    def fire(self, payload):
        assert self.sender == self.address, "only the timer"
        self.burn(payload["burn"])
        if payload["cells"] > 0:
            self.set("text", "x" * payload["cells"])
        for number in range(payload["respawn"]):
            self.schedule(self.height + payload["every"], payload, "fire", gas_limit=payload["gas"])

    def answered(self, payload):
        self.consume_result(payload["job"])
'''
HEAD: Final = "\n    def get_gas_bid(self, context):\n"
BIDS: Final = {
    Agent.SLOW: "while True:\n    self.burn(100)",
    Agent.FAILING: 'assert False, "no answer"',
    Agent.LOW: 'return {"max_fee_per_cycle": 0, "max_priority_fee_per_cycle": 0}',
    Agent.HIGH: 'return {"max_fee_per_cycle": 2**96 - 1, "max_priority_fee_per_cycle": 2**96 - 1}',
    Agent.SNIPING: (
        'tip = context["previous_block_p50_priority_tip_per_cycle"] + 1\n'
        'return {"max_fee_per_cycle": 2 * context["basefee_lane_timer"] + tip, "max_priority_fee_per_cycle": tip}'
    ),
}
"""Python statements of each bidding agent's handler ``get_gas_bid``."""
PLAN_CYCLES: Final = 6_000
"""Cycles of a call of the handler ``plan``, without its timers and jobs."""
SCHEDULE_CYCLES: Final = 4_500
"""Maximum cycles for scheduling one timer, in a call of ``plan`` or in a fire."""
FIRE_CYCLES: Final = 5_000
"""Cycles of a fire, without its work, the text that it writes, and the timers that it schedules."""
BYTES_PER_CYCLE: Final = 8
"""Minimum bytes of a text that an actor makes, copies and packs per cycle."""
TIMER_CELLS: Final = 128
"""Cells of a timer's payload, at most."""
JOB_CYCLES, JOB_CELLS = 2_500, 64
"""Cycles and cells for requesting one job, without the reservation for its callback."""
KEY_CELLS: Final = 100
"""Maximum cells that writing a text takes in addition to the text: those of the key and of the encoding."""


def actor_code(agent: Agent) -> str:
    """The text of the actor's program, with the handler of the given bidding agent."""
    return PROGRAM if agent is Agent.NONE else PROGRAM + HEAD + indent(BIDS[agent], " " * 8) + "\n"


def plan_call(
    options: ComposedOptions, member: Member, observation: Observation, height: int, bid: dict[str, Any]
) -> Intent | None:
    """The turn's call of the handler ``plan``, which schedules timers from ``height`` on with the fee fields ``bid``,
    requests jobs and pays back. ``None`` if there is nothing to do."""
    parameters = member.parameters
    cells = max(0, min(options.write_cells, parameters.max_cells_per_fire) - KEY_CELLS)
    needed = FIRE_CYCLES + options.burn + cells // BYTES_PER_CYCLE + SCHEDULE_CYCLES * options.respawn
    least, most = parameters.min_gas_limit_per_timer, parameters.max_cycles_per_fire_auction_phase
    gas = min(max(needed * options.gas_percent // 100, least), most)
    jobs = jobs_that_fit(options.jobs, member)
    job_cycles, job_cells = parameters.message_cycles + JOB_CYCLES, parameters.message_cells + JOB_CELLS
    cycles_left = parameters.lane_user_cycles - parameters.tx_base_cycles - PLAN_CYCLES - jobs * job_cycles
    size = min(options.timers, member.timer_room(observation), cycles_left // SCHEDULE_CYCLES)
    if size <= 0 and not jobs and not options.drain_percent:
        return None
    fees = {"max_fee": None, "tip": None, "tier": None} if options.agent is not Agent.NONE else bid
    plan = {
        "timers": max(0, size),
        "height": height,
        "spread": options.spread_blocks,
        "wait": options.wait_blocks,
        "gas": gas,
        "jobs": jobs,
        "drain": options.drain_percent,
        "fire": {
            "burn": options.burn,
            "cells": cells,
            "respawn": options.respawn,
            "every": options.respawn_blocks,
            "gas": gas,
        },
        **fees,
    }
    return invoke(
        member,
        "plan",
        plan,
        PLAN_CYCLES + SCHEDULE_CYCLES * max(0, size) + jobs * job_cycles,
        CALL_CELLS_LIMIT + TIMER_CELLS * max(0, size) + jobs * job_cells,
    )


def jobs_that_fit(wanted: int, member: Member) -> int:
    """Number of the ``wanted`` jobs that fit into half of a transaction, so that timers fit in addition to them."""
    parameters = member.parameters
    by_cycles = parameters.lane_user_cycles // 2 // (parameters.message_cycles + JOB_CYCLES)
    return min(wanted, by_cycles, parameters.lane_user_cells // 2 // (parameters.message_cells + JOB_CELLS))


ROOM_PERCENT: Final = 90
"""Percentage of the user lane that a call may fill; the rest is for the script's punctuation."""
MAX_TRIES: Final = 64
"""Maximum number of timer ids that a user tries in a turn, to get small ones."""


class _Price(NamedTuple):
    """What an operation takes of a transaction's limits."""

    cost: Cost
    text_bytes: int
    """Size of its text, which takes as many cells."""


class Composed(Workload[ComposedOptions]):
    """An attack that mixes the means of all other attacks, as its options say.

    Each result of :mod:`~kits.market.dos.search` is a group of such users. A turn is one call of the user's actor and
    some transfers. The actor is a script, or a Python program if the options require it; for programs, options about
    saved timers or messages have no effect.
    """

    name: ClassVar[str] = "composed"
    options_type: ClassVar[type[Options]] = ComposedOptions
    is_attack: ClassVar[bool] = True
    goal: ClassVar[str] = "whatever its options aim at: it mixes the means of the other attacks"
    defence: ClassVar[str] = "those of the attacks that it mixes"

    def __init__(self, options: ComposedOptions, member: Member) -> None:
        super().__init__(options, member)
        self._saved = 0
        """Number of timers of the previous turn whose ids the actor saved."""
        self._scheduled = 0
        """Number of timers scheduled so far, which is the actor's schedule nonce if all transactions succeeded."""
        self._encoded = [encode_script([burn(options.burn + extra)]) for extra in range(options.grind)]
        """Encoded payloads with nearly equal work, of which a timer gets the one that makes its id least."""

    @classmethod
    def actor_code(cls, options: Options) -> str:
        assert isinstance(options, ComposedOptions)
        return actor_code(options.agent) if options.is_program else SCRIPT_CODE

    def intents(self, observation: Observation) -> list[Intent]:
        options, member = self.options, self.member
        if not self._reacts(observation):
            return []
        height = next_multiple(options.every_blocks, observation.height + options.due_blocks)
        call: Intent | None
        if options.is_program:
            call = plan_call(options, member, observation, height, self._program_bid(observation))
        else:
            script, cost = self._script(observation, height)
            call = member.call(script, cost=cost) if script else None
        payment = Intent(Transfer(member.address), member.parameters.tx_base_cycles, 0)
        return [*([] if call is None else [call]), *([payment] * options.transfers)]

    def dropped(self, intent: Intent) -> None:
        self._saved = 0

    def _reacts(self, observation: Observation) -> bool:
        options = self.options
        most = self.member.parameters.initial_basefee * options.below_price_percent // 100
        is_cheap = not options.below_price_percent or self.member.lane_price(observation) <= most
        return is_cheap and observation.backlog >= options.above_backlog

    # --- fees ---------------------------------------------------------------------------------------------------------

    def _bid(self, observation: Observation) -> dict[str, Any]:
        """The fee fields of a timer."""
        options, price = self.options, self.member.lane_price(observation)
        if options.bid == "market":
            return {}
        if options.bid != "price":
            return {"tier": options.bid}
        tip = min(price * options.tip_milli // 1_000, FIELD_LIMIT)
        max_fee = min(price * options.max_fee_percent // 100 + tip, FIELD_LIMIT)
        return {"max_fee_per_cycle": max_fee, "max_priority_fee_per_cycle": tip}

    def _program_bid(self, observation: Observation) -> dict[str, Any]:
        """The fee fields that the Python program gives its timers. Tiers are replaced by the default agent's bid."""
        bid = self._bid(observation)
        return {
            "max_fee": bid.get("max_fee_per_cycle"),
            "tip": bid.get("max_priority_fee_per_cycle"),
            "tier": None,
        }

    # --- scripts ------------------------------------------------------------------------------------------------------

    def _script(self, observation: Observation, height: int) -> tuple[Script, Cost]:
        """The operations of a turn, as many as fit into a transaction, and their cost."""
        options, parameters = self.options, self.member.parameters
        saved, self._saved = self._saved, 0
        old = [*self._changes(saved, observation), *self._messages(), *self._drain(observation)]
        timers = min(options.timers, self.member.timer_room(observation))
        kept = -(-timers * max(options.cancel_percent, options.extend_percent) // 100)
        cycles = (parameters.lane_user_cycles - parameters.tx_base_cycles) * ROOM_PERCENT // 100
        cells = parameters.lane_user_cells * ROOM_PERCENT // 100
        script: Script = []
        total = Cost()
        priced = ((operation, _price_of(operation)) for operation in old)
        for operation, price in itertools.chain(priced, self._timers(timers, kept, height, observation)):
            cycles, cells = cycles - price.cost.cycles, cells - price.cost.cells - price.text_bytes
            if cycles < 0 or cells < 0:
                break
            script.append(operation)
            total += price.cost
        scheduled = max(0, len(script) - len(old))
        self._scheduled += scheduled
        self._saved = min(scheduled, kept)
        return script, total

    def _timers(
        self, count: int, kept: int, height: int, observation: Observation
    ) -> Iterator[tuple[Operation, _Price]]:
        """The operations that schedule timers, and their prices; the actor saves the ids of the first ``kept``."""
        options, parameters = self.options, self.member.parameters
        needed = fire_gas_limit([burn(options.burn + options.grind - 1)], parameters)
        least, most = parameters.min_gas_limit_per_timer, parameters.max_cycles_per_fire_auction_phase
        fields = self._bid(observation) | {"gas_limit": min(max(needed * options.gas_percent // 100, least), most)}
        prices: dict[tuple[int, ...], _Price] = {}
        for number in range(count):
            at = height + number % options.spread_blocks
            tries = options.grind if number * options.grind < MAX_TRIES else 1
            work = options.burn + self._extra_work(at, self._scheduled + number, tries)
            name = f"t{number}" if number < kept else ""
            saved = {"save_as": name} if name else {}
            until = at + options.wait_blocks
            operation = attempt(schedule_at(at, [burn(work)], expires_at=until, **fields, **saved))
            sizes = (len(name), *map(len, map(str, (at, until, work))))  # the price depends only on these
            if sizes not in prices:
                prices[sizes] = _price_of(operation)
            yield operation, prices[sizes]

    def _extra_work(self, height: int, schedule_nonce: int, tries: int) -> int:
        """Cycles, below ``tries``, that a payload burns more than usual to give its timer the least id (SPEC §4)."""
        if tries == 1:
            return 0
        head, tail = self.member.actor + height.to_bytes(8, "big"), schedule_nonce.to_bytes(8, "big")
        return min(range(tries), key=lambda number: keccak256(head + self._encoded[number] + tail))

    def _changes(self, saved: int, observation: Observation) -> Script:
        """Operations that cancel and extend timers of the previous turn."""
        options = self.options
        cancelled = saved if options.cancel_percent >= options.extend_percent else 0
        if options.extend_percent > options.cancel_percent:
            cancelled = saved * options.cancel_percent // options.extend_percent
        later = observation.height + options.due_blocks + options.every_blocks + options.wait_blocks + 1
        return [
            attempt(cancel_saved(f"t{number}") if number < cancelled else extend_saved(f"t{number}", later))
            for number in range(saved)
        ]

    def _messages(self) -> Script:
        options, parameters = self.options, self.member.parameters
        if not options.messages or options.target >= len(self.member.actors):
            return []
        to = address_text(self.member.actors[options.target])
        text = "[" + " " * (min(options.message_bytes, parameters.lane_user_cells // 4) - 2) + "]"
        return [attempt(send(to, "run", text, MIN_MESSAGE_CYCLES, 0))] * options.messages

    def _drain(self, observation: Observation) -> Script:
        amount = observation.actor_balance * self.options.drain_percent // 100
        return [attempt(transfer(address_text(self.member.address), amount))] if amount else []


def _price_of(operation: Operation) -> _Price:
    return _Price(cost_of([operation]), len(encode_script([operation])))
