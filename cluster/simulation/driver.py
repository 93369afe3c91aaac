"""Runs a scenario on the simulator.

It uses the same validators, load users, faults and record as the live testnet. Instead of sockets and wall clocks it
has one queue of events, and one random source seeded by the run's seed. Load transactions reach the validators as
events of virtual time, without HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random

from cluster.common.errors import BadInput, HarnessError
from cluster.common.units import MICROSECONDS_PER_SECOND
from cluster.faults.events import Failed
from cluster.faults.kind import plans_of, problem_of
from cluster.faults.link_model import Links
from cluster.record.run import RunRecord, Sample, ignore, note_crash
from cluster.run.events import End, ForkTaken, Left, Order, Seen, StopLoad, TakeFork, Time, Up, Violation
from cluster.run.loop import Feed, RunLoop
from cluster.scenario import Scenario
from cluster.scenario.genesis import build_genesis, validator_set
from cluster.scenario.node_setup import Pace
from cluster.simulation.clock import VirtualClock
from cluster.simulation.course import Course
from cluster.simulation.load import Load
from cluster.simulation.machine import USUAL_PACE
from cluster.simulation.measured_work import MeasuredTimes
from cluster.simulation.network import Network
from cluster.simulation.observer import Observer, connect
from cluster.simulation.recorder import Recorder
from cluster.simulation.shared_executions import SharedExecutions
from cluster.simulation.simulated_stage import SimulatedStage, Starts
from cluster.simulation.validators import Validators
from consensus.keys import SCHEMES, SignatureScheme
from validator.node.shared_work import RememberingScheme
from validator.primitives.types import ValidatorError
from validator.primitives.user_file import UserFileError


class Simulation:
    """One simulated run. ``run`` returns its record."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        commit: str,
        on_sample: Callable[[Sample], None] | None = None,
        on_notice: Callable[[str], None] = ignore,
        scheme: SignatureScheme | None = None,
        checkpoint: Callable[[], None] | None = None,
        pace: Pace = USUAL_PACE,
        shortcuts: bool = False,
        stop_on_fail: bool = False,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        """``pace`` has the durations of each machine's syncs and jobs. With ``shortcuts`` each block is
        executed once for all validators (:mod:`cluster.simulation.shared_executions`), and a vote of which nothing
        follows is counted without an event (:meth:`Machine.take_vote`); the digest is the same. With
        ``stop_on_fail`` the first violation of a rule seen during the run ends it. ``on_event`` is called with every
        event's trace line (:meth:`VirtualClock.trace_line`).

        Raises :class:`BadInput` for a fault that the simulator cannot perform.
        """
        if problem := scenario.simulator_problem or problem_of(scenario, "sim"):
            raise BadInput(f"{scenario.name}: {problem}")
        self._fork_due: int | None = None
        self._checkpoint = checkpoint
        self._on_notice = on_notice
        self._on_event = on_event
        self.scenario = scenario
        """The scenario with which the run began."""
        self.clock = VirtualClock()
        self.random = Random(seed)
        self._measured = None if scenario.profile is None else MeasuredTimes(scenario.profile, self.clock, seed)
        scheme = SCHEMES[scenario.consensus.signatures]() if scheme is None else scheme
        self.executions = SharedExecutions() if shortcuts else None
        self.keys = validator_set(RememberingScheme(scheme), scenario, seed)
        genesis = build_genesis(scenario, seed, self.keys)
        self.record = RunRecord(scenario, "sim", seed, commit, genesis, scheme)
        self.record.given = scenario if scenario.forks else None
        self.loop = RunLoop(self.record, stops_on_fail=stop_on_fail)
        self.validators = Validators(
            self.record, self.keys, self.clock, self.random, pace, self._measured, self.executions
        )
        self.machines = self.validators.machines
        self.network = Network(
            self.clock,
            self.random,
            Links(scenario.network, self.random),
            self.machines,
            self.validators.twins,
            None if self._measured is None else self._measured.message_us,
        )
        self.validators.make(self.network.send, self._failed)
        self._load = Load(self.record, self.machines, self.clock, self.random)
        self._recorder = Recorder(self.record, self.machines, self.clock, on_sample)
        self.feed = Feed(self.loop, lambda: [self.stage.look()], self._perform)
        self.stage = SimulatedStage(
            clock=self.clock,
            random=self.random,
            link_faults=self.network.faults,
            validators=scenario.validators,
            machines=self.machines,
            join=self.validators.join,
            tell=self.feed.see_fault,
            notice=on_notice,
            keep_blocks=lambda index: self._recorder.lose(self.machines[index]),
            starts=Starts(
                self.clock,
                self.machines,
                None if self._measured is None else self._measured.start_us,
                self._is_back,
            ),
        )
        self.stage.durable_sizes.expect(plans_of(scenario))
        self._course = Course(self.loop, self.feed, self.clock, self.machines, self.stage.durable_sizes, self._recorder)
        self._observers: list[Observer] = []
        self.observe(self._recorder, self._load, *self._watches())

    def _watches(self) -> Iterable[Observer]:
        """Observers that a kind of simulation has from its beginning on."""
        return ()

    def observe(self, *observers: Observer) -> None:
        """Let observers see the run, after those that see it already and before the run's loop is told."""
        self._observers += observers
        for machine in self.validators:
            connect(machine, observers)

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
                self._recorder.collect(self.network.links, self._observers)
            raise
        self.feed.see(Left())
        self._recorder.collect(self.network.links, self._observers)
        return self.record

    def close(self) -> None:
        """End the validators, and the programs that perform their transitions."""
        self.validators.close()

    def _run(self) -> None:
        try:
            self.begin()
            self.clock.keeps_labels = self._on_event is not None
            while self.advance():
                if self._on_event is not None:
                    self._on_event(self.clock.trace_line())
                if self._checkpoint is not None:
                    self._checkpoint()
                if self.loop.stops_on_fail:
                    self._look_for_a_violation()
        except KeyboardInterrupt:
            self.record.interrupted = True

    def _look_for_a_violation(self) -> None:
        for observer in self._observers:
            if violation := observer.violation:
                self.feed.see(Violation(violation))
                break

    def _perform(self, order: Order) -> Iterable[Seen]:
        """Perform an order of the run's loop, and return its answers."""
        match order:
            case StopLoad(height) if self._load.is_running:
                self._load.stop()
                self._on_notice(self.record.drain_notice(height))
            case StopLoad() | End():
                pass
            case TakeFork(number):
                self._fork_due = number
            case _:
                return self.stage.perform(order)
        return ()

    def _failed(self, index: int, error: ValidatorError) -> None:
        """Crash a machine whose disk failed or has wrong contents, and report the error unless a fault expects it."""
        self.machines[index].crash(self.random)
        if self.loop.faults.explains(index, str(error)):
            self.feed.see_fault(Failed(self.clock.now_ms, index, str(error)))
        else:
            self.record.problems.append(f"{self.machines[index].name} stopped: {error}")

    def _is_back(self) -> None:
        self._course.is_back()

    def begin(self) -> None:
        """Start the machines that exist from the genesis on, and schedule the load, the samples and the faults."""
        late = self.scenario.validators.late
        for machine in self.machines:
            connect(machine, [self._course])
        self._recorder.trace.windows.begin()
        for machine in self.validators:
            if machine.is_twin or machine.index not in late:
                machine.start()
        self._load.begin()
        self._recorder.schedule_sample()
        self.feed.see(Up(self.clock.now_ms))
        if self.loop.duration_s is not None:
            self.clock.after(self.loop.duration_s * MICROSECONDS_PER_SECOND, "the load stops", b"", self._end_duration)

    def _end_duration(self) -> None:
        self.feed.see(Time(self.clock.now_ms))
        self._course.may_be_over = True

    def advance(self) -> bool:
        """Perform the next event; ``False`` if the run is over."""
        if self.clock.now_ms >= self.loop.deadline_ms:
            self.feed.see(Time(self.clock.now_ms))
        if self._course.may_be_over:
            self._course.may_be_over = False
            if self.loop.is_drained:
                self.feed.see(self._course.standings())
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
        if problem := problem_of(after, "sim"):
            raise BadInput(f"forks[{number}].changes: {problem}")
        self.stage.durable_sizes.expect(plans_of(after))
        self._fork_due = None
        self.validators.scenario = after
        for observer in self._observers:
            observer.forks(after)
        self.feed.see(ForkTaken(after, fork.seed))
        if after.links != self.record.former[-1].links:
            self.network.links.become(after.network)
        self.validators.configure(fork.seed)
        if fork.seed is not None:
            self.random.seed(f"{fork.seed}/fork")
            if self._measured is not None:
                self._measured.random.seed(f"{fork.seed}/fork/profile")
            self._load.reseed(fork.seed)
