"""Leader election, and one validator's role in the validator set.

All validators must compute the same leader for a view, although they have seen different certificates: one may hold a
notarization of the view before and another its nullification, and even equal certificates differ in their signers.
Therefore an election may depend only on the view and on what all validators share from the start. It chooses among the
view's committee.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from blake3 import blake3

from consensus.keys import Signer, ValidatorSet
from consensus.messages import MAX_VALIDATORS, Vote, VoteKind, vote_signing_bytes
from consensus.types import ConsensusError, Digest, ValidatorIndex, View

ELECTION_CONTEXT: Final = "stampede/consensus/leader/1"
ANNOUNCERS: Final = 3
"""Number of views after a view whose leaders broadcast the certificates that they make of it."""

DRAWN_IN_A_ROW: Final = 3
"""Factor by which random elections tolerate more consecutive failed views than elections in turn."""
LONGEST_DRAWN: Final = 24
REMEMBERED_LEADERS: Final = 32
"""Number of views whose leaders a validator keeps."""


class LeaderElection(Protocol):
    """A rule that names the one validator that may propose in a view."""

    def leader(self, view: View) -> ValidatorIndex:
        """The leader of ``view``; a pure function."""

    def longest_row(self, view: View) -> int:
        """The most consecutive failed views near ``view`` that faulty leaders and chance explain, if links are fast."""


def longest_row_in_turn(faults: int) -> int:
    """The most consecutive views that may fail because of ``faults`` faulty leaders and chance, if members take turns.

    A faulty leader makes two views fail at most: its own and, in HotStuff, the one before. One more may fail by chance.
    """
    return 2 * faults + 1


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """An election in which the members of the committee lead in turn, in the order of their indices."""

    validators: ValidatorSet

    def leader(self, view: View) -> ValidatorIndex:
        members = self.validators.committee(view).members
        return members[view % len(members)]

    def longest_row(self, view: View) -> int:
        return longest_row_in_turn(self.validators.committee(view).faults_withstood)


@dataclass(frozen=True, slots=True)
class PseudoRandom:
    """An election in which a hash of the chain's name and the view draws the leader, so every validator can verify it.

    The hash is BLAKE3 in its key derivation mode, over the namespace and the view (8 bytes, big-endian); its first
    eight bytes, as a big-endian number modulo the committee's size, are the member's position.
    """

    validators: ValidatorSet
    namespace: bytes

    def leader(self, view: View) -> ValidatorIndex:
        members = self.validators.committee(view).members
        drawn = blake3(self.namespace + view.to_bytes(8, "big"), derive_key_context=ELECTION_CONTEXT).digest(length=8)
        return members[int.from_bytes(drawn, "big") % len(members)]

    def longest_row(self, view: View) -> int:
        """The bound of :meth:`LeaderElection.longest_row` for drawn leaders.

        A faulty leader may be drawn repeatedly, so it is higher than in turn, by :data:`DRAWN_IN_A_ROW`. Long rows are
        rare, however many validators there are, so it is at most :data:`LONGEST_DRAWN`.
        """
        faults = self.validators.committee(view).faults_withstood
        return min(DRAWN_IN_A_ROW * 2 * faults + 1, LONGEST_DRAWN)


ELECTIONS: Final[dict[str, Callable[[ValidatorSet, bytes], LeaderElection]]] = {
    "round-robin": lambda validators, namespace: RoundRobin(validators),
    "random": PseudoRandom,
}
"""Elections by their name in configurations, constructed from the validators and the namespace."""


@dataclass(slots=True)
class Member:
    """The validator or observer that an engine runs for. Raises :class:`ConsensusError` for inconsistent fields."""

    validators: ValidatorSet
    index: ValidatorIndex | None
    """Index in the validator set; ``None``, without a signer, for an observer."""
    signer: Signer | None
    namespace: bytes
    election: LeaderElection
    abstain_through: View
    """The newest view in which this validator may have cast votes that its journal does not hold."""
    _leaders: dict[View, ValidatorIndex] = field(default_factory=dict, init=False, compare=False)
    """The leaders of the last views that were asked for."""

    def __post_init__(self) -> None:
        validators, index = self.validators, self.index
        if not 1 <= len(validators) <= MAX_VALIDATORS:
            raise ConsensusError(f"a validator set has between 1 and {MAX_VALIDATORS} members")
        if len(set(validators.public_keys)) != len(validators):
            raise ConsensusError("a validator set has no key twice")
        if index is None:
            return
        if not 0 <= index < len(validators):
            raise ConsensusError(f"validator {index} is not in a set of {len(validators)}")
        if self.signer is None or self.signer.public_key != validators.public_keys[index]:
            raise ConsensusError(f"the signer's key is not that of validator {index}")

    def leader(self, view: View) -> ValidatorIndex:
        """The leader of a view by ``election``, a function of the view."""
        leader = self._leaders.get(view)
        if leader is None:
            leader = self._leaders[view] = self.election.leader(view)
            if len(self._leaders) > REMEMBERED_LEADERS:
                del self._leaders[next(iter(self._leaders))]
        return leader

    def announces(self, view: View) -> bool:
        """Whether we broadcast the certificates of ``view`` that we make: whether we lead one of the next views."""
        return self.index in [self.leader(View(view + ahead)) for ahead in range(1, ANNOUNCERS + 1)]

    def may_vote(self, view: View) -> bool:
        """Whether we are in the view's committee, and the journal holds all votes that we may have cast in it."""
        me = self.index
        return me is not None and view > self.abstain_through and me in self.validators.committee(view)

    def sign(self, kind: VoteKind, view: View, parent_view: View, digest: Digest) -> Vote:
        """Make and sign our vote. The caller must have checked :meth:`may_vote`."""
        assert self.index is not None
        assert self.signer is not None
        message = vote_signing_bytes(self.namespace, kind, view, parent_view, digest)
        return Vote(kind, view, parent_view, digest, self.index, self.signer.sign(message))

    def peers_after(self, leader: ValidatorIndex, places: int, view: View) -> tuple[ValidatorIndex, ...]:
        """The next ``f + 1`` members of the view's committee after the leader, skipping the first ``places``.

        The committee is taken as a ring, without this validator. At least one of the peers is honest. A caller that
        increments ``places`` asks all peers equally often.
        """
        committee = self.validators.committee(view)
        behind = bisect_right(committee.members, leader)
        ring = [peer for peer in committee.members[behind:] + committee.members[:behind] if peer != self.index]
        start = places % max(1, len(ring))
        return tuple((ring[start:] + ring[:start])[: committee.faults_withstood + 1])
