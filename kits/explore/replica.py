"""One honest validator: its engine, its disk and its rules. It performs the engine's effects at once.

A block that is asked for is built, a block is verified and a write is durable before anything else happens, unless the
scope has slow disks: then a write is durable with :data:`SYNC`. A restart begins a further life from the journal. In
each life a leader builds another block on the same parent.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from blake3 import blake3

from cluster.audit.safety.certificates import is_certified
from cluster.audit.safety.own_votes import VERBS, OwnVotes
from cluster.record.rules import SafetyRule as Rule
from consensus.interface import (
    BlockProposed,
    BlockVerified,
    Broadcast,
    Durable,
    Effect,
    Event,
    Finalized,
    Notarized,
    Nullified,
    Persist,
    Propose,
    SendTo,
    Start,
    Verify,
)
from consensus.journal import decode_record
from consensus.messages import AnyCertificate, Certificate, Message, Vote, VoteKind, vote_of
from consensus.types import GENESIS_VIEW, Digest, ValidatorIndex, View
from kits.explore.scope import CONFIG, GENESIS, NAMESPACE, Facts, Scope

RESTART: Final = "restart"
SYNC: Final = "sync"
ERROR: Final = "error"

Occurrence = Event | str
"""An event of the engine, or :data:`RESTART` or :data:`SYNC`."""


class Replica:
    """A validator from its first start on. It runs :meth:`happen` for each occurrence; ``problems`` are violations."""

    def __init__(self, scope: Scope, facts: Facts, index: ValidatorIndex) -> None:
        self.scope = scope
        self.index = index
        self.said = 0
        """The mask of what its messages state, its durable votes and the certificates that it knows."""
        self.durable = 0
        """The mask of the journal."""
        self.life = 0
        self.problems: list[str] = []
        self.waiting: deque[Persist] = deque()
        """Writes that are not durable, with slow disks."""
        self._facts = facts
        self._journal: list[bytes] = []
        self._votes = OwnVotes()
        self._certified: set[View] = set()
        """Views of the certificates of blocks in the journal."""
        self._final = GENESIS_VIEW
        self._start()

    def happen(self, occurrence: Occurrence) -> None:
        """Let something happen, and note the rules that it breaks. An error of the engine is a violation."""
        try:
            if occurrence == RESTART:
                self.life += 1
                self.waiting.clear()
                self._start()
            elif occurrence == SYNC:
                persist = self.waiting.popleft()
                self._write(persist)
                self._feed(Durable(persist.token))
            else:
                assert not isinstance(occurrence, str)
                self._feed(occurrence)
        except Exception as error:  # noqa: BLE001 - whatever the engine under test raises
            self.problems.append(f"{ERROR}: validator {self.index}: {type(error).__name__}: {error}")

    def _start(self) -> None:
        scope = self.scope
        self.engine = scope.engine(
            CONFIG, scope.validator_set, self.index, scope.signers[self.index], NAMESPACE, GENESIS, self._journal
        )
        self._feed(Start())

    def _feed(self, event: Event) -> None:
        events = deque([event])
        while events:
            for effect in self.engine.handle(events.popleft()):
                answer = self._perform(effect)
                if answer is not None:
                    events.append(answer)

    def _perform(self, effect: Effect) -> Event | None:
        match effect:
            case Broadcast(message) | SendTo(_, message):
                self._send(message)
            case Propose(view, parent) if view <= self.scope.views:
                body = b"%d %d %d " % (view, parent.view, self.life) + parent.digest
                return BlockProposed(view, parent, digest_of(body), body)
            case Verify(view, _, digest, body):
                return BlockVerified(view, digest, digest == digest_of(body))
            case Persist(token) if self.scope.slow_disks:
                self.waiting.append(effect)
            case Persist(token):
                self._write(effect)
                return Durable(token)
            case Notarized(certificate) | Nullified(certificate):
                self._believe(certificate)
            case Finalized(certificate):
                is_proof = certificate.kind == VoteKind.FINALIZE
                self._look(
                    Rule.PROVED_FINAL, is_proof, f"takes a {certificate.kind.name.lower()} certificate for final"
                )
                self._believe(certificate)
                self._final = max(self._final, certificate.view)
        return None

    # --- rules --------------------------------------------------------------------------------------------------------

    def _look(self, rule: str, holds: bool, what: str) -> None:
        if not holds:
            self.problems.append(f"{rule}: validator {self.index} {what}")

    def _believe(self, certificate: AnyCertificate) -> None:
        self.said |= self._facts.mask(certificate)
        is_good = is_certified(certificate, self.scope.validator_set, NAMESPACE, self._final)
        self._look(Rule.CERTIFICATES, is_good, f"believes a bad {words_of(certificate)}")

    def _send(self, message: Message) -> None:
        self.said |= self._facts.mask(message)
        vote = vote_of(message)
        if vote is not None:
            is_durable = self._facts.mask(vote) & self.durable != 0
            self._look(Rule.DURABLE_VOTES, is_durable, f"{words_of(vote)}: the vote is sent before it is durable")
            self._cast(vote)

    def _write(self, persist: Persist) -> None:
        """Make records durable. A vote in the journal counts as cast."""
        for encoded in persist.records:
            self._journal.append(encoded)
            record = decode_record(encoded)
            if isinstance(record, Vote):
                self._check_lock(record)
                self._cast(record)
                self.said |= self._facts.mask(record)
                self.durable |= self._facts.mask(record)
            elif isinstance(record, Certificate) and record.kind != VoteKind.NULLIFY:
                self._certified.add(record.view)
                self.durable |= self._facts.mask(record)

    def _check_lock(self, vote: Vote) -> None:
        """A finalize vote comes after a certificate of its block, and a timeout names the highest certified view."""
        if self._votes.is_known(vote):
            return
        if vote.kind == VoteKind.FINALIZE:
            self._look(Rule.LOCK, vote.view in self._certified, f"{words_of(vote)} without a certificate of its block")
        elif vote.kind == VoteKind.TIMEOUT:
            lock = max(self._certified, default=GENESIS_VIEW)
            is_kept = vote.parent_view >= lock
            self._look(Rule.LOCK, is_kept, f"{words_of(vote)} naming view {vote.parent_view}, and its lock is {lock}")

    def _cast(self, vote: Vote) -> None:
        if not self._votes.is_known(vote):
            problem = self._votes.contradiction(vote)
            self._look(Rule.OWN_VOTES, problem is None, f"{words_of(vote)}, {problem}")
            self._votes.cast(vote)


def digest_of(body: bytes) -> Digest:
    """The digest of an explored block."""
    return Digest(blake3(body).digest())


def words_of(thing: AnyCertificate | Vote) -> str:
    """A vote or a certificate in words."""
    if isinstance(thing, Vote):
        return f"{VERBS[thing.kind]} view {thing.view}"
    return f"{thing.kind.name.lower()} certificate of view {thing.view}"
