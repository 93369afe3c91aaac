"""All watches of a simulated run, and what they found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cluster.audit.books import KeptLedger
from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.rule_log import RuleLog
from cluster.audit.served.chains import longest_chain
from cluster.record.run import RunRecord
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from cluster.watches.answer_watch import AnswerWatch
from cluster.watches.blame_watch import BlameWatch
from cluster.watches.handled import Choice, Read
from cluster.watches.memory_watch import MemoryWatch
from cluster.watches.models.catch_up_watch import CatchUpWatch
from cluster.watches.models.execution_watch import ExecutionWatch
from cluster.watches.models.mempool_watch import MempoolWatch
from cluster.watches.pacing_watch import PacingWatch
from cluster.watches.patience_watch import PatienceWatch
from cluster.watches.promise_watch import PromiseWatch
from cluster.watches.pruning_watch import PruningWatch
from cluster.watches.restraint_watch import RestraintWatch
from cluster.watches.safety_monitor import SafetyMonitor
from cluster.watches.vote_watch import VoteWatch
from cluster.watches.watch import Watch
from consensus.keys import ValidatorSet
from consensus.leader import ELECTIONS


class Watches(Observer):
    """The safety monitor and the other watches of one run. :attr:`observers` has them all, this included."""

    def __init__(
        self,
        record: RunRecord,
        validators: ValidatorSet,
        now_ms: Callable[[], float],
        read: Read,
        machines: Sequence[Machine],
    ) -> None:
        scenario, genesis = record.scenario, record.genesis
        names, namespace, limits = scenario.validators.names, genesis.chain_id.encode(), scenario.limits
        election = ELECTIONS[scenario.consensus.leader_election](validators, namespace)
        leader, log = election.leader, RuleLog(now_ms)
        self.promises = PromiseWatch(names, lambda: self.monitor.ledger, now_ms, limits)
        self.monitor = SafetyMonitor(
            CertifiedChain(validators, namespace, leader, log),
            genesis,
            log,
            scenario.storage.retained_heights,
            self.promises.finalizes,
        )
        votes = VoteWatch(names, log.look, validators, namespace)
        restraint = RestraintWatch(names, log.look, scenario, validators, leader)
        pacing = PacingWatch(names, log.look, scenario, election.longest_row, read)
        catch_up = CatchUpWatch(names, log.look, read)
        judging: tuple[Watch, ...] = (
            pacing,
            MempoolWatch(names, log.look, scenario, genesis, read),
            ExecutionWatch(names, log.look, limits.journal_blocks),
            catch_up,
            BlameWatch(names, log.look, machines, self.monitor.certificates.is_signed, restraint.distrusts),
        )
        self.choice = Choice(judging, catch_up, catch_up.lacking, read)
        self._judging = judging
        self.observers: tuple[Observer, ...] = (
            self.monitor,
            votes,
            self.promises,
            AnswerWatch(names, log.look, scenario),
            restraint,
            PatienceWatch(names, log.look, scenario, leader, votes.may_vote, pacing.factor),
            PruningWatch(names, log.look, scenario.storage.keep_blocks),
            MemoryWatch(names, log.look, limits),
            *judging,
            self.choice,
            self,
        )

    @property
    def violation(self) -> str:
        """The first violation so far, or a validator that diverged, in words; empty if there is none."""
        found = (*self.monitor.log.violations, *self.promises.violations, *self.monitor.divergences)
        return found[0] if found else ""

    def ends(self, record: RunRecord) -> None:
        """Note in the run's record what was seen."""
        reached = frozenset().union(*(watch.reached for watch in self._judging))
        record.monitor = replace(self.monitor.record(), reached=tuple(sorted(reached)))
        record.promises = self.promises.record()
        chain = longest_chain(record.lives)
        ledger = self.monitor.ledger_of(chain)
        record.kept_ledger = None if ledger is None else KeptLedger(chain, ledger, entered=len(chain))
