"""How much an engine keeps, held against the bounds that ``docs/consensus.md`` names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from consensus.interface import VotingConfig
from consensus.voting import Sizes

VOTES_PER_SIGNER: Final = 3
"""Votes that one signer has in one view: one of each kind that its protocol has."""
WINDOWS: Final = VotingConfig()
"""The windows of views in which a validator keeps things: no scenario changes them."""


def bounds(view: int, final_view: int, signers: int) -> Sizes:
    """The most that an engine keeps in a view, with such a newest final view and so many validators."""
    open_views = view - final_view
    behind = min(open_views + WINDOWS.evidence_views, WINDOWS.retained_views + 1)
    return Sizes(
        rounds=behind + WINDOWS.view_window,
        votes=VOTES_PER_SIGNER * signers,
        proposals=1 + WINDOWS.proposal_window,
        own=open_views,
        certificates=open_views + WINDOWS.retained_views,
    )


def excesses(kept: Sizes, most: Sizes) -> Iterator[str]:
    """In words, what is more than it may be."""
    for name, count, bound in zip(Sizes._fields, kept, most, strict=True):
        if count > bound:
            yield f"{name} {count:,} of {bound:,}"
