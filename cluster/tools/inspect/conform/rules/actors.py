"""Rules of messages, system instructions, scripts, Python actors, jobs and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster.tools.inspect.conform.rules.observation import Observation
from cluster.tools.inspect.conform.rules.rule import failing, failing_in, operating, rules_of, showing
from validator.chain.records import (
    BID_MEMORY,
    FIRES,
    LONG_STORAGE,
    MESSAGE,
    OVERFLOW,
    STORAGE,
    SUPPLY,
    TIMER,
    TIMER_PAYLOAD,
)
from validator.primitives.types import Address
from validator.pvm.language.api import GAS_BID
from validator.state.working_set import Change


def _message(status: str) -> Callable[[Observation], bool]:
    return lambda seen: any(run["status"] == status for block in seen.blocks for run in block.page["messages"])


def _sends_in(kind: str) -> Callable[[Observation], bool]:
    return lambda seen: any(where == kind and effects.messages for _, where, effects in seen.effects)


def _not_caught_in_runs(seen: Observation) -> bool:
    """Whether a fire or a message, not a transaction, sent too many."""
    return seen.failed("TooManyMessages") and any(
        len(effects.messages) == 2 for _, kind, effects in seen.effects if kind in ("fires", "messages")
    )


def _too_many_in_transaction(seen: Observation) -> bool:
    return any(len(effects.messages) == 1_024 for _, kind, effects in seen.effects if kind == "txs")


MESSAGE_RULES: Final = rules_of(
    "M",
    (
        ("a message runs after the timers", _message("ok")),
        ("a failing message is reverted, and is gone", _message("reverted")),
        ("MessageLimitInvalid", failing("MessageLimitInvalid")),
        ("TooManyMessages in a fire or a message", _not_caught_in_runs),
        ("MessageHandlerInvalid", failing("MessageHandlerInvalid")),
        ("UnknownActor", failing_in("caught", "UnknownActor")),
        ("MailboxFull", failing("MailboxFull")),
        ("a message's cycles end", failing_in("messages", "OutOfCycles")),
        ("a message's cells end", failing_in("messages", "OutOfCells")),
        ("a fire sends", _sends_in("fires")),
        ("a message sends, and reserves cycles that the lane does not lose", _sends_in("messages")),
    ),
)


def _system(opcode: int, status: str, error: str | None = None) -> Callable[[Observation], bool]:
    return lambda seen: any(
        each.given["kind"] == "system"
        and int(each.given["opcode"]) == opcode
        and each.shown["status"] == status
        and each.shown["error"] == error
        for each in seen.executed
    )


def _cancels_nothing(seen: Observation) -> bool:
    return any(
        each.given["kind"] == "system"
        and int(each.given["opcode"]) == 48
        and each.shown["status"] == "ok"
        and bytes.fromhex(each.given["args"]["timer_id"]) not in seen.timers
        for each in seen.executed
    )


def _cancels_any(seen: Observation) -> bool:
    return any(
        each.given["kind"] == "system"
        and int(each.given["opcode"]) == 48
        and each.shown["status"] == "ok"
        and bytes.fromhex(each.given["args"]["timer_id"]) in seen.timers
        for each in seen.executed
    )


def _extends_any(seen: Observation) -> bool:
    return _system(50, "ok")(seen)


SYSTEM_RULES: Final = rules_of(
    "S",
    (
        ("NotSystemDeployer", failing_in("txs", "NotSystemDeployer")),
        ("48 removes any actor's timer", _cancels_any),
        ("48 succeeds for an unknown timer", _cancels_nothing),
        ("49 sets governed parameters", _system(49, "ok")),
        ("49 sets all or none: ConfigInvalid", _system(49, "reverted", "ConfigInvalid")),
        ("50 extends any actor's timer", _extends_any),
        ("50 of an unknown timer: NotFound", _system(50, "reverted", "NotFound")),
        ("50 to no later height: TimerExpiryInvalid", _system(50, "reverted", "TimerExpiryInvalid")),
    ),
)


def _payload_is(check: Callable[[Any], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(
        each.shown["status"] == "ok" and "payload" in each.given and check(each.given["payload"])
        for each in seen.executed
    )


SCRIPT_RULES: Final = rules_of(
    "C",
    (
        ("BadScript before the first operation", failing("BadScript")),
        ("burn", operating("burn")),
        ("get", operating("get")),
        ("set", operating("set")),
        ("del", operating("del")),
        ("emit", operating("emit")),
        ("EventNameTooLong", failing("EventNameTooLong")),
        ("fail", failing("ScriptFailed")),
        ("transfer", operating("transfer")),
        ("InsufficientBalance", failing("InsufficientBalance")),
        ("send", operating("send")),
        ("schedule", operating("schedule")),
        ("cancel", operating("cancel")),
        ("extend", operating("extend")),
        ("try catches a refusal", showing("ScriptCaught")),
        ("a payload as text", _payload_is(lambda payload: isinstance(payload, str))),
        ("a payload in hex", _payload_is(lambda payload: isinstance(payload, dict))),
    ),
)


def _programs(seen: Observation) -> frozenset[str]:
    found = set()
    for address, actor in seen.genesis.actors.items():
        if actor.code != "builtin:script":
            found.add("0x" + address.hex())
    return frozenset(found)


def _program_ran(seen: Observation) -> bool:
    programs = _programs(seen)
    return any(
        each.given.get("to", "").lower() in programs and each.shown["status"] == "ok" and each.given["kind"] == "call"
        for each in seen.executed
    )


def _loads_once(seen: Observation) -> bool:
    """Whether two runs of a program in one block had different prices for the same call."""
    programs = _programs(seen)
    for block in seen.blocks:
        costs: dict[str, set[int]] = {}
        for given, shown in zip(block.given.get("txs", ()), block.page["txs"], strict=False):
            if given.get("to", "").lower() in programs and given["kind"] == "call" and shown["status"] == "ok":
                costs.setdefault(f"{given['to']} {given['handler']} {given['payload']}", set()).add(shown["cycles"])
        if any(len(found) > 1 for found in costs.values()):
            return True
    return False


def _code_with(word: str) -> Callable[[Observation], bool]:
    return lambda seen: _program_ran(seen) and any(word in actor.code for actor in seen.genesis.actors.values())


def _program_bids(seen: Observation) -> bool:
    return any(
        query.outcome == "ok"
        and not query.agent
        and (actor := seen.genesis.actors.get(Address(query.actor))) is not None
        and GAS_BID in actor.code
        for _, query in seen.queries
    )


PROGRAM_RULES: Final = rules_of(
    "P",
    (
        ("a handler of a program runs", _program_ran),
        ("loading is paid once a block", _loads_once),
        ("UnknownHandler", failing("UnknownHandler")),
        ("BadPayload", failing("BadPayload")),
        ("ActorError and others revert", failing("ActorError", "AssertionError", "ZeroDivisionError", "KeyError")),
        ("publish and published", _code_with("publish(")),
        ("origin_hash", _code_with("origin_hash")),
        ("pending", _code_with("pending(")),
        ("get_gas_bid bids", _program_bids),
        ("set_bidding_agent names a contract", _code_with("set_bidding_agent(")),
    ),
)


def _callback(check: Callable[[Any], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(check(run) for block in seen.blocks for run in block.page.get("callbacks", ()))


JOB_RULES: Final = rules_of(
    "J",
    (
        ("a job is requested", showing("JobRequested")),
        ("JobPayloadTooLarge", failing("JobPayloadTooLarge")),
        ("JobHandlerInvalid", failing("JobHandlerInvalid")),
        ("JobResultsInvalid", failing("JobResultsInvalid")),
        ("JobLimitReached", failing("JobLimitReached")),
        ("NotRunner", failing("NotRunner")),
        ("BadSubmission", failing("BadSubmission")),
        ("ResultTooLarge", failing("ResultTooLarge")),
        ("UnknownJob", failing("UnknownJob")),
        ("JobComplete", failing("JobComplete")),
        ("AlreadySubmitted", failing("AlreadySubmitted")),
        ("a result counts", showing("JobResultSubmitted")),
        ("the last result completes the job", showing("JobCompleted")),
        ("a callback consumes its job", _callback(lambda run: run["consumed"])),
        ("JobNotConsumed", showing("JobNotConsumed")),
        ("JobNotReady", failing("JobNotReady")),
        ("AlreadyConsumed", failing("AlreadyConsumed")),
        ("register_runner", showing("RunnerRegistered")),
        ("unregister_runner", showing("RunnerUnregistered")),
        ("registering is for system deployers", failing("NotSystemDeployer")),
        ("the runner contract has no other handlers", failing_in("txs", "UnknownHandler")),
    ),
)


def _change(check: Callable[[Change], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(check(change) for block in seen.blocks for change in block.outcome.changes)


def _of(prefix: bytes, *, added: bool = False, removed: bool = False) -> Callable[[Change], bool]:
    """Whether a change is of records under a prefix, and adds or removes one if that is asked for."""

    def check(change: Change) -> bool:
        is_added, is_removed = change.before is None, change.after is None
        return change.key[:1] == prefix and (is_added or not added) and (is_removed or not removed)

    return check


def _value_changes(change: Change) -> bool:
    return change.key[:1] == STORAGE and None not in (change.before, change.after) and change.before != change.after


def _tier(name: str) -> Callable[[Observation], bool]:
    return lambda seen: any(block.page["tiers"][name] for block in seen.blocks)


STATE_RULES: Final = rules_of(
    "R",
    (
        ("a new key", _change(_of(STORAGE, added=True))),
        ("a new value under a key", _change(_value_changes)),
        ("a removed key", _change(_of(STORAGE, removed=True))),
        ("keys of more than 256 bytes go by their hash", _change(_of(LONG_STORAGE, added=True))),
        ("a timer's record", _change(_of(TIMER, added=True))),
        ("a fired timer's record is gone", _change(_of(TIMER, removed=True))),
        ("a long payload is stored apart", _change(_of(TIMER_PAYLOAD, added=True))),
        ("the default agent's supply is a record", _change(_of(SUPPLY, added=True))),
        ("a supply on which no timer depends is removed", _change(_of(SUPPLY, removed=True))),
        ("a waiting message's record", _change(_of(MESSAGE, removed=True))),
        ("the fires of a block", _change(_of(FIRES, added=True))),
        ("fires that left the window are removed", _change(_of(FIRES, removed=True))),
        ("the overflow tree has a root", _change(_of(OVERFLOW, added=True))),
        ("the calendar's epoch queue", _tier("epoch")),
        ("the memory of queries", _change(_of(BID_MEMORY, added=True))),
    ),
)
