"""Whole nodes against each other: finality, catching up, bad blocks, divergence, and restarts from the journal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest

from cluster.disks.memory import MemoryDisk
from consensus.allowance import Allowances
from consensus.interface import StartTimer, TimerKind
from consensus.keys import Signer
from consensus.leader import RoundRobin
from consensus.messages import Certificate, Proposal, Vote, VoteKind, vote_signing_bytes
from consensus.messages import decode as decode_consensus
from consensus.messages import encode as encode_consensus
from consensus.types import Digest, ValidatorIndex, View
from tests.validator.chains import ACTOR, ALICE, schedule
from tests.validator.executors import wire
from tests.validator.network import Network, WatchedMachine, consensus_message, ed25519, peer_message
from validator.chain.block import Block, Header, header_hash
from validator.chain.messages import (
    MAX_BLOCKS_ASKED,
    BlockRequest,
    BlockResponse,
    ConsensusMessage,
    FinalBlocksRequest,
    FinalBlocksResponse,
    TransactionsMessage,
    ViewRequest,
    encode_message,
)
from validator.chain.transactions import transaction_hash
from validator.node import offers, outbox
from validator.node.blocks import verification
from validator.node.blocks.catch_up import SYNC_TIMER
from validator.node.events import (
    Append,
    BlockFinal,
    Diverged,
    Dropped,
    Effect,
    EvidenceFound,
    Message,
    PeerFault,
    ReplaceJournal,
    Reply,
    Run,
    Send,
    Submit,
    SubmitResult,
    Timeout,
    TimerName,
)
from validator.node.evidence import base_digest, contradicts_its_vote, decode_misconduct, verify_misconduct
from validator.node.executor.executor import Executor, execution_error
from validator.node.executor.jobs import Finalize
from validator.node.limits import BlockLimits
from validator.primitives.codec import decode, encode
from validator.primitives.types import Hash
from validator.storage.journal import encode_batch
from validator.transition.transition import PreparedTransaction, Transition


class WrongBalance(Transition):
    """A bug: from height 3 on, whoever sends a transaction gets one unit too much back."""

    def execute(self, prepared: PreparedTransaction) -> None:
        super().execute(prepared)
        if self.context.height >= 3:
            self.world.credit(prepared.transaction.sender, 1)


def keep_busy(network: Network, targets: tuple[int, ...] = (0, 1, 2)) -> None:
    """A transaction every 40 ms, from now on."""
    nonces = count()

    def submit() -> None:
        network.clock.after(40_000, "user", b"", submit)
        item = wire(next(nonces), schedule(2, ["set", "k", "v"]))
        for target in targets:
            network.machines[target].submit(0, (item,))

    submit()


# --- finality -------------------------------------------------------------------------------------------------------


def test_four_nodes_make_one_chain() -> None:
    network = Network(scheme=ed25519()).start()
    assert network.submit(2, wire(0, schedule(2, ["emit", "n", "x"])), wire(1), wire(1, ["burn", 5]), b"junk") == [
        None,
        None,
        "max_fee_per_cycle: 1000000000, expected at least 1100000000 to replace what waits with nonce 1",
        "malformed transaction: no SignedTransaction: Expected `array`, got `int`",
    ]
    network.run_to(8)
    network.require_one_chain()
    page = network.validator(3).executor.pages.account(ALICE)
    assert (page["nonce"], network.validator(1).executor.pages.account(ACTOR)["live_timers"]) == (2, 0)
    assert [len(network.validator(index).node.mempool) for index in range(4)] == [0] * 4
    assert sum(final.fires for final in network.effects_of(BlockFinal, 0)) == 1
    assert not [effect for _, effect in network.effects if isinstance(effect, PeerFault | Diverged)]


def test_a_single_node_is_a_network() -> None:
    network = Network(count=1).start()
    network.submit(0, wire(0))
    network.run_to(5)
    assert network.validator(0).executor.pages.account(ALICE)["nonce"] == 1


def test_many_transactions_reach_peers_in_messages_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MAX_GOSSIPED_TRANSACTIONS", 3)
    network = Network().start()
    assert network.submit(0, *[wire(nonce) for nonce in range(8)]) == [None] * 8
    network.run_for(8)
    assert [len(network.validator(index).node.mempool) for index in range(4)] == [8] * 4
    sizes = [len(item) for item in (b"a", b"bb", b"ccc", b"d")]
    monkeypatch.setattr(offers, "MAX_GOSSIPED_BYTES", 3)
    batches = list(offers.batches([b"x" * size for size in sizes]))
    assert batches == [(b"x", b"xx"), (b"xxx",), (b"x",)]
    assert list(offers.batches([])) == []


# --- catching up ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("latency_ms", "sync_retry_ms"), [(5, 250), pytest.param(60, 50, marks=pytest.mark.slow)])
def test_a_node_that_missed_everything_catches_up_by_ranges(latency_ms: int, sync_retry_ms: int) -> None:
    """Also where every answer comes after the next peer was asked already."""
    network = Network(latency_ms=latency_ms, sync_retry_ms=sync_retry_ms, cut={3}).start()
    keep_busy(network)
    network.run_to(70, 0, 1, 2)
    assert network.height(3) == 0
    network.cut.clear()
    network.run_to(70, 3, limit_ms=15_000)
    network.require_one_chain()
    network.run_to(network.height(0) + 5)


def test_a_restarted_node_goes_on_from_its_own_disk() -> None:
    network = Network().start()
    keep_busy(network)
    network.run_to(10)
    network.crash(2)
    network.run_to(20, 0, 1, 3)
    network.machines[2].start()
    assert network.height(2) >= 9
    network.run_to(25)
    network.require_one_chain()


def test_a_node_without_a_body_asks_for_it() -> None:
    """It sees votes and certificates, but no proposals."""
    network = Network()

    def no_proposals(_sender: int, target: int, payload: bytes) -> bytes | None:
        return None if target == 3 and isinstance(consensus_message(payload), Proposal) else payload

    network.tap = no_proposals
    network.start()
    keep_busy(network)
    network.run_to(12, limit_ms=20_000)
    network.require_one_chain()


def test_a_block_that_nothing_waits_for_any_more_is_not_asked_for_for_ever() -> None:
    network = Network().start()
    network.run_to(3)
    node = network.validator(0).node
    cases: list[tuple[dict[Hash, Any], int]] = [({}, 0), ({Hash(b"\2" * 32): []}, 1)]
    for waiting, asked in cases:
        node._catch_up._wanted, node._verification._requests = Hash(b"\1" * 32), waiting
        node._proposals._due, node._finality.target = None, None
        effects = node.handle(Timeout(SYNC_TIMER))
        requests = [peer_message(effect.payload) for effect in effects if isinstance(effect, Send)]
        assert requests == [BlockRequest(b"\1" * 32)] * asked


# --- bad blocks -----------------------------------------------------------------------------------------------------


def test_a_bad_block_from_the_leader_is_rejected_and_its_maker_diverges() -> None:
    network = Network(transitions={1: WrongBalance}).start()
    keep_busy(network, (0, 1, 2, 3))
    network.run_to(14, 0, 2, 3)
    network.require_one_chain(0, 2, 3)
    for index in (0, 2, 3):
        archive = network.validator(index).executor.archive
        blocks = [archive.block(height) for height in range(3, 15)]
        assert all(block is not None and not (block.header.proposer == 1 and block.transactions) for block in blocks)
    require_diverged(network, 1)


def test_who_waits_for_admission_is_answered_when_the_validator_diverges() -> None:
    network = Network(transitions={1: WrongBalance}).start()
    waits = wire(0, user=2)
    (read,) = network.validator(1).node.handle(Submit(77, (waits,)))
    assert isinstance(read, Run), "which nobody answers here"
    keep_busy(network, (0, 2, 3))
    network.run_until(lambda: network.validator(1).node.diverged is not None)
    (diverged,) = network.effects_of(Diverged, 1)
    line = f"the validator diverged at height {diverged.height}"
    replies = network.effects_of(Reply, 1)
    assert replies[-1] == Reply(77, (SubmitResult(transaction_hash(waits), line, "diverged"),))


def require_diverged(network: Network, index: int) -> Diverged:
    """It said so once, and says nothing ever after."""
    (diverged,) = network.effects_of(Diverged, index)
    assert isinstance(diverged, Diverged)
    node = network.validator(index).node
    assert node.diverged == diverged
    assert diverged.height == node.height + 1 == network.validator(index).executor.archive.height + 1
    assert diverged.expected_root != diverged.computed_root
    assert network.submit(index, wire(0)) == [f"the validator diverged at height {diverged.height}"]
    assert node.handle(Message(0, b"")) == []
    return diverged


def test_a_diverged_node_stops_even_where_it_would_lead_next() -> None:
    """Between the final block that it cannot execute and the executor's word on it, it builds on nothing."""
    for wrong in range(4):
        network = Network(transitions={wrong: WrongBalance}).start()
        keep_busy(network, (0, 1, 2, 3))
        network.run_until(lambda n=network, w=wrong: n.validator(w).node.diverged is not None)  # type: ignore[misc]
        network.run_for(400)
        assert require_diverged(network, wrong).height >= 3
        network.crash(wrong)
        network.machines[wrong].start()
        network.run_until(lambda n=network, w=wrong: n.validator(w).node.diverged is not None)  # type: ignore[misc]
        others = [index for index in range(4) if index != wrong]
        network.run_to(12, *others)
        network.require_one_chain(*others)


def spoil_bodies(target: int) -> Network:
    """Validator 1, as a leader, sends one of the others its header with other transactions."""
    network = Network()

    def tap(sender: int, to: int, payload: bytes) -> bytes:
        return spoiled(payload) if (sender, to) == (1, target) else payload

    network.tap = tap
    return network


def spoiled(payload: bytes) -> bytes:
    """A proposal with another transaction in its body; anything else as it is."""
    message = consensus_message(payload)
    if not isinstance(message, Proposal):
        return payload
    block = decode(message.body, Block)
    body = encode(Block(block.header, (*block.transactions, wire(0, ["burn", 1], user=1))))
    return encode_message(ConsensusMessage(encode_consensus(msgspec.structs.replace(message, body=body))))


def test_a_header_with_other_transactions_does_not_spoil_the_block() -> None:
    network = spoil_bodies(3).start()
    keep_busy(network)
    network.run_to(15)
    network.require_one_chain()
    blocks = [network.validator(0).executor.archive.block(height) for height in range(1, 15)]
    assert None not in blocks and any(block and block.header.proposer == 1 for block in blocks)


def test_a_node_that_takes_any_body_for_a_digest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the one that got the spoiled body takes itself to have diverged."""
    monkeypatch.setattr(verification, "decode_block", lambda body: decode(body, Block))
    network = spoil_bodies(3).start()
    keep_busy(network)
    network.run_to(15, 0, 1, 2)
    assert network.validator(3).node.diverged is not None


# --- what peers may not do ------------------------------------------------------------------------------------------


def faults(network: Network, index: int, payload: bytes, sender: int = 1) -> list[str]:
    effects = network.validator(index).node.handle(Message(sender, payload))
    return [effect.reason for effect in effects if isinstance(effect, PeerFault)]


def tick(network: Network, index: int) -> None:
    """Consensus repeats what it said, and a peer may cost more."""
    node = network.validator(index).node
    node.handle(Timeout(TimerName(TimerKind.ALLOWANCE.value)))
    node.handle(Timeout(TimerName(TimerKind.REBROADCAST.value, node.view)))


def test_a_peer_that_asks_for_blocks_without_end_is_given_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network().start()
    network.run_to(3)
    node = network.validator(0).node
    network.run_until(lambda: any(held.body for held in node._tree.held()))
    held = next(held for held in node._tree.held() if held.body)
    size = len(held.body)
    monkeypatch.setattr(node._peer_service, "_allowances", Allowances(10 * size, 2 * size, 9))
    asked = Message(1, encode_message(BlockRequest(held.digest)))

    def given(times: int, request: Message) -> int:
        return sum(isinstance(effect, Send) for _ in range(times) for effect in node.handle(request))

    assert given(500, asked) == 10
    assert given(5, Message(2, asked.payload)) == 5, "others are given theirs"
    for kind in (TimerKind.LEADER, TimerKind.ADVANCE, TimerKind.REBROADCAST):
        node._perform(StartTimer(kind, View(node.view), 100))
    assert given(500, asked) == 0, "another view is no tick"
    tick(network, 0)
    assert given(500, asked) == 2
    for message in (BlockRequest(Hash(bytes(32))), ViewRequest(b"nonce")):
        tick(network, 0)
        assert 0 < given(5_000, Message(1, encode_message(message))) < 5_000, "certificates are counted, too"


def test_a_peer_whose_range_of_blocks_is_bad_is_not_heard_before_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(cut={3}).start()
    network.run_to(8, 0, 1, 2)
    network.cut.clear()
    network.tap = lambda _sender, _target, payload: (
        None if isinstance(peer_message(payload), FinalBlocksResponse) else payload
    )
    network.run_until(lambda: network.validator(3).node._finality.target is not None)
    wrong = encode_message(FinalBlocksResponse((), (), b""))
    tick(network, 3)
    assert [faults(network, 3, wrong) for _ in range(3)] == [["bad_final_blocks"], [], []]
    assert faults(network, 3, wrong, sender=2) == ["bad_final_blocks"]
    tick(network, 3)
    assert faults(network, 3, wrong) == ["bad_final_blocks"]
    network.tap = lambda _sender, _target, payload: payload
    network.run_to(8)


def test_what_peers_send_wrongly_is_dropped() -> None:
    network = Network().start()
    network.run_to(3)
    oversized = TransactionsMessage(tuple(bytes([i % 256, i // 256]) for i in range(1_025)))
    block = network.validator(0).executor.archive.get(1)
    assert block is not None
    assert faults(network, 0, b"") == ["undecodable"]
    assert faults(network, 0, b"\xc1") == ["undecodable"]
    assert faults(network, 0, encode_message(ConsensusMessage(b"junk"))) == ["undecodable"]
    assert faults(network, 0, encode_message(oversized)) == ["oversized"]
    assert faults(network, 0, encode_message(TransactionsMessage((b"junk", b"more")))) == ["bad_transactions"]
    assert faults(network, 0, encode_message(BlockResponse(b"junk"))) == ["bad_block"]
    assert faults(network, 0, encode_message(BlockResponse(block.block))) == [], "late is not wrong"
    assert faults(network, 0, encode_message(FinalBlocksResponse((block.block,), (), block.certificate))) == []
    for request in (BlockRequest(b"x"), FinalBlocksRequest(0, 5), FinalBlocksRequest(1, 0), FinalBlocksRequest(-1, 5)):
        assert network.validator(0).node.handle(Message(1, encode_message(request))) == []
    network.run_to(6)


def test_who_asks_for_a_block_that_is_final_here_learns_that_it_is() -> None:
    """It has missed the finalization, and builds on a block that is in nobody's tree any more."""
    network = Network().start()
    network.run_to(6)
    node = network.validator(0).node
    final = network.validator(0).executor.archive.block(5)
    assert final is not None
    asked = encode_message(BlockRequest(header_hash(final.header)))
    (answer,) = [effect for effect in node.handle(Message(1, asked)) if isinstance(effect, Send)]
    certificate = consensus_message(answer.payload)
    assert isinstance(certificate, Certificate)
    assert (certificate.kind, certificate.view) == (VoteKind.FINALIZE, node.final_view)
    assert answer.recipient == 1


def test_ranges_that_prove_nothing_are_refused() -> None:
    network = Network(cut={3}).start()
    network.run_to(8, 0, 1, 2)
    archive = network.validator(0).executor.archive
    blocks = [archive.get(height) for height in range(1, 8)]
    bodies = tuple(item.block for item in blocks if item is not None)
    certificates = [item.certificate for item in blocks if item is not None]
    assert all(certificates)
    network.cut.clear()
    network.tap = lambda _sender, _target, payload: (
        None if isinstance(peer_message(payload), FinalBlocksResponse) else payload
    )
    network.run_until(lambda: network.validator(3).node._finality.target is not None)
    wrong = [
        FinalBlocksResponse((), (), certificates[0]),
        FinalBlocksResponse(bodies, (), b""),
        FinalBlocksResponse(bodies, (), certificates[5]),
        FinalBlocksResponse(bodies[:3] + bodies[4:], (), certificates[6]),
        FinalBlocksResponse((*bodies[:6], b"junk"), (), certificates[6]),
        FinalBlocksResponse(bodies[::-1], (), certificates[0]),
        FinalBlocksResponse(bodies * 10, (), certificates[6]),
    ]
    for response in wrong:
        tick(network, 3)
        assert faults(network, 3, encode_message(response)) == ["bad_final_blocks"]
    assert network.height(3) == 0
    network.machines[3].receive(2, encode_message(FinalBlocksResponse(bodies, (), certificates[6])))
    assert network.effects_of(PeerFault, 3) == []
    network.tap = lambda _sender, _target, payload: payload
    network.run_to(8)
    network.require_one_chain()


def without_finalize(_sender: int, _target: int, payload: bytes) -> bytes | None:
    """Nobody's word about finality arrives."""
    message = peer_message(payload)
    if isinstance(message, ConsensusMessage):
        said = decode_consensus(message.payload)
        if isinstance(said, Vote | Certificate) and said.kind == VoteKind.FINALIZE:
            return None
    return payload


@pytest.mark.slow
def test_a_long_line_that_one_finalization_covers_is_caught_up_with() -> None:
    """No block among the first sixty-four has a certificate of its own."""
    network = Network(cut={3}, tap=without_finalize).start()
    network.run_until(lambda: network.validator(0).node.view > 3 * MAX_BLOCKS_ASKED, limit_ms=600_000)
    assert network.heights()[:3] == [0, 0, 0]
    network.tap = lambda _sender, _target, payload: payload
    network.run_until(lambda: network.height(0) > MAX_BLOCKS_ASKED)
    archive = network.validator(0).executor.archive
    covered = [archive.get(height) for height in range(1, MAX_BLOCKS_ASKED + 1)]
    assert not any(item.certificate for item in covered if item is not None)
    network.cut.clear()
    network.run_to(network.height(0) + 5)
    network.require_one_chain()


def test_links_that_do_not_lead_to_the_certificate_prove_nothing() -> None:
    network = Network(cut={3}).start()
    network.run_to(8, 0, 1, 2)
    archive = network.validator(0).executor.archive
    blocks = [archive.block(height) for height in range(1, 8)]
    headers = [block.header for block in blocks if block is not None]
    stored = [archive.get(height) for height in (1, 5)]
    assert stored[0] is not None and stored[1] is not None
    body, certificate = stored[0].block, stored[1].certificate
    network.cut.clear()
    network.tap = lambda _sender, _target, payload: (
        None if isinstance(peer_message(payload), FinalBlocksResponse) else payload
    )
    network.run_until(lambda: network.validator(3).node._finality.target is not None)
    for links in (headers[1:4], headers[2:5], (headers[1], *headers[3:5]), headers[1:6]):
        wrong = FinalBlocksResponse((body,), tuple(links), certificate)
        tick(network, 3)
        assert faults(network, 3, encode_message(wrong)) == ["bad_final_blocks"]
    tick(network, 3)
    network.machines[3].receive(1, encode_message(FinalBlocksResponse((body,), tuple(headers[1:5]), certificate)))
    assert network.effects_of(PeerFault, 3) == []
    network.run_to(1, 3)


@pytest.mark.slow
def test_catching_up_asks_for_each_block_about_once() -> None:
    network = Network(cut={3}).start()
    network.run_to(300, 0, 1, 2, limit_ms=120_000)
    network.cut.clear()
    fetched = 0

    def count(_sender: int, target: int, payload: bytes) -> bytes:
        nonlocal fetched
        message = peer_message(payload)
        if isinstance(message, FinalBlocksResponse):
            assert target == 3
            fetched += len(message.bodies)
        return payload

    network.tap = count
    network.run_to(300, 3)
    assert fetched < 450


# --- leaders that flood the tree --------------------------------------------------------------------------------------


def of_absurd_height(header: Header) -> Header:
    return msgspec.structs.replace(header, height=2**60 + header.view)


def lying(network: Network, liar: int, lie: Callable[[Header], Header] = of_absurd_height) -> None:
    """Have a leader's proposals replaced by blocks with another header, truly signed."""
    signer = network.scheme.signer(bytes([liar + 1]) * 32)

    def replace(sender: int, _target: int, payload: bytes) -> bytes:
        message = peer_message(payload)
        if sender != liar or not isinstance(message, ConsensusMessage):
            return payload
        proposal = decode_consensus(message.payload)
        if not isinstance(proposal, Proposal):
            return payload
        block = decode(proposal.body, Block)
        header = lie(block.header)
        digest = Digest(header_hash(header))
        signed = vote_signing_bytes(
            network.genesis.chain_id.encode(), VoteKind.NOTARIZE, proposal.view, proposal.parent_view, digest
        )
        vote = msgspec.structs.replace(proposal.vote, digest=digest, signature=signer.sign(signed))
        body = encode(msgspec.structs.replace(block, header=header))
        return encode_message(
            ConsensusMessage(encode_consensus(msgspec.structs.replace(proposal, digest=digest, body=body, vote=vote)))
        )

    network.tap = replace


def test_a_leader_that_lies_about_heights_fills_nobodys_tree() -> None:
    network = Network(blocks=BlockLimits(max_held_blocks=16))
    lying(network, 1)
    network.start()
    network.run_until(lambda: network.validator(0).node.view > 200, limit_ms=120_000)
    network.run_to(60, 0, 2, 3, limit_ms=120_000)
    assert len(network.validator(0).node._tree.held()) < 8
    assert len(network.validator(0).executor._branches.invalid) < 8


@pytest.mark.parametrize(
    ("lie", "by_keys"),
    [
        (of_absurd_height, False),
        (lambda header: msgspec.structs.replace(header, height=0), False),
        (lambda header: msgspec.structs.replace(header, view=header.view + 4), True),
        (lambda header: msgspec.structs.replace(header, proposer=2), True),
        (lambda header: msgspec.structs.replace(header, proposer=2, parent_hash=bytes(32)), True),
    ],
    ids=["absurd height", "height 0", "another view", "another proposer", "another proposer on another parent"],
)
def test_a_header_that_cannot_be_is_proved_to_whoever_holds_the_chain(
    lie: Callable[[Header], Header], by_keys: bool
) -> None:
    network = Network()
    lying(network, 1, lie)
    network.start()
    network.run_to(12, 0, 2, 3)
    found = [(at, effect) for at, effect in network.effects if isinstance(effect, EvidenceFound)]
    assert {at for at, _ in found} == {0, 2, 3}
    namespace, validators = network.genesis.chain_id.encode(), network.validators
    judge, blocks = Executor(MemoryDisk(), network.genesis), network.validator(0).executor.archive
    for _, effect in found:
        evidence = decode_misconduct(effect.data)
        assert (effect.kind, effect.culprit, evidence.vote.signer) == ("InvalidBlock", 1, 1)
        assert contradicts_its_vote(evidence, validators, namespace, RoundRobin(validators)) == by_keys
        if by_keys:
            assert len(evidence.bodies) == 1
    by_base = {base_digest(decode_misconduct(effect.data)): effect.data for _, effect in found}
    judged = 0
    for height in range(1, 12):
        if not by_keys and judge.final_digest in by_base:
            judged += 1
            assert verify_misconduct(decode_misconduct(by_base[judge.final_digest]), judge, validators, namespace)
        block = blocks.block(height)
        assert block is not None and execution_error(judge, block) is None
        judge.run(Finalize(header_hash(block.header), b""))
    assert by_keys or judged >= 2


def test_a_header_on_another_parent_than_was_notarized_is_counted_and_shows_nothing() -> None:
    network = Network()
    lying(network, 1, lambda header: msgspec.structs.replace(header, parent_hash=bytes(32)))
    network.start()
    network.run_to(12, 0, 2, 3)
    assert {effect.reason for effect in network.effects_of(PeerFault, 0)} == {"invalid_block"}
    assert network.effects_of(EvidenceFound, 0) == []


def test_what_is_harmless_one_by_one_is_counted_by_its_sender() -> None:
    network = Network().start()
    network.run_to(3)
    node, signer = network.validator(0).node, network.scheme.signer(bytes([2]) * 32)
    for ahead in range(1_000, 1_100):
        vote = vote_ahead(network, signer, ValidatorIndex(1), View(node.view + ahead))
        effects = node.handle(Message(1, encode_message(ConsensusMessage(encode_consensus(vote)))))
        assert effects == [Dropped(1, "future")]


def vote_ahead(network: Network, signer: Signer, index: ValidatorIndex, view: View) -> Vote:
    subject = (VoteKind.NOTARIZE, view, View(view - 1), Digest(bytes(32)))
    return Vote(*subject, index, signer.sign(vote_signing_bytes(network.genesis.chain_id.encode(), *subject)))


@pytest.mark.slow
def test_live_proposals_do_not_lock_catching_up_out() -> None:
    network = Network(cut={3}, blocks=BlockLimits(max_held_blocks=40)).start()
    network.run_to(150, 0, 1, 2, limit_ms=120_000)
    network.cut.clear()
    network.tap = lambda _sender, target, payload: (
        None if target == 3 and isinstance(peer_message(payload), FinalBlocksResponse) else payload
    )
    network.run_to(260, 0, 1, 2, limit_ms=120_000)  # what is proposed meanwhile fills the latecomer's tree
    network.tap = lambda _sender, _target, payload: payload
    network.run_to(265, limit_ms=120_000)
    network.require_one_chain()


# --- the journal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", range(4))
def test_a_crash_right_after_the_journal_was_replaced_loses_nothing(
    victim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(blocks=BlockLimits(journal_blocks=3))
    crashes: list[int] = []

    def crash_after(machine: WatchedMachine, effect: Effect) -> None:
        if isinstance(effect, ReplaceJournal) and len(crashes) < 4:
            crashes.append(network.height(victim))
            machine.crash(network.random)
            network.clock.after(150_000, "restart", b"", machine.start)

    network.machines[victim].after = crash_after
    network.start()
    keep_busy(network)
    network.run_until(lambda: len(crashes) == 4 and min(network.heights()) > max(crashes) + 4)
    assert crashes == sorted(crashes)
    assert network.machines[victim].tally.starts == 5
    network.require_one_chain()


def test_all_crash_at_once_again_and_again() -> None:
    """A notarized block lies on a quorum's disks; what was final anywhere stays, and nobody votes twice."""
    network = Network().start()
    keep_busy(network, (0, 1, 2, 3))
    final: dict[int, bytes] = {}
    for round_number in range(8):
        network.run_for(37 + 11 * round_number)
        for index in range(4):
            archive = network.validator(index).executor.archive
            for height in range(1, archive.height + 1):
                block = archive.get(height)
                assert block is not None
                assert final.setdefault(height, block.block) == block.block
        for index in range(4):
            network.crash(index)
        for machine in network.machines:
            machine.start()
    network.run_to(max(final) + 5)
    network.require_one_chain()
    archive = network.validator(0).executor.archive
    for height, body in final.items():
        block = archive.get(height)
        assert block is not None
        assert block.block == body


def crash_all_the_time() -> None:
    """One validator, alone: it crashes every few milliseconds, and comes back to another transaction."""
    network = Network(count=1).start()
    machine = network.machines[0]
    for round_number in range(150):
        network.run_for(10 + round_number % 9)
        machine.crash(network.random)
        machine.start()
        machine.submit(0, (wire(round_number, ["burn", round_number]), wire(0, user=1, value=round_number)))
    assert network.height(0) > 5


@pytest.mark.slow
def test_who_crashes_all_the_time_never_votes_twice() -> None:
    crash_all_the_time()


def test_a_journal_that_forgets_its_votes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a journal of bodies only; who restarts from it votes anew."""
    monkeypatch.setattr(outbox, "encode_batch", lambda _records, bodies: encode_batch((), bodies))
    with pytest.raises(AssertionError, match="a double vote"):
        crash_all_the_time()


def test_single_crashes_again_and_again() -> None:
    network = Network().start()
    keep_busy(network, (0, 1, 2, 3))
    for round_number in range(40):
        network.run_for(23 + round_number)
        network.crash(round_number % 4)
        network.machines[round_number % 4].start()
    network.run_to(max(network.heights()) + 5)
    network.require_one_chain()


def test_journal_records_are_appended_in_the_order_in_which_the_engine_made_them() -> None:
    """Also where the answer to one of its effects is at hand at once."""
    network = Network()
    tokens: dict[int, list[int]] = {index: [] for index in range(4)}

    def note(machine: WatchedMachine, effect: Effect) -> None:
        if isinstance(effect, Append):
            tokens[machine.index].append(effect.token)

    for machine in network.machines:
        machine.after = note

    def extra_ms(target: int, payload: bytes) -> int:
        """Validator 3 has each proposal before the votes that end the view before it."""
        return 0 if target != 3 or isinstance(consensus_message(payload), Proposal) else 25

    network.extra_ms = extra_ms
    network.tap = lambda sender, target, payload: spoiled(payload) if (sender, target) == (1, 3) else payload
    network.start()
    keep_busy(network)
    network.run_to(10)
    assert all(found == sorted(found) and len(found) > 10 for found in tokens.values())


def test_a_vote_leaves_only_once_its_journal_entry_is_durable() -> None:
    """With a disk that never syncs, nothing is ever voted for."""
    network = Network().start()
    mute = network.machines[0]
    mute.work.append = lambda token, data: None  # type: ignore[method-assign]
    network.run_to(6, 1, 2, 3)
    assert not [key for key in network.said if key[0] == 0]
