"""A whole scenario, section by section. ``docs/scenarios.md`` is the reference of its fields."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from cluster.bounds import MOST_HEIGHTS, MOST_SECONDS
from cluster.faults import (
    KEYWORDS,
    AnyFault,
    ClockFactor,
    Duration,
    Fault,
    MutantName,
    check_faults_fit,
    live_problem,
    simulator_problem,
    with_regions_named,
)
from cluster.forks import ForkSection, check_change, check_faults_of_the_past
from cluster.near import instead, unknown
from cluster.scenario.chain import ChainSection
from cluster.scenario.links import LinksSection
from cluster.scenario.network import Network
from cluster.scenario.problems import describe
from cluster.scenario.success import SuccessSection
from cluster.sections import Height, Milliseconds, Name, Section
from cluster.settings import Change, apply_changes
from consensus.types import fault_bound
from loadgen.workloads import LoadPlan
from validator.genesis_block import GenesisError
from validator.pvm.deployment import refusal


class NodeSection(Section):
    """What is particular to one validator."""

    name: Name | None = None
    """Names it in faults, reports and logs; by default ``validator-`` and its number, from 0."""
    mutant: MutantName | None = None
    """A planted bug, by its name in ``cluster.mutants``."""
    byzantine: list[str] = []
    """How it breaks the protocol on purpose, by names in ``cluster.byzantine``; a name stands for a list of it."""
    joins_at_height: Height | None = None
    """It is not there at first: once this height is final it begins without state, and joins by a snapshot."""
    region: Name | None = None
    """Where it is: as in ``links.regions``."""
    sync_ms: Duration | None = None
    """A slow disk: each of its syncs takes so long."""
    job_ms: Duration | None = None
    """A slow machine: each job of its executor takes so long."""
    clock_factor: ClockFactor | None = None
    """Its clock runs at another speed: at 2, its timers expire after half the time."""

    @field_validator("byzantine", mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @field_validator("byzantine")
    @classmethod
    def _behaviours_are_known(cls, names: list[str]) -> list[str]:
        from cluster.byzantine import BEHAVIOURS

        for name in names:
            if name not in BEHAVIOURS:
                raise ValueError(unknown("behaviour", name, sorted(BEHAVIOURS)))
        if len(set(names)) < len(names):
            raise ValueError("a behaviour is named twice")
        return names

    @property
    def is_faulty(self) -> bool:
        """Broken on purpose: a mutant, or byzantine."""
        return self.mutant is not None or bool(self.byzantine)


class EpochSection(Section):
    """Who votes and leads from a consensus view on."""

    from_view: Annotated[int, Field(ge=1, le=1_000_000)]
    """The first view of the epoch."""
    members: list[Name]
    """Validators, by their names."""


def write_out_validators(given: Any) -> Any:
    """The short forms of the section as what they stand for: a number, and a list of nodes."""
    if isinstance(given, int) and not isinstance(given, bool):
        return {"count": given}
    if isinstance(given, list):
        return {"count": len(given), "nodes": [{} if node is None else node for node in given]}
    return given


class ValidatorsSection(Section):
    """The validators. A list of nodes, or a number, stands for ``{nodes: …}`` and ``{count: …}``."""

    count: Annotated[int, Field(ge=1, le=512)] = 4
    """How many there are; 3f + 1 of them survive f faulty ones."""
    hosts: Annotated[int, Field(ge=1, le=512)] | None = None
    """Live hosts (Ray actors) that carry them; by default one host a validator."""
    nodes: list[NodeSection] = []
    """What is particular to single validators, in order."""
    allow_more_faults: bool = False
    """A drill: more validators may be broken on purpose than the protocol withstands, so safety may break."""
    epochs: list[EpochSection] = []
    """Changes of the committee; before the first of them all validators are in it. Who is not follows and serves."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        return write_out_validators(given)

    @model_validator(mode="after")
    def _consistent(self) -> ValidatorsSection:
        if len(self.nodes) > self.count:
            raise ValueError(f"nodes: {len(self.nodes)} entries for {self.count} validators")
        if self.hosts is not None and self.hosts > self.count:
            raise ValueError(f"hosts: {self.hosts} hosts for {self.count} validators")
        names = self.names
        if len(set(names)) != len(names):
            raise ValueError("nodes: two validators have the same name")
        self._check_epochs()
        for members in self.committees.values():
            most = max(Counter(self.host_of(member) for member in members).values())
            if len(members) > 3 and most > fault_bound(len(members)):
                raise ValueError(
                    f"hosts: {self.host_count} hosts put {most} validators on one, more than the"
                    f" {fault_bound(len(members))} whose loss {len(members)} validators survive"
                )
            faulty = sum(self.node(member).is_faulty for member in members)
            if faulty > fault_bound(len(members)) and not self.allow_more_faults:
                raise ValueError(
                    f"nodes: {faulty} of {len(members)} validators are byzantine or mutants; at most"
                    f" {fault_bound(len(members))} may be, unless allow_more_faults is true"
                )
            late = len(self.late.keys() & set(members))
            if late > fault_bound(len(members)):
                raise ValueError(
                    f"nodes: {late} of {len(members)} validators join late; at most {fault_bound(len(members))} may,"
                    f" since the others must be a quorum"
                )
        if taken := [name for name in names if name in KEYWORDS]:
            raise ValueError(f"nodes: no validator may be called {taken[0]!r}: as a fault's target it means another")
        return self

    @property
    def host_count(self) -> int:
        return self.count if self.hosts is None else self.hosts

    @property
    def names(self) -> list[str]:
        """Every validator's name, by index; ``validator-<index>`` where none is given."""
        return [self.node(i).name or f"validator-{i}" for i in range(self.count)]

    def node(self, index: int) -> NodeSection:
        return self.nodes[index] if index < len(self.nodes) else NodeSection()

    def _check_epochs(self) -> None:
        before = 0
        for number, epoch in enumerate(self.epochs):
            if epoch.from_view <= before:
                raise ValueError(f"epochs[{number}].from_view: {epoch.from_view} is not above {before}")
            before = epoch.from_view
            if not epoch.members or len(set(epoch.members)) != len(epoch.members):
                raise ValueError(f"epochs[{number}].members: expected validators, each once, at least one")
            unknown = [name for name in epoch.members if name not in self.names]
            if unknown:
                raise ValueError(
                    f"epochs[{number}].members: no validator is named {unknown[0]!r}; {instead(unknown[0], self.names)}"
                )

    @property
    def committees(self) -> dict[int, tuple[int, ...]]:
        """The members of each committee, by its first view; validators by index, ascending."""
        names = self.names
        scheduled = {e.from_view: tuple(sorted(names.index(name) for name in e.members)) for e in self.epochs}
        return {1: tuple(range(self.count)), **scheduled}

    def committee(self, view: int) -> tuple[int, ...]:
        """The members of the committee that rules a view."""
        committees = self.committees
        return committees[max(first for first in committees if first <= view)]

    @property
    def withstood(self) -> int:
        """As many faulty validators as every committee withstands."""
        return min(fault_bound(len(members)) for members in self.committees.values())

    @property
    def late(self) -> dict[int, int]:
        """The heights at which validators join by a snapshot, by index; the others are there from the genesis on."""
        heights = {index: node.joins_at_height for index, node in enumerate(self.nodes)}
        return {index: height for index, height in heights.items() if height is not None}

    def host_of(self, index: int) -> int:
        """Which host carries a validator: round-robin."""
        return index % self.host_count

    def on_host(self, host: int, height: int) -> list[int]:
        """The validators of a host that are there when a height is final: all but those that join later."""
        carried = [index for index in range(self.count) if self.host_of(index) == host]
        return [index for index in carried if self.late.get(index, 0) <= height]


class StorageSection(Section):
    """How much a validator's disk keeps of the state's past."""

    segment_kib: Annotated[int, Field(ge=1, le=1_048_576)] = 32_768
    """Size of a file of the state's log, in KiB; old files are removed as wholes."""
    retained_heights: Annotated[int, Field(ge=8, le=100_000)] = 256
    """Heights below the final one that can be proved, and offered as a snapshot."""


class ConsensusSection(Section):
    """The protocol and its timeouts."""

    protocol: Literal["simplex", "hotstuff"] = "simplex"
    """The consensus protocol."""
    leader_election: Literal["round-robin", "random"] = "round-robin"
    """Who leads a view: the members of the committee in turn, or as a hash of chain and view says."""
    signatures: Literal["ed25519", "keyed-hash"] = "ed25519"
    """What votes are signed with; ``keyed-hash`` is fast and no signature, for simulations alone."""
    block_interval_ms: Milliseconds = 250
    """The least time between two blocks: a leader waits this long after it entered its view before it proposes."""
    leader_timeout_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 2_000
    """How long a validator waits for the leader's proposal before it votes to nullify the view."""
    advance_timeout_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 3_000
    """How long it waits for the view to end before it votes to nullify it."""
    rebroadcast_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 1_000
    """How often it repeats what it last said while the view does not end."""

    @property
    def view_change_ms(self) -> int:
        """How long it takes at most to give up a view that fails."""
        return self.advance_timeout_ms + self.block_interval_ms

    @model_validator(mode="after")
    def _interval_below_timeout(self) -> ConsensusSection:
        if self.block_interval_ms >= self.leader_timeout_ms:
            raise ValueError(
                f"block_interval_ms: {self.block_interval_ms} is not below leader_timeout_ms ({self.leader_timeout_ms})"
            )
        if self.leader_timeout_ms > self.advance_timeout_ms:
            raise ValueError(
                f"leader_timeout_ms: {self.leader_timeout_ms} is above advance_timeout_ms ({self.advance_timeout_ms})"
            )
        return self


class StopSection(Section):
    """When the run ends."""

    height: Height = 40
    """The load stops when the first validator has finalised this height."""
    timeout_s: Annotated[int, Field(ge=1, le=MOST_SECONDS)] = 120
    """The run ends after so long, whatever it has reached."""
    drain_blocks: Annotated[int, Field(ge=0, le=1_000)] = 5
    """Blocks to finalise after the load stopped, so that what is under way settles."""


class Scenario(Section):
    """A whole scenario."""

    name: Name
    """Names the run's folder and stands in its result."""
    description: str = ""
    """One sentence for the report."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 1
    """Users' keys, their choices and, in the simulator, every delay and loss follow from it."""
    chain: ChainSection = ChainSection()
    validators: ValidatorsSection = ValidatorsSection()
    """How many there are and what is particular to each: a number, a list of nodes, or the section."""
    consensus: ConsensusSection = ConsensusSection()
    links: LinksSection = LinksSection()
    storage: StorageSection = StorageSection()
    load: LoadPlan = LoadPlan()
    faults: list[Fault] = []
    """What breaks, and when."""
    stop: StopSection = StopSection()
    success: SuccessSection = SuccessSection()
    forks: list[ForkSection] = []
    """Moments from which on other settings apply, in the simulator."""

    @model_validator(mode="after")
    def _fits_together(self) -> Scenario:
        names = self.validators.names
        self._check_network()
        self._check_behaviours()
        joins_at = {names[index]: height for index, height in self.validators.late.items()}
        check_faults_fit(self.planned_faults, names, joins_at, self.stop.height, self.stop.timeout_s * 1_000)
        self.load.check_heights(self.stop.height)
        for index, height in self.validators.late.items():
            if height >= self.stop.height:
                raise ValueError(
                    f"validators.nodes[{index}].joins_at_height: {height} is not below stop.height ({self.stop.height})"
                )
        return self

    def _check_behaviours(self) -> None:
        from cluster.byzantine import BEHAVIOURS

        for index, node in enumerate(self.validators.nodes):
            for name in node.byzantine:
                protocol = BEHAVIOURS[name].protocol
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
    def _genesis_can_be_built(self) -> Scenario:
        from cluster.chain import check_genesis

        for number, group in enumerate(self.load.users):
            for place, program in group.parsed_options().programs().items():
                if problem := refusal(program):
                    raise ValueError(f"load.users[{number}].options.{place}: {problem}")
        try:
            check_genesis(self)
        except GenesisError as error:
            raise ValueError(f"chain: {error}") from None
        return self

    @model_validator(mode="after")
    def _forks_fit(self) -> Scenario:
        before = self
        for number, fork in enumerate(self.forks):
            if number and fork.at_height <= self.forks[number - 1].at_height:
                raise ValueError(f"forks[{number}].at_height: {fork.at_height} is not above that of the fork before")
            after = self.after_fork(number)
            for stop in (before.stop.height, after.stop.height):
                if fork.at_height >= stop:
                    raise ValueError(f"forks[{number}].at_height: {fork.at_height} is not below stop.height ({stop})")
            try:
                check_faults_of_the_past(before.faults, after.faults, fork.at_height)
            except ValueError as error:
                raise ValueError(f"forks[{number}].changes: {error}") from None
            before = after
        return self

    def after_fork(self, number: int) -> Scenario:
        """The settings that apply from a fork on. Raises :class:`ValueError` where its changes cannot be made."""
        data = self.model_dump(mode="json", exclude_unset=True, exclude={"forks"})
        for position, fork in enumerate(self.forks[: number + 1]):
            try:
                for path in fork.changes:
                    check_change(path)
                data = apply_changes(data, [Change(path, value) for path, value in fork.changes.items()])
                scenario = Scenario.model_validate(data)
            except ValidationError as error:
                raise ValueError(f"forks[{position}].changes: {describe(error, data)}") from None
            except ValueError as error:
                raise ValueError(f"forks[{position}].changes: {error}") from None
        return scenario

    @property
    def regions(self) -> dict[str, list[str]]:
        """Validators' names by region, as ``links.regions`` and the validators' own entries have them."""
        found = {region: list(members) for region, members in self.links.regions.items()}
        for name, node in zip(self.validators.names, self.validators.nodes, strict=False):
            if node.region is not None and name not in found.setdefault(node.region, []):
                found[node.region].append(name)
        return found

    @property
    def network(self) -> Network:
        """What lies between the validators; made anew each time."""
        return Network(self.links, self.validators.names, self.regions, self.seed)

    def ended_at(self, height: int) -> Scenario:
        """The scenario of a run that ended at a height: it stops there, or behind the last thing it plans.

        Where that is sooner than it was to, as large a part of what it asks for is needed.
        """
        begins = [fault.at_height for fault in self.faults] + [part.from_height for part in self.load.parts]
        begins += self.validators.late.values()
        last = max(1, min(height, MOST_HEIGHTS), *(1 + begin for begin in begins if begin is not None))
        last_s = max((1 + fault.at_ms // 1_000 for fault in self.faults if fault.at_ms is not None), default=0)
        stop = {"height": last, "timeout_s": max(self.stop.timeout_s, last_s)}
        success = self.success.of_part(min(height, self.stop.height), self.stop.height)
        return self.model_copy(update={"stop": self.stop.model_copy(update=stop), "success": success})

    @property
    def planned_faults(self) -> list[AnyFault]:
        """The faults with names in the place of regions, for whoever performs them."""
        regions = self.regions
        found = []
        for position, fault in enumerate(self.faults):
            try:
                found.append(with_regions_named(fault, regions))
            except ValueError as error:
                raise ValueError(f"faults[{position}].{error}") from None
        return found

    @property
    def live_problem(self) -> str | None:
        """What the live testnet cannot do of it, as ``path: reason``; ``None`` where it can do all."""
        from cluster.byzantine import BEHAVIOURS

        if self.forks:
            return "forks: only the simulator repeats what came before; see --backend sim"
        if self.consensus.signatures != "ed25519":
            return "consensus.signatures: on the live testnet votes are signed with ed25519"
        for index, node in enumerate(self.validators.nodes):
            for name in node.byzantine:
                if why := BEHAVIOURS[name].simulator_only:
                    return f"validators.nodes[{index}].byzantine: {name} runs in the simulator only: {why}"
        return live_problem(self.planned_faults)

    @property
    def simulator_problem(self) -> str | None:
        """What the simulator cannot do of it, likewise; what applies after its forks included."""
        if problem := simulator_problem(self.planned_faults):
            return problem
        after_forks = (simulator_problem(self.after_fork(n).planned_faults) for n in range(len(self.forks)))
        return next((f"forks[{n}].changes: {problem}" for n, problem in enumerate(after_forks) if problem), None)

    @property
    def recovery_ms(self) -> int:
        """How soon after the last fault a quorum must have finalised a new block.

        By default as long as it takes where, after everything was said anew, ``f + 1`` leaders in a row are missed and
        one more view is needed: ``rebroadcast_ms + (f + 2) × (advance_timeout_ms + block_interval_ms)``. Drawn leaders
        may be missed three times as often in a row (:data:`DRAWN_IN_A_ROW`).
        """
        if self.success.recovery_ms is not None:
            return self.success.recovery_ms
        consensus = self.consensus
        views = fault_bound(self.validators.count) + 2
        if consensus.leader_election == "random":
            views *= DRAWN_IN_A_ROW
        return consensus.rebroadcast_ms + views * consensus.view_change_ms


DRAWN_IN_A_ROW: Final = 3
"""Where leaders are drawn, so many times as many views may fail in a row as where they take turns."""
