"""Runs a scenario on the simulator.

It uses the same validators, load users, faults and record as the live testnet. Instead of sockets and wall clocks it
has one queue of events, and one random source seeded by the run's seed. Load transactions reach the validators as
events of virtual time, without HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

from cluster.common.errors import BadInput, HarnessError
from cluster.common.units import MICROSECONDS_PER_MILLISECOND, MICROSECONDS_PER_SECOND
from cluster.disks.installed_kernels import use_installed_kernels
from cluster.disks.memory import MemoryDisk
from cluster.faults.events import Failed, Voted
from cluster.faults.link_faults import LinkFaults
from cluster.faults.link_model import Links
from cluster.misbehaviour.byzantine.base import vote_of
from cluster.misbehaviour.byzantine.registry import Twins, TwinWatch
from cluster.misbehaviour.mutants.base import RunCounter
from cluster.record.finalizations import Finalization
from cluster.record.run import (
    CATCH_UP_SLACK_HEIGHTS,
    VOTE_STEPS,
    RunRecord,
    Sample,
    Step,
    StepKind,
    ignore,
    note_crash,
)
from cluster.run.events import (
    End,
    ForkTaken,
    JoinBegun,
    JoinEnded,
    Left,
    NewHeight,
    Order,
    Seen,
    Standing,
    Standings,
    StopLoad,
    TakeFork,
    Time,
    Up,
    Violation,
)
from cluster.run.feed import Feed
from cluster.run.loop import RunLoop
from cluster.scenario import Scenario
from cluster.scenario.genesis import build_genesis, validator_set, validator_signer
from cluster.scenario.node_setup import FULL_SPEED, Pace, byzantine_of, node_config, pace_of, parts_of, score_of
from cluster.simulation.clock import VirtualClock
from cluster.simulation.load import Load
from cluster.simulation.machine import USUAL_PACE, Machine
from cluster.simulation.measured_work import measured_times, start_of
from cluster.simulation.recorder import Recorder
from cluster.simulation.shared_executions import SharedExecutions
from cluster.simulation.simulated_stage import SimulatedStage, Starts
from cluster.simulation.watches.watches import Watches
from consensus.keys import SCHEMES, SignatureScheme
from consensus.messages import Vote
from validator.chain.transactions import transaction_hash
from validator.node.assembly import Validator, open_validator
from validator.node.events import (
    Append,
    BlockFinal,
    Certified,
    Diverged,
    Effect,
    Event,
    Joined,
    PeerFault,
    Reply,
    Run,
    SetTimer,
    Submit,
    TransactionDropped,
)
from validator.node.executor.jobs import Build, Execute
from validator.node.joining.snapshot_join import JOIN_NONCE_BYTES, SnapshotJoin
from validator.node.shared_work import RememberingScheme, SharedReader
from validator.policies.own import PolicyError
from validator.primitives.types import ValidatorError
from validator.primitives.user_file import UserFileError

MAX_TWIN_DELAY_US: Final = 20 * MICROSECONDS_PER_MILLISECOND
"""Maximum delay with which a twin, a second validator with the same key, gets a message after the first one."""
CHECKPOINT_DIGITS: Final = 16
"""Hex digits of the digest that are kept for each height."""


class Simulation:
    """One simulated run. ``run`` returns its record."""

    machine_class: type[Machine] = Machine
    on_step: Callable[[Step], None] | None = None
    """Called with each validator's steps towards a final block."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        commit: str,
        on_sample: Callable[[Sample], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        scheme: SignatureScheme | None = None,
        checkpoint: Callable[[], None] | None = None,
        pace: Pace = USUAL_PACE,
        shortcuts: bool = False,
        stop_on_fail: bool = False,
    ) -> None:
        """``pace`` has the durations of each machine's syncs and jobs. With ``shortcuts`` each block is
        executed once for all validators (:mod:`cluster.simulation.shared_executions`), and a vote of which nothing
        follows is counted without an event (:meth:`Machine.take_vote`); the digest is the same. With
        ``stop_on_fail`` the first violation of a rule seen during the run ends it.

        Raises :class:`BadInput` for a fault that the simulator cannot perform.
        """
        if problem := scenario.simulator_problem:
            raise BadInput(f"{scenario.name}: {problem}")
        use_installed_kernels()
        self.scenario = scenario
        """The current scenario; forks change it."""
        self._fork_due: int | None = None
        self._checkpoint = checkpoint
        self.on_event: Callable[[str], None] | None = None
        """Called with every event's trace line (:meth:`VirtualClock.trace_line`)."""
        self.clock = VirtualClock()
        self.random = Random(seed)
        self.links = self._make_links()
        self._measured = measured_times(scenario.profile, self.clock, seed)
        self._pace = pace if self._measured is None else FULL_SPEED
        self._on_notice = on_notice
        scheme = SCHEMES[scenario.consensus.signatures]() if scheme is None else scheme
        self._reader = SharedReader()
        self.executions = SharedExecutions() if shortcuts else None
        self.validators = validator_set(RememberingScheme(scheme), scenario, seed)
        genesis = build_genesis(scenario, seed, self.validators)
        self.record = RunRecord(scenario, "sim", seed, commit, genesis, scheme)
        self.record.given = scenario if scenario.forks else None
        self.loop = RunLoop(self.record, stops_on_fail=stop_on_fail)
        self.machines = [self._machine(index, name) for index, name in enumerate(scenario.validators.names)]
        self._twins = self._make_twins()
        self.watches = Watches(scenario, genesis, self.validators, lambda: self.clock.now_ms)
        self._load = Load(self.record, self.machines, self.clock, self.random)
        self._late = dict(scenario.validators.late)
        self._may_be_over = False
        """Whether an event since the last check may have ended the run."""
        self.clock.deliver = self._deliver
        self.feed = Feed(self.loop, lambda: [self.stage.look()], self._perform)
        self._recorder = Recorder(self.record, self.machines, self.clock, on_sample)
        self.stage = SimulatedStage(
            clock=self.clock,
            random=self.random,
            link_faults=LinkFaults(self.links, scenario.validators.names),
            validators=scenario.validators,
            machines=self.machines,
            join=self._join,
            tell=self.feed.see_fault,
            notice=self._notice,
            keep_blocks=lambda index: self._recorder.lose(self.machines[index]),
            starts=Starts(self.clock, self.machines, start_of(self._measured), self._is_back),
        )
        self.stage.durable_sizes.expect(scenario.planned_faults)
        for machine in self.machines:
            machine.starts, machine.entered = self.watches.starts, self._note_view
            machine.handled = self._handled
            machine.opened = lambda index: self.watches.recovers(self.machines[index])

    def run(self) -> RunRecord:
        """Run to the scenario's end, in virtual time; the record is complete even if the run stops short.

        If it ends by an exception that was not expected, the record has what can be collected, too.
        """
        try:
            self._run()
        except (HarnessError, ValidatorError, UserFileError):
            raise
        except Exception as error:
            note_crash(self.record, error)
            with suppress(Exception):  # what it left may be beyond that
                self._recorder.collect(self.links, self.watches)
            raise
        self.feed.see(Left())
        self._recorder.collect(self.links, self.watches)
        return self.record

    def close(self) -> None:
        """End the validators, and the programs that perform their transitions."""
        for machine in (*self.machines, *self._twins.values()):
            if machine.validator is not None:
                machine.validator.executor.close()

    def _run(self) -> None:
        try:
            self.begin()
            self.clock.keeps_labels = self.on_event is not None
            while self.advance():
                if self.on_event is not None:
                    self.on_event(self.clock.trace_line())
                if self._checkpoint is not None:
                    self._checkpoint()
                if self.loop.stops_on_fail and (violation := self.watches.first_violation(self.machines)):
                    self.feed.see(Violation(violation))
        except KeyboardInterrupt:
            self.record.interrupted = True

    def _perform(self, order: Order) -> Iterable[Seen]:
        """Perform an order of the run's loop, and return its answers."""
        match order:
            case StopLoad(height) if self._load.is_running:
                self._load.stop()
                self._notice(self.record.drain_notice(height))
            case StopLoad() | End():
                pass
            case TakeFork(number):
                self._fork_due = number
            case _:
                return self.stage.perform(order)
        return ()

    def begin(self) -> None:
        """Start the machines that exist from the genesis on, and schedule the load, the samples and the faults."""
        self._recorder.trace.windows.begin()
        for machine in self.machines:
            if machine.index not in self._late:
                machine.start()
        for twin in self._twins.values():
            twin.start()
        self._load.begin()
        self._recorder.schedule_sample()
        self.feed.see(Up(self.clock.now_ms))
        if self.loop.duration_s is not None:
            self.clock.after(self.loop.duration_s * MICROSECONDS_PER_SECOND, "the load stops", b"", self._end_duration)

    def advance(self) -> bool:
        """Perform the next event; ``False`` if the run is over."""
        if self.clock.now_ms >= self.loop.deadline_ms:
            self.feed.see(Time(self.clock.now_ms))
        if self._may_be_over:
            self._may_be_over = False
            if self.loop.is_drained:
                self.feed.see(self._standings())
        if self.loop.has_ended:
            return False
        has_stepped = self.clock.step()
        if self._fork_due is not None:
            self.take_fork(self._fork_due)
        return has_stepped

    def take_fork(self, number: int) -> None:
        """Apply the settings of the scenario's fork ``number`` from the next event on.

        Raises :class:`BadInput` if they change the past.
        """
        fork = self.loop.given.forks[number]
        after = self.loop.given.after_fork(number)
        try:
            self.loop.faults.check(after, self.clock.now_ms)
        except ValueError as error:
            raise BadInput(f"forks[{number}].changes: {error}") from None
        self.stage.durable_sizes.expect(after.planned_faults)
        self._fork_due = None
        self.scenario = after
        self.feed.see(ForkTaken(after, fork.seed))
        if after.links != self.record.former[-1].links:
            self.links.become(after.network)
        for machine in (*self.machines, *self._twins.values()):
            if machine.validator is not None:
                release = self.machines[machine.index].release
                config = node_config(after, machine.index, machine.tally.mutant_runs, release.mutant)
                machine.validator.node.configure(config)
        if fork.seed is not None:
            self._reseed(fork.seed)

    def _reseed(self, seed: int) -> None:
        """Reseed all random sources: of the network, the users, and the byzantine validators."""
        self.random.seed(f"{seed}/fork")
        if self._measured is not None:
            self._measured.random.seed(f"{seed}/fork/profile")
        self._load.reseed(seed)
        for machine in self.machines:
            twin = self._twins.get(machine.index)
            if machine.byzantine is not None:
                machine.byzantine.reseed(f"{seed}/{machine.index}")
            if twin is not None and twin.byzantine is not None:
                twin.byzantine.reseed(f"{seed}/{machine.index}/twin")

    # --- set-up -------------------------------------------------------------------------------------------------------

    def _make_links(self) -> Links:
        return Links(self.scenario.network, self.random)

    def _join(self, index: int, disk: MemoryDisk) -> SnapshotJoin:
        machine = self.machines[index]
        parts = parts_of(self.scenario, index, machine.tally.mutant_runs, machine.release.mutant)
        nonce = self.random.randbytes(JOIN_NONCE_BYTES)
        self.watches.votes.begins_to_join(index, nonce, machine.view)
        self.watches.pacing.loses_journal(index)
        return parts.join(disk, index, self.validators, self.record.genesis.chain_id, nonce=nonce)

    def _machine(self, index: int, name: str) -> Machine:
        counter = RunCounter()
        signer = validator_signer(self.record.scheme, self.record.seed, index)

        def boot(disk: MemoryDisk) -> Validator:
            machine = self.machines[index]
            mutant = machine.release.mutant
            parts = parts_of(self.scenario, index, counter, mutant)
            if self.executions is not None:
                parts = self.executions.for_parts(parts)
            is_broken = machine.byzantine is not None or mutant or self.scenario.validators.node(index).mutant
            machine.counts_votes = self.executions is not None and not is_broken
            config = node_config(self.scenario, index, counter, mutant)
            return open_validator(disk, self.record.genesis, index, signer, self.validators, config, parts)

        machine = self.machine_class(
            index,
            name,
            self.clock,
            boot,
            self._send,
            self._observe,
            failed=self._failed,
            pace=pace_of(self.scenario, index, self._pace),
            work_of=None if self._measured is None else self._measured.work_of,
        )
        if index in self.scenario.validators.late:
            machine.join = lambda disk: self._join(index, disk)
        machine.tally.mutant_runs = counter
        machine.tally.byzantine = score = score_of(self.scenario, index)
        machine.byzantine = byzantine_of(self.scenario, self.record.seed, index, self.validators, score)
        return machine

    def _is_back(self) -> None:
        """A validator is up that took time to start again, or to join."""
        self._may_be_over = True
        if self.loop.faults.have_begun:
            self.clock.after(0, "joined", b"", self.feed.look)

    def _failed(self, index: int, error: ValidatorError) -> None:
        """Crash a machine whose disk failed or has wrong contents, and report the error unless a fault expects it."""
        self.machines[index].crash(self.random)
        if self.loop.faults.explains(index, str(error)):
            self.feed.see_fault(Failed(self.clock.now_ms, index, str(error)))
        else:
            self.record.problems.append(f"{self.machines[index].name} stopped: {error}")

    def _make_twins(self) -> dict[int, Machine]:
        """Create the second machines of validators with a twin, keyed by index. They are not started yet."""
        names = [self.scenario.validators.node(machine.index).byzantine for machine in self.machines]
        return {m.index: self._twin(m) for m, named in zip(self.machines, names, strict=True) if Twins.name in named}

    def _twin(self, machine: Machine) -> Machine:
        """Create a second machine with the key of ``machine``. A :class:`TwinWatch` observes the messages of both."""
        score = machine.tally.byzantine
        assert score is not None
        watch = TwinWatch(score)
        machine.send = partial(self._send_watched, watch, 0)
        twin = self.machine_class(
            machine.index,
            f"{machine.name} (twin)",
            self.clock,
            machine.boot,
            partial(self._send_watched, watch, 1),
            _ignore,
            pace=pace_of(self.scenario, machine.index, self._pace),
            work_of=machine.work_of,
        )
        twin.byzantine = byzantine_of(
            self.scenario, self.record.seed, machine.index, self.validators, score, machine.byzantine
        )
        return twin

    # --- the network --------------------------------------------------------------------------------------------------

    def _send_watched(
        self, watch: TwinWatch, instance: int, sender: int, recipient: int | None, payload: bytes
    ) -> None:
        watch.note(instance, payload)
        self._send(sender, recipient, payload)

    def _send(self, sender: int, recipient: int | None, payload: bytes) -> None:
        recipients = range(len(self.machines)) if recipient is None else (recipient,)
        content, machine = self._reader.read(payload), self.machines[sender]
        self.watches.sends(machine, recipient, content, self.scenario.consensus)
        is_listening = self.loop.faults.is_listening
        if (is_listening or self.on_step is not None) and (vote := vote_of(content)) is not None:
            if is_listening:
                self.feed.see(Voted(sender, vote.view, vote.kind))
            if vote.kind in VOTE_STEPS:
                self._step(VOTE_STEPS[vote.kind], sender, vote.view)
        arrivals = self.links.arrivals(sender, recipients, len(payload), self.clock.now_us)
        later_us = self.stage.leader_delay_us(sender)
        if later_us:
            arrivals = [(target, at_us + later_us) for target, at_us in arrivals]
        if self._measured is not None:
            arrivals = [(target, at_us + self._measured.message_us()) for target, at_us in arrivals]
        self._recorder.trace.sent(self.clock.now_us, sender, recipients, payload, arrivals)
        self.clock.send(sender, payload, arrivals)

    def _deliver(self, sender: int, recipient: int, payload: bytes) -> None:
        content, machine = self._reader.read(payload), self.machines[recipient]
        if isinstance(content, Vote) and machine.take_vote(sender, content):
            self.watches.counted(self.machines[sender], machine, content)
        else:
            rebroadcast_ms = self.scenario.consensus.rebroadcast_ms
            deliver = self.watches.deliver
            machine.take_message(lambda: deliver(self.machines[sender], machine, payload, content, rebroadcast_ms))
        twin = self._twins.get(recipient)
        if twin is not None:  # it is at another place in the network
            delay_us = self.random.randrange(MAX_TWIN_DELAY_US)
            self.clock.after(delay_us, f"{sender}>{recipient} twin", payload, lambda: twin.receive(sender, payload))

    def _observe(self, index: int, effect: Effect) -> None:
        machine, watches = self.machines[index], self.watches
        match effect:
            case Certified() | Append() | SetTimer():
                watches.notes(machine, effect, self.scenario)
            case BlockFinal(height=height, reorg_depth=depth) as block:
                self.record.note_reorg(index, height, depth)
                watches.finalizes(machine, block)
                self._recorder.keep(machine)
                watches.keeps(machine)
                self._may_be_over = True
                self.stage.durable_sizes.on_final(machine)
                self._look_at_upgrades()
                self.record.finalizations.append(Finalization(self.clock.now_ms, index, height))
                self._step(StepKind.FINAL, index, height)
                if height > self.loop.height:
                    self._on_new_height(height)
            case Joined(height=height):
                if machine.byzantine is None and machine.joining is not None:
                    watches.votes.joined(index, machine.joining.abstain_through)
                self.feed.see(JoinEnded(self.clock.now_ms, index, height, machine.tally.chunks))
                self._is_back()
            case Diverged():
                watches.monitor.diverged(machine.name, machine.tally.starts)
                self._may_be_over = True
                self._look_at_upgrades()
            case Run(job=Build() | Execute() as job):
                self._note_proposal(index, job)
                if isinstance(job, Build):
                    watches.promises.builds(index, machine.incarnation, job.view)
            case PeerFault(peer, reason):
                watches.blames(machine, self.machines[peer], reason)
            case Reply(request, results):
                self._load.on_reply(machine, request, results, watches.promises)
            case TransactionDropped(transaction_hash=digest, reason=reason):
                watches.promises.drops(index, digest, reason)
            case _:
                pass

    def _step(self, kind: StepKind, index: int, number: int = 0, transaction: bytes = b"") -> None:
        if self.on_step is not None:
            self.on_step(Step(kind, self.clock.now_ms, index, number, transaction))

    def _handled(self, index: int, event: Event, effects: list[Effect]) -> None:
        if self.on_step is not None and isinstance(event, Submit):
            for wire in event.transactions:
                self._step(StepKind.TAKEN, index, transaction=transaction_hash(wire))
        self.watches.handles(self.machines[index], event, effects, self._reader.read, self.scenario)

    def _note_view(self, index: int, view: int) -> None:
        self._step(StepKind.ENTERED, index, view)
        self._recorder.trace.windows.entered(self.clock.now_ms, index, view)
        self.watches.enters(self.machines[index], view, self.scenario, len(self.machines))

    def _note_proposal(self, index: int, job: Build | Execute) -> None:
        """Record when the first validator began to build or to execute a block of a height."""
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
        self._step(StepKind.BEGAN, index, height)

    # --- heights and joins --------------------------------------------------------------------------------------------

    def _on_new_height(self, height: int) -> None:
        self.record.checkpoints[height] = self.clock.digest()[:CHECKPOINT_DIGITS]
        self.feed.see(NewHeight(height))
        self._recorder.look()
        for index in [index for index, at_height in self._late.items() if height >= at_height]:
            del self._late[index]
            self.clock.after(0, f"join {index}", b"", lambda machine=self.machines[index]: self._begin_join(machine))  # type: ignore[misc]

    def _end_duration(self) -> None:
        self.feed.see(Time(self.clock.now_ms))
        self._may_be_over = True

    def _begin_join(self, machine: Machine) -> None:
        self.feed.see(JoinBegun(self.clock.now_ms, machine.index))
        machine.start()

    def _standings(self) -> Standings:
        """How far the honest validators are.

        One that commits blocks to catch up is not settled. Nor is one that joined until it has executed a block: a
        snapshot alone gives nothing to judge.
        """
        machines = [machine for machine in self.machines if machine.byzantine is None]
        return Standings(tuple(map(self._standing, machines)))

    def _standing(self, machine: Machine) -> Standing:
        if machine.validator is None:
            return Standing(0, is_up=False)
        node, archive = machine.validator.node, machine.validator.executor.archive
        has_diverged = node.diverged is not None
        has_joined_only = not has_diverged and 0 < archive.joined_height == archive.height
        is_settled = not (has_joined_only or (machine.work.is_committing and self._lags(machine)))
        return Standing(node.height, True, is_settled, is_excused=has_diverged)

    def _look_at_upgrades(self) -> None:
        """A validator made a block final, or diverged: an upgrade may go on."""
        if self.loop.faults.is_upgrading:
            self.feed.look()

    def _lags(self, machine: Machine) -> bool:
        """Whether a machine's validator is too far behind to count as caught up."""
        height = 0 if machine.validator is None else machine.validator.node.height
        return height < self.loop.height - CATCH_UP_SLACK_HEIGHTS

    def _notice(self, text: str) -> None:
        if self._on_notice is not None:
            self._on_notice(text)


def _ignore(index: int, effect: Effect) -> None:
    """Ignore an effect of a twin: no watch observes twins' effects."""


def simulate(
    scenario: Scenario,
    seed: int,
    commit: str = "unknown",
    on_sample: Callable[[Sample], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
    checkpoint: Callable[[], None] | None = None,
    stop_on_fail: bool = False,
    shortcuts: bool = False,
    on_step: Callable[[Step], None] | None = None,
    on_begin: Callable[[RunRecord], None] = ignore,
) -> RunRecord:
    """Run a scenario on the simulator. Equal scenarios and seeds give equal records and digests.

    ``shortcuts`` changes neither. ``on_begin`` is called with the record before the run begins, ``on_step`` with each
    validator's steps. ``checkpoint`` is called between events and may raise :class:`KeyboardInterrupt` to end the run
    early. With ``stop_on_fail`` the first violation of a rule seen during the run ends it.

    Raises :class:`BadInput` if a policy or workload of the user's raises an exception.
    """
    run = Simulation(
        scenario,
        seed,
        commit,
        on_sample,
        on_notice,
        checkpoint=checkpoint,
        shortcuts=shortcuts,
        stop_on_fail=stop_on_fail,
    )
    run.on_step = on_step
    on_begin(run.record)
    try:
        return run.run()
    except PolicyError as error:
        raise BadInput(str(error)) from None
    finally:
        run.close()
