"""The ``chain`` section: the chain's parameters, and accounts and actors of its genesis in addition to the load's.

The owner of an account is an address (``0x`` and 40 hex digits), a public key (64 hex digits) or ``seed:NAME``, a key
derived from the run's seed and the name (:func:`account_key`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from blake3 import blake3
from nacl.signing import SigningKey
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cluster.common.suggestions import meant_or_known
from cluster.scenario.sections.base import NAME_PATTERN, Name, Section
from loadgen.workloads.actor_program import ActorProgram, is_program_path
from loadgen.workloads.own import executes
from validator.chain.genesis import GenesisActor, GenesisAgent, GenesisError, Policy, PolicyFile
from validator.chain.transactions import address_of
from validator.primitives.params import PARAMETER_NAMES, ParameterError, Parameters, UnknownParameter, parse_value
from validator.primitives.types import (
    ADDRESS_BYTES,
    AMOUNT_LIMIT,
    PRICE_LIMIT,
    Address,
    address_text,
    is_reserved,
    number_of,
    parse_address,
)
from validator.primitives.user_file import MAX_BYTES
from validator.pvm.deployment import refusal

SEED_PREFIX: Final = "seed:"
"""Prefix of a key derived from the run's seed."""
ADDRESS_PATTERN: Final = r"^0[xX][0-9a-fA-F]{40}$"
OWNER_PATTERN: Final = rf"^({ADDRESS_PATTERN[1:-1]}|[0-9a-fA-F]{{64}}|{SEED_PREFIX}{NAME_PATTERN[1:-1]})$"
OWNER_FORMS: Final = f"an address (0x and 40 hex digits), a public key (64 hex digits) or {SEED_PREFIX}NAME"
FAUCET_OWNER: Final = f"{SEED_PREFIX}faucet"
"""Owner of the faucet's account."""
DEPLOYER_OWNER: Final = f"{SEED_PREFIX}deployer"
"""Default deployer of the genesis's actors."""
DERIVED_ACTOR_PREFIX: Final = b"\xac"
"""First byte of an actor address derived from a name; no reserved address has it."""


def account_key(seed: int, name: str) -> SigningKey:
    """The signing key of the owner ``seed:NAME``. Seed and name are public, so the key is for tests only."""
    return SigningKey(blake3(b"stampede/account/" + seed.to_bytes(8, "big") + name.encode()).digest())


def actor_address(name: str) -> Address:
    """The default address of an actor of the genesis: the same in every run."""
    return Address(DERIVED_ACTOR_PREFIX + blake3(b"stampede/actor/" + name.encode()).digest()[: ADDRESS_BYTES - 1])


def owner_address(owner: str, seed: int) -> Address:
    """The address of an owner of an account, written as in a scenario, in a run with this seed."""
    if owner.startswith(SEED_PREFIX):
        return address_of(bytes(account_key(seed, owner.removeprefix(SEED_PREFIX)).verify_key))
    return parse_address(owner) if owner[:2] in ("0x", "0X") else address_of(bytes.fromhex(owner))


def _text_in_quotes(given: Any) -> Any:
    if isinstance(given, int) and not isinstance(given, bool):
        raise ValueError("expected a text, got a number; put an address into quotes")
    return given


def _is_owner(text: str) -> str:
    if re.fullmatch(OWNER_PATTERN, text) is None:
        meant = f"; did you mean {SEED_PREFIX}{text}?" if re.fullmatch(NAME_PATTERN, text) else ""
        raise ValueError(f"expected {OWNER_FORMS}, got {text[:80]!r}{meant}")
    return text


def _is_address(text: str) -> str:
    address = parse_address(text)
    if is_reserved(address):
        raise ValueError(f"{text} is reserved for the system")
    return text


Owner = Annotated[str, BeforeValidator(_text_in_quotes), AfterValidator(_is_owner)]
AddressText = Annotated[str, BeforeValidator(_text_in_quotes), AfterValidator(_is_address)]
Balance = Annotated[int, Field(ge=0, lt=AMOUNT_LIMIT), BeforeValidator(number_of)]
"""A balance in the smallest CBY unit; decimal text is allowed."""
Payment = Annotated[int, Field(ge=1, lt=AMOUNT_LIMIT), BeforeValidator(number_of)]
Fee = Annotated[int, Field(ge=0, lt=PRICE_LIMIT), BeforeValidator(number_of)]


class BiddingAgentSection(Section):
    """A gas bidding agent with a constant answer."""

    code: Literal["builtin:fixed"] = "builtin:fixed"
    """The agent's code."""
    max_fee_per_cycle: Fee
    """Maximum price per cycle of the actor's fires, basefee and tip."""
    max_priority_fee_per_cycle: Fee
    """Maximum tip per cycle."""


class ActorSection(Section):
    """An actor of the genesis."""

    program: ActorProgram
    """Its program: a shipped one, ``builtin:script``, or the path of a file."""
    address: AddressText | None = None
    """Its address; by default one derived from its name."""
    balance: Balance = 0
    """Its balance, in the smallest CBY unit."""
    deployer: Owner = DEPLOYER_OWNER
    """Its deployer."""
    gba: BiddingAgentSection | None = None
    """Its gas bidding agent; by default its program's own ``bid`` handler, if it has one."""

    def at_genesis(self, seed: int) -> GenesisActor:
        """The actor in the genesis of a run."""
        agent = None if self.gba is None else GenesisAgent(**self.gba.model_dump())
        return GenesisActor(self.program.code, owner_address(self.deployer, seed), self.balance, agent)


class FaucetSection(Section):
    """A faucet (``POST /faucet``) that pays clients with its token from the account ``seed:faucet`` of the genesis."""

    balance: Payment = 10**24
    """Balance of its account in the genesis, in the smallest CBY unit."""
    max_amount: Payment = 10**21
    """Maximum of one payment."""
    requests_per_minute: Annotated[int, Field(ge=1, le=6_000)] = 60
    """Limit over all clients."""


class OwnPolicy(Section):
    """A custom scheduling policy. A scenario file names it by the path of a Python file."""

    name: Name
    """The file's name, without ``.py``."""
    source: Annotated[str, Field(min_length=1, max_length=MAX_BYTES)]
    """The file's text."""

    @model_validator(mode="after")
    def _is_a_policy(self, info: ValidationInfo) -> OwnPolicy:
        _, policy_file = self.read()
        if executes(info):
            from validator.policies.own import phase_of_file

            phase_of_file(policy_file)
        return self

    def read(self) -> tuple[Policy, PolicyFile]:
        """The policy, with the shipped policy from which it is derived; its text is not executed. Raises
        :class:`~validator.policies.own.PolicyError`."""
        from validator.policies.own import read_policy  # loads the timer phases

        return read_policy(self.name, self.source)


PolicyName = Literal["cip1", "fifo", "gba_auction", "bias_auction"]


def _name_or_file(given: Any, info: ValidationInfo) -> Any:
    if isinstance(given, Mapping):
        return OwnPolicy.model_validate(given, context=info.context)
    if isinstance(given, str) and is_program_path(given):
        raise ValueError(f"{given!r} is a path, which only a scenario that is read from a file may have")
    return given if isinstance(given, OwnPolicy) else TypeAdapter(PolicyName).validate_python(given)


class ChainSection(Section):
    """The chain's parameters, and accounts and actors of its genesis in addition to the load's."""

    policy: Annotated[PolicyName | OwnPolicy, BeforeValidator(_name_or_file)] = "cip1"
    """The scheduling policy: the name of a shipped one, or the path of a custom Python file."""
    policy_parameters: dict[str, Any] = {}
    """Values of parameters that a custom policy states, by name."""
    preset: Literal["hardened"] | None = None
    """A named set of parameters."""
    params: dict[str, Any] = {}
    """Single parameters by name; they override the preset."""
    accounts: dict[Owner, Balance] = {}
    """Balances of accounts, in the smallest CBY unit, keyed by address, public key or ``seed:NAME``."""
    actors: dict[Name, ActorSection] = {}
    """Actors of the genesis, keyed by names of your choice."""
    system_deployers: list[Owner] = []
    """Accounts that may give system instructions, in addition to the load's governing users."""
    faucet: FaucetSection | None = None
    """A faucet on the testnet's own endpoint; by default there is none."""

    @field_validator("params")
    @classmethod
    def _each_parameter_is_right(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name, value in given.items():
            try:
                parse_value(name, value)
            except UnknownParameter as error:
                raise ValueError(f"{error}; {meant_or_known(name, PARAMETER_NAMES)}") from None
            except ParameterError as error:
                raise ValueError(str(error)) from None
        return given

    @model_validator(mode="after")
    def _policy_parameters_are_right(self) -> ChainSection:
        try:
            self.policies()
        except ParameterError as error:
            raise ValueError(f"policy_parameters.{error}") from None
        return self

    @model_validator(mode="after")
    def _parameters_are_right(self) -> ChainSection:
        try:
            self.parameters()
        except ParameterError as error:
            raise ValueError(f"params.{error}") from None
        return self

    @model_validator(mode="after")
    def _programs_are_right(self) -> ChainSection:
        for name, actor in self.actors.items():
            if problem := refusal(actor.program.code):
                raise ValueError(f"actors.{name}.program: {actor.program.name}: {problem}")
        return self

    @model_validator(mode="after")
    def _nobody_is_given_twice(self) -> ChainSection:
        if self.faucet is not None and FAUCET_OWNER in self.accounts:
            raise ValueError(f"accounts.{FAUCET_OWNER}: is the faucet's account; its balance is faucet.balance")
        try:
            self.genesis_accounts(0)  # owners without a seed have the same address in every run
            self.genesis_actors(0)
        except GenesisError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def policy_name(self) -> str:
        """The policy's name for readers."""
        return self.policy if isinstance(self.policy, str) else self.policy.name

    def policies(self) -> tuple[Policy, PolicyFile | None]:
        """The shipped policy of the chain, or that from which its custom policy is derived, and the custom one. Raises
        :class:`~validator.primitives.params.ParameterError`."""
        if isinstance(self.policy, str):
            for name in self.policy_parameters:
                raise ParameterError(f"{name}: {self.policy} states no parameters; chain.params has those of the chain")
            return Policy(self.policy), None
        from validator.policies.own import with_parameters

        policy, policy_file = self.policy.read()
        return policy, with_parameters(policy_file, self.policy_parameters)

    def parameters(self) -> Parameters:
        return Parameters.from_names(self.params, self.preset)

    def genesis_accounts(self, seed: int) -> dict[Address, int]:
        """The accounts' balances. Raises :class:`~validator.chain.genesis.GenesisError`."""
        faucet = {} if self.faucet is None else {FAUCET_OWNER: self.faucet.balance}
        given: dict[Address, str] = {}
        accounts = {}
        for owner, balance in {**self.accounts, **faucet}.items():
            address = owner_address(owner, seed)
            if address in given:
                raise GenesisError(f"accounts.{owner}: is the same account as {given[address]}")
            if is_reserved(address):
                raise GenesisError(f"accounts.{owner}: is reserved for the system")
            given[address], accounts[address] = owner, balance
        return accounts

    def actor_addresses(self) -> dict[str, Address]:
        """The actors' addresses, keyed by name."""
        return {
            name: actor_address(name) if actor.address is None else parse_address(actor.address)
            for name, actor in self.actors.items()
        }

    def genesis_actors(self, seed: int) -> dict[Address, GenesisActor]:
        """The actors, keyed by address. Raises :class:`~validator.chain.genesis.GenesisError`."""
        given: dict[Address, str] = {}
        actors = {}
        for name, address in self.actor_addresses().items():
            if address in given:
                raise GenesisError(f"actors.{name}.address: {address_text(address)} is that of {given[address]}")
            given[address], actors[address] = name, self.actors[name].at_genesis(seed)
        return actors

    def genesis_deployers(self, seed: int) -> list[Address]:
        """The accounts that may give system instructions, without repetition."""
        return list(dict.fromkeys(owner_address(owner, seed) for owner in self.system_deployers))
