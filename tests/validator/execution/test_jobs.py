"""Jobs: what they cost, who may do what, when callbacks run, what is kept, and that branches do not meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cluster.disks.memory import MemoryDisk
from tests.validator import job_chain
from tests.validator.chain.test_block import variants
from tests.validator.chains import ACTOR, ALICE, BOB, OTHER, PRICE, RICH, Chain, make_genesis, number, schedule
from tests.validator.executors import Author, wire
from tests.validator.job_chain import RUNNERS, JobChain, appointment, job_genesis, request_call, submission
from tests.validator.transition.test_policies import send
from validator.chain.block import BlockReceipts, CallbackReceipt, Effects, Event, receipts_root
from validator.chain.genesis import GenesisError
from validator.chain.records import ActorJobs, Job, JobCounters, actor_jobs_key, job_key, job_payload_key
from validator.chain.transactions import Call
from validator.execution import jobs
from validator.execution.handler_context import HandlerContext
from validator.execution.mailbox import MESSAGES_PER_DEFERRED_RUN
from validator.execution.timer_calls import SchedulingTerms
from validator.node.executor.executor import Executor
from validator.policies.cip1 import Cip1Phase
from validator.primitives.codec import CodecError, decode, encode, keccak256
from validator.primitives.errors import OutOfCells, OutOfCycles, Rejection
from validator.primitives.meter import Meter
from validator.primitives.types import RUNNER_CONTRACT_ADDRESS, Address, address_text
from validator.state import View
from validator.state.working_set import World
from validator.transition.genesis_block import genesis_batch
from validator.transition.transition import DeferredLane, Transition

SECOND, THIRD = RUNNERS[1:]
REQUEST_CYCLES, REQUEST_CELLS = 100_500, 10_000
TX = 1_000


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    job_chain.install(monkeypatch)


def chain_with(**params: Any) -> JobChain:
    return JobChain(job_genesis(**params))


def host(cycles: int = 10**6, cells: int = 10**6, left: int = 2, callback_of: bytes = b"") -> HandlerContext:
    chain = Chain()
    terms = SchedulingTerms(1, PRICE, 0, chain.parameters, Cip1Phase.rules)
    return HandlerContext(
        World(chain.view),
        Meter(cycles, cells),
        ACTOR,
        ALICE,
        terms,
        messages_left=left,
        callback_of=callback_of,
    )


# --- the host calls ---------------------------------------------------------------------------------------------------


def test_a_request_pays_for_the_callbacks_run_whether_it_is_taken_or_not() -> None:
    for needed, left in ((1, 2), (0, 2), (1, 0)):
        context = host(left=left)
        try:
            context.request_job(b"12345", needed, "h")
        except Rejection:
            assert context.cycles_reserved == 0
        else:
            assert context.cycles_reserved == 100_000
        assert (context.meter.cycles_used, context.meter.cells_used) == (REQUEST_CYCLES, REQUEST_CELLS + 5)


def test_a_request_is_charged_before_its_arguments_are_looked_at() -> None:
    poor = host(cycles=REQUEST_CYCLES - 1)
    with pytest.raises(OutOfCycles):
        poor.request_job(b"12345", 0, "")
    assert not poor.world.changes()
    narrow = host(cells=REQUEST_CELLS + 4)
    with pytest.raises(OutOfCells):
        narrow.request_job(b"12345", 0, "")
    assert (narrow.meter.cycles_used, narrow.meter.cells_used) == (REQUEST_CYCLES, 0)
    assert not narrow.world.changes()


def test_consuming_costs_the_same_whatever_comes_of_it() -> None:
    context = host()
    with pytest.raises(Rejection, match="NotFound"):
        context.consume_result(b"\1" * 32)
    assert (context.meter.cycles_used, context.meter.cells_used) == (200, 0)
    with pytest.raises(OutOfCycles):
        host(cycles=199).consume_result(b"\1" * 32)


def test_a_job_has_an_id_of_its_own_that_anyone_can_recompute() -> None:
    context = host()
    ids = [context.request_job(b"same", 1, "h") for _ in range(2)]
    assert ids == [keccak256(ACTOR + nonce.to_bytes(8, "big") + b"same") for nonce in range(2)]
    assert context.events == [
        Event("JobRequested", ACTOR, (("job_id", job_id.hex()), ("handler", "h"), ("results_needed", "1")))
        for job_id in ids
    ]


REFUSED: list[tuple[str, bytes, int, str]] = [
    ("JobPayloadTooLarge", bytes(jobs.MAX_JOB_PAYLOAD_BYTES + 1), 0, ""),
    ("JobHandlerInvalid", b"", 0, ""),
    ("JobHandlerInvalid", b"", 1, "é" * 129),
    ("JobResultsInvalid", b"", 0, "h"),
    ("JobResultsInvalid", b"", -1, "h"),
    ("JobResultsInvalid", b"", jobs.MAX_RESULTS_NEEDED + 1, "h"),
]


@pytest.mark.parametrize(("error", "payload", "needed", "handler"), REFUSED)
def test_what_cannot_be_requested(error: str, payload: bytes, needed: int, handler: str) -> None:
    context = host()
    with pytest.raises(Rejection, match=error):
        context.request_job(payload, needed, handler)
    assert (context.messages_left, context.events, context.world.changes()) == (2, [], [])


def test_what_can_just_be_requested() -> None:
    context = host(left=1)
    context.request_job(bytes(jobs.MAX_JOB_PAYLOAD_BYTES), jobs.MAX_RESULTS_NEEDED, "é" * 128)
    with pytest.raises(Rejection, match="TooManyMessages"):
        context.request_job(b"", 0, "")


def test_messages_and_jobs_share_one_limit() -> None:
    context = host(left=MESSAGES_PER_DEFERRED_RUN)
    context.send(OTHER, "run", b"", 2_000, 0)
    context.request_job(b"", 1, "h")
    with pytest.raises(Rejection, match="TooManyMessages"):
        context.send(OTHER, "run", b"", 2_000, 0)
    with pytest.raises(Rejection, match="TooManyMessages"):
        context.request_job(b"", 1, "h")
    assert context.cycles_reserved == 102_000


def test_an_actor_has_room_for_so_many_jobs_and_others_do_not_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JOBS_PER_ACTOR", 2)
    chain = chain_with()
    assert chain.one(ALICE, request_call((b"", 1, "consume"), (b"", 1, "ignore"))).ok
    assert chain.one(ALICE, request_call((b"", 1, "consume"))).error == "JobLimitReached"
    assert chain.one(ALICE, request_call((b"", 1, "consume"), actor=OTHER)).ok
    for nonce in range(2):
        chain.answer(jobs.job_id_of(ACTOR, nonce, b""))
        chain.empty(1)
    assert chain.one(ALICE, request_call((b"", 1, "consume"), (b"", 1, "consume"))).ok
    assert chain.world().get(actor_jobs_key(ACTOR)) == ActorJobs(4, 2)


# --- the runner contract ----------------------------------------------------------------------------------------------


def test_the_contract_is_paid_by_who_calls_it() -> None:
    chain = chain_with()
    job_id = chain.request(needed=2)
    costs = {"submit_result": 1_000, "register_runner": 500, "unregister_runner": 500, "nothing": 0}
    for handler, cost in costs.items():
        call = Call(RUNNER_CONTRACT_ADDRESS, handler, b"12345")
        receipt = chain.one(BOB, call)
        assert (receipt.ok, receipt.cycles, receipt.cells) == (False, TX + cost, 5)
        short = chain.transaction(call, BOB, gas_limit=TX + max(cost - 1, 0))
        receipt = chain.block(short).receipts.transactions[0]
        assert receipt.error == ("OutOfCycles" if cost else "UnknownHandler")
    taken = submission(job_id)
    receipt = chain.one(BOB, taken)
    assert (receipt.ok, receipt.cycles, receipt.cells) == (True, TX + 1_000, len(taken.payload))
    chain.require_conservation()


def contract(handler: str, payload: bytes) -> Call:
    return Call(RUNNER_CONTRACT_ADDRESS, handler, payload)


KNOWN = jobs.job_id_of(ACTOR, 0, b"task")
REJECTED: list[tuple[str, Address, Call]] = [
    ("NotRunner", ALICE, submission(KNOWN)),
    ("NotRunner", ALICE, contract("submit_result", b"")),
    ("BadSubmission", BOB, contract("submit_result", b"")),
    ("BadSubmission", BOB, contract("submit_result", encode((KNOWN,)))),
    ("BadSubmission", BOB, contract("submit_result", encode((KNOWN, b"", b"")))),
    ("BadSubmission", BOB, contract("submit_result", encode((KNOWN, "text")))),
    ("BadSubmission", BOB, contract("submit_result", encode((KNOWN, b"")) + b"\0")),
    ("BadSubmission", BOB, contract("submit_result", b"\xdc\x00\x02" + encode((KNOWN, b""))[1:])),
    ("BadSubmission", BOB, contract("submit_result", b"\x91" * 100_000)),
    ("ResultTooLarge", BOB, submission(b"", bytes(jobs.MAX_RESULT_BYTES + 1))),
    ("UnknownJob", BOB, submission(b"\1" * 32)),
    ("UnknownJob", BOB, submission(b"")),
    ("UnknownJob", BOB, submission(KNOWN + b"\0")),
    ("NotSystemDeployer", BOB, contract("register_runner", b"")),
    ("NotSystemDeployer", BOB, appointment(BOB, registers=False)),
    ("BadSubmission", ALICE, contract("register_runner", b"")),
    ("BadSubmission", ALICE, appointment(bytes(19))),
    ("BadSubmission", ALICE, appointment(RUNNER_CONTRACT_ADDRESS)),
    ("BadSubmission", ALICE, contract("unregister_runner", encode(BOB))),
    ("UnknownHandler", ALICE, contract("consume_result", b"")),
]


@pytest.mark.parametrize(("error", "sender", "call"), REJECTED)
def test_what_the_contract_refuses(error: str, sender: Address, call: Call) -> None:
    chain = chain_with()
    assert chain.request(needed=2) == KNOWN
    before = chain.job_state()
    receipt = chain.one(sender, call)
    assert (receipt.error, receipt.effects) == (error, Effects())
    assert (chain.job_state(), chain.runners()) == (before, sorted(RUNNERS))


def test_a_runner_counts_once_and_nothing_is_taken_after_the_last_result() -> None:
    chain = chain_with()
    job_id = chain.request(needed=2)
    assert chain.answer(job_id, BOB, BOB, SECOND, BOB, THIRD) == [
        "",
        "AlreadySubmitted",
        "",
        "JobComplete",
        "JobComplete",
    ]
    chain.empty(1)
    assert chain.callbacks()[0].ok
    assert chain.answer(job_id, THIRD) == ["JobComplete"], "it is consumed"


def test_results_say_whose_they_are_and_the_last_one_completes() -> None:
    chain = chain_with()
    job_id = chain.request(needed=2)
    events = [
        receipt.effects.events for receipt in chain.calls((BOB, submission(job_id)), (SECOND, submission(job_id)))
    ]
    named = ("job_id", job_id.hex())
    assert events == [
        (Event("JobResultSubmitted", ACTOR, (named, ("runner", address_text(BOB)))),),
        (
            Event("JobResultSubmitted", ACTOR, (named, ("runner", address_text(SECOND)))),
            Event("JobCompleted", ACTOR, (named,)),
        ),
    ]


def test_deployers_appoint_runners() -> None:
    chain = chain_with()
    job_id = chain.request(needed=2)
    receipts = chain.calls(
        (ALICE, appointment(ALICE)),
        (ALICE, appointment(ALICE)),
        (ALICE, submission(job_id)),
        (ALICE, appointment(BOB, registers=False)),
        (ALICE, appointment(b"\7" * 20, registers=False)),
        (BOB, submission(job_id)),
    )
    assert [receipt.error for receipt in receipts] == ["", "", "", "", "", "NotRunner"]
    assert [[event.name for event in receipt.effects.events] for receipt in receipts] == [
        ["RunnerRegistered"],
        [],
        ["JobResultSubmitted"],
        ["RunnerUnregistered"],
        [],
        [],
    ]
    assert chain.runners() == sorted({*RUNNERS, ALICE} - {BOB})


def test_a_result_counts_whatever_becomes_of_its_runner() -> None:
    chain = chain_with()
    job_id = chain.request(needed=2)
    chain.answer(job_id, BOB)
    assert chain.one(ALICE, appointment(BOB, registers=False)).ok
    chain.answer(job_id, SECOND)
    chain.empty(1)
    assert chain.callbacks()[0].ok


def test_a_value_stays_with_the_contract_and_a_message_does_not_reach_it() -> None:
    chain = chain_with()
    job_id = chain.request()
    paid = chain.transaction(submission(job_id), BOB, value=7)
    assert chain.block(paid).receipts.transactions[0].ok
    assert chain.balance(RUNNER_CONTRACT_ADDRESS) == 7
    assert chain.run(send(RUNNER_CONTRACT_ADDRESS)).error == "UnknownActor"
    chain.require_conservation()


# --- callbacks --------------------------------------------------------------------------------------------------------


class CallsBackAtOnce(Transition):
    """A planted fault: the block that completes a job runs its callback."""

    def run_callbacks(self) -> None:
        while (waiting := jobs.first_waiting(self.world, self.context.height + 1)) is not None:
            self.deferred_lane.used += self.run_callback(waiting)


@pytest.mark.parametrize(("kind", "blocks"), [(Transition, [0, 0, 1, 0]), (CallsBackAtOnce, [0, 1, 0, 0])])
def test_a_callback_runs_in_a_later_block_than_the_one_that_completed_its_job(
    kind: type[Transition], blocks: list[int]
) -> None:
    chain = JobChain(job_genesis(), transition=kind)
    chain.answer(chain.request())
    chain.empty(2)
    assert [len(outcome.receipts.callbacks) for outcome in chain.blocks] == blocks


def test_a_callback_gets_the_results_in_the_order_of_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def note(context: HandlerContext, given: Any) -> None:
        seen.append((context.actor, context.sender, context.callback_of, context.allowance, context.messages_left))
        context.consume_result(given["job"])

    payloads: list[bytes] = []
    monkeypatch.setitem(job_chain.HANDLERS, "note", note)
    plain = job_chain.job_program
    monkeypatch.setattr(
        "validator.transition.transition.program", lambda *given: (payloads.append(given[3]), plain(*given))[1]
    )
    chain = chain_with()
    job_id = chain.request("note", needed=3)
    chain.answer(job_id, THIRD, BOB, SECOND)
    payloads.clear()
    chain.empty(1)
    assert seen == [(ACTOR, RUNNER_CONTRACT_ADDRESS, job_id, None, MESSAGES_PER_DEFERRED_RUN)]
    results = [b"result 0", b"result 1", b"result 2"]
    assert payloads == [b"\x82\xa3job\xc4\x20" + job_id + b"\xa7results" + encode(results)]


def test_a_callback_costs_nobody_anything_when_it_comes() -> None:
    chain = chain_with()
    receipt = chain.one(ALICE, request_call((b"task", 1, "consume")))
    call = request_call((b"task", 1, "consume"))
    assert (receipt.cycles, receipt.cells) == (TX + REQUEST_CYCLES, REQUEST_CELLS + 4 + len(call.payload))
    chain.answer(KNOWN)
    before = {at: account.balance for at, account in chain.accounts().items()}
    outcome = chain.empty(1)
    (callback,) = chain.callbacks()
    assert (callback.cycles, callback.cells) == (TX + 200 + 50, len(b"result 0".hex()))
    assert {at: account.balance for at, account in chain.accounts().items()} == before
    assert (outcome.burned, outcome.tips, outcome.user_cycles, outcome.lane_cycles) == (0, 0, 0, 0)
    assert number(receipt.burned) == (receipt.cycles + receipt.cells) * PRICE
    chain.require_conservation()


def test_a_fire_can_request_a_job_and_holds_two_at_most() -> None:
    chain = chain_with()
    jobs_of_fire = encode([(b"a", 1, "consume"), (b"b", 1, "consume")])
    timer = {"handler": "request", "payload": {"hex": jobs_of_fire.hex()}, "gas_limit": 250_000}
    three = encode([(b"a", 1, "consume")] * 3)
    more = {"handler": "request", "payload": {"hex": three.hex()}, "gas_limit": 250_000}
    chain.run(["schedule", {"in": 1, **timer}], ["schedule", {"in": 2, **more}])
    fires = [chain.block().receipts.fires[0] for _ in range(2)]
    assert [(fire.error, len(fire.effects.events)) for fire in fires] == [("", 2), ("OutOfCycles", 0)]
    assert fires[0].cycles == 1_000 + 2 * REQUEST_CYCLES
    assert chain.world().get(actor_jobs_key(ACTOR)) == ActorJobs(2, 2)


class MessagesFirst(Transition):
    """A planted fault: messages run before callbacks."""

    def run_callbacks(self) -> None:
        Transition.run_messages(self)
        Transition.run_callbacks(self)

    def run_messages(self) -> None:
        pass


@pytest.mark.parametrize("kind", [Transition, MessagesFirst])
def test_callbacks_run_in_the_order_of_completion_and_before_messages(kind: type[Transition]) -> None:
    chain = JobChain(job_genesis(), transition=kind)
    first, second = chain.request(payload=b"1"), chain.request(payload=b"2")
    chain.answer(second)
    receipts = chain.calls((BOB, submission(first)), (ALICE, Call(ACTOR, "run", b"[]")))
    assert [receipt.ok for receipt in receipts] == [True, True]
    assert [callback.job_id for callback in chain.callbacks()] == [second]
    outcome = chain.block(chain.call(send(OTHER, ["emit", "message", ""])))
    names = [event.name for event in outcome.events]
    assert (names == ["JobConsumed", "Results", "message"]) == (kind is Transition)
    assert [callback.job_id for callback in chain.callbacks()] == [first]


class LanesOfTheirOwn(Transition):
    """A planted fault: messages begin with an empty lane."""

    def run_messages(self) -> None:
        self.deferred_lane = DeferredLane(self.terms.parameters.lane_deferred_cycles)
        super().run_messages()


@pytest.mark.parametrize("kind", [Transition, LanesOfTheirOwn])
def test_the_first_callback_that_does_not_fit_ends_the_phase_and_that_of_messages(kind: type[Transition]) -> None:
    chain = JobChain(job_genesis(LANE_DEFERRED_CYCLES=150_000), transition=kind)
    ids = [chain.request("burn", payload=bytes([n])) for n in range(3)]
    chain.calls(*[(BOB, submission(job_id)) for job_id in ids])
    outcome = chain.block(chain.call(send(OTHER, ["emit", "message", ""])))
    assert [callback.error for callback in outcome.receipts.callbacks] == ["OutOfCycles"]
    assert bool(outcome.receipts.messages) == (kind is LanesOfTheirOwn)
    if kind is Transition:
        blocks = [
            (len(block.receipts.callbacks), len(block.receipts.messages)) for block in (chain.block(), chain.block())
        ]
        assert blocks == [(1, 0), (1, 1)], "the last callback leaves 50,000 cycles, and the message has 5,000"


def test_callbacks_leave_messages_what_they_did_not_use() -> None:
    chain = chain_with(LANE_DEFERRED_CYCLES=100_000)
    ids = [chain.request(payload=bytes([n])) for n in range(2)]
    chain.calls(*[(BOB, submission(job_id)) for job_id in ids])
    outcome = chain.block(chain.call(send(OTHER, ["get", "k"])))
    assert (len(outcome.receipts.callbacks), len(outcome.receipts.messages)) == (1, 0)
    outcome = chain.empty(1)
    assert (len(outcome.receipts.callbacks), len(outcome.receipts.messages)) == (1, 1)


def test_what_a_callback_reserves_for_messages_is_not_counted_twice() -> None:
    chain = chain_with(LANE_DEFERRED_CYCLES=103_000)
    chain.answer(chain.request("send two"))
    outcome = chain.empty(1)
    (callback,) = outcome.receipts.callbacks
    assert callback.cycles == TX + 200 + 2 * (80 + 2_000)
    assert [message.sender for message in outcome.receipts.messages] == [ACTOR, ACTOR], "it queued them in this block"
    assert chain.parameters.lane_deferred_cycles - (TX + 200 + 160) >= 4_000


# --- settlement -------------------------------------------------------------------------------------------------------


UNSETTLED = {"ignore": "", "fail": "Stop", "burn": "OutOfCycles", "send three": "TooManyMessages"}


@pytest.mark.parametrize(("handler", "error"), UNSETTLED.items())
def test_a_callback_that_does_not_consume_settles_nothing_and_is_reported(handler: str, error: str) -> None:
    chain = chain_with()
    job_id = chain.request(handler)
    chain.answer(job_id)
    outcome = chain.empty(1)
    (callback,) = outcome.receipts.callbacks
    event = Event("JobNotConsumed", ACTOR, (("job_id", job_id.hex()),))
    assert (callback.error, callback.unsettled, outcome.events) == (error, event, [event])
    assert callback.effects == Effects()
    assert outcome.receipts.messages == ()
    assert chain.world().get(job_key(job_id)) is None
    assert chain.answer(job_id, SECOND) == ["UnknownJob"]
    left = chain.job_state()
    assert {key[:1] for key in left} == {b"k", b"n", b"e"}, "nothing but counts, and when it would have ended"
    assert chain.world().get(actor_jobs_key(ACTOR)) == ActorJobs(1, 0)


def test_a_job_is_consumed_once() -> None:
    chain = chain_with()
    job_id = chain.request("consume twice")
    chain.answer(job_id)
    chain.empty(1)
    (callback,) = chain.callbacks()
    consumed = Event("JobConsumed", ACTOR, (("job_id", job_id.hex()),))
    assert callback.effects.events == (consumed, Event("Caught", ACTOR, (("data", "AlreadyConsumed"),)))
    assert callback.unsettled is None
    assert caught(chain, job_id) == "AlreadyConsumed"
    assert chain.world().get(job_key(job_id)) == Job(ACTOR, "consume twice", 1, 1 + 3_600, (BOB,), True)
    assert {key[:1] for key in chain.job_state()} == {b"j", b"e", b"k", b"n"}


def caught(chain: JobChain, job_id: bytes, actor: Address = ACTOR) -> str:
    """How consuming a job in a transaction is refused."""
    receipt = chain.one(ALICE, Call(actor, "take", encode(job_id)))
    (event,) = receipt.effects.events
    return dict(event.fields)["data"] if event.name == "Caught" else ""


def test_a_job_is_consumed_in_its_own_callback_alone() -> None:
    chain = chain_with()
    job_id = chain.request()
    assert caught(chain, job_id) == "JobNotReady"
    assert caught(chain, job_id, OTHER) == "NotOwner"
    assert caught(chain, b"\1" * 32) == caught(chain, b"") == caught(chain, job_id + b"\0") == "NotFound"
    receipts = chain.calls((BOB, submission(job_id)), (ALICE, Call(ACTOR, "take", encode(job_id))))
    assert receipts[1].effects.events[0].name == "Caught", "complete, and its callback has not come"
    chain.empty(1)
    assert chain.callbacks()[0].unsettled is None
    assert caught(chain, job_id, OTHER) == "NotOwner"


def test_a_callback_cannot_consume_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = chain_with()
    other = jobs.job_id_of(ACTOR, 1, b"task")
    monkeypatch.setitem(job_chain.HANDLERS, "other", lambda context, given: job_chain._try_consume(context, other))
    first, second = chain.request("other"), chain.request("consume")
    assert second == other
    chain.calls((BOB, submission(first)), (BOB, submission(second)))
    chain.empty(1)
    one, two = chain.callbacks()
    assert dict(one.effects.events[0].fields)["data"] == "JobNotReady"
    assert (one.unsettled is None, two.unsettled is None) == (False, True)


def test_a_handler_that_fails_leaves_no_job() -> None:
    chain = chain_with()
    before = chain.job_state()
    receipt = chain.one(ALICE, request_call((b"", 1, "h"), (b"", 0, "h")))
    assert (receipt.error, receipt.cycles) == ("JobResultsInvalid", TX + 2 * REQUEST_CYCLES)
    assert (receipt.effects, chain.job_state()) == (Effects(), before)
    receipt = chain.one(ALICE, request_call((b"task", 1, "h")))
    assert receipt.effects.events[0].fields[0] == ("job_id", KNOWN.hex()), "its number is free again"


def test_the_payload_is_kept_for_the_runners_until_they_answered() -> None:
    chain = chain_with()
    job_id = chain.request(needed=2, payload=b"what to do")
    chain.answer(job_id, BOB)
    assert chain.view.get(job_payload_key(job_id)) == b"what to do"
    chain.answer(job_id, SECOND)
    assert chain.view.get(job_payload_key(job_id)) is None


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def _short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JOB_LIFETIME_BLOCKS", 4)


@pytest.mark.usefixtures("_short_lives")
def test_an_incomplete_job_ends() -> None:
    chain = chain_with()
    job_id = chain.request(needed=2)
    chain.empty(2)
    chain.answer(job_id, BOB)
    assert chain.height == 4
    assert chain.answer(job_id, BOB) == ["AlreadySubmitted"], "block 5 is its last"
    assert {key[:1] for key in chain.job_state()} == {b"k", b"n"}
    assert chain.answer(job_id, SECOND) == ["UnknownJob"]
    assert caught(chain, job_id) == "NotFound"
    assert chain.world().get(actor_jobs_key(ACTOR)) == ActorJobs(1, 0)
    assert chain.world().get(b"n") == JobCounters(0, 0, 1, 1)


@pytest.mark.usefixtures("_short_lives")
def test_the_last_block_still_takes_the_last_result_and_the_callback_comes() -> None:
    chain = chain_with()
    job_id = chain.request()
    chain.empty(3)
    assert chain.answer(job_id) == [""]
    assert chain.height == 5
    chain.empty(1)
    assert chain.callbacks()[0].unsettled is None
    assert {key[:1] for key in chain.job_state()} == {b"k", b"n"}


@pytest.mark.usefixtures("_short_lives")
def test_a_consumed_job_is_remembered_until_its_end() -> None:
    chain = chain_with()
    job_id = chain.request()
    chain.answer(job_id)
    chain.empty(1)
    assert [caught(chain, job_id) for _ in range(3)] == ["AlreadyConsumed", "AlreadyConsumed", "NotFound"]
    assert {key[:1] for key in chain.job_state()} == {b"k", b"n"}


@pytest.mark.usefixtures("_short_lives")
def test_a_callback_that_waits_outlives_the_end_and_leaves_nothing() -> None:
    chain = chain_with(LANE_DEFERRED_CYCLES=100_000)
    ids = [chain.request("burn", payload=bytes([n])) for n in range(3)]
    last = chain.request("consume twice", payload=b"last")
    chain.calls(*[(BOB, submission(job_id)) for job_id in (*ids, last)])
    assert chain.height == 5
    for _ in ids:
        chain.empty(1)
    assert [callback.job_id for callback in chain.callbacks()] == [ids[-1]]
    assert chain.height == 8 == 4 + jobs.JOB_LIFETIME_BLOCKS
    chain.empty(1)
    (callback,) = chain.callbacks()
    assert [event.name for event in callback.effects.events] == ["JobConsumed", "Caught"]
    assert dict(callback.effects.events[1].fields)["data"] == "AlreadyConsumed"
    assert {key[:1] for key in chain.job_state()} == {b"k", b"n"}
    assert caught(chain, last) == "NotFound"


@pytest.mark.usefixtures("_short_lives")
def test_only_so_many_jobs_are_taken_away_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JOBS_ENDED_PER_BLOCK", 2)
    chain = chain_with()
    chain.one(ALICE, request_call(*[(bytes([n]), 1, "consume") for n in range(5)]))
    counts = []
    for _ in range(7):
        counts.append(sum(key[:1] == b"j" for key in chain.job_state()))
        chain.empty(1)
    assert counts == [5, 5, 5, 5, 3, 1, 0]
    assert chain.height == 8


@pytest.mark.usefixtures("_short_lives")
def test_a_job_past_its_end_is_gone_also_where_its_records_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JOBS_ENDED_PER_BLOCK", 1)
    chain = chain_with()
    chain.one(ALICE, request_call(*[(bytes([n]), 1, "consume") for n in range(4)]))
    chain.empty(4)
    last = jobs.job_id_of(ACTOR, 3, b"\3")
    assert chain.world().get(job_key(last)) is not None
    assert chain.answer(last) == ["UnknownJob"]
    assert caught(chain, last) == "NotFound"
    chain.empty(1)
    assert {key[:1] for key in chain.job_state()} == {b"k", b"n"}


# --- receipts, roots, genesis -----------------------------------------------------------------------------------------


def test_a_chain_without_jobs_knows_nothing_of_them() -> None:
    plain, other = Chain(make_genesis()), JobChain(make_genesis())
    for chain in (plain, other):
        chain.run(schedule(1), ["set", "k", "v"])
        chain.empty(2)
    assert plain.view.root == other.view.root
    assert other.job_state() == {}
    receipts = encode(plain.blocks[0].receipts)
    assert len(msgspec.msgpack.decode(receipts)) == 9


def test_callbacks_are_in_the_root_and_in_the_encoding() -> None:
    chain = chain_with()
    chain.answer(chain.request())
    receipts = chain.empty(1).receipts
    assert decode(encode(receipts), BlockReceipts) == receipts
    assert len(msgspec.msgpack.decode(encode(receipts))) == 10
    (consumed,) = receipts.callbacks
    callback = msgspec.structs.replace(consumed, unsettled=Event("n", b"", ()), error="E")
    others = list(variants(callback).values())
    assert len(others) == len(CallbackReceipt.__struct_fields__)
    lists = [(), (callback,), (callback, callback), (consumed,), *[(other,) for other in others]]
    roots = {receipts_root(msgspec.structs.replace(receipts, callbacks=given)) for given in lists}
    assert len(roots) == len(lists)


def test_an_empty_list_of_callbacks_that_is_written_out_is_refused() -> None:
    receipts = BlockReceipts(1, bytes(20), (), (), (), (), (), 0, b"")
    data = encode(receipts)
    assert decode(data, BlockReceipts) == receipts
    with pytest.raises(CodecError):
        decode(b"\x9a" + data[1:] + b"\x90", BlockReceipts)


@pytest.mark.parametrize("runners", [(BOB, BOB), (RUNNER_CONTRACT_ADDRESS,)])
def test_runners_that_a_genesis_cannot_have(runners: tuple[Address, ...]) -> None:
    with pytest.raises(GenesisError):
        genesis_batch(job_genesis(runners))


def test_the_runners_of_a_genesis_are_in_its_state() -> None:
    assert JobChain(job_genesis()).runners() == sorted(RUNNERS)
    assert JobChain(job_genesis(())).one(BOB, submission(b"\1" * 32)).error == "NotRunner"


# --- branches and restarts --------------------------------------------------------------------------------------------


LIMITS = {"gas_limit": 500_000, "cells_limit": 50_000}


def job_wire(nonce: int, call: Call, user: int = 0) -> bytes:
    return wire(nonce, user=user, action=call, **LIMITS)


def job_records(view: View) -> dict[bytes, bytes]:
    return {key: value for prefix in job_chain.JOB_PREFIXES for key, value in view.scan(prefix)}


def callbacks_of(author: Author, height: int) -> list[str]:
    archived = author.executor.archive.get(height)
    assert archived is not None
    return [callback.job_id.hex() for callback in decode(archived.receipts, BlockReceipts).callbacks]


def test_branches_that_complete_a_job_differently_do_not_meet() -> None:
    """One branch completes it at height 2, the other at height 3; both are executed, then the other one is final."""
    author = Author(job_genesis())
    first = author.build(None, job_wire(0, request_call((b"task", 2, "consume"))))
    both = [job_wire(0, submission(KNOWN, b"b"), 1), job_wire(0, submission(KNOWN, b"s"), 2)]
    quick = author.build(first.digest, *both)
    called = author.build(quick.digest)
    slow = author.build(first.digest, job_wire(0, submission(KNOWN, b"other"), 3))
    slower = author.build(slow.digest, both[0])
    last = author.build(slower.digest, job_wire(0, submission(KNOWN), 2))
    assert Job(ACTOR, "consume", 2, 3_601, (BOB, SECOND), True) == World(author.view_of(called.digest)).get(
        job_key(KNOWN)
    )
    assert [event.name for event in author.outcome_of(last.digest).events][:1] == ["JobConsumed"]
    for digest in (first.digest, slow.digest, slower.digest, last.digest):
        author.finalize(digest)
    assert [callbacks_of(author, height) for height in (1, 2, 3, 4)] == [[], [], [], [KNOWN.hex()]]
    final = World(author.executor.final_view).get(job_key(KNOWN))
    assert final == Job(ACTOR, "consume", 2, 3_601, (THIRD, BOB), True)
    alone = Author(job_genesis())
    for built in (first, slow, slower, last):
        assert alone.execute(built.block) is None
        alone.finalize(built.digest)
    assert alone.executor.final_view.root == author.executor.final_view.root


def test_a_restart_goes_on_with_the_jobs_that_waited() -> None:
    disk = MemoryDisk()
    author = Author(job_genesis(), disk)
    author.finalize(
        author.build(None, job_wire(0, request_call((b"task", 1, "consume"), (b"more", 2, "ignore")))).digest
    )
    author.finalize(author.build(None, job_wire(0, submission(KNOWN, b"b"), 1)).digest)
    before = job_records(author.executor.final_view)
    restarted = Author(job_genesis(), disk)
    restarted.executor = Executor(disk, restarted.genesis)
    assert job_records(restarted.executor.final_view) == before
    built = restarted.build(None)
    assert built.block.header.state_root == author.build(None).block.header.state_root
    restarted.finalize(built.digest)
    assert callbacks_of(restarted, 3) == [KNOWN.hex()]


def test_the_same_blocks_give_the_same_roots_receipts_and_events_again() -> None:
    def run() -> list[tuple[bytes, bytes, list[Event]]]:
        chain = chain_with()
        for handler in job_chain.HANDLERS:
            if handler not in ("request", "take", "waste"):
                chain.answer(chain.request(handler, payload=handler.encode()))
        chain.empty(2)
        return [(block.state_root, block.receipts_root, block.events) for block in chain.blocks]

    assert run() == run()


def test_nothing_is_minted_or_lost_whatever_becomes_of_jobs() -> None:
    chain = chain_with()
    steps: list[Callable[[], object]] = [
        lambda: chain.request("fail"),
        lambda: chain.answer(KNOWN),
        lambda: chain.empty(1),
        lambda: chain.answer(KNOWN),
        lambda: chain.request("send two"),
    ]
    for step in steps:
        step()
        chain.require_conservation()
    assert chain.balance(ACTOR) == RICH
