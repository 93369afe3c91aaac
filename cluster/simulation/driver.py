"""Runs a scenario on the simulator.

The same validators, the same load users, the same faults and the same record as the live testnet; instead of sockets
and wall clocks there is one queue of events, and one random source seeded by the run's seed. Load transactions reach
the validators as events of virtual time, without HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from cluster.audit.books import ledger_of, longest_chain, questions
from cluster.audit.served_proofs import Answers, Page, ProofAudit, Unproved, with_answers
from cluster.common.errors import BadInput
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.disks.memory import MemoryDisk
from cluster.faults.engine import FaultEngine
from cluster.faults.link_model import Links
from cluster.misbehaviour.byzantine.base import vote_of
from cluster.misbehaviour.byzantine.registry import Twins, TwinWatch
from cluster.misbehaviour.mutants.base import RunCounter
from cluster.record.archive import BlockRecord
from cluster.record.message_trace import SimulatedTrace
from cluster.record.resources import ResourceLog
from cluster.record.run import Finalization, JoinRecord, Resources, RunRecord, Sample, Supply, ValidatorRecord
from cluster.scenario import Scenario
from cluster.scenario.genesis import build_genesis, validator_set, validator_signer
from cluster.scenario.node_setup import byzantine_of, node_config, parts_of, score_of
from cluster.scenario.sections.release import Release
from cluster.simulation.clock import VirtualClock
from cluster.simulation.garbage_collection import collecting_rarely
from cluster.simulation.machine import Machine, Pace
from cluster.simulation.shared_reader import SharedReader
from cluster.simulation.signatures import RememberingScheme
from cluster.simulation.stage import SimulatedStage
from cluster.simulation.watches.answer_watch import AnswerWatch
from cluster.simulation.watches.memory_watch import bounds, excesses
from cluster.simulation.watches.patience_watch import PatienceWatch
from cluster.simulation.watches.promise_watch import PromiseWatch
from cluster.simulation.watches.safety_monitor import BOUNDED, SafetyMonitor
from cluster.simulation.watches.vote_watch import VoteWatch
from consensus.keys import SCHEMES, SignatureScheme
from consensus.leader import ELECTIONS
from consensus.messages import Proposal
from consensus.types import View
from loadgen.workloads import LoadUser, Observation
from validator.chain.messages import Reading, TransactionsMessage
from validator.node.assembly import Validator, open_validator
from validator.node.events import (
    BlockFinal,
    Certified,
    Diverged,
    Effect,
    Joined,
    PeerFault,
    Reply,
    Run,
    SubmitResult,
    TransactionDropped,
)
from validator.node.executor import Build, Execute
from validator.node.joining import JOIN_NONCE_BYTES, SnapshotJoin
from validator.node.queries import FinalityPage, StatePages
from validator.primitives.types import ValidatorError, parse_address
from validator.state import HistoryError
from validator.state.proofs.proof import ProofError
from validator.storage.archive import ArchivedBlock

CLIENT_DELAY_US: Final = 2 * MICROSECONDS_PER_MILLISECOND
"""From a client to its validator."""
MAX_TWIN_DELAY_US: Final = 20 * MICROSECONDS_PER_MILLISECOND
"""How much later than its validator a twin gets a message, at most."""
SAMPLE_EVERY_MS: Final = 500
LOAD_STARTS_MS: Final = 500
ALL_BLOCKS: Final = 10**9
CHECKPOINT_DIGITS: Final = 16
"""Hex digits of the digest that are kept for each height."""
NORMAL_PACE: Final = Pace()
FIRST_RELEASE: Final = Release()


@dataclass(frozen=True, slots=True)
class _Submission:
    user: LoadUser
    wires: tuple[bytes, ...]


class _Watches(NamedTuple):
    monitor: SafetyMonitor
    votes: VoteWatch
    promises: PromiseWatch
    answers: AnswerWatch
    patience: PatienceWatch


class Simulation:
    """One run. ``run`` returns its record."""

    machine_class: type[Machine] = Machine

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        commit: str,
        on_sample: Callable[[Sample], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        scheme: SignatureScheme | None = None,
        checkpoint: Callable[[], None] | None = None,
        pace: Pace = NORMAL_PACE,
    ) -> None:
        """``pace`` is how long every machine's own work takes.

        Raises :class:`BadInput` for a fault that the simulator cannot perform.
        """
        if problem := scenario.simulator_problem:
            raise BadInput(f"{scenario.name}: {problem}")
        self.scenario = scenario
        """What applies: forks change it."""
        self._given = scenario
        self._forks_taken = 0
        self._fork_is_due = False
        self._pace = pace
        self._limit_us = _limit_us(scenario)
        self._checkpoint = checkpoint
        self.on_event: Callable[[str], None] | None = None
        """Gets every event's trace line (:meth:`VirtualClock.trace_line`)."""
        self.clock = VirtualClock()
        self.random = Random(seed)
        self.links = self._make_links()
        self._on_sample, self._on_notice = on_sample, on_notice
        self._scheme = SCHEMES[scenario.consensus.signatures]() if scheme is None else scheme
        self._reader = SharedReader()
        self._validators = validator_set(RememberingScheme(self._scheme), scenario, seed)
        self._genesis = build_genesis(scenario, seed, self._validators)
        self.record = RunRecord(scenario, "sim", seed, commit, self._genesis, self._scheme)
        self.record.given = scenario if scenario.forks else None
        names, late = scenario.validators.names, scenario.validators.late
        self._joins = {index: JoinRecord(names[index], height) for index, height in late.items()}
        self.record.joins = list(self._joins.values())
        self._releases: dict[int, Release] = {}
        """What upgraded machines run."""
        self.machines = [self._machine(index, name) for index, name in enumerate(scenario.validators.names)]
        self._twins = self._make_twins()
        self.monitor, self._votes, self._promises, self._answers, self._patience = self._make_watches(names)
        self._served = [machine for machine in self.machines if machine.index not in late]
        """Whom the load speaks to: those that are there from the genesis on."""
        self._users = scenario.load.build_users(seed, self._genesis.chain_id, self._genesis.parameters)
        self._submissions: dict[int, _Submission] = {}
        self._request = 0
        self._load_running = True
        self._best_height = 0
        self._late = dict(scenario.validators.late)
        self._may_be_over = False
        """Whether something happened since the last look that may end the run."""
        self.clock.deliver = self._deliver
        self._everybody = range(len(self.machines))
        self._resources = ResourceLog(self.record)
        self.stage = SimulatedStage(
            clock=self.clock,
            random=self.random,
            links=self.links,
            names=names,
            machines=self.machines,
            join=self._join,
            install=self._install,
            best_height=lambda: self._best_height,
            notice=self._notice,
            keep=lambda index: self.record.lost.append(self._record_of(self.machines[index])),
        )
        self.stage.expect(scenario.planned_faults)
        self.faults = FaultEngine(scenario, self.stage)
        self.record.faults = self.faults.records
        self.trace = SimulatedTrace(self.record)
        self._let_watches_look()

    def run(self) -> RunRecord:
        """Run to the scenario's end, in virtual time; what was reached is recorded even where it stops short."""
        with collecting_rarely():
            self._run()
            self._collect()
        return self.record

    def _run(self) -> None:
        try:
            self.begin()
            self.clock.keeps_labels = self.on_event is not None
            while self.advance():
                if self.on_event is not None:
                    self.on_event(self.clock.trace_line())
                if self._checkpoint is not None:
                    self._checkpoint()
        except KeyboardInterrupt:
            self.record.interrupted = True

    def begin(self) -> None:
        """Start everybody who is there from the genesis on."""
        self.trace.windows.begin()
        for machine in self.machines:
            if machine.index not in self._late:
                machine.start()
        for twin in self._twins.values():
            twin.start()
        for user in self._users:
            self._schedule_user(user, LOAD_STARTS_MS + user.first_delay_ms)
        self._schedule_sample()
        self.faults.schedule()

    def advance(self) -> bool:
        """Perform the next event; ``False`` where the run is over."""
        if self.clock.now_us >= self._limit_us or (self._may_be_over and self._is_over()):
            return False
        has_stepped = self.clock.step()
        if self._fork_is_due:
            self.take_fork(self._forks_taken)
        return has_stepped

    def take_fork(self, number: int) -> None:
        """Let other settings apply from the next event on. Raises :class:`BadInput` where they change the past."""
        fork = self._given.forks[number]
        after = self._given.after_fork(number)
        try:
            self.faults.become(after)
        except ValueError as error:
            raise BadInput(f"forks[{number}].changes: {error}") from None
        self.stage.expect(after.planned_faults)
        self.record.former.append(self.scenario)
        self.scenario = self.record.scenario = after
        self._limit_us = _limit_us(after)
        if after.links != self.record.former[-1].links:
            self.links.become(after.network)
        for machine in (*self.machines, *self._twins.values()):
            if machine.validator is not None:
                mutant = self._releases.get(machine.index, FIRST_RELEASE).mutant
                config = node_config(after, machine.index, machine.tally.mutant_runs, mutant)
                machine.validator.node.configure(config)
        if fork.seed is not None:
            self._reseed(fork.seed)
        self._forks_taken = number + 1
        self._look_for_a_fork()
        self._notice(f"height {self._best_height}: other settings apply from here on")

    def _look_for_a_fork(self) -> None:
        coming = self._given.forks[self._forks_taken :]
        self._fork_is_due = bool(coming) and self._best_height >= coming[0].at_height

    def _reseed(self, seed: int) -> None:
        """Draw everything anew from now on: the network, the faults, the users, the byzantine."""
        self.random.seed(f"{seed}/fork")
        for user in self._users:
            user.reseed(seed)
        for machine in self.machines:
            twin = self._twins.get(machine.index)
            if machine.byzantine is not None:
                machine.byzantine.reseed(f"{seed}/{machine.index}")
            if twin is not None and twin.byzantine is not None:
                twin.byzantine.reseed(f"{seed}/{machine.index}/twin")

    # --- set-up -------------------------------------------------------------------------------------------------------

    def _make_links(self) -> Links:
        return Links(self.scenario.network, self.random)

    def _make_watches(self, names: Sequence[str]) -> _Watches:
        namespace = self._genesis.chain_id.encode()
        leader = ELECTIONS[self.scenario.consensus.leader_election](self._validators, namespace).leader
        monitor = SafetyMonitor(self._validators, namespace, self._genesis, leader, lambda: self.clock.now_ms)
        votes = VoteWatch(names, self._validators, namespace, monitor.look)
        promises = PromiseWatch(names, lambda: monitor.ledger, lambda: self.clock.now_ms)
        skips = self.scenario.consensus.protocol == "simplex"
        answers = AnswerWatch(names, monitor.look)
        return _Watches(monitor, votes, promises, answers, PatienceWatch(names, leader, monitor.look, skips))

    def _let_watches_look(self) -> None:
        for machine in self.machines:
            machine.starts, machine.entered = self._patience.starts, self._note_view
            machine.opened = self._watch_recovered

    def _join(self, index: int, disk: MemoryDisk) -> SnapshotJoin:
        mutant = self._releases.get(index, FIRST_RELEASE).mutant
        parts = parts_of(self.scenario, index, self.machines[index].tally.mutant_runs, mutant)
        nonce = self.random.randbytes(JOIN_NONCE_BYTES)
        self._votes.begins_to_join(index, nonce, self.machines[index].view)
        return parts.join(disk, index, self._validators, self._genesis.chain_id, nonce=nonce)

    def _install(self, index: int, release: Release) -> None:
        """From its next start on a machine runs other code."""
        self._releases[index] = release
        self.machines[index].tally.version = release.version

    def _pace_of(self, index: int) -> Pace:
        """How long a machine's own work takes, and how fast its clock runs."""
        node, usual = self.scenario.validators.node(index), self._pace
        return Pace(
            sync_us=usual.sync_us if node.sync_ms is None else node.sync_ms * MICROSECONDS_PER_MILLISECOND,
            job_us=usual.job_us if node.job_ms is None else node.job_ms * MICROSECONDS_PER_MILLISECOND,
            clock_speed=usual.clock_speed if node.clock_speed is None else node.clock_speed,
        )

    def _machine(self, index: int, name: str) -> Machine:
        counter = RunCounter()
        signer = validator_signer(self._scheme, self.record.seed, index)

        def boot(disk: MemoryDisk) -> Validator:
            mutant = self._releases.get(index, FIRST_RELEASE).mutant
            parts = parts_of(self.scenario, index, counter, mutant)
            config = node_config(self.scenario, index, counter, mutant)
            return open_validator(disk, self._genesis, index, signer, self._validators, config, parts)

        machine = self.machine_class(
            index, name, self.clock, boot, self._send, self._observe, failed=self._failed, pace=self._pace_of(index)
        )
        if index in self.scenario.validators.late:
            machine.join = lambda disk: self._join(index, disk)
        machine.tally.mutant_runs = counter
        machine.tally.byzantine = score = score_of(self.scenario, index)
        machine.byzantine = byzantine_of(self.scenario, self.record.seed, index, self._validators, score)
        return machine

    def _failed(self, index: int, error: ValidatorError) -> None:
        """A machine stopped by itself: its disk failed, or what is on it is wrong."""
        self.machines[index].crash(self.random)
        if not self.faults.on_failed(index, str(error)):
            self.record.problems.append(f"{self.machines[index].name} stopped: {error}")

    def _make_twins(self) -> dict[int, Machine]:
        """The second machines of those validators that have a twin, by index, not started yet."""
        names = [self.scenario.validators.node(machine.index).byzantine for machine in self.machines]
        return {m.index: self._twin(m) for m, named in zip(self.machines, names, strict=True) if Twins.name in named}

    def _twin(self, machine: Machine) -> Machine:
        """A second machine with the same key; both tell a watch what they send."""
        score = machine.tally.byzantine
        assert score is not None
        watch = TwinWatch(score)

        def sender(instance: int) -> Callable[[int, int | None, bytes], None]:
            def send(index: int, recipient: int | None, payload: bytes) -> None:
                watch.note(instance, payload)
                self._send(index, recipient, payload)

            return send

        machine.send = sender(0)
        twin = self.machine_class(
            machine.index,
            f"{machine.name} (twin)",
            self.clock,
            machine.boot,
            sender(1),
            _ignore,
            pace=self._pace_of(machine.index),
        )
        twin.byzantine = byzantine_of(
            self.scenario, self.record.seed, machine.index, self._validators, score, machine.byzantine
        )
        return twin

    # --- the network --------------------------------------------------------------------------------------------------

    def _send(self, sender: int, recipient: int | None, payload: bytes) -> None:
        recipients = self._everybody if recipient is None else (recipient,)
        content, machine = self._reader.read(payload), self.machines[sender]
        if machine.byzantine is None:
            self.monitor.said(machine.name, machine.tally.starts)
            self._votes.sent(sender, machine.disk, content)
            self._patience.sends(sender, machine.own_ms, content)
        if self.faults.is_listening and (vote := vote_of(content)) is not None:
            self.faults.on_vote(sender, vote.view, vote.kind)
        if recipient is not None:
            self._answers.sends(sender, recipient, machine.own_ms, content)
        if isinstance(content, TransactionsMessage):
            self._promises.passes_on(sender, content.transactions, recipient is None)
        arrivals = self.links.arrivals(sender, recipients, len(payload), self.clock.now_us)
        later_us = self.stage.leader_delay_us(sender)
        if later_us:
            arrivals = [(target, at_us + later_us) for target, at_us in arrivals]
        self.trace.sent(self.clock.now_us, sender, recipients, payload, arrivals)
        self.clock.send(sender, payload, arrivals)

    def _deliver(self, sender: int, recipient: int, payload: bytes) -> None:
        content = self._reader.read(payload)
        if self.machines[recipient].joining is not None:
            self._votes.reported(recipient, sender, content)
        self._let_hear(self.machines[recipient], sender, payload, content)
        twin = self._twins.get(recipient)
        if twin is not None:  # it stands somewhere else
            delay_us = self.random.randrange(MAX_TWIN_DELAY_US)
            self.clock.after(delay_us, f"{sender}>{recipient} twin", payload, lambda: twin.receive(sender, payload))

    def _let_hear(self, machine: Machine, sender: int, payload: bytes, content: Reading | None) -> None:
        """Give a machine a message, and see whether it answers where it has to."""
        hearing = None
        if machine.byzantine is None and not machine.is_paused and machine.validator is not None:
            node, is_sound = machine.validator.node, isinstance(content, Proposal) and self._is_sound(sender)
            self._patience.hears(machine.index, sender, is_sound, machine.own_ms, content)
            if self.machines[sender].byzantine is None and node.diverged is None:
                hearing = self._answers.hears(machine.index, machine.incarnation, node.view, content)
        machine.receive(sender, payload, content)
        if hearing is not None and (machine.incarnation, machine.view) == (hearing.life, hearing.view):
            self._answers.heard(hearing, machine.own_ms, self.scenario.consensus.rebroadcast_ms)

    def _is_sound(self, index: int) -> bool:
        """Whether a validator is honest and runs the code without a mutant."""
        planted = self.scenario.validators.node(index).mutant, self._releases.get(index, FIRST_RELEASE).mutant
        return self.machines[index].byzantine is None and planted == (None, None)

    def _observe(self, index: int, effect: Effect) -> None:
        match effect:
            case Certified(certificate) if self.machines[index].byzantine is None:
                self.monitor.certified(self.machines[index].name, certificate)
            case BlockFinal(height=height, reorg_depth=depth):
                self.record.note_reorg(index, height, depth)
                if self.machines[index].byzantine is None:
                    self._watch_final(self.machines[index], height)
                self._may_be_over = True
                self.stage.on_final(index)
                self.faults.on_progress()
                self.record.finalizations.append(Finalization(self.clock.now_ms, index, height))
                if height > self._best_height:
                    self._best_height = height
                    self._on_new_height()
            case Joined(height=height):
                self._may_be_over = True
                if self.machines[index].byzantine is None:
                    self._votes.joined(index)
                self._note_joined(index, height)
                self.faults.on_up()
            case Diverged():
                self.monitor.diverged(self.machines[index].name, self.machines[index].tally.starts)
                self._may_be_over = True
                self.faults.on_progress()
            case Run(job=Build() | Execute() as job):
                self._note_proposal(index, job)
                if isinstance(job, Build):
                    self._promises.builds(index, self.machines[index].incarnation, job.view)
            case PeerFault(reason="invalid_block"):
                self._patience.rejects(index)
            case _:
                self._observe_transactions(index, effect)

    def _observe_transactions(self, index: int, effect: Effect) -> None:
        match effect:
            case Reply(request, results):
                self._on_reply(self.machines[index], self._submissions.pop(request), results)
            case TransactionDropped(transaction_hash=digest, reason=reason):
                self._promises.drops(index, digest, reason)
            case _:
                pass

    def _note_view(self, index: int, view: int) -> None:
        self.trace.windows.entered(self.clock.now_ms, index, view)
        machine, consensus = self.machines[index], self.scenario.consensus
        timeouts = consensus.leader_timeout_ms, consensus.advance_timeout_ms
        self._patience.enters(index, View(view), machine.own_ms, *timeouts)
        if machine.byzantine is None and machine.validator is not None:
            node = machine.validator.node
            excess = list(excesses(node.consensus_sizes, bounds(view, node.final_view, len(self.machines))))
            what = f"{machine.name} keeps too much in view {view}: {', '.join(excess)}"
            self.monitor.look(BOUNDED, not excess, what)

    def _watch_final(self, machine: Machine, height: int) -> None:
        assert machine.validator is not None
        executor = machine.validator.executor
        archived = executor.archive.get(height)
        assert archived is not None, "a final block was archived"
        self._note_final(machine, height, archived)
        if self.monitor.wants_proofs(height, machine.index) and executor.final_header.height == height:
            self.monitor.check_proofs(machine.name, height, executor.prove)

    def _watch_recovered(self, index: int) -> None:
        """What a disk held is final, too: a block that became durable right before a kill was told to nobody."""
        machine = self.machines[index]
        if machine.validator is None or machine.byzantine is not None:
            return
        archive, recovered = machine.validator.executor.archive, machine.validator.executor.recovered_height
        for height in range(max(1, min(self.monitor.height + 1, recovered)), recovered + 1):
            archived = archive.get(height)
            if archived is not None:
                self._note_final(machine, height, archived)

    def _note_final(self, machine: Machine, height: int, archived: ArchivedBlock) -> None:
        self.monitor.final(machine.name, height, archived)
        self._promises.finalizes(machine.index, height, archived.block)

    def _note_proposal(self, index: int, job: Build | Execute) -> None:
        """A height's block was first seen anywhere: when building it began."""
        if isinstance(job, Execute):
            height = job.block.header.height
        else:
            validator = self.machines[index].validator
            assert validator is not None, "it asked for a block"
            parent_height = validator.executor.height_of(job.parent)
            if parent_height is None:
                return  # it was overtaken
            height = parent_height + 1
        self.record.proposals.setdefault(height, self.clock.now_ms)

    # --- heights and joins --------------------------------------------------------------------------------------------

    def _on_new_height(self) -> None:
        self.record.checkpoints[self._best_height] = self.clock.digest()[:CHECKPOINT_DIGITS]
        self._look_for_a_fork()
        self.faults.on_new_height(self._best_height)
        self.trace.look(self.clock.now_ms, self._best_height)
        for index in [index for index, height in self._late.items() if self._best_height >= height]:
            del self._late[index]
            self.clock.after(0, f"join {index}", b"", lambda machine=self.machines[index]: self._begin_join(machine))  # type: ignore[misc]
        if self._best_height >= self.scenario.stop.height and self._load_running:
            self._load_running = False
            self._notice(self.record.drain_notice(self._best_height))

    def _begin_join(self, machine: Machine) -> None:
        self._notice(self._joins[machine.index].begin(self.clock.now_ms, self._best_height))
        machine.start()

    def _note_joined(self, index: int, height: int) -> None:
        record = self._joins.get(index)
        if record is None or record.ended_ms is not None:
            return  # it joined because its disk was lost
        chunks = dict(self.machines[index].tally.chunks)
        self._notice(record.end(self.clock.now_ms, self._best_height, height, chunks))

    # --- load ---------------------------------------------------------------------------------------------------------

    def _schedule_user(self, user: LoadUser, delay_ms: int) -> None:
        delay_us = delay_ms * MICROSECONDS_PER_MILLISECOND
        self.clock.after(delay_us, f"user {user.number}", b"", lambda: self._turn(user))

    def _turn(self, user: LoadUser) -> None:
        if not self._load_running:
            return
        self._schedule_user(user, user.next_delay_ms())
        machine = self._served[(user.number + self.random.randrange(len(self._served))) % len(self._served)]
        if machine.validator is None or machine.is_paused:
            self.record.load.requests += 1
            self.record.load.failures += 1
            return
        wires = tuple(user.next_transactions(_observation(machine.validator, user)))
        if not wires:
            return
        self.record.load.requests += 1
        self._request += 1
        request = self._request
        self._submissions[request] = _Submission(user, wires)
        label = f"submit {user.number}>{machine.index}"
        self.clock.after(CLIENT_DELAY_US, label, b"".join(wires), lambda: self._submit(machine, request))

    def _submit(self, machine: Machine, request: int) -> None:
        submission = self._submissions[request]
        if machine.is_up:
            self.record.load.transactions_sent += len(submission.wires)
            machine.submit(request, submission.wires)
        else:
            self.record.load.failures += 1
            submission.user.undelivered(list(submission.wires))

    def _on_reply(self, machine: Machine, submission: _Submission, results: Sequence[SubmitResult]) -> None:
        """A client is told what became of its transactions."""
        taken: dict[bytes, bytes] = {}
        for wire, result in zip(submission.wires, results, strict=True):
            if result.error is None:
                taken[result.transaction_hash] = wire
            else:
                self.record.load.transactions_rejected += 1
                submission.user.rejected(wire)
        if taken:
            assert machine.validator is not None, "it answers"
            height, is_honest = machine.validator.node.height, machine.byzantine is None
            self._promises.takes(machine.index, machine.incarnation, height, taken, is_honest)

    # --- samples and the end ------------------------------------------------------------------------------------------

    def _schedule_sample(self) -> None:
        self.clock.after(SAMPLE_EVERY_MS * MICROSECONDS_PER_MILLISECOND, "sample", b"", self._sample)

    def _sample(self) -> None:
        self._schedule_sample()
        best = max(self.machines, key=lambda m: (m.tally.newest.height if m.tally.newest else 0, -m.index))
        newest, tally = best.tally.newest, best.tally
        sample = Sample(
            at_ms=self.clock.now_ms,
            heights=tuple(m.validator.node.height if m.validator else None for m in self.machines),
            fires=tally.fires,
            transactions=tally.executed_transactions,
            pending_timers=tally.pending_timers,
            backlog=tally.backlog,
            basefee_cycle=newest.basefee_cycle if newest else 0,
            basefee_lane_timer=newest.basefee_lane_timer if newest else 0,
            lane_share=newest.lane_cycles / self._genesis.parameters.lane_timer_cycles if newest else 0.0,
            views=tuple(m.validator.node.view if m.validator else None for m in self.machines),
            states=tuple(m.state_word for m in self.machines),
            faults=self.record.faults_under_way,
        )
        self.record.samples.append(sample)
        self.trace.look(self.clock.now_ms, self._best_height)
        self._note_resources()
        if self._on_sample is not None:
            self._on_sample(sample)

    def _note_resources(self) -> None:
        now_ms, sent_by = self.clock.now_ms, self.trace.sent_by
        for machine in self.machines:
            if self._resources.is_due(now_ms, machine.index):
                self._resources.note(Resources(now_ms, machine.index, machine.disk.used_bytes, sent_by[machine.index]))

    def _is_over(self) -> bool:
        """Whether every validator that still takes part has drained."""
        goal = self.scenario.stop.height + self.scenario.stop.drain_blocks
        self._may_be_over = False
        if self._best_height < goal:
            return False
        awaited = [machine for machine in self.machines if machine.byzantine is None]
        if any(not machine.is_up for machine in awaited) or not self.faults.are_over:
            return False
        nodes = [machine.validator.node for machine in awaited if machine.validator is not None]
        heights = [node.height for node in nodes if node.diverged is None]
        return all(height >= goal for height in heights) and (
            not heights or min(heights) > self.record.height_when_healed
        )

    def _collect(self) -> None:
        record = self.record
        for fork in self._given.forks[self._forks_taken :]:
            record.problems.append(f"the fork at height {fork.at_height} was never reached")
        record.duration_ms, record.digest = self.clock.now_ms, self.clock.digest()
        self.trace.look(self.clock.now_ms, self._best_height)
        self.trace.windows.close(self.clock.now_ms)
        record.metrics["events"] = self.clock.events
        record.monitor = self.monitor.record()
        record.promises = self._promises.record()
        record.metrics["messages_sent"] = self.links.sent
        record.metrics["messages_dropped"] = self.links.dropped
        for machine in self.machines:
            found = self._record_of(machine)
            found.mutant_runs = machine.tally.mutant_runs.runs
            if machine.validator is None:
                record.problems.append(f"{machine.name} was still down at the end")
            else:
                found.status = machine.status()
                diverged = machine.tally.diverged
                found.trace = b"" if diverged is None else diverged.trace
            record.validators.append(found)
        record.note_mutants()
        self._ask()

    def _record_of(self, machine: Machine) -> ValidatorRecord:
        """The blocks that a machine serves; none where it is down."""
        byzantine = tuple(self.scenario.validators.node(machine.index).byzantine)
        found = ValidatorRecord(machine.name, machine.index, byzantine=byzantine)
        if machine.validator is not None:
            executor = machine.validator.executor
            found.first_height = executor.archive.first_height + 1
            while taken := executor.pages.blocks(found.first_height + len(found.blocks), ALL_BLOCKS):
                found.blocks.extend(BlockRecord(*item) for item in taken)
        return found

    def _ask(self) -> None:
        """What the checks want to know of everybody's final state."""
        chain = longest_chain(self.record.lives)
        ledger = self.monitor.ledger_of(chain) or ledger_of(self._genesis, chain)
        asked, audit = questions(self._genesis, chain, ledger), ProofAudit(self.record, chain, ledger)
        proved = [Answers(found.name) for found in self.record.validators]
        for machine, found, answers in zip(self.machines, self.record.validators, proved, strict=True):
            if machine.validator is None:
                continue
            pages = machine.validator.executor.pages
            found.balances = {text: pages.account(parse_address(text))["balance"] for text in asked.accounts}
            found.supply = Supply.of(pages.supply())
            found.pending_timers = {text: pages.is_pending(bytes.fromhex(text)) for text in asked.timers}
            for _ in audit.ask(found, _Pages(pages), answers):
                pass
        self.record.monitor = with_answers(self.record.monitor, proved)

    def _notice(self, text: str) -> None:
        if self._on_notice is not None:
            self._on_notice(text)


class _Pages:
    """What a machine's validator serves of proofs (:class:`cluster.audit.served_proofs.Server`)."""

    def __init__(self, pages: StatePages) -> None:
        self._pages = pages

    def finality(self, height: int) -> FinalityPage | None:
        return self._pages.finality(height)

    def proof(self, key: bytes, height: int) -> Page:
        try:
            return self._pages.proof(key, height)
        except (HistoryError, ProofError) as error:
            raise Unproved(str(error)) from None


def _ignore(index: int, effect: Effect) -> None:
    """Nobody watches a twin."""


def _limit_us(scenario: Scenario) -> int:
    """When a run's time is up."""
    return scenario.stop.timeout_s * 1_000 * MICROSECONDS_PER_MILLISECOND


def _observation(validator: Validator, user: LoadUser) -> Observation:
    header, pages = validator.executor.final_header, validator.executor.pages
    watched = pages.account(user.actor)
    return Observation(
        height=header.height,
        confirmed_nonce=pages.account(user.address)["nonce"],
        basefee_cycle=int.from_bytes(header.basefee_cycle, "big"),
        basefee_cell=int.from_bytes(header.basefee_cell, "big"),
        basefee_lane_timer=int.from_bytes(header.basefee_lane_timer, "big"),
        live_timers=watched["live_timers"],
        open_jobs=tuple(map(bytes.fromhex, watched["open_jobs"])),
    )


def simulate(
    scenario: Scenario,
    seed: int,
    commit: str = "unknown",
    on_sample: Callable[[Sample], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
    checkpoint: Callable[[], None] | None = None,
) -> RunRecord:
    """Run a scenario on the simulator. Equal scenarios and seeds give equal records and digests.

    ``checkpoint`` is called between events and may raise :class:`KeyboardInterrupt` to end the run early.
    """
    return Simulation(scenario, seed, commit, on_sample, on_notice, checkpoint=checkpoint).run()
