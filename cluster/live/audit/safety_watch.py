"""Certificates and votes of a live run, watched while it goes: the part of the check *safety* that the driver can know.

Hosts tell which certificates their validators believe and which votes they send, among their other observations. The
rules are those of the simulator's monitor (:mod:`cluster.audit.safety`). A process that ends takes with it what it did
not tell. So a rule that asks for what somebody must have known is evaluated
only if no host was away meanwhile: *ancestry* as to skipped views, and *proved_final*.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.own_votes import VERBS, OwnVotes
from cluster.audit.safety.rule_log import MAX_VIOLATIONS, RuleLog
from cluster.live.host.observations import NOT_TOLD, CertificateSeen, Observation, VoteSent
from cluster.record.chain_store import BlockStore
from cluster.record.rules import WATCHED_LIVE
from cluster.record.rules import SafetyRule as Rule
from cluster.record.run import MonitorRecord, RunRecord
from cluster.scenario.genesis import validators_of
from consensus.leader import ELECTIONS
from validator.chain.block import Block, header_hash
from validator.primitives.codec import CodecError, decode

VIEWS_KEPT: Final = 1_024
"""Views below the newest final one of which certificates and votes are kept."""
MAX_WAITING: Final = 200_000
"""Certificates and votes that wait to be looked at; the oldest go first."""
PATIENCE_S: Final = 5.0
"""The certificates of views that a final block skips are told within this time, or nobody knows them."""


class SafetyWatch:
    """One run's. :meth:`take` may be called by one thread, everything else by another."""

    def __init__(self, record: RunRecord, now_ms: Callable[[], float]) -> None:
        """``now_ms`` gives the time of a violation, since the run began."""
        scenario, namespace = record.scenario, record.genesis.chain_id.encode()
        validators = validators_of(record.genesis, record.scheme)
        leader = ELECTIONS[scenario.consensus.leader_election](validators, namespace).leader
        self.log = RuleLog(now_ms)
        self.chain = CertifiedChain(validators, namespace, leader, self.log, hears_all=False, views_kept=VIEWS_KEPT)
        self._names = scenario.validators.names
        self._byzantine = {index for index in range(len(self._names)) if scenario.validators.node(index).byzantine}
        self._votes = [OwnVotes() for _ in self._names]
        self._votes_kept_from = 0
        self._waiting: deque[tuple[int, CertificateSeen | VoteSent]] = deque(maxlen=MAX_WAITING)
        self._height = 0
        """Of the last final block that was entered."""
        self._newest_view = 0
        """Of that block."""
        self._waits_since_s: float | None = None
        """When the next block was found to skip views for which no certificates are known."""
        self._away_s = float("-inf")
        """When a host was away last (monotonic)."""
        self._is_stuck = False
        """A block could not be read: none is entered after it."""

    def take(self, index: int, observations: Iterable[Observation]) -> None:
        """What a host says of a validator."""
        if index not in self._byzantine:
            self._waiting.extend((index, each) for each in observations if isinstance(each, CertificateSeen | VoteSent))

    def note_away(self) -> None:
        """A host does not answer at the moment, or is another process than before."""
        self._away_s = time.monotonic()

    def look(self, store: BlockStore, is_end: bool = False) -> None:
        """Look at all that was told, and at the final blocks that are new. At the end nothing is waited for."""
        while self._waiting:
            index, seen = self._waiting.popleft()
            if isinstance(seen, CertificateSeen):
                self._on_certificate(index, seen)
            else:
                self._on_vote(index, seen)
        while self._height < len(store) and not self._is_stuck and self._enter(store, is_end):
            pass

    def record(self) -> MonitorRecord:
        """The counts and violations so far; of a run that is over."""
        violations, unproved = list(self.log.violations), self._newest_view > self.chain.newest_finalized
        if unproved and self.log.counts[Rule.CERTIFICATES] and not self._was_away(PATIENCE_S):
            what = f"the block at height {self._height} was made final, and nobody knows a finalization"
            violations.append(self.log.at_this_time(f"{Rule.PROVED_FINAL}: {what}"))
        return MonitorRecord(violations, {rule: self.log.counts[rule] for rule in WATCHED_LIVE})

    def _on_certificate(self, index: int, seen: CertificateSeen) -> None:
        is_full = len(self.log.violations) >= MAX_VIOLATIONS
        if self.chain.is_news(seen.certificate) or not (seen.looks_good or is_full):
            self.chain.certified(self._names[index], seen.certificate)

    def _on_vote(self, index: int, vote: VoteSent) -> None:
        votes = self._votes[index]
        if vote.parent_view == NOT_TOLD or vote.view < self._votes_kept_from or votes.is_known(vote):
            return
        problem = votes.contradiction(vote)
        what = "" if problem is None else f"{self._names[index]} {VERBS[vote.kind]} view {vote.view}, {problem}"
        self.log.look(Rule.OWN_VOTES, problem is None, what)
        votes.cast(vote)

    def _enter(self, store: BlockStore, is_end: bool) -> bool:
        """Enter the next final block; ``False`` if it has to wait."""
        height = self._height + 1
        try:
            header = decode(store.at(height).block, Block).header
        except CodecError:
            self._is_stuck = True  # the books say so
            return False
        is_justified, now_s = self.chain.is_skip_justified(header), time.monotonic()
        if not is_justified:
            self._waits_since_s = self._waits_since_s or now_s
            if not is_end and now_s - self._waits_since_s < PATIENCE_S:
                return False
        waited_s = 0.0 if self._waits_since_s is None else now_s - self._waits_since_s
        self._waits_since_s = None
        self.chain.final(height, header, header_hash(header), not self._was_away(waited_s + PATIENCE_S))
        self.log.counts[Rule.PROVED_FINAL] += 1
        self._height, self._newest_view = height, header.view
        if header.view - self._votes_kept_from >= 2 * VIEWS_KEPT:
            self._votes_kept_from = header.view - VIEWS_KEPT
            for votes in self._votes:
                votes.forget_below(self._votes_kept_from)
        return True

    def _was_away(self, within_s: float) -> bool:
        """Whether a host was away within the last so many seconds."""
        return time.monotonic() - self._away_s < within_s
