"""Windows of messages: which are opened, what falls into them, and that all is bounded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.commands.rerun.entries import describe
from cluster.record.message_trace import (
    AFTER_MS,
    BEFORE_MS,
    HEAD_BYTES,
    KINDS,
    MAX_HALVES,
    MAX_MESSAGES_PER_WINDOW,
    MAX_VIEWS,
    MAX_WATCHED,
    MAX_WINDOWS,
    LiveTrace,
    SimulatedTrace,
    Stamp,
    Windows,
    choose_watched,
    halved,
    lasted_ms,
    peek,
)
from cluster.record.run import FaultRecord, RunRecord, Timings, TracedMessage, ViewEntered
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from cluster.watches.watched_simulation import WatchedSimulation
from consensus import messages as consensus
from consensus.messages import Certificate, CertificateRequest, Proposal, Timeout, TimeoutCertificate, Vote, VoteKind
from consensus.types import Digest, Signature, ValidatorIndex, View
from tests.cluster.records import make_genesis, make_scenario
from validator.chain.messages import (
    BlockRequest,
    BlockResponse,
    ChunkRequest,
    ConsensusMessage,
    FinalBlocksRequest,
    PeerMessage,
    Reading,
    SnapshotRequest,
    TransactionsMessage,
    ViewRequest,
    encode_message,
)

DIGEST, SIGNATURE, SIGNER = Digest(b"d" * 32), Signature(b"s" * 64), ValidatorIndex(1)
VIEWS = [1, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**63 - 1]


def make_run(**changes: object) -> RunRecord:
    return RunRecord(make_scenario(**changes), "sim", 1, "0123456789ab", make_genesis())


def vote(kind: VoteKind, view: int) -> Vote:
    digest = DIGEST if kind in (VoteKind.NOTARIZE, VoteKind.FINALIZE) else Digest(b"")
    return Vote(kind, View(view), View(0), digest, SIGNER, SIGNATURE)


def of_consensus(view: int) -> list[tuple[consensus.Message, str]]:
    number, notarize = View(view), vote(VoteKind.NOTARIZE, view)
    high = None
    return [
        (notarize, "notarize"),
        (vote(VoteKind.FINALIZE, view), "finalize"),
        (vote(VoteKind.NULLIFY, view), "nullify"),
        (vote(VoteKind.TIMEOUT, view), "timeout"),
        (Proposal(number, View(0), DIGEST, DIGEST, b"body" * 100, notarize), "proposal"),
        (Certificate.of(VoteKind.NOTARIZE, number, View(0), DIGEST, {SIGNER: SIGNATURE}), "certificate"),
        (TimeoutCertificate.of(number, high, {SIGNER: (View(0), SIGNATURE)}), "certificate"),
        (Timeout(vote(VoteKind.TIMEOUT, view), high), "timeout"),
        (CertificateRequest((number,)), "request"),
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_the_first_bytes_say_kind_and_view(view: int) -> None:
    for message, kind in of_consensus(view):
        payload = encode_message(ConsensusMessage(consensus.encode(message)))
        assert peek(payload[:HEAD_BYTES]) == (kind, view), message


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (TransactionsMessage((b"t" * 500,)), "transactions"),
        (BlockRequest(DIGEST), "request"),
        (BlockResponse(b"body"), "block"),
        (FinalBlocksRequest(1, 10), "request"),
        (SnapshotRequest(), "request"),
        (ChunkRequest(1, 2), "request"),
        (ViewRequest(b"nonce"), "request"),
    ],
)
def test_other_messages_have_a_kind_and_no_view(message: PeerMessage, kind: str) -> None:
    assert peek(encode_message(message)[:HEAD_BYTES]) == (kind, 0)


def test_what_is_no_message_is_something_else() -> None:
    payload = encode_message(ConsensusMessage(consensus.encode(vote(VoteKind.NOTARIZE, 2**40))))
    for garbage in (b"", b"\x91", b"\xff" * 40, bytes(40), payload[:8], b"\x91\x92\x01\xc4\x05\x93\x01\x09\x01"):
        assert peek(garbage) == ("other", 0)


# --- windows ----------------------------------------------------------------------------------------------------------


def message(at_ms: float, sender: int = 0) -> TracedMessage:
    return TracedMessage(sender, 1, at_ms, at_ms + 20.0, "notarize", 3, 200)


def test_the_beginning_faults_and_stalls_open_windows() -> None:
    record = make_run()
    fault = FaultRecord("kill", "validator-2", 6)
    record.faults.append(fault)
    windows = Windows(record)
    windows.begin()
    windows.look(5_000.0, 30)
    fault.begun_ms = 9_900.0
    windows.look(10_000.0, 45)
    windows.look(10_100.0, 45)
    windows.look(14_000.0, 45)
    windows.look(14_500.0, 45)
    fault.ended_ms = 15_000.0
    windows.look(15_100.0, 46)
    found = [(window.reason, window.begun_ms, window.ended_ms) for window in record.trace.windows]
    assert found == [
        ("the beginning", 0.0, AFTER_MS),
        ("kill validator-2 begins", 9_900.0 - BEFORE_MS, 9_900.0 + AFTER_MS),
        ("no final block after height 45; kill validator-2 is over", 14_000.0 - BEFORE_MS, 15_000.0 + AFTER_MS),
    ]


def test_windows_and_what_they_hold_are_bounded() -> None:
    record = make_run()
    windows = Windows(record)
    windows.begin()
    for number in range(MAX_MESSAGES_PER_WINDOW + 10):
        windows.keep(message(number / 10))
    for number in range(2 * MAX_WINDOWS):
        record.faults.append(FaultRecord("kill", "validator-1", 1, begun_ms=10_000.0 * (number + 1)))
        windows.look(10_000.0 * (number + 1), 1)
    for number in range(MAX_VIEWS + 10):
        windows.entered(1.0, 0, number)
    windows.close(1e9)
    first = record.trace.windows[0]
    assert (len(first.messages), first.is_full, first.ended_ms) == (
        MAX_MESSAGES_PER_WINDOW,
        True,
        (MAX_MESSAGES_PER_WINDOW - 1) / 10,
    )
    assert len(record.trace.windows) == MAX_WINDOWS
    assert MAX_VIEWS / 3 < len(record.trace.views) <= MAX_VIEWS


def test_no_window_lasts_longer_than_the_run() -> None:
    record = make_run()
    windows = Windows(record)
    windows.begin()
    windows.close(700.0)
    assert record.trace.windows[0].ended_ms == 700.0


@pytest.mark.kits
def test_in_a_crowd_the_broken_and_the_injured_are_watched() -> None:
    nodes: list[dict[str, Any]] = [{} for _ in range(40)]
    nodes[30] = {"mutant": "double-fire"}
    faults = [{"kind": "kill", "target": "validator-25", "at_height": 5}]
    watched = choose_watched(make_scenario(validators={"count": 40, "nodes": nodes}, faults=faults))
    assert len(watched) == MAX_WATCHED
    assert watched == (*range(10), 25, 30)


# --- the simulator ----------------------------------------------------------------------------------------------------


def test_what_was_sent_shortly_before_a_window_is_in_it() -> None:
    record = make_run()
    trace = SimulatedTrace(record)
    payload = encode_message(ConsensusMessage(consensus.encode(vote(VoteKind.FINALIZE, 9))))
    for at_us in (1_000_000, 1_900_000, 2_100_000):
        if at_us == 2_100_000:
            record.faults.append(FaultRecord("kill", "validator-1", 1, begun_ms=2_000.0))
            trace.look(2_000.0, 1)
        trace.sent(at_us, 0, range(4), payload, [(1, at_us + 20_000), (2, at_us + 21_000), (2, at_us + 30_000)])
    trace.windows.close(9_000.0)
    (window,) = record.trace.windows
    kept = [(kept.sent_ms, kept.receiver, kept.received_ms) for kept in window.messages]
    assert kept == [
        (1_900.0, 1, 1_920.0),
        (1_900.0, 2, 1_921.0),
        (1_900.0, 2, 1_930.0),
        (1_900.0, 3, None),
        (2_100.0, 1, 2_120.0),
        (2_100.0, 2, 2_121.0),
        (2_100.0, 2, 2_130.0),
        (2_100.0, 3, None),
    ]
    assert {(kept.kind, kept.view, kept.size) for kept in window.messages} == {("finalize", 9, len(payload))}
    assert trace.sent_by == [9, 0, 0, 0]


def test_a_simulated_run_is_traced_and_its_messages_are_what_they_were() -> None:
    scenario = Scenario.model_validate(
        {
            "name": "traced",
            "stop": {"height": 12, "timeout_s": 60},
            "links": {"loss": 0.05},
            "faults": [{"kind": "kill", "target": "validator-2", "at_height": 4, "down_ms": 2_000}],
        }
    )
    simulation = WatchedSimulation(scenario, 3, "")
    said: dict[tuple[int, float], set[tuple[str, int]]] = {}

    class Hearing(Observer):
        def sends(self, machine: Machine, recipient: int | None, payload: bytes, content: Reading | None) -> None:
            kind, _ = describe(payload, scenario.validators.names)
            said.setdefault((machine.index, simulation.clock.now_ms), set()).add((kind, len(payload)))

    simulation.observe(Hearing())
    record = simulation.run()
    reasons = [window.reason for window in record.trace.windows]
    assert reasons[0].startswith("the beginning")
    assert any("kill validator-2 begins" in reason for reason in reasons)
    votes = ("notarize", "finalize", "nullify", "timeout")
    for window in record.trace.windows:
        assert window.messages
        for kept in window.messages:
            assert kept.sent_ms is not None
            assert window.begun_ms <= kept.sent_ms <= window.ended_ms
            kind = "vote" if kept.kind in votes else kept.kind
            assert (kind, kept.size) in said[kept.sender, kept.sent_ms]
            assert kept.kind in KINDS
    lost = [kept for window in record.trace.windows for kept in window.messages if kept.received_ms is None]
    assert lost, "the links lose one in twenty"
    views = [(seen.at_ms, seen.view) for seen in record.trace.views if seen.validator == 0]
    assert views == sorted(views)
    assert len(views) >= 12
    assert {used.validator for used in record.resources} == {0, 1, 2, 3}
    assert max(used.disk_bytes for used in record.resources) > 1_000


# --- the live testnet -------------------------------------------------------------------------------------------------


def stamps(payload: bytes, at_ms: list[float], is_sent: bool, peer: int | None) -> list[Stamp]:
    return [Stamp(at, is_sent, peer, payload[:HEAD_BYTES], len(payload), crc32(payload)) for at in at_ms]


def test_what_was_sent_is_matched_with_what_arrived_in_its_order() -> None:
    record = make_run()
    trace = LiveTrace(record, 1_000_000.0)
    trace.windows.begin()
    same = encode_message(ConsensusMessage(consensus.encode(vote(VoteKind.NOTARIZE, 3))))
    other = encode_message(TransactionsMessage((b"x",)))
    trace.take(1, stamps(same, [1_000_160.0, 1_000_260.0], False, 0))
    trace.take(0, stamps(same, [1_000_150.0, 1_000_250.0], True, None))
    trace.take(2, stamps(same, [1_000_050.0, 1_000_170.0], False, 0))
    trace.take(3, stamps(other, [1_000_300.0], True, 1))
    trace.close(5_000.0)
    (window,) = record.trace.windows
    found = {(kept.sender, kept.receiver, kept.sent_ms, kept.received_ms, kept.kind) for kept in window.messages}
    assert found == {
        (0, 1, 150.0, 160.0, "notarize"),
        (0, 1, 250.0, 260.0, "notarize"),
        (0, 2, None, 50.0, "notarize"),
        (0, 2, 150.0, 170.0, "notarize"),
        (0, 2, 250.0, None, "notarize"),
        (0, 3, 150.0, None, "notarize"),
        (0, 3, 250.0, None, "notarize"),
        (3, 1, 300.0, None, "transactions"),
    }


def test_a_calibration_has_all_messages_of_which_both_ends_were_seen() -> None:
    record = make_run()
    record.timings = Timings()
    trace = LiveTrace(record, 1_000_000.0)
    assert trace.wants(10 * AFTER_MS)
    payload = encode_message(ConsensusMessage(consensus.encode(vote(VoteKind.NOTARIZE, 3))))
    trace.take(0, stamps(payload, [1_000_150.0, 1_900_000.0], True, None))
    trace.take(1, stamps(payload, [1_000_160.0, 1_900_020.0], False, 0))
    trace.close(1_000_000.0)
    ends = [(each.sender, each.receiver, each.sent_ms, each.received_ms) for each in record.timings.messages]
    assert ends == [(0, 1, 150.0, 160.0), (0, 1, 900_000.0, 900_020.0)]


def test_what_a_live_run_remembers_is_bounded() -> None:
    trace = LiveTrace(make_run(), 0.0)
    trace.windows.begin()
    payload = encode_message(TransactionsMessage((b"x",)))
    trace.take(0, stamps(payload, [float(at) for at in range(MAX_HALVES + 5)], True, 1))
    assert sum(1 for _ in trace._matched()) == MAX_HALVES


def test_stamps_are_asked_for_while_a_window_is_open() -> None:
    trace = LiveTrace(make_run(), 0.0)
    assert not trace.wants(0.0)
    trace.windows.begin()
    assert trace.wants(AFTER_MS)
    assert not trace.wants(AFTER_MS + BEFORE_MS + 1)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 1)), min_size=2, max_size=60), st.integers(1, 4))
def test_halving_keeps_the_longest_view_and_the_newest(steps: list[tuple[int, int]], times: int) -> None:
    views, now = [], 0
    for view, (wait, validator) in enumerate(steps):
        now += wait
        views.append(ViewEntered(float(now), validator, view))
    kept = views
    for _ in range(times):
        kept = halved(kept)
    for validator in {seen.validator for seen in views}:
        mine = [seen for seen in views if seen.validator == validator]
        left = [seen for seen in kept if seen.validator == validator]
        assert left[-1] == mine[-1]
        lasted = {one.view: other.at_ms - one.at_ms for one, other in pairwise(mine)}
        assert all(lasted_ms(seen) == lasted[seen.view] for seen in left[:-1]), "each as long as it was"
        assert max(map(lasted_ms, left[:-1]), default=0.0) == max(lasted.values(), default=0.0)
    assert len(kept) <= len(views) / 2**times + 4
