"""``twins``: two instances of a validator run with the same key.

A second instance of the validator runs with the same key, on a separate disk with separate state. Messages to the key
reach both, and the messages of both come from the key; neither hears the other. Both are honest: only their number is
byzantine. The behaviour takes effect if they contradict each other, which the driver detects with :class:`TwinWatch`.
The driver, not the wrapper, starts the second one.

A live validator proves its key on each stream, and a newer stream of a key replaces the older one. Two processes with
one key would fight over every stream, so there are no live twins.
"""

from __future__ import annotations

from cluster.misbehaviour.byzantine.base import Behaviour, Score, consensus_content, forget_old
from consensus.messages import Vote, conflict, vote_of


class Twins(Behaviour):
    name = "twins"
    description = "a second instance with the same key, on its own disk and with its own state"
    simulator_only = "peers keep one stream a key, which two live validators would take from each other"


class TwinWatch:
    """Watches the messages of two validators with one key, and counts when they contradict each other."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self._votes: tuple[dict[int, list[Vote]], dict[int, list[Vote]]] = ({}, {})
        self._contradicted: dict[int, None] = {}

    def note(self, twin: int, payload: bytes) -> None:
        """Note a message of one of the two validators. ``twin`` is its number, 0 or 1."""
        message = consensus_content(payload)
        vote = None if message is None else vote_of(message)
        if vote is None:
            return
        mine, others = self._votes[twin].setdefault(vote.view, []), self._votes[1 - twin].get(vote.view, [])
        if vote not in mine:
            mine.append(vote)
        forget_old(self._votes[twin])
        if vote.view not in self._contradicted and any(conflict(vote, other) is not None for other in others):
            self._contradicted[vote.view] = None
            forget_old(self._contradicted)
            self._score.effects[Twins.name] += 1
