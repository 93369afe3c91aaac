"""A small case in the making: blocks with a few transactions each, executed as they are made.

A family writes a case with it in a few lines. What does not matter to the family is drawn, so that two seeds differ:
basefees, nonces, proposers, balances, addresses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kits.conform.case import Page
from kits.conform.cases.dice import payload_bytes
from kits.conform.cases.names import DEPLOYER, STRANGER, USERS
from kits.conform.cases.running_chain import RunningChain
from validator.chain.transactions import SCRIPT_CODE, deployed_address
from validator.primitives.types import address_text
from validator.pvm.deployment import deploy_cycles

ACTORS: Final = tuple("0x" + f"{number:02x}" * 20 for number in range(0x20, 0x30))
PROPOSER: Final = "0x" + "e1" * 20
RUNNERS: Final = tuple("0x" + f"{number:02x}" * 20 for number in range(0xB0, 0xB4))
RICH: Final = 10**30
CYCLES: Final = 200_000
"""Cycles of a call beyond the base cycles, unless the family says another number."""
CELLS: Final = 20_000

Script = list[Any]


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor of a scene's genesis."""

    balance: int = RICH
    code: str = SCRIPT_CODE
    bid: tuple[int, int] | None = None
    """Max fee and priority that ``builtin:fixed`` bids for it."""
    deployer: str = DEPLOYER


class Scene:
    """A case in the making."""

    def __init__(
        self,
        rng: random.Random,
        params: Mapping[str, Any] | None = None,
        actors: Mapping[str, Actor] | int = 2,
        *,
        policy: str = "cip1",
        balances: Mapping[str, int] | None = None,
        preset: str | None = None,
        runners: int = 0,
        basefee: int | None = None,
    ) -> None:
        """Begin a chain. ``actors`` is their number if they are plain."""
        self.rng = rng
        self.sentence = ""
        """What is special about the case, after the family's description."""
        self.basefee = basefee or rng.choice([1, 7, 1_000, 1_000_000])
        """The basefees of the first block."""
        if isinstance(actors, int):
            actors = dict.fromkeys(ACTORS[:actors], Actor())
        self.genesis: Page = {
            "policy": policy,
            "params": {
                "INITIAL_BASEFEE": self.basefee,
                "MIN_BASEFEE": rng.choice([1, self.basefee]),
                "TX_BASE_CYCLES": rng.choice([1, 500, 1_000]),
                **(params or {}),
            },
            "system_deployers": [DEPLOYER],
            "accounts": {
                address: {"balance": balance}
                for address, balance in (dict.fromkeys([*USERS[:3], DEPLOYER], RICH) | dict(balances or {})).items()
            },
            "actors": {address: _actor_page(actor) for address, actor in actors.items()},
        }
        if preset is not None:
            self.genesis["preset"] = preset
        if runners:
            self.genesis["runners"] = list(RUNNERS[:runners])
            for runner in RUNNERS[:runners]:
                self.genesis["accounts"][runner] = {"balance": RICH}
        self.chain = RunningChain(self.genesis)
        self.blocks: list[Page] = []
        self.proposer = rng.choice([PROPOSER, STRANGER, USERS[1]])
        self._txs: list[Page] = []
        self._nonces: dict[str, int] = {}

    # --- what the next block finds ------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        """Height of the block in the making."""
        return self.chain.height + 1

    def param(self, name: str) -> Any:
        """A parameter of the block in the making."""
        return self.chain.params[name]

    @property
    def lane_price(self) -> int:
        """The lane price of the block in the making, after activation."""
        return self.chain.lane_price

    @property
    def base(self) -> int:
        """``TX_BASE_CYCLES``."""
        return int(self.param("TX_BASE_CYCLES"))

    # --- transactions -------------------------------------------------------------------------------------------------

    def call(self, script: Any, to: str = ACTORS[0], sender: str = USERS[0], **changes: Any) -> None:
        """Add a call of an actor. ``changes`` replace fields."""
        self.transaction("call", sender, {"to": to, "handler": "run", "payload": script, **changes})

    def transfer(self, to: str, value: int, sender: str = USERS[0], **changes: Any) -> None:
        """Add a transfer."""
        self.transaction("transfer", sender, {"to": to, "value": value, **changes})

    def deploy(self, code: str = SCRIPT_CODE, sender: str = USERS[0], **changes: Any) -> str:
        """Add a deployment; returns the new actor's address. ``changes`` replace fields."""
        nonce = self._nonces.get(sender, self.chain.nonce(sender))
        limits = {"gas_limit": self.base + deploy_cycles(code), "cells_limit": len(code)}
        self.transaction("deploy", sender, {"code": code, **limits, **changes})
        return address_text(deployed_address(bytes.fromhex(sender[2:]), nonce))

    def system(self, opcode: int, sender: str = DEPLOYER, /, **args: Any) -> None:
        """Add a system instruction."""
        self.transaction("system", sender, {"opcode": opcode, "args": args})

    def transaction(self, kind: str, sender: str, fields: Mapping[str, Any], refused: bool = False) -> None:
        """Add a transaction that its sender can pay for. One that is ``refused`` uses up no nonce."""
        nonce = self._nonces.get(sender, self.chain.nonce(sender))
        cells = CELLS if kind == "call" else 0
        tx: Page = {
            "kind": kind,
            "sender": sender,
            "nonce": nonce,
            "gas_limit": self.base + (CYCLES if kind == "call" else 0),
            "cells_limit": cells + (len(payload_bytes(fields["payload"])) if kind == "call" else 0),
            "max_fee_per_cycle": 2 * self.chain.basefee_cycle,
            "max_priority_fee_per_cycle": self.rng.choice([0, 0, 1]),
            "max_fee_per_cell": 2 * self.chain.basefee_cell,
            **fields,
        }
        self._txs.append(tx)
        self._nonces[sender] = nonce + (not refused)

    def refused(self, kind: str, fields: Mapping[str, Any], sender: str = USERS[0]) -> None:
        """Add a transaction that is not admitted."""
        self.transaction(kind, sender, fields, refused=True)

    # --- blocks -------------------------------------------------------------------------------------------------------

    def block(self, proposer: str | None = None) -> Page:
        """Close the block; returns the output's page."""
        made = {"proposer": proposer or self.proposer, "txs": self._txs}
        self._txs, self._nonces = [], {}
        return self._execute(made)[-1]

    def empty(self, times: int = 1) -> Page:
        """Close the block if it has transactions, then add empty ones; returns the page of the last one."""
        if self._txs:
            self.block()
        return self._execute({"proposer": self.proposer, "empty": times})[-1]

    def run(self, script: Any, to: str = ACTORS[0], sender: str = USERS[0], **changes: Any) -> Page:
        """A block with one call; returns the output's page."""
        self.call(script, to, sender, **changes)
        return self.block()

    def until(self, is_reached: Callable[[], bool], most: int) -> None:
        """Add empty blocks until a condition holds, at most ``most``."""
        for _ in range(most):
            if is_reached():
                return
            self.empty()

    def _execute(self, block: Page) -> list[Page]:
        self.blocks.append(block)
        return self.chain.block(block)


def _actor_page(actor: Actor) -> Page:
    page: Page = {"balance": actor.balance, "code": actor.code, "deployer": actor.deployer}
    if actor.bid is not None:
        fees = dict(zip(("max_fee_per_cycle", "max_priority_fee_per_cycle"), actor.bid, strict=True))
        page["gba"] = {"code": "builtin:fixed", **fees}
    return page


def schedule(after: int = 1, payload: Any = "[]", **fields: Any) -> Script:
    """The operation that schedules a timer ``after`` blocks."""
    return ["schedule", {"in": after, "payload": payload, **fields}]


def tried(operation: Script) -> Script:
    """The operation in a ``try``: its refusal becomes an event."""
    return ["try", operation]


def send(to: str, payload: Any = "[]", **fields: Any) -> Script:
    """The operation that sends a message."""
    return ["send", {"to": to, "handler": "hear", "payload": payload, **fields}]
