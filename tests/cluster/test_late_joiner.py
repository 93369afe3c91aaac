"""A validator without state joins a running testnet of the simulator by a snapshot, whatever its peers do."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from cluster.scenario import Scenario, load_scenario
from cluster.simulation.disk import MemoryDisk
from cluster.simulation.driver import Simulation
from validator.events import Effect, Message, PeerFault, Send, Started, Timeout
from validator.executor import ReadSnapshot, SnapshotRead
from validator.joining import JOIN_TIMER, SnapshotJoin
from validator.messages import (
    ChunkRequest,
    ChunkResponse,
    SnapshotOffer,
    SnapshotRequest,
    decode_message,
    encode_message,
)

SMOKE = Path(__file__).resolve().parents[2] / "scenarios" / "smoke.yaml"
SEED = 3
LATE = 3
JOINS_AT = 20


def scenario() -> Scenario:
    plan = load_scenario(SMOKE)
    return plan.model_copy(update={"faults": [], "stop": plan.stop.model_copy(update={"height": 40})})


def late_simulation() -> Simulation:
    """One validator is not there at first, and then joins."""
    return Simulation(scenario(), SEED, "test", late={LATE: JOINS_AT})


def test_a_late_validator_joins_by_snapshot_and_takes_part() -> None:
    simulation = late_simulation()
    simulation.run()
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


def test_a_late_validator_restarts_from_its_own_disk() -> None:
    simulation = late_simulation()
    simulation.run()
    late = simulation.machines[LATE]
    before = late.validator
    assert before is not None
    final = (before.executor.final_digest, before.executor.final_view.root)
    late.crash(Random(1))
    late.start()
    after = late.validator
    assert after is not None
    assert (after.executor.final_digest, after.executor.final_view.root) == final


# --- the join alone, with peers of every kind -----------------------------------------------------------------------


class Peers:
    """The validators of a testnet that ran for a while, answering a join; some of them wrongly."""

    def __init__(self) -> None:
        plan = scenario()
        plan = plan.model_copy(update={"stop": plan.stop.model_copy(update={"height": JOINS_AT, "drain_blocks": 0})})
        self.simulation = Simulation(plan, SEED, "test")
        self.simulation.run()

    def answer(self, peer: int, request: SnapshotRequest | ChunkRequest) -> SnapshotOffer | ChunkResponse | None:
        validator = self.simulation.machines[peer].validator
        assert validator is not None
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
            assert isinstance(message, SnapshotRequest | ChunkRequest)
            answer = peers.answer(effect.recipient, message)
            if answer is not None and liars.get(effect.recipient) != "silent":
                payload = tampered(answer, liars.get(effect.recipient, ""))
                effects += join.handle(Message(effect.recipient, payload))
        if not effects:
            effects = join.handle(Timeout(JOIN_TIMER))
    return faults + [effect for effect in effects if isinstance(effect, PeerFault)]


def tampered(answer: SnapshotOffer | ChunkResponse, how: str) -> bytes:
    """An answer as a lying peer would send it."""
    if how == "chunk" and isinstance(answer, ChunkResponse):
        answer = ChunkResponse(answer.height, answer.chunk, answer.data[:-1] + bytes([answer.data[-1] ^ 1]))
    elif how == "manifest" and isinstance(answer, SnapshotOffer):
        manifest = answer.manifest[:-1] + bytes([answer.manifest[-1] ^ 1])
        answer = SnapshotOffer(answer.body, answer.receipts, answer.certificate, manifest)
    elif how == "block" and isinstance(answer, SnapshotOffer):
        answer = SnapshotOffer(answer.body[:-1], answer.receipts, answer.certificate, answer.manifest)
    elif how == "certificate" and isinstance(answer, SnapshotOffer):
        answer = SnapshotOffer(answer.body, answer.receipts, b"", answer.manifest)
    elif how == "noise":
        return b"noise"
    return encode_message(answer)


def new_join(peers: Peers, disk: MemoryDisk) -> SnapshotJoin:
    machine = peers.simulation.machines[LATE]
    machine.disk = disk
    return peers.simulation.snapshot_join(machine)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("chunk", "bad_chunk"),
        ("manifest", "bad_manifest"),
        ("block", "bad_offer"),
        ("certificate", "bad_offer"),
        ("noise", "undecodable"),
        ("silent", None),
    ],
)
def test_wrong_answers_are_refused_and_their_senders_named(peers: Peers, how: str, reason: str | None) -> None:
    liars = {0: how, 1: how}
    join = new_join(peers, MemoryDisk())
    faults = drive(join, peers, liars)
    assert join.is_done
    assert {fault.peer for fault in faults} <= {0, 1}
    assert {fault.reason for fault in faults} == ({reason} if reason else set())


def test_nothing_comes_of_liars_alone(peers: Peers) -> None:
    for how in ("chunk", "manifest", "certificate"):
        disk = MemoryDisk()
        join = new_join(peers, disk)
        faults = drive(join, peers, dict.fromkeys(range(3), how), most=40)
        assert not join.is_done
        assert {fault.peer for fault in faults} == {0, 1, 2}
        assert not [name for name in disk.names() if "chunk" in name or "log" in name]


def test_an_interrupted_join_goes_on(peers: Peers) -> None:
    disk = MemoryDisk()
    drive(new_join(peers, disk), peers, {}, most=1)
    assert "state/manifest" in disk.names()
    disk.crash(Random(1))
    join = new_join(peers, disk)
    assert drive(join, peers, {}) == []
    assert join.is_done
