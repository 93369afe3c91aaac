"""A new actor's code in state: the actor's record, and the program of a Python actor."""

from __future__ import annotations

from typing import NamedTuple

from validator.chain.records import PYTHON_AGENT, Actor, BiddingAgent, python_code
from validator.chain.transactions import SCRIPT_CODE, code_problem
from validator.primitives.types import Address
from validator.pvm.compiler import programs
from validator.pvm.compiler.programs import compiled
from validator.pvm.language.subset import ProgramError


class Deployment(NamedTuple):
    """A new actor's record, and the program to be stored under a key; no program for ``builtin:script``."""

    actor: Actor
    program_key: bytes | None = None
    source: str = ""


def byte_cycles(code: str) -> int:
    """Cycles for the code, charged before it is read."""
    return 0 if code == SCRIPT_CODE else programs.byte_cycles(code)


def token_cycles(code: str) -> int:
    """Further cycles for dense code."""
    return 0 if code == SCRIPT_CODE else programs.token_cycles(code)


def deploy_cycles(code: str) -> int:
    """Cycles for checking and compiling the code."""
    return byte_cycles(code) + token_cycles(code)


def refusal(code: str) -> str | None:
    """The reason why no actor can have this code, in one line; ``None`` if one can."""
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
