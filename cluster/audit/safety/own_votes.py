"""The votes that one validator cast, in all its lives, and what they forbid it to cast: the rule *own_votes*.

A validator casts one vote of a kind a view. Whoever gave a view up does not notarize or finalize it; whoever finalized
it does not give it up. HotStuff: whoever timed out of a view finalizes neither it nor one before, and whoever finalized
a view names it or a later one in each timeout from there on.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Final, Protocol

from consensus.messages import VoteKind
from consensus.types import GENESIS_VIEW, View

GIVING_UP: Final = (VoteKind.NULLIFY, VoteKind.TIMEOUT)
VERBS: Final = {
    VoteKind.NOTARIZE: "notarizes",
    VoteKind.NULLIFY: "nullifies",
    VoteKind.FINALIZE: "finalizes",
    VoteKind.TIMEOUT: "times out of",
}


class CastVote(Protocol):
    """What a vote says (:class:`consensus.messages.Vote`)."""

    @property
    def kind(self) -> VoteKind: ...

    @property
    def view(self) -> View: ...

    @property
    def parent_view(self) -> View: ...

    @property
    def digest(self) -> bytes: ...


@dataclass(slots=True)
class OwnVotes:
    """One validator's."""

    _said: dict[tuple[VoteKind, View], tuple[View, bytes]] = field(default_factory=dict)
    """Parent view and digest, by kind and view."""
    _finalized: list[View] = field(default_factory=list)
    """Views that it voted to finalize, ascending."""
    _timed_out: View = GENESIS_VIEW
    """The newest view that it timed out of."""

    def __len__(self) -> int:
        return len(self._said)

    def has_cast(self, kind: VoteKind, view: View) -> bool:
        return (kind, view) in self._said

    def is_known(self, vote: CastVote) -> bool:
        """Whether it said exactly this before."""
        return self._said.get((vote.kind, vote.view)) == (vote.parent_view, vote.digest)

    def cast(self, vote: CastVote) -> None:
        """It casts a vote; of two of one kind and view the first one is kept."""
        if self.has_cast(vote.kind, vote.view):
            return
        self._said[vote.kind, vote.view] = (vote.parent_view, vote.digest)
        if vote.kind == VoteKind.FINALIZE:
            insort(self._finalized, vote.view)
        elif vote.kind == VoteKind.TIMEOUT:
            self._timed_out = max(self._timed_out, vote.view)

    def contradiction(self, vote: CastVote) -> str | None:
        """The earlier vote that forbids a vote, in words."""
        view = vote.view
        if self.has_cast(vote.kind, view):
            return None if self.is_known(vote) else "and did so before with another vote"
        if vote.kind in GIVING_UP:
            if self.has_cast(VoteKind.FINALIZE, view):
                return "which it voted to finalize"
            kept = self._finalized_by(view) if vote.kind == VoteKind.TIMEOUT else GENESIS_VIEW
            is_low = vote.parent_view < kept
            return f"naming view {vote.parent_view}, and it voted to finalize view {kept}" if is_low else None
        if any(self.has_cast(kind, view) for kind in GIVING_UP):
            return "which it gave up"
        if vote.kind == VoteKind.FINALIZE and self._timed_out >= view:
            return f"and it timed out of view {self._timed_out}"
        return None

    def forget_below(self, view: int) -> None:
        """Keep no votes of views below one, but for what they forbid in later ones."""
        self._said = {(kind, at): said for (kind, at), said in self._said.items() if at >= view}
        del self._finalized[: max(0, bisect_right(self._finalized, view - 1) - 1)]

    def _finalized_by(self, view: View) -> View:
        """The newest view up to this one that it voted to finalize."""
        count = bisect_right(self._finalized, view)
        return self._finalized[count - 1] if count else GENESIS_VIEW
