"""The states of each validator: each is reached once, by running the validator's history, and known by a number.

An engine is a pure function of its inputs. So a state is a history: to step from it, the history runs again in a new
engine, which is slow, and the step is kept, which makes all later ones a look-up. A few hundred states of a validator
combine to millions of worlds.

Two histories lead to the same state if the engine's **fingerprint**, all that was said and the journal are the same.
The fingerprint is the current view, the certificates by what they state, the own votes, the current view's proposal and
HotStuff's lock. The rest of an engine does not decide about votes here, and is left out:

- votes of peers: they arrive together with the last one that completes a certificate. Which block a byzantine leader
  voted for is kept, since a certificate of its other block shows that it equivocated;
- timeouts' lengths and repetitions: each timer may expire at any time, and what was sent may arrive at any time;
- requests, answers and allowances: any certificate that a quorum signed may reach anyone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from consensus.interface import Parent
from consensus.messages import VoteKind
from consensus.types import GENESIS_VIEW, Digest, ValidatorIndex, View
from kits.explore.replica import Occurrence, Replica
from kits.explore.scope import Facts, Scope, What, what_of

READ: Final = {
    "VotingEngine": ("certificates", "_rounds", "_journal", "_high", "_timed_out"),
    "CertificateStore": ("view", "final", "notarizations", "finalizations", "skips"),
    "Round": ("own", "proposal", "verifying", "building_on", "leader", "tally"),
    "VoteJournal": ("own",),
}
"""The attributes that the fingerprint reads."""
LEFT_OUT: Final = {
    "VotingEngine": (
        "_config",
        "_member",
        "_effects",
        "_accountability",
        "_retransmission",
        "_pacing",
        "_began",
        "take_vote",
    ),
    "CertificateStore": ("root", "by_kind", "kinds"),
    "Round": ("view", "is_ours", "may_vote", "equivocated", "requested", "reported"),
    "VoteJournal": ("unsynced", "records", "factor", "_body", "_token"),
}
"""The attributes that it leaves out: they are constant, are read by another name, or decide about no vote here."""


@dataclass(frozen=True, slots=True)
class Local:
    """A state of a validator, as far as its next steps depend on it."""

    view: View
    final: View
    proposal: Digest | None
    """The proposal of the current view."""
    is_verifying: bool
    building_on: Parent | None
    notarized: tuple[tuple[View, Digest], ...]
    skipped: tuple[tuple[View, View], ...]
    """The views with a skip certificate, and the parent views in these."""
    own: tuple[tuple[View, tuple[VoteKind, ...]], ...]
    heard: tuple[tuple[View, Digest], ...]
    """Simplex: the byzantine leader's notarize votes. A leader that certified another block is caught."""
    high: Parent | None
    """HotStuff: the lock."""
    timed_out: View
    """HotStuff: the newest view that the validator timed out of."""
    said: int
    durable: int
    life: int
    waiting: int
    """The number of writes that are not durable."""

    def has_cast(self, kind: VoteKind, view: View) -> bool:
        """Whether a vote of the engine's is of this kind and view."""
        return any(at == view and kind in kinds for at, kinds in self.own)

    def knows(self, kind: VoteKind, view: View) -> bool:
        """Whether a view's notarization, or its skip certificate, is known."""
        return any(at == view for at, _ in (self.notarized if kind == VoteKind.NOTARIZE else self.skipped))


def local_of(replica: Replica) -> Local:
    """The state of a validator."""
    engine: Any = replica.engine
    known = engine.certificates
    round_ = engine._rounds.get(known.view)
    proposal = None if round_ is None else round_.proposal
    return Local(
        view=known.view,
        final=known.final.view,
        proposal=None if proposal is None else proposal.digest,
        is_verifying=round_ is not None and round_.verifying,
        building_on=None if round_ is None else round_.building_on,
        notarized=tuple(sorted((view, held.digest) for view, held in known.notarizations.items())),
        skipped=tuple(sorted((view, _stated(held)) for view, held in known.skips.items())),
        own=tuple(sorted((view, tuple(sorted(votes))) for view, votes in engine._journal.own.items() if votes)),
        heard=tuple(_heard(replica.scope, engine)),
        high=getattr(engine, "_high", None),
        timed_out=getattr(engine, "_timed_out", GENESIS_VIEW),
        said=replica.said,
        durable=replica.durable,
        life=replica.life,
        waiting=len(replica.waiting),
    )


def _heard(scope: Scope, engine: Any) -> Iterator[tuple[View, Digest]]:
    if scope.byzantine is not None and not scope.is_hotstuff:
        for view, round_ in sorted(engine._rounds.items()):
            vote = round_.tally.kept(VoteKind.NOTARIZE, scope.byzantine)
            if round_.leader == scope.byzantine and vote is not None:
                yield view, vote.digest


def _stated(certificate: Any) -> View:
    what = what_of(certificate)
    assert isinstance(what, What)
    return what.parent_view


class Locals:
    """The states of one validator, by number; number 0 is the first."""

    def __init__(self, scope: Scope, facts: Facts, index: ValidatorIndex) -> None:
        self.all: list[Local] = []
        self.problems: list[str | None] = []
        """The first rule that was broken on the way to each state."""
        self._scope = scope
        self._facts = facts
        self._index = index
        self._numbers: dict[tuple[Local, str | None], int] = {}
        self._histories: list[tuple[Occurrence, ...]] = []
        self._steps: dict[tuple[int, object], int] = {}
        self._enter(Replica(scope, facts, index), ())

    def step(self, number: int, name: object, occurrences: tuple[Occurrence, ...]) -> int:
        """The state to which these occurrences, which ``name`` names, lead from a state."""
        after = self._steps.get((number, name))
        if after is None:
            history = (*self._histories[number], *occurrences)
            replica = Replica(self._scope, self._facts, self._index)
            for occurrence in history:
                replica.happen(occurrence)
            after = self._steps[number, name] = self._enter(replica, history)
        return after

    def _enter(self, replica: Replica, history: tuple[Occurrence, ...]) -> int:
        local, problem = local_of(replica), next(iter(replica.problems), None)
        number = self._numbers.get((local, problem))
        if number is None:
            number = self._numbers[local, problem] = len(self.all)
            self.all.append(local)
            self.problems.append(problem)
            self._histories.append(history)
        return number
