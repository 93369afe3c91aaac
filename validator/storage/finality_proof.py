"""Proofs that a block is final, for a party that did not observe its finalization.

A finalization certifies one block and all its ancestors. A block that only a descendant's finalization made final has
no certificate; it is proved by the certificate of the next block that has one, and by the headers up to that, its
*links*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from consensus.certificates import verify_finalization
from consensus.keys import ValidatorSet
from consensus.types import Digest
from validator.chain.block import Block, Header, header_hash
from validator.primitives.codec import decode
from validator.storage.archive import BlockArchive

MAX_LINKS: Final = 8_192
"""Headers between a final block and the finalization that proves it."""


class FinalityProof(NamedTuple):
    """Proof that a block is final: the headers after it, up to a block with a finalization, and that finalization.

    There are no headers if the finalization is of the block itself.
    """

    links: tuple[Header, ...]
    certificate: bytes


def find_proof(archive: BlockArchive, height: int) -> FinalityProof | None:
    """Find the proof that an archived block is final.

    ``None`` if the block is not in the archive, or no block up to ``MAX_LINKS`` above it has a certificate.
    """
    links: list[Header] = []
    for above in range(height, min(height + MAX_LINKS, archive.height) + 1):
        archived = archive.get(above)
        if archived is None:
            return None
        if above > height:
            links.append(decode(archived.block, Block).header)
        if archived.certificate:
            return FinalityProof(tuple(links), archived.certificate)
    return None


def is_proved(headers: Sequence[Header], certificate: bytes, validators: ValidatorSet, namespace: bytes) -> bool:
    """Whether each header's parent is the one before it, and the encoded certificate finalizes the last one.

    At least one header is required.
    """
    digests = [header_hash(header) for header in headers]
    hang_together = all(header.parent_hash == parent for header, parent in zip(headers[1:], digests, strict=False))
    return hang_together and verify_finalization(certificate, Digest(digests[-1]), validators, namespace)
