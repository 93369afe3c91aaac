"""Jobs against the specification over random chains with branches, and planted faults.

Lifetimes, lanes and limits are so small that every one of them is met.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from cluster.audit.specified.chain import spec_chain, spec_transaction
from cluster.disks.memory import MemoryDisk
from spec import block as spec_block
from spec import jobs as spec_jobs
from spec.encoding import CallbackReceipt, Event, encode_receipts
from spec.leaves import leaves
from spec.world import World as SpecifiedWorld
from tests.validator import job_chain
from tests.validator.chains import ACTOR, ALICE, OTHER, PROPOSER, USERS, prepare, script
from tests.validator.job_chain import RUNNERS, appointment, job_genesis, request_call, submission
from tests.validator.rewriting import rewrite
from validator.chain.transactions import Call, Transaction
from validator.execution import jobs, runner_contract
from validator.primitives.codec import encode
from validator.primitives.types import Address, Height
from validator.scheduler.index import SchedulerIndex
from validator.state import LogStateStore, View
from validator.transition.genesis_block import genesis_batch
from validator.transition.transition import BlockContext, DeferredLane, Transition

MESSAGE_CYCLES, LANES = 20_000, (20_000, 24_000, 44_000)
LIMITS = {
    "LIFETIME_BLOCKS": ("JOB_LIFETIME_BLOCKS", 6),
    "UNSETTLED_PER_ACTOR": ("JOBS_PER_ACTOR", 4),
    "ENDED_PER_BLOCK": ("JOBS_ENDED_PER_BLOCK", 2),
    "CALLBACKS_PER_BLOCK": ("CALLBACKS_PER_BLOCK", 2),
}
"""Small limits: the name in the specification, that in the code, and the value."""
OPERATIONS = ("request", "submit", "appoint", "take", "send")
MOODS = ((6, 12, 2, 3, 2), (12, 4, 1, 1, 1), (2, 20, 3, 1, 0), (1, 4, 0, 1, 12))
"""What blocks are mostly about, as weights of the operations."""
CALLBACKS = ("consume", "consume", "consume twice", "send two", "ignore", "fail", "burn", "burn")
PLANT_SEEDS = range(250)
"""Each planted fault must show in one of these blocks."""


class Mismatch(AssertionError):
    """Code and specification differ."""


@contextmanager
def small_limits() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patched:
        job_chain.install(patched)
        for specified, (coded, most) in LIMITS.items():
            patched.setattr(spec_jobs, specified, most)
            patched.setattr(jobs, coded, most)
        yield patched


class Node:
    """A block: its state, the specification's, and the nonces after it."""

    def __init__(self, view: View, specified: SpecifiedWorld, nonces: Counter[Address], ids: list[bytes]) -> None:
        self.view, self.specified, self.nonces, self.ids = view, specified, nonces, ids


class JobMachine(RuleBasedStateMachine):
    """Blocks grow on random parents; on each branch the code does what the specification does."""

    transition: type[Transition] = Transition

    @initialize(lane=st.sampled_from(LANES))
    def begin(self, lane: int) -> None:
        params = {"MESSAGE_CYCLES": MESSAGE_CYCLES, "LANE_DEFERRED_CYCLES": lane}
        self.genesis = job_genesis(RUNNERS[:2], **params)
        store = LogStateStore.open(MemoryDisk())
        view = store.final.derive(Height(0), genesis_batch(self.genesis))
        world = spec_chain(self.genesis)
        world.language = None  # it is copied with each block
        self.nodes = [Node(view, world, Counter(), [])]
        self.reached: Counter[str] = Counter()

    @rule(parent=st.integers(0, 10**6), seed=st.integers(0, 10**6), count=st.integers(1, 6))
    def grow(self, parent: int, seed: int, count: int) -> None:
        """Some blocks, one on the other, on some parent, mostly a late one."""
        node = self.nodes[-1 - parent % min(len(self.nodes), 4)]
        for number in range(count):
            node = self.extend(node, Random(f"{seed} {number}"))
            self.nodes.append(node)

    def extend(self, parent: Node, random: Random) -> Node:
        world, nonces, ids = copy.deepcopy(parent.specified), Counter(parent.nonces), list(parent.ids)
        specified = spec_block.begin(world, PROPOSER)
        index = SchedulerIndex.rebuild(self.genesis, parent.view)
        block = self.transition(parent.view, index, BlockContext(Height(world.height), PROPOSER, self.genesis))
        block.start()
        count, mood = random.choice((0, 1, 3, 6, 9)), random.choice(MOODS)
        for salt in range(count):
            sender, call = self.draw(random.choices(OPERATIONS, mood)[0], random, ids)
            fields = {"max_fee_per_cycle": 10**9, "max_priority_fee_per_cycle": 3, "max_fee_per_cell": 10**9}
            prepared = prepare(Transaction(sender, nonces[sender], 150_000, 60_000, action=call, **fields), salt)
            block.execute(prepared)
            expected = spec_transaction(prepared.transaction)._replace(hash=prepared.hash)
            receipt = spec_block.execute(specified, expected)
            nonces[sender] += 1
            events = receipt.effects.events
            ids += [bytes.fromhex(event.fields[0][1]) for event in events if event.name == "JobRequested"]
            self.reached[receipt.error or caught(events)] += 1
        outcome, seen = block.finish(), spec_block.finish(specified)
        self.require(encode(outcome.receipts), encode_receipts(seen), "receipts")
        self.require(dict(outcome.view.scan(b"")), leaves(world), "state")
        self.note(seen.callbacks, world)
        return Node(outcome.view, world, nonces, ids)

    def draw(self, kind: str, random: Random, ids: list[bytes]) -> tuple[Address, Call]:
        """An operation as a call, and who sends it."""
        actor = random.choice((ACTOR, ACTOR, OTHER))
        job_id = random.choice(ids[-6:]) if ids and random.random() < 0.95 else bytes(32)
        match kind:
            case "request":
                handlers = [random.choice(CALLBACKS) for _ in range(random.choice((1, 1, 2)))]
                needed = [0 if random.random() < 0.05 else random.choice((1, 1, 2, 3)) for _ in handlers]
                wanted = [
                    (bytes([random.randrange(3)]), n, handler) for n, handler in zip(needed, handlers, strict=True)
                ]
                return ALICE, request_call(*wanted, actor=actor)
            case "submit":
                runner = random.choice(USERS)
                result = bytes(jobs.MAX_RESULT_BYTES + 1) if random.random() < 0.05 else random.randbytes(2)
                return runner, submission(job_id, result)
            case "appoint":
                sender = ALICE if random.random() < 0.9 else USERS[1]
                return sender, appointment(random.choice(USERS), random.random() < 0.8)
            case "take":
                return ALICE, Call(actor, "take", encode(job_id))
            case _:
                cycles, burned = random.choice((2_000, 20_000)), random.choice((0, 900, 10_000, 19_500))
                to = {"to": "0x" + OTHER.hex(), "handler": "run", "payload": [["burn", burned]]}
                return ALICE, Call(ACTOR, "run", script(["send", {**to, "cycles": cycles, "cells": 0}]))

    # --- what must hold -----------------------------------------------------------------------------------------------

    def require(self, found: Any, expected: Any, about: str) -> None:
        if found != expected:
            raise Mismatch(f"{about}: {found} where the specification has {expected}")

    def note(self, callbacks: list[CallbackReceipt], world: SpecifiedWorld) -> None:
        """What the block reached."""
        self.reached.update(f"callback {each.error or each.unsettled is None}" for each in callbacks)
        self.reached["callback carried"] += bool(world.callbacks)
        self.reached["end carried"] += any(ends_at < world.height for _, ends_at in world.job_ends.values())
        self.reached["late callback"] += any(
            job.is_complete and not job.is_consumed and job.ends_at < world.height for job in world.jobs.values()
        )


def caught(events: list[Event]) -> str:
    return next((dict(event.fields)["data"] for event in events if event.name == "Caught"), "")


@pytest.mark.parametrize("examples", [10, pytest.param(60, marks=pytest.mark.soak)])
def test_jobs_are_as_specified_on_every_branch(examples: int) -> None:
    with small_limits():
        run_state_machine_as_test(
            JobMachine,
            settings=settings(max_examples=examples, stateful_step_count=12, deadline=None, derandomize=True),
        )


def run_seeds(kind: type[JobMachine] = JobMachine) -> Counter[str]:
    """What a chain with each lane reaches."""
    reached: Counter[str] = Counter()
    for lane in LANES:
        machine = kind()
        machine.begin(lane)
        for seed in PLANT_SEEDS:
            machine.grow(0, seed, 1)
        reached += machine.reached
    return reached


@pytest.mark.slow
def test_random_chains_reach_every_refusal_and_outcome() -> None:
    with small_limits():
        reached = run_seeds()
    expected = {"", "NotRunner", "ResultTooLarge", "UnknownJob", "JobComplete", "AlreadySubmitted", "NotSystemDeployer"}
    expected |= {"JobResultsInvalid", "JobLimitReached", "NotFound", "NotOwner", "AlreadyConsumed", "JobNotReady"}
    expected |= {"callback True", "callback False", "callback Stop", "callback OutOfCycles"}
    expected |= {"callback carried", "end carried", "late callback"}
    assert expected <= {name for name, count in reached.items() if count}


# --- planted faults ---------------------------------------------------------------------------------------------------


PLANTED: list[tuple[str, str, str]] = [
    ("request", "ActorJobs(mine.nonce + 1,", "ActorJobs(mine.nonce,"),
    ("request", "mine.unsettled >= JOBS_PER_ACTOR", "mine.unsettled > JOBS_PER_ACTOR"),
    ("request", "if not 1 <= results_needed <= MAX_RESULTS_NEEDED:", "if False:"),
    ("request", "height + JOB_LIFETIME_BLOCKS", "height + JOB_LIFETIME_BLOCKS - 1"),
    ("find", "height > job.ends_at and not job.is_complete", "False"),
    ("find", "height > job.ends_at and not job.is_complete", "height > job.ends_at"),
    ("run", "if context.sender not in deployers:", "if False:"),
    ("run", "registers = handler == REGISTER_RUNNER", "registers = True"),
    ("_submit_result", "if not is_runner(world, runner):", "if False:"),
    ("_submit_result", "if len(given.result) > jobs.MAX_RESULT_BYTES:", "if False:"),
    ("_submit_result", "    if job.is_complete:\n        raise", "    if False:\n        raise"),
    ("_submit_result", "if runner in job.runners:", "if False:"),
    ("_submit_result", "(*job.runners, runner)", "(runner, *job.runners)"),
    ("queue_callback", "world.put(job_payload_key(job_id), None)", "pass"),
    ("first_waiting", "completion.height >= height", "completion.height > height"),
    ("first_waiting", "completion.height >= height", "completion.height >= height - 1"),
    ("dequeue", "world.put(completion_key(counters.first_completion), None)", "pass"),
    ("callback_payload", "waiting.job.runners]", "sorted(waiting.job.runners)]"),
    ("consume", "if job.actor != actor:", "if False:"),
    ("consume", "if job.consumed:", "if False:"),
    ("consume", "if job_id != callback_of:", "if False:"),
    ("consume", "_settle(world, job_id, job)", "pass"),
    ("end_callback", "if not job.consumed:\n        _settle(world, job_id, job)", "pass"),
    ("end_callback", "if not job.consumed or job.ends_at < height:", "if not job.consumed:"),
    ("end_callback", "if not job.consumed or job.ends_at < height:", "if job.ends_at < height:"),
    ("_settle", "world.put(job_result_key(job_id, runner), None)", "pass"),
    ("end_jobs", "end.height > height", "end.height >= height"),
    ("end_jobs", "world.put(job_end_key(first), None)", "pass"),
    ("_end_job", "job is None or job.awaits_callback", "job is None"),
    ("_end_job", "if not job.consumed:", "if True:"),
    ("_end_job", "world.put(job_payload_key(job_id), None)", "pass"),
]


def plant(patched: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Put a changed text of a function of jobs, or of the runner contract, in its place."""
    rewrite(patched, getattr(jobs if hasattr(jobs, name) else runner_contract, name), old, new)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "old", "new"), PLANTED)
def test_a_planted_fault_is_caught(name: str, old: str, new: str) -> None:
    with small_limits() as patched:
        plant(patched, name, old, new)
        with pytest.raises(AssertionError):
            run_seeds()


class MessagesFirst(Transition):
    def run_callbacks(self) -> None:
        Transition.run_messages(self)
        Transition.run_callbacks(self)

    def run_messages(self) -> None:
        pass


class LanesOfTheirOwn(Transition):
    def run_messages(self) -> None:
        self.deferred_lane = DeferredLane(self.terms.parameters.lane_deferred_cycles)
        super().run_messages()


class MessagesBehindWhatDidNotFit(Transition):
    def run_messages(self) -> None:
        self.deferred_lane.is_full = False
        super().run_messages()


class RunsAnyNumber(Transition):
    def run_callbacks(self) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(jobs, "CALLBACKS_PER_BLOCK", 100)
            super().run_callbacks()


class CountsReservationsTwice(Transition):
    def run_callback(self, waiting: jobs.Waiting) -> int:
        super().run_callback(waiting)
        return self.callbacks[-1].cycles


LANE_FAULTS = (MessagesFirst, LanesOfTheirOwn, MessagesBehindWhatDidNotFit, RunsAnyNumber, CountsReservationsTwice)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LANE_FAULTS)
def test_a_planted_fault_of_the_lane_is_caught(kind: type[Transition]) -> None:
    class Machine(JobMachine):
        transition = kind

    with small_limits(), pytest.raises(Mismatch):
        run_seeds(Machine)
