"""The genesis and the keys that follow from a scenario's sections and a run's seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from blake3 import blake3

from cluster.scenario.sections.chain import ChainSection
from cluster.scenario.sections.validators import ValidatorsSection
from consensus.keys import Committee, Ed25519Scheme, SignatureScheme, Signer, ValidatorSet
from consensus.types import PublicKey, ValidatorIndex, View
from loadgen.workloads import LoadPlan
from validator.chain.genesis import Genesis, GenesisEpoch, GenesisError
from validator.primitives.types import Address, address_text
from validator.transition.genesis_block import genesis_batch
from validator.transition.receipt_bound import require_receipts_fit

T = TypeVar("T")


class GenesisSource(Protocol):
    """The sections of a scenario from which a genesis is made."""

    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def chain(self) -> ChainSection: ...
    @property
    def validators(self) -> ValidatorsSection: ...
    @property
    def load(self) -> LoadPlan: ...


def chain_id(source: GenesisSource, seed: int) -> str:
    """The chain's name. It differs between runs with different seeds."""
    return f"stampede-{source.name}-{seed}"


def validator_signer(scheme: SignatureScheme, seed: int, index: int) -> Signer:
    """A validator's signing key, which follows from the run's seed."""
    secret = blake3(seed.to_bytes(8, "big") + index.to_bytes(8, "big"), derive_key_context="stampede validator key v1")
    return scheme.signer(secret.digest())


def validator_set(scheme: SignatureScheme, source: GenesisSource, seed: int) -> ValidatorSet:
    """All validators' public keys, by index: made from the seed, or given for an external validator.

    Raises :class:`~validator.chain.genesis.GenesisError` if an external validator has the key of another.
    """
    keys = [validator_signer(scheme, seed, index).public_key for index in range(source.validators.count)]
    for index, section in source.validators.external.items():
        key = PublicKey(bytes.fromhex(section.public_key))
        if key in keys and keys.index(key) != index:
            where, other = f"validators.nodes[{index}].external.public_key", source.validators.names[keys.index(key)]
            raise GenesisError(f"{where}: it is the key that {other} has with seed {seed}")
        keys[index] = key
    return ValidatorSet(
        tuple(keys), scheme, _committees(source.validators.committees.items() if source.validators.epochs else ())
    )


def validators_of(genesis: Genesis, scheme: SignatureScheme) -> ValidatorSet:
    """The validators of a genesis."""
    keys = tuple(map(PublicKey, genesis.validators))
    return ValidatorSet(keys, scheme, _committees((epoch.first_view, epoch.members) for epoch in genesis.epochs))


def _committees(epochs: Iterable[tuple[int, Iterable[int]]]) -> tuple[Committee, ...]:
    return tuple(Committee(View(at), tuple(map(ValidatorIndex, members))) for at, members in epochs)


def build_genesis(source: GenesisSource, seed: int, validators: ValidatorSet, executes_own: bool = True) -> Genesis:
    """The genesis from which every validator of the run starts. Without ``executes_own`` the actors of custom workloads
    have the script's code. Raises :class:`~validator.chain.genesis.GenesisError`.
    """
    chain, load = source.chain, source.load
    policy, policy_file = chain.policies()
    return Genesis(
        chain_id=chain_id(source, seed),
        validators=validators.public_keys,
        policy=policy,
        policy_file=policy_file,
        parameters=chain.parameters(),
        preset=chain.preset,
        accounts=_together("accounts", load.genesis_accounts(seed), chain.genesis_accounts(seed)),
        actors=_together("actors", load.genesis_actors(seed, executes_own), chain.genesis_actors(seed)),
        system_deployers=tuple(dict.fromkeys([*load.genesis_deployers(seed), *chain.genesis_deployers(seed)])),
        runners=load.genesis_runners(seed),
        epochs=tuple(GenesisEpoch(epoch.first_view, epoch.members) for epoch in validators.epochs),
    )


def _together(what: str, of_load: Mapping[Address, T], of_chain: Mapping[Address, T]) -> dict[Address, T]:
    """The genesis accounts or actors of the load and of the section ``chain``, merged.

    Raises :class:`~validator.chain.genesis.GenesisError` if an address is in both.
    """
    for address in of_chain:
        if address in of_load:
            raise GenesisError(f"{what}: {address_text(address)} is that of a user of the load")
    return {**of_load, **of_chain}


def check_genesis(source: GenesisSource, executes_own: bool) -> None:
    """Raise :class:`~validator.chain.genesis.GenesisError` if the genesis cannot be built.

    ``executes_own`` is that of :func:`build_genesis`.
    """
    seed = source.seed
    genesis = build_genesis(source, seed, validator_set(Ed25519Scheme(), source, seed), executes_own)
    require_receipts_fit(genesis.parameters)
    genesis_batch(genesis)
