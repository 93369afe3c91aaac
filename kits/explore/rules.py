"""The rules of a world: what all certificates that a quorum signed say together (:mod:`cluster.audit.safety`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.rule_log import RuleLog
from consensus.messages import AnyCertificate, Certificate, VoteKind
from consensus.types import GENESIS_VIEW, View
from kits.explore.offers import Offers, certificate_of, timeout_certificate_of
from kits.explore.scope import GENESIS, NAMESPACE, Facts, Scope
from validator.chain.block import Header

PROGRESS: Final = "progress"
_KINDS: Final = (VoteKind.NOTARIZE, VoteKind.NULLIFY, VoteKind.TIMEOUT, VoteKind.FINALIZE)
"""The order in which the certificates are entered: consequences last."""


def world_problem(scope: Scope, facts: Facts, offers: Offers) -> str | None:
    """The first rule that the certificates of a world break, in words."""
    certificates: list[AnyCertificate] = [
        certificate_of(votes[: scope.quorum]) for votes in offers.certificates.values()
    ]
    certificates += [timeout_certificate_of(timeouts[: scope.quorum]) for timeouts in offers.timeouts.values()]
    log = RuleLog(lambda: 0.0)
    chain = CertifiedChain(scope.validator_set, NAMESPACE, scope.leader, log, genesis_hash=GENESIS)
    for certificate in sorted(certificates, key=lambda each: (_KINDS.index(each.kind), each.view)):
        chain.certified("a validator", certificate)
    for height, header, digest in _final_chain(scope, facts, certificates):
        chain.final(height, header, digest)
    return log.violations[0].partition(": ")[2] if log.violations else None


def _final_chain(scope: Scope, facts: Facts, certificates: list[AnyCertificate]) -> list[tuple[int, Header, bytes]]:
    """The blocks from the lowest to the newest final one, with their heights."""
    finalizations = [each for each in certificates if each.kind == VoteKind.FINALIZE and isinstance(each, Certificate)]
    if not finalizations:
        return []
    newest = max(finalizations, key=lambda each: each.view)
    blocks = []
    view, digest = newest.view, newest.digest
    while view > GENESIS_VIEW:
        parent = facts.parent(digest)
        blocks.append((view, digest, parent.digest))
        view, digest = parent.view, parent.digest
    return [
        (height, _header(height, view, scope.leader(View(view)), parent), digest)
        for height, (view, digest, parent) in enumerate(reversed(blocks), 1)
    ]


def _header(height: int, view: int, proposer: int, parent: bytes) -> Header:
    """A header with the fields that consensus knows."""
    return Header("", height, view, parent, proposer, b"", b"", b"", b"", b"", b"", 0, 0, 0, 0)


def progress_problem(scope: Scope, views: Iterable[tuple[int, View]]) -> str | None:
    """The first honest validator that is in one of the views when nothing more can happen, in words."""
    stuck = (f"{PROGRESS}: validator {index} stays in view {view}" for index, view in views if view <= scope.views)
    return next(stuck, None)
