"""The network's checks have teeth: engines with one rule removed are caught by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from consensus.hotstuff import HotStuff
from consensus.interface import Broadcast, Effect, Event, Finalized, Parent, Persist
from consensus.journal import decode_record
from consensus.messages import NO_DIGEST, NO_PARENT, AnyCertificate, Certificate, Proposal, Vote, VoteKind
from consensus.simplex import Simplex
from consensus.tally import Round, VoteTally
from consensus.types import View
from consensus.voting import Ancestry
from tests.consensus.network import MakeEngine, Network
from tests.consensus.test_network import faults_for, return_to_a_backlog, survive

pytestmark = pytest.mark.slow


class SendsBeforeDurable(Simplex):
    def handle(self, event: Event) -> list[Effect]:
        effects = list(super().handle(event))
        sent: list[Effect] = [Broadcast(outgoing.message) for outgoing in self._journal.unsynced]
        return sent + effects


def without_votes(journal: Iterable[bytes]) -> list[bytes]:
    return [encoded for encoded in journal if not isinstance(decode_record(encoded), Vote)]


class ForgetsItsVotes(Simplex):
    def _replay(self, journal: Iterable[bytes]) -> None:
        super()._replay(without_votes(journal))


class JournalsNothing(Simplex):
    def handle(self, event: Event) -> list[Effect]:
        effects = list(super().handle(event))
        return [Persist(e.token, (), e.body) if isinstance(e, Persist) else e for e in effects]


class PersistsNoBody(Simplex):
    def handle(self, event: Event) -> list[Effect]:
        effects = list(super().handle(event))
        return [Persist(e.token, e.records) if isinstance(e, Persist) else e for e in effects]


class FinalizesAfterNullify(Simplex):
    def _finalize(self, notarization: Certificate) -> None:
        nullify = self._rounds[notarization.view].own.pop(VoteKind.NULLIFY, None)
        super()._finalize(notarization)
        if nullify is not None:
            self._rounds[notarization.view].own[VoteKind.NULLIFY] = nullify


class SkipsWithoutNullification(Simplex):
    def _best_parent(self, view: View) -> Ancestry:
        return Ancestry(self.certificates.final)

    def _ancestry_of(self, proposal: Any) -> Ancestry:
        return Ancestry(self.certificates.block(proposal.parent_view) or self.certificates.final)


class NeverRepeats(Simplex):
    def __init__(self, *parameters: Any, **named: Any) -> None:
        super().__init__(*parameters, **named)
        self._retransmission.repeat = lambda round_, missing: None  # type: ignore[method-assign]


class NeverRequests(Simplex):
    def __init__(self, *parameters: Any, **named: Any) -> None:
        super().__init__(*parameters, **named)
        self._retransmission.request = lambda round_, missing, peers: None  # type: ignore[method-assign]


class NeverNullifies(Simplex):
    def _give_up(self, round_: Round) -> None:
        pass


PLANTED = {
    SendsBeforeDurable: "before the body was durable|before it was durable",
    ForgetsItsVotes: "contradiction",
    JournalsNothing: "vote sent before it was durable",
    PersistsNoBody: "before the body was durable",
    FinalizesAfterNullify: "contradiction",
    SkipsWithoutNullification: "skipped without a nullification",
    NeverRepeats: "no progress",
    NeverNullifies: "no progress",
}


# --- HotStuff ------------------------------------------------------------------------------------------------------


class HotStuffSendsBeforeDurable(HotStuff):
    def handle(self, event: Event) -> list[Effect]:
        effects = list(super().handle(event))
        sent: list[Effect] = [Broadcast(outgoing.message) for outgoing in self._journal.unsynced]
        return sent + effects


class HotStuffForgetsItsVotes(HotStuff):
    def _replay(self, journal: Iterable[bytes]) -> None:
        super()._replay(without_votes(journal))


class HotStuffJournalsNothing(HotStuff):
    def handle(self, event: Event) -> list[Effect]:
        effects = list(super().handle(event))
        return [Persist(e.token, (), e.body) if isinstance(e, Persist) else e for e in effects]


class HotStuffPersistsNoBody(HotStuff):
    def handle(self, event: Event) -> list[Effect]:
        effects = list(super().handle(event))
        return [Persist(e.token, e.records) if isinstance(e, Persist) else e for e in effects]


class TimesOutWithoutItsLock(HotStuff):
    """Its timeouts name the root, whatever it finalized."""

    def _give_up(self, round_: Round) -> None:
        high, self._high = self._high, Parent(NO_PARENT, NO_DIGEST)
        super()._give_up(round_)
        self._high = high


class FinalizesAfterTimeout(HotStuff):
    def _finalize(self, notarization: Certificate) -> None:
        timed_out, self._timed_out = self._timed_out, self.certificates.root.view
        super()._finalize(notarization)
        self._timed_out = timed_out


class ForgetsItsLock(HotStuff):
    """After a restart, timeouts name the newest final block instead of the newest certified one."""

    def __init__(self, *parameters: Any) -> None:
        super().__init__(*parameters)
        self._high = self.certificates.final


class BuildsBelowTimeouts(HotStuff):
    """Proposes on the final block after a failed view and takes such proposals, whatever the timeouts name."""

    def _best_parent(self, view: View) -> Ancestry:
        return Ancestry(self._high if self._high.view == view - 1 else self.certificates.final)

    def _ancestry_of(self, proposal: Proposal) -> Ancestry:
        parent = Parent(proposal.parent_view, proposal.parent_digest)
        return Ancestry(parent) if parent.view >= self.final_view else Ancestry()


class FinalizesOnOneCertificate(HotStuff):
    """Takes a certified block for a final one: a single phase."""

    def _learn(self, certificate: AnyCertificate) -> None:
        super()._learn(certificate)
        if isinstance(certificate, Certificate) and certificate.kind == VoteKind.NOTARIZE:
            self.certificates.final = Parent(certificate.view, certificate.digest)
            self._effects.append(Finalized(certificate))


class HotStuffNeverRepeats(HotStuff):
    def __init__(self, *parameters: Any, **named: Any) -> None:
        super().__init__(*parameters, **named)
        self._retransmission.repeat = lambda round_, missing: None  # type: ignore[method-assign]


class NeverTimesOut(HotStuff):
    def _give_up(self, round_: Round) -> None:
        pass


PLANTED_IN_HOTSTUFF = {
    HotStuffSendsBeforeDurable: "before the body was durable|before it was durable",
    HotStuffForgetsItsVotes: "contradiction",
    HotStuffJournalsNothing: "vote sent before it was durable",
    HotStuffPersistsNoBody: "before the body was durable",
    TimesOutWithoutItsLock: "contradiction across views",
    FinalizesAfterTimeout: "contradiction",
    ForgetsItsLock: "contradiction across views",
    BuildsBelowTimeouts: "is not in the final chain|skipped without a nullification",
    FinalizesOnOneCertificate: "is not in the final chain|finalization of a nullified view|of a finalized view",
    HotStuffNeverRepeats: "no progress",
    NeverTimesOut: "no progress",
}


@pytest.mark.parametrize(("engine", "complaint"), [*PLANTED.items(), *PLANTED_IN_HOTSTUFF.items()])
def test_an_engine_with_one_rule_removed_is_caught(engine: MakeEngine, complaint: str) -> None:
    def run_until_caught() -> None:
        for seed in range(5_000, 5_040):
            survive(Network(4, seed, faults_for(seed), make_engine=engine))

    with pytest.raises(AssertionError, match=complaint):
        run_until_caught()


def test_a_returning_validator_that_requests_nothing_is_caught() -> None:
    return_to_a_backlog(Simplex)
    with pytest.raises(AssertionError, match="no progress"):
        return_to_a_backlog(NeverRequests)


@pytest.mark.parametrize("engine", [Simplex, HotStuff])
def test_a_quorum_of_two_f_is_caught(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VoteTally, "_good_quorum", _with_small_quorum(VoteTally._good_quorum))
    with pytest.raises(AssertionError, match="not a quorum of good signatures"):
        survive(Network(4, 5_100, faults_for(5_100), make_engine=engine))


def _with_small_quorum(good_quorum: Any) -> Any:
    def small(tally: VoteTally, kind: VoteKind, group: Any) -> Any:
        tally._quorum -= 1
        try:
            return good_quorum(tally, kind, group)
        finally:
            tally._quorum += 1

    return small
