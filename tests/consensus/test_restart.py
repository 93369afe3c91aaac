"""Restart from the journal: whatever reached the disk, no second vote, and the view goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consensus.interface import (
    BlockProposed,
    BlockVerified,
    Durable,
    Effect,
    Event,
    Finalized,
    Notarized,
    Nullified,
    Parent,
    Persist,
    Propose,
    Received,
    Start,
    StartTimer,
    TimerExpired,
    TimerKind,
    ViewEntered,
    VotingConfig,
)
from consensus.journal import JournalError, encode_record
from consensus.messages import Message, Vote, conflict
from consensus.types import GENESIS_VIEW, ValidatorIndex, View
from tests.consensus.bench import FINALIZE, GENESIS, NOTARIZE, NULLIFY, TIMEOUT, Bench, HotStuffBench, block, of

LEADER, ADVANCE, REBROADCAST = TimerKind.LEADER, TimerKind.ADVANCE, TimerKind.REBROADCAST


class Machine:
    """A bench with a disk that can crash. Every vote that leaves is held against all that left before."""

    def __init__(self, me: int, config: VotingConfig | None = None, bench_type: type[Bench] = Bench) -> None:
        self.me = me
        self.bench_type = bench_type
        self.config = config
        self.durable: list[bytes] = []
        self.unsynced: list[Persist] = []
        self.sent: list[Vote] = []
        self.bench = bench_type(me=me, config=config, start=False)
        self.feed(Start())

    def feed(self, event: Event) -> None:
        for effect in self.bench.feed(event):
            if isinstance(effect, Persist):
                self.unsynced.append(effect)
            for vote in self.bench.sent([effect]):
                self.check(vote)

    def check(self, vote: Vote) -> None:
        if vote not in self.sent:
            assert encode_record(vote) in self.durable, "sent before it was durable"
            for other in self.sent:
                assert conflict(other, vote) is None
            self.sent.append(vote)

    def sync(self) -> None:
        while self.unsynced:
            persist = self.unsynced.pop(0)
            self.durable += persist.records
            self.feed(Durable(persist.token))

    def records(self) -> list[bytes]:
        return [record for persist in self.unsynced for record in persist.records]

    def compact(self) -> None:
        """The snapshot replaces the journal, unsynced records included."""
        self.durable = list(self.bench.engine.journal_snapshot())

    def crash(self, written: int) -> None:
        """Of the records that were being written, the first ``written`` reached the disk."""
        self.durable += self.records()[:written]
        self.unsynced.clear()
        self.bench = self.bench_type(me=self.me, config=self.config, journal=self.durable, start=False)
        self.feed(Start())


Step = Callable[[Machine], None]


def received(sender: int, make: Callable[[Any], Message]) -> Step:
    return lambda machine: machine.feed(Received(ValidatorIndex(sender), make(machine.bench)))


def verified(view: int, name: str, valid: bool = True) -> Step:
    return lambda machine: machine.feed(BlockVerified(View(view), block(name), valid))


def expired(kind: TimerKind, view: int) -> Step:
    return lambda machine: machine.feed(TimerExpired(kind, View(view)))


def proposed(view: int, parent: int, name: str) -> Step:
    parent_digest = block(f"b{parent}") if parent else GENESIS
    answer = BlockProposed(View(view), Parent(View(parent), parent_digest), block(name), name.encode())
    return lambda machine: machine.feed(answer)


def sync(machine: Machine) -> None:
    machine.sync()


FOLLOWER: list[Step] = [
    received(1, lambda bench: bench.proposal(1, "b1")),
    verified(1, "b1"),
    received(2, lambda bench: bench.vote(2, NOTARIZE, 1, "b1")),
    sync,
    received(2, lambda bench: bench.proposal(2, "b2")),
    received(1, lambda bench: bench.vote(1, FINALIZE, 1, "b1")),
    received(2, lambda bench: bench.vote(2, FINALIZE, 1, "b1")),
    sync,
    verified(2, "b2"),
    expired(ADVANCE, 2),
    sync,
    received(2, lambda bench: bench.certificate(NULLIFY, 2, signers=(0, 2, 3))),
    expired(LEADER, 3),
    received(1, lambda bench: bench.certificate(NOTARIZE, 3, "b3", 1)),
    sync,
]

LEADING: list[Step] = [
    proposed(1, 0, "b1"),
    received(2, lambda bench: bench.vote(2, NOTARIZE, 1, "b1")),
    sync,
    received(3, lambda bench: bench.vote(3, NOTARIZE, 1, "b1")),
    received(3, lambda bench: bench.certificate(NULLIFY, 2)),
    sync,
    received(3, lambda bench: bench.certificate(NULLIFY, 3)),
    received(0, lambda bench: bench.certificate(NULLIFY, 4)),
    proposed(5, 1, "b5"),
    expired(ADVANCE, 5),
    sync,
]


HOTSTUFF_FOLLOWER: list[Step] = [
    received(1, lambda bench: bench.proposal(1, "b1")),
    verified(1, "b1"),
    sync,
    received(2, lambda bench: bench.certificate(NOTARIZE, 1, "b1")),
    received(2, lambda bench: bench.proposal(2, "b2")),
    sync,
    verified(2, "b2"),
    expired(ADVANCE, 2),
    sync,
    received(1, lambda bench: bench.timeout(1, 2, high=1)),
    received(2, lambda bench: bench.timeout(2, 2, high=0)),
    expired(LEADER, 3),
    received(2, lambda bench: bench.certificate(NOTARIZE, 2, "b2")),
    received(2, lambda bench: bench.certificate(FINALIZE, 1, "b1")),
    sync,
    received(1, lambda bench: bench.certificate(NOTARIZE, 3, "b3", 2)),
    received(1, lambda bench: bench.certificate(NOTARIZE, 4, "b4", 3)),
    expired(LEADER, 5),
    sync,
]

HOTSTUFF_LEADING: list[Step] = [
    proposed(1, 0, "b1"),
    sync,
    received(2, lambda bench: bench.certificate(NOTARIZE, 1, "b1")),
    received(3, lambda bench: bench.timeouts(2, 1)),
    received(3, lambda bench: bench.timeouts(3, 1)),
    sync,
    received(0, lambda bench: bench.timeouts(4, 1)),
    proposed(5, 1, "b5"),
    expired(ADVANCE, 5),
    sync,
]


def other_world(machine: Machine) -> None:
    """After the restart everything goes another way: other blocks, other outcomes."""
    for _ in range(2):
        view = machine.bench.engine.view
        leader = machine.bench.engine.leader(view)
        for parent in range(view):
            if leader != machine.me:
                other = machine.bench.proposal(view, "other", parent)
                machine.feed(Received(leader, other))
            proposed(view, parent, "other")(machine)
        verified(view, "other")(machine)
        machine.sync()
        for kind in (REBROADCAST, LEADER, ADVANCE):
            expired(kind, view)(machine)
        machine.sync()
        for below in range(1, view + 1):
            machine.feed(Received(ValidatorIndex(3), machine.bench.certificate(NOTARIZE, below, "other")))
        machine.sync()


@pytest.mark.parametrize(
    ("bench_type", "me", "story"),
    [
        (Bench, 0, FOLLOWER),
        (Bench, 1, LEADING),
        (HotStuffBench, 0, HOTSTUFF_FOLLOWER),
        (HotStuffBench, 1, HOTSTUFF_LEADING),
    ],
    ids=["follower", "leader", "hotstuff follower", "hotstuff leader"],
)
@pytest.mark.parametrize("compacted", [False, True])
def test_a_crash_at_any_point_never_makes_two_votes(
    bench_type: type[Bench], me: int, story: list[Step], compacted: bool
) -> None:
    crashes = 0
    for steps in range(len(story) + 1):
        written = 0
        while True:
            machine = Machine(me, bench_type=bench_type)
            for step in story[:steps]:
                step(machine)
            if compacted:
                machine.compact()
            if written > len(machine.records()):
                break
            machine.crash(written)
            other_world(machine)
            machine.crash(len(machine.records()))
            other_world(machine)
            crashes += 1
            written += 1
    assert crashes > len(story) + 5


def test_a_leader_whose_proposal_was_journaled_does_not_propose_again() -> None:
    machine = Machine(1)
    proposed(1, 0, "b1")(machine)
    machine.crash(written=1)
    assert not of(Propose, machine.bench.effects)
    proposed(1, 0, "other")(machine)
    machine.sync()
    assert [vote.digest for vote in machine.sent] == [block("b1")]
    expired(ADVANCE, 1)(machine)
    machine.sync()
    assert [vote.kind for vote in machine.sent] == [NOTARIZE, NULLIFY]


def test_a_leader_whose_proposal_never_reached_the_disk_may_propose_another() -> None:
    machine = Machine(1)
    proposed(1, 0, "b1")(machine)
    machine.crash(written=0)
    proposed(1, 0, "other")(machine)
    machine.sync()
    assert [vote.digest for vote in machine.sent] == [block("other")]


def test_it_resumes_in_the_view_after_its_newest_certificate_and_repeats_its_votes() -> None:
    bench = Bench(me=0)
    bench.receive(1, bench.certificate(FINALIZE, 1, "b1"), bench.certificate(NOTARIZE, 2, "b2"))
    bench.receive(1, bench.certificate(NULLIFY, 3))
    again = Bench(me=0, journal=bench.journal)
    assert again.engine.view == 4
    assert again.engine.certificates.final == Parent(View(1), block("b1"))
    assert of(ViewEntered, again.effects) == [ViewEntered(View(4), ValidatorIndex(0))]
    assert of(Finalized, again.effects) == [Finalized(bench.certificate(FINALIZE, 1, "b1"))]
    assert of(Notarized, again.effects) == [Notarized(bench.certificate(NOTARIZE, 2, "b2"))]
    assert of(Nullified, again.effects) == [Nullified(bench.certificate(NULLIFY, 3))]
    assert of(Propose, again.effects) == [Propose(View(4), Parent(View(2), block("b2")))]


def test_votes_of_the_current_view_are_repeated_at_once_and_counted() -> None:
    bench = Bench(me=3)
    bench.receive(1, bench.proposal(1, "b1"))
    bench.verified(1, "b1")
    bench.expire(ADVANCE)
    again = Bench(me=3, journal=bench.journal)
    expected = [(NOTARIZE, 1, block("b1")), (NULLIFY, 1, b"")]
    assert again.own_votes() == expected
    again.receive(0, again.vote(0, NULLIFY, 1))
    again.receive(2, again.vote(2, NULLIFY, 1))
    assert again.engine.view == 2


def test_a_lone_validator_goes_on_from_a_vote_that_was_journaled() -> None:
    bench = Bench(n=1, me=0)
    request = of(Propose, bench.effects)[0]
    effects = bench.feed(BlockProposed(request.view, request.parent, block("b1"), b"b1"))
    (persist,) = of(Persist, effects)
    again = Bench(n=1, me=0, journal=persist.records)
    assert again.engine.view == 2


def test_a_restart_from_the_snapshot_is_a_restart_from_the_journal() -> None:
    bench = Bench(me=0)
    bench.advance_to(9, notarized=(2, 5, 6))
    bench.receive(1, bench.certificate(FINALIZE, 5, "b5", parent=2))
    bench.expire(LEADER)
    snapshot = bench.engine.journal_snapshot()
    assert len(snapshot) < len(bench.journal)
    whole, short = Bench(me=0, journal=bench.journal), Bench(me=0, journal=snapshot)
    assert whole.effects == short.effects
    assert whole.engine.journal_snapshot() == short.engine.journal_snapshot() == snapshot
    for one in (whole, short):
        assert (one.engine.view, one.engine.final_view) == (9, 5)


def test_the_snapshot_is_bounded_by_what_is_not_final() -> None:
    bench = Bench(me=0)
    for view in range(1, 300):
        bench.receive(1, bench.certificate(NOTARIZE, view, f"b{view}"), bench.certificate(FINALIZE, view, f"b{view}"))
    assert len(bench.engine.journal_snapshot()) == 1


@pytest.mark.parametrize(
    "records",
    [
        [("vote", 2, NULLIFY, "")],
        [("vote", 0, NOTARIZE, "x"), ("vote", 0, NOTARIZE, "y")],
        [("vote", 0, FINALIZE, "x"), ("vote", 0, FINALIZE, "y")],
        [("vote", 0, NULLIFY, ""), ("vote", 0, FINALIZE, "x")],
        [("vote", 0, FINALIZE, "x"), ("vote", 0, NULLIFY, "")],
    ],
    ids=["foreign", "two notarize", "two finalize", "nullify and finalize", "finalize and nullify"],
)
def test_a_journal_that_cannot_be_ours_is_refused(records: Sequence[tuple[str, int, object, str]]) -> None:
    bench = Bench(me=0)
    journal = [encode_record(bench.vote(signer, kind, 1, name)) for _, signer, kind, name in records]  # type: ignore[arg-type]
    with pytest.raises(JournalError):
        Bench(me=0, journal=journal)
    with pytest.raises(JournalError):
        HotStuffBench(me=0, journal=[*journal, encode_record(bench.vote(2, TIMEOUT, 1))])
    with pytest.raises(JournalError):
        Bench(me=None, journal=[encode_record(bench.vote(0, NULLIFY, 1))])
    with pytest.raises(JournalError):
        Bench(me=0, journal=[b"garbage"])


def test_a_journal_of_the_other_protocol_or_with_a_broken_lock_is_refused() -> None:
    bench = HotStuffBench(me=0)
    with pytest.raises(JournalError):
        Bench(me=0, journal=[encode_record(bench.timeouts(1))])
    finalized, below = bench.vote(0, FINALIZE, 3, "b3"), bench.vote(0, TIMEOUT, 5, parent=2)
    for votes in ((finalized, below), (below, finalized), (below, bench.vote(0, TIMEOUT, 5, parent=1))):
        with pytest.raises(JournalError):
            HotStuffBench(me=0, journal=[encode_record(vote) for vote in votes])
    kept = bench.vote(0, TIMEOUT, 5, parent=3)
    HotStuffBench(me=0, journal=[encode_record(vote) for vote in (finalized, kept)])


def test_votes_from_before_the_root_are_of_no_concern() -> None:
    bench = Bench(me=0)
    bench.expire(LEADER)
    later = Bench(me=0, root=Parent(View(5), block("root")), journal=bench.journal)
    assert later.engine.view == 6
    assert not later.own_votes()


def test_records_that_stand_twice_do_no_harm() -> None:
    bench = Bench(me=0)
    bench.advance_to(3, notarized=(1,))
    bench.expire(LEADER)
    twice = Bench(me=0, journal=[record for record in bench.journal for _ in range(2)])
    assert twice.effects == Bench(me=0, journal=bench.journal).effects


# --- anything, in any order ------------------------------------------------------------------------------------------

names = st.sampled_from(("x", "y"))
near = st.integers(-2, 3)
kinds = st.sampled_from((NOTARIZE, NULLIFY, FINALIZE))
peers = st.integers(0, 3)
actions = st.one_of(
    st.tuples(st.just("proposal"), near, names, st.integers(1, 3)),
    st.tuples(st.just("verified"), near, names, st.booleans()),
    st.tuples(st.just("proposed"), near, names, st.integers(1, 3)),
    st.tuples(st.just("expired"), st.sampled_from(list(TimerKind))),
    st.tuples(st.just("vote"), peers, kinds, near, names),
    st.tuples(st.just("certificate"), kinds, near, names),
    st.tuples(st.just("timeout"), peers, near, st.integers(1, 4)),
    st.tuples(st.just("timeouts"), near, st.integers(1, 4)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("crash"), st.integers(0, 5)),
)


def timeout_bench(bench: Bench) -> HotStuffBench:
    """Says what Simplex has no words for, and refuses."""
    return bench if isinstance(bench, HotStuffBench) else HotStuffBench(start=False)


def act_timeout(machine: Machine, action: tuple[object, ...]) -> None:
    bench = timeout_bench(machine.bench)
    match action:
        case ("timeout", int(peer), int(near), int(back)):
            view = max(1, machine.bench.engine.view + near)
            received(peer, lambda _: bench.timeout(peer, view, high=max(0, view - back)))(machine)
        case ("timeouts", int(near), int(back)):
            view = max(1, machine.bench.engine.view + near)
            received(3, lambda _: bench.timeouts(view, max(0, view - back)))(machine)


def act(machine: Machine, action: tuple[object, ...]) -> None:
    """One action; views are given relative to the machine's current view, parents as a distance."""
    engine = machine.bench.engine
    match action:
        case ("proposal", int(near), str(name), int(back)):
            view = max(1, engine.view + near)
            received(engine.leader(View(view)), lambda bench: bench.proposal(view, name, max(0, view - back)))(machine)
        case ("verified", int(near), str(name), bool(valid)):
            verified(max(1, engine.view + near), name, valid)(machine)
        case ("proposed", int(near), str(name), int(back)):
            view = max(1, engine.view + near)
            parent = engine._rounds[View(view)].building_on if View(view) in engine._rounds else None
            if parent is not None:
                machine.feed(BlockProposed(View(view), parent, block(name), name.encode()))
        case ("expired", TimerKind() as kind):
            expired(kind, engine.view)(machine)
        case ("vote", int(peer), kind, int(near), str(name)):
            view = max(1, engine.view + near)
            received(peer, lambda bench: bench.vote(peer, kind, view, name))(machine)
        case ("certificate", kind, int(near), str(name)):
            view = max(1, engine.view + near)
            received(3, lambda bench: bench.certificate(kind, view, name))(machine)
        case ("timeout" | "timeouts", *_):
            act_timeout(machine, action)
        case ("sync",):
            machine.sync()
        case ("compact",):
            machine.compact()
        case ("crash", int(written)):
            machine.crash(written)


@pytest.mark.parametrize("bench_type", [Bench, HotStuffBench])
@pytest.mark.parametrize("me", [0, 1])
@given(st.lists(actions, min_size=5, max_size=60))
@settings(max_examples=150, deadline=None)
def test_no_order_of_events_syncs_and_crashes_makes_two_votes(
    bench_type: type[Bench], me: int, story: list[tuple[object, ...]]
) -> None:
    """Certificates here need not be consistent with each other: own votes must be, whatever the others do.

    In HotStuff also across views: no timeout names a lower view than one that was finalized before it.
    """
    machine = Machine(me, VotingConfig(retained_views=2, evidence_views=1, view_window=3), bench_type)
    for action in story:
        before = machine.bench.engine.view
        act(machine, action)
        assert action[0] == "crash" or machine.bench.engine.view >= before, "views never go back"
    machine.sync()


def test_timers_restart_with_the_engine() -> None:
    bench = Bench(me=0)
    bench.advance_to(3)
    again = Bench(me=0, journal=bench.journal)
    assert {timer.kind for timer in of(StartTimer, again.effects)} == set(TimerKind)
    assert {timer.view for timer in of(StartTimer, again.effects) if timer.kind is not TimerKind.ALLOWANCE} == {3}


def test_what_start_repeats_is_in_order() -> None:
    bench = Bench(me=0)
    bench.advance_to(6, notarized=(2, 4))
    again = Bench(me=0, journal=bench.journal)
    kinds: list[Effect] = [e for e in again.effects if isinstance(e, Notarized | Nullified)]
    views = [effect.certificate.view for effect in kinds if isinstance(effect, Notarized | Nullified)]
    assert views == [1, 2, 3, 4, 5]
    assert GENESIS_VIEW not in views


def test_a_vote_is_remembered_until_its_view_is_final_whatever_the_windows() -> None:
    """The snapshot was made with a narrow window, the restart has a wide one."""
    bench = Bench(me=0, config=VotingConfig(retained_views=2))
    bench.expire(LEADER)
    bench.advance_to(30)
    again = Bench(me=0, journal=bench.engine.journal_snapshot(), config=VotingConfig(retained_views=100))
    again.engine.certificates.skips.pop(View(1))
    again.receive(1, again.certificate(NOTARIZE, 1, "b1"))
    assert not [vote for vote in again.own_votes() if vote[0] == FINALIZE]
