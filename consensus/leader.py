"""Who leads a view.

Every validator must name the same leader for a view without having seen the same certificates: a certificate of the
view before may be a notarization here and a nullification there, and even equal certificates differ in their signers.
An election may therefore depend on the view and on what all validators of the set share from its start, and on nothing
else. It chooses among the view's committee.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from blake3 import blake3

from consensus.keys import ValidatorSet
from consensus.types import ValidatorIndex, View

ELECTION_CONTEXT: Final = "stampede/consensus/leader/1"


class LeaderElection(Protocol):
    """Names the one validator that may propose in a view."""

    def leader(self, view: View) -> ValidatorIndex:
        """The leader of ``view``; a pure function."""


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """The members of the committee lead in the order of their indices."""

    validators: ValidatorSet

    def leader(self, view: View) -> ValidatorIndex:
        members = self.validators.committee(view).members
        return members[view % len(members)]


@dataclass(frozen=True, slots=True)
class PseudoRandom:
    """Members lead as a hash of the chain's name and the view says: nobody can tell who leads often in a row, and
    everybody can check it.

    The hash is BLAKE3 in its key derivation mode, over the namespace and the view (8 bytes, big-endian); its first
    eight bytes, as a big-endian number modulo the committee's size, are the member's position.
    """

    validators: ValidatorSet
    namespace: bytes

    def leader(self, view: View) -> ValidatorIndex:
        members = self.validators.committee(view).members
        drawn = blake3(self.namespace + view.to_bytes(8, "big"), derive_key_context=ELECTION_CONTEXT).digest(length=8)
        return members[int.from_bytes(drawn, "big") % len(members)]


ELECTIONS: Final[dict[str, Callable[[ValidatorSet, bytes], LeaderElection]]] = {
    "round-robin": lambda validators, namespace: RoundRobin(validators),
    "random": PseudoRandom,
}
"""Elections by the name that configurations use, made of the validators and the namespace."""
