"""Each validator's part in consensus, from final blocks and from the certificates that were served at the end.

A certificate has the votes of a quorum, so a slow validator's vote is in few of them. What it proposes becomes final
all the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from cluster.audit.books import Books
from cluster.audit.safety.certificates import members_of
from cluster.scenario.genesis import validators_of
from consensus.leader import ELECTIONS
from consensus.types import View

MAX_VIEWS: Final = 200_000
"""The most views whose leaders are counted, up to the newest final one."""


class Participation(NamedTuple):
    """One validator's part in consensus."""

    name: str
    led: int
    """Views that it led, up to that of the newest final block."""
    proposed: int
    """Final blocks that it proposed."""
    votes: int
    """Certificates with its vote."""
    certificates: int
    """Certificates that it could have signed, since it was a member of the committee."""
    height: int
    """Its final height."""


def participation(books: Books) -> list[Participation]:
    """The part of each validator in consensus, in the order of their indices."""
    record = books.record
    validators = validators_of(record.genesis, record.scheme)
    election = ELECTIONS[record.scenario.consensus.leader_election](validators, record.genesis.chain_id.encode())
    views = books.views
    newest = max(views.values(), default=0)
    counted_views = range(max(1, newest - MAX_VIEWS + 1), newest + 1)
    led: Counter[int] = Counter(election.leader(View(view)) for view in counted_views)
    proposed = Counter(books.ledger.blocks.proposer)
    votes: Counter[int] = Counter()
    certificates: Counter[int] = Counter()
    for height, signers in ({} if record.monitor is None else record.monitor.voters).items():
        votes.update(signers)
        certificates.update(members_of(validators, views.get(height, newest)))
    return [
        Participation(
            each.name,
            led[each.index],
            proposed[each.index],
            votes[each.index],
            certificates[each.index],
            books.chains[each.name].tip,
        )
        for each in record.validators
    ]
