"""The deployment of an actor: the price of its code, the check of the code, and the records that go into the state."""

from __future__ import annotations

from typing import NamedTuple

from validator.chain.records import PYTHON_AGENT, Actor, BiddingAgent, python_code
from validator.chain.transactions import SCRIPT_CODE, code_problem
from validator.primitives.types import Address
from validator.pvm.compiler import programs
from validator.pvm.compiler.programs import compiled
from validator.pvm.language.subset import ProgramError


class Deployment(NamedTuple):
    """What a deployment puts into the state: the new actor's record, and a Python program's source under its key.

    ``program_key`` is ``None`` for ``builtin:script``.
    """

    actor: Actor
    program_key: bytes | None = None
    source: str = ""


def byte_cycles(code: str) -> int:
    """Cycles for deploying code, by its size. They are charged before the code is parsed."""
    return 0 if code == SCRIPT_CODE else programs.byte_cycles(code)


def token_cycles(code: str) -> int:
    """Further cycles for deploying code that has more tokens than usual for its size."""
    return 0 if code == SCRIPT_CODE else programs.token_cycles(code)


def deploy_cycles(code: str) -> int:
    """Cycles for checking and compiling the code."""
    return byte_cycles(code) + token_cycles(code)


def refusal(code: str) -> str | None:
    """Check and compile code. Returns the reason why an actor cannot have it, in one line; ``None`` if one can."""
    problem = code_problem(code)
    if problem is not None or code == SCRIPT_CODE:
        return problem
    try:
        compiled(code)
    except ProgramError as error:
        return str(error)
    return None


def deployment(code: str, deployer: Address) -> Deployment:
    """A new actor with this code. Raises :class:`~validator.pvm.language.subset.ProgramError` for a program that is
    refused."""
    if code == SCRIPT_CODE:
        return Deployment(Actor(code, deployer))
    name, key = python_code(code)
    agent = BiddingAgent(PYTHON_AGENT, 0, 0) if compiled(code).bids else None
    return Deployment(Actor(name, deployer, agent=agent), key, code)
