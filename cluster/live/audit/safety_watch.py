"""Certificates and votes of a live run, watched while it goes: the part of the check *safety* that the driver can know.

Hosts tell which certificates their validators believe and which votes they send, among their other observations. The
rules are those of the simulator's monitor (:mod:`cluster.audit.safety`). Two of them ask for what somebody must have
known: *ancestry* as to skipped views, and *proved_final*. They wait until every host that runs has told what it knew,
and leave out the views of which a process that ended may not have told all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from typing import Final

from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.own_votes import VERBS, OwnVotes
from cluster.audit.safety.rule_log import MAX_VIOLATIONS, RuleLog
from cluster.live.handover.left_record import LeftSafety
from cluster.live.handover.told import Row, Told
from cluster.live.host.observations import NOT_TOLD, CertificateSeen, NotesLost, Observation, VoteSent, view_of
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
"""What a host told so long after a final block includes the certificates that it knew when the block became final."""
OF_BLOCKS: Final = frozenset({Rule.PROVED_FINAL, Rule.ANCESTRY, Rule.LEADERS})
"""Rules that are evaluated once for each final block."""
VIEWS_UNTOLD: Final = 8
"""Views that a process may have been ahead of all that was told, when it ended."""


class Heard:
    """Whether hosts have told all that they knew."""

    def __init__(self) -> None:
        self.highest_view = 0
        """That was told of."""
        self.doubtful_view = 0
        """Views up to this one are those of which a process that is gone may not have told all."""
        self._hosts: Set[Hashable] = frozenset()
        self._answered_s = float("-inf")

    def note_hosts(self, running: Set[Hashable], answered_s: float) -> None:
        """The processes of hosts that run, and when the last of them answered (monotonic seconds)."""
        if self._hosts - running:
            self.doubt(self.highest_view)
        self._hosts, self._answered_s = running, answered_s

    def doubt(self, view: int) -> None:
        """Of views up to this one, and shortly above it, not all was told: to nobody, or to another driver."""
        self.doubtful_view = max(self.doubtful_view, view + VIEWS_UNTOLD)

    def all_since(self, moment_s: float) -> bool:
        """Whether every host that runs told long enough after a moment all that it knew at that moment."""
        return self._answered_s >= moment_s + PATIENCE_S


class Backlog:
    """What was told and not looked at."""

    def __init__(self) -> None:
        self.told: Told | None = None
        """Gets what hosts tell, if that is to outlive this process."""
        self.judged = 0
        """So many rows of the run were looked at."""
        self._taken = 0
        self._judged_before = 0
        """Another driver judged these: they are known again, and are not judged again."""
        self.lost_view: int | None = None
        """What was to be told of views up to this one may have been dropped, here or by a host."""
        self._waiting: deque[tuple[int, int, CertificateSeen | VoteSent]] = deque()
        """The row's number, the validator, and what it is."""

    def take(self, row: Row) -> None:
        """What a host says of a validator."""
        self._add(self._taken, row)
        if self.told is not None:
            self.told.add(row)

    def take_over(self, judged: int, told: Told | None, rows: Iterable[tuple[int, Row]]) -> None:
        """Go on with the rows of another driver, which judged so many of the run."""
        self.told = told
        self.judged = self._taken = self._judged_before = judged
        for number, row in rows:
            self._add(number, row)

    def drain(self) -> Iterator[tuple[int, CertificateSeen | VoteSent, bool]]:
        """Look at each: the validator, what it is, and whether another driver judged it."""
        while self._waiting:
            number, index, seen = self._waiting.popleft()
            yield index, seen, number < self._judged_before
            self.judged = max(self.judged, number + (not self._waiting or self._waiting[0][0] != number))

    def _add(self, number: int, row: Row) -> None:
        self._taken = number + 1
        told: list[CertificateSeen | VoteSent] = [*row.votes, *row.certificates]
        for each in told:
            if len(self._waiting) >= MAX_WAITING:
                self.note_lost(view_of(self._waiting.popleft()[-1]))
            self._waiting.append((number, row.index, each))

    def note_lost(self, view: int) -> None:
        """What was told of a view was dropped."""
        self.lost_view = view if self.lost_view is None else max(view, self.lost_view)


class SafetyWatch:
    """One run's. :meth:`take` may be called by one thread, everything else by another."""

    def __init__(self, record: RunRecord, now_ms: Callable[[], float]) -> None:
        """``now_ms`` gives the time of a violation, since the run began."""
        scenario, namespace = record.scenario, record.genesis.chain_id.encode()
        validators = validators_of(record.genesis, record.scheme)
        leader = ELECTIONS[scenario.consensus.leader_election](validators, namespace).leader
        self.log = RuleLog(now_ms)
        self.heard = Heard()
        self.chain = CertifiedChain(validators, namespace, leader, self.log, hears_all=False, views_kept=VIEWS_KEPT)
        self._names = scenario.validators.names
        self._byzantine = {index for index in range(len(self._names)) if scenario.validators.node(index).byzantine}
        self._votes = [OwnVotes() for _ in self._names]
        self._votes_kept_from = 0
        self.backlog = Backlog()
        self._height = 0
        """Of the last final block that was entered."""
        self._newest_view = 0
        """Of that block."""
        self._skips_since_s: float | None = None
        """When the next block was found to skip views for which no certificates are known (monotonic)."""
        self._unproved: tuple[float, int] | None = None
        """When a final block was found whose finalization nobody told, and its view."""
        self._is_proof_missed = False
        """It was said that a final block has no proof."""
        self._is_stuck = False
        """A block could not be read: none is entered after it."""

    def take(self, index: int, observations: Sequence[Observation]) -> None:
        """What a host says of a validator."""
        if index in self._byzantine:
            return
        for seen in observations:
            if isinstance(seen, NotesLost):
                self.backlog.note_lost(seen.view)
        row = Row.of(index, observations)
        if row is not None:
            self.backlog.take(row)

    def look(self, store: BlockStore, is_end: bool = False) -> None:
        """Look at all that was told, and at the final blocks that are new. At the end nothing is waited for."""
        log = self.log
        if self.backlog.lost_view is not None:
            self.heard.doubt(self.backlog.lost_view)
        for index, seen, is_judged in self.backlog.drain():
            self.chain.log = self.log = RuleLog(float) if is_judged else log
            if isinstance(seen, CertificateSeen):
                self.heard.highest_view = max(self.heard.highest_view, seen.certificate.view)
                self._on_certificate(index, seen)
            else:
                self._on_vote(index, seen)
        self.chain.log = self.log = log
        while self._height < len(store) and not self._is_stuck and self._enter(store, is_end):
            pass
        self._look_for_proofs()

    def state(self) -> LeftSafety:
        """What another driver cannot find again. Not while another thread is in :meth:`look`."""
        counts = {rule: count for rule, count in self.log.counts.items() if rule not in OF_BLOCKS}
        return LeftSafety(counts, list(self.log.violations), self.backlog.judged)

    def take_over(self, state: LeftSafety, told: Told | None = None, rows: Iterable[tuple[int, Row]] = ()) -> None:
        """Go on with the :meth:`state` of another driver, and with what it was told and left in files; final blocks are
        entered anew.
        """
        self.log.counts.update(state.counts)
        self.log.violations.extend(state.violations)
        self.backlog.take_over(state.rows, told, rows)

    def record(self) -> MonitorRecord:
        """The counts and violations so far; of a run that is over."""
        return MonitorRecord(list(self.log.violations), {rule: self.log.counts[rule] for rule in WATCHED_LIVE})

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
        knows_skips = True
        if not self.chain.is_skip_justified(header):
            self._skips_since_s = self._skips_since_s or time.monotonic()
            knows_skips = self.heard.all_since(self._skips_since_s)
            is_in_doubt = self._newest_view < self.heard.doubtful_view  # nothing is said of it then
            if not (knows_skips or is_end or is_in_doubt):
                return False
        self._skips_since_s = None
        knows_skips = knows_skips and self._newest_view >= self.heard.doubtful_view
        self.chain.final(height, header, header_hash(header), knows_skips)
        self.log.counts[Rule.PROVED_FINAL] += 1
        self._height, self._newest_view = height, header.view
        if header.view - self._votes_kept_from >= 2 * VIEWS_KEPT:
            self._votes_kept_from = header.view - VIEWS_KEPT
            for votes in self._votes:
                votes.forget_below(self._votes_kept_from)
        return True

    def _look_for_proofs(self) -> None:
        """See whether somebody knows a finalization of the newest final block, or of a later view."""
        finalized = self.chain.newest_finalized
        if self._unproved is not None and finalized >= self._unproved[1]:
            self._unproved = None
        if self._unproved is None and self._newest_view > finalized:
            self._unproved = (time.monotonic(), self._newest_view)
        if self._unproved is None or self._is_proof_missed:
            return
        since_s, view = self._unproved
        if self.heard.all_since(since_s) and view > self.heard.doubtful_view:
            self._is_proof_missed = True
            what = f"a block of view {view} was made final, and no validator knows a finalization"
            self.log.look(Rule.PROVED_FINAL, False, what)
