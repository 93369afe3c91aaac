"""Composed attack: bursts of timers, cancellations, messages, payments, jobs and agents, in any mixture.

Each result of :mod:`~kits.market.dos.search` is a group of such users. A turn is one call of the user's actor
and some transfers. The actor is a script, or a Python program if the options require it; for programs, options about
saved timers or messages have no effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar, Final, NamedTuple

from loadgen.workloads.attacks.base import FIELD_LIMIT, next_multiple
from loadgen.workloads.attacks.composed.options import ComposedOptions
from loadgen.workloads.attacks.composed.program import actor_code, plan_call
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
    """An attack that mixes the means of all other attacks, as its options say."""

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
