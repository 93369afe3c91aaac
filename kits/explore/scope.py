"""The bounds of an exploration, and the facts that messages state.

A **fact** is what a message says: a vote, a proposal, or a certificate whoever signed it. Facts are numbered in the
order in which they appear, so a set of facts is an integer, its *mask*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from cluster.misbehaviour.planted import EnginePatch, RunCounter, planted
from consensus.interface import Parent, VotingConfig
from consensus.keys import KeyedHashScheme, Signer, ValidatorSet
from consensus.leader import RoundRobin
from consensus.messages import (
    NO_DIGEST,
    Certificate,
    Message,
    Proposal,
    Timeout,
    TimeoutCertificate,
    Vote,
    VoteKind,
    vote_signing_bytes,
)
from consensus.protocols import PROTOCOLS, EngineType
from consensus.types import DIGEST_BYTES, FIRST_VIEW, Digest, ValidatorIndex, View

NAMESPACE: Final = b"explore"
GENESIS: Final = Digest(bytes(DIGEST_BYTES))
CONFIG: Final = VotingConfig()
NO_ONE: Final = -1
"""The signer in a certificate's fact."""


class What(NamedTuple):
    """A vote, a proposal (``is_proposal``) or a certificate (``signer`` is :data:`NO_ONE`)."""

    kind: VoteKind
    view: View
    parent_view: View
    """The view of the block's parent. In a timeout its high view, in a timeout certificate the highest one."""
    digest: Digest
    signer: int
    is_proposal: bool = False

    @property
    def is_certificate(self) -> bool:
        return self.signer == NO_ONE


def what_of(message: Message) -> What | None:
    """The fact that a message states; ``None`` for a request."""
    match message:
        case Vote(kind, view, parent_view, digest, signer):
            return What(kind, view, parent_view, digest, signer)
        case Timeout(vote):
            return what_of(vote)
        case Proposal(view, parent_view, _, digest, _, vote):
            return What(VoteKind.NOTARIZE, view, parent_view, digest, vote.signer, True)
        case Certificate(kind, view, parent_view, digest):
            return What(kind, view, parent_view, digest, NO_ONE)
        case TimeoutCertificate():
            return What(VoteKind.TIMEOUT, message.view, message.high_view, NO_DIGEST, NO_ONE)
    return None


class Facts:
    """The facts of one exploration, with a message that states each, and the blocks that were proposed."""

    def __init__(self) -> None:
        self.all: list[What] = []
        self.messages: list[Message] = []
        """A message for each fact: the first that stated it."""
        self.proposals: dict[Digest, Proposal] = {}
        self.certificates = 0
        """The mask of all certificates."""
        self._numbers: dict[What, int] = {}

    def mask(self, message: Message) -> int:
        """The mask of what a message states; a proposal states its vote, too."""
        what = what_of(message)
        if what is None:
            return 0
        mask = 1 << self._number(what, message)
        if isinstance(message, Proposal):
            self.proposals.setdefault(message.digest, message)
            mask |= self.mask(message.vote)
        return mask

    def _number(self, what: What, message: Message) -> int:
        number = self._numbers.get(what)
        if number is None:
            number = self._numbers[what] = len(self.all)
            self.all.append(what)
            self.messages.append(message)
            if what.is_certificate:
                self.certificates |= 1 << number
        return number

    @staticmethod
    def numbers(mask: int) -> Iterator[int]:
        """The numbers of the facts in a mask, ascending."""
        while mask:
            lowest = mask & -mask
            yield lowest.bit_length() - 1
            mask ^= lowest

    def parent(self, digest: Digest) -> Parent:
        """The parent of a proposed block."""
        proposal = self.proposals[digest]
        return Parent(proposal.parent_view, proposal.parent_digest)


@dataclass(frozen=True)
class Scope:
    """The bounds of an exploration: what may happen in its worlds."""

    protocol: str = "simplex"
    validators: int = 4
    views: int = 3
    """Validators propose, notarize and give up in these views only."""
    give_ups: int | None = None
    """The number of votes of honest validators in all that give a view up; ``None``: any."""
    crashes: int = 0
    """The number of restarts in all."""
    byzantine: int | None = None
    """The validator that says everything it can; ``None``: all are honest."""
    forges: bool = False
    """Whether forged certificates and timeouts come, too."""
    slow_disks: bool = False
    """Whether each write becomes durable in a separate step."""
    mutant: str | None = None
    """The planted bug in all engines."""
    reduced: bool = True
    """Whether equivalent and dominated worlds are left out."""

    @property
    def name(self) -> str:
        """The name of the fault that the worlds have."""
        if self.byzantine is not None:
            return f"byzantine-{self.byzantine}"
        names = {"crash": self.crashes, "forger": self.forges, "slow-disks": self.slow_disks}
        return next((name for name, applies in names.items() if applies), "none")

    @cached_property
    def engine(self) -> EngineType:
        protocol = PROTOCOLS[self.protocol]
        if self.mutant is None:
            return protocol
        patch = planted(self.mutant).patch
        assert isinstance(patch, EnginePatch)
        return patch.engine(protocol, RunCounter())

    @cached_property
    def signers(self) -> tuple[Signer, ...]:
        scheme = KeyedHashScheme()
        return tuple(scheme.signer(bytes([index]) * 32) for index in range(self.validators))

    @cached_property
    def validator_set(self) -> ValidatorSet:
        return ValidatorSet(tuple(signer.public_key for signer in self.signers), KeyedHashScheme())

    @cached_property
    def quorum(self) -> int:
        return self.validator_set.committee(FIRST_VIEW).quorum

    @cached_property
    def honest(self) -> tuple[ValidatorIndex, ...]:
        return tuple(index for index in self.validator_set.indices() if index != self.byzantine)

    @property
    def is_hotstuff(self) -> bool:
        return self.protocol == "hotstuff"

    @property
    def gives_up(self) -> VoteKind:
        """The kind of vote that gives a view up."""
        return VoteKind.TIMEOUT if self.is_hotstuff else VoteKind.NULLIFY

    @cached_property
    def election(self) -> RoundRobin:
        return RoundRobin(self.validator_set)

    def leader(self, view: View) -> ValidatorIndex:
        return self.election.leader(view)

    def sign(
        self, signer: int, kind: VoteKind, view: View, parent_view: View, digest: Digest, namespace: bytes = NAMESPACE
    ) -> Vote:
        """A vote of any validator."""
        message = vote_signing_bytes(namespace, kind, view, parent_view, digest)
        return Vote(kind, view, parent_view, digest, ValidatorIndex(signer), self.signers[signer].sign(message))

    def page(self) -> dict[str, Any]:
        """The scope as JSON."""
        names = (
            "protocol",
            "validators",
            "views",
            "give_ups",
            "crashes",
            "byzantine",
            "forges",
            "slow_disks",
            "mutant",
        )
        return {name: getattr(self, name) for name in names}
