"""Certificates and timeouts that an honest validator must refuse, made of what was said.

Each breaks one rule of ``docs/consensus.md``. Who refuses them is in the same state as before, so they add no states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from cluster.misbehaviour.byzantine.base import SISTER_CHAIN
from consensus.messages import (
    NO_DIGEST,
    SIGNATURE_BYTES,
    Certificate,
    Message,
    Timeout,
    TimeoutCertificate,
    VoteKind,
    bitmap_of,
)
from consensus.types import FIRST_VIEW, GENESIS_VIEW, Digest, Signature, ValidatorIndex, View
from kits.explore.offers import Offers, certificate_of, timeout_certificate_of
from kits.explore.replica import digest_of
from kits.explore.scope import Scope


class Forgery(NamedTuple):
    """A message that must be refused."""

    fault: str
    message: Message


def forgeries(scope: Scope, forger: ValidatorIndex, offers: Offers) -> Iterator[Forgery]:
    """The forgeries of a validator that heard all that was said."""
    for number in range(FIRST_VIEW, scope.views + 1):
        yield from _invented(scope, forger, View(number))
    for what, votes in offers.votes.items():
        if len(votes) >= scope.quorum - 1:
            yield Forgery("one signature short", certificate_of(votes[: scope.quorum - 1]))
        if what.kind == VoteKind.NOTARIZE and len(votes) >= scope.quorum:
            certificate = certificate_of(votes[: scope.quorum])
            yield Forgery("signatures of another kind", msgspec.structs.replace(certificate, kind=VoteKind.FINALIZE))
    for timeouts in offers.timeouts.values():
        ended = timeout_certificate_of(timeouts[: scope.quorum])
        if ended.high_view > GENESIS_VIEW:
            yield Forgery("no certificate of the high view", msgspec.structs.replace(ended, high=None))
            lower = (GENESIS_VIEW,) * len(ended.high_views)
            yield Forgery("other high views", msgspec.structs.replace(ended, high=None, high_views=lower))


def _invented(scope: Scope, forger: ValidatorIndex, view: View) -> Iterator[Forgery]:
    """Certificates of a block that no leader proposed, and of a view that no quorum gave up."""
    digest, signers = digest_of(b"forged %d" % view), list(range(scope.quorum))
    for kind in (VoteKind.NOTARIZE, VoteKind.FINALIZE):
        own = scope.sign(forger, kind, view, View(view - 1), digest).signature
        yield Forgery("unsigned", _certificate(kind, view, digest, signers, [bytes(SIGNATURE_BYTES)] * len(signers)))
        yield Forgery("one signer in all names", _certificate(kind, view, digest, signers, [own] * len(signers)))
        there = [scope.sign(signer, kind, view, View(view - 1), digest, SISTER_CHAIN).signature for signer in signers]
        yield Forgery("another chain", _certificate(kind, view, digest, signers, there))
    if scope.is_hotstuff:
        unsigned = bytes(SIGNATURE_BYTES) * len(signers)
        highs = (GENESIS_VIEW,) * len(signers)
        yield Forgery(
            "unsigned timeouts",
            TimeoutCertificate(view, None, bitmap_of(map(ValidatorIndex, signers)), highs, unsigned),
        )
        if view > FIRST_VIEW:
            high = _certificate(
                VoteKind.NOTARIZE, View(view - 1), digest, signers, [bytes(SIGNATURE_BYTES)] * len(signers)
            )
            vote = scope.sign(forger, VoteKind.TIMEOUT, view, View(view - 1), NO_DIGEST)
            yield Forgery("a forged high certificate", Timeout(vote, high))


def _certificate(
    kind: VoteKind, view: View, digest: Digest, signers: list[int], signatures: Sequence[bytes]
) -> Certificate:
    signed = {
        ValidatorIndex(signer): Signature(signature) for signer, signature in zip(signers, signatures, strict=True)
    }
    return Certificate.of(kind, view, View(view - 1), digest, signed)
