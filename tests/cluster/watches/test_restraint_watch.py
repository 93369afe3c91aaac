"""Nobody is asked or answered needlessly, or the watch tells."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.record.rules import SafetyRule
from cluster.scenario import Scenario
from cluster.watches import restraint_watch
from cluster.watches.restraint_watch import (
    ASKED_AT_A_TIME,
    BURST_CERTIFICATES,
    TICK_CERTIFICATES,
    RestraintWatch,
)
from cluster.watches.watched_simulation import simulate
from consensus import retransmission
from consensus.allowance import Allowances
from consensus.interface import BAD_CERTIFICATE
from consensus.keys import Committee
from consensus.leader import RoundRobin
from consensus.messages import SIGNATURE_BYTES, CertificateRequest, Message, Timeout, encode
from consensus.retransmission import certificate_bytes
from consensus.types import ValidatorIndex, View
from tests.cluster.watches.seen import make_machine, make_settings, set_time, set_view
from tests.consensus.bench import FINALIZE, NULLIFY, TIMEOUT, Bench
from validator.chain.messages import BlockRequest
from validator.node.events import PeerFault

COMMITTEE = Committee(View(2), tuple(ValidatorIndex(index) for index in range(5)))
BENCH = Bench(8, epochs=(COMMITTEE,))
VIEW = 10
"""Led by validator 0."""
ANSWERER, ASKER = 1, 7
DISTRUSTED_VIEWS = 64
TICK_MS = 500
GIVEN = BENCH.certificate(NULLIFY, VIEW)


class Watched:
    """A watch, and its findings."""

    def __init__(self) -> None:
        self.told: list[tuple[bool, str]] = []
        settings = make_settings(rebroadcast_ms=TICK_MS, leader_timeout_ms=500)
        self.watch = RestraintWatch(
            [f"v{i}" for i in range(8)],
            lambda _, holds, what: self.told.append((holds, what)),
            settings,
            BENCH.validators,
            RoundRobin(BENCH.validators).leader,
        )

    def ask(self, *peers: int, view: int = VIEW, life: int = 0) -> list[bool]:
        """Validator 7 asks these, one after the other; whether each may be asked."""
        before = len(self.told)
        for peer in peers:
            self.send(ASKER, peer, CertificateRequest((View(view),)), view=view, life=life)
        return [holds for holds, _ in self.told[before:]]

    def answer(self, request: CertificateRequest, *answers: Message, view: int = VIEW) -> list[tuple[bool, str]]:
        before = len(self.told)
        answerer, asker = at_view(ANSWERER, view), make_machine(ASKER)
        self.watch.hears(answerer, asker, request)
        for each in answers:
            self.send(ANSWERER, ASKER, each, view=view)
        self.watch.heard(answerer, asker, request)
        return [(holds, what) for holds, what in self.told[before:] if "bytes of certificates" not in what]

    def send(
        self, sender: int, peer: int | None, message: Message, *, view: int = VIEW, life: int = 0, now_ms: float = 0.0
    ) -> bool:
        """Whether a validator may send a message."""
        machine = at_view(sender, view, incarnation=life)
        set_time(machine, now_ms)
        self.watch.sends(machine, peer, b"", message)
        return bool(self.told) and self.told[-1][0]

    def give(self, peer: int, now_ms: float, life: int = 0) -> bool:
        """Whether validator 1 may send a certificate."""
        return self.send(1, peer, GIVEN, life=life, now_ms=now_ms)


def at_view(index: int, view: int, **fields: Any) -> Any:
    machine = make_machine(index, **fields)
    set_view(machine, view)
    return machine


def requested(*views: int) -> CertificateRequest:
    return CertificateRequest(tuple(map(View, views)))


def test_members_are_asked_in_turn() -> None:
    watched = Watched()
    turns = [peer for start in range(20) for peer in ((1, 2, 3, 4) * 2)[start % 4 : start % 4 + ASKED_AT_A_TIME]]
    assert all(watched.ask(*turns))
    assert watched.ask(1, 1, 1, 1)[-1] is False
    assert watched.told[-1][1] == "v7, in view 10, asks v1 ever again, and not all in turn"


def test_the_leader_is_asked_as_often_as_need_be_and_each_view_and_life_has_its_own_turns() -> None:
    watched = Watched()
    assert watched.ask(*[0] * 20) == []
    assert all(watched.ask(1, 1, 1) + watched.ask(1, 1, 1, view=15) + watched.ask(1, 1, 1, view=15, life=1))


def test_who_is_not_behind_is_sent_no_certificate() -> None:
    watched = Watched()
    assert watched.answer(requested(VIEW)) == [(True, watched.told[-1][1])]
    assert watched.answer(requested(VIEW), BENCH.certificate(NULLIFY, VIEW - 1)) == [
        (False, "v1 sends v7, which is in view 10 too, certificates of [9]")
    ]
    assert not watched.answer(requested(3, VIEW), BENCH.certificate(NULLIFY, VIEW - 1))[0][0]


def test_who_names_views_behind_is_sent_their_certificates_and_the_newest_finalization() -> None:
    watched = Watched()
    answers = BENCH.certificate(NULLIFY, 3), BENCH.certificate(FINALIZE, 8, "b8")
    assert watched.answer(requested(3, VIEW), *answers)[0][0]
    assert not watched.answer(requested(VIEW), BENCH.certificate(FINALIZE, 8, "b8"))[0][0], (
        "it is behind all that is named"
    )


def test_who_is_behind_may_be_sent_anything() -> None:
    assert Watched().answer(requested(3), BENCH.certificate(NULLIFY, VIEW - 1)) == []


def test_certificates_are_bounded_over_time() -> None:
    watched, size, now_ms = Watched(), len(encode(GIVEN)), 0.0
    certificate = SIGNATURE_BYTES * 9
    sent = 0
    for _ in range(100):
        for _ in range(TICK_CERTIFICATES * certificate // size):
            watched.give(2, now_ms)
        now_ms += TICK_MS
    assert all(holds for holds, _ in watched.told), "what ticks add may be sent for ever"
    while watched.told[-1][0] and sent < 10**6:
        watched.give(2, now_ms)
        sent += size
    burst, tick = BURST_CERTIFICATES * certificate, TICK_CERTIFICATES * certificate
    assert burst <= sent <= burst + 3 * tick + 2 * size
    watched.give(2, now_ms, life=1)
    watched.give(3, now_ms)
    assert [holds for holds, _ in watched.told[-2:]] == [True, True], "another life, another peer"


@pytest.mark.parametrize(
    "pauses", [[], [(0, 7_000)], [(2_400, 2_600), (2_700, 2_900), (5_000, 12_000), (12_900, 13_100)]]
)
def test_whoever_gives_as_much_as_allowances_allow_is_sound_whatever_pauses_it_has(
    pauses: list[tuple[int, int]],
) -> None:
    watched, largest, tick_ms, size = Watched(), certificate_bytes(len(BENCH.validators)), TICK_MS, len(encode(GIVEN))
    allowances = Allowances(BURST_CERTIFICATES * largest, TICK_CERTIFICATES * largest, 8)
    due_ms, given = tick_ms, 0
    for now_ms in range(0, 20_000, 100):
        if any(begin <= now_ms < end for begin, end in pauses):
            continue
        if now_ms >= due_ms:
            allowances.tick()
            due_ms = now_ms + tick_ms
        while allowances.take(2, size):
            watched.give(2, now_ms)
            given += size
    assert given > (BURST_CERTIFICATES + 10 * TICK_CERTIFICATES) * largest
    assert all(holds for holds, _ in watched.told)


def test_who_pauses_again_and_again_beside_a_peer_that_asks_for_everything_gives_no_more_than_it_may() -> None:
    """A tick that is due in a pause comes at its end, so that the next one comes earlier."""
    fields = {
        "name": "paused",
        "validators": {"count": 4, "nodes": [{}, {"byzantine": ["greedy-asker"]}, {}, {}]},
        "consensus": {
            "protocol": "hotstuff",
            "block_interval_ms": 400,
            "leader_timeout_ms": 1_000,
            "advance_timeout_ms": 1_200,
            "rebroadcast_ms": 2_000,
        },
        "faults": [
            {"kind": "pause", "at_height": height, "for_ms": 2_500, "target": ["validator-0"]}
            for height in (12, 20, 28, 36)
        ],
        "stop": {"height": 45, "timeout_s": 1_200, "drain_blocks": 2},
    }
    monitor = simulate(Scenario.model_validate(fields), 1).monitor
    assert monitor is not None
    assert monitor.counts[SafetyRule.RESTRAINT] > 500
    assert monitor.violations == []


def test_the_certificate_that_answers_a_request_for_a_block_is_not_counted() -> None:
    watched = Watched()
    for _ in range(10 * BURST_CERTIFICATES):
        request = BlockRequest(bytes(32))
        watched.watch.hears(at_view(ANSWERER, VIEW), make_machine(ASKER), request)
        watched.send(ANSWERER, ASKER, GIVEN)
        watched.watch.heard(at_view(ANSWERER, VIEW), make_machine(ASKER), request)
    assert not watched.told


def proposing(watched: Watched, recipient: int | None, now_ms: float = 0.0, view: int = VIEW, life: int = 0) -> bool:
    """Whether validator 0 may send its proposal."""
    return watched.send(0, recipient, BENCH.proposal(view, "b"), view=view, life=life, now_ms=now_ms)


def test_a_proposal_is_broadcast_once() -> None:
    watched = Watched()
    assert [proposing(watched, None) for _ in range(2)] == [True, False]
    assert watched.told[-1][1] == "v0 broadcasts its proposal of view 10 again"
    assert proposing(watched, None, view=15)
    assert proposing(watched, None, view=15, life=1)


def test_a_proposal_is_sent_to_one_again_once_in_a_leader_timeout() -> None:
    watched = Watched()
    assert [proposing(watched, 1, now_ms) for now_ms in (0.0, 10.0, 499.0, 500.0)] == [True, True, False, False]
    assert [proposing(watched, 2, now_ms) for now_ms in (0.0, 499.0, 501.0, 1_000.0)] == [True, True, True, True]


def test_a_proposal_is_not_sent_again_to_whom_a_vote_was_heard_of() -> None:
    watched = Watched()
    bare = Timeout(BENCH.vote(3, TIMEOUT, VIEW, parent=4), None)
    for vote in (BENCH.vote(1, NULLIFY, VIEW), BENCH.vote(2, NULLIFY, VIEW - 1), bare):
        watched.watch.hears(at_view(0, VIEW), make_machine(1), vote)
    assert [proposing(watched, peer) for peer in (1, 2, 3)] == [False, True, True], "a bare timeout may not count"
    assert watched.told[0][1] == "v0 sends its proposal of view 10 again to v1, of which it heard a vote"
    assert proposing(watched, 1, life=1)


def test_a_forger_is_looked_at_once_in_many_views_of_a_life() -> None:
    watched = Watched()
    for life, view in ((0, 5), (0, 5 + DISTRUSTED_VIEWS), (1, 6 + DISTRUSTED_VIEWS)):
        watched.watch.performs(at_view(1, view, incarnation=life), PeerFault(2, BAD_CERTIFICATE))
    watched.watch.performs(at_view(1, 6 + DISTRUSTED_VIEWS, incarnation=1), PeerFault(3, BAD_CERTIFICATE))
    assert [holds for holds, _ in watched.told] == [True] * 4
    watched.watch.performs(at_view(1, 5 + 2 * DISTRUSTED_VIEWS, incarnation=1), PeerFault(2, BAD_CERTIFICATE))
    assert watched.told[-1] == (False, "v1 checks certificates of v2 that do not hold in views 70 and 133")


def test_the_numbers_are_the_engines() -> None:
    for name in ("ASKED_AT_A_TIME", "BURST_CERTIFICATES", "TICK_CERTIFICATES"):
        assert getattr(restraint_watch, name) == getattr(retransmission, name)
    assert certificate_bytes(8) == SIGNATURE_BYTES * 9
