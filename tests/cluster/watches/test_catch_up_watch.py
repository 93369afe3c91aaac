"""Who lacks final blocks asks for them, one peer after the other, or the watch tells."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cluster.record.rules import SafetyRule
from cluster.watches.catch_up_watch import IDLE_RETRIES, CatchUpWatch
from tests.cluster.watches.seen import Told, judged_by, make_machine, set_time
from tests.consensus.bench import FINALIZE, NULLIFY, Bench
from tests.validator.network import Network
from validator.chain.block import Block, Header, header_hash, transactions_root
from validator.chain.messages import (
    BlockRequest,
    BlockResponse,
    BlocksPruned,
    FinalBlocksRequest,
    FinalBlocksResponse,
    PeerMessage,
    SnapshotRequest,
    encode_message,
    read_message,
)
from validator.node.blocks.catch_up import SYNC_TIMER, CatchUp
from validator.node.events import (
    BlockFinal,
    Certified,
    Completed,
    Diverged,
    Effect,
    Event,
    Message,
    Run,
    Send,
    SetTimer,
    Started,
    Synced,
    Timeout,
    TimerName,
)
from validator.node.executor.jobs import (
    BlocksRead,
    Execute,
    Executed,
    Finalize,
    Finalized,
    FinalizedInvalid,
    Job,
    JobResult,
    ReadBlocks,
    ReadSnapshot,
    SnapshotRead,
)
from validator.primitives.codec import encode
from validator.primitives.types import ZERO_HASH, Hash, Height
from validator.transition.trace import BlockTrace

BENCH = Bench()
RETRY_MS = 250
PATIENCE_MS = IDLE_RETRIES * RETRY_MS
ME = 1
NEXT_TIME = SetTimer(SYNC_TIMER, RETRY_MS)
PASSED = Timeout(SYNC_TIMER)
NOTHING = Synced(1)
WANTED = FinalBlocksRequest(3, 32)


class Asking:
    """The watch of validator 1, one of four."""

    def __init__(self, count: int = 4) -> None:
        self.told = Told()
        self.watch = CatchUpWatch([f"v{i}" for i in range(count)], self.told.look, read_message, RETRY_MS)
        self.me = make_machine(ME % count)
        set_time(self.me, 1_000.0)
        self.begin(0)

    def begin(self, view: int) -> None:
        """It starts with a final block of this view."""
        self.me.validator.executor = SimpleNamespace(final_header=SimpleNamespace(view=view))
        self.watch.begins(self.me)

    def handle(self, event: Event, *effects: Effect, after_ms: float = 0.0) -> list[str]:
        """What does not hold of an event that is handled so much later."""
        set_time(self.me, self.me.own_clock.now_ms + after_ms)
        before = len(self.told)
        self.watch.judge(self.me, event, effects)
        assert {rule for rule, _, _ in self.told[before:]} <= {SafetyRule.CATCH_UP}
        return self.told.found(before)

    def ask(self, peer: int, event: Event = PASSED, request: PeerMessage = WANTED) -> list[str]:
        return self.handle(event, Send(peer, encode_message(request)), NEXT_TIME)


def hears(message: PeerMessage) -> Message:
    return Message(2, encode_message(message), message)


def finalization(view: int) -> Certified:
    return Certified(BENCH.certificate(FINALIZE, view, f"b{view}"))


def final(view: int) -> BlockFinal:
    figures: dict[str, Any] = dict.fromkeys(
        ("transactions", "fires", "destroyed", "pending_timers", "backlog", "basefee_cycle", "basefee_lane_timer"), 0
    )
    return BlockFinal(Height(view), view, ZERO_HASH, ZERO_HASH, lane_cycles=0, **figures)


HEADER = Header("chain", 1, 1, ZERO_HASH, 0, ZERO_HASH, ZERO_HASH, ZERO_HASH, b"", b"", b"", 0, 0, 0, 0)
DIGEST = Hash(b"d" * 32)


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [WANTED, BlockRequest(DIGEST)], ids=["final blocks", "one block"])
def test_peers_are_asked_in_turn(request_: PeerMessage) -> None:
    asking = Asking()
    assert [asking.ask(peer, request=request_) for peer in (2, 3, 0, 2, 3, 0)] == [[]] * 6
    assert len(asking.told) == 4 * 6, "each is one of four rules"


def test_who_is_asked_out_of_turn_is_told() -> None:
    asking = Asking()
    assert asking.ask(2) == []
    assert asking.ask(2) == ["v1 asks v2 for blocks, in the turn of v3"]
    assert asking.ask(3) == []
    assert asking.ask(2) == ["v1 asks v2 for blocks, in the turn of v0"]


def test_a_start_begins_the_turns_anew() -> None:
    asking = Asking()
    assert asking.ask(2) == []
    asking.begin(0)
    assert asking.ask(2, Started()) == []


@pytest.mark.parametrize(
    ("event", "is_over"),
    [
        (PASSED, True),
        (hears(BlockResponse(b"body")), True),
        (hears(FinalBlocksResponse((), (), b"")), True),
        (hears(BlocksPruned(7)), False),
        (Timeout(TimerName("propose")), False),
        (NOTHING, False),
    ],
)
def test_one_request_is_open_at_a_time(event: Event, is_over: bool) -> None:
    asking = Asking()
    assert asking.ask(2, NOTHING) == []
    assert asking.ask(3, event) == ([] if is_over else ["v1 asks for blocks while a request is open"])


@pytest.mark.parametrize(
    ("behind", "delays"),
    [
        ((), "[]"),
        ((SetTimer(SYNC_TIMER, RETRY_MS + 1),), f"[{RETRY_MS + 1}]"),
        ((SetTimer(TimerName("propose"), RETRY_MS),), "[]"),
        ((Certified(BENCH.certificate(NULLIFY, 1)), NEXT_TIME), "[]"),
    ],
)
def test_a_request_without_its_timer_right_behind_it_is_told(behind: Sequence[Effect], delays: str) -> None:
    asking = Asking()
    assert asking.handle(NOTHING, Send(2, encode_message(WANTED)), *behind) == [
        f"v1 asks for blocks, and for the next time sets timers of {delays} ms, not [{RETRY_MS}]"
    ]


def test_what_asks_for_no_blocks_is_left_alone() -> None:
    asking = Asking()
    assert asking.handle(NOTHING, Send(3, encode_message(BlocksPruned(3))), Send(None, b"what is this")) == []
    assert asking.told == []


# --- idleness ---------------------------------------------------------------------------------------------------------


def test_who_knows_a_finalization_and_does_nothing_about_it_is_told() -> None:
    asking = Asking()
    assert asking.handle(NOTHING, finalization(5), after_ms=9 * PATIENCE_MS) == [], "it was idle before, rightly"
    assert asking.handle(NOTHING, after_ms=PATIENCE_MS) == []
    assert asking.handle(NOTHING, after_ms=1) == [
        "v1 knows a finalization of view 5, has final blocks up to view 0, and did nothing about it for"
        f" {PATIENCE_MS + 1} ms"
    ]


def test_a_newer_finalization_is_no_excuse() -> None:
    asking = Asking()
    asking.handle(NOTHING, finalization(5))
    assert asking.handle(NOTHING, finalization(6), after_ms=PATIENCE_MS) == []
    assert len(asking.handle(NOTHING, after_ms=1)) == 1


def test_who_has_every_final_block_may_be_idle() -> None:
    asking = Asking()
    nullified = Certified(BENCH.certificate(NULLIFY, 9))
    asking.handle(NOTHING, finalization(5), final(5), finalization(4), nullified)
    assert asking.handle(NOTHING, after_ms=9 * PATIENCE_MS) == []
    asking.begin(7)
    asking.handle(Started(), finalization(7))
    assert asking.handle(NOTHING, after_ms=9 * PATIENCE_MS) == []


def test_who_is_alone_may_be_idle() -> None:
    asking = Asking(count=1)
    asking.handle(NOTHING, finalization(5))
    assert asking.handle(NOTHING, after_ms=9 * PATIENCE_MS) == []


def block() -> Block:
    return Block(HEADER, ())


DONE: list[tuple[Job, JobResult]] = [
    (Execute(DIGEST, block(), {}), Executed(DIGEST, None)),
    (Finalize(DIGEST, b""), Finalized(DIGEST, HEADER, (), {}, 0, 0, 0, 0)),
    (
        Finalize(DIGEST, b""),
        FinalizedInvalid(DIGEST, HEADER, "another root", ZERO_HASH, b"", BlockTrace(1, DIGEST, (), "", ())),
    ),
]


@pytest.mark.parametrize(("job", "result"), DONE, ids=["executes", "commits", "finds an invalid one"])
def test_work_on_a_block_is_no_idleness(job: Job, result: JobResult) -> None:
    asking = Asking()
    asking.handle(NOTHING, finalization(5), Run(job))
    assert asking.handle(NOTHING, after_ms=9 * PATIENCE_MS) == [], "the executor is slow"
    assert asking.handle(Completed(result)) == []
    assert asking.handle(NOTHING, after_ms=PATIENCE_MS) == []
    assert len(asking.handle(NOTHING, after_ms=1)) == 1


def test_a_validator_that_diverges_may_be_idle_until_it_starts_again() -> None:
    asking = Asking()
    diverged = Diverged(Height(1), ZERO_HASH, "another root", ZERO_HASH, ZERO_HASH, b"")
    asking.handle(NOTHING, finalization(5), diverged)
    assert asking.handle(NOTHING, after_ms=9 * PATIENCE_MS) == []
    asking.begin(0)
    asking.handle(Started(), finalization(5))
    assert len(asking.handle(NOTHING, after_ms=PATIENCE_MS + 1)) == 1


def test_other_work_is_idleness() -> None:
    asking = Asking()
    asking.handle(NOTHING, finalization(5), Run(ReadBlocks(2, 1, 1)))
    assert len(asking.handle(NOTHING, after_ms=PATIENCE_MS + 1)) == 1


def test_who_asks_or_makes_a_block_final_is_not_idle() -> None:
    asking = Asking()
    asking.handle(NOTHING, finalization(5))
    assert asking.handle(PASSED, Send(2, encode_message(WANTED)), NEXT_TIME, after_ms=PATIENCE_MS) == []
    assert asking.handle(NOTHING, final(4), after_ms=PATIENCE_MS) == []
    assert asking.handle(NOTHING, after_ms=PATIENCE_MS) == []
    assert len(asking.handle(NOTHING, after_ms=1)) == 1


# --- whole validators -------------------------------------------------------------------------------------------------


def caught_up(monkeypatch: pytest.MonkeyPatch, **methods: Any) -> tuple[int, list[str]]:
    """A validator was cut off, and catches up with parts of its own: how often the watch looked, and what it found."""
    for name, method in methods.items():
        monkeypatch.setattr(CatchUp, name, method)
    network, told = Network(), Told()
    judged_by(CatchUpWatch([machine.name for machine in network.machines], told.look, read_message, RETRY_MS), network)
    network.start().run_to(3)
    network.cut = {ME}
    network.run_to(8, 0, 2, 3)
    network.cut = set()
    mute = {2}
    network.tap = lambda sender, _target, payload: (
        None if sender in mute and isinstance(read_message(payload), FinalBlocksResponse) else payload
    )
    network.run_for(1_500)
    return len(told), told.found()


def test_a_validator_that_was_cut_off_catches_up_as_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, found = caught_up(monkeypatch)
    assert looks > 3
    assert found == []


def never(*_given: Any, **_more: Any) -> None:
    """In place of a method."""


def ask_without_end(self: CatchUp, *, is_block_awaited: bool) -> None:
    self._is_asking = False
    ASK(self, is_block_awaited=is_block_awaited)


ASK = CatchUp.ask
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "it does not ask": ({"ask": never}, "did nothing about it for"),
    "it does not ask again": ({"ask_next": never}, "did nothing about it for"),
    "it asks all at once": ({"ask": ask_without_end}, "asks for blocks while a request is open"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_validator_that_catches_up_otherwise_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    methods, words = FAULTS[name]
    _, found = caught_up(monkeypatch, **methods)
    assert any(words in what for what in found), found


# --- answers, and reads for others ------------------------------------------------------------------------------------


def block_of(height: int) -> tuple[Hash, bytes]:
    """The digest of a block, and its body."""
    header = msgspec.structs.replace(HEADER, height=height, transactions_root=transactions_root([]))
    return header_hash(header), encode(Block(header, ()))


def test_who_has_the_block_that_it_asked_for_asks_on_at_once() -> None:
    digest, body = block_of(3)
    _, other = block_of(4)
    late = "v1 has the block that it asked for, and waits for a timer to ask on"
    asking = Asking()
    assert asking.ask(2, NOTHING, BlockRequest(digest)) == []
    assert asking.handle(Message(2, b"", BlockResponse(body))) == []
    assert asking.ask(3) == [late]
    asking = Asking()
    asking.ask(2, NOTHING, BlockRequest(digest))
    asking.handle(Message(2, b"", BlockResponse(other)))
    assert asking.ask(3) == [], "the block that was asked for is still missing"
    asking = Asking()
    asking.ask(2, NOTHING, BlockRequest(digest))
    assert asking.ask(3, Message(2, b"", BlockResponse(body))) == []
    assert asking.ask(0) == [], "that one was not answered"


def test_one_thing_is_read_for_a_peer_at_a_time() -> None:
    asking, read = Asking(), Run(ReadBlocks(2, 1, 4))
    assert asking.handle(NOTHING, read, Run(ReadSnapshot(3, SnapshotRequest()))) == []
    assert asking.handle(NOTHING, read) == ["v1 reads two things at once for v2"]
    asking.handle(Completed(BlocksRead(2, (), (), b"")))
    asking.handle(Completed(SnapshotRead(3, None)))
    assert asking.handle(NOTHING, read, Run(ReadSnapshot(3, SnapshotRequest()))) == []
