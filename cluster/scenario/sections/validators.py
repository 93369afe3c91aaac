"""The ``validators`` section: their number, hosts, individual settings and committees."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from ipaddress import AddressValueError, IPv6Address
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Field, field_validator, model_validator

from cluster.common.suggestions import instead, unknown
from cluster.common.wording import counted
from cluster.misbehaviour.planted import planted
from cluster.scenario.sections.base import KEYWORDS, ClockSpeed, Duration, Height, Name, Section
from consensus.keys import is_public_key
from consensus.types import fault_bound

if TYPE_CHECKING:
    from cluster.misbehaviour.byzantine.base import Behaviour


def _known_mutant(name: str) -> str:
    return planted(name).name


def behaviour_named(name: str) -> type[Behaviour]:
    """The byzantine behaviour of that name. Raises :class:`ValueError`, with the known names, if there is none.

    The code of behaviours is loaded here, by the first scenario that names one.
    """
    from cluster.misbehaviour.byzantine.registry import BEHAVIOURS

    if name not in BEHAVIOURS:
        raise ValueError(unknown("behaviour", name, sorted(BEHAVIOURS)))
    return BEHAVIOURS[name]


MutantName = Annotated[str, AfterValidator(_known_mutant)]
"""A planted bug, by its name (:mod:`cluster.misbehaviour.planted`)."""
MAX_COMMAND: Final = 1_000
"""Maximum length of an executor's command, in characters."""


def _command(given: str) -> str:
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise ValueError(f"{str(error).lower()}: expected a command as in a shell") from None
    if not words:
        raise ValueError("expected a command, such as 'stampede executor'")
    return given


_ADDRESS: Final = re.compile(
    r"(\[(?P<v6>[0-9a-fA-F:.]+)\]|(?=.{1,253}:)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*):([1-9][0-9]{0,4})"
)
KEY_PATTERN: Final = r"^[0-9a-f]{64}$"
_PORTS: Final = range(1, 65_536)


def split_address(given: str) -> tuple[str, int]:
    """Host and port of an address. Raises :class:`ValueError`."""
    found = _ADDRESS.fullmatch(given)
    if found is None or int(found[3]) not in _PORTS or not _is_ipv6(found["v6"] or "::"):
        raise ValueError(f"expected host:port, such as 127.0.0.1:7000, got {given[:64]!r}")
    return found["v6"] or found[1], int(found[3])


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _address(given: str) -> str:
    split_address(given)
    return given


def _public_key(given: str) -> str:
    if not is_public_key(bytes.fromhex(given)):
        raise ValueError("no secret has this Ed25519 key: it is no point of the curve's main subgroup")
    return given


AddressText = Annotated[str, AfterValidator(_address)]


class ExternalSection(Section):
    """A validator that another party runs (``docs/peer-protocol.md``): the harness does not start it."""

    public_key: Annotated[str, Field(pattern=KEY_PATTERN), AfterValidator(_public_key)]
    """Its Ed25519 key, in hex."""
    address: AddressText
    """The address at which it listens for its peers, as ``host:port``."""
    http: AddressText | None = None
    """The address of its HTTP interface, as ``host:port``; ``None`` is the port after that of ``address``."""
    takes_part: bool = True
    """Whether it must propose or vote. The check ``participation`` fails a run in which it does neither."""

    @model_validator(mode="after")
    def _has_a_next_port(self) -> ExternalSection:
        if self.http is None and self.peers[1] + 1 not in _PORTS:
            raise ValueError("address: there is no port after it for http; expected a field http")
        return self

    @property
    def peers(self) -> tuple[str, int]:
        """Host and port for peers."""
        return split_address(self.address)

    @property
    def pages(self) -> tuple[str, int]:
        """Host and port of its HTTP interface."""
        return (self.peers[0], self.peers[1] + 1) if self.http is None else split_address(self.http)

    @property
    def url(self) -> str:
        """The URL of its HTTP interface."""
        host, port = self.pages
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class NodeSection(Section):
    """The settings of one validator."""

    OLD_NAMES = {"clock_factor": "clock_speed"}

    name: Name | None = None
    """Its name in faults, reports and logs; by default ``validator-`` and its index."""
    mutant: MutantName | None = None
    """A planted bug, by its name (``docs/mutants.md``)."""
    executor: Annotated[str, Field(max_length=MAX_COMMAND), AfterValidator(_command)] | None = None
    """The command of a program that does its state transition (``docs/executor.md``)."""
    external: ExternalSection | None = None
    """A node of another party takes its place (``docs/peer-protocol.md``)."""
    byzantine: list[str] = []
    """Its byzantine behaviours, by their names (``docs/byzantine.md``); one name or a list."""
    joins_at_height: Height | None = None
    """It is absent until this height is final; then it starts without state and joins by a snapshot."""
    region: Name | None = None
    """Its region, as in ``links.regions``."""
    sync_ms: Duration | None = None
    """A slow disk: minimum time of a sync."""
    job_ms: Duration | None = None
    """A slow machine: minimum time of an executor's job."""
    clock_speed: ClockSpeed | None = None
    """Speed of its clock: at 2, its timers expire after half the time."""

    @field_validator("byzantine", mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @field_validator("byzantine")
    @classmethod
    def _behaviours_are_known(cls, names: list[str]) -> list[str]:
        for name in names:
            behaviour_named(name)
        if len(set(names)) < len(names):
            raise ValueError("a behaviour is named twice")
        return names

    @model_validator(mode="after")
    def _has_one_transition(self) -> NodeSection:
        if self.executor is not None and self.mutant is not None:
            raise ValueError("mutant: a validator with an executor has no planted bug; the executor may have one")
        return self

    @model_validator(mode="after")
    def _has_a_process_to_set(self) -> NodeSection:
        names = ("mutant", "executor", "byzantine", "joins_at_height", "sync_ms", "job_ms", "clock_speed")
        given = [name for name in names if getattr(self, name)]
        if self.external is not None and given:
            raise ValueError(f"{given[0]}: the harness does not run an external validator, so it cannot set this")
        return self

    @property
    def is_faulty(self) -> bool:
        """Whether the validator is a mutant or byzantine."""
        return self.mutant is not None or bool(self.byzantine)

    @property
    def has_twin(self) -> bool:
        """Whether a second instance of the validator has its key."""
        return "twins" in self.byzantine


class EpochSection(Section):
    """The committee from a view on."""

    from_view: Annotated[int, Field(ge=1, le=1_000_000)]
    """The first view of the epoch."""
    members: list[Name]
    """Names of its validators."""


def write_out_validators(given: Any) -> Any:
    """Expand the short forms of the section: a number, and a list of nodes."""
    if isinstance(given, int) and not isinstance(given, bool):
        return {"count": given}
    if isinstance(given, list):
        return {"count": len(given), "nodes": [{} if node is None else node for node in given]}
    return given


ORDINARY_NODE: Final = NodeSection()
"""A validator without individual settings."""


class ValidatorsSection(Section):
    """The validators. A list of nodes is short for ``{nodes: …}``, a number for ``{count: …}``."""

    count: Annotated[int, Field(ge=1, le=512)] = 4
    """Number of validators; 3f + 1 validators tolerate f faulty ones."""
    hosts: Annotated[int, Field(ge=1, le=512)] | None = None
    """Number of hosts (Ray actors on the live testnet); by default one per validator."""
    ray_nodes: Annotated[int, Field(ge=1, le=512)] | None = None
    """Number of Ray nodes (machines) to which hosts are assigned in turn; in the simulator by default one per host. A
    live run that starts Ray itself starts this many, by default one; a joined cluster keeps its own nodes."""
    nodes: list[NodeSection] = []
    """Individual settings of validators, by index."""
    allow_more_faults: bool = False
    """Whether more validators than the protocol tolerates may be intentionally faulty, so that safety may break."""
    epochs: list[EpochSection] = []
    """Changes of the committee, which at first has all validators. Validators outside follow the chain and serve it."""

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
        if self.ray_nodes is not None and self.ray_nodes > self.host_count:
            raise ValueError(f"ray_nodes: {self.ray_nodes} nodes for {counted(self.host_count, 'host')}")
        names = self.names
        if len(set(names)) != len(names):
            raise ValueError("nodes: two validators have the same name")
        self._check_epochs()
        self._check_addresses()
        for index in self.external:
            others = [names[each] for each in self.on_same_host(index) if each != index]
            if others:
                raise ValueError(
                    f"hosts: {self.host_count} hosts put {others[0]} next to the external validator {names[index]};"
                    f" expected {self.count} hosts, or no field hosts"
                )
        for members in self.committees.values():
            most = max(Counter(self.host_of(member) for member in members).values())
            if len(members) > 3 and most > fault_bound(len(members)):
                raise ValueError(
                    f"hosts: {self.host_count} hosts put {most} validators on one, more than the"
                    f" {fault_bound(len(members))} whose loss {len(members)} validators tolerate"
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
            raise ValueError(f"nodes: no validator may be called {taken[0]!r}: it is a keyword of faults' targets")
        return self

    @property
    def host_count(self) -> int:
        return self.count if self.hosts is None else self.hosts

    @property
    def names(self) -> list[str]:
        """Every validator's name, by index; by default ``validator-<index>``."""
        return [self.node(i).name or f"validator-{i}" for i in range(self.count)]

    @property
    def byzantine(self) -> set[int]:
        """The byzantine validators, by index; nothing that they report is trusted."""
        return {index for index, node in enumerate(self.nodes[: self.count]) if node.byzantine}

    def _check_addresses(self) -> None:
        """Raise :class:`ValueError` if two external validators have the same key, or would serve at one address, or if
        there are no others."""
        if not self.ours:
            raise ValueError("nodes: all validators are external; expected at least one that the harness runs")
        keys: dict[str, int] = {}
        taken: dict[tuple[str, int], str] = {}
        for index, section in self.external.items():
            where = f"nodes[{index}].external"
            if keys.setdefault(section.public_key, index) != index:
                raise ValueError(f"{where}.public_key: nodes[{keys[section.public_key]}] has the same one")
            for (host, port), field in ((section.peers, "address"), (section.pages, "http")):
                if (host, port) in taken:
                    raise ValueError(f"{where}.{field}: {taken[host, port]} is at {host}, port {port}, too")
                taken[host, port] = f"nodes[{index}].external.{field}"

    @property
    def executors(self) -> dict[str, str]:
        """The commands of foreign executors, by the name of the validator."""
        commands = {name: self.node(index).executor for index, name in enumerate(self.names)}
        return {name: command for name, command in commands.items() if command is not None}

    @property
    def ours(self) -> list[int]:
        """The validators that the harness runs, by index."""
        return [index for index in range(self.count) if self.node(index).external is None]

    @property
    def external(self) -> dict[int, ExternalSection]:
        """The validators that the harness does not run, by index."""
        nodes = enumerate(self.nodes[: self.count])
        return {index: node.external for index, node in nodes if node.external is not None}

    def node(self, index: int) -> NodeSection:
        return self.nodes[index] if index < len(self.nodes) else ORDINARY_NODE

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
        """The members of each committee, keyed by its first view; validators by index, ascending."""
        names = self.names
        scheduled = {e.from_view: tuple(sorted(names.index(name) for name in e.members)) for e in self.epochs}
        return {1: tuple(range(self.count)), **scheduled}

    def committee(self, view: int) -> tuple[int, ...]:
        """The members of the committee of a view."""
        committees = self.committees
        return committees[max(first for first in committees if first <= view)]

    @property
    def withstood(self) -> int:
        """The number of faulty validators that every committee tolerates."""
        return min(fault_bound(len(members)) for members in self.committees.values())

    @property
    def late(self) -> dict[int, int]:
        """Heights at which late validators join by a snapshot, by index."""
        heights = {index: node.joins_at_height for index, node in enumerate(self.nodes)}
        return {index: height for index, height in heights.items() if height is not None}

    def host_of(self, index: int) -> int:
        """The host of a validator. Validators are assigned to hosts in turn."""
        return index % self.host_count

    def on_same_host(self, index: int) -> list[int]:
        """The validators on the host of a validator, including it."""
        return [each for each in range(self.count) if self.host_of(each) == self.host_of(index)]

    def ray_node_of(self, index: int) -> int:
        """The Ray node of a validator, in the simulator."""
        return self.host_of(index) % (self.ray_nodes or self.host_count)

    def on_same_ray_node(self, index: int) -> list[int]:
        """The validators on the Ray node of a validator, including it, in the simulator."""
        return [each for each in range(self.count) if self.ray_node_of(each) == self.ray_node_of(index)]

    def on_host(self, host: int, height: int) -> list[int]:
        """The validators of a host when a height is final, except those that join later."""
        carried = [index for index in range(self.count) if self.host_of(index) == host]
        return [index for index in carried if self.late.get(index, 0) <= height]
