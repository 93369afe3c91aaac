"""The load plan: who the users are. It is the ``load`` section of a scenario.

Everything about a user follows from the run's seed and the user's number: its key, its account, its actor and its
random source. So the genesis, the simulator and every Locust process agree on the users without telling each other.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Annotated, Any, Final

from blake3 import blake3
from nacl.signing import SigningKey
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from loadgen.workloads.base import Member, Options
from loadgen.workloads.phases import Height, Phase, Rhythm, check_order
from loadgen.workloads.registry import WORKLOADS
from loadgen.workloads.user import LoadUser
from validator.chain.genesis import GenesisActor
from validator.chain.transactions import address_of
from validator.primitives.params import DEFAULTS, Parameters
from validator.primitives.types import Address

FUNDING: Final = 10**24
"""Balance of each user's account, and of each user's actor, at genesis, in the smallest CBY unit."""

MAX_USERS: Final = 10_000
MAX_PROCESSES: Final = 64
ACTOR_ADDRESS_PREFIX: Final = b"\xac"
"""First byte of every load actor's address, so that none is a reserved one."""


class UserGroup(BaseModel):
    """Users that do the same, each on its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    workload: str
    """The workload of the users."""
    count: Annotated[int, Field(ge=1, le=MAX_USERS)] = 1
    """How many there are."""
    interval_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 1_000
    """Milliseconds between two turns of a user."""
    options: Annotated[dict[str, Any], Field(validate_default=True)] = {}
    """The workload's own options; see its module."""
    from_height: Height | None = None
    """They begin once this height is final; by default at once."""
    until_height: Height | None = None
    """They take no turn any more once this height is final; by default they go on to the end."""

    @field_validator("workload")
    @classmethod
    def _workload_is_known(cls, name: str) -> str:
        if name not in WORKLOADS:
            raise PydanticCustomError(
                "unknown_name",
                "unknown {what} '{name}'; known: {known}",
                {"what": "workload", "name": name, "known": ", ".join(sorted(WORKLOADS))},
            )
        return name

    @field_validator("options")
    @classmethod
    def _options_are_right(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        name = info.data.get("workload")
        if name is not None:
            WORKLOADS[name].options_type.model_validate(given)
        return given

    @model_validator(mode="after")
    def _ends_later(self) -> UserGroup:
        if self.until_height is not None and self.until_height <= (self.from_height or 0):
            raise ValueError(f"until_height: {self.until_height} is not above from_height ({self.from_height})")
        return self

    def actor_code(self) -> str:
        return WORKLOADS[self.workload].actor_code(self.parsed_options())

    def parsed_options(self) -> Options:
        """The options with the workload's defaults filled in."""
        return WORKLOADS[self.workload].options_type.model_validate(self.options)


class LoadPlan(BaseModel):
    """All users of a run. Without users there is no load."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    processes: Annotated[int, Field(ge=1, le=MAX_PROCESSES)] = 1
    """Locust processes that share the users."""
    users: list[UserGroup] = []
    """Groups of users that do the same."""
    phases: list[Phase] = []
    """Stretches of heights in which all users take more or fewer turns, one after the other."""

    @model_validator(mode="after")
    def _fits_together(self) -> LoadPlan:
        if self.user_count > MAX_USERS:
            raise ValueError(f"users: {self.user_count} users in all, expected at most {MAX_USERS}")
        for place, group in enumerate(self.users):
            named = group.parsed_options().users_named()
            beyond = sorted(number for number in named if number >= self.user_count)
            if beyond:
                raise ValueError(
                    f"users[{place}].options: there is no user {beyond[0]}, the last is {self.user_count - 1}"
                )
        check_order(self.phases)
        return self

    def check_heights(self, stop_height: int) -> None:
        """Raise :class:`ValueError`, with the path of the field, if something begins after the load has stopped."""
        for name in ("users", "phases"):
            for position, part in enumerate(getattr(self, name)):
                if part.from_height is not None and part.from_height >= stop_height:
                    raise ValueError(
                        f"load.{name}[{position}].from_height: {part.from_height} is not below"
                        f" stop.height ({stop_height})"
                    )

    @property
    def parts(self) -> list[UserGroup | Phase]:
        """The groups and phases, each of which may begin at a height of its own."""
        return [*self.users, *self.phases]

    @property
    def user_count(self) -> int:
        return sum(group.count for group in self.users)

    @property
    def _groups(self) -> list[UserGroup]:
        """Each user's group, by the user's number."""
        return [group for group in self.users for _ in range(group.count)]

    def genesis_accounts(self, seed: int) -> dict[Address, int]:
        """The users' accounts and what they hold at genesis, by number."""
        return {_account_address(seed, number): FUNDING for number in range(self.user_count)}

    def genesis_actors(self, seed: int) -> dict[Address, GenesisActor]:
        """The users' actors at genesis, by number; a user is its actor's deployer."""
        codes = [code for group in self.users for code in [group.actor_code()] * group.count]
        return {
            _actor_address(seed, number): GenesisActor(code, deployer, FUNDING)
            for number, (deployer, code) in enumerate(zip(self.genesis_accounts(seed), codes, strict=True))
        }

    def genesis_runners(self, seed: int) -> tuple[Address, ...]:
        """The users that are registered runners, addresses ascending."""
        runners = (number for number, group in enumerate(self._groups) if WORKLOADS[group.workload].is_runner)
        return tuple(sorted(_account_address(seed, number) for number in runners))

    def genesis_deployers(self, seed: int) -> list[Address]:
        """The users that may give system instructions, by number."""
        deployers = (number for number, group in enumerate(self._groups) if WORKLOADS[group.workload].is_deployer)
        return [_account_address(seed, number) for number in deployers]

    def build_users(
        self,
        seed: int,
        chain_id: str,
        parameters: Parameters = DEFAULTS,
        numbers: Collection[int] | None = None,
    ) -> list[LoadUser]:
        """The users, by number: all of them, or only those whose number is in ``numbers``.

        ``chain_id`` and ``parameters`` are the chain's, as its genesis has them.
        """
        peers = tuple(self.genesis_accounts(seed))
        actors = tuple(_actor_address(seed, number) for number in range(self.user_count))
        users = []
        for number, group in enumerate(self._groups):
            if numbers is not None and number not in numbers:
                continue
            random = Random(int.from_bytes(_derive(b"random", seed, number), "big"))
            member = Member(number, peers[number], actors[number], peers, actors, random, parameters)
            workload = WORKLOADS[group.workload](group.parsed_options(), member)
            rhythm = Rhythm(group.interval_ms, self.phases, group.from_height, group.until_height)
            users.append(LoadUser(_key(seed, number), chain_id, rhythm, workload))
        return users


def _key(seed: int, number: int) -> SigningKey:
    return SigningKey(_derive(b"key", seed, number))


def _account_address(seed: int, number: int) -> Address:
    return address_of(bytes(_key(seed, number).verify_key))


def _actor_address(seed: int, number: int) -> Address:
    return Address(ACTOR_ADDRESS_PREFIX + _derive(b"actor", seed, number)[:19])


def _derive(purpose: bytes, seed: int, number: int) -> bytes:
    """32 bytes that nothing else of a run shares."""
    return blake3(b"stampede/load/" + purpose + seed.to_bytes(8, "big") + number.to_bytes(8, "big")).digest()
