"""Evidence of a vote for an invalid block: whoever holds the chain is convinced, and by nothing else."""

from __future__ import annotations

import msgspec
import pytest

from consensus.keys import KeyedHashScheme, ValidatorSet
from consensus.leader import RoundRobin
from consensus.messages import Vote, VoteKind, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View
from tests.validator.chains import CHAIN_ID
from tests.validator.executors import Author, wire, with_transactions
from validator.chain.block import Block, header_hash
from validator.node import evidence as misconduct
from validator.node.evidence import (
    InvalidBlock,
    base_digest,
    contradicts_its_vote,
    decode_misconduct,
    encode_misconduct,
    verify_misconduct,
)
from validator.primitives.codec import CodecError, encode

NAMESPACE = CHAIN_ID.encode()
SCHEME = KeyedHashScheme()
SIGNERS = [SCHEME.signer(bytes([index]) * 32) for index in range(4)]
VALIDATORS = ValidatorSet(tuple(signer.public_key for signer in SIGNERS), SCHEME)
CULPRIT = 2


def vote_for(block: Block, kind: VoteKind = VoteKind.NOTARIZE, signer: int = CULPRIT, view: int | None = None) -> Vote:
    view = block.header.view if view is None else view
    subject = (View(view), View(view - 1), Digest(header_hash(block.header)))
    signature = SIGNERS[signer].sign(vote_signing_bytes(NAMESPACE, kind, *subject))
    return Vote(kind, *subject, ValidatorIndex(signer), signature)


def with_root(block: Block) -> Block:
    header = block.header
    return Block(msgspec.structs.replace(header, state_root=bytes(32)), block.transactions)


class Case:
    """A final block, a good child of it that is not final, and an invalid child of that."""

    def __init__(self) -> None:
        self.author = Author()
        self.author.finalize(self.author.build(None, wire(0)).digest)
        self.ancestor = self.author.build(None, wire(1))
        self.good = self.author.build(self.ancestor.digest, wire(2)).block
        self.bad = with_root(self.good)

    def evidence(self, *blocks: Block, vote: Vote | None = None) -> InvalidBlock:
        line = blocks or (self.ancestor.block, self.bad)
        return InvalidBlock(vote or vote_for(line[-1]), tuple(map(encode, line)))

    def convinces(self, evidence: InvalidBlock, author: Author | None = None) -> bool:
        executor = (author or self.stranger()).executor
        return verify_misconduct(evidence, executor, VALIDATORS, NAMESPACE)

    def stranger(self) -> Author:
        """Somebody who has the final chain alone."""
        other = Author()
        assert other.execute(self.author.built[0].block) is None
        other.finalize(self.author.built[0].digest)
        return other


@pytest.fixture
def case() -> Case:
    return Case()


def test_whoever_holds_the_chain_is_convinced(case: Case) -> None:
    evidence = case.evidence()
    assert base_digest(evidence) == case.stranger().executor.final_digest
    assert case.convinces(evidence), "a wrong root, two blocks above the final one"
    assert case.convinces(evidence, case.author), "and one who has executed the ancestor already"
    no_transaction = with_transactions(case.good, b"no transaction")
    assert case.convinces(case.evidence(case.ancestor.block, no_transaction))
    not_admitted = with_transactions(case.good, wire(7))
    assert case.convinces(case.evidence(case.ancestor.block, not_admitted))


def test_a_header_that_contradicts_the_vote_convinces_whoever_has_the_keys(case: Case) -> None:
    election = RoundRobin(VALIDATORS)

    def convicts(header_view: int, proposer: int, vote_view: int, vote: Vote | None = None) -> bool:
        header = msgspec.structs.replace(case.good.header, view=header_view, proposer=proposer)
        block = Block(header, case.good.transactions)
        vote = vote or vote_for(block, view=vote_view)
        return contradicts_its_vote(InvalidBlock(vote, (encode(block),)), VALIDATORS, NAMESPACE, election)

    view = case.good.header.view
    leader = election.leader(View(view))
    assert not convicts(view, leader, view), "nothing is wrong with it"
    assert convicts(view + 4, leader, view), "another view"
    assert convicts(view, (leader + 1) % 4, view), "not that view's leader"
    assert not convicts(view + 4, leader, view, vote_for(case.bad)), "a vote for another block"
    forged = msgspec.structs.replace(vote_for(case.good), signature=bytes(64))
    other = Block(msgspec.structs.replace(case.good.header, view=view + 4), case.good.transactions)
    forged = msgspec.structs.replace(forged, digest=Digest(header_hash(other.header)))
    assert not convicts(view + 4, case.good.header.proposer, view, forged)
    assert not contradicts_its_vote(
        InvalidBlock(vote_for(other, VoteKind.FINALIZE, view=view), (encode(other),)), VALIDATORS, NAMESPACE, election
    )
    assert not contradicts_its_vote(
        InvalidBlock(vote_for(other, view=view), (b"\xc1",)), VALIDATORS, NAMESPACE, election
    )


def test_judging_leaves_the_chain_as_it_was(case: Case) -> None:
    judge = case.stranger()
    root = judge.executor.final_view.root
    assert case.convinces(case.evidence(), judge)
    assert judge.executor.final_view.root == root
    assert judge.execute(case.ancestor.block) is None
    judge.finalize(case.ancestor.digest)
    assert judge.execute(case.good) is None


def test_nothing_else_convinces(case: Case) -> None:
    ancestor, bad, good = case.ancestor.block, case.bad, case.good
    tampered = Block(good.header, (*good.transactions, b"not what the header commits to"))
    forged = msgspec.structs.replace(vote_for(bad), signature=bytes(64))
    refused = {
        "a good block": case.evidence(ancestor, good),
        "a good header with other transactions": case.evidence(ancestor, tampered, vote=vote_for(good)),
        "a forged vote": case.evidence(vote=forged),
        "another's signature": case.evidence(vote=msgspec.structs.replace(vote_for(bad), signer=ValidatorIndex(1))),
        "an unknown signer": case.evidence(vote=msgspec.structs.replace(vote_for(bad), signer=ValidatorIndex(9))),
        "a vote to give up": case.evidence(vote=vote_for(bad, VoteKind.NULLIFY)),
        "a vote for another block": case.evidence(vote=vote_for(good)),
        "an ancestor left out": case.evidence(bad),
        "an ancestor that is invalid": case.evidence(with_root(ancestor), bad),
        "blocks that do not hang together": case.evidence(ancestor, ancestor, bad),
        "a body that is none": InvalidBlock(vote_for(bad), (b"\xc1", encode(bad))),
    }
    for name, evidence in refused.items():
        assert not case.convinces(evidence), name
    assert not case.convinces(case.evidence(), Author()), "who stands elsewhere is convinced of nothing"
    assert not verify_misconduct(case.evidence(), case.stranger().executor, VALIDATORS, b"another chain")


def test_the_encoding_is_one_and_bounded(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = encode_misconduct(case.evidence())
    assert encoded is not None
    assert decode_misconduct(encoded) == case.evidence()
    for planted in (b"", b"\xc1", encoded + b"\0", encode(InvalidBlock(vote_for(case.bad), ()))):
        with pytest.raises(CodecError):
            decode_misconduct(planted)
    assert base_digest(InvalidBlock(vote_for(case.bad), (b"\xc1",))) is None
    monkeypatch.setattr(misconduct, "MAX_EVIDENCE_BYTES", len(encoded) - 1)
    assert encode_misconduct(case.evidence()) is None
    with pytest.raises(CodecError, match="expected at most"):
        decode_misconduct(encoded)
