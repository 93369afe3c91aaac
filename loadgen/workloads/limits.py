"""Limits: scripts of random calls with values at the chain's limits, or one above or below them.

Each turn runs one script. Most calls are inside a ``try``, so that calls after a refused one run, too. The limits of
the transaction equal the script's cost, or are a little less. Timers and messages have such scripts as payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from loadgen.workloads.base import LOAD_HANDLER, Intent, Observation, Options, Workload
from loadgen.workloads.script import (
    MIN_MESSAGE_CYCLES,
    Operation,
    Script,
    attempt,
    cost_of,
    emit,
    encode_script,
    fire_gas_limit,
    put,
    schedule,
    send,
    transfer,
)
from validator.chain.transactions import Call
from validator.primitives.types import HEIGHT_LIMIT, MAX_NAME_BYTES, PRICE_LIMIT, Address, address_text

KEYS: Final = ("a", "b", "c", "d")
"""Storage keys: some have the id of a live or ended timer, some another text, some nothing."""
NAMES: Final = (
    *[LOAD_HANDLER] * 4,
    "",
    "n" * MAX_NAME_BYTES,
    "n" * (MAX_NAME_BYTES + 1),
    "é" * (MAX_NAME_BYTES // 2 + 1),
)
NOBODY: Final = Address(b"\xfe" * 20)
RESERVED: Final = Address(bytes(19) + b"\x0f")
MOST_TIMERS_AT_ONCE: Final = 110
MAX_LONG_PAYLOAD_BYTES: Final = 4_000
"""Maximum length of long payloads; longer ones would fill blocks with little else."""
ENVELOPES: Final = tuple(f'{{"_handler":"run","_payload":"{text}"}}' for text in ("W10=", "W10", "W10gW10=", "W10g="))
"""Payloads in the form of an envelope: two with a script, one with invalid base64, one whose content is no script."""
ALLOWANCES: Final = (0, 1, 1_000, 10**15)
BAD_SCRIPTS: Final = (
    b"",
    b"{}",
    b"[1]",
    b"[[]]",
    b'[["burn",-1]]',
    b'[["burn",1.0]]',
    b'[["burn",-0]]',
    b'[["burn",true]]',
    b'[["burn",1,1]]',
    b'[["unknown"]]',
    b'[["get",null]]',
    b'[["emit","","\\ud800"]]',
    b'[["cancel",{}]]',
    b'[["cancel",{"id":"00","saved":"a"}]]',
    b'[["schedule",{"in":1}]]',
    b'[["schedule",{"in":1,"height":9,"payload":""}]]',
    b'[["schedule",{"in":1,"payload":"","tier":"fastest"}]]',
    b'[["schedule",{"in":1,"payload":{"hex":"0"}}]]',
    b'[["transfer",{"to":"0x00","amount":1}]]',
    b'[["set","a","a"],["transfer",{"to":"0x' + b"00" * 20 + b'","amount":1,"amount":1}]]',
    b"[" * 65 + b"]" * 65,
)


class LimitsOptions(Options):
    """Options of :class:`Limits`."""

    calls: Annotated[int, Field(ge=1, le=40)] = 8
    """Calls per script, at most."""


class Limits(Workload[LimitsOptions]):
    """Makes calls that the chain just accepts, and calls that it just refuses."""

    name: ClassVar[str] = "limits"
    options_type: ClassVar[type[Options]] = LimitsOptions

    def intents(self, observation: Observation) -> list[Intent]:
        random, p = self.member.random, self.member.parameters
        allowance = random.choice(ALLOWANCES)
        room = self.member.timer_room(observation)
        if room <= MOST_TIMERS_AT_ONCE and random.random() < 0.05:
            script = [attempt(schedule(ahead, [])) for ahead in range(5, room + 6)]
        else:
            script = self._script(observation, allowance, depth=2)
        payload = random.choice(BAD_SCRIPTS) if random.random() < 0.1 else encode_script(script)
        cost = cost_of(script)
        cycles = min(p.tx_base_cycles + cost.cycles - self._shortage(), p.lane_user_cycles)
        cells = min(max(0, len(payload) + cost.cells - self._shortage()), p.lane_user_cells)
        action = Call(self.member.actor, LOAD_HANDLER, payload)
        value = random.choice([0, 0, 1])
        return [Intent(action, max(cycles, p.tx_base_cycles), cells, value, timer_allowance=allowance)]

    def _shortage(self) -> int:
        """A random number by which a transaction's limit (of cycles or cells) is below its cost; 0 in most cases."""
        return self.member.random.choice([0, 0, 0, 0, 0, 0, 1, 500])

    def _script(self, observation: Observation, allowance: int, depth: int) -> Script:
        """A script of random calls, whose payloads may be such scripts again, ``depth`` levels deep."""
        random = self.member.random
        script: Script = []
        for _ in range(random.randint(0, self.options.calls if depth == 2 else 3)):
            draw = random.choice(self._calls(depth))
            operation = draw(observation, allowance, depth)
            script.append(operation if random.random() < 0.03 else attempt(operation))
        return script

    def _calls(self, depth: int) -> Sequence[Callable[[Observation, int, int], Operation]]:
        plain = (self._storage, self._event, self._transfer, self._change)
        return (*plain, *(self._schedule, self._schedule, self._schedule, self._send, self._send) * (depth > 0))

    def _around(self, *limits: int) -> int:
        """One of these numbers at random, or one more or less."""
        return self.member.random.choice(limits) + self.member.random.choice([-1, 0, 0, 1])

    def _height(self, observation: Observation) -> int:
        """A random height, at which a block may include the transaction."""
        return observation.height + self.member.random.choice([1, 1, 2, 3])

    def _payload(self, observation: Observation, allowance: int, depth: int) -> Any:
        """A random payload: a script, an invalid script, another value, or a long text."""
        random, p = self.member.random, self.member.parameters
        if random.random() < 0.1:
            return random.choice(["", "é", {"hex": "00ff"}, *ENVELOPES, [["fail", "no"]]])
        if random.random() < 0.1:
            return "p" * self._around(
                min(random.choice([p.mailbox_bytes, p.max_timer_payload]), MAX_LONG_PAYLOAD_BYTES)
            )
        if random.random() < 0.1:
            return [attempt(send(address_text(self.member.actor), "", "", MIN_MESSAGE_CYCLES, 0))] * 3
        return self._script(observation, allowance, depth - 1)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _storage(self, _observation: Observation, _allowance: int, _depth: int) -> Operation:
        key = self.member.random.choice(KEYS)
        return self.member.random.choice([["get", key], ["del", key], put(key, "00"), put(key, "0" * 64)])

    def _event(self, _observation: Observation, _allowance: int, _depth: int) -> Operation:
        return emit(self.member.random.choice(NAMES), self.member.random.choice(["", "é"]))

    def _transfer(self, observation: Observation, _allowance: int, _depth: int) -> Operation:
        to, balance = self._somebody(), observation.actor_balance
        most = self._around(balance) if to == self.member.actor else 2 * balance + 2  # it can still pay for its timers
        amount = self.member.random.choice([0, 1, max(0, most)])
        return transfer(address_text(to), amount)

    def _somebody(self) -> Address:
        member = self.member
        others = (member.random.choice(member.actors), member.address, NOBODY)
        return member.random.choice([member.actor, member.actor, *others])

    def _change(self, observation: Observation, _allowance: int, _depth: int) -> Operation:
        random, now = self.member.random, self._height(observation)
        timer = {"saved": random.choice(KEYS)} if random.random() < 0.8 else {"id": random.choice(["", "0" * 64])}
        if random.random() < 0.5:
            return ["cancel", timer]
        return ["extend", {**timer, "expires_at": self._around(now, now + 4, now + self.member.parameters.max_ttl)}]

    def _send(self, observation: Observation, allowance: int, depth: int) -> Operation:
        random, p = self.member.random, self.member.parameters
        call: dict[str, Any] = {
            "to": address_text(self._somebody()),
            "handler": random.choice(NAMES),
            "payload": self._payload(observation, allowance, depth),
            "cycles": self._around(MIN_MESSAGE_CYCLES, MIN_MESSAGE_CYCLES, 8_000, p.message_cycles),
            "cells": random.choice([self._around(0, p.message_cells), 500]),
        }
        return ["send", call]

    def _schedule(self, observation: Observation, allowance: int, depth: int) -> Operation:
        random = self.member.random
        payload = self._payload(observation, allowance, depth)
        call: dict[str, Any] = {"in": random.choice([1, 2, 3, 5]), "payload": payload, "save_as": random.choice(KEYS)}
        limits = self._limits(observation, allowance, payload)
        for name in random.sample(sorted(limits), random.choice([0, 0, 1, 1, 1, 2])):
            call |= limits[name]()
        if "height" in call:
            del call["in"]
        return ["schedule", call]

    def _limits(
        self, observation: Observation, allowance: int, payload: Any
    ) -> dict[str, Callable[[], dict[str, Any]]]:
        """Functions that draw further fields of a ``schedule`` operation, by the subject of the fields."""
        random, p, around = self.member.random, self.member.parameters, self._around
        now, price = self._height(observation), self.member.lane_price(observation)
        caps = (p.max_cycles_per_fire, p.max_cycles_per_fire_auction_phase)
        needed = fire_gas_limit(payload, p) if isinstance(payload, list) else caps[0]
        payers = ("self", "sender", address_text(self.member.actor), address_text(NOBODY), address_text(RESERVED))
        return {
            "bid": lambda: {"bid": 1},
            "expiry": lambda: {"expires_at": around(now, now + 3, now + p.max_ttl)},
            "fees": lambda: {
                "max_fee_per_cycle": around(price, price, 2 * price, PRICE_LIMIT, 0),
                "max_priority_fee_per_cycle": around(0, 1, price),
            },
            "gas": lambda: {"gas_limit": around(p.min_gas_limit_per_timer, needed, *caps)},
            "handler": lambda: {"handler": random.choice(NAMES)},
            "height": lambda: {"height": around(now, now + 1, now + p.max_ttl, HEIGHT_LIMIT)},
            "payer": lambda: {"fee_payer": random.choice(payers)},
            "sponsor": lambda: {"fee_payer": "sender", "payer_cap": around(0, 1, 2, allowance)},
            "cap": lambda: {"payer_cap": around(0, PRICE_LIMIT, allowance)},
            "tier": lambda: {"tier": random.choice(["economy", "urgent"])},
            "max_fee": lambda: {"max_fee_per_cycle": around(price, 0, PRICE_LIMIT)},
            "priority": lambda: {"max_priority_fee_per_cycle": around(0, PRICE_LIMIT, 10)},
        }
