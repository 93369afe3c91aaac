"""The load plan: the users of a run. It is the ``load`` section of a scenario.

A user's key, account, actor and random source all follow from the run's seed and the user's number. So the genesis, the
simulator and every Locust process agree on the users without communication.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Annotated, Any, Final, Literal, NamedTuple

from blake3 import blake3
from nacl.signing import SigningKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError, PydanticKnownError

from loadgen.workloads.actor_program import is_program_path
from loadgen.workloads.arrival import Schedule
from loadgen.workloads.base import Member, Options, Workload
from loadgen.workloads.locustfiles import OwnLocust
from loadgen.workloads.own import (
    Facts,
    OwnWorkload,
    executes,
    facts_of,
    kind_of,
    kind_of_a_run,
    one_line,
)
from loadgen.workloads.phases import Height, Phase, check_order, check_reached
from loadgen.workloads.program import ProgramOptions
from loadgen.workloads.registry import WORKLOADS, WorkloadError
from loadgen.workloads.user import LoadUser
from validator.chain.genesis import GenesisActor
from validator.chain.transactions import SCRIPT_CODE, address_of
from validator.primitives.params import DEFAULTS, Parameters
from validator.primitives.types import Address

FUNDING: Final = 10**24
"""Default balance of each user's account, and of each user's actor, at genesis, in the smallest CBY unit."""

MAX_BUDGET: Final = 10**30
MAX_USERS: Final = 100_000
MAX_PROCESSES: Final = 64
MAX_USERS_PER_CLIENT: Final = 10_000
ACTOR_ADDRESS_PREFIX: Final = b"\xac"
"""First byte of every load actor's address, so that none is a reserved one."""


class Funding(NamedTuple):
    """Balances of a user at genesis, in the smallest CBY unit."""

    account: int
    actor: int


def _is_none(value: object) -> bool:
    return value is None


class UserGroup(BaseModel):
    """Users with the same workload, which act independently."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    workload: str | OwnWorkload
    """The workload of the users: the name of a shipped or installed one, or the path of a custom Python file."""
    count: Annotated[int, Field(ge=1, le=MAX_USERS)] = 1
    """Number of users."""
    interval_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 1_000
    """Milliseconds between two turns of a user."""
    arrival: Literal["closed", "open"] = "closed"
    """Whether a turn is due an interval after the one before began, or by the clock alone."""
    options: Annotated[dict[str, Any], Field(validate_default=True)] = {}
    """The workload's own options; see its module."""
    from_height: Height | None = None
    """The users begin once this height is final; by default at once."""
    until_height: Height | None = None
    """The users take no more turns once this height is final; by default they continue to the end."""
    phases: Annotated[list[Phase] | None, Field(exclude_if=_is_none)] = None
    """Phases, by height or time, in which these users take more or fewer turns, one after the other; they replace the
    load's. By default the load's apply."""
    budget: Annotated[int, Field(ge=1, le=MAX_BUDGET)] | None = None
    """Total of the group's accounts and actors at genesis, in the smallest CBY unit; they can spend no more. Users get
    equal shares. By default each account and each actor holds 10**24."""

    @field_validator("workload", mode="before")
    @classmethod
    def _workload_is_a_name_or_a_text(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return OwnWorkload.model_validate(given)
        if not isinstance(given, str | OwnWorkload):
            raise PydanticKnownError("string_type")
        return given

    @field_validator("workload")
    @classmethod
    def _workload_is_known(cls, workload: str | OwnWorkload, info: ValidationInfo) -> str | OwnWorkload:
        if isinstance(workload, str) and workload not in WORKLOADS:
            if is_program_path(workload):
                raise ValueError(f"{workload!r} is a path, which only a scenario that is read from a file may have")
            raise PydanticCustomError(
                "unknown_name",
                "unknown {what} '{name}'; known: {known}",
                {"what": "workload", "name": workload, "known": ", ".join(sorted(WORKLOADS))},
            )
        facts_of(workload)
        if executes(info):
            kind_of(workload)
        return workload

    @field_validator("options")
    @classmethod
    def _options_are_right(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        workload = info.data.get("workload")
        if isinstance(workload, str) or (workload is not None and executes(info)):
            _parsed(workload, given)
        return given

    @model_validator(mode="after")
    def _ends_later(self) -> UserGroup:
        if self.until_height is not None and self.until_height <= (self.from_height or 0):
            raise ValueError(f"until_height: {self.until_height} is not above from_height ({self.from_height})")
        return self

    @model_validator(mode="after")
    def _phases_are_right(self) -> UserGroup:
        check_order(self.phases or [])
        check_reached(self.phases or [], self.from_height, self.until_height)
        return self

    @property
    def title(self) -> str:
        """The name of the group's workload, followed by that of its actors' program if the workload is ``program``."""
        options = self.known_options(executes_own=False)
        name = self.facts.name
        return f"{name} {options.program.name}" if isinstance(options, ProgramOptions) else name

    @property
    def facts(self) -> Facts:
        """What the group's workload says of itself."""
        return facts_of(self.workload)

    @property
    def kind(self) -> type[Workload[Any]]:
        """The class of the group's workload. The text of a custom one is executed."""
        return kind_of(self.workload)

    def actor_code(self, executes_own: bool = True) -> str:
        """The code of the users' actors. Without ``executes_own``, that of a custom workload is the script's."""
        if not executes_own and not isinstance(self.workload, str):
            return SCRIPT_CODE
        return self.kind.actor_code(self.parsed_options())

    def parsed_options(self) -> Options:
        """The options with the workload's defaults filled in. The text of a custom workload is executed; raises
        :class:`~loadgen.workloads.own.WorkloadError` if it, or its options, are wrong."""
        try:
            return _parsed(self.workload, self.options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(["options", *map(str, first["loc"])])
            raise WorkloadError(f"workload {self.facts.name}: {place}: {first['msg']}") from None

    def known_options(self, executes_own: bool) -> Options | None:
        """The parsed options; ``None`` if those of a custom workload would have to be executed and may not be."""
        return self.parsed_options() if executes_own or isinstance(self.workload, str) else None

    @property
    def is_attack(self) -> bool:
        return self.facts.is_attack

    @property
    def funding(self) -> Funding:
        """Balances of each user of the group at genesis."""
        if self.budget is None:
            return Funding(FUNDING, FUNDING)
        share = self.budget // self.count
        actor = share * self.facts.actor_percent // 100
        return Funding(share - actor, actor)


def _parsed(workload: str | OwnWorkload, options: dict[str, Any]) -> Options:
    kind = kind_of(workload)
    if isinstance(workload, str):
        return kind.options_type.model_validate(options)
    with one_line(workload.file):
        return kind.options_type.model_validate(options)


class LoadPlan(BaseModel):
    """All users of a run. Without users there is no load."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    processes: Annotated[int, Field(ge=1, le=MAX_PROCESSES)] = 1
    """Locust processes that share the users."""
    users_per_client: Annotated[int, Field(ge=1, le=MAX_USERS_PER_CLIENT)] = 1
    """Number of users whose requests one Locust user makes; it batches those that are due together."""
    signers: Annotated[int, Field(ge=0, le=MAX_PROCESSES)] = 0
    """Signing processes for each Locust process; without them it signs its transactions itself."""
    users: list[UserGroup] = []
    """Groups of users with the same workload."""
    phases: list[Phase] = []
    """Phases, by height or time, in which all users take more or fewer turns, one after the other. Groups with their
    own phases use those instead."""
    locust: OwnLocust | None = None
    """Custom Locust users and a custom shape, which run in parallel with the users above: the path of a Locustfile, or
    a list of paths."""
    external: bool = False
    """The run does not drive the users of its genesis: ``stampede load`` does."""

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> LoadPlan:
        if self.user_count > MAX_USERS:
            raise ValueError(f"users: {self.user_count} users in all, expected at most {MAX_USERS}")
        for place, group in enumerate(self.users):
            options = group.known_options(executes(info))
            named = set() if options is None else options.users_named()
            beyond = sorted(number for number in named if number >= self.user_count)
            if beyond:
                raise ValueError(
                    f"users[{place}].options: there is no user {beyond[0]}, the last is {self.user_count - 1}"
                )
        self._check_names()
        check_order(self.phases)
        return self

    def _check_names(self) -> None:
        named: dict[str, str | OwnWorkload] = {}
        for place, group in enumerate(self.users):
            if named.setdefault(group.facts.name, group.workload) != group.workload:
                raise ValueError(
                    f"users[{place}].workload: another file's workload is named {group.facts.name}, too;"
                    " expected different names"
                )

    def check_heights(self, stop_height: int) -> None:
        """Raise :class:`ValueError`, with the path of the field, if something begins after the load has stopped."""
        for path, part in self.parts.items():
            if part.from_height is not None and part.from_height >= stop_height:
                raise ValueError(f"{path}.from_height: {part.from_height} is not below stop.height ({stop_height})")

    @property
    def parts(self) -> dict[str, UserGroup | Phase]:
        """The groups and phases, each of which may begin at its own height, by their paths in a scenario."""
        found: dict[str, UserGroup | Phase] = {}
        for place, group in enumerate(self.users):
            found[f"load.users[{place}]"] = group
            found |= {f"load.users[{place}].phases[{n}]": phase for n, phase in enumerate(group.phases or [])}
        return found | {f"load.phases[{place}]": phase for place, phase in enumerate(self.phases)}

    def schedule_of(self, group: UserGroup) -> Schedule:
        """The schedule of the turns of a group's users, with the group's own phases or the load's."""
        phases = self.phases if group.phases is None else group.phases
        return Schedule(group.interval_ms, phases, group.from_height, group.until_height)

    @property
    def is_empty(self) -> bool:
        """Whether there is no load."""
        return not self.users and self.locust is None

    @property
    def user_count(self) -> int:
        return sum(group.count for group in self.users)

    @property
    def client_count(self) -> int:
        """Number of Locust users, which make the requests of the plan's users."""
        return -(-self.user_count // self.users_per_client)

    def users_of(self, client: int) -> range:
        """The numbers of the users whose requests a Locust user makes."""
        first = client * self.users_per_client
        return range(first, min(first + self.users_per_client, self.user_count))

    @property
    def titles(self) -> list[str]:
        """The title of each user's group (:attr:`UserGroup.title`), by the user's number."""
        return [title for group in self.users for title in [group.title] * group.count]

    @property
    def _groups(self) -> list[UserGroup]:
        """Each user's group, by the user's number."""
        return [group for group in self.users for _ in range(group.count)]

    def genesis_accounts(self, seed: int) -> dict[Address, int]:
        """Balances of the users' accounts at genesis, by address, in the order of the users' numbers."""
        return {_account_address(seed, number): group.funding.account for number, group in enumerate(self._groups)}

    def genesis_actors(self, seed: int, executes_own: bool = True) -> dict[Address, GenesisActor]:
        """The users' actors at genesis, by address, ordered by the users' numbers. A user is its actor's deployer.

        ``executes_own`` is that of :meth:`UserGroup.actor_code`.
        """
        kinds = [
            kind
            for group in self.users
            for kind in [(group.actor_code(executes_own), group.funding.actor)] * group.count
        ]
        return {
            _actor_address(seed, number): GenesisActor(code, deployer, balance)
            for number, (deployer, (code, balance)) in enumerate(zip(self.genesis_accounts(seed), kinds, strict=True))
        }

    @property
    def attackers(self) -> tuple[int, ...]:
        """The numbers of the attacking users."""
        return tuple(number for number, group in enumerate(self._groups) if group.is_attack)

    def attacking_addresses(self, seed: int) -> frozenset[Address]:
        """The accounts and actors of the attacking users."""
        return frozenset(of(seed, number) for number in self.attackers for of in (_account_address, _actor_address))

    def genesis_runners(self, seed: int) -> tuple[Address, ...]:
        """Account addresses, ascending, of the users that are registered runners."""
        runners = (number for number, group in enumerate(self._groups) if group.facts.is_runner)
        return tuple(sorted(_account_address(seed, number) for number in runners))

    def genesis_deployers(self, seed: int) -> list[Address]:
        """Account addresses of the users that may give system instructions, in the order of the users' numbers."""
        deployers = (number for number, group in enumerate(self._groups) if group.facts.is_deployer)
        return [_account_address(seed, number) for number in deployers]

    def build_users(
        self,
        seed: int,
        chain_id: str,
        parameters: Parameters = DEFAULTS,
        numbers: Collection[int] | None = None,
    ) -> list[LoadUser]:
        """The users, by number: all of them, or only those whose number is in ``numbers``.

        ``chain_id`` and ``parameters`` are those of the chain's genesis.
        """
        population = Population(self, seed, chain_id, parameters)
        wanted = range(self.user_count) if numbers is None else sorted(numbers)
        return [population.build_user(number) for number in wanted]


class Population:
    """Builds the load users of a plan, one by one."""

    def __init__(self, plan: LoadPlan, seed: int, chain_id: str, parameters: Parameters = DEFAULTS) -> None:
        """``seed`` is the run's seed; ``chain_id`` and ``parameters`` are those of the chain's genesis."""
        self.titles: Final = plan.titles
        self._groups = plan._groups
        self._kinds = {group.workload: kind_of_a_run(group.workload) for group in plan.users}
        self._users_of = plan.users_of
        self._schedule_of = plan.schedule_of
        self._seed, self._chain_id, self._parameters = seed, chain_id, parameters
        self._peers = tuple(plan.genesis_accounts(seed))
        self._actors = tuple(_actor_address(seed, number) for number in range(plan.user_count))

    def __len__(self) -> int:
        return len(self._groups)

    def build_users_of(self, client: int) -> list[LoadUser]:
        """The users whose requests a Locust user makes."""
        return [self.build_user(number) for number in self._users_of(client)]

    def build_user(self, number: int) -> LoadUser:
        """Build the user with this number, in the state before its first turn."""
        seed, group = self._seed, self._groups[number]
        random = Random(int.from_bytes(_derive(b"random", seed, number), "big"))
        address, actor = self._peers[number], self._actors[number]
        member = Member(number, address, actor, self._peers, self._actors, random, self._parameters)
        kind = self._kinds[group.workload]
        workload = kind(kind.options_type.model_validate(group.options), member)
        schedule, is_open = self._schedule_of(group), group.arrival == "open"
        return LoadUser(user_key(seed, number), self._chain_id, schedule, workload, is_open)


def user_key(seed: int, number: int) -> SigningKey:
    """The key of a user's account."""
    return SigningKey(_derive(b"key", seed, number))


def _account_address(seed: int, number: int) -> Address:
    return address_of(bytes(user_key(seed, number).verify_key))


def _actor_address(seed: int, number: int) -> Address:
    return Address(ACTOR_ADDRESS_PREFIX + _derive(b"actor", seed, number)[:19])


def _derive(purpose: bytes, seed: int, number: int) -> bytes:
    """Derive 32 bytes from the run's seed, which are unique for this purpose and user."""
    return blake3(b"stampede/load/" + purpose + seed.to_bytes(8, "big") + number.to_bytes(8, "big")).digest()
