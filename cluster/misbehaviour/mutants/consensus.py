"""Bugs in the consensus engines: a rule of :mod:`consensus.simplex` or :mod:`consensus.hotstuff` that is not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from cluster.misbehaviour.mutants.base import ALL, Area, Detection, MutantTable, RunCounter
from consensus.interface import Broadcast, Effect, Event, Finalized, Parent, TimerKind
from consensus.journal import decode_record
from consensus.keys import Committee
from consensus.messages import NO_DIGEST, NO_PARENT, AnyCertificate, Certificate, Proposal, Vote, VoteKind
from consensus.protocols import EngineType
from consensus.tally import Round, VoteTally
from consensus.types import GENESIS_VIEW, Token, ValidatorIndex, View
from consensus.voting import Ancestry

# The bases are the protocol that the chain runs: what is built here cannot be typed more narrowly.


MUTANTS = MutantTable(Area.CONSENSUS, "evidence")


@MUTANTS.engine(
    "votes-before-journal", "a vote is sent before it is durable", Detection("leader-restarts", ALL, seeds=8)
)
def _votes_before_journal(base: Any, counter: RunCounter) -> EngineType:
    class VotesBeforeJournal(base):
        _announced_early: tuple[int, ...] = ()

        def handle(self, event: Event) -> Sequence[Effect]:
            effects = list(super().handle(event))
            early = [outgoing for outgoing in self._journal.unsynced if id(outgoing) not in self._announced_early]
            self._announced_early = tuple(id(outgoing) for outgoing in self._journal.unsynced)
            for _ in early:
                counter.ran()
            return [*(Broadcast(outgoing.message) for outgoing in early), *effects]

    return VotesBeforeJournal


class _SmallCommittee(Committee):
    """One that takes two thirds of the others for a quorum."""

    @property
    def quorum(self) -> int:
        return 2 * self.faults_withstood


class _SmallTally(VoteTally):
    """A tally whose certificates need ``2f`` votes."""

    counter: RunCounter

    def _good_quorum(
        self, kind: VoteKind, group: dict[ValidatorIndex, Vote]
    ) -> tuple[tuple[ValidatorIndex, ...], tuple[ValidatorIndex, ...]]:
        committee = self._validators.committee(self.view)
        validators, self._validators = self._validators, _Few(self._validators, committee)  # type: ignore[assignment]
        try:
            signers, forgers = super()._good_quorum(kind, group)
        finally:
            self._validators = validators
        if 0 < len(signers) < committee.quorum:
            self.counter.ran()
        return signers, forgers


class _Few:
    """A set of validators with such committees."""

    def __init__(self, validators: Any, committee: Committee) -> None:
        self._committee = _SmallCommittee(committee.first_view, committee.members)
        self.verify = validators.verify

    def committee(self, view: View) -> Committee:
        return self._committee


@MUTANTS.engine("quorum-of-2f", "2f equal votes make a certificate", Detection("calm", ALL), "safety", "certificates")
def _quorum_of_two_f(base: Any, counter: RunCounter) -> EngineType:
    class QuorumOfTwoF(base):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._rounds.tally_class = type("SmallTally", (_SmallTally,), {"counter": counter})

    return QuorumOfTwoF


@MUTANTS.engine(
    "finalizes-after-nullify", "votes to finalize a view that it voted to nullify", Detection("bad-links", ALL)
)
def _finalizes_after_nullify(base: Any, counter: RunCounter) -> EngineType:
    class FinalizesAfterNullify(base):
        def _finalize(self, notarization: Certificate) -> None:
            own = self._journal.own.get(notarization.view, {})
            nullify = own.pop(VoteKind.NULLIFY, None)
            super()._finalize(notarization)
            if nullify is not None:
                counter.runs += VoteKind.FINALIZE in own
                own[VoteKind.NULLIFY] = nullify

    return FinalizesAfterNullify


def _forgets_nullify(base: Any, counter: RunCounter) -> EngineType:
    class ForgetsNullify(base):
        def _replay(self, journal: Iterable[bytes]) -> None:
            super()._replay(_without_votes(journal, lambda vote: vote.kind == self._gives_up, counter))

    return ForgetsNullify


def _without_votes(
    journal: Iterable[bytes], is_forgotten: Callable[[Vote], bool], counter: RunCounter
) -> Iterable[bytes]:
    for encoded in journal:
        record = decode_record(encoded)
        if isinstance(record, Vote) and is_forgotten(record):
            counter.ran()
        else:
            yield encoded


@MUTANTS.engine(
    "forgets-votes", "a restart replays no votes from the journal", Detection("leader-restarts", ALL, seeds=8)
)
def _forgets_votes(base: Any, counter: RunCounter) -> EngineType:
    class ForgetsVotes(base):
        def _replay(self, journal: Iterable[bytes]) -> None:
            super()._replay(_without_votes(journal, lambda vote: True, counter))

    return ForgetsVotes


@MUTANTS.engine(
    "skips-without-nullification",
    "builds and votes on the final block, whatever lies between",
    Detection("bad-links", ALL, seeds=8),
    "safety",
    "ancestry",
)
def _skips_without_nullification(base: Any, counter: RunCounter) -> EngineType:
    class SkipsWithoutNullification(base):
        def _best_parent(self, view: View) -> Ancestry:
            return self._counted(super()._best_parent(view), Ancestry(self.certificates.final))

        def _ancestry_of(self, proposal: Proposal) -> Ancestry:
            parent = self.certificates.block(proposal.parent_view) or self.certificates.final
            return self._counted(super()._ancestry_of(proposal), Ancestry(parent))

        def _counted(self, right: Ancestry, wrong: Ancestry) -> Ancestry:
            counter.runs += right != wrong
            return wrong

    return SkipsWithoutNullification


@MUTANTS.engine(
    "wrong-view-certificate",
    "a nullification of the view before counts for the current one",
    Detection("bad-links", ALL),
    "safety",
    "certificates",
)
def _wrong_view(base: Any, counter: RunCounter) -> EngineType:
    class TakesAnyView(base):
        def _on_certificate(self, sender: ValidatorIndex, certificate: Certificate) -> None:
            if certificate.kind == VoteKind.NULLIFY and certificate.view == self.view - 1:
                counter.ran()
                self._accept(msgspec.structs.replace(certificate, view=self.view))
            else:
                super()._on_certificate(sender, certificate)

    return TakesAnyView


@MUTANTS.engine(
    "unchecked-certificates",
    "believes a certificate without looking at its signatures",
    Detection("forger", ALL),
    "safety",
    "certificates",
)
def _unchecked_certificates(base: Any, counter: RunCounter) -> EngineType:
    class ChecksNoCertificate(base):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            holds = self._accountability.holds
            self._accountability.holds = lambda certificate: self._takes(holds(certificate), certificate)

        def _takes(self, is_good: bool, certificate: AnyCertificate) -> bool:
            if not isinstance(certificate, Certificate):
                return is_good
            counter.runs += not is_good
            return True

    return ChecksNoCertificate


@MUTANTS.engine(
    "proposes-again-after-restart",
    "a leader that restarts in its view proposes another block",
    Detection("leader-restarts", ALL, seeds=8),
)
def _notarizes_twice(base: Any, counter: RunCounter) -> EngineType:
    class ProposesTwice(base):
        def _proceed(self, round_: Round) -> None:
            """After a restart a leader no longer knows that it proposed."""
            leads = round_.is_ours and round_.may_vote
            if leads and round_.building_on is None and VoteKind.NOTARIZE in round_.own:
                counter.ran()
                round_.own.pop(VoteKind.NOTARIZE)
            super()._proceed(round_)

    return ProposesTwice


@MUTANTS.engine(
    "any-sync-releases-all",
    "whatever sync ends, every vote that waits for one is sent",
    Detection("leader-restarts", ALL),
    "safety",
    "durable_votes",
)
def _any_sync_releases_all(base: Any, counter: RunCounter) -> EngineType:
    class ReleasesAll(base):
        def _on_durable(self, token: Token) -> None:
            tokens = [outgoing.token for outgoing in self._journal.unsynced]
            counter.runs += any(waiting > token for waiting in tokens)
            super()._on_durable(max([token, *tokens]))

    return ReleasesAll


@MUTANTS.engine(
    "keeps-certificates",
    "certificates of views that are long final are never let go",
    Detection("long", ALL),
    "safety",
    "bounded",
)
def _keeps_certificates(base: Any, counter: RunCounter) -> EngineType:
    class KeepsCertificates(base):
        def _prune(self) -> None:
            before = {kind: dict(held) for kind, held in self.certificates.by_kind.items()}
            super()._prune()
            for kind, held in self.certificates.by_kind.items():
                counter.runs += len(held) < len(before[kind])
                held.update(before[kind])

    return KeepsCertificates


@MUTANTS.engine(
    "helps-nobody",
    "a vote of a peer that is stuck in a view is not answered",
    Detection("bad-links", ALL),
    "safety",
    "answers",
)
def _helps_nobody(base: Any, counter: RunCounter) -> EngineType:
    class HelpsNobody(base):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._retransmission.help = lambda peer, view: counter.ran()

    return HelpsNobody


@MUTANTS.engine(
    "gives-up-on-unverified",
    "the leader timer gives a view up whose proposal came and is not verified yet",
    Detection("bad-links"),
    "safety",
    "patience",
)
def _gives_up_on_unverified(base: Any, counter: RunCounter) -> EngineType:
    class GivesUpOnUnverified(base):
        def _on_timer(self, kind: TimerKind, view: View) -> None:
            """The leader timer asks whether we voted, and not whether the proposal came."""
            round_ = self._rounds[self.view]
            if kind is TimerKind.LEADER and view == self.view and round_.proposal is not None and not round_.own:
                counter.ran()
                self._give_up(round_)
            super()._on_timer(kind, view)

    return GivesUpOnUnverified


@MUTANTS.engine(
    "gives-up-on-notarized",
    "HotStuff: the leader timer gives a view up although the proposal came",
    Detection("bad-links", protocol="hotstuff"),
    "safety",
    "patience",
)
def _gives_up_on_notarized(base: Any, counter: RunCounter) -> EngineType:
    class GivesUpOnNotarized(base):
        def _on_timer(self, kind: TimerKind, view: View) -> None:
            """The leader timer asks nothing."""
            round_ = self._rounds[self.view]
            if kind is TimerKind.LEADER and view == self.view and round_.proposal is not None:
                counter.ran()
                self._give_up(round_)
            super()._on_timer(kind, view)

    return GivesUpOnNotarized


@MUTANTS.engine(
    "keeps-rounds", "votes of views that are long final are never let go", Detection("calm", ALL), "safety", "bounded"
)
def _keeps_rounds(base: Any, counter: RunCounter) -> EngineType:
    class KeepsRounds(base):
        def _prune(self) -> None:
            before = dict(self._rounds)
            super()._prune()
            counter.runs += len(self._rounds) < len(before)
            self._rounds.update(before)

    return KeepsRounds


# --- HotStuff -------------------------------------------------------------------------------------------------------


@MUTANTS.engine(
    "timeout-without-lock",
    "HotStuff: timeouts name the root, not the highest certified block",
    Detection("bad-links", ALL, "hotstuff", seeds=8),
)
def _times_out_without_lock(base: Any, counter: RunCounter) -> EngineType:
    class TimesOutWithoutLock(base):
        _high: Parent

        def _give_up(self, round_: Round) -> None:
            right, self._high = self._high, Parent(NO_PARENT, NO_DIGEST)
            super()._give_up(round_)
            self._high = right
            counter.runs += VoteKind.TIMEOUT in round_.own and right.view != NO_PARENT

    return TimesOutWithoutLock


@MUTANTS.engine(
    "finalizes-after-timeout",
    "HotStuff: finalizes a view that it timed out of",
    Detection("bad-links", ALL, "hotstuff", seeds=8),
)
def _finalizes_after_timeout(base: Any, counter: RunCounter) -> EngineType:
    class FinalizesAfterTimeout(base):
        _timed_out: View

        def _finalize(self, notarization: Certificate) -> None:
            timed_out, self._timed_out = self._timed_out, self.certificates.root.view
            before = len(self._journal.unsynced)
            super()._finalize(notarization)
            self._timed_out = timed_out
            counter.runs += len(self._journal.unsynced) > before and timed_out >= notarization.view

    return FinalizesAfterTimeout


@MUTANTS.engine(
    "votes-without-lock",
    "HotStuff: builds and votes on the final block, whatever the timeouts name",
    Detection("bad-links", ALL, "hotstuff", seeds=8),
    "safety",
    "ancestry",
)
def _votes_without_lock(base: Any, counter: RunCounter) -> EngineType:
    class VotesWithoutLock(base):
        def _best_parent(self, view: View) -> Ancestry:
            wrong = Ancestry(self._high if self._high.view == view - 1 else self.certificates.final)
            counter.runs += wrong.parent != self._high
            return wrong

        def _ancestry_of(self, proposal: Proposal) -> Ancestry:
            parent = Parent(proposal.parent_view, proposal.parent_digest)
            return Ancestry(parent) if parent.view >= self.final_view else Ancestry()

    return VotesWithoutLock


@MUTANTS.engine(
    "finalizes-in-one-phase",
    "HotStuff: takes a certified block for a final one",
    Detection("bad-links", ALL, "hotstuff"),
    "safety",
    "proved_final",
)
def _one_phase(base: Any, counter: RunCounter) -> EngineType:
    class FinalizesOnOneCertificate(base):
        def _learn(self, certificate: AnyCertificate) -> None:
            super()._learn(certificate)
            if isinstance(certificate, Certificate) and certificate.view > self.final_view:
                counter.ran()
                self.certificates.final = Parent(certificate.view, certificate.digest)
                self._effects.append(Finalized(certificate))

    return FinalizesOnOneCertificate


@MUTANTS.engine(
    "forgets-lock",
    "HotStuff: a restart does not replay notarizations from the journal",
    Detection("outage", ALL, "hotstuff", seeds=12),
    "safety",
    "lock",
)
def _forgets_lock(base: Any, counter: RunCounter) -> EngineType:
    class ForgetsLock(base):
        _high: Parent

        def _replay(self, journal: Iterable[bytes]) -> None:
            super()._replay(journal)
            counter.runs += len(self.certificates.notarizations)
            self.certificates.notarizations.clear()
            self._high = self.certificates.final

    return ForgetsLock


@MUTANTS.engine(
    "lock-not-journaled",
    "HotStuff: notarizations are not journaled",
    Detection("calm", ALL, "hotstuff"),
    "safety",
    "lock",
)
def _lock_not_journaled(base: Any, counter: RunCounter) -> EngineType:
    class JournalsNoNotarization(base):
        def _learn(self, certificate: AnyCertificate) -> None:
            place = len(self._journal.records)
            super()._learn(certificate)
            if certificate.kind == VoteKind.NOTARIZE:
                counter.ran()
                del self._journal.records[place]

    return JournalsNoNotarization


@MUTANTS.engine(
    "times-out-too-soon",
    "HotStuff: who lost its journal times out before it knows a block as new as what it may have finalized",
    Detection("lost-disk", ALL, "hotstuff", seeds=8),
    "safety",
    "abstention",
)
def _times_out_too_soon(base: Any, counter: RunCounter) -> EngineType:
    class TimesOutTooSoon(base):
        def _give_up(self, round_: Round) -> None:
            """Takes its abstention for over where the view is, certified block or not."""
            through = self._member.abstain_through
            if self._high.view < through < round_.view:
                counter.ran()
                self._member.abstain_through = GENESIS_VIEW
            super()._give_up(round_)
            self._member.abstain_through = through

    return TimesOutTooSoon


MUTANTS.engine(
    "forgets-nullify", "a restart does not replay nullify votes from the journal", Detection("outage", ALL, seeds=12)
)(_forgets_nullify)
MUTANTS.engine(
    "forgets-timeouts",
    "HotStuff: a restart does not replay timeouts from the journal",
    Detection("outage", ALL, "hotstuff", seeds=12),
    "safety",
    "own_votes",
)(_forgets_nullify)
