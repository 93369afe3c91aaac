"""The votes that a validator's earlier votes forbid."""

from __future__ import annotations

import pytest

from cluster.audit.safety.own_votes import OwnVotes
from consensus.messages import Vote
from tests.consensus.bench import FINALIZE, NOTARIZE, NULLIFY, TIMEOUT, Bench

BENCH = Bench()


def cast(*votes: Vote) -> OwnVotes:
    own = OwnVotes()
    for vote in votes:
        own.cast(vote)
    return own


@pytest.mark.parametrize(
    ("before", "vote", "why"),
    [
        ([(NOTARIZE, 3, "a")], (NOTARIZE, 3, "b"), "another vote"),
        ([(NOTARIZE, 3, "a")], (NOTARIZE, 3, "a"), None),
        ([(FINALIZE, 3, "a")], (NULLIFY, 3), "voted to finalize"),
        ([(NULLIFY, 3)], (NOTARIZE, 3, "a"), "gave up"),
        ([(NOTARIZE, 3, "a")], (NULLIFY, 3), None),
        ([(TIMEOUT, 5, "", 2)], (FINALIZE, 4, "a"), "timed out of view 5"),
        ([(FINALIZE, 4, "a")], (TIMEOUT, 6, "", 3), "naming view 3, and it voted to finalize view 4"),
        ([(FINALIZE, 4, "a")], (TIMEOUT, 6, "", 4), None),
    ],
)
@pytest.mark.parametrize("forgets", [0, 1])
def test_what_is_forbidden(before: list[tuple], vote: tuple, why: str | None, forgets: int) -> None:
    own = cast(*(BENCH.vote(0, *each) for each in before))
    own.forget_below(forgets)
    found = own.contradiction(BENCH.vote(0, *vote))
    assert (found is None) if why is None else (found is not None and why in found)


def test_what_is_forgotten_forbids_in_later_views_all_the_same() -> None:
    own = cast(*(BENCH.vote(0, FINALIZE, view, f"b{view}") for view in range(1, 51)))
    own.forget_below(40)
    assert len(own) == 11
    assert len(own._finalized) <= 12
    own.forget_below(60)
    assert (len(own), own._finalized) == (0, [50])
    assert "it voted to finalize view 50" in (own.contradiction(BENCH.vote(0, TIMEOUT, 61, parent=49)) or "")
    assert own.contradiction(BENCH.vote(0, TIMEOUT, 61, parent=50)) is None
