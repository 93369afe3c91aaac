"""Watches certificates and votes of a live run: the part of the check *safety* that the driver can evaluate.

Hosts report which certificates their validators accept and which votes they send, among their other observations. The
rules are those of the simulator's monitor (:mod:`cluster.audit.safety`). Two of them require that some validator knew a
certificate: *ancestry* for skipped views, and *proved_final*. They wait until every running host has reported what it
knew, and leave out the views that a process may not have reported completely before it ended.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from typing import Final

from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.own_votes import VERBS, OwnVotes
from cluster.audit.safety.rule_log import MAX_VIOLATIONS, RuleLog
from cluster.live.handover.left import LeftAudit
from cluster.live.handover.rows import Row, Told
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
"""Views below the newest final one whose certificates and votes are kept."""
MAX_WAITING: Final = 200_000
"""Limit of certificates and votes that wait to be checked; the oldest are dropped first."""
PATIENCE_S: Final = 5.0
"""A host's report this long after a final block includes the certificates that it knew when the block became final."""
OF_BLOCKS: Final = frozenset({Rule.PROVED_FINAL, Rule.ANCESTRY, Rule.LEADERS})
"""Rules that are evaluated once for each final block."""
VIEWS_UNTOLD: Final = 8
"""Views that a process may have been ahead of its last report when it ended."""


class Heard:
    """Tracks whether hosts have reported all votes and certificates that they knew."""

    def __init__(self) -> None:
        self.highest_view = 0
        """Highest view of a reported certificate."""
        self.doubtful_view = 0
        """Highest view whose reports may be incomplete: they were lost, or a process ended before it had sent all."""
        self._hosts: Set[Hashable] = frozenset()
        self._answered_s = float("-inf")

    def note_hosts(self, running: Set[Hashable], answered_s: float) -> None:
        """Note the running processes of hosts, and when the last of them answered (monotonic seconds)."""
        if self._hosts - running:
            self.doubt(self.highest_view)
        self._hosts, self._answered_s = running, answered_s

    def doubt(self, view: int) -> None:
        """Note that reports of views up to this one, and shortly above, may be lost, or went to another driver."""
        self.doubtful_view = max(self.doubtful_view, view + VIEWS_UNTOLD)

    def all_since(self, moment_s: float) -> bool:
        """Whether every running host has answered at least :data:`PATIENCE_S` after a moment (monotonic).

        Then each has reported all that it knew at that moment.
        """
        return self._answered_s >= moment_s + PATIENCE_S


class Backlog:
    """The queue of reported votes and certificates that were not checked yet."""

    def __init__(self, told: Told | None = None) -> None:
        """``told`` gets the reports of hosts, if they must outlive this process."""
        self._told = told
        self.judged = 0
        """Number of rows (reports of a validator) of the run that were checked."""
        self._taken = 0
        self._judged_before = 0
        """Number of rows that another driver judged. They are processed again, without reporting their violations."""
        self.lost_view: int | None = None
        """Highest view of which a report may have been dropped, here or by a host; ``None`` if none was."""
        self._waiting: deque[tuple[int, int, CertificateSeen | VoteSent]] = deque()
        """Queued entries: number of the row, index of the validator, and vote or certificate."""

    def take(self, row: Row) -> None:
        """Queue a host's report of a validator."""
        self._add(self._taken, row)
        if self._told is not None:
            self._told.add(row)

    def take_over(self, judged: int, rows: Iterable[tuple[int, Row]]) -> None:
        """Continue the queue of another driver.

        ``judged`` is the number of rows that it had judged. ``rows`` are the rows that its files still have, by number.
        """
        self.judged = self._taken = self._judged_before = judged
        for number, row in rows:
            self._add(number, row)

    def drain(self) -> Iterator[tuple[int, CertificateSeen | VoteSent, bool]]:
        """Take every entry off the queue. Yields the validator, the vote or certificate, and whether another driver
        judged it.
        """
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
        """Note that a report of a view was dropped."""
        self.lost_view = view if self.lost_view is None else max(view, self.lost_view)


class SafetyWatch:
    """Checks the votes, certificates and final blocks of one run against the safety rules.

    :meth:`take` may be called by one thread, everything else by another.
    """

    def __init__(
        self,
        record: RunRecord,
        now_ms: Callable[[], float],
        told: Told | None = None,
        genesis_hash: bytes | None = None,
    ) -> None:
        """``now_ms`` returns the time since the run began. It dates violations. ``told`` gets the reports of hosts, if
        they must outlive this process. ``genesis_hash`` is ``None`` if it is not known.
        """
        scenario, namespace = record.scenario, record.genesis.chain_id.encode()
        validators = validators_of(record.genesis, record.scheme)
        leader = ELECTIONS[scenario.consensus.leader_election](validators, namespace).leader
        self.log = RuleLog(now_ms)
        self.heard = Heard()
        self.chain = CertifiedChain(validators, namespace, leader, self.log, False, VIEWS_KEPT, genesis_hash)
        self._names = scenario.validators.names
        self._byzantine = {index for index in range(len(self._names)) if scenario.validators.node(index).byzantine}
        self._votes = [OwnVotes() for _ in self._names]
        self._votes_kept_from = 0
        self.backlog = Backlog(told)
        self._height = 0
        """Height of the last final block that was checked."""
        self._newest_view = 0
        """View of the last final block that was checked."""
        self._skips_since_s: float | None = None
        """Time since which the next block waits for certificates of the views that it skips (monotonic)."""
        self._unproved: tuple[float, int] | None = None
        """Time at which a final block without a reported finalization was found (monotonic), and its view."""
        self._is_proof_missed = False
        """Whether a final block without a finalization was reported as a violation."""
        self._is_stuck = False
        """Whether a block could not be decoded: no later block is checked."""

    def take(self, index: int, observations: Sequence[Observation]) -> None:
        """Queue the votes and certificates in a host's report of a validator. Byzantine validators are ignored."""
        if index in self._byzantine:
            return
        for seen in observations:
            if isinstance(seen, NotesLost):
                self.backlog.note_lost(seen.view)
        row = Row.of(index, observations)
        if row is not None:
            self.backlog.take(row)

    def look(self, store: BlockStore, is_end: bool = False) -> None:
        """Check all queued reports and new final blocks. With ``is_end`` nothing is waited for."""
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

    @property
    def counts(self) -> dict[str, int]:
        """Number of evaluations of the rules that are not evaluated once more by another driver."""
        return {rule: count for rule, count in self.log.counts.items() if rule not in OF_BLOCKS}

    def take_over(self, state: LeftAudit, rows: Iterable[tuple[int, Row]] = ()) -> None:
        """Restore what another driver has found, and queue the rows that it kept.

        Final blocks are checked again.
        """
        self.log.counts.update(state.counts)
        self.log.violations.extend(state.violations)
        self.backlog.take_over(state.rows, rows)

    def record(self) -> MonitorRecord:
        """The counts and violations so far, in the form of a run's record."""
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
        """Check the next final block. Returns ``False`` if it has to wait for reports, or cannot be decoded."""
        height = self._height + 1
        try:
            header = decode(store.at(height).block, Block).header
        except CodecError:
            self._is_stuck = True  # the books report it
            return False
        knows_skips = True
        if not self.chain.is_skip_justified(header):
            self._skips_since_s = self._skips_since_s or time.monotonic()
            knows_skips = self.heard.all_since(self._skips_since_s)
            is_in_doubt = self._newest_view < self.heard.doubtful_view  # then no judgement is made
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
        """Check that some validator knows a finalization of the newest final block, or of a later view."""
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
