"""Checks the certificates that validators accept against each other and against the final blocks, for both drivers.

A missing certificate can hide a violation of *certificates*, *one_block_a_view*, *skips*, *certified* and *leaders*,
but cannot cause one. *notarized_first*, *proved_final*, and the part of *ancestry* about skipped views require
certificates that some validator must have known. A caller that may not have heard of one says so.

=================  ===================================================================================================
rule               what must hold
=================  ===================================================================================================
certificates       each is signed by a quorum of distinct members of its view's committee, for this chain, view, kind
                   and block (:mod:`cluster.audit.safety.certificates`)
one_block_a_view   a view has one notarized block, and finalizes no other
notarized_first    a validator that finalises a view knows the notarization of its block, or another validator does
skips              Simplex: a finalised view has no nullification. HotStuff: a quorum that times out in a finalised
                   view or later names that view or a later one
certified          the final block of a view is the one that the view's certificates name, with that parent view; no
                   finalised view is passed over
proved_final       each final block's view, or a later one, is finalised by a certificate, by the end at the latest
ancestry           a final block's parent is the final block below it, at last the genesis block, and every view between
                   the two is skipped with the certificates that the protocol asks for
leaders            a final block's proposer leads its view
=================  ===================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cluster.audit.safety.certificates import highest_named, is_certified
from cluster.audit.safety.rule_log import RuleLog
from cluster.record.rules import SafetyRule as Rule
from consensus.keys import ValidatorSet
from consensus.messages import NOTARIZE, NULLIFY, AnyCertificate, Certificate, TimeoutCertificate, VoteKind
from consensus.types import GENESIS_VIEW, Digest, View
from validator.chain.block import Header

CERTIFICATES_REMEMBERED: Final = 4_096
"""The number of newest certificates remembered, so that they are not verified again for other validators."""

Subject = tuple[View, Digest]
"""A block as its certificate identifies it within a view: parent view and digest."""
Claim = tuple[int, VoteKind, int, bytes]
"""What a certificate says, without signers: view, kind, parent view, digest.

For a timeout certificate the last two are the highest view that it names, and empty.
"""


def claim_of(certificate: AnyCertificate) -> Claim:
    """The content of a certificate without its signers."""
    if isinstance(certificate, TimeoutCertificate):
        return certificate.view, VoteKind.TIMEOUT, max(certificate.high_views, default=0), b""
    return certificate.view, certificate.kind, certificate.parent_view, certificate.digest


@dataclass(slots=True)
class _View:
    """What the known certificates say of one view: the notarized and the finalized block, and any nullification."""

    notarized: Subject | None = None
    finalized: Subject | None = None
    nullified: bool = False


class _Below(NamedTuple):
    """The newest final block entered, which must be the parent of the next one; at first the genesis block."""

    height: int = 0
    view: View = GENESIS_VIEW
    digest: bytes = b""


@dataclass(slots=True)
class CertifiedChain:
    """Collects the certificates and final blocks of one run, and checks each new one against the earlier ones."""

    validators: ValidatorSet
    namespace: bytes
    leader: Callable[[View], int]
    log: RuleLog
    hears_all: bool = True
    """Whether each certificate is entered before its consequences; otherwise *notarized_first* is not checked."""
    views_kept: int | None = None
    """How many views are kept below the newest final one; ``None``: all."""
    genesis_hash: bytes | None = None
    """The parent hash of the first final block; ``None`` if it is not known."""
    newest_finalized: int = GENESIS_VIEW
    _views: dict[int, _View] = field(default_factory=dict)
    _seen: dict[AnyCertificate, None] = field(default_factory=dict)
    """The newest certificates, in the order of arrival."""
    _below: _Below = field(default_factory=_Below)
    _final_of: dict[int, Subject] = field(default_factory=dict)
    """The final block of each view that has one, keyed by view."""
    _passed: int = GENESIS_VIEW
    """The view of the newest final block. No further block of this or an earlier view can become final."""
    _timeouts: dict[int, int] = field(default_factory=dict)
    """The lowest of the highest views named by the timeout certificates of each view, keyed by view.

    A block of the next view may skip back to a parent of that lowest view or a later one.
    """
    _forgotten: int = GENESIS_VIEW
    """The newest forgotten view: this view and all earlier ones are no longer kept."""

    # --- certificates -----------------------------------------------------------------------------------------------

    def is_signed(self, certificate: AnyCertificate) -> bool:
        """Whether a certificate is valid. One that was entered before counts as valid without being verified again."""
        return certificate in self._seen or self._is_signed(certificate)

    def certified(self, name: str, certificate: AnyCertificate) -> None:
        """Enter a certificate that a validator accepts, and compare it with the earlier ones."""
        if certificate.view <= self._forgotten or certificate in self._seen:
            return
        self._seen[certificate] = None
        if len(self._seen) > CERTIFICATES_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        is_signed = self._is_signed(certificate)
        self.log.look(Rule.CERTIFICATES, is_signed, "" if is_signed else f"{name} believes a bad {_words(certificate)}")
        view = self._views.setdefault(certificate.view, _View())
        if isinstance(certificate, TimeoutCertificate):
            self._on_timeouts(name, certificate)
        elif certificate.kind == NULLIFY:
            view.nullified = True
            self.log.look(Rule.SKIPS, view.finalized is None, f"view {certificate.view} is nullified and final")
        elif certificate.kind == NOTARIZE:
            self._on_notarization(certificate, view)
        else:
            self._on_finalization(name, certificate, view)

    def is_news(self, certificate: AnyCertificate) -> bool:
        """Whether a certificate says something that no earlier one said."""
        if certificate.view <= self._forgotten:
            return False
        view = self._views.get(certificate.view, _View())
        if isinstance(certificate, TimeoutCertificate):
            return self._timeouts.get(certificate.view, certificate.view) > highest_named(certificate)
        if certificate.kind == VoteKind.NULLIFY:
            return not view.nullified
        known = view.notarized if certificate.kind == VoteKind.NOTARIZE else view.finalized
        return known != (certificate.parent_view, certificate.digest)

    def _is_signed(self, certificate: AnyCertificate) -> bool:
        return is_certified(certificate, self.validators, self.namespace, self.newest_finalized)

    def _on_notarization(self, certificate: Certificate, view: _View) -> None:
        subject = (certificate.parent_view, certificate.digest)
        other = view.notarized or view.finalized
        self.log.look(Rule.ONE_BLOCK, other in (None, subject), f"view {certificate.view} has two notarized blocks")
        view.notarized = view.notarized or subject
        self._compare(certificate.view, view)

    def _on_finalization(self, name: str, certificate: Certificate, view: _View) -> None:
        number, subject, look = certificate.view, (certificate.parent_view, certificate.digest), self.log.look
        if self.hears_all:
            what = f"{name} finalises view {number}, whose block no validator knows to be notarized"
            look(Rule.NOTARIZED_FIRST, view.notarized is not None, what)
        is_same = view.notarized in (None, subject)
        look(Rule.ONE_BLOCK, is_same, f"view {number} finalises another block than it notarized")
        look(Rule.ONE_BLOCK, view.finalized in (None, subject), f"view {number} finalises two blocks")
        look(Rule.SKIPS, not view.nullified, f"view {number} is final and nullified")
        low = [at for at, high in self._timeouts.items() if high < number <= at]
        look(Rule.SKIPS, not low, f"view {number} is final, which timeouts of view {low[:1]} did not know")
        view.finalized = subject
        self.newest_finalized = max(self.newest_finalized, number)
        self._compare(number, view)
        if number <= self._passed and number not in self._final_of:
            look(Rule.CERTIFIED, False, f"view {number} is finalised, and no final block is of it")

    def _compare(self, number: int, view: _View) -> None:
        """Compare the certificates of a view with its final block, if both are known."""
        block = self._final_of.get(number)
        if block is None:
            return
        for subject, verb in ((view.notarized, "notarizes"), (view.finalized, "finalises")):
            if subject is not None:
                what = f"view {number} {verb} another block than was made final"
                self.log.look(Rule.CERTIFIED, subject == block, what)

    def _on_timeouts(self, name: str, certificate: TimeoutCertificate) -> None:
        high = highest_named(certificate)
        self._timeouts[certificate.view] = min(high, self._timeouts.get(certificate.view, high))
        newest = self.newest_finalized
        if newest > certificate.view:
            finalized = (at for at, other in self._views.items() if other.finalized and at <= certificate.view)
            newest = max(finalized, default=GENESIS_VIEW)
        what = f"{name}: timeouts of view {certificate.view} go back to {high}, past final {newest}"
        self.log.look(Rule.SKIPS, high >= newest, what)

    # --- final blocks -----------------------------------------------------------------------------------------------

    def final(self, height: int, header: Header, digest: bytes, knows_skips: bool = True) -> None:
        """Enter the final block of a height, each height once, ascending.

        If ``knows_skips`` is false, the certificates of skipped views may be missing, and the skips are not checked.
        """
        parent_view = self._parent(height).view
        for what in self._ancestry_problems(height, header, knows_skips):
            self.log.look(Rule.ANCESTRY, False, f"the final block at height {height} {what}")
        self.log.counts[Rule.ANCESTRY] += 1
        self._enter_view(height, header, digest, parent_view)
        view, proposer = View(header.view), header.proposer
        what = f"the final block at height {height} is of validator {proposer}, {self.leader(view)} leads view {view}"
        self.log.look(Rule.LEADERS, proposer == self.leader(view), what)
        self._below = _Below(height, view, digest)
        self._forget()

    def is_skip_justified(self, header: Header) -> bool:
        """Whether the certificates are known that justify the views skipped by the next final block."""
        return self._are_skipped(self._below.view, header.view)

    def _parent(self, height: int) -> _Below:
        """The final block right below a height; the genesis block if none was entered."""
        return self._below if self._below.height == height - 1 else _Below()

    def _enter_view(self, height: int, header: Header, digest: bytes, parent_view: View) -> None:
        """Check a final block against the certificates of its view and of the views skipped since its parent's."""
        self._final_of.setdefault(header.view, (parent_view, Digest(digest)))
        self._compare(header.view, self._views.get(header.view, _View()))
        for number in range(max(parent_view, self._forgotten) + 1, header.view):
            view = self._views.get(number)
            if view is not None and view.finalized is not None:
                self.log.look(Rule.CERTIFIED, False, f"view {number} is finalised, and height {height} passes it over")
        self._passed = max(self._passed, header.view)

    def _ancestry_problems(self, height: int, header: Header, knows_skips: bool = True) -> Iterator[str]:
        parent = self._parent(height)
        digest = parent.digest if parent.height else self.genesis_hash
        if header.height != height:
            yield f"says height {header.height}"
        if parent.height != height - 1:
            yield "comes before the one below it"
        elif digest is not None and header.parent_hash != digest:
            yield "does not build on the one below it"
        if header.view <= parent.view:
            yield f"is of view {header.view}, its parent of view {parent.view}"
        elif knows_skips and not self._are_skipped(parent.view, header.view):
            yield f"skips from view {parent.view} to {header.view} without the certificates for it"

    def _are_skipped(self, parent_view: View, view: int) -> bool:
        if parent_view >= view - 1 or self._timeouts.get(view - 1, view) <= parent_view:
            return True
        between = (self._views.get(skipped) for skipped in range(parent_view + 1, view))
        return all(skipped is not None and skipped.nullified for skipped in between)

    def _forget(self) -> None:
        """Forget old views, if ``views_kept`` is set."""
        if self.views_kept is None or self._passed - self._forgotten < 2 * self.views_kept:
            return
        self._forgotten = self._passed - self.views_kept
        for kept in (self._views, self._final_of, self._timeouts):
            for number in [number for number in kept if number <= self._forgotten]:
                del kept[number]


def _words(certificate: AnyCertificate) -> str:
    return f"{certificate.kind.name.lower()} certificate of view {certificate.view}"
