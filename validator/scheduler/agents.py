"""Agents that bid for timers (SPEC §9): a contract that the timer or its actor names, or the actor's own agent.

An *agent* is identified by an address: that of a contract, or :data:`OWN` for the actor's own ``get_gas_bid`` or
``builtin:fixed``. The last valid answer is kept for each actor and agent. Timers of one actor that name the same
contract, or none, are a :class:`Party`: one agent bids for all of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from validator.chain.records import PYTHON_AGENT, PYTHON_CODE, Actor, Timer
from validator.primitives.types import Address

OWN: Final = Address(b"")
"""Address that identifies the actor's own agent. In a :class:`Party`: its timers name no contract."""


class Party(NamedTuple):
    """The timers of one actor that one agent bids for."""

    actor: Address
    named: Address = OWN
    """The contract that the timers name as their agent; :data:`OWN` if they name none."""


def party_of(timer: Timer) -> Party:
    return Party(timer.actor, OWN if timer.bidding_agent is None else timer.bidding_agent)


def agent_of(party: Party, record: Actor) -> Address | None:
    """The agent that bids for a party, by its actor's ``record``; ``None`` if only the default agent bids.

    If an actor or its timers name the actor itself, its own ``get_gas_bid`` bids, if it has one.
    """
    named = party.named
    if named == OWN:
        if record.naming is None or record.naming.agent is None:
            return None if record.agent is None else OWN
        named = record.naming.agent
    has_own_method = record.agent is not None and record.agent.code == PYTHON_AGENT
    return OWN if named == party.actor and has_own_method else named


def parties_of(actor: Address, agent: Address) -> tuple[Party, Party]:
    """The two parties of an actor that ``agent`` may bid for: timers that name no contract, and timers that name it."""
    return Party(actor), Party(actor, actor if agent == OWN else agent)


def may_bid(record: Actor | None) -> bool:
    """Whether an actor has an agent or may get one: programs may name agents, scripts cannot."""
    return record is not None and (record.agent is not None or record.code.startswith(PYTHON_CODE))
