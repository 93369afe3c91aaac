"""Messages between validators, as frozen structs, and their canonical encoding as bytes.

Every message is a MessagePack array whose first element is an integer tag and whose other elements are the fields in
the order in which they are declared here. Integers, byte strings and arrays take their shortest MessagePack form:
:func:`decode` accepts only bytes that :func:`encode` would make, so that one message has one encoding.

========================  ===  =======================================================================
message                   tag  fields
========================  ===  =======================================================================
:class:`Vote`               1  kind, view, parent_view, digest, signer, signature
:class:`Proposal`           2  view, parent_view, parent_digest, digest, body, vote
:class:`Certificate`        3  kind, view, parent_view, digest, signers, signatures
:class:`CertificateRequest` 4  views
:class:`TimeoutCertificate` 5  view, high, signers, high_views, signatures
:class:`Timeout`            6  vote, high
========================  ===  =======================================================================

The signers of a certificate are a bitmap: validator ``i`` is bit ``i % 8``, from the lowest, of byte ``i // 8``. The
last byte is not zero. The signatures are concatenated in the order of their signers.

Only Simplex has nullify votes; only HotStuff has timeout votes and the messages 5 and 6.

Evidence consists of votes. It is carried in blocks and reports, never between engines; it has tags 16 to 20 and a
separate pair of functions, :func:`encode_evidence` and :func:`decode_evidence`.

A vote is signed over :func:`vote_signing_bytes`: a fixed domain, the chain's namespace, and the fields kind, view,
parent view and digest. A certificate's signatures are the signatures of its votes, so both can be used as evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from operator import lt
from typing import Annotated, Final

import msgspec

from consensus.keys import ValidatorSet
from consensus.types import DIGEST_BYTES, ConsensusError, Digest, Signature, ValidatorIndex, View

MAX_VIEW: Final = 2**63 - 1
MAX_VALIDATORS: Final = 1024
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""Largest block body that can be encoded; an engine's configuration sets a lower limit."""
MAX_REQUESTED_VIEWS: Final = 64
MAX_MESSAGE_BYTES: Final = MAX_BODY_BYTES + 1024
MAX_NAMESPACE_BYTES: Final = 255
SIGNATURE_BYTES: Final = 64

VOTE_DOMAIN: Final = b"stampede/consensus/vote/1"
"""Domain separator: separates votes from everything else that a validator's key may sign."""


class MessageError(ConsensusError):
    """Bytes or fields that are not a message of this protocol."""


class VoteKind(IntEnum):
    """What a vote states about its view."""

    NOTARIZE = 1
    """This block may be built upon."""
    NULLIFY = 2
    """This view may be skipped."""
    FINALIZE = 3
    """I saw this block notarized and will never skip its view."""
    TIMEOUT = 4
    """I gave up this view; the parent view is the highest view that I know to have a notarized block."""


NOTARIZE: Final = VoteKind.NOTARIZE
NULLIFY: Final = VoteKind.NULLIFY
FINALIZE: Final = VoteKind.FINALIZE
TIMEOUT: Final = VoteKind.TIMEOUT
"""The kinds by names of this module. The attribute of an enumeration takes five times as long to read."""

ViewField = Annotated[View, msgspec.Meta(ge=0, le=MAX_VIEW)]
SignerField = Annotated[ValidatorIndex, msgspec.Meta(ge=0, lt=MAX_VALIDATORS)]
SignatureField = Annotated[Signature, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
DigestField = Annotated[Digest, msgspec.Meta(max_length=DIGEST_BYTES)]
BodyField = Annotated[bytes, msgspec.Meta(max_length=MAX_BODY_BYTES)]
SignersField = Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_VALIDATORS // 8)]
SignaturesField = Annotated[
    bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=MAX_VALIDATORS * SIGNATURE_BYTES)
]
HighViewsField = Annotated[tuple[ViewField, ...], msgspec.Meta(min_length=1, max_length=MAX_VALIDATORS)]
RequestedViewsField = Annotated[tuple[ViewField, ...], msgspec.Meta(min_length=1, max_length=MAX_REQUESTED_VIEWS)]

NO_DIGEST: Final = Digest(b"")
"""The digest of a nullify or timeout vote, which is about a view and not about a block."""
NO_PARENT: Final = View(0)
"""The parent view of a nullify vote."""


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """One validator's statement about one view. A nullify or timeout vote has no digest.

    The parent view is 0 in a nullify vote. In a timeout vote it is the highest view of which the signer knows a
    notarized (or final) block.
    """

    kind: VoteKind
    view: ViewField
    parent_view: ViewField
    digest: DigestField
    signer: SignerField
    signature: SignatureField


class Proposal(msgspec.Struct, frozen=True, array_like=True, tag=2, forbid_unknown_fields=True):
    """A leader's block for a view. ``vote`` is the leader's notarize vote for it, which authenticates it."""

    view: ViewField
    parent_view: ViewField
    parent_digest: DigestField
    digest: DigestField
    body: BodyField
    vote: Vote


class Certificate(msgspec.Struct, frozen=True, array_like=True, tag=3, forbid_unknown_fields=True):
    """A quorum of equal votes."""

    kind: VoteKind
    view: ViewField
    parent_view: ViewField
    digest: DigestField
    signers: SignersField
    signatures: SignaturesField

    @classmethod
    def of(
        cls, kind: VoteKind, view: View, parent_view: View, digest: Digest, signed: Mapping[ValidatorIndex, Signature]
    ) -> Certificate:
        """Build the certificate of one statement from its signatures, which are given by signer."""
        signers = sorted(signed)
        return cls(kind, view, parent_view, digest, bitmap_of(signers), b"".join(map(signed.__getitem__, signers)))

    @property
    def signed(self) -> dict[ValidatorIndex, Signature]:
        """Signatures by signer, ascending."""
        return dict(zip(signers_in(self.signers), _cut(self.signatures), strict=True))

    def votes(self) -> tuple[Vote, ...]:
        """The votes that the certificate consists of."""
        return tuple(
            Vote(self.kind, self.view, self.parent_view, self.digest, signer, signature)
            for signer, signature in self.signed.items()
        )


class CertificateRequest(msgspec.Struct, frozen=True, array_like=True, tag=4, forbid_unknown_fields=True):
    """Asks for the certificates of these views, strictly ascending."""

    views: RequestedViewsField


class TimeoutCertificate(msgspec.Struct, frozen=True, array_like=True, tag=5, forbid_unknown_fields=True):
    """A quorum of timeout votes of one view; each signer names its own high view.

    ``high`` is the notarization or finalization of the block of the highest high view. It is ``None`` if that view is
    known to be final without it, as the genesis view is.
    """

    view: ViewField
    high: Certificate | None
    signers: SignersField
    high_views: HighViewsField
    signatures: SignaturesField

    @classmethod
    def of(
        cls, view: View, high: Certificate | None, signed: Mapping[ValidatorIndex, tuple[View, Signature]]
    ) -> TimeoutCertificate:
        """Build the timeout certificate of a view from the high view and signature of each signer."""
        signers = sorted(signed)
        high_views = tuple(signed[signer][0] for signer in signers)
        return cls(view, high, bitmap_of(signers), high_views, b"".join(signed[signer][1] for signer in signers))

    @property
    def kind(self) -> VoteKind:
        """The kind of the certificate's votes."""
        return VoteKind.TIMEOUT

    @property
    def high_view(self) -> View:
        """The highest view that any signer knew to have a notarized block."""
        return max(self.high_views)

    @property
    def signed(self) -> dict[ValidatorIndex, tuple[View, Signature]]:
        """The high view and the signature of each signer, ascending."""
        return dict(
            zip(signers_in(self.signers), zip(self.high_views, _cut(self.signatures), strict=True), strict=True)
        )

    def votes(self) -> tuple[Vote, ...]:
        """The votes that the certificate consists of."""
        return tuple(
            Vote(VoteKind.TIMEOUT, self.view, high_view, NO_DIGEST, signer, signature)
            for signer, (high_view, signature) in self.signed.items()
        )


class Timeout(msgspec.Struct, frozen=True, array_like=True, tag=6, forbid_unknown_fields=True):
    """A timeout vote with its proof: ``high`` certifies the block of the high view that the vote names.

    ``high`` is ``None`` if that view is known to be final without it.
    """

    vote: Vote
    high: Certificate | None


Message = Vote | Proposal | Certificate | CertificateRequest | TimeoutCertificate | Timeout
AnyCertificate = Certificate | TimeoutCertificate
"""A certificate that ends a view."""


class ConflictingNotarize(msgspec.Struct, frozen=True, array_like=True, tag=16, forbid_unknown_fields=True):
    """Two notarize votes of one signer for two blocks of one view; the lower (parent view, digest) first."""

    first: Vote
    second: Vote


class ConflictingFinalize(msgspec.Struct, frozen=True, array_like=True, tag=17, forbid_unknown_fields=True):
    """Two finalize votes of one signer for two blocks of one view; the lower (parent view, digest) first."""

    first: Vote
    second: Vote


class NullifyAndFinalize(msgspec.Struct, frozen=True, array_like=True, tag=18, forbid_unknown_fields=True):
    """A nullify and a finalize vote of one signer in one view."""

    first: Vote
    second: Vote


class ConflictingTimeout(msgspec.Struct, frozen=True, array_like=True, tag=19, forbid_unknown_fields=True):
    """Two timeout votes of one signer in one view with two high views; the vote with the lower one first."""

    first: Vote
    second: Vote


class FinalizeAndTimeout(msgspec.Struct, frozen=True, array_like=True, tag=20, forbid_unknown_fields=True):
    """A finalize vote, and a timeout vote of its signer in the same view or a later one.

    The high view of the timeout vote is below the finalized view.
    """

    first: Vote
    second: Vote


Evidence = ConflictingNotarize | ConflictingFinalize | NullifyAndFinalize | ConflictingTimeout | FinalizeAndTimeout

_ENCODER: Final = msgspec.msgpack.Encoder()
_MESSAGE_DECODER: Final = msgspec.msgpack.Decoder(Message)
_EVIDENCE_DECODER: Final = msgspec.msgpack.Decoder(Evidence)


# --- bytes ----------------------------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """The canonical encoding of ``message``; raises :class:`MessageError` for fields that do not fit together."""
    check(message)
    return _ENCODER.encode(message)


def encode_unchecked(message: Message) -> bytes:
    """The encoding of a message without a check that its fields fit together, as those of an engine's message do."""
    return _ENCODER.encode(message)


def decode(encoded: bytes) -> Message:
    """Decode a message. Raises :class:`MessageError` for bytes that are not the canonical encoding of a message."""
    if len(encoded) > MAX_MESSAGE_BYTES:
        raise MessageError(f"message of {len(encoded)} bytes exceeds {MAX_MESSAGE_BYTES}")
    try:
        message: Message = _MESSAGE_DECODER.decode(encoded)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MessageError(f"undecodable message: {error}") from None
    if _ENCODER.encode(message) != encoded:
        raise MessageError("message is not in its canonical encoding")
    check(message)
    return message


def encode_evidence(evidence: Evidence) -> bytes:
    """The canonical encoding of ``evidence``."""
    return _ENCODER.encode(evidence)


def decode_evidence(encoded: bytes) -> Evidence:
    """Evidence from its encoding; raises :class:`MessageError`. Does not verify it."""
    try:
        evidence: Evidence = _EVIDENCE_DECODER.decode(encoded)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MessageError(f"undecodable evidence: {error}") from None
    if _ENCODER.encode(evidence) != encoded:
        raise MessageError("evidence is not in its canonical encoding")
    return evidence


def vote_signing_bytes(namespace: bytes, kind: VoteKind, view: View, parent_view: View, digest: Digest) -> bytes:
    """The bytes that a vote's signature covers.

    Domain, length of the namespace (1 byte), namespace, kind (1 byte), view and parent view (8 bytes each, big-endian),
    digest (32 bytes, or none in a nullify or timeout vote). The namespace names the chain: a vote of one chain is not
    valid in another.
    """
    if len(namespace) > MAX_NAMESPACE_BYTES:
        raise MessageError(f"namespace of {len(namespace)} bytes exceeds {MAX_NAMESPACE_BYTES}")
    return b"".join(
        (
            VOTE_DOMAIN,
            bytes((len(namespace),)),
            namespace,
            bytes((kind,)),
            view.to_bytes(8, "big"),
            parent_view.to_bytes(8, "big"),
            digest,
        )
    )


# --- the signers of a certificate -------------------------------------------------------------------------------------


def bitmap_of(signers: Iterable[ValidatorIndex]) -> bytes:
    """The bitmap of these signers."""
    bits = 0
    for signer in signers:
        bits |= 1 << signer
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def signers_in(bitmap: bytes) -> list[ValidatorIndex]:
    """The signers of a bitmap, ascending."""
    digits = bin(int.from_bytes(bitmap, "little"))[:1:-1]
    return [ValidatorIndex(index) for index, digit in enumerate(digits) if digit == "1"]


def _cut(signatures: bytes) -> list[Signature]:
    """Split concatenated signatures."""
    starts = range(0, len(signatures), SIGNATURE_BYTES)
    return [Signature(signatures[start : start + SIGNATURE_BYTES]) for start in starts]


# --- fields that belong together -------------------------------------------------------------------------------------


def check(message: Message) -> None:
    """Raise :class:`MessageError` unless the fields fit together. Types are assumed; signatures are not verified."""
    match message:
        case Vote():
            check_vote(message)
        case Proposal():
            _check_proposal(message)
        case Certificate():
            _check_certificate(message)
        case CertificateRequest():
            _check_ascending(message.views, MAX_REQUESTED_VIEWS, "requested views")
        case TimeoutCertificate():
            _check_timeout_certificate(message)
        case Timeout():
            _check_timeout(message)


def is_well_formed(message: Message) -> bool:
    """Whether a message's fields fit together."""
    try:
        check(message)
    except MessageError:
        return False
    return True


def check_vote(vote: Vote) -> None:
    """Raise :class:`MessageError` unless the vote's fields fit together."""
    if len(vote.signature) != SIGNATURE_BYTES:
        raise MessageError("a signature has 64 bytes")
    if not 0 <= vote.signer < MAX_VALIDATORS:
        raise MessageError("signer out of range")
    _check_subject(vote.kind, vote.view, vote.parent_view, vote.digest)


def _check_subject(kind: VoteKind, view: View, parent_view: View, digest: Digest) -> None:
    if not 1 <= view <= MAX_VIEW:
        raise MessageError("votes are about views from 1")
    if kind == VoteKind.NULLIFY:
        if parent_view != NO_PARENT or digest != NO_DIGEST:
            raise MessageError("a nullify vote names no block")
        return
    if kind == VoteKind.TIMEOUT:
        if digest != NO_DIGEST:
            raise MessageError("a timeout vote has no digest")
    elif len(digest) != DIGEST_BYTES:
        raise MessageError("a digest has 32 bytes")
    if not 0 <= parent_view < view:
        raise MessageError("a parent's view is below its child's")


def _check_proposal(proposal: Proposal) -> None:
    vote = proposal.vote
    check_vote(vote)
    if vote.kind != VoteKind.NOTARIZE:
        raise MessageError("a proposal carries a notarize vote")
    if (vote.view, vote.parent_view, vote.digest) != (proposal.view, proposal.parent_view, proposal.digest):
        raise MessageError("a proposal's vote is for the proposal")
    if len(proposal.parent_digest) != DIGEST_BYTES:
        raise MessageError("a digest has 32 bytes")
    if len(proposal.body) > MAX_BODY_BYTES:
        raise MessageError(f"body of {len(proposal.body)} bytes exceeds {MAX_BODY_BYTES}")


def _check_certificate(certificate: Certificate) -> None:
    if certificate.kind == VoteKind.TIMEOUT:
        raise MessageError("timeout votes make a timeout certificate")
    _check_subject(certificate.kind, certificate.view, certificate.parent_view, certificate.digest)
    _check_signers(certificate)


def _check_timeout_certificate(certificate: TimeoutCertificate) -> None:
    _check_signers(certificate)
    if len(certificate.high_views) * SIGNATURE_BYTES != len(certificate.signatures):
        raise MessageError("a timeout certificate names a high view for each signature")
    _check_subject(VoteKind.TIMEOUT, certificate.view, certificate.high_view, NO_DIGEST)
    _check_high(certificate.high, certificate.high_view)


def _check_signers(certificate: Certificate | TimeoutCertificate) -> None:
    bitmap, signatures = certificate.signers, certificate.signatures
    if not 1 <= len(bitmap) <= MAX_VALIDATORS // 8 or bitmap[-1] == 0:
        raise MessageError(f"a bitmap of signers has between 1 and {MAX_VALIDATORS // 8} bytes, the last not zero")
    if int.from_bytes(bitmap, "little").bit_count() * SIGNATURE_BYTES != len(signatures):
        raise MessageError(f"a certificate has {SIGNATURE_BYTES} bytes of signature for each signer")


def _check_timeout(timeout: Timeout) -> None:
    check_vote(timeout.vote)
    if timeout.vote.kind != VoteKind.TIMEOUT:
        raise MessageError("a timeout carries a timeout vote")
    _check_high(timeout.high, timeout.vote.parent_view)


def _check_high(high: Certificate | None, high_view: View) -> None:
    if high is None:
        return
    _check_certificate(high)
    if high.kind not in (VoteKind.NOTARIZE, VoteKind.FINALIZE):
        raise MessageError("a high certificate is a block's")
    if high.view != high_view:
        raise MessageError("a high certificate is of the high view")


def _check_ascending(numbers: tuple[int, ...], limit: int, what: str) -> None:
    if not 1 <= len(numbers) <= limit:
        raise MessageError(f"between 1 and {limit} {what}")
    if numbers[0] < 0 or not all(map(lt, numbers, numbers[1:])):
        raise MessageError(f"{what} are not strictly ascending")


# --- evidence --------------------------------------------------------------------------------------------------------

_EVIDENCE_KINDS: Final = {
    ConflictingNotarize: (VoteKind.NOTARIZE, VoteKind.NOTARIZE),
    ConflictingFinalize: (VoteKind.FINALIZE, VoteKind.FINALIZE),
    NullifyAndFinalize: (VoteKind.NULLIFY, VoteKind.FINALIZE),
    ConflictingTimeout: (VoteKind.TIMEOUT, VoteKind.TIMEOUT),
    FinalizeAndTimeout: (VoteKind.FINALIZE, VoteKind.TIMEOUT),
}


def vote_of(message: object) -> Vote | None:
    """The vote that a message is, or that it carries; ``None`` for messages of other kinds."""
    if type(message) is Vote:
        return message
    carried = getattr(message, "vote", None)
    return carried if type(carried) is Vote else None


def conflict(one: Vote, other: Vote) -> Evidence | None:
    """Evidence that two votes of one signer break the rules; ``None`` if they do not. Signatures are not verified.

    The order of the arguments does not matter: the same pair of votes always makes the same evidence.
    """
    if one.signer != other.signer:
        return None
    if one.view != other.view:
        return _conflict_of_views(one, other)
    first, second = sorted((one, other), key=lambda vote: (vote.kind, vote.parent_view, vote.digest))
    same_block = (first.parent_view, first.digest) == (second.parent_view, second.digest)
    match first.kind, second.kind:
        case VoteKind.NOTARIZE, VoteKind.NOTARIZE if not same_block:
            return ConflictingNotarize(first, second)
        case VoteKind.FINALIZE, VoteKind.FINALIZE if not same_block:
            return ConflictingFinalize(first, second)
        case VoteKind.NULLIFY, VoteKind.FINALIZE:
            return NullifyAndFinalize(first, second)
        case VoteKind.TIMEOUT, VoteKind.TIMEOUT if not same_block:
            return ConflictingTimeout(first, second)
        case VoteKind.FINALIZE, VoteKind.TIMEOUT:
            return FinalizeAndTimeout(first, second)
    return None


def _conflict_of_views(one: Vote, other: Vote) -> Evidence | None:
    """Evidence that a finalize vote and a later timeout vote of one signer contradict each other; ``None`` if not.

    A validator that finalized a view must name that view or a higher one in its timeout votes of later views.
    """
    first, second = (one, other) if one.view < other.view else (other, one)
    if (first.kind, second.kind) == (VoteKind.FINALIZE, VoteKind.TIMEOUT) and second.parent_view < first.view:
        return FinalizeAndTimeout(first, second)
    return None


def verify_evidence(evidence: Evidence, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether ``evidence`` is proof for a third party: well-formed, a contradiction, and both signatures valid."""
    votes = (evidence.first, evidence.second)
    try:
        for vote in votes:
            check_vote(vote)
    except MessageError:
        return False
    if tuple(vote.kind for vote in votes) != _EVIDENCE_KINDS[type(evidence)] or conflict(*votes) != evidence:
        return False
    return all(verify_vote(vote, validators, namespace) for vote in votes)


def verify_vote(vote: Vote, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether the vote was signed by the validator that it names."""
    message = vote_signing_bytes(namespace, vote.kind, vote.view, vote.parent_view, vote.digest)
    return validators.verify(vote.signer, message, vote.signature)
