"""Rules of deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from cluster.tools.inspect.conform.rules.observation import Observation, ShownTransaction
from cluster.tools.inspect.conform.rules.rule import failing_in, rules_of
from validator.chain.records import CODE
from validator.chain.transactions import SCRIPT_CODE
from validator.pvm.deployment import refusal, token_cycles

EXAMINED: Final = (None, "ProgramInvalid")
"""Errors of a deployment whose charges were paid: none, or that the program is refused."""


def _deployed(seen: Observation) -> list[ShownTransaction]:
    """Deployments that were admitted."""
    return [each for each in seen.executed if each.given["kind"] == "deploy"]


def _deployment(check: Callable[[ShownTransaction], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(check(each) for each in _deployed(seen))


def _is_called(seen: Observation) -> bool:
    return any(
        each.given["kind"] == "call" and each.given["to"].lower() in seen.created and each.shown["status"] == "ok"
        for each in seen.executed
    )


def _is_script(each: ShownTransaction) -> bool:
    return each.shown["status"] == "ok" and each.given["code"] == SCRIPT_CODE


def _pays_for_characters(each: ShownTransaction) -> bool:
    return each.given["code"] != SCRIPT_CODE and each.shown["error"] in EXAMINED


def _pays_for_tokens(each: ShownTransaction) -> bool:
    return _pays_for_characters(each) and token_cycles(each.given["code"]) > 0


def _pays_before_it_is_refused(each: ShownTransaction) -> bool:
    return each.shown["error"] == "OutOfCycles" and refusal(each.given["code"]) is not None


def _moves_value(status: str) -> Callable[[ShownTransaction], bool]:
    return lambda each: each.shown["status"] == status and each.number("value") > 0


def _shares_its_source(seen: Observation) -> bool:
    """Whether a program was deployed twice, and its source became one record."""
    made = Counter(each.given["code"] for each in _deployed(seen) if each.shown["status"] == "ok")
    changes = [change for block in seen.blocks for change in block.outcome.changes if change.key[:1] == CODE]
    programs = {code: times for code, times in made.items() if code != SCRIPT_CODE}
    return sum(programs.values()) > len(programs) >= len(changes)


def _bids(seen: Observation) -> bool:
    return any(
        query.outcome == "ok" and not query.agent and "0x" + query.actor.hex() in seen.created
        for _, query in seen.queries
    )


def _reads_its_deployer(seen: Observation) -> bool:
    return any(event["name"] == "deployer" and event["actor"] in seen.created for event in seen.events)


DEPLOYMENT_RULES: Final = rules_of(
    "D",
    (
        ("the address follows from the sender and the nonce", _is_called),
        ("a script's actor costs the cells of its code's name", _deployment(_is_script)),
        ("a program's characters cost cycles and cells", _deployment(_pays_for_characters)),
        ("tokens beyond the usual number cost cycles", _deployment(_pays_for_tokens)),
        ("a program is paid for before it is examined", _deployment(_pays_before_it_is_refused)),
        ("ProgramInvalid", failing_in("txs", "ProgramInvalid")),
        ("ActorExists", failing_in("txs", "ActorExists")),
        ("the value moves to the new actor", _deployment(_moves_value("ok"))),
        ("the value comes back from a failing deployment", _deployment(_moves_value("reverted"))),
        ("a program is stored once", _shares_its_source),
        ("get_gas_bid makes the program its actor's agent", _bids),
        ("the deployer is the sender", _reads_its_deployer),
    ),
)
