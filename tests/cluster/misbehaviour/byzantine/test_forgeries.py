"""Each forged block and snapshot is wrong in the one respect that it is named for, and true in every other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import msgspec
import pytest

from cluster.misbehaviour.byzantine.base import consensus_content, peer_message, send_consensus, send_peer_message
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS, Behaviour
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme, ValidatorSet
from consensus.messages import MAX_VIEW, Proposal, VoteKind, decode
from consensus.types import Digest, Signature, ValidatorIndex, View
from tests.cluster.misbehaviour.byzantine.runs import SEED, scenario
from tests.cluster.misbehaviour.byzantine.test_memory import HOSTILE, context_of
from validator.chain.block import Block, Header, decode_block, header_hash
from validator.chain.messages import (
    ChunkRequest,
    ChunkResponse,
    FinalBlocksResponse,
    PeerMessage,
    SnapshotOffer,
    SnapshotRequest,
)
from validator.node.events import Completed, Effect, Message, Run, Send
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import BlocksRead, Build, Job, ReadBlocks, ReadSnapshot, SnapshotRead
from validator.primitives.codec import encode
from validator.primitives.types import Hash, Height
from validator.state.snapshot import Manifest, SnapshotError, decode_chunk
from validator.storage.finality_proof import is_proved

ASKING = 2


@cache
def finished() -> WatchedSimulation:
    """A run long enough for a snapshot."""
    simulation = WatchedSimulation(scenario(4, {}, height=10), SEED, "test", scheme=KeyedHashScheme())
    simulation.run()
    return simulation


def executor() -> Executor:
    validator = finished().machines[0].validator
    assert validator is not None
    return validator.executor


def liar(name: str) -> Behaviour:
    return BEHAVIOURS[name](context_of(finished(), HOSTILE))


def block_of(body: bytes) -> Block:
    block = decode_block(body)
    assert block is not None
    return block


def differing(one: Header, other: Header) -> list[str]:
    return [field for field in Header.__struct_fields__ if getattr(one, field) != getattr(other, field)]


def is_believed(body: bytes, certificate: bytes, validators: ValidatorSet) -> bool:
    return is_proved([block_of(body).header], certificate, validators, context_of(finished(), 0).namespace)


class Credulous(ValidatorSet):
    def verify(self, signer: ValidatorIndex, message: bytes, signature: Signature) -> bool:
        return True


def require_forged(body: bytes, certificate: bytes, true: bytes) -> None:
    """A block that differs from the true one in its view, and a finalization that is good but for its signatures."""
    one, other = block_of(body), block_of(true)
    assert one.transactions == other.transactions
    assert differing(one.header, other.header) == ["view"]
    validators = context_of(finished(), 0).validators
    assert not is_believed(body, certificate, validators)
    assert is_believed(body, certificate, Credulous(validators.public_keys, validators.scheme, validators.epochs))
    assert decode(certificate).kind == VoteKind.FINALIZE  # type: ignore[union-attr]


def payload_of(effect: Effect) -> bytes:
    assert isinstance(effect, Send)
    return effect.payload


# --- headers ----------------------------------------------------------------------------------------------------------


def test_a_header_is_false_in_one_field_and_each_has_its_turn() -> None:
    behaviour, at = liar("invalid-block-any-field"), context_of(finished(), HOSTILE)
    archived = executor().archive.get(5)
    assert archived is not None
    good = block_of(archived.block)
    lies: list[str] = []
    for view in range(1, len(Header.__struct_fields__) + 1):
        digest = Digest(header_hash(good.header))
        vote = at.vote(VoteKind.NOTARIZE, view, view - 1, digest)
        subject = (View(view), View(view - 1), Digest(good.header.parent_hash), digest)
        (said,) = behaviour.alter(send_consensus(None, Proposal(*subject, encode(good), vote)))
        message = consensus_content(payload_of(said))
        assert isinstance(message, Proposal)
        spoilt = msgspec.msgpack.decode(message.body, type=Block)
        assert Hash(message.digest) == header_hash(spoilt.header), "all else fits"
        assert spoilt.transactions == good.transactions
        lies += differing(spoilt.header, good.header)
    assert sorted(lies) == sorted(Header.__struct_fields__)
    assert lies != list(Header.__struct_fields__), "in an order that is drawn"


def test_a_false_proposer_is_another_whom_the_block_is_built_for() -> None:
    behaviour = liar("false-proposer")
    job = Build(9, Hash(bytes(32)), HOSTILE, ())
    built = set()
    for _ in range(20):
        (effect,) = behaviour.alter(Run(job))
        assert isinstance(effect, Run)
        assert isinstance(effect.job, Build)
        assert replace(effect.job, proposer=HOSTILE) == job
        built.add(effect.job.proposer)
    assert built == {0, 1, 2}


# --- blocks and snapshots that nobody proves --------------------------------------------------------------------------


def test_an_unproved_range_ends_in_a_block_that_is_not_final() -> None:
    read = executor().run(ReadBlocks(ASKING, 3, 4))
    assert isinstance(read, BlocksRead)
    true = FinalBlocksResponse(read.bodies, read.links, read.certificate)
    (effect,) = liar("unproved-blocks").alter(send_peer_message(ASKING, true))
    false = peer_message(payload_of(effect))
    assert isinstance(false, FinalBlocksResponse)
    assert false.bodies[:-1] == true.bodies[:-1]
    require_forged(false.bodies[-1], false.certificate, true.bodies[-1])


def test_an_unproved_snapshot_is_of_the_true_state() -> None:
    true = offered()
    (effect,) = liar("unproved-snapshot").alter(send_peer_message(ASKING, true))
    false = peer_message(payload_of(effect))
    assert isinstance(false, SnapshotOffer)
    assert (false.receipts, false.manifest) == (true.receipts, true.manifest)
    require_forged(false.body, false.certificate, true.body)


def offered() -> SnapshotOffer:
    offer = answer(ReadSnapshot(ASKING, SnapshotRequest()))
    assert isinstance(offer, SnapshotOffer)
    return offer


def answer(job: Job) -> PeerMessage | None:
    read = executor().run(job)
    assert isinstance(read, SnapshotRead)
    return read.response


# --- another state ----------------------------------------------------------------------------------------------------


def test_a_false_manifest_fits_its_chunk_and_not_the_state_root() -> None:
    behaviour, true = liar("false-manifest"), offered()
    header = block_of(true.body).header
    height, root = Height(header.height), Hash(header.state_root)
    (run,) = behaviour.alter(send_peer_message(ASKING, true))
    assert run == Run(ReadSnapshot(HOSTILE, ChunkRequest(height, 0)))
    assert isinstance(run, Run)
    done = Completed(executor().run(run.job))
    assert behaviour.swallows(done)
    (effect,) = behaviour.react(done)
    false = peer_message(payload_of(effect))
    assert isinstance(false, SnapshotOffer)
    assert msgspec.structs.replace(false, manifest=true.manifest) == true
    with pytest.raises(SnapshotError, match="another state root"):
        Manifest.decode(false.manifest, height, root)

    right, chunk = Manifest.decode(true.manifest, height, root), answer(run.job)
    assert isinstance(chunk, ChunkResponse)
    (effect,) = behaviour.alter(send_peer_message(ASKING, chunk))
    given = peer_message(payload_of(effect))
    assert isinstance(given, ChunkResponse)
    assert sum(one != other for one, other in zip(given.data, chunk.data, strict=True)) == 1
    wrong = replace(right, twig_roots=false_roots(false, right))
    assert wrong.encode() == false.manifest
    assert decode_chunk(wrong, 0, given.data) != decode_chunk(right, 0, chunk.data)


def false_roots(offer: SnapshotOffer, right: Manifest) -> tuple[bytes, ...]:
    roots = offer.manifest[-32 * len(right.twig_roots) :]
    return tuple(roots[at : at + 32] for at in range(0, len(roots), 32))


def test_what_another_behaviour_has_spoilt_passes_as_it_is() -> None:
    """Behaviours follow one another: ``garbage`` and ``selective-sender`` before a forger, say."""
    good, noise = offered(), b"noise"
    last_view = msgspec.structs.replace(block_of(good.body).header, view=MAX_VIEW)
    last = encode(msgspec.structs.replace(block_of(good.body), header=last_view))
    for body in (noise, last):
        offer = msgspec.structs.replace(good, body=body)
        ranges = FinalBlocksResponse((body,), (), noise)
        for name, message in (("unproved-snapshot", offer), ("unproved-blocks", ranges)):
            assert liar(name).alter(send_peer_message(ASKING, message)) == [send_peer_message(ASKING, message)]
    nothing = send_peer_message(ASKING, FinalBlocksResponse((), (), b""))
    assert liar("unproved-blocks").alter(nothing) == [nothing]
    spoilt = send_peer_message(ASKING, msgspec.structs.replace(good, body=noise))
    assert liar("false-manifest").alter(spoilt) == [spoilt]


def test_an_offer_whose_manifest_is_spoilt_already_is_passed_on() -> None:
    behaviour, spoilt = liar("false-manifest"), msgspec.structs.replace(offered(), manifest=b"noise")
    (run,) = behaviour.alter(send_peer_message(ASKING, spoilt))
    assert isinstance(run, Run)
    assert behaviour.react(Completed(executor().run(run.job))) == [send_peer_message(ASKING, spoilt)]


def test_what_others_read_is_not_swallowed() -> None:
    behaviour = liar("false-manifest")
    assert not behaviour.swallows(Completed(SnapshotRead(ASKING, None)))
    assert not behaviour.swallows(Message(ASKING, b""))
