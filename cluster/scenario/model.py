"""A whole scenario, section by section. ``docs/scenarios.md`` is the reference of its fields."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator

from cluster.common.limits import MAX_DURATION_S, MAX_HEIGHTS, MAX_SECONDS
from cluster.common.suggestions import instead
from cluster.scenario.genesis import check_genesis
from cluster.scenario.network import Network
from cluster.scenario.problems import describe
from cluster.scenario.sections.base import Height, Name, Section
from cluster.scenario.sections.chain import ChainSection
from cluster.scenario.sections.consensus import DEFAULTS as DEFAULT_VOTING
from cluster.scenario.sections.consensus import ConsensusSection
from cluster.scenario.sections.faults import BaseFault, Fault, check_faults, first_of
from cluster.scenario.sections.forks import ForkSection, check_change, check_faults_of_the_past
from cluster.scenario.sections.links import LinksSection
from cluster.scenario.sections.measurements.profile import ProfileSection
from cluster.scenario.sections.packaged import with_sections
from cluster.scenario.sections.success import SuccessSection
from cluster.scenario.sections.validators import ValidatorsSection, behaviour_named
from consensus.interface import VotingConfig
from consensus.leader import DRAWN_IN_A_ROW
from consensus.types import fault_bound
from loadgen.workloads import LoadPlan
from loadgen.workloads.own import executes
from validator.chain.block import MAX_BLOCK_BYTES
from validator.chain.genesis import GenesisError
from validator.node.limits import DEFAULT_BLOCK_LIMITS, DEFAULT_POOL_LIMITS, MOST_TRANSACTIONS, BlockLimits, PoolLimits
from validator.pvm.deployment import refusal


class StorageSection(Section):
    """The amount of history that a validator's disk keeps."""

    segment_kib: Annotated[int, Field(ge=1, le=1_048_576)] = 32_768
    """Size of a file of the state's log or of the archive of blocks, in KiB; old files are removed whole."""
    retained_heights: Annotated[int, Field(ge=8, le=100_000)] = 256
    """Heights below the final one that can be proved and offered as snapshots."""
    snapshot_interval: Annotated[int, Field(ge=1, le=1_000)] = 8
    """Snapshots are offered at heights that are multiples of this, so that many validators offer the same."""
    keep_blocks: Annotated[int, Field(ge=8, le=MAX_HEIGHTS)] | None = None
    """Final blocks kept at least; older ones go once auditor and peers have them. By default all are kept."""

    @model_validator(mode="after")
    def _snapshots_have_blocks_above_them(self) -> StorageSection:
        if self.keep_blocks is not None and self.keep_blocks < self.retained_heights:
            raise ValueError(
                f"keep_blocks: {self.keep_blocks} is below retained_heights ({self.retained_heights}): a validator"
                " that joins by a snapshot needs the blocks above it"
            )
        if self.snapshot_interval > self.retained_heights:
            raise ValueError(
                f"snapshot_interval: {self.snapshot_interval} is above retained_heights ({self.retained_heights}):"
                " at most heights there would be nothing to join by"
            )
        return self


class LimitsSection(Section):
    """The limits of a validator: of its mempool, of its engine's windows, of the blocks that it holds."""

    max_transactions: Annotated[int, Field(ge=1, le=MOST_TRANSACTIONS)] = DEFAULT_POOL_LIMITS.max_transactions
    """Maximum number of waiting transactions."""
    max_bytes: Annotated[int, Field(ge=1_024, le=2**30)] = DEFAULT_POOL_LIMITS.max_bytes
    """Maximum bytes of all waiting transactions. A longer transaction is never accepted."""
    max_nonces: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_POOL_LIMITS.max_nonces
    """Nonces that a sender may use, counted from its account's nonce."""
    near_nonces: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_POOL_LIMITS.near_nonces
    """A sender's first nonces, with which it can push other senders out of a full pool."""
    max_sender_bytes: Annotated[int, Field(ge=1_024, le=2**30)] = DEFAULT_POOL_LIMITS.max_sender_bytes
    """Maximum bytes of one sender's waiting transactions."""
    max_evictions: Annotated[int, Field(ge=1, le=1_000)] = DEFAULT_POOL_LIMITS.max_evictions
    """Transactions runnable in the next block that may be evicted for one newcomer."""
    max_idle_senders: Annotated[int, Field(ge=0, le=1_000_000)] = DEFAULT_POOL_LIMITS.max_idle_senders
    """Senders without a waiting transaction whose accounts are kept."""
    max_blocks_refused: Annotated[int, Field(ge=0, le=10_000)] = DEFAULT_POOL_LIMITS.max_blocks_refused
    """Final blocks for which a sender comes last after a builder could run none of its transactions."""
    max_blocks_waiting: Annotated[int, Field(ge=1, le=100_000)] = DEFAULT_POOL_LIMITS.max_blocks_waiting
    """Final blocks after which a waiting transaction is dropped."""
    view_window: Annotated[int, Field(ge=1, le=1_000)] = DEFAULT_VOTING.view_window
    """Views ahead of a validator's own for which it keeps votes."""
    proposal_window: Annotated[int, Field(ge=0, le=1_000)] = DEFAULT_VOTING.proposal_window
    """Views ahead of a validator's own for which it keeps proposals."""
    retained_views: Annotated[int, Field(ge=2, le=10_000)] = DEFAULT_VOTING.retained_views
    """Views behind the newest final one for which it keeps certificates, and behind its own for votes."""
    evidence_views: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_VOTING.evidence_views
    """Views behind the newest final one for which it keeps votes, to find contradictions."""
    final_views: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_VOTING.final_views
    """Finalizations after which timeouts that had grown shrink by one step."""
    distrusted_views: Annotated[int, Field(ge=0, le=10_000)] = DEFAULT_VOTING.distrusted_views
    """Views for which it ignores the certificates of a peer that sent an invalid one."""
    max_held_blocks: Annotated[int, Field(ge=8, le=100_000)] = DEFAULT_BLOCK_LIMITS.max_held_blocks
    """Maximum number of blocks that it holds above its final one."""
    max_held_bytes: Annotated[int, Field(ge=MAX_BLOCK_BYTES, le=2**40)] = DEFAULT_BLOCK_LIMITS.max_held_bytes
    """Maximum bytes of their bodies."""
    max_proven_ahead: Annotated[int, Field(ge=1, le=100_000)] = DEFAULT_BLOCK_LIMITS.max_proven_ahead
    """Maximum number of blocks proved final that wait for execution; beyond it no more are requested."""
    journal_blocks: Annotated[int, Field(ge=1, le=100_000)] = DEFAULT_BLOCK_LIMITS.journal_blocks
    """Final blocks between two replacements of its journal."""

    def pool(self) -> PoolLimits:
        return PoolLimits(**self._of(PoolLimits))

    def blocks(self) -> BlockLimits:
        return BlockLimits(**self._of(BlockLimits))

    def voting(self) -> dict[str, int]:
        """The limits that are fields of :class:`~consensus.interface.VotingConfig`, by name."""
        return self._of(VotingConfig)

    def _of(self, limits: type[PoolLimits | BlockLimits | VotingConfig]) -> dict[str, int]:
        return self.model_dump(include={field.name for field in fields(limits)})


class StopSection(Section):
    """The end of the run."""

    height: Height = 40
    """The load stops when the first validator has finalised this height."""
    duration_s: Annotated[int, Field(ge=1, le=MAX_DURATION_S)] | None = None
    """The load stops this long after the testnet was up; ``height`` is then ignored."""
    timeout_s: Annotated[int, Field(ge=1, le=MAX_SECONDS)] = 120
    """Maximum length of the run; with ``duration_s`` only of its end, from when the load stops."""
    drain_blocks: Annotated[int, Field(ge=0, le=1_000)] = 5
    """Blocks to finalise after the load has stopped, for pending transactions and timers."""

    @property
    def below_height(self) -> int:
        """The height below which planned events must begin."""
        return self.height if self.duration_s is None else MAX_HEIGHTS

    @property
    def longest_s(self) -> int:
        """The maximum length of the run once the testnet is up, in seconds."""
        return (self.duration_s or 0) + self.timeout_s


class Scenario(Section):
    """A whole scenario."""

    name: Name
    """Its name in the run's folder and result."""
    description: str = ""
    """One sentence for the report."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 1
    """Seed of users' keys and choices and, in the simulator, of all delays and losses."""
    chain: ChainSection = ChainSection()
    validators: ValidatorsSection = ValidatorsSection()
    """A number, a list of nodes, or the section."""
    consensus: ConsensusSection = ConsensusSection()
    links: LinksSection = LinksSection()
    profile: ProfileSection | None = None
    """Measured times of a machine, or the path of their file; simulator only."""
    storage: StorageSection = StorageSection()
    limits: LimitsSection = LimitsSection()
    load: LoadPlan = LoadPlan()
    faults: list[Fault] = []
    """The faults of the run."""
    stop: StopSection = StopSection()
    success: SuccessSection = SuccessSection()
    forks: list[ForkSection] = []
    """Changes of settings during a simulated run."""

    @model_validator(mode="after")
    def _fits_together(self) -> Scenario:
        self._check_network()
        self._check_behaviours()
        check_faults(self.planned_faults, self.validators, self.stop)
        self.load.check_heights(self.stop.below_height)
        for index, height in self.validators.late.items():
            if height >= self.stop.below_height:
                raise ValueError(
                    f"validators.nodes[{index}].joins_at_height: {height} is not below stop.height ({self.stop.height})"
                )
        return self

    def _check_behaviours(self) -> None:
        for index, node in enumerate(self.validators.nodes):
            for name in node.byzantine:
                protocol = behaviour_named(name).protocol
                if protocol and protocol != self.consensus.protocol:
                    raise ValueError(
                        f"validators.nodes[{index}].byzantine: {name} lies in messages of {protocol} only;"
                        f" consensus.protocol is {self.consensus.protocol}"
                    )

    def _check_network(self) -> None:
        names, placed = self.validators.names, {}
        for region, members in self.links.regions.items():
            if unknown := [name for name in members if name not in names]:
                raise ValueError(
                    f"links.regions.{region}: no validator is named {unknown[0]!r}; {instead(unknown[0], names)}"
                )
            placed.update(dict.fromkeys(members, region))
        for index, node in enumerate(self.validators.nodes):
            other = placed.get(names[index])
            if node.region is not None and other not in (None, node.region):
                raise ValueError(
                    f"validators.nodes[{index}].region: links.regions has {names[index]} in {other}, not {node.region}"
                )
        try:
            self.links.check_regions(list(self.regions))
            _ = self.network
        except ValueError as error:
            raise ValueError(f"links.{error}") from None

    @model_validator(mode="after")
    def _genesis_can_be_built(self, info: ValidationInfo) -> Scenario:
        for number, group in enumerate(self.load.users):
            options = group.known_options(executes(info))
            for place, program in ({} if options is None else options.programs()).items():
                if problem := refusal(program):
                    raise ValueError(f"load.users[{number}].options.{place}: {problem}")
        try:
            check_genesis(self, executes(info))
        except GenesisError as error:
            raise ValueError(str(error) if str(error).startswith("validators.") else f"chain: {error}") from None
        return self

    @model_validator(mode="after")
    def _forks_fit(self, info: ValidationInfo) -> Scenario:
        before = self
        for number, fork in enumerate(self.forks):
            if number and fork.at_height <= self.forks[number - 1].at_height:
                raise ValueError(f"forks[{number}].at_height: {fork.at_height} is not above that of the fork before")
            after = self.after_fork(number, info.context)
            for stop in (before.stop.below_height, after.stop.below_height):
                if fork.at_height >= stop:
                    raise ValueError(f"forks[{number}].at_height: {fork.at_height} is not below stop.height ({stop})")
            try:
                check_faults_of_the_past(before.faults, after.faults, fork.at_height)
            except ValueError as error:
                raise ValueError(f"forks[{number}].changes: {error}") from None
            before = after
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _may_have_sections_of_packages(
        cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Defined after the other validators, which so run once."""
        model = with_sections(cls, given) if isinstance(given, dict) else cls
        return handler(given) if model is cls else model.model_validate(given, context=info.context)

    def after_fork(self, number: int, context: Any = None) -> Scenario:
        """The scenario with the changes of forks up to this one. Raises :class:`ValueError` if one is impossible.

        ``context`` is that of a validation that executes the scenario's code (``EXECUTES``).
        """
        from cluster.scenario.overrides import Change, apply_changes  # they read YAML, which a host does not

        data = self.model_dump(mode="json", exclude_unset=True, exclude={"forks"})
        for position, fork in enumerate(self.forks[: number + 1]):
            try:
                for path in fork.changes:
                    check_change(path)
                data = apply_changes(data, [Change(path, value) for path, value in fork.changes.items()])
                scenario = Scenario.model_validate(data, context=context)
            except ValidationError as error:
                raise ValueError(f"forks[{position}].changes: {describe(error, data, Scenario)}") from None
            except ValueError as error:
                raise ValueError(f"forks[{position}].changes: {error}") from None
        return scenario

    @property
    def regions(self) -> dict[str, list[str]]:
        """Validators' names by region, from ``links.regions`` and the validators' own settings."""
        found = {region: list(members) for region, members in self.links.regions.items()}
        for name, node in zip(self.validators.names, self.validators.nodes, strict=False):
            if node.region is not None and name not in found.setdefault(node.region, []):
                found[node.region].append(name)
        return found

    @property
    def network(self) -> Network:
        """The network between the validators, built at each call."""
        return Network(self.links, self.validators.names, self.regions, self.seed)

    def ended_at(self, height: int) -> Scenario:
        """The scenario of a run that ended at a height: it stops there, or after the last planned event.

        If that is earlier than planned, the minimum numbers of ``success`` are reduced in proportion.
        """
        begins = [fault.at_height for fault in self.faults] + [part.from_height for part in self.load.parts.values()]
        begins += self.validators.late.values()
        last = max(1, min(height, MAX_HEIGHTS), *(1 + begin for begin in begins if begin is not None))
        last_s = max((1 + fault.at_ms // 1_000 for fault in self.faults if fault.at_ms is not None), default=0)
        stop = {"height": last, "duration_s": None, "timeout_s": max(self.stop.timeout_s, last_s)}
        success = self.success.of_part(min(height, self.stop.height), self.stop.height)
        return self.model_copy(update={"stop": self.stop.model_copy(update=stop), "success": success})

    @property
    def planned_faults(self) -> list[BaseFault]:
        """The faults with regions replaced by their validators."""
        regions = self.regions
        found = []
        for position, fault in enumerate(self.faults):
            try:
                found.append(fault.with_regions_named(regions))
            except ValueError as error:
                raise ValueError(f"faults[{position}].{error}") from None
        return found

    @property
    def live_problem(self) -> str | None:
        """The first setting that the live testnet cannot run, as ``path: reason``; ``None`` if there is none."""
        if self.forks:
            return "forks: only the simulator can repeat the past (--backend sim)"
        if self.consensus.signatures != "ed25519":
            return "consensus.signatures: the live testnet signs votes with ed25519 only"
        for index, node in enumerate(self.validators.nodes):
            for name in node.byzantine:
                if why := behaviour_named(name).simulator_only:
                    return f"validators.nodes[{index}].byzantine: {name} runs in the simulator only: {why}"
        return first_of(fault.live_problem for fault in self.faults)

    @property
    def simulator_problem(self) -> str | None:
        """The first setting that the simulator cannot run, as ``path: reason``; ``None`` if there is none.

        It may be a setting that a fork changes.
        """
        if self.load.locust is not None:
            return "load.locust: Locust users send HTTP requests, which only the live testnet answers (--backend live)"
        if problem := self.external_problem(
            "only the live testnet has a network that an external validator can reach (--backend live)"
        ):
            return problem
        if problem := first_of(fault.simulator_problem for fault in self.faults):
            return problem
        after_forks = (
            first_of(fault.simulator_problem for fault in self.after_fork(n).faults) for n in range(len(self.forks))
        )
        return next((f"forks[{n}].changes: {problem}" for n, problem in enumerate(after_forks) if problem), None)

    def external_problem(self, reason: str) -> str | None:
        """Why there may be no external validator, as ``path: reason`` of the first one; ``None`` if there is none."""
        return next((f"validators.nodes[{index}].external: {reason}" for index in self.validators.external), None)

    @property
    def recovery_ms(self) -> int:
        """Limit from the end of the last fault to a quorum's next final block.

        By default the time of a rebroadcast, ``f + 1`` failed views in a row and one more view: ``rebroadcast_ms +
        (f + 2) × (advance_timeout_ms + block_interval_ms)``. With random leaders it has three times as many views
        (:data:`consensus.leader.DRAWN_IN_A_ROW`).
        """
        if self.success.recovery_ms is not None:
            return self.success.recovery_ms
        consensus = self.consensus
        views = fault_bound(self.validators.count) + 2
        if consensus.leader_election == "random":
            views *= DRAWN_IN_A_ROW
        return consensus.rebroadcast_ms + views * consensus.view_change_ms
