"""The ledger on jobs: right ones pass in silence, each planted fault is named. Real blocks first, also of validators
with a fault, then made ones with one fault each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from cluster.audit.ledger import jobs as job_books
from cluster.audit.ledger.context import CHAIN, CONSERVATION
from cluster.audit.ledger.ledger import Ledger
from cluster.disks.memory import MemoryDisk
from tests.cluster.audit.ledger.test_lanes import all_words, require_agreement, require_named, words
from tests.cluster.records import ACTOR, FUNDS, OTHER, PRICE, USER_ADDRESS, ChainMaker, make_genesis
from tests.validator import chains as small
from tests.validator import job_chain
from tests.validator.execution.test_jobs_model import LIMITS, MessagesFirst, plant, small_limits
from tests.validator.executors import Author, wire
from tests.validator.job_chain import RUNNERS, appointment, job_genesis, request_call, submission
from validator.chain.block import Effects, Event, Movement
from validator.chain.records import JOB, decode_record
from validator.chain.transactions import Call
from validator.execution import jobs
from validator.execution.jobs import job_id_of
from validator.node.executor.executor import Executor
from validator.primitives.codec import encode, pack_uint
from validator.primitives.types import RUNNER_CONTRACT_ADDRESS, Address, address_text
from validator.transition.transition import Transition

# --- real blocks ------------------------------------------------------------------------------------------------------


CALLBACKS = ("consume", "consume twice", "send two", "ignore", "fail", "burn")
ROOM = {"gas_limit": 300_000, "cells_limit": 60_000}


def author_of(**params: Any) -> Author:
    return Author(job_genesis(RUNNERS[:2], **{"MESSAGE_CYCLES": 20_000, "LANE_DEFERRED_CYCLES": 24_000, **params}))


def wires_of(author: Author, random: Random, ids: list[bytes]) -> list[bytes]:
    """Requests of two actors, results for old and new jobs, appointments, messages and attempts to consume."""
    nonces = [author.executor.pages.account(user)["nonce"] for user in small.USERS]
    wires = []

    def add(user: int, call: Call) -> None:
        wires.append(wire(nonces[user], user=user, action=call, **ROOM))
        nonces[user] += 1

    for _ in range(random.randrange(12)):
        known = random.choice(ids[-5:]) if ids else bytes(32)
        match random.randrange(12):
            case 0 | 1:
                wanted = [(b"task", random.choice((0, 1, 1, 2)), random.choice(CALLBACKS)) for _ in range(2)]
                add(0, request_call(*wanted[: random.choice((1, 2))], actor=random.choice((ACTOR_A, ACTOR_B))))
            case 2:
                add(0, appointment(random.choice(RUNNERS), random.random() < 0.9))
            case 3:
                add(0, Call(ACTOR_A, "take", encode(known)))
            case 4:
                add(0, Call(ACTOR_A, "run", small.script(["send", MESSAGE])))
            case 5:
                add(random.randrange(4), Call(RUNNER_CONTRACT_ADDRESS, random.choice(HANDLERS), random.randbytes(3)))
            case _:
                size = 8_193 if random.random() < 0.1 else 2
                add(random.choice((0, 1, 1, 2, 2, 3)), submission(known, bytes(size)))
    return wires


ACTOR_A, ACTOR_B = small.ACTORS[:2]
HANDLERS = ("submit_result", "register_runner", "unregister_runner", "other")
MESSAGE = {"to": address_text(ACTOR_B), "handler": "run", "payload": [["burn", 9_000]], "cycles": 15_000, "cells": 0}


def books_of(author: Author) -> Ledger:
    """Empty books that know that its actors run no scripts, but handlers of the tests."""
    ledger = Ledger(author.genesis)
    ledger.accounts.scripts.clear()
    return ledger


def walk(author: Author, heights: int, ledger: Ledger | None = None) -> Ledger:
    """Build random blocks and enter each into the books, which agree with the state each time, unless they are given:
    then they are of a faulty validator."""
    checks, random, ids = ledger is None, Random(5), list[bytes]()
    ledger = books_of(author) if ledger is None else ledger
    for _ in range(heights):
        built = author.build(None, *wires_of(author, random, ids))
        author.finalize(built.digest)
        view = author.executor.final_view
        ids += sorted(key[1:] for key, _ in view.scan(JOB) if key[1:] not in ids)
        archived = author.executor.archive.get(ledger.height + 1)
        assert archived is not None
        ledger.apply(archived.block, archived.receipts)
        if checks:
            assert ledger.log.violations == []
            require_agreement(ledger, view)
            require_jobs(ledger, {key[1:]: decode_record(key, value) for key, value in view.scan(JOB)})
    return ledger


def require_jobs(ledger: Ledger, held: dict[bytes, Any]) -> None:
    """The jobs that state knows are those that the books say, with the runners that the books say."""
    for key, job in held.items():
        life = ledger.jobs.jobs[key]
        assert (life.actor, life.handler, life.results_needed) == (job.actor, job.handler, job.results_needed)
        assert life.runners == tuple(address_text(runner) for runner in job.runners)
        assert (life.completed_at is not None, life.consumed_at is not None) == (job.is_complete, job.consumed)
    for key, life in ledger.jobs.jobs.items():
        unsettled = life.consumed_at is None and not life.is_gone(ledger.height + 1)
        assert (key in held and not held[key].consumed) == unsettled


@pytest.fixture
def patched() -> Any:
    with small_limits() as patch:
        patch.setattr(jobs, "JOBS_ENDED_PER_BLOCK", 100)
        for limit in ("JOB_LIFETIME_BLOCKS", "JOBS_PER_ACTOR", "CALLBACKS_PER_BLOCK"):
            patch.setattr(job_books, limit, getattr(jobs, limit))
        yield patch


@pytest.mark.usefixtures("patched")
def test_the_books_follow_real_jobs() -> None:
    ledger = walk(author_of(), 120)
    assert 5 < ledger.jobs.consumed < ledger.jobs.requested
    assert len(ledger.jobs.jobs) < ledger.jobs.requested / 2, "what is over is forgotten"
    assert ledger.messages > 5


def faulty_words(transition: type[Transition] = Transition) -> str:
    """What the books say of a faulty validator's blocks, up to where it breaks down by itself."""
    author = author_of()
    author.executor = Executor(MemoryDisk(), author.genesis, transition=transition)
    ledger = books_of(author)
    with suppress(AssertionError):
        walk(author, 80, ledger)
    return "\n".join(violation.what for violation in ledger.log.violations)


FAULTY: list[tuple[str, str, str, str]] = [
    ("_submit_result", "if runner in job.runners:", "if False:", "which should have said AlreadySubmitted"),
    ("_submit_result", "if not is_runner(world, runner):", "if False:", "which should have said NotRunner"),
    ("_submit_result", "if len(given.result) > jobs.MAX_RESULT_BYTES:", "if False:", "should have said ResultTooLarge"),
    ("_submit_result", "if job is None:", "if job is None or len(job.runners):", "which should have taken it"),
    ("run", "if context.sender not in deployers:", "if False:", "which should have said"),
    ("run", "registers = handler == REGISTER_RUNNER", "registers = True", "did something else than its call"),
    (
        "first_waiting",
        "completion.height >= height",
        "completion.height > height",
        "in the block that completed its job",
    ),
    ("first_waiting", "completion.height >= height", "completion.height >= height - 1", "was passed over"),
    ("consume", "if job_id != callback_of:", "if False:", "whose callback it is not"),
    ("consume", "if job.consumed:", "if False:", "which was consumed at height"),
    ("request", "height + JOB_LIFETIME_BLOCKS", "height + JOB_LIFETIME_BLOCKS - 3", "which should have taken it"),
    ("request", "mine.unsettled >= JOBS_PER_ACTOR", "False", "that an actor may have"),
    ("request", "ActorJobs(mine.nonce + 1,", "ActorJobs(mine.nonce,", "a second time"),
]


@pytest.mark.usefixtures("patched")
def test_the_blocks_of_a_right_validator_are_not() -> None:
    assert faulty_words() == ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "old", "new", "expected"), FAULTY)
def test_the_blocks_of_faulty_validators_are_named(
    patched: pytest.MonkeyPatch, name: str, old: str, new: str, expected: str
) -> None:
    plant(patched, name, old, new)
    assert expected in faulty_words()


@pytest.mark.usefixtures("patched")
def test_messages_before_callbacks_are_named() -> None:
    assert "messages ran, though the callback of job" in faulty_words(MessagesFirst)


# --- made blocks ------------------------------------------------------------------------------------------------------


JOB_ID = job_id_of(ACTOR, 0, b"task")
NEXT_ID = job_id_of(ACTOR, 1, b"task")
PAID = (101_500, 10_200)
SECOND = Address(b"\x22" * 20)

Plant = Callable[[ChainMaker], Any]


def maker_of_jobs(**params: Any) -> ChainMaker:
    return ChainMaker(make_genesis(params, runners=(USER_ADDRESS,)))


def protocol(name: str, job_id: bytes, *more: tuple[str, str], actor: Address = ACTOR) -> Event:
    return Event(name, actor, (("job_id", job_id.hex()), *more))


def requested(job_id: bytes = JOB_ID, needed: str = "1", actor: Address = ACTOR) -> Event:
    return protocol("JobRequested", job_id, ("handler", "back"), ("results_needed", needed), actor=actor)


def request(maker: ChainMaker, *events: Event, use: tuple[int, int] = PAID, **changes: Any) -> None:
    maker.transact(Call(ACTOR, "request", b""), Effects(events=events or (requested(),)), use=use, **changes)


def result(maker: ChainMaker, job_id: bytes = JOB_ID, completes: bool = True, **changes: Any) -> None:
    """The user's result; ``changes`` plant faults in the receipt."""
    events = [protocol("JobResultSubmitted", job_id, ("runner", address_text(USER_ADDRESS)))]
    events += [protocol("JobCompleted", job_id)] if completes else []
    maker.transact(submission(job_id), changes.pop("effects", Effects(events=tuple(events))), **changes)


def completed(maker: ChainMaker, *ids: bytes) -> None:
    """Jobs that are complete before the block that is being made."""
    for job_id in ids or (JOB_ID,):
        request(maker, requested(job_id))
        result(maker, job_id)
    maker.seal()


def refused(maker: ChainMaker, error: str, call: Call | None = None) -> None:
    maker.transact(submission(JOB_ID) if call is None else call, ok=False, error=error)


def test_a_right_job_passes_and_costs_nobody_anything_when_it_comes() -> None:
    maker = maker_of_jobs()
    completed(maker)
    moved = Effects((Movement(ACTOR, OTHER, pack_uint(9)),), events=(protocol("JobConsumed", JOB_ID),))
    maker.callback(JOB_ID, moved)
    maker.message()
    maker.seal()
    assert all_words(maker) == ""
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    assert (ledger.accounts.balances[ACTOR], ledger.accounts.balances[OTHER]) == (FUNDS - 9, 9)
    life = ledger.jobs.jobs[JOB_ID]
    assert (life.requested_at, life.completed_at, life.called_back_at, life.consumed_at) == (1, 1, 2, 2)


def unsettled(job_id: bytes = JOB_ID) -> dict[str, Any]:
    return {"unsettled": protocol("JobNotConsumed", job_id)}


def test_right_jobs_that_are_not_consumed_pass_too() -> None:
    maker = maker_of_jobs()
    completed(maker, JOB_ID, NEXT_ID)
    maker.callback(JOB_ID, Effects(), **unsettled())
    maker.callback(NEXT_ID, Effects(), ok=False, error="OutOfCycles", cycles=100_000, **unsettled(NEXT_ID))
    maker.seal()
    refused(maker, "UnknownJob")
    maker.seal()
    assert all_words(maker) == ""


def test_right_calls_of_the_contract_pass() -> None:
    maker = maker_of_jobs()
    request(maker, requested(needed="2"))
    result(maker, completes=False)
    refused(maker, "AlreadySubmitted")
    refused(maker, "UnknownJob", submission(NEXT_ID))
    refused(maker, "ResultTooLarge", submission(JOB_ID, bytes(8_193)))
    refused(maker, "BadSubmission", Call(RUNNER_CONTRACT_ADDRESS, "submit_result", b""))
    refused(maker, "OutOfCells")
    registered = Event("RunnerRegistered", RUNNER_CONTRACT_ADDRESS, (("runner", address_text(SECOND)),))
    maker.transact(appointment(SECOND), Effects(events=(registered,)))
    maker.transact(appointment(SECOND))
    refused(maker, "BadSubmission", appointment(b""))
    refused(maker, "UnknownHandler", Call(RUNNER_CONTRACT_ADDRESS, "other", b""))
    dismissed = Event("RunnerUnregistered", RUNNER_CONTRACT_ADDRESS, (("runner", address_text(USER_ADDRESS)),))
    maker.transact(appointment(USER_ADDRESS, registers=False), Effects(events=(dismissed,)))
    refused(maker, "NotRunner")
    maker.seal()
    assert all_words(maker) == ""


def test_what_an_actor_emits_is_no_event_of_the_protocol() -> None:
    maker = maker_of_jobs()
    forged = [Event(name, ACTOR, (("data", JOB_ID.hex()),)) for name in ("JobRequested", "JobConsumed", "JobCompleted")]
    maker.message(Effects(events=tuple(forged)))
    maker.seal()
    assert all_words(maker) == ""


def test_jobs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for height, error in ((4, "UnknownJob"), (3, "")):
        monkeypatch.setattr(job_books, "JOB_LIFETIME_BLOCKS", LIMITS["LIFETIME_BLOCKS"][1] - 4)
        maker = maker_of_jobs()
        request(maker)
        while maker.height < height:
            maker.seal()
        result(maker)
        maker.seal()
        assert (f"should have said {error}" in words(maker, CHAIN)) == bool(error)


def called_at_once(maker: ChainMaker) -> None:
    request(maker)
    result(maker)
    maker.callback(JOB_ID)


def called_early(maker: ChainMaker) -> None:
    request(maker, requested(needed="2"))
    result(maker, completes=False)
    maker.seal()
    maker.callback(JOB_ID)


def called_twice(maker: ChainMaker) -> None:
    completed(maker)
    maker.callback(JOB_ID, Effects(), **unsettled())
    maker.seal()
    maker.callback(JOB_ID)


def consumed_twice(maker: ChainMaker) -> None:
    completed(maker)
    maker.callback(JOB_ID, Effects(events=(protocol("JobConsumed", JOB_ID),) * 2))


def consumed_elsewhere(maker: ChainMaker) -> None:
    completed(maker)
    maker.callback(JOB_ID)
    maker.message(Effects(events=(protocol("JobConsumed", JOB_ID),)))


def consumed_by_another(maker: ChainMaker) -> None:
    completed(maker, JOB_ID, NEXT_ID)
    maker.callback(JOB_ID, Effects(events=(protocol("JobConsumed", NEXT_ID),)), **unsettled())


def called_out_of_turn(maker: ChainMaker) -> None:
    completed(maker, JOB_ID, NEXT_ID)
    maker.callback(NEXT_ID)


def passed_over(maker: ChainMaker) -> None:
    completed(maker)
    maker.seal()


def overtaken(maker: ChainMaker) -> None:
    maker.genesis = make_genesis({"LANE_DEFERRED_CYCLES": 100_000}, runners=(USER_ADDRESS,))
    completed(maker, JOB_ID, NEXT_ID)
    maker.callback(JOB_ID)
    maker.message()


def callback_with(**changes: Any) -> Plant:
    def run(maker: ChainMaker) -> None:
        completed(maker)
        maker.callback(JOB_ID, **changes)

    return run


def requested_with(*events: Event, **more: Any) -> Plant:
    return lambda maker: request(maker, *events, **more)


def taken_wrongly(*events: Event, call: Call) -> Plant:
    return lambda maker: maker.transact(call, Effects(events=events))


def left_by_a_message(event: Event) -> Plant:
    return lambda maker: maker.message(Effects(events=(event,)))


def refused_with(error: str) -> Plant:
    def run(maker: ChainMaker) -> None:
        request(maker)
        refused(maker, error)

    return run


def late_result(maker: ChainMaker) -> None:
    completed(maker)
    result(maker, completes=False)


def more_of_a_fire(maker: ChainMaker) -> None:
    timer = maker.schedule(1)
    maker.seal()
    events = tuple(requested(job_id_of(ACTOR, number, b"")) for number in range(2))
    fee = pack_uint(2_000 * 2 * PRICE + 10 * PRICE)
    maker.fire(timer, effects=Effects(events=events), burned=fee)


def three_by_a_message(maker: ChainMaker) -> None:
    events = tuple(requested(job_id_of(ACTOR, number, b"")) for number in range(3))
    maker.message(Effects(events=events), cycles=100_000)


def beyond_the_limit(maker: ChainMaker) -> None:
    for first in range(0, 66, 6):
        events = tuple(requested(job_id_of(ACTOR, first + number, b"")) for number in range(6))
        request(maker, *events, use=(700_000, 60_200))


def silent_completion(maker: ChainMaker) -> None:
    request(maker)
    result(maker, completes=False)


STRANGER = Address(b"\x33" * 20)
FAULTS: list[tuple[Plant, str, str]] = [
    (called_at_once, CHAIN, "ran in the block that completed its job"),
    (called_early, CHAIN, "ran with 1 of 2 results"),
    (called_twice, CHAIN, "ran a second time; the first was at height 2"),
    (consumed_twice, CHAIN, "which was consumed at height 2"),
    (consumed_elsewhere, CHAIN, "whose callback it is not"),
    (consumed_by_another, CHAIN, "whose callback it is not"),
    (called_out_of_turn, CHAIN, "which was complete earlier"),
    (passed_over, CHAIN, "was passed over, though it fitted in the lane"),
    (overtaken, CHAIN, "messages ran, though the callback of job"),
    (lambda maker: maker.callback(JOB_ID), CHAIN, "belongs to no job"),
    (callback_with(actor=OTHER), CHAIN, "called another actor or handler than its job says"),
    (callback_with(handler="other"), CHAIN, "called another actor or handler than its job says"),
    (callback_with(cycles=999), CONSERVATION, "used 999 cycles, which none can"),
    (callback_with(cycles=100_001), CONSERVATION, "used 100001 cycles, which none can"),
    (callback_with(cells=10_001), CONSERVATION, "used 10001 cells, which none can"),
    (callback_with(ok=False, error="Stop"), CONSERVATION, "reverted but left effects behind"),
    (callback_with(ok=True, error="Stop"), CHAIN, "succeeded with error"),
    (callback_with(effects=Effects()), CHAIN, "did not consume its job and does not say so"),
    (callback_with(effects=Effects(), **unsettled(NEXT_ID)), CHAIN, "did not consume its job and does not say so"),
    (callback_with(**unsettled()), CHAIN, "consumed its job and denies it"),
    (
        callback_with(effects=Effects((Movement(USER_ADDRESS, ACTOR, b"\1"),)), **unsettled()),
        CONSERVATION,
        "which it does not own",
    ),
    (requested_with(use=(101_499, 10_200)), CONSERVATION, "too few for that"),
    (requested_with(use=(101_500, 9_999)), CONSERVATION, "too few for that"),
    (requested_with(requested(), requested(NEXT_ID)), CONSERVATION, "requested 2 jobs and paid 101500 cycles"),
    (requested_with(requested(), requested(), use=(300_000, 30_000)), CHAIN, "a second time"),
    (requested_with(requested(needed="0")), CHAIN, "with 0 results"),
    (requested_with(requested(needed="17")), CHAIN, "with 17 results"),
    (requested_with(requested(needed="x")), CHAIN, "with x results"),
    (requested_with(requested(needed="9" * 5_000)), CHAIN, "with 99999999999999999999 results"),
    (requested_with(requested(actor=OTHER)), CHAIN, "left an event JobRequested of 0x" + OTHER.hex()),
    (requested_with(protocol("JobCompleted", JOB_ID)), CHAIN, "which only the runner contract does"),
    (more_of_a_fire, CONSERVATION, "too few for that"),
    (three_by_a_message, CONSERVATION, "requested 3 jobs of at most 2"),
    (beyond_the_limit, CHAIN, "beyond the 64 that an actor may have"),
    (left_by_a_message(protocol("JobConsumed", JOB_ID)), CHAIN, "which was never requested"),
    (left_by_a_message(Event("RunnerRegistered", ACTOR, (("runner", ""),))), CHAIN, "which only the runner contract"),
    (taken_wrongly(call=submission(JOB_ID)), CHAIN, "should have said UnknownJob"),
    (taken_wrongly(call=Call(RUNNER_CONTRACT_ADDRESS, "other", b"")), CHAIN, "should have said UnknownHandler"),
    (taken_wrongly(call=appointment(SECOND)), CHAIN, "did something else than its call of the runner contract"),
    (refused_with("NotRunner"), CHAIN, "with NotRunner, which should have taken it"),
    (lambda maker: refused(maker, "JobComplete"), CHAIN, "with JobComplete, which should have said UnknownJob"),
    (late_result, CHAIN, "should have said JobComplete"),
    (late_result, CHAIN, "gave a result for job"),
    (silent_completion, CHAIN, "did something else than its call of the runner contract"),
    (lambda maker: (request(maker), result(maker, NEXT_ID)), CHAIN, "which was never requested"),
]


@pytest.mark.parametrize(
    ("plant_fault", "check", "expected"), FAULTS, ids=[f"{n} {f[2]}" for n, f in enumerate(FAULTS)]
)
def test_a_job_that_breaks_a_rule_is_named(plant_fault: Plant, check: str, expected: str) -> None:
    require_named(maker_of_jobs(), plant_fault, check, expected)


def test_a_block_holds_so_many_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_books, "CALLBACKS_PER_BLOCK", 1)
    for count, said in ((1, ""), (2, "2 callbacks ran of at most 1")):
        maker = maker_of_jobs()
        completed(maker, JOB_ID, NEXT_ID)
        for job_id in (JOB_ID, NEXT_ID)[:count]:
            maker.callback(job_id)
        maker.seal()
        assert all_words(maker) == said


def test_evidence_without_a_block_is_read_by_its_events() -> None:
    maker = maker_of_jobs()
    request(maker)
    result(maker)
    record = maker.seal()
    ledger = Ledger(maker.genesis)
    ledger.apply_evidence(record.receipts)
    assert ledger.log.violations == []
    assert ledger.jobs.jobs[JOB_ID].completed_at == 1
    maker.callback(JOB_ID)
    maker.seal()
    ledger.apply_evidence(maker.blocks[1].receipts)
    assert ledger.log.violations == []
    assert ledger.jobs.consumed == 1


def test_job_chains_programs_are_those_of_the_tests(patched: pytest.MonkeyPatch) -> None:
    """The real dispatch knows nothing of these handlers: the walks above would request nothing."""
    patched.undo()
    assert job_chain.HANDLERS
    assert walk(author_of(), 10).jobs.jobs == {}


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (request, f"requested job {JOB_ID.hex()[:16]} a second time"),
        (lambda maker: maker.callback(JOB_ID), "ran, though its job was consumed at height 2"),
        (lambda maker: result(maker, completes=False), "which was consumed at height 2"),
    ],
)
def test_a_job_that_is_forgotten_is_over(monkeypatch: pytest.MonkeyPatch, plant: Plant, expected: str) -> None:
    monkeypatch.setattr(job_books, "JOB_LIFETIME_BLOCKS", 3)
    maker = maker_of_jobs()
    completed(maker, JOB_ID)
    maker.callback(JOB_ID)
    maker.seal()
    for _ in range(3):
        maker.seal()
    ledger = Ledger(maker.genesis)
    for record in maker.blocks:
        ledger.apply(record.block, record.receipts)
    assert not ledger.jobs.jobs
    assert ledger.log.violations == []
    plant(maker)
    maker.seal()
    assert expected in all_words(maker)
