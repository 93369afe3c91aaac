"""A session on a local chain: programs are deployed and funded, handlers are called, then empty blocks are processed.

Sessions are deterministic: addresses of the developer and the actors, fees and order are the same each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cluster.common.errors import BadInput
from cluster.common.strict_json import Wrong
from cluster.common.suggestions import closest
from cluster.local_chain.bare_chain import DEVELOPER, PROPOSER, Execution, LocalChain, PlayedBlock
from cluster.local_chain.programs import ProgramFile
from kits.actors.values import value_from_json
from validator.chain.transactions import Call, Deploy, deployed_address
from validator.primitives.types import Address
from validator.pvm.deployment import deploy_cycles
from validator.pvm.language.api import GAS_BID, HANDLER_PARAMETER
from validator.pvm.runtime.machine import Vm
from validator.pvm.runtime.operations import Value
from validator.pvm.runtime.values import encode_value
from validator.transition.transition import NotAdmitted

FIRST_HANDLERS: Final = ("start", "init", "setup")
"""Without ``--call``, the first handler of the first program that has one of these names is called."""


class Actor(NamedTuple):
    """An actor that the session deploys."""

    name: str
    """Name of the program's class, with a number if an earlier program has the same name."""
    address: Address
    file: ProgramFile


class PlannedCall(NamedTuple):
    """A call of a handler that the session is to make, with its payload ``value``."""

    actor: Actor
    handler: str
    value: Value


@dataclass(frozen=True, slots=True)
class Limits:
    """Amounts and limits of the transactions that the developer sends."""

    balance: int
    """Amount given to each actor at its deployment."""
    gas_limit: int
    """Gas limit of each call, in cycles."""
    value: int = 0
    """Amount paid to the actor with each call."""
    timer_allowance: int = 0
    """Amount up to which the timers of each call may name the developer as payer."""


@dataclass(slots=True)
class Session:
    """A session on a local chain: its actors, the chain, and the blocks that were processed."""

    actors: list[Actor]
    chain: LocalChain
    blocks: list[PlayedBlock] = field(default_factory=list)

    @property
    def names(self) -> dict[bytes, str]:
        """Names of the known accounts, keyed by address."""
        known = {bytes(actor.address): actor.name for actor in self.actors}
        return {**known, bytes(DEVELOPER): "developer", bytes(PROPOSER): "proposer"}

    @property
    def executions(self) -> list[Execution]:
        return [execution for block in self.blocks for execution in block.executions]

    @property
    def failures(self) -> int:
        """Number of executions that failed."""
        return sum(bool(execution.error) for execution in self.executions)

    @property
    def cycles_charged(self) -> int:
        """Cycles charged in all blocks. Cycles of messages and callbacks count only where they were paid for."""
        return sum(execution.cycles for execution in self.executions) - self.cycles_paid_ahead

    @property
    def cycles_paid_ahead(self) -> int:
        """Cycles of executed messages and callbacks. Their senders have reserved and paid for them before."""
        return sum(execution.cycles for execution in self.executions if execution.kind in ("message", "callback"))

    def actor_at(self, address: bytes) -> Actor:
        """The actor of the session with this address."""
        return next(actor for actor in self.actors if actor.address == address)


def actors_of(files: Sequence[ProgramFile]) -> list[Actor]:
    """The actors that the developer will deploy from these files, in order. Their addresses follow from that order."""
    seen: Counter[str] = Counter()
    actors = []
    for nonce, file in enumerate(files):
        name = file.program.name
        seen[name] += 1
        shown = name if seen[name] == 1 else f"{name}{seen[name]}"
        actors.append(Actor(shown, deployed_address(DEVELOPER, nonce), file))
    return actors


def plan_calls(given: Sequence[str], actors: Sequence[Actor]) -> list[PlannedCall]:
    """Parse calls of the form ``HANDLER[=JSON]`` or ``NAME.HANDLER[=JSON]``. Raises :class:`BadInput`.

    Without calls, the first program's first handler among :data:`FIRST_HANDLERS` is called with None.
    """
    if not given:
        first = next((name for name in actors[0].file.program.handlers if name in FIRST_HANDLERS), None)
        return [] if first is None else [PlannedCall(actors[0], first, None)]
    addresses = {actor.name: actor.address for actor in actors}
    return [_planned(text, actors, addresses) for text in given]


def _planned(text: str, actors: Sequence[Actor], addresses: Mapping[str, Address]) -> PlannedCall:
    target, has_payload, payload = text.partition("=")
    name, has_name, handler = target.rpartition(".")
    actor = next((actor for actor in actors if actor.name == name), None) if has_name else actors[0]
    if actor is None:
        raise BadInput(f"--call {target}: no actor {name!r}; there are {', '.join(addresses)}")
    _check_handler(actor, handler)
    if not has_payload:
        return PlannedCall(actor, handler, None)
    try:
        return PlannedCall(actor, handler, value_from_json(payload, addresses))
    except Wrong as wrong:
        hint = """; a text needs quotes: '"…"'""" if "no JSON" in str(wrong) else ""
        raise BadInput(f"--call {target}: {str(wrong).removeprefix('$: ')}{hint}") from None


def _check_handler(actor: Actor, handler: str) -> None:
    """Raise :class:`BadInput` if the actor's program has no handler of this name."""
    program, place = actor.file.program, f"--call {handler}: {actor.file.path}"
    if handler in program.handlers:
        return
    has = f"handlers: {', '.join(program.handlers) or 'none'}"
    method = program.methods.get(handler)
    if method is None:
        meant = closest(handler, program.handlers)
        hint = f"did you mean {meant}? It has" if meant else "it has"
        raise BadInput(f"{place} has no handler {handler!r}; {hint} {has}")
    line = f"{place}:{method.node.lineno}"
    if handler == GAS_BID:
        raise BadInput(f"{line}: {GAS_BID} is called by the chain alone, when a timer is due; {has}")
    head = f"{method.name}({', '.join(('self', *method.parameters))})"
    rule = f"a handler has one parameter, and it is called {HANDLER_PARAMETER}"
    raise BadInput(f"{line}: {head} is a helper: {rule}; {has}")


def play(files: Sequence[ProgramFile], calls: Sequence[str], blocks: int, limits: Limits, vm: Vm) -> Session:
    """Play a session: deploy the programs, make the calls, then process ``blocks`` empty blocks.

    Raises :class:`BadInput` for a refused deployment or call.
    """
    actors = actors_of(files)
    planned = plan_calls(calls, actors)
    session = Session(actors, LocalChain(vm))
    for actor in actors:
        _deploy(session, actor, limits)
    for call in planned:
        _call(session, call, limits)
    for _ in range(blocks):
        session.blocks.append(session.chain.block())
    return session


def _deploy(session: Session, actor: Actor, limits: Limits) -> None:
    chain, source = session.chain, actor.file.source
    parameters = chain.genesis.parameters
    cycles = parameters.tx_base_cycles + deploy_cycles(source)
    transaction = chain.transaction(Deploy(source), cycles, len(source), limits.balance)
    try:
        session.blocks.append(chain.block(transaction))
    except NotAdmitted as refusal:
        most = parameters.lane_user_cycles
        raise BadInput(
            f"{actor.file.path}: not deployed ({refusal.name}): it takes {cycles:,} cycles, a block has {most:,}"
        ) from None


def _call(session: Session, call: PlannedCall, limits: Limits) -> None:
    chain = session.chain
    action = Call(call.actor.address, call.handler, encode_value(call.value))
    cells = chain.genesis.parameters.lane_user_cells
    transaction = chain.transaction(action, limits.gas_limit, cells, limits.value, limits.timer_allowance)
    try:
        session.blocks.append(chain.block(transaction))
    except NotAdmitted as refusal:
        raise BadInput(f"--call {call.handler}: not admitted: {refusal.name}") from None


# --- use ----------------------------------------------------------------------------------------------------------


class HandlerUse(NamedTuple):
    """The resources that a handler's runs used. Cycles and cells are from the receipts."""

    kind: str
    actor: Actor
    handler: str
    runs: int
    failures: int
    mean_cycles: int
    most_cycles: int
    mean_cells: int
    most_cells: int


def handler_uses(session: Session) -> list[HandlerUse]:
    """The resources used by each handler that ran, in the order of their first runs."""
    groups: dict[tuple[str, bytes, str], list[Execution]] = {}
    for execution in session.executions:
        if execution.handler:
            groups.setdefault((execution.kind, execution.actor, execution.handler), []).append(execution)
    return [
        HandlerUse(
            kind,
            session.actor_at(address),
            handler,
            len(group),
            sum(bool(each.error) for each in group),
            sum(each.cycles for each in group) // len(group),
            max(each.cycles for each in group),
            sum(each.cells for each in group) // len(group),
            max(each.cells for each in group),
        )
        for (kind, address, handler), group in groups.items()
    ]
