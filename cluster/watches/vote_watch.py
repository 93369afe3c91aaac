"""The watch of votes: it checks that an honest validator's messages agree with what it must remember.

Peers notice two contradictory messages only if both reach the same peer. The watch is attached to each validator: it
reads the durable part of its disk, sees all its messages, and remembers through restarts, and through the loss of the
disk, what it sent. It reports the evaluations of its rules and the violations to the safety monitor.

=================  ===================================================================================================
rule               what must hold
=================  ===================================================================================================
durable_votes      a vote that is sent is in the sender's durable journal, a notarize vote with its block's body
own_votes          a vote agrees with the validator's earlier ones (:mod:`cluster.audit.safety.own_votes`)
lock               a finalize vote is in the journal after a certificate of its block. HotStuff: a timeout names no view
                   below the highest one with a certified block earlier in the journal
abstention         a join by a snapshot ends once 2f + 1 members of each committee concerned proved their views, and no
                   vote follows in a view up to one above the highest of these, or up to the last one that the validator
                   entered before it lost its disk; no timeout names a lower view either
=================  ===================================================================================================

A vote that is in the durable journal counts as cast, sent or not; any other counts from when it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.audit.safety.own_votes import VERBS, OwnVotes
from cluster.audit.safety.rule_log import Look
from cluster.record.rules import SafetyRule as Rule
from cluster.simulation.machine import Machine
from cluster.watches.durable_journal import DurableJournal
from cluster.watches.watch import Watch
from consensus.certificates import verify_signed
from consensus.journal import Record
from consensus.keys import ValidatorSet
from consensus.messages import FINALIZE, NOTARIZE, NULLIFY, TIMEOUT, AnyCertificate, Certificate, MessageError, Vote
from consensus.messages import decode as decode_consensus
from consensus.types import FIRST_VIEW, GENESIS_VIEW, ValidatorIndex, View
from validator.chain.messages import Reading, ViewReport
from validator.node.events import Joined


@dataclass(slots=True)
class _Memory:
    """The watch's knowledge of one validator, across all its lives."""

    journal: DurableJournal = field(default_factory=DurableJournal)
    votes: OwnVotes = field(default_factory=OwnVotes)
    certified: set[View] = field(default_factory=set)
    """Views for which a block's certificate was durable."""
    lock: View = GENESIS_VIEW
    """The highest view in ``certified``."""
    nonce: bytes = b""
    """The nonce of the validator's join in progress."""
    proved: dict[int, View] = field(default_factory=dict)
    """Views that peers proved to the validator during its join in progress, keyed by peer."""
    entered: View = GENESIS_VIEW
    """The last view that the validator entered before it lost a disk."""
    abstains_through: View = GENESIS_VIEW
    """The last view in which the validator must not vote."""

    def learn(self, record: Record) -> None:
        """Note a durable record other than a vote: a certificate of a block may raise the lock."""
        if type(record) is Certificate and record.kind != NULLIFY:
            self.certified.add(record.view)
            self.lock = max(self.lock, record.view)


class VoteWatch(Watch):
    """Checks in one run that the votes of honest validators agree with what they must remember."""

    effects = frozenset({Joined})

    def __init__(self, names: Sequence[str], look: Look, validators: ValidatorSet, namespace: bytes) -> None:
        super().__init__(names, look)
        self._validators = validators
        self._namespace = namespace
        self._memories = [_Memory() for _ in names]

    # --- votes --------------------------------------------------------------------------------------------------------

    def may_vote(self, index: int, view: View) -> bool:
        """Whether a validator is in a view's committee, and need not abstain."""
        return view > self._memories[index].abstains_through and ValidatorIndex(index) in self._validators.committee(
            view
        )

    def votes(self, machine: Machine, vote: Vote) -> None:
        """Check a vote that a validator sends."""
        index = machine.index
        memory = self._memories[index]
        for records, is_appended in memory.journal.read(machine.disk):
            for record in records:
                self._on_record(index, memory, record, is_appended)
        self._look_at(Rule.DURABLE_VOTES, index, vote, _not_durable(memory.journal, vote))
        self._on_vote(index, memory, vote)

    def _on_record(self, index: int, memory: _Memory, record: Record, is_appended: bool) -> None:
        if type(record) is not Vote:
            memory.learn(record)
            return
        if memory.votes.is_known(record):
            return
        is_new = not memory.votes.has_cast(record.kind, record.view)
        if is_new and record.kind == FINALIZE:
            problem = None if record.view in memory.certified else "with no certificate of its block in the journal"
            self._look_at(Rule.LOCK, index, record, problem)
        elif is_new and record.kind == TIMEOUT and is_appended:
            is_kept = record.parent_view >= memory.lock
            problem = None if is_kept else f"naming view {record.parent_view}, and its journal certifies {memory.lock}"
            self._look_at(Rule.LOCK, index, record, problem)
        self._on_vote(index, memory, record)

    def _on_vote(self, index: int, memory: _Memory, vote: Vote) -> None:
        """Check a vote and note it as cast, if it is not known yet."""
        if memory.votes.is_known(vote):
            return
        self._look_at(Rule.OWN_VOTES, index, vote, memory.votes.contradiction(vote))
        if memory.abstains_through:
            self._look_at(Rule.ABSTENTION, index, vote, _not_abstained(memory, vote))
        memory.votes.cast(vote)

    # --- joins --------------------------------------------------------------------------------------------------------

    def begins_to_join(self, machine: Machine, nonce: bytes) -> None:
        memory = self._memories[machine.index]
        memory.nonce = nonce
        memory.proved.clear()
        memory.entered = View(max(memory.entered, machine.view))

    def hears(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        """Note the view that a peer proves in a message to a joining validator."""
        if machine.joining is None:
            return
        memory = self._memories[machine.index]
        if not isinstance(content, ViewReport) or content.nonce != memory.nonce or sender.index in memory.proved:
            return
        if not content.certificate:
            memory.proved[sender.index] = FIRST_VIEW
        elif (opened_by := self._proved(content.certificate)) is not None:
            memory.proved[sender.index] = View(opened_by + 1)

    def performs(self, machine: Machine, effect: Joined) -> None:
        """Check that a validator may end its join, and that it abstains up to the right view."""
        if machine.joining is None:
            return
        memory, name, abstains_through = self._memories[machine.index], machine.name, machine.joining.abstain_through
        highest = max(memory.proved.values(), default=GENESIS_VIEW)
        missing = self._missing(memory, highest)
        self._look(
            Rule.ABSTENTION,
            not missing,
            f"{name} ends its join, and {missing} more peers had to prove their views",
        )
        self._look(
            Rule.ABSTENTION,
            abstains_through == highest + 1,
            f"{name} ends its join and abstains up to view {abstains_through}, and was proved view {highest}",
        )
        memory.abstains_through = View(max(memory.abstains_through, highest + 1, memory.entered))

    def _missing(self, memory: _Memory, highest: View) -> int:
        """How many members of a committee must still prove their views to rule out votes above all of them."""
        committees = {self._validators.committee(View(max(at, FIRST_VIEW))) for at in (highest, highest + 1)}
        proved = {each: sum(member in memory.proved for member in each.members) for each in committees}
        return max(0, *(2 * each.faults_withstood + 1 - count for each, count in proved.items()))

    def _proved(self, encoded: bytes) -> View | None:
        """The view of an encoded certificate; ``None`` if it is not valid."""
        try:
            certificate = decode_consensus(encoded)
        except MessageError:
            return None
        if not isinstance(certificate, AnyCertificate):
            return None
        return certificate.view if verify_signed(certificate, self._validators, self._namespace) else None

    # --- words --------------------------------------------------------------------------------------------------------

    def _look_at(self, rule: str, index: int, vote: Vote, problem: str | None) -> None:
        what = "" if problem is None else f"{self._names[index]} {VERBS[vote.kind]} view {vote.view}, {problem}"
        self._look(rule, problem is None, what)


def _not_durable(journal: DurableJournal, vote: Vote) -> str | None:
    """The part of a vote that a crash would lose although the vote is sent, in words."""
    if vote not in journal.votes:
        return "and its vote is not durable"
    is_without_body = vote.kind == NOTARIZE and vote.digest not in journal.digests
    return "and the block's body is not durable" if is_without_body else None


def _not_abstained(memory: _Memory, vote: Vote) -> str | None:
    """The reason why a validator that lost its journal must not send a vote, in words."""
    through = memory.abstains_through
    if vote.view <= through:
        return f"and must abstain through view {through}"
    is_low = vote.kind == TIMEOUT and vote.parent_view < through
    return f"naming view {vote.parent_view}, and may have finalized view {through}" if is_low else None
