"""The record of a run: the data that drivers collect, in the same form, for the checks and the report.

Times are milliseconds since the run began, wall clock or virtual. Nothing here is read from a validator's memory: the
sources are what it serves to every client (final blocks, their receipts, its status page), and the moments at which the
driver observed events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from cluster.common.checkout import version
from cluster.common.errors import crash_reason
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import first_few
from cluster.record.archive import BlockRecord, Reexecuted
from cluster.record.chain_store import BlockStore, MemoryBlocks
from cluster.record.finalizations import Finalizations
from cluster.record.host_info import machine
from cluster.record.rules import Mechanism
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import EVERYBODY, Facts, facts_of
from consensus.keys import Ed25519Scheme, SignatureScheme
from consensus.messages import VoteKind
from loadgen.workloads.measures import LoadTimeline, Sends
from validator.chain.genesis import Genesis

Backend = Literal["live", "sim"]

NO_PRESET: Final = "none"
"""The name in reports for parameters without a preset."""
MAX_SAMPLES: Final = 1_000
TARGETS_NAMED: Final = 4
"""The most targets of a fault that a line of text names. The report names all."""
CATCH_UP_SLACK_HEIGHTS: Final = 5
"""The most heights by which a validator may end behind the others and still count as caught up."""


SYNC: Final = "sync"
"""The kind of :class:`Work` of the journal: from the beginning of a batch of writes until its answer is handled."""
MESSAGE: Final = "message"
"""The kind of :class:`Work` of handling a message from a peer."""
HAND_OVER: Final = "hand-over"
"""The kind of :class:`Work` around a job: giving it to the executor's thread, and handling its result."""
WARM_UP: Final = "warm-up"
"""The kind of :class:`Work` of the first block that a process builds or executes, and of the first in which timers
fire: both take longer than later ones. A process that recovered blocks from its disk has none."""


@dataclass(frozen=True, slots=True)
class Supply:
    """The total supply in a validator's state."""

    balances: int
    """The sum over all accounts."""
    burned: int

    @classmethod
    def of(cls, page: Mapping[str, Any]) -> Supply:
        """Read the supply from the page that a validator serves."""
        return cls(page["balances"], page["burned"])


@dataclass(slots=True)
class ValidatorRecord:
    """The data collected from one validator."""

    name: str
    index: int
    blocks: Sequence[BlockRecord] = field(default_factory=list)
    """Blocks from :attr:`first_height` on, without gaps. Drivers keep them as
    :class:`~cluster.record.chain_store.ServedBlocks` of the record's :attr:`~RunRecord.store`."""
    first_height: int = 1
    """The height of the first block in ``blocks``: above 1 if the validator joined by a snapshot."""
    status: dict[str, Any] | None = None
    """The validator's last status page (``docs/http.md``); ``None`` if it never answered."""
    balances: dict[str, int] = field(default_factory=dict)
    """The balances that the validator served at the end for the accounts asked about, keyed by address text."""
    pending_timers: dict[str, bool] = field(default_factory=dict)
    """Whether the validator served each timer asked about as pending at the end, keyed by timer id in hex."""
    supply: Supply | None = None
    """The total supply that the validator served at the end; ``None`` if it never answered."""
    trace: bytes = b""
    """If the validator diverged, its execution of the block at which it did.

    It is an encoded :class:`validator.transition.trace.BlockTrace`; empty if there is none.
    """
    mutant: str | None = None
    mutant_runs: int = 0
    """How often the line of the validator's planted bug ran, as counted by the harness."""
    byzantine: tuple[str, ...] = ()
    """The names of the validator's byzantine behaviours; empty if it is honest.

    Nothing that a byzantine validator serves is trusted, except ``byzantine`` in its status page, which the harness
    counts.
    """
    serves_state: bool = True
    """Whether it can be asked about its state. An external validator need not serve that."""

    @property
    def effects(self) -> dict[str, int] | None:
        """How often each byzantine behaviour took effect; ``None`` if the status page does not say."""
        counts = self._byzantine_page.get("took_effect")
        return counts if isinstance(counts, dict) else None

    @property
    def expected_evidence(self) -> int:
        """The number of views in which a byzantine validator gave its peers full proof of its guilt."""
        count = self._byzantine_page.get("expected_evidence")
        return count if isinstance(count, int) else 0

    @property
    def _byzantine_page(self) -> dict[str, Any]:
        page = (self.status or {}).get("byzantine")
        return page if isinstance(page, dict) else {}

    @property
    def tip(self) -> int:
        """The height of the last block that the validator served; 0 if it served none."""
        return self.first_height + len(self.blocks) - 1 if self.blocks else 0


@dataclass(frozen=True, slots=True)
class Reorg:
    """A reorganization: a validator abandoned ``depth`` executed blocks from ``height`` on for another branch."""

    validator: int
    height: int
    depth: int

    @property
    def heights(self) -> range:
        """The heights of the abandoned blocks."""
        return range(self.height, self.height + self.depth)


def ignore(_: object) -> None:
    """A callback that does nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of the network, for the progress line and the report's curves."""

    at_ms: float
    heights: tuple[int | None, ...]
    """Final height by validator index; ``None`` if a validator did not answer."""
    fires: int
    """Fires so far, at the validator with the highest block."""
    transactions: int
    pending_timers: int
    backlog: int
    basefee_cycle: int
    basefee_lane_timer: int
    lane_share: float = 0.0
    """The newest block's use of the timer lane, 0 to 1."""
    views: tuple[int | None, ...] = ()
    """View by validator index; ``None`` if a validator is in none, or did not answer."""
    states: tuple[str, ...] = ()
    """The state of each validator, in a word: up, down, starting, joining, paused, diverged, …"""
    faults: tuple[str, ...] = ()
    """The faults under way, in words."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request to a driver to run a scenario."""

    scenario: Scenario
    seed: int
    commit: str
    """The commit of the code that runs the scenario, or a word in its place if it is unknown."""
    folder: Path
    """The folder for the logs and, live, the validators' data."""
    stop_on_fail: bool = False
    """Whether the first violation of a rule seen during the run ends it."""
    lease_s: float | None = None
    """Seconds for which the live testnet survives without its driver, so that another driver can take the run over."""
    takes_timings: bool = False
    """Whether a live run records the durations of all work and messages (:attr:`RunRecord.timings`)."""


class StepKind(StrEnum):
    """The kind of a :class:`Step`."""

    TAKEN = "taken"
    """It took a transaction from a client."""
    ENTERED = "entered"
    """It entered a view."""
    BEGAN = "began"
    """It began to build, or to execute, a block of a height."""
    NOTARIZED = "notarized"
    """It sent its vote to notarize a view's block."""
    FINALIZED = "finalized"
    """It sent its vote to finalize a view's block."""
    FINAL = "final"
    """It made the block of a height final."""


VOTE_STEPS: Final = {VoteKind.NOTARIZE: StepKind.NOTARIZED, VoteKind.FINALIZE: StepKind.FINALIZED}
"""The steps that are votes."""


class Step(NamedTuple):
    """A step of a validator towards a final block."""

    kind: StepKind
    at_ms: float
    """Milliseconds since the run began, by the clock of the validator's machine."""
    validator: int
    number: int = 0
    """The height or the view that the step is about; 0 if it is about a transaction."""
    transaction: bytes = b""
    """The hash of the transaction that the step is about; empty if it is about a block or view."""


@dataclass(frozen=True, slots=True)
class RunObserver:
    """Callbacks during a run."""

    on_sample: Callable[[Sample], None] = ignore
    on_notice: Callable[[str], None] = ignore
    """Called with each notice, a line."""
    on_step: Callable[[Step], None] | None = None
    """Called with each step of a validator. ``None`` if nothing needs them: then drivers do not collect them."""
    on_look: Callable[[RunRecord], None] = ignore
    """Called by the live testnet's driver with the record so far, about twice a second."""
    on_begin: Callable[[RunRecord], None] = ignore
    """Called with the record before the run begins. If the driver crashes, it holds what is known by then."""


UNOBSERVED: Final = RunObserver()


@dataclass(slots=True)
class FaultRecord:
    """A fault of a run, planned in the scenario or not, and its observed effects."""

    kind: str
    target: str
    """The fault's targets, in the scenario's words."""
    at_height: int | None
    begun_ms: float | None = None
    ended_ms: float | None = None
    """When the fault was over: its targets were back and answered again, and links were as before."""
    took_effect: bool = False
    """Whether an effect was observed, such as a process that was gone (another id afterwards), or dropped messages."""
    evidence: str = ""
    """The observed effect, in words."""
    height_when_begun: int = 0
    height_when_ended: int | None = None
    at_ms: int | None = None
    """When the fault was planned to begin, in milliseconds; ``None`` if it was planned for a height."""
    targets: tuple[str, ...] = ()
    """The names of the validators that the fault hit; empty if it hit links."""
    impaired: tuple[str, ...] = ()
    """The validators whose votes cannot be counted on for a certificate while the fault lasts."""
    sides: tuple[tuple[str, ...], ...] = ()
    """For a partition, the groups of validators that cannot reach each other.

    Which validators it impairs depends on the committee.
    """
    one_at_a_time: tuple[tuple[str, ...], ...] = ()
    """Groups of validators that the fault hits in turn.

    At any moment at most one of the groups cannot contribute to a certificate.
    """
    is_hard: bool = False
    """Whether impaired validators cannot take part in consensus at all.

    If so, nothing may become final without a quorum of the others.
    """
    problem: str = ""
    """A result that this kind of fault must not have, such as a validator that started from a damaged disk."""
    lost_disks: tuple[str, ...] = ()
    """Targets whose disks were lost with their Ray node."""
    is_planned: bool = True
    """Whether the fault is in the scenario; otherwise it happened by itself."""
    first_back_ms: float | None = None
    """When the first of the targets that were taken down was started again; ``None`` if that is unknown.

    The fault may end later.
    """

    own_facts: Facts | None = None
    """What a custom kind says of itself; ``None`` for a kind that is known by its name."""

    @property
    def facts(self) -> Facts:
        """What the checks know of its kind."""
        return self.own_facts or facts_of(self.kind)

    @property
    def without_disks(self) -> tuple[str, ...]:
        """The validators that came back without their disks, by a snapshot."""
        return self.impaired if self.facts.restarts_from == "snapshot" else self.lost_disks

    @property
    def planned(self) -> str:
        """When the fault was planned to begin, in words: a time or a height."""
        return f"{self.at_ms:,} ms" if self.at_height is None else f"height {self.at_height}"

    @property
    def whom(self) -> str:
        """The targets in the scenario's words, with their names if the scenario does not name them."""
        is_told = self.target == EVERYBODY or set(self.targets) <= set(self.target.split(", "))
        if is_told or not self.targets:
            return self.target
        return f"{self.target} ({first_few(self.targets, TARGETS_NAMED)})"

    @property
    def title(self) -> str:
        """The fault's kind and targets, in words."""
        return f"{self.kind} {self.whom}".strip()

    @property
    def name(self) -> str:
        """The fault's kind, targets and planned beginning, as the subject of a sentence."""
        return f"{' of '.join(filter(None, (self.kind, self.whom)))} at {self.planned}"


@dataclass(slots=True)
class JoinRecord:
    """A validator that joined by a snapshot, and the observed progress of its join."""

    target: str
    at_height: int
    begun_ms: float | None = None
    ended_ms: float | None = None
    """When the validator had installed the snapshot and took part in consensus; ``None`` if it never did."""
    height_when_begun: int = 0
    height_when_ended: int | None = None
    chunks: dict[int, int] = field(default_factory=dict)
    """Chunks of the snapshot, keyed by the index of the peer that sent them."""

    def begin(self, at_ms: float, height: int) -> str:
        """Note that the join began. Returns a notice."""
        self.begun_ms, self.height_when_begun = at_ms, height
        return f"height {height}: {self.target} joins by a snapshot"

    def end(self, at_ms: float, height: int, snapshot_height: int, chunks: dict[int, int]) -> str:
        """Note that the validator takes part. Returns a notice."""
        self.ended_ms, self.height_when_ended, self.chunks = at_ms, height, chunks
        return f"height {height}: {self.target} has the snapshot of height {snapshot_height}"


@dataclass(frozen=True, slots=True)
class MonitorRecord:
    """The violations and evaluations of the safety rules, which are about consensus and state.

    They are watched during a simulated run (:mod:`cluster.watches.safety_monitor`). Proofs are verified at
    the end of any run (:mod:`cluster.audit.proofs`).
    """

    violations: list[str]
    """The violations in words, each with its time."""
    counts: dict[str, int]
    """How often each rule was evaluated."""
    reached: tuple[Mechanism, ...] = ()
    """The mechanisms that the monitor saw a validator reach."""
    voters: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The validators whose votes are in certificates that were served at the end, keyed by the certified height."""


@dataclass(frozen=True, slots=True)
class PromiseRecord:
    """The violations and evaluations of the rules about transactions that validators took from clients
    (:mod:`cluster.watches.promise_watch`)."""

    violations: list[str]
    """The violations in words, each with its time."""
    counts: dict[str, int]
    """How often each rule was evaluated."""
    taken: int
    """Transactions that honest validators took from clients."""
    final: int
    """The number of the taken transactions that became final while the validator that took them was up."""


class ViewEntered(NamedTuple):
    """A validator was seen to enter another view of consensus."""

    at_ms: float
    validator: int
    view: int
    until_ms: float | None = None
    """When the validator left the view.

    ``None`` means that it left when it entered the next view in the record.
    """


class TracedMessage(NamedTuple):
    """An observed message from one validator to another."""

    sender: int
    receiver: int
    sent_ms: float | None
    """When the message was sent; ``None`` if only its arrival was seen."""
    received_ms: float | None
    """When the message arrived; ``None`` if it was lost, or its arrival was not seen."""
    kind: str
    """The kind of the message, a :class:`cluster.record.message_trace.MessageKind`."""
    view: int
    """The view of consensus that the message is about; 0 if none."""
    size: int
    """The size of the message in bytes."""


@dataclass(slots=True)
class TraceWindow:
    """A span of the run whose messages were kept, and the reason."""

    reason: str
    begun_ms: float
    ended_ms: float
    messages: list[TracedMessage] = field(default_factory=list)
    is_full: bool = False
    """Whether there were more messages than are kept; the window then ends with the last kept one."""


@dataclass(slots=True)
class TraceRecord:
    """Observed views and messages, for the report's timeline; bounded (:mod:`cluster.record.message_trace`)."""

    watched: tuple[int, ...] = ()
    """The validators whose views and messages are included, by index."""
    views: list[ViewEntered] = field(default_factory=list)
    windows: list[TraceWindow] = field(default_factory=list)


class Work(NamedTuple):
    """A piece of work that a live validator has done."""

    kind: str
    """``build``, ``execute`` or ``finalize`` for a job of the executor, or one of the constants above."""
    transactions: int
    """Transactions in the job's block; like the fires, 0 for work that is no job."""
    fires: int
    """Timers that fired in the block."""
    wall_us: int
    """Microseconds from the work's beginning to its end."""
    core_us: int = 0
    """Processor time of a job, in microseconds; 0 for all other work."""
    ended_ms: float = 0.0
    """When the work ended, in milliseconds since the epoch."""


@dataclass(slots=True)
class Timings:
    """What a live run measured of its validators and links, for a calibration of the simulator."""

    work: list[Work] = field(default_factory=list)
    messages: list[TracedMessage] = field(default_factory=list)
    """Messages of which both ends were seen."""


@dataclass(frozen=True, slots=True)
class Resources:
    """A sample of the resources that a validator uses. The validators on a live host share one process.

    ``None`` is a value that the backend or the operating system does not report.
    """

    at_ms: float
    validator: int
    disk_bytes: int
    messages_sent: int
    """The number of messages sent since the process started. ``cpu_seconds`` count from then too."""
    memory_bytes: int | None = None
    """Resident memory of the process."""
    cpu_seconds: float | None = None
    open_files: int | None = None
    """File descriptors of the process."""


@dataclass(frozen=True, slots=True)
class Lag:
    """A span of time, and how long in it a process was ready to run but the machine did not let it."""

    at_ms: float
    until_ms: float
    lag_ms: float
    host: int | None = None
    """The number of the host that lagged; ``None`` is the driver."""
    peak_share: float = 0.0
    """If several lags were merged into this one, the largest share of time that one of them lost."""

    @property
    def worst_share(self) -> float:
        """The largest share of the time that the process could not run."""
        return max(self.peak_share, self.lag_ms / max(1.0, self.until_ms - self.at_ms))

    def within(self, begin_ms: float, end_ms: float) -> float:
        """The part of the lag within a span of time, as if it were spread evenly."""
        shared_ms = min(self.until_ms, end_ms) - max(self.at_ms, begin_ms)
        length_ms = self.until_ms - self.at_ms
        return self.lag_ms * min(1.0, shared_ms / length_ms) if shared_ms > 0 and length_ms > 0 else 0.0


@dataclass(slots=True)
class LoadRecord:
    """What the load generator counted, and its timeline."""

    requests: int = 0
    failures: int = 0
    transactions_sent: int = 0
    transactions_rejected: int = 0
    process_exit: int | None = None
    """Exit code of the Locust process; ``None`` in the simulator."""
    lost: tuple[str, ...] = ()
    """Lines on the load nodes that were lost with their share of the users, and on what ended the load early."""
    sends: Sends = field(default_factory=Sends)
    """When the load's transactions were due: milliseconds since the epoch, or in the simulator since the run began."""
    timeline: LoadTimeline = field(default_factory=LoadTimeline)
    """The load's requests over time, on the clock of ``sends``."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A span of time in which a live run had no driver."""

    from_ms: float
    """When the previous driver last saved its state."""
    until_ms: float
    from_height: int
    until_height: int
    late: tuple[str, ...] = ()
    """Events that were due during the absence and came late, in words."""

    def __str__(self) -> str:
        seconds = (self.until_ms - self.from_ms) / MILLISECONDS_PER_SECOND
        return f"no driver from height {self.from_height} to {self.until_height} ({seconds:,.0f} s)"


@dataclass(frozen=True, slots=True)
class DrillRecord:
    """The drill that a run was (:mod:`cluster.commands.drills`)."""

    page: Mapping[str, Any]
    """The drill as it is in ``result.json``."""
    command: str
    """The command that runs the drill again with the same options and changes, without backend and seed."""


@dataclass(slots=True)
class RunRecord:
    """All data that a driver collected about one run, from which it is judged and reported."""

    scenario: Scenario
    backend: Backend
    seed: int
    commit: str
    genesis: Genesis
    scheme: SignatureScheme = field(default_factory=Ed25519Scheme)
    """The signature scheme of the validators' keys."""
    given: Scenario | None = None
    """The scenario as given, if forks changed it; :attr:`scenario` is what applied in the end."""
    former: list[Scenario] = field(default_factory=list)
    """The scenarios that applied before each fork, in order."""
    validators: list[ValidatorRecord] = field(default_factory=list)
    store: BlockStore = field(default_factory=MemoryBlocks, repr=False, compare=False)
    """The store of served blocks, which keeps a block that several validators served only once."""
    lost: list[ValidatorRecord] = field(default_factory=list)
    """Validators as they were right before a fault took their disks, with the blocks that they served."""
    finalizations: Finalizations = field(default_factory=Finalizations)
    proposals: dict[int, float] = field(default_factory=dict)
    """When the block of each height was first seen anywhere (proposed or received), for the finality latency."""
    samples: deque[Sample] = field(default_factory=partial(deque, maxlen=MAX_SAMPLES))
    """The newest samples of the network."""
    trace: TraceRecord = field(default_factory=TraceRecord)
    resources: list[Resources] = field(default_factory=list)
    timings: Timings | None = None
    """Durations of work and messages; ``None`` unless the run is one of ``stampede calibrate``."""
    lags: list[Lag] = field(default_factory=list)
    """Lags of hosts and driver, bounded (:mod:`cluster.record.lag`); none in the simulator."""
    faults: list[FaultRecord] = field(default_factory=list)
    joins: list[JoinRecord] = field(default_factory=list)
    monitor: MonitorRecord | None = None
    """Findings about safety; ``None`` if the run was not watched and no validator was asked for proofs at the end."""
    promises: PromiseRecord | None = None
    """Findings about transactions taken from clients; ``None`` in a live run, which does not watch them."""
    reexecuted: Reexecuted | None = None
    """The result of executing the chain again during the run; ``None`` if that was not done."""
    load: LoadRecord = field(default_factory=LoadRecord)
    began_epoch_ms: float = 0.0
    """When the run began, by the clock of the driver's machine; 0 in the simulator, whose clock begins with the run."""
    duration_ms: float = 0.0
    stop_requested_at_height: int | None = None
    """The height that became the run's last one because it was stopped early, or because its duration was over.

    ``None`` if the scenario's stop height applies.
    """
    interrupted: bool = False
    """Whether Ctrl-C, or a driver failure, ended the run early."""
    time_up: str = ""
    """The validators' progress, in words, when the run's time was up; empty if the run ended before."""
    absences: list[Absence] = field(default_factory=list)
    """The spans without a driver, for a live run that another driver took over."""
    seen_violations: dict[str, list[str]] = field(default_factory=dict)
    """The first violations that were reported during the run, keyed by the check that they fail.

    They fail the check even if nothing is found at the end.
    """
    problems: list[str] = field(default_factory=list)
    """Problems of the run's machinery, one line each, such as a validator that never answered or Locust that died."""
    own_problems: list[str] = field(default_factory=list)
    """Those of :attr:`problems` that processes of the harness had. They say nothing about the chain: where other
    problems fail a run, these alone make it inconclusive."""
    digest: str | None = None
    """The rolling hash over every event of a simulated run; ``None`` in a live run."""
    checkpoints: dict[int, str] = field(default_factory=dict)
    """The beginning of the hash over all events when each height was first final, keyed by height; simulator only."""
    metrics: dict[str, int | float] = field(default_factory=dict)
    """Figures known only to the driver (start-up time, messages, bytes, …)."""

    machine: dict[str, str | int | float] = field(default_factory=machine)
    """The machine of the driver (:mod:`cluster.record.host_info`)."""
    reorgs: list[Reorg] = field(default_factory=list)
    drill: DrillRecord | None = None
    kept_ledger: Any = field(default=None, repr=False, compare=False)
    """The auditor's ledger, if the driver kept one (:class:`cluster.audit.books.KeptLedger`)."""

    @staticmethod
    def drain_notice(height: int) -> str:
        """The notice of the height at which the load stops."""
        return f"height {height}: the load stops, draining"

    def note_mutants(self) -> None:
        """Set for each validator which planted bug it ran, from the start or by an upgrade (``mutant``)."""
        section = self.scenario.validators
        for validator in self.lives:
            upgrades = [
                plan.release.mutant
                for plan, fault in zip(self.scenario.faults, self.faults, strict=False)
                if plan.release is not None and validator.name in fault.targets
            ]
            validator.mutant = next((name for name in upgrades if name), section.node(validator.index).mutant)

    @property
    def lives(self) -> list[ValidatorRecord]:
        """Every validator at the end, and every one as it was right before it lost a disk."""
        return [*self.validators, *self.lost]

    @property
    def target_height(self) -> int:
        """The height that every validator has to reach."""
        return self.scenario.stop.height if self.stop_requested_at_height is None else self.stop_requested_at_height

    @property
    def faults_under_way(self) -> tuple[str, ...]:
        """The faults under way, in words: kind and targets."""
        running = [fault for fault in self.faults if fault.begun_ms is not None and fault.ended_ms is None]
        return tuple(f"{fault.kind} {', '.join(fault.targets) or fault.target}" for fault in running)

    def note_reorg(self, validator: int, height: int, depth: int) -> None:
        """Note that a validator made a block final, for which it abandoned ``depth`` executed blocks (0: none)."""
        self.metrics["deepest_reorg"] = max(depth, self.metrics.get("deepest_reorg", 0))
        if depth:
            self.reorgs.append(Reorg(validator, height, depth))

    @property
    def view_change_ms(self) -> int:
        """Time from the start of a view that fails to the next proposal, by the slowest settings that applied."""
        sections = [scenario.consensus for scenario in (*self.former, self.scenario)]
        return max(section.view_change_ms for section in sections)

    @property
    def recovery_ms(self) -> int:
        """The time allowed for recovery from faults, in milliseconds.

        It is the one that the scenario states, else the longest computed for the settings that applied
        (:attr:`~cluster.scenario.Scenario.recovery_ms`).
        """
        if self.scenario.success.recovery_ms is not None:
            return self.scenario.success.recovery_ms
        return max(scenario.recovery_ms for scenario in (*self.former, self.scenario))

    @property
    def height_when_healed(self) -> int:
        """The highest final height when the last fault that ended was over; 0 if none ended.

        The network has recovered when a higher height is final. The timestamps are the validators', because a driver
        learns of a height only after it was final.
        """
        ended = [fault.ended_ms for fault in self.faults if fault.ended_ms is not None]
        if not ended:
            return 0
        return self.finalizations.highest(max(ended))

    @property
    def first_finalizations(self) -> Mapping[int, float]:
        """When each height was first final at a validator that is not byzantine, in ascending order of heights."""
        return self.finalizations.earliest(self.scenario.validators.byzantine)


def about_run(record: RunRecord) -> dict[str, Any]:
    """What identifies a run, as in ``result.json``."""
    from cluster.scenario.files import scenario_hash  # what reads files, which a host does not

    return {
        "scenario": record.scenario.name,
        "backend": record.backend,
        "seed": record.seed,
        "commit": record.commit,
        "version": version(),
        "scenario_hash": scenario_hash(record.given or record.scenario),
    }


def note_crash(record: RunRecord, error: Exception) -> None:
    """Note that the driver ended by an exception that was not expected, as an interruption does."""
    record.interrupted = True
    record.problems.append(f"the driver crashed: {crash_reason(error)}")


def note_own_problem(record: RunRecord, problem: str) -> None:
    """Note, once, a problem that a process of the harness had."""
    if problem not in record.problems:
        record.problems.append(problem)
        record.own_problems.append(problem)
