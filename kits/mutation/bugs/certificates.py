"""Bugs in an engine's verification of messages: a check of a vote or certificate that is missing.

Each is provoked by the byzantine behaviour that sends exactly what the check rejects
(:mod:`cluster.misbehaviour.byzantine.registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster.misbehaviour.byzantine.base import SISTER_CHAIN
from consensus.certificates import verify_signed
from consensus.interface import FUTURE, NOT_A_MEMBER, STALE
from consensus.keys import Committee, ValidatorSet
from consensus.messages import (
    NO_DIGEST,
    VOTE_DOMAIN,
    AnyCertificate,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
    vote_signing_bytes,
)
from consensus.types import GENESIS_VIEW, Digest, Signature, ValidatorIndex, View
from consensus.voting import Ancestry
from kits.mutation.bugs.table import ALL, Area, Detection, MutantTable, MutatedEngine

VIEWS_BACK = 32
"""High views below a timeout's own view that are tried for its signature."""

CERTIFICATES = "certificates"
ANCESTRY = "ancestry"
"""Rules of the monitor (:mod:`cluster.watches.safety_monitor`)."""

# --- who may sign, how many must, and what a signature is for --------------------------------------------------------


MUTANTS = MutantTable(Area.CONSENSUS, "safety", CERTIFICATES)


@dataclass(frozen=True, slots=True)
class _Signed:
    """The contents of the bytes that a vote's signature covers."""

    kind: VoteKind
    view: View
    parent_view: View
    digest: Digest

    @classmethod
    def read(cls, message: bytes, namespace: bytes) -> _Signed:
        at = len(VOTE_DOMAIN) + 1 + len(namespace)
        view, parent_view = (View(int.from_bytes(message[at + i : at + i + 8], "big")) for i in (1, 9))
        return cls(VoteKind(message[at]), view, parent_view, Digest(message[at + 17 :]))


Careless = Callable[[ValidatorSet, bytes], ValidatorSet]
"""Takes the validators and the chain's name; returns the validators with one check weakened."""
Alternatives = Callable[[_Signed, bytes], Iterator[bytes]]
"""Takes the signed content and the chain's name; yields other contents for which the signature is accepted."""


class _OneLess(Committee):
    """A committee whose quorum is one too small."""

    @property
    def quorum(self) -> int:
        return super().quorum - 1


class _Open(Committee):
    """A committee of unchanged size to which every validator belongs."""

    def __contains__(self, index: int) -> bool:
        return True


def with_committees(kind: type[Committee]) -> Careless:
    """The validators, with committees of this kind."""

    class WithCommittees(ValidatorSet):
        def committee(self, view: View) -> Committee:
            right = super().committee(view)
            return kind(right.first_view, right.members)

    return lambda validators, _: WithCommittees(validators.public_keys, validators.scheme, validators.epochs)


def _of_other_kinds(signed: _Signed, namespace: bytes) -> Iterator[bytes]:
    for kind in VoteKind:
        yield vote_signing_bytes(namespace, kind, signed.view, signed.parent_view, signed.digest)


def _of_the_sister_chain(signed: _Signed, namespace: bytes) -> Iterator[bytes]:
    yield vote_signing_bytes(SISTER_CHAIN, signed.kind, signed.view, signed.parent_view, signed.digest)


def _of_other_high_views(signed: _Signed, namespace: bytes) -> Iterator[bytes]:
    for high_view in range(max(GENESIS_VIEW, signed.view - VIEWS_BACK), signed.view):
        if signed.kind == VoteKind.TIMEOUT:
            yield vote_signing_bytes(namespace, signed.kind, signed.view, View(high_view), NO_DIGEST)


def _signs_less(alternatives: Alternatives) -> Careless:
    """The validators, with signatures accepted for more than was signed."""

    def make(validators: ValidatorSet, namespace: bytes) -> ValidatorSet:
        class SignsLess(ValidatorSet):
            def verify(self, signer: ValidatorIndex, message: bytes, signature: Signature) -> bool:
                others = alternatives(_Signed.read(message, namespace), namespace)
                return any(super(SignsLess, self).verify(signer, each, signature) for each in (message, *others))

        return SignsLess(validators.public_keys, validators.scheme, validators.epochs)

    return make


def _in_any_name(validators: ValidatorSet, namespace: bytes) -> ValidatorSet:
    """The validators, with any validator's signature accepted in any other's name."""

    class InAnyName(ValidatorSet):
        def verify(self, signer: ValidatorIndex, message: bytes, signature: Signature) -> bool:
            return any(super(InAnyName, self).verify(each, message, signature) for each in self.indices())

    return InAnyName(validators.public_keys, validators.scheme, validators.epochs)


def _unsigned_timeouts(validators: ValidatorSet, namespace: bytes) -> ValidatorSet:
    """The validators, with the signatures of timeouts unchecked."""

    class Unsigned(ValidatorSet):
        def verify(self, signer: ValidatorIndex, message: bytes, signature: Signature) -> bool:
            is_timeout = _Signed.read(message, namespace).kind == VoteKind.TIMEOUT
            return is_timeout or super().verify(signer, message, signature)

    return Unsigned(validators.public_keys, validators.scheme, validators.epochs)


# --- certificates ----------------------------------------------------------------------------------------------------


class JudgesOtherwise(MutatedEngine):
    """An engine that accepts a certificate if :meth:`judge` does."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        holds = self._accountability.holds
        self._accountability.holds = lambda certificate: self.judge(certificate, holds(certificate))

    def judge(self, certificate: AnyCertificate, is_good: bool) -> bool:
        raise NotImplementedError


class _JudgesCarelessly(JudgesOtherwise):
    """An engine that also accepts certificates that are valid for the validator set from ``careless``."""

    careless: Careless

    def judge(self, certificate: AnyCertificate, is_good: bool) -> bool:
        if is_good:
            return True
        namespace = self._member.namespace
        seems_good = verify_signed(certificate, self.careless(self._member.validators, namespace), namespace)
        self.counter.runs += seems_good
        return seems_good


@MUTANTS.engine("counts-outsiders", Detection("outsider", ALL))
class CountsOutsiders(MutatedEngine):
    """counts votes of validators that are not in the committee"""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        rounds = self._rounds
        right = rounds.fault_of_vote

        def fault_of_vote(sender: ValidatorIndex, vote: Vote) -> str | None:
            reason: str | None = right(sender, vote)
            if reason != NOT_A_MEMBER:
                return reason
            if vote.view > self.view + self._config.view_window:
                return FUTURE
            if vote.view <= rounds.floor():
                return STALE
            self.counter.ran()
            return None

        rounds.fault_of_vote = fault_of_vote


# --- HotStuff: timeouts and what justifies a parent ------------------------------------------------------------------


@MUTANTS.engine("trusts-high-certificates", Detection("false-high-certificate", ALL, "hotstuff"))
class TrustsHighCertificates(JudgesOtherwise):
    """HotStuff: does not look at the certificate inside a timeout or a timeout certificate"""

    _trusts = False

    def _on_timeout_vote(self, sender: ValidatorIndex, timeout: Timeout) -> None:
        self._trusts = True
        super()._on_timeout_vote(sender, timeout)
        self._trusts = False

    def judge(self, certificate: AnyCertificate, is_good: bool) -> bool:
        wrong = self._trusts
        if isinstance(certificate, TimeoutCertificate):
            bare = msgspec.structs.replace(certificate, high=None)
            wrong = verify_signed(bare, self._member.validators, self._member.namespace)
        self.counter.runs += wrong and not is_good
        return is_good or wrong


@MUTANTS.engine("no-high-certificate", Detection("understated-timeouts", ALL, "hotstuff"))
class NeedsNoCertifiedBlock(MutatedEngine):
    """HotStuff: takes a timeout certificate's word that the block that it names is final"""

    def _on_timeout_certificate(self, sender: ValidatorIndex, certificate: TimeoutCertificate) -> None:
        is_bare = certificate.high is None and certificate.high_view > self.final_view
        if is_bare and certificate.view > self.final_view and self._is_news(certificate):
            if verify_signed(certificate, self._member.validators, self._member.namespace):
                self.counter.ran()
                self._accept(certificate)
        else:
            super()._on_timeout_certificate(sender, certificate)


@MUTANTS.engine("any-parent-justified", Detection("lock-breaker", ALL, "hotstuff"), "safety", ANCESTRY)
class AnyParentIsJustified(MutatedEngine):
    """HotStuff: with a timeout certificate of the view before it votes for a block on any parent"""

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        right: Ancestry = super()._ancestry_of(proposal)
        parent = self.certificates.block(proposal.parent_view)
        is_known = parent is not None and parent.digest == proposal.parent_digest
        is_timed_out = View(proposal.view - 1) in self.certificates.skips
        if right.parent is None and is_known and is_timed_out and proposal.parent_view >= self.final_view:
            self.counter.ran()
            return Ancestry(parent)
        return right


@MUTANTS.engine("one-signature-short", Detection("short-certificate", ALL))
class OneSignatureShort(_JudgesCarelessly):
    """believes a certificate that is one signature short of a quorum"""

    careless = staticmethod(with_committees(_OneLess))


@MUTANTS.engine("counts-names", Detection("double-signer", ALL))
class CountsNames(_JudgesCarelessly):
    """counts the signers that a certificate names, whoever of them signed"""

    careless = staticmethod(_in_any_name)


@MUTANTS.engine("outsiders-in-certificates", Detection("outsider", ALL))
class OutsidersInCertificates(_JudgesCarelessly):
    """believes a certificate in which validators outside the committee signed"""

    careless = staticmethod(with_committees(_Open))


@MUTANTS.engine("any-kind-of-vote", Detection("kind-replayer", ALL))
class AnyKindOfVote(_JudgesCarelessly):
    """takes a vote's signature for that of a vote of another kind"""

    careless = staticmethod(_signs_less(_of_other_kinds))


@MUTANTS.engine("any-chain", Detection("sister-chain", ALL))
class AnyChain(_JudgesCarelessly):
    """takes signatures for another chain of the same validators"""

    careless = staticmethod(_signs_less(_of_the_sister_chain))


@MUTANTS.engine("unsigned-timeouts", Detection("timeout-forger", ALL, "hotstuff"))
class UnsignedTimeouts(_JudgesCarelessly):
    """HotStuff: believes a timeout certificate without looking at its signatures"""

    careless = staticmethod(_unsigned_timeouts)


@MUTANTS.engine("any-high-view", Detection("understated-timeouts", ALL, "hotstuff"))
class AnyHighView(_JudgesCarelessly):
    """HotStuff: takes a timeout's signature for one that names another view"""

    careless = staticmethod(_signs_less(_of_other_high_views))
