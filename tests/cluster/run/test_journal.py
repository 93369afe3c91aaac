"""The journal of a run: another loop that is told it is where the first one was, wherever it ends."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from cluster.faults.events import BitFlipped, Due, Failed, Network, Tell, Voted
from cluster.run import journal as journal_module
from cluster.run.events import (
    Absent,
    NewHeight,
    Order,
    ScenarioChanged,
    Seen,
    Standing,
    Standings,
    StopLoad,
    Time,
    Up,
    Violation,
)
from cluster.run.journal import OFTEN, DamagedJournal, Journal, encoded, read_journal
from cluster.run.loop import ON_FAIL, RunLoop
from tests.cluster.live.handover.parts import inside
from tests.cluster.run.test_loop import NETWORK, World, broken, make_loop, random_loop
from validator.storage.frames import frame

ELSEWHERE = ("genesis", "scheme", "store", "finalizations")
"""What of a record does not follow from what a loop is told."""


class Kept(World):
    """A world whose journal is kept, and all that the loop knew after each of its frames."""

    def __init__(self, random: Random, loop: RunLoop, kind: type[Journal] = Journal) -> None:
        super().__init__(random, loop)
        self.content = bytearray()
        self.known: dict[int, Any] = {0: inside(loop, ELSEWHERE)}
        """All that the loop knew, keyed by the size of the journal then."""
        self._journal = kind(self.content.extend)

    def tell(self, *seen: Seen) -> None:
        for each in seen:
            super().tell(each)
            size = len(self.content)
            self._journal.note(each, self.orders[-1])
            if len(self.content) > size:
                self.known[len(self.content)] = inside(self._loop, ELSEWHERE)


def forgotten(name: str, kind: type[Journal] = Journal) -> list[int]:
    """The sizes of a journal from which another loop does not come to where the first one was."""
    world = Kept(Random(f"{name}/seen"), random_loop(Random(name)), kind)
    world.go().settle()
    found = []
    for size, known in world.known.items():
        seen, whole = read_journal(bytes(world.content[:size]))
        again = random_loop(Random(name))
        for each in seen:
            again.handle(each)
        if whole != size or inside(again, ELSEWHERE) != known:
            found.append(size)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_another_loop_comes_from_each_beginning_of_a_journal_to_where_the_first_one_was(seed: int) -> None:
    for number in range(4):
        assert forgotten(f"{seed}/{number}") == []


def test_faults_that_are_added_and_withdrawn_are_known_to_another_loop() -> None:
    kills = [{"kind": "kill", "target": f"validator-{index}", "at_height": 3 + index} for index in range(3)]
    one, again, content = make_loop(faults=kills[:2]), make_loop(faults=kills[:2]), bytearray()
    others = make_loop(faults=[kills[2], kills[0]]).scenario
    journal = Journal(content.extend)
    for each in (Up(0.0), NewHeight(2), ScenarioChanged(others), NETWORK, NewHeight(5)):
        journal.note(each, one.handle(each))
    for kept in read_journal(bytes(content))[0]:
        again.handle(kept)
    assert inside(again, ELSEWHERE) == inside(one, ELSEWHERE)
    assert [planned.is_withdrawn for planned in again.faults._ever_planned] == [False, True, False]


class WithoutVotes(Journal):
    """It keeps no votes."""

    def note(self, seen: Seen, orders: Sequence[Order]) -> None:
        if not isinstance(seen, Voted):
            super().note(seen, orders)


class WithoutHeights(Journal):
    """It keeps no height of which nothing followed at once."""

    def note(self, seen: Seen, orders: Sequence[Order]) -> None:
        if orders or not isinstance(seen, NewHeight):
            super().note(seen, orders)


class WithoutNetworks(Journal):
    """It keeps no look of which nothing followed at once."""

    def note(self, seen: Seen, orders: Sequence[Order]) -> None:
        if orders or not isinstance(seen, Network):
            super().note(seen, orders)


@pytest.mark.parametrize("kind", [WithoutVotes, WithoutHeights, WithoutNetworks])
def test_a_journal_that_forgets_is_found_out(kind: type[Journal]) -> None:
    assert any(forgotten(f"planted/{number}", kind) for number in range(8))


# --- another driver ---------------------------------------------------------------------------------------------------


class TakenOver(Kept):
    """A world in which another driver goes on from the journal after each thing that is told."""

    def __init__(self, name: str, kind: type[Journal] = Journal) -> None:
        super().__init__(Random(f"{name}/seen"), random_loop(Random(name)), kind)
        self.wrong = set[str]()
        self._name = name

    def tell(self, *seen: Seen) -> None:
        super().tell(*seen)
        other = random_loop(Random(self._name))
        for each in read_journal(bytes(self.content))[0]:
            other.handle(each)
        rot = [answer for answer in self._owed if isinstance(answer, BitFlipped)]  # there may be none to wait for
        due = [answer for order in other.due if (answer := self._answer(order)) is not None]
        if awaited(self._owed) != awaited([*due, *rot]):
            self.wrong.add("other orders are due")
        self._loop, self._owed = other, [*due, *rot]

    def outcome(self) -> set[str]:
        """What is wrong once all is over."""
        self.go().settle()
        told = {order.text for orders in self.orders for order in orders if isinstance(order, Tell)}
        ended = {text for text in told if ON_FAIL in text}
        forgets = {"a violation is told and forgotten"} if ended - set(self._loop.record.problems) else set()
        return self.wrong | forgets | set(broken(self._loop, self))


def awaited(answers: Sequence[Seen]) -> list[str]:
    """The answers that are awaited, without what they will say."""
    return sorted(repr(each.call) if isinstance(each, Due) else repr(each[:1]) for each in answers)


class WithoutCalls(Journal):
    """It does not keep which calls came due."""

    def note(self, seen: Seen, orders: Sequence[Order]) -> None:
        if not isinstance(seen, Due):
            super().note(seen, orders)


class WithoutTheLoad(Journal):
    """It does not keep what stopped the load."""

    def note(self, seen: Seen, orders: Sequence[Order]) -> None:
        if not any(isinstance(order, StopLoad) for order in orders):
            super().note(seen, orders)


class WithoutViolations(Journal):
    """It keeps no violation."""

    def note(self, seen: Seen, orders: Sequence[Order]) -> None:
        if not isinstance(seen, Violation):
            super().note(seen, orders)


@pytest.mark.parametrize("seed", range(6))
def test_whenever_a_driver_dies_the_same_orders_are_due_to_the_next(seed: int) -> None:
    for number in range(4):
        assert TakenOver(f"{seed}/{number}").outcome() == set()


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (WithoutCalls, "other orders are due"),
        (WithoutCalls, "a fault begins twice"),
        (WithoutTheLoad, "it stops the load twice"),
        (WithoutViolations, "a violation is told and forgotten"),
    ],
)
def test_what_a_take_over_does_twice_or_forgets_is_found_out(kind: type[Journal], what: str) -> None:
    assert any(what in TakenOver(f"planted/{number}", kind).outcome() for number in range(20))


def test_a_day_without_events_leaves_a_short_journal() -> None:
    loop, content = make_loop(is_open=True), bytearray()
    journal = Journal(content.extend)
    for seen in (Up(0.0), NETWORK):
        journal.note(seen, loop.handle(seen))
    size = len(content)
    for height in range(1, 2_000):
        seats = tuple(seat._replace(height=height) for seat in NETWORK.seats)
        network = NETWORK._replace(at_ms=20.0 * height, seats=seats, leader=height % 4)
        for each in (NewHeight(height), network, Standings((Standing(height, True),)), Time(20.0 * height)):
            journal.note(each, loop.handle(each))
    assert len(content) == size
    journal.note(Absent(1.0, 2.0, 3), [])
    kept, _ = read_journal(bytes(content[size:]))
    assert [type(each) for each in kept] == [NewHeight, Network, Absent], "what it may depend on comes first"
    assert kept[0] == NewHeight(1_999)


def test_a_torn_frame_at_the_end_does_not_count() -> None:
    frames = [encoded(Up(1.5)), encoded(NETWORK), encoded(NewHeight(7))]
    content = b"".join(frames)
    for size in range(len(content) + 1):
        seen, whole = read_journal(content[:size])
        assert [Up(1.5), NETWORK, NewHeight(7)][: len(seen)] == seen
        assert whole == sum(map(len, frames[: len(seen)])) <= size


@pytest.mark.parametrize("number", range(3))
def test_a_frame_that_has_rotted_is_refused_wherever_it_is(number: int) -> None:
    """To cut it off would lose the frames after it."""
    frames = [encoded(Up(1.5)), encoded(NETWORK), encoded(NewHeight(7))]
    offset = sum(map(len, frames[:number]))
    for place in range(len(frames[number])):
        content = bytearray(b"".join(frames))
        content[offset + place] ^= 4
        with pytest.raises(DamagedJournal, match=f"^is damaged: the frame at offset {offset} is not what was written$"):
            read_journal(bytes(content))


def test_a_reason_that_is_no_unicode_is_kept_as_far_as_it_is() -> None:
    """It may have the name of a file."""
    content = encoded(Failed(1.5, 2, "data/\udcff: no space")) + encoded(Violation("v: \ud800"))
    seen, _ = read_journal(content)
    assert seen == [Failed(1.5, 2, "data/?: no space"), Violation("v: ?")]


@pytest.mark.parametrize("payload", [b"[99,[]]", b"[0,[]]", b'[0,["x"]]', b"\xff", b"[]"])
def test_a_frame_of_another_kind_is_refused(payload: bytes) -> None:
    with pytest.raises(DamagedJournal, match="is damaged: "):
        read_journal(frame(payload))


def test_every_kind_has_its_number_for_ever() -> None:
    names = [kind.__name__ for kind in journal_module.KINDS]
    assert len(set(names)) == len(Seen.__args__) == len(names)
    assert set(OFTEN) <= set(journal_module.KINDS)
