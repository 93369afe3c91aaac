"""All watches of a simulated run. They get what happens in the run, and judge honest validators only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain as chained
from typing import Any, Final

from msgspec import structs

from cluster.audit.books import KeptLedger
from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.rule_log import RuleLog
from cluster.audit.served.chains import longest_chain
from cluster.misbehaviour.byzantine.base import vote_of
from cluster.record.rules import SafetyRule
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from cluster.simulation.watches.answer_watch import AnswerWatch, Hearing
from cluster.simulation.watches.durable_journal import votes_in
from cluster.simulation.watches.memory_watch import bounds, excesses, pool_bounds
from cluster.simulation.watches.models.kinds import Check, Handled, kinds_of, subject_of
from cluster.simulation.watches.models.models import NodeModels
from cluster.simulation.watches.pacing_watch import PacingWatch
from cluster.simulation.watches.patience_watch import PatienceWatch
from cluster.simulation.watches.promise_watch import PromiseWatch
from cluster.simulation.watches.pruning_watch import PruningWatch
from cluster.simulation.watches.restraint_watch import RestraintWatch
from cluster.simulation.watches.safety_monitor import STATE_EVERY_HEIGHTS, SafetyMonitor
from cluster.simulation.watches.vote_watch import VoteWatch
from consensus.interface import BAD_CERTIFICATE
from consensus.keys import ValidatorSet
from consensus.leader import ELECTIONS
from consensus.messages import AnyCertificate, Certificate, CertificateRequest, Proposal, Vote, encode
from consensus.types import View
from validator.chain.genesis import Genesis
from validator.chain.messages import BlockRequest, Reading, TransactionsMessage
from validator.node.assembly import Validator
from validator.node.events import (
    Append,
    BlockFinal,
    Certified,
    Diverged,
    Effect,
    Event,
    EvidenceFound,
    Joined,
    Message,
    PeerFault,
    Run,
    SetTimer,
    Timeout,
    TransactionDropped,
)
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import Build
from validator.storage.archive import ArchivedBlock

FINALITY_LAGS: Final = {"simplex": 1, "hotstuff": 2}
"""Number of later views in which a vote to finalize is repeated (``docs/consensus.md``)."""
REMEMBERED_CHOICES: Final = 1 << 10
"""Number of kinds of events, with those of their effects, for which it is remembered which checks they concern."""


class Watches(Observer):
    """The safety monitor and the other watches of one run; each method passes an event on to those that need it."""

    effects = frozenset({Append, BlockFinal, Certified, Diverged, Joined, PeerFault, Run, SetTimer, TransactionDropped})

    def __init__(
        self,
        scenario: Scenario,
        genesis: Genesis,
        validators: ValidatorSet,
        now_ms: Callable[[], float],
        read: Callable[[bytes], Reading | None],
        machines: Sequence[Machine],
    ) -> None:
        """``read`` decodes a message."""
        names, namespace = scenario.validators.names, genesis.chain_id.encode()
        election = ELECTIONS[scenario.consensus.leader_election](validators, namespace)
        leader = election.leader
        self._consensus = scenario.consensus
        self._count = len(names)
        self._machines = machines
        self._read = read
        self._hearing: Hearing | None = None
        self._diverged: list[str] = []
        limits = scenario.limits
        self._limits, self._pool_bounds = limits, pool_bounds(limits)
        self._names = names
        self._storage = scenario.storage
        skips = scenario.consensus.protocol == "simplex"
        log = RuleLog(now_ms)
        self.monitor = SafetyMonitor(CertifiedChain(validators, namespace, leader, log), genesis, log)
        self.vote_watch = VoteWatch(names, validators, namespace, self.monitor.log.look)
        self.promises = PromiseWatch(names, lambda: self.monitor.ledger, now_ms, limits)
        self.answers = AnswerWatch(names, self.monitor.log.look, limits)
        self.restraint = RestraintWatch(names, validators, leader, self.monitor.log.look, limits.distrusted_views)
        self.patience = PatienceWatch(names, leader, self.monitor.log.look, skips, self.vote_watch.may_vote)
        self.pruning = PruningWatch(names, scenario.storage.keep_blocks, self.monitor.log.look)
        self.models = NodeModels(scenario, genesis, self.monitor.log.look)
        lag = FINALITY_LAGS[scenario.consensus.protocol]
        self.pacing = PacingWatch(names, self.monitor.log.look, election.longest_row, limits.final_views, lag)
        self._checks = lru_cache(REMEMBERED_CHOICES)(self._concerned)

    def concerns(self, machine: Machine) -> bool:
        return not machine.is_twin

    @property
    def violation(self) -> str:
        """The first violation so far, or a validator that diverged, in words; empty if there is none."""
        return next(chained(self.monitor.log.violations, self.promises.violations, self._diverged), "")

    def forks(self, scenario: Scenario) -> None:
        self._consensus = scenario.consensus

    def ends(self, record: RunRecord) -> None:
        """Note in the run's record what was seen."""
        reached = tuple(sorted(self.pacing.reached | self.models.reached))
        record.monitor = replace(self.monitor.record(), reached=reached)
        record.promises = self.promises.record()
        chain = longest_chain(record.lives)
        ledger = self.monitor.ledger_of(chain)
        record.kept_ledger = None if ledger is None else KeptLedger(chain, ledger, entered=len(chain))

    def sends(self, machine: Machine, recipient: int | None, payload: bytes, content: Reading | None) -> None:
        """Check a message that a machine sends, to one peer or to all."""
        if machine.byzantine is None:
            self.monitor.said(machine.name, machine.tally.starts)
            self._sends_with_restraint(machine, recipient, content)
        if recipient is not None:
            self.answers.sends(machine.index, recipient, machine.own_clock.awake_ms, content)
        if type(content) is TransactionsMessage:
            self.promises.passes_on(machine.index, content.transactions, recipient is None)

    def votes(self, machine: Machine, vote: Vote) -> None:
        if machine.byzantine is None:
            self.vote_watch.sent(machine.index, machine.disk, vote)
            self.patience.sends(machine.index, machine.own_clock.now_ms, vote)
            self.pacing.sends(machine.index, vote)

    def _sends_with_restraint(self, machine: Machine, recipient: int | None, content: Reading | None) -> None:
        watch, index, life, consensus = self.restraint, machine.index, machine.incarnation, self._consensus
        if isinstance(content, Proposal):
            now_ms = machine.own_clock.now_ms
            watch.proposes(index, life, recipient, content.view, now_ms, consensus.leader_timeout_ms)
        elif recipient is not None and machine.validator is not None:
            watch.sends(index, life, machine.validator.node.view, recipient, content)
            if isinstance(content, AnyCertificate):
                size, now_ms = len(encode(content)), machine.own_clock.now_ms
                watch.gives(index, life, recipient, size, now_ms, consensus.rebroadcast_ms)

    def hears(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        self._hearing = None
        if machine.joining is not None:
            self.vote_watch.reported(machine.index, sender.index, content)
        if machine.byzantine is None and machine.validator is not None:
            self._hearing = self._hears(machine, sender, machine.validator, content)

    def heard(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
        self.restraint.heard()
        hearing = self._hearing
        if hearing is not None and (machine.incarnation, machine.view) == (hearing.life, hearing.view):
            self.answers.heard(hearing, machine.own_clock.awake_ms, self._consensus.rebroadcast_ms)

    def counts(self, machine: Machine, sender: Machine, vote: Vote) -> None:
        """Note a peer's notarize or finalize vote that a machine's honest validator counted, without any effect."""
        index, view = machine.index, machine.view
        self.patience.hears_of(index, sender.index, vote.view)
        if sender.byzantine is None:
            if vote.view == view:
                self.restraint.hears_of(index, machine.incarnation, view, vote.signer)
            self.answers.notes(index, machine.incarnation, view, vote, self._limits.view_window)

    def _hears(
        self, machine: Machine, sender: Machine, validator: Validator, content: Reading | None
    ) -> Hearing | None:
        node, index = validator.node, machine.index
        if vote_of(content) is not None:
            is_sound = sender.byzantine is None and sender.deviation is None
            self.patience.hears(index, sender.index, is_sound, machine.own_clock.now_ms, content)
            if sender.byzantine is None and node.diverged is None:
                view = node.view
                self.restraint.hears_vote(index, machine.incarnation, view, content)
                return self.answers.hears(index, machine.incarnation, view, content)
        elif isinstance(content, CertificateRequest | BlockRequest):
            self.restraint.hears(index, node.view, sender.index, content)
        return None

    def starts(self, machine: Machine) -> None:
        """Note that a machine is about to start."""
        self.patience.starts(machine.index)
        self.pacing.starts(machine.index)

    def begins_to_join(self, machine: Machine, nonce: bytes) -> None:
        self.vote_watch.begins_to_join(machine.index, nonce, machine.view)
        self.pacing.loses_journal(machine.index)

    def takes(self, machine: Machine, transactions: Mapping[bytes, bytes]) -> None:
        assert machine.validator is not None, "it answers"
        height, is_honest = machine.validator.node.height, machine.byzantine is None
        self.promises.takes(machine.index, machine.incarnation, height, transactions, is_honest)

    def performs(self, machine: Machine, effect: Any) -> None:
        match effect:
            case Run(job):
                if type(job) is Build:
                    self.promises.builds(machine.index, machine.incarnation, job.view)
            case TransactionDropped(digest, reason):
                self.promises.drops(machine.index, digest, reason)
            case _ if machine.byzantine is None:
                self._performs(machine, effect)

    def _performs(self, machine: Machine, effect: Any) -> None:
        match effect:
            case SetTimer(timer, delay_ms):
                self.pacing.starts_timer(machine.index, timer, delay_ms, self._consensus)
            case Append(data=data):
                for vote in votes_in(data):
                    self.pacing.writes(machine.index, vote)
            case Certified(certificate):
                self.monitor.certified(machine.name, certificate)
                self.pacing.certified(machine.index, certificate.kind)
            case PeerFault(peer, reason):
                self.blames(machine, self._machines[peer], reason)
            case BlockFinal():
                self.finalizes(machine, effect)
            case Joined():
                if machine.joining is not None:
                    self.vote_watch.joined(machine.index, machine.joining.abstain_through)
            case Diverged():
                self._diverged.append(f"{machine.name} diverged")
                self.monitor.diverged(machine.name, machine.tally.starts)

    def handles(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """Check the effects of an event that a machine's validator handled.

        Most events are votes without effects. They matter only if a leader gives up its view.
        """
        validator = machine.validator
        if machine.byzantine is not None or validator is None:
            return
        follows = self.patience.must_follow(machine.index)
        if type(event) is Message:
            if not effects and type(event.content) is Vote:
                if follows and validator.node.diverged is None:
                    self.patience.handled(machine.index, View(validator.node.view), ())
                return
            if event.content is None:
                event = structs.replace(event, content=self._read(event.payload))
        lacks_blocks = machine.index in self.models.lacking
        checks = self._checks(type(event), subject_of(event), kinds_of(effects), follows, lacks_blocks)
        if checks:
            handled = Handled(machine, validator, event, effects, self._read, self._consensus)
            for check in checks:
                check(handled)

    def _concerned(
        self, event: type, subject: type | str, kinds: frozenset[type], follows: bool, lacks_blocks: bool
    ) -> tuple[Check, ...]:
        """The checks that concern an event, by its type, its subject, the kinds of its effects, and what its validator
        must do: follow a leader that gives up the view, or request blocks."""
        checks: list[Check] = [self._check_expiry] if subject in PacingWatch.TIMERS else []
        checks += self.models.checks(event, subject, kinds, lacks_blocks)
        if follows or Append in kinds:
            checks.append(self._check_votes)
        if subject is Certificate:
            checks.append(self._check_forgery)
        if EvidenceFound in kinds:
            checks.append(self._check_blames)
        return tuple(checks)

    def _check_expiry(self, handled: Handled) -> None:
        """Check which votes a validator repeats when a timer expires."""
        if type(handled.event) is Timeout:
            index, timer = handled.machine.index, handled.event.timer
            self.pacing.expires(index, timer, handled.consensus, handled.broadcast)

    def _check_votes(self, handled: Handled) -> None:
        """Check that a validator followed a leader that gave up its view, and note the votes for its journal."""
        node = handled.validator.node
        if node.diverged is None:
            appended = [effect.data for effect in handled.effects if type(effect) is Append]
            votes = [vote for data in appended for vote in votes_in(data)]
            self.patience.handled(handled.machine.index, View(node.view), votes)

    def _check_forgery(self, handled: Handled) -> None:
        """Check that a machine's validator blames the sender of an invalid certificate, if the certificate is of the
        validator's view or of a later one. The validator then ignores the sender's certificates for some views.
        """
        machine, event = handled.machine, handled.event
        certificate = event.content if type(event) is Message else None
        if type(certificate) is not Certificate or certificate.view < machine.view:
            return
        if handled.validator.node.diverged is not None or self.monitor.certificates.is_signed(certificate):
            return
        assert type(event) is Message
        sender = event.sender
        is_blamed = any(type(each) is PeerFault and each.peer == sender for each in handled.effects)
        is_distrusted = self.restraint.distrusts(machine.index, machine.incarnation, machine.view, sender)
        what = f"{machine.name} does not blame {self._names[sender]} for a certificate that does not hold"
        self.monitor.log.look(SafetyRule.BLAMES, is_blamed or is_distrusted, what)

    def _check_blames(self, handled: Handled) -> None:
        """Check that a validator blames the peers that it has evidence of."""
        proved = {
            (effect.culprit, f"evidence_{effect.kind}") for effect in handled.effects if type(effect) is EvidenceFound
        }
        if proved:
            unsaid = proved - {(each.peer, each.reason) for each in handled.effects if type(each) is PeerFault}
            what = f"{handled.machine.name} has proof of what it does not blame its peers for: {sorted(unsaid)}"
            self.monitor.log.look(SafetyRule.BLAMES, not unsaid, what)

    def blames(self, machine: Machine, peer: Machine, reason: str) -> None:
        """Check that a machine's validator is right to report that a peer sent what no honest peer sends."""
        if machine.byzantine is None and machine.deviation == peer.deviation:
            what = f"{machine.name} says {reason} of {peer.name}, which is honest"
            self.monitor.log.look(SafetyRule.BLAMES, peer.byzantine is not None, what)
        if reason == "invalid_block":
            self.patience.rejects(machine.index)
        elif reason == BAD_CERTIFICATE and machine.byzantine is None and machine.validator is not None:
            self.restraint.finds_forged(machine.index, machine.incarnation, machine.validator.node.view, peer.index)

    def enters(self, machine: Machine, view: int) -> None:
        """Check what a machine's validator keeps in memory when it enters a view."""
        consensus, factor = self._consensus, self.pacing.factor(machine.index)
        timeouts = factor * consensus.leader_timeout_ms, factor * consensus.advance_timeout_ms
        self.patience.enters(machine.index, View(view), machine.own_clock.now_ms, *timeouts)
        if machine.byzantine is None and machine.validator is not None:
            node = machine.validator.node
            excess = [
                *excesses(node.consensus_sizes, bounds(view, node.final_view, self._count, self._limits)),
                *excesses(node.mempool.sizes, self._pool_bounds),
            ]
            what = f"{machine.name} keeps too much in view {view}: {', '.join(excess)}" if excess else ""
            self.monitor.log.look(SafetyRule.BOUNDED, not excess, what)

    def finalizes(self, machine: Machine, block: BlockFinal) -> None:
        """Check a block that a machine made final."""
        height = block.height
        assert machine.validator is not None
        executor = machine.validator.executor
        archived = executor.archive.get(height)
        assert archived is not None, "a final block was archived"
        self._final(machine, height, archived)
        self.monitor.counts(machine.name, block)
        self.pruning.finalizes(machine.index, executor)
        if executor.final_header.height == height:
            self._look_at_final_state(machine, executor, height)

    def _look_at_final_state(self, machine: Machine, executor: Executor, height: int) -> None:
        """Check what a validator proves and keeps, at some heights."""
        if self.monitor.wants_proofs(height, machine.index):
            oldest = max(height - self._storage.retained_heights, executor.archive.joined_height)
            self.monitor.check_proofs(machine.name, height, oldest, executor.prove)
        if height % STATE_EVERY_HEIGHTS == 0:
            self.monitor.check_state(machine.name, height, executor.final_view)
            told, used = sum(executor.used_bytes.values()), machine.disk.used_bytes
            what = f"{machine.name} counts {told:,} bytes on its disk, and there are {used:,}"
            self.monitor.log.look(SafetyRule.FIGURES, told == used, what)

    def opens(self, machine: Machine) -> None:
        """Check the newest blocks of a machine that opened its disk: one may have become durable just before a kill."""
        if machine.validator is None or machine.byzantine is not None:
            return
        archive, recovered = machine.validator.executor.archive, machine.validator.executor.recovered_height
        self.pruning.recovers(machine.index, recovered)
        for height in range(max(1, min(self.monitor.height + 1, recovered)), recovered + 1):
            archived = archive.get(height)
            if archived is not None:
                self._final(machine, height, archived)

    def _final(self, machine: Machine, height: int, archived: ArchivedBlock) -> None:
        self.monitor.final(machine.name, height, archived)
        self.promises.finalizes(machine.index, height, archived.block)
