"""Rules of messages, system instructions, scripts, Python actors, jobs and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster.tools.inspect.conform.cases.dice import payload_bytes
from cluster.tools.inspect.conform.cases.running_chain import ExecutedBlock
from cluster.tools.inspect.conform.rules.observation import Observation
from cluster.tools.inspect.conform.rules.rule import failing, failing_in, operating, rules_of, showing
from validator.chain.records import (
    ACCOUNT,
    BID_MEMORY,
    FIRES,
    JOB,
    JOB_END,
    LONG_STORAGE,
    MEDIAN_FIRES,
    MESSAGE,
    OVERFLOW,
    STORAGE,
    SUPPLY,
    TIMER,
    TIMER_PAYLOAD,
    Account,
    Job,
)
from validator.chain.transactions import SCRIPT_CODE
from validator.execution.jobs import JOBS_ENDED_PER_BLOCK
from validator.primitives.types import address_text
from validator.pvm.language.api import GAS_BID
from validator.state.engine import SECTION_HEAD, SectionHead
from validator.state.hashing import COMPACTION_SLACK, decode_entry, entry_bytes
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


def _has_escapes(payload: Any) -> bool:
    """Whether a payload is a list with a text that its JSON escapes."""
    return isinstance(payload, list) and b"\\" in payload_bytes(payload)


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
        ("a payload as a list is JSON in ASCII", _payload_is(_has_escapes)),
    ),
)


def _programs(seen: Observation) -> dict[str, str]:
    """Source of the actors that run programs, by address."""
    codes = {address_text(address): actor.code for address, actor in seen.genesis.actors.items()} | seen.created
    return {address: code for address, code in codes.items() if code != SCRIPT_CODE}


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
    return lambda seen: _program_ran(seen) and any(word in code for code in _programs(seen).values())


def _program_bids(seen: Observation) -> bool:
    return any(
        query.outcome == "ok" and not query.agent and GAS_BID in _programs(seen).get(address_text(query.actor), "")
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


def _change(check: Callable[[Change], bool]) -> Callable[[Observation], bool]:
    return lambda seen: any(check(change) for block in seen.blocks for change in block.outcome.changes)


def _of(prefix: bytes, *, added: bool = False, removed: bool = False) -> Callable[[Change], bool]:
    """Whether a change is of records under a prefix, and adds or removes one if that is asked for."""

    def check(change: Change) -> bool:
        is_added, is_removed = change.before is None, change.after is None
        return change.key[:1] == prefix and (is_added or not added) and (is_removed or not removed)

    return check


def _ends_of_jobs(seen: Observation) -> dict[str, int]:
    """The last block of each job that was requested, by the job's id in hex."""
    changes = (change for block in seen.blocks for change in block.outcome.changes)
    ends: list[Any] = [change.after for change in changes if _of(JOB_END, added=True)(change)]
    return {end.job_id.hex(): end.height for end in ends}


def _counts_in_the_last_block(seen: Observation) -> bool:
    ends = _ends_of_jobs(seen)
    return any(
        event["name"] == "JobResultSubmitted" and ends.get(event["job_id"]) == seen.height(block)
        for block in seen.blocks
        for event in block.page["events"]
    )


def _callback_after_the_end(seen: Observation) -> bool:
    ends = _ends_of_jobs(seen)
    return any(
        ends.get(run["job_id"], seen.height(block)) < seen.height(block)
        for block in seen.blocks
        for run in block.page.get("callbacks", ())
    )


def _removed_at_the_end(check: Callable[[Job], bool]) -> Callable[[Observation], bool]:
    """Reached by a job that is removed in its last block or later, and was like that before."""

    def reached(seen: Observation) -> bool:
        removed: list[tuple[int, Any]] = [
            (seen.height(block), change.before)
            for block in seen.blocks
            for change in block.outcome.changes
            if _of(JOB, removed=True)(change)
        ]
        return any(job.ends_at <= height and check(job) for height, job in removed)

    return reached


def _removes_many(seen: Observation) -> bool:
    return any(
        sum(_of(JOB_END, removed=True)(change) for change in block.outcome.changes) == JOBS_ENDED_PER_BLOCK
        for block in seen.blocks
    )


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
        ("a result counts in the last block of a job", _counts_in_the_last_block),
        ("an incomplete job is gone after its end", _removed_at_the_end(lambda job: not job.is_complete)),
        ("a complete job stays until its callback", _callback_after_the_end),
        ("a consumed job is remembered until its end", _removed_at_the_end(lambda job: job.consumed)),
        ("the records of 128 jobs are removed in a block", _removes_many),
    ),
)


def _value_changes(change: Change) -> bool:
    return change.key[:1] == STORAGE and None not in (change.before, change.after) and change.before != change.after


def _tier(name: str) -> Callable[[Observation], bool]:
    return lambda seen: any(block.page["tiers"][name] for block in seen.blocks)


def _is_near_beyond_the_horizon(seen: Observation) -> bool:
    """Whether a timer was scheduled for an epoch beyond the horizon, and within the ring's reach."""
    return any(
        timer.trigger_height // block.parameters.epoch_length
        > seen.height(block) // block.parameters.epoch_length + block.parameters.epoch_horizon
        and timer.trigger_height < seen.height(block) + block.parameters.ring_buffer_size
        and timer.trigger_height <= timer.expires_at
        for block, timer in seen.scheduled
    )


def _enters_the_ring_with_its_epoch(seen: Observation) -> bool:
    """Whether a timer that was out of the ring's reach waits in its epoch, and is not due in the next block."""
    return any(
        scheduled.height <= seen.height(block) < timer.trigger_height - 1
        and timer.trigger_height >= scheduled.height + block.parameters.ring_buffer_size
        and timer.trigger_height // block.parameters.epoch_length == seen.height(block) // block.parameters.epoch_length
        and bool(block.page["tiers"]["ring"])
        for scheduled, timer in ((where.outcome.receipts, timer) for where, timer in seen.scheduled)
        for block in seen.blocks
    )


def _takes_numbers_back(seen: Observation) -> bool:
    """Whether a script that failed had scheduled or sent before."""
    return any(
        each.shown["error"] == "ScriptFailed"
        and isinstance(script := each.given.get("payload"), list)
        and any(operation[0] in ("schedule", "send") for operation in script)
        for each in seen.executed
    )


def _compacts(seen: Observation) -> bool:
    """Whether an entry of the state's log has the value and the next key of the one before it: it only moved."""
    if sum(_entries_in(block) for block in seen.blocks) < COMPACTION_SLACK:
        return False
    kept: dict[bytes, tuple[bytes, bytes]] = {}
    for block in seen.blocks:
        cursor = SECTION_HEAD.size
        for _ in range(_entries_in(block)):
            end = cursor + entry_bytes(block.section, cursor)
            entry = decode_entry(block.section[cursor:end])
            cursor = end
            if kept.get(entry.key) == (entry.value, entry.next_hash):
                return True
            kept[entry.key] = entry.value, entry.next_hash
    return False


def _entries_in(block: ExecutedBlock) -> int:
    """Number of entries that a block appended to the state's log."""
    return SectionHead.decode(block.section, 0).entries if block.section else 0


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
        ("the oldest active entry is appended again", _compacts),
        ("a timer within the ring's reach is in no tree", _is_near_beyond_the_horizon),
        ("a timer of the epoch queue counts as ring in its epoch", _enters_the_ring_with_its_epoch),
        ("the smoothed median is bare bytes", _change(_of(MEDIAN_FIRES))),
        (
            "an empty account stays in state",
            _change(lambda change: change.key[:1] == ACCOUNT and change.after == Account()),
        ),
        ("a failing run takes its numbers back", _takes_numbers_back),
        (
            "an account of the genesis is in state without a balance, too",
            lambda seen: 0 in seen.genesis.accounts.values(),
        ),
    ),
)
