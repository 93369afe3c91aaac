"""The certificates that a host's validators believe, as far as the driver is to hear of them.

Among 64 validators the same statement of a view stands in dozens of certificates. The host looks at the signatures of
each, and remembers most of them from when its validators checked them. It tells the first certificate of each
statement, and each that does not look good. The driver judges (:mod:`cluster.live.audit.safety_watch`).
"""

from __future__ import annotations

from typing import Final, TypeVar

from cluster.audit.certificates import is_certified
from cluster.audit.certified_chain import Claim, claim_of
from cluster.live.host.observations import CertificateSeen
from consensus.keys import ValidatorSet
from consensus.messages import AnyCertificate, VoteKind
from consensus.types import GENESIS_VIEW

T = TypeVar("T")

MAX_REMEMBERED: Final = 4_096
"""Certificates, and statements, the oldest forgotten first: those of the last views of a hundred validators."""


class CertificateTap:
    """One host's, for all validators on it that are not byzantine."""

    def __init__(self) -> None:
        self._seen: dict[AnyCertificate, None] = {}
        self._claims: dict[Claim, None] = {}
        self._newest_finalized: int = GENESIS_VIEW

    def take(self, certificate: AnyCertificate, validators: ValidatorSet, namespace: bytes) -> CertificateSeen | None:
        """A validator believes a certificate. Returns what the driver is to hear of it, if anything."""
        if certificate in self._seen:
            return None
        _remember(self._seen, certificate)
        claim = claim_of(certificate)
        is_new = claim not in self._claims
        _remember(self._claims, claim)
        looks_good = is_certified(certificate, validators, namespace, self._newest_finalized)
        if certificate.kind == VoteKind.FINALIZE:
            self._newest_finalized = max(self._newest_finalized, certificate.view)
        return CertificateSeen(certificate, looks_good) if is_new or not looks_good else None


def _remember(kept: dict[T, None], item: T) -> None:
    kept[item] = None
    if len(kept) > MAX_REMEMBERED:
        del kept[next(iter(kept))]
