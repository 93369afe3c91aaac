"""What turns drills red, on either backend."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.scenario.overrides import Change

ANY_NUMBER_OF_FAULTS = Change("validators.allow_more_faults", True)
COUNTS_WRONG = [{}, {"mutant": "fires-not-taken-back"}, {}, {"byzantine": "forgetful-leader"}]
SILENT = [{}, {}, {}, {}, {"joins_at_height": 30, "byzantine": "silent-leader"}]
TOO_MANY = [{}, {}, {"byzantine": ["equivocating-leader", "conflicting-voter"]}, {"byzantine": "conflicting-voter"}]
ALL_OF_FOUR = range(4)
TIES_BY_ID = Change("chain.params.PRIORITY_FLOOR", 0), Change("chain.params.TIE_BREAK", "id")
"""A hole in a preset that is hardened otherwise: a timer with an unlucky id waits until it is priced out."""


def planted(mutant: str, indexes: Sequence[int], count: int = 4) -> tuple[Change, ...]:
    """A planted bug in some of the validators."""
    nodes = [{"mutant": mutant} if index in indexes else {} for index in range(count)]
    return Change("validators.nodes", nodes), ANY_NUMBER_OF_FAULTS
