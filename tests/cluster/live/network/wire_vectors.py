"""The vectors of ``docs/peer-protocol.md``: ``python -m tests.cluster.live.network.wire_vectors`` writes them.

They may change only together with the protocol. Each message has its name, its fields and its bytes; those of
consensus have what their signatures cover. Refused bytes have the reason.
"""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from cluster.live.network.handshake import (
    DIALER,
    LISTENER,
    Accepted,
    DialerHandshake,
    HandshakeMessage,
    Identity,
    ListenerHandshake,
    Refusal,
    Refused,
    encode_handshake,
    signed_bytes,
)
from consensus import messages as engine
from consensus.keys import Ed25519Scheme, ValidatorSet
from consensus.messages import NO_DIGEST, NO_PARENT, Certificate, Vote, VoteKind, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View
from tests.validator import vectors as protocol
from validator.chain import messages as peer
from validator.chain.block import Block, Header, header_hash, transactions_root
from validator.primitives.codec import encode

FOLDER: Final = Path(__file__).resolve().parents[3] / "vectors" / "wire"
CHAIN: Final = protocol.CHAIN
NAMESPACE: Final = CHAIN.encode()
SCHEME: Final = Ed25519Scheme()
SEEDS: Final = tuple(bytes([index + 1]) * 32 for index in range(4))
SIGNERS: Final = tuple(map(SCHEME.signer, SEEDS))
VALIDATORS: Final = ValidatorSet(tuple(signer.public_key for signer in SIGNERS), SCHEME)
QUORUM: Final = (0, 1, 3)
TRANSACTION: Final = bytes.fromhex(json.loads(protocol.VECTOR.read_text(encoding="utf-8"))["transaction"])

Page = dict[str, Any]


# --- values that the messages are about -------------------------------------------------------------------------------


def header(height: int, view: int, parent: bytes) -> Header:
    """The header of an empty block."""
    return Header(
        chain_id=CHAIN,
        height=height,
        view=view,
        parent_hash=parent,
        proposer=view % len(SIGNERS),
        transactions_root=transactions_root([]),
        receipts_root=b"\x01" * 32,
        state_root=b"\x02" * 32,
        basefee_cycle=b"\x01",
        basefee_cell=b"\x01",
        basefee_lane_timer=b"\x01",
        lane_cycles=0,
        lane_cells=0,
        user_cycles=0,
        user_cells=0,
    )


GENESIS: Final = b"\x0a" * 32
FIRST: Final = header(1, 1, GENESIS)
SECOND: Final = header(2, 3, header_hash(FIRST))
THIRD: Final = header(3, 4, header_hash(SECOND))
DIGEST: Final = Digest(header_hash(SECOND))
"""The block that votes are about: of view 3, on the block of view 1."""


def vote(kind: VoteKind, view: int, parent_view: int, digest: bytes, signer: int) -> Vote:
    subject = View(view), View(parent_view), Digest(digest)
    signature = SIGNERS[signer].sign(vote_signing_bytes(NAMESPACE, kind, *subject))
    return Vote(kind, *subject, ValidatorIndex(signer), signature)


def certificate(kind: VoteKind, view: int, parent_view: int, digest: bytes) -> Certificate:
    votes = [vote(kind, view, parent_view, digest, signer) for signer in QUORUM]
    signed = {each.signer: each.signature for each in votes}
    return Certificate.of(kind, View(view), View(parent_view), Digest(digest), signed)


def proposal() -> engine.Proposal:
    """The leader's proposal of view 3."""
    body, own = encode(Block(SECOND, ())), vote(VoteKind.NOTARIZE, 3, 1, DIGEST, 3)
    return engine.Proposal(View(3), View(1), Digest(header_hash(FIRST)), DIGEST, body, own)


def timeout_certificate(high: Certificate | None, *high_views: int) -> engine.TimeoutCertificate:
    """The timeout certificate of view 5 in which the signers name these high views."""
    votes = [
        vote(VoteKind.TIMEOUT, 5, high_view, NO_DIGEST, signer)
        for signer, high_view in zip(QUORUM, high_views, strict=True)
    ]
    return engine.TimeoutCertificate.of(
        View(5), high, {each.signer: (each.parent_view, each.signature) for each in votes}
    )


NOTARIZATION: Final = certificate(VoteKind.NOTARIZE, 3, 1, DIGEST)
FINALIZATION: Final = certificate(VoteKind.FINALIZE, 3, 1, DIGEST)
LAST_FINALIZATION: Final = certificate(VoteKind.FINALIZE, 4, 3, header_hash(THIRD))
MANIFEST: Final = bytes([1]) + b"".join(n.to_bytes(8, "big") for n in (2, 3, 2, 0)) + b"\x05" * 32
"""A manifest of the form of ``docs/state.md``: height 2, three entries of which two are live, one twig."""


# --- the files --------------------------------------------------------------------------------------------------------


def plain(value: object) -> Any:
    """A value as JSON: bytes in hex, structs as objects of their fields."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, msgspec.Struct):
        return {name: plain(each) for name, each in msgspec.structs.asdict(value).items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def message_page(message: msgspec.Struct, encoded: bytes, about: str) -> Page:
    name, tag = type(message).__name__, msgspec.inspect.type_info(type(message)).tag  # type: ignore[attr-defined]
    return {"message": name, "tag": tag, "about": about, "fields": plain(message), "hex": encoded.hex()}


def peer_messages() -> list[tuple[peer.PeerMessage, str]]:
    """Every message between validators, with what it is."""
    blocks = tuple(encode(Block(each, ())) for each in (FIRST, SECOND))
    proved = engine.encode(LAST_FINALIZATION)
    return [
        (peer.ConsensusMessage(engine.encode(vote(VoteKind.NOTARIZE, 3, 1, DIGEST, 0))), "a vote in its envelope"),
        (peer.TransactionsMessage((TRANSACTION,)), "one signed transaction"),
        (peer.TransactionsMessage(()), "no transaction"),
        (peer.BlockRequest(DIGEST), "for the block of view 3"),
        (peer.BlockResponse(blocks[1]), "an empty block"),
        (peer.FinalBlocksRequest(1, 64), "for 64 blocks from height 1 on"),
        (peer.FinalBlocksResponse(blocks, (THIRD,), proved), "two blocks, proved by the finalization of the next one"),
        (peer.FinalBlocksResponse(blocks, (), engine.encode(FINALIZATION)), "two blocks; the last one is finalized"),
        (peer.SnapshotRequest(), "has no fields"),
        (
            peer.SnapshotOffer(blocks[1], b"\x90", (THIRD,), proved, MANIFEST),
            "with a link; not the block's receipts",
        ),
        (peer.ChunkRequest(2, 0, 0), "the first piece of chunk 0"),
        (peer.ChunkRequest(2, 0, 4 << 20), "the second piece of chunk 0"),
        (peer.ChunkResponse(2, 0, b"\x06" * 40, 0, 40), "a whole chunk of 40 bytes"),
        (peer.ViewRequest(b"\x07" * 16), "with a nonce of 16 bytes"),
        (peer.ViewReport(b"\x07" * 16, engine.encode(NOTARIZATION)), "of a validator in view 4"),
        (peer.ViewReport(b"\x07" * 16, b""), "of a validator in view 1"),
        (peer.BlocksPruned(100), "the sender's first block has height 100"),
    ]


Case = tuple[engine.Message | engine.Evidence, str]


def shared_messages() -> list[Case]:
    """Messages of consensus that both protocols have."""
    other = b"\x0b" * 32
    return [
        (vote(VoteKind.NOTARIZE, 3, 1, DIGEST, 0), "a vote to notarize"),
        (vote(VoteKind.FINALIZE, 3, 1, DIGEST, 1), "a vote to finalize"),
        (vote(VoteKind.NOTARIZE, 2**63 - 1, 2**32, DIGEST, 2), "the last view"),
        (proposal(), "the leader's block of view 3, on the block of view 1"),
        (NOTARIZATION, "the validators 0, 1 and 3 have signed: the bitmap is 0b"),
        (FINALIZATION, "what makes a block final"),
        (engine.CertificateRequest((View(1), View(9))), "for views 1 and 9"),
        (
            engine.ConflictingNotarize(*(vote(VoteKind.NOTARIZE, 3, 1, each, 2) for each in sorted((DIGEST, other)))),
            "two blocks of one view",
        ),
        (
            engine.ConflictingFinalize(*(vote(VoteKind.FINALIZE, 3, 1, each, 2) for each in sorted((DIGEST, other)))),
            "two blocks of one view made final",
        ),
    ]


def simplex_messages() -> list[Case]:
    return [
        *shared_messages(),
        (vote(VoteKind.NULLIFY, 2, NO_PARENT, NO_DIGEST, 3), "a vote to nullify"),
        (certificate(VoteKind.NULLIFY, 2, NO_PARENT, NO_DIGEST), "a nullification"),
        (
            engine.NullifyAndFinalize(
                vote(VoteKind.NULLIFY, 3, NO_PARENT, NO_DIGEST, 2), vote(VoteKind.FINALIZE, 3, 1, DIGEST, 2)
            ),
            "a view that one validator nullified and finalized",
        ),
    ]


def hotstuff_messages() -> list[Case]:
    low, high = (vote(VoteKind.TIMEOUT, 5, view, NO_DIGEST, 2) for view in (1, 3))
    return [
        *shared_messages(),
        (engine.Timeout(vote(VoteKind.TIMEOUT, 5, 3, NO_DIGEST, 0), NOTARIZATION), "names the block of view 3"),
        (engine.Timeout(vote(VoteKind.TIMEOUT, 5, 0, NO_DIGEST, 0), None), "names the genesis block"),
        (timeout_certificate(NOTARIZATION, 3, 1, 3), "the signers 0 and 3 name view 3, signer 1 names view 1"),
        (timeout_certificate(None, 0, 0, 0), "all name the genesis block"),
        (engine.ConflictingTimeout(low, high), "two high views of one view"),
        (
            engine.FinalizeAndTimeout(vote(VoteKind.FINALIZE, 3, 1, DIGEST, 2), low),
            "a finalized view, and a later timeout that names a lower one",
        ),
    ]


EVIDENCE: Final = (
    engine.ConflictingNotarize,
    engine.ConflictingFinalize,
    engine.NullifyAndFinalize,
    engine.ConflictingTimeout,
    engine.FinalizeAndTimeout,
)


def consensus_page(messages: list[Case]) -> Page:
    pages = []
    for message, about in messages:
        is_evidence = isinstance(message, EVIDENCE)
        encoded = engine.encode_evidence(message) if is_evidence else engine.encode(message)  # type: ignore[arg-type]
        page = message_page(message, encoded, about)
        if signed := signed_by(message):
            page["signed"] = [{"signer": each.signer, "bytes": signing_bytes(each).hex()} for each in signed]
        pages.append(page)
    return {
        "chain_id": CHAIN,
        "seeds": [seed.hex() for seed in SEEDS],
        "public_keys": [key.hex() for key in VALIDATORS.public_keys],
        "messages": pages,
        "false_certificates": false_certificates(),
    }


def signed_by(message: object) -> tuple[Vote, ...]:
    """The votes in a message."""
    match message:
        case Vote():
            return (message,)
        case engine.Proposal(vote=own) | engine.Timeout(vote=own):
            return (own,)
        case Certificate() | engine.TimeoutCertificate():
            return message.votes()
        case engine.CertificateRequest():
            return ()
        case _:
            return message.first, message.second  # type: ignore[attr-defined]


def signing_bytes(given: Vote) -> bytes:
    return vote_signing_bytes(NAMESPACE, given.kind, given.view, given.parent_view, given.digest)


def false_certificates() -> list[Page]:
    """Certificates of the right form that do not hold."""
    few = {signer: signature for signer, signature in FINALIZATION.signed.items() if signer != 3}
    swapped = dict(zip(FINALIZATION.signed, reversed(FINALIZATION.signed.values()), strict=True))
    stranger = FINALIZATION.signed | {ValidatorIndex(4): FINALIZATION.signed[ValidatorIndex(0)]}
    about = FINALIZATION.kind, FINALIZATION.view, FINALIZATION.parent_view, FINALIZATION.digest
    spoiled = {**FINALIZATION.signed, ValidatorIndex(2): FINALIZATION.signed[ValidatorIndex(0)]}
    cases = {
        "two signers of four are no quorum": Certificate.of(*about, few),
        "the signatures are in another order than the signers": Certificate.of(*about, swapped),
        "signer 4 is no validator": Certificate.of(*about, stranger),
        "a quorum of good signatures, and a bad one": Certificate.of(*about, spoiled),
        "the signatures are of a notarization": Certificate.of(*about, NOTARIZATION.signed),
    }
    return [{"why": why, "hex": engine.encode(each).hex()} for why, each in cases.items()]


# --- handshake --------------------------------------------------------------------------------------------------------


def identity(index: int, chain_id: str = CHAIN) -> Identity:
    return Identity(index, SIGNERS[index], VALIDATORS, chain_id)


def transcript(about: str, dialer: DialerHandshake, listener: ListenerHandshake, spoil: bool = False) -> Page:
    """The frames of a handshake between two sides, to its end."""
    frames: list[Page] = []

    def frame(sender: str, message: HandshakeMessage) -> HandshakeMessage:
        encoded = encode_handshake(message)
        length = len(encoded).to_bytes(4, "big")
        frames.append({"from": sender, **message_page(message, length + encoded, about)})
        del frames[-1]["about"]
        return message

    page: Page = {"about": about, "frames": frames}
    try:
        welcome = listener.welcome(frame(DIALER, dialer.hello))
        page["listener_signs"] = signed_bytes(LISTENER, dialer.hello, welcome.listener_key, welcome.nonce).hex()
        frame(LISTENER, welcome)
        proof = dialer.prove(welcome)
        page["dialer_signs"] = signed_bytes(DIALER, dialer.hello, welcome.listener_key, welcome.nonce).hex()
        if spoil:
            proof = msgspec.structs.replace(proof, signature=bytes(64))
        frame(DIALER, proof)
        listener.accept(proof)
        frame(LISTENER, Accepted())
    except Refused as error:
        frame(LISTENER, Refusal(error.reason))
    return page


def handshakes() -> Page:
    def dialer(index: int = 1, to: int = 2, chain_id: str = CHAIN) -> DialerHandshake:
        return DialerHandshake(identity(index, chain_id), to, b"\x11" * 32)

    def listener() -> ListenerHandshake:
        return ListenerHandshake(identity(2), b"\x22" * 32)

    def changed(**fields: object) -> DialerHandshake:
        made = dialer()
        made.hello = msgspec.structs.replace(made.hello, **fields)
        return made

    return {
        "chain_id": CHAIN,
        "seeds": [seed.hex() for seed in SEEDS],
        "public_keys": [key.hex() for key in VALIDATORS.public_keys],
        "transcripts": [
            transcript("validator 1 dials validator 2", dialer(), listener()),
            transcript("another chain", dialer(chain_id="another"), listener()),
            transcript("another version", changed(version=2), listener()),
            transcript("meant for validator 3", dialer(to=3), listener()),
            transcript("the key of another validator", changed(dialer_key=VALIDATORS.public_keys[0]), listener()),
            transcript("a nonce of 31 bytes", changed(nonce=bytes(31)), listener()),
            transcript("a proof that does not hold", dialer(), listener(), spoil=True),
        ],
    }


# --- what is refused --------------------------------------------------------------------------------------------------


def refused() -> Page:
    """Bytes that a decoder must refuse, by decoder, each with the reason."""
    request = peer.encode_message(peer.BlockRequest(DIGEST))
    vote_bytes = engine.encode(vote(VoteKind.NOTARIZE, 3, 1, DIGEST, 0))
    nullify = engine.encode(vote(VoteKind.NULLIFY, 2, NO_PARENT, NO_DIGEST, 3))
    peers = {
        "nothing": b"",
        "no envelope": request[1:],
        "an envelope of two": b"\x92" + request[1:] + b"\xc0",
        "bytes after the end": request + b"\xc0",
        "the tag in two bytes": b"\x91\x92\xcc\x03" + request[3:],
        "the tag 14": b"\x91\x92\x0e" + request[3:],
        "a text instead of bytes": b"\x91\x92\x03\xa1x",
        "a length in two bytes": b"\x91\x92\x03\xc5\x00\x20" + DIGEST,
        "a field too many": b"\x91\x93\x03\xc4\x20" + DIGEST + b"\xc0",
        "a field too few": b"\x91\x91\x03",
        "a map": b"\x81\x00\x00",
    }
    consensus = {
        "nothing": b"",
        "bytes after the end": vote_bytes + b"\xc0",
        "the kind 5": vote_bytes.replace(b"\x97\x01\x01\x03", b"\x97\x01\x05\x03"),
        "the view 0": vote_bytes.replace(b"\x97\x01\x01\x03\x01", b"\x97\x01\x01\x00\x00"),
        "a parent view not below the view": vote_bytes.replace(b"\x97\x01\x01\x03\x01", b"\x97\x01\x01\x03\x03"),
        "a notarize vote without a digest": vote_bytes.replace(b"\xc4\x20" + DIGEST, b"\xc4\x00"),
        "a nullify vote with a parent view": nullify.replace(b"\x97\x01\x02\x02\x00", b"\x97\x01\x02\x02\x01"),
        "the view in two bytes": vote_bytes.replace(b"\x97\x01\x01\x03", b"\x97\x01\x01\xcc\x03"),
        "the tag 16 of evidence": b"\x93\x10" + vote_bytes + vote_bytes,
        "views that do not ascend": b"\x92\x04\x92\x09\x01",
        "no views": b"\x92\x04\x90",
        "65 views": b"\x92\x04\xdc\x00\x41" + bytes(range(65)),
        "a bitmap that ends with zero": engine.encode(NOTARIZATION).replace(b"\xc4\x01\x0b", b"\xc4\x02\x0b\x00"),
        "more signers than signatures": engine.encode(NOTARIZATION).replace(b"\xc4\x01\x0b", b"\xc4\x01\x0f"),
    }
    handshake = {
        "nothing": b"",
        "the tag 6": b"\x91\x06",
        "a field too many": b"\x92\x04\xc0",
        "a proof that is a text": b"\x92\x03\xa1x",
    }
    decoders = {"handshake": handshake, "peer": peers, "consensus": consensus}
    return {
        name: [{"why": why, "hex": encoded.hex()} for why, encoded in cases.items()] for name, cases in decoders.items()
    }


def files() -> dict[str, Page]:
    """The content of each file, by name."""
    pages = [message_page(each, peer.encode_message(each), about) for each, about in peer_messages()]
    return {
        "handshake.json": handshakes(),
        "peer.json": {"messages": pages},
        "simplex.json": consensus_page(simplex_messages()),
        "hotstuff.json": consensus_page(hotstuff_messages()),
        "refused.json": refused(),
    }


def text_of(page: Page) -> str:
    return json.dumps(page, indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in files().items():
        (FOLDER / name).write_text(text_of(page), encoding="utf-8")
