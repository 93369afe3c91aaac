"""The network's checks have teeth: engines with one rule removed are caught by them."""

from __future__ import annotations

from typing import Any

import pytest

from consensus.certificates import VoteTally
from consensus.interface import Broadcast, Effect, Event, Persist
from consensus.keys import ValidatorSet
from consensus.messages import Certificate, VoteKind
from consensus.simplex import Simplex
from consensus.types import View
from consensus.voting import Ancestry, Round
from tests.consensus.network import Network
from tests.consensus.test_network import faults_for, return_to_a_backlog, survive


class SendsBeforeDurable(Simplex):
    def handle(self, event: Event) -> list[Effect]:
        effects = list(super().handle(event))
        sent: list[Effect] = [Broadcast(outgoing.message) for outgoing in self._unsynced]
        return sent + effects


class ForgetsItsVotes(Simplex):
    def _restore_vote(self, vote: object) -> None:
        pass


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
        nullify = self._round(notarization.view).own.pop(VoteKind.NULLIFY, None)
        super()._finalize(notarization)
        if nullify is not None:
            self._round(notarization.view).own[VoteKind.NULLIFY] = nullify


class SkipsWithoutNullification(Simplex):
    def _best_parent(self, view: View) -> Ancestry:
        return Ancestry(self._final)

    def _ancestry_of(self, proposal: Any) -> Ancestry:
        return Ancestry(self._block_of(proposal.parent_view) or self._final)


class NeverRepeats(Simplex):
    def _repeat(self) -> None:
        pass


class NeverRequests(Simplex):
    def _request(self, round_: Round, missing: object, peers: object) -> None:
        pass


class NeverNullifies(Simplex):
    def _nullify(self, round_: Round) -> None:
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


@pytest.mark.parametrize("engine", PLANTED)
def test_an_engine_with_one_rule_removed_is_caught(engine: type[Simplex]) -> None:
    def run_until_caught() -> None:
        for seed in range(5_000, 5_040):
            survive(Network(4, seed, faults_for(seed), make_engine=engine))

    with pytest.raises(AssertionError, match=PLANTED[engine]):
        run_until_caught()


def test_a_returning_validator_that_requests_nothing_is_caught() -> None:
    return_to_a_backlog(Simplex)
    with pytest.raises(AssertionError, match="no progress"):
        return_to_a_backlog(NeverRequests)


def test_a_quorum_of_two_f_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ValidatorSet.quorum
    monkeypatch.setattr(VoteTally, "assemble", _with_small_quorum(VoteTally.assemble, honest))
    with pytest.raises(AssertionError, match="not a quorum of good signatures"):
        survive(Network(4, 5_100, faults_for(5_100)))


def _with_small_quorum(assemble: Any, honest: Any) -> Any:
    def small(tally: VoteTally, vote: Any) -> Any:
        ValidatorSet.quorum = property(lambda validators: honest.fget(validators) - 1)  # type: ignore[assignment]
        try:
            return assemble(tally, vote)
        finally:
            ValidatorSet.quorum = honest  # type: ignore[method-assign]

    return small
