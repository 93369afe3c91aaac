"""A simulation whose validators are watched, and all its watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cluster.audit.books import KeptLedger
from cluster.audit.chains import longest_chain
from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.rule_log import RuleLog
from cluster.common.errors import BadInput
from cluster.record.run import RunRecord, Sample, Step, ignore
from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from cluster.simulation.recorder import Steps
from cluster.watches.answer_watch import AnswerWatch
from cluster.watches.blame_watch import BlameWatch
from cluster.watches.catch_up_watch import CatchUpWatch
from cluster.watches.execution_watch import ExecutionWatch
from cluster.watches.kept_watch import MemoryWatch, PruningWatch
from cluster.watches.mempool_watch import MempoolWatch
from cluster.watches.pacing_watch import PacingWatch
from cluster.watches.patience_watch import PatienceWatch
from cluster.watches.promise_watch import PromiseWatch
from cluster.watches.restraint_watch import RestraintWatch
from cluster.watches.safety_monitor import SafetyMonitor
from cluster.watches.vote_watch import VoteWatch
from cluster.watches.watch import Choice, Read, Watch
from consensus.keys import ValidatorSet
from consensus.leader import ELECTIONS
from validator.policies.own import PolicyError


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


class WatchedSimulation(Simulation):
    """A simulation whose record has what the watches found."""

    watches: Watches

    def _watches(self) -> Iterable[Observer]:
        self.watches = Watches(
            self.record, self.keys, lambda: self.clock.now_ms, self.network.reader.read, self.machines
        )
        return self.watches.observers


def simulate(
    scenario: Scenario,
    seed: int,
    commit: str = "unknown",
    on_sample: Callable[[Sample], None] | None = None,
    on_notice: Callable[[str], None] = ignore,
    checkpoint: Callable[[], None] | None = None,
    stop_on_fail: bool = False,
    shortcuts: bool = False,
    on_step: Callable[[Step], None] | None = None,
    on_begin: Callable[[RunRecord], None] = ignore,
    on_event: Callable[[str], None] | None = None,
) -> RunRecord:
    """Run a scenario on the simulator. Equal scenarios and seeds give equal records and digests.

    ``shortcuts`` changes neither. ``on_begin`` is called with the record before the run begins, ``on_step`` with each
    validator's steps, ``on_event`` with every event's trace line. ``checkpoint`` is called between events and may raise
    :class:`KeyboardInterrupt` to end the run early. With ``stop_on_fail`` the first violation of a rule seen during the
    run ends it.

    Raises :class:`BadInput` if a policy or workload of the user's raises an exception.
    """
    run = WatchedSimulation(
        scenario,
        seed,
        commit,
        on_sample,
        on_notice,
        checkpoint=checkpoint,
        shortcuts=shortcuts,
        stop_on_fail=stop_on_fail,
        on_event=on_event,
    )
    if on_step is not None:
        run.observe(Steps(run.clock, on_step))
    on_begin(run.record)
    try:
        return run.run()
    except PolicyError as error:
        raise BadInput(str(error)) from None
    finally:
        run.close()
