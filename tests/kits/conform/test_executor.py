"""A foreign executor: the reference executor serves a validator, in every order of blocks; one that lies is caught."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.disks.memory import MemoryDisk
from cluster.misbehaviour.planted import RunCounter, planted
from kits.conform.executor import ReferenceExecutor, serve
from tests.validator.chains import ALICE, BOB, make_genesis, schedule
from tests.validator.executors import Author, chain_of, wire, with_transactions
from validator.chain.genesis import Policy
from validator.chain.records import account_key
from validator.chain.transactions import Transfer
from validator.node.executor import stream
from validator.node.executor.executor import Executor
from validator.node.executor.foreign import OTHER_CHANGES, ForeignExecutor
from validator.node.executor.jobs import Finalized, FinalizedInvalid
from validator.node.executor.stream import ExecutorError
from validator.transition.trace import BlockTrace, StepKind
from validator.transition.transition import Transition

HONEST_HEIGHTS = 5
"""The heights before the first one at which ``wrong-balance`` shows."""
Lie = Callable[[stream.Answer], stream.Answer | bytes]


class InProcess:
    """The reference executor, called directly; ``lie`` changes its answers."""

    def __init__(
        self, transition: type[Transition] = Transition, lie: Lie | None = None, has_tree: bool = False
    ) -> None:
        self.executor = ReferenceExecutor(transition, MemoryDisk if has_tree else None)
        self.lie = lie
        self.asked: list[stream.Request] = []

    def ask(self, request: bytes) -> bytes:
        self.asked.append(stream.decode_request(request))
        answer = self.executor.answer(request)
        if self.lie is None:
            return answer
        told = self.lie(stream.decode_answer(answer))
        return told if isinstance(told, bytes) else stream.encode_message(told)

    def close(self) -> None: ...


def with_child(child: InProcess, disk: MemoryDisk | None = None, **fields: Any) -> Author:
    """An author whose transition ``child`` performs."""
    author = Author(**fields)
    author.disk = MemoryDisk() if disk is None else disk
    author.executor.close()
    author.executor = type("Foreign", (ForeignExecutor,), {"start": lambda: child})(author.disk, author.genesis)
    return author


def result_of(answer: stream.Answer, **changed: Any) -> stream.Answer:
    """The answer with other fields of its result."""
    if not isinstance(answer, stream.Applied | stream.Built):
        return answer
    return msgspec.structs.replace(answer, result=msgspec.structs.replace(answer.result, **changed))


@pytest.mark.parametrize("policy", list(Policy))
def test_a_foreign_validator_builds_and_executes_what_others_do(policy: Policy) -> None:
    genesis = make_genesis({"ACTIVATION_HEIGHT": 2}, "hardened", policy=policy)
    own, foreign = Author(genesis), with_child(InProcess(), genesis=genesis)
    for nonce in range(6):
        author, other = (own, foreign) if nonce % 2 else (foreign, own)
        operations = [schedule(1, ["set", "k", "v"]), schedule(2), ["emit", "n", "x"]]
        built = author.build(None, wire(nonce, *operations), wire(nonce + 9), proposer=nonce % 4)
        assert other.execute(built.block) is None
        finals = [each.finalize(built.digest) for each in (author, other)]
        assert finals[0] == finals[1] and isinstance(finals[0], Finalized)
        assert own.executor.final_view.root == foreign.executor.final_view.root
    assert own.executor.pending_timers == foreign.executor.pending_timers


def test_branches_are_executed_in_any_order_and_dropped() -> None:
    author, child = Author(), InProcess()
    foreign = with_child(child)
    left = author.build(None, wire(0, schedule(1)))
    right = author.build(None, wire(0, schedule(2), ["set", "k", "v"]))
    higher = [author.build(side.digest, wire(1, ["set", "k", "w"])) for side in (left, right, left)]
    for built in (left, right, *higher):
        assert foreign.execute(built.block) is None
    foreign.finalize(right.digest)
    last = author.build(higher[1].digest, wire(2))
    assert foreign.execute(last.block) is None
    for built in (higher[1], last):
        assert isinstance(foreign.finalize(built.digest), Finalized)
    assert foreign.executor.final_view.root == last.block.header.state_root
    assert len(child.executor._opened.digests) == 1


def test_a_block_that_is_built_twice_or_invalid_is_rolled_back() -> None:
    author, child = Author(), InProcess()
    foreign = with_child(child)
    built = author.build(None, wire(0, schedule(1)))
    header = msgspec.structs.replace(built.block.header, user_cycles=1)
    assert foreign.execute(msgspec.structs.replace(built.block, header=header)) == "execution gives another user_cycles"
    assert [type(request) for request in child.asked[-2:]] == [stream.Apply, stream.RollBack]
    twice = [foreign.build(None, wire(0)) for _ in range(2)]
    foreign.built.clear()
    again = foreign.build(None, wire(0))
    assert again.digest == twice[0].digest and isinstance(child.asked[-1], stream.RollBack)
    assert len(child.executor._opened.digests) == 3


def test_a_transaction_that_is_not_admitted_makes_the_block_invalid() -> None:
    author, foreign = Author(), with_child(InProcess())
    good = author.build(None, wire(0))
    assert foreign.execute(with_transactions(good.block, wire(5))) == "BadNonce"
    assert foreign.execute(good.block) is None


def test_the_executor_is_opened_at_the_persisted_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_LOADED_BYTES", 64)
    built, disk = chain_of(4), MemoryDisk()
    foreign = with_child(InProcess(), disk)
    for each in built[:2]:
        assert foreign.execute(each.block) is None
        foreign.finalize(each.digest)
    again, child = Author(disk=disk), InProcess()
    again = with_child(child, disk)
    assert isinstance(child.asked[0], stream.Open) and child.asked[0].height == 2
    assert sum(isinstance(request, stream.Load) for request in child.asked) > 3
    for each in built[2:]:
        assert again.execute(each.block) is None
        assert isinstance(again.finalize(each.digest), Finalized)
    assert Executor(disk, again.genesis).final_digest == built[-1].digest


Steps = tuple[stream.GivenStep, ...] | None


def with_steps(change: Callable[[tuple[stream.GivenStep, ...]], Steps]) -> Lie:
    """A lie about the steps of a block."""

    def told(answer: stream.Answer) -> stream.Answer:
        if isinstance(answer, stream.Applied | stream.Refused) and answer.steps is not None:
            return msgspec.structs.replace(answer, steps=change(answer.steps))
        return answer

    return told


def diverged(child: InProcess) -> tuple[FinalizedInvalid, BlockTrace]:
    """The divergence of a validator whose child has a planted bug, and the trace of the same bug in a validator."""
    author, foreign, own = Author(), with_child(child), Author()
    own.executor = Executor(MemoryDisk(), own.genesis, _planted("wrong-balance"))
    for _ in range(HONEST_HEIGHTS):
        empty = author.build()
        for each in (foreign, own):
            assert each.execute(empty.block) is None
        for each in (author, foreign, own):
            each.finalize(empty.digest)
    built = author.build(None, wire(0, action=Transfer(BOB), value=9))
    assert foreign.execute(built.block) == own.execute(built.block) == "execution gives another state_root"
    final = foreign.finalize(built.digest)
    assert isinstance(final, FinalizedInvalid) and final.trace.repeats
    return final, own.executor.trace(built.block)


def _planted(bug: str) -> type[Transition]:
    transition: type[Transition] = planted(bug).patch.parts(RunCounter()).transition
    return transition


@pytest.mark.kits
def test_a_planted_bug_diverges_with_the_steps_of_a_validator_that_has_it() -> None:
    final, own = diverged(InProcess(_planted("wrong-balance")))
    assert final.trace == own and len(own.steps) > 3 and own.first_writes == ()


@pytest.mark.kits
@pytest.mark.parametrize(
    ("lie", "remark"),
    [
        (with_steps(lambda steps: None), ""),
        (with_steps(lambda steps: steps[:-1]), OTHER_CHANGES),
        (
            with_steps(lambda steps: (*steps, stream.GivenStep("fire", b"", ((account_key(ALICE), None),), ()))),
            OTHER_CHANGES,
        ),
    ],
)
def test_a_planted_bug_without_right_steps_diverges_with_all_changes_in_the_trace(lie: Lie, remark: str) -> None:
    final, _ = diverged(InProcess(_planted("wrong-balance"), lie))
    assert final.trace.steps == () and final.trace.remark == remark
    assert account_key(ALICE) in {write.key for write in final.trace.first_writes}


def test_a_block_that_is_refused_has_its_steps() -> None:
    author, foreign = Author(), with_child(InProcess())
    wrong = with_transactions(author.build(None, wire(0)).block, wire(5))
    traces = [each.executor.trace(wrong) for each in (author, foreign)]
    assert traces[0] == traces[1] and traces[0].refusal == "BadNonce" and len(traces[0].steps) == 2


def test_the_steps_of_a_long_block_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    author, foreign = Author(), with_child(InProcess())
    block = author.build(None, wire(0, schedule(1))).block
    assert foreign.executor.trace(block).steps == author.executor.trace(block).steps != ()
    monkeypatch.setattr(stream, "MAX_STEPS_BYTES", 300)
    trace = foreign.executor.trace(block)
    assert trace.steps == () and trace.first_writes != ()


def test_every_kind_of_step_is_documented() -> None:
    page = Path("docs/executor.md").read_text(encoding="utf-8")
    assert [kind for kind in StepKind if f"`{kind}`" not in page] == []


def test_an_executors_own_root_counts() -> None:
    author = Author()
    foreign = with_child(InProcess(lie=lambda answer: result_of(answer, state_root=b"\7" * 32)))
    built = author.build(None, wire(0))
    assert foreign.execute(built.block) == "execution gives another state_root"
    assert foreign.build(None, wire(0)).block.header.state_root == b"\7" * 32


def roots_of(child: InProcess) -> list[bytes | None]:
    """Has the child note the roots that it answers from now on; returns the list of them."""
    found: list[bytes | None] = []

    def note(answer: stream.Answer) -> stream.Answer:
        if isinstance(answer, stream.Applied | stream.Built):
            found.append(answer.result.state_root)
        return answer

    child.lie = note
    return found


@pytest.mark.parametrize("opened_at", [0, 1, 5])
def test_an_executor_with_a_tree_follows_roots_from_any_height(opened_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_LOADED_BYTES", 300)
    built, disk = chain_of(8), MemoryDisk()
    before = with_child(InProcess(), disk)
    for each in built[:opened_at]:
        assert before.execute(each.block) is None
        before.finalize(each.digest)
    before.executor.close()
    child = InProcess(has_tree=True)
    foreign = with_child(child, disk)
    pieces = [request for request in child.asked if isinstance(request, stream.Tree)]
    assert len(pieces) > 3 and max(len(piece.data) for piece in pieces) <= 300
    roots = roots_of(child)
    for each in built[opened_at:]:
        assert foreign.execute(each.block) is None
        assert isinstance(foreign.finalize(each.digest), Finalized)
    assert roots == [each.block.header.state_root for each in built[opened_at:]]


def test_an_executor_with_a_tree_follows_branches() -> None:
    author, child = Author(), InProcess(has_tree=True)
    foreign, roots = with_child(child), roots_of(child)
    left = author.build(None, wire(0, schedule(1)))
    right = author.build(None, wire(0, ["set", "k", "v"]))
    higher = [author.build(side.digest, wire(1, ["set", "k", "w"])) for side in (left, right)]
    for built in (left, right, *higher):
        assert foreign.execute(built.block) is None
    for built in (right, higher[1]):
        assert isinstance(foreign.finalize(built.digest), Finalized)
    last = author.build(higher[1].digest, wire(2))
    assert foreign.execute(last.block) is None
    assert roots == [built.block.header.state_root for built in (left, right, *higher, last)]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda tree: msgspec.structs.replace(tree, data=tree.data[:-1] + b"x"), "SnapshotError: "),
        (lambda tree: msgspec.structs.replace(tree, is_last=False), "the tree is incomplete"),
    ],
)
def test_a_wrong_tree_is_refused(spoil: Callable[[stream.Tree], stream.Tree], reason: str) -> None:
    child = InProcess(has_tree=True)
    ask = child.ask

    def spoiled(request: bytes) -> bytes:
        decoded = stream.decode_request(request)
        return ask(stream.encode_message(spoil(decoded)) if isinstance(decoded, stream.Tree) else request)

    child.ask = spoiled  # type: ignore[method-assign]
    with pytest.raises(ExecutorError, match=reason):
        with_child(child)


def test_a_tree_is_sent_to_who_wants_it() -> None:
    child = InProcess()
    with_child(child)
    assert not any(isinstance(request, stream.Tree) for request in child.asked)
    told = served(stream.encode_message(stream.Tree(0, b"", True)))
    assert told == [stream.Failed("ExecutorError: a tree that was not wanted")]


def _taking(*taken: int) -> Lie:
    return lambda answer: msgspec.structs.replace(answer, taken=taken) if isinstance(answer, stream.Built) else answer


def _steps(*given: stream.GivenStep) -> Lie:
    """These steps of each block that is applied."""
    return lambda answer: msgspec.structs.replace(answer, steps=given) if isinstance(answer, stream.Applied) else answer


WRONG_STEPS = {
    "a step of the unknown kind 'walk'": _steps(stream.GivenStep("walk", b"", (), ())),
    "a subject of 513 bytes": _steps(stream.GivenStep("fire", bytes(513), (), ())),
    "is out of order": _steps(stream.GivenStep("fire", b"", ((b"ab", None), (b"aa", None)), ())),
    "is no record of its kind": _steps(stream.GivenStep("fire", b"", ((b"a" * 21, b"x"),), ())),
    "steps of 400 bytes, expected at most 300": _steps(stream.GivenStep("fire", b"", (), (bytes(200), bytes(200)))),
    "3 steps, expected at most 2": _steps(*[stream.GivenStep("fire", b"", (), ())] * 3),
}


@pytest.mark.parametrize("line", WRONG_STEPS)
def test_steps_that_break_the_form_end_the_validator(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_STEPS", 2)
    monkeypatch.setattr(stream, "MAX_STEPS_BYTES", 300)
    author, foreign = Author(), with_child(InProcess(lie=WRONG_STEPS[line]))
    block = author.build(None, wire(0)).block
    assert foreign.execute(block) is None, "steps that were not asked for are not looked at"
    with pytest.raises(ExecutorError, match=line):
        foreign.executor.trace(block)


BROKEN: dict[str, tuple[Lie, str]] = {
    "garbage": (lambda answer: b"\xc1", "a malformed message of 1 bytes"),
    "another answer": (
        lambda answer: stream.Done() if isinstance(answer, stream.Built) else answer,
        "it answered 'done', expected 'built'",
    ),
    "it gives up": (lambda answer: stream.Failed("no\nmemory"), "it cannot go on: no memory"),
    "candidates twice": (_taking(0, 0), "it took candidates that were not offered, or in another order"),
    "unknown candidates": (_taking(7), "it took candidates that were not offered, or in another order"),
    "receipts": (lambda answer: result_of(answer, receipts=b"\x90"), "block 1: no BlockReceipts"),
    "a price": (lambda answer: result_of(answer, basefee_cell=b"\0\1"), "leading zero byte"),
    "a short root": (lambda answer: result_of(answer, state_root=b"r"), "a state root of 1 bytes, expected 32"),
    "keys out of order": (
        lambda answer: result_of(answer, changes=((b"ab", None), (b"aa", None))),
        "the key 6161 of a change is out of order or too long",
    ),
    "an unknown kind": (
        lambda answer: result_of(answer, changes=((b"?", b"1"),)),
        "the value under the key 3f is no record",
    ),
    "no record": (lambda answer: result_of(answer, changes=((b"a" * 21, b"\xc1"),)), "is no record of its kind"),
    "no changes of counters": (lambda answer: result_of(answer, changes=((b"g", None),)), "counters are removed"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_that_breaks_the_form_ends_the_validator(name: str) -> None:
    lie, line = BROKEN[name]
    child = InProcess()
    foreign = with_child(child)
    child.lie = lie
    with pytest.raises(ExecutorError) as found:
        foreign.build(None, wire(0))
    assert line in str(found.value) and "\n" not in str(found.value)


# --- the reference executor -------------------------------------------------------------------------------------------


def served(*contents: bytes, cut: int = 0) -> list[stream.Answer]:
    frames = b"".join(map(stream.framed, contents))
    given, answers = io.BytesIO(frames[: len(frames) - cut]), io.BytesIO()
    serve(ReferenceExecutor(), given.read, answers.write)
    told, data = [], io.BytesIO(answers.getvalue())
    while length := data.read(4):
        told.append(stream.decode_answer(data.read(int.from_bytes(length, "big"))))
    return told


def test_it_answers_each_frame() -> None:
    chain = stream.chain_of(make_genesis())
    requests: list[stream.Request] = [
        stream.Commit(1),
        stream.Open(2, chain, 0, b""),
        stream.Load((), True),
        stream.Open(1, msgspec.structs.replace(chain, policy="luck"), 0, b""),
        stream.RollBack(3),
    ]
    reasons = [
        "ExecutorError: no state was opened",
        "ExecutorError: version 2 of the stream, expected 1",
        "ExecutorError: entries of no opening",
        "ValueError: 'luck' is not a valid Policy",
        "ExecutorError: no state was opened",
    ]
    assert served(*map(stream.encode_message, requests)) == [stream.Failed(reason) for reason in reasons]
    (told,) = served(b"\x93nonsense")
    assert isinstance(told, stream.Failed) and "a malformed message of 9 bytes" in told.reason


def test_frames_that_are_cut_off_or_too_long_end_it() -> None:
    for cut in (1, 3):
        with pytest.raises(ExecutorError, match="the input ended inside a frame"):
            served(b"abc", cut=cut)
    with pytest.raises(ExecutorError, match="a message of 4,294,967,295 bytes, expected at most 67,108,864"):
        serve(ReferenceExecutor(), io.BytesIO(b"\xff" * 9).read, lambda frame: None)
