"""A validator without state joins a running testnet of the simulator by a snapshot, whatever its peers do."""

from __future__ import annotations

from copy import deepcopy
from heapq import heappop, heappush
from pathlib import Path
from random import Random

import msgspec
import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.disks.memory import MemoryDisk
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, load_scenario
from cluster.scenario.genesis import chain_id, validator_set
from cluster.scenario.overrides import Change
from cluster.scenario.sections.validators import NodeSection, ValidatorsSection
from cluster.simulation.machine import Machine
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import Ed25519Scheme
from consensus.messages import Certificate
from consensus.messages import decode as decode_consensus
from consensus.messages import encode as encode_consensus
from consensus.types import View
from validator.chain.block import BlockReceipts, decode_block
from validator.chain.messages import (
    ChunkRequest,
    ChunkResponse,
    SnapshotOffer,
    SnapshotRequest,
    ViewReport,
    ViewRequest,
    decode_message,
    encode_message,
)
from validator.node import snapshot_join
from validator.node.events import (
    Append,
    Effect,
    Event,
    Message,
    PeerFault,
    Send,
    SetTimer,
    Started,
    Timeout,
    TimerName,
)
from validator.node.executor import snapshot_service
from validator.node.executor.executor import DEFAULT_STORAGE
from validator.node.executor.jobs import ReadSnapshot, SnapshotRead
from validator.node.snapshot_join import JOIN_TIMER, SnapshotJoin, has_joined
from validator.primitives.types import Height
from validator.storage.archive import ArchivedBlock, BlockArchive

Request = SnapshotRequest | ChunkRequest | ViewRequest
Answer = SnapshotOffer | ChunkResponse | ViewReport

SMOKE = Path(__file__).resolve().parents[3] / "scenarios" / "smoke.yaml"
SEED = 3
LATE = 3
HELD_BACK_THROUGH = 40
"""Heights of snapshots up to here are final by their descendants alone; the last block of all is not."""
JOINS_AT = 20
PEERS = 6
"""Of seven validators two may be faulty: the one that joins, which may have voted before, and another one."""
ENOUGH_VIEWS = 5


FEW_TIMERS = 6
TIMERS_OF_TWO_CHUNKS = 18


def scenario(joins_at: int | None = None, timers: int = FEW_TIMERS) -> Scenario:
    """The smoke test's, with a lighter load."""
    plan = change_scenario(load_scenario(SMOKE), [Change("load.users[1].options.timers", timers)], "late")
    nodes = [NodeSection()] * LATE + [NodeSection(joins_at_height=joins_at)]
    validators = plan.validators.model_copy(update={"nodes": nodes})
    stop = plan.stop.model_copy(update={"height": 40})
    return plan.model_copy(update={"faults": [], "stop": stop, "validators": validators})


def late_simulation(timers: int = FEW_TIMERS) -> WatchedSimulation:
    """One validator is not there at first, and then joins."""
    return WatchedSimulation(scenario(JOINS_AT, timers), SEED, "test")


@pytest.fixture(scope="module")
def joined() -> WatchedSimulation:
    """Run once for all tests that look at it; they leave it as it is."""
    simulation = late_simulation(TIMERS_OF_TWO_CHUNKS)
    simulation.run()
    return simulation


def test_a_late_validator_joins_by_snapshot_and_takes_part(joined: WatchedSimulation) -> None:
    simulation, record = joined, joined.record
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, [check for check in verdict.checks if check.verdict is not Outcome.PASS]
    assert [join.target for join in record.joins] == [f"validator-{LATE}"]
    assert len(record.joins[0].chunks) > 1, "several peers gave it parts of the state"
    late = simulation.machines[LATE].validator
    assert late is not None
    assert 0 < late.executor.recovered_height <= JOINS_AT + 8, "it began with a snapshot, not with the genesis"
    assert late.executor.archive.get(1) is None
    heights = [m.validator.node.height for m in simulation.machines if m.validator is not None]
    assert min(heights) >= 40
    height = min(heights)
    archives = [m.validator.executor.archive for m in simulation.machines if m.validator is not None]
    kept = [archive.get(height) for archive in archives]
    assert len({archived.computed_root for archived in kept if archived is not None}) == 1
    blocks = [late.executor.archive.block(each) for each in range(JOINS_AT + 8, height)]
    proposers = {block.header.proposer for block in blocks if block is not None}
    assert LATE in proposers, "it builds blocks like the others"


def test_a_run_is_not_over_before_a_validator_that_joined_last_has_a_block() -> None:
    """It joins when all others are done, with a snapshot above the goal."""
    plan = scenario(joins_at=30)
    simulation = WatchedSimulation(
        plan.model_copy(update={"stop": plan.stop.model_copy(update={"height": 8})}), SEED, "test"
    )
    simulation.run()
    late = simulation.machines[LATE].validator
    assert late is not None
    assert late.executor.archive.height > late.executor.archive.joined_height > 8
    (progress,) = [check for check in check_run(simulation.record).checks if check.name == "progress"]
    assert progress.verdict is not Outcome.FAIL, progress.detail


@pytest.mark.slow
def test_a_height_without_a_certificate_of_its_own_is_offered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot's heights may all happen to be final by their descendants alone."""
    append = BlockArchive.append

    def append_without(self: BlockArchive, archived: ArchivedBlock, receipts: BlockReceipts) -> None:
        if receipts.height % DEFAULT_STORAGE.snapshot_interval == 0 and receipts.height <= HELD_BACK_THROUGH:
            archived = msgspec.structs.replace(archived, certificate=b"")
        append(self, archived, receipts)

    monkeypatch.setattr(BlockArchive, "append", append_without)
    simulation = late_simulation()
    verdict = check_run(simulation.run())
    assert verdict.outcome is Outcome.PASS, [check for check in verdict.checks if check.verdict is not Outcome.PASS]
    late = simulation.machines[LATE].validator
    assert late is not None
    start = late.executor.archive.get(late.executor.archive.first_height)
    assert start is not None and not start.certificate, "it begins behind a block that links proved"


def test_a_late_validator_restarts_from_its_own_disk(joined: WatchedSimulation) -> None:
    late = joined.machines[LATE]
    before = late.validator
    assert before is not None
    disk = deepcopy(late.disk)
    disk.crash(Random(1))
    assert has_joined(disk), "it need not join again"
    after = late.boot(disk)
    assert after.executor.final_digest == before.executor.final_digest
    assert after.executor.final_view.root == before.executor.final_view.root


class KilledWhileJoining(WatchedSimulation):
    """The late validator is killed some time after it began to join, and comes back."""

    kill_after_us = 0
    was_joining = False

    def begin(self) -> None:
        super().begin()
        late = self.machines[-1]
        late.listeners.begins_to_join += (self._kill_later,)

    def _kill_later(self, machine: Machine, nonce: bytes) -> None:
        if machine.tally.starts == 1:
            self.clock.after(self.kill_after_us, "kill", b"", lambda: self._kill_machine(machine))

    def _kill_machine(self, machine: Machine) -> None:
        self.was_joining = machine.joining is not None
        machine.crash(self.random)
        self.clock.after(100_000, "back", b"", machine.start)


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", [0, 45])
def test_a_validator_that_is_killed_while_it_joins_goes_on_joining(milliseconds: int) -> None:
    simulation = KilledWhileJoining(scenario(JOINS_AT), SEED, "test")
    simulation.kill_after_us = 1_000 * milliseconds
    record = simulation.run()
    assert simulation.was_joining
    assert check_run(record).check("joins").verdict is Outcome.PASS


@pytest.mark.slow
def test_a_late_join_is_the_same_for_the_same_seed(joined: WatchedSimulation) -> None:
    first, second = joined.record, late_simulation(TIMERS_OF_TWO_CHUNKS).run()
    assert first.digest == second.digest
    assert first.joins == second.joins


# --- the join alone, with peers of every kind -----------------------------------------------------------------------


class Peers:
    """The validators of a testnet that ran for a while, answering a join; some of them wrongly."""

    def __init__(self) -> None:
        plan = scenario()
        stop = plan.stop.model_copy(update={"height": JOINS_AT, "drain_blocks": 0})
        validators = ValidatorsSection(count=PEERS + 1)
        plan = plan.model_copy(update={"stop": stop, "validators": validators})
        self.simulation = WatchedSimulation(plan, SEED, "test")
        self.simulation.run()

    @property
    def views(self) -> list[int]:
        """The current views of all but the one that joins."""
        machines = [machine for machine in self.simulation.machines if machine.index != LATE]
        return [machine.validator.node.view for machine in machines if machine.validator is not None]

    def answer(self, peer: int, request: Request) -> Answer | None:
        validator = self.simulation.machines[peer].validator
        assert validator is not None
        if isinstance(request, ViewRequest):
            (sent,) = validator.node.handle(Message(LATE, encode_message(request)))
            assert isinstance(sent, Send)
            report = decode_message(sent.payload)
            assert isinstance(report, ViewReport)
            return report
        result = validator.executor.run(ReadSnapshot(LATE, request))
        assert isinstance(result, SnapshotRead)
        return result.response


@pytest.fixture(scope="module")
def peers() -> Peers:
    return Peers()


def drive(join: SnapshotJoin, peers: Peers, liars: dict[int, str], most: int = 100) -> list[PeerFault]:
    """Deliver what a join sends and what its peers answer, in order; returns whom it blames."""
    faults: list[PeerFault] = []
    effects: list[Effect] = join.handle(Started())
    while not join.is_done and most:
        most -= 1
        waiting, effects = effects, []
        sent = [effect for effect in waiting if isinstance(effect, Send)]
        faults += [effect for effect in waiting if isinstance(effect, PeerFault)]
        for effect in sent:
            assert effect.recipient is not None
            message = decode_message(effect.payload)
            assert isinstance(message, Request)
            answer = peers.answer(effect.recipient, message)
            if answer is not None and liars.get(effect.recipient) != "silent":
                payload = tampered(answer, liars.get(effect.recipient, ""))
                effects += join.handle(Message(effect.recipient, payload))
        if not effects:
            effects = join.handle(Timeout(JOIN_TIMER))
    return faults + [effect for effect in effects if isinstance(effect, PeerFault)]


def drive_over(join: SnapshotJoin, peers: Peers, round_trip_ms: int, until_ms: int) -> int:
    """Deliver every answer so much later, with the join's own timer; returns when it was done, in ms."""
    now_ms, number = 0, 0
    queue: list[tuple[int, int, Event]] = [(0, 0, Started())]
    while queue and now_ms <= until_ms and not join.is_done:
        now_ms, _, event = heappop(queue)
        for effect in join.handle(event):
            number += 1
            if isinstance(effect, SetTimer):
                heappush(queue, (now_ms + effect.delay_ms, number, Timeout(effect.timer)))
            elif isinstance(effect, Send):
                assert effect.recipient is not None
                request = decode_message(effect.payload)
                assert isinstance(request, Request)
                answer = peers.answer(effect.recipient, request)
                if answer is not None:
                    message = Message(effect.recipient, encode_message(answer))
                    heappush(queue, (now_ms + round_trip_ms, number, message))
    return now_ms


def tampered(answer: Answer, how: str) -> bytes:
    """An answer as a lying peer would send it."""
    if how == "chunk" and isinstance(answer, ChunkResponse):
        answer = msgspec.structs.replace(answer, data=answer.data[:-1] + bytes([answer.data[-1] ^ 1]))
    elif how == "manifest" and isinstance(answer, SnapshotOffer):
        manifest = answer.manifest[:-1] + bytes([answer.manifest[-1] ^ 1])
        answer = msgspec.structs.replace(answer, manifest=manifest)
    elif how == "block" and isinstance(answer, SnapshotOffer):
        answer = msgspec.structs.replace(answer, body=answer.body[:-1])
    elif how == "certificate" and isinstance(answer, SnapshotOffer):
        answer = msgspec.structs.replace(answer, certificate=b"")
    elif how == "links" and isinstance(answer, SnapshotOffer):
        block = decode_block(answer.body)
        assert block is not None
        answer = msgspec.structs.replace(answer, links=(block.header,))
    elif how == "view" and isinstance(answer, ViewReport):
        certificate = decode_consensus(answer.certificate)
        assert isinstance(certificate, Certificate)
        forged = msgspec.structs.replace(certificate, view=View(certificate.view + 1_000))
        answer = msgspec.structs.replace(answer, certificate=encode_consensus(forged))
    elif how == "receipts" and isinstance(answer, SnapshotOffer):
        answer = msgspec.structs.replace(answer, receipts=b"\xc1 rubbish")
    elif how == "noise":
        return b"noise"
    return encode_message(answer)


def new_join(peers: Peers, disk: MemoryDisk, nonce: bytes = b"nonce") -> SnapshotJoin:
    plan, seed = peers.simulation.scenario, peers.simulation.record.seed
    validators = validator_set(Ed25519Scheme(), plan, seed)
    return SnapshotJoin(disk, LATE, validators, chain_id(plan, seed), nonce=nonce)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("chunk", "bad_chunk"),
        ("manifest", "bad_manifest"),
        ("block", "bad_offer"),
        ("certificate", "bad_offer"),
        ("links", "bad_offer"),
        ("receipts", "bad_offer"),
        ("view", "bad_view"),
        ("noise", "undecodable"),
        ("silent", None),
    ],
)
def test_wrong_answers_are_refused_and_their_senders_named(peers: Peers, how: str, reason: str | None) -> None:
    liars = {LATE + 1: how} if how in ("view", "noise", "silent") else {LATE + 1: how, LATE + 2: how}
    join = new_join(peers, MemoryDisk())
    faults = drive(join, peers, liars)
    assert join.is_done
    assert {fault.peer for fault in faults} <= set(liars)
    assert {fault.reason for fault in faults} == ({reason} if reason else set())


def test_nothing_comes_of_liars_alone(peers: Peers) -> None:
    for how in ("chunk", "manifest", "certificate"):
        disk = MemoryDisk()
        join = new_join(peers, disk)
        everybody = [peer for peer in range(PEERS + 1) if peer != LATE]
        faults = drive(join, peers, dict.fromkeys(everybody, how), most=60)
        assert not join.is_done
        assert {fault.peer for fault in faults} == set(everybody)
        assert not [name for name in disk.names() if "chunk" in name or "log" in name]


@pytest.mark.parametrize(("round_trip_ms", "done_ms"), [(200, 1_000), (2_200, 10_000)])
def test_a_round_trip_longer_than_all_rounds_delays_a_join_and_does_not_prevent_it(
    peers: Peers, round_trip_ms: int, done_ms: int
) -> None:
    join = new_join(peers, MemoryDisk())
    assert drive_over(join, peers, round_trip_ms, done_ms) <= done_ms
    assert join.is_done


@pytest.mark.parametrize("how", ["silent", "view"])
def test_without_enough_views_of_peers_nobody_joins(peers: Peers, how: str) -> None:
    join = new_join(peers, MemoryDisk())
    drive(join, peers, {0: how, 1: how}, most=40)
    assert not join.is_done, "four of the seven do not tell where it may have voted"
    drive(join, peers, {0: how})
    assert join.is_done


def test_who_joins_abstains_where_it_may_have_voted_before(peers: Peers) -> None:
    disk = MemoryDisk()
    drive(new_join(peers, disk), peers, {})
    abstain_through = BlockArchive(disk).abstain_through
    views = sorted(peers.views)
    assert views[ENOUGH_VIEWS - 1] + 1 <= abstain_through <= views[-1] + 1
    earlier = peers.simulation.machines[LATE].validator
    assert earlier is not None
    assert earlier.node.view <= abstain_through, "it was in that view with the journal that it has no more"
    validator = peers.simulation.machines[LATE].boot(disk)
    for number in range(validator.node.view, abstain_through + 1):
        effects = [*validator.node.handle(Started()), *validator.node.handle(Timeout(TimerName("leader", number)))]
        assert not [effect for effect in effects if isinstance(effect, Append)], "it does not vote"


def test_an_old_offer_that_nobody_asked_for_stops_nobody(peers: Peers) -> None:
    """A genuine one, of a height whose chunks no honest peer has any more, pushed again and again."""
    executor = peers.simulation.machines[0].validator
    assert executor is not None
    archived = executor.executor.archive.get(1)
    assert archived is not None
    manifest = executor.executor._store.manifest(Height(1)).encode()
    old = encode_message(SnapshotOffer(archived.block, archived.receipts, (), archived.certificate, manifest))
    join, rounds = new_join(peers, MemoryDisk()), 0
    effects = join.handle(Message(0, old)) + join.handle(Started())
    while not join.is_done and rounds < 200:
        sent = [effect for effect in effects if isinstance(effect, Send)]
        effects = join.handle(Message(0, old))
        for effect in sent:
            message = decode_message(effect.payload)
            assert effect.recipient is not None and isinstance(message, Request)
            pruned = isinstance(message, ChunkRequest) and message.height == 1
            if effect.recipient == 0 and isinstance(message, SnapshotRequest):
                effects += join.handle(Message(0, old))
            elif effect.recipient != 0 and not pruned and (answer := peers.answer(effect.recipient, message)):
                effects += join.handle(Message(effect.recipient, encode_message(answer)))
        if not effects:
            rounds += 1
            effects = join.handle(Timeout(JOIN_TIMER))
    assert join.is_done


def test_views_told_to_an_earlier_join_do_not_count(peers: Peers) -> None:
    earlier, later = new_join(peers, MemoryDisk(), b"earlier"), new_join(peers, MemoryDisk(), b"later")
    for effect in earlier.handle(Started()):
        if isinstance(effect, Send) and isinstance(request := decode_message(effect.payload), ViewRequest):
            assert effect.recipient is not None
            answer = peers.answer(effect.recipient, request)
            assert answer is not None
            later.handle(Message(effect.recipient, encode_message(answer)))
            earlier.handle(Message(effect.recipient, encode_message(answer)))
    assert earlier.abstain_through > 2
    assert later.abstain_through == 1, "it knows of no view yet"


def test_a_chunk_that_rotted_is_asked_for_again(peers: Peers) -> None:
    disk = MemoryDisk()
    drive(new_join(peers, disk), peers, {0: "view", 1: "view"}, most=20)  # it has the state, and too few views
    chunks = [name for name in disk.names() if "chunk" in name]
    assert chunks and not has_joined(disk)
    disk.replace(chunks[0], b"rot" + disk.read(chunks[0])[3:])
    join = new_join(peers, disk)
    assert drive(join, peers, {}) == [], "nobody is blamed"
    assert join.is_done


def test_a_chunk_longer_than_a_message_comes_in_pieces(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (snapshot_join, snapshot_service):
        monkeypatch.setattr(module, "MAX_PIECE_BYTES", 3_000)
    join = new_join(peers, MemoryDisk())
    assert drive(join, peers, {}) == []
    assert join.is_done
    cut = new_join(peers, MemoryDisk())
    faults = drive(cut, peers, {LATE + 1: "chunk"})
    assert cut.is_done
    assert {(fault.peer, fault.reason) for fault in faults} <= {(LATE + 1, "bad_chunk")}


def test_an_interrupted_join_goes_on(peers: Peers) -> None:
    disk = MemoryDisk()
    drive(new_join(peers, disk), peers, {}, most=1)
    assert "state/manifest" in disk.names()
    disk.crash(Random(1))
    join = new_join(peers, disk)
    assert drive(join, peers, {}) == []
    assert join.is_done


def test_a_fault_before_a_validator_joined_may_leave_no_quorum() -> None:
    """Two of four are missing then: to stand still is right. With the late one there, it is not."""
    plan = Scenario.model_validate(
        {
            "name": "late",
            "validators": [{}, {}, {}, {"joins_at_height": 14}],
            "consensus": {"signatures": "keyed-hash", "leader_timeout_ms": 343, "advance_timeout_ms": 445},
            "faults": [{"kind": "failed_sync", "target": "leader", "at_height": 3}],
            "stop": {"height": 15},
        }
    )
    record = WatchedSimulation(plan, 1, "test").run()
    (fault,) = record.faults
    assert fault.begun_ms is not None and fault.ended_ms is not None
    assert not [seen for seen in record.finalizations if fault.begun_ms + 10 < seen.at_ms < fault.ended_ms]
    judged = check_run(record).check("faults")
    assert judged.verdict is not Outcome.FAIL, judged.detail
    record.joins.clear()
    assert "no height finalised" in check_run(record).check("faults").detail


def test_who_had_nothing_final_recovers_nothing() -> None:
    plan = {
        "name": "early",
        "validators": 2,
        "consensus": {"signatures": "keyed-hash"},
        "faults": [{"kind": "failed_sync", "target": "leader", "at_height": 1}],
        "stop": {"height": 2},
    }
    record = WatchedSimulation(Scenario.model_validate(plan), 1, "test").run()
    judged = check_run(record).check("faults")
    assert judged.verdict is Outcome.INCONCLUSIVE
    assert "validator-0 had nothing final yet" in judged.detail
