"""An independent implementation of the rules of certificates: it shares no code with the validators.

A validator that accepts a bad certificate has a bug in :mod:`consensus.certificates`, in what its votes sign
(:mod:`consensus.messages`) or in how it counts a quorum (:mod:`consensus.types`). A watch that called the same
functions would have the same bug. So this module implements the rules of ``docs/consensus.md`` again. It imports from
the watched code only the messages as data, the keys, the schedule of committees, and the signature scheme's arithmetic.
"""

from __future__ import annotations

import functools
import struct
from typing import Final

from consensus.keys import ValidatorSet
from consensus.messages import AnyCertificate, Certificate, TimeoutCertificate

VOTE_DOMAIN: Final = b"stampede/consensus/vote/1"
DIGEST_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
REMEMBERED_BITMAPS: Final = 1 << 8
"""Number of bitmaps whose signers are in the cache."""
NOTARIZE: Final = 1
NULLIFY: Final = 2
FINALIZE: Final = 3
TIMEOUT: Final = 4

Signature = tuple[int, bytes, bytes]
"""A signature to verify: the signer's index, the signed bytes, and the signature's bytes."""


def is_certified(certificate: AnyCertificate, validators: ValidatorSet, namespace: bytes, newest_final: int) -> bool:
    """Whether a certificate is valid: well-formed, and signed by a quorum of the view's committee, each member once.

    ``newest_final`` is the newest view that any validator knows to be final. A timeout certificate must contain the
    certificate of the highest view that it names, unless that view is at most ``newest_final``.
    """
    if isinstance(certificate, TimeoutCertificate):
        return _is_timed_out(certificate, validators, namespace, newest_final)
    return _is_of_votes(certificate, validators, namespace)


def highest_named(certificate: TimeoutCertificate) -> int:
    """The highest view that a timeout in the certificate names."""
    return max(map(int, certificate.high_views))


def members_of(validators: ValidatorSet, view: int) -> list[int]:
    """The indices of a view's committee: that of the last epoch begun by then; all validators if none has begun."""
    members = list(range(len(validators.public_keys)))
    for epoch in validators.epochs:
        if epoch.first_view <= view:
            members = list(epoch.members)
    return members


def _is_of_votes(certificate: Certificate, validators: ValidatorSet, namespace: bytes) -> bool:
    kind, view, parent_view = int(certificate.kind), certificate.view, certificate.parent_view
    digest = bytes(certificate.digest)
    if kind == NULLIFY:
        fits = parent_view == 0 and not digest
    else:
        fits = kind in (NOTARIZE, FINALIZE) and parent_view < view and len(digest) == DIGEST_BYTES
    message = _signed(namespace, kind, view, parent_view, digest)
    signatures = [(signer, message, signature) for signer, signature in _signatures(certificate)]
    return fits and _are_of_quorum(signatures, validators, view)


def _is_timed_out(
    certificate: TimeoutCertificate, validators: ValidatorSet, namespace: bytes, newest_final: int
) -> bool:
    view, high = certificate.view, certificate.high
    if len(certificate.high_views) != len(_signatures(certificate)):
        return False
    signatures = [
        (signer, _signed(namespace, TIMEOUT, view, named, b""), signature)
        for (signer, signature), named in zip(_signatures(certificate), certificate.high_views, strict=True)
    ]
    if not _are_of_quorum(signatures, validators, view):
        return False
    highest = highest_named(certificate)
    if high is None:
        return highest <= newest_final
    is_of_block = int(high.kind) in (NOTARIZE, FINALIZE) and high.view == highest < view
    return is_of_block and _is_of_votes(high, validators, namespace)


def _signatures(certificate: AnyCertificate) -> list[tuple[int, bytes]]:
    """A certificate's signers, from its bitmap, with their signatures; empty if the two numbers differ."""
    joined, signers = bytes(certificate.signatures), _signers_in(certificate.signers)
    if len(joined) != SIGNATURE_BYTES * len(signers):
        return []
    return [
        (signer, joined[begin : begin + SIGNATURE_BYTES])
        for signer, begin in zip(signers, range(0, len(joined), SIGNATURE_BYTES), strict=True)
    ]


@functools.lru_cache(REMEMBERED_BITMAPS)
def _signers_in(bitmap: bytes) -> tuple[int, ...]:
    """The signers in a bitmap, ascending."""
    return tuple(8 * place + bit for place, byte in enumerate(bitmap) for bit in range(8) if byte >> bit & 1)


def _are_of_quorum(signatures: list[Signature], validators: ValidatorSet, view: int) -> bool:
    """Whether the signatures are valid and from a quorum of the view's committee, each member once.

    A quorum of ``n`` members is ``n - (n - 1) // 3``.
    """
    members = members_of(validators, view)
    signers = [signer for signer, _, _ in signatures]
    is_quorum = len(signers) >= len(members) - (len(members) - 1) // 3
    if not is_quorum or len(set(signers)) < len(signers) or not set(signers) <= set(members):
        return False
    keys, scheme = validators.public_keys, validators.scheme
    return all(scheme.verify(keys[signer], message, signature) for signer, message, signature in signatures)  # type: ignore[arg-type]


def _signed(namespace: bytes, kind: int, view: int, parent_view: int, digest: bytes) -> bytes:
    """The bytes that a vote's signature covers (``docs/consensus.md``, *Votes*)."""
    head = VOTE_DOMAIN + struct.pack(">B", len(namespace)) + namespace
    return head + struct.pack(">BQQ", kind, view, parent_view) + digest
