"""The rule *own_votes*: which votes a validator may not cast, given the votes that it cast before, across restarts.

A validator casts one vote of a kind per view. After giving a view up it neither notarizes nor finalizes it; after
finalizing it, it does not give it up. HotStuff: after timing out of a view it finalizes neither that view nor an
earlier one, and after finalizing a view it names that view or a later one in each later timeout.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Final, Protocol

from consensus.messages import FINALIZE, NULLIFY, TIMEOUT, VoteKind
from consensus.types import GENESIS_VIEW, View

GIVING_UP: Final = (NULLIFY, TIMEOUT)
VERBS: Final = {
    VoteKind.NOTARIZE: "notarizes",
    VoteKind.NULLIFY: "nullifies",
    VoteKind.FINALIZE: "finalizes",
    VoteKind.TIMEOUT: "times out of",
}


class CastVote(Protocol):
    """The content of a vote (:class:`consensus.messages.Vote`)."""

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
    """The votes of one validator."""

    _said: dict[tuple[VoteKind, View], tuple[View, bytes]] = field(default_factory=dict)
    """The parent view and digest of each vote, keyed by kind and view."""
    _finalized: list[View] = field(default_factory=list)
    """The views that the validator voted to finalize, ascending."""
    _timed_out: View = GENESIS_VIEW
    """The newest view that the validator timed out of."""

    def __len__(self) -> int:
        return len(self._said)

    def has_cast(self, kind: VoteKind, view: View) -> bool:
        return (kind, view) in self._said

    def is_known(self, vote: CastVote) -> bool:
        """Whether the validator cast exactly this vote before."""
        return self._said.get((vote.kind, vote.view)) == (vote.parent_view, vote.digest)

    def cast(self, vote: CastVote) -> None:
        """Enter a vote. Of two votes of one kind and view the first one is kept."""
        if self.has_cast(vote.kind, vote.view):
            return
        self._said[vote.kind, vote.view] = (vote.parent_view, vote.digest)
        if vote.kind == FINALIZE:
            insort(self._finalized, vote.view)
        elif vote.kind == TIMEOUT:
            self._timed_out = max(self._timed_out, vote.view)

    def contradiction(self, vote: CastVote) -> str | None:
        """The earlier vote that forbids this one, in words; ``None`` if none does."""
        view = vote.view
        if self.has_cast(vote.kind, view):
            return None if self.is_known(vote) else "and did so before with another vote"
        if vote.kind in GIVING_UP:
            if self.has_cast(FINALIZE, view):
                return "which it voted to finalize"
            kept = self._finalized_by(view) if vote.kind == TIMEOUT else GENESIS_VIEW
            is_low = vote.parent_view < kept
            return f"naming view {vote.parent_view}, and it voted to finalize view {kept}" if is_low else None
        if any(self.has_cast(kind, view) for kind in GIVING_UP):
            return "which it gave up"
        if vote.kind == FINALIZE and self._timed_out >= view:
            return f"and it timed out of view {self._timed_out}"
        return None

    def forget_below(self, view: int) -> None:
        """Forget the votes of views below ``view``, but keep what is needed to judge votes in later views."""
        self._said = {(kind, at): said for (kind, at), said in self._said.items() if at >= view}
        del self._finalized[: max(0, bisect_right(self._finalized, view - 1) - 1)]

    def _finalized_by(self, view: View) -> View:
        """The newest view up to this one that the validator voted to finalize."""
        count = bisect_right(self._finalized, view)
        return self._finalized[count - 1] if count else GENESIS_VIEW
