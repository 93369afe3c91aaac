"""A chain for tests of actors, in this process: the real transition with its fees and its timers.

    chain = Chain(accounts={"alice": 10**20, "bob": 0})
    shop = chain.deploy("shop.py", by="alice", balance=10**18)
    assert shop.call("buy", {"item": "tea"}, by="bob", value=5).ok
    chain.blocks(10)
    assert chain.balance(shop) > 10**18

There is no consensus, no network and no signature. A call, a deployment and a transfer are a block each;
:meth:`Chain.block` puts several into one. Everything is deterministic. ``docs/python.md`` is the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from blake3 import blake3

from cluster.common.errors import BadInput
from cluster.common.suggestions import meant_or_known
from cluster.local_chain.bare_chain import DEVELOPER, FUNDS, Execution, LocalChain, PlayedBlock, decoded
from cluster.local_chain.programs import ProgramFile, checked_program, read_program
from cluster.scenario.files import scenario_from
from cluster.scenario.genesis import build_genesis, validator_set
from consensus.keys import Ed25519Scheme
from validator.chain.block import Event as ChainEvent
from validator.chain.transactions import Action, Call, Deploy, Transfer
from validator.primitives.errors import HandlerFailure
from validator.primitives.limits import INTEGER_BITS, INTEGER_LIMIT
from validator.primitives.types import ADDRESS_BYTES, AMOUNT_LIMIT, Address
from validator.pvm.deployment import deploy_cycles
from validator.pvm.runtime.machine import PythonVm
from validator.pvm.runtime.operations import Value
from validator.pvm.runtime.values import encode_value
from validator.transition.transition import NotAdmitted

GAS_LIMIT: Final = 1_000_000
"""Cycles that a call may use if it states no limit."""
MAX_BLOCKS: Final = 1_000_000
DEVELOPER_NAME: Final = "developer"
SEED: Final = 1
TEXT: Final = Path("<text>")
"""The path of a program that was given as text."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a program (``emit``), or one of the protocol."""

    height: int
    actor: bytes
    """Address of the actor."""
    name: str
    fields: dict[str, str]
    """Its data; that of ``emit`` is under ``data``."""

    @property
    def data(self) -> str:
        """The text that ``emit`` was given; empty for an event of the protocol."""
        return self.fields.get("data", "")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of one execution: a transaction, bid, fire, callback or message."""

    height: int
    kind: str
    """``deploy``, ``call``, ``transfer``, ``bid``, ``fire``, ``callback`` or ``message``."""
    actor: bytes
    """Address of the actor that ran; of a transfer, that of its receiver."""
    handler: str
    error: str
    """The error: a name of SPEC §17, or ``ActorError`` with the message of an assertion; empty if it succeeded."""
    why: str
    """The error in words, for the program's author; empty if its name says all. No chain's receipt has them, and they
    may depend on the version of Python."""
    line: int
    """The line of the program at which it failed; 0 if it did not, or not in the program."""
    cycles: int
    cells: int
    fee: int
    """In the smallest CBY unit. A message's fee is in the receipt of its sender."""
    events: list[Event]
    timers: list[bytes]
    """Ids of the timers that it scheduled."""

    @property
    def ok(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True)
class WaitingTimer:
    """A live timer."""

    timer_id: bytes
    actor: bytes
    handler: str
    height: int
    """The height from which it may fire."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A transaction for :meth:`Chain.block`."""

    sender: Address
    action: Action
    gas_limit: int
    value: int
    timer_allowance: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class DeployedActor:
    """An actor of a :class:`Chain`."""

    address: bytes
    program: ProgramFile = field(repr=False)
    _chain: Chain = field(repr=False)

    def call(self, handler: str, payload: Value = None, **options: Any) -> Receipt:
        """Call a handler, in the next block. The options are those of :meth:`prepare`. Raises :class:`BadInput`."""
        return self._chain.block(self.prepare(handler, payload, **options))[0]

    def prepare(
        self,
        handler: str,
        payload: Value = None,
        *,
        by: Who = DEVELOPER_NAME,
        value: int = 0,
        gas_limit: int = GAS_LIMIT,
        timer_allowance: int = 0,
    ) -> Prepared:
        """A call of a handler for :meth:`Chain.block`, with a payload as the program gets it.

        ``value`` is paid to the actor. Timers that the call schedules may name the caller as payer up to
        ``timer_allowance``. Raises :class:`BadInput`.
        """
        if handler not in self.program.program.handlers:
            known = meant_or_known(handler, list(self.program.program.handlers))
            raise BadInput(f"{self.program.path}: has no handler {handler!r}; {known}")
        _check_value(payload, f"{handler}: payload")
        try:
            encoded = encode_value(payload)
        except HandlerFailure as failure:
            raise BadInput(
                f"{handler}: payload: cannot be passed to a handler ({failure.name}): {payload!r:.80}"
            ) from None
        sender = Address(self._chain.address(by))
        call = Call(bytes(self.address), handler, encoded)
        return Prepared(sender, call, gas_limit, _amount("value", value), _amount("timer_allowance", timer_allowance))

    @property
    def balance(self) -> int:
        """Its balance, in the smallest CBY unit."""
        return self._chain.balance(self)

    def storage(self) -> dict[str, Value]:
        """The values that it has stored with ``set``, by key."""
        return {key: decoded(value) for key, value in self._chain._local.storage(Address(self.address)).items()}

    def published(self) -> dict[str, Value]:
        """The values that it has published, by key."""
        return {key: decoded(value) for key, value in self._chain._local.published(Address(self.address)).items()}


Who = str | bytes | DeployedActor
"""An account's name, an address, or an actor."""


class Chain:
    """A chain with named accounts. ``receipts`` and ``events`` are those of all blocks so far, in order."""

    def __init__(self, accounts: Mapping[str, int] | None = None, chain: Mapping[str, Any] | None = None) -> None:
        """``accounts`` are balances in the smallest CBY unit, by name; there is also a rich ``developer``.

        ``chain`` has the policy and parameters, as a scenario's section ``chain``. Raises :class:`BadInput`.
        """
        scenario = scenario_from(
            {"name": "chain", "validators": 1, **({} if chain is None else {"chain": dict(chain)})}
        )
        made = build_genesis(scenario, SEED, validator_set(Ed25519Scheme(), scenario, SEED))
        self._accounts = {DEVELOPER_NAME: DEVELOPER}
        funds = {DEVELOPER: FUNDS}
        for name, balance in (accounts or {}).items():
            self._accounts[name] = address = _address_of(name)
            funds[address] = _amount(f"accounts.{name}", balance)
        self._local = LocalChain(PythonVm(), replace(made, accounts={**made.accounts, **funds}))
        self.receipts: list[Receipt] = []
        self.events: list[Event] = []

    @property
    def height(self) -> int:
        """Height of the last block."""
        return self._local.view.height

    def address(self, who: Who) -> bytes:
        """The address of an account. Raises :class:`BadInput` for an unknown name, and for bytes that are none."""
        if isinstance(who, DeployedActor):
            return who.address
        if isinstance(who, bytes):
            if len(who) != ADDRESS_BYTES:
                raise BadInput(f"{who!r:.80}: expected an address of {ADDRESS_BYTES} bytes")
            return who
        if who not in self._accounts:
            raise BadInput(f"no account is named {who!r}; {meant_or_known(who, list(self._accounts))}")
        return bytes(self._accounts[who])

    def balance(self, who: Who) -> int:
        """An account's balance, in the smallest CBY unit."""
        return self._local.world.balance(Address(self.address(who)))

    def timers(self) -> list[WaitingTimer]:
        """Live timers, in the order of their heights."""
        return [
            WaitingTimer(bytes(each.timer_id), bytes(each.actor), each.handler, each.trigger_height)
            for each in self._local.timers()
        ]

    def deploy(self, program: Path | str, *, by: Who = DEVELOPER_NAME, balance: int = 0) -> DeployedActor:
        """Deploy a program, in the next block, and give it a balance. ``program`` is a file, or a program's text, which
        has several lines.

        Raises :class:`BadInput` with the line of the first problem.
        """
        is_text = isinstance(program, str) and "\n" in program
        file = checked_program(TEXT, str(program)) if is_text else read_program(Path(program))
        cycles = self._local.genesis.parameters.tx_base_cycles + deploy_cycles(file.source)
        sender = Address(self.address(by))
        deployment = Prepared(sender, Deploy(file.source), cycles, _amount("balance", balance))
        (receipt,) = self.block(deployment)
        if not receipt.ok:
            raise BadInput(f"{file.path}: not deployed: {receipt.error}")
        return DeployedActor(receipt.actor, file, self)

    def transfer(self, to: Who, amount: int, *, by: Who = DEVELOPER_NAME) -> Receipt:
        """Pay an amount to an account, in the next block."""
        sender, target = Address(self.address(by)), self.address(to)
        return self.block(Prepared(sender, Transfer(target), GAS_LIMIT, _amount("amount", amount)))[0]

    def block(self, *transactions: Prepared) -> list[Receipt]:
        """Process the next block, with these transactions in this order. Returns their receipts.

        Raises :class:`BadInput` if the chain does not admit one, for instance because its sender cannot pay for it;
        then there is no block.
        """
        made, before = [], Counter[Address]()
        cells = self._local.genesis.parameters.lane_user_cells
        for each in transactions:
            amounts = (each.value, each.timer_allowance, each.sender, before[each.sender])
            made.append(self._local.transaction(each.action, each.gas_limit, cells // len(transactions), *amounts))
            before[each.sender] += 1
        try:
            played = self._local.block(*made)
        except NotAdmitted as refusal:
            raise BadInput(f"block {self.height + 1}: a transaction is not admitted: {refusal.name}") from None
        found = [_receipt(played.height, execution) for execution in played.executions]
        self.receipts += found
        self.events += [*_events_of(played), *(event for receipt in found for event in receipt.events)]
        return found[: len(transactions)]

    def blocks(self, count: int) -> list[Receipt]:
        """Process empty blocks. Returns what ran in them: fires, bids, callbacks and messages."""
        if not 0 <= count <= MAX_BLOCKS:
            raise BadInput(f"blocks: {count!r}: expected a number from 0 to {MAX_BLOCKS:,}")
        before = len(self.receipts)
        for _ in range(count):
            self.block()
        return self.receipts[before:]

    def blocks_until(self, height: int) -> list[Receipt]:
        """Process empty blocks up to a height. Returns what ran in them."""
        if height < self.height:
            raise BadInput(f"height: {height} is past: the last block is {self.height}")
        return self.blocks(height - self.height)


def _address_of(name: str) -> Address:
    if not name or name == DEVELOPER_NAME:
        raise BadInput(f"accounts: {name!r}: expected a name other than {DEVELOPER_NAME!r}, which is there already")
    return Address(blake3(name.encode()).digest(ADDRESS_BYTES))


def _amount(what: str, amount: object) -> int:
    if type(amount) is not int or not 0 <= amount < AMOUNT_LIMIT:
        raise BadInput(f"{what}: {amount!r:.80}: expected an amount in the smallest CBY unit, an integer from 0")
    return amount


def _check_value(value: object, path: str) -> None:
    """Raise :class:`BadInput` unless a program can be given a value."""
    match value:
        case None | bool() | str() | bytes():
            return
        case int():
            if abs(value) >= INTEGER_LIMIT:
                raise BadInput(f"{path}: an integer of more than {INTEGER_BITS} bits")
        case list() | tuple():
            for index, part in enumerate(value):
                _check_value(part, f"{path}[{index}]")
        case dict():
            for key, part in value.items():
                _check_value(key, f"{path}: key {key!r:.80}")
                _check_value(part, f"{path}[{key!r:.80}]")
        case _:
            expected = "None, a bool, an integer, a text, bytes, a list or a dict"
            raise BadInput(f"{path}: {value!r:.80}: expected {expected}")


def _receipt(height: int, execution: Execution) -> Receipt:
    run, effects = execution.program, execution.effects
    return Receipt(
        height=height,
        kind=execution.kind,
        actor=bytes(execution.actor),
        handler=execution.handler,
        error=execution.error,
        why="" if run is None else run.why,
        line=run.places[-1].line if run is not None and run.places else 0,
        cycles=execution.cycles,
        cells=execution.cells,
        fee=execution.fee,
        events=[_event(height, event) for event in effects.events],
        timers=[each.timer_id for each in effects.scheduled],
    )


def _events_of(played: PlayedBlock) -> list[Event]:
    """The protocol's events of a block."""
    return [_event(played.height, event) for event in played.events]


def _event(height: int, event: ChainEvent) -> Event:
    return Event(height, bytes(event.actor), event.name, dict(event.fields))
