"""The queue of events runs everything in the order of time, then of entry, however deliveries are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.simulation.clock import OwnClock, VirtualClock

Arrivals = list[tuple[int, int]]


def run(messages: list[Arrivals]) -> list[tuple[int, int, int]]:
    """``(time, recipient, message)`` in the order in which a clock delivers."""
    clock = VirtualClock()
    seen: list[tuple[int, int, int]] = []

    def deliver(_sender: int, recipient: int, payload: bytes) -> None:
        seen.append((clock.now_us, recipient, payload[0]))

    for number, arrivals in enumerate(messages):
        clock.send(0, bytes((number,)), arrivals, deliver)
    while clock.step():
        pass
    assert clock.events == len(seen)
    return seen


places = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=6)


@given(st.lists(places, max_size=6))
def test_deliveries_come_in_the_order_of_a_sorted_list(messages: list[Arrivals]) -> None:
    entries = [(at, to, number) for number, arrivals in enumerate(messages) for to, at in arrivals]
    expected = [entries[at] for at in sorted(range(len(entries)), key=lambda place: (entries[place][0], place))]
    assert run(messages) == expected


def test_calls_and_messages_of_one_time_come_as_they_were_put() -> None:
    clock = VirtualClock()
    seen: list[str] = []
    clock.after(5, "first", b"", lambda: seen.append("first"))
    clock.send(0, b"x", [(1, 5), (2, 5), (3, 4)], lambda _sender, to, _payload: seen.append(f"message to {to}"))
    clock.after(5, "last", b"", lambda: seen.append("last"))
    while clock.step():
        pass
    assert seen == ["message to 3", "first", "message to 1", "message to 2", "last"]


def test_a_message_that_arrives_nowhere_is_part_of_the_digest() -> None:
    said, other = VirtualClock(), VirtualClock()
    said.send(0, b"lost", [], lambda *_: None)
    assert not said.step()
    assert said.digest() != other.digest()


def test_the_time_awake_leaves_pauses_out_and_runs_at_the_own_speed() -> None:
    clock = VirtualClock()
    own = OwnClock(clock, 2.0, lambda *_: None, lambda _: None)
    seen: list[tuple[float, float]] = []
    calls = [own.pause, own.pause, own.go_on, own.go_on, own.pause, own.go_on]
    for number, call in enumerate(calls, start=1):
        clock.after(number * 1_000, "", b"", call)
        clock.after(number * 1_000, "", b"", lambda: seen.append((own.now_ms, own.awake_ms)))
    while clock.step():
        pass
    assert seen == [(2, 2), (4, 2), (6, 2), (8, 4), (10, 6), (12, 6)]
