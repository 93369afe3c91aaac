"""Bugs in the consensus engines: a broken rule of :mod:`consensus.simplex` or :mod:`consensus.hotstuff`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from cluster.misbehaviour.planted import RunCounter
from consensus.interface import BAD_CERTIFICATE, Broadcast, Effect, Event, Finalized, Parent, TimerKind
from consensus.journal import decode_record
from consensus.keys import Committee, ValidatorSet
from consensus.leader import Member
from consensus.messages import (
    NO_DIGEST,
    NO_PARENT,
    AnyCertificate,
    Certificate,
    CertificateRequest,
    Message,
    Proposal,
    Vote,
    VoteKind,
)
from consensus.pacing import Repetition
from consensus.retransmission import BURST_CERTIFICATES
from consensus.tally import Round, VoteTally
from consensus.types import GENESIS_VIEW, Token, ValidatorIndex, View
from consensus.voting import Ancestry
from kits.mutation.bugs.certificates import JudgesOtherwise, with_committees
from kits.mutation.bugs.table import ALL, Area, Detection, MutantTable, MutatedEngine

MUTANTS = MutantTable(Area.CONSENSUS, "evidence")


@MUTANTS.engine("votes-before-journal", Detection("leader-restarts", ALL, seeds=8))
class VotesBeforeJournal(MutatedEngine):
    """a vote is sent before it is durable"""

    _announced_early: tuple[int, ...] = ()

    def handle(self, event: Event) -> Sequence[Effect]:
        effects = list(super().handle(event))
        early = [outgoing for outgoing in self._journal.unsynced if id(outgoing) not in self._announced_early]
        self._announced_early = tuple(id(outgoing) for outgoing in self._journal.unsynced)
        for _ in early:
            self.counter.ran()
        return [*(Broadcast(outgoing.message) for outgoing in early), *effects]


class _SmallCommittee(Committee):
    """A committee that takes two thirds of the other members for a quorum."""

    @property
    def quorum(self) -> int:
        return 2 * self.faults_withstood


_with_small_committees = with_committees(_SmallCommittee)


class _SmallTally(VoteTally):
    """A tally whose certificates need ``2f`` votes."""

    counter: RunCounter

    def __init__(self, validators: ValidatorSet, namespace: bytes, view: View) -> None:
        super().__init__(_with_small_committees(validators, namespace), namespace, view)
        self._whole_quorum = validators.committee(view).quorum

    def _good_quorum(
        self, kind: VoteKind, group: dict[ValidatorIndex, Vote]
    ) -> tuple[tuple[ValidatorIndex, ...], tuple[ValidatorIndex, ...]]:
        signers, forgers = super()._good_quorum(kind, group)
        self.counter.runs += 0 < len(signers) < self._whole_quorum
        return signers, forgers


@MUTANTS.engine("quorum-of-2f", Detection("calm", ALL), "safety", "certificates")
class QuorumOfTwoF(MutatedEngine):
    """2f equal votes make a certificate"""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._rounds.tally_class = type("SmallTally", (_SmallTally,), {"counter": self.counter})


@MUTANTS.engine("finalizes-after-nullify", Detection("bad-links", ALL))
class FinalizesAfterNullify(MutatedEngine):
    """votes to finalize a view that it voted to nullify"""

    def _finalize(self, notarization: Certificate) -> None:
        own = self._journal.own.get(notarization.view, {})
        nullify = own.pop(VoteKind.NULLIFY, None)
        super()._finalize(notarization)
        if nullify is not None:
            self.counter.runs += VoteKind.FINALIZE in own
            own[VoteKind.NULLIFY] = nullify


def _without_votes(
    journal: Iterable[bytes], is_forgotten: Callable[[Vote], bool], counter: RunCounter
) -> Iterator[bytes]:
    for encoded in journal:
        record = decode_record(encoded)
        if isinstance(record, Vote) and is_forgotten(record):
            counter.ran()
        else:
            yield encoded


@MUTANTS.engine("forgets-votes", Detection("leader-restarts", ALL, seeds=8))
class ForgetsVotes(MutatedEngine):
    """a restart replays no votes from the journal"""

    def _replay(self, journal: Iterable[bytes]) -> None:
        super()._replay(_without_votes(journal, lambda vote: True, self.counter))


@MUTANTS.engine("skips-without-nullification", Detection("forks", ALL), "safety", "ancestry")
class SkipsWithoutNullification(MutatedEngine):
    """builds and votes on the final block, whatever lies between"""

    def _best_parent(self, view: View) -> Ancestry:
        return self._counted(super()._best_parent(view), Ancestry(self.certificates.final))

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        parent = self.certificates.block(proposal.parent_view) or self.certificates.final
        return self._counted(super()._ancestry_of(proposal), Ancestry(parent))

    def _counted(self, right: Ancestry, wrong: Ancestry) -> Ancestry:
        self.counter.runs += right != wrong
        return wrong


@MUTANTS.engine("constant-timeouts", Detection("slow-network", ALL), "safety", "patience")
class ConstantTimeouts(MutatedEngine):
    """timeouts stay as configured, however many views fail"""

    def _enter(self, view: View) -> None:
        self.counter.runs += self._pacing.factor > 1
        self._pacing.factor = 1
        super()._enter(view)


@MUTANTS.engine("counts-old-views", Detection("old-nullifications", ALL), "safety", "timeouts")
class CountsOldViews(MutatedEngine):
    """a view that a quorum gave up counts as failed although nothing was waited for in it"""

    def _accept(self, certificate: AnyCertificate) -> None:
        if certificate.kind == self._gives_up and certificate.view >= self.view and not self._pacing.has_waited:
            self.counter.ran()
            self._pacing.waited()
        super()._accept(certificate)


@MUTANTS.engine("steps-back-as-soon", Detection("long-slow-network", ALL), "safety", "timeouts")
class StepsBackAsSoon(MutatedEngine):
    """timeouts that had to grow again are shortened after as few finalizations as before"""

    def _enter(self, view: View) -> None:
        self.counter.runs += self._pacing.final_views > self._config.final_views
        self._pacing.final_views = self._config.final_views
        super()._enter(view)


@MUTANTS.engine("forgets-factor", Detection("slow-restart", ALL), "safety", "timeouts")
class ForgetsFactor(MutatedEngine):
    """a restart begins with the configured timeouts, however long they had become"""

    def _replay(self, journal: Iterable[bytes]) -> None:
        super()._replay(journal)
        self.counter.runs += self._pacing.factor > 1
        self._pacing.factor = 1


class _MutatedRepetition(Repetition):
    """Counts how often it deviates."""

    counter: RunCounter


class _RepeatsOtherwise(MutatedEngine):
    """The base of engines with a changed repetition."""

    repetition: ClassVar[type[_MutatedRepetition]]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._pacing.repetition = repetition = self.repetition()
        repetition.counter = self.counter


class _EachTick(_MutatedRepetition):
    """Repeats whenever it can."""

    def tick(self, longest: int) -> bool:
        self.counter.runs += not super().tick(longest)
        return True


@MUTANTS.engine("repeats-at-each-tick", Detection("quick-ticks", ALL), "safety", "repetitions")
class RepeatsAtEachTick(_RepeatsOtherwise):
    """votes are repeated at each tick, however long a block takes"""

    repetition = _EachTick


class _NeverPatient(_MutatedRepetition):
    """Repeats in each view as early as in any other."""

    def enter_view(self, view: View) -> None:
        super().enter_view(view)
        self.counter.runs += self._is_patient
        self._is_patient = False


@MUTANTS.engine("never-patient", Detection("one-tick", ALL), "safety", "repetitions")
class NeverPatient(_RepeatsOtherwise):
    """no view waits a tick longer, so a block that takes as long as the interval is never seen to"""

    repetition = _NeverPatient


@MUTANTS.engine("wrong-view-certificate", Detection("bad-links", ALL), "safety", "certificates")
class TakesAnyView(MutatedEngine):
    """a nullification of the view before counts for the current one"""

    def _on_certificate(self, sender: ValidatorIndex, certificate: Certificate) -> None:
        if certificate.kind == VoteKind.NULLIFY and certificate.view == self.view - 1:
            self.counter.ran()
            self._accept(msgspec.structs.replace(certificate, view=self.view))
        else:
            super()._on_certificate(sender, certificate)


@MUTANTS.engine("unchecked-certificates", Detection("forger", ALL), "safety", "certificates")
class ChecksNoCertificate(JudgesOtherwise):
    """believes a certificate without looking at its signatures"""

    def judge(self, certificate: AnyCertificate, is_good: bool) -> bool:
        if not isinstance(certificate, Certificate):
            return is_good
        self.counter.runs += not is_good
        return True


@MUTANTS.engine("proposes-again-after-restart", Detection("leader-restarts", ALL, seeds=8))
class ProposesTwice(MutatedEngine):
    """a leader that restarts in its view proposes another block"""

    def _proceed(self, round_: Round) -> None:
        leads = round_.is_ours and round_.may_vote
        if leads and round_.building_on is None and VoteKind.NOTARIZE in round_.own:
            self.counter.ran()
            round_.own.pop(VoteKind.NOTARIZE)
        super()._proceed(round_)


@MUTANTS.engine("any-sync-releases-all", Detection("leader-restarts", ALL), "safety", "durable_votes")
class ReleasesAll(MutatedEngine):
    """whatever sync ends, every vote that waits for one is sent"""

    def _on_durable(self, token: Token) -> None:
        tokens = [outgoing.token for outgoing in self._journal.unsynced]
        self.counter.runs += any(waiting > token for waiting in tokens)
        super()._on_durable(max([token, *tokens]))


@MUTANTS.engine("keeps-certificates", Detection("long", ALL), "safety", "bounded")
class KeepsCertificates(MutatedEngine):
    """certificates of views that are long final are never pruned"""

    def _prune(self) -> None:
        before = {kind: dict(held) for kind, held in self.certificates.by_kind.items()}
        super()._prune()
        for kind, held in self.certificates.by_kind.items():
            self.counter.runs += len(held) < len(before[kind])
            held.update(before[kind])


@MUTANTS.engine("helps-nobody", Detection("bad-links", ALL), "safety", "answers")
class HelpsNobody(MutatedEngine):
    """a vote of a peer that is stuck in a view is not answered"""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._retransmission.help = lambda peer, view: self.counter.ran()


@MUTANTS.engine("ignores-late-proposals", Detection("bad-links", ALL), "safety", "answers")
class IgnoresLateProposals(MutatedEngine):
    """a leader that proposes in a view that the others left is not answered"""

    def _on_proposal(self, sender: ValidatorIndex, proposal: Proposal) -> None:
        if proposal.view < self.view:
            self.counter.ran()
        else:
            super()._on_proposal(sender, proposal)


@MUTANTS.engine("asks-by-index", Detection("left-out", ALL), "safety", "restraint")
class AsksByIndex(MutatedEngine):
    """asks for certificates in the order of all validators, and so most often the first members of a committee"""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        member = self._member
        self._retransmission._member = _AskingByIndex(
            member.validators, member.index, member.signer, member.namespace, member.election, member.abstain_through
        )
        self._retransmission._member.counter = self.counter


class _AskingByIndex(Member):
    """A member that takes positions in the committee for indices of validators."""

    counter: RunCounter

    def peers_after(self, leader: ValidatorIndex, places: int, view: View) -> tuple[ValidatorIndex, ...]:
        committee, right = self.validators.committee(view), super().peers_after(leader, places, view)
        start = bisect_left(committee.members, (leader + 1 + places) % len(self.validators))
        ring = committee.members[start:] + committee.members[:start]
        wrong = tuple(peer for peer in ring if peer != self.index)[: len(right)]
        self.counter.runs += wrong != right
        return wrong


@MUTANTS.engine("waits-for-who-gave-up", Detection("bad-links"), "safety", "patience")
class WaitsForWhoGaveUp(MutatedEngine):
    """Simplex: a leader that gives up its view is waited for, as if it had said nothing"""

    def _heed_leaders_nullify(self, round_: Round) -> None:
        self.counter.runs += round_.tally.kept(VoteKind.NULLIFY, round_.leader) is not None


@MUTANTS.engine("tells-who-is-not-behind", Detection("bad-links", ALL), "safety", "restraint")
class TellsWhoIsNotBehind(MutatedEngine):
    """who asks for the certificates of our view is sent those that opened it, too"""

    def _on_message(self, sender: ValidatorIndex, message: Message) -> None:
        if isinstance(message, CertificateRequest) and message.views == (self.view,):
            self.counter.ran()
            self._retransmission.help(sender, self.view)
        super()._on_message(sender, message)


@MUTANTS.engine("forgives-forgers", Detection("forger", ALL), "safety", "restraint")
class ForgivesForgers(MutatedEngine):
    """certificates of a peer that forged one are looked at again in the next view"""

    def _enter(self, view: View) -> None:
        self.counter.runs += len(self._accountability._forgers)
        self._accountability._forgers.clear()
        super()._enter(view)


@MUTANTS.engine("spares-forgers", Detection("short-certificate", ALL), "safety", "blames")
class SparesForgers(MutatedEngine):
    """an invalid certificate is ignored, and its sender is not blamed"""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        reject = self._accountability._reject

        def tell(sender: ValidatorIndex, reason: str) -> None:
            self.counter.runs += reason == BAD_CERTIFICATE
            if reason != BAD_CERTIFICATE:
                reject(sender, reason)

        self._accountability._reject = tell


@MUTANTS.engine("allowance-each-view", Detection("greedy-asker", ALL), "safety", "restraint")
class AllowanceEachView(MutatedEngine):
    """with each view, peers may be sent as many certificates as at first"""

    def _enter(self, view: View) -> None:
        retransmission = self._retransmission
        self.counter.runs += len(retransmission._allowances)
        for _ in range(BURST_CERTIFICATES):
            retransmission.tick()
        super()._enter(view)


@MUTANTS.engine("proposes-at-each-tick", Detection("slow-uplinks", ALL), "safety", "restraint")
class ProposesAtEachTick(MutatedEngine):
    """a leader broadcasts its whole proposal whenever it repeats its votes"""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        right = self._retransmission.repeat

        def repeat(round_: Round, missing: tuple[View, ...]) -> None:
            proposal = round_.proposal
            if proposal is not None and self._retransmission._stands(round_, proposal):
                self.counter.ran()
                self._effects.append(Broadcast(proposal))
            right(round_, missing)

        self._retransmission.repeat = repeat


@MUTANTS.engine("gives-up-on-unverified", Detection("bad-links"), "safety", "patience")
class GivesUpOnUnverified(MutatedEngine):
    """the leader timer gives a view up whose proposal came and is not verified yet"""

    def _on_timer(self, kind: TimerKind, view: View) -> None:
        """The leader timer checks whether we voted, not whether the proposal came."""
        round_ = self._rounds[self.view]
        if kind is TimerKind.LEADER and view == self.view and round_.proposal is not None and not round_.own:
            self.counter.ran()
            self._give_up(round_)
        super()._on_timer(kind, view)


@MUTANTS.engine("gives-up-on-notarized", Detection("bad-links", protocol="hotstuff"), "safety", "patience")
class GivesUpOnNotarized(MutatedEngine):
    """HotStuff: the leader timer gives a view up although the proposal came"""

    def _on_timer(self, kind: TimerKind, view: View) -> None:
        round_ = self._rounds[self.view]
        if kind is TimerKind.LEADER and view == self.view and round_.proposal is not None:
            self.counter.ran()
            self._give_up(round_)
        super()._on_timer(kind, view)


@MUTANTS.engine("keeps-rounds", Detection("calm", ALL), "safety", "bounded")
class KeepsRounds(MutatedEngine):
    """votes of views that are long final are never let go"""

    def _prune(self) -> None:
        before = dict(self._rounds)
        super()._prune()
        self.counter.runs += len(self._rounds) < len(before)
        self._rounds.update(before)


# --- HotStuff -------------------------------------------------------------------------------------------------------


@MUTANTS.engine("timeout-without-lock", Detection("bad-links", ALL, "hotstuff", seeds=8))
class TimesOutWithoutLock(MutatedEngine):
    """HotStuff: timeouts name the root, not the highest certified block"""

    _high: Parent

    def _give_up(self, round_: Round) -> None:
        right, self._high = self._high, Parent(NO_PARENT, NO_DIGEST)
        super()._give_up(round_)
        self._high = right
        self.counter.runs += VoteKind.TIMEOUT in round_.own and right.view != NO_PARENT


@MUTANTS.engine("finalizes-after-timeout", Detection("bad-links", ALL, "hotstuff", seeds=8))
class FinalizesAfterTimeout(MutatedEngine):
    """HotStuff: finalizes a view that it timed out of"""

    _timed_out: View

    def _finalize(self, notarization: Certificate) -> None:
        timed_out, self._timed_out = self._timed_out, self.certificates.root.view
        before = len(self._journal.unsynced)
        super()._finalize(notarization)
        self._timed_out = timed_out
        self.counter.runs += len(self._journal.unsynced) > before and timed_out >= notarization.view


@MUTANTS.engine("votes-without-lock", Detection("bad-links", ALL, "hotstuff", seeds=8), "safety", "ancestry")
class VotesWithoutLock(MutatedEngine):
    """HotStuff: builds and votes on the final block, whatever the timeouts name"""

    def _best_parent(self, view: View) -> Ancestry:
        wrong = Ancestry(self._high if self._high.view == view - 1 else self.certificates.final)
        self.counter.runs += wrong.parent != self._high
        return wrong

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        parent = Parent(proposal.parent_view, proposal.parent_digest)
        return Ancestry(parent) if parent.view >= self.final_view else Ancestry()


@MUTANTS.engine("finalizes-in-one-phase", Detection("bad-links", ALL, "hotstuff"), "safety", "proved_final")
class FinalizesOnOneCertificate(MutatedEngine):
    """HotStuff: takes a certified block for a final one"""

    def _learn(self, certificate: AnyCertificate) -> None:
        super()._learn(certificate)
        if isinstance(certificate, Certificate) and certificate.view > self.final_view:
            self.counter.ran()
            self.certificates.final = Parent(certificate.view, certificate.digest)
            self._effects.append(Finalized(certificate))


@MUTANTS.engine("forgets-lock", Detection("outage", ALL, "hotstuff", seeds=12), "safety", "lock")
class ForgetsLock(MutatedEngine):
    """HotStuff: a restart does not replay notarizations from the journal"""

    _high: Parent

    def _replay(self, journal: Iterable[bytes]) -> None:
        super()._replay(journal)
        self.counter.runs += len(self.certificates.notarizations)
        self.certificates.notarizations.clear()
        self._high = self.certificates.final


@MUTANTS.engine("lock-not-journaled", Detection("calm", ALL, "hotstuff"), "safety", "lock")
class JournalsNoNotarization(MutatedEngine):
    """HotStuff: notarizations are not journaled"""

    def _learn(self, certificate: AnyCertificate) -> None:
        place = len(self._journal.records)
        super()._learn(certificate)
        if certificate.kind == VoteKind.NOTARIZE:
            self.counter.ran()
            del self._journal.records[place]


@MUTANTS.engine("times-out-too-soon", Detection("lost-disk", ALL, "hotstuff", seeds=8), "safety", "abstention")
class TimesOutTooSoon(MutatedEngine):
    """HotStuff: who lost its journal times out before it knows a block as new as what it may have finalized"""

    def _give_up(self, round_: Round) -> None:
        """Takes its abstention for over once the view is past it, with or without a certified block."""
        through = self._member.abstain_through
        if self._high.view < through < round_.view:
            self.counter.ran()
            self._member.abstain_through = GENESIS_VIEW
        super()._give_up(round_)
        self._member.abstain_through = through


@MUTANTS.engine("forgets-nullify", Detection("outage", ALL, seeds=12))
class ForgetsNullify(MutatedEngine):
    """a restart does not replay nullify votes from the journal"""

    def _replay(self, journal: Iterable[bytes]) -> None:
        super()._replay(_without_votes(journal, lambda vote: vote.kind == self._gives_up, self.counter))


@MUTANTS.engine("forgets-timeouts", Detection("outage", ALL, "hotstuff", seeds=12), "safety", "own_votes")
class ForgetsTimeouts(ForgetsNullify):
    """HotStuff: a restart does not replay timeouts from the journal"""
