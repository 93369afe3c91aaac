"""Creates the nodes that run a scenario: settings, planted bugs, behaviours. The same for both drivers.

The code of a bug, a behaviour or a foreign executor is imported for a validator that has one, and for no other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from cluster.misbehaviour.planted import EnginePatch, PartsPatch, RunCounter, planted
from cluster.scenario import Scenario
from cluster.scenario.genesis import chain_id, validator_signer
from consensus.interface import VotingConfig
from consensus.keys import ValidatorSet
from consensus.messages import VoteKind
from consensus.protocols import PROTOCOLS
from validator.chain.block import MAX_BLOCK_BYTES
from validator.node.assembly import PRODUCTION, Parts
from validator.node.executor.executor import Executor, StorageConfig
from validator.node.node import NodeConfig

if TYPE_CHECKING:
    from cluster.misbehaviour.byzantine.base import Score
    from cluster.misbehaviour.byzantine.wrapper import ByzantineValidator

SKIP_SILENT_LEADER_VIEWS: Final = 16
"""Views without a message from a leader after which its views are nullified at once."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The minimum durations of a validator's work, and the speed of its clock, without faults."""

    sync_ms: int = 0
    """Duration of an fsync."""
    job_ms: int = 0
    """Duration of a job of the executor."""
    clock_speed: float = 1.0
    """Speed of the validator's clock: at 2, its timers expire after half the time."""


FULL_SPEED: Final = Pace()


def pace_of(scenario: Scenario, index: int, usual: Pace = FULL_SPEED) -> Pace:
    """A validator's pace: the usual one, except for the values that the scenario gives it."""
    node = scenario.validators.node(index)
    stated = {name: value for name in asdict(usual) if (value := getattr(node, name)) is not None}
    return replace(usual, **stated)


def node_config(scenario: Scenario, index: int, counter: RunCounter, mutant_name: str | None = None) -> NodeConfig:
    """A node's settings. Its consensus engine is the protocol's, unless the validator is a mutant with another engine.

    ``mutant_name`` overrides the mutant that the scenario gives the validator.
    """
    section = scenario.consensus
    voting = VotingConfig(
        leader_timeout_ms=section.leader_timeout_ms,
        advance_timeout_ms=section.advance_timeout_ms,
        rebroadcast_ms=section.rebroadcast_ms,
        skip_views=SKIP_SILENT_LEADER_VIEWS,
        max_body_bytes=MAX_BLOCK_BYTES,
        **scenario.limits.voting(),
    )
    engine, patch = PROTOCOLS[section.protocol], _patch_of(scenario, index, mutant_name)
    if isinstance(patch, EnginePatch):
        engine = patch.engine(engine, counter)
    return NodeConfig(
        voting=voting,
        engine=engine,
        election=section.leader_election,
        block_interval_ms=section.block_interval_ms,
        pool=scenario.limits.pool(),
        blocks=scenario.limits.blocks(),
    )


def parts_of(scenario: Scenario, index: int, counter: RunCounter, mutant_name: str | None = None) -> Parts:
    """The parts of a validator: those of production, unless the validator is a mutant with other parts, or its
    transition is done by another program.

    ``mutant_name`` overrides the mutant that the scenario gives the validator.
    """
    patch = _patch_of(scenario, index, mutant_name)
    parts = patch.parts(counter) if isinstance(patch, PartsPatch) else PRODUCTION
    section = scenario.storage
    storage = StorageConfig(
        segment_bytes=section.segment_kib * 1_024,
        retained_heights=section.retained_heights,
        keep_blocks=section.keep_blocks,
        snapshot_interval=section.snapshot_interval,
    )
    command = scenario.validators.node(index).executor
    executor = parts.executor if command is None else _foreign(command)
    return replace(parts, storage=storage, executor=executor)


def _foreign(command: str) -> type[Executor]:
    from cluster.scenario.executor_process import foreign_executor

    return foreign_executor(command)


def _patch_of(scenario: Scenario, index: int, named: str | None) -> Any:
    """What the planted bug of a validator patches; ``None`` without one. The name is resolved here."""
    name = named or scenario.validators.node(index).mutant
    return None if name is None else planted(name).patch


def score_of(scenario: Scenario, index: int) -> Score | None:
    """New counts of the effects of a validator's byzantine behaviours; ``None`` for an honest validator."""
    if not scenario.validators.node(index).byzantine:
        return None
    from cluster.misbehaviour.byzantine.base import Score

    return Score()


def byzantine_of(
    scenario: Scenario,
    seed: int,
    index: int,
    validators: ValidatorSet,
    score: Score | None,
    twin_of: ByzantineValidator | None = None,
) -> ByzantineValidator | None:
    """The wrapper that makes a validator, or its twin, act by its byzantine behaviours; ``None`` for an honest one."""
    names = scenario.validators.node(index).byzantine
    if score is None or not names:
        return None
    from cluster.misbehaviour.byzantine.base import SisterChain
    from cluster.misbehaviour.byzantine.registry import BEHAVIOURS, BehaviourContext, ByzantineValidator

    limits = scenario.limits
    context = BehaviourContext(
        index=index,
        signer=validator_signer(validators.scheme, seed, index),
        validators=validators,
        chain_id=chain_id(scenario, seed),
        random=Random(f"{seed}/{index}/{'twin' if twin_of else ''}"),
        score=score,
        gives_up_by=VoteKind.NULLIFY if scenario.consensus.protocol == "simplex" else VoteKind.TIMEOUT,
        compared_views=range(-min(4, limits.evidence_views // 2), 1 + min(1, limits.proposal_window)),
        sister=SisterChain(lambda signer: validator_signer(validators.scheme, seed, signer)),
    )
    accountability = None if twin_of is None else twin_of.accountability
    return ByzantineValidator([BEHAVIOURS[name] for name in names], context, accountability)
