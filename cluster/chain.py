"""From a scenario to the chain that it runs: keys, genesis, node settings. The same for both drivers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from blake3 import blake3

from cluster.byzantine import BEHAVIOURS, ByzantineValidator, Position, Score
from cluster.byzantine.base import SisterChain
from cluster.mutants.base import Mutant, RunCounter
from cluster.mutants.registry import MUTANTS
from cluster.scenario import Scenario
from consensus.keys import Committee, Ed25519Scheme, SignatureScheme, Signer, ValidatorSet
from consensus.messages import VoteKind
from consensus.protocols import PROTOCOLS
from consensus.simplex import SimplexConfig
from consensus.types import PublicKey, ValidatorIndex, View
from validator.assembly import PRODUCTION, Parts
from validator.block import MAX_BLOCK_BYTES
from validator.executor import StorageConfig
from validator.genesis import Genesis, GenesisEpoch, Policy
from validator.genesis_block import GenesisError, genesis_batch
from validator.node import NodeConfig
from validator.receipt_bound import require_receipts_fit
from validator.types import Address, address_text

T = TypeVar("T")

SKIP_SILENT_LEADER_VIEWS: Final = 16
"""After so many views without a sign of a leader its views are nullified at once."""


def chain_id(scenario: Scenario, seed: int) -> str:
    """The chain's name: runs of another seed are other chains."""
    return f"stampede-{scenario.name}-{seed}"


def validator_signer(scheme: SignatureScheme, seed: int, index: int) -> Signer:
    """A validator's signing key, which follows from the run's seed."""
    secret = blake3(seed.to_bytes(8, "big") + index.to_bytes(8, "big"), derive_key_context="stampede validator key v1")
    return scheme.signer(secret.digest())


def validator_set(scheme: SignatureScheme, scenario: Scenario, seed: int) -> ValidatorSet:
    """All validators' public keys, by index."""
    keys = [validator_signer(scheme, seed, index).public_key for index in range(scenario.validators.count)]
    return ValidatorSet(
        tuple(keys), scheme, _committees(scenario.validators.committees.items() if scenario.validators.epochs else ())
    )


def validators_of(genesis: Genesis, scheme: SignatureScheme) -> ValidatorSet:
    """The validators that a genesis names, for whoever has it alone."""
    keys = tuple(map(PublicKey, genesis.validators))
    return ValidatorSet(keys, scheme, _committees((epoch.first_view, epoch.members) for epoch in genesis.epochs))


def _committees(epochs: Iterable[tuple[int, Iterable[int]]]) -> tuple[Committee, ...]:
    return tuple(Committee(View(at), tuple(map(ValidatorIndex, members))) for at, members in epochs)


def build_genesis(scenario: Scenario, seed: int, validators: ValidatorSet) -> Genesis:
    """The genesis that every validator of the run starts from. Raises
    :class:`~validator.genesis_block.GenesisError`.
    """
    chain, load = scenario.chain, scenario.load
    return Genesis(
        chain_id=chain_id(scenario, seed),
        validators=validators.public_keys,
        policy=Policy(chain.policy),
        parameters=chain.parameters(),
        preset=chain.preset,
        accounts=_together("accounts", load.genesis_accounts(seed), chain.genesis_accounts(seed)),
        actors=_together("actors", load.genesis_actors(seed), chain.genesis_actors(seed)),
        system_deployers=tuple(dict.fromkeys([*load.genesis_deployers(seed), *chain.genesis_deployers(seed)])),
        runners=load.genesis_runners(seed),
        epochs=tuple(GenesisEpoch(epoch.first_view, epoch.members) for epoch in validators.epochs),
    )


def _together(what: str, of_load: Mapping[Address, T], of_chain: Mapping[Address, T]) -> dict[Address, T]:
    """What the load's users have and what the scenario names besides."""
    for address in of_chain:
        if address in of_load:
            raise GenesisError(f"{what}: {address_text(address)} is that of a user of the load")
    return {**of_load, **of_chain}


def check_genesis(scenario: Scenario) -> None:
    """Raise :class:`~validator.genesis_block.GenesisError` where no validator could start from its genesis."""
    seed = scenario.seed
    genesis = build_genesis(scenario, seed, validator_set(Ed25519Scheme(), scenario, seed))
    require_receipts_fit(genesis.parameters)
    genesis_batch(genesis)


def node_config(scenario: Scenario, index: int, counter: RunCounter, mutant_name: str | None = None) -> NodeConfig:
    """A node's settings; its engine is the protocol's, or its mutant's: the named one, or the scenario's."""
    section = scenario.consensus
    voting = SimplexConfig(
        leader_timeout_ms=section.leader_timeout_ms,
        advance_timeout_ms=section.advance_timeout_ms,
        rebroadcast_ms=section.rebroadcast_ms,
        skip_views=SKIP_SILENT_LEADER_VIEWS,
        max_body_bytes=MAX_BLOCK_BYTES,
    )
    engine, mutant = PROTOCOLS[section.protocol], _mutant_of(scenario, index, mutant_name)
    if mutant is not None and mutant.engine is not None:
        engine = mutant.engine(engine, counter)
    return NodeConfig(
        voting=voting,
        engine=engine,
        election=section.leader_election,
        block_interval_ms=section.block_interval_ms,
    )


def parts_of(scenario: Scenario, index: int, counter: RunCounter, mutant_name: str | None = None) -> Parts:
    """What a validator is made of: the production's parts, or its mutant's: the named one, or the scenario's."""
    mutant = _mutant_of(scenario, index, mutant_name)
    parts = PRODUCTION if mutant is None or mutant.parts is None else mutant.parts(counter)
    section = scenario.storage
    return replace(parts, storage=StorageConfig(section.segment_kib * 1_024, section.retained_heights))


def _mutant_of(scenario: Scenario, index: int, named: str | None) -> Mutant | None:
    name = named or scenario.validators.node(index).mutant
    return None if name is None else MUTANTS[name]


def score_of(scenario: Scenario, index: int) -> Score | None:
    """Where a validator's behaviours are counted; ``None`` for an honest one."""
    return Score() if scenario.validators.node(index).byzantine else None


def byzantine_of(
    scenario: Scenario,
    seed: int,
    index: int,
    validators: ValidatorSet,
    score: Score | None,
    twin_of: ByzantineValidator | None = None,
) -> ByzantineValidator | None:
    """What is put around a byzantine validator, or around the twin of one; ``None`` for an honest one."""
    names = scenario.validators.node(index).byzantine
    if score is None or not names:
        return None
    position = Position(
        index=index,
        signer=validator_signer(validators.scheme, seed, index),
        validators=validators,
        chain_id=chain_id(scenario, seed),
        random=Random(f"{seed}/{index}/{'twin' if twin_of else ''}"),
        score=score,
        gives_up_by=VoteKind.NULLIFY if scenario.consensus.protocol == "simplex" else VoteKind.TIMEOUT,
        sister=SisterChain(lambda signer: validator_signer(validators.scheme, seed, signer)),
    )
    accountability = None if twin_of is None else twin_of.accountability
    return ByzantineValidator([BEHAVIOURS[name] for name in names], position, accountability)
